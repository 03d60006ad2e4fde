//! The scalar rules of the block formats. What stands here is the specification; the loops over memory inline it,
//! and any other implementation (GPU, intrinsics) must match it bit for bit.

mod bfp;
mod float;
mod grid;
mod microexponent;
mod mx;
mod nvfp4;
mod rms;
mod scale;
mod scale_pair;

pub(crate) use bfp::BfpRule;
pub(crate) use grid::Grid;
pub(crate) use microexponent::MicroexponentRule;
pub(crate) use mx::MxRule;
pub(crate) use nvfp4::{Nvfp4Rule, is_large};
pub(crate) use scale_pair::ScalePair;

/// Runs `$body` with `$block_rule` bound to the rule of an [`Nvfp4Format`](crate::Nvfp4Format) in a tensor with this scale.
macro_rules! with_nvfp4_rule {
    ($format:expr, $tensor_scale:expr, $block_rule:ident => $body:expr) => {{
        use $crate::quantize::rules::{Nvfp4Rule, is_large};
        let (format, tensor_scale) = ($format, $tensor_scale);
        match (is_large(tensor_scale), format.four_over_six) {
            (true, false) => {
                let $block_rule = Nvfp4Rule::<false, false>::of(format, tensor_scale);
                $body
            }
            (false, false) => {
                let $block_rule = Nvfp4Rule::<true, false>::of(format, tensor_scale);
                $body
            }
            (true, true) => {
                let $block_rule = Nvfp4Rule::<false, true>::of(format, tensor_scale);
                $body
            }
            (false, true) => {
                let $block_rule = Nvfp4Rule::<true, true>::of(format, tensor_scale);
                $body
            }
        }
    }};
}
pub(crate) use with_nvfp4_rule;

/// Runs `$body` with `$block_rule` bound to the [`BlockRule`](super::block_rule::BlockRule) of a
/// [`BlockFormat`](crate::BlockFormat), in a tensor with this scale if the format has tensor scales.
#[cfg(feature = "std")]
macro_rules! with_block_rule {
    ($format:expr, $tensor_scale:expr, $block_rule:ident => $body:expr) => {{
        use $crate::quantize::rules::{BfpRule, MicroexponentRule, MxRule, with_nvfp4_rule};
        match $format {
            $crate::BlockFormat::Mx(format) if format.scale_mode == $crate::ScaleMode::Rms => {
                let $block_rule = MxRule::<true>::of(format);
                $body
            }
            $crate::BlockFormat::Mx(format) => {
                let $block_rule = MxRule::<false>::of(format);
                $body
            }
            $crate::BlockFormat::Microexponent(format) => {
                let $block_rule = MicroexponentRule::of(format);
                $body
            }
            $crate::BlockFormat::Bfp(format) => {
                let $block_rule = BfpRule::of(format);
                $body
            }
            $crate::BlockFormat::Nvfp4(format) => {
                with_nvfp4_rule!(format, $tensor_scale, $block_rule => $body)
            }
        }
    }};
}
#[cfg(feature = "std")]
pub(crate) use with_block_rule;
