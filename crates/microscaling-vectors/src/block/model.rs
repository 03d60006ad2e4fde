//! A block step by step: the scale, then each element. The library gives the scale of a format, and all outputs of the set's own rule
//! where the library has the rounding mode.

use crate::element::format::{CodeFormat, CodePlan};
use crate::element::input::{ExactInput, InputType};
use crate::element::modes::ElementRounding;
use crate::element::rule::ElementRule;
use crate::error::VectorsError;
use microscaling::{
    BlockFormat, ElementConversion, NonFinite, PackError, Packed, QuantizeError, Rounder,
    ScaleMode, SharedExpMethod, Subnormals,
};

/// The rule of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockConversion {
    pub(super) element: ElementRule,
    pub(super) scale: ScaleChange,
}

/// A change of scales by a neighbouring rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScaleChange {
    None,
    /// Another rule of OCP MX or its kin.
    Mode(ScaleMode),
    /// One code more where the largest magnitude is a power of two.
    OneMoreAtPowers,
    /// One code more where the largest magnitude lies between powers of two.
    OneMoreBetweenPowers,
    /// One code more, or less.
    Shifted(i32),
    /// A float's scale is not rounded half to even, but in this way.
    Rounded(ElementRounding),
    /// A block of subnormal inputs has the scale of the smallest normal input.
    SubnormalsAsNormal,
    /// NaN and Inf do not count for the scale.
    NanIgnored,
}

/// The outputs of a block.
pub(super) struct BlockCodes {
    pub(super) tensor_scale: u32,
    pub(super) scales: Vec<u8>,
    pub(super) codes: Vec<u32>,
    pub(super) values: Vec<f32>,
}

/// A block format with its type of inputs.
#[derive(Debug, Clone)]
pub(super) struct BlockModel {
    pub(super) format: BlockFormat,
    pub(super) input: InputType,
    /// The plans of elements and of scales that are floats; `None` where the library alone knows the block.
    pub(super) element: Option<CodePlan>,
    pub(super) scale: Option<CodePlan>,
}

impl BlockModel {
    pub(super) fn new(format: BlockFormat, input: InputType) -> Result<Self, VectorsError> {
        format
            .validate()
            .map_err(|error| PackError::from(QuantizeError::from(error)))?;
        let is_shared = format.shared_exp_method == SharedExpMethod::Max;
        let has_parts = format.other_scales().is_some();
        // A square of a tensor's blocks has rows of several blocks.
        let has_squares = format.square && format.tensor_scale;
        let is_modelled = is_shared
            && !(has_parts || has_squares || format.eden)
            && format.non_finite != NonFinite::TopExponent;
        let plan = CodeFormat::Element(format.element)
            .plan()
            .ok()
            .filter(|_| is_modelled);
        let scale = format.scale.float().filter(|_| is_modelled);
        let scale = scale
            .map(|float| CodeFormat::Element(float).plan())
            .transpose()?;
        Ok(Self {
            format,
            input,
            element: plan,
            scale,
        })
    }

    /// The numbers of patterns; subnormal ones are zero if they are flushed.
    pub(super) fn numbers(&self, patterns: &[u64], flush: bool) -> Vec<f32> {
        let number = |pattern: &u64| {
            let pattern = *pattern as u32;
            match self.input.number(pattern) {
                ExactInput::Finite {
                    subnormal: true,
                    negative,
                    ..
                } if flush => {
                    if negative {
                        -0.0
                    } else {
                        0.0
                    }
                }
                _ => self.input.to_f32(pattern),
            }
        };
        patterns.iter().map(number).collect()
    }

    fn shape(&self, count: usize) -> (Vec<usize>, usize) {
        match self.format.square {
            false => (vec![count], 0),
            true => {
                let side = self.format.block_size;
                (vec![count.div_ceil(side), side], 1)
            }
        }
    }

    pub(super) fn packed(
        &self,
        format: &BlockFormat,
        x: &[f32],
        rounding: ElementRounding,
    ) -> Result<Packed, PackError> {
        let rounder = match rounding {
            ElementRounding::TiesToAway => Rounder::NearestAway,
            ElementRounding::TowardZero => Rounder::TowardZero,
            // Elements of other modes are rounded by the model.
            _ => Rounder::NearestEven,
        };
        let (shape, axis) = self.shape(x.len());
        Packed::encode(*format, x, &shape, axis, rounder)
    }

    /// The format with this rule of elements, if the library has it.
    pub(super) fn of_library(&self, rule: &ElementRule) -> Option<BlockFormat> {
        let rounding = [
            ElementRounding::TiesToEven,
            ElementRounding::TiesToAway,
            ElementRounding::TowardZero,
        ];
        let is_of_caller = rounding.iter().any(|rounding| {
            let library = ElementRule {
                rounding: *rounding,
                flush_inputs: rule.flush_inputs,
                random_bits: rule.random_bits,
                ..ElementRule::default()
            };
            *rule == library
        });
        let format = BlockFormat {
            conversion: match is_of_caller {
                true => ElementConversion::LIBRARY,
                false => rule.conversion()?,
            },
            ..self.format
        };
        let flushes = self.format.subnormals == Subnormals::FlushElements;
        let is_flushed = !flushes || rule.flush_inputs || self.format.shifts.is_some();
        (is_flushed && format.validate().is_ok()).then_some(format)
    }

    /// The outputs for a block.
    pub(super) fn outputs(
        &self,
        patterns: &[u64],
        random: &[u64],
        rule: &BlockConversion,
    ) -> Result<BlockCodes, PackError> {
        let x = self.numbers(patterns, rule.element.flush_inputs);
        let format = match rule.scale {
            ScaleChange::Mode(scale_mode) => BlockFormat {
                scale_mode,
                ..self.format
            },
            _ => self.format,
        };
        let numbers: Vec<f32> = match rule.scale {
            ScaleChange::NanIgnored => x
                .iter()
                .map(|x| if x.is_finite() { *x } else { 0.0 })
                .collect(),
            _ => x.clone(),
        };
        let of_library = self.of_library(&rule.element);
        let format = BlockFormat {
            conversion: of_library.map_or(ElementConversion::LIBRARY, |own| own.conversion),
            ..format
        };
        let packed = self.packed(&format, &numbers, rule.element.rounding)?;
        let Some(plan) = &self.element else {
            if of_library.is_some() {
                return Ok(Self::codes(packed));
            }
            let lose = rule.element.lose_negative_zero;
            let sign = 1 << (self.format.element_bits() - 1);
            return Ok(Self::codes(
                packed.map_codes(|_, code| if lose && code == sign { 0 } else { code }),
            ));
        };
        let changed = !matches!(rule.scale, ScaleChange::None | ScaleChange::Mode(_));
        if of_library.is_some() && !changed {
            return Ok(Self::codes(packed));
        }
        let mut scales = packed.scales().to_vec();
        let tensor_scale = packed.tensor_scale();
        let size = match self.format.tensor_scale && self.format.block_size > 0 {
            true => self.format.block_size,
            false => x.len(),
        };
        let record = scales.len() / x.len().div_ceil(size);
        let largest = |block: &[f32]| block.iter().fold(0.0_f32, |amax, x| amax.max(x.abs()));
        for (block, scales) in numbers.chunks(size).zip(scales.chunks_mut(record)) {
            self.change_scale(scales, (largest(block), tensor_scale), rule.scale);
        }
        let is_flushed = match self.format.subnormals {
            Subnormals::FlushBlocks => largest(&numbers) < f32::MIN_POSITIVE,
            _ => false,
        };
        let has_shifts = self.format.shifts.is_some();
        let element = |i: usize| {
            let x = if is_flushed || has_shifts && x[i].is_subnormal() {
                0.0_f32.copysign(x[i])
            } else {
                x[i]
            };
            let block = &scales[i / size * record..][..record];
            let scaled = self.scaled((x, i % size), block, tensor_scale);
            let scaled = match self.format.non_finite {
                NonFinite::Elements => Some(scaled.unwrap_or(ExactInput::Nan)),
                _ => scaled,
            };
            scaled.map_or(0, |scaled| {
                rule.element
                    .convert(plan, scaled, random.get(i).copied().unwrap_or(0) as u32)
            })
        };
        let packed = Packed::from_parts(
            self.format,
            packed.shape(),
            packed.axis(),
            tensor_scale,
            scales.clone(),
            packed.elements().to_vec(),
        )?;
        Ok(Self::codes(packed.map_codes(|i, _| element(i))))
    }

    fn codes(packed: Packed) -> BlockCodes {
        BlockCodes {
            tensor_scale: packed.tensor_scale().map_or(0, f32::to_bits),
            scales: packed.scales().to_vec(),
            codes: packed.view().codes(),
            values: packed.decode(),
        }
    }

    /// An element, given its place in the block, in units of the scale; `None` in a block that is NaN.
    fn scaled(
        &self,
        (x, i): (f32, usize),
        record: &[u8],
        tensor_scale: Option<f32>,
    ) -> Option<ExactInput> {
        let code = self.scale_code(record)?;
        if self.format.has_exponent() {
            let scale = code as i32 - 127 - self.shift(record, i);
            return Some(match InputType::Float32.number(x.to_bits()) {
                ExactInput::Finite {
                    negative,
                    significand,
                    exponent,
                    ..
                } => ExactInput::Finite {
                    negative,
                    significand,
                    exponent: exponent - scale,
                    subnormal: false,
                },
                special => special,
            });
        }
        let scale = match self.format.scale.float() {
            Some(float) => float.decode(code),
            None => f32::from_bits(code),
        };
        let tensor_reciprocal = 1.0 / tensor_scale.unwrap_or(1.0);
        let reciprocal = tensor_reciprocal / scale;
        let scale = tensor_scale.unwrap_or(1.0) * scale;
        let divides =
            self.format.scale_mode == ScaleMode::MaxAbsFinite || !tensor_reciprocal.is_finite();
        if scale == 0.0 && !x.is_nan() {
            return Some(InputType::Float32.number(0.0_f32.copysign(x).to_bits()));
        }
        let scaled = if reciprocal.is_finite() && !divides {
            x * reciprocal
        } else {
            x / scale
        };
        Some(InputType::Float32.number(scaled.to_bits()))
    }
}
