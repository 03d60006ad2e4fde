//! A model's parameters by their labels.

use burn_backend::tensor::FloatTensor;
use burn_backend::{FloatDType, TensorMetadata};
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_core::tensor::{Tensor, TensorPrimitive};

use crate::backend::MxBackend;
use crate::kernels::{MxKernels, from_f32, to_f32};
use crate::tensor::MxTensor;

/// Values in `f32` of parameters, by their labels.
pub(super) type Replacements<B> = Vec<(String, FloatTensor<B>)>;

/// The values in `f32` of the parameter with this label, if the model has one, and what it stores them as.
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
            if tensor.meta.label == Some(self.label) {
                self.found = Some((to_f32::<B>(tensor.inner), tensor.meta.storage));
            }
        }
    }
    let mut find = Find { label, found: None };
    model.visit(&mut find);
    find.found
}

/// The model with these values in the parameters with these labels.
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
            let label = param.val().into_primitive().tensor().meta.label;
            let mut values = self.0.iter();
            let value = values.find(|(name, _)| Some(name.as_str()) == label);
            let Some((_, value)) = value.cloned() else {
                return param;
            };
            param.map(|tensor| {
                let old = tensor.into_primitive().tensor();
                debug_assert_eq!(value.shape(), old.shape());
                let new = MxTensor::new(from_f32::<B>(value, old.meta.storage), old.meta);
                Tensor::from_primitive(TensorPrimitive::Float(new.into_weight()))
            })
        }
    }
    model.map(&mut Replace(values))
}
