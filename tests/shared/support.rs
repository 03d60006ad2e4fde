//! The common parts of the behaviour tests: backends, devices, data, exact comparisons.

use burn::backend::Autodiff;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::backend::{AutodiffBackend, Backend};
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Tensor, TensorData, TensorPrimitive};
use burn_backend::get_device_settings;
use burn_mx::module::{as_activation, full_precision};
use burn_mx::{ElementwiseScope, MxAutodiff, MxDevice, MxKernels, MxSpecs};

pub(crate) use crate::backend::{TestBackend, TestDevice};
pub(crate) use crate::noise::noise;

/// The independent source: Burn alone.
pub(crate) type Plain = Autodiff<TestBackend>;
/// The backend under test.
pub(crate) type Mx = MxAutodiff<TestBackend>;

/// A device with these specs.
pub(crate) fn mx_device(specs: &MxSpecs) -> MxDevice<TestDevice> {
    let specs = specs.resolve().expect("the specs are sound");
    MxDevice::new(TestDevice::default(), &specs).expect("resolved specs")
}

/// Specs that leave the values between operations alone: MX products only.
pub(crate) fn mx_only(specs: MxSpecs) -> MxSpecs {
    MxSpecs { bfloat: 0, ..specs }
}

/// The specs with elementwise ops emulated on all tensors, as in the reference: to test ops on data alone.
pub(crate) fn everywhere(specs: MxSpecs) -> MxSpecs {
    MxSpecs {
        elementwise_scope: ElementwiseScope::All,
        ..specs
    }
}

/// Specs without MX products: elementwise bfloat16 only.
pub(crate) fn bfloat16_only() -> MxSpecs {
    MxSpecs {
        bfloat: 16,
        ..MxSpecs::none()
    }
}

/// A tensor of [`noise`].
pub(crate) fn noise_tensor<B: Backend, const D: usize>(
    shape: [usize; D],
    seed: u64,
    device: &B::Device,
) -> Tensor<B, D> {
    let values = noise(shape.iter().product(), seed);
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The values in row-major order.
pub(crate) fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    let data = tensor.into_data();
    data.into_vec().expect("the tensor holds f32")
}

/// Asserts equality bit for bit; any NaN equals any other.
#[track_caller]
pub(crate) fn assert_same_bits(got: &[f32], expected: &[f32], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: number of values");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
        assert!(same, "{what}[{i}]: got {got:e}, expected {expected:e}");
    }
}

/// [`assert_same_bits`] for several tensors.
#[track_caller]
pub(crate) fn assert_all_same_bits(got: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: number of tensors");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_same_bits(got, expected, &format!("{what} {i}"));
    }
}

/// Asserts that a list of findings is empty.
#[track_caller]
#[cfg_attr(not(test_backend = "flex"), allow(dead_code))]
pub(crate) fn assert_none(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Whether bfloat16 holds the value.
pub(crate) fn is_bfloat16(value: f32) -> bool {
    value.to_bits() & 0xffff == 0
}

/// The module with weights of [`noise`] in the order of its parameters, so that they are the same on every
/// backend.
pub(crate) fn with_noise_weights<B: Backend, M: Module<B>>(module: M, seed: u64) -> M {
    struct Noise(u64);
    impl<B: Backend> ModuleMapper<B> for Noise {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            self.0 += 1;
            let seed = self.0;
            param.map(|tensor| {
                let noise = noise_tensor::<B, D>(tensor.dims(), seed, &tensor.device());
                noise.set_require_grad(tensor.is_require_grad())
            })
        }
    }
    module.map(&mut Noise(seed))
}

/// The values of all parameters.
pub(crate) fn weights<B: Backend, M: Module<B>>(module: &M) -> Vec<Vec<f32>> {
    struct Collect(Vec<Vec<f32>>);
    impl<B: Backend> ModuleVisitor<B> for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            self.0.push(values(param.val()));
        }
    }
    let mut collect = Collect(Vec::new());
    module.visit(&mut collect);
    collect.0
}

/// The gradients of all parameters.
pub(crate) fn gradients<B: AutodiffBackend, M: Module<B>>(
    module: &M,
    grads: &B::Gradients,
) -> Vec<Vec<f32>> {
    let named = named_gradients::<B, M>(module, grads);
    named.into_iter().map(|(_, gradient)| gradient).collect()
}

/// The gradients of all parameters by path; those that have none are empty.
pub(crate) fn named_gradients<B: AutodiffBackend, M: Module<B>>(
    module: &M,
    grads: &B::Gradients,
) -> Vec<(String, Vec<f32>)> {
    struct Collect<'a, B: AutodiffBackend> {
        grads: &'a B::Gradients,
        path: Vec<String>,
        collected: Vec<(String, Vec<f32>)>,
    }
    impl<B: AutodiffBackend> ModuleVisitor<B> for Collect<'_, B> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let gradient = param.val().grad(self.grads);
            let gradient = gradient.map_or_else(Vec::new, values);
            self.collected.push((self.path.join("."), gradient));
        }
    }
    let mut collect = Collect::<B> {
        grads,
        path: Vec::new(),
        collected: Vec::new(),
    };
    module.visit(&mut collect);
    collect.collected
}

/// A backend on which a piece of a test can be computed in plain float32.
pub(crate) trait Exact: AutodiffBackend {
    fn exact<const D: usize>(tensor: Tensor<Self, D>) -> Tensor<Self, D>;

    /// The tensor as an input, if it is a leaf that would count as a parameter.
    #[cfg_attr(not(test_backend = "flex"), allow(dead_code))]
    fn input(tensor: FloatTensor<Self>) -> FloatTensor<Self>;

    /// The scalar whose gradient by `tensor` is exactly `gradient`.
    fn loss_with_gradient<const D: usize>(
        tensor: Tensor<Self, D>,
        gradient: Tensor<Self, D>,
    ) -> Tensor<Self, 1> {
        (Self::exact(tensor) * Self::exact(gradient)).sum()
    }
}

/// The leaf as an activation, which follows from data and from a parameter: its values and its gradient are the leaf's. A mask that nothing
/// passes through follows from both.
#[cfg_attr(not(test_backend = "flex"), allow(dead_code))]
pub(crate) fn activation<B: Exact>(leaf: FloatTensor<B>) -> FloatTensor<B> {
    let data = B::input(B::float_detach(leaf.clone()));
    let dtype = get_device_settings::<B>(&B::float_device(&leaf)).bool_dtype;
    let mask = B::float_greater_elem(
        B::float_mul(leaf.clone(), data),
        f32::INFINITY.into(),
        dtype,
    );
    B::float_mask_fill(B::input(leaf), mask, 0.0.into())
}

/// As [`activation`], of a tensor.
#[cfg_attr(not(test_backend = "flex"), allow(dead_code))]
pub(crate) fn as_hidden<B: Exact, const D: usize>(leaf: Tensor<B, D>) -> Tensor<B, D> {
    let hidden = activation::<B>(leaf.into_primitive().tensor());
    Tensor::from_primitive(TensorPrimitive::Float(hidden))
}

impl<B: Backend> Exact for Autodiff<B> {
    fn exact<const D: usize>(tensor: Tensor<Self, D>) -> Tensor<Self, D> {
        tensor
    }

    fn input(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        tensor
    }
}

impl<B: MxKernels, C: burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy> Exact
    for MxAutodiff<B, C>
{
    fn exact<const D: usize>(tensor: Tensor<Self, D>) -> Tensor<Self, D> {
        full_precision(tensor)
    }

    fn input(tensor: FloatTensor<Self>) -> FloatTensor<Self> {
        // The rank that is said here does not matter.
        let tensor = Tensor::<Self, 1>::from_primitive(TensorPrimitive::Float(tensor));
        as_activation(tensor).into_primitive().tensor()
    }
}
