//! Operations beside loops that are written out here. The loops take only the rounding of blocks and numbers from microscaling.

use burn_mx_optim::communication::{Communication, RankOrder, Route, TensorState};
use microscaling::{BlockFormat, FloatFormat, RandomStream, Rounder, Rounding};

use super::{Choices, all_reduce, assert_same, bits, floats, normal, row};

/// Operations on one tensor, from the definitions.
struct Loops<'a> {
    wire: &'a Communication,
    key: u64,
}

fn plus(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn float(text: &str) -> Option<FloatFormat> {
    match text {
        "bfloat16" => FloatFormat::bfloat(16).ok(),
        "fp16" => FloatFormat::fp(16).ok(),
        _ => None,
    }
}

impl<'a> Loops<'a> {
    fn new(wire: &'a Communication, tensor: u64, call: u64) -> Self {
        let stream = RandomStream::new(wire.seed, tensor);
        let key = u64::from(stream.draw(2 * call)) | u64::from(stream.draw(2 * call + 1)) << 32;
        Self { wire, key }
    }

    /// A message as it arrives.
    fn sent(&self, stage: u64, rank: usize, part: usize, x: &[f32]) -> Vec<f32> {
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

    fn all_reduce(&self, operands: &[Vec<f32>]) -> Vec<f32> {
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

    fn reduce_scatter(&self, operands: &[Vec<f32>]) -> Vec<Vec<f32>> {
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

const FORMATS: [&str; 9] = [
    "mxfp8_e5m2",
    "mxfp4",
    "mxint8",
    "nvfp4",
    "bfp16",
    "bfloat16",
    "mx(element=fp8_e4m3,block_size=0)",
    "block(element=int4,scale=float32,block_size=128)",
    "block(element=e2m1,scale=ue5m3,block_size=5)",
];

const LENGTHS: [usize; 12] = [0, 1, 2, 3, 5, 8, 31, 32, 33, 100, 257, 1000];

fn choose(choices: &mut Choices) -> Communication {
    let route = choices.of(&[Route::Ring, Route::Tree, Route::AllToAll]);
    let is_all_to_all = route == Route::AllToAll;
    let ranks_per_node = if is_all_to_all {
        choices.of(&[0, 1, 2, 4])
    } else {
        0
    };
    let some = |text: &str| Some(text.to_owned());
    let between = choices.of(&[None, Some("mxint8"), Some("bfloat16")]);
    Communication {
        format: some(choices.of(&FORMATS)),
        format_between_nodes: between.filter(|_| ranks_per_node > 0).map(str::to_owned),
        rounding: choices.of(&[
            Rounding::NearestEven,
            Rounding::Stochastic,
            Rounding::TowardZero,
            Rounding::NearestAway,
        ]),
        operand: choices
            .of(&[None, Some("bfloat16"), Some("fp16")])
            .map(str::to_owned),
        accumulator: choices
            .of(&[None, Some("bfloat16"), Some("fp16")])
            .map(str::to_owned),
        route,
        order: choices.of(&[RankOrder::OwnerLast, RankOrder::Ascending]),
        requantize: is_all_to_all || choices.of(&[true, false]),
        quantize_own: choices.of(&[true, false]),
        ranks_per_node,
        mean: choices.of(&[true, false]),
        seed: choices.below(1000) as u64,
        ..Communication::default()
    }
}

/// Operands of which some have a NaN or Inf.
fn operands(choices: &mut Choices, ranks: usize, count: usize) -> Vec<Vec<f32>> {
    let operand = |rank: usize, choices: &mut Choices| {
        let mut operand = normal(count, (100 * count + rank) as u64);
        let factor = choices.of(&[1.0, 1e-6, 1e4]);
        operand.iter_mut().for_each(|x| *x *= factor);
        if count > 3 && choices.below(6) == 0 {
            let at = choices.below(count);
            operand[at] = choices.of(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0]);
        }
        operand
    };
    (0..ranks).map(|rank| operand(rank, choices)).collect()
}

#[test]
fn reductions_equal_written_out_loops() {
    let mut choices = Choices::new(1);
    for case in 0..600 {
        let wire = choose(&mut choices);
        let ranks = match wire.ranks_per_node {
            0 | 1 => choices.of(&[2, 3, 4, 5, 7, 8]),
            node => node * choices.of(&[1, 2, 3]),
        };
        let count = choices.of(&LENGTHS);
        let operands = operands(&mut choices, ranks, count);
        let tensor = choices.below(9) as u64;
        let what = format!("case {case}, {ranks} ranks, {count} numbers, {wire:?}");
        let mut state = TensorState::new(tensor);
        for call in 0..2 {
            let expected = Loops::new(&wire, tensor, call).all_reduce(&operands);
            let got = all_reduce(&wire, &operands, &mut state);
            assert_same(&got, &expected, &what);
        }
        let rows = operands.iter().map(|x| row(x)).collect();
        let got = wire.reduce_scatter(rows, &mut state).unwrap();
        let expected = Loops::new(&wire, tensor, 2).reduce_scatter(&operands);
        assert_eq!(got.len(), ranks, "{what}");
        for (got, expected) in got.into_iter().zip(&expected) {
            assert_same(&floats(got), expected, &what);
        }
    }
}

#[test]
fn gathers_equal_written_out_loops() {
    let mut choices = Choices::new(2);
    for case in 0..100 {
        let wire = choose(&mut choices);
        let ranks = choices.of(&[2, 3, 8]);
        // Shards of different lengths.
        let shards: Vec<Vec<f32>> = (0..ranks)
            .map(|rank| {
                let count = choices.of(&LENGTHS);
                operands(&mut choices, rank + 1, count).pop().unwrap()
            })
            .collect();
        let loops = Loops::new(&wire, 0, 0);
        let expected = shards.iter().enumerate().map(|(rank, shard)| {
            let mut shard = shard.clone();
            if let Some(format) = wire.operand.as_deref().and_then(float) {
                format.round_slice(&mut shard, Rounder::NearestEven);
            }
            loops.sent(4, rank, rank, &shard)
        });
        let expected = expected.collect::<Vec<_>>().concat();
        let shards = shards.iter().map(|shard| row(shard)).collect();
        let got = wire
            .all_gather(shards, 0, &mut TensorState::default())
            .unwrap();
        assert_same(&floats(got), &expected, &format!("case {case}, {wire:?}"));
    }
}

#[test]
fn one_rank_changes_no_bit() {
    let x = [normal(1000, 1), vec![f32::NAN, f32::INFINITY, -0.0, 1e-42]].concat();
    for preset in Communication::PRESETS {
        let wire = Communication::preset(preset).unwrap();
        let mut state = TensorState::default();
        let gathered = wire.all_gather(vec![row(&x)], 0, &mut state).unwrap();
        assert_same(&floats(gathered), &x, preset);
        if wire.difference {
            continue;
        }
        assert_same(
            &all_reduce(&wire, core::slice::from_ref(&x), &mut state),
            &x,
            preset,
        );
        let mut scattered = wire.reduce_scatter(vec![row(&x)], &mut state).unwrap();
        assert_eq!(bits(scattered.remove(0)), bits(row(&x)));
        assert_eq!(state, TensorState::default());
    }
}

#[test]
fn without_a_format_the_sum_is_float32_in_the_stated_order() {
    let mut choices = Choices::new(3);
    for _ in 0..50 {
        let ranks = choices.of(&[2, 3, 4, 7]);
        let count = choices.of(&LENGTHS);
        let operands = operands(&mut choices, ranks, count);
        let length = count.div_ceil(ranks).max(1);
        let ascending = |at: usize| operands.iter().map(|x| x[at]).reduce(|a, b| a + b).unwrap();
        let owner_last = |at: usize| {
            let next = |i: usize| operands[(at / length + 1 + i) % ranks][at];
            (0..ranks).map(next).reduce(|a, b| a + b).unwrap()
        };
        for route in [Route::Ring, Route::AllToAll] {
            for order in [RankOrder::Ascending, RankOrder::OwnerLast] {
                let wire = Communication {
                    route,
                    order,
                    ..Communication::default()
                };
                let expected: Vec<f32> = match order {
                    RankOrder::Ascending => (0..count).map(ascending).collect(),
                    _ => (0..count).map(owner_last).collect(),
                };
                let got = all_reduce(&wire, &operands, &mut TensorState::default());
                assert_same(&got, &expected, &format!("{wire:?}"));
            }
        }
    }
}

#[test]
fn a_gather_joins_along_an_axis() {
    let wire = Communication {
        format: Some("mxfp4".into()),
        ..Communication::default()
    };
    let shards = [2, 0, 3].map(|columns| crate::tensor::<burn_flex::Flex, 2>([4, columns], 5));
    let parts = shards.clone().map(floats);
    let expected = parts
        .iter()
        .enumerate()
        .map(|(rank, x)| Loops::new(&wire, 0, 0).sent(4, rank, rank, x));
    let expected: Vec<_> = expected.collect();
    let got = wire
        .all_gather(shards.to_vec(), 1, &mut TensorState::default())
        .unwrap();
    assert_eq!(got.dims(), [4, 5]);
    assert_eq!(floats(got.clone().narrow(1, 0, 2)), expected[0]);
    assert_eq!(floats(got.narrow(1, 2, 3)), expected[2]);
}
