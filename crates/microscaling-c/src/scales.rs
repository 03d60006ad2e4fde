//! The values of a block format.

use crate::elements::{self, specials_name};
use crate::error::ReferenceError;
use crate::sums::DPI_ELEMENTS;
use crate::template::Values;
use microscaling::{BlockFormat, ElementOverflow, NonFinite, ScaleFormat, ScaleMode, Subnormals};

/// Sets what templates say of blocks.
pub(crate) fn set(values: &mut Values, format: &BlockFormat) -> Result<(), ReferenceError> {
    format.validate()?;
    let text = format.to_string();
    check(format, &text)?;
    elements::set(values, format.element, &format.conversion, &text)?;
    values.set("block_text", text);
    values.set("block_size", format.group_size());
    values.set("square", format.square);
    let size = format.group_size();
    values.set("elements", if format.square { size * size } else { size });
    let dot_blocks = match size {
        0 => 1,
        _ => DPI_ELEMENTS.div_ceil(size),
    };
    values.set("dot_blocks", dot_blocks);
    values.set("headroom", !format.headroom.is_none());
    values.set("headroom_text", format.headroom.to_string());
    values.set("fixed_steps", format.has_fixed_steps());
    values.set("keeps_special", format.non_finite == NonFinite::Kept);
    values.set("special_elements", format.non_finite == NonFinite::Elements);
    let renormalizes = format.conversion.overflow == ElementOverflow::Renormalize;
    values.set("renormalizes", renormalizes);
    values.set(
        "flush_inputs",
        format.subnormals == Subnormals::FlushElements,
    );
    values.set("flush_blocks", format.subnormals == Subnormals::FlushBlocks);
    values.set("tensor_scale", format.tensor_scale);
    values.set("shifts", format.shifts.is_some());
    if let Some(shifts) = format.shifts {
        values.set("sub_block_size", shifts.block_size);
        values.set("sub_blocks", format.block_size.div_ceil(shifts.block_size));
        values.set("largest_shift", shifts.largest());
        // A vector has at least one bit.
        values.set("shift_bits", shifts.bits.max(1));
    }
    match format.has_exponent() {
        true => set_power(values, format),
        false => set_float(values, format),
    }
    Ok(())
}

/// That the format has no part that is not written down.
fn check(format: &BlockFormat, text: &str) -> Result<(), ReferenceError> {
    let part = |part, got: Option<String>, allowed| match got {
        None => Ok(()),
        Some(got) => Err(ReferenceError::Part {
            format: text.to_owned(),
            part,
            got,
            allowed,
        }),
    };
    if let Some((field, got)) = format.other_scales() {
        part(field, Some(got.to_string()), "none: one scale a block")?;
    }
    part("eden", format.eden.then(|| "true".into()), "false")?;
    part(
        "four_over_six",
        format.four_over_six.then(|| "true".into()),
        "false",
    )?;
    let long = format.block_size > MOST_ELEMENTS;
    part(
        "block_size",
        long.then(|| format.block_size.to_string()),
        "at most 65536, or 0 for the whole axis",
    )
}

/// The most elements of a block whose length is given.
const MOST_ELEMENTS: usize = 1 << 16;

fn set_power(values: &mut Values, format: &BlockFormat) {
    values.set("scale", "power");
    values.set("scale_code_bits", 8);
    values.hex("nan_scale", 0xff);
    values.set("largest_scale", -format.scale.emin());
    values.set("scale_type_emin", -127);
    let power = format.power_scale();
    values.set("rms", power.is_none());
    values.set("rms_steps", format.rms_steps().to_vec());
    let divides = power.is_some_and(|power| power.divides);
    values.set("divides", divides);
    values.set("soft_products", divides && !format.has_fixed_steps());
    values.set(
        "keeps_subnormals",
        power.is_some_and(|power| power.keeps_subnormals),
    );
    values.set("addend", power.map_or(0, |power| power.addend));
    values.set("max_text", format.element.max().to_string());
    values.hex("inverse_max", (1.0 / format.element.max()).to_bits());
    values.set("scale_rule", rule(format));
}

/// The rule of a scale in a comment.
fn rule(format: &BlockFormat) -> String {
    use microscaling::ScaleMode;
    let emax = format.element.emax();
    let h = match format.headroom.is_none() {
        true => String::new(),
        false => format!("{} * ", format.headroom),
    };
    let mode = format.scale_mode;
    match mode {
        ScaleMode::Ceil => format!("`ceil`: ceil(log2({h}largest)) - {emax}"),
        ScaleMode::Even => format!(
            "`even`: floor(log2({h}largest)) - {emax}, after {h}largest is rounded half up to {} mantissa bits",
            format.element.mantissa_bits()
        ),
        ScaleMode::Rceil => format!(
            "`rceil`: ceil(log2({h}(largest / {})))",
            format.element.max()
        ),
        _ => format!("`{mode}`: floor(log2({h}largest)) - {emax}"),
    }
}

fn set_float(values: &mut Values, format: &BlockFormat) {
    let scale = format.scale;
    values.set("scale", "float");
    values.set("soft_products", true);
    values.set("scale_bits", scale.bits());
    values.set("scale_code_bits", scale.bits());
    values.set("tensor_max_text", format.tensor_max().to_string());
    values.set("float32_scale", scale == ScaleFormat::FLOAT32);
    values.set("scale_mantissa_bits", scale.mantissa_bits());
    values.set("scale_signed", scale.is_signed());
    let magnitude_bits = scale.bits() - u32::from(scale.is_signed());
    values.set("scale_magnitude_bits", magnitude_bits);
    // The scale is the largest magnitude itself, and may be 0.
    let is_largest = format.scale_mode == ScaleMode::MaxAbsFinite;
    values.set("divides", is_largest);
    values.set("scale_of_zero", is_largest);
    values.set("scale_emin", scale.emin());
    values.set("scale_type_emin", scale.emin());
    let float = scale.float();
    values.set(
        "scale_specials",
        specials_name(float.and_then(|float| float.special_codes())),
    );
    if let Some(float) = float {
        let sign = 1 << (float.bits() - 1);
        values.hex("scale_infinity", elements::largest_code(float, sign) + 1);
    }
    values.hex("nan_scale", scale.nan_code());
    let least = if is_largest { 0.0 } else { format.scale_min() };
    values.hex("least_scale", least.to_bits());
    values.hex("most_scale", scale.max().to_bits());
    values.hex("largest_unit", format.largest_unit().to_bits());
    values.hex("headroom_value", format.headroom.value().to_bits());
    values.hex("tensor_max", format.tensor_max().to_bits());
}
