//! Nodes inside of a function of standard operators.

use std::collections::HashMap;
use std::ops::Range;

use crate::proto::wire::Message;
use crate::proto::{self, NewAttribute, data_type, little_endian};

/// The version of `Reshape` that can keep lengths of 0.
const ALLOWS_ZERO: i64 = 14;

/// The nodes of a function, with names that count up.
pub(crate) struct Operators {
    nodes: Vec<Message<'static>>,
    constants: HashMap<(i64, Vec<u8>), String>,
    /// The version of ONNX's operators.
    opset: i64,
}

impl Operators {
    pub(crate) fn new(opset: i64) -> Self {
        Self {
            nodes: Vec::new(),
            constants: HashMap::new(),
            opset,
        }
    }

    /// A node. Its output has the name of its operator and a number.
    pub(crate) fn op(&mut self, op_type: &str, inputs: &[&str]) -> String {
        self.with(op_type, inputs, Vec::new())
    }

    fn with(
        &mut self,
        op_type: &str,
        inputs: &[&str],
        attributes: Vec<NewAttribute<'static>>,
    ) -> String {
        let name = format!("{}_{}", op_type.to_lowercase(), self.nodes.len());
        self.named(&name, op_type, inputs, attributes);
        name
    }

    /// A node whose output has this name.
    fn named(
        &mut self,
        name: &str,
        op_type: &str,
        inputs: &[&str],
        attributes: Vec<NewAttribute<'static>>,
    ) {
        let node = proto::node(name, ("", op_type), inputs, &[name], attributes);
        self.nodes.push(node);
    }

    /// `a` in another shape, in which 0 is a length. In older operators 0 is a copy of the length that `a` has there: see
    /// [`Self::reshaped_unless_empty`].
    pub(crate) fn reshape(&mut self, a: &str, shape: &str) -> String {
        let name = format!("reshape_{}", self.nodes.len());
        self.reshape_to(&name, a, shape);
        name
    }

    fn reshape_to(&mut self, name: &str, a: &str, shape: &str) {
        let zeros = (self.opset >= ALLOWS_ZERO).then_some(NewAttribute::Integer("allowzero", 1));
        self.named(name, "Reshape", &[a, shape], zeros.into_iter().collect());
    }

    /// The nodes of a function of `x` whose output `y` is `a` in another shape. Where `Reshape` cannot make an axis without
    /// elements, an `x` without elements goes around all of the nodes.
    pub(crate) fn reshaped_unless_empty(
        mut self,
        x: &str,
        a: &str,
        shape: &str,
    ) -> Vec<Message<'static>> {
        if self.opset >= ALLOWS_ZERO {
            self.reshape_to("y", a, shape);
            return self.nodes;
        }
        let result = self.reshape(a, shape);
        let mut empty = Self::new(self.opset);
        empty.named("nothing", "Identity", &[x], Vec::new());
        let branch = |name, nodes, output: &str| {
            NewAttribute::Graph(name, proto::graph_of(name, nodes, output))
        };
        let branches = vec![
            branch("then_branch", self.nodes, &result),
            branch("else_branch", empty.nodes, "nothing"),
        ];
        // Names of their own: a name inside of a branch may not be one around the branch.
        let mut function = Self::new(self.opset);
        function.named("count", "Size", &[x], Vec::new());
        let to = vec![NewAttribute::Integer("to", data_type::BOOL)];
        function.named("has_elements", "Cast", &["count"], to);
        function.named("y", "If", &["has_elements"], branches);
        function.nodes
    }

    pub(crate) fn float(&mut self, value: f32) -> String {
        self.constant(data_type::FLOAT, &[], value.to_le_bytes().to_vec())
    }

    pub(crate) fn integers(&mut self, values: &[i64]) -> String {
        let bytes = little_endian(values, i64::to_le_bytes);
        self.constant(data_type::INT64, &[values.len()], bytes)
    }

    fn constant(&mut self, data_type: i64, dims: &[usize], bytes: Vec<u8>) -> String {
        let key = (data_type, bytes);
        if let Some(name) = self.constants.get(&key) {
            return name.clone();
        }
        let tensor = proto::tensor_of("value", data_type, dims, key.1.clone());
        let name = self.with("Constant", &[], vec![NewAttribute::Tensor("value", tensor)]);
        self.constants.insert(key, name.clone());
        name
    }

    pub(crate) fn times(&mut self, a: &str, factor: f32) -> String {
        if factor == 1.0 {
            return a.to_owned();
        }
        let factor = self.float(factor);
        self.op("Mul", &[a, &factor])
    }

    pub(crate) fn cast(&mut self, a: &str, to: i64) -> String {
        self.with("Cast", &[a], vec![NewAttribute::Integer("to", to)])
    }

    /// The largest element along these axes, which stay with the length 1. Whether a NaN counts depends on the engine.
    pub(crate) fn max_along(&mut self, a: &str, axes: &[i64]) -> String {
        let keep = NewAttribute::Integer("keepdims", 1);
        if self.opset < 18 {
            return self.with(
                "ReduceMax",
                &[a],
                vec![NewAttribute::Integers("axes", axes.to_vec()), keep],
            );
        }
        let axes = self.integers(axes);
        self.with("ReduceMax", &[a, &axes], vec![keep])
    }

    /// The sum along these axes, which stay with the length 1.
    pub(crate) fn sum_along(&mut self, a: &str, axes: &[i64]) -> String {
        let axes = self.integers(axes);
        self.with(
            "ReduceSum",
            &[a, &axes],
            vec![NewAttribute::Integer("keepdims", 1)],
        )
    }

    /// The largest of the powers 2^`lowest` … 2^(`lowest` + 2^`steps` − 1) that is at most `a`; 2^`lowest` if none is. Only
    /// comparisons and exact products take part, so no rounding of an engine matters.
    pub(crate) fn power_of(&mut self, a: &str, lowest: i32, steps: u32) -> String {
        self.power_where("GreaterOrEqual", a, 1.0, lowest, 0..steps)
    }

    /// The largest of every other one of those powers, from 2^`lowest` on.
    pub(crate) fn every_other_power_of(&mut self, a: &str, lowest: i32, steps: u32) -> String {
        self.power_where("GreaterOrEqual", a, 1.0, lowest, 1..steps)
    }

    /// The largest of those powers p, 2^`lowest` or one above it, for which `a` and `factor` · p compare so.
    pub(crate) fn power_where(
        &mut self,
        comparison: &str,
        a: &str,
        factor: f64,
        lowest: i32,
        steps: Range<u32>,
    ) -> String {
        let first = 2_f64.powi(lowest);
        let mut power = self.float(first as f32);
        let end = steps.end;
        for step in steps.rev() {
            let ratio = 2_f64.powi(1 << step);
            // A float32 cannot hold the first ratio, 2^128, but its product.
            let [candidate, threshold] = if step + 1 == end {
                [first * ratio, first * ratio * factor].map(|value| self.float(value as f32))
            } else {
                let candidate = self.times(&power, ratio as f32);
                let threshold = match factor {
                    1.0 => candidate.clone(),
                    factor => self.times(&power, (ratio * factor) as f32),
                };
                [candidate, threshold]
            };
            let reaches = self.op(comparison, &[a, &threshold]);
            power = self.op("Where", &[&reaches, &candidate, &power]);
        }
        power
    }
}
