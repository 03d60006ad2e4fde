//! Layers with a matrix product or a convolution, found by their kind.

use burn_core::module::{Module, ModuleVisitor, Param};
use burn_core::tensor::Tensor;
use burn_core::tensor::backend::Backend;

/// The kind of a module with a matrix product, and the layout of its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// `[in, out]`.
    Linear,
    /// `[out, in / groups, …]`.
    Convolution,
    /// `[in, out / groups, …]`.
    Transposed,
}

impl LayerKind {
    /// The kind of a container, by the name of the Burn module.
    pub fn of(container: &str) -> Option<Self> {
        Some(match container.strip_prefix("Struct:")? {
            "Linear" => Self::Linear,
            "Conv1d" | "Conv2d" | "Conv3d" | "DeformConv2d" => Self::Convolution,
            "ConvTranspose1d" | "ConvTranspose2d" | "ConvTranspose3d" => Self::Transposed,
            _ => return None,
        })
    }

    /// The axis of the parameter that the forward product sums over.
    pub fn summed_axis(self) -> usize {
        match self {
            Self::Linear | Self::Transposed => 0,
            Self::Convolution => 1,
        }
    }
}

/// Where a walk through a model is: the names of the fields around a parameter, each with the kind of the layer that it is a field of.
#[derive(Clone, Debug, Default)]
pub struct LayerPath(Vec<(String, Option<LayerKind>)>);

impl LayerPath {
    /// The walk enters a field: call this from `enter_module` of Burn's walk, with its arguments.
    pub fn enter(&mut self, name: &str, container_type: &str) {
        self.0
            .push((name.to_owned(), LayerKind::of(container_type)));
    }

    /// The walk leaves the last field.
    pub fn exit(&mut self) {
        self.0.pop();
    }

    /// The path of the parameter, such as `body.0.weight`.
    pub fn parameter(&self) -> String {
        joined(&self.0)
    }

    /// If the parameter is a layer's weight: the path of the layer and its kind.
    pub fn layer_of_weight(&self) -> Option<(String, LayerKind)> {
        let (_, modules) = self.0.split_last()?;
        Some((joined(modules), self.kind_of_weight()?))
    }

    /// If the parameter is a layer's weight: the kind of the layer.
    pub fn kind_of_weight(&self) -> Option<LayerKind> {
        let (name, kind) = self.0.last()?;
        kind.filter(|_| name == "weight")
    }
}

fn joined(fields: &[(String, Option<LayerKind>)]) -> String {
    let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
    names.join(".")
}

/// The paths of a model's layers with a weight, in the model's order: Burn's linear layers and convolutions. The path of a
/// model that is such a layer itself is `*`.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::Module;
/// # use burn_flex::Flex;
/// # use burn_mx::MxBackend;
/// # fn example<M: Module<MxBackend<Flex>>>(model: M) {
/// for layer in burn_mx::module::layers(&model) {
///     println!("{layer}");
/// }
/// # }
/// ```
pub fn layers<B: Backend, M: Module<B>>(model: &M) -> Vec<String> {
    let mut finder = Finder::default();
    model.visit(&mut finder);
    finder.layers
}

/// The path of a layer's parameter, such as `weight`.
pub fn parameter_of(layer: &str, name: &str) -> String {
    match layer {
        ITSELF => name.to_owned(),
        layer => format!("{layer}.{name}"),
    }
}

/// A model that is a layer: the pattern of all its parameters.
const ITSELF: &str = "*";

/// Finds layers.
#[derive(Default)]
struct Finder {
    path: Vec<String>,
    /// Where on the path the layers are that the walk is in.
    within: Vec<usize>,
    layers: Vec<String>,
}

impl<B: Backend> ModuleVisitor<B> for Finder {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        self.path.push(name.to_owned());
        if LayerKind::of(container_type).is_some() {
            self.within.push(self.path.len());
        }
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        if self.within.last() == Some(&self.path.len()) {
            self.within.pop();
        }
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<B, D>>) {
        // The path has the parameter's own name, too; what a layer itself is called stands before it.
        let Some(&layer) = self.within.last() else {
            return;
        };
        let layer = match &self.path[..layer - 1] {
            [] => ITSELF.to_owned(),
            path => path.join("."),
        };
        if self.layers.last() != Some(&layer) {
            self.layers.push(layer);
        }
    }
}
