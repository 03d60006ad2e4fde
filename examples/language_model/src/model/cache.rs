//! Keys and values of the tokens that a model has seen.

use std::sync::Arc;

use burn::prelude::*;

/// How a cache stores keys and values.
#[derive(Clone)]
pub struct Stored<B: Backend> {
    /// Positions that are stored together: 1, or the size of blocks along time. The cache keeps other positions unrounded.
    pub positions: usize,
    /// Rounds keys or values `[batch, heads, positions, head]` for the cache.
    pub round: Arc<dyn Fn(Tensor<B, 4>) -> Tensor<B, 4> + Send + Sync>,
}

/// Keys and values of all layers.
pub struct Cache<B: Backend> {
    layers: Vec<Kept<B>>,
}

/// Keys and values of a layer.
pub(super) struct Kept<B: Backend> {
    stored: Option<Stored<B>>,
    keys_and_values: [Positions<B>; 2],
}

/// `[batch, heads, positions, head]` each.
struct Positions<B: Backend> {
    /// As they are stored.
    done: Option<Tensor<B, 4>>,
    /// Too few to be stored.
    rest: Option<Tensor<B, 4>>,
}

impl<B: Backend> Cache<B> {
    /// An empty cache for this many layers. `None` stores numbers as they are.
    pub fn new(layers: usize, stored: Option<&Stored<B>>) -> Self {
        let positions = || Positions {
            done: None,
            rest: None,
        };
        let kept = || Kept {
            stored: stored.cloned(),
            keys_and_values: [positions(), positions()],
        };
        Self {
            layers: (0..layers).map(|_| kept()).collect(),
        }
    }

    /// The number of positions that it has.
    pub fn positions(&self) -> usize {
        let [keys, _] = &self.layers[0].keys_and_values;
        let parts = [&keys.done, &keys.rest].into_iter().flatten();
        parts.map(|part| part.dims()[2]).sum()
    }

    pub(super) fn layer(&mut self, number: usize) -> &mut Kept<B> {
        &mut self.layers[number]
    }
}

impl<B: Backend> Kept<B> {
    /// Appends keys and values, and returns all of them.
    pub(super) fn extended(&mut self, new: [Tensor<B, 4>; 2]) -> [Tensor<B, 4>; 2] {
        let mut new = new.into_iter();
        let stored = self.stored.as_ref();
        self.keys_and_values.each_mut().map(|positions| {
            let new = new.next().expect("keys and values");
            positions.extend(new, stored)
        })
    }
}

impl<B: Backend> Positions<B> {
    fn extend(&mut self, new: Tensor<B, 4>, stored: Option<&Stored<B>>) -> Tensor<B, 4> {
        let rest = joined([self.rest.take(), Some(new)]).expect("there are new ones");
        let count = rest.dims()[2];
        // A query sees waiting numbers unrounded: blocks along time are stored when they are full.
        let now = joined([self.done.clone(), Some(rest.clone())]);
        let size = stored.map_or(1, |stored| stored.positions);
        let full = count / size * size;
        if full > 0 {
            let block = rest.clone().narrow(2, 0, full);
            let block = match stored {
                Some(stored) => (stored.round)(block),
                None => block,
            };
            self.done = joined([self.done.take(), Some(block)]);
        }
        self.rest = (full < count).then(|| rest.narrow(2, full, count - full));
        let as_stored = || joined([self.done.clone(), self.rest.clone()]);
        let seen = match size {
            1 => as_stored(),
            _ => now,
        };
        seen.expect("there are new ones")
    }
}

/// Along time.
fn joined<B: Backend>(parts: [Option<Tensor<B, 4>>; 2]) -> Option<Tensor<B, 4>> {
    let mut parts: Vec<_> = parts.into_iter().flatten().collect();
    match parts.len() {
        0 | 1 => parts.pop(),
        _ => Some(Tensor::cat(parts, 2)),
    }
}
