//! Operands of matrix products, in the form in which a backend multiplies them, and the products.

pub mod accumulated;
pub(super) mod convolution;
pub(super) mod windows;

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, Shape, TensorData, TensorMetadata};
use microscaling::{BlockFormat, OperandQuantization};
#[cfg(feature = "cube")]
use microscaling::{RandomHadamard, Signs};
use microscaling_product::{Panels, Side};

use super::MxKernels;
use super::kernel_op::KernelOp;
use accumulated::{Accumulated, AccumulatedForm};

/// Why no backend gets an accumulated operand.
pub(crate) const NOT_A_BACKENDS: &str = "accumulated operands are multiplied by the core";

/// Makes the sums of this process's products reproducible, from the next product on, or as fast as possible. Quantized values are the
/// same either way.
///
/// * **Processors.** With `true`, products in bfloat16 have the same bits on every processor. Without, a processor with AMX uses its
///   tiles, whose sums have another order; the bits are still the same in each run on such a processor.
/// * **Backends of CubeCL.** With `true`, the strategy of a matrix product or a convolution follows from its shapes, so a
///   run on the same device gives the same bits again. Without, a matrix product follows the same rule, unless CubeCL's
///   `autotune.level` is `extensive` or `full`. A convolution takes the fastest of several strategies by feature `autotune`. The
///   fastest one may differ from run to run, and with it the order of sums.
///
/// A call wins over the environment variable `MICROSCALING_PRODUCT`, whose value `reproducible` means `true`.
/// A path that the variable names stays, as far as the call allows. Without both, products are as fast as possible.
pub fn reproducible_products(on: bool) {
    microscaling_product::reproducible_products(on);
}

/// The layout of an operand in a product `lhs · rhs` over the last two axes. The product sums over the columns of the
/// left operand and the rows of the right one. A transposed operand swaps rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandLayout {
    /// Which operand it is.
    pub side: Side,
    /// Whether it is taken with its last two axes swapped.
    pub transposed: bool,
    /// Whether its leading axes are rows, too, `[.., M, K]` as `[.. · M, K]`, so that the product is one. Blocks along
    /// the rows begin anew with each M.
    pub flat: bool,
}

impl OperandLayout {
    /// The left operand, not transposed.
    pub const LHS: Self = Self::new(Side::Lhs);
    /// The right operand, not transposed.
    pub const RHS: Self = Self::new(Side::Rhs);

    const fn new(side: Side) -> Self {
        Self {
            side,
            transposed: false,
            flat: false,
        }
    }

    /// The same place with the last two axes swapped.
    pub const fn transposed(self) -> Self {
        Self {
            transposed: !self.transposed,
            ..self
        }
    }

    /// The same place with leading axes that are rows.
    pub const fn flat(self) -> Self {
        Self { flat: true, ..self }
    }

    /// The axis of an operand of this rank that is summed over.
    pub fn summed_axis(self, rank: usize) -> usize {
        rank - 1 - usize::from(self.sums_rows())
    }

    /// The axis along which blocks of an operand of this rank lie: the summed axis. Square blocks lie along it and the other
    /// one of the last two.
    pub fn block_axis(self, rank: usize, format: &BlockFormat) -> usize {
        match format.square {
            true => rank - 1,
            false => self.summed_axis(rank),
        }
    }

    /// The shape that an operand of this one has in the product, before it is transposed.
    pub fn shape_of(self, shape: Shape) -> Shape {
        match shape.num_dims() {
            rank if self.flat && rank > 2 => {
                let rows = (0..rank - 1).map(|axis| shape[axis]).product();
                Shape::new([rows, shape[rank - 1]])
            }
            _ => shape,
        }
    }

    /// Whether the rows are summed over.
    pub fn sums_rows(self) -> bool {
        (self.side == Side::Rhs) != self.transposed
    }
}

/// The form that a product wants for an operand: its layout and its quantization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperandForm {
    /// The operand's layout.
    pub place: OperandLayout,
    /// The quantization of its elements, in blocks along the summed axis.
    pub quantization: OperandQuantization,
    /// A factor that all elements have, where nothing else is done to them: without it they have `significant_bits`. A
    /// backend may multiply by it afterwards.
    pub tensor_scale: Option<f32>,
    /// How many significant bits an element has then at most, beside a tensor scale.
    pub significant_bits: u32,
}

impl OperandForm {
    /// The axis of an operand of this rank along which all steps go.
    pub(super) fn axis(&self, rank: usize) -> usize {
        match self.quantization.blocks {
            Some((format, _)) => self.place.block_axis(rank, &format),
            None => self.place.summed_axis(rank),
        }
    }
}

/// An operand of a product, quantized, in the form in which its backend multiplies it; `P` is the backend's tensor.
#[derive(Clone, Debug)]
pub enum Operand<P> {
    /// A tensor of quantized values.
    Tensor {
        /// The values, flattened if the layout is flat.
        values: P,
        /// Whether the last two axes are to be swapped.
        transposed: bool,
        /// A tensor of one number, a factor of all values that is not in them: the product is to be multiplied by it.
        tensor_scale: Option<P>,
    },
    /// Bfloat16 panels in this process's memory.
    Panels {
        /// The matrices.
        panels: Arc<Panels>,
        /// The axes before the last two, along which the matrices lie.
        leading: Vec<usize>,
    },
    /// Elements and scales in this process's memory, of a product that is summed up as a matrix unit does; no backend sees it.
    Accumulated(Arc<Accumulated>),
    /// A tensor on a device that sums up as a matrix unit does. The product quantizes it.
    ToAccumulate {
        /// The values.
        values: P,
        /// The form that the values take.
        form: AccumulatedForm,
    },
}

impl<P> Operand<P> {
    /// Quantized values that are taken as they lie.
    pub fn of_values(values: P) -> Self {
        Self::Tensor {
            values,
            transposed: false,
            tensor_scale: None,
        }
    }

    /// The values of a product that is another op's of the backend, as a convolution is.
    pub fn into_values(self) -> P {
        match self {
            Self::Tensor {
                values,
                tensor_scale: None,
                ..
            } => values,
            Self::Tensor { .. } => unreachable!("only matrix products have tensor scales apart"),
            Self::Panels { .. } | Self::Accumulated(_) | Self::ToAccumulate { .. } => {
                unreachable!("only matrix products have other forms")
            }
        }
    }
}

#[cfg(feature = "host")]
impl<P: TensorMetadata> Operand<P> {
    /// Number of elements in memory.
    pub(super) fn elements(&self) -> usize {
        match self {
            Self::Tensor { values, .. } => values.shape().num_elements(),
            Self::Panels { panels, .. } => panels.bytes() / size_of::<u16>(),
            Self::Accumulated(_) | Self::ToAccumulate { .. } => {
                unreachable!("{NOT_A_BACKENDS}")
            }
        }
    }
}

/// The tensor after the steps before blocks along an axis, and the remaining step, if there are a transform or a factor.
#[cfg(feature = "cube")]
pub(crate) fn transformed<B: MxKernels>(
    mut tensor: FloatTensor<B>,
    axis: usize,
    quantization: OperandQuantization,
) -> (FloatTensor<B>, OperandQuantization) {
    let OperandQuantization {
        elementwise,
        hadamard,
        factor,
        blocks,
        stream,
    } = quantization;
    if hadamard.is_none() && factor.is_none() {
        return (tensor, quantization);
    }
    if let Some((format, rounding)) = elementwise {
        tensor = B::float_round_to(tensor, format, rounding, stream);
    }
    if let Some(hadamard) = hadamard {
        tensor = in_basis::<B>(tensor, axis, hadamard, false);
    }
    if let Some(factor) = factor {
        tensor = B::float_mul_scalar(tensor, factor.into());
    }
    let quantization = OperandQuantization {
        blocks,
        stream,
        ..OperandQuantization::default()
    };
    (tensor, quantization)
}

/// The tensor in the basis of a transform along an axis, or in its own again.
#[cfg(feature = "cube")]
pub(crate) fn in_basis<B: MxKernels>(
    tensor: FloatTensor<B>,
    axis: usize,
    (transform, signs): (RandomHadamard, Signs),
    inverse: bool,
) -> FloatTensor<B> {
    let op = KernelOp::Hadamard {
        axis,
        transform,
        signs,
        inverse,
    };
    B::kernel(op, [tensor])
}

/// The tensor after all steps along an axis.
pub fn quantized<B: MxKernels>(
    tensor: FloatTensor<B>,
    axis: usize,
    quantization: OperandQuantization,
) -> FloatTensor<B> {
    match quantization.elementwise {
        _ if quantization.is_empty() => tensor,
        Some((format, rounding)) if quantization.is_elementwise() => {
            B::float_round_to(tensor, format, rounding, quantization.stream)
        }
        _ => B::kernel(KernelOp::Quantize { axis, quantization }, [tensor]),
    }
}

/// The operand as a tensor.
pub fn in_tensor<B: MxKernels>(
    tensor: FloatTensor<B>,
    form: OperandForm,
) -> Operand<FloatTensor<B>> {
    let OperandForm {
        place,
        quantization,
        ..
    } = form;
    let shape = tensor.shape();
    let values = quantized::<B>(tensor, form.axis(shape.num_dims()), quantization);
    let flat = place.shape_of(shape.clone());
    let values = match flat == shape {
        true => values,
        false => B::float_reshape(values, flat),
    };
    Operand::Tensor {
        values,
        transposed: place.transposed,
        tensor_scale: None,
    }
}

/// The product of float32 tensors that are not quantized, by a kernel that rounds no operand. CUDA's own product rounds operands to
/// tensor-float-32. `None` on a backend without this kernel, whose own product rounds no operand, and for tensors of another type.
pub fn in_float32<B: MxKernels>(
    operands: [&FloatTensor<B>; 2],
    places: [OperandLayout; 2],
) -> Option<FloatTensor<B>> {
    let device = B::float_device(operands[0]);
    if !are_float32::<B>(operands) || !B::kernels().has_own_product(&device) {
        return None;
    }
    let operand = |i: usize| {
        let form = OperandForm {
            place: places[i],
            quantization: OperandQuantization::default(),
            tensor_scale: None,
            significant_bits: f32::MANTISSA_DIGITS,
        };
        in_tensor::<B>(operands[i].clone(), form)
    };
    Some(B::kernels().product(operand(0), operand(1)))
}

/// Whether both tensors are of float32.
pub fn are_float32<B: Backend>(tensors: [&FloatTensor<B>; 2]) -> bool {
    tensors.iter().all(|tensor| tensor.dtype() == DType::F32)
}

/// The product of operands one of which at least is a tensor, by the backend's own float32 product.
pub(crate) fn of_tensors<B: MxKernels>(
    lhs: Operand<FloatTensor<B>>,
    rhs: Operand<FloatTensor<B>>,
) -> FloatTensor<B> {
    let device = [&lhs, &rhs].into_iter().find_map(|operand| match operand {
        Operand::Tensor { values, .. } => Some(B::float_device(values)),
        _ => None,
    });
    let device = device.unwrap_or_default();
    let tensor = |operand| match operand {
        Operand::Tensor {
            values,
            transposed,
            tensor_scale,
        } => {
            let values = match transposed {
                true => B::float_transpose(values),
                false => values,
            };
            match tensor_scale {
                Some(scale) => {
                    let alone = Shape::from(vec![1; values.rank()]);
                    B::float_mul(values, B::float_reshape(scale, alone))
                }
                None => values,
            }
        }
        Operand::Panels { panels, leading } => read::<B>(&panels, leading, &device),
        Operand::Accumulated(_) | Operand::ToAccumulate { .. } => {
            unreachable!("{NOT_A_BACKENDS}")
        }
    };
    B::float_matmul(tensor(lhs), tensor(rhs))
}

/// The values of panels as a tensor, not transposed.
fn read<B: Backend>(panels: &Panels, mut shape: Vec<usize>, device: &B::Device) -> FloatTensor<B> {
    let [free, summed] = [panels.free(), panels.summed()];
    shape.extend(match panels.side() {
        Side::Lhs => [free, summed],
        Side::Rhs => [summed, free],
    });
    let mut values = vec![0.0; panels.matrices() * free * summed];
    let matrices = values.chunks_exact_mut((free * summed).max(1));
    for (matrix, values) in matrices.enumerate() {
        panels.read(matrix, values);
    }
    B::float_from_data(TensorData::new(values, shape), device)
}
