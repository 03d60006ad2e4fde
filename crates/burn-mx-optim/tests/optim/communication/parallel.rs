//! Tensor parallelism: two products, forward and backward.

use std::sync::{Arc, Mutex};

use burn_core::tensor::Tensor;
use burn_flex::Flex;
use burn_mx_core::{MxAutodiff, MxDevice, MxSpecs};
use burn_mx_optim::communication::{Communication, RankGradients, Route, TensorState};
use microscaling::Rounding;

use super::{assert_same, floats, written_out::Loops};
use crate::{B, DEVICE, tensor};

type State = Arc<Mutex<TensorState>>;

fn wires() -> Vec<Communication> {
    let with = |format: &str| Communication {
        format: Some(format.into()),
        ..Communication::default()
    };
    vec![
        Communication::default(),
        with("mxfp4"),
        with("bfloat16"),
        Communication {
            route: Route::AllToAll,
            rounding: Rounding::Stochastic,
            seed: 5,
            ..with("mxfp8_e5m2")
        },
        Communication {
            route: Route::Tree,
            accumulator: Some("bfloat16".into()),
            ..with("mxfp6_e3m2")
        },
    ]
}

/// Value and gradients of the product for `x` and `w`, where `factor` is the gradient of the product.
fn product(
    wire: &Communication,
    [x, w, factor]: [Tensor<B, 2>; 3],
    ranks: usize,
    state: &State,
) -> [Vec<f32>; 3] {
    let [x, w] = [x, w].map(Tensor::require_grad);
    let y = wire
        .divided_product(x.clone(), w.clone(), ranks, state)
        .unwrap();
    let gradients = (y.clone() * factor).sum().backward();
    let [of_x, of_w] = [x, w].map(|tensor| floats(tensor.grad(&gradients).unwrap()));
    [floats(y.inner()), of_x, of_w]
}

/// The gradient for `x` is the written-out sum of each rank's product, twice with one state; the value is the plain product.
#[test]
fn gradients_are_summed_as_written_out() {
    for (m, k, n) in [(5, 7, 12), (1, 33, 24), (8, 1, 12)] {
        let [x, w, factor] = [
            tensor::<B, 2>([m, k], 1),
            tensor::<B, 2>([k, n], 2),
            tensor::<B, 2>([m, n], 3),
        ];
        for (number, wire) in wires().iter().enumerate() {
            for ranks in [2, 3, 4, 12] {
                let what = format!("{number}: {m} {k} {n}, {ranks} ranks");
                let state = State::default();
                for call in 0..2 {
                    let inputs = [x.clone(), w.clone(), factor.clone()];
                    let [y, of_x, of_w] = product(wire, inputs, ranks, &state);
                    let length = n / ranks;
                    let [x, w, factor] = [&x, &w, &factor].map(|tensor| tensor.clone().inner());
                    let narrow = |tensor: &Tensor<Flex, 2>, rank: usize| {
                        tensor.clone().narrow(1, rank * length, length)
                    };
                    let parts = |of: &dyn Fn(usize) -> Tensor<Flex, 2>| {
                        floats(Tensor::cat((0..ranks).map(of).collect(), 1))
                    };
                    let forward = parts(&|rank| x.clone().matmul(narrow(&w, rank)));
                    assert_same(&y, &forward, &what);
                    let of_weights = |rank| x.clone().transpose().matmul(narrow(&factor, rank));
                    assert_same(&of_w, &parts(&of_weights), &what);
                    let of_rank = |rank| {
                        let product = narrow(&factor, rank).matmul(narrow(&w, rank).transpose());
                        floats(product)
                    };
                    let operands: Vec<_> = (0..ranks).map(of_rank).collect();
                    let expected = Loops::new(wire, 0, call).all_reduce(&operands);
                    assert_same(&of_x, &expected, &what);
                }
                assert_eq!(state.lock().unwrap().calls(), 2, "{what}");
            }
        }
    }
}

/// One rank, or no gradient: the bits of the plain product.
#[test]
fn one_rank_changes_no_bit() {
    let inputs = || {
        [
            tensor::<B, 2>([6, 10], 1),
            tensor::<B, 2>([10, 8], 2),
            tensor::<B, 2>([6, 8], 3),
        ]
    };
    for wire in wires() {
        let state = State::default();
        let got = product(&wire, inputs(), 1, &state);
        let [x, w, factor] = inputs();
        let [x, w] = [x, w].map(Tensor::require_grad);
        let y = x.clone().matmul(w.clone());
        let gradients = (y.clone() * factor).sum().backward();
        assert_same(&got[0], &floats(y.inner()), "value");
        for (got, tensor) in got[1..].iter().zip([x, w]) {
            assert_same(got, &floats(tensor.grad(&gradients).unwrap()), "gradient");
        }
        assert_eq!(*state.lock().unwrap(), TensorState::default());
        // An input without a gradient needs no sum.
        let [x, w, _] = inputs();
        let y = wire
            .divided_product(x, w.require_grad(), 2, &state)
            .unwrap();
        y.sum().backward();
        assert_eq!(state.lock().unwrap().calls(), 0);
    }
}

/// A feed-forward network as tensor parallelism divides it: the first product has its columns divided, the second one its sum. Without a
/// format, float32 orders alone differ from the network on one device.
#[test]
fn a_network_has_the_gradients_of_one_device() {
    fn gradients<T: RankGradients<InnerBackend: burn_core::tensor::backend::Backend>>(
        device: &T::Device,
        wire: Option<&Communication>,
        ranks: usize,
    ) -> Vec<Vec<f32>> {
        let of = |shape: [usize; 2], seed| {
            let data = tensor::<Flex, 2>(shape, seed).into_data();
            Tensor::<T, 2>::from_data(data, device).require_grad()
        };
        let (x, up, down) = (of([4, 16], 1), of([16, 24], 2), of([24, 8], 3));
        let y = match wire {
            None => x.clone().matmul(up.clone()).tanh().matmul(down.clone()),
            Some(wire) => {
                let hidden = wire.divided_product(x.clone(), up.clone(), ranks, &State::default());
                let hidden = hidden.unwrap().tanh();
                wire.summed_product(hidden, down.clone(), ranks, &mut TensorState::default())
                    .unwrap()
            }
        };
        let gradients = y.powf_scalar(2.0).mean().backward();
        let of = |tensor: Tensor<T, 2>| {
            let data = tensor.grad(&gradients).unwrap().into_data();
            data.into_vec::<f32>().unwrap()
        };
        [x, up, down].map(of).to_vec()
    }
    let close = |got: &[Vec<f32>], wanted: &[Vec<f32>], tolerance: f32| {
        for (got, wanted) in got.iter().flatten().zip(wanted.iter().flatten()) {
            assert!((got - wanted).abs() <= tolerance, "{got} {wanted}");
        }
    };
    let plain = Communication::default();
    let narrow = Communication {
        format: Some("mxfp8_e4m3".into()),
        ..Communication::default()
    };
    let wanted = gradients::<B>(&DEVICE, None, 1);
    for ranks in [1, 2, 4, 8] {
        close(&gradients::<B>(&DEVICE, Some(&plain), ranks), &wanted, 1e-4);
        if ranks > 1 {
            let rounded = gradients::<B>(&DEVICE, Some(&narrow), ranks);
            assert_ne!(rounded[0], wanted[0]);
        }
    }
    // On the decorator the formats of operands apply, and gradients are still gradients.
    type Mx = MxAutodiff<Flex>;
    let device = MxDevice::new(DEVICE, MxSpecs::none()).unwrap();
    close(
        &gradients::<Mx>(&device, Some(&plain), 4),
        &gradients::<B>(&DEVICE, Some(&plain), 4),
        0.0,
    );
    let device = MxDevice::new(DEVICE, "mxfp8_e4m3").unwrap();
    let emulated = gradients::<Mx>(&device, None, 1);
    assert_ne!(emulated, wanted);
    assert_eq!(gradients::<Mx>(&device, Some(&narrow), 1), emulated);
    let parallel = gradients::<Mx>(&device, Some(&narrow), 4);
    assert!(parallel.iter().flatten().all(|x| x.is_finite()));
}

/// Batches, NaN, and empty tensors.
#[test]
fn unusual_inputs() {
    let wire = Communication {
        format: Some("mxfp8_e4m3".into()),
        ..Communication::default()
    };
    let x = Tensor::<B, 3>::ones([3, 2, 4], &DEVICE).require_grad();
    let w = Tensor::<B, 3>::ones([1, 4, 6], &DEVICE).require_grad();
    let y = wire
        .divided_product(x.clone(), w.clone(), 3, &State::default())
        .unwrap();
    assert_eq!(y.dims(), [3, 2, 6]);
    let gradients = y.sum().backward();
    assert_same(&floats(x.grad(&gradients).unwrap()), &[6.0; 24], "batches");
    assert_same(&floats(w.grad(&gradients).unwrap()), &[6.0; 24], "batches");

    let factor = Tensor::<B, 2>::from_floats([[f32::NAN, 1.0], [1.0, 1.0]], &DEVICE);
    let x = Tensor::<B, 2>::ones([2, 64], &DEVICE).require_grad();
    let w = Tensor::<B, 2>::ones([64, 2], &DEVICE);
    let y = wire
        .divided_product(x.clone(), w, 2, &State::default())
        .unwrap();
    let grad = floats(x.grad(&(y * factor).sum().backward()).unwrap());
    assert!(grad[..64].iter().all(|x| x.is_nan()), "{grad:?}");
    assert_same(&grad[64..], &[2.0; 64], "the other row");

    for (rows, columns) in [(0, 4), (3, 0)] {
        let x = Tensor::<B, 2>::ones([rows, 5], &DEVICE);
        let w = Tensor::<B, 2>::ones([5, columns], &DEVICE);
        let y = wire.divided_product(x, w, 2, &State::default()).unwrap();
        assert_eq!(y.dims(), [rows, columns]);
    }
}

#[test]
fn wrong_arguments_are_named() {
    let [x, w] = [tensor::<B, 2>([4, 6], 1), tensor::<B, 2>([6, 8], 2)];
    let refused = |wire: &Communication, ranks, state: &State, start: &str| {
        let product = wire.divided_product(x.clone().require_grad(), w.clone(), ranks, state);
        let error = product.unwrap_err().to_string();
        assert!(
            error.starts_with(start) && error.contains("; allowed: "),
            "{error}"
        );
    };
    let with = |format: &str| Communication {
        format: Some(format.into()),
        ..Communication::default()
    };
    let state = State::default();
    for ranks in [0, 3] {
        let start = format!("`ranks` is {ranks}; allowed: 1 or more, a divisor of the 8 columns");
        refused(&with("mxfp4"), ranks, &state, &start);
    }
    refused(
        &with("fp8"),
        2,
        &state,
        "`format` is fp8; allowed: bfloat10 to bfloat16",
    );
    refused(&with("mxfp9"), 2, &state, "`format` is mxfp9; allowed: ");
    let difference = Communication {
        difference: true,
        ..with("mxfp4")
    };
    refused(
        &difference,
        2,
        &state,
        "`difference` is true; allowed: false",
    );
    // A state of other lengths, with errors that are kept.
    let feedback = Communication {
        error_feedback: Some("float32".into()),
        ..with("mxfp4")
    };
    let y = feedback
        .divided_product(x.clone().require_grad(), w.clone(), 2, &state)
        .unwrap();
    y.sum().backward();
    refused(
        &feedback,
        4,
        &state,
        "`state` is of ranks with [24, 24] numbers; allowed: ",
    );
}
