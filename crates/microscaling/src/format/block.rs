//! Block formats: one description of them all.

mod constants;
pub(super) mod conversion;
pub(super) mod headroom;
pub(super) mod outer_scale;
pub(super) mod scale;
pub(super) mod scale_format;
pub(super) mod special;
pub(super) mod sub_scales;
mod validate;

use crate::format::{
    ElementConversion, ElementFormat, FieldValue, Headroom, NonFinite, OuterScale, ScaleFormat,
    ScaleMode, SharedExpMethod, Shifts, SubScales, Subnormals,
};
use crate::round::bits;

/// A block format, with all its parameters: blocks of elements that share a scale.
///
/// A block is [`block_size`](Self::block_size) consecutive elements along one axis, or a [square](Self::square). The last block of an
/// axis may be shorter. The largest magnitude of a block, or all of its magnitudes, give its scale. An element x becomes q · s.
/// Here s is the scale, and q is x / s, rounded to the numbers of [`element`](Self::element); larger ones saturate. −0 stays −0. A
/// negative number that rounds to zero becomes −0. A block of zeros stays zero.
///
/// # Scales that are powers of two
///
/// OCP MX v1.0, section 5: the scale is 2^s, see [`scale_exponent`](Self::scale_exponent). A block with a NaN or an Inf is all NaN.
///
/// With [`shifts`](Self::shifts) the format is a microexponent format, and with [`NonFinite::Kept`] a block floating point
/// format, as AMD Quark computes them in `to_bfp_prime` and `to_bfp`. Their elements are a sign and m magnitude bits. E is the biased exponent of
/// the largest magnitude (the exponent field of the float32, so 0 for a subnormal), of block floating point the largest finite
/// magnitude. A sub-block of a microexponent format has a shift d, the distance from E to its own biased exponent, at most
/// [`Shifts::largest`]; elsewhere d is 0. An element x becomes
/// `round(x / u) · u` with u = 2^(E − 127 − d − (m − 1)), and saturates at ±(2^m − 1) · u. (Quark lets rounding run over to 2^m,
/// which m bits cannot represent.) Nothing overflows.
///
/// # Scales that are floats
///
/// NVFP4's kind, with any element, any block and any scale. Let Q be the largest number of [`element`](Self::element), and C the
/// largest number of [`scale`](Self::scale). Then t is 1 without a tensor scale, otherwise t = (amax(tensor) / (C · Q)) · h, with h
/// the [`headroom`](Self::headroom) as a float32. A block's scale c is ((amax(block) / Q) / t) · h, limited to the range of the scale's format
/// and rounded to its numbers, half to even in every rounding mode. An element x becomes `q · (t · c)` with q = round(x · ((1 / t) /
/// c)) among the numbers of the element's format, saturating. Each of these operations rounds to float32. Where (1 / t) / c
/// overflows, in tensors below about 2^−116, q is round(x / (t · c)). A block is NaN where t · c is too large for it, which takes a
/// Q of less than 2. With [sub-scales](Self::sub_scales) Q is 4 times the largest element, and each sub-block multiplies c by
/// 1, 2 or 4. With an [outer scale](Self::outer), t is the scale of a part of the tensor.
///
/// Without a tensor scale a block with a NaN or an Inf is all NaN. With a tensor scale the whole tensor is NaN, because
/// all blocks share t. A tensor of zeros stays zero (torchao makes it NaN), and so does one so small that t or t · c is
/// zero. The product q · (t · c) overflows to ±Inf in one case only: headroom or four over six lets an element round up in a tensor
/// in the highest two binades of float32.
///
/// With a tensor scale and headroom, the codes of the blocks' scales hardly change, and t is h times as large. In arXiv
/// 2601.22813, section 3.1, h is 17/16: E4M3 rounds a scale down by at most this factor, except for scales below 2^−6, which NVFP4
/// does not have.
///
/// # As text
///
/// The text form (`FromStr`, `Display`, serde) is one of [`NAMES`](Self::NAMES), Quark's name (`MXFP8E4M3`, `MX6`,
/// `BFP16`, …), or a family with parameters:
/// * `mx(element=int4,block_size=16,scale_mode=rceil)`, where all but the element may be left out: `block_size`
///   (32), `scale_bits` (8), `scale_mode`, `shared_exp_method`, `flush_fp32_subnorms`, `square`, `headroom`, `sign_scales`;
/// * `bfp16ebs8(rounding=even)`, where omitted parameters are as in [`BFP16EBS8`](Self::BFP16EBS8): `bit_width`, `block_size`,
///   `rounding`;
/// * `bfp(bit_width=12,block_size=16)`, where omitted parameters are as in `bfp16`;
/// * `microexponent(bit_width=13,block_size=32,sub_block_size=4,shift_bits=2)`, else as in `mx9`;
/// * `nvfp4(tensor_scale=true,square=true,headroom=17/16,four_over_six=true)`; a field that is left out has the value
///   of `nvfp4`. With `block_size` or `scale` it is a `block` without subnormal scales: `nvfp4(block_size=32,scale=ue5m3)`;
/// * `block(element=e2m1,scale=ue5m3,block_size=32)`, any element with any scale: `e8m0`, which is MX, or a
///   [`ScaleFormat`]. Optional parameters are `block_size` (32), `square`, `headroom` and `sign_scales`. With
///   `e8m0`, `scale_mode` is optional, too; with a float, `scale_mode=max_abs_finite`, `non_finite=elements`, `tensor_scale`, `subnormal_scales` (true), `four_over_six`,
///   `sub_scales`, `eden`, `outer_size` and `outer_scale` (float32) are.
///
/// `mx` and `block` have the switches of hardware, too, see [`ElementConversion`]: `rounding`, `random_bits`, `overflow` (saturate,
/// infinity, nan), `flush_inputs`, `flush_outputs`, `negative_zero` (true). Elements and scales may be formats of P3109, such as
/// `binary8p4se` and `binary8p1uf`.
///
/// `block` and `sub_block` are understood too.
///
/// ```
/// use microscaling::{BlockFormat, ElementFormat, Rounder, ScaleFormat};
///
/// let mxfp4: BlockFormat = "mxfp4".parse()?;
/// assert_eq!(mxfp4, BlockFormat::mx(ElementFormat::FP4_E2M1, 32));
/// assert_eq!(mxfp4.bits_per_element(), 4.25);
///
/// let format = BlockFormat::float_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE5M3, 32);
/// assert_eq!(format, "block(element=e2m1,scale=ue5m3,block_size=32)".parse()?);
/// let mut x = [1.0, 100.0, 240.0, -9.0];
/// format.quantize(&mut x, &[4], 0, Rounder::NearestEven)?;
/// assert_eq!(x, [0.0, 80.0, 240.0, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockFormat {
    /// Format of the elements. With several [tables](ElementFormat::tables) each block has one, and Q is its largest magnitude.
    pub element: ElementFormat,
    /// Elements that share a scale; 0 makes the whole axis one block. The concrete formats of OCP MX v1.0 have 32.
    pub block_size: usize,
    /// Makes the blocks square: `block_size` × `block_size` elements, shorter at the ends of either axis. The two axes
    /// are the axis that blocks lie along and the axis before it, or after it if there is none before. A quantized
    /// matrix is then the same along either axis, and its transpose is the quantized transpose. Recipes of the
    /// literature have square blocks for weights, which products read along both axes.
    pub square: bool,
    /// Format of a block's scale.
    pub scale: ScaleFormat,
    /// How a scale that is a power of two follows from the magnitudes; [`MaxAbsFinite`](ScaleMode::MaxAbsFinite) is of scales that are
    /// floats.
    pub scale_mode: ScaleMode,
    /// Whether the elements of a block share a scale at all.
    pub shared_exp_method: SharedExpMethod,
    /// Whether a scale that is a float may be a subnormal number of its format, down to the smallest one; else it is at least the
    /// smallest normal number. [`ScaleFormat::FLOAT32`] has no subnormal scales.
    pub subnormal_scales: bool,
    /// h: the scale is chosen as if every magnitude were multiplied by h, see [`scale_exponent`](Self::scale_exponent).
    pub headroom: Headroom,
    /// Whether the scale of a block is the better one of two (arXiv 2512.02010 and its code), under which its largest magnitude
    /// becomes 6 or 4. Only for elements `fp4_e2m1` with scales `ue4m3`.
    ///
    /// c₆ is c as above. c₄ follows from ((amax(block) / 6) / t) · h · 1.5, so that the largest magnitude becomes about 4, where
    /// the grid is finer than next to 6. The block has c₄ if its squared error is less, else c₆; [`block_scale_of`](Self::block_scale_of)
    /// defines the error. t is amax(tensor) / (256 · 6), as 1.5 · 256 is an E4M3 number. Both errors are computed with rounding half
    /// to even, in every rounding mode. So the draws of stochastic rounding do not choose the scale, and the result stays unbiased.
    /// (In the authors' code the draws choose the scale.)
    pub four_over_six: bool,
    /// Whether [`Rounding::Stochastic`](crate::Rounding::Stochastic) means MS-EDEN (arXiv 2601.22813). MS-EDEN rounds elements
    /// half to even. Then it multiplies the scales of [`EDEN_GROUP`](Self::EDEN_GROUP) elements by S = Σu² / Σu·q and rounds
    /// the scales stochastically. Here u and q are the elements before and after rounding, in units of their scales. After a
    /// random rotation ([`RandomHadamard`](crate::RandomHadamard)) the result is unbiased, with less noise than stochastic
    /// rounding of each element. Other roundings ignore this field. A tensor that MS-EDEN has rounded can't be packed.
    pub eden: bool,
    /// Bits that double the scale of a block's parts.
    pub sub_scales: Option<SubScales>,
    /// Whether a block has two scales: one for its positive elements, and one for its negative elements (AMXFP4, arXiv 2411.09909).
    ///
    /// The rule of the format makes each scale from the largest magnitude among the elements of its sign. A 0 belongs to its sign bit. A
    /// sign without elements has the scale of a block of zeros; no number depends on this scale. A NaN or Inf of any sign makes all of its
    /// block NaN. So does a scale of either sign that is too large. A tensor scale follows from all elements of the tensor.
    ///
    /// A [`Packed`](crate::Packed) block has the codes of both scales, first the code for the positive elements.
    /// [`Statistics`](crate::Statistics) see the scale for the sign of a block's largest magnitude. An element saturates there if it is
    /// beyond the largest number of both signs.
    ///
    /// Elements must have signs, and no tables. The scale mode is `floor`, `ceil`, `even` or `rceil`. Square blocks, sub-scales, shifts,
    /// outer scales, four over six, MS-EDEN and [`NonFinite::Elements`] exclude scales by sign.
    pub sign_scales: bool,
    /// Shifts that make the scale of a block's parts smaller.
    pub shifts: Option<Shifts>,
    /// Whether the tensor has a float32 scale, too.
    pub tensor_scale: bool,
    /// The scales of tiles or channels, in place of a scale of the whole tensor.
    pub outer: Option<OuterScale>,
    /// The treatment of float32 subnormals.
    pub subnormals: Subnormals,
    /// The effect of NaN and Inf on their block.
    pub non_finite: NonFinite,
    /// Switches of hardware: rounding modes, overflow, subnormal elements and −0.
    pub conversion: ElementConversion,
}

impl BlockFormat {
    /// Elements along the axis whose scales MS-EDEN corrects together.
    pub const EDEN_GROUP: usize = 128;

    /// A format of OCP MX: 8 scale bits, scale mode `floor`, method `max`, no flush, no headroom. `block_size` counts
    /// elements, 0 makes the whole axis one block.
    pub const fn mx(element: ElementFormat, block_size: usize) -> Self {
        Self::with_scale(element, ScaleFormat::E8M0, block_size)
    }

    /// Blocks along one axis whose scale is a float, with subnormal scales, without a tensor scale or headroom.
    pub const fn float_scale(
        element: ElementFormat,
        scale: ScaleFormat,
        block_size: usize,
    ) -> Self {
        Self {
            subnormal_scales: true,
            ..Self::with_scale(element, scale, block_size)
        }
    }

    /// NVIDIA's NVFP4 (as torchao computes it), with or without a tensor scale: blocks of 16 [`FP4_E2M1`](ElementFormat::FP4_E2M1)
    /// elements with a scale in E4M3 of 2^−6 to 448, without headroom.
    pub const fn nvfp4(tensor_scale: bool) -> Self {
        Self {
            tensor_scale,
            ..Self::with_scale(ElementFormat::FP4_E2M1, ScaleFormat::UE4M3, 16)
        }
    }

    const fn with_scale(element: ElementFormat, scale: ScaleFormat, block_size: usize) -> Self {
        Self {
            element,
            block_size,
            square: false,
            scale,
            scale_mode: ScaleMode::Floor,
            shared_exp_method: SharedExpMethod::Max,
            subnormal_scales: false,
            headroom: Headroom::NONE,
            four_over_six: false,
            eden: false,
            sub_scales: None,
            sign_scales: false,
            shifts: None,
            tensor_scale: false,
            outer: None,
            subnormals: Subnormals::Kept,
            non_finite: NonFinite::OfBlock,
            conversion: ElementConversion::LIBRARY,
        }
    }

    /// Whether scales are powers of two. Otherwise they are floats.
    pub const fn has_exponent(&self) -> bool {
        self.scale.is_exponent()
    }

    /// Whether elements are a sign and a magnitude in steps that the block's exponent fixes, as in microexponents and block floating
    /// point.
    pub const fn has_fixed_steps(&self) -> bool {
        self.shifts.is_some() || matches!(self.non_finite, NonFinite::Kept | NonFinite::TopExponent)
    }

    /// Whether every number is an element times the scale of its block, beside a tensor scale. Sub-scales, shifts, outer scales, scales
    /// by sign, a scale for each element, block floating point, and elements by tables are not such formats. `bfp16ebs8` is one, but for blocks with
    /// NaN or Inf.
    pub fn is_element_times_scale(&self) -> bool {
        let is_shared = self.shared_exp_method == SharedExpMethod::Max;
        let is_alone = self.other_scales().is_none();
        let is_product = !self.has_fixed_steps() || self.non_finite == NonFinite::TopExponent;
        is_shared && is_alone && is_product && !self.element.is_table()
    }

    /// The allowed formats, for the error of a tool that knows one scale a block.
    #[doc(hidden)]
    pub const ONE_SCALE: &'static str = "an MX format, or one with a float for a scale and no tables, sub_scales, sign_scales, eden or outer_size";

    /// The first field that gives blocks other scales beside their own one, and its value. A tool that knows one scale a block refuses
    /// such a format, and names the field. Shifts, and the scale of the tensor, are not such fields.
    #[doc(hidden)]
    pub fn other_scales(&self) -> Option<(&'static str, FieldValue)> {
        let outer = self.outer.map(|outer| u32::try_from(outer.size));
        let outer = outer.map(|size| ("outer_size", FieldValue::Number(size.unwrap_or(u32::MAX))));
        let sub_scales = self.sub_scales.map(FieldValue::SubScales);
        let sub_scales = sub_scales.map(|own| ("sub_scales", own));
        let sign_scales = self.sign_scales.then(|| ("sign_scales", true.into()));
        outer.or(sub_scales).or(sign_scales)
    }

    /// Whether this is an [MX format](Self::mx), with any parameters: powers of two for scales, and elements of any format.
    pub const fn is_mx(&self) -> bool {
        self.has_exponent() && !self.has_fixed_steps()
    }

    /// Whether this is [`nvfp4`](Self::nvfp4), but for the tensor scale, square blocks, headroom and four over six.
    pub fn is_nvfp4(&self) -> bool {
        let nvfp4 = Self {
            square: self.square,
            headroom: self.headroom,
            four_over_six: self.four_over_six,
            ..Self::nvfp4(self.tensor_scale)
        };
        *self == nvfp4
    }

    /// Elements along the axis that quantization looks at together: a block, the part of an [outer scale](crate::OuterScale), or a
    /// single element if elements share no scale. 0 is the whole axis. A [square](Self::square) block has as many along its other axis.
    pub const fn group_size(&self) -> usize {
        match (self.shared_exp_method, self.outer) {
            (SharedExpMethod::None, _) => 1,
            (SharedExpMethod::Max, Some(outer)) => outer.size,
            (SharedExpMethod::Max, None) => self.block_size,
        }
    }

    /// Elements along the axis that share a block's own scale. Differs from [`block_size`](Self::block_size) without a shared scale
    /// only.
    pub const fn scale_block_size(&self) -> usize {
        match self.shared_exp_method {
            SharedExpMethod::None => 1,
            SharedExpMethod::Max => self.block_size,
        }
    }

    /// Bits of an element's own code, without any scale.
    pub const fn element_bits(&self) -> u32 {
        self.element.bits()
    }

    /// Whether element codes have a −0. Packing makes 0 of −0 where they have none.
    pub const fn has_negative_zero(&self) -> bool {
        self.element.has_negative_zero()
    }

    /// The most significant bits that a quantized value has, with any block scale and without the tensor scale, as bits
    /// of a float's significand. Values of at most 8 bits are bfloat16 numbers, if they are not too small.
    pub const fn significant_bits(&self) -> u32 {
        let element = self.element.mantissa_bits() + 1;
        if self.has_exponent() {
            return element;
        }
        let outer = match self.outer {
            // A power of two leaves the others as they are.
            Some(outer) if outer.scale.mantissa_bits() > 0 => outer.scale.mantissa_bits() + 1,
            _ => 0,
        };
        element + self.scale.mantissa_bits() + 1 + outer
    }

    /// Bits of the code of a block's scale, and above it of the number of the block's table if the element has several.
    pub const fn scale_bits(&self) -> u32 {
        let selector_bits = match self.element.as_tables() {
            Some(tables) => tables.selector_bits(),
            None => 0,
        };
        self.scale.bits() + selector_bits
    }

    /// Bits that an element takes in a full block, with its part of the block's scale and shifts. A
    /// tensor scale is not counted, nor is the scale of a block or of a part as long as its axis (size 0).
    ///
    /// The format must be [valid](Self::validate).
    pub fn bits_per_element(&self) -> f64 {
        let block_size = self.scale_block_size();
        let sub_bits = self.sub_scales.map_or([0; 2], |sub| sub.bits(block_size));
        let bits = self.scale_bits() as usize + sub_bits[0] + sub_bits[1];
        let scale_bits = match (self.has_exponent(), self.shifts) {
            (_, Some(shifts)) => {
                let sub_blocks = block_size.div_ceil(shifts.block_size);
                8.0 + f64::from(shifts.bits) * sub_blocks as f64
            }
            (true, None) => bits as f64,
            (false, None) => bits.next_multiple_of(8) as f64,
        };
        let scale_bits = match self.sign_scales {
            true => 2.0 * scale_bits,
            false => scale_bits,
        };
        let elements = match self.square {
            true => block_size as f64 * block_size as f64,
            false => block_size as f64,
        };
        let scale_bits = match block_size {
            0 => 0.0,
            _ => scale_bits / elements,
        };
        let outer_bits = self.outer.map_or(0.0, |outer| match outer.size {
            0 => 0.0,
            size => f64::from(outer.scale.bits().next_multiple_of(8)) / size as f64,
        });
        f64::from(self.element_bits()) + scale_bits + outer_bits
    }

    /// Q: the largest magnitude of a block in units of its scale; 1 in scale mode `max_abs_finite`.
    pub const fn largest_unit(&self) -> f32 {
        match (self.sub_scales, self.scale_mode) {
            (Some(_), _) => 4.0 * self.element.max(),
            (None, ScaleMode::MaxAbsFinite) => 1.0,
            (None, _) => self.element.max(),
        }
    }

    /// The smallest scale that is a float.
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
