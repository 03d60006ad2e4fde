//! Walks through the weights of a model.

use std::collections::BTreeMap;

use burn_core::{
    module::{AutodiffModule, ModuleMapper, ModuleVisitor, Param},
    tensor::{Tensor, TensorData, backend::AutodiffBackend},
};
use burn_mx_core::{MxTensorOps, ResolvedSpecs, Slot};
use burn_mx_module::LayerPath;

use super::{Watched, quantized};
use crate::state::numbers;

/// The summed axis and the specs of a layer's weight in a block format; `None` for any other parameter.
fn block_weight<B: MxTensorOps, const D: usize>(
    path: &LayerPath,
    tensor: &Tensor<B, D>,
) -> Option<(usize, &'static ResolvedSpecs)> {
    let axis = path.kind_of_weight()?.summed_axis();
    let specs = B::specs_of(&tensor.clone().into_primitive().tensor())?;
    (axis < D && specs.block_format(Slot::W).is_some()).then_some((axis, specs))
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
        path: LayerPath::default(),
        see,
    };
    model.visit(&mut weights);
}

struct WeightVisitor<F> {
    path: LayerPath,
    see: F,
}

impl<B, F> ModuleVisitor<B> for WeightVisitor<F>
where
    B: AutodiffBackend + MxTensorOps,
    F: FnMut(String, usize, &'static ResolvedSpecs, &dyn ReadWeight),
{
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let tensor = param.val();
        if let Some((axis, specs)) = block_weight(&self.path, &tensor) {
            (self.see)(self.path.parameter(), axis, specs, &tensor);
        }
    }
}

/// Gives the weights that oscillated their quantized values.
pub(super) struct Resetting {
    path: LayerPath,
    watched: BTreeMap<String, Watched>,
    threshold: f32,
    /// Weights that were reset.
    pub(super) count: u64,
}

impl Resetting {
    pub(super) fn new(watched: BTreeMap<String, Watched>, threshold: f32) -> Self {
        Self {
            path: LayerPath::default(),
            watched,
            threshold,
            count: 0,
        }
    }
}

impl<B: AutodiffBackend + MxTensorOps> ModuleMapper<B> for Resetting {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let path = self.path.parameter();
        let Some(watched) = self.watched.remove(&path) else {
            return param;
        };
        let Some((axis, specs)) = block_weight(&self.path, &param.val()) else {
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
