//! The batch norms of a model, and the layers before them.

use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::Tensor;

use crate::parameters::values;
use burn_mx_core::MxBackend;
use burn_mx_core::MxKernels;

pub(super) const GAMMA: &str = "gamma";
pub(crate) const BETA: &str = "beta";

/// A batch norm of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Norm {
    pub(super) path: String,
    pub(super) gamma: Vec<f32>,
    pub(super) beta: Vec<f32>,
    pub(super) mean: Vec<f32>,
    pub(super) variance: Vec<f32>,
    /// The label of the weight before the norm in the order of the module's fields.
    pub(super) after: Option<String>,
}

/// The batch norms of a model, found by their type. `layers` are the labels of the weights of the model's layers.
pub(super) fn norms_of<B: MxKernels, M: Module<MxBackend<B>>>(
    model: &M,
    layers: &[String],
) -> Vec<Norm> {
    struct Find<'a> {
        layers: &'a [String],
        path: Vec<String>,
        norms: Vec<Norm>,
        /// The last layer before the present place of the walk.
        last: Option<String>,
        /// Whether the walk is inside a norm.
        within: bool,
    }
    impl<B: MxKernels> ModuleVisitor<MxBackend<B>> for Find<'_> {
        // Called for each field: the type is the type of the field's module.
        fn enter_module(&mut self, name: &str, container_type: &str) {
            self.within = container_type == "Struct:BatchNorm";
            if self.within {
                let path = self.path.join(".");
                if self.norms.last().is_none_or(|norm| norm.path != path) {
                    self.norms.push(Norm {
                        path,
                        after: self.last.clone(),
                        ..Norm::default()
                    });
                }
            }
            self.path.push(name.to_owned());
        }

        fn exit_module(&mut self, _: &str, _: &str) {
            self.within = false;
            self.path.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<MxBackend<B>, D>>) {
            let path = self.path.join(".");
            if self.layers.contains(&path) {
                self.last = Some(path);
            }
            let (true, Some(norm), Some(name)) =
                (self.within, self.norms.last_mut(), self.path.last())
            else {
                return;
            };
            let field = match name.as_str() {
                GAMMA => &mut norm.gamma,
                BETA => &mut norm.beta,
                "running_mean" => &mut norm.mean,
                "running_var" => &mut norm.variance,
                _ => return,
            };
            *field = values::<B>(param.val().into_primitive().tensor().into_inner());
        }
    }
    let mut find = Find {
        layers,
        path: Vec::new(),
        norms: Vec::new(),
        last: None,
        within: false,
    };
    model.visit(&mut find);
    find.norms
}
