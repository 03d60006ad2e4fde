//! The layers to quantize: products with a constant weight.

use crate::error::OnnxError;
use crate::graph::{Model, Source};
use crate::proto::{Node, Tensor, data_type};

/// The operators that are quantized.
pub(crate) const OPERATORS: [&str; 4] = ["MatMul", "Gemm", "Conv", "ConvTranspose"];

/// A product with a constant weight.
#[derive(Debug)]
pub(crate) struct Layer<'a> {
    pub(crate) body: usize,
    pub(crate) node: usize,
    pub(crate) name: &'a str,
    /// Which inputs of the node are the weight and the activation.
    pub(crate) weight_input: usize,
    pub(crate) activation_input: usize,
    pub(crate) weight: Weight<'a>,
    /// Elements that the product sums over.
    pub(crate) length: usize,
    pub(crate) layout: Layout,
}

/// The constant that a layer's weight comes from.
#[derive(Debug)]
pub(crate) struct Weight<'a> {
    /// The body that it stands in, its name there, and the node if it is a Constant.
    pub(crate) owner: usize,
    pub(crate) name: &'a str,
    pub(crate) constant: Option<usize>,
    /// The nodes between the constant and the layer, from the layer on: Transpose and Identity.
    pub(crate) path: Vec<Step<'a>>,
    /// The axis of the constant that the product sums over.
    pub(crate) axis: usize,
    pub(crate) shape: Vec<usize>,
    /// The lengths as the model has them; a negative one is an error.
    dims: Vec<i64>,
    pub(crate) data_type: i64,
}

/// A node between a constant and a layer.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    pub(crate) body: usize,
    pub(crate) node: usize,
    /// Its output.
    pub(crate) output: &'a str,
    /// `None` if it is an Identity.
    pub(crate) permutation: Option<Vec<usize>>,
}

/// Where the axis that a product sums over lies in the activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Layout {
    /// The last one.
    Last,
    /// The last but one.
    LastButOne,
    /// The second one, of channels.
    Channels,
}

/// The layers of a model with their names, in the order of its bodies and nodes. A layer that cannot be quantized is an error, which
/// counts unless the layer is excluded.
pub(crate) fn layers<'a>(model: &Model<'a>) -> Vec<(&'a str, Result<Layer<'a>, OnnxError>)> {
    let mut layers = Vec::new();
    for (body, at) in model.bodies.iter().enumerate() {
        for (index, at) in at.nodes.iter().enumerate() {
            if OPERATORS.iter().any(|op_type| at.node.is(op_type)) {
                let layer = layer(model, body, index, &at.node).transpose();
                layers.extend(layer.map(|layer| (at.node.name(), layer)));
            }
        }
    }
    layers
}

fn layer<'a>(
    model: &Model<'a>,
    body: usize,
    index: usize,
    node: &Node<'a>,
) -> Result<Option<Layer<'a>>, OnnxError> {
    let is_product = node.is("MatMul") || node.is("Gemm");
    // The right operand, else the left one, which a convolution cannot have for a weight.
    let candidates = if is_product { &[1, 0][..] } else { &[1][..] };
    let found = candidates.iter().find_map(|input| {
        let name = node.inputs.get(*input)?;
        Some((*input, constant(model, body, name)?))
    });
    let Some((weight_input, mut weight)) = found else {
        return Ok(None);
    };
    let name = node.name();
    if weight.data_type == data_type::DOUBLE {
        let reason = "its weight is DOUBLE; allowed: FLOAT, FLOAT16, BFLOAT16; convert it or exclude the layer";
        return Err(OnnxError::layer(name, reason));
    }
    let is_float = [data_type::FLOAT, data_type::FLOAT16, data_type::BFLOAT16];
    if !is_float.contains(&weight.data_type) {
        return Ok(None);
    }
    if let Some(axis) = weight.dims.iter().position(|length| *length < 0) {
        return Err(OnnxError::DynamicShape {
            layer: name.to_owned(),
            input: weight.name.to_owned(),
            axis,
            got: weight.dims[axis],
        });
    }
    weight.shape = weight.dims.iter().map(|length| *length as usize).collect();
    let shape = weight.shape_at_layer();
    let rank = shape.len();
    let wrong = || {
        OnnxError::layer(
            name,
            format!("a weight of shape {shape:?} is none of {}", node.op_type),
        )
    };
    let is_transposed = |name| node.integer(name, 0) != 0;
    let (axis, layout) = if node.is("Conv") || node.is("ConvTranspose") {
        if rank < 3 {
            return Err(wrong());
        }
        (usize::from(node.is("Conv")), Layout::Channels)
    } else if node.is("Gemm") {
        if rank != 2 {
            return Err(wrong());
        }
        match weight_input {
            1 => (
                usize::from(is_transposed("transB")),
                if is_transposed("transA") {
                    Layout::LastButOne
                } else {
                    Layout::Last
                },
            ),
            _ => (
                usize::from(!is_transposed("transA")),
                if is_transposed("transB") {
                    Layout::Last
                } else {
                    Layout::LastButOne
                },
            ),
        }
    } else {
        match (rank, weight_input) {
            (0, _) => return Err(wrong()),
            (_, 1) => (rank.saturating_sub(2), Layout::Last),
            _ => (rank - 1, Layout::LastButOne),
        }
    };
    let mut length = shape[axis];
    if node.is("Conv") {
        let groups = usize::try_from(node.integer("group", 1)).ok();
        length = groups
            .and_then(|groups| length.checked_mul(groups))
            .ok_or_else(wrong)?;
    }
    if shape.contains(&0) || length == 0 {
        return Ok(None);
    }
    weight.axis = weight.origin_of(axis);
    Ok(Some(Layer {
        body,
        node: index,
        name,
        weight_input,
        activation_input: if is_product { 1 - weight_input } else { 0 },
        weight,
        length,
        layout,
    }))
}

/// The constant that a value comes from, through transposes and identities.
fn constant<'a>(model: &Model<'a>, body: usize, name: &'a str) -> Option<Weight<'a>> {
    let (mut body, mut name) = (body, name);
    let mut path = Vec::new();
    loop {
        let (owner, source) = model.find(body, name)?;
        let of = |tensor: &Tensor<'a>, constant, mut path: Vec<Step<'a>>| {
            for permutation in path.iter_mut().filter_map(|step| step.permutation.as_mut()) {
                if permutation.is_empty() {
                    *permutation = (0..tensor.dims.len()).rev().collect();
                }
            }
            Some(Weight {
                owner,
                name,
                constant,
                path,
                axis: 0,
                shape: Vec::new(),
                dims: tensor.dims.clone(),
                data_type: tensor.data_type,
            })
        };
        match source {
            Source::Initializer => {
                return of(model.bodies[owner].initializers.get(name)?, None, path);
            }
            Source::Node(index) => {
                let node = &model.bodies[owner].nodes[index].node;
                if node.is("Constant") {
                    let tensor = Tensor::read(node.attribute("value")?.tensor?).ok()?;
                    return of(&tensor, Some(index), path);
                }
                let permutation = match node.op_type {
                    _ if node.is("Identity") => None,
                    _ if node.is("Transpose") => {
                        let axes = node
                            .attribute("perm")
                            .map_or(&[][..], |perm| &perm.integers);
                        let axes = axes.iter().map(|axis| usize::try_from(*axis).ok());
                        Some(axes.collect::<Option<Vec<_>>>()?)
                    }
                    _ => return None,
                };
                // Values that come from each other in a circle are in no valid model.
                if path.len() > model.bodies[owner].nodes.len() {
                    return None;
                }
                path.push(Step {
                    body: owner,
                    node: index,
                    output: name,
                    permutation,
                });
                name = node.inputs.first()?;
                body = owner;
            }
            Source::Other => return None,
        }
    }
}

impl Weight<'_> {
    /// The shape that the layer is given.
    fn shape_at_layer(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        for permutation in self
            .path
            .iter()
            .rev()
            .filter_map(|step| step.permutation.as_ref())
        {
            let is_one = permutation.len() == shape.len()
                && (0..shape.len()).all(|axis| permutation.contains(&axis));
            if !is_one {
                return Vec::new();
            }
            shape = permutation.iter().map(|axis| shape[*axis]).collect();
        }
        shape
    }

    /// The axis of the constant that an axis of what the layer is given comes from.
    fn origin_of(&self, axis: usize) -> usize {
        let permutations = self
            .path
            .iter()
            .filter_map(|step| step.permutation.as_ref());
        permutations.fold(axis, |axis, permutation| permutation[axis])
    }
}
