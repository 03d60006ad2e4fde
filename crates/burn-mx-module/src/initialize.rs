//! Parameters without a value.

use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::{Bool, Int, Tensor};

/// Initializes the lazy parameters of a model. A clone of a lazy parameter would draw other values than the original.
pub fn initialize<B: Backend, M: Module<B>>(model: &M) {
    model.visit(&mut Initializer);
}

struct Initializer;

impl<B: Backend> ModuleVisitor<B> for Initializer {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        param.val();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<B, D, Int>>) {
        param.val();
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<B, D, Bool>>) {
        param.val();
    }
}
