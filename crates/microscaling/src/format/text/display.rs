//! Block formats as they are shown, so that they are read back.

use super::NAMED;
use crate::format::{BlockFormat, FloatScaleFormat, MxFormat, Nvfp4Format};
use alloc::{format, string::String};
use core::fmt;

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, ..)) = NAMED.iter().find(|(.., format)| format == self) {
            return f.pad(name);
        }
        f.pad(&match self {
            Self::Mx(format) => mx_text(format),
            Self::Microexponent(format) => format!(
                "microexponent(bit_width={},block_size={},sub_block_size={},shift_bits={})",
                format.bit_width, format.block_size, format.sub_block_size, format.shift_bits
            ),
            Self::Bfp(format) => format!(
                "bfp(bit_width={},block_size={})",
                format.bit_width, format.block_size
            ),
            Self::Nvfp4(format) => nvfp4_text(format),
            Self::FloatScale(format) => float_scale_text(format),
        })
    }
}

fn mx_text(format: &MxFormat) -> String {
    let usual = MxFormat::new(format.element, format.block_size);
    let mut text = format!(
        "mx(element={},block_size={}",
        format.element, format.block_size
    );
    if format.scale_bits != usual.scale_bits {
        text += &format!(",scale_bits={}", format.scale_bits);
    }
    if format.scale_mode != usual.scale_mode {
        text += &format!(",scale_mode={}", format.scale_mode);
    }
    if format.shared_exp_method != usual.shared_exp_method {
        text += &format!(",shared_exp_method={}", format.shared_exp_method);
    }
    if format.flush_fp32_subnorms {
        text += ",flush_fp32_subnorms=true";
    }
    if format.square {
        text += ",square=true";
    }
    if !format.headroom.is_none() {
        text += &format!(",headroom={}", format.headroom);
    }
    text.push(')');
    text
}

fn nvfp4_text(format: &Nvfp4Format) -> String {
    let mut text = format!("nvfp4(tensor_scale={}", format.tensor_scale);
    if format.square {
        text += ",square=true";
    }
    if !format.headroom.is_none() {
        text += &format!(",headroom={}", format.headroom);
    }
    if format.four_over_six {
        text += ",four_over_six=true";
    }
    text.push(')');
    text
}

fn float_scale_text(format: &FloatScaleFormat) -> String {
    let mut text = format!(
        "block(element={},scale={},block_size={}",
        format.element, format.scale, format.block_size
    );
    for (field, is) in [
        ("tensor_scale", format.tensor_scale),
        ("square", format.square),
        ("four_over_six", format.four_over_six),
        ("eden", format.eden),
    ] {
        if is {
            text += &format!(",{field}=true");
        }
    }
    if let Some(outer) = format.outer {
        text += &format!(",{outer}");
    }
    if let Some(sub_scales) = format.sub_scales {
        text += &format!(",sub_scales={sub_scales}");
    }
    if !format.subnormal_scales {
        text += ",subnormal_scales=false";
    }
    if !format.headroom.is_none() {
        text += &format!(",headroom={}", format.headroom);
    }
    text.push(')');
    text
}
