//! The formats of the literature, and of hardware, by constants.

use super::BlockFormat;
use crate::format::{
    ElementConversion, ElementFormat, ElementOverflow, ElementRounding, FormatError, NonFinite,
    ScaleFormat, Shifts, SubScales, Subnormals,
};

impl BlockFormat {
    /// `mx4`, `mx6` and `mx9` of Rouhani et al., "With Shared Microexponents, A Little Shifting Goes a Long Way" (ISCA 2023), as AMD
    /// Quark computes them. OCP's MX formats are others. Elements of 2 mantissa bits and a sign, blocks of 16, pairs with
    /// a shift of one bit. This makes 4 bits for each element.
    pub const MX4: Self = Self::of_paper(2);
    /// `mx6`: as [`MX4`](Self::MX4) with 4 mantissa bits.
    pub const MX6: Self = Self::of_paper(4);
    /// `mx9`: as [`MX4`](Self::MX4) with 7 mantissa bits.
    pub const MX9: Self = Self::of_paper(7);
    /// `bfp16`: elements of 7 mantissa bits and a sign, in blocks of 8 (Quark's BFP16).
    pub const BFP16: Self = Self {
        non_finite: NonFinite::Kept,
        ..Self::mx(ElementFormat::sign_magnitude(7), 8)
    };
    /// `bfp16ebs8`, of AMD's XDNA2: two's complements of 8 bits in blocks of 8 that share the exponent field e of a float32, each m ·
    /// 2^(e − 133). Rounding goes toward −∞, the default of the chip; [`ElementRounding`] has its other modes. An m above 127 makes e grow by
    /// one, and the whole block is rounded again; −128 stays. Subnormal inputs are zero, and −0 is 0.
    pub const BFP16EBS8: Self = Self {
        non_finite: NonFinite::TopExponent,
        subnormals: Subnormals::FlushElements,
        conversion: ElementConversion {
            rounding: Some(ElementRounding::TowardNegative),
            overflow: ElementOverflow::Renormalize,
            negative_zero: false,
            ..ElementConversion::LIBRARY
        },
        ..Self::mx(ElementFormat::INT8, 8)
    };
    /// `nvfp4`: [NVFP4](Self::nvfp4) without a tensor scale.
    pub const NVFP4: Self = Self::nvfp4(false);
    /// `amdfp4`, of AMD Quark 0.12: FP4 in blocks of 16 with UE5M3 scales.
    pub const AMDFP4: Self = Self::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE5M3, 16);
    /// `amdfp4_g32`: the same in blocks of 32.
    pub const AMDFP4_G32: Self = Self::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE5M3, 32);
    /// `nvint4`, of arXiv 2510.25602: INT4 in blocks of 16 with UE4M3 scales and a tensor scale, as NVFP4 has them.
    pub const NVINT4: Self = Self {
        tensor_scale: true,
        ..Self::float_scale(ElementFormat::INT4, ScaleFormat::UE4M3, 16)
    };
    /// `nf4`, of QLoRA and bitsandbytes: [`ElementFormat::NF4`] in blocks of 64 with float32 scales.
    pub const NF4: Self = Self::float_scale(ElementFormat::NF4, ScaleFormat::FLOAT32, 64);
    /// `if4`, of arXiv 2603.28765: [`ElementFormat::IF4`] in blocks of 16 with UE4M3 scales, whose eighth bit is set where the block
    /// is of integers, and a tensor scale.
    pub const IF4: Self = Self {
        tensor_scale: true,
        ..Self::float_scale(ElementFormat::IF4, ScaleFormat::UE4M3, 16)
    };
    /// `razer`, of arXiv 2501.04052: [`ElementFormat::RAZER`] in blocks of 16 with UE4M3 scales, whose eighth bit is set where the
    /// block has a −5, and a tensor scale.
    pub const RAZER: Self = Self {
        tensor_scale: true,
        ..Self::float_scale(ElementFormat::RAZER, ScaleFormat::UE4M3, 16)
    };
    /// `hif4`, of arXiv 2602.11287: E1M2 in blocks of 64 with UE6M2 scales; a bit for each 8 elements and a bit for each 4 of
    /// these double the scale.
    pub const HIF4: Self = Self {
        sub_scales: SubScales::new(8, 4),
        ..Self::float_scale(ElementFormat::E1M2, ScaleFormat::UE6M2, 64)
    };

    /// `amxfp4`, of arXiv 2411.09909, as AMXFP4-FP8 of the authors' code: FP4 in blocks of 32. The positive and the negative elements each
    /// have a scale in UE5M2.
    pub const AMXFP4: Self = Self {
        sign_scales: true,
        ..Self::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE5M2, 32)
    };

    const fn of_paper(mantissa_bits: u32) -> Self {
        Self {
            shifts: Some(Shifts {
                block_size: 2,
                bits: 1,
            }),
            subnormals: Subnormals::FlushElements,
            ..Self::mx(ElementFormat::sign_magnitude(mantissa_bits), 16)
        }
    }

    /// Bits of an element of microexponents and block floating point as AMD Quark counts: with the sign and all 8 bits of the
    /// shared exponent.
    pub(crate) const BIT_WIDTHS: (usize, usize) = (10, 32);

    /// A microexponent format: elements of `bit_width` − 9 magnitude bits and a sign, a shift of `shift_bits` for each `sub_block_size`
    /// elements.
    ///
    /// # Errors
    /// [`FormatError::Field`] unless `bit_width` is 10 to 32, `block_size` at least 1,
    /// `sub_block_size` 1 to `block_size`, and `shift_bits` 0 to 8.
    pub const fn microexponent(
        bit_width: u32,
        block_size: usize,
        sub_block_size: usize,
        shift_bits: u32,
    ) -> Result<Self, FormatError> {
        let shifts = Some(Shifts {
            block_size: sub_block_size,
            bits: shift_bits,
        });
        Self {
            block_size,
            shifts,
            ..Self::MX9
        }
        .with_bit_width(bit_width)
    }

    /// A block floating point format: elements of `bit_width` − 9 magnitude bits and a sign.
    ///
    /// # Errors
    /// [`FormatError::Field`] unless `bit_width` is 10 to 32 and `block_size` at least 1.
    pub const fn bfp(bit_width: u32, block_size: usize) -> Result<Self, FormatError> {
        Self {
            block_size,
            ..Self::BFP16
        }
        .with_bit_width(bit_width)
    }

    /// The format with elements of this [width](Self::BIT_WIDTHS), in blocks and shifts that are allowed.
    pub(crate) const fn with_bit_width(mut self, bit_width: u32) -> Result<Self, FormatError> {
        let (got, allowed) = (bit_width as usize, Self::BIT_WIDTHS);
        if let Err(error) = FormatError::check(self.fixed_family(), "bit_width", got, allowed) {
            return Err(error);
        }
        self.element = match self.non_finite {
            NonFinite::TopExponent => {
                match ElementFormat::fixed(bit_width - 8, bit_width as i32 - 10) {
                    Ok(element) => element,
                    Err(error) => return Err(error),
                }
            }
            NonFinite::OfBlock | NonFinite::Kept | NonFinite::Elements => {
                ElementFormat::sign_magnitude(bit_width - 9)
            }
        };
        match self.validate_fixed_steps() {
            Ok(()) => Ok(self),
            Err(error) => Err(error),
        }
    }

    /// The family of a format with fixed steps, as errors name it.
    pub(super) const fn fixed_family(&self) -> &'static str {
        match self.shifts {
            Some(_) => "microexponent",
            None if matches!(self.non_finite, NonFinite::TopExponent) => "bfp16ebs8",
            None => "bfp",
        }
    }

    /// Bits of an element of microexponents and block floating point, as AMD Quark counts.
    pub(crate) const fn bit_width(&self) -> u32 {
        self.element.bits() + 8
    }
}
