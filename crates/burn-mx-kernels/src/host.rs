//! The set of kernels of backends whose tensors are slices of this process's memory.

#[cfg(feature = "flex")]
mod copy;
#[cfg(feature = "flex")]
mod flex;
mod im2col;
#[cfg(feature = "tch")]
mod libtorch;
pub(super) mod memory;
mod native;
#[cfg(feature = "ndarray")]
mod ndarray;
mod panels;
mod quantize;

use burn_backend::tensor::{BoolTensor, FloatTensor};
use burn_backend::{Scalar, Shape, TensorMetadata};
use microscaling::{BlockFormat, OperandQuantization, internal::keep_freed_memory};
use microscaling_product::Epilogue;

use super::MxKernels;
use super::kernel_op::KernelOp;
use super::kernel_op::adamw::AdamWStep;
use super::kernel_op::op::OpRounding;
use super::kernel_op::rounding::with_rounding;
use super::kernel_op::table::{Table, Tabled};
use super::kernel_set::KernelSet;
use super::product::convolution::{Convolution, ConvolutionProduct};
use super::product::{self, Operand, OperandForm};
use super::statistics::TensorStatistics;
use memory::InMemory;

/// A backend with tensors in this process's memory.
pub(super) trait HostBackend: MxKernels {
    /// A tensor in memory.
    type Memory: InMemory + Into<FloatTensor<Self>> + Send + 'static;

    /// Whether a function of a number has the same bits wherever in a tensor the number lies.
    const IS_SAME_EVERYWHERE: bool = true;

    /// The tensor in memory, brought there if it is on another device.
    fn in_memory(tensor: FloatTensor<Self>) -> Self::Memory;

    /// The tensor with its values in row-major order, if the backend's ops would take longer to bring them there.
    fn row_major(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor
    }

    /// [`KernelSet::mask_fill`], by default the backend's.
    fn mask_fill(
        tensor: FloatTensor<Self>,
        mask: BoolTensor<Self>,
        value: Scalar,
    ) -> FloatTensor<Self> {
        Self::float_mask_fill(tensor, mask, value)
    }

    /// The tensor, if it is in memory without conversion.
    fn where_it_is(tensor: &FloatTensor<Self>) -> Option<Self::Memory> {
        Some(Self::in_memory(tensor.clone()))
    }
}

/// The kernels of a [`HostBackend`].
pub(super) struct OnHost;

/// The kernels, whose results are new tensors, also where no product is in panels.
fn on_host() -> &'static OnHost {
    keep_freed_memory();
    &OnHost
}

impl<B: HostBackend> KernelSet<B> for OnHost {
    fn run(
        &self,
        op: KernelOp,
        first: FloatTensor<B>,
        others: [Option<FloatTensor<B>>; 2],
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        let others = others.map(|tensor| tensor.map(B::in_memory));
        let (result, second) = native::run(op, B::in_memory(first), others);
        (result.into(), second.map(Into::into))
    }

    fn reshape(&self, tensor: FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
        B::float_reshape(B::row_major(tensor), shape)
    }

    fn cat(&self, tensors: Vec<FloatTensor<B>>, axis: usize) -> FloatTensor<B> {
        B::float_cat(tensors.into_iter().map(B::row_major).collect(), axis)
    }

    fn mask_fill(
        &self,
        tensor: FloatTensor<B>,
        mask: BoolTensor<B>,
        value: Scalar,
    ) -> FloatTensor<B> {
        B::mask_fill(tensor, mask, value)
    }

    /// Bfloat16 numbers are looked up in a table.
    fn function(
        &self,
        tensor: FloatTensor<B>,
        rounding: OpRounding,
        function: fn(FloatTensor<B>) -> FloatTensor<B>,
    ) -> FloatTensor<B> {
        let elements = tensor.shape().num_elements();
        let table = B::IS_SAME_EVERYWHERE.then(|| {
            Table::of(
                Tabled::Backends(function as usize),
                rounding.of_function(),
                elements,
                |numbers| {
                    let tensor = B::Memory::from_values(numbers.to_vec(), vec![numbers.len()]);
                    let results = rounding.around::<B>(function, tensor.into());
                    let results = B::in_memory(results).row_major();
                    numbers.copy_from_slice(results.values());
                },
            )
        });
        let Some(table) = table.flatten() else {
            return rounding.around::<B>(function, tensor);
        };
        let replace = |data: &mut [f32]| {
            with_rounding!(rounding, round => table.replace(data, round));
        };
        native::elementwise(B::in_memory(tensor), replace).into()
    }

    fn adamw(
        &self,
        step: AdamWStep,
        tensors: [FloatTensor<B>; 4],
    ) -> Result<[FloatTensor<B>; 3], [FloatTensor<B>; 4]> {
        // A tensor of another device stays there.
        if tensors
            .iter()
            .any(|tensor| B::where_it_is(tensor).is_none())
        {
            return Err(tensors);
        }
        let [parameter, first, second] = native::adamw(step, tensors.map(B::in_memory));
        Ok([parameter.into(), first.into(), second.into()])
    }

    fn quantizing_statistics(
        &self,
        tensor: &FloatTensor<B>,
        axis: usize,
        quantization: OperandQuantization,
    ) -> TensorStatistics<B> {
        let tensor = B::in_memory(tensor.clone());
        TensorStatistics::beside(tensor.dims().iter().product(), move || {
            native::quantizing_statistics(tensor, axis, quantization)
        })
    }

    fn quantization_statistics(
        &self,
        before_and_after: [&FloatTensor<B>; 2],
        axis: usize,
        format: Option<BlockFormat>,
    ) -> TensorStatistics<B> {
        let tensors = before_and_after.map(|tensor| B::in_memory(tensor.clone()));
        let elements: usize = tensors[0].dims().iter().product();
        TensorStatistics::beside(2 * elements, move || {
            native::quantization_statistics(tensors, axis, format)
        })
    }

    fn product_statistics(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
        result: &FloatTensor<B>,
    ) -> TensorStatistics<B> {
        let result = B::in_memory(result.clone());
        let elements = lhs.elements() + rhs.elements() + result.dims().iter().product::<usize>();
        TensorStatistics::beside(elements, move || {
            let reference = B::in_memory(B::kernels().product(lhs, rhs));
            native::quantization_statistics([reference, result], 0, None)
        })
    }

    /// Bfloat16 panels where the tensor is in memory; elsewhere the backend multiplies.
    fn product_operand(
        &self,
        tensor: FloatTensor<B>,
        form: OperandForm,
    ) -> Operand<FloatTensor<B>> {
        let panels = B::where_it_is(&tensor).and_then(|tensor| panels::operand(&tensor, form));
        panels.unwrap_or_else(|| product::in_tensor::<B>(tensor, form))
    }

    fn product(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        match panels::multiply::<B::Memory, _>(&lhs, &rhs, Epilogue::default()) {
            Some(result) => result.into(),
            None => product::of_tensors::<B>(lhs, rhs),
        }
    }

    /// In one pass over the result.
    fn rounded_product(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
        rounding: OpRounding,
        bias: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        // The product's kernel does not round a bias.
        let bias = bias.map(|bias| rounding.round::<B>(bias));
        let in_memory = (bias.clone()).map(|bias| B::in_memory(bias).row_major());
        let epilogue = Epilogue {
            rounding: Some((rounding.format, rounding.rounding)),
            bias: in_memory.as_ref().map(B::Memory::values),
        };
        match panels::multiply::<B::Memory, _>(&lhs, &rhs, epilogue) {
            Some(result) => result.into(),
            None => rounding.of_product::<B>(product::of_tensors::<B>(lhs, rhs), bias),
        }
    }

    fn convolution_product(
        &self,
        convolution: &Convolution,
        product: &ConvolutionProduct,
        [first, second]: [&FloatTensor<B>; 2],
        bias: Option<&FloatTensor<B>>,
        significant_bits: u32,
    ) -> Option<FloatTensor<B>> {
        let (first, second) = (B::where_it_is(first)?, B::where_it_is(second)?);
        let bias = bias.cloned().map(B::in_memory);
        let operands = [&first, &second];
        im2col::convolve(convolution, product, operands, bias, significant_bits).map(Into::into)
    }
}
