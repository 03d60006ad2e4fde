//! The model with its changes, as a message. All other fields keep the bytes that were read.

use std::collections::{HashMap, HashSet};

use crate::activations::DOMAIN;
use crate::additions::Additions;
use crate::error::OnnxError;
use crate::files::{ExternalData, Output};
use crate::graph::{Body, Model, ValueSource};
use crate::proto::wire::{Field, Message};
use crate::proto::{self, Attribute, Data, Node, Tensor, function, graph, model};

/// The format allows initializers without an input of the same name from this version on.
const CONSTANTS_SINCE: i64 = 4;
/// The format has model-local functions from this version on.
const FUNCTIONS_SINCE: i64 = 8;

/// The changes of a body.
#[derive(Debug, Default)]
pub(crate) struct Edits<'a> {
    /// Constants, and the nodes before all others.
    pub(crate) first: Additions<'a>,
    /// Nodes before a node.
    pub(crate) before: HashMap<usize, Vec<Message<'a>>>,
    pub(crate) dropped_nodes: HashSet<usize>,
    /// Initializers without further uses.
    pub(crate) dropped: HashSet<&'a str>,
    /// New names for inputs of nodes, by node and input.
    pub(crate) renamed: HashMap<(usize, usize), String>,
    /// Whether its nodes call functions of this crate.
    pub(crate) calls: bool,
}

/// The changed model.
pub(crate) struct Rewrite<'m, 'a> {
    pub(crate) model: &'m Model<'a>,
    pub(crate) edits: Vec<Edits<'a>>,
    pub(crate) functions: Vec<Message<'a>>,
    /// Elements of initializers in place of those in the model.
    pub(crate) replaced: HashMap<&'a str, Vec<f32>>,
    pub(crate) external: &'m ExternalData,
    pub(crate) output: &'m mut Output,
    /// The version of the format that weights need.
    pub(crate) ir_version: i64,
}

impl<'a> Rewrite<'_, 'a> {
    pub(crate) fn message(mut self) -> Result<Message<'a>, OnnxError> {
        let mut message = Message::default();
        let mut functions = self.functions_of_model().into_iter();
        let calls = self.edits.iter().any(|edits| edits.calls);
        for field in &self.model.fields {
            match field.number {
                model::IR_VERSION => {
                    let mut version = self.model.ir_version.max(CONSTANTS_SINCE);
                    if calls {
                        version = version.max(FUNCTIONS_SINCE);
                    }
                    version = version.max(self.ir_version);
                    message.integer(model::IR_VERSION, version);
                }
                model::GRAPH => {
                    let graph = self.body(0)?;
                    message.message(model::GRAPH, graph);
                }
                model::FUNCTIONS => match functions.next() {
                    Some(id) if self.is_changed(id) => {
                        let body = self.body(id)?;
                        message.message(model::FUNCTIONS, body);
                    }
                    _ => message.raw(field.raw),
                },
                _ => message.raw(field.raw),
            }
        }
        if calls && !self.model.domains.contains(DOMAIN) {
            message.message(model::OPSET_IMPORT, proto::opset_message(DOMAIN, 1));
        }
        for function in self.functions {
            message.message(model::FUNCTIONS, function);
        }
        Ok(message)
    }

    fn functions_of_model(&self) -> Vec<usize> {
        let bodies = self.model.bodies.iter().enumerate();
        bodies
            .filter(|(_, body)| body.function.is_some())
            .map(|(id, _)| id)
            .collect()
    }

    /// Whether anything changes in a body or in the bodies inside.
    fn is_changed(&self, id: usize) -> bool {
        let Edits {
            first,
            before,
            dropped_nodes,
            dropped,
            renamed,
            ..
        } = &self.edits[id];
        let is_moved = |body: &Body<'_>| {
            let is_external = |tensor: &Tensor<'_>| matches!(tensor.data, Data::External { .. });
            body.initializers
                .values()
                .any(|tensor| self.replaced.contains_key(tensor.name) || is_external(tensor))
        };
        let body = &self.model.bodies[id];
        !(first.constants.is_empty()
            && first.nodes.is_empty()
            && before.is_empty()
            && dropped_nodes.is_empty()
            && dropped.is_empty()
            && renamed.is_empty())
            || is_moved(body)
            || body
                .nodes
                .iter()
                .any(|at| at.bodies.iter().any(|id| self.is_changed(*id)))
    }

    fn body(&mut self, id: usize) -> Result<Message<'a>, OnnxError> {
        let model = self.model;
        let body = &model.bodies[id];
        let mut edits = std::mem::take(&mut self.edits[id]);
        let is_function = body.function.is_some();
        let (node_number, mut index) = (
            if is_function {
                function::NODE
            } else {
                graph::NODE
            },
            0,
        );
        let mut message = Message::default();
        let mut first = std::mem::take(&mut edits.first.nodes);
        if is_function {
            let constants = std::mem::take(&mut edits.first.constants);
            first.splice(..0, constants);
        }
        for field in &body.fields {
            match field.number {
                number if number == node_number => {
                    for node in first.drain(..) {
                        message.message(node_number, node);
                    }
                    for node in edits.before.remove(&index).into_iter().flatten() {
                        message.message(node_number, node);
                    }
                    if !edits.dropped_nodes.contains(&index) {
                        self.node(&mut message, node_number, field, (body, index), &edits)?;
                    }
                    index += 1;
                }
                graph::INITIALIZER if !is_function => {
                    self.initializer(&mut message, field, body, &edits)?;
                }
                graph::INPUT | graph::VALUE_INFO if !is_function => {
                    let name = field.bytes().and_then(proto::value_name).unwrap_or("");
                    // In the new version it would be an input's default, which is not constant.
                    let is_constant = field.number == graph::INPUT
                        && model.find(id, name) == Some((id, ValueSource::Initializer));
                    if !edits.dropped.contains(name) && !is_constant {
                        message.raw(field.raw);
                    }
                }
                _ => message.raw(field.raw),
            }
        }
        for tensor in edits.first.constants {
            message.message(graph::INITIALIZER, tensor);
        }
        if let Some(function) = &body.function
            && edits.calls
            && !function.domains.contains(DOMAIN)
        {
            message.message(function::OPSET_IMPORT, proto::opset_message(DOMAIN, 1));
        }
        Ok(message)
    }

    fn node(
        &mut self,
        message: &mut Message<'a>,
        number: u32,
        field: &Field<'a>,
        (body, index): (&Body<'a>, usize),
        edits: &Edits<'a>,
    ) -> Result<(), OnnxError> {
        let at = &body.nodes[index];
        let changes_inside = at.bodies.iter().any(|id| self.is_changed(*id));
        let inputs = 0..at.node.inputs.len();
        if !changes_inside
            && !inputs
                .clone()
                .any(|input| edits.renamed.contains_key(&(index, input)))
        {
            message.raw(field.raw);
            return Ok(());
        }
        let mut node = Message::default();
        let (mut input, mut attribute, mut inner) = (0, 0, 0);
        for field in &at.node.fields {
            match field.number {
                Node::INPUT => {
                    match edits.renamed.get(&(index, input)) {
                        Some(name) => node.text(Node::INPUT, name),
                        None => node.raw(field.raw),
                    }
                    input += 1;
                }
                Node::ATTRIBUTE if changes_inside => {
                    let mut copy = Message::default();
                    for field in &at.node.attributes[attribute].fields {
                        match field.number {
                            Attribute::GRAPH | Attribute::GRAPHS => {
                                let body = self.body(at.bodies[inner])?;
                                copy.message(field.number, body);
                                inner += 1;
                            }
                            _ => copy.raw(field.raw),
                        }
                    }
                    node.message(Node::ATTRIBUTE, copy);
                    attribute += 1;
                }
                _ => node.raw(field.raw),
            }
        }
        message.message(number, node);
        Ok(())
    }

    /// An initializer that stays: unchanged, with other elements, or with its elements in the output's data file.
    fn initializer(
        &mut self,
        message: &mut Message<'a>,
        field: &Field<'a>,
        body: &Body<'a>,
        edits: &Edits<'a>,
    ) -> Result<(), OnnxError> {
        let read = field.bytes().and_then(Tensor::read);
        let Some(tensor) = read
            .ok()
            .and_then(|tensor| body.initializers.get(tensor.name))
        else {
            message.raw(field.raw);
            return Ok(());
        };
        if edits.dropped.contains(tensor.name) {
            return Ok(());
        }
        let elements = match self.replaced.get(tensor.name) {
            Some(floats) => proto::little_endian(floats, f32::to_le_bytes).into(),
            None => match (&tensor.data, self.external.bytes(tensor)?) {
                (Data::External { .. }, Some(bytes)) => bytes.into(),
                _ => {
                    message.raw(field.raw);
                    return Ok(());
                }
            },
        };
        let mut copy = Message::default();
        for field in &tensor.fields {
            // All but the elements and their places.
            if !matches!(field.number, 4..=7 | 9..=11 | Tensor::EXTERNAL_DATA | Tensor::DATA_LOCATION)
            {
                copy.raw(field.raw);
            }
        }
        self.output.elements(&mut copy, elements)?;
        message.message(graph::INITIALIZER, copy);
        Ok(())
    }
}
