//! Convolutions as a matrix unit sums them up: implicit matrix products, with the order of K that kernels for channels-last tensors
//! have.
//!
//! An output and an input's gradient sum over the taps of the weight, and for each tap over the channels of the group. A weight's
//! gradient sums over the images, and for each image over the positions of the output. Blocks lie along the images. If the operands
//! have blocks, the gradient sums over the positions, and for each position over the images. Each tap or position begins with a
//! block.

use microscaling::{AccumulateError, Accumulation, AccumulatorOperand, Axis, OperandKind};
use rayon::prelude::*;

use super::layout::{common_block, greatest_common_divisor};
use super::{Accumulated, SumLooks, scale, turned};
use crate::kernels::product::convolution::{Convolution, ConvolutionProduct};
use crate::kernels::product::windows::{Planes, Windows};

/// Elements of an operand that are laid out at once.
const TOGETHER: usize = 4 << 20;

/// The product of two operands, x or the output's gradient first.
pub(crate) fn convolve(
    accumulation: Accumulation,
    convolution: &Convolution,
    product: &ConvolutionProduct,
    operands: [&Accumulated; 2],
    looks: &mut Option<SumLooks>,
) -> Result<Vec<f32>, AccumulateError> {
    let mut result = vec![0.0; product.shape().iter().product()];
    match product {
        ConvolutionProduct::Output(shape) | ConvolutionProduct::InputGradient(shape) => {
            let [planes, window] = operands.map(|operand| &operand.shape[2..]);
            let windows = match product {
                ConvolutionProduct::Output(_) => Windows::of_output,
                _ => Windows::of_input_gradient,
            };
            let windows = windows(convolution, planes, window, &shape[2..]);
            let reversed = matches!(product, ConvolutionProduct::InputGradient(_));
            let work = OverChannels {
                windows,
                reversed,
                groups: convolution.groups,
                rows: shape[1] / convolution.groups,
            };
            work.multiply(accumulation, operands, &mut result, looks)?;
        }
        ConvolutionProduct::WeightGradient(shape) => {
            let [planes, positions] = operands.map(|operand| &operand.shape[2..]);
            let work = OverImages {
                windows: Windows::of_output(convolution, planes, &shape[2..], positions),
                groups: convolution.groups,
                rows: shape[0] / convolution.groups,
                channels: shape[1],
            };
            work.multiply(accumulation, operands, &mut result, looks)?;
        }
    }
    scale(operands, &mut result);
    Ok(result)
}

/// An operand of an implicit matrix product, laid out.
struct Laid {
    kind: OperandKind,
    free: Axis,
    summed: Axis,
    elements: Vec<f32>,
    scales: Vec<f32>,
}

impl Laid {
    fn operand(&self) -> AccumulatorOperand<'_> {
        AccumulatorOperand {
            kind: self.kind,
            elements: &self.elements,
            free: self.free,
            summed: self.summed,
            scales: &self.scales,
        }
    }
}

/// Rows of a length, `[outer, padded]` of them, the first of each `padded` written, the others filled.
fn lay(
    [outer, inner]: [usize; 2],
    padded: usize,
    length: usize,
    fill: f32,
    write: impl Fn([usize; 2], &mut [f32]) + Sync,
) -> Vec<f32> {
    let mut rows = vec![fill; outer * padded * length];
    let all = rows.par_chunks_mut(length.max(1)).enumerate();
    all.for_each(|(row, values)| {
        let at = [row / padded, row % padded];
        if at[1] < inner {
            write(at, values);
        }
    });
    rows
}

/// Elements that a matrix unit sums over without a break: elements of an operand from `start` on along its summed axis, and zeros
/// behind these elements.
#[derive(Clone, Copy)]
struct Segment<'a> {
    operand: &'a Accumulated,
    start: usize,
    length: usize,
    padded: usize,
    /// Elements of a block of the segment.
    block: usize,
}

impl<'a> Segment<'a> {
    /// Of length `length`, from a multiple of that on. Where blocks of the operand begin within it, its own are so short that each
    /// has one scale.
    fn of(operand: &'a Accumulated, start: usize, length: usize, padded: usize) -> Self {
        let block = match operand.kind.block {
            0 => padded.max(1),
            block if length.is_multiple_of(block) || block.is_multiple_of(length) => block,
            block if start == 0 && operand.shape[operand.sums.summed] == length => block,
            block => greatest_common_divisor(block, length),
        };
        Self {
            operand,
            start,
            length,
            padded,
            block,
        }
    }

    /// Elements and scales laid out in `outer` segments by a function of values, their number along the summed axis, the segment, the
    /// place along that axis, and the row to write.
    fn lay(
        self,
        outer: usize,
        row: usize,
        write: impl Fn(&[f32], usize, [usize; 2], &mut [f32]) + Sync,
    ) -> [Vec<f32>; 2] {
        let Self {
            operand,
            start,
            length,
            padded,
            block,
        } = self;
        let all = operand.shape[operand.sums.summed];
        let elements = lay([outer, length], padded, row, 0.0, |[segment, at], row| {
            write(&operand.elements, all, [segment, start + at], row);
        });
        let scales = match operand.kind.scale {
            None => Vec::new(),
            Some(_) => {
                let blocks = [outer, length.div_ceil(block)];
                // The scale of zeros can be any.
                lay(blocks, padded.div_ceil(block), row, 1.0, |at, row| {
                    let of_operand = match operand.kind.block {
                        0 => 0,
                        size => (start + at[1] * block) / size,
                    };
                    write(&operand.scales, operand.blocks(), [at[0], of_operand], row);
                })
            }
        };
        [elements, scales]
    }

    fn kind(self) -> OperandKind {
        OperandKind {
            block: match self.operand.kind.scale {
                Some(_) => self.block,
                None => 0,
            },
            ..self.operand.kind
        }
    }
}

/// The product of a weight and the windows of planes, over taps and channels.
struct OverChannels<'a> {
    windows: Windows<'a>,
    /// Whether the first tap of the weight meets the last element of a window.
    reversed: bool,
    groups: usize,
    /// Of the weight, in each group.
    rows: usize,
}

impl OverChannels<'_> {
    fn multiply(
        &self,
        accumulation: Accumulation,
        operands: [&Accumulated; 2],
        result: &mut [f32],
        looks: &mut Option<SumLooks>,
    ) -> Result<(), AccumulateError> {
        let Self { groups, rows, .. } = *self;
        let [planes, weight] = operands;
        let [images, channels] = [planes.shape[0], planes.shape[1] / groups];
        let padded = channels.next_multiple_of(common_block(operands.map(|operand| operand.kind)));
        let positions = self.windows.count();
        let of_image = self.windows.taps() * padded * positions;
        let together = (TOGETHER / of_image.max(1)).clamp(1, images.max(1));
        let parts = images.div_ceil(together);
        for group in 0..groups {
            let segment = |operand, start| Segment::of(operand, start, channels, padded);
            let lhs = self.weight(weight, group, segment);
            for part in 0..parts {
                let first = part * together;
                let images = first..images.min(first + together);
                let rhs = self.planes(segment(planes, group * channels), images.clone());
                let mut product = vec![0.0; rows * rhs.free.length];
                let accumulator = accumulation.of(lhs.kind, rhs.kind)?;
                accumulator.multiply(&lhs.operand(), &rhs.operand(), &mut product)?;
                if let Some(looks) = looks {
                    let at = [group * parts + part, groups * parts];
                    looks.see(at, [&lhs.operand(), &rhs.operand()]);
                }
                for (row, values) in product.chunks_exact(rhs.free.length.max(1)).enumerate() {
                    let planes = values.chunks_exact(positions.max(1));
                    for (image, plane) in images.clone().zip(planes) {
                        let at = (image * groups + group) * rows + row;
                        result[at * positions..][..positions].copy_from_slice(plane);
                    }
                }
            }
        }
        Ok(())
    }

    /// Taps and channels lie along the first axis, rows or positions along the second.
    fn laid(&self, segment: Segment<'_>, free: usize, laid: [Vec<f32>; 2]) -> Laid {
        let segments = self.windows.taps();
        let [elements, scales] = laid;
        let blocks = segments * segment.padded.div_ceil(segment.block);
        Laid {
            kind: segment.kind(),
            free: Axis {
                length: free,
                stride: 1,
            },
            summed: Axis {
                length: segments * segment.padded,
                stride: free,
            },
            elements,
            scales: turned(&scales, blocks, free),
        }
    }

    /// A group of a weight [outputs, inputs, ..], whose groups lie along the first axis.
    fn weight<'a>(
        &self,
        weight: &'a Accumulated,
        group: usize,
        segment: impl Fn(&'a Accumulated, usize) -> Segment<'a>,
    ) -> Laid {
        let (rows, taps) = (self.rows, self.windows.taps());
        let over_outputs = weight.sums.summed == 0;
        let segment = match over_outputs {
            true => segment(weight, group * (weight.shape[0] / self.groups)),
            false => segment(weight, 0),
        };
        let laid = segment.lay(taps, rows, |values, all, [tap, at], row| {
            for (line, value) in row.iter_mut().enumerate() {
                let pair = match over_outputs {
                    true => at * rows + line,
                    false => (group * rows + line) * all + at,
                };
                *value = values[pair * taps + tap];
            }
        });
        self.laid(segment, rows, laid)
    }

    /// The windows of some images.
    fn planes(&self, segment: Segment<'_>, images: std::ops::Range<usize>) -> Laid {
        let (taps, positions) = (self.windows.taps(), self.windows.count());
        let free = images.len() * positions;
        let shape = &segment.operand.shape;
        let laid = segment.lay(taps, free, |values, all, [tap, at], row| {
            let shape = [&[shape[0], all], &shape[2..]].concat();
            let planes = Planes::of(values, &shape, 1);
            let tap = if self.reversed { taps - 1 - tap } else { tap };
            for (image, row) in images.clone().zip(row.chunks_exact_mut(positions.max(1))) {
                self.windows.write(planes.plane(image, 0, at), tap, 0, row);
            }
        });
        self.laid(segment, free, laid)
    }
}

/// The product of the output's gradient and the windows of x, over images and positions.
struct OverImages<'a> {
    windows: Windows<'a>,
    groups: usize,
    /// Of the weight, in each group.
    rows: usize,
    channels: usize,
}

impl OverImages<'_> {
    fn multiply(
        &self,
        accumulation: Accumulation,
        operands: [&Accumulated; 2],
        result: &mut [f32],
        looks: &mut Option<SumLooks>,
    ) -> Result<(), AccumulateError> {
        let [x, grad] = operands;
        let (images, taps) = (x.shape[0], self.windows.taps());
        let padded = images.next_multiple_of(common_block(operands.map(|operand| operand.kind)));
        let blocks = operands.iter().any(|operand| operand.kind.scale.is_some());
        let columns = self.channels * taps;
        let of_line = padded * self.windows.count();
        let together = (TOGETHER / of_line.max(1)).clamp(1, columns.max(1));
        let parts = columns.div_ceil(together);
        for group in 0..self.groups {
            let segment = |operand| Segment::of(operand, 0, images, padded);
            let lhs = self.lines(
                segment(grad),
                blocks,
                self.rows,
                |values, image, line, row| {
                    let planes = Planes::of(values, &grad.shape, self.groups);
                    row.copy_from_slice(planes.plane(image, group, line));
                },
            );
            for part in 0..parts {
                let first = part * together;
                let count = together.min(columns - first);
                let rhs = self.lines(segment(x), blocks, count, |values, image, line, row| {
                    let planes = Planes::of(values, &x.shape, self.groups);
                    let (channel, tap) = ((first + line) / taps, (first + line) % taps);
                    let plane = planes.plane(image, group, channel);
                    self.windows.write(plane, tap, 0, row);
                });
                let mut product = vec![0.0; self.rows * count];
                let accumulator = accumulation.of(lhs.kind, rhs.kind)?;
                accumulator.multiply(&lhs.operand(), &rhs.operand(), &mut product)?;
                if let Some(looks) = looks {
                    let at = [group * parts + part, self.groups * parts];
                    looks.see(at, [&lhs.operand(), &rhs.operand()]);
                }
                for (row, values) in product.chunks_exact(count).enumerate() {
                    let at = (group * self.rows + row) * columns + first;
                    result[at..][..count].copy_from_slice(values);
                }
            }
        }
        Ok(())
    }

    /// Lines of images and positions, or, with blocks, of positions and images.
    fn lines(
        &self,
        segment: Segment<'_>,
        blocks: bool,
        free: usize,
        write: impl Fn(&[f32], usize, usize, &mut [f32]) + Sync,
    ) -> Laid {
        let positions = self.windows.count();
        let laid = segment.lay(free, positions, |values, _, [line, image], row| {
            write(values, image, line, row);
        });
        let [elements, scales] = laid;
        let length = segment.padded * positions;
        Laid {
            kind: segment.kind(),
            free: Axis {
                length: free,
                stride: length,
            },
            summed: Axis { length, stride: 1 },
            elements: match blocks {
                true => turned(&elements, segment.padded, positions),
                false => elements,
            },
            scales: turned(&scales, segment.padded.div_ceil(segment.block), positions),
        }
    }
}
