//! Unusual parameters and gradients.

use burn_core::tensor::{DType, Tensor};
use burn_flex::Flex;
use burn_mx_optim::{AdamW, OptimizerStates, PackedStates, ParameterState};
use burn_optim::{AdamWConfig, SimpleOptimizer};

use crate::{DEVICE, normal, tensor};

fn optimizers() -> impl Iterator<Item = (&'static str, PackedStates<AdamW>)> {
    let optimizer = AdamW::new(&AdamWConfig::new());
    let presets = OptimizerStates::PRESETS.into_iter();
    let presets = presets.filter(|name| !crate::ONLY_MUON.contains(name));
    presets.map(move |name| {
        let mut states = OptimizerStates::preset(name).unwrap();
        // No tensor is too small.
        states.smallest = 0;
        let optimizer = PackedStates::new::<Flex>(optimizer.clone(), &states).unwrap();
        (name, optimizer)
    })
}

type State<const D: usize> = Option<ParameterState<Flex, D>>;

/// Three steps with the same gradient.
fn steps<const D: usize>(
    optimizer: &PackedStates<AdamW>,
    mut weights: Tensor<Flex, D>,
    grad: &Tensor<Flex, D>,
) -> (Tensor<Flex, D>, State<D>) {
    let mut state = None;
    for _ in 0..3 {
        (weights, state) = optimizer.step(0.01, weights, grad.clone(), state);
    }
    (weights, state)
}

#[test]
fn parameters_of_other_float_types_keep_their_type() {
    for (name, optimizer) in optimizers() {
        for dtype in [DType::BF16, DType::F16, DType::F64] {
            let weights = tensor::<Flex, 2>([20, 30], 1).cast(dtype);
            let grad = tensor::<Flex, 2>([20, 30], 2).cast(dtype);
            let (after, _) = steps(&optimizer, weights, &grad);
            assert_eq!(after.dtype(), dtype, "{name}");
            let numbers = after.into_data().convert::<f32>();
            let numbers = numbers.into_vec::<f32>().unwrap();
            assert!(numbers.iter().all(|x| x.is_finite()), "{name} {dtype:?}");
        }
    }
}

#[test]
fn empty_parameters_and_single_numbers_make_steps() {
    for (name, optimizer) in optimizers() {
        for shape in [[0, 4], [1, 1]] {
            let weights = Tensor::<Flex, 2>::ones(shape, &DEVICE);
            let (after, state) = steps(&optimizer, weights.clone(), &weights);
            assert_eq!(after.dims(), shape, "{name}");
            let count = shape.iter().product::<usize>();
            assert_eq!(state.unwrap().bytes().float32, 2 * 4 * count, "{name}");
        }
    }
}

/// As with Burn's own optimizer, a NaN stays among the numbers that share its scale, and nothing panics.
#[test]
fn a_nan_gradient_does_not_panic() {
    let mut data = normal(4096, 3);
    data[0] = f32::NAN;
    let grad = Tensor::<Flex, 1>::from_floats(data.as_slice(), &DEVICE);
    for (name, optimizer) in optimizers() {
        let weights = Tensor::<Flex, 1>::ones([4096], &DEVICE);
        let (after, _) = steps(&optimizer, weights, &grad);
        let numbers = after.into_data().into_vec::<f32>().unwrap();
        assert!(numbers[0].is_nan(), "{name}");
        let of_tensor = name.starts_with("ms_amp");
        assert!(of_tensor || numbers[4095].is_finite(), "{name}");
    }
}

/// An optimizer packs a transposed parameter row by row, for any order in memory.
#[test]
fn transposed_parameters_are_like_others() {
    for (_, optimizer) in optimizers() {
        let [weights, grad] = [1, 2].map(|seed| tensor::<Flex, 2>([30, 20], seed));
        let (view, _) = steps(
            &optimizer.clone(),
            weights.clone().transpose(),
            &grad.clone().transpose(),
        );
        let copy = |tensor: Tensor<Flex, 2>| {
            Tensor::<Flex, 2>::from_data(tensor.transpose().into_data(), &DEVICE)
        };
        let (copied, _) = steps(&optimizer, copy(weights), &copy(grad));
        view.into_data().assert_eq(&copied.into_data(), true);
    }
}
