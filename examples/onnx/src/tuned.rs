//! Parameters of a network that burn-onnx compiled, by their names in the ONNX file.

use std::{collections::BTreeMap, error::Error, path::Path};

use burn::{
    module::{ModuleVisitor, Param},
    prelude::*,
};
use burn_mx_onnx::{Initializer, initializers};
use safetensors::{Dtype, serialize_to_file, tensor::TensorView};

use burn_mx_lab::quantization::B;

/// Writes the parameters of `tuned` that differ from `float`. burn-onnx does not keep names: an initializer belongs to the parameter
/// that has its values, as they are or transposed.
pub(super) fn keep<M: Module<B>>(
    file: &Path,
    onnx: &Path,
    float: &M,
    tuned: &M,
) -> Result<(), Box<dyn Error>> {
    let initializers = initializers(onnx)?;
    let mut changed = BTreeMap::new();
    for (before, after) in parameters(float).iter().zip(parameters(tuned)) {
        if before.values == after.values {
            continue;
        }
        let mut found = initializers.iter().filter_map(|initializer| {
            let is_transposed = before.transposed() == initializer.values;
            let is_it = before.values == initializer.values || is_transposed;
            is_it.then_some((initializer, is_transposed))
        });
        let (Some((Initializer { name, shape, .. }, is_transposed)), None) =
            (found.next(), found.next())
        else {
            let shape = &before.shape;
            return Err(format!(
                "none or several initializers have the values of a parameter of shape {shape:?}"
            )
            .into());
        };
        let values = if is_transposed {
            after.transposed()
        } else {
            after.values
        };
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        changed.insert(name, (shape, bytes));
    }
    if changed.is_empty() {
        return Ok(());
    }
    let views = changed.iter().map(|(name, (shape, bytes))| {
        Ok((name, TensorView::new(Dtype::F32, shape.to_vec(), bytes)?))
    });
    let views = views.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    Ok(serialize_to_file(views, None, file)?)
}

struct Parameter {
    shape: Vec<usize>,
    values: Vec<f32>,
}

impl Parameter {
    /// The values of the transposed matrix; none if the parameter is not a matrix.
    fn transposed(&self) -> Vec<f32> {
        let [rows, columns] = self.shape[..] else {
            return Vec::new();
        };
        let columns_in_turn =
            (0..columns).flat_map(|column| (0..rows).map(move |row| (row, column)));
        columns_in_turn
            .map(|(row, column)| self.values[row * columns + column])
            .collect()
    }
}

/// The float parameters in the order of the module's fields, running statistics among them.
fn parameters<M: Module<B>>(model: &M) -> Vec<Parameter> {
    struct Collect(Vec<Parameter>);

    impl ModuleVisitor<B> for Collect {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let value = param.val();
            self.0.push(Parameter {
                shape: value.dims().to_vec(),
                values: value.into_data().into_vec().expect("they are float32"),
            });
        }
    }

    let mut collect = Collect(Vec::new());
    model.visit(&mut collect);
    collect.0
}
