//! The table of `docs/src/op-coverage.md` against the code: it has a row for every op, and every op does what its row
//! says.
//!
//! The independent source is Burn alone, on inputs as they are or rounded by `half`.

pub(super) mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::{Autodiff, Flex, NdArray};
use burn::tensor::backend::Backend;
use burn::tensor::{Shape, Tensor, TensorPrimitive};
use burn_backend::TensorMetadata;
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs};
use half::bf16;

use crate::one_thread::on_one_thread;
use crate::support::*;
use calls::{Calls, Output, floats};

const TABLE: &str = include_str!("../../docs/src/op-coverage.md");

const SOURCES: [&str; 3] = [
    include_str!("../../crates/burn-mx-core/src/backend/ops/float.rs"),
    include_str!("../../crates/burn-mx-core/src/backend/ops/layers.rs"),
    include_str!("../../crates/burn-mx-core/src/backend/ops/activation.rs"),
];

/// The methods that both sides of the decorator delegate, among them methods of the three traits.
const DELEGATED: &str = include_str!("../../crates/burn-mx-core/src/backend/delegate/tables.rs");

/// The meaning of a row's first words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) forward: &'static str,
    pub(super) backward: &'static str,
}

/// By op.
pub(super) fn rows() -> BTreeMap<&'static str, Row> {
    let mut rows = BTreeMap::new();
    let ops = TABLE.split("\n## Functions").next().unwrap_or_default();
    for line in ops.lines() {
        let Some(line) = line.strip_prefix("| `") else {
            continue;
        };
        let mut cells = line.split(" | ");
        let mut cell = || {
            cells
                .next()
                .unwrap_or_else(|| panic!("a row has too few cells: {line}"))
        };
        let op = cell().trim_end_matches('`');
        let rule = |cell: &'static str| cell.split([' ', ',', ';', ':']).next().unwrap_or_default();
        let row = Row {
            forward: rule(cell()),
            backward: rule(cell()),
        };
        assert!(rows.insert(op, row).is_none(), "`{op}` has two rows");
    }
    rows
}

/// The methods that the source implements, in any way of writing.
fn methods() -> BTreeSet<&'static str> {
    let name = |text: &'static str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        &text[..end.unwrap_or(text.len())]
    };
    let mut methods = BTreeSet::new();
    for source in SOURCES {
        let declared = source.split("fn ").skip(1).map(name);
        let tabled = source
            .split_whitespace()
            .map(name)
            .filter(|word| word.starts_with("conv"));
        methods.extend(declared.chain(tabled).filter(|method| !method.is_empty()));
    }
    let others = ["int_", "bitwise_", "bool_", "q_"];
    let of_floats = |method: &&str| !others.iter().any(|other| method.starts_with(other));
    let delegated = DELEGATED.split("fn ").skip(1).map(name);
    methods.extend(delegated.filter(of_floats));
    // By Burn's default.
    methods.extend(["float_powi_scalar", "float_powf_scalar"]);
    for module in ["conv", "convolution", "convolutions"] {
        methods.remove(module);
    }
    methods
}

#[test]
fn the_table_has_a_row_for_every_op() {
    let rows: BTreeSet<&str> = rows().into_keys().collect();
    let methods = methods();
    assert!(methods.len() > 190, "{} methods were found", methods.len());
    let missing: Vec<_> = methods.difference(&rows).collect();
    let unknown: Vec<_> = rows.difference(&methods).collect();
    assert!(missing.is_empty(), "ops without a row: {missing:?}");
    assert!(unknown.is_empty(), "rows without an op: {unknown:?}");
}

/// The values of an output; other types than floats stay unchanged.
fn flat<B: Backend>(output: Output<B>) -> Vec<f32> {
    match output {
        Output::Floats(tensors) => tensors.into_iter().flat_map(floats::<B>).collect(),
        Output::Values(values) => values.into_iter().map(|x| x as f32).collect(),
    }
}

fn device<B: MxKernels>(specs: &MxSpecs) -> MxDevice<B::Device> {
    MxDevice::new(
        B::Device::default(),
        specs.resolve().expect("the specs are sound"),
    )
    .expect("resolved specs")
}

fn called<B: Backend>(op: &str, device: B::Device, rounded: bool) -> Vec<f32> {
    let calls = Calls::<B>::new(device, rounded, false);
    flat(
        calls
            .call(op)
            .unwrap_or_else(|| panic!("`{op}` has no call")),
    )
}

/// The difference, if there is one; NaN equals NaN.
pub(super) fn difference(got: &[f32], expected: &[f32]) -> Option<String> {
    if got.len() != expected.len() {
        return Some(format!("{} values, expected {}", got.len(), expected.len()));
    }
    let same = |(a, b): &(&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
    let (got, expected) = got.iter().zip(expected).find(|pair| !same(pair))?;
    Some(format!("got {got:e}, expected {expected:e}"))
}

/// As [`difference`], for values that are bfloat16 and only have to be near.
fn far(got: &[f32], expected: &[f32]) -> Option<String> {
    if let Some(value) = got.iter().find(|x| x.is_finite() && !is_bfloat16(**x)) {
        return Some(format!("{value:e} is not rounded"));
    }
    let largest = expected.iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    let near = |(a, b): &(&f32, &f32)| (*a - *b).abs() <= 0.05 * largest;
    let (got, expected) = got.iter().zip(expected).find(|pair| !near(pair))?;
    Some(format!("got {got:e}, expected about {expected:e}"))
}

fn rounded(values: Vec<f32>) -> Vec<f32> {
    values
        .into_iter()
        .map(|x| bf16::from_f32(x).to_f32())
        .collect()
}

fn assert_none(wrong: Vec<String>) {
    assert!(
        wrong.is_empty(),
        "{} ops are not as their rows say:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Runs `check` for each op; the result lists the failures.
fn check_all(check: impl Fn(&str, Row) -> Option<String>) {
    let check = |(op, row): (&'static str, Row)| {
        let wrong = match catch_unwind(AssertUnwindSafe(|| check(op, row))) {
            Ok(wrong) => wrong?,
            Err(panic) => panic_message(&*panic),
        };
        Some(format!("`{op}`, {row:?}: {wrong}"))
    };
    assert_none(rows().into_iter().filter_map(check).collect());
}

pub(super) fn panic_message(panic: &dyn std::any::Any) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    format!("panics: {}", text.unwrap_or_default())
}

/// Whether `B` alone has no such op.
fn lacks<B: MxKernels>(op: &str) -> bool {
    catch_unwind(|| called::<B>(op, B::Device::default(), false)).is_err()
}

fn assert_elementwise_rounding<B: MxKernels>() {
    let round_even = MxSpecs {
        round: burn_mx::Rounding::NearestEven,
        ..bfloat16_only()
    };
    check_all(|op, row| {
        if row.forward != "backward" && lacks::<B>(op) {
            return None;
        }
        let emulated = || called::<MxBackend<B>>(op, device::<B>(&round_even), false);
        let plain = |rounded| called::<B>(op, B::Device::default(), rounded);
        match row.forward {
            "exact" => difference(&emulated(), &plain(false)),
            "rounded" => difference(&emulated(), &rounded(plain(true))),
            "formula" | "composed" | "product" | "products" => far(&emulated(), &plain(false)),
            // Refused where no backward pass runs: then it is not known to be one.
            "backward" if op == "ctc_loss_backward" => None,
            "backward" => match catch_unwind(AssertUnwindSafe(emulated)) {
                Ok(_) => Some("runs outside of a backward pass".to_owned()),
                Err(panic) => {
                    let message = panic_message(&*panic);
                    (!message.contains("MxAutodiff")).then_some(message)
                }
            },
            other => Some(format!("`{other}` is no rule")),
        }
    });
}

#[test]
fn elementwise_rounding_is_where_the_table_says_on_flex() {
    assert_elementwise_rounding::<Flex>();
}

#[test]
fn elementwise_rounding_is_where_the_table_says_on_ndarray() {
    assert_elementwise_rounding::<NdArray>();
}

fn assert_products_alone<B: MxKernels>() {
    let specs = mx_only(MxSpecs::mxfp4());
    check_all(|op, row| {
        if row.forward == "backward" || lacks::<B>(op) {
            return None;
        }
        let emulated = called::<MxBackend<B>>(op, device::<B>(&specs), false);
        let different = difference(&emulated, &called::<B>(op, B::Device::default(), false));
        match row.forward {
            "product" | "products" if different.is_none() => Some("quantizes nothing".to_owned()),
            "product" | "products" => None,
            _ => different,
        }
    });
}

#[test]
fn mx_formats_act_in_products_alone_on_flex() {
    assert_products_alone::<Flex>();
}

#[test]
fn mx_formats_act_in_products_alone_on_ndarray() {
    assert_products_alone::<NdArray>();
}

#[test]
fn flex_lacks_one_op() {
    let lacking: Vec<_> = rows()
        .into_keys()
        .filter(|op| *op != "ctc_loss_backward" && lacks::<Flex>(op))
        .collect();
    assert_eq!(lacking, ["float_argtopk"]);
}

/// The output of `op`, and the gradients of its inputs for a fixed gradient of the output.
fn trained<B: Exact>(op: &str, device: B::Device) -> [Vec<f32>; 2] {
    let mut calls = Calls::<B>::new(device, false, true);
    calls.role = B::input;
    let (output, loss) = loss_of(&calls, op, 90);
    [output, gradients_of_inputs(calls, loss)]
}

/// The gradients of the inputs of `op`, parameters all of them, from one use for each gradient of the output.
fn parameters_of<B: Exact>(op: &str, device: B::Device, seeds: &[u64]) -> Vec<f32> {
    let calls = Calls::<B>::new(device.clone(), false, true);
    let mut loss = Tensor::<B, 1>::zeros([1], &device);
    for seed in seeds {
        loss = B::exact(loss) + loss_of(&calls, op, *seed).1;
        calls.again.set(Some(0));
    }
    gradients_of_inputs(calls, loss)
}

/// The values of the output of `op`, and a scalar of which the gradient by the output is a fixed one.
pub(super) fn loss_of<B: Exact>(calls: &Calls<B>, op: &str, seed: u64) -> (Vec<f32>, Tensor<B, 1>) {
    let Some(Output::Floats(outputs)) = calls.call(op) else {
        panic!("has no float result")
    };
    let mut values_of = Vec::new();
    let mut loss = Tensor::<B, 1>::zeros([1], &calls.device);
    for (output, seed) in outputs.into_iter().zip(seed..) {
        let count = output.shape().num_elements();
        let output = B::float_reshape(output, Shape::new([count]));
        let output = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(output));
        values_of.extend(values(output.clone()));
        let grad = noise_tensor([count], seed, &calls.device);
        loss = B::exact(loss) + B::loss_with_gradient(output, grad);
    }
    (values_of, loss)
}

fn gradients_of_inputs<B: Exact>(calls: Calls<B>, loss: Tensor<B, 1>) -> Vec<f32> {
    let grads = loss.backward();
    let gradient = |input| {
        let gradient = B::grad(&input, &grads).expect("every input has a gradient");
        floats::<B::InnerBackend>(gradient)
    };
    let inputs = calls.inputs.into_inner();
    inputs.into_iter().flat_map(gradient).collect()
}

/// Whether `B` alone has no gradient of such an op.
fn lacks_gradient<B: MxKernels>(op: &str) -> bool {
    catch_unwind(|| trained::<Autodiff<B>>(op, B::Device::default())).is_err()
}

/// The ops of which `B` alone lacks a gradient that the table has.
fn lacking_gradients<B: MxKernels>() -> Vec<&'static str> {
    let with_gradient = rows().into_iter().filter(|(_, row)| row.backward != "–");
    let lacking = with_gradient.filter(|(op, _)| lacks_gradient::<B>(op));
    lacking.map(|(op, _)| op).collect()
}

#[test]
fn flex_has_all_gradients_and_ndarray_lacks_one() {
    assert_eq!(lacking_gradients::<Flex>(), [""; 0]);
    assert_eq!(lacking_gradients::<NdArray>(), ["interpolate"]);
}

fn assert_gradient_rounding<B: MxKernels>() {
    let round_even = MxSpecs {
        round: burn_mx::Rounding::NearestEven,
        ..bfloat16_only()
    };
    check_all(|op, row| {
        if row.backward == "–" || lacks_gradient::<B>(op) {
            return None;
        }
        let device = device::<B>(&round_even);
        let [output, gradients] = trained::<MxAutodiff<B>>(op, device.clone());
        let inferred = called::<MxBackend<B>>(op, device, false);
        if let Some(difference) = difference(&output, &inferred) {
            return Some(format!("training against inference: {difference}"));
        }
        let [_, plain] = trained::<Autodiff<B>>(op, B::Device::default());
        match row.backward {
            "exact" => difference(&gradients, &plain),
            "rounded" | "formula" | "composed" | "product" | "products" => far(&gradients, &plain),
            "unrounded" if gradients.iter().all(|x| is_bfloat16(*x)) => {
                Some("rounds all gradients".to_owned())
            }
            "unrounded" => far(&rounded(gradients), &plain),
            other => Some(format!("`{other}` is no rule")),
        }
    });
}

#[test]
fn training_infers_and_rounds_gradients_as_the_table_says_on_flex() {
    assert_gradient_rounding::<Flex>();
}

#[test]
fn training_infers_and_rounds_gradients_as_the_table_says_on_ndarray() {
    on_one_thread(assert_gradient_rounding::<NdArray>);
}

/// A parameter's gradients from two uses are added without rounding, for every op.
fn assert_plain_sums<B: MxKernels>() {
    let round_even = MxSpecs {
        round: burn_mx::Rounding::NearestEven,
        ..bfloat16_only()
    };
    check_all(|op, row| {
        if row.backward == "–" || lacks_gradient::<B>(op) {
            return None;
        }
        let of = |seeds: &[u64]| {
            let device = device::<B>(&round_even);
            parameters_of::<MxAutodiff<B>>(op, device, seeds)
        };
        let (first, second) = (of(&[90]), of(&[95]));
        // An op that takes an input in several ways adds up more than two terms, in another order.
        let near = |(sum, (a, b)): &(f32, (&f32, &f32))| {
            let magnitude = a.abs() + b.abs() + sum.abs();
            (sum - (*a + *b)).abs() <= 4.0 * f32::EPSILON * magnitude
        };
        let terms = first.iter().zip(&second);
        let mut sums = of(&[90, 95]).into_iter().zip(terms);
        let (sum, (a, b)) = sums.find(|sum| !near(sum))?;
        Some(format!("two uses give {sum:e}, one {a:e}, the other {b:e}"))
    });
}

#[test]
fn gradients_of_parameters_add_up_without_rounding_on_flex() {
    assert_plain_sums::<Flex>();
}

#[test]
fn gradients_of_parameters_add_up_without_rounding_on_ndarray() {
    on_one_thread(assert_plain_sums::<NdArray>);
}
