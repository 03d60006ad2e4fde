//! Elements and scales of a quantized tensor, apart.

use crate::pack::{Packed, PackedView, ScaleCodes};
use alloc::vec::Vec;

impl PackedView<'_> {
    /// The elements without their scales, and the scales, for a product that sums over the axis `summed`. Both are in row-major
    /// order. The scales have the tensor's shape, but along `summed` the number of blocks: a square block's scale is there once
    /// for each of its lines. A tensor scale is in neither. The scale 2^128 of `bfp16ebs8`, of a block with NaN or Inf, is Inf here.
    ///
    /// `None` for formats that [have other factors](crate::BlockFormat::is_element_times_scale), and if no blocks lie along `summed`.
    ///
    /// ```
    /// use microscaling::{BlockFormat, Packed, Rounder};
    ///
    /// let nvfp4: BlockFormat = "nvfp4".parse()?;
    /// let packed = Packed::encode(nvfp4, &[1.5, -6.0, 12.0, 24.0], &[4], 0, Rounder::NearestEven)?;
    /// let [elements, scales] = packed.view().elements_and_scales(0).unwrap();
    /// assert_eq!((elements, scales), (vec![0.5, -1.5, 3.0, 6.0], vec![4.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn elements_and_scales(&self, summed: usize) -> Option<[Vec<f32>; 2]> {
        if !self.format().is_element_times_scale() {
            return None;
        }
        let axes = self.format().square_axes(self.axis());
        if !axes.unwrap_or([self.axis(); 2]).contains(&summed) {
            return None;
        }
        let element = self.format().element;
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
        let scales = scales.collect();
        let free = axes.into_iter().flatten().find(|axis| *axis != summed);
        Some([
            elements,
            match free {
                Some(free) => self.for_each_line(scales, free),
                None => scales,
            },
        ])
    }

    /// The scales of square blocks, each as often along an axis as its block has elements there.
    fn for_each_line(&self, scales: Vec<f32>, axis: usize) -> Vec<f32> {
        let (blocks, size) = (self.scales_shape(), self.format().group_size());
        let Some(rest) = blocks.get(axis + 1..self.shape().len()) else {
            return scales;
        };
        let inner: usize = rest.iter().product();
        let mut lines = Vec::with_capacity(scales.len() * size);
        for scales in scales.chunks_exact(blocks[axis] * inner) {
            for line in 0..self.shape()[axis] {
                lines.extend_from_slice(&scales[line / size * inner..][..inner]);
            }
        }
        lines
    }
}

impl Packed {
    /// [`PackedView::elements_and_scales`].
    pub fn elements_and_scales(&self, summed: usize) -> Option<[Vec<f32>; 2]> {
        self.view().elements_and_scales(summed)
    }
}
