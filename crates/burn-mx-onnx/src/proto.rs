//! The messages of ONNX that matter here, by the field numbers of
//! [`onnx.proto`](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).

mod tensor;
pub(crate) mod wire;

pub(crate) use tensor::{Data, Tensor};

use std::borrow::Cow;

use crate::proto::wire::{Field, Malformed, Message, fields};

/// Fields of `ModelProto`.
pub(crate) mod model {
    pub(crate) const IR_VERSION: u32 = 1;
    pub(crate) const GRAPH: u32 = 7;
    pub(crate) const OPSET_IMPORT: u32 = 8;
    pub(crate) const FUNCTIONS: u32 = 25;
}

/// Fields of `GraphProto`.
pub(crate) mod graph {
    pub(crate) const NODE: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const INITIALIZER: u32 = 5;
    pub(crate) const INPUT: u32 = 11;
    pub(crate) const OUTPUT: u32 = 12;
    pub(crate) const VALUE_INFO: u32 = 13;
    pub(crate) const SPARSE_INITIALIZER: u32 = 15;
}

/// Fields of `FunctionProto`.
pub(crate) mod function {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const INPUT: u32 = 4;
    pub(crate) const OUTPUT: u32 = 5;
    pub(crate) const NODE: u32 = 7;
    pub(crate) const DOC_STRING: u32 = 8;
    pub(crate) const OPSET_IMPORT: u32 = 9;
    pub(crate) const DOMAIN: u32 = 10;
}

/// Types of tensors' elements.
pub(crate) mod data_type {
    pub(crate) const FLOAT: i64 = 1;
    pub(crate) const UINT8: i64 = 2;
    pub(crate) const INT8: i64 = 3;
    pub(crate) const INT32: i64 = 6;
    pub(crate) const INT64: i64 = 7;
    pub(crate) const BOOL: i64 = 9;
    pub(crate) const FLOAT16: i64 = 10;
    pub(crate) const DOUBLE: i64 = 11;
    pub(crate) const BFLOAT16: i64 = 16;
    pub(crate) const FLOAT8E4M3FN: i64 = 17;
    pub(crate) const FLOAT8E5M2: i64 = 19;
    pub(crate) const FLOAT4E2M1: i64 = 23;
    pub(crate) const FLOAT8E8M0: i64 = 24;
}

/// `OperatorSetIdProto`: domain and version.
pub(crate) fn opset(message: &[u8]) -> Result<(&str, i64), Malformed> {
    let (mut domain, mut version) = ("", 0);
    for field in fields(message)? {
        match field.number {
            1 => domain = field.text()?,
            2 => version = field.integer()?,
            _ => {}
        }
    }
    Ok((domain, version))
}

pub(crate) fn opset_message<'a>(domain: &str, version: i64) -> Message<'a> {
    let mut message = Message::default();
    message.text(1, domain);
    message.integer(2, version);
    message
}

/// The name of a `ValueInfoProto`.
pub(crate) fn value_name(message: &[u8]) -> Result<&str, Malformed> {
    let fields = fields(message)?;
    let name = fields.iter().find(|field| field.number == 1);
    name.map_or(Ok(""), Field::text)
}

/// The name of a `SparseTensorProto`, which its values have.
pub(crate) fn sparse_name(message: &[u8]) -> Result<&str, Malformed> {
    let fields = fields(message)?;
    let values = fields.iter().find(|field| field.number == 1);
    values.map_or(Ok(""), |values| Ok(Tensor::read(values.bytes()?)?.name))
}

/// `NodeProto`.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) fields: Vec<Field<'a>>,
    pub(crate) inputs: Vec<&'a str>,
    pub(crate) outputs: Vec<&'a str>,
    name: &'a str,
    pub(crate) op_type: &'a str,
    pub(crate) domain: &'a str,
    pub(crate) attributes: Vec<Attribute<'a>>,
}

impl<'a> Node<'a> {
    pub(crate) const INPUT: u32 = 1;
    pub(crate) const ATTRIBUTE: u32 = 5;

    pub(crate) fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut node = Self {
            fields: fields(message)?,
            inputs: Vec::new(),
            outputs: Vec::new(),
            name: "",
            op_type: "",
            domain: "",
            attributes: Vec::new(),
        };
        for field in &node.fields {
            match field.number {
                Self::INPUT => node.inputs.push(field.text()?),
                2 => node.outputs.push(field.text()?),
                3 => node.name = field.text()?,
                4 => node.op_type = field.text()?,
                Self::ATTRIBUTE => node.attributes.push(Attribute::read(field.bytes()?)?),
                7 => node.domain = field.text()?,
                _ => {}
            }
        }
        Ok(node)
    }

    /// Its name, or the name of its first output.
    pub(crate) fn name(&self) -> &'a str {
        match self.name {
            "" => self.outputs.first().copied().unwrap_or(""),
            name => name,
        }
    }

    /// Whether it is this operator of ONNX.
    pub(crate) fn is(&self, op_type: &str) -> bool {
        self.op_type == op_type && matches!(self.domain, "" | "ai.onnx")
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attributes
            .iter()
            .find(|attribute| attribute.name == name)
    }

    /// The tensor of a `Constant` of numbers. `None` if the tensor is sparse, has texts, or is an attribute of the function around it.
    pub(crate) fn constant(&self) -> Option<Tensor<'a>> {
        if let Some(value) = self.attribute("value") {
            return Tensor::read(value.tensor?).ok();
        }
        let of = |data_type, count: Option<usize>, data| Tensor {
            fields: Vec::new(),
            name: self.outputs.first().copied().unwrap_or(""),
            dims: count.map(|count| count as i64).into_iter().collect(),
            data_type,
            data,
        };
        let attribute = |name| {
            let found = self.attribute(name);
            found.filter(|attribute| !attribute.is_reference)
        };
        if let Some(value) = attribute("value_floats") {
            let floats = value.floats.clone();
            return Some(of(
                data_type::FLOAT,
                Some(floats.len()),
                Data::Floats(floats),
            ));
        }
        if let Some(value) = attribute("value_float") {
            let floats = value.floats.clone();
            return Some(of(data_type::FLOAT, None, Data::Floats(floats)));
        }
        if let Some(value) = attribute("value_ints") {
            let integers = value.integers.clone();
            return Some(of(
                data_type::INT64,
                Some(integers.len()),
                Data::Integers(integers),
            ));
        }
        let value = attribute("value_int")?.integer;
        Some(of(data_type::INT64, None, Data::Integers(vec![value])))
    }

    /// The integer of an attribute.
    pub(crate) fn integer(&self, name: &str, default: i64) -> i64 {
        self.attribute(name)
            .map_or(default, |attribute| attribute.integer)
    }
}

/// `AttributeProto`.
#[derive(Debug, Default)]
pub(crate) struct Attribute<'a> {
    pub(crate) name: &'a str,
    pub(crate) integer: i64,
    pub(crate) integers: Vec<i64>,
    /// The float or the floats.
    floats: Vec<f32>,
    pub(crate) tensor: Option<&'a [u8]>,
    /// Whether it has the value of an attribute of the function around it.
    pub(crate) is_reference: bool,
    pub(crate) fields: Vec<Field<'a>>,
}

impl<'a> Attribute<'a> {
    pub(crate) const GRAPH: u32 = 6;
    pub(crate) const GRAPHS: u32 = 11;

    fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut attribute = Self {
            fields: fields(message)?,
            ..Self::default()
        };
        for field in &attribute.fields {
            match field.number {
                1 => attribute.name = field.text()?,
                2 | 7 => field.floats(&mut attribute.floats)?,
                3 => attribute.integer = field.integer()?,
                5 => attribute.tensor = Some(field.bytes()?),
                8 => field.integers(&mut attribute.integers)?,
                21 => attribute.is_reference = !field.bytes()?.is_empty(),
                _ => {}
            }
        }
        Ok(attribute)
    }
}

/// An entry of `external_data`.
pub(crate) fn entry_message<'a>(key: &str, value: &str) -> Message<'a> {
    let mut message = Message::default();
    message.text(1, key);
    message.text(2, value);
    message
}

/// An attribute of a new node.
pub(crate) enum NewAttribute<'a> {
    Integer(&'static str, i64),
    Integers(&'static str, Vec<i64>),
    Tensor(&'static str, Message<'a>),
    Graph(&'static str, Message<'a>),
}

/// A new node.
pub(crate) fn node<'a>(
    name: &str,
    (domain, op_type): (&str, &str),
    inputs: &[&str],
    outputs: &[&str],
    attributes: Vec<NewAttribute<'a>>,
) -> Message<'a> {
    let mut message = Message::default();
    for input in inputs {
        message.text(Node::INPUT, input);
    }
    for output in outputs {
        message.text(2, output);
    }
    message.text(3, name);
    message.text(4, op_type);
    for attribute in attributes {
        let mut inner = Message::default();
        let kind = match attribute {
            NewAttribute::Integer(name, value) => {
                inner.text(1, name);
                inner.integer(3, value);
                2
            }
            NewAttribute::Integers(name, values) => {
                inner.text(1, name);
                // Not packed: as ONNX's own writers have them.
                for value in values {
                    inner.integer(8, value);
                }
                7
            }
            NewAttribute::Tensor(name, tensor) => {
                inner.text(1, name);
                inner.message(5, tensor);
                4
            }
            NewAttribute::Graph(name, graph) => {
                inner.text(1, name);
                inner.message(6, graph);
                5
            }
        };
        inner.integer(20, kind);
        message.message(Node::ATTRIBUTE, inner);
    }
    if !domain.is_empty() {
        message.text(7, domain);
    }
    message
}

/// A new graph inside of a node, with one output.
pub(crate) fn graph_of<'a>(name: &str, nodes: Vec<Message<'a>>, output: &str) -> Message<'a> {
    let mut message = Message::default();
    for node in nodes {
        message.message(graph::NODE, node);
    }
    message.text(graph::NAME, name);
    let mut value = Message::default();
    value.text(1, output);
    message.message(graph::OUTPUT, value);
    message
}

/// The start of a new tensor, to which its elements are added.
pub(crate) fn tensor<'a>(name: &str, data_type: i64, dims: &[usize]) -> Message<'a> {
    let mut message = Message::default();
    // Not packed: as ONNX's own writers have them, so that a function is the same one after them.
    for dim in dims {
        message.integer(1, *dim as i64);
    }
    message.integer(2, data_type);
    message.text(8, name);
    message
}

/// A new tensor with its elements, little endian.
pub(crate) fn tensor_of<'a>(
    name: &str,
    data_type: i64,
    dims: &[usize],
    elements: impl Into<Cow<'a, [u8]>>,
) -> Message<'a> {
    let mut message = tensor(name, data_type, dims);
    message.bytes(9, elements.into());
    message
}

/// The bytes of numbers, little endian.
pub(crate) fn little_endian<T: Copy, const N: usize>(
    numbers: &[T],
    bytes: fn(T) -> [u8; N],
) -> Vec<u8> {
    numbers.iter().flat_map(|number| bytes(*number)).collect()
}
