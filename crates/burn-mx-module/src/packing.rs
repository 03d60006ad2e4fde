//! Tensors as packed bytes.

use burn_core::tensor::{Tensor, TensorPrimitive};
use microscaling::{BlockFormat, PackError, Packed, PackedView, RandomStream, Rounder};

use burn_mx_core::{MxTensorOps, Packing};

/// Quantizes the tensor in blocks along `axis` and packs it into the bytes of [`Packed::encode`], on any device. A GPU packs
/// on the device, and the host reads the packed bytes.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_mx::{MxBackend, MxDevice, MxSpecs, module::{pack, unpack}}; use microscaling::Rounder;
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// let device = MxDevice::new(FlexDevice, "none")?;
/// let tensor = Tensor::<MxBackend<Flex>, 1>::from_floats([1.0, 2.4, -5.1, 7.9], &device);
/// let packed = pack(tensor, 0, "mxfp4".parse()?, Rounder::NearestEven)?;
/// assert_eq!((packed.scales(), packed.elements()), ([127].as_slice(), [0x42, 0x7f].as_slice()));
/// let quantized = unpack::<MxBackend<Flex>, 1>(&packed.view(), &device);
/// assert_eq!(quantized.into_data().to_vec::<f32>()?, [1.0, 2.0, -6.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`Packed::encode`]: the tensor does not have the axis, the format is not valid, or a BFP block has a NaN or Inf.
pub fn pack<B: MxTensorOps, const D: usize>(
    tensor: Tensor<B, D>,
    axis: usize,
    format: BlockFormat,
    rounder: Rounder,
) -> Result<Packed, PackError> {
    let packing = Packing {
        elementwise: None,
        format,
        rounding: rounder.rounding(),
        stream: match rounder {
            Rounder::Stochastic(stream) => stream,
            _ => RandomStream::new(0, 0),
        },
    };
    B::pack(tensor.into_primitive().tensor(), axis, packing)
}

/// Decodes a packed tensor to the numbers of [`PackedView::decode`], on the device if it has kernels for decoding.
///
/// # Panics
///
/// If the packed tensor has another number of axes than `D`.
pub fn unpack<B: MxTensorOps, const D: usize>(
    packed: &PackedView<'_>,
    device: &B::Device,
) -> Tensor<B, D> {
    let shape = packed.shape();
    assert_eq!(
        shape.len(),
        D,
        "burn-mx: a packed tensor of shape {shape:?} is not a tensor of {D} axes"
    );
    Tensor::from_primitive(TensorPrimitive::Float(B::unpack(packed, device)))
}
