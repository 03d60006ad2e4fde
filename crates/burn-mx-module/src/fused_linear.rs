//! Linear layers that are computed by one product.

use burn_core::tensor::Tensor;
use burn_core::tensor::module::linear;

use super::pieces::as_weight;
use burn_mx_core::MxModelOps;

/// The outputs of linear layers that have one input, by one product with their stacked weights, as engines compute q, k and v, and
/// gate and up. The product quantizes the stacked weight as one tensor. So in a format with a tensor scale, the layers have one scale, in each
/// step of a training and in inference. Gradients reach the weights and biases of the layers. The layers need equal specs.
///
/// Shapes: `x` `[.., in]`, weights `[in, out]` and biases `[out]` with an `out` for each layer, outputs `[.., out]`.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::{MxBackend, MxDevice, MxSpecs, module::fused_linear};
/// let device = MxDevice::new(FlexDevice, MxSpecs { a_elem_format: None, ..MxSpecs::nvfp4() })?;
/// let ones = |outputs: usize| Tensor::<MxBackend<Flex>, 2>::ones([16, outputs], &device);
/// let x = Tensor::ones([1, 16], &device);
/// let [q, k] = fused_linear(x, [(ones(3), None), (ones(2), None)]);
/// assert_eq!((q.dims(), k.dims()), ([1, 3], [1, 2]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A weight from a checkpoint loses the knowledge that its values are quantized, as in any op: call the layers themselves for the
/// checkpoint's bits.
///
/// # Panics
///
/// If the weights do not have as many inputs as `x`, or some layers have a bias and some have none.
pub fn fused_linear<B: MxModelOps, const D: usize, const N: usize>(
    x: Tensor<B, D>,
    layers: [(Tensor<B, 2>, Option<Tensor<B, 1>>); N],
) -> [Tensor<B, D>; N] {
    let inputs = x.dims()[D - 1];
    let mut biases = Vec::new();
    let mut weights = Vec::new();
    for (weight, bias) in layers {
        let [got, _] = weight.dims();
        assert_eq!(
            got, inputs,
            "burn-mx: fused_linear: a weight has {got} inputs, the last axis of `x` has {inputs}"
        );
        weights.push(weight);
        biases.extend(bias);
    }
    assert!(
        biases.is_empty() || biases.len() == N,
        "burn-mx: fused_linear: {} of {N} layers have a bias; allowed: all or none",
        biases.len()
    );
    let outputs: Vec<usize> = weights.iter().map(|weight| weight.dims()[1]).collect();
    // The result of an op would be an activation.
    let weight = as_weight(Tensor::cat(weights, 1));
    let bias = (!biases.is_empty()).then(|| as_weight(Tensor::cat(biases, 0)));
    let y = linear(x, weight, bias);
    let mut start = 0;
    core::array::from_fn(|layer| {
        let part = y.clone().narrow(D - 1, start, outputs[layer]);
        start += outputs[layer];
        part
    })
}
