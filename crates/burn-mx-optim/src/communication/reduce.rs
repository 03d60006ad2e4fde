//! Sums over ranks.

use microscaling::Rounder;

use super::{
    CommunicationError, RankOrder, Route, TensorState,
    operation::{CollectiveCall, MessageStage, Operation, Sender},
};

/// The numbers of a part on a rank.
struct Partial {
    rank: usize,
    numbers: Vec<f32>,
    is_sum: bool,
    is_rounded: bool,
}

/// A part of the tensor, and its owner's rank.
#[derive(Clone, Copy)]
struct RankPart {
    owner: usize,
    start: usize,
    count: usize,
}

impl RankPart {
    fn sender(self, stage: MessageStage, rank: usize) -> Sender {
        Sender {
            stage,
            rank,
            part: self.owner,
            start: self.start,
            count: self.count,
        }
    }
}

/// The numbers of a part.
pub(super) fn part_length(operation: &Operation, count: usize, ranks: usize) -> usize {
    operation.padded(count.div_ceil(ranks))
}

/// The sum of operands of equal lengths. `for_all` rounds the result, which goes from each part's owner to every rank.
///
/// # Errors
/// Nodes that do not divide the ranks, or a state of other operands.
pub(super) fn reduce(
    operation: Operation,
    mut operands: Vec<Vec<f32>>,
    state: &mut TensorState,
    for_all: bool,
) -> Result<Vec<f32>, CommunicationError> {
    let ranks = operands.len();
    let count = operands[0].len();
    let node = operation.node(ranks)?;
    let padded = operation.padded(count);
    let lengths = vec![padded; ranks];
    state.check(&lengths)?;
    let key = state.begin(&lengths, operation.seed);
    let factor = operation.prepare(&mut operands);
    let mut call = CollectiveCall {
        operation,
        state,
        key,
    };
    let length = part_length(&operation, count, ranks);
    let mut sum = Vec::with_capacity(padded);
    for owner in 0..ranks {
        let range = (owner * length).min(padded)..((owner + 1) * length).min(padded);
        let part = RankPart {
            owner,
            start: range.start,
            count: padded,
        };
        let of_rank = |operand: &Vec<f32>| operand[range.clone()].to_vec();
        let operands = operands.iter().map(of_rank).collect();
        sum.extend(call.part(part, operands, node, for_all));
    }
    operation.restore(&mut sum, count, factor);
    Ok(sum)
}

impl CollectiveCall<'_> {
    /// The sum of a part over ranks, as its owner has it, or as all ranks have it.
    fn part(
        &mut self,
        part: RankPart,
        operands: Vec<Vec<f32>>,
        node: usize,
        for_all: bool,
    ) -> Vec<f32> {
        let ranks = operands.len();
        let operation = self.operation;
        let mut operands: Vec<_> = operands
            .into_iter()
            .enumerate()
            .map(Partial::operand)
            .collect();
        let mut of_nodes = Vec::new();
        while !operands.is_empty() {
            let rest = operands.split_off(node);
            let own = (of_nodes.len() * node) + part.owner % node;
            of_nodes.push(self.group(part, operands, own, MessageStage::Operand));
            operands = rest;
        }
        let mut sum = match of_nodes.len() {
            1 => of_nodes.remove(0),
            _ => self.group(part, of_nodes, part.owner, MessageStage::Node),
        };
        if operation.mean {
            sum.numbers.iter_mut().for_each(|x| *x /= ranks as f32);
        }
        if for_all {
            self.send(
                part.sender(MessageStage::Result, part.owner),
                &mut sum.numbers,
            );
        } else if sum.rank != part.owner && operation.requantize {
            // The sum goes to its owner.
            self.send(
                part.sender(MessageStage::Partial, sum.rank),
                &mut sum.numbers,
            );
        }
        sum.numbers
    }

    /// The sum over some ranks. With `Route::AllToAll` the rank `owner` has the sum.
    fn group(
        &mut self,
        part: RankPart,
        mut operands: Vec<Partial>,
        owner: usize,
        stage: MessageStage,
    ) -> Partial {
        if operands.len() == 1 {
            return operands.remove(0);
        }
        if self.operation.quantize_own {
            operands
                .iter_mut()
                .for_each(|own| self.round(part, own, stage));
        }
        if self.operation.order == RankOrder::OwnerLast {
            let place = operands.iter().position(|own| own.rank == owner);
            let first = place.expect("the owner is in the group") + 1;
            operands.rotate_left(first);
        }
        match self.operation.route {
            Route::Ring => {
                let add = |sum, next| self.pass(part, sum, next, stage);
                operands.into_iter().reduce(add).expect("a rank")
            }
            Route::Tree => {
                while operands.len() > 1 {
                    let mut pairs = operands.into_iter();
                    let mut sums = Vec::new();
                    while let Some(sender) = pairs.next() {
                        sums.push(match pairs.next() {
                            Some(receiver) => self.pass(part, sender, receiver, stage),
                            None => sender,
                        });
                    }
                    operands = sums;
                }
                operands.remove(0)
            }
            Route::AllToAll => {
                for operand in operands.iter_mut().filter(|operand| operand.rank != owner) {
                    self.round(part, operand, stage);
                }
                let add = |sum: Partial, next| self.add(sum, next);
                let sum = operands.into_iter().reduce(add).expect("a rank");
                Partial { rank: owner, ..sum }
            }
        }
    }

    /// A rank sends its numbers, and another rank adds its own.
    fn pass(
        &mut self,
        part: RankPart,
        mut sent: Partial,
        own: Partial,
        stage: MessageStage,
    ) -> Partial {
        if !sent.is_sum || self.operation.requantize {
            let stage = if sent.is_sum {
                MessageStage::Partial
            } else {
                stage
            };
            self.round(part, &mut sent, stage);
        }
        self.add(sent, own)
    }

    fn round(&mut self, part: RankPart, held: &mut Partial, stage: MessageStage) {
        if !held.is_rounded {
            self.send(part.sender(stage, held.rank), &mut held.numbers);
            held.is_rounded = true;
        }
    }

    /// The sum, on the second one's rank.
    fn add(&self, sum: Partial, next: Partial) -> Partial {
        let mut numbers = sum.numbers;
        numbers
            .iter_mut()
            .zip(&next.numbers)
            .for_each(|(a, b)| *a += b);
        if let Some(format) = self.operation.accumulator {
            format.round_slice(&mut numbers, Rounder::NearestEven);
        }
        Partial {
            rank: next.rank,
            numbers,
            is_sum: true,
            is_rounded: false,
        }
    }
}

impl Partial {
    fn operand((rank, numbers): (usize, Vec<f32>)) -> Self {
        Self {
            rank,
            numbers,
            is_sum: false,
            is_rounded: false,
        }
    }
}
