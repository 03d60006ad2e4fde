//! Elements and scales of a quantized tensor, apart.

use super::OperandKind;
use crate::pack::ScaleCodes;
use crate::{BlockFormat, Packed, PackedView};
use alloc::vec::Vec;

impl PackedView<'_> {
    /// The elements without their scales, in row-major order, and the scales of the blocks, in the order of
    /// [`scales`](Self::scales); a tensor scale is in neither. `None` for formats that [`OperandKind::of_format`] does not know.
    ///
    /// ```
    /// use microscaling::{BlockFormat, Packed, Rounder};
    ///
    /// let nvfp4: BlockFormat = "nvfp4".parse()?;
    /// let packed = Packed::encode(nvfp4, &[1.5, -6.0, 12.0, 24.0], &[4], 0, Rounder::NearestEven)?;
    /// let [elements, scales] = packed.view().elements_and_scales().unwrap();
    /// assert_eq!((elements, scales), (vec![0.5, -1.5, 3.0, 6.0], vec![4.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn elements_and_scales(&self) -> Option<[Vec<f32>; 2]> {
        OperandKind::of_format(&self.format())?;
        let element = match self.format() {
            BlockFormat::Mx(format) => format.element,
            format => format.float_scale()?.element,
        };
        let codes = self.codes();
        let elements = match element.bits() {
            ..=8 => {
                let numbers: Vec<f32> = (0..1 << element.bits())
                    .map(|code| element.decode(code))
                    .collect();
                codes.iter().map(|code| numbers[*code as usize]).collect()
            }
            _ => codes.iter().map(|code| element.decode(*code)).collect(),
        };
        let scale = ScaleCodes::of(&self.format())?;
        let scales = self
            .scales()
            .chunks_exact(scale.bytes())
            .map(|bytes| scale.number(bytes));
        Some([elements, scales.collect()])
    }
}

impl Packed {
    /// [`PackedView::elements_and_scales`].
    pub fn elements_and_scales(&self) -> Option<[Vec<f32>; 2]> {
        self.view().elements_and_scales()
    }
}
