//! The wrapped backend beside the decorated one.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use burn::backend::{Autodiff, Flex, NdArray};
use burn_backend::Backend;
use burn_backend::tensor::Device;
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs};

use crate::one_thread::on_one_thread;

use super::run::{Gradients, gradients, run};
use super::table::{Call, backend_calls, differentiable_calls};
use super::traits::methods;

/// Random cases of each op.
const CASES: u64 = 24;

/// The results of the calls, which were the same on both backends.
#[derive(Default)]
struct Summary {
    /// Methods that panicked each time.
    unsupported: Vec<&'static str>,
    /// Methods with a gradient.
    differentiable: usize,
}

/// The seed of a case's arguments.
pub(crate) fn seed(name: &str, case: u64) -> u64 {
    let mut seed = DefaultHasher::new();
    (name, case).hash(&mut seed);
    seed.finish()
}

/// Runs each call on both backends and compares.
fn assert_same_calls<A: Backend, M: Backend>(
    calls: (Vec<Call<A>>, Vec<Call<M>>),
    devices: (&Device<A>, &Device<M>),
    gradients: Option<(Gradients<A>, Gradients<M>)>,
) -> Summary {
    let mut summary = Summary::default();
    let mut differences = Vec::new();
    for (plain, decorated) in calls.0.iter().zip(&calls.1) {
        assert_eq!(plain.name, decorated.name);
        let (mut succeeded, mut differentiated) = (false, false);
        for case in 0..CASES {
            let seed = seed(plain.name, case);
            let expected = run(plain, seed, devices.0, gradients.map(|both| both.0));
            let got = run(decorated, seed, devices.1, gradients.map(|both| both.1));
            let what = format!("{}, case {case}", plain.name);
            assert_eq!(
                expected.operands, expected.originals,
                "{what}: Burn's operands"
            );
            assert_eq!(got.operands, got.originals, "{what}: operands");
            succeeded |= got.results.is_ok();
            differentiated |= got.has_gradient();
            if got != expected {
                differences.push(format!("{what}: got {got:?}, expected {expected:?}"));
                break;
            }
        }
        if !succeeded {
            summary.unsupported.push(plain.name);
        }
        summary.differentiable += usize::from(differentiated);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    summary
}

pub(crate) fn devices<B: MxKernels>() -> [MxDevice<Device<B>>; 2] {
    let none = MxSpecs::none().resolve().expect("none is sound");
    [
        MxDevice::default(),
        MxDevice::new(Default::default(), &none).expect("resolved specs"),
    ]
}

fn assert_ops_are_the_backends<B: MxKernels>(unsupported: &[&str]) {
    for device in devices::<B>() {
        let calls = (backend_calls::<B>(), backend_calls::<MxBackend<B>>());
        let summary = assert_same_calls(calls, (&Default::default(), &device), None);
        assert_eq!(summary.unsupported, unsupported);
    }
}

/// Other ops of `MxAutodiff` come from `MxBackend`; burn-autodiff leaves some of them to Burn's defaults.
fn assert_gradients_are_autodiffs<B: MxKernels>() {
    type Plain<B> = Autodiff<B>;
    for device in devices::<B>() {
        let calls = (
            differentiable_calls::<Plain<B>>(),
            differentiable_calls::<MxAutodiff<B>>(),
        );
        let both: (Gradients<Plain<B>>, Gradients<MxAutodiff<B>>) = (gradients, gradients);
        let summary = assert_same_calls(calls, (&Default::default(), &device), Some(both));
        // The number of calls in the table; fewer would mean that nobody asks for gradients any longer.
        assert_eq!(summary.differentiable, 144, "ops with a gradient");
    }
}

#[test]
fn every_op_without_specs_is_flex() {
    // Burn 0.21 has them for other backends alone.
    let unsupported = [
        "float_argtopk",
        "ctc_loss_backward",
        "int_argtopk",
        "q_argtopk",
    ];
    assert_ops_are_the_backends::<Flex>(&unsupported);
}

#[test]
fn every_op_without_specs_is_ndarray() {
    // Burn 0.21 has them for other backends alone.
    let unsupported = [
        "float_argtopk",
        "rfft",
        "ctc_loss_backward",
        "irfft",
        "int_argtopk",
        "q_argtopk",
    ];
    on_one_thread(|| assert_ops_are_the_backends::<NdArray>(&unsupported));
}

#[test]
fn every_float_op_and_gradient_without_specs_is_that_of_autodiff_on_flex() {
    assert_gradients_are_autodiffs::<Flex>();
}

#[test]
fn every_float_op_and_gradient_without_specs_is_that_of_autodiff_on_ndarray() {
    on_one_thread(assert_gradients_are_autodiffs::<NdArray>);
}

#[test]
fn the_table_has_every_method_of_burns_traits_once() {
    let names: Vec<&str> = backend_calls::<Flex>()
        .iter()
        .map(|call| call.name)
        .collect();
    let table: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(table.len(), names.len(), "a name stands twice");
    let methods = methods();
    let methods: BTreeSet<&str> = methods.iter().map(String::as_str).collect();
    let missing: Vec<_> = methods.difference(&table).collect();
    let unknown: Vec<_> = table.difference(&methods).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    assert!(unknown.is_empty(), "not methods of the traits: {unknown:?}");
}
