//! What is emulated: [`MxSpecs`] as a user writes it, [`ResolvedSpecs`] as the backend reads it.
//!
//! The field names, their meaning and their defaults are those of the reference emulation library
//! (microxcaling, `mx/specs.py`), so that its JSON loads here. [`MxSpecs::resolve`] follows its
//! chain of defaults and checks every value once; nothing downstream has to.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use microscaling::{
    BlockFormat, FormatError, RandomHadamard, Rounding, ScaleMode, SharedExpMethod, SlotFormat,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use self::resolved::{ResolvedSpecs, Slot};

mod presets;
mod resolved;

/// Which number formats the emulation uses, and where.
///
/// Block formats apply to the operands of matrix products and convolutions (`*_elem_format`, one slot
/// a role, see [`Slot`]); a bfloat or fp format applies to elementwise operations and to the
/// results of products. Nothing set, the default, means no emulation at all.
///
/// A slot holds the element of an MX block, such as `fp8_e4m3`, or a whole [block
/// format](microscaling::BlockFormat), such as `mx6`, `nvfp4` or `mx(element=int4,block_size=16)`.
/// `block_size`, `scale_bits`, `scale_mode`, `shared_exp_method` and `mx_flush_fp32_subnorms` shape the
/// MX blocks of the slots that name an element.
///
/// Nothing is checked until [`resolve`](Self::resolve).
///
/// In JSON every field may be missing, unknown ones are errors. `null` is the default of any field
/// but a boolean or the seed; formats and the roundings after `round` can be unset by `""` and
/// `"none"` too.
///
/// ```
/// use burn_mx::MxSpecs;
///
/// let specs = MxSpecs::from_json(
///     r#"{ "w_elem_format": "fp6_e3m2", "a_elem_format": "int8", "block_size": 32, "fp": 16 }"#,
/// )?;
/// assert_eq!(specs.resolve()?.to_string(), "w fp6_e3m2, a int8, block 32, fp16");
/// # Ok::<(), burn_mx::SpecsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MxSpecs {
    /// Bits of the scale that a block shares, 1 to 8; 0, the default, means 8 (E8M0 of OCP MX
    /// v1.0).
    #[serde(deserialize_with = "null_is_default")]
    pub scale_bits: u32,
    /// Format of weights in the forward pass. Default: not quantized.
    #[serde(deserialize_with = "unset_or")]
    pub w_elem_format: Option<SlotFormat>,
    /// Format of activations in the forward pass. Default: not quantized.
    #[serde(deserialize_with = "unset_or")]
    pub a_elem_format: Option<SlotFormat>,
    /// Format of weights in the backward pass. Default: `w_elem_format`.
    #[serde(deserialize_with = "unset_or")]
    pub w_elem_format_bp: Option<SlotFormat>,
    /// Format of saved activations in the backward pass. Default: `a_elem_format`.
    #[serde(deserialize_with = "unset_or")]
    pub a_elem_format_bp: Option<SlotFormat>,
    /// Format of the output's gradient where a weight's gradient is computed. Default:
    /// `a_elem_format`.
    #[serde(deserialize_with = "unset_or")]
    pub a_elem_format_bp_ex: Option<SlotFormat>,
    /// Format of the output's gradient where an input's gradient is computed. Default:
    /// `a_elem_format`.
    #[serde(deserialize_with = "unset_or")]
    pub a_elem_format_bp_os: Option<SlotFormat>,
    /// Whether a block of float32 subnormals becomes zero. Default: false.
    pub mx_flush_fp32_subnorms: bool,
    /// Whether a block shares the exponent of its largest element (`max`, the default), or every
    /// element is its own block (`none`).
    #[serde(deserialize_with = "null_is_default")]
    pub shared_exp_method: SharedExpMethod,
    /// How the shared scale follows from a block's largest element. Default: `floor`, that of OCP
    /// MX v1.0. Beyond the reference, therefore not written to JSON at its default.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub scale_mode: ScaleMode,
    /// Elements of an MX block; 0, the default, makes the whole axis one block. The concrete formats of
    /// OCP MX v1.0 have 32.
    #[serde(deserialize_with = "null_is_default")]
    pub block_size: usize,
    /// Total bits of the elementwise format with 8 exponent bits: 10 to 32, 16 is bfloat16. 0, the
    /// default, is off; 32 is float32 itself and the same as off, whatever `bfloat_subnorms` says.
    /// Excludes `fp`.
    #[serde(deserialize_with = "null_is_default")]
    pub bfloat: u32,
    /// Total bits of the elementwise format with 5 exponent bits: 7 to 29, 16 is IEEE half
    /// precision. 0, the default, is off. Excludes `bfloat`.
    #[serde(deserialize_with = "null_is_default")]
    pub fp: u32,
    /// Whether the elementwise format, `bfloat` or `fp`, has subnormals; without, they become zero
    /// before rounding. Default: true.
    pub bfloat_subnorms: bool,
    /// Whether the backward pass is emulated. If false it runs in plain float32 on the unrounded
    /// inputs, and all `*_bp*` formats and gradient roundings are ignored, set or not, as in the
    /// reference. Default: true.
    pub quantize_backprop: bool,
    /// Rounding of elementwise operations, and the default of all others. Default: `nearest` (ties
    /// away from zero).
    #[serde(deserialize_with = "null_is_default")]
    pub round: Rounding,
    /// Rounding of the optimizer's state. Default: `round`. Read and kept, without effect:
    /// optimizers work on float32 values that nothing rounds.
    #[serde(deserialize_with = "unset_or")]
    pub round_m: Option<Rounding>,
    /// Elementwise rounding of weights and biases. Default: `round`.
    #[serde(deserialize_with = "unset_or")]
    pub round_weight: Option<Rounding>,
    /// Elementwise rounding of the other operands of a product, and of its result. Default:
    /// `round`.
    #[serde(deserialize_with = "unset_or")]
    pub round_output: Option<Rounding>,
    /// Elementwise rounding of the gradients of weights and biases. Default: `round`.
    #[serde(deserialize_with = "unset_or")]
    pub round_grad_weight: Option<Rounding>,
    /// Elementwise rounding of the gradients of activations. Default: `round`.
    #[serde(deserialize_with = "unset_or")]
    pub round_grad_input: Option<Rounding>,
    /// MX rounding of both operands of a forward product. Default: `round`.
    #[serde(deserialize_with = "unset_or")]
    pub round_mx_output: Option<Rounding>,
    /// MX rounding of the saved operands in the backward pass of a product of two activations.
    /// Default: `round_grad_input`.
    #[serde(deserialize_with = "unset_or")]
    pub round_mx_input_grad_input: Option<Rounding>,
    /// MX rounding of the weight where an input's gradient is computed. Default:
    /// `round_grad_input`.
    #[serde(deserialize_with = "unset_or")]
    pub round_mx_weight_grad_input: Option<Rounding>,
    /// MX rounding of the output's gradient where an input's gradient is computed. Default:
    /// `round_grad_input`.
    #[serde(deserialize_with = "unset_or")]
    pub round_mx_grad_output_grad_input: Option<Rounding>,
    /// MX rounding of the input where a weight's gradient is computed. Default: `round_grad_input`.
    #[serde(deserialize_with = "unset_or")]
    pub round_mx_input_grad_weight: Option<Rounding>,
    /// MX rounding of the output's gradient where a weight's gradient is computed. Default:
    /// `round_grad_input`.
    #[serde(deserialize_with = "unset_or")]
    pub round_mx_grad_output_grad_weight: Option<Rounding>,
    /// Whether softmax takes powers of 2 instead of e. Default: false. No effect while `bfloat` and
    /// `fp` are off, like the next two.
    pub softmax_exp2: bool,
    /// Whether e^x is computed as a power of 2. Default: false.
    pub vec_use_exp2: bool,
    /// Whether a / b is computed as a · (1 / b). Default: false.
    pub vec_use_recip: bool,
    /// Read so that the reference's JSON loads, without effect: native kernels are always used
    /// where there are some.
    pub custom_cuda: bool,
    /// Block size of a random Hadamard transform of both operands of every gradient product, before
    /// they are quantized, along the axis that the product sums over: 16, 32, 64 or 128; 0, the
    /// default, is off. It leaves the exact product as it is and spreads outliers over their block, see
    /// [`RandomHadamard`]. The signs follow from the seed. No effect while no backward slot has a
    /// format. Beyond the reference, therefore not written to JSON at its default.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "is_default"
    )]
    pub hadamard_block_size: usize,
    /// Seed of `stochastic` rounding and of the signs of the Hadamard transform. Default: 0. Beyond the
    /// reference, therefore not written to JSON at its default.
    #[serde(skip_serializing_if = "is_default")]
    pub seed: u64,
}

impl Default for MxSpecs {
    /// Nothing set: no emulation.
    fn default() -> Self {
        Self {
            scale_bits: 0,
            w_elem_format: None,
            a_elem_format: None,
            w_elem_format_bp: None,
            a_elem_format_bp: None,
            a_elem_format_bp_ex: None,
            a_elem_format_bp_os: None,
            mx_flush_fp32_subnorms: false,
            shared_exp_method: SharedExpMethod::Max,
            scale_mode: ScaleMode::Floor,
            block_size: 0,
            bfloat: 0,
            fp: 0,
            bfloat_subnorms: true,
            quantize_backprop: true,
            round: Rounding::Nearest,
            round_m: None,
            round_weight: None,
            round_output: None,
            round_grad_weight: None,
            round_grad_input: None,
            round_mx_output: None,
            round_mx_input_grad_input: None,
            round_mx_weight_grad_input: None,
            round_mx_grad_output_grad_input: None,
            round_mx_input_grad_weight: None,
            round_mx_grad_output_grad_weight: None,
            softmax_exp2: false,
            vec_use_exp2: false,
            vec_use_recip: false,
            custom_cuda: false,
            hadamard_block_size: 0,
            seed: 0,
        }
    }
}

impl MxSpecs {
    /// Reads a JSON object, the reference's or [`to_json`](Self::to_json)'s. Missing fields keep
    /// their default.
    ///
    /// # Errors
    /// [`SpecsError::JsonField`] for an unknown field or a value that its field cannot hold (an
    /// unknown format, a string for a number), [`SpecsError::Json`] for what is no JSON object or
    /// has a field twice. Ranges are checked by [`resolve`](Self::resolve).
    pub fn from_json(json: &str) -> Result<Self, SpecsError> {
        let fail = |error: serde_json::Error| SpecsError::Json {
            reason: error.to_string(),
        };
        let fields: Map<String, Value> = serde_json::from_str(json).map_err(fail)?;
        serde_json::from_str(json)
            .map_err(|error| SpecsError::of_field(fields).unwrap_or_else(|| fail(error)))
    }

    /// The specs as a JSON object, which [`from_json`](Self::from_json) reads back, and the
    /// reference too unless `scale_mode`, `hadamard_block_size`, `seed` or a format beyond its own is set.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("a struct of numbers, strings and booleans is JSON")
    }

    /// Fills in what is not set, as the reference's `finalize_mx_specs` does, and checks all
    /// values.
    ///
    /// `scale_bits` ← 8; `w_elem_format_bp` ← `w_elem_format`; the three `a_elem_format_bp*` ←
    /// `a_elem_format`; `round_m`, `round_weight`, `round_output`, `round_grad_weight`,
    /// `round_grad_input` and `round_mx_output` ← `round`; then the five `round_mx_*_grad_*` ←
    /// `round_grad_input`.
    ///
    /// # Errors
    /// [`SpecsError::OutOfRange`], [`SpecsError::BfloatAndFp`], [`SpecsError::Format`], and
    /// [`SpecsError::WithoutEffect`] for a field that shapes MX blocks where every slot that is set brings a
    /// format of its own.
    pub fn resolve(&self) -> Result<ResolvedSpecs, SpecsError> {
        SCALE_BITS.check(self.scale_bits)?;
        BFLOAT.check(self.bfloat)?;
        FP.check(self.fp)?;
        if self.bfloat != 0 && self.fp != 0 {
            let (bfloat, fp) = (self.bfloat, self.fp);
            return Err(SpecsError::BfloatAndFp { bfloat, fp });
        }
        self.check_formats()?;
        self.check_hadamard()?;

        let round = Some(self.round);
        let round_grad_input = self.round_grad_input.or(round);
        let specs = Self {
            scale_bits: match self.scale_bits {
                0 => 8,
                bits => bits,
            },
            w_elem_format_bp: self.w_elem_format_bp.or(self.w_elem_format),
            a_elem_format_bp: self.a_elem_format_bp.or(self.a_elem_format),
            a_elem_format_bp_ex: self.a_elem_format_bp_ex.or(self.a_elem_format),
            a_elem_format_bp_os: self.a_elem_format_bp_os.or(self.a_elem_format),
            round_m: self.round_m.or(round),
            round_weight: self.round_weight.or(round),
            round_output: self.round_output.or(round),
            round_grad_weight: self.round_grad_weight.or(round),
            round_grad_input,
            round_mx_output: self.round_mx_output.or(round),
            round_mx_input_grad_input: self.round_mx_input_grad_input.or(round_grad_input),
            round_mx_weight_grad_input: self.round_mx_weight_grad_input.or(round_grad_input),
            round_mx_grad_output_grad_input: self
                .round_mx_grad_output_grad_input
                .or(round_grad_input),
            round_mx_input_grad_weight: self.round_mx_input_grad_weight.or(round_grad_input),
            round_mx_grad_output_grad_weight: self
                .round_mx_grad_output_grad_weight
                .or(round_grad_input),
            ..self.clone()
        };
        Ok(ResolvedSpecs::new(specs))
    }

    /// Checks the formats of the slots, and that the fields which shape MX blocks have some to shape.
    fn check_formats(&self) -> Result<(), SpecsError> {
        let slots = Slot::ALL
            .into_iter()
            .filter_map(|slot| Some((slot.field(), self.slot_format(slot)?)));
        for (field, format) in slots.clone() {
            format.validate().map_err(|error| SpecsError::Format {
                field,
                format,
                error,
            })?;
        }
        let mut slots = slots.peekable();
        match slots.peek().copied() {
            Some((slot, SlotFormat::Block(format)))
                if slots.all(|(_, format)| matches!(format, SlotFormat::Block(_))) =>
            {
                self.check_shapes_nothing(slot, format)
            }
            _ => Ok(()),
        }
    }

    fn check_hadamard(&self) -> Result<(), SpecsError> {
        let value = self.hadamard_block_size;
        let transform = RandomHadamard { block_size: value };
        if value == 0 || transform.validate().is_ok() {
            return Ok(());
        }
        let sizes = RandomHadamard::BLOCK_SIZES.map(|size| size.to_string());
        Err(SpecsError::OutOfRange {
            field: "hadamard_block_size",
            value,
            allowed: format!("0 (off), {}", sizes.join(", ")),
        })
    }

    /// Checks the fields that shape MX blocks where none is shaped by them: all slots that are set bring
    /// their own format, the first of which is `format` in `slot`.
    fn check_shapes_nothing(
        &self,
        slot: &'static str,
        format: BlockFormat,
    ) -> Result<(), SpecsError> {
        let default = Self::default();
        let (size, bits, own) = (self.block_size, self.scale_bits, format.block_size());
        let (mode, method) = (self.scale_mode, self.shared_exp_method);
        let flush = self.mx_flush_fp32_subnorms;
        let fields: [(_, &dyn Display, _, _); 5] = [
            (
                "block_size",
                &size,
                size == 0 || size == own,
                format!("0 or {own}"),
            ),
            ("scale_bits", &bits, bits == 0 || bits == 8, "0 or 8".into()),
            (
                "scale_mode",
                &mode,
                mode == default.scale_mode,
                default.scale_mode.to_string(),
            ),
            (
                "shared_exp_method",
                &method,
                method == default.shared_exp_method,
                default.shared_exp_method.to_string(),
            ),
            ("mx_flush_fp32_subnorms", &flush, !flush, "false".into()),
        ];
        for (field, value, is_allowed, allowed) in fields {
            if !is_allowed {
                return Err(SpecsError::WithoutEffect {
                    field,
                    value: value.to_string(),
                    slot,
                    format,
                    allowed,
                });
            }
        }
        Ok(())
    }

    /// What the field of that slot holds.
    fn slot_format(&self, slot: Slot) -> Option<SlotFormat> {
        match slot {
            Slot::W => self.w_elem_format,
            Slot::A => self.a_elem_format,
            Slot::WBp => self.w_elem_format_bp,
            Slot::ABp => self.a_elem_format_bp,
            Slot::ABpEx => self.a_elem_format_bp_ex,
            Slot::ABpOs => self.a_elem_format_bp_os,
        }
    }
}

/// Why specs cannot be read or used. A message about a field names it, its value and what is
/// allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecsError {
    /// A number outside its range.
    #[error("`{field}` is {value}; allowed: {allowed}")]
    OutOfRange {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        value: usize,
        /// The values that it may have.
        allowed: String,
    },
    /// Two elementwise formats at once.
    #[error("`bfloat` is {bfloat} and `fp` is {fp}; allowed: one of them, the other 0")]
    BfloatAndFp {
        /// The value of [`MxSpecs::bfloat`].
        bfloat: u32,
        /// The value of [`MxSpecs::fp`].
        fp: u32,
    },
    /// The parameters of a slot's format are out of range.
    #[error("`{field}` is {format}; {error}")]
    Format {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        format: SlotFormat,
        /// The parameter, its value and what is allowed.
        error: FormatError,
    },
    /// A field that shapes MX blocks, where no slot names an element to make them of.
    #[error(
        "`{field}` is {value}, but shapes only blocks of slots that name an element, and `{slot}` is {format}; \
         allowed: {allowed}"
    )]
    WithoutEffect {
        /// The field of [`MxSpecs`].
        field: &'static str,
        /// Its value.
        value: String,
        /// The first slot that is set.
        slot: &'static str,
        /// Its format.
        format: BlockFormat,
        /// The values that the field may have.
        allowed: String,
    },
    /// No preset has this name.
    #[error("preset `{name}` is unknown; allowed: {}", MxSpecs::PRESETS.join(", "))]
    UnknownPreset {
        /// The name asked for.
        name: String,
    },
    /// A JSON field that does not exist, or that cannot have this value.
    #[error("field `{field}` with value {value} does not load: {reason}")]
    JsonField {
        /// The key.
        field: String,
        /// The value, as JSON.
        value: String,
        /// What is wrong with it and what is allowed.
        reason: String,
    },
    /// Not a JSON object, or a field twice.
    #[error("specs are no JSON object of `MxSpecs` fields: {reason}")]
    Json {
        /// The parser's message with line and column.
        reason: String,
    },
}

impl SpecsError {
    /// What is wrong with the first field that does not load. A parser's error names a place in the
    /// text but no field, so they are tried one by one.
    fn of_field(fields: Map<String, Value>) -> Option<Self> {
        fields.into_iter().find_map(|(field, value)| {
            let alone = Map::from_iter([(field.clone(), value.clone())]);
            let error = serde_json::from_value::<MxSpecs>(alone.into()).err()?;
            Some(Self::JsonField {
                field,
                value: value.to_string(),
                reason: error.to_string(),
            })
        })
    }
}

/// The widths in bits that a field may name; 0 always stands for its default.
pub(crate) struct BitRange {
    field: &'static str,
    bits: RangeInclusive<u32>,
    zero_means: &'static str,
}

pub(crate) const SCALE_BITS: BitRange = BitRange {
    field: "scale_bits",
    bits: 1..=8,
    zero_means: "8",
};
/// One sign, 8 exponent and 1 to 23 mantissa bits.
pub(crate) const BFLOAT: BitRange = BitRange {
    field: "bfloat",
    bits: 10..=32,
    zero_means: "off",
};
/// One sign, 5 exponent and 1 to 23 mantissa bits.
pub(crate) const FP: BitRange = BitRange {
    field: "fp",
    bits: 7..=29,
    zero_means: "off",
};

impl BitRange {
    pub(crate) fn allowed(&self) -> String {
        format!(
            "0 ({}) or {} to {}",
            self.zero_means,
            self.bits.start(),
            self.bits.end()
        )
    }

    pub(crate) fn check(&self, value: u32) -> Result<u32, SpecsError> {
        if value == 0 || self.bits.contains(&value) {
            return Ok(value);
        }
        Err(SpecsError::OutOfRange {
            field: self.field,
            value: value as usize,
            allowed: self.allowed(),
        })
    }
}

/// Parses what JSON and the command line give for a field that can be unset: nothing, "" or "none"
/// unset it.
pub(crate) fn parse_unset_or<T: FromStr>(text: &str) -> Result<Option<T>, T::Err> {
    if text.is_empty() || text == "none" {
        Ok(None)
    } else {
        text.parse().map(Some)
    }
}

fn unset_or<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    parse_unset_or(&text).map_err(serde::de::Error::custom)
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use microscaling::{BfpFormat, ElementFormat, MicroexponentFormat, MxFormat, Nvfp4Format};

    use super::*;

    /// Every key as the reference dumps it: numbers, booleans, names and nulls.
    const REFERENCE: &str = r#"{
        "scale_bits": 8, "w_elem_format": "fp8_e4m3", "a_elem_format": "fp4",
        "w_elem_format_bp": null, "a_elem_format_bp": null, "a_elem_format_bp_ex": "int8",
        "a_elem_format_bp_os": null, "mx_flush_fp32_subnorms": false, "shared_exp_method": "max",
        "block_size": 32, "bfloat": 16, "fp": 0, "bfloat_subnorms": true,
        "quantize_backprop": true, "round": "even", "round_m": "nearest", "round_weight": null,
        "round_output": "", "round_grad_weight": "nearest", "round_grad_input": "floor",
        "round_mx_output": null, "round_mx_input_grad_input": null,
        "round_mx_weight_grad_input": "dither", "round_mx_grad_output_grad_input": null,
        "round_mx_input_grad_weight": null, "round_mx_grad_output_grad_weight": null,
        "softmax_exp2": false, "vec_use_exp2": false, "vec_use_recip": true, "custom_cuda": true
    }"#;

    #[test]
    fn json_of_the_reference_loads() {
        let expected = MxSpecs {
            scale_bits: 8,
            w_elem_format: Some(ElementFormat::Fp8E4M3.into()),
            a_elem_format: Some(ElementFormat::Fp4E2M1.into()),
            a_elem_format_bp_ex: Some(ElementFormat::Int8.into()),
            block_size: 32,
            bfloat: 16,
            round: Rounding::Even,
            round_m: Some(Rounding::Nearest),
            round_grad_weight: Some(Rounding::Nearest),
            round_grad_input: Some(Rounding::Floor),
            round_mx_weight_grad_input: Some(Rounding::Stochastic),
            vec_use_recip: true,
            custom_cuda: true,
            ..MxSpecs::default()
        };
        assert_eq!(MxSpecs::from_json(REFERENCE), Ok(expected));
    }

    #[test]
    fn partial_json_loads_and_resolves() {
        for (json, summary) in [
            (
                r#"{ "w_elem_format": "fp8_e4m3", "a_elem_format": "fp8_e5m2", "block_size": 32,
                    "scale_bits": 8, "bfloat": 16 }"#,
                "w fp8_e4m3, a fp8_e5m2, block 32, bfloat16",
            ),
            (
                r#"{ "w_elem_format": "fp6_e3m2", "a_elem_format": "fp6_e3m2", "block_size": 32,
                    "scale_bits": 8, "bfloat": 16, "round": "even", "quantize_backprop": false }"#,
                "w fp6_e3m2, a fp6_e3m2, block 32, bfloat16, forward only",
            ),
            (
                r#"{ "w_elem_format": "fp4_e2m1", "a_elem_format": "fp6_e2m3",
                    "w_elem_format_bp": "fp6_e3m2", "a_elem_format_bp": "int8",
                    "a_elem_format_bp_ex": "fp8_e5m2", "a_elem_format_bp_os": "fp8_e4m3",
                    "block_size": 16, "scale_bits": 8, "fp": 16, "round": "floor" }"#,
                "w fp4_e2m1, a fp6_e2m3, w_bp fp6_e3m2, a_bp int8, a_bp_ex fp8_e5m2, \
                 a_bp_os fp8_e4m3, block 16, fp16",
            ),
            (
                r#"{ "w_elem_format": "int8", "a_elem_format": "int8", "block_size": 32 }"#,
                "w int8, a int8, block 32",
            ),
            (
                r#"{ "bfloat": 12, "round": "nearest", "bfloat_subnorms": false }"#,
                "bfloat12",
            ),
            ("{}", "no emulation"),
        ] {
            let specs = MxSpecs::from_json(json).unwrap();
            assert_eq!(specs.resolve().unwrap().to_string(), summary, "{json}");
        }
    }

    #[test]
    fn null_is_the_default_and_defaults_beyond_the_reference_are_not_written() {
        let json = MxSpecs::default().to_json();
        assert!(
            ["scale_mode", "hadamard_block_size", "seed"]
                .iter()
                .all(|field| !json.contains(field)),
            "{json}"
        );

        let mut fields: Map<String, Value> = serde_json::from_str(&json).unwrap();
        fields.retain(|_, value| !value.is_boolean());
        fields.insert("scale_mode".into(), Value::Null);
        fields.insert("hadamard_block_size".into(), Value::Null);
        fields.values_mut().for_each(|value| *value = Value::Null);
        let nulls = Value::from(fields).to_string();
        assert_eq!(MxSpecs::from_json(&nulls), Ok(MxSpecs::default()));
        assert_eq!(MxSpecs::from_json("{}"), Ok(MxSpecs::default()));
    }

    #[test]
    fn json_round_trip() {
        let full = MxSpecs {
            scale_mode: ScaleMode::Rceil,
            shared_exp_method: SharedExpMethod::None,
            bfloat_subnorms: false,
            hadamard_block_size: 128,
            seed: u64::MAX,
            ..MxSpecs::from_json(REFERENCE).unwrap()
        };
        let resolved = full.resolve().unwrap().specs().clone();
        for specs in [MxSpecs::default(), MxSpecs::mxfp4(), full, resolved] {
            assert_eq!(MxSpecs::from_json(&specs.to_json()), Ok(specs));
        }
    }

    #[test]
    fn json_errors_name_field_value_and_what_is_allowed() {
        for (json, parts) in [
            (r#"{ "wbits": 8 }"#, ["`wbits`", "8", "`w_elem_format`"]),
            (
                r#"{ "fp": 0, "a_elem_format": "fp5" }"#,
                ["`a_elem_format`", "\"fp5\"", "fp6_e3m2"],
            ),
            (
                r#"{ "w_elem_format": 8 }"#,
                ["`w_elem_format`", "8", "string"],
            ),
            (r#"{ "round": "up" }"#, ["`round`", "\"up\"", "nearest"]),
            (
                r#"{ "round_output": "up" }"#,
                ["`round_output`", "\"up\"", "stochastic"],
            ),
            (
                r#"{ "scale_mode": "up" }"#,
                ["`scale_mode`", "\"up\"", "rceil"],
            ),
            (
                r#"{ "shared_exp_method": "sum" }"#,
                ["`shared_exp_method`", "\"sum\"", "max"],
            ),
            (r#"{ "bfloat": -16 }"#, ["`bfloat`", "-16", "u32"]),
            (r#"{ "block_size": 1.5 }"#, ["`block_size`", "1.5", "usize"]),
            (
                r#"{ "quantize_backprop": 0 }"#,
                ["`quantize_backprop`", "0", "boolean"],
            ),
        ] {
            let error = MxSpecs::from_json(json).unwrap_err();
            assert!(matches!(error, SpecsError::JsonField { .. }), "{error:?}");
            let message = error.to_string();
            for part in parts {
                assert!(message.contains(part), "{message}: no {part}");
            }
        }
        for json in ["", "{", "[]", "32", "null", r#"{ "fp": 8, "fp": 9 }"#] {
            let error = MxSpecs::from_json(json).unwrap_err();
            assert!(
                matches!(error, SpecsError::Json { .. }),
                "{json}: {error:?}"
            );
        }
    }

    #[test]
    fn numbers_out_of_range() {
        type Set = fn(&mut MxSpecs, u32);
        let scale_bits: Set = |specs, value| specs.scale_bits = value;
        let bfloat: Set = |specs, value| specs.bfloat = value;
        let fp: Set = |specs, value| specs.fp = value;
        for (field, set, allowed, max, text) in [
            ("scale_bits", scale_bits, 1..=8, 8, "0 (8) or 1 to 8"),
            ("bfloat", bfloat, 10..=32, 32, "0 (off) or 10 to 32"),
            ("fp", fp, 7..=29, 29, "0 (off) or 7 to 29"),
        ] {
            for value in (0..=max + 3).chain([u32::MAX]) {
                let mut specs = MxSpecs::default();
                set(&mut specs, value);
                let resolved = specs.resolve();
                if value == 0 || allowed.contains(&value) {
                    assert!(resolved.is_ok(), "{field} {value}");
                    continue;
                }
                let message = resolved.unwrap_err().to_string();
                assert_eq!(message, format!("`{field}` is {value}; allowed: {text}"));
            }
        }
    }

    #[test]
    fn sizes_of_the_hadamard_transform() {
        for size in 0..=256 {
            let specs = MxSpecs {
                hadamard_block_size: size,
                ..MxSpecs::mxfp4()
            };
            match specs.resolve() {
                Ok(specs) => {
                    assert!([0, 16, 32, 64, 128].contains(&size));
                    assert_eq!(
                        specs.hadamard().map(|h| h.block_size),
                        (size > 0).then_some(size)
                    );
                }
                Err(error) => assert_eq!(
                    error.to_string(),
                    format!("`hadamard_block_size` is {size}; allowed: 0 (off), 16, 32, 64, 128")
                ),
            }
        }
    }

    #[test]
    fn bfloat_and_fp_exclude_each_other() {
        let specs = MxSpecs {
            fp: 12,
            ..MxSpecs::mxfp4()
        };
        let error = specs.resolve().unwrap_err();
        assert_eq!(error, SpecsError::BfloatAndFp { bfloat: 16, fp: 12 });
        let message = "`bfloat` is 16 and `fp` is 12; allowed: one of them, the other 0";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn a_slot_takes_any_block_format() {
        let specs = MxSpecs::from_json(
            r#"{ "w_elem_format": "mx6", "a_elem_format": "nvfp4", "w_elem_format_bp": "BFP16",
                "a_elem_format_bp": "mx(element=int4,block_size=8,scale_mode=even)",
                "a_elem_format_bp_os": "fp8_e5m2", "block_size": 64, "scale_bits": 5 }"#,
        )
        .unwrap();
        let resolved = specs.resolve().unwrap();
        let own = MxFormat {
            scale_mode: ScaleMode::Even,
            ..MxFormat::new(ElementFormat::Int4, 8)
        };
        let shared = MxFormat {
            scale_bits: 5,
            ..MxFormat::new(ElementFormat::Fp8E5M2, 64)
        };
        let nvfp4 = BlockFormat::Nvfp4(Nvfp4Format::default());
        assert_eq!(
            Slot::ALL.map(|slot| resolved.block_format(slot).unwrap()),
            [
                MicroexponentFormat::MX6.into(),
                nvfp4,
                BfpFormat::BFP16.into(),
                own.into(),
                nvfp4,
                shared.into(),
            ]
        );
        assert_eq!(
            resolved.to_string(),
            "w mx6, a nvfp4, w_bp bfp16, a_bp mx(element=int4,block_size=8,scale_mode=even), a_bp_os fp8_e5m2, \
             block 64, 5 scale bits"
        );
        assert_eq!(MxSpecs::from_json(&specs.to_json()), Ok(specs));
    }

    #[test]
    fn parameters_of_a_format_out_of_range() {
        let format = MicroexponentFormat {
            block_size: 10,
            sub_block_size: 11,
            ..MicroexponentFormat::MX6
        };
        let specs = MxSpecs {
            a_elem_format_bp: Some(BlockFormat::from(format).into()),
            ..MxSpecs::mxfp4()
        };
        assert_eq!(
            specs.resolve().unwrap_err().to_string(),
            "`a_elem_format_bp` is microexponent(bit_width=13,block_size=10,sub_block_size=11,shift_bits=1); \
             microexponent: sub_block_size is 11, expected 1 to 10"
        );
        for (json, parts) in [
            (
                r#"{ "w_elem_format": "bfp(bit_width=40)" }"#,
                ["`w_elem_format`", "40", "10 to 32"],
            ),
            (
                r#"{ "w_elem_format": "mx(element=int5)" }"#,
                ["`w_elem_format`", "int5", "int4"],
            ),
        ] {
            let error = MxSpecs::from_json(json).unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{error}: no {part}");
            }
        }
    }

    #[test]
    fn what_shapes_mx_blocks_needs_some() {
        for (field, value, allowed) in [
            ("block_size", "32", "0 or 16"),
            ("scale_bits", "4", "0 or 8"),
            ("scale_mode", "rceil", "floor"),
            ("shared_exp_method", "none", "max"),
            ("mx_flush_fp32_subnorms", "true", "false"),
        ] {
            let json_value = match value.parse::<u32>() {
                Ok(_) => value.to_string(),
                Err(_) if value == "true" => value.to_string(),
                Err(_) => format!("\"{value}\""),
            };
            let specs = |slots: &str| {
                let json = format!(r#"{{ {slots}, "{field}": {json_value} }}"#);
                MxSpecs::from_json(&json).unwrap().resolve()
            };
            let error =
                specs(r#""a_elem_format": "mx9", "w_elem_format_bp": "nvfp4""#).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "`{field}` is {value}, but shapes only blocks of slots that name an element, and \
                     `a_elem_format` is mx9; allowed: {allowed}"
                )
            );
            for good in [
                r#""w_elem_format": "mx9", "a_elem_format": "int8""#,
                r#""bfloat": 16"#,
            ] {
                assert!(specs(good).is_ok(), "{field} with {good}");
            }
        }
        let fits = MxSpecs {
            block_size: 16,
            scale_bits: 8,
            ..MxSpecs::preset("nvfp4").unwrap()
        };
        assert!(fits.resolve().is_ok());
    }

    #[test]
    fn formats_and_scale_bits_default() {
        let specs = MxSpecs {
            w_elem_format: Some(ElementFormat::Int8.into()),
            a_elem_format: Some(ElementFormat::Fp8E5M2.into()),
            a_elem_format_bp_ex: Some(ElementFormat::Fp6E2M3.into()),
            ..MxSpecs::default()
        };
        let resolved = specs.resolve().unwrap();
        let specs = MxSpecs {
            scale_bits: 8,
            w_elem_format_bp: Some(ElementFormat::Int8.into()),
            a_elem_format_bp: Some(ElementFormat::Fp8E5M2.into()),
            a_elem_format_bp_os: Some(ElementFormat::Fp8E5M2.into()),
            ..specs
        };
        for slot in Slot::ALL {
            let format = resolved.specs().slot_format(slot);
            assert_eq!(format, specs.slot_format(slot), "{slot:?}");
            let whole_axis = MxFormat::new(ElementFormat::Int8, 0);
            assert_eq!(
                resolved.block_format(slot),
                format.map(|format| format.block_format(&whole_axis)),
                "{slot:?}"
            );
        }
        // A second time changes nothing.
        assert_eq!(resolved.specs().resolve(), Ok(resolved.clone()));
    }

    #[test]
    fn roundings_default() {
        use Rounding::{Even, Floor, Nearest, Stochastic};
        let elementwise = |specs: &ResolvedSpecs| {
            [
                specs.round(),
                specs.round_m(),
                specs.round_weight(),
                specs.round_output(),
                specs.round_grad_weight(),
                specs.round_grad_input(),
                specs.round_mx_output(),
            ]
        };
        let backward = |specs: &ResolvedSpecs| {
            [
                specs.round_mx_input_grad_input(),
                specs.round_mx_weight_grad_input(),
                specs.round_mx_grad_output_grad_input(),
                specs.round_mx_input_grad_weight(),
                specs.round_mx_grad_output_grad_weight(),
            ]
        };

        let unset = MxSpecs::default().resolve().unwrap();
        assert_eq!(elementwise(&unset), [Nearest; 7]);
        assert_eq!(backward(&unset), [Nearest; 5]);

        let round = MxSpecs {
            round: Stochastic,
            ..MxSpecs::default()
        };
        let resolved = round.resolve().unwrap();
        assert_eq!(elementwise(&resolved), [Stochastic; 7]);
        assert_eq!(backward(&resolved), [Stochastic; 5]);

        let some = MxSpecs {
            round_output: Some(Nearest),
            round_grad_input: Some(Floor),
            round_mx_input_grad_weight: Some(Nearest),
            round: Even,
            ..MxSpecs::default()
        };
        let resolved = some.resolve().unwrap();
        assert_eq!(
            elementwise(&resolved),
            [Even, Even, Even, Nearest, Even, Floor, Even]
        );
        assert_eq!(backward(&resolved), [Floor, Floor, Floor, Nearest, Floor]);
        // Filled in means filled in: no null is left in the JSON but for the formats.
        assert_eq!(
            resolved.specs().to_json().matches("null").count(),
            Slot::ALL.len()
        );
    }
}
