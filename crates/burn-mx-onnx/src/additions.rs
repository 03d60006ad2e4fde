//! Additions to a body: constants and nodes.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::error::OnnxError;
use crate::files::Output;
use crate::graph::Model;
use crate::proto::wire::Message;
use crate::proto::{self, NewAttribute, data_type};

/// Constants and nodes for one body.
#[derive(Debug, Default)]
pub(crate) struct Additions<'a> {
    /// Whether the body is a function, whose constants are nodes.
    pub(crate) is_function: bool,
    /// Initializers; nodes in a function.
    pub(crate) constants: Vec<Message<'a>>,
    pub(crate) nodes: Vec<Message<'a>>,
    /// Names of constants that several layers use.
    shared: HashMap<String, String>,
}

impl Additions<'_> {
    pub(crate) fn of(is_function: bool) -> Self {
        Self {
            is_function,
            ..Self::default()
        }
    }
}

/// A body's additions, the model whose names they must not have, and the file that large constants go to.
pub(crate) struct Builder<'m, 'a> {
    pub(crate) additions: &'m mut Additions<'a>,
    pub(crate) model: &'m mut Model<'a>,
    pub(crate) output: &'m mut Output,
}

impl Builder<'_, '_> {
    /// A constant, given its elements, little endian. Returns its name.
    pub(crate) fn constant(
        &mut self,
        wish: &str,
        data_type: i64,
        dims: &[usize],
        elements: Vec<u8>,
    ) -> Result<String, OnnxError> {
        let name = self.model.unique(wish);
        let mut tensor = proto::tensor(&name, data_type, dims);
        if self.additions.is_function {
            tensor.bytes(9, Cow::Owned(elements));
            let attributes = vec![NewAttribute::Tensor("value", tensor)];
            let node = proto::node(&name, ("", "Constant"), &[], &[&name], attributes);
            self.additions.constants.push(node);
        } else {
            self.output.elements(&mut tensor, Cow::Owned(elements))?;
            self.additions.constants.push(tensor);
        }
        Ok(name)
    }

    /// A constant that is the same wherever it has this name.
    pub(crate) fn shared(
        &mut self,
        wish: &str,
        data_type: i64,
        dims: &[usize],
        elements: impl FnOnce() -> Vec<u8>,
    ) -> Result<String, OnnxError> {
        if let Some(name) = self.additions.shared.get(wish) {
            return Ok(name.clone());
        }
        let name = self.constant(wish, data_type, dims, elements())?;
        self.additions.shared.insert(wish.to_owned(), name.clone());
        Ok(name)
    }

    /// Whole numbers, which several layers use.
    pub(crate) fn integers(&mut self, kind: &str, values: &[i64]) -> Result<String, OnnxError> {
        let texts: Vec<String> = values.iter().map(i64::to_string).collect();
        let wish = match texts.len() {
            ..8 => format!("mx_{kind}_{}", texts.join("_")),
            length => format!("mx_{kind}_{length}"),
        };
        self.shared(&wish, data_type::INT64, &[values.len()], || {
            proto::little_endian(values, i64::to_le_bytes)
        })
    }

    /// A node of one of ONNX's operators. Returns the name of its output.
    pub(crate) fn node(
        &mut self,
        wish: &str,
        op_type: &str,
        inputs: &[&str],
        attributes: Vec<NewAttribute<'static>>,
    ) -> String {
        let name = self.model.unique(wish);
        let node = proto::node(&name, ("", op_type), inputs, &[&name], attributes);
        self.additions.nodes.push(node);
        name
    }
}
