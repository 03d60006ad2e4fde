//! Matrix products on a device.
//!
//! Where a device has matrix units for bfloat16, operands that bfloat16 holds are multiplied by them: each product is exact,
//! the sums are the device's float32. Other operands are multiplied in true float32: Burn's own product rounds them to
//! tensor-float-32 on CUDA.

use std::sync::atomic::{AtomicBool, Ordering};

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, FloatDType, TensorMetadata};
use burn_cubecl::kernel::matmul::{MatmulStrategy, init_matmul_output, matmul};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
use cubecl::client::ComputeClient;
use cubecl::ir::{ElemType, FloatKind, StorageType};
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems, MatmulSetupError};
use cubek::matmul::launch::{Strategy, launch_ref};
use cubek::std::InputBinding;

use super::elementwise;
use super::float::Float32;
use super::quantize::{self, Job};
use super::second_look;
use crate::kernels::product::{self, Operand, OperandForm};

/// Significant bits of a bfloat16 number.
const SIGNIFICANT_BITS: u32 = 8;

/// Whether products on graphics processors go by a strategy that their shapes fix, and not by the one that was found to be
/// the fastest by trial.
static REPRODUCIBLE: AtomicBool = AtomicBool::new(false);

/// Has matrix products and convolutions of CubeCL's backends computed by a strategy that follows from their shapes alone, so
/// that a run on the same device gives the same bits again. By default (feature `autotune`) the fastest of several strategies is found by
/// trial, which may be another one in each run, and with it the order of sums.
///
/// For the whole process, from the next product on. Without feature `autotune` it changes nothing: there is no trial then.
pub fn reproducible_products(on: bool) {
    REPRODUCIBLE.store(on, Ordering::Relaxed);
}

pub(super) fn is_reproducible() -> bool {
    REPRODUCIBLE.load(Ordering::Relaxed)
}

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

/// Whether [`multiply`] is another product than Burn's own, which on CUDA and HIP may round float32 operands.
pub(super) fn is_own<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
    Float32::of(client) == Float32::Device || is_reproducible()
}

/// The float type in which an operand is multiplied.
pub(super) fn dtype<R: CubeRuntime>(client: &ComputeClient<R>, form: OperandForm) -> DType {
    // A factor that all elements have is not taken out of them here, and has bits of its own.
    let has_tensor_scale = form.tensor_scale.is_some()
        || (form.quantization.blocks).is_some_and(|(format, _)| format.has_tensor_scale());
    let has_kernel =
        (form.quantization.blocks).is_none_or(|(format, _)| second_look::is_short_enough(&format));
    let fits = form.significant_bits <= SIGNIFICANT_BITS && !has_tensor_scale && has_kernel;
    match fits && has_matrix_units(client) {
        true => DType::BF16,
        false => DType::F32,
    }
}

/// The operand in the float type in which it is multiplied.
pub(super) fn operand<R, F, I, B>(
    tensor: CubeTensor<R>,
    form: OperandForm,
) -> Operand<CubeTensor<R>>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    B: BoolElement,
{
    if dtype(&tensor.client, form) == DType::F32 {
        return product::in_tensor::<CubeBackend<R, F, I, B>>(tensor, form);
    }
    let shape = form.place.shape_of(tensor.shape());
    let values = match form.quantization.blocks {
        Some(blocks) => {
            let axis = form.place.block_axis(tensor.rank(), &blocks.0);
            let job = Job::of(form.quantization.elementwise, blocks);
            quantize::quantize_to_bf16(tensor, axis, job)
        }
        None => elementwise::round_to_bf16(tensor, form.quantization.elementwise),
    };
    Operand::Tensor {
        values: CubeBackend::<R, F, I, B>::float_reshape(values, shape),
        transposed: form.place.transposed,
    }
}

/// The product of two operands over their last two axes, in float32.
pub(super) fn multiply<R, F, I, B>(
    lhs: Operand<CubeTensor<R>>,
    rhs: Operand<CubeTensor<R>>,
) -> CubeTensor<R>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    B: BoolElement,
{
    let [lhs, rhs] = [lhs, rhs].map(|operand| match operand {
        Operand::Tensor {
            values,
            transposed: true,
        } => CubeBackend::<R, F, I, B>::float_transpose(values),
        Operand::Tensor { values, .. } => values,
        Operand::Panels { .. } => unreachable!("panels are the processor's"),
    });
    let product = match lhs.dtype == DType::BF16 && rhs.dtype == DType::BF16 {
        true => {
            let strategy = match is_reproducible() {
                true => MatmulStrategy::Cube,
                false => MatmulStrategy::default(),
            };
            matmul(lhs, rhs, None, strategy, DType::F32)
        }
        false => {
            let [lhs, rhs] = [lhs, rhs].map(|operand| match operand.dtype {
                DType::F32 => operand,
                _ => CubeBackend::<R, F, I, B>::float_cast(operand, FloatDType::F32),
            });
            match is_own(&lhs.client) {
                true => in_true_float32(lhs, rhs),
                false => matmul(lhs, rhs, None, MatmulStrategy::default(), DType::F32),
            }
        }
    };
    product.unwrap_or_else(|error| panic!("burn-mx: a matrix product failed: {error:?}"))
}

/// By units that multiply float32 as it is; where those refuse a shape, one by one.
fn in_true_float32<R: CubeRuntime>(
    lhs: CubeTensor<R>,
    rhs: CubeTensor<R>,
) -> Result<CubeTensor<R>, MatmulSetupError> {
    let output = init_matmul_output(&lhs, &rhs, DType::F32);
    let client = output.client.clone();
    let float32 = DType::F32.into();
    let launch = |strategy| {
        let mut elements = MatmulElems::from_globals(&MatmulGlobalElems {
            lhs: float32,
            rhs: float32,
            out: float32,
        });
        launch_ref(
            &strategy,
            &client,
            InputBinding::new(lhs.clone().binding(), float32),
            InputBinding::new(rhs.clone().binding(), float32),
            output.clone().binding(),
            &mut elements,
        )
    };
    launch(Strategy::SimpleUnit(Default::default())).or_else(|_| launch(Strategy::Naive))?;
    Ok(output)
}
