//! Matrix products on a device.
//!
//! Where a device has matrix units for bfloat16, operands that bfloat16 holds are multiplied by them: each product is exact,
//! the sums are the device's float32. Other operands are multiplied in true float32: Burn's own product rounds them to
//! tensor-float-32 on CUDA.
//!
//! Burn tries some 25 strategies for each product, and compiles each of them. Here a table chooses one.

mod rounded;
mod run;
mod strategy;

use burn_backend::{DType, FloatDType, Shape, TensorMetadata};
use burn_cubecl::CubeRuntime;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::ComputeClient;
use cubecl::ir::{ElemType, FloatKind, StorageType};
use cubecl::prelude::*;
use microscaling::{BlockFormat, OperandQuantization, Rounding};

use super::functions::elementwise;
use super::launch;
use super::numbers::bits;
use super::numbers::double;
use super::numbers::float::{Float32, number};
use super::numbers::round::round_float;
use super::quantize::{self, Job};
use super::quantize::{both_axes, two_pass_scale};
use crate::MxKernels;
use crate::kernel_op::op::OpRounding;
use crate::kernel_op::rounding::BFLOAT16;
use crate::product::{self, Operand, OperandForm};

pub(super) use rounded::ResultRounding;

/// Significant bits of a bfloat16 number.
const SIGNIFICANT_BITS: u32 = 8;

/// Whether the device has matrix units for bfloat16 operands and float32 sums.
fn has_matrix_units<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    let float = |kind| StorageType::from(ElemType::Float(kind));
    let [narrow, wide] = [FloatKind::BF16, FloatKind::F32].map(float);
    let units = &client.properties().features.matmul.cmma;
    // Vulkan may have them too, but no bfloat16 tensors.
    Float32::of(client) == Float32::Device
        && units
            .iter()
            .any(|unit| (unit.a_type, unit.b_type, unit.cd_type) == (narrow, narrow, wide))
}

/// Whether the device computes float64 as IEEE 754 requires.
fn has_float64<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    let float64 = StorageType::from(ElemType::Float(FloatKind::F64));
    Float32::of(client) == Float32::Device && client.properties().supports_type(float64)
}

/// The float type in which an operand is multiplied.
pub(super) fn dtype<R: CubeRuntime>(client: &ComputeClient<R>, form: OperandForm) -> DType {
    let has_kernel = (form.quantization.blocks)
        .is_none_or(|(format, _)| two_pass_scale::is_short_enough(&format));
    let fits = form.significant_bits <= SIGNIFICANT_BITS && has_kernel;
    match fits && has_matrix_units(client) {
        true => DType::BF16,
        false => DType::F32,
    }
}

/// Whether a factor of all elements is taken out, on any device. The elements then have the bits of their format, and their
/// sums are more exact, by matrix units or not.
pub(super) fn has_tensor_scale(form: OperandForm) -> bool {
    let blocks = form.quantization.blocks;
    let on_device =
        |format: &BlockFormat| format.tensor_scale && two_pass_scale::is_short_enough(format);
    form.tensor_scale.is_some() || blocks.is_some_and(|(format, _)| on_device(&format))
}

/// The operand in the float type in which it is multiplied.
pub(super) fn operand<R: CubeRuntime, T: MxKernels<FloatTensorPrimitive = CubeTensor<R>>>(
    tensor: CubeTensor<R>,
    form: OperandForm,
) -> Operand<CubeTensor<R>> {
    let dtype = dtype(&tensor.client, form);
    if dtype == DType::F32 && !has_tensor_scale(form) {
        return product::in_tensor::<T>(tensor, form);
    }
    let shape = form.place.shape_of(tensor.shape());
    let axis = form.axis(tensor.rank());
    let (tensor, quantization) = product::transformed::<T>(tensor, axis, form.quantization);
    let elementwise = quantization.elementwise;
    let (values, tensor_scale) = match (quantization.blocks, form.tensor_scale) {
        (Some(blocks), _) => {
            let job = Job::of(elementwise, blocks);
            quantize::quantize_in_units(tensor, dtype, axis, job, quantization.stream)
        }
        (None, Some(scale)) => {
            let mut word = launch::word(&tensor, scale.to_bits());
            word.dtype = DType::F32;
            let in_units = T::float_div_scalar(tensor, scale.into());
            // Each is a product with the scale that was rounded.
            let nearest = Some((BFLOAT16, Rounding::NearestEven));
            (elementwise::round_to(in_units, dtype, nearest), Some(word))
        }
        (None, None) => (elementwise::round_to(tensor, dtype, elementwise), None),
    };
    Operand::Tensor {
        values: T::float_reshape(values, shape),
        transposed: form.place.transposed,
        tensor_scale,
    }
}

/// The quantizations of a tensor of this rank, and the axes along which they go.
fn quantizations(rank: usize, forms: [OperandForm; 2]) -> [(usize, OperandQuantization); 2] {
    forms.map(|form| (form.axis(rank), form.quantization))
}

/// Whether one kernel makes both operands of a tensor of this shape.
pub(super) fn has_operand_pair<R: CubeRuntime>(
    client: &ComputeClient<R>,
    shape: &Shape,
    forms: [OperandForm; 2],
) -> bool {
    let [first, second] = forms.map(|form| dtype(client, form));
    first == second && both_axes::has_kernel(shape, quantizations(shape.num_dims(), forms))
}

/// Both operands of a tensor.
pub(super) fn operand_pair<R: CubeRuntime, T: MxKernels<FloatTensorPrimitive = CubeTensor<R>>>(
    tensor: CubeTensor<R>,
    forms: [OperandForm; 2],
) -> [Operand<CubeTensor<R>>; 2] {
    let shape = tensor.shape();
    let dtypes = forms.map(|form| dtype(&tensor.client, form));
    let quantized = (dtypes[0] == dtypes[1]).then(|| {
        let quantizations = quantizations(shape.num_dims(), forms);
        both_axes::quantize_in_units(&tensor, dtypes[0], quantizations)
    });
    let Some([first, second]) = quantized.flatten() else {
        return forms.map(|form| operand::<R, T>(tensor.clone(), form));
    };
    let operand = |form: OperandForm, (values, tensor_scale)| Operand::Tensor {
        values: T::float_reshape(values, form.place.shape_of(shape.clone())),
        transposed: form.place.transposed,
        tensor_scale,
    };
    [operand(forms[0], first), operand(forms[1], second)]
}

/// The product of two operands over their last two axes, in float32.
pub(super) fn multiply<R: CubeRuntime, T: MxKernels<FloatTensorPrimitive = CubeTensor<R>>>(
    lhs: Operand<CubeTensor<R>>,
    rhs: Operand<CubeTensor<R>>,
) -> CubeTensor<R> {
    let [(lhs, lhs_scale), (rhs, rhs_scale)] = tensors::<R, T>(lhs, rhs);
    let (product, _) = run::multiply(lhs, rhs, None);
    scaled(product, [lhs_scale, rhs_scale], None)
}

/// The product, rounded, plus a bias that is rounded, too, and broadcasts, rounded again.
pub(super) fn rounded<R: CubeRuntime, T: MxKernels<FloatTensorPrimitive = CubeTensor<R>>>(
    lhs: Operand<CubeTensor<R>>,
    rhs: Operand<CubeTensor<R>>,
    rounding: OpRounding,
    bias: Option<CubeTensor<R>>,
) -> CubeTensor<R> {
    let [(lhs, lhs_scale), (rhs, rhs_scale)] = tensors::<R, T>(lhs, rhs);
    let how = ResultRounding {
        format: rounding.format,
        rounding: rounding.rounding,
    };
    if lhs_scale.is_some() || rhs_scale.is_some() {
        let scales = [lhs_scale, rhs_scale];
        let (product, _) = run::multiply(lhs, rhs, None);
        return match bias {
            Some(_) => rounding.of_product::<T>(scaled(product, scales, None), bias),
            None => scaled(product, scales, Some(how)),
        };
    }
    let bias = bias.map(into_contiguous);
    let columns = rhs.shape()[rhs.rank() - 1];
    // Sums by integers would be much code in each kernel.
    let adds = |bias: &CubeTensor<R>| {
        bias.shape().num_elements() == columns && Float32::of(&lhs.client) == Float32::Device
    };
    let epilogue = match &bias {
        Some(bias) => adds(bias).then_some((how, Some(bias))),
        None => Some((how, None)),
    };
    let (product, is_done) = run::multiply(lhs, rhs, epilogue);
    match is_done {
        true => product,
        false => rounding.of_product::<T>(product, bias),
    }
}

/// The tensors of two operands, of one float type, and their tensor scales.
fn tensors<R: CubeRuntime, T: MxKernels<FloatTensorPrimitive = CubeTensor<R>>>(
    lhs: Operand<CubeTensor<R>>,
    rhs: Operand<CubeTensor<R>>,
) -> [(CubeTensor<R>, Option<CubeTensor<R>>); 2] {
    let [(lhs, lhs_scale), (rhs, rhs_scale)] = [lhs, rhs].map(|operand| match operand {
        Operand::Tensor {
            values,
            transposed,
            tensor_scale,
        } => {
            let values = match transposed {
                true => T::float_transpose(values),
                false => values,
            };
            (values, tensor_scale)
        }
        _ => unreachable!("panels are the processor's"),
    });
    let [lhs, rhs] = match lhs.dtype == DType::BF16 && rhs.dtype == DType::BF16 {
        true => [lhs, rhs],
        false => [lhs, rhs].map(|operand| match operand.dtype {
            DType::F32 => operand,
            _ => T::float_cast(operand, FloatDType::F32),
        }),
    };
    [(lhs, lhs_scale), (rhs, rhs_scale)]
}

/// The product, which nobody else has, of operands that have these tensor scales: multiplied by both in float64, as on
/// processors, and perhaps rounded.
pub(super) fn scaled<R: CubeRuntime>(
    product: CubeTensor<R>,
    scales: [Option<CubeTensor<R>>; 2],
    how: Option<ResultRounding>,
) -> CubeTensor<R> {
    let elements = product.shape().num_elements();
    if elements == 0 || scales.iter().all(Option::is_none) {
        return product;
    }
    let product = into_contiguous(product);
    let (cubes, cube) = launch::units(&product.client, elements);
    let by_device = has_float64(&product.client);
    let [lhs, rhs] = scales.map(|scale| match scale {
        Some(word) => ComptimeOptionArgs::Some(word.into_array_arg()),
        None => ComptimeOptionArgs::None,
    });
    // SAFETY: each unit reads and writes its own word, one for each element.
    unsafe {
        scaled_kernel::launch_unchecked(
            &product.client,
            cubes,
            cube,
            product.required_address_type(),
            product.clone().into_array_arg(),
            lhs,
            rhs,
            elements,
            by_device,
            how,
        );
    }
    product
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn scaled_kernel(
    words: &mut Array<u32>,
    lhs_scale: &ComptimeOption<Array<u32>>,
    rhs_scale: &ComptimeOption<Array<u32>>,
    elements: usize,
    #[comptime] by_device: bool,
    #[comptime] how: Option<ResultRounding>,
) {
    if ABSOLUTE_POS >= elements {
        terminate!();
    }
    let x = words[ABSOLUTE_POS];
    let lhs = word_or_one(lhs_scale);
    let rhs = word_or_one(rhs_scale);
    let scaled = if comptime!(by_device) {
        let factor = f64::cast_from(number(lhs)) * f64::cast_from(number(rhs));
        u32::reinterpret(f32::cast_from(f64::cast_from(number(x)) * factor))
    } else {
        double::scaled(x, double::product(lhs, rhs))
    };
    words[ABSOLUTE_POS] = match comptime!(how) {
        Some(how) => round_float(scaled, 0u32.runtime(), how.format, how.rounding),
        None => scaled,
    };
}

#[cube]
fn word_or_one(scale: &ComptimeOption<Array<u32>>) -> u32 {
    #[comptime]
    match scale {
        ComptimeOption::Some(words) => words[0],
        ComptimeOption::None => bits::ONE.runtime(),
    }
}
