//! The merge of adapters into packed weights.

use burn_core::tensor::backend::Backend;
use microscaling::{Packed, Rounder};

use super::{PackedLinear, PackedLinearError, norms, values};
use crate::fused::How;
use crate::pieces::full_precision;
use burn_mx_core::MxTensorOps;

/// The result of [`PackedLinear::merge`].
#[derive(Clone, Debug)]
pub struct Merged<B: Backend> {
    /// The layer with the merged weight, without an adapter.
    pub layer: PackedLinear<B>,
    /// The largest magnitude of a difference between merged values and the float sum.
    pub largest: f64,
    /// The sum of the squared differences over the sum of the squared float sum; 0 if both are 0.
    pub relative_squared: f64,
}

impl<B: MxTensorOps> PackedLinear<B> {
    /// The layer with the adapter in its packed weight: `w + (alpha / rank)·b·a`, with DoRA's factor, summed in float32. The sum
    /// is packed in the weight's format as the specs' forward product quantizes weights, so by `dialect_w`; without such a
    /// format, to nearest, ties to even. A sum that equals the weight keeps the bytes.
    ///
    /// A format with a tensor scale gets a new one for each layer. Layers that engines fuse are merged by
    /// [`merge_fused`](Self::merge_fused).
    ///
    /// # Errors
    ///
    /// If the sum is not finite, or the format cannot pack the sum.
    pub fn merge(&self) -> Result<Merged<B>, PackedLinearError> {
        self.merge_sum(self.merged_sum()?, None)
    }

    /// [`merge`](Self::merge) of layers that an engine fuses, such as q, k and v, or gate and up. In a format with a tensor scale all
    /// layers get one: the scale of the largest magnitude of all sums. Layers with one tensor scale whose sums equal their weights
    /// keep the bytes. In other formats each layer is merged for itself.
    ///
    /// ```
    /// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
    /// # use burn_core::tensor::Tensor;
    /// # use burn_flex::{Flex, FlexDevice};
    /// # use burn_mx::{MxBackend, MxDevice, module::{PackedLinear, pack}};
    /// # use microscaling::{BlockFormat, Rounder};
    /// let device = MxDevice::new(FlexDevice, "none")?;
    /// let layer = |value: f32| -> Result<PackedLinear<MxBackend<Flex>>, Box<dyn std::error::Error>> {
    ///     let weight = Tensor::<MxBackend<Flex>, 2>::full([4, 32], value, &device);
    ///     let packed = pack(weight, 1, BlockFormat::nvfp4(true), Rounder::NearestEven)?;
    ///     Ok(PackedLinear::new(packed, None, &device)?)
    /// };
    /// let merged = PackedLinear::merge_fused(&[&layer(1.0)?, &layer(3.0)?])?;
    /// let scales: Vec<_> = merged.iter().map(|merged| merged.layer.packed().tensor_scale()).collect();
    /// assert_eq!(scales, [Some(3.0 / 2688.0); 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`merge`](Self::merge), and layers with different formats or numbers of inputs.
    pub fn merge_fused(layers: &[&Self]) -> Result<Vec<Merged<B>>, PackedLinearError> {
        let kind = |layer: &Self| (layer.packed().format(), layer.shape()[1]);
        let mut pairs = layers.windows(2).map(|pair| [kind(pair[0]), kind(pair[1])]);
        if let Some([one, other]) = pairs.find(|[one, other]| one != other) {
            let text = |(format, inputs)| format!("{format} with {inputs} inputs");
            return Err(PackedLinearError::Fused {
                one: text(one),
                other: text(other),
            });
        }
        let sums = layers.iter().map(|layer| layer.merged_sum());
        let sums: Vec<Vec<f32>> = sums.collect::<Result<_, _>>()?;
        let scale = |layer: &Self| layer.packed().tensor_scale().map(f32::to_bits);
        let is_shared = layers
            .windows(2)
            .all(|pair| scale(pair[0]) == scale(pair[1]));
        let mut all = layers.iter().zip(&sums);
        let is_kept = is_shared && all.all(|(layer, sum)| layer.packed().decode() == *sum);
        let has_scale = layers.iter().any(|layer| scale(layer).is_some());
        let largest = (has_scale && !is_kept).then(|| {
            let rounded = layers.iter().zip(&sums);
            let rounded = rounded.map(|(layer, sum)| layer.largest(sum.clone()));
            rounded.fold(0.0, f32::max)
        });
        let merged = layers.iter().zip(sums);
        merged
            .map(|(layer, sum)| layer.merge_sum(sum, largest))
            .collect()
    }

    /// The values of the weight with its adapter, `[out, in]`.
    fn merged_sum(&self) -> Result<Vec<f32>, PackedLinearError> {
        let mut sum = self.sum();
        if let Some(magnitude) = self
            .adapter()
            .and_then(|adapter| adapter.magnitude.as_ref())
        {
            let factor = full_precision(magnitude.val().detach()) / norms(sum.clone());
            sum = sum * factor.unsqueeze_dim(1);
        }
        let sum = values(sum);
        match sum.iter().all(|x| x.is_finite()) {
            true => Ok(sum),
            false => Err(PackedLinearError::NotFinite),
        }
    }

    /// How the specs' forward product quantizes the weight, if they have a format for weights.
    fn how(&self) -> Option<How> {
        let like = self.base.like.val().into_primitive().tensor();
        B::specs_of(&like).and_then(How::of)
    }

    /// The largest magnitude of a sum as the forward product rounds the sum before blocks.
    fn largest(&self, mut sum: Vec<f32>) -> f32 {
        if let Some(how) = self.how() {
            how.round(&mut sum);
        }
        largest(&sum)
    }

    /// The layer with this sum as its packed weight. `shared` is the largest magnitude of all layers that get one tensor scale; without, a
    /// sum that equals the weight keeps the bytes.
    fn merge_sum(
        &self,
        sum: Vec<f32>,
        shared: Option<f32>,
    ) -> Result<Merged<B>, PackedLinearError> {
        let packed = if shared.is_none() && self.packed().decode() == sum {
            self.packed().clone()
        } else {
            match self.how() {
                Some(how) => pack(&how, sum.clone(), self.shape(), shared)?,
                None => {
                    let (format, rounder) = (self.packed().format(), Rounder::NearestEven);
                    let largest = shared.unwrap_or_else(|| largest(&sum));
                    Packed::encode_part(format, &sum, &self.shape(), 1, rounder, largest)
                        .map_err(|error| PackedLinearError::Pack(error.to_string()))?
                }
            }
        };
        let differences = packed.decode().into_iter().zip(&sum);
        let differences = differences.map(|(x, sum)| (f64::from(x) - f64::from(*sum)).abs());
        let (mut largest, mut squares): (f64, f64) = (0.0, 0.0);
        for difference in differences {
            largest = largest.max(difference);
            squares += difference * difference;
        }
        let of_sum: f64 = sum.iter().map(|x| f64::from(*x).powi(2)).sum();
        Ok(Merged {
            layer: Self::like(packed, self.bias(), self.base.like.val())?,
            largest,
            relative_squared: if squares == 0.0 {
                0.0
            } else {
                squares / of_sum
            },
        })
    }
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |largest, x| largest.max(x.abs()))
}

/// Packs a weight `[out, in]` as the forward product quantizes the weight. `shared` is the largest magnitude of all weights that get one
/// tensor scale.
pub(super) fn pack(
    how: &How,
    mut values: Vec<f32>,
    shape: [usize; 2],
    shared: Option<f32>,
) -> Result<Packed, PackedLinearError> {
    how.round(&mut values);
    let largest = shared.unwrap_or_else(|| largest(&values));
    how.pack(&values, shape, largest)
        .map_err(PackedLinearError::Pack)
}
