//! Functions that Burn composes of smaller ops and the reference defines as one.

use burn_core::tensor::activation::log_softmax;
use burn_core::tensor::{Tensor, TensorPrimitive};

use burn_mx_core::{Function, MxModelOps};

use super::pieces::full_precision;

fn apply<B: MxModelOps, const D: usize>(tensor: Tensor<B, D>, function: Function) -> Tensor<B, D> {
    let primitive = B::apply(tensor.into_primitive().tensor(), function);
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// `x · sigmoid(x)` by the reference's formula, gradient included. Burn composes its own silu of a sigmoid and a product, so
/// its gradient is rounded at other places.
pub fn silu<B: MxModelOps, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    apply(x, Function::Silu)
}

/// Mish, `x · tanh(ln(1 + exp x))` (Misra, arXiv 1908.08681), by one formula, gradient included. Burn composes its own mish of small
/// ops: in bfloat16 `1 + exp x` is 1 below about −5.5, and Burn's mish 0. This formula keeps bfloat16's relative precision there.
pub fn mish<B: MxModelOps, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    apply(x, Function::Mish)
}

/// `x · sigmoid(1.702 x)`, the reference's first-order gelu, by its formula, gradient included.
pub fn gelu_first_order<B: MxModelOps, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    apply(x, Function::GeluFirstOrder)
}

/// Root-mean-square normalization over the last axis, `γ x / sqrt(mean x² + ε) + β`, by the reference's formula, gradients
/// included. Shapes: `x` `[.., D]`, `gamma` and `beta` `[D]`. Burn's own `RmsNorm` divides where this function multiplies by a
/// rounded reciprocal, and has no `beta`. Call this function with the `gamma` and `epsilon` of a `RmsNorm`.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_mx::{MxBackend, MxDevice, MxSpecs, module::rms_norm};
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// let device = MxDevice::new(FlexDevice, "mxfp8_e4m3")?;
/// let x = Tensor::<MxBackend<Flex>, 2>::from_floats([[3.0, 4.0]], &device);
/// let gamma = Tensor::ones([2], &device);
/// let y = rms_norm(x, gamma, None, 1e-5);
/// // In bfloat16 arithmetic; exactly they are 0.8485… and 1.1313….
/// assert_eq!(y.into_data().to_vec::<f32>()?, [0.8515625, 1.1328125]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// If `gamma` or `beta` does not have as many elements as the last axis of `x`.
pub fn rms_norm<B: MxModelOps, const D: usize>(
    x: Tensor<B, D>,
    gamma: Tensor<B, 1>,
    beta: Option<Tensor<B, 1>>,
    epsilon: f64,
) -> Tensor<B, D> {
    let features = x.dims()[D - 1];
    for (name, parameter) in [("gamma", Some(&gamma)), ("beta", beta.as_ref())] {
        if let Some(parameter) = parameter {
            let [got] = parameter.dims();
            assert_eq!(
                got, features,
                "burn-mx: rms_norm: `{name}` has {got} elements, the last axis of `x` has {features}"
            );
        }
    }
    let primitive = B::rms_norm(
        x.into_primitive().tensor(),
        gamma.into_primitive().tensor(),
        beta.map(|beta| beta.into_primitive().tensor()),
        epsilon,
    );
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// `log(sum(exp x))` over axis `dim`, which keeps its place with length 1, in [full precision](full_precision) as `log_softmax`
/// is. Losses need this function where they have a term beside `log_softmax`: composed of tensor ops on the logits, such a term
/// is emulated.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_mx::{MxAutodiff, MxDevice, module::log_sum_exp};
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// let device = MxDevice::new(FlexDevice, "mxfp8_e4m3")?;
/// let logits = Tensor::<MxAutodiff<Flex>, 2>::from_floats([[0.0, 0.0, 0.0]], &device).require_grad();
/// let z_loss = log_sum_exp(logits, 1).square().mean();
/// assert!((z_loss.into_scalar() - 3.0_f32.ln().powi(2)).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// If `dim` is not less than `D`.
pub fn log_sum_exp<B: MxModelOps, const D: usize>(x: Tensor<B, D>, dim: usize) -> Tensor<B, D> {
    assert!(
        dim < D,
        "burn-mx: log_sum_exp: `dim` is {dim}; allowed: 0 to {}",
        D - 1
    );
    let x = full_precision(x);
    // Any number may be taken out of the sum. The largest one keeps it finite, unless it is infinite itself.
    let largest = x.clone().detach().max_dim(dim);
    let largest = largest.clone().mask_fill(largest.is_inf(), 0.0);
    (x - largest.clone()).exp().sum_dim(dim).log() + largest
}

fn check_shapes<B: MxModelOps, const D: usize>(
    function: &str,
    student: &Tensor<B, D>,
    teacher: &Tensor<B, D>,
) {
    let (of_student, of_teacher) = (student.dims(), teacher.dims());
    assert_eq!(
        of_student, of_teacher,
        "burn-mx: {function}: `student` has the shape {of_student:?}, `teacher` {of_teacher:?}"
    );
}

/// The loss of quantization-aware distillation (QAD, [2601.20088](https://arxiv.org/abs/2601.20088)): KL(teacher ‖ student) of the two softmaxes over the last axis,
/// in nats, the mean over all other axes, in [full precision](full_precision).
///
/// Shapes: both `[.., classes]`. Logits are divided by the `temperature` first, and the result is multiplied by its square, so that
/// gradients keep their size (Hinton et al., [1503.02531](https://arxiv.org/abs/1503.02531) section 2). No gradient reaches the teacher's logits.
/// Where the teacher's probability is 0, as of a logit −∞, a class counts 0.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_mx::{MxAutodiff, MxDevice, module::distillation_loss};
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// let device = MxDevice::new(FlexDevice, "mxfp8_e4m3")?;
/// let student = Tensor::<MxAutodiff<Flex>, 2>::from_floats([[0.0, 0.0]], &device).require_grad();
/// let teacher = Tensor::from_floats([[3.0_f32.ln(), 0.0]], &device);
/// let loss = distillation_loss(student, teacher, 1.0);
/// // 3/4 · ln(3/4 / 1/2) + 1/4 · ln(1/4 / 1/2)
/// assert!((loss.into_scalar() - 0.130812).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// If the shapes differ, or the temperature is not a positive number.
pub fn distillation_loss<B: MxModelOps, const D: usize>(
    student: Tensor<B, D>,
    teacher: Tensor<B, D>,
    temperature: f64,
) -> Tensor<B, 1> {
    check_shapes("distillation_loss", &student, &teacher);
    assert!(
        temperature.is_finite() && temperature > 0.0,
        "burn-mx: distillation_loss: `temperature` is {temperature}; allowed: a positive number"
    );
    let logs = |logits: Tensor<B, D>| log_softmax(full_precision(logits) / temperature, D - 1);
    let (student, teacher) = (logs(student), logs(teacher.detach()));
    let probabilities = teacher.clone().exp();
    let absent = probabilities.clone().equal_elem(0.0);
    let differences = (teacher - student).mask_fill(absent, 0.0);
    let divergences = (probabilities * differences).sum_dim(D - 1);
    divergences.mean() * (temperature * temperature)
}

/// The distance of a student's hidden states from the teacher's: the mean of the squared differences over all elements, in
/// [full precision](full_precision). Distillation adds this loss to [`distillation_loss`], once for each pair of layers, times a weight
/// (TinyBERT, [1909.10351](https://arxiv.org/abs/1909.10351) section 3.1).
///
/// Shapes: both the same, such as `[batch, length, width]`. No gradient reaches the teacher's states.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_mx::{MxAutodiff, MxDevice, module::hidden_state_loss};
/// # use burn_core::tensor::Tensor;
/// # use burn_flex::{Flex, FlexDevice};
/// let device = MxDevice::new(FlexDevice, "mxfp8_e4m3")?;
/// let student = Tensor::<MxAutodiff<Flex>, 2>::from_floats([[1.0, 0.3]], &device).require_grad();
/// let teacher = Tensor::from_floats([[1.0, 0.1]], &device);
/// let loss = hidden_state_loss(student, teacher);
/// assert!((loss.into_scalar() - 0.02).abs() < 1e-7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// If the shapes differ.
pub fn hidden_state_loss<B: MxModelOps, const D: usize>(
    student: Tensor<B, D>,
    teacher: Tensor<B, D>,
) -> Tensor<B, 1> {
    check_shapes("hidden_state_loss", &student, &teacher);
    let difference = full_precision(student) - full_precision(teacher.detach());
    difference.square().mean()
}
