//! The backward pass of attention whose points have formats of their own.

use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;

use super::super::points::{LAST, POSITIONS, PointOperand, PointProduct, Points, float32};
use super::{Attention, Kept, SavedOperand, ValueOperand, not_zero, times};
use crate::semantics::elementwise::{broadcast_dims, sum_dims};
use crate::semantics::stored;
use crate::specs::PointFormat;
use crate::tensor::{Float, Meta};
use burn_mx_kernels::{MxKernels, to_f32};
use microscaling_product::Accumulation;

/// The forward pass, computed again.
struct Again<B: MxKernels> {
    /// Not rounded.
    probabilities: FloatTensor<B>,
    tanh: Option<FloatTensor<B>>,
    /// Query and key of the gradient products.
    of_scores: [SavedOperand<B>; 2],
    /// Probabilities and value of the gradient products.
    of_value: [SavedOperand<B>; 2],
}

impl<B: MxKernels> Attention<B> {
    /// The gradients of query, key, value and, if it is wanted, of the bias, each with the meta of its tensor.
    pub(crate) fn backward(
        &self,
        kept: Kept<B>,
        operands: [Float<B>; 3],
        grad: Float<B>,
        wants_bias: bool,
    ) -> Vec<(Meta, Float<B>)> {
        let [of_q, of_k, of_v] = operands.each_ref().map(|operand| operand.meta);
        let features = operands[0].inner.shape()[LAST];
        let own = self.points_of_gradients();
        let grad = self.output_gradient(&own, grad);
        let again = self.again(&own, kept.statistics, operands, features);
        let probabilities = again.probabilities;
        let [dp, dv] = self.gradients_of_value(&own, again.of_value, grad.clone());
        let delta = match kept.output {
            Some(output) => B::float_mul(output, grad),
            None => B::float_mul(probabilities.clone(), dp.clone()),
        };
        let delta = B::float_sum_dim(delta, LAST);
        let ds = B::float_mul(probabilities, B::float_sub(dp, delta));
        let bias = self.bias.as_ref().filter(|_| wants_bias);
        let of_bias = bias.map(|bias| {
            let shape = bias.inner.shape();
            let summed = sum_dims::<B>(ds.clone(), broadcast_dims(&shape, &ds.shape()));
            self.gradient(&own, "bias gradient", summed, bias.meta)
        });
        let ds = match again.tanh {
            Some(tanh) => {
                let squared = B::float_mul(tanh.clone(), tanh);
                let slope = B::float_add_scalar(B::float_neg(squared), 1.0.into());
                B::float_mul(ds, slope)
            }
            None => ds,
        };
        let ds = B::float_mul_scalar(ds, self.scale(features).into());
        let [dq, dk] = self.gradients_of_scores(&own, again.of_scores, ds);
        let mut gradients = vec![
            self.gradient(&own, "query gradient", dq, of_q),
            self.gradient(&own, "key gradient", dk, of_k),
            self.gradient(&own, "value gradient", dv, of_v),
        ];
        gradients.extend(of_bias);
        gradients
    }

    /// The points of one backward pass.
    pub(super) fn points_of_gradients(&self) -> Points {
        Points::replay(self.shared, self.shared.draws().op()).seen_in(self.layer)
    }

    /// The gradient of the output, in float32.
    pub(super) fn output_gradient(&self, own: &Points, grad: Float<B>) -> FloatTensor<B> {
        match self.shared.specs.quantize_backprop() {
            true => {
                let rounding = self.shared.specs.round_grad_input();
                own.elementwise::<B>("output gradient", rounding, grad)
            }
            false => to_f32::<B>(grad.inner),
        }
    }

    /// The gradients of the probabilities and the value, from both operands of their product and the output's gradient.
    pub(super) fn gradients_of_value(
        &self,
        own: &Points,
        [p, v]: [SavedOperand<B>; 2],
        grad: FloatTensor<B>,
    ) -> [FloatTensor<B>; 2] {
        let specs = self.specs;
        let name = "attention d_output";
        let [of_dv, of_dp] = match specs.d_output_dp {
            Some(_) => [(specs.d_output, POSITIONS), (specs.d_output_dp, LAST)]
                .map(|(format, axis)| own.gradient::<B>(name, format, grad.clone(), axis)),
            None => {
                let axes = [POSITIONS, LAST];
                own.gradient_of_products::<B>(name, specs.d_output, grad, axes)
            }
        };
        let dv = own.product::<B>(PointProduct::DV, specs.dv_accumulator, [p.operand, of_dv]);
        let dv = match p.is_scaled {
            true => self.scaled_down(dv),
            false => dv,
        };
        let dp = own.product::<B>(PointProduct::DP, specs.dp_accumulator, [of_dp, v.operand]);
        let (name, format) = ("attention d_probabilities", specs.d_probabilities);
        [own.gradient::<B>(name, format, dp, LAST).values, dv]
    }

    /// The gradients of the query and the key, from both of them and the gradient of the scores before they are scaled.
    pub(super) fn gradients_of_scores(
        &self,
        own: &Points,
        [q, k]: [SavedOperand<B>; 2],
        ds: FloatTensor<B>,
    ) -> [FloatTensor<B>; 2] {
        let specs = self.specs;
        let (name, axes) = ("attention d_scores", [LAST, POSITIONS]);
        let [of_dq, of_dk] = own.gradient_of_products::<B>(name, specs.d_scores, ds, axes);
        [
            self.gradient_of_scores(own, PointProduct::DQ, specs.dq_accumulator, of_dq, k),
            self.gradient_of_scores(own, PointProduct::DK, specs.dk_accumulator, of_dk, q),
        ]
    }

    /// The product of the gradient of the scores and an operand that may have a part apart. A matrix unit takes this part in float32.
    fn gradient_of_scores(
        &self,
        own: &Points,
        which: PointProduct,
        unit: Option<Accumulation>,
        ds: PointOperand<B>,
        SavedOperand { operand, apart, .. }: SavedOperand<B>,
    ) -> FloatTensor<B> {
        match (apart, unit) {
            (None, _) => own.product::<B>(which, unit, [ds, operand]),
            (Some(apart), None) => {
                let whole = operand.map(|tensor| B::float_add(tensor, apart.clone()));
                own.product::<B>(which, None, [ds, whole])
            }
            (Some(apart), Some(_)) => {
                let apart = B::float_expand(apart, operand.values.shape());
                let [lhs, rhs] = which.laid::<B>([ds.values.clone(), apart]);
                let product = own.product::<B>(which, unit, [ds, operand]);
                B::float_add(product, float32::<B>(lhs, rhs))
            }
        }
    }

    /// The forward pass again, as the backward pass reads it.
    fn again(
        &self,
        own: &Points,
        statistics: FloatTensor<B>,
        operands: [Float<B>; 3],
        features: usize,
    ) -> Again<B> {
        let quantizes = self.shared.specs.quantize_backprop();
        let points = self.points();
        let inputs = match quantizes {
            true => self.inputs(&points, operands),
            false => operands.map(|operand| to_f32::<B>(operand.inner)),
        };
        if !self.reads_quantized() {
            let [q, k, _] = &inputs;
            let scores = float32::<B>(q.clone(), B::float_transpose(k.clone()));
            let (scaled, tanh) = self.scaled(scores, features);
            let masked = self.masked(scaled);
            let statistics = self.statistics_of_float(own, &masked, quantizes);
            let probabilities = B::float_exp(B::float_sub(masked, statistics));
            let of_value = SavedOperand::unrounded(probabilities.clone());
            let [q, k, v] = inputs.map(SavedOperand::unrounded);
            return Again {
                probabilities,
                tanh,
                of_scores: [q, k],
                of_value: [of_value, v],
            };
        }
        let v = inputs[2].clone();
        let (operands, value) = self.operands(&points, inputs);
        let scores = self.scores(&points, &operands, features);
        let probabilities = B::float_exp(B::float_sub(scores.masked, statistics));
        let of_value = [
            self.saved_probabilities(own, own, self.specs.left_of_value(), probabilities.clone()),
            self.saved_value(own, v, value),
        ];
        Again {
            probabilities,
            tanh: scores.tanh,
            of_scores: operands.of_gradients(own, self.specs),
            of_value,
        }
    }

    /// The probabilities of the gradient product: in the format that they have there, or by `points` in the format of the forward product.
    pub(super) fn saved_probabilities(
        &self,
        own: &Points,
        points: &Points,
        format: Option<PointFormat>,
        probabilities: FloatTensor<B>,
    ) -> SavedOperand<B> {
        let name = "attention probabilities";
        if let Some(format) = self.specs.probabilities_bp {
            let operand = own.operand_bp::<B>(name, format, probabilities, POSITIONS);
            return SavedOperand::of(operand);
        }
        let scaled = self.scaled_up(probabilities);
        let operand = points.operand::<B>(name, format, scaled, LAST);
        match self.specs.dv_accumulator {
            // A matrix unit takes elements of the format.
            Some(_) => SavedOperand {
                is_scaled: true,
                ..SavedOperand::of(operand)
            },
            None => SavedOperand::of(operand.map(|tensor| self.scaled_down(tensor))),
        }
    }

    /// The value of the gradient product: in the format that it has there, or as the forward product takes it.
    pub(super) fn saved_value(
        &self,
        own: &Points,
        v: FloatTensor<B>,
        value: ValueOperand<B>,
    ) -> SavedOperand<B> {
        SavedOperand::of(match self.specs.v_bp {
            Some(format) => own.operand_bp::<B>("attention v", format, v, LAST),
            None => {
                let ValueOperand { v, scales } = value;
                v.map(|tensor| times::<B>(tensor, scales.clone()))
            }
        })
    }

    /// The logarithm of each row's sum of exponentials of unrounded scores, in its format where the pass is quantized.
    fn statistics_of_float(
        &self,
        points: &Points,
        scores: &FloatTensor<B>,
        quantizes: bool,
    ) -> FloatTensor<B> {
        let maximum = B::float_max_dim(scores.clone(), LAST);
        let maximum = B::float_clamp_min(maximum, f32::MIN.into());
        let exponentials = B::float_exp(B::float_sub(scores.clone(), maximum.clone()));
        let sum = not_zero::<B>(B::float_sum_dim(exponentials, LAST));
        match quantizes {
            true => self.statistics(points, maximum, sum),
            false => B::float_add(maximum, B::float_log(sum)),
        }
    }

    /// A gradient, rounded to the elementwise format where the backward pass is emulated, and the meta of its tensor.
    pub(super) fn gradient(
        &self,
        points: &Points,
        name: &'static str,
        gradient: FloatTensor<B>,
        own: Meta,
    ) -> (Meta, Float<B>) {
        let mut meta = Meta::computed([Some(own)]);
        if !self.shared.specs.quantize_backprop() {
            return (own, stored::<B>(gradient, meta));
        }
        let rounding = self.shared.specs.round_grad_input();
        let rounded = points.elementwise::<B>(name, rounding, Float::<B>::from(gradient));
        meta.rounded = self.shared.specs.float_format();
        (own, stored::<B>(rounded, meta))
    }
}
