//! The layers to quantize: products with a constant weight.

use crate::error::OnnxError;
use crate::graph::constants::Constants;
use crate::graph::folds::{FLOATS, Fold, is_folded};
use crate::graph::{Model, ValueSource};
use crate::proto::{Node, data_type};

/// The operators that are quantized.
pub(crate) const OPERATORS: [&str; 4] = ["MatMul", "Gemm", "Conv", "ConvTranspose"];

/// The attributes that tell where the summed axis lies, and its length.
const AXES: [&str; 3] = ["transA", "transB", "group"];

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
    pub(crate) layout: SummedAxis,
}

/// The constant that a layer's weight comes from.
#[derive(Debug)]
pub(crate) struct Weight<'a> {
    /// The body that it stands in, its name there, and the node if it is a Constant.
    pub(crate) owner: usize,
    pub(crate) name: &'a str,
    pub(crate) constant: Option<usize>,
    /// The constant's own shape.
    pub(crate) stored: Vec<usize>,
    /// The operators between the constant and the layer, from the constant on.
    pub(crate) folds: Vec<Fold>,
    /// The shape and the type that the layer gets, and the axis that the product sums over.
    pub(crate) shape: Vec<usize>,
    pub(crate) data_type: i64,
    pub(crate) axis: usize,
}

/// A product with a constant operand.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// A layer to quantize.
    Layer(Box<Layer<'a>>),
    /// A product that stays unchanged, and why.
    Left(String),
}

/// Where the axis that a product sums over lies in the activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SummedAxis {
    /// The last one.
    Last,
    /// The last but one.
    LastButOne,
    /// The second one, of channels.
    Channels,
}

/// The products with a constant operand with their names, in the order of bodies and nodes. A layer that cannot be quantized is an
/// error, which counts unless the layer is excluded.
pub(crate) fn layers<'a>(model: &Model<'a>) -> Vec<(&'a str, Result<Found<'a>, OnnxError>)> {
    let constants = Constants::of(model);
    let mut layers = Vec::new();
    for (body, at) in model.bodies.iter().enumerate() {
        for (index, at) in at.nodes.iter().enumerate() {
            if OPERATORS.iter().any(|op_type| at.node.is(op_type)) {
                let layer = layer(model, &constants, (body, index), &at.node).transpose();
                layers.extend(layer.map(|layer| (at.node.name(), layer)));
            }
        }
    }
    layers
}

fn layer<'a>(
    model: &Model<'a>,
    constants: &Constants<'a>,
    (body, index): (usize, usize),
    node: &Node<'a>,
) -> Result<Option<Found<'a>>, OnnxError> {
    let is_product = node.is("MatMul") || node.is("Gemm");
    // The right operand, else the left one, which a convolution cannot have for a weight.
    let candidates = if is_product { &[1, 0][..] } else { &[1][..] };
    let mut candidates = candidates.iter().filter_map(|input| {
        let name = *node.inputs.get(*input)?;
        constants.has(model, body, name).then_some((*input, name))
    });
    let Some((weight_input, input)) = candidates.next() else {
        return Ok(None);
    };
    let mut attributes = node.attributes.iter().filter(|at| at.is_reference);
    if let Some(attribute) = attributes.find(|at| AXES.contains(&at.name)) {
        let name = attribute.name;
        let reason = format!("its attribute `{name}` is one of the function around it");
        return Ok(Some(Found::Left(reason)));
    }
    let mut weight = match trace(model, node, body, input)? {
        Ok(weight) => weight,
        Err(why) => return Ok(Some(Found::Left(format!("its weight `{input}` {why}")))),
    };
    let name = node.name();
    if weight.data_type == data_type::DOUBLE {
        let reason = "its weight is DOUBLE; allowed: FLOAT, FLOAT16, BFLOAT16; convert it or exclude the layer";
        return Err(OnnxError::layer(name, reason));
    }
    if !FLOATS.contains(&weight.data_type) {
        return Ok(None);
    }
    let shape = weight.shape.clone();
    let wrong = || {
        OnnxError::layer(
            name,
            format!("a weight of shape {shape:?} is none of {}", node.op_type),
        )
    };
    let (axis, layout) = summed_axis(node, weight_input, shape.len()).ok_or_else(wrong)?;
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
    weight.axis = axis;
    Ok(Some(Found::Layer(Box::new(Layer {
        body,
        node: index,
        name,
        weight_input,
        activation_input: if is_product { 1 - weight_input } else { 0 },
        weight,
        length,
        layout,
    }))))
}

/// The axis of the weight that a product sums over, and where this axis lies in the activation; `None` if no weight of the operator has
/// this rank.
fn summed_axis(node: &Node<'_>, weight_input: usize, rank: usize) -> Option<(usize, SummedAxis)> {
    let is_transposed = |name| node.integer(name, 0) != 0;
    if node.is("Conv") || node.is("ConvTranspose") {
        return (rank >= 3).then_some((usize::from(node.is("Conv")), SummedAxis::Channels));
    }
    if node.is("Gemm") {
        let (axis, is_last) = match weight_input {
            1 => (is_transposed("transB"), !is_transposed("transA")),
            _ => (!is_transposed("transA"), is_transposed("transB")),
        };
        let layout = match is_last {
            true => SummedAxis::Last,
            false => SummedAxis::LastButOne,
        };
        return (rank == 2).then_some((usize::from(axis), layout));
    }
    match (rank, weight_input) {
        (0, _) => None,
        (_, 1) => Some((rank.saturating_sub(2), SummedAxis::Last)),
        _ => Some((rank - 1, SummedAxis::LastButOne)),
    }
}

/// The constant that the constant operand of a node comes from, or why it cannot be quantized.
fn trace<'a>(
    model: &Model<'a>,
    layer: &Node<'a>,
    mut body: usize,
    mut name: &'a str,
) -> Result<Result<Weight<'a>, String>, OnnxError> {
    let mut path = Vec::new();
    let (owner, constant, dims, mut data_type) = loop {
        let Some((owner, source)) = model.find(body, name) else {
            return Ok(Err("is nowhere in the model".into()));
        };
        let why = match source {
            ValueSource::Initializer => {
                let tensor = &model.bodies[owner].initializers[name];
                break (owner, None, tensor.dims.clone(), tensor.data_type);
            }
            ValueSource::Default => {
                "is the default of an input; allowed: no input of its name".into()
            }
            ValueSource::SparseInitializer => "is sparse".into(),
            ValueSource::Input => "is an argument of the function around it".into(),
            ValueSource::Node(index) => {
                let node = &model.bodies[owner].nodes[index].node;
                if is_folded(node) {
                    path.push((owner, node));
                    (body, name) = (owner, node.inputs.first().copied().unwrap_or(""));
                    continue;
                }
                let tensor = node.is("Constant").then(|| node.constant());
                match tensor {
                    Some(Some(tensor)) => {
                        break (owner, Some(index), tensor.dims, tensor.data_type);
                    }
                    Some(None) => {
                        "is a Constant without a tensor of its own, or a sparse one".into()
                    }
                    None => format!("comes from {}", node.op_type),
                }
            }
        };
        return Ok(Err(why));
    };
    if let Some(axis) = dims.iter().position(|length| *length < 0) {
        return Err(OnnxError::DynamicShape {
            layer: layer.name().to_owned(),
            input: name.to_owned(),
            axis,
            got: dims[axis],
        });
    }
    let stored: Vec<usize> = dims.iter().map(|length| *length as usize).collect();
    let (mut shape, mut folds) = (stored.clone(), Vec::new());
    for (body, node) in path.into_iter().rev() {
        match Fold::of(model, body, node, (&shape, data_type)) {
            Err(why) => return Ok(Err(why)),
            Ok(None) => {}
            Ok(Some(fold)) => {
                (shape, data_type) = fold.result(&shape, data_type);
                folds.push(fold);
            }
        }
    }
    Ok(Ok(Weight {
        owner,
        name,
        constant,
        stored,
        folds,
        shape,
        data_type,
        axis: 0,
    }))
}
