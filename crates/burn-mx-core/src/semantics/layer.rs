//! The operands of a layer's product, one by one.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::conv::{Direction, Geometry};
use super::linear;
use super::product::{ForwardOperand, Product};
use crate::hooks::LayerOp;
use crate::tensor::shared_specs::SharedSpecs;
use crate::tensor::{Meta, MxTensor};
use burn_mx_kernels::MxKernels;

impl LayerOp {
    /// x and weight, for tensors of these ranks.
    fn operands(&self, x_rank: usize, weight_rank: usize) -> [ForwardOperand; 2] {
        let convolution = |geometry: Geometry| geometry.forward_operands();
        match self {
            Self::Linear => linear::forward_operands(x_rank, weight_rank),
            Self::Conv1d(options) => convolution(options.into()),
            Self::Conv2d(options) => convolution(options.into()),
            Self::Conv3d(options) => convolution(options.into()),
            Self::ConvTranspose1d(options) => convolution(options.into()),
            Self::ConvTranspose2d(options) => convolution(options.into()),
            Self::ConvTranspose3d(options) => convolution(options.into()),
        }
    }

    /// Multiplications of a layer with an x, an output and a weight of these shapes.
    pub(crate) fn macs(&self, [x, output]: [&Shape; 2], weight: &Shape) -> usize {
        let direction = match self {
            Self::Linear => return output.num_elements() * weight[0],
            Self::Conv1d(_) | Self::Conv2d(_) | Self::Conv3d(_) => Direction::Normal,
            Self::ConvTranspose1d(_) | Self::ConvTranspose2d(_) | Self::ConvTranspose3d(_) => {
                Direction::Transposed
            }
        };
        direction.macs([x, output], weight)
    }

    /// The axes of x and weight, of these ranks, that the layer's product sums over.
    pub fn summed_axes(&self, x_rank: usize, weight_rank: usize) -> [usize; 2] {
        self.operands(x_rank, weight_rank)
            .map(|operand| operand.along.axis)
    }

    /// x as the layer's product takes it by these specs, which draw no random numbers; of a weight of this rank.
    pub fn quantized_input<B: MxKernels>(
        &self,
        specs: &'static SharedSpecs,
        x: FloatTensor<B>,
        weight_rank: usize,
    ) -> FloatTensor<B> {
        let [of_x, _] = self.operands(x.rank(), weight_rank);
        self.quantized::<B>(specs, of_x, x)
    }

    /// The weight as the layer's product takes it by these specs, which draw no random numbers; of an x of this rank.
    pub fn quantized_weight<B: MxKernels>(
        &self,
        specs: &'static SharedSpecs,
        weight: FloatTensor<B>,
        x_rank: usize,
    ) -> FloatTensor<B> {
        let [_, of_weight] = self.operands(x_rank, weight.rank());
        self.quantized::<B>(specs, of_weight, weight)
    }

    fn quantized<B: MxKernels>(
        &self,
        specs: &'static SharedSpecs,
        operand: ForwardOperand,
        tensor: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let tensor = MxTensor::new(tensor, Meta::default());
        let product = Product::<B>::unobserved(self.product_op(), specs);
        product.tensor_operand(operand.slot, tensor, operand.along)
    }
}
