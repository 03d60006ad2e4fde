//! The changes of a model's bodies, layer by layer.

pub(crate) mod rewrite;
mod shapes;

use std::collections::{BTreeMap, HashMap};

use crate::activations::{Activations, DOMAIN};
use crate::additions::{Additions, Builder};
use crate::changes::rewrite::Edits;
use crate::changes::shapes::Around;
use crate::error::OnnxError;
use crate::files::safetensors_file::{Array, TensorFile};
use crate::files::{ExternalData, Output};
use crate::graph::folds::{Fold, is_folded};
use crate::graph::layers::{Layer, SummedAxis};
use crate::graph::{Model, ValueSource};
use crate::proto::wire::Message;
use crate::proto::{self, NewAttribute, data_type, little_endian};
use crate::weights::Storage;

/// A quantized weight: body, constant, axis, and the operators before it.
type WeightKey<'a> = (usize, &'a str, usize, Vec<Fold>);

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
    inputs: HashMap<(usize, &'a str, SummedAxis, usize), String>,
    /// The functions that are called, padded or not: the name, and the function where the model does not have it.
    pub(crate) functions: BTreeMap<bool, (String, Option<Message<'a>>)>,
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
            functions: BTreeMap::new(),
            calibration,
        }
    }

    /// The layer's product takes the quantized weight.
    pub(crate) fn weight(&mut self, layer: &Layer<'a>, storage: &Storage) -> Result<(), OnnxError> {
        let weight = &layer.weight;
        let owner = weight.owner;
        let key = (owner, weight.name, weight.axis, weight.folds.clone());
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
                let value =
                    storage.add(&mut builder, weight.name, floats, place, weight.data_type)?;
                self.weights.insert(key, value.clone());
                value
            }
        };
        let edits = &mut self.edits[layer.body];
        edits
            .renamed
            .insert((layer.node, layer.weight_input), value);
        let node = &self.model.bodies[layer.body].nodes[layer.node].node;
        self.release(layer.body, node.inputs[layer.weight_input]);
        Ok(())
    }

    /// The elements of a layer's weight.
    fn floats(&self, layer: &Layer<'a>) -> Result<Vec<f32>, OnnxError> {
        let weight = &layer.weight;
        let body = &self.model.bodies[weight.owner];
        let mut floats = match weight.constant {
            None => match self.replaced.get(weight.name) {
                Some(floats) if weight.owner == 0 => floats.clone(),
                _ => self.external.floats(&body.initializers[weight.name])?,
            },
            Some(node) => {
                let tensor = body.nodes[node].node.constant();
                self.external.floats(&tensor.expect("it was read before"))?
            }
        };
        let mut shape = weight.stored.clone();
        for fold in &weight.folds {
            floats = fold.apply(floats, &shape);
            (shape, _) = fold.result(&shape, weight.data_type);
        }
        Ok(floats)
    }

    /// Drops what one user less makes useless: a constant, or the operators before a weight and their own inputs.
    fn release(&mut self, body: usize, name: &'a str) {
        let Some((owner, source)) = self.model.find(body, name) else {
            return;
        };
        let uses = self.uses.entry((owner, name)).or_default();
        *uses = uses.saturating_sub(1);
        if *uses > 0 {
            return;
        }
        match source {
            ValueSource::Initializer => _ = self.edits[owner].dropped.insert(name),
            ValueSource::Node(index) => {
                let node = &self.model.bodies[owner].nodes[index].node;
                if !node.is("Constant") && !is_folded(node) {
                    return;
                }
                let inputs = node.inputs.clone();
                self.edits[owner].dropped_nodes.insert(index);
                for input in inputs {
                    self.release(owner, input);
                }
            }
            ValueSource::Default | ValueSource::SparseInitializer | ValueSource::Input => {}
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
        let function = self.function(activations, is_padded)?;
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
        let around = Around::of(&mut to, x, &value, layer.layout)?;
        if is_padded {
            inputs.push(around.shape(&mut to, "axes", &[length as i64])?);
            inputs.push(to.integers("padding", &[0, 0, 0, 0, (padded - length) as i64, 0])?);
            inputs.push(around.shape(&mut to, "blocks", &inner)?);
            inputs.push(around.shape(&mut to, "axes", &[padded as i64])?);
            inputs.push(to.integers("end", &[length as i64])?);
        } else {
            inputs.push(around.shape(&mut to, "blocks", &inner)?);
        }
        if let Some((shape, powers)) = powers {
            let bytes = little_endian(&powers, f32::to_le_bytes);
            let wish = format!("{x}_powers");
            inputs.push(to.constant(&wish, data_type::FLOAT, &shape, bytes)?);
        }
        let name = to.model.unique(&wish);
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
        self.edits[self.model.root(layer.body)].calls = true;
        Ok(value)
    }

    /// The name of the function to call. A function of the model is it if it is equal to the byte; another one keeps its name.
    fn function(
        &mut self,
        activations: &Activations,
        is_padded: bool,
    ) -> Result<String, OnnxError> {
        if let Some((name, _)) = self.functions.get(&is_padded) {
            return Ok(name.clone());
        }
        let bodies = self.model.bodies.iter();
        let functions = bodies.filter_map(|body| body.function.as_ref());
        let of_domain = functions.filter(|function| function.domain == DOMAIN);
        let known: HashMap<_, _> = of_domain.map(|at| (at.name, at.message)).collect();
        let wish = activations.function_name(is_padded);
        let mut name = wish.clone();
        for number in 1.. {
            let function = activations.function(&name, is_padded)?;
            let new = match known.get(&*name) {
                None => Some(function),
                Some(known) if function.pieces().flatten().eq(*known) => None,
                Some(_) => {
                    name = format!("{wish}_{number}");
                    continue;
                }
            };
            self.functions.insert(is_padded, (name.clone(), new));
            break;
        }
        Ok(name)
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
        let powers = amax.map(|amax| activations.static_power(amax));
        let powers = powers.collect::<Result<_, _>>()?;
        let ones = activations.axes([count, size]).len();
        Ok(Some(([&[1, count][..], &vec![1; ones]].concat(), powers)))
    }
}
