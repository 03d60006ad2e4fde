//! Operators between a constant and a layer, which are computed before the weight is quantized.

use half::{bf16, f16};

use crate::graph::{Model, ValueSource};
use crate::proto::{Data, Node, Tensor, data_type};

/// The types of weights.
pub(crate) const FLOATS: [i64; 3] = [data_type::FLOAT, data_type::FLOAT16, data_type::BFLOAT16];

const OPERATORS: [&str; 7] = [
    "Identity",
    "Transpose",
    "Reshape",
    "Flatten",
    "Unsqueeze",
    "Squeeze",
    "Cast",
];

/// An operator that is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fold {
    /// To this order of axes.
    Transpose(Vec<usize>),
    /// To this shape.
    Reshape(Vec<usize>),
    /// To this type.
    Cast(i64),
}

/// Whether a node is one of the operators that may be computed.
pub(crate) fn is_folded(node: &Node<'_>) -> bool {
    OPERATORS.iter().any(|op_type| node.is(op_type))
}

impl Fold {
    /// The operator of a node in `body` on a constant of this shape and type, if it changes anything.
    ///
    /// # Errors
    /// Why the node cannot be computed.
    pub(crate) fn of(
        model: &Model<'_>,
        body: usize,
        node: &Node<'_>,
        (shape, from): (&[usize], i64),
    ) -> Result<Option<Self>, String> {
        let op_type = node.op_type;
        let refuse = |why: &str| Err(format!("comes from {op_type} {why}"));
        if node
            .attributes
            .iter()
            .any(|attribute| attribute.is_reference)
        {
            return refuse("with an attribute of the function around it");
        }
        let rank = shape.len();
        let wrong = || format!("comes from {op_type}, which cannot have the shape {shape:?}");
        let shape = match op_type {
            "Identity" => return Ok(None),
            "Cast" => {
                let to = node.integer("to", 0);
                if !FLOATS.contains(&from) || !FLOATS.contains(&to) {
                    return refuse("from or to another type than FLOAT, FLOAT16, BFLOAT16");
                }
                return Ok((from != to).then_some(Self::Cast(to)));
            }
            "Transpose" => {
                let order = match node.attribute("perm") {
                    Some(perm) => indices(&perm.integers, rank).ok_or_else(wrong)?,
                    None => (0..rank).rev().collect(),
                };
                if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
                    return Err(wrong());
                }
                return Ok(Some(Self::Transpose(order)));
            }
            "Flatten" => {
                let axis = node.integer("axis", 1);
                let axis = if axis < 0 { axis + rank as i64 } else { axis };
                let axis = usize::try_from(axis).ok().filter(|axis| *axis <= rank);
                let (before, after) = shape.split_at(axis.ok_or_else(wrong)?);
                vec![before.iter().product(), after.iter().product()]
            }
            _ => {
                let given = match node.inputs.get(1) {
                    Some(name) if !name.is_empty() => match integers(model, body, name) {
                        Some(given) => Some(given),
                        None => return refuse("with a computed second input"),
                    },
                    _ => None,
                };
                match (op_type, given) {
                    ("Reshape", Some(given)) => {
                        let copies_zeros = node.integer("allowzero", 0) == 0;
                        reshaped(shape, &given, copies_zeros).ok_or_else(wrong)?
                    }
                    ("Unsqueeze", Some(axes)) => {
                        let rank = rank + axes.len();
                        let axes = indices(&axes, rank).ok_or_else(wrong)?;
                        let mut lengths = shape.iter();
                        let lengths = (0..rank).map(|axis| match axes.contains(&axis) {
                            true => Some(1),
                            false => lengths.next().copied(),
                        });
                        lengths.collect::<Option<Vec<_>>>().ok_or_else(wrong)?
                    }
                    ("Squeeze", axes) => {
                        let axes = match axes {
                            Some(axes) => indices(&axes, rank).ok_or_else(wrong)?,
                            None => (0..rank).filter(|axis| shape[*axis] == 1).collect(),
                        };
                        let kept = (0..rank).filter(|axis| !axes.contains(axis));
                        kept.map(|axis| shape[axis]).collect()
                    }
                    _ => return Err(wrong()),
                }
            }
        };
        Ok(Some(Self::Reshape(shape)))
    }

    /// The shape and the type after the operator.
    pub(crate) fn result(&self, shape: &[usize], data_type: i64) -> (Vec<usize>, i64) {
        match self {
            Self::Transpose(order) => (order.iter().map(|axis| shape[*axis]).collect(), data_type),
            Self::Reshape(shape) => (shape.clone(), data_type),
            Self::Cast(to) => (shape.to_vec(), *to),
        }
    }

    /// The elements after the operator.
    pub(crate) fn apply(&self, floats: Vec<f32>, shape: &[usize]) -> Vec<f32> {
        match self {
            Self::Reshape(_) => floats,
            Self::Cast(data_type::FLOAT16) => cast(floats, |x| f16::from_f32(x).to_f32()),
            Self::Cast(data_type::BFLOAT16) => cast(floats, |x| bf16::from_f32(x).to_f32()),
            Self::Cast(_) => floats,
            Self::Transpose(order) => transposed(&floats, shape, order),
        }
    }
}

fn cast(floats: Vec<f32>, to: fn(f32) -> f32) -> Vec<f32> {
    floats.into_iter().map(to).collect()
}

fn transposed(floats: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
    let strides = |axis: &usize| shape[axis + 1..].iter().product::<usize>();
    let axes: Vec<_> = order
        .iter()
        .map(|axis| (shape[*axis], strides(axis)))
        .collect();
    let mut indices = vec![0; order.len()];
    let mut at = 0;
    let next = |_| {
        let value = floats[at];
        for (index, (length, stride)) in indices.iter_mut().zip(&axes).rev() {
            (*index, at) = (*index + 1, at + stride);
            if *index < *length {
                break;
            }
            (*index, at) = (0, at - length * stride);
        }
        value
    };
    (0..floats.len()).map(next).collect()
}

/// Axes counted from 0. Negative ones count from the end.
fn indices(axes: &[i64], rank: usize) -> Option<Vec<usize>> {
    let axes = axes.iter().map(|axis| {
        let axis = if *axis < 0 { axis + rank as i64 } else { *axis };
        usize::try_from(axis).ok().filter(|axis| *axis < rank)
    });
    axes.collect()
}

/// The shape that `Reshape` makes.
fn reshaped(shape: &[usize], given: &[i64], copies_zeros: bool) -> Option<Vec<usize>> {
    let lengths = given.iter().enumerate().map(|(axis, length)| match length {
        0 if copies_zeros => shape.get(axis).copied(),
        -1 => Some(1),
        length => usize::try_from(*length).ok(),
    });
    let mut lengths = lengths.collect::<Option<Vec<_>>>()?;
    let count: usize = shape.iter().product();
    if let Some(rest) = given.iter().position(|length| *length == -1) {
        let others: usize = lengths.iter().product();
        lengths[rest] = count.checked_div(others)?;
    }
    let product = lengths
        .iter()
        .try_fold(1_usize, |all, length| all.checked_mul(*length));
    (product == Some(count)).then_some(lengths)
}

/// The elements of a constant of INT64.
fn integers(model: &Model<'_>, body: usize, name: &str) -> Option<Vec<i64>> {
    let (owner, source) = model.find(body, name)?;
    let of = |tensor: &Tensor<'_>| match &tensor.data {
        _ if tensor.data_type != data_type::INT64 => None,
        Data::Raw(bytes) => {
            let (integers, _) = bytes.as_chunks();
            Some(
                integers
                    .iter()
                    .map(|bytes| i64::from_le_bytes(*bytes))
                    .collect(),
            )
        }
        Data::Integers(integers) => Some(integers.clone()),
        Data::Floats(_) | Data::External { .. } => None,
    };
    match source {
        ValueSource::Initializer => of(&model.bodies[owner].initializers[name]),
        ValueSource::Node(index) => {
            let node = &model.bodies[owner].nodes[index].node;
            of(&node.is("Constant").then(|| node.constant())??)
        }
        ValueSource::Default | ValueSource::SparseInitializer | ValueSource::Input => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_of_reshape() {
        assert_eq!(reshaped(&[2, 3, 4], &[0, -1], true), Some(vec![2, 12]));
        assert_eq!(reshaped(&[2, 3, 4], &[4, 3, 2], true), Some(vec![4, 3, 2]));
        assert_eq!(reshaped(&[2, 3], &[5], true), None);
        assert_eq!(reshaped(&[0, 3], &[3, 0], false), Some(vec![3, 0]));
        assert_eq!(reshaped(&[2, 3], &[0, -1], false), None);
    }

    #[test]
    fn transposes() {
        let floats: Vec<f32> = (0..24_u8).map(f32::from).collect();
        let got = transposed(&floats, &[2, 3, 4], &[2, 0, 1]);
        let at = |i: usize, j: usize, k: usize| floats[(i * 3 + j) * 4 + k];
        let wanted = (0..24).map(|n| at(n / 3 % 2, n % 3, n / 6));
        assert_eq!(got, wanted.collect::<Vec<_>>());
    }
}
