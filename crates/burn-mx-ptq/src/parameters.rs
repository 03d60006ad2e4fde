//! A model's parameters by their labels.

use burn_backend::tensor::FloatTensor;
use burn_backend::{FloatDType, read_sync};
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::{Tensor, TensorPrimitive};

use burn_mx_core::MxBackend;
use burn_mx_core::{MxKernels, MxTensorOps, ResolvedSpecs, to_f32};

/// The field of a layer's weight.
pub(super) const WEIGHT: &str = "weight";
/// The field of a layer's bias.
pub(super) const BIAS: &str = "bias";

/// Values in `f32` of parameters, by their labels.
pub(super) type Replacements<B> = Vec<(String, FloatTensor<B>)>;

/// The `f32` values of the parameter with this label, if the model has one, and the type in which the model stores it.
pub(super) fn value<B: MxKernels, M: Module<MxBackend<B>>>(
    model: &M,
    label: &str,
) -> Option<(FloatTensor<B>, Option<FloatDType>)> {
    struct Find<'a, B: MxKernels> {
        label: &'a str,
        found: Option<(FloatTensor<B>, Option<FloatDType>)>,
    }
    impl<B: MxKernels> ModuleVisitor<MxBackend<B>> for Find<'_, B> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<MxBackend<B>, D>>) {
            let tensor = param.val().into_primitive().tensor();
            if MxBackend::<B>::label_of(&tensor) == Some(self.label) {
                let storage = tensor.float_type();
                self.found = Some((to_f32::<B>(tensor.into_inner()), storage));
            }
        }
    }
    let mut find = Find { label, found: None };
    model.visit(&mut find);
    find.found
}

/// The specs of the device that the model is on: of the first device that emulates something, else of any with specs. Specs that were set
/// by path do not count.
pub(super) fn specs_of_device<B: MxKernels, M: Module<MxBackend<B>>>(
    model: &M,
) -> Option<ResolvedSpecs> {
    #[derive(Default)]
    struct Find(Option<ResolvedSpecs>);
    impl<B: MxKernels> ModuleVisitor<MxBackend<B>> for Find {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<MxBackend<B>, D>>) {
            if self.0.as_ref().is_none_or(ResolvedSpecs::is_none) {
                let specs = param.val().device().specs().cloned();
                self.0 = specs.or(self.0.take());
            }
        }
    }
    let mut find = Find::default();
    model.visit(&mut find);
    find.0
}

/// Replaces the values of the parameters with these labels.
pub(super) fn replace<B: MxKernels, M: Module<MxBackend<B>>>(
    model: M,
    values: Replacements<B>,
) -> M {
    struct Replace<B: MxKernels>(Replacements<B>);
    impl<B: MxKernels> ModuleMapper<MxBackend<B>> for Replace<B> {
        fn map_float<const D: usize>(
            &mut self,
            param: Param<Tensor<MxBackend<B>, D>>,
        ) -> Param<Tensor<MxBackend<B>, D>> {
            let label = MxBackend::<B>::label_of(&param.val().into_primitive().tensor());
            let mut values = self.0.iter();
            let value = values.find(|(name, _)| Some(name.as_str()) == label);
            let Some((_, value)) = value.cloned() else {
                return param;
            };
            param.map(|tensor| {
                let new = MxBackend::<B>::with_values(tensor.into_primitive().tensor(), value);
                Tensor::from_primitive(TensorPrimitive::Float(new))
            })
        }
    }
    model.map(&mut Replace(values))
}

/// The values in row-major order.
pub(super) fn values<B: MxKernels>(tensor: FloatTensor<B>) -> Vec<f32> {
    let data = read_sync(B::float_into_data(to_f32::<B>(tensor)));
    let data = data.unwrap_or_else(|error| panic!("burn-mx: reading a tensor failed: {error}"));
    data.iter::<f32>().collect()
}
