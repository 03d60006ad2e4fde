//! Attention whose points have formats. A model that is written out here rounds at the same points by `microscaling`. Where no point
//! has a format, float64 is the reference. Schemes of the literature are compared with their figures.

use burn::backend::NdArray;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Bool, Tensor, backend::Backend};
use burn_mx::{
    Accumulation, AttentionBackward, AttentionSpecs, Delta, ElementFormat, MxAutodiff, MxBackend,
    MxDevice, MxSpecs, PointFormat, Rounder, Rounding, RowSums, ValueAxis, ValueRange,
};

use half::f16;

use super::arrays::*;
use crate::backend::TestBackend;
use crate::support::*;

pub(super) type Four = Tensor<TestBackend, 4>;

/// The shapes of an attention, and what hides keys.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) features: usize,
    pub(super) outputs: usize,
    pub(super) causal: bool,
    /// Each third key is hidden, and every key of the first query.
    pub(super) masked: bool,
    pub(super) bias: bool,
    pub(super) softcap: Option<f64>,
    pub(super) bfloat16: bool,
}

pub(super) const SMALL: Case = Case {
    batch: 1,
    heads: 2,
    queries: 5,
    keys: 7,
    features: 10,
    outputs: 6,
    causal: false,
    masked: false,
    bias: false,
    softcap: None,
    bfloat16: false,
};

impl Case {
    /// Query, key, value, bias, and the gradient of the output.
    pub(super) fn inputs(&self) -> [Array; 5] {
        let (b, h, q, k) = (self.batch, self.heads, self.queries, self.keys);
        [
            Array::noise(&[b, h, q, self.features], 1),
            Array::noise(&[b, h, k, self.features], 2),
            Array::noise(&[b, h, k, self.outputs], 3),
            Array::noise(&[1, h, q, k], 4),
            Array::noise(&[b, h, q, self.outputs], 5),
        ]
    }

    fn hides(&self, query: usize, key: usize) -> bool {
        self.masked && (key % 3 == 1 || query == 0)
    }

    pub(super) fn mask<B: Backend>(&self, device: &B::Device) -> Option<Tensor<B, 4, Bool>> {
        let Self { queries, keys, .. } = *self;
        if !self.masked {
            return None;
        }
        let hidden = (0..queries * keys).map(|at| self.hides(at / keys, at % keys));
        let mask = Tensor::<B, 1, Bool>::from_data(&*hidden.collect::<Vec<_>>(), device);
        let mask = mask.reshape([1, 1, queries, keys]);
        Some(mask.expand([self.batch, self.heads, queries, keys]))
    }

    /// Whether no query sees the key, by a mask or by the order of positions.
    pub(super) fn is_hidden(&self, query: usize, key: usize) -> bool {
        self.hides(query, key) || self.causal && key + self.queries > query + self.keys
    }

    fn options(&self) -> AttentionModuleOptions {
        AttentionModuleOptions {
            scale: Some(0.4),
            softcap: self.softcap,
            is_causal: self.causal,
        }
    }

    pub(super) fn specs(&self, attention: AttentionSpecs) -> MxSpecs {
        MxSpecs {
            attention: Some(attention),
            // Attention's own formats are in place of this one.
            a_elem_format: Some(ElementFormat::FP4_E2M1.into()),
            bfloat: if self.bfloat16 { 16 } else { 0 },
            round: Rounding::NearestEven,
            ..MxSpecs::mx()
        }
    }

    /// The output and the gradients of query, key, value and bias, by Burn's op.
    pub(super) fn by_op(&self, specs: &MxSpecs) -> Vec<Vec<f32>> {
        self.on::<Mx>(&mx_device(specs))
    }

    /// The same on a backend.
    fn on<B: Exact>(&self, device: &B::Device) -> Vec<Vec<f32>> {
        let inputs = self.inputs();
        let leaves = [0, 1, 2, 3].map(|i| inputs[i].tensor::<B, 4>(device).require_grad());
        let [q, k, v, bias] = leaves.clone();
        let bias = self.bias.then_some(bias);
        let out = attention(q, k, v, self.mask(device), bias, self.options());
        let grads = B::loss_with_gradient(out.clone(), inputs[4].tensor(device)).backward();
        let wanted = if self.bias { 4 } else { 3 };
        let gradients = leaves[..wanted].iter();
        let gradients = gradients.map(|leaf| values(leaf.grad(&grads).expect("it is a leaf")));
        [values(out)].into_iter().chain(gradients).collect()
    }
}

/// A number rounded to elements without a scale, by their list.
fn to_element(element: ElementFormat, x: f32) -> f32 {
    let codes = 0..1 << (element.bits() - 1);
    let numbers = codes
        .map(|code| element.decode(code))
        .filter(|x| x.is_finite());
    let numbers: Vec<f32> = numbers.collect();
    let distance = |i: &usize| (numbers[*i] - x.abs()).abs();
    let nearest = (0..numbers.len()).min_by(|a, b| {
        let closer = distance(a).total_cmp(&distance(b));
        closer.then((a % 2).cmp(&(b % 2)))
    });
    numbers[nearest.expect("there are some")].copysign(x)
}

/// The tensor rounded at a point.
pub(super) fn at(point: Option<PointFormat>, x: Four, axis: usize) -> Four {
    let device = x.device();
    let mut array = Array::of(x);
    match point {
        None => {}
        Some(PointFormat::Block(format)) => {
            let Array { values, shape } = &mut array;
            // Square blocks lie along the last two axes.
            let axis = if format.square { 3 } else { axis };
            let rounded = format.quantize(values, shape, axis, Rounder::NearestEven);
            rounded.expect("axis is one of the shape's");
        }
        Some(PointFormat::Element(element)) => {
            let values = array.values.iter_mut();
            values.for_each(|x| *x = to_element(element, *x));
        }
        Some(PointFormat::Float(format)) => {
            format.round_slice(&mut array.values, Rounder::NearestEven);
        }
        Some(other) => panic!("{other}"),
    }
    array.tensor(&device)
}

/// As [`at`], with one line of blocks for these many rows.
pub(super) fn in_lines(point: Option<PointFormat>, x: Four, rows: usize) -> Four {
    if rows == 0 {
        return at(point, x, 3);
    }
    let [_, _, length, features] = x.dims();
    let lines = (0..length).step_by(rows).map(|first| {
        let line = x.clone().narrow(2, first, rows.min(length - first));
        let [b, h, n, _] = line.dims();
        at(point, line.reshape([b, h, 1, n * features]), 3).reshape([b, h, n, features])
    });
    Tensor::cat(lines.collect(), 2)
}

/// A product whose sums take 16 terms at once, exactly, and are rounded to float16.
fn in_sums_of_16([a, b]: [Four; 2]) -> Four {
    let ([batch, heads, rows, terms], columns) = (a.dims(), b.dims()[3]);
    let (a, b) = (values(a), values(b));
    let mut product = Vec::new();
    for row in 0..batch * heads * rows {
        for column in 0..columns {
            let first = row / rows * terms;
            let term = |i: usize| {
                f64::from(a[row * terms + i]) * f64::from(b[(first + i) * columns + column])
            };
            let sums = (0..terms).step_by(16).fold(0.0, |sum, start| {
                let exact: f64 = (start..terms.min(start + 16)).map(term).sum();
                f16::from_f64(sum + exact).to_f64()
            });
            product.push(sums as f32);
        }
    }
    Four::from_data(
        burn::tensor::TensorData::new(product, [batch, heads, rows, columns]),
        &Default::default(),
    )
}

/// A product that a matrix unit sums up, as in a matrix product: both operands have the format.
fn product(unit: Option<Accumulation>, point: Option<PointFormat>, [a, b]: [Four; 2]) -> Four {
    let Some(unit) = unit else {
        return a.matmul(b);
    };
    let Some(PointFormat::Block(format)) = point else {
        return in_sums_of_16([a, b]);
    };
    let specs = MxSpecs {
        a_elem_format: Some(burn_mx::SlotFormat::Block(format)),
        accumulator_forward: Some(unit),
        round: Rounding::NearestEven,
        ..MxSpecs::default()
    };
    let device = mx_device(&specs);
    let [a, b] = [a, b].map(|x| Array::of(x).tensor::<MxBackend<TestBackend>, 4>(&device));
    Array::of(a.matmul(b)).tensor(&Default::default())
}

/// Attention and its gradients with roundings at the points.
fn model(case: &Case, specs: &AttentionSpecs) -> Vec<Vec<f32>> {
    let device = Default::default();
    let bfloat16 = |x: Four| {
        Array::of(x)
            .rounded(case.bfloat16)
            .tensor::<TestBackend, 4>(&device)
    };
    let [q, k, v, bias, g] = case.inputs().map(|x| x.tensor::<TestBackend, 4>(&device));
    let [q, k, v, g] = [q, k, v, g].map(bfloat16);
    let scale = 0.4;
    let operand_scale = specs.probability_scale as f32;
    let float = [&q, &k, &v].map(Tensor::clone);
    let v_whole = v.clone();

    // Operands.
    let k_mean = k.clone().mean_dim(2);
    let k_smooth = if specs.smooth_k {
        k - k_mean.clone()
    } else {
        k
    };
    // A cap is not the same without the mean's part of the scores.
    let needs_mean = specs.smooth_k && case.softcap.is_some();
    let q_whole = q.clone();
    let mut q_means = q.zeros_like();
    if specs.smooth_q > 0 {
        let groups = (0..case.queries).step_by(specs.smooth_q).map(|first| {
            let rows = specs.smooth_q.min(case.queries - first);
            q.clone()
                .narrow(2, first, rows)
                .mean_dim(2)
                .repeat_dim(2, rows)
        });
        q_means = Tensor::cat(groups.collect(), 2);
    }
    let q_rest = if specs.smooth_q > 0 {
        q - q_means.clone()
    } else {
        q
    };
    let q_hat = in_lines(specs.q, q_rest.clone(), specs.q_rows);
    let k_hat = in_lines(specs.k, k_smooth.clone(), specs.k_rows);
    let v_scales = specs.v_range.map(|range| {
        let scales = v.clone().abs().max_dim(2) / range.get();
        scales.clone().mask_fill(scales.equal_elem(0.0), 1.0)
    });
    let v = match &v_scales {
        Some(scales) => v / scales.clone(),
        None => v,
    };
    let v_hat = at(
        specs.v,
        v.clone(),
        if specs.v_axis == ValueAxis::Keys {
            2
        } else {
            3
        },
    );

    // A matrix unit rounds blocks itself.
    let before = |point, x| match point {
        Some(PointFormat::Block(_)) => x,
        _ => at(point, x, 3),
    };
    let of_value = match specs.v {
        Some(PointFormat::Block(_)) => v,
        _ => v_hat.clone(),
    };
    let times_scales = |x: Four| match &v_scales {
        Some(scales) => x * scales.clone(),
        None => x,
    };

    // Scores.
    let mut scores = match specs.qk_accumulator {
        None => q_hat.clone().matmul(k_hat.clone().transpose()),
        unit => {
            let pair = [q_rest.clone(), k_smooth.clone().transpose()];
            product(unit, specs.q, pair)
        }
    };
    if specs.smooth_q > 0 {
        scores = scores + q_means.clone().matmul(k_smooth.clone().transpose());
    }
    if needs_mean {
        scores = scores + q_whole.matmul(k_mean.clone().transpose());
    }
    let hidden: Vec<bool> = (0..case.batch * case.heads * case.queries * case.keys)
        .map(|i| case.is_hidden(i / case.keys % case.queries, i % case.keys))
        .collect();
    let hidden = Tensor::<TestBackend, 1, Bool>::from_data(&*hidden, &device).reshape([
        case.batch,
        case.heads,
        case.queries,
        case.keys,
    ]);
    let finish = |scores: Four, points: [Option<PointFormat>; 2]| {
        let scaled = at(points[0], scores, 3) * scale;
        let (scaled, slope) = match case.softcap {
            Some(cap) => {
                let tanh = (scaled / cap).tanh();
                (tanh.clone() * cap, (tanh.clone() * tanh).neg() + 1.0)
            }
            None => (scaled.clone(), scaled.ones_like()),
        };
        let masked = at(points[1], scaled, 3).mask_fill(hidden.clone(), f32::NEG_INFINITY);
        let masked = if case.bias {
            masked + bias.clone()
        } else {
            masked
        };
        (masked, slope)
    };
    let (scores, slope) = finish(scores, [specs.scores, specs.scaled_scores]);

    // Softmax and the second product.
    let exponentials = |scores: Four, maximum: Four| {
        let differences = scores - maximum;
        let hidden = differences.clone().equal_elem(f32::NEG_INFINITY);
        let shown = differences.mask_fill(hidden.clone(), 0.0);
        at(specs.differences, shown, 3)
            .mask_fill(hidden, f32::NEG_INFINITY)
            .exp()
    };
    let summed = |exact: Four, rounded: Four| match specs.row_sums {
        RowSums::Exact => exact.sum_dim(3),
        _ => rounded.sum_dim(3),
    };
    let rows = [case.batch, case.heads, case.queries, 1];
    let (out, maximum, sum) = if specs.tile == 0 {
        let maximum = at(specs.maximum, scores.clone().max_dim(3), 3).clamp_min(f32::MIN);
        let exact = exponentials(scores.clone(), maximum.clone());
        let rounded = at(specs.exponentials, exact.clone(), 3);
        let sum = at(specs.sum, summed(exact, rounded.clone()), 3);
        let sum = sum.clamp_min(f32::MIN_POSITIVE);
        let p = rounded / sum.clone() * operand_scale;
        let out = match specs.pv_accumulator {
            None => at(specs.probabilities, p, 3).matmul(v_hat.clone()),
            unit => product(
                unit,
                specs.v,
                [before(specs.probabilities, p), of_value.clone()],
            ),
        };
        (out / operand_scale, maximum, sum)
    } else {
        let mut maximum = Four::full(rows, f32::MIN, &device);
        let mut sum = Four::zeros(rows, &device);
        let mut out = Four::zeros(
            [case.batch, case.heads, case.queries, case.outputs],
            &device,
        );
        for first in (0..case.keys).step_by(specs.tile) {
            let length = specs.tile.min(case.keys - first);
            let tile = scores.clone().narrow(3, first, length);
            let larger = maximum.clone().max_pair(tile.clone().max_dim(3));
            let larger = at(specs.maximum, larger, 3).clamp_min(f32::MIN);
            let shrink = (maximum - larger.clone()).exp();
            let exact = exponentials(tile, larger.clone()) * operand_scale;
            let rounded = at(specs.exponentials, exact.clone(), 3);
            let product = match specs.pv_accumulator {
                None => rounded
                    .clone()
                    .matmul(v_hat.clone().narrow(2, first, length)),
                unit => product(
                    unit,
                    specs.v,
                    [
                        before(specs.exponentials, exact.clone()),
                        of_value.clone().narrow(2, first, length),
                    ],
                ),
            };
            sum = at(specs.sum, sum * shrink.clone() + summed(exact, rounded), 3);
            out = out * shrink + product;
            maximum = larger;
        }
        let sum = sum.clamp_min(f32::MIN_POSITIVE);
        (out / sum.clone(), maximum, sum / operand_scale)
    };
    let out = bfloat16(at(specs.output, times_scales(out), 3));
    let logarithm =
        |maximum: Four, sum: Four| at(specs.statistics, maximum + sum.log(), 3).clamp_min(f32::MIN);

    // Gradients.
    let quantized = specs.backward == AttentionBackward::Quantized;
    let (scores, slope, statistics, [q, k, v]) = match quantized {
        true => {
            let own = |format: Option<PointFormat>, before: &Four, forward: Four| match format {
                None => forward,
                format => at(format, before.clone(), 2),
            };
            let v = match specs.v_bp {
                None => times_scales(v_hat),
                format => at(format, v_whole.clone(), 3),
            };
            (
                scores,
                slope,
                logarithm(maximum, sum),
                [
                    own(specs.q_bp, &q_rest, q_hat),
                    own(specs.k_bp, &k_smooth, k_hat),
                    v,
                ],
            )
        }
        false => {
            let [q, k, _] = &float;
            let (scores, slope) = finish(q.clone().matmul(k.clone().transpose()), [None; 2]);
            let maximum = scores.clone().max_dim(3).clamp_min(f32::MIN);
            let sum = (scores.clone() - maximum.clone()).exp().sum_dim(3);
            let sum = sum.clamp_min(f32::MIN_POSITIVE);
            (scores, slope, logarithm(maximum, sum), float)
        }
    };
    let p = (scores - statistics).exp();
    let format = match specs.tile {
        0 => specs.probabilities,
        _ => specs.exponentials,
    };
    // As the product reads the probabilities, and their factor.
    let (p_hat, p_scale) = match (quantized, specs.probabilities_bp) {
        (false, _) => (p.clone(), 1.0),
        (true, None) => (at(format, p.clone() * operand_scale, 3), operand_scale),
        (true, own) => (at(own, p.clone(), 2), 1.0),
    };
    let is_block = |format| matches!(format, Some(PointFormat::Block(_)));
    // A unit rounds blocks itself. Its other operands are rounded already.
    let by_unit = |unit, own, [lhs, rhs]: [Four; 2], before: [Four; 2]| match is_block(own) {
        true => product(unit, own, before),
        false => in_sums_of_16([lhs, rhs]),
    };
    let of_dv = at(specs.d_output, g.clone(), 2);
    let dv = match specs.dv_accumulator {
        None => (p_hat / p_scale).transpose().matmul(of_dv),
        unit => {
            let before = [p.clone().transpose(), g.clone()];
            by_unit(
                unit,
                specs.probabilities_bp,
                [p_hat.transpose(), of_dv],
                before,
            ) / p_scale
        }
    };
    let of_dp = at(specs.d_output_dp.or(specs.d_output), g.clone(), 3);
    let dp = match specs.dp_accumulator {
        None => of_dp.matmul(v.transpose()),
        unit => {
            let before = [g.clone(), v_whole.transpose()];
            by_unit(unit, specs.v_bp, [of_dp, v.transpose()], before)
        }
    };
    let dp = at(specs.d_probabilities, dp, 3);
    let delta = match specs.delta {
        Delta::Output => (out.clone() * g).sum_dim(3),
        _ => (p.clone() * dp.clone()).sum_dim(3),
    };
    let ds = p * (dp - delta);
    let dbias = if case.batch == 1 {
        ds.clone()
    } else {
        ds.clone().sum_dim(0)
    };
    let ds = if case.softcap.is_some() {
        ds * slope
    } else {
        ds
    } * scale;
    // The means of smoothed operands are not rounded.
    let of_scores =
        |unit, own, [ds_hat, saved]: [Four; 2], before: [Four; 2], mean: Option<Four>| match (
            unit, mean,
        ) {
            (None, None) => ds_hat.matmul(saved),
            (None, Some(mean)) => ds_hat.matmul(saved + mean),
            (unit, None) => by_unit(unit, own, [ds_hat, saved], before),
            (unit, Some(mean)) => {
                let part = ds_hat.clone().matmul(mean.expand(saved.dims()));
                by_unit(unit, own, [ds_hat, saved], before) + part
            }
        };
    let mean = (needs_mean && quantized).then_some(k_mean);
    let pair = [at(specs.d_scores, ds.clone(), 3), k];
    let before = [ds.clone(), k_smooth];
    let dq = of_scores(specs.dq_accumulator, specs.k_bp, pair, before, mean);
    let means = (specs.smooth_q > 0 && quantized).then_some(q_means);
    let pair = [at(specs.d_scores, ds.clone(), 2).transpose(), q];
    let before = [ds.transpose(), q_rest];
    let dk = of_scores(specs.dk_accumulator, specs.q_bp, pair, before, means);
    let mut results = vec![out, dq, dk, dv];
    if case.bias {
        results.push(dbias);
    }
    let gradients = results.split_off(1).into_iter().map(bfloat16);
    let results = results.clone().into_iter().chain(gradients);
    results.map(values).collect()
}

/// One of some values, by a number that is used up.
pub(super) fn choose<T: Clone>(number: &mut u64, values: &[T]) -> T {
    values[bits(number) as usize % values.len()].clone()
}

/// Knuth's MMIX generator.
fn bits(number: &mut u64) -> u32 {
    *number = number
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*number >> 32) as u32
}

pub(super) fn point(text: &str) -> Option<PointFormat> {
    match text {
        "" => None,
        _ => Some(text.parse().unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// A case and specs by a seed.
pub(super) fn random(seed: u64) -> (Case, AttentionSpecs) {
    let mut number = seed;
    let n = &mut number;
    let bools = [false, true];
    let case = Case {
        batch: choose(n, &[1, 2]),
        heads: choose(n, &[1, 3]),
        queries: choose(n, &[1, 5, 8]),
        keys: choose(n, &[1, 7, 16, 19]),
        features: choose(n, &[3, 10, 16]),
        outputs: choose(n, &[6, 17]),
        causal: choose(n, &bools),
        masked: choose(n, &bools),
        bias: choose(n, &bools),
        softcap: choose(n, &[None, Some(1.5)]),
        bfloat16: choose(n, &bools),
    };
    let blocks = ["", "nvfp4", "mx(element=fp6_e2m3,block_size=4)", "mxint8"];
    let any = [
        "",
        "",
        "bfloat16",
        "fp8_e4m3",
        "nvfp4",
        "mx(element=fp6_e2m3,block_size=4)",
    ];
    let of_rows = ["", "", "bfloat12", "fp16"];
    let one_scale = "block(element=int8,scale=float32,block_size=0)";
    let tile = choose(n, &[0, 4, 8]);
    let operand = choose(n, &any);
    let mut specs = AttentionSpecs {
        q: point(choose(n, &blocks)),
        k: point(choose(n, &blocks)),
        v: point(choose(n, &blocks)),
        smooth_k: choose(n, &bools),
        smooth_q: choose(n, &[0, 0, 2, 5]),
        scores: point(choose(n, &any)),
        scaled_scores: point(choose(n, &any)),
        maximum: point(choose(n, &of_rows)),
        differences: point(choose(n, &any)),
        exponentials: point(if tile == 0 { choose(n, &any) } else { operand }),
        sum: point(choose(n, &of_rows)),
        probabilities: point(if tile == 0 { operand } else { "" }),
        probability_scale: if operand.is_empty() {
            1
        } else {
            choose(n, &[1, 448, 2688])
        },
        output: point(choose(n, &any)),
        tile,
        backward: choose(n, &[AttentionBackward::Quantized, AttentionBackward::Float]),
        statistics: point(choose(n, &of_rows)),
        delta: choose(n, &[Delta::Probabilities, Delta::Output]),
        d_output: point(choose(n, &any)),
        d_probabilities: point(choose(n, &any)),
        d_scores: point(choose(n, &any)),
        ..AttentionSpecs::default()
    };
    if specs.v.is_some() {
        specs.v_axis = choose(n, &[ValueAxis::Keys, ValueAxis::Features]);
    }
    if choose(n, &bools) {
        specs.v = point("fp8_e4m3");
        specs.v_axis = ValueAxis::Keys;
        specs.v_range = choose(n, &[None, Some(ValueRange::SAGE)]);
    }
    if specs.exponentials.is_some() {
        specs.row_sums = choose(n, &[RowSums::Rounded, RowSums::Exact]);
    }
    if choose(n, &bools) {
        (specs.q, specs.q_rows) = (point(one_scale), choose(n, &[2, 8]));
        (specs.k, specs.k_rows) = (point(one_scale), choose(n, &[3, 64]));
    }
    if specs.backward == AttentionBackward::Quantized {
        for own in [
            &mut specs.q_bp,
            &mut specs.k_bp,
            &mut specs.v_bp,
            &mut specs.probabilities_bp,
        ] {
            *own = point(choose(n, &any));
        }
    }
    specs.d_output_dp = point(choose(n, &any));
    (case, specs)
}

/// Cases of the test of all points.
const SEEDS: u64 = 60;

#[test]
fn every_point_is_rounded_where_the_model_rounds() {
    for seed in 0..SEEDS {
        let (case, specs) = random(seed);
        let got = case.by_op(&case.specs(specs));
        let what = format!("seed {seed}, {specs}, {case:?}: out, dq, dk, dv, dbias");
        assert_all_same_bits(&got, &model(&case, &specs), &what);
    }
}

/// Each field alone, beside formats that it needs, changes the result, and as the model says.
#[test]
fn each_field_alone_has_its_effect() {
    let case = Case {
        masked: true,
        ..SMALL
    };
    let fields = [
        ("q=nvfp4", ""),
        ("k=nvfp4", ""),
        ("v=nvfp4", ""),
        ("v=nvfp4,v_axis=features", "v=nvfp4"),
        ("v=fp8_e4m3", ""),
        ("v=fp8_e4m3,v_range=2.25", "v=fp8_e4m3"),
        ("smooth_k=true,k=nvfp4", "k=nvfp4"),
        ("smooth_q=2,q=nvfp4", "q=nvfp4"),
        ("scores=bfloat16", ""),
        ("scaled_scores=fp8_e4m3", ""),
        ("maximum=fp8_e5m2", ""),
        ("differences=bfloat12", ""),
        ("exponentials=nvfp4", ""),
        ("exponentials=nvfp4,row_sums=exact", "exponentials=nvfp4"),
        ("sum=bfloat12", ""),
        ("probabilities=nvfp4", ""),
        (
            "probabilities=nvfp4,probability_scale=2688",
            "probabilities=nvfp4",
        ),
        ("output=mxfp4", ""),
        ("tile=4,exponentials=nvfp4", "exponentials=nvfp4"),
        ("statistics=bfloat12", ""),
        ("q=nvfp4,backward=float", "q=nvfp4"),
        ("output=mxfp4,delta=output", "output=mxfp4"),
        ("q=nvfp4,q_rows=2,k=mxfp4", "q=nvfp4,k=mxfp4"),
        ("k=nvfp4,k_rows=2", "k=nvfp4"),
        ("d_output=mxfp4", ""),
        ("d_output=fp8_e5m2", ""),
        ("d_probabilities=bfloat12", ""),
        ("d_probabilities=mxfp4", ""),
        ("d_scores=nvfp4", ""),
        ("q_bp=nvfp4", ""),
        ("k_bp=fp8_e4m3", ""),
        ("v_bp=nvfp4", ""),
        ("probabilities_bp=nvfp4", ""),
        (
            "probabilities=nvfp4,probability_scale=448,probabilities_bp=bfloat32",
            "probabilities=nvfp4,probability_scale=448",
        ),
        ("d_output_dp=mxfp4", ""),
        ("d_output=mxfp4,d_output_dp=bfloat32", "d_output=mxfp4"),
        ("d_scores=mx(element=int8,block_size=2,square=true)", ""),
    ];
    let results = |fields: &str| {
        let specs: AttentionSpecs = format!("attention({fields})").parse().expect(fields);
        (case.by_op(&case.specs(specs)), specs)
    };
    for (fields, without) in fields {
        let (got, specs) = results(fields);
        assert_all_same_bits(&got, &model(&case, &specs), fields);
        let base = match without {
            "" => case.by_op(&case.specs(AttentionSpecs::default())),
            _ => results(without).0,
        };
        assert_ne!(got, base, "{fields} has no effect");
    }
}

/// A unit that rounds, for both products, with and without tiles.
#[test]
fn products_have_accumulators() {
    let unit: Accumulation = "accumulator(order=joint,terms=4,fraction_bits=8,output=e8m7_rz)"
        .parse()
        .expect("it is a unit");
    let fp8 = point("mx(element=fp8_e4m3,block_size=4)");
    for tile in [0, 4] {
        let specs = AttentionSpecs {
            q: fp8,
            k: fp8,
            v: fp8,
            exponentials: fp8.filter(|_| tile > 0),
            probabilities: fp8.filter(|_| tile == 0),
            qk_accumulator: Some(unit),
            pv_accumulator: Some(unit),
            tile,
            ..AttentionSpecs::default()
        };
        let got = SMALL.by_op(&SMALL.specs(specs));
        assert_all_same_bits(&got, &model(&SMALL, &specs), &format!("tile {tile}"));
        let float32 = AttentionSpecs {
            qk_accumulator: None,
            pv_accumulator: None,
            ..specs
        };
        assert_ne!(got, SMALL.by_op(&SMALL.specs(float32)), "tile {tile}");
    }
}

const FP16_SUMS: &str = "accumulator(order=exact,terms=16,output=f16_rne)";

/// Units of gradient products, with elements and with blocks of both operands, beside sums that are written out.
#[test]
fn gradient_products_have_accumulators() {
    let units = [
        "dv_accumulator",
        "dp_accumulator",
        "dq_accumulator",
        "dk_accumulator",
    ];
    let elements = "q=fp8_e4m3,k=fp8_e4m3,v=fp8_e4m3,probabilities=fp8_e4m3,probability_scale=448,d_output=fp8_e5m2,d_scores=fp8_e5m2";
    let format = "mx(element=fp8_e4m3,block_size=4)";
    let blocks = format!(
        "q=nvfp4,k=nvfp4,v=nvfp4,q_bp={format},k_bp={format},v_bp={format},probabilities_bp={format},d_output={format},d_scores={format}"
    );
    let with_smoothing = format!("{blocks},smooth_q=2,smooth_k=true");
    let unit_of_blocks = "accumulator(order=joint,terms=4,fraction_bits=8,output=e8m7_rz)";
    let case = Case {
        queries: 20,
        keys: 37,
        softcap: Some(1.5),
        masked: true,
        ..SMALL
    };
    for (formats, unit) in [
        (elements, FP16_SUMS),
        (&blocks, unit_of_blocks),
        (&with_smoothing, unit_of_blocks),
    ] {
        let results = |more: &str| {
            let text = format!("attention({formats}{more})");
            let specs: AttentionSpecs = text.parse().expect(&text);
            (case.by_op(&case.specs(specs)), specs)
        };
        let (float32, _) = results("");
        for field in units {
            let (got, specs) = results(&format!(",{field}={unit}"));
            assert_all_same_bits(&got, &model(&case, &specs), field);
            assert_same_bits(&got[0], &float32[0], field);
            assert_ne!(got, float32, "{field} has no effect");
        }
        let (got, specs) = results(&units.map(|field| format!(",{field}={unit}")).concat());
        assert_all_same_bits(&got, &model(&case, &specs), "all four");
    }
    let empty = Case { batch: 0, ..SMALL };
    let text =
        format!("attention({elements},dq_accumulator={FP16_SUMS},dv_accumulator={FP16_SUMS})");
    let got = empty.by_op(&empty.specs(text.parse().expect(&text)));
    assert!(got.iter().all(Vec::is_empty));
}

/// Each scheme, on more keys than a tile has.
#[test]
fn schemes_are_what_the_model_computes() {
    let case = Case {
        queries: 9,
        keys: 140,
        features: 32,
        outputs: 5,
        causal: true,
        ..SMALL
    };
    for name in AttentionSpecs::SCHEMES {
        let specs: AttentionSpecs = name.parse().expect(name);
        let got = case.by_op(&case.specs(specs));
        assert_all_same_bits(&got, &model(&case, &specs), name);
    }
}

/// Attention and its gradients in float64, without formats.
fn in_float64(case: &Case) -> Vec<Vec<f64>> {
    let [q, k, v, bias, g] = case.inputs().map(|x| {
        let values = x.values.into_iter().map(f64::from);
        values.collect::<Vec<f64>>()
    });
    let Case {
        batch,
        heads,
        queries,
        keys,
        features,
        outputs,
        ..
    } = *case;
    let mut out = vec![0.0; batch * heads * queries * outputs];
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    let mut dbias = vec![0.0; bias.len()];
    for head in 0..batch * heads {
        for query in 0..queries {
            let row = head * queries + query;
            let at_q = |d: usize| row * features + d;
            let at_k = |key: usize, d: usize| (head * keys + key) * features + d;
            let at_v = |key: usize, e: usize| (head * keys + key) * outputs + e;
            let at_bias = |key: usize| ((head % heads) * queries + query) * keys + key;
            let scaled = |key: usize| {
                0.4 * (0..features)
                    .map(|d| q[at_q(d)] * k[at_k(key, d)])
                    .sum::<f64>()
            };
            let score = |key: usize| {
                let capped = case
                    .softcap
                    .map_or(scaled(key), |cap| cap * (scaled(key) / cap).tanh());
                capped + if case.bias { bias[at_bias(key)] } else { 0.0 }
            };
            let seen: Vec<usize> = (0..keys)
                .filter(|key| !case.is_hidden(query, *key))
                .collect();
            let sum: f64 = seen.iter().map(|key| score(*key).exp()).sum();
            let p = |key: usize| score(key).exp() / sum;
            let go = |e: usize| g[row * outputs + e];
            let dp = |key: usize| (0..outputs).map(|e| go(e) * v[at_v(key, e)]).sum::<f64>();
            let delta: f64 = seen.iter().map(|key| p(*key) * dp(*key)).sum();
            for &key in &seen {
                for e in 0..outputs {
                    out[row * outputs + e] += p(key) * v[at_v(key, e)];
                    dv[at_v(key, e)] += p(key) * go(e);
                }
                let ds = p(key) * (dp(key) - delta);
                dbias[at_bias(key)] += ds;
                let slope = case
                    .softcap
                    .map_or(1.0, |cap| 1.0 - (scaled(key) / cap).tanh().powi(2));
                for d in 0..features {
                    dq[at_q(d)] += 0.4 * slope * ds * k[at_k(key, d)];
                    dk[at_k(key, d)] += 0.4 * slope * ds * q[at_q(d)];
                }
            }
        }
    }
    let mut results = vec![out, dq, dk, dv];
    if case.bias {
        results.push(dbias);
    }
    results
}

/// Tiles and smoothing alone change nothing.
#[test]
fn without_formats_it_is_attention() {
    for seed in 0..40 {
        let (case, random) = random(seed);
        let case = Case {
            bfloat16: false,
            ..case
        };
        let specs = AttentionSpecs {
            smooth_k: random.smooth_k,
            smooth_q: random.smooth_q,
            tile: random.tile,
            backward: random.backward,
            delta: random.delta,
            ..AttentionSpecs::default()
        };
        let got = case.by_op(&case.specs(specs));
        for (got, expected) in got.iter().zip(in_float64(&case)) {
            let largest = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
            for (got, expected) in got.iter().zip(expected) {
                let error = (f64::from(*got) - expected).abs() / largest;
                assert!(
                    error < 1e-6,
                    "seed {seed}, {specs}, {case:?}: {got}, {expected}"
                );
            }
        }
    }
}

#[test]
fn an_empty_batch_gives_nothing() {
    let specs: AttentionSpecs = "sageattention3".parse().expect("it is a scheme");
    let case = Case { batch: 0, ..SMALL };
    for specs in [specs, AttentionSpecs::sageattention2()] {
        let got = case.by_op(&case.specs(specs));
        assert!(got.iter().all(Vec::is_empty));
    }
}

/// The backward pass in float32 has the gradients of float attention, with all formats.
#[test]
fn a_backward_pass_that_is_not_quantized_reads_unrounded_operands() {
    let specs: AttentionSpecs = "sageattention3".parse().expect("it is a scheme");
    let float = |attention| MxSpecs {
        quantize_backprop: false,
        ..SMALL.specs(attention)
    };
    let got = SMALL.by_op(&float(specs));
    let expected = SMALL.by_op(&float(AttentionSpecs::default()));
    assert_all_same_bits(&got[1..], &expected[1..], "dq, dk, dv");
    assert_ne!(got[0], expected[0]);
}

/// Without the field, attention has its old bits. With the field, other ops have theirs.
#[test]
fn other_ops_do_not_read_the_field() {
    let device = |attention| {
        mx_device(&MxSpecs {
            attention,
            ..MxSpecs::mxfp4()
        })
    };
    let product = |attention: Option<AttentionSpecs>| {
        let device = device(attention);
        let [a, b] = [1, 2].map(|seed| noise_tensor::<Mx, 3>([2, 8, 8], seed, &device));
        values(burn::tensor::activation::softmax(a.matmul(b), 2))
    };
    let specs = AttentionSpecs::sageattention3();
    assert_same_bits(&product(Some(specs)), &product(None), "product and softmax");
}

#[test]
fn training_and_inference_give_the_same_bits() {
    for seed in 0..10 {
        let (case, specs) = random(seed);
        let specs = case.specs(specs);
        let trained = case.by_op(&specs);
        let device = mx_device(&specs);
        let [q, k, v, bias, _] = case
            .inputs()
            .map(|x| x.tensor::<MxBackend<TestBackend>, 4>(&device));
        let bias = case.bias.then_some(bias);
        let out = attention(q, k, v, case.mask(&device), bias, case.options());
        assert_same_bits(&values(out), &trained[0], "out");
    }
}

/// On another backend, and with gradient checkpointing.
#[test]
fn other_backends_and_checkpointing_compute_the_same_roundings() {
    for seed in 0..20 {
        let (case, specs) = random(seed);
        let what = format!("seed {seed}, {specs}, {case:?}: out, dq, dk, dv, dbias");
        let specs = case.specs(specs);
        let expected = case.by_op(&specs);
        let got = case.on::<MxAutodiff<TestBackend, BalancedCheckpointing>>(&mx_device(&specs));
        assert_all_same_bits(&got, &expected, &what);
    }
    // Sums of another order and other exponentials may move a number by a step of its format; most numbers stay.
    let specs = SMALL.specs(
        "attention(q=nvfp4,k=nvfp4,v=nvfp4)"
            .parse()
            .expect("it is one"),
    );
    let device = MxDevice::new(Default::default(), &specs).expect("they are sound");
    let got = SMALL.on::<MxAutodiff<NdArray>>(&device);
    for (got, expected) in got.iter().zip(SMALL.by_op(&specs)) {
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5, "{got}, {expected}");
        }
    }
}

/// A NaN of a query stays in the query's row.
#[test]
fn a_nan_is_not_hidden() {
    for text in [
        "sageattention3",
        "attn_qat",
        "attention(q=fp8_e4m3,differences=fp8_e5m2,probabilities=fp8_e4m3,output=nvfp4)",
        "attention(tile=4,maximum=bfloat16,exponentials=fp8_e4m3,probability_scale=448)",
    ] {
        let mut attention_specs: AttentionSpecs = text.parse().expect(text);
        // A mean over queries would carry the NaN on.
        attention_specs.smooth_q = 0;
        let device = mx_device(&SMALL.specs(attention_specs));
        let [mut q, k, v, ..] = SMALL.inputs();
        let output = |q: &Array| {
            let [q, k, v] = [q, &k, &v].map(|x| x.tensor::<MxBackend<TestBackend>, 4>(&device));
            values(attention(q, k, v, None, None, Default::default()))
        };
        let without = output(&q);
        q.values[SMALL.features] = f32::NAN;
        let with = output(&q);
        let row = SMALL.outputs..2 * SMALL.outputs;
        assert!(
            with[row.clone()].iter().all(|x| x.is_nan()),
            "{text}: {with:?}"
        );
        assert_same_bits(&with[..row.start], &without[..row.start], text);
        assert_same_bits(&with[row.end..], &without[row.end..], text);
    }
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let device = mx_device(&SMALL.specs(AttentionSpecs::default()));
    let tensor = |shape: [usize; 4]| Tensor::<Mx, 4>::zeros(shape, &device);
    for [q, k, v] in [
        [[1, 2, 5, 8], [1, 2, 7, 4], [1, 2, 7, 6]],
        [[1, 2, 5, 8], [1, 2, 7, 8], [1, 2, 6, 6]],
        [[1, 2, 5, 8], [1, 1, 7, 8], [1, 1, 7, 6]],
        [[1, 2, 5, 8], [1, 2, 0, 8], [1, 2, 0, 6]],
    ] {
        let [q, k, v] = [q, k, v].map(tensor);
        let run = || attention(q, k, v, None, None, Default::default());
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let message = panic
            .err()
            .and_then(|panic| panic.downcast::<String>().ok());
        let message = *message.expect("it panics with a text");
        assert!(message.contains("allowed: [B, H, Q, D]"), "{message}");
    }
}

/// Stochastic rounding draws the same operands in both passes.
#[test]
fn the_backward_pass_draws_the_forward_pass_again() {
    let specs = |attention: &str| MxSpecs {
        round: Rounding::Stochastic,
        ..SMALL.specs(attention.parse().expect(attention))
    };
    // The gradient of the value is Pᵀ g: with one key P is 1, and the query's gradient is 0.
    let case = Case { keys: 1, ..SMALL };
    let got = case.by_op(&specs("attention(q=nvfp4,k=nvfp4,v=nvfp4,statistics=none)"));
    assert!(got[1].iter().all(|x| x.abs() < 1e-6), "{:?}", got[1]);
    let twice = [0, 1].map(|_| SMALL.by_op(&specs("attention(q=nvfp4,k=nvfp4)")));
    assert_ne!(twice[0], twice[1], "new ops draw other numbers");
}

#[test]
fn text_forms_read_back() {
    let texts = [
        "attention",
        "attention(q=nvfp4,scores=bfloat16,maximum=fp8_e4m3)",
        "attention(v=mxfp4,v_axis=features,tile=64)",
        "attention(q=mx(element=int4,block_size=16),smooth_k=true,smooth_q=128)",
        "sageattention2",
        "sageattention2pp",
        "attention(v=fp8_e4m3,v_range=2.25)",
        "sageattention3",
        "sagebwd",
        "attn_qat",
        "attention(q_bp=mxfp8_e4m3,k_bp=bfloat16,v_bp=fp16,probabilities_bp=fp8_e4m3,d_output_dp=fp16)",
        "attention(q=bfloat16,k=bfloat16,d_scores=bfloat16,dq_accumulator=hopper,dk_accumulator=hopper)",
        "attention(d_output=mxfp8_e4m3,d_probabilities=bfloat16,d_scores=fp8_e5m2)",
    ];
    for text in texts {
        let specs: AttentionSpecs = text.parse().expect(text);
        assert_eq!(specs.to_string(), text);
        let json = format!(r#"{{"attention": "{text}"}}"#);
        let whole = MxSpecs::from_json(&json).expect(text);
        assert_eq!(whole.attention, Some(specs));
        assert_eq!(MxSpecs::from_json(&whole.to_json()).expect(text), whole);
        let resolved = whole.resolve().expect(text);
        assert_eq!(resolved.to_string(), text);
        assert!(!resolved.is_none() && !resolved.has_mx());
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let cases = [
        (
            "attention(tile=64,probabilities=nvfp4)",
            "`attention.probabilities` is nvfp4, but with `attention.tile` the left operand is the exponentials; allowed: none",
        ),
        (
            "attention(probability_scale=448)",
            "`attention.probability_scale` is 448, but `attention.probabilities` has no format; allowed: 1",
        ),
        (
            "attention(probability_scale=0)",
            "`attention.probability_scale` is 0; allowed: 1 to 65536",
        ),
        (
            "attention(maximum=nvfp4)",
            "`attention.maximum` is nvfp4, but a row has one such number",
        ),
        (
            "attention(v_axis=features)",
            "`attention.v_axis` is features, but `attention.v` has no blocks; allowed: keys",
        ),
        (
            "attention(v=nvfp4,v_range=2.25)",
            "`attention.v_range` is 2.25, but `attention.v` is not an element without a scale; allowed: none",
        ),
        (
            "attention(v=fp8_e4m3,v_range=500)",
            "`attention.v_range` is 500, but `attention.v` has no element as large",
        ),
        (
            "attention(v_range=-1)",
            "allowed: a positive number such as 2.25",
        ),
        (
            "attention(q_rows=4)",
            "`attention.q_rows` is 4, but its format has no blocks; allowed: 0",
        ),
        ("attention(row_sums=exact)", "`attention.row_sums` is exact"),
        (
            "attention(q=nvfp4,k=nvfp4,qk_accumulator=hopper)",
            "`attention.qk_accumulator` is hopper",
        ),
        (
            "attention(v=mxfp8_e4m3,v_axis=features,probabilities=mxfp8_e4m3,pv_accumulator=blackwell)",
            "`attention.pv_accumulator` is blackwell",
        ),
        (
            "attention(q=fp99)",
            "attention: `q` is `fp99`; `fp99` is not the format of a point; allowed: ",
        ),
        ("attention(qq=nvfp4)", "qq"),
        (
            "attention(tile=-1)",
            "attention: `tile` is `-1`; allowed: a whole number from 0",
        ),
        ("attention(v_axis=heads)", "allowed: keys, features"),
        (
            "sageattention4",
            "allowed: sageattention2, sageattention2pp, sageattention3, sagebwd, attn_qat, or attention(field=value,…)",
        ),
        (
            "attention(q_bp=nvfp4,backward=float)",
            "`attention.q_bp` is nvfp4, but `attention.backward` is float, so gradient products read unrounded operands; allowed: none",
        ),
        (
            "attention(k=mxfp8_e4m3,d_scores=mxfp8_e4m3,dq_accumulator=blackwell)",
            "`attention.dq_accumulator` is blackwell, but the blocks of the key lie along the features, and the product sums over the keys; \
             allowed: none, or a format of its own for the gradient product: `q_bp`, `k_bp`, `v_bp` or `probabilities_bp`",
        ),
        (
            "attention(q=mxfp8_e4m3,d_scores=mxfp8_e4m3,dk_accumulator=blackwell)",
            "the blocks of the query lie along the features",
        ),
        (
            "attention(probabilities=mxfp8_e4m3,d_output=mxfp8_e4m3,dv_accumulator=blackwell)",
            "the blocks of the probabilities lie along the keys",
        ),
        (
            "attention(v=mxfp8_e4m3,d_output=mxfp8_e4m3,dp_accumulator=blackwell)",
            "the blocks of the value lie along the keys",
        ),
        (
            "attention(v=fp8_e4m3,v_range=2.25,d_output=fp8_e4m3,dp_accumulator=hopper)",
            "`attention.dp_accumulator` is hopper, but `attention.v_range`",
        ),
        (
            "attention(dv_accumulator=hopper)",
            "`attention.dv_accumulator` is hopper",
        ),
    ];
    for (text, expected) in cases {
        let error = MxSpecs::from_json(&format!(r#"{{"attention": "{text}"}}"#))
            .and_then(|specs| specs.resolve())
            .expect_err(text);
        let error = error.to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn formats_of_gradients_need_an_emulated_backward_pass() {
    let formats = [
        "d_output",
        "d_output_dp",
        "d_probabilities",
        "d_scores",
        "q_bp",
        "k_bp",
        "v_bp",
        "probabilities_bp",
    ];
    let fields = formats.map(|field| (field, "mxfp8_e5m2"));
    let unit =
        ["dv", "dp", "dq", "dk"].map(|of| (of, "accumulator(order=exact,terms=16,output=f16_rne)"));
    let units = unit.map(|(of, unit)| (format!("{of}_accumulator"), unit));
    let fields = fields.map(|(field, value)| (field.to_owned(), value));
    for (field, value) in fields.into_iter().chain(units) {
        let elements = match field.ends_with("accumulator") {
            true => ",q=bfloat16,k=bfloat16,v=bfloat16,probabilities=bfloat16",
            false => "",
        };
        let text = format!("attention({field}={value}{elements})");
        let specs = MxSpecs {
            attention: Some(text.parse().expect("it is one")),
            quantize_backprop: false,
            ..MxSpecs::none()
        };
        let error = specs.resolve().expect_err(&field).to_string();
        let expected = format!(
            "`attention.{field}` is {value}, but quantize_backprop is false, so gradients are float32; allowed: none"
        );
        assert!(error.contains(&expected), "{error}");
    }
}

/// Standard normal numbers.
fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut number = seed;
    let mut uniform = || {
        let bits = bits(&mut number);
        (f64::from(bits) + 0.5) / f64::from(u32::MAX)
    };
    let mut one = || (-2.0 * uniform().ln()).sqrt() * (uniform() * std::f64::consts::TAU).cos();
    (0..count).map(|_| one() as f32).collect()
}

/// Inputs of the figures: query, key and value of one head with 128 features.
struct Head {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

const KEYS: usize = 2048;
const QUERIES: usize = 256;
const FEATURES: usize = 128;

impl Head {
    /// Keys have a mean of this deviation in each channel.
    fn new(mean: f32) -> Self {
        let means = normal(FEATURES, 4);
        let mut k = normal(KEYS * FEATURES, 2);
        for key in k.chunks_mut(FEATURES) {
            key.iter_mut().zip(&means).for_each(|(k, m)| *k += mean * m);
        }
        Self {
            q: normal(QUERIES * FEATURES, 1),
            k,
            v: normal(KEYS * FEATURES, 3),
        }
    }

    fn output(&self, attention_specs: &str, times: f64) -> Vec<f32> {
        let device = mx_device(&MxSpecs {
            attention: Some(attention_specs.parse().expect(attention_specs)),
            round: Rounding::NearestEven,
            ..MxSpecs::default()
        });
        let tensor = |values: &[f32]| {
            let rows = values.len() / FEATURES;
            let values = Tensor::<MxBackend<TestBackend>, 1>::from_floats(values, &device);
            values.reshape([1, 1, rows, FEATURES])
        };
        let options = AttentionModuleOptions {
            scale: Some(times / (FEATURES as f64).sqrt()),
            ..Default::default()
        };
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|x| tensor(x));
        values(attention(q, k, v, None, None, options))
    }

    /// The mean squared error in relation to the output.
    fn error(&self, attention_specs: &str, times: f64) -> f64 {
        let float = self.output("attention", times);
        let got = self.output(attention_specs, times);
        let square = |x: f64| x * x;
        let error: f64 = got
            .iter()
            .zip(&float)
            .map(|(a, b)| square(f64::from(a - b)))
            .sum();
        error / float.iter().map(|x| square(f64::from(*x))).sum::<f64>()
    }
}

/// The figures of the schemes on normal numbers: smoothing of keys, and one or two levels of scale for probabilities.
#[test]
fn figures_of_the_schemes() {
    let head = Head::new(4.0);
    let int = |bits: usize| {
        let line = format!("block(element=int{bits},scale=float32,block_size=0)");
        format!("q={line},q_rows=128,k={line},k_rows=64")
    };
    let fp4 = "block(element=e2m1,scale=ue4m3,block_size=16)";
    let of_fp4 = format!("q={fp4},k={fp4}");
    let mut wrong = Vec::new();
    let mut check = |head: &Head, specs: String, times: f64, expected: f64| {
        let got = head.error(&format!("attention({specs})"), times);
        // The figures come from other draws, of which the largest channel mean and the rows with one large score differ most.
        if (got / expected).ln().abs() > 0.4 {
            wrong.push(format!(
                "{specs}, logits times {times}: {got:.3e}, not {expected:.3e}"
            ));
        }
    };
    for (operands, plain, smoothed) in [
        (int(8), 1.53e-3, 1.70e-4),
        (int(4), 0.663, 0.0577),
        (of_fp4, 0.189, 0.0187),
    ] {
        check(&head, operands.clone(), 1.0, plain);
        check(&head, format!("{operands},smooth_k=true"), 1.0, smoothed);
    }
    let head = Head::new(0.0);
    for (times, one, two) in [
        (1.0, 8.3e-3, 8.2e-3),
        (3.0, 1.71e-3, 0.43e-3),
        (6.0, 1.09e-3, 0.117e-3),
    ] {
        let p = format!("exponentials={fp4},row_sums=exact,tile=2048");
        check(&head, p.clone(), times, one);
        check(&head, format!("{p},probability_scale=2688"), times, two);
    }
    let e4m3 = "exponentials=fp8_e4m3,row_sums=exact,tile=64,probability_scale=448";
    check(&head, e4m3.into(), 1.0, 6.6e-4);
    assert_none(&wrong);
}

/// Attn-QAT's second output: rows of the gradient of the scores sum up to 0 with it, and not with the rounded output.
#[test]
fn rows_of_the_gradient_of_scores_sum_up_to_zero() {
    const ROWS: usize = 512;
    const FEATURES: usize = 64;
    let rows_of = |delta: &str| {
        let format = "block(element=e2m1,scale=ue4m3,block_size=16)";
        let text = format!(
            "attention(q={format},k={format},v={format},v_axis=features,exponentials={format},row_sums=exact,\
             tile=128,delta={delta})"
        );
        let device = mx_device(&MxSpecs {
            attention: Some(text.parse().expect(&text)),
            round: Rounding::NearestEven,
            ..MxSpecs::default()
        });
        let tensor = |seed| {
            let values = normal(ROWS * FEATURES, seed);
            let values = Tensor::<Mx, 1>::from_floats(&*values, &device);
            values.reshape([1, 1, ROWS, FEATURES])
        };
        let [q, k, v] = [1, 2, 3].map(|seed| tensor(seed).require_grad());
        // The gradient of a bias is the gradient of the scores.
        let bias = Tensor::<Mx, 4>::zeros([1, 1, ROWS, ROWS], &device).require_grad();
        let out = attention(q, k, v, None, Some(bias.clone()), Default::default());
        let grads = Mx::loss_with_gradient(out, tensor(4)).backward();
        values(bias.grad(&grads).expect("it is a leaf"))
    };
    let rms = |rows: &[f64]| (rows.iter().map(|x| x * x).sum::<f64>() / rows.len() as f64).sqrt();
    let figures = |gradient: &[f32]| {
        let of_rows =
            |of_row: fn(&[f32]) -> f64| gradient.chunks(ROWS).map(of_row).collect::<Vec<_>>();
        let sums = of_rows(|row| row.iter().map(|x| f64::from(*x)).sum());
        let norms = of_rows(|row| {
            row.iter()
                .map(|x| f64::from(*x).powi(2))
                .sum::<f64>()
                .sqrt()
        });
        [rms(&sums), rms(&norms)]
    };
    let [sum, norm] = figures(&rows_of("probabilities"));
    assert!(sum < 1e-6, "{sum}");
    assert!((norm / 0.565 - 1.0).abs() < 0.05, "{norm}");
    let [sum, _] = figures(&rows_of("output"));
    assert!((sum / 0.051 - 1.0).abs() < 0.05, "{sum}");
}
