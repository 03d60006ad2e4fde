//! Attention that a model writes out as matmuls and a softmax, in a scope that the user opens.

use std::cell::Cell;

use crate::hooks::alone;
use crate::phase;
use crate::specs::{AttentionSpecs, Delta};
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{AttentionPart, Meta, OpContext};

thread_local! {
    /// How many scopes this thread is in.
    static SCOPES: Cell<usize> = const { Cell::new(0) };
}

/// Calls `work`. In `work` the points of [`MxSpecs::attention`](crate::MxSpecs::attention) also have their formats where a model writes
/// attention out. Attention is a matmul of query and key, any scale, mask and bias, a softmax, and a matmul with the value.
///
/// * A matmul of two activations (or of two parameters) is q·kᵀ. Its operands have `q` and `k`, its result has `scores`.
/// * A softmax of a tensor that follows from q·kᵀ has `scaled_scores` for its input, then the points of the softmax. The input's
///   scores of −Inf count as 0 in their block.
/// * A matmul whose left operand follows from such a softmax is p·v, with `probabilities`, `v` and `output`.
///
/// Other ops, matmuls with one parameter among them, follow the other fields. Each op rounds its operands and its result to the
/// elementwise format. Query, key, scores and value have 2 or more axes, positions and features (or keys) last; further axes
/// broadcast. Without `MxSpecs::attention` nothing changes.
///
/// Burn's `matmul` makes one head of heads with one query each that share a key. Groups of queries (`smooth_q`, `q_rows`, blocks along the
/// queries) then have queries of several heads. Copies of the key (`repeat_dim`) keep the heads apart.
///
/// The backward pass may run inside or outside of the scope. While `work` runs in a rayon task, it runs on a separate thread.
///
/// # Panics
///
/// At the first such op, if `attention.tile` is not 0 or `attention.delta` is `output`: both need Burn's `attention`, which is one op.
///
/// At a softmax of scores along another axis than their last one. At a matmul of scores before their softmax. At probabilities as the right
/// operand of a matmul.
///
/// ```
/// # extern crate burn_mx_core as burn_mx;
/// use burn_core::tensor::{Tensor, activation::softmax};
/// use burn_flex::{Flex, FlexDevice};
/// use burn_mx::{MxBackend, MxDevice, MxSpecs, attention_scope};
///
/// let attention = Some("attention(q=nvfp4,k=nvfp4,v=nvfp4,probabilities=nvfp4)".parse()?);
/// let device = MxDevice::new(FlexDevice, &MxSpecs { attention, ..MxSpecs::none() })?;
/// // [heads, positions, features]
/// let [q, k, v] = [1.0, 0.3, 0.7].map(|x| Tensor::<MxBackend<Flex>, 3>::full([2, 4, 16], x, &device));
/// let out = attention_scope(|| {
///     let scores = q.matmul(k.transpose()) / 4.0;
///     softmax(scores, 2).matmul(v)
/// });
/// assert_eq!(out.dims(), [2, 4, 16]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn attention_scope<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            SCOPES.set(SCOPES.get() - 1);
        }
    }
    alone(|| {
        SCOPES.set(SCOPES.get() + 1);
        let _leave = Leave;
        work()
    })
}

/// A product of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionMatmul {
    /// Query and key.
    Scores,
    /// Probabilities (with tiles: exponentials) and value.
    Value,
}

impl AttentionMatmul {
    /// `qk` or `pv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scores => "qk",
            Self::Value => "pv",
        }
    }
}

/// The specs of an op.
pub(crate) type OfOp = (&'static SharedSpecs, &'static AttentionSpecs);

fn is_open() -> bool {
    SCOPES.get() > 0 && !phase::is_backward()
}

/// The specs that ops of attention with this context have in a scope.
fn specs_in_scope(context: &OpContext) -> Option<OfOp> {
    let (shared, specs) = context.attention()?;
    if specs.tile != 0 {
        panic!(
            "burn-mx: attention_scope: `attention.tile` is {}; allowed: 0, because a softmax that is an op of its own has whole rows. \
             Burn's `attention` has tiles",
            specs.tile
        );
    }
    if specs.delta == Delta::Output {
        panic!(
            "burn-mx: attention_scope: `attention.delta` is output; allowed: probabilities, because the gradient of a softmax does not \
             know attention's output"
        );
    }
    Some((shared, specs))
}

/// The matmul of attention that a matmul of tensors with these metas is; `None` for other matmuls, or outside of scopes.
pub(crate) fn matmul_in_scope([lhs, rhs]: [Meta; 2]) -> Option<(AttentionMatmul, OfOp)> {
    if !is_open() {
        return None;
    }
    let part = |meta: Meta| meta.attention;
    let which = match [part(lhs), part(rhs)] {
        [Some(AttentionPart::Probabilities), None] => AttentionMatmul::Value,
        [None, None] if lhs.is_weight() == rhs.is_weight() => AttentionMatmul::Scores,
        [None, None] => return None,
        [Some(AttentionPart::Scores), None] | [None, Some(AttentionPart::Scores)]
            if lhs.is_weight() != rhs.is_weight() =>
        {
            return None;
        }
        parts => {
            specs_in_scope(&OpContext::of_product([Some(lhs), Some(rhs)]))?;
            let name = |part| match part {
                Some(AttentionPart::Scores) => "scores",
                Some(AttentionPart::Probabilities) => "probabilities",
                None => "another tensor",
            };
            let [lhs, rhs] = parts.map(name);
            panic!(
                "burn-mx: attention_scope: a matmul of {lhs} and {rhs}; allowed: query and key, or probabilities that `softmax` made \
                 and the value. A softmax written out in other ops is none"
            );
        }
    };
    let specs = specs_in_scope(&OpContext::of_product([Some(lhs), Some(rhs)]))?;
    Some((which, specs))
}

/// The specs of a softmax along axis `dim` of a tensor with this meta, if the softmax is attention's in a scope.
pub(crate) fn softmax_in_scope(meta: Meta, dim: usize, rank: usize) -> Option<OfOp> {
    if !is_open() || meta.attention != Some(AttentionPart::Scores) {
        return None;
    }
    let specs = specs_in_scope(&OpContext::of([Some(meta)]))?;
    assert!(
        dim + 1 == rank,
        "burn-mx: attention_scope: a softmax of scores along axis {dim} of {rank}; allowed: the last axis, {}, which is the keys'",
        rank - 1
    );
    Some(specs)
}
