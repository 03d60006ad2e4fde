//! Backends whose operands of products are quantized one step after another, each step over the whole tensor in memory.

use std::sync::Arc;

use burn_backend::tensor::FloatTensor;
use burn_backend::{TensorData, TensorMetadata};
use burn_mx::{MxKernels, Portable};
use burn_mx_core::internal::{OpWatch, SeenTensors};
use burn_mx_kernels::internal::{
    Convolution, ConvolutionProduct, KernelOp, KernelSet, Operand, OperandForm, PortableKernels,
    in_tensor, quantized,
};
use microscaling::OperandQuantization;

/// The kernels of [`Plain`]. The order of sums is the backend's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Plainly;

pub(super) type Plain<B> = Portable<B, Plainly>;

impl<B: MxKernels> OpWatch<B> for Plainly {
    type Call = ();

    fn kernels() -> &'static dyn KernelSet<Plain<B>> {
        &Plainly
    }

    fn before(_: &'static str, _: &[SeenTensors<'_>]) {}

    fn after((): (), _: u64) {}
}

/// The plain values, as they lie in memory where the backend has computed the same: its own products have another order of sums for other
/// strides.
fn as_backend_has<B: MxKernels>(plain: FloatTensor<B>, fast: FloatTensor<B>) -> FloatTensor<B> {
    if is_same::<B>(&fast, &plain) {
        fast
    } else {
        plain
    }
}

impl<B: MxKernels> KernelSet<Plain<B>> for Plainly {
    fn run(
        &self,
        op: KernelOp,
        first: FloatTensor<B>,
        others: [Option<FloatTensor<B>>; 2],
    ) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
        let plain = KernelSet::<Plain<B>>::run(&PortableKernels, op, first.clone(), others.clone());
        let fast = B::kernels().run(op, first, others);
        let second = plain
            .1
            .zip(fast.1)
            .map(|(plain, fast)| as_backend_has::<B>(plain, fast));
        (as_backend_has::<B>(plain.0, fast.0), second)
    }

    fn product_operand(
        &self,
        tensor: FloatTensor<B>,
        form: OperandForm,
    ) -> Operand<FloatTensor<B>> {
        let has_scale = form
            .quantization
            .blocks
            .is_some_and(|(format, _)| format.tensor_scale);
        let apart = has_scale
            .then(|| beside_its_scale::<B>(&tensor, form))
            .flatten();
        if let Some(apart) = apart {
            return apart;
        }
        let plain = in_tensor::<Plain<B>>(tensor.clone(), form);
        let Operand::Tensor { values, .. } = &plain else {
            unreachable!("a tensor is wanted");
        };
        let in_panels = || B::kernels().product_operand(values.clone(), as_it_is(form));
        if !has_scale && let panels @ Operand::Panels { .. } = in_panels() {
            return panels;
        }
        match (plain, B::kernels().product_operand(tensor, form)) {
            (
                Operand::Tensor {
                    values: plain,
                    transposed,
                    ..
                },
                Operand::Tensor {
                    values,
                    tensor_scale,
                    ..
                },
            ) => Operand::Tensor {
                values: as_backend_has::<B>(plain, values),
                transposed,
                tensor_scale,
            },
            (plain, _) => plain,
        }
    }

    fn product(
        &self,
        lhs: Operand<FloatTensor<B>>,
        rhs: Operand<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        B::kernels().product(lhs, rhs)
    }

    fn convolution_product(
        &self,
        convolution: &Convolution,
        product: &ConvolutionProduct,
        operands: [&FloatTensor<B>; 2],
        bias: Option<&FloatTensor<B>>,
        significant_bits: u32,
    ) -> Option<FloatTensor<B>> {
        B::kernels().convolution_product(convolution, product, operands, bias, significant_bits)
    }
}

fn read<B: MxKernels>(tensor: &FloatTensor<B>) -> Vec<f32> {
    let data = burn_backend::read_sync(B::float_into_data(tensor.clone())).unwrap();
    data.into_vec().unwrap()
}

fn is_same<B: MxKernels>(a: &FloatTensor<B>, b: &FloatTensor<B>) -> bool {
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    a.shape() == b.shape() && read::<B>(a).iter().zip(&read::<B>(b)).all(same)
}

fn as_it_is(form: OperandForm) -> OperandForm {
    OperandForm {
        quantization: OperandQuantization::default(),
        ..form
    }
}

/// Elements and tensor scale, where they can be told apart and bfloat16 holds the elements.
fn beside_its_scale<B: MxKernels>(
    tensor: &FloatTensor<B>,
    form: OperandForm,
) -> Option<Operand<FloatTensor<B>>> {
    let quantization = form.quantization;
    let shape = tensor.shape();
    let summed = form.place.summed_axis(shape.num_dims());
    let before = quantized::<Plain<B>>(tensor.clone(), summed, quantization.before_blocks());
    let mut values = read::<B>(&before);
    let (format, rounding) = quantization.blocks?;
    let axis = form.place.block_axis(shape.num_dims(), &format);
    let rounder = rounding.with(quantization.stream);
    let scale = format.quantize_without_tensor_scale(&mut values, &shape, axis, rounder);
    let scale = scale.unwrap()?;
    let data = TensorData::new(values, form.place.shape_of(shape));
    let elements = B::float_from_data(data, &Default::default());
    match B::kernels().product_operand(elements, as_it_is(form)) {
        Operand::Panels { panels, leading } => {
            let panels = Arc::into_inner(panels)?.with_tensor_scale(scale);
            Some(Operand::Panels {
                panels: Arc::new(panels),
                leading,
            })
        }
        _ => None,
    }
}
