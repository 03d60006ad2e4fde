//! Operations as loops that are written out. The loops take only the rounding of blocks and numbers from microscaling.

use burn_mx_optim::communication::{Communication, RankOrder, Route};
use microscaling::{BlockFormat, FloatFormat, RandomStream, Rounder, Rounding};

/// Operations on one tensor, from the definitions.
pub(super) struct Loops<'a> {
    wire: &'a Communication,
    key: u64,
}

fn plus(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

pub(super) fn float(text: &str) -> Option<FloatFormat> {
    match text {
        "bfloat16" => FloatFormat::bfloat(16).ok(),
        "fp16" => FloatFormat::fp(16).ok(),
        _ => None,
    }
}

impl<'a> Loops<'a> {
    pub(super) fn new(wire: &'a Communication, tensor: u64, call: u64) -> Self {
        let stream = RandomStream::new(wire.seed, tensor);
        let key = u64::from(stream.draw(2 * call)) | u64::from(stream.draw(2 * call + 1)) << 32;
        Self { wire, key }
    }

    /// A message as it arrives.
    pub(super) fn sent(&self, stage: u64, rank: usize, part: usize, x: &[f32]) -> Vec<f32> {
        let between = self
            .wire
            .format_between_nodes
            .as_ref()
            .filter(|_| stage == 2);
        let Some(text) = between.or(self.wire.format.as_ref()) else {
            return x.to_vec();
        };
        let number = stage << 56 | (rank as u64) << 32 | part as u64;
        let rounder = match self.wire.rounding {
            Rounding::Stochastic => Rounder::Stochastic(RandomStream::new(self.key, number)),
            Rounding::NearestAway => Rounder::NearestAway,
            Rounding::TowardZero => Rounder::TowardZero,
            Rounding::NearestEven => Rounder::NearestEven,
        };
        let mut message = x.to_vec();
        match float(text) {
            Some(format) => format.round_slice(&mut message, rounder),
            None => {
                let format: BlockFormat = text.parse().unwrap();
                format
                    .quantize(&mut message, &[x.len()], 0, rounder)
                    .unwrap();
            }
        }
        message
    }

    fn own(&self, stage: u64, rank: usize, part: usize, x: &[f32]) -> Vec<f32> {
        match self.wire.quantize_own {
            true => self.sent(stage, rank, part, x),
            false => x.to_vec(),
        }
    }

    fn added(&self, a: &[f32], b: &[f32]) -> Vec<f32> {
        let mut sum = plus(a, b);
        if let Some(format) = self.wire.accumulator.as_deref().and_then(float) {
            format.round_slice(&mut sum, Rounder::NearestEven);
        }
        sum
    }

    fn ranks(&self, of: &[usize], owner: usize) -> Vec<usize> {
        match self.wire.order {
            RankOrder::Ascending => of.to_vec(),
            _ => {
                let at = of.iter().position(|rank| *rank == owner).unwrap();
                let next = |i| of[(at + 1 + i) % of.len()];
                (0..of.len()).map(next).collect()
            }
        }
    }

    fn ring(&self, order: &[usize], part: usize, x: &[Vec<f32>]) -> Vec<f32> {
        let mut sum = self.sent(0, order[0], part, &x[order[0]]);
        for hop in 1..order.len() {
            if hop > 1 && self.wire.requantize {
                sum = self.sent(1, order[hop - 1], part, &sum);
            }
            let own = self.own(0, order[hop], part, &x[order[hop]]);
            sum = self.added(&sum, &own);
        }
        sum
    }

    /// The sum over a span of ranks, before the last one of them sends it.
    fn tree(&self, order: &[usize], part: usize, x: &[Vec<f32>]) -> Vec<f32> {
        if let [rank] = *order {
            return self.own(0, rank, part, &x[rank]);
        }
        let left = order.len().next_power_of_two() / 2;
        let (left, right) = order.split_at(left);
        let sender = *left.last().unwrap();
        let sent = match (left.len(), self.wire.requantize) {
            (1, _) => self.sent(0, sender, part, &x[sender]),
            (_, true) => self.sent(1, sender, part, &self.tree(left, part, x)),
            (_, false) => self.tree(left, part, x),
        };
        self.added(&sent, &self.tree(right, part, x))
    }

    fn all_to_all(&self, part: usize, x: &[Vec<f32>]) -> Vec<f32> {
        let node = match self.wire.ranks_per_node {
            0 => x.len(),
            ranks => ranks.min(x.len()),
        };
        let nodes = x.len() / node;
        let sum = |stage, order: &[usize], owner, x: &[Vec<f32>]| {
            let arrived = order.iter().map(|rank| match *rank == owner {
                true => self.own(stage, *rank, part, &x[*rank]),
                false => self.sent(stage, *rank, part, &x[*rank]),
            });
            arrived.reduce(|a, b| self.added(&a, &b)).unwrap()
        };
        let mut of_nodes = vec![Vec::new(); x.len()];
        let owners: Vec<usize> = (0..nodes).map(|i| i * node + part % node).collect();
        for (i, owner) in owners.iter().enumerate() {
            let ranks: Vec<usize> = (i * node..(i + 1) * node).collect();
            of_nodes[*owner] = match node {
                1 => x[*owner].clone(),
                _ => sum(0, &self.ranks(&ranks, *owner), *owner, x),
            };
        }
        match nodes {
            1 => of_nodes.swap_remove(part % node),
            _ => sum(2, &self.ranks(&owners, part), part, &of_nodes),
        }
    }

    /// The sum of a part, and the rank that has it.
    fn sum(&self, part: usize, x: &[Vec<f32>]) -> (Vec<f32>, usize) {
        let all: Vec<usize> = (0..x.len()).collect();
        let order = self.ranks(&all, part);
        match self.wire.route {
            Route::Ring => (self.ring(&order, part, x), *order.last().unwrap()),
            Route::Tree => (self.tree(&order, part, x), *order.last().unwrap()),
            _ => (self.all_to_all(part, x), part),
        }
    }

    fn parts(&self, operands: &[Vec<f32>]) -> Vec<Vec<Vec<f32>>> {
        let (ranks, count) = (operands.len(), operands[0].len());
        let length = count.div_ceil(ranks);
        let part = |part: usize, x: &Vec<f32>| {
            let range = (part * length).min(count)..((part + 1) * length).min(count);
            let mut part = x[range].to_vec();
            if let Some(format) = self.wire.operand.as_deref().and_then(float) {
                format.round_slice(&mut part, Rounder::NearestEven);
            }
            part
        };
        let of_part = |number| operands.iter().map(|x| part(number, x)).collect();
        (0..ranks).map(of_part).collect()
    }

    pub(super) fn all_reduce(&self, operands: &[Vec<f32>]) -> Vec<f32> {
        let parts = self.parts(operands).into_iter().enumerate();
        let results = parts.map(|(part, x)| {
            let (mut sum, _) = self.sum(part, &x);
            if self.wire.mean {
                sum.iter_mut().for_each(|x| *x /= operands.len() as f32);
            }
            self.sent(3, part, part, &sum)
        });
        results.collect::<Vec<_>>().concat()
    }

    pub(super) fn reduce_scatter(&self, operands: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let parts = self.parts(operands).into_iter().enumerate();
        let results = parts.map(|(part, x)| {
            let (mut sum, rank) = self.sum(part, &x);
            if self.wire.mean {
                sum.iter_mut().for_each(|x| *x /= operands.len() as f32);
            }
            match rank != part && self.wire.requantize {
                true => self.sent(1, rank, part, &sum),
                false => sum,
            }
        });
        results.collect()
    }
}
