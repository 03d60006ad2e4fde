//! The ops of attention that is written out in a [scope](super::super::scope), forward and backward.

use burn_backend::ops::AttentionModuleOptions;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::super::points::{LAST, Points};
use super::super::scope::{AttentionMatmul, OfOp};
use super::{Attention, SavedOperand, times};
use crate::semantics::elementwise::{broadcast_dims, sum_dims};
use crate::semantics::stored;
use crate::tensor::{AttentionPart, Float, Meta, OpContext};
use burn_mx_kernels::{MxKernels, to_f32};

/// The scores of a softmax, for its backward pass.
#[derive(Clone, Debug)]
pub(crate) struct KeptScores<B: MxKernels> {
    /// As the softmax takes them, with four axes.
    scores: FloatTensor<B>,
    /// The logarithm of each row's sum of exponentials.
    statistics: FloatTensor<B>,
}

impl<B: MxKernels> Attention<B> {
    /// Attention without a scale, a mask or a bias.
    pub(crate) fn apart(specs: OfOp) -> Self {
        Self::new(specs, AttentionModuleOptions::default(), None, None)
    }

    /// A matmul, [.., M, K] times [.., K, N].
    pub(crate) fn matmul(&self, which: AttentionMatmul, [lhs, rhs]: [Float<B>; 2]) -> Float<B> {
        let mut meta = OpContext::of_product([Some(lhs.meta), Some(rhs.meta)]).result;
        let shapes = Shapes::of([lhs.inner.shape(), rhs.inner.shape()]);
        let points = self.points().seen_in(self.layer);
        let operands = self.rounded(&points, which, [lhs, rhs]);
        let [lhs, rhs] = shapes.four::<B>(which, operands);
        let product = match which {
            AttentionMatmul::Scores => {
                let operands = self.of_scores(&points, [lhs, rhs], true);
                meta.attention = Some(AttentionPart::Scores);
                self.product_of_scores(&points, &operands)
            }
            AttentionMatmul::Value => {
                let value = self.of_value(&points, rhs);
                let output = times::<B>(self.times_value(&points, lhs, value.v), value.scales);
                points.round::<B>("attention output", self.specs.output, output, LAST)
            }
        };
        let product = B::float_reshape(product, shapes.product());
        self.result(&points, product, meta)
    }

    /// The gradients of both operands, each with the meta of its tensor.
    pub(crate) fn matmul_backward(
        &self,
        which: AttentionMatmul,
        operands: [Float<B>; 2],
        grad: Float<B>,
    ) -> [(Meta, Float<B>); 2] {
        let metas = operands.each_ref().map(|operand| operand.meta);
        let shapes = Shapes::of(operands.each_ref().map(|operand| operand.inner.shape()));
        let own = self.points_of_gradients();
        let grad = self.output_gradient(&own, grad);
        let grad = B::float_reshape(grad, shapes.four_of_product());
        let points = self.points();
        let quantized = self.reads_quantized();
        let operands = match self.shared.specs.quantize_backprop() {
            true => self.rounded(&points, which, operands),
            false => operands.map(|operand| to_f32::<B>(operand.inner)),
        };
        let [lhs, rhs] = shapes.four::<B>(which, operands);
        let unrounded = |pair: [FloatTensor<B>; 2]| pair.map(SavedOperand::unrounded);
        let gradients = match which {
            AttentionMatmul::Scores => {
                let operands = match quantized {
                    true => {
                        let operands = self.of_scores(&points, [lhs, rhs], true);
                        operands.of_gradients(&own, self.specs)
                    }
                    false => unrounded([lhs, rhs]),
                };
                let [dq, dk] = self.gradients_of_scores(&own, operands, grad);
                [dq, B::float_transpose(dk)]
            }
            AttentionMatmul::Value => {
                let operands = match quantized {
                    true => {
                        let value = self.of_value(&points, rhs.clone());
                        let format = self.specs.probabilities;
                        [
                            self.saved_probabilities(&own, &points, format, lhs),
                            self.saved_value(&own, rhs, value),
                        ]
                    }
                    false => unrounded([lhs, rhs]),
                };
                self.gradients_of_value(&own, operands, grad)
            }
        };
        let names = match which {
            AttentionMatmul::Scores => ["query gradient", "key gradient"],
            AttentionMatmul::Value => ["probabilities gradient", "value gradient"],
        };
        let [lhs, rhs] = shapes.gradients::<B>(gradients);
        [
            self.gradient(&own, names[0], lhs, metas[0]),
            self.gradient(&own, names[1], rhs, metas[1]),
        ]
    }

    /// Softmax along the last axis.
    pub(crate) fn softmax(&self, x: Float<B>) -> (Float<B>, KeptScores<B>) {
        let mut meta = OpContext::of([Some(x.meta)]).result;
        meta.attention = Some(AttentionPart::Probabilities);
        let shape = x.inner.shape();
        let points = self.points().seen_in(self.layer);
        let scores = points.elementwise::<B>("input", self.shared.specs.round_output(), x);
        let scores = B::float_reshape(scores, four_axes(&shape));
        let format = self.specs.scaled_scores;
        let scores = points.round_shown::<B>("attention scaled scores", format, scores);
        if shape.num_elements() == 0 {
            let statistics = scores.clone();
            let output = stored::<B>(B::float_reshape(scores.clone(), shape), meta);
            return (output, KeptScores { scores, statistics });
        }
        let softmax = self.row_softmax(&points, scores.clone());
        let statistics = self.statistics(&points, softmax.maximum, softmax.sum);
        let probabilities = B::float_reshape(softmax.probabilities, shape);
        let output = self.result(&points, probabilities, meta);
        (output, KeptScores { scores, statistics })
    }

    /// The gradient of the softmax's input, which has this meta.
    pub(crate) fn softmax_backward(
        &self,
        kept: KeptScores<B>,
        grad: Float<B>,
        input: Meta,
    ) -> (Meta, Float<B>) {
        let own = self.points_of_gradients();
        let shape = grad.inner.shape();
        let grad = self.output_gradient(&own, grad);
        if shape.num_elements() == 0 {
            return self.gradient(&own, "input gradient", grad, input);
        }
        let dp = B::float_reshape(grad, four_axes(&shape));
        let probabilities = B::float_exp(B::float_sub(kept.scores, kept.statistics));
        let delta = B::float_sum_dim(B::float_mul(probabilities.clone(), dp.clone()), LAST);
        let ds = B::float_mul(probabilities, B::float_sub(dp, delta));
        self.gradient(&own, "input gradient", B::float_reshape(ds, shape), input)
    }

    /// The result of an op, rounded to the elementwise format.
    fn result(&self, points: &Points, product: FloatTensor<B>, mut meta: Meta) -> Float<B> {
        let rounding = self.shared.specs.round_output();
        meta.rounded = self.shared.specs.float_format();
        let result = Float::<B>::from(product);
        stored::<B>(points.elementwise::<B>("output", rounding, result), meta)
    }

    /// Both operands of a matmul, rounded to the elementwise format.
    fn rounded(
        &self,
        points: &Points,
        which: AttentionMatmul,
        [lhs, rhs]: [Float<B>; 2],
    ) -> [FloatTensor<B>; 2] {
        let names = match which {
            AttentionMatmul::Scores => ["query", "key"],
            AttentionMatmul::Value => ["probabilities", "value"],
        };
        let rounding = self.shared.specs.round_output();
        [
            points.elementwise::<B>(names[0], rounding, lhs),
            points.elementwise::<B>(names[1], rounding, rhs),
        ]
    }
}

/// The shapes of a matmul's operands, and with four axes.
struct Shapes {
    operands: [Shape; 2],
    /// The axes before the last two, in the product.
    batch: Vec<usize>,
}

impl Shapes {
    /// # Panics
    ///
    /// If they do not fit.
    fn of(operands: [Shape; 2]) -> Self {
        let rank = operands[0].num_dims();
        assert!(
            rank >= 2,
            "burn-mx: attention_scope: a matmul of {operands:?}; allowed: two or more axes"
        );
        let [lhs, rhs] = operands.each_ref().map(|shape| shape.to_vec());
        let batch = lhs.iter().zip(&rhs).take(rank - 2);
        let batch: Vec<usize> = batch.map(|(l, r)| if *l == 1 { *r } else { *l }).collect();
        let fits = |shape: &[usize]| {
            let own = shape.iter().zip(&batch);
            own.into_iter().all(|(own, all)| own == all || *own == 1)
        };
        assert!(
            rank == rhs.len() && lhs[rank - 1] == rhs[rank - 2] && fits(&lhs) && fits(&rhs),
            "burn-mx: attention_scope: a matmul of {lhs:?} and {rhs:?}; allowed: [.., M, K] and [.., K, N], where axes before broadcast"
        );
        Self { operands, batch }
    }

    fn product(&self) -> Shape {
        let rank = self.batch.len() + 2;
        let [lhs, rhs] = &self.operands;
        let mut shape = self.batch.clone();
        shape.extend([lhs[rank - 2], rhs[rank - 1]]);
        Shape::from(shape)
    }

    fn four_of_product(&self) -> Shape {
        four_axes(&self.product())
    }

    /// The operands with four axes; the key is [.., K, D] again. The first axes of a tensor with more axes become one, so they must not
    /// broadcast.
    fn four<B: MxKernels>(
        &self,
        which: AttentionMatmul,
        [lhs, rhs]: [FloatTensor<B>; 2],
    ) -> [FloatTensor<B>; 2] {
        let rhs = match which {
            AttentionMatmul::Scores => B::float_transpose(rhs),
            AttentionMatmul::Value => rhs,
        };
        [lhs, rhs].map(|tensor| {
            let mut shape = tensor.shape().to_vec();
            let tensor = match self.batch.len() {
                0..=2 => tensor,
                axes => {
                    shape[..axes].copy_from_slice(&self.batch);
                    B::float_expand(tensor, Shape::from(shape.clone()))
                }
            };
            B::float_reshape(tensor, four_axes(&Shape::from(shape)))
        })
    }

    /// Gradients with four axes of the operands, summed over the axes that were broadcast.
    fn gradients<B: MxKernels>(&self, gradients: [FloatTensor<B>; 2]) -> [FloatTensor<B>; 2] {
        let [lhs, rhs] = gradients;
        let of = |gradient: FloatTensor<B>, own: &Shape| {
            let mut all = self.batch.clone();
            all.extend(&own.to_vec()[self.batch.len()..]);
            let gradient = B::float_reshape(gradient, Shape::from(all));
            let broadcast = broadcast_dims(own, &gradient.shape());
            sum_dims::<B>(gradient, broadcast)
        };
        [of(lhs, &self.operands[0]), of(rhs, &self.operands[1])]
    }
}

/// The shape with four axes: axes of length 1 before, or the first axes as one.
fn four_axes(shape: &Shape) -> Shape {
    let axes = shape.to_vec();
    let (first, rest) = axes.split_at(axes.len().saturating_sub(3));
    let mut four = vec![1; 3 - rest.len()];
    four.insert(0, first.iter().product());
    four.extend(rest);
    Shape::from(four)
}
