//! The weights of a model by their names.

use std::path::Path;

use crate::error::OnnxError;
use crate::files::{ExternalData, map};
use crate::graph::Model;
use crate::proto::data_type;

/// A float32 initializer of a model's main graph.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Initializer {
    /// Its name.
    pub name: String,
    /// The lengths of its axes.
    pub shape: Vec<usize>,
    /// Its elements, in row-major order.
    pub values: Vec<f32>,
}

/// The float32 initializers of a model's main graph, in the order of their names: weights, biases, batch norms. The names are
/// those that [`QuantizeOptions::tuned`](crate::QuantizeOptions::tuned) takes.
///
/// # Errors
/// If the file cannot be read, is not an ONNX model, or has tensors with another number of elements than their shape says.
pub fn initializers(input: &Path) -> Result<Vec<Initializer>, OnnxError> {
    let map = map(input)?;
    let model = Model::read(&map).map_err(|error| OnnxError::Model {
        path: input.to_owned(),
        reason: error.0,
    })?;
    let external = ExternalData::beside(input);
    let tensors = model.bodies[0].initializers.values();
    let floats = tensors.filter(|tensor| tensor.data_type == data_type::FLOAT);
    let initializers = floats.map(|tensor| {
        let shape = tensor.shape().ok_or_else(|| {
            OnnxError::tensor(
                tensor.name,
                format!("no tensor has the shape {:?}", tensor.dims),
            )
        })?;
        Ok(Initializer {
            name: tensor.name.to_owned(),
            shape,
            values: external.floats(tensor)?,
        })
    });
    let mut initializers = initializers.collect::<Result<Vec<_>, OnnxError>>()?;
    initializers.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(initializers)
}
