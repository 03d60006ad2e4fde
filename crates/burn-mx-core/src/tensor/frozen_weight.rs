//! The frozen weight of a linear layer that stays packed.

use std::sync::Arc;

use burn_backend::tensor::Device;
use microscaling::Packed;
use thiserror::Error;

use super::shared_specs;
use super::weight_cache::{Unpacked, WeightCache};
use super::{Float, Meta, MxTensor};
use crate::specs::{ResolvedSpecs, Slot};
use burn_mx_kernels::MxKernels;

/// The summed axis of a linear layer's weight `[in, out]`.
const SUMMED_AXIS: usize = 0;

/// A linear layer's weight as packed bytes. Each product unpacks the bytes, and drops the values after use.
#[derive(Clone, Debug)]
pub struct FrozenWeight {
    packed: Arc<Packed>,
    /// The tensor scale, if all values have this factor.
    factor: Option<f32>,
}

/// Why packed bytes cannot be the weight of a linear layer.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrozenWeightError {
    /// The bytes are of another tensor.
    #[error(
        "the packed weight has shape {shape:?} and blocks along axis {axis}; allowed: [out, in] with blocks along \
         axis 1 (pack the transpose of a linear layer's weight)"
    )]
    Shape {
        /// The shape.
        shape: Vec<usize>,
        /// The axis of the blocks.
        axis: usize,
    },
    /// The forward product would quantize the values again, to other ones.
    #[error(
        "the weight is packed as {packed}, and its specs quantize it {specs}; allowed: w_elem_format {packed} without \
         random rounding and without hadamard_forward and hot_columns, or w_elem_format none"
    )]
    Specs {
        /// The format of the bytes.
        packed: String,
        /// How the specs quantize the weight.
        specs: String,
    },
}

microscaling::debug_is_display!(FrozenWeightError);

impl FrozenWeight {
    /// The weight `[out, in]` of a linear layer, with blocks along `in`.
    ///
    /// # Errors
    ///
    /// [`FrozenWeightError::Shape`].
    pub fn new(packed: Packed) -> Result<Self, FrozenWeightError> {
        if packed.shape().len() != 2 || packed.axis() != 1 {
            return Err(FrozenWeightError::Shape {
                shape: packed.shape().to_vec(),
                axis: packed.axis(),
            });
        }
        // A product that was rounded to a subnormal number lost the factor, and a quotient may lose it.
        let factor = packed.tensor_scale().filter(|_| {
            packed.divisor().is_none() && !packed.decode().iter().any(|x| x.is_subnormal())
        });
        Ok(Self {
            packed: Arc::new(packed),
            factor,
        })
    }

    /// The bytes.
    pub fn packed(&self) -> &Packed {
        &self.packed
    }

    /// Checks that forward products by these specs take the values unchanged: the specs quantize weights to the packed format, or not
    /// to blocks.
    ///
    /// # Errors
    ///
    /// [`FrozenWeightError::Specs`].
    pub fn check(&self, specs: &ResolvedSpecs) -> Result<(), FrozenWeightError> {
        let Some(format) = specs.block_format(Slot::W) else {
            return Ok(());
        };
        if self.unpacked(specs).is_some() {
            return Ok(());
        }
        let transform = specs.hadamard_forward();
        let mut transform = transform.map_or_else(String::new, |transform| {
            format!(" after the transform {transform}")
        });
        if specs.has_weight_parts() {
            transform.push_str(" without its hot rows");
        }
        Err(FrozenWeightError::Specs {
            packed: self.packed.format().to_string(),
            specs: format!(
                "to {format} with rounding {}{transform}",
                specs.round_mx_output()
            ),
        })
    }

    fn unpacked(&self, specs: &ResolvedSpecs) -> Option<Unpacked> {
        // Values by a tool's rules need not have the factor.
        let factor = self.factor.filter(|_| specs.dialect(Slot::W).is_none());
        Unpacked::new(Arc::clone(&self.packed), factor, specs, SUMMED_AXIS)
    }

    /// The values, `[in, out]`.
    pub(crate) fn values<B: MxKernels>(&self, device: &Device<B>) -> B::FloatTensorPrimitive {
        B::float_transpose(B::kernels().unpack(&self.packed.view(), device))
    }

    /// The weight `[in, out]` with this meta.
    ///
    /// # Panics
    ///
    /// With [`FrozenWeightError::Specs`].
    pub(crate) fn tensor<B: MxKernels>(&self, device: &Device<B>, meta: Meta) -> Float<B> {
        let shared = meta.specs.or_else(shared_specs::installed_default);
        let specs = shared.map(|shared| &shared.specs);
        if let Some(Err(error)) = specs.map(|specs| self.check(specs)) {
            panic!("burn-mx: {}: {error}", meta.label.unwrap_or("linear"));
        }
        let unpacked = specs.and_then(|specs| self.unpacked(specs));
        let mut tensor = MxTensor::new(self.values::<B>(device), meta);
        tensor.kept = Some(WeightCache::new(unpacked.map(Arc::new)));
        tensor
    }
}
