//! Convolutions as products of bfloat16 panels, of the weight and the windows that slide over the input, for backends whose
//! tensors are slices of this process's memory.

use rayon::prelude::*;

use microscaling::OperandQuantization;
use microscaling_product::{Axis, DenseAxis, Line, Matrices, Panels, PanelsError, Side};

use super::memory::InMemory;
use super::panels::{exact, multiplies};
use crate::product::convolution::{Convolution, ConvolutionProduct};
use crate::product::windows::Windows;
use microscaling_processor::threads::is_divided;

/// Bytes of the windows that are laid out at once: what the outer caches hold.
const TOGETHER: usize = 4 << 20;
/// Rows of a product below which most of what its kernel computes would be thrown away.
const FEW_ROWS: usize = 4;

/// The product of two tensors, x or the output's gradient first, in row-major order. `None` leaves the product to the
/// backend's own op, if operands are not bfloat16 numbers or the product has few rows, as in a depthwise convolution.
pub(crate) fn convolve<T: InMemory>(
    convolution: &Convolution,
    product: &ConvolutionProduct,
    [first, second]: [&T; 2],
    bias: Option<T>,
    significant_bits: u32,
) -> Option<T> {
    if !multiplies(significant_bits) {
        return None;
    }
    let (first, second) = (first.clone().row_major(), second.clone().row_major());
    let (first_shape, second_shape) = (first.dims(), second.dims());
    let planes = Planes::of(first.values(), &first_shape, convolution.groups);
    let computed = match product {
        ConvolutionProduct::Output(shape) => output(convolution, planes, &second, shape),
        ConvolutionProduct::InputGradient(shape) => {
            input_gradient(convolution, planes, &second, shape)
        }
        ConvolutionProduct::WeightGradient(shape) => {
            let grad = Planes::of(second.values(), &second_shape, convolution.groups);
            weight_gradient(convolution, planes, grad, shape)
        }
    };
    let (mut values, shape) = exact(computed)??;
    if let Some(bias) = bias {
        let positions = shape[2..].iter().product();
        add_to_channels(&mut values, bias.row_major().values(), positions);
    }
    Some(T::from_values(values, shape))
}

/// Values and shape of a result.
type Computed = Result<Option<(Vec<f32>, Vec<usize>)>, PanelsError>;

/// For each group, the weight [O, C · taps] times the windows [C · taps, positions].
fn output<T: InMemory>(
    convolution: &Convolution,
    x: Planes<'_>,
    weight: &T,
    output: &[usize],
) -> Computed {
    let shape = weight.dims();
    let rows = shape[0] / x.groups;
    let windows = Windows::of_output(convolution, x.lengths, &shape[2..], &output[2..]);
    if rows < FEW_ROWS {
        return Ok(None);
    }
    let summed = shape[1] * windows.taps();
    let starts: Vec<usize> = (0..x.groups).map(|group| group * rows * summed).collect();
    let axis = |length, stride| Axis { length, stride };
    let matrices = Matrices {
        data: weight.values(),
        starts: &starts,
        free: axis(rows, summed),
        summed: axis(summed, 1),
        group: summed,
    };
    let lhs = Panels::quantize(Side::Lhs, matrices, OperandQuantization::default())?;
    windows_times(&lhs, x, &windows).map(Some)
}

/// For each group, the weight [C, O · taps] times the windows [O · taps, positions]. The weight's windows are flipped. The
/// windows slide over the gradient with zeros in between.
fn input_gradient<T: InMemory>(
    convolution: &Convolution,
    grad: Planes<'_>,
    weight: &T,
    input: &[usize],
) -> Computed {
    let shape = weight.dims();
    let windows = Windows::of_input_gradient(convolution, grad.lengths, &shape[2..], &input[2..]);
    let [rows, outputs, taps] = [shape[1], shape[0] / grad.groups, windows.taps()];
    if rows < FEW_ROWS {
        return Ok(None);
    }
    let weight = weight.values();
    let write = |line: Line, values: &mut [f32]| {
        for (at, value) in (line.start..).zip(values) {
            let (output, tap) = (line.matrix * outputs + at / taps, taps - 1 - at % taps);
            *value = weight[(output * rows + line.index) * taps + tap];
        }
    };
    let lengths = [grad.groups, rows, outputs * taps];
    let lhs = Panels::from_lines(Side::Lhs, DenseAxis::Summed, lengths, write)?;
    windows_times(&lhs, grad, &windows).map(Some)
}

/// `lhs` times the windows, group by group and image by image.
fn windows_times(
    lhs: &Panels,
    planes: Planes<'_>,
    windows: &Windows<'_>,
) -> Result<(Vec<f32>, Vec<usize>), PanelsError> {
    let Planes { groups, images, .. } = planes;
    let (positions, taps) = (windows.count(), windows.taps());
    let mut shape = vec![images, groups * lhs.free()];
    shape.extend(&windows.positions);
    let mut result = vec![0.0; shape.iter().product()];
    let of_image = groups * lhs.free() * positions;
    let together = together(groups * lhs.summed() * positions);
    for (i, result) in result.chunks_mut((of_image * together).max(1)).enumerate() {
        let first = i * together;
        let write = |line: Line, values: &mut [f32]| {
            let (image, group) = (first + line.matrix / groups, line.matrix % groups);
            let (channel, tap) = (line.index / taps, line.index % taps);
            windows.write(planes.plane(image, group, channel), tap, line.start, values);
        };
        let count = (images - first).min(together) * groups;
        let lengths = [count, positions, lhs.summed()];
        let rhs = Panels::from_lines(Side::Rhs, DenseAxis::Free, lengths, write)?;
        let pairs: Vec<_> = (0..count).map(|matrix| (matrix % groups, matrix)).collect();
        Panels::multiply(lhs, &rhs, &pairs, result)?;
    }
    Ok((result, shape))
}

/// For each group, the gradient [O, images · positions] times the windows [images · positions, C · taps]. The windows that
/// are laid out at once are summed; then these sums are added.
fn weight_gradient(
    convolution: &Convolution,
    x: Planes<'_>,
    grad: Planes<'_>,
    weight: &[usize],
) -> Computed {
    let (groups, rows) = (x.groups, weight[0] / x.groups);
    let windows = Windows::of_output(convolution, x.lengths, &weight[2..], grad.lengths);
    if rows < FEW_ROWS {
        return Ok(None);
    }
    let taps = windows.taps();
    let columns = weight[1] * taps;
    let positions = windows.count();
    let mut result = vec![0.0; weight.iter().product()];
    let together = together(groups * columns * positions);
    let pairs: Vec<_> = (0..groups).map(|group| (group, group)).collect();
    for first in (0..x.images).step_by(together) {
        let count = (x.images - first).min(together);
        // Parts of a line that are of one image each: the image, the first position.
        let by_image =
            |line: Line, values: &mut [f32], write: &dyn Fn(usize, usize, &mut [f32])| {
                let (mut at, mut rest) = (line.start, values);
                while !rest.is_empty() {
                    let position = at % positions;
                    let (part, tail) = rest.split_at_mut((positions - position).min(rest.len()));
                    at += part.len();
                    write(first + (at - part.len()) / positions, position, part);
                    rest = tail;
                }
            };
        let of_grad = |line: Line, values: &mut [f32]| {
            by_image(line, values, &|image, position, part| {
                let plane = grad.plane(image, line.matrix, line.index);
                part.copy_from_slice(&plane[position..position + part.len()]);
            });
        };
        let of_x = |line: Line, values: &mut [f32]| {
            let (channel, tap) = (line.index / taps, line.index % taps);
            by_image(line, values, &|image, position, part| {
                windows.write(x.plane(image, line.matrix, channel), tap, position, part);
            });
        };
        let lengths = |free| [groups, free, count * positions];
        let lhs = Panels::from_lines(Side::Lhs, DenseAxis::Summed, lengths(rows), of_grad)?;
        let rhs = Panels::from_lines(Side::Rhs, DenseAxis::Summed, lengths(columns), of_x)?;
        if first == 0 {
            Panels::multiply(&lhs, &rhs, &pairs, &mut result)?;
        } else {
            let mut part = vec![0.0; result.len()];
            Panels::multiply(&lhs, &rhs, &pairs, &mut part)?;
            for (sum, part) in result.iter_mut().zip(part) {
                *sum += part;
            }
        }
    }
    Ok(Some((result, weight.to_vec())))
}

/// Adds a number to all elements of each channel.
fn add_to_channels(values: &mut [f32], numbers: &[f32], positions: usize) {
    let add = |(plane, values): (usize, &mut [f32])| {
        let number = numbers[plane % numbers.len()];
        values.iter_mut().for_each(|x| *x += number);
    };
    let positions = positions.max(1);
    match is_divided(values.len()) {
        true => values.par_chunks_mut(positions).enumerate().for_each(add),
        false => values.chunks_mut(positions).enumerate().for_each(add),
    }
}

/// The number of images whose windows are laid out at once, given the elements of an image's windows.
fn together(elements: usize) -> usize {
    (TOGETHER / 2 / elements.max(1)).max(1)
}

/// A tensor [images, groups · channels, ..].
#[derive(Clone, Copy)]
struct Planes<'a> {
    values: &'a [f32],
    images: usize,
    groups: usize,
    channels: usize,
    /// Of a plane.
    lengths: &'a [usize],
}

impl<'a> Planes<'a> {
    fn of(values: &'a [f32], shape: &'a [usize], groups: usize) -> Self {
        Self {
            values,
            images: shape[0],
            groups,
            channels: shape[1] / groups,
            lengths: &shape[2..],
        }
    }

    fn plane(&self, image: usize, group: usize, channel: usize) -> &'a [f32] {
        let length: usize = self.lengths.iter().product();
        let plane = (image * self.groups + group) * self.channels + channel;
        &self.values[plane * length..][..length]
    }
}
