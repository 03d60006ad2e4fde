//! Blocks whose scale is a float: NVFP4's kind, with any element, any block and any scale.

use crate::format::{
    ElementFormat, FormatError, Headroom, Nvfp4Format, OuterScale, ScaleFormat, SubScales,
};
use crate::round::bits;

/// Scales from here on leave no room for a tensor scale or an outer scale.
const LARGE_SCALE: f32 = 4_294_967_296.0;

/// Blocks of elements that share a float, as [`Nvfp4Format`] has them, and possibly a float32 of the whole tensor.
///
/// Let Q be the largest number of [`element`](Self::element), and C the largest number of [`scale`](Self::scale). Then t is 1 without a tensor scale,
/// otherwise t = (amax(tensor) / (C · Q)) · h, with h the [`headroom`](Self::headroom). A block's scale c is ((amax(block) / Q) / t) · h, limited to
/// the range of the scale's format and rounded to its numbers, half to even in every rounding mode. An element x becomes `q · (t · c)` with q =
/// round(x · ((1 / t) / c)) among the numbers of the element's format, saturating. Each of these operations rounds to float32. A block is NaN where t
/// · c is too large for it, which takes a Q of less than 2. [`Nvfp4Format`] describes NaN, Inf, zeros and small tensors otherwise. With
/// [sub-scales](SubScales) Q is 4 times the largest element, and each sub-block multiplies c by 1, 2 or 4. With an
/// [outer scale](OuterScale), t is the scale of a part of the tensor.
///
/// As text it is `block(element=fp4_e2m1,scale=ue5m3,block_size=32)`.
///
/// ```
/// use microscaling::{BlockFormat, ElementFormat, FloatScaleFormat, Rounder, ScaleFormat};
///
/// let format = FloatScaleFormat::new(ElementFormat::FP4_E2M1, ScaleFormat::UE5M3, 32);
/// let format = BlockFormat::from(format);
/// assert_eq!(format, "block(element=e2m1,scale=ue5m3,block_size=32)".parse()?);
/// assert_eq!(format.bits_per_element(), 4.25);
/// let mut x = [1.0, 100.0, 240.0, -9.0];
/// format.quantize(&mut x, &[4], 0, Rounder::NearestEven)?;
/// assert_eq!(x, [0.0, 80.0, 240.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FloatScaleFormat {
    /// Format of the elements, of at most 8 bits. With several [tables](ElementFormat::tables) each block has one, and Q is its
    /// largest magnitude.
    pub element: ElementFormat,
    /// Elements in a block; 0 makes the whole axis one block.
    pub block_size: usize,
    /// Format of a block's scale.
    pub scale: ScaleFormat,
    /// Whether a scale may be a subnormal number of its format, down to the smallest one; else it is at least the smallest normal
    /// number. [`ScaleFormat::FLOAT32`] has no subnormal scales.
    pub subnormal_scales: bool,
    /// Whether the tensor has a scale.
    pub tensor_scale: bool,
    /// The scales of tiles or channels, in place of a scale of the whole tensor.
    pub outer: Option<OuterScale>,
    /// Makes the blocks square, see [`MxFormat::square`](crate::MxFormat::square).
    pub square: bool,
    /// h: both scales are chosen as if every magnitude were multiplied by h.
    pub headroom: Headroom,
    /// The sub-scales of a block's parts.
    pub sub_scales: Option<SubScales>,
    /// Whether [`Rounding::Stochastic`](crate::Rounding::Stochastic) means MS-EDEN (arXiv 2601.22813). MS-EDEN rounds elements
    /// half to even. Then it multiplies the scales of [`EDEN_GROUP`](Self::EDEN_GROUP) elements by S = Σu² / Σu·q and rounds
    /// the scales stochastically. Here u and q are the elements before and after rounding, in units of their scales. After a
    /// random rotation ([`RandomHadamard`](crate::RandomHadamard)) the result is unbiased, with less noise than stochastic
    /// rounding of each element. Other roundings ignore this field. A tensor that MS-EDEN has rounded can't be packed.
    pub eden: bool,
    /// Whether the scale of a block is the better one of two, see [`Nvfp4Format::four_over_six`]. Only for `fp4_e2m1`
    /// with scales `ue4m3`.
    pub four_over_six: bool,
}

impl FloatScaleFormat {
    /// `amdfp4`, of AMD Quark 0.12: FP4 in blocks of 16 with UE5M3 scales.
    pub const AMDFP4: Self = Self::new(ElementFormat::FP4_E2M1, ScaleFormat::UE5M3, 16);
    /// `amdfp4_g32`: the same in blocks of 32.
    pub const AMDFP4_G32: Self = Self::new(ElementFormat::FP4_E2M1, ScaleFormat::UE5M3, 32);
    /// `nvint4`, of arXiv 2510.25602: INT4 in blocks of 16 with UE4M3 scales and a tensor scale, as NVFP4 has them.
    pub const NVINT4: Self = Self {
        tensor_scale: true,
        ..Self::new(ElementFormat::INT4, ScaleFormat::UE4M3, 16)
    };

    /// `nf4`, of QLoRA and bitsandbytes: [`ElementFormat::NF4`] in blocks of 64 with float32 scales.
    pub const NF4: Self = Self::new(ElementFormat::NF4, ScaleFormat::FLOAT32, 64);
    /// `if4`, of arXiv 2603.28765: [`ElementFormat::IF4`] in blocks of 16 with UE4M3 scales, whose eighth bit is set where the block
    /// is of integers, and a tensor scale.
    pub const IF4: Self = Self {
        tensor_scale: true,
        ..Self::new(ElementFormat::IF4, ScaleFormat::UE4M3, 16)
    };
    /// `razer`, of arXiv 2501.04052: [`ElementFormat::RAZER`] in blocks of 16 with UE4M3 scales, whose eighth bit is set where the
    /// block has a −5, and a tensor scale.
    pub const RAZER: Self = Self {
        tensor_scale: true,
        ..Self::new(ElementFormat::RAZER, ScaleFormat::UE4M3, 16)
    };

    /// `hif4`, of arXiv 2602.11287: E1M2 in blocks of 64 with UE6M2 scales; a bit for each 8 elements and a bit for each 4 of
    /// these double the scale.
    pub const HIF4: Self = Self {
        sub_scales: SubScales::new(8, 4),
        ..Self::new(ElementFormat::E1M2, ScaleFormat::UE6M2, 64)
    };

    /// Elements along the axis whose scales MS-EDEN corrects together.
    pub const EDEN_GROUP: usize = 128;

    /// Blocks along one axis, with subnormal scales, without a tensor scale or headroom.
    pub const fn new(element: ElementFormat, scale: ScaleFormat, block_size: usize) -> Self {
        Self {
            element,
            block_size,
            scale,
            subnormal_scales: true,
            tensor_scale: false,
            outer: None,
            square: false,
            headroom: Headroom::NONE,
            sub_scales: None,
            eden: false,
            four_over_six: false,
        }
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// * [`FormatError::FloatScaleElement`]: an element of more than 8 bits, or one with very large or very small numbers.
    /// * [`FormatError::FloatScaleField`]: a tensor scale beside scales of at least 2^32, four over six for other elements or
    ///   scales than NVFP4's, or square blocks as long as the axis. MS-EDEN is an error without a tensor scale, for tables, for
    ///   square blocks, with four over six, and for blocks that do not divide its group.
    /// * [`FormatError::SubScales`]: sub-scales that do not divide the blocks, or beside a field that excludes them.
    /// * [`FormatError::OuterScale`]: an outer scale whose parts are not whole blocks, or beside a field that excludes an outer scale.
    pub fn validate(&self) -> Result<(), FormatError> {
        let Self { element, scale, .. } = *self;
        let is_too_fine = element.min_subnormal() < f32::from_bits(bits::pow2(-32));
        if element.bits() > 8 || is_too_fine || !(0..=32).contains(&element.emax()) {
            return Err(FormatError::FloatScaleElement { got: element });
        }
        let refused = |field, allowed| Err(FormatError::FloatScaleField { field, allowed });
        if let Some(outer) = self.outer {
            self.validate_outer_scale(outer)?;
        }
        if self.tensor_scale && scale.max() >= LARGE_SCALE {
            return refused(
                "tensor_scale",
                "false with a scale that is as large as float32's",
            );
        }
        let is_nvfp4 = element == ElementFormat::FP4_E2M1 && scale == ScaleFormat::UE4M3;
        if self.four_over_six && !is_nvfp4 {
            return refused(
                "four_over_six",
                "false, but with element fp4_e2m1 and scale ue4m3",
            );
        }
        if self.square && self.block_size == 0 {
            return refused("square", "false with block_size 0");
        }
        let divides = self.block_size > 0 && Self::EDEN_GROUP.is_multiple_of(self.block_size);
        let has_eden = self.tensor_scale && !self.square && !self.four_over_six && divides;
        if self.eden && (!has_eden || element.is_table() || self.sub_scales.is_some()) {
            return refused(
                "eden",
                "false, but with a tensor scale, a block_size that divides 128 and no square blocks, tables, four_over_six, sub_scales",
            );
        }
        self.sub_scales
            .map_or(Ok(()), |sub| self.validate_sub_scales(sub))
    }

    fn validate_outer_scale(&self, got: OuterScale) -> Result<(), FormatError> {
        let is_of_blocks = self.block_size > 0 && got.size.is_multiple_of(self.block_size);
        let alone = !self.tensor_scale && !self.square && !self.four_over_six && !self.eden;
        if is_of_blocks
            && alone
            && self.sub_scales.is_none()
            && !self.element.is_table()
            && self.scale.max() < LARGE_SCALE
        {
            return Ok(());
        }
        Err(FormatError::OuterScale {
            got,
            allowed: "a multiple of block_size, or 0 for the whole axis, of elements that are no table, beside a scale below 2^32 and no tensor_scale, square, four_over_six, sub_scales or eden",
        })
    }

    fn validate_sub_scales(&self, got: SubScales) -> Result<(), FormatError> {
        let [first, second] = got.block_sizes();
        let divides = self.block_size.is_multiple_of(first) && first.is_multiple_of(second);
        let alone = !self.tensor_scale && !self.square && !self.four_over_six;
        if (1..=1024).contains(&self.block_size)
            && divides
            && alone
            && !self.element.is_table()
            && self.scale.mantissa_bits() <= 7
        {
            return Ok(());
        }
        Err(FormatError::SubScales {
            got,
            allowed: "two lengths that divide block_size, which is at most 1024, and the one before, of elements that are no table, beside a scale of at most 7 mantissa bits and no tensor_scale, square or four_over_six",
        })
    }

    /// Q: the largest magnitude of a block in units of its scale.
    pub const fn largest_unit(&self) -> f32 {
        match self.sub_scales {
            Some(_) => 4.0 * self.element.max(),
            None => self.element.max(),
        }
    }

    /// Bits of the code of a block's scale, and above it of the number of the block's table if the element has several.
    pub const fn scale_bits(&self) -> u32 {
        let selector_bits = match self.element.as_tables() {
            Some(tables) => tables.selector_bits(),
            None => 0,
        };
        self.scale.bits() + selector_bits
    }

    /// The smallest scale.
    pub const fn scale_min(&self) -> f32 {
        match self.subnormal_scales {
            true => self.scale.min(),
            false => f32::from_bits(bits::pow2(self.scale.emin())),
        }
    }

    /// The largest magnitude in units of the tensor scale: C · Q, of four over six 256 · 6, as 1.5 · 256 is an E4M3 number, and of
    /// MS-EDEN 4/7 · C · Q, which is 256 · 6 of NVFP4, so that corrected scales are not clipped.
    pub const fn tensor_max(&self) -> f32 {
        let scale = if self.four_over_six {
            256.0
        } else if self.eden {
            self.scale.max() * 4.0 / 7.0
        } else {
            self.scale.max()
        };
        scale * self.element.max()
    }
}

impl From<Nvfp4Format> for FloatScaleFormat {
    fn from(format: Nvfp4Format) -> Self {
        let Nvfp4Format {
            tensor_scale,
            square,
            headroom,
            four_over_six,
        } = format;
        Self {
            subnormal_scales: false,
            tensor_scale,
            square,
            headroom,
            four_over_six,
            ..Self::new(
                ElementFormat::FP4_E2M1,
                ScaleFormat::UE4M3,
                Nvfp4Format::BLOCK_SIZE,
            )
        }
    }
}
