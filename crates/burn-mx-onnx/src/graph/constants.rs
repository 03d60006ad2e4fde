//! The values that do not depend on a model's inputs.

use std::collections::{HashMap, HashSet};

use crate::graph::{Model, ValueSource};

/// Constant values, by the body that defines each, and its name. The defaults of inputs are among them.
pub(crate) struct Constants<'a>(HashSet<(usize, &'a str)>);

impl<'a> Constants<'a> {
    /// An argument of a function is constant if each call gives a constant.
    pub(crate) fn of(model: &Model<'a>) -> Self {
        let functions = model.bodies.iter().enumerate().filter_map(|(id, body)| {
            let function = body.function.as_ref()?;
            Some(((function.domain, function.name), id))
        });
        let functions: HashMap<(&str, &str), usize> = functions.collect();
        let calls = model.bodies.iter().enumerate().flat_map(|(body, at)| {
            let nodes = at.nodes.iter().map(|at| &at.node);
            nodes.map(move |node| (body, node))
        });
        let calls: Vec<_> = calls
            .filter_map(|(body, node)| {
                let function = functions.get(&(node.domain, node.op_type))?;
                Some((body, node, *function))
            })
            .collect();
        let called: HashSet<usize> = calls.iter().map(|(_, _, function)| *function).collect();
        let mut variable: HashSet<(usize, &str)> = HashSet::new();
        loop {
            let mut constants = Self(HashSet::new());
            for (id, body) in model.bodies.iter().enumerate() {
                if body.function.is_some() && called.contains(&id) {
                    let inputs = body.inputs.iter().map(|input| (id, *input));
                    let inputs = inputs.filter(|input| !variable.contains(input));
                    constants.0.extend(inputs);
                }
                if body.parent.is_none() {
                    constants.visit(model, id);
                }
            }
            let before = variable.len();
            for (body, node, function) in &calls {
                for (at, input) in model.bodies[*function].inputs.iter().enumerate() {
                    let argument = node.inputs.get(at);
                    if !argument.is_some_and(|name| constants.has(model, *body, name)) {
                        variable.insert((*function, *input));
                    }
                }
            }
            if variable.len() == before {
                return constants;
            }
        }
    }

    /// Whether a value that `body` uses is constant.
    pub(crate) fn has(&self, model: &Model<'a>, body: usize, name: &'a str) -> bool {
        let found = model.find(body, name);
        found.is_some_and(|(owner, source)| match source {
            ValueSource::Initializer | ValueSource::Default | ValueSource::SparseInitializer => {
                true
            }
            ValueSource::Node(_) | ValueSource::Input => self.0.contains(&(owner, name)),
        })
    }

    fn visit(&mut self, model: &Model<'a>, body: usize) {
        for at in &model.bodies[body].nodes {
            for inner in &at.bodies {
                self.visit(model, *inner);
            }
            let node = &at.node;
            let mut inputs = node.inputs.iter().filter(|name| !name.is_empty());
            let is_constant = match node.inputs.is_empty() {
                true => node.is("Constant"),
                false => at.bodies.is_empty() && inputs.all(|name| self.has(model, body, name)),
            };
            if is_constant {
                let outputs = node.outputs.iter().map(|output| (body, *output));
                self.0.extend(outputs);
            }
        }
    }
}
