//! Walks through the weights of a model.

use std::collections::BTreeMap;

use burn_core::{
    module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param},
    tensor::{Tensor, TensorData, backend::AutodiffBackend},
};
use burn_mx_core::{MxTensorOps, ResolvedSpecs, Slot};
use burn_mx_module::LayerKind;

use super::{Watched, quantized};
use crate::state::numbers;

/// Where a walk through a model is: names, and the kinds of the layers that they are fields of.
#[derive(Default)]
struct LayerPath(Vec<(String, Option<LayerKind>)>);

impl LayerPath {
    fn enter(&mut self, name: &str, container: &str) {
        self.0.push((name.to_owned(), LayerKind::of(container)));
    }

    fn leave(&mut self) {
        self.0.pop();
    }

    fn path(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.join(".")
    }

    /// The summed axis and the specs of a layer's weight in a block format; `None` for any other parameter.
    fn weight<B: MxTensorOps, const D: usize>(
        &self,
        tensor: &Tensor<B, D>,
    ) -> Option<(usize, &'static ResolvedSpecs)> {
        let (name, kind) = self.0.last()?;
        let axis = (*kind)?.summed_axis();
        let specs = B::specs_of(&tensor.clone().into_primitive().tensor())?;
        let is_weight = name == "weight" && axis < D && specs.block_format(Slot::W).is_some();
        is_weight.then_some((axis, specs))
    }
}

/// A weight as a visit shows it.
pub(super) trait ReadWeight {
    fn shape(&self) -> Vec<usize>;
    /// In row-major order.
    fn values(&self) -> Vec<f32>;
}

impl<B: AutodiffBackend, const D: usize> ReadWeight for Tensor<B, D> {
    fn shape(&self) -> Vec<usize> {
        self.dims().to_vec()
    }

    fn values(&self) -> Vec<f32> {
        numbers(self.clone().inner())
    }
}

/// Calls `see` with each weight in a block format: its path, summed axis and specs.
pub(super) fn visit<B, M>(
    model: &M,
    see: impl FnMut(String, usize, &'static ResolvedSpecs, &dyn ReadWeight),
) where
    B: AutodiffBackend + MxTensorOps,
    M: AutodiffModule<B>,
{
    let mut weights = WeightVisitor {
        place: LayerPath::default(),
        see,
    };
    model.visit(&mut weights);
}

struct WeightVisitor<F> {
    place: LayerPath,
    see: F,
}

impl<B, F> ModuleVisitor<B> for WeightVisitor<F>
where
    B: AutodiffBackend + MxTensorOps,
    F: FnMut(String, usize, &'static ResolvedSpecs, &dyn ReadWeight),
{
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.place.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.place.leave();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        if let Some((axis, specs)) = self.place.weight(&tensor) {
            (self.see)(self.place.path(), axis, specs, &tensor);
        }
    }
}

/// Gives the weights that oscillated their quantized values.
pub(super) struct Resetting {
    place: LayerPath,
    watched: BTreeMap<String, Watched>,
    threshold: f32,
    /// Weights that were reset.
    pub(super) count: u64,
}

impl Resetting {
    pub(super) fn new(watched: BTreeMap<String, Watched>, threshold: f32) -> Self {
        Self {
            place: LayerPath::default(),
            watched,
            threshold,
            count: 0,
        }
    }
}

impl<B: AutodiffBackend + MxTensorOps> ModuleMapper<B> for Resetting {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.place.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.place.leave();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let path = self.place.path();
        let Some(watched) = self.watched.remove(&path) else {
            return param;
        };
        let Some((axis, specs)) = self.place.weight(&param.val()) else {
            return param;
        };
        let (id, old, mapper) = param.consume();
        let weights = old.clone().inner();
        let shape = weights.dims();
        let mut values = numbers(weights.clone());
        let centres = quantized(specs, &values, &shape, axis, &path);
        let count = watched.reset(&path, &mut values, &centres, self.threshold);
        if count == 0 {
            return Param::from_mapped_value(id, old, mapper);
        }
        self.count += count;
        let (device, dtype) = (weights.device(), weights.dtype());
        let data = TensorData::new(values, shape).convert_dtype(dtype);
        let values = Tensor::from_data(data, (&device, dtype));
        // Not `values` itself: a tensor of MxBackend carries its parameter's specs and name from op to op.
        let all = weights.clone().equal(weights.clone());
        let new = Tensor::from_inner(weights.mask_where(all, values));
        let new = new.set_require_grad(old.is_require_grad());
        Param::from_mapped_value(id, new, mapper)
    }
}
