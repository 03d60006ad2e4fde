//! Training recipes of the literature: products against matrices written out in `f64`, and layers that a recipe exempts.

use burn::nn::conv::{Conv2dConfig, ConvTranspose2dConfig};
use burn::nn::transformer::{TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{EmbeddingConfig, LayerNormConfig, LinearConfig, LstmConfig};
use burn::prelude::*;
use burn::tensor::module::{conv2d, linear};
use burn::tensor::ops::ConvOptions;
use burn_mx::module::{exempt_layers, label_of, set_exemptions, set_exemptions_at, specs_of};
use burn_mx::{BlockFormat, ElementFormat, Rounder, Rounding, ScaleMode};
use burn_mx::{Exemptions, GradientOperands, Hadamard, HadamardSigns, MxSpecs, Recipe};

use crate::support::*;

/// A matrix, row by row.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub(crate) rows: Vec<Vec<f64>>,
}

impl Matrix {
    pub(crate) fn new(values: &[f32], columns: usize) -> Self {
        let row = |row: &[f32]| row.iter().copied().map(f64::from).collect();
        let rows = values.chunks(columns).map(row).collect();
        Self { rows }
    }

    pub(crate) fn transposed(&self) -> Self {
        let column = |j: usize| self.rows.iter().map(|row| row[j]).collect();
        let rows = (0..self.rows[0].len()).map(column).collect();
        Self { rows }
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let columns = other.transposed().rows;
        let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum();
        let product = |row: &Vec<f64>| columns.iter().map(|column| dot(row, column)).collect();
        let rows = self.rows.iter().map(product).collect();
        Self { rows }
    }

    /// Each row by itself.
    fn by_row(&self, f: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        let rows = self.rows.iter().map(|row| f(row)).collect();
        Self { rows }
    }

    /// Each row in blocks.
    pub(crate) fn in_blocks(&self, size: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        self.by_row(|row| row.chunks(size).flat_map(&f).collect())
    }

    fn scaled(&self, factor: f64) -> Self {
        self.by_row(|row| row.iter().map(|x| x * factor).collect())
    }

    /// Zero where the mask is.
    pub(crate) fn masked(&self, mask: &Self) -> Self {
        let row = |(row, mask): (&Vec<f64>, &Vec<f64>)| {
            row.iter().zip(mask).map(|(x, m)| x * m).collect()
        };
        let rows = self.rows.iter().zip(&mask.rows).map(row).collect();
        Self { rows }
    }

    #[track_caller]
    pub(crate) fn assert_close(&self, got: &[f32], what: &str) {
        let largest = self
            .rows
            .iter()
            .flatten()
            .fold(0.0_f64, |max, x| max.max(x.abs()));
        let expected: Vec<f64> = self.rows.iter().flatten().copied().collect();
        assert_eq!(got.len(), expected.len(), "{what}");
        assert!(largest > 0.0, "{what}: nothing to compare");
        for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let distance = (f64::from(*got) - expected).abs();
            assert!(
                distance < 2e-6 * largest,
                "{what}[{i}]: {got} is not {expected}"
            );
        }
    }
}

/// The Hadamard transform of a block by signs, one bit an element: H[i][j] = (-1)^popcount(i & j) / √n.
pub(crate) fn hadamard(block: &[f64], signs: u128) -> Vec<f64> {
    let n = block.len();
    let sign = |negative: u32| f64::from(1 - 2 * (negative as i32 % 2));
    let element = |i: usize| -> f64 {
        let terms = block
            .iter()
            .enumerate()
            .map(|(j, x)| sign((i & j).count_ones() + (signs >> j) as u32 % 2) * x);
        terms.sum::<f64>() / (n as f64).sqrt()
    };
    (0..n).map(element).collect()
}

/// The transposed matrix.
pub(crate) fn inverse_hadamard(block: &[f64], signs: u128) -> Vec<f64> {
    let plain = hadamard(block, 0).into_iter().enumerate();
    plain
        .map(|(j, x)| if (signs >> j) % 2 == 1 { -x } else { x })
        .collect()
}

/// The nearest FP4 number, ties to even.
pub(crate) fn fp4(x: f64) -> f64 {
    let magnitude = x.abs();
    let step = if magnitude < 2.0 {
        0.5
    } else if magnitude < 4.0 {
        1.0
    } else {
        2.0
    };
    let nearest = (magnitude / step).round_ties_even() * step;
    nearest.min(6.0).copysign(x)
}

/// 2^floor(log2(amax)) / 4, of OCP.
fn floor_scale(block: &[f64]) -> f64 {
    let amax = block.iter().fold(0.0_f64, |max, x| max.max(x.abs()));
    (amax.log2().floor() - 2.0).exp2()
}

/// A block as Tseng, Yu and Park quantize it (algorithm 2), to nearest: in units of 3/4.
fn three_quarters(block: &[f64]) -> Vec<f64> {
    let scale = floor_scale(block);
    block
        .iter()
        .map(|x| fp4(0.75 * x / scale) * scale)
        .collect()
}

/// Quartet's scale: the power of two below `headroom` · α / 6 root mean squares.
fn rms_scale(block: &[f64], headroom: f64) -> f64 {
    let mean = block.iter().map(|x| x * x).sum::<f64>() / block.len() as f64;
    let scale = headroom * 2.922_478_56 / 6.0 * mean.sqrt();
    scale.log2().floor().exp2()
}

pub(crate) fn by_rms(block: &[f64], headroom: f64) -> Vec<f64> {
    let scale = rms_scale(block, headroom);
    block.iter().map(|x| fp4(x / scale) * scale).collect()
}

pub(crate) fn kept_by_rms(block: &[f64], headroom: f64) -> Vec<f64> {
    let scale = rms_scale(block, headroom);
    let kept = |x: &f64| f64::from(u8::from((x / scale).abs() < 6.0));
    block.iter().map(kept).collect()
}

pub(crate) const M: usize = 64;
pub(crate) const K: usize = 96;
pub(crate) const N: usize = 128;

/// x, w and the output's gradient; some numbers are much larger than others.
fn operands() -> [Vec<f32>; 3] {
    [(M * K, 1), (K * N, 2), (M * N, 3)].map(|(count, seed)| {
        let mut values = noise(count, seed);
        values.iter_mut().step_by(37).for_each(|x| *x *= 9.0);
        values
    })
}

pub(crate) fn tensor<const D: usize>(
    values: &[f32],
    shape: [usize; D],
    device: &burn_mx::MxDevice<TestDevice>,
) -> Tensor<Mx, D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

/// `x · w`, and the gradients of x and w.
pub(crate) fn layer(specs: &MxSpecs) -> [Vec<f32>; 3] {
    let device = mx_device(specs);
    let [x, w, g] = operands();
    let x = tensor(&x, [M, K], &device).require_grad();
    let w = tensor(&w, [K, N], &device).require_grad();
    let y = linear(x.clone(), w.clone(), None);
    let grads = Mx::loss_with_gradient(y.clone(), tensor(&g, [M, N], &device)).backward();
    let gradient = |leaf: Tensor<Mx, 2>| values(leaf.grad(&grads).expect("it is a leaf"));
    [values(y), gradient(x), gradient(w)]
}

pub(crate) fn matrices() -> [Matrix; 3] {
    let [x, w, g] = operands();
    [Matrix::new(&x, K), Matrix::new(&w, N), Matrix::new(&g, N)]
}

/// A preset without elementwise rounding, whose drawn transforms have given signs and which rounds to nearest.
pub(crate) fn reproducible(preset: MxSpecs, input_grad: u128, weight_grad: u128) -> MxSpecs {
    let given = |transform: Option<Hadamard>, signs| {
        transform.map(|transform| transform.with_signs(HadamardSigns::Given(signs)))
    };
    MxSpecs {
        bfloat: 0,
        round_mx_input_grad_input: None,
        round_mx_weight_grad_input: None,
        round_mx_grad_output_grad_input: None,
        round_mx_input_grad_weight: None,
        round_mx_grad_output_grad_weight: None,
        hadamard_input_grad: given(preset.hadamard_input_grad, input_grad),
        hadamard_weight_grad: given(preset.hadamard_weight_grad, weight_grad),
        ..preset
    }
}

const SIGNS: [u128; 2] = [0x5f3a_90c1_77e2_1d48, 0x0b6d_e217_39a5_c4f3];

#[test]
fn mxfp4_backward_is_its_algorithms() {
    let specs = reproducible(MxSpecs::mxfp4_backward(), SIGNS[0], SIGNS[1]);
    let [y, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    x.times(&w).assert_close(&y, "y, in full precision");

    let q = |matrix: Matrix, signs| {
        let transformed = matrix.in_blocks(64, |block| {
            // 96 = 64 + 32.
            hadamard(block, signs)
        });
        transformed.in_blocks(32, three_quarters)
    };
    let [input, weight] = SIGNS;
    let expected = q(g.clone(), input).times(&q(w, input).transposed());
    expected.scaled(16.0 / 9.0).assert_close(&dx, "dx");
    let (xt, gt) = (x.transposed(), g.transposed());
    let expected = q(xt, weight).times(&q(gt, weight).transposed());
    expected.scaled(16.0 / 9.0).assert_close(&dw, "dw");
}

#[test]
fn quartet_is_its_algorithm() {
    quartet(MxSpecs::quartet(), 1.5);
    quartet(MxSpecs::quartet_code(), 1.0);
}

fn quartet(preset: MxSpecs, headroom: f64) {
    let specs = reproducible(preset, SIGNS[0] & 0xffff_ffff, SIGNS[1] & 0xffff_ffff);
    let [y, dx, dw] = layer(&specs);
    let [x, w, g] = matrices();
    // Along K, the axis of the rows of x and of the columns of w.
    let forward = |matrix: &Matrix| matrix.in_blocks(32, |block| hadamard(block, 0));
    let (x, w) = (forward(&x), forward(&w.transposed()));
    let by_rms = |block: &[f64]| by_rms(block, headroom);
    let kept_by_rms = |block: &[f64]| kept_by_rms(block, headroom);
    let (xq, wq) = (x.in_blocks(32, by_rms), w.in_blocks(32, by_rms));
    let (x_mask, w_mask) = (x.in_blocks(32, kept_by_rms), w.in_blocks(32, kept_by_rms));
    for mask in [&x_mask, &w_mask] {
        let clipped = mask
            .rows
            .iter()
            .flatten()
            .filter(|kept| **kept == 0.0)
            .count();
        assert!(clipped > 10, "the mask has something to do: {clipped}");
    }
    xq.times(&wq.transposed()).assert_close(&y, "y");

    let q = |matrix: &Matrix, signs: u128| {
        let transformed = matrix.in_blocks(32, |block| hadamard(block, signs & 0xffff_ffff));
        transformed.in_blocks(32, three_quarters)
    };
    let back = |product: Matrix, mask: &Matrix| {
        let masked = product.scaled(16.0 / 9.0).masked(mask);
        masked.in_blocks(32, |block| inverse_hadamard(block, 0))
    };
    let [input, weight] = SIGNS;
    let product = q(&g, input).times(&q(&wq.transposed(), input).transposed());
    back(product, &x_mask).assert_close(&dx, "dx");
    let product = q(&g.transposed(), weight).times(&q(&xq.transposed(), weight).transposed());
    let dw = Matrix::new(&dw, N).transposed();
    let dw: Vec<f32> = dw.rows.into_iter().flatten().map(|x| x as f32).collect();
    back(product, &w_mask).assert_close(&dw, "dw");
}

/// With the original operands a mask is laid on in the transform's basis all the same.
#[test]
fn a_mask_is_of_the_forward_basis() {
    let specs = MxSpecs {
        gradient_operands: GradientOperands::Original,
        hadamard_input_grad: None,
        w_elem_format_bp: Some("bfp(bit_width=32)".into()),
        a_elem_format_bp_os: Some("bfp(bit_width=32)".into()),
        a_elem_format_bp: Some("bfp(bit_width=32)".into()),
        a_elem_format_bp_ex: Some("bfp(bit_width=32)".into()),
        headroom_bp: Default::default(),
        ..reproducible(MxSpecs::quartet(), 0, 0)
    };
    let [_, dx, _] = layer(&specs);
    let [x, w, g] = matrices();
    let mask = x.in_blocks(32, |block| kept_by_rms(&hadamard(block, 0), 1.5));
    let gradient = g.times(&w.transposed());
    let masked = gradient
        .in_blocks(32, |block| hadamard(block, 0))
        .masked(&mask);
    let expected = masked.in_blocks(32, |block| inverse_hadamard(block, 0));
    expected.assert_close(&dx, "dx");
}

/// A convolution of one pixel is a linear layer, and so is the product with a weight.
#[test]
fn all_products_with_a_weight_go_by_the_recipe() {
    for preset in [MxSpecs::quartet(), MxSpecs::mxfp4_backward()] {
        let specs = reproducible(preset, SIGNS[0] & 0xffff_ffff, SIGNS[1] & 0xffff_ffff);
        let [y, dx, dw] = layer(&specs);
        let device = mx_device(&specs);
        let [x, w, g] = operands();
        let leaf = |tensor: Tensor<Mx, 2>| tensor.require_grad();

        let x_leaf = leaf(tensor(&x, [M, K], &device));
        let w_leaf = leaf(tensor(&w, [K, N], &device));
        let filters = w_leaf.clone().transpose().reshape([N, K, 1, 1]);
        let pixels = x_leaf.clone().reshape([M, K, 1, 1]);
        let out = conv2d(
            pixels,
            filters,
            None,
            ConvOptions::new([1, 1], [0, 0], [1, 1], 1),
        );
        let loss = Mx::loss_with_gradient(out.clone(), tensor(&g, [M, N, 1, 1], &device));
        let grads = loss.backward();
        let got = [
            values(out),
            values(x_leaf.grad(&grads).expect("it is a leaf")),
            values(w_leaf.grad(&grads).expect("it is a leaf")),
        ];
        for (got, (expected, columns)) in got.iter().zip([(&y, N), (&dx, K), (&dw, N)]) {
            Matrix::new(expected, columns).assert_close(got, "convolution");
        }

        // The gradient of its weight is the gradient of a matmul's operand.
        let x_leaf = leaf(tensor(&x, [M, K], &device));
        let w_leaf = leaf(tensor(&w, [K, N], &device));
        let x_activation = burn_mx::module::as_activation(x_leaf.clone());
        let out = x_activation.matmul(w_leaf.clone());
        let grads = Mx::loss_with_gradient(out.clone(), tensor(&g, [M, N], &device)).backward();
        assert_same_bits(&values(out), &y, "matmul");
        let dx_got = values(x_leaf.grad(&grads).expect("it is a leaf"));
        assert_same_bits(&dx_got, &dx, "matmul: dx");
        let dw_got = values(w_leaf.grad(&grads).expect("it is a leaf"));
        assert_same_bits(&dw_got, &dw, "matmul: dw");
    }
}

/// 0, 2 and 4 times 3/4 are FP4 numbers, and their products do not change.
#[test]
fn a_margin_changes_no_bit_where_nothing_saturates_and_rounding_is_exact() {
    let gradients = |headroom: &str| {
        let specs = MxSpecs {
            headroom_bp: headroom.parse().expect("it is one"),
            ..mx_only(MxSpecs::mxfp4())
        };
        let device = mx_device(&specs);
        let small = |count: usize, seed| -> Vec<f32> {
            let values = noise(count, seed);
            let number = |(i, x): (usize, &f32)| match (i % 16, x.abs() < 0.3) {
                (0, _) => 4.0,
                (_, true) => 0.0,
                (_, false) => 2.0_f32.copysign(*x),
            };
            values.iter().enumerate().map(number).collect()
        };
        let x = tensor(&small(M * K, 1), [M, K], &device).require_grad();
        let w = tensor(&small(K * N, 2), [K, N], &device).require_grad();
        let y = linear(x.clone(), w.clone(), None);
        let g = tensor(&small(M * N, 3), [M, N], &device);
        let grads = Mx::loss_with_gradient(y, g).backward();
        [x, w].map(|leaf| values(leaf.grad(&grads).expect("it is a leaf")))
    };
    let [with, without] = ["4/3", "1"].map(gradients);
    assert_all_same_bits(&with, &without, "gradients");
}

/// One quantized weight serves the forward product and the input's gradient.
#[test]
fn a_square_weight_is_the_same_both_ways() {
    for format in [
        "nvfp4(tensor_scale=true,square=true)",
        "mx(element=fp4_e2m1,block_size=32,square=true)",
    ] {
        let specs = MxSpecs {
            w_elem_format: Some(format.parse().expect("it is a format")),
            round: Rounding::NearestEven,
            ..MxSpecs::none()
        };
        let device = mx_device(&specs);
        let [_, w, _] = operands();
        let identity = |n: usize| -> Vec<f32> {
            (0..n * n)
                .map(|i| f32::from(u8::from(i / n == i % n)))
                .collect()
        };
        let x = tensor(&identity(K), [K, K], &device).require_grad();
        let weight = tensor(&w, [K, N], &device).require_grad();
        let y = linear(x.clone(), weight, None);
        let g = tensor(&w, [K, N], &device);
        let grads = Mx::loss_with_gradient(y.clone(), g.clone()).backward();

        let mut quantized = w.clone();
        let format: BlockFormat = format.parse().expect("it is a format");
        format
            .quantize(&mut quantized, &[K, N], 1, Rounder::NearestEven)
            .expect("it fits");
        assert_ne!(quantized, w);
        Matrix::new(&quantized, N).assert_close(&values(y), "forward");
        let expected = Matrix::new(&w, N).times(&Matrix::new(&quantized, N).transposed());
        expected.assert_close(&values(x.grad(&grads).expect("it is a leaf")), "dx");
    }
}

/// A separate scale mode for gradients, in each way in which a slot names it.
#[test]
fn headroom_is_of_backward_blocks_alone() {
    let specs = MxSpecs {
        headroom_bp: "4/3".parse().expect("it is one"),
        ..MxSpecs::mxfp4()
    };
    let resolved = specs.resolve().expect("it is sound");
    let forward = BlockFormat::mx(ElementFormat::FP4_E2M1, 32);
    let backward = BlockFormat {
        headroom: specs.headroom_bp,
        ..forward
    };
    use burn_mx::Slot;
    for slot in Slot::ALL {
        let expected = if slot.is_backward() {
            backward
        } else {
            forward
        };
        assert_eq!(resolved.block_format(slot), Some(expected), "{slot:?}");
    }
    assert_eq!(forward.scale_mode, ScaleMode::Floor);
}

#[test]
fn attention_without_blocks_is_attention_in_bfloat16() {
    let attention = |specs: &MxSpecs| {
        let device = mx_device(specs);
        let [q, k] =
            [1, 2].map(|seed| noise_tensor::<Mx, 3>([2, 40, 48], seed, &device).require_grad());
        let [q_activation, k_activation] =
            [q.clone(), k.clone()].map(burn_mx::module::as_activation);
        let scores = q_activation.matmul(k_activation.transpose());
        let g = noise_tensor::<Mx, 3>([2, 40, 40], 3, &device);
        let grads = Mx::loss_with_gradient(scores.clone(), g).backward();
        [
            values(scores),
            values(q.grad(&grads).expect("it is a leaf")),
            values(k.grad(&grads).expect("it is a leaf")),
        ]
    };
    let bfloat16 = attention(&MxSpecs {
        round: Rounding::NearestEven,
        ..bfloat16_only()
    });
    for name in [
        "mxfp8_pretraining",
        "mxfp4_backward",
        "nvfp4_pretraining",
        "quartet",
    ] {
        let specs = MxSpecs {
            seed: 61,
            ..MxSpecs::preset(name).expect("it is a preset")
        };
        assert_all_same_bits(&attention(&specs), &bfloat16, name);
    }
    let all = attention(&MxSpecs::mxfp6_training());
    assert_ne!(all[0], bfloat16[0]);
}

#[derive(Module, Debug)]
struct Model<B: Backend> {
    tokens: burn::nn::Embedding<B>,
    blocks: burn::nn::transformer::TransformerEncoder<B>,
    reader: burn::nn::Lstm<B>,
    up: Option<burn::nn::conv::ConvTranspose2d<B>>,
    stages: Vec<burn::nn::conv::Conv2d<B>>,
    norm: burn::nn::LayerNorm<B>,
    head: burn::nn::Linear<B>,
}

fn model(device: &burn_mx::MxDevice<TestDevice>) -> Model<Mx> {
    Model {
        tokens: EmbeddingConfig::new(10, 8).init(device),
        blocks: TransformerEncoderConfig::new(8, 16, 2, 1).init(device),
        reader: LstmConfig::new(8, 4, true).init(device),
        up: Some(ConvTranspose2dConfig::new([2, 2], [1, 1]).init(device)),
        stages: vec![
            Conv2dConfig::new([1, 2], [3, 3]).init(device),
            Conv2dConfig::new([2, 2], [3, 3]).init(device),
        ],
        norm: LayerNormConfig::new(8).init(device),
        head: LinearConfig::new(8, 10).init(device),
    }
}

impl Model<Mx> {
    /// The layers in another order than the fields are in.
    fn run(&self, tokens: Tensor<Mx, 2, Int>) -> Tensor<Mx, 3> {
        let x = self.tokens.forward(tokens);
        let image = x.clone().unsqueeze_dim::<4>(1);
        let image = self.stages.iter().fold(image, |x, stage| stage.forward(x));
        let image = self.up.as_ref().expect("there is one").forward(image);
        let logits = self.head.forward(self.norm.forward(x.clone())).mean_dim(2);
        let (x, _) = self
            .reader
            .forward(x + image.mean().reshape([1, 1, 1]) + logits, None);
        let x = Tensor::cat(vec![x.clone(), x], 2);
        self.blocks.forward(TransformerEncoderInput::new(x))
    }
}

fn tokens(device: &burn_mx::MxDevice<TestDevice>) -> Tensor<Mx, 2, Int> {
    Tensor::from_data([[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]], device)
}

const ALL: Exemptions = Exemptions {
    head: true,
    last_percent: 100,
};

#[test]
fn layers_are_exempt_in_the_order_in_which_they_run() {
    let device = mx_device(&MxSpecs::none());
    let model = model(&device);
    let forward = |model: &Model<Mx>| model.run(tokens(&device));
    let layers = exempt_layers(&model, ALL, forward).expect("it has layers");
    let at = |layer: &str| layers.iter().position(|other| other == layer);
    let fields = burn_mx::module::layers(&model);
    assert_eq!(layers.len(), fields.len(), "{layers:?}");
    assert!(fields.iter().all(|layer| at(layer).is_some()), "{layers:?}");
    assert_eq!(layers[..4], ["stages.0", "stages.1", "up", "head"]);
    let last = ["mha.output", "pwff.linear_inner", "pwff.linear_outer"];
    let last = last.map(|part| format!("blocks.layers.0.{part}"));
    assert_eq!(layers[15..], last);
    let nvfp4 = Recipe::preset("nvfp4_pretraining")
        .expect("it is one")
        .exemptions;
    // The last one that runs, and 15 % of the 17 layers before it.
    let exempt = exempt_layers(&model, nvfp4, forward).expect("it has layers");
    assert_eq!(exempt, layers[14..]);

    let nothing = exempt_layers(&model, ALL, |_| ()).expect_err("nothing ran");
    assert!(nothing.to_string().contains("forward pass"), "{nothing}");
    let none = exempt_layers(&model, Exemptions::default(), |_| ());
    assert!(none.expect("nothing is exempt").is_empty());
}

/// A model whose head is its embedding, and whose fields are in no order.
#[derive(Module, Debug)]
struct Tied<B: Backend> {
    second: burn::nn::Linear<B>,
    embedding: burn::nn::Embedding<B>,
    first: burn::nn::Linear<B>,
}

#[test]
fn the_head_may_be_an_embedding() {
    let recipe = Recipe::preset("nvfp4_pretraining").expect("it is one");
    let device = mx_device(&recipe.specs);
    let model = Tied::<Mx> {
        second: LinearConfig::new(8, 8).init(&device),
        embedding: EmbeddingConfig::new(10, 8).init(&device),
        first: LinearConfig::new(8, 8).init(&device),
    };
    let input = tokens(&device);
    let (model, exempt) = set_exemptions(model, &recipe, |model| {
        let x = model.first.forward(model.embedding.forward(input));
        let x = model.second.forward(x);
        x.matmul(model.embedding.weight.val().transpose().unsqueeze())
    })
    .expect("it has layers");
    assert_eq!(exempt, ["second", "embedding.weight"]);
    let specs = |weight: Tensor<Mx, 2>| specs_of(&weight).expect("they are set").to_string();
    assert_eq!(specs(model.embedding.weight.val()), "bfloat16, round even");
    assert_eq!(specs(model.second.weight.val()), "bfloat16, round even");
    assert_ne!(specs(model.first.weight.val()), "bfloat16, round even");
}

/// Beside a task that trains in the same pool of threads.
#[test]
fn only_the_layers_of_the_model_count() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let both = || {
        let model = model(&device);
        exempt_layers(&model, ALL, |model| model.run(tokens(&device))).expect("it has layers")
    };
    let expected = both();
    for _ in 0..8 {
        let (one, other) = rayon::join(both, both);
        assert_eq!(one, expected);
        assert_eq!(other, expected);
    }
}

#[test]
fn exempt_layers_have_the_elementwise_format_alone() {
    let recipe = Recipe::preset("quartet").expect("it is one");
    let device = mx_device(&recipe.specs);
    let (model, exempt) =
        set_exemptions(model(&device), &recipe, |model| model.run(tokens(&device)))
            .expect("the recipe is sound");
    assert_eq!(exempt, ["blocks.layers.0.pwff.linear_outer"]);
    let outer = model.blocks.layers[0].pwff.linear_outer.weight.val();
    assert_eq!(
        label_of(&outer),
        Some("blocks.layers.0.pwff.linear_outer.weight")
    );
    let specs = specs_of(&outer).expect("they are set");
    assert_eq!(specs.to_string(), "bfloat16, round even");
    let other = specs_of(&model.stages[1].weight.val()).expect("they are the device's");
    assert_eq!(other, recipe.specs.resolve().expect("it is sound"));

    // A model that is one layer has no other head.
    let linear = LinearConfig::new(4, 4).init::<Mx>(&device);
    let x = noise_tensor::<Mx, 2>([1, 4], 1, &device);
    let (linear, exempt) =
        set_exemptions(linear, &recipe, |linear| linear.forward(x)).expect("the recipe is sound");
    assert_eq!(exempt, ["weight"]);
    let specs = specs_of(&linear.weight.val()).expect("they are set");
    assert_eq!(specs.to_string(), "bfloat16, round even");

    let by_path = set_exemptions_at(linear.clone(), &recipe, &["*"]).expect("it has parameters");
    assert_eq!(label_of(&by_path.weight.val()), Some("weight"));
    let unknown = set_exemptions_at(linear, &recipe, &["head"]).expect_err("it has no head");
    assert!(unknown.to_string().contains("head"), "{unknown}");
}
