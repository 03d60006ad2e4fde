//! Packed tensors: the bytes that a format really takes.

use super::codes::bitstream::Writer;
use super::encode::Encoder;
use super::encode::source::Source;
use super::number::EncodeNumber;
use super::plan::{Bytes, Plan};
use super::view::PackedView;
use crate::format::{BlockFormat, NonFinite};
use crate::pack::PackError;
use crate::quantize::largest::largest;
use crate::quantize::layout::Runs;
use crate::round::bits::{self, INFINITY};
use crate::round::mode::{Rounder, Rounding};
use alloc::{string::ToString, vec, vec::Vec};
use microscaling_processor::float_state::ieee;
use microscaling_processor::threads::share_all;

/// A tensor as scales and packed element codes, in any [`BlockFormat`]. The byte layout is in the
/// crate's README.
///
/// [`decode`](Self::decode) gives the result of [`BlockFormat::quantize`], bit for bit, with one exception: elements [without a
/// −0](BlockFormat::has_negative_zero), such as integers, give 0 where quantizing gives −0. BFP has no codes for NaN and Inf,
/// so [`encode`](Self::encode) refuses them.
///
/// ```
/// use microscaling::{BlockFormat, Packed, Rounder};
///
/// let mxfp4: BlockFormat = "mxfp4".parse()?;
/// let tensor = [1.0, 2.4, -5.1, 7.9];
/// let packed = Packed::encode(mxfp4, &tensor, &[4], 0, Rounder::NearestEven)?;
/// assert_eq!(packed.scales(), [127]); // 2^0
/// assert_eq!(packed.elements(), [0x42, 0x7f]); // codes 2, 4, f, 7
/// assert_eq!(packed.decode(), [1.0, 2.0, -6.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Packed {
    format: BlockFormat,
    shape: Vec<usize>,
    axis: usize,
    /// As a pattern.
    tensor_scale: Option<u32>,
    /// As a pattern: scales are divided by this number, in place of a product with the tensor scale.
    divisor: Option<u32>,
    scales: Vec<u8>,
    elements: Vec<u8>,
}

impl Packed {
    /// Quantizes and packs a tensor without changing `data`. The arguments are as in [`BlockFormat::quantize`].
    ///
    /// # Errors
    /// * [`PackError::Quantize`]: the errors of [`BlockFormat::quantize`].
    /// * [`PackError::NotFinite`]: a NaN or Inf in BFP, which passes them but has no code for them.
    /// * [`PackError::Eden`]: stochastic rounding by [MS-EDEN](crate::BlockFormat::eden).
    /// * [`PackError::SizeOverflow`]: the number of bytes overflows.
    pub fn encode(
        format: BlockFormat,
        data: &[f32],
        shape: &[usize],
        axis: usize,
        rounder: Rounder,
    ) -> Result<Self, PackError> {
        Self::encode_from(format, data, shape, axis, rounder)
    }

    /// [`encode`](Self::encode) for a tensor in any of these number types. The bytes are the same as for the elements
    /// converted to float32. A few thousand elements are converted at a time, or one row of blocks if this is more.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode).
    pub fn encode_from<T: EncodeNumber>(
        format: BlockFormat,
        data: &[T],
        shape: &[usize],
        axis: usize,
        rounder: Rounder,
    ) -> Result<Self, PackError> {
        Self::encode_source(format, &data, shape, axis, rounder, None)
    }

    /// [`encode`](Self::encode) for a part of a tensor, such as the rows of one of several [fused layers](crate::FusedLayers). `largest` is
    /// the largest magnitude of the whole tensor, from which the tensor scale follows; NaN if the tensor has one. A format
    /// without a tensor scale gives the bytes of [`encode`](Self::encode).
    ///
    /// ```
    /// use microscaling::{BlockFormat, Packed, Rounder::NearestEven};
    ///
    /// let (nvfp4, q, k) = (BlockFormat::nvfp4(true), [8.0; 16], [0.5; 16]);
    /// let whole = Packed::encode(nvfp4, &[q, k].concat(), &[2, 16], 1, NearestEven)?;
    /// let part = Packed::encode_part(nvfp4, &k, &[1, 16], 1, NearestEven, 8.0)?;
    /// assert_eq!(part.tensor_scale(), whole.tensor_scale());
    /// assert_eq!(part.decode(), whole.decode()[16..]);
    /// # Ok::<(), microscaling::PackError>(())
    /// ```
    ///
    /// # Errors
    /// * The errors of [`encode`](Self::encode).
    /// * [`PackError::Largest`]: an element is larger than `largest`.
    pub fn encode_part(
        format: BlockFormat,
        data: &[f32],
        shape: &[usize],
        axis: usize,
        rounder: Rounder,
        largest: f32,
    ) -> Result<Self, PackError> {
        // A format without NaN refuses the data, with the position.
        if format.non_finite != NonFinite::Kept || data.iter().all(|x| x.is_finite()) {
            check_largest(data, largest)?;
        }
        let largest = Some(largest.abs().to_bits());
        Self::encode_source(format, &data, shape, axis, rounder, largest)
    }

    /// [`encode_from`](Self::encode_from), compiled once for all number types. `largest` is the pattern of the largest magnitude of the
    /// tensor that the data are a part of.
    fn encode_source(
        format: BlockFormat,
        source: &dyn Source,
        shape: &[usize],
        axis: usize,
        rounder: Rounder,
        largest: Option<u32>,
    ) -> Result<Self, PackError> {
        let plan = Plan::new(&format, shape, axis)?;
        source.check_length(shape)?;
        if format.eden && rounder.rounding() == Rounding::Stochastic {
            return Err(PackError::Eden);
        }
        if format.non_finite == NonFinite::Kept
            && source.largest() >= INFINITY
            && let Some(position) = source.not_finite()
        {
            return Err(PackError::NotFinite {
                format: "bfp",
                position,
            });
        }
        let tensor_scale = format.tensor_scale(|| largest.unwrap_or_else(|| source.largest()));
        let mut packed = Self {
            format,
            shape: shape.to_vec(),
            axis,
            tensor_scale: tensor_scale.map(f32::to_bits),
            divisor: None,
            scales: vec![0; plan.scales_len],
            elements: vec![0; plan.elements_len],
        };
        if plan.count == 0 {
            return Ok(packed);
        }
        let runs = Runs::of(plan.layout);
        let bytes = Bytes {
            plan: &plan,
            bits: format.element_bits(),
            runs,
            range: runs.all_of(plan.count),
            scales: &mut packed.scales,
            elements: &mut packed.elements,
        };
        let encoder = Encoder::new(&format, tensor_scale, &plan, rounder);
        share_all(bytes, &|bytes: Bytes<'_>| {
            source.pieces(bytes, &mut |data, bytes| encoder.encode(data, bytes));
        });
        Ok(packed)
    }

    /// [`encode`](Self::encode) by the codecs alone, which are the specification.
    #[doc(hidden)]
    pub fn encode_by_codec(
        format: BlockFormat,
        data: &[f32],
        shape: &[usize],
        axis: usize,
        rounder: Rounder,
    ) -> Result<Self, PackError> {
        let mut packed = Self::encode(format, data, shape, axis, rounder)?;
        packed.scales.fill(0);
        packed.elements.fill(0);
        let plan = Plan::new(&format, shape, axis)?;
        let encoder = Encoder::new(&format, packed.tensor_scale(), &plan, rounder);
        encoder.encode_by_codec(data, &mut packed.scales, &mut packed.elements);
        Ok(packed)
    }

    /// The tensor, in row-major order. The length is the product of the shape.
    ///
    /// Every code has a value, also the codes that [`encode`](Self::encode) does not write. A scale exponent of 255 and
    /// E4M3's NaN make their block NaN. A tensor scale that is negative or not finite makes every block NaN.
    /// [`ElementFormat::decode`](crate::ElementFormat::decode) defines the element codes. A product beyond float32 is
    /// ±Inf; in MX blocks, a product with too many bits for float32 is truncated.
    pub fn decode(&self) -> Vec<f32> {
        self.view().decode()
    }

    /// The same tensor with borrowed bytes.
    pub fn view(&self) -> PackedView<'_> {
        PackedView {
            format: self.format,
            shape: &self.shape,
            axis: self.axis,
            tensor_scale: self.tensor_scale,
            divisor: self.divisor,
            scales: &self.scales,
            elements: &self.elements,
        }
    }

    pub(super) fn of_view(view: &PackedView<'_>) -> Self {
        Self {
            format: view.format,
            shape: view.shape.to_vec(),
            axis: view.axis,
            tensor_scale: view.tensor_scale,
            divisor: view.divisor,
            scales: view.scales.to_vec(),
            elements: view.elements.to_vec(),
        }
    }

    /// A packed tensor from its parts, for example from a file.
    ///
    /// The call allocates only a copy of the shape. A later [`decode`](Self::decode) allocates at most 16 times
    /// `elements`.
    ///
    /// # Errors
    /// * [`PackError::Quantize`]: the format, the axis or the shape are not valid.
    /// * [`PackError::SizeOverflow`]: a number of bytes overflows.
    /// * [`PackError::ScalesLength`], [`PackError::ElementsLength`]: there are more or fewer bytes than
    ///   the format needs for the shape.
    /// * [`PackError::Padding`]: a bit after the last code, or after the last shift of a record, is set.
    /// * [`PackError::TensorScale`]: a tensor scale without one in the format, or the other way round.
    pub fn from_parts(
        format: BlockFormat,
        shape: &[usize],
        axis: usize,
        tensor_scale: Option<f32>,
        scales: Vec<u8>,
        elements: Vec<u8>,
    ) -> Result<Self, PackError> {
        PackedView::new(format, shape, axis, tensor_scale, &scales, &elements)?;
        Ok(Self {
            format,
            shape: shape.to_vec(),
            axis,
            tensor_scale: tensor_scale.map(f32::to_bits),
            divisor: None,
            scales,
            elements,
        })
    }

    /// The same tensor with a divisor in place of the tensor scale, which becomes the divisor's reciprocal. compressed-tensors
    /// writes such tensors: [`decode`](Self::decode) divides each block's scale by the number and rounds once, where a product
    /// with the reciprocal rounds twice. No effect in a format without a tensor scale, or of a number that is not positive and
    /// finite.
    pub fn with_divisor(mut self, divisor: f32) -> Self {
        if self.format.tensor_scale && (1..INFINITY).contains(&divisor.to_bits()) {
            let reciprocal = ieee(|| bits::quotient(bits::ONE, divisor.to_bits()));
            self.tensor_scale = Some(reciprocal);
            self.divisor = Some(divisor.to_bits());
        }
        self
    }

    /// The same tensor with each code replaced by the result of `change`, which gets the element's position in
    /// row-major order and the code. The low [bits](BlockFormat::element_bits) of the result count.
    pub fn map_codes(mut self, mut change: impl FnMut(usize, u32) -> u32) -> Self {
        let bits = self.format.element_bits();
        let mut codes = self.view().codes();
        for (position, code) in codes.iter_mut().enumerate() {
            *code = change(position, *code) & ((1 << bits) - 1);
        }
        let mut writer = Writer::new(&mut self.elements, bits);
        writer.put(&codes);
        writer.finish();
        self
    }

    /// The parts, from which [`from_parts`](Self::from_parts) makes the same tensor again, but for a
    /// [divisor](Self::divisor).
    pub fn into_parts(self) -> PackedParts {
        PackedParts {
            format: self.format,
            tensor_scale: self.tensor_scale(),
            shape: self.shape,
            axis: self.axis,
            scales: self.scales,
            elements: self.elements,
        }
    }

    /// The format.
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// The lengths of the tensor's axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The axis along which blocks lie.
    pub const fn axis(&self) -> usize {
        self.axis
    }

    /// The tensor scale, if the format has one.
    pub fn tensor_scale(&self) -> Option<f32> {
        self.tensor_scale.map(f32::from_bits)
    }

    /// The number that scales are divided by, if the tensor has [one](Self::with_divisor).
    pub fn divisor(&self) -> Option<f32> {
        self.divisor.map(f32::from_bits)
    }

    /// The scales: one record for each block, in row-major order of the tensor with a block as one element.
    pub fn scales(&self) -> &[u8] {
        &self.scales
    }

    /// The shape of the scales: the tensor's shape with the number of blocks in place of the axis' length. Square blocks replace the lengths of both of their
    /// axes. A block whose record is more than a byte adds one more axis. `[0]` if there are none.
    pub fn scales_shape(&self) -> Vec<usize> {
        self.view().scales_shape()
    }

    /// The shape of the element codes: the tensor's shape with the bytes of a row in place of the last axis' length.
    /// The shape is flat if a row is not a whole number of bytes, or if the tensor is empty.
    pub fn elements_shape(&self) -> Vec<usize> {
        self.view().elements_shape()
    }

    /// The element codes in row-major order, low bits first, without gaps; the last byte is filled up
    /// with zeros.
    pub fn elements(&self) -> &[u8] {
        &self.elements
    }
}

/// Checks that no element is larger than the largest one of the whole tensor.
pub(super) fn check_largest(data: &[f32], of_whole: f32) -> Result<(), PackError> {
    let found = f32::from_bits(largest(data));
    let is_enough = of_whole.is_nan() || of_whole >= found;
    match is_enough {
        true => Ok(()),
        false => Err(PackError::Largest {
            largest: of_whole.to_string(),
            found: found.to_string(),
        }),
    }
}

/// The parts of a [`Packed`] tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedParts {
    /// The format.
    pub format: BlockFormat,
    /// The lengths of the tensor's axes.
    pub shape: Vec<usize>,
    /// The axis along which blocks lie.
    pub axis: usize,
    /// The tensor scale, if the format has one.
    pub tensor_scale: Option<f32>,
    /// The scales, see [`Packed::scales`].
    pub scales: Vec<u8>,
    /// The element codes, see [`Packed::elements`].
    pub elements: Vec<u8>,
}
