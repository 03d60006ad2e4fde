//! Operands of products made by hand: arrays that are rounded by `half` and quantized by `microscaling`.

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};
use burn_mx::MxSpecs;
use burn_mx::{BlockFormat, ElementFormat, RandomStream, Rounding};
use half::bf16;

use crate::support::*;

/// A dense array in row-major order.
#[derive(Clone)]
pub(crate) struct Array {
    pub(crate) values: Vec<f32>,
    pub(crate) shape: Vec<usize>,
}

impl Array {
    pub(crate) fn noise(shape: &[usize], seed: u64) -> Self {
        Self {
            values: noise(shape.iter().product(), seed),
            shape: shape.to_vec(),
        }
    }

    pub(crate) fn of<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Self {
        Self {
            shape: tensor.dims().to_vec(),
            values: values(tensor),
        }
    }

    pub(crate) fn tensor<B: Backend, const D: usize>(&self, device: &B::Device) -> Tensor<B, D> {
        Tensor::from_data(
            TensorData::new(self.values.clone(), self.shape.clone()),
            device,
        )
    }

    /// Rounded to bfloat16, ties to even, by `half`; or unrounded.
    pub(crate) fn rounded(mut self, bfloat16: bool) -> Self {
        if bfloat16 {
            let round = |x: &mut f32| *x = bf16::from_f32(*x).to_f32();
            self.values.iter_mut().for_each(round);
        }
        self
    }

    /// Rounded, then quantized along `axis` as an operand is.
    pub(crate) fn operand(self, bfloat16: bool, axis: usize, (element, rounding): Operand) -> Self {
        let format = BlockFormat::mx(element, BLOCK);
        let mut operand = self.rounded(bfloat16);
        format
            .quantize(
                &mut operand.values,
                &operand.shape,
                axis,
                rounding.with(RandomStream::new(0, 0)),
            )
            .expect("axis is one of the shape's");
        operand
    }
}

/// Element format and rounding of an operand.
pub(crate) type Operand = (ElementFormat, Rounding);

/// Small, so that blocks end inside of a handful of channels.
pub(crate) const BLOCK: usize = 4;

pub(crate) const W: Operand = (ElementFormat::FP4_E2M1, Rounding::NearestEven);
pub(crate) const A: Operand = (ElementFormat::FP6_E2M3, Rounding::NearestEven);
pub(crate) const W_BP: Operand = (ElementFormat::FP6_E3M2, Rounding::NearestAway);
pub(crate) const A_BP: Operand = (ElementFormat::INT8, Rounding::TowardZero);
pub(crate) const A_BP_EX: Operand = (ElementFormat::FP8_E5M2, Rounding::NearestAway);
pub(crate) const A_BP_OS: Operand = (ElementFormat::FP8_E4M3, Rounding::TowardZero);

/// The specs of those formats and roundings, with elementwise bfloat16 or without.
pub(crate) fn specs(bfloat16: bool) -> MxSpecs {
    MxSpecs {
        w_elem_format: Some(W.0.into()),
        a_elem_format: Some(A.0.into()),
        w_elem_format_bp: Some(W_BP.0.into()),
        a_elem_format_bp: Some(A_BP.0.into()),
        a_elem_format_bp_ex: Some(A_BP_EX.0.into()),
        a_elem_format_bp_os: Some(A_BP_OS.0.into()),
        block_size: BLOCK,
        bfloat: if bfloat16 { 16 } else { 0 },
        round: Rounding::NearestEven,
        round_mx_input_grad_input: Some(A_BP.1),
        round_mx_output: Some(W.1),
        round_mx_weight_grad_input: Some(W_BP.1),
        round_mx_input_grad_weight: Some(A_BP.1),
        round_mx_grad_output_grad_weight: Some(A_BP_EX.1),
        round_mx_grad_output_grad_input: Some(A_BP_OS.1),
        ..MxSpecs::mx()
    }
}
