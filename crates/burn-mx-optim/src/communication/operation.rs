//! Checked settings, and the messages of an operation.

use microscaling::{BlockFormat, FloatFormat, RandomStream, Rounder, Rounding};

use super::{CommunicationError, RankOrder, Route, TensorState};
use crate::{PackedState, StateFormat};

/// A format with a rounding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wire {
    pub(super) format: StateFormat,
    pub(super) rounding: Rounding,
}

impl Wire {
    /// Rounds the numbers of a message.
    fn round(self, message: &mut [f32], stream: RandomStream) {
        let rounder = self.rounding.with(stream);
        match self.format {
            StateFormat::Elementwise(format) => format.round_slice(message, rounder),
            StateFormat::Block(format) => format
                .quantize(message, &[message.len()], 0, rounder)
                .expect("the format was checked, and a row has an axis"),
            own => {
                let packed = PackedState::encode(own, message, &[message.len()], rounder);
                message.copy_from_slice(&packed.expect("the format was checked").decode());
            }
        }
    }
}

/// Elements with a scale that all ranks know.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedScale {
    pub(super) format: BlockFormat,
    pub(super) rounding: Rounding,
}

impl SharedScale {
    /// Rounds numbers in units of the scale. A NaN or Inf becomes NaN.
    fn round(self, message: &mut [f32], stream: RandomStream) {
        for (index, x) in message.iter_mut().enumerate() {
            let draw = match self.rounding {
                Rounding::Stochastic => stream.draw(index as u64),
                _ => 0,
            };
            *x = match x.is_finite() {
                true => self.format.round_scaled(*x, 1.0, 1.0, self.rounding, draw),
                false => f32::NAN,
            };
        }
    }

    /// The factor of all numbers.
    fn factor(self, operands: &[Vec<f32>]) -> f32 {
        let magnitudes = operands.iter().flatten().map(|x| x.abs());
        let largest = magnitudes.fold(0.0f32, |a, b| if b > a { b } else { a });
        if largest == 0.0 || !largest.is_finite() {
            return 1.0;
        }
        let most = f64::from(self.format.element.max());
        let power = (most / f64::from(largest))
            .log2()
            .floor()
            .clamp(-126.0, 126.0);
        (power.exp2() / (operands.len() as f64).sqrt()) as f32
    }
}

/// Checked settings of an operation on one tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    pub(super) format: Option<Wire>,
    /// `format`, unless nodes have their own.
    pub(super) between: Option<Wire>,
    pub(super) operand: Option<FloatFormat>,
    pub(super) accumulator: Option<FloatFormat>,
    pub(super) route: Route,
    pub(super) order: RankOrder,
    pub(super) requantize: bool,
    pub(super) quantize_own: bool,
    pub(super) ranks_per_node: usize,
    pub(super) mean: bool,
    pub(super) hadamard: usize,
    pub(super) shared_scale: Option<SharedScale>,
    pub(super) blocks_by_shape: bool,
    pub(super) feeds_back: bool,
    pub(super) error_format: Option<Wire>,
    pub(super) difference: bool,
    pub(super) seed: u64,
}

impl Operation {
    /// The same sums without formats.
    pub(super) fn plain(self) -> Self {
        Self {
            format: None,
            between: None,
            operand: None,
            accumulator: None,
            hadamard: 0,
            shared_scale: None,
            feeds_back: false,
            difference: false,
            ..self
        }
    }

    /// Whether a gather changes no number.
    pub(super) fn gathers_unchanged(&self) -> bool {
        self.format.is_none() && self.operand.is_none()
    }

    /// The operation with blocks for a tensor of this shape.
    pub(super) fn for_shape(mut self, shape: &[usize], ranks: usize) -> Self {
        if self.blocks_by_shape {
            let count: usize = shape.iter().product();
            let [rows, columns] = [0, 1].map(|axis| shape.get(axis).copied().unwrap_or(1));
            let size = count.div_ceil(rows.max(columns).max(ranks)).max(1);
            for wire in [&mut self.format, &mut self.between].into_iter().flatten() {
                let format = wire.format.with_block_size(size);
                wire.format = format.expect("the format was checked");
            }
        }
        self
    }

    /// Ranks of a node.
    pub(super) fn node(&self, ranks: usize) -> Result<usize, CommunicationError> {
        match self.ranks_per_node {
            0 => Ok(ranks),
            node if node >= ranks => Ok(ranks),
            node if ranks.is_multiple_of(node) => Ok(node),
            node => {
                let allowed = format!("a divisor of the {ranks} ranks, or as many and more");
                Err(CommunicationError::new("ranks_per_node", node, allowed))
            }
        }
    }

    /// The numbers that a message of this length has.
    pub(super) fn padded(&self, count: usize) -> usize {
        count.next_multiple_of(self.hadamard.max(1))
    }

    /// Operands as they are sent, and the factor that they have.
    pub(super) fn prepare(&self, operands: &mut [Vec<f32>]) -> f32 {
        for operand in operands.iter_mut() {
            if let Some(format) = self.operand {
                format.round_slice(operand, Rounder::NearestEven);
            }
            operand.resize(self.padded(operand.len()), 0.0);
            self.transform(operand);
        }
        let factor = self
            .shared_scale
            .map_or(1.0, |shared| shared.factor(operands));
        if factor != 1.0 {
            operands.iter_mut().flatten().for_each(|x| *x *= factor);
        }
        factor
    }

    /// The inverse of [`prepare`](Self::prepare).
    pub(super) fn restore(&self, numbers: &mut Vec<f32>, count: usize, factor: f32) {
        self.transform(numbers);
        if self.hadamard != 0 {
            let length = self.hadamard as f32;
            numbers.iter_mut().for_each(|x| *x /= length);
        }
        if factor != 1.0 {
            numbers.iter_mut().for_each(|x| *x /= factor);
        }
        numbers.truncate(count);
    }

    /// The Hadamard transform without signs and without a factor.
    fn transform(&self, numbers: &mut [f32]) {
        if self.hadamard == 0 {
            return;
        }
        for block in numbers.chunks_exact_mut(self.hadamard) {
            let mut half = 1;
            while half < block.len() {
                for pair in block.chunks_exact_mut(2 * half) {
                    let (low, high) = pair.split_at_mut(half);
                    for (a, b) in low.iter_mut().zip(high) {
                        (*a, *b) = (*a + *b, *a - *b);
                    }
                }
                half *= 2;
            }
        }
    }
}

/// The messages of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) enum MessageStage {
    Operand,
    Partial,
    Node,
    Result,
    Gather,
}

/// The key of a gather's last values, beside the messages.
pub(super) const LAST: u8 = 5;

/// A call: sends messages.
pub(super) struct CollectiveCall<'a> {
    pub(super) operation: Operation,
    pub(super) state: &'a mut TensorState,
    /// The key of random numbers.
    pub(super) key: u64,
}

/// Who sends a message.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) stage: MessageStage,
    pub(super) rank: usize,
    /// The part of the tensor, where it starts, and how many numbers the rank's tensor has.
    pub(super) part: usize,
    pub(super) start: usize,
    pub(super) count: usize,
}

impl CollectiveCall<'_> {
    /// Rounds the numbers of a message as they arrive.
    pub(super) fn send(&mut self, sender: Sender, message: &mut [f32]) {
        let operation = self.operation;
        let wire = match sender.stage {
            MessageStage::Node => operation.between,
            _ => operation.format,
        };
        let Some(wire) = wire.filter(|_| !message.is_empty()) else {
            return;
        };
        let stage = sender.stage as u8;
        let number = u64::from(stage) << 56 | (sender.rank as u64) << 32 | sender.part as u64;
        let stream = RandomStream::new(self.key, number);
        if let Some(shared) = operation.shared_scale {
            return shared.round(message, stream);
        }
        if !operation.feeds_back {
            return wire.round(message, stream);
        }
        let kept = self.state.numbers(stage, sender.rank, sender.count);
        let errors = &mut kept[sender.start..][..message.len()];
        for (x, error) in message.iter_mut().zip(&*errors) {
            *x += error;
        }
        let before = message.to_vec();
        wire.round(message, stream);
        for ((error, x), rounded) in errors.iter_mut().zip(before).zip(&*message) {
            let lost = x - rounded;
            *error = if lost.is_finite() { lost } else { 0.0 };
        }
        if let Some(format) = operation.error_format {
            format.round(errors, stream);
        }
    }
}
