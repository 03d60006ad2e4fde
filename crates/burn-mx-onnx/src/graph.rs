//! A model as bodies: its graph, the graphs inside of nodes, and functions.

pub(crate) mod constants;
pub(crate) mod folds;
pub(crate) mod initializers;
pub(crate) mod layers;

use std::collections::{HashMap, HashSet};

use crate::error::NoModel;
use crate::proto::wire::{Field, fields};
use crate::proto::{self, Attribute, Node, Tensor, function, graph, model};

/// Graphs inside of graphs, at most.
const DEEPEST: usize = 64;

/// From this version on, an initializer that is an input too is the input's default.
const DEFAULTS_SINCE: i64 = 4;

/// A model that was read.
#[derive(Debug)]
pub(crate) struct Model<'a> {
    pub(crate) fields: Vec<Field<'a>>,
    pub(crate) ir_version: i64,
    /// The version of ONNX's own operators.
    pub(crate) opset: i64,
    /// The domains of operators that it imports.
    pub(crate) domains: HashSet<&'a str>,
    /// The main graph, then all others; functions among them.
    pub(crate) bodies: Vec<Body<'a>>,
    /// Each name in it.
    pub(crate) names: HashSet<String>,
}

/// Nodes in the order in which they are computed.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    pub(crate) fields: Vec<Field<'a>>,
    /// The body whose values this one can use.
    pub(crate) parent: Option<usize>,
    pub(crate) function: Option<Function<'a>>,
    pub(crate) nodes: Vec<NodeAt<'a>>,
    pub(crate) initializers: HashMap<&'a str, Tensor<'a>>,
    /// The names of sparse initializers.
    sparse: HashSet<&'a str>,
    pub(crate) inputs: Vec<&'a str>,
    pub(crate) outputs: Vec<&'a str>,
    /// The node of each value.
    producers: HashMap<&'a str, usize>,
}

/// A function's names, and the operators that the function imports.
#[derive(Clone, Debug)]
pub(crate) struct Function<'a> {
    pub(crate) message: &'a [u8],
    pub(crate) domain: &'a str,
    pub(crate) name: &'a str,
    /// The version of ONNX's operators.
    pub(crate) opset: i64,
    /// The domains of operators that it imports.
    pub(crate) domains: HashSet<&'a str>,
}

/// A node, and the bodies in it in the order of its attributes.
#[derive(Debug)]
pub(crate) struct NodeAt<'a> {
    pub(crate) node: Node<'a>,
    pub(crate) bodies: Vec<usize>,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ValueSource {
    Initializer,
    /// An initializer that an input of the model can replace.
    Default,
    SparseInitializer,
    Node(usize),
    Input,
}

/// Takes up an import of operators: their domain, and the version of ONNX's own.
fn import<'a>(
    field: &Field<'a>,
    domains: &mut HashSet<&'a str>,
    opset: &mut i64,
) -> Result<(), NoModel> {
    let (domain, version) = proto::opset(field.bytes()?)?;
    domains.insert(domain);
    if matches!(domain, "" | "ai.onnx") {
        *opset = version;
    }
    Ok(())
}

impl<'a> Body<'a> {
    fn empty(message: &'a [u8], parent: Option<usize>) -> Result<Self, NoModel> {
        Ok(Self {
            fields: fields(message)?,
            parent,
            function: None,
            nodes: Vec::new(),
            initializers: HashMap::new(),
            sparse: HashSet::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            producers: HashMap::new(),
        })
    }

    /// The body of a function without its nodes, and the nodes.
    fn of_function(message: &'a [u8]) -> Result<(Self, Vec<Node<'a>>), NoModel> {
        let (mut body, mut nodes) = (Self::empty(message, None)?, Vec::new());
        let mut read = Function {
            message,
            domain: "",
            name: "",
            opset: 0,
            domains: HashSet::new(),
        };
        for field in &body.fields {
            match field.number {
                function::NAME => read.name = field.text()?,
                function::DOMAIN => read.domain = field.text()?,
                function::INPUT => body.inputs.push(field.text()?),
                function::OUTPUT => body.outputs.push(field.text()?),
                function::NODE => nodes.push(Node::read(field.bytes()?)?),
                function::OPSET_IMPORT => import(field, &mut read.domains, &mut read.opset)?,
                _ => {}
            }
        }
        body.function = Some(read);
        Ok((body, nodes))
    }

    /// The body of a graph without its nodes, and the nodes.
    fn of_graph(
        message: &'a [u8],
        parent: Option<usize>,
    ) -> Result<(Self, Vec<Node<'a>>), NoModel> {
        let (mut body, mut nodes) = (Self::empty(message, parent)?, Vec::new());
        for field in &body.fields {
            match field.number {
                graph::NODE => nodes.push(Node::read(field.bytes()?)?),
                graph::INITIALIZER => {
                    let tensor = Tensor::read(field.bytes()?)?;
                    body.initializers.insert(tensor.name, tensor);
                }
                graph::SPARSE_INITIALIZER => {
                    body.sparse.insert(proto::sparse_name(field.bytes()?)?);
                }
                graph::INPUT => body.inputs.push(proto::value_name(field.bytes()?)?),
                graph::OUTPUT => body.outputs.push(proto::value_name(field.bytes()?)?),
                _ => {}
            }
        }
        Ok((body, nodes))
    }
}

impl<'a> Model<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, NoModel> {
        let mut read = Self {
            fields: fields(bytes)?,
            ir_version: 0,
            opset: 0,
            domains: HashSet::new(),
            bodies: Vec::new(),
            names: HashSet::new(),
        };
        let (mut main, mut functions) = (None, Vec::new());
        for field in &read.fields {
            match field.number {
                model::IR_VERSION => read.ir_version = field.integer()?,
                model::GRAPH => main = Some(field.bytes()?),
                model::OPSET_IMPORT => import(field, &mut read.domains, &mut read.opset)?,
                model::FUNCTIONS => functions.push(field.bytes()?),
                _ => {}
            }
        }
        let main = main.ok_or_else(|| NoModel("it has no graph".into()))?;
        if read.ir_version < 3 {
            let version = read.ir_version;
            return Err(NoModel(format!(
                "its IR version is {version}, expected 3 or more"
            )));
        }
        read.add(main, None, false, 0)?;
        for function in functions {
            read.add(function, None, true, 0)?;
        }
        Ok(read)
    }

    fn add(
        &mut self,
        message: &'a [u8],
        parent: Option<usize>,
        is_function: bool,
        depth: usize,
    ) -> Result<usize, NoModel> {
        if depth > DEEPEST {
            return Err(NoModel(format!(
                "more than {DEEPEST} graphs inside of each other"
            )));
        }
        let id = self.bodies.len();
        let (body, nodes) = match is_function {
            true => Body::of_function(message)?,
            false => Body::of_graph(message, parent)?,
        };
        let names = (body.initializers.keys()).chain(&body.sparse);
        let names = names.chain(&body.inputs).map(|name| (*name).to_owned());
        self.names.extend(names);
        self.bodies.push(body);
        for (at, node) in nodes.into_iter().enumerate() {
            let mut bodies = Vec::new();
            for attribute in &node.attributes {
                for field in &attribute.fields {
                    if matches!(field.number, Attribute::GRAPH | Attribute::GRAPHS) {
                        let parent = Some(id);
                        bodies.push(self.add(field.bytes()?, parent, false, depth + 1)?);
                    }
                }
            }
            self.names.insert(node.name().to_owned());
            for output in &node.outputs {
                self.names.insert((*output).to_owned());
                self.bodies[id].producers.insert(output, at);
            }
            self.bodies[id].nodes.push(NodeAt { node, bodies });
        }
        Ok(id)
    }

    /// The body that defines a value which `body` uses, and the value's source.
    pub(crate) fn find(&self, mut body: usize, name: &str) -> Option<(usize, ValueSource)> {
        loop {
            let at = &self.bodies[body];
            let is_input = at.inputs.contains(&name);
            if at.initializers.contains_key(name) {
                let is_default =
                    is_input && (at.parent.is_some() || self.ir_version >= DEFAULTS_SINCE);
                let source = match is_default {
                    true => ValueSource::Default,
                    false => ValueSource::Initializer,
                };
                return Some((body, source));
            }
            if at.sparse.contains(name) {
                return Some((body, ValueSource::SparseInitializer));
            }
            if let Some(node) = at.producers.get(name) {
                return Some((body, ValueSource::Node(*node)));
            }
            if is_input {
                return Some((body, ValueSource::Input));
            }
            body = at.parent?;
        }
    }

    /// The main graph or the function that a body is, or is inside of.
    pub(crate) fn root(&self, mut body: usize) -> usize {
        while let Some(parent) = self.bodies[body].parent {
            body = parent;
        }
        body
    }

    /// How often each value is used, by the body that defines it.
    pub(crate) fn uses(&self) -> HashMap<(usize, &'a str), usize> {
        let mut uses = HashMap::new();
        for (id, body) in self.bodies.iter().enumerate() {
            let inputs = body.nodes.iter().flat_map(|at| &at.node.inputs);
            for name in inputs.chain(&body.outputs) {
                if let Some((owner, _)) = self.find(id, name) {
                    *uses.entry((owner, *name)).or_default() += 1;
                }
            }
        }
        uses
    }

    /// A name that nothing in the model has, like `wish`.
    pub(crate) fn unique(&mut self, wish: &str) -> String {
        let mut name = wish.to_owned();
        let mut number = 0;
        while !self.names.insert(name.clone()) {
            number += 1;
            name = format!("{wish}_{number}");
        }
        name
    }
}
