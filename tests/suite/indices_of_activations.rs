//! Integers and booleans that follow from an activation make activations of the selected, scattered or indexed tensor; indices of data make
//! data, and constant ones keep a constant.
//!
//! The independent sources are Burn alone, and numbers quantized by hand.

use burn::backend::Flex;
use burn::backend::flex::FlexDevice;
use burn::prelude::*;
use burn::tensor::ops::{GridSampleOptions, InterpolateMode};
use burn::tensor::{IndexingUpdateOp, TensorPrimitive};
use burn_mx::{MxBackend, MxDevice, MxSpecs};

use super::data_and_parameters::preset;
use crate::support::*;

type Inference = MxBackend<Flex>;
type Device = MxDevice<FlexDevice>;

/// Logits of four tokens, of data and of a parameter: their largest are at 2, 0, 3, 1.
fn logits<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let one = |at| {
        let mut row = [0.0; 4];
        row[at] = 1.0;
        row
    };
    let x = Tensor::<B, 2>::from_data([one(0), one(1), one(2), one(3)], device);
    let w = Tensor::<B, 2>::from_data([one(2), one(0), one(3), one(1)], device).require_grad();
    x.matmul(w)
}

fn chosen<B: Backend>(device: &B::Device) -> Tensor<B, 2, Int> {
    logits::<B>(device).argmax(1)
}

fn labels<B: Backend>(device: &B::Device) -> Tensor<B, 2, Int> {
    Tensor::from_data([[2], [0], [3], [1]], device)
}

fn positions<B: Backend>(device: &B::Device) -> Tensor<B, 2, Int> {
    Tensor::arange(0..4, device).reshape([4, 1])
}

fn scattered<B: Backend>(indices: Tensor<B, 2, Int>) -> Tensor<B, 2> {
    let device = indices.device();
    let ones = Tensor::ones([4, 1], &device);
    Tensor::zeros([4, 4], &device).scatter(1, indices, ones, IndexingUpdateOp::Add)
}

/// A dispatch of tokens to experts, each expert one token: its product with the tokens has blocks of FP4 along the tokens.
fn dispatched<B: Backend>(indices: Tensor<B, 2, Int>, device: &B::Device) -> Vec<f32> {
    let tokens = [[6.0, 0.75], [1.3, 0.6], [0.3, 0.1], [-2.2, 0.3]];
    let tokens = Tensor::<B, 2>::from_data(tokens, device);
    values(scattered(indices).transpose().matmul(tokens))
}

#[test]
fn a_dispatch_by_activations_has_blocks() {
    let device = mx_device(&mx_only(MxSpecs::mxfp4()));
    // By hand. The first column's scale is 1: 6, 1.5, 0.5, −2. The second one's is 2^−3: 0.75, 0.5 (4.8 → 4 eighths), 0.125
    // (0.8 → 1), 0.25 (2.4 → 2). Expert 0 has token 1, expert 1 token 3, expert 2 token 0, expert 3 token 2.
    let expected = [1.5, 0.5, -2.0, 0.25, 6.0, 0.75, 0.5, 0.125];
    let got = dispatched::<Mx>(chosen(&device), &device);
    assert_same_bits(&got, &expected, "training");
    let got = dispatched::<Inference>(chosen(&device), &device);
    assert_same_bits(&got, &expected, "inference");
    // By labels: two tensors of data.
    let got = dispatched::<Mx>(labels(&device), &device);
    assert_same_bits(&got, &expected, "data");
    // By constant positions: no blocks beside a constant.
    let got = dispatched::<Mx>(positions(&device), &device);
    let tokens = [6.0, 0.75, 1.3, 0.6, 0.3, 0.1, -2.2, 0.3];
    assert_same_bits(&got, &tokens, "constant");
}

/// Label smoothing, as Burn's cross-entropy has it.
#[test]
fn smoothed_labels_are_data() {
    fn smoothed<B: Backend>(device: &B::Device) -> Vec<f32> {
        values(scattered(labels::<B>(device)) * 0.9 + 0.1 / 4.0)
    }
    let expected = smoothed::<Flex>(&FlexDevice);
    for name in ["mxfp8_e4m3", "mxfp4"] {
        assert_same_bits(&smoothed::<Mx>(&preset(name)), &expected, name);
        assert_same_bits(&smoothed::<Inference>(&preset(name)), &expected, name);
    }
}

/// The result of a tensor of indices `[4, 1]`, or of booleans from it, for data or constants.
type Use<B> = fn(Tensor<B, 2, Int>, Tensor<B, 2>) -> Tensor<B, 2>;

/// The second operand is `[4, 4]`.
fn uses<B: Backend>() -> Vec<(&'static str, Use<B>)> {
    fn row<B: Backend>(indices: Tensor<B, 2, Int>) -> Tensor<B, 1, Int> {
        indices.reshape([4])
    }
    fn mask<B: Backend>(indices: Tensor<B, 2, Int>) -> Tensor<B, 2, Bool> {
        indices.greater_elem(1).expand([4, 4])
    }
    fn powi<B: Backend>(x: Tensor<B, 2>, exponents: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let x = x.into_primitive().tensor();
        let power = B::float_powi(x, exponents.into_primitive());
        Tensor::from_primitive(TensorPrimitive::Float(power))
    }
    vec![
        ("float", |i, _| i.float() / 3.0),
        ("arithmetic", |i, _| {
            ((i + 1) * 2).remainder_scalar(5).float() / 3.0
        }),
        ("concatenation", |i, _| {
            Tensor::cat(vec![i.clone(), i], 1).float() / 3.0
        }),
        ("one_hot", |i, _| row(i).one_hot::<2>(4).float() / 3.0),
        ("gather", |i, x| x.gather(1, i)),
        ("select", |i, x| x.select(0, row(i))),
        ("gather_nd", |i, x| {
            let i = Tensor::cat(vec![i.clone(), i], 1);
            x.gather_nd::<2, 1>(i).reshape([4, 1])
        }),
        ("scatter", |i, x| {
            let values = x.clone().narrow(1, 0, 1);
            x.scatter(1, i, values, IndexingUpdateOp::Add)
        }),
        ("select_assign", |i, x| {
            x.clone().select_assign(0, row(i), x, IndexingUpdateOp::Add)
        }),
        ("scatter_nd", |i, x| {
            x.clone().scatter_nd(i, x, IndexingUpdateOp::Assign)
        }),
        ("powi", |i, x| powi(x, i.expand([4, 4]))),
        ("mask_where", |i, x| x.clone().mask_where(mask(i), x * 2.0)),
        ("mask_fill", |i, x| x.mask_fill(mask(i), 0.3)),
        ("not", |i, x| x.mask_fill(mask(i).bool_not(), 0.3)),
        ("equal", |i, x| {
            x.mask_fill(i.equal_elem(1).expand([4, 4]), 0.3)
        }),
        ("mask as numbers", |i, _| mask(i).float() / 3.0),
        ("mask as integers", |i, _| mask(i).int().float() / 3.0),
        ("counts", |i, _| mask(i).int().sum_dim(0).float() / 3.0),
        ("sorted", |i, x| x.select(0, row(i.sort(0)))),
        ("slices", |i, x| {
            x.gather(1, i.narrow(0, 1, 2).repeat_dim(0, 2))
        }),
        ("embedding", |i, x| {
            burn::tensor::module::embedding(x, i).reshape([4, 4])
        }),
    ]
}

/// Operands of [`uses`] and whether their result is rounded.
fn assert_follow<B: Backend<Device = Device>>(device: &Device) {
    let data = || noise_tensor::<B, 2>([4, 4], 1, device);
    let constant = || (Tensor::<B, 1, Int>::arange(1..17, device).float() / 7.0).reshape([4, 4]);
    let plain = noise_tensor::<Flex, 2>([4, 4], 1, &FlexDevice);
    let constants =
        (Tensor::<Flex, 1, Int>::arange(1..17, &FlexDevice).float() / 7.0).reshape([4, 4]);
    for ((what, used), (_, expected)) in uses::<B>().into_iter().zip(uses::<Flex>()) {
        for (kind, operand, plain) in [
            ("data", data(), &plain),
            ("constant", constant(), &constants),
        ] {
            // An op that computes of the operand rounds it; a further op rounds the others, too.
            let got = values(used(chosen(device), operand.clone()) * 1.1);
            assert!(
                got.iter().all(|x| is_bfloat16(*x)),
                "{what} of {kind}: {got:?}"
            );
            assert!(got.iter().any(|x| *x != 0.0), "{what} of {kind}");
            let expected = values(expected(labels(&FlexDevice), plain.clone()) * 1.1);
            assert!(
                !expected.iter().all(|x| is_bfloat16(*x)),
                "{what} of {kind}"
            );
            let got = values(used(labels(device), operand) * 1.1);
            assert_same_bits(&got, &expected, &format!("{what} of {kind} by data"));
        }
    }
}

#[test]
fn what_integers_select_follows_from_them() {
    for name in ["mxfp8_e4m3", "mxfp4"] {
        assert_follow::<Mx>(&preset(name));
        assert_follow::<Inference>(&preset(name));
    }
}

/// Booleans of comparisons of activations, with scalars and with each other.
#[test]
fn what_comparisons_mask_follows_from_them() {
    let device = preset("mxfp8_e4m3");
    let hidden = || logits::<Mx>(&device);
    let data = || noise_tensor::<Mx, 2>([4, 4], 1, &device);
    let masks = [
        hidden().greater_elem(0.5),
        hidden().lower(data()),
        data().greater_equal(hidden()),
        hidden().equal(hidden()),
        hidden().is_nan(),
        hidden().bool(),
        hidden().any_dim(1).expand([4, 4]),
        hidden().int().equal_elem(1),
        data()
            .greater_elem(0.0)
            .bool_and(hidden().greater_elem(0.5)),
    ];
    for (i, mask) in masks.into_iter().enumerate() {
        let got = values(data().mask_fill(mask, 0.3) * 1.1);
        assert!(got.iter().all(|x| is_bfloat16(*x)), "{i}: {got:?}");
    }
    let mask = data().greater_elem(0.0);
    let expected = noise_tensor::<Flex, 2>([4, 4], 1, &FlexDevice);
    let expected = values(expected.clone().mask_fill(expected.greater_elem(0.0), 0.3) * 1.1);
    assert_same_bits(
        &values(data().mask_fill(mask, 0.3) * 1.1),
        &expected,
        "of data",
    );
}

/// A spatial transformer: an image is data, and the positions in it follow from a parameter.
#[test]
fn an_image_that_is_read_at_activations_is_an_activation() {
    fn sampled<B: Backend>(grid: Tensor<B, 4>, device: &B::Device) -> Tensor<B, 4> {
        let image = noise_tensor::<B, 4>([1, 2, 5, 4], 1, device);
        let options = GridSampleOptions::new(InterpolateMode::Bilinear);
        image.grid_sample_2d(grid, options)
    }
    let device = preset("mxfp8_e4m3");
    let grid = || noise_tensor::<Mx, 2>([12, 2], 2, &device) / 2.0;
    let moved = grid().matmul(Tensor::from_data([[1.0, 0.0], [0.0, 1.0]], &device).require_grad());
    let got = values(sampled(moved.reshape([1, 3, 4, 2]), &device) * 1.1);
    assert!(got.iter().all(|x| is_bfloat16(*x)), "{got:?}");
    let plain = noise_tensor::<Plain, 2>([12, 2], 2, &FlexDevice) / 2.0;
    let expected = values(sampled(plain.reshape([1, 3, 4, 2]), &FlexDevice) * 1.1);
    let got = values(sampled(grid().reshape([1, 3, 4, 2]), &device) * 1.1);
    assert_same_bits(&got, &expected, "data");
}

/// Parameters that integers of data select are activations; those that constant positions select are parameters.
#[test]
fn what_data_selects_of_parameters_is_an_activation() {
    let device = preset("mxfp8_e4m3");
    let w = || noise_tensor::<Mx, 2>([4, 4], 1, &device).require_grad();
    let plain = noise_tensor::<Flex, 2>([4, 4], 1, &FlexDevice);
    let rows = |indices: Tensor<Mx, 2, Int>| values(w().select(0, indices.reshape([4])) * 1.1);
    assert!(
        rows(labels(&device)).iter().all(|x| is_bfloat16(*x)),
        "data"
    );
    assert!(
        rows(chosen(&device)).iter().all(|x| is_bfloat16(*x)),
        "activation"
    );
    let order = positions::<Flex>(&FlexDevice).reshape([4]);
    let expected = values(plain.clone().select(0, order) * 1.1);
    assert_same_bits(&rows(positions(&device)), &expected, "constant");
    // Pruned by its own magnitudes, a parameter stays one.
    let pruned = |w: Tensor<Mx, 2>| w.clone().mask_fill(w.abs().lower_elem(0.3), 0.0) * 1.1;
    let expected = values(plain.clone().mask_fill(plain.abs().lower_elem(0.3), 0.0) * 1.1);
    assert_same_bits(&values(pruned(w())), &expected, "pruned");
}
