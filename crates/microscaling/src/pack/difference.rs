//! How two packed tensors differ: in their bytes, and in their values.

use super::view::PackedView;
use microscaling_processor::float_state::ieee;

/// How two packed tensors of one shape differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PackedDifference {
    /// Elements of either tensor.
    pub elements: usize,
    /// Bytes of the scales of either tensor.
    pub scales: usize,
    /// Elements with another code.
    pub elements_differ: usize,
    /// The number of scale bytes that differ.
    pub scales_differ: usize,
    /// Whether the tensor scales differ, as patterns.
    pub tensor_scale_differs: bool,
    /// Elements whose values differ as bit patterns: −0 differs from 0.
    pub values_differ: usize,
    /// The largest magnitude of a difference of two values; NaN where one of them is NaN and the other is not. 0 if none differ.
    pub largest: f32,
}

impl PackedDifference {
    /// Whether every byte is the same.
    pub const fn is_none(&self) -> bool {
        self.elements_differ == 0 && self.scales_differ == 0 && !self.tensor_scale_differs
    }
}

impl PackedView<'_> {
    /// How this tensor differs from another one: the tools of [`Dialect`](crate::Dialect)s make different bytes of the same
    /// weight. `None` if their codes cannot be compared: another shape, another axis, blocks of another length, or elements of
    /// other bits.
    ///
    /// ```
    /// use microscaling::{BlockFormat, Dialect};
    ///
    /// let mxfp4: BlockFormat = "mxfp4".parse()?;
    /// let weight: Vec<f32> = (0..32).map(|i| i as f32 / 4.0).collect();
    /// let [ocp, quark] = [Dialect::Ocp, Dialect::Quark].map(|tool| tool.encode(mxfp4, &weight, &[1, 32]));
    /// let (ocp, quark) = (ocp?.packed, quark?.packed);
    /// let difference = ocp.view().difference(&quark.view()).ok_or("they are alike")?;
    /// assert_eq!((difference.scales_differ, difference.largest), (1, 2.0)); // 7.75 became 6, and 8
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn difference(&self, other: &PackedView<'_>) -> Option<PackedDifference> {
        let (own, others) = (self.format(), other.format());
        let alike = self.shape() == other.shape()
            && self.axis() == other.axis()
            && own.element_bits() == others.element_bits()
            && (own.group_size(), own.square) == (others.group_size(), others.square)
            && self.scales().len() == other.scales().len();
        if !alike {
            return None;
        }
        let (own, others) = (self.decode(), other.decode());
        let codes = self.codes().into_iter().zip(other.codes());
        let of_scales = self.scales().iter().zip(other.scales());
        let mut difference = PackedDifference {
            elements: own.len(),
            scales: self.scales().len(),
            elements_differ: codes.filter(|(own, other)| own != other).count(),
            scales_differ: of_scales.filter(|(own, other)| own != other).count(),
            tensor_scale_differs: self.tensor_scale != other.tensor_scale,
            values_differ: 0,
            largest: 0.0,
        };
        for (a, b) in own.into_iter().zip(others) {
            if a.to_bits() == b.to_bits() {
                continue;
            }
            difference.values_differ += 1;
            // Two of the same infinity have one pattern. A NaN stays.
            ieee(|| {
                let distance = (a - b).abs();
                if !(distance <= difference.largest || difference.largest.is_nan()) {
                    difference.largest = distance;
                }
            });
        }
        Some(difference)
    }
}
