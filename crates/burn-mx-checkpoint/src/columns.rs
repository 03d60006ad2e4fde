//! Linear layers in columns (`LinearLayout::Col`). Their parameters transpose their values on saving and loading, so the same
//! layer would have another shape in a file. This module removes the transposition: in a file, a layer has the same shape in
//! either layout.

use std::any::Any;
use std::collections::HashMap;

use burn_core::module::{Module, ModuleMapper, Param, ParamId, ParamMapper};
use burn_core::tensor::Tensor;
use burn_core::tensor::backend::Backend;

use crate::weights::Path;
use burn_mx_module::LayerKind;

/// A model whose linear layers save and load their weights without the transposition, and the means to restore it.
pub(super) fn in_rows<B: Backend, M: Module<B>>(model: M) -> (M, Columns) {
    let mut straightener = Straightener {
        path: Path::new(false),
        columns: Columns::default(),
    };
    let model = model.map(&mut straightener);
    (model, straightener.columns)
}

/// The mappers of parameters in columns, by parameter id. A `ParamMapper` has another type for each rank.
#[derive(Default)]
pub(super) struct Columns(HashMap<ParamId, Box<dyn Any>>);

impl Columns {
    pub(super) fn back_in<B: Backend, M: Module<B>>(self, model: M) -> M {
        let mut restorer = Restorer(self);
        model.map(&mut restorer)
    }
}

struct Straightener {
    path: Path,
    columns: Columns,
}

impl<B: Backend> ModuleMapper<B> for Straightener {
    #[track_caller]
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.enter(name, container_type);
    }

    fn exit_module(&mut self, _name: &str, container_type: &str) {
        self.path.exit(container_type);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        if self.path.layer() != Some(LayerKind::Linear) {
            return param;
        }
        let (id, tensor, found) = param.consume();
        if !transposes(&found, &tensor) {
            return Param::from_mapped_value(id, tensor, found);
        }
        let [save, load] = [(); 2].map(|()| found.clone());
        self.columns.0.insert(id, Box::new(found));
        Param::from_mapped_value(id, tensor, ParamMapper::default())
            .save_mapper(move |tensor| save.on_save(tensor).transpose())
            .load_mapper(move |tensor| load.on_load(tensor.transpose()))
    }
}

/// Whether the mapper transposes. The probe is a tensor of the same shape with a single nonzero number.
fn transposes<B: Backend, const D: usize>(
    mapper: &ParamMapper<Tensor<B, D>>,
    tensor: &Tensor<B, D>,
) -> bool {
    let shape = tensor.dims();
    // One row or column leaves no other way to tell, and one number needs none.
    if D != 2 || shape.iter().product::<usize>() < 2 {
        return false;
    }
    let at = shape[1] - 1;
    let mut corner = [(); D].map(|()| 0..1);
    corner[1] = at..at + 1;
    let device = tensor.device();
    let one = Tensor::<B, D>::ones([1; D], &device);
    let probe = Tensor::<B, D>::zeros(shape, &device).slice_assign(corner.clone(), one);
    let saved = mapper.on_save(probe);
    let mut expected = shape;
    expected.reverse();
    if saved.dims() != expected {
        return false;
    }
    corner.reverse();
    let number = saved.slice(corner).into_data();
    number.iter::<f32>().next() == Some(1.0)
}

struct Restorer(Columns);

impl<B: Backend> ModuleMapper<B> for Restorer {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let columns = &self.0.0;
        let Some(found) = columns
            .get(&param.id)
            .and_then(|found| found.downcast_ref())
        else {
            return param;
        };
        let found: &ParamMapper<Tensor<B, D>> = found;
        let (id, tensor, _) = param.consume();
        Param::from_mapped_value(id, tensor, found.clone())
    }
}
