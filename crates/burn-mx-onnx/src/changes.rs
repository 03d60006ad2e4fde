//! The changes of a model's bodies, layer by layer.

pub(crate) mod rewrite;

use std::collections::{BTreeSet, HashMap};

use crate::activations::{Activations, DOMAIN};
use crate::additions::{Additions, Builder};
use crate::changes::rewrite::Edits;
use crate::error::OnnxError;
use crate::files::safetensors_file::{Array, TensorFile};
use crate::files::{ExternalData, Output};
use crate::graph::Model;
use crate::graph::layers::{Layer, Layout};
use crate::proto::{self, NewAttribute, Tensor, data_type, little_endian};
use crate::weights::Storage;

/// A quantized weight: body, constant, axis and transposes.
type WeightKey<'a> = (usize, &'a str, usize, Vec<Vec<usize>>);

/// The changes while they are made.
pub(crate) struct Work<'m, 'a> {
    pub(crate) model: &'m mut Model<'a>,
    pub(crate) edits: Vec<Edits<'a>>,
    uses: HashMap<(usize, &'a str), usize>,
    output: &'m mut Output,
    external: &'m ExternalData,
    replaced: &'m HashMap<&'a str, Vec<f32>>,
    /// Names of quantized weights.
    weights: HashMap<WeightKey<'a>, String>,
    /// Names of quantized activations: by body, name and blocks.
    inputs: HashMap<(usize, &'a str, Layout, usize), String>,
    /// The functions that are called: padded or not.
    pub(crate) functions: BTreeSet<bool>,
    calibration: Option<&'m TensorFile>,
}

impl<'m, 'a> Work<'m, 'a> {
    /// Nothing is changed at first.
    pub(crate) fn new(
        model: &'m mut Model<'a>,
        output: &'m mut Output,
        external: &'m ExternalData,
        replaced: &'m HashMap<&'a str, Vec<f32>>,
        calibration: Option<&'m TensorFile>,
    ) -> Self {
        let edits = model.bodies.iter().map(|body| Edits {
            first: Additions::of(body.function.is_some()),
            ..Edits::default()
        });
        Self {
            edits: edits.collect(),
            uses: model.uses(),
            model,
            output,
            external,
            replaced,
            weights: HashMap::new(),
            inputs: HashMap::new(),
            functions: BTreeSet::new(),
            calibration,
        }
    }

    /// The layer's product takes the quantized weight.
    pub(crate) fn weight(&mut self, layer: &Layer<'a>, storage: &Storage) -> Result<(), OnnxError> {
        let weight = &layer.weight;
        let owner = weight.owner;
        let permutations = weight
            .path
            .iter()
            .rev()
            .filter_map(|step| step.permutation.clone());
        let permutations: Vec<_> = permutations.collect();
        let key = (owner, weight.name, weight.axis, permutations);
        let value = match self.weights.get(&key) {
            Some(value) => value.clone(),
            None => {
                let floats = self.floats(layer)?;
                let mut builder = Builder {
                    additions: &mut self.edits[owner].first,
                    model: self.model,
                    output: self.output,
                };
                let place = (&weight.shape[..], weight.axis);
                let mut value =
                    storage.add(&mut builder, weight.name, floats, place, weight.data_type)?;
                for permutation in &key.3 {
                    let axes = permutation.iter().map(|axis| *axis as i64).collect();
                    let axes = vec![NewAttribute::Integers("perm", axes)];
                    let wish = format!("{}_transposed", weight.name);
                    value = builder.node(&wish, "Transpose", &[&value], axes);
                }
                self.weights.insert(key, value.clone());
                value
            }
        };
        let edits = &mut self.edits[layer.body];
        edits
            .renamed
            .insert((layer.node, layer.weight_input), value);
        self.release(layer);
        Ok(())
    }

    fn floats(&self, layer: &Layer<'a>) -> Result<Vec<f32>, OnnxError> {
        let weight = &layer.weight;
        let body = &self.model.bodies[weight.owner];
        if weight.owner == 0
            && weight.constant.is_none()
            && let Some(floats) = self.replaced.get(weight.name)
        {
            return Ok(floats.clone());
        }
        match weight.constant {
            None => self.external.floats(&body.initializers[weight.name]),
            Some(node) => {
                let value = body.nodes[node].node.attribute("value");
                let tensor = value.and_then(|value| Tensor::read(value.tensor?).ok());
                self.external.floats(&tensor.expect("it was read before"))
            }
        }
    }

    /// Drops what only this layer used: the nodes before its weight, and the constant.
    fn release(&mut self, layer: &Layer<'a>) {
        let weight = &layer.weight;
        let mut is_used = |owner: usize, name: &'a str| {
            let uses = self.uses.entry((owner, name)).or_default();
            *uses = uses.saturating_sub(1);
            *uses > 0
        };
        for step in &weight.path {
            if is_used(step.body, step.output) {
                return;
            }
            self.edits[step.body].dropped_nodes.insert(step.node);
        }
        if is_used(weight.owner, weight.name) {
            return;
        }
        let edits = &mut self.edits[weight.owner];
        match weight.constant {
            None => _ = edits.dropped.insert(weight.name),
            Some(node) => _ = edits.dropped_nodes.insert(node),
        }
    }

    /// The layer's product takes the quantized activation.
    pub(crate) fn activation(
        &mut self,
        layer: &Layer<'a>,
        activations: &Activations,
    ) -> Result<(), OnnxError> {
        let node = &self.model.bodies[layer.body].nodes[layer.node].node;
        let x = node.inputs[layer.activation_input];
        let key = (layer.body, x, layer.layout, layer.length);
        let value = match self.inputs.get(&key) {
            Some(value) => value.clone(),
            None => {
                let value = self.call(layer, x, activations)?;
                self.inputs.insert(key, value.clone());
                value
            }
        };
        let edits = &mut self.edits[layer.body];
        edits
            .renamed
            .insert((layer.node, layer.activation_input), value);
        Ok(())
    }

    /// Adds a call of the function before a layer.
    fn call(
        &mut self,
        layer: &Layer<'a>,
        x: &'a str,
        activations: &Activations,
    ) -> Result<String, OnnxError> {
        let length = layer.length;
        let blocks = activations.blocks(length);
        let padded = blocks[0] * blocks[1];
        let is_padded = padded != length;
        let powers = self.powers(layer, x, activations, blocks)?;
        // Nodes stand before the layer, constants are the body's.
        let nodes = std::mem::take(&mut self.edits[layer.body].first.nodes);
        let mut to = Builder {
            additions: &mut self.edits[layer.body].first,
            model: self.model,
            output: self.output,
        };
        let wish = format!("{x}_quantized");
        let mut value = x.to_owned();
        let is_cast = layer.weight.data_type != data_type::FLOAT;
        if is_cast {
            let float = vec![NewAttribute::Integer("to", data_type::FLOAT)];
            value = to.node(&format!("{x}_float32"), "Cast", &[&value], float);
        }
        let inner = activations.axes(blocks);
        let mut inputs = vec![value.clone()];
        let around = |axes: &[i64]| -> Vec<i64> {
            match layer.layout {
                Layout::Last => [&[-1], axes, &[1]].concat(),
                _ => [&[0], axes, &[-1]].concat(),
            }
        };
        // The axes before and after the summed one.
        let three = match layer.layout {
            Layout::LastButOne => Some(last_but_one(&mut to, x, &value, &[length as i64])?),
            _ if is_padded => Some(to.integers("axes", &around(&[length as i64]))?),
            _ => None,
        };
        if is_padded {
            inputs.extend(three);
            inputs.push(to.integers("padding", &[0, 0, 0, 0, (padded - length) as i64, 0])?);
            inputs.push(to.integers("blocks", &[&[0], &inner[..], &[-1]].concat())?);
            inputs.push(to.integers("axes", &[0, padded as i64, -1])?);
            inputs.push(to.integers("end", &[length as i64])?);
        } else if layer.layout == Layout::LastButOne {
            inputs.push(last_but_one(&mut to, x, &value, &inner)?);
        } else {
            inputs.push(to.integers("blocks", &around(&inner))?);
        }
        if let Some((shape, powers)) = powers {
            let bytes = little_endian(&powers, f32::to_le_bytes);
            let wish = format!("{x}_powers");
            inputs.push(to.constant(&wish, data_type::FLOAT, &shape, bytes)?);
        }
        let name = to.model.unique(&wish);
        let function = activations.function_name(is_padded);
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let call = proto::node(&name, (DOMAIN, &function), &inputs, &[&name], Vec::new());
        to.additions.nodes.push(call);
        let mut value = name;
        if is_cast {
            let own = vec![NewAttribute::Integer("to", layer.weight.data_type)];
            value = to.node(&format!("{x}_quantized_cast"), "Cast", &[&value], own);
        }
        let edits = &mut self.edits[layer.body];
        let mut before = std::mem::replace(&mut edits.first.nodes, nodes);
        edits
            .before
            .entry(layer.node)
            .or_default()
            .append(&mut before);
        edits.calls = true;
        self.functions.insert(is_padded);
        Ok(value)
    }

    /// The powers of two of blocks that calibration fixes, and their shape.
    fn powers(
        &self,
        layer: &Layer<'a>,
        x: &str,
        activations: &Activations,
        [count, size]: [usize; 2],
    ) -> Result<Option<Array>, OnnxError> {
        let Some(calibration) = self.calibration else {
            return Ok(None);
        };
        let Some((shape, largest)) = calibration.get(x)? else {
            let reason =
                format!("its input `{x}` is not in the file of calibration; exclude the layer");
            return Err(OnnxError::layer(layer.name, reason));
        };
        if shape != [layer.length] {
            let reason = format!(
                "calibration of `{x}` has the shape {shape:?}, expected [{}]",
                layer.length
            );
            return Err(OnnxError::layer(layer.name, reason));
        }
        if !largest.iter().all(|value| (value * value).is_finite()) {
            let reason = format!(
                "calibration of `{x}` has a NaN, an infinity, or a number whose square is one"
            );
            return Err(OnnxError::layer(layer.name, reason));
        }
        let blocks = largest.chunks(size);
        let amax = blocks.map(|block| {
            block
                .iter()
                .fold(0.0, |all: f32, value| all.max(value.abs()))
        });
        let powers = amax.map(|amax| activations.static_power(amax)).collect();
        let ones = activations.axes([count, size]).len();
        Ok(Some(([&[1, count][..], &vec![1; ones]].concat(), powers)))
    }
}

/// A shape that is computed: all axes before, these ones in place of the last axis but one, and the last one. A vector counts as a
/// matrix of one column.
fn last_but_one(
    to: &mut Builder<'_, '_>,
    name: &str,
    x: &str,
    axes: &[i64],
) -> Result<String, OnnxError> {
    let shape = to.node(&format!("{name}_shape"), "Shape", &[x], Vec::new());
    let axis = || vec![NewAttribute::Integer("axis", 0)];
    let end = to.integers("end", &[i64::MAX])?;
    let second = to.integers("start", &[1])?;
    let inputs = [&shape[..], &second, &end];
    let after = to.node(&format!("{name}_after_first"), "Slice", &inputs, Vec::new());
    // Of a vector nothing is after the first axis, and this 1 is the last axis.
    let one = to.integers("axes", &[1])?;
    let after = to.node(
        &format!("{name}_columns"),
        "Concat",
        &[&one, &after],
        axis(),
    );
    let last = to.integers("start", &[-1])?;
    let inputs = [&after[..], &last, &end];
    let last = to.node(&format!("{name}_last"), "Slice", &inputs, Vec::new());
    let before = to.integers("axes", &[&[-1], axes].concat())?;
    Ok(to.node(&format!("{name}_axes"), "Concat", &[&before, &last], axis()))
}
