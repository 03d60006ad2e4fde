//! Attention whose points have formats of their own ([`AttentionSpecs`]), forward and backward.

mod apart;
mod backward;

use burn_backend::ops::AttentionModuleOptions;
use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{FloatDType, Shape, TensorMetadata, get_device_settings};

use super::causal_mask;
use super::points::{LAST, POSITIONS, PointOperand, PointProduct, Points, float32, part};
use crate::hooks;
use crate::semantics::stored;
use crate::specs::{AttentionBackward, AttentionSpecs, Delta, RowSums, ValueAxis};
use crate::tensor::random_streams::OpNumber;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Float, OpContext};
pub(crate) use apart::KeptScores;
use burn_mx_kernels::{MxKernels, to_f32};

/// One attention: its specs, its random numbers, and what hides keys.
#[derive(Clone, Debug)]
pub(crate) struct Attention<B: MxKernels> {
    shared: &'static SharedSpecs,
    specs: &'static AttentionSpecs,
    number: OpNumber,
    options: AttentionModuleOptions,
    mask: Option<BoolTensor<B>>,
    bias: Option<Float<B>>,
    /// The layer, as the recorder names it.
    layer: Option<&'static str>,
}

/// The results of the forward pass.
pub(crate) struct Attended<B: MxKernels> {
    pub(crate) output: Float<B>,
    /// The needs of the backward pass beside the operands.
    pub(crate) kept: Kept<B>,
}

/// The results that the forward pass keeps for the backward pass.
#[derive(Clone, Debug)]
pub(crate) struct Kept<B: MxKernels> {
    /// [B, H, Q, 1], the logarithm of each row's sum of exponentials.
    statistics: FloatTensor<B>,
    output: Option<FloatTensor<B>>,
}

/// Scores with those hidden that no query sees.
struct Scores<B: MxKernels> {
    /// Before masks and bias, divided by the softcap, of which the hyperbolic tangent is taken.
    tanh: Option<FloatTensor<B>>,
    /// As the softmax takes them.
    masked: FloatTensor<B>,
}

/// The operands of the product of query and key.
struct ScoreOperands<B: MxKernels> {
    q: PointOperand<B>,
    k: PointOperand<B>,
    /// The part of the query that is not quantized, and the key that this part is multiplied by.
    apart: Option<[FloatTensor<B>; 2]>,
    /// The query, and the part of the key that is not quantized, if the scores lack their product. RunningSoftmax does not need this
    /// product, but a softcap before does.
    k_mean: Option<[FloatTensor<B>; 2]>,
}

/// The right operand of the product with the value.
struct ValueOperand<B: MxKernels> {
    v: PointOperand<B>,
    /// [B, H, 1, E], by which the value was divided.
    scales: Option<FloatTensor<B>>,
}

/// Softmax of whole rows.
struct RowSoftmax<B: MxKernels> {
    probabilities: FloatTensor<B>,
    maximum: FloatTensor<B>,
    sum: FloatTensor<B>,
}

/// A row's maximum, which every number is subtracted from, and sum.
struct RunningSoftmax<B: MxKernels> {
    output: FloatTensor<B>,
    maximum: FloatTensor<B>,
    sum: FloatTensor<B>,
}

impl<B: MxKernels> ScoreOperands<B> {
    /// Query and key of the gradient products.
    fn of_gradients(self, own: &Points, specs: &AttentionSpecs) -> [SavedOperand<B>; 2] {
        let of = |name, format: Option<_>, operand: PointOperand<B>, apart| {
            let operand = match format {
                Some(format) => own.operand_bp::<B>(name, format, operand.before, POSITIONS),
                None => operand,
            };
            SavedOperand {
                apart,
                ..SavedOperand::of(operand)
            }
        };
        let q_means = self.apart.map(|[means, _]| means);
        let k_mean = self.k_mean.map(|[_, mean]| mean);
        [
            of("attention q", specs.q_bp, self.q, q_means),
            of("attention k", specs.k_bp, self.k, k_mean),
        ]
    }
}

/// The operand of a gradient product beside the gradient.
struct SavedOperand<B: MxKernels> {
    operand: PointOperand<B>,
    /// A part of the operand that is not rounded.
    apart: Option<FloatTensor<B>>,
    /// Whether the operand is `probability_scale` times as large.
    is_scaled: bool,
}

impl<B: MxKernels> SavedOperand<B> {
    fn of(operand: PointOperand<B>) -> Self {
        Self {
            operand,
            apart: None,
            is_scaled: false,
        }
    }

    fn unrounded(tensor: FloatTensor<B>) -> Self {
        Self::of(PointOperand::unrounded(tensor))
    }
}

impl<B: MxKernels> Attention<B> {
    pub(crate) fn new(
        (shared, specs): (&'static SharedSpecs, &'static AttentionSpecs),
        options: AttentionModuleOptions,
        mask: Option<BoolTensor<B>>,
        bias: Option<Float<B>>,
    ) -> Self {
        if let Some(cap) = options.softcap {
            assert!(
                cap > 0.0,
                "burn-mx: attention: `softcap` is {cap}; allowed: a positive number"
            );
        }
        Self {
            shared,
            specs,
            number: shared.draws().op(),
            options,
            mask,
            bias,
            layer: hooks::name_attention(),
        }
    }

    /// The output.
    ///
    /// # Panics
    ///
    /// If the shapes of the operands do not fit.
    pub(crate) fn forward(&self, operands: [Float<B>; 3]) -> Attended<B> {
        check_shapes(operands.each_ref().map(|operand| operand.inner.shape()));
        let context = OpContext::of_product(operands.each_ref().map(|operand| Some(operand.meta)));
        let points = self.points().seen_in(self.layer);
        let inputs = self.inputs(&points, operands);
        let features = inputs[0].shape()[LAST];
        let (operands, value) = self.operands(&points, inputs);
        let scores = self.scores(&points, &operands, features).masked;
        let softmax = match self.specs.tile {
            0 => self.of_rows(&points, scores, value.v),
            tile => self.of_tiles(&points, scores, value.v, tile),
        };
        let output = times::<B>(softmax.output, value.scales);
        let output = points.round::<B>("attention output", self.specs.output, output, LAST);
        let statistics = self.statistics(&points, softmax.maximum, softmax.sum);
        let of_specs = self.shared.specs.round_output();
        let rounded = points.elementwise::<B>("output", of_specs, Float::<B>::from(output));
        let mut meta = context.result;
        meta.rounded = self.shared.specs.float_format();
        let kept = Kept {
            statistics,
            output: (self.specs.delta == Delta::Output).then(|| rounded.clone()),
        };
        Attended {
            output: stored::<B>(rounded, meta),
            kept,
        }
    }

    /// Whether the backward pass reads the operands as the forward pass quantized them.
    fn reads_quantized(&self) -> bool {
        self.shared.specs.quantize_backprop() && self.specs.backward == AttentionBackward::Quantized
    }

    fn points(&self) -> Points {
        Points::replay(self.shared, self.number)
    }

    fn inputs(&self, points: &Points, operands: [Float<B>; 3]) -> [FloatTensor<B>; 3] {
        let rounding = self.shared.specs.round_output();
        let [q, k, v] = operands;
        let rounded = |name, operand| points.elementwise::<B>(name, rounding, operand);
        [rounded("query", q), rounded("key", k), rounded("value", v)]
    }

    /// The operands, smoothed and rounded.
    fn operands(
        &self,
        points: &Points,
        [q, k, v]: [FloatTensor<B>; 3],
    ) -> (ScoreOperands<B>, ValueOperand<B>) {
        let needs_mean = self.options.softcap.is_some();
        let of_scores = self.of_scores(points, [q, k], needs_mean);
        (of_scores, self.of_value(points, v))
    }

    /// The query and the key, smoothed and rounded. `needs_mean`: the scores have the product of the query and the key's mean.
    fn of_scores(
        &self,
        points: &Points,
        [q, k]: [FloatTensor<B>; 2],
        needs_mean: bool,
    ) -> ScoreOperands<B> {
        let specs = self.specs;
        let mut k_mean = None;
        let k = match specs.smooth_k {
            true => {
                let mean = B::float_mean_dim(k.clone(), POSITIONS);
                k_mean = needs_mean.then(|| [q.clone(), mean.clone()]);
                B::float_sub(k, mean)
            }
            false => k,
        };
        let means = (specs.smooth_q > 0).then(|| means_of_rows::<B>(&q, specs.smooth_q));
        let q = match &means {
            Some(means) => B::float_sub(q, means.clone()),
            None => q,
        };
        let apart = means.map(|means| [means, k.clone()]);
        ScoreOperands {
            q: points.operand_in_lines::<B>("attention q", specs.q, q, specs.q_rows),
            k: points.operand_in_lines::<B>("attention k", specs.k, k, specs.k_rows),
            apart,
            k_mean,
        }
    }

    /// The value, scaled and rounded.
    fn of_value(&self, points: &Points, v: FloatTensor<B>) -> ValueOperand<B> {
        let specs = self.specs;
        let v_axis = match specs.v_axis {
            ValueAxis::Keys => POSITIONS,
            ValueAxis::Features => LAST,
        };
        let scales = (specs.v_range).map(|range| scales_of_channels::<B>(&v, range.get()));
        let v = match &scales {
            Some(scales) => B::float_div(v, scales.clone()),
            None => v,
        };
        ValueOperand {
            v: points.operand::<B>("attention v", specs.v, v, v_axis),
            scales,
        }
    }

    /// The scores of operands, by their formats.
    fn scores(&self, points: &Points, operands: &ScoreOperands<B>, features: usize) -> Scores<B> {
        let specs = self.specs;
        let scores = self.product_of_scores(points, operands);
        let (scaled, tanh) = self.scaled(scores, features);
        let scaled =
            points.round::<B>("attention scaled scores", specs.scaled_scores, scaled, LAST);
        Scores {
            tanh,
            masked: self.masked(scaled),
        }
    }

    /// The scores before they are scaled.
    fn product_of_scores(&self, points: &Points, operands: &ScoreOperands<B>) -> FloatTensor<B> {
        let specs = self.specs;
        let k = operands.k.clone().map(B::float_transpose);
        let pair = [operands.q.clone(), k];
        let mut scores = points.product::<B>(PointProduct::QK, specs.qk_accumulator, pair);
        for [q, k] in [&operands.apart, &operands.k_mean].into_iter().flatten() {
            let product = float32::<B>(q.clone(), B::float_transpose(k.clone()));
            scores = B::float_add(scores, product);
        }
        points.round::<B>("attention scores", specs.scores, scores, LAST)
    }

    fn scale(&self, features: usize) -> f64 {
        let scale = self.options.scale;
        scale.unwrap_or_else(|| 1.0 / (features as f64).sqrt())
    }

    /// The scores times the scale, and capped; with the hyperbolic tangent of the cap.
    fn scaled(
        &self,
        scores: FloatTensor<B>,
        features: usize,
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        let scaled = B::float_mul_scalar(scores, self.scale(features).into());
        let Some(cap) = self.options.softcap else {
            return (scaled, None);
        };
        let tanh = B::float_tanh(B::float_div_scalar(scaled, cap.into()));
        (B::float_mul_scalar(tanh.clone(), cap.into()), Some(tanh))
    }

    /// The scores with −Inf in masked places, plus the bias.
    fn masked(&self, mut scores: FloatTensor<B>) -> FloatTensor<B> {
        let causal = self.options.is_causal.then(|| causal_mask::<B>(&scores));
        for mask in [self.mask.clone(), causal].into_iter().flatten() {
            let mask = B::bool_expand(mask, scores.shape());
            scores = B::float_mask_fill(scores, mask, f32::NEG_INFINITY.into());
        }
        match &self.bias {
            Some(bias) => B::float_add(scores, to_f32::<B>(bias.inner.clone())),
            None => scores,
        }
    }

    /// The maximum of each row in its format, a number also where all keys are masked.
    fn maximum(&self, points: &Points, maximum: FloatTensor<B>) -> FloatTensor<B> {
        let maximum = points.round::<B>("attention maximum", self.specs.maximum, maximum, LAST);
        B::float_clamp_min(maximum, f32::MIN.into())
    }

    /// The exponentials of scores less a maximum, before they are rounded.
    fn exponentials(
        &self,
        points: &Points,
        scores: FloatTensor<B>,
        maximum: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let differences = B::float_sub(scores, maximum);
        let format = self.specs.differences;
        B::float_exp(points.round_shown::<B>("attention differences", format, differences))
    }

    /// The sum of each row of exponentials, of which `rounded` are as they are rounded.
    fn row_sums(&self, exact: FloatTensor<B>, rounded: FloatTensor<B>) -> FloatTensor<B> {
        let summed = match self.specs.row_sums {
            RowSums::Exact => exact,
            RowSums::Rounded => rounded,
        };
        B::float_sum_dim(summed, LAST)
    }

    fn probability_scale(&self) -> f32 {
        self.specs.probability_scale as f32
    }

    /// The softmax of whole rows times the value.
    fn of_rows(
        &self,
        points: &Points,
        scores: FloatTensor<B>,
        v: PointOperand<B>,
    ) -> RunningSoftmax<B> {
        let softmax = self.row_softmax(points, scores);
        RunningSoftmax {
            output: self.times_value(points, softmax.probabilities, v),
            maximum: softmax.maximum,
            sum: softmax.sum,
        }
    }

    /// The softmax of whole rows.
    fn row_softmax(&self, points: &Points, scores: FloatTensor<B>) -> RowSoftmax<B> {
        let specs = self.specs;
        let maximum = self.maximum(points, B::float_max_dim(scores.clone(), LAST));
        let exact = self.exponentials(points, scores, maximum.clone());
        let rounded = points.round::<B>(
            "attention exponentials",
            specs.exponentials,
            exact.clone(),
            LAST,
        );
        let sum = points.round::<B>(
            "attention sum",
            specs.sum,
            self.row_sums(exact, rounded.clone()),
            LAST,
        );
        let sum = not_zero::<B>(sum);
        RowSoftmax {
            probabilities: B::float_div(rounded, sum.clone()),
            maximum,
            sum,
        }
    }

    /// The probabilities times the value.
    fn times_value(
        &self,
        points: &Points,
        probabilities: FloatTensor<B>,
        v: PointOperand<B>,
    ) -> FloatTensor<B> {
        let specs = self.specs;
        let probabilities = points.operand::<B>(
            "attention probabilities",
            specs.probabilities,
            self.scaled_up(probabilities),
            LAST,
        );
        let (which, unit) = (PointProduct::PV, specs.pv_accumulator);
        self.scaled_down(points.product::<B>(which, unit, [probabilities, v]))
    }

    /// The softmax times the value, tile by tile with running maxima and sums.
    fn of_tiles(
        &self,
        points: &Points,
        scores: FloatTensor<B>,
        v: PointOperand<B>,
        tile: usize,
    ) -> RunningSoftmax<B> {
        let specs = self.specs;
        let (device, keys) = (B::float_device(&scores), scores.shape()[LAST]);
        let mut row = scores.shape();
        row[LAST] = 1;
        let full = |shape: &Shape, value: f32| {
            B::float_full(shape.clone(), value.into(), &device, FloatDType::F32)
        };
        let mut of_output = scores.shape();
        of_output[LAST] = v.values.shape()[LAST];
        let mut running = RunningSoftmax::<B> {
            output: full(&of_output, 0.0),
            maximum: full(&row, f32::MIN),
            sum: full(&row, 0.0),
        };
        for first in (0..keys).step_by(tile) {
            let positions = first..keys.min(first + tile);
            let scores = part::<B>(scores.clone(), LAST, positions.clone());
            let v = v
                .clone()
                .map(|v| part::<B>(v, POSITIONS, positions.clone()));
            let maximum = B::float_max_dim(scores.clone(), LAST);
            let maximum = larger::<B>(running.maximum.clone(), maximum);
            let maximum = self.maximum(points, maximum);
            let shrink = B::float_exp(B::float_sub(running.maximum, maximum.clone()));
            let exact = self.exponentials(points, scores, maximum.clone());
            let exact = self.scaled_up(exact);
            let exponentials = points.operand::<B>(
                "attention exponentials",
                specs.exponentials,
                exact.clone(),
                LAST,
            );
            let row_sums = self.row_sums(exact, exponentials.values.clone());
            let sum = B::float_add(B::float_mul(running.sum, shrink.clone()), row_sums);
            let (which, unit) = (PointProduct::PV, specs.pv_accumulator);
            let product = points.product::<B>(which, unit, [exponentials, v]);
            running = RunningSoftmax::<B> {
                output: B::float_add(B::float_mul(running.output, shrink), product),
                maximum,
                sum: points.round::<B>("attention sum", specs.sum, sum, LAST),
            };
        }
        let sum = not_zero::<B>(running.sum);
        RunningSoftmax {
            output: B::float_div(running.output, sum.clone()),
            sum: self.scaled_down(sum),
            maximum: running.maximum,
        }
    }

    fn scaled_up(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match self.specs.probability_scale {
            1 => tensor,
            _ => B::float_mul_scalar(tensor, self.probability_scale().into()),
        }
    }

    fn scaled_down(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        match self.specs.probability_scale {
            1 => tensor,
            _ => B::float_div_scalar(tensor, self.probability_scale().into()),
        }
    }

    /// The logarithm of each row's sum of exponentials, in its format.
    fn statistics(
        &self,
        points: &Points,
        maximum: FloatTensor<B>,
        sum: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let logarithm = B::float_add(maximum, B::float_log(sum));
        let rounded = points.round::<B>(
            "attention statistics",
            self.specs.statistics,
            logarithm,
            LAST,
        );
        // A number, also where all keys are masked.
        B::float_clamp_min(rounded, f32::MIN.into())
    }
}

/// Panics if query, key and value of these shapes do not belong to one attention.
fn check_shapes([q, k, v]: [Shape; 3]) {
    let same = |[a, b]: [&Shape; 2], axes: &[usize]| axes.iter().all(|axis| a[*axis] == b[*axis]);
    let fits = same([&q, &k], &[0, 1, LAST]) && same([&k, &v], &[0, 1, POSITIONS]) && k[2] > 0;
    assert!(
        fits,
        "burn-mx: attention: the query is {q:?}, the key {k:?} and the value {v:?}; allowed: [B, H, Q, D], [B, H, K, D] and \
         [B, H, K, E] with at least one key"
    );
}

/// A sum that can be divided by: of a row whose keys are all masked, too.
fn not_zero<B: MxKernels>(sum: FloatTensor<B>) -> FloatTensor<B> {
    B::float_clamp_min(sum, f32::MIN_POSITIVE.into())
}

/// The larger one of each two numbers of a row.
fn larger<B: MxKernels>(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
    B::float_max_dim(B::float_cat(vec![lhs, rhs], LAST), LAST)
}

/// The tensor, times these scales if there are some.
fn times<B: MxKernels>(tensor: FloatTensor<B>, scales: Option<FloatTensor<B>>) -> FloatTensor<B> {
    match scales {
        Some(scales) => B::float_mul(tensor, scales),
        None => tensor,
    }
}

/// [B, H, 1, E]: the scale that brings each channel's largest magnitude to `range`, and 1 for a channel of zeros.
fn scales_of_channels<B: MxKernels>(v: &FloatTensor<B>, range: f32) -> FloatTensor<B> {
    let settings = get_device_settings::<B>(&B::float_device(v));
    let amax = B::float_max_dim(B::float_abs(v.clone()), POSITIONS);
    let scales = B::float_div_scalar(amax, range.into());
    let zero = B::float_equal_elem(scales.clone(), 0.0.into(), settings.bool_dtype);
    B::float_mask_fill(scales, zero, 1.0.into())
}

/// The mean of each `rows` queries, in the place of each of them.
fn means_of_rows<B: MxKernels>(q: &FloatTensor<B>, rows: usize) -> FloatTensor<B> {
    let queries = q.shape()[POSITIONS];
    let means = (0..queries).step_by(rows).map(|first| {
        let group = part::<B>(q.clone(), POSITIONS, first..queries.min(first + rows));
        let shape = group.shape();
        B::float_expand(B::float_mean_dim(group, POSITIONS), shape)
    });
    match queries {
        0 => q.clone(),
        _ => B::float_cat(means.collect(), POSITIONS),
    }
}
