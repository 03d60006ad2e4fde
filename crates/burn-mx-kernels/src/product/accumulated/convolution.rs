//! Convolutions as a matrix unit sums them up: implicit matrix products, with the order of K that kernels for channels-last tensors
//! have.
//!
//! An output and an input's gradient sum over the taps of the weight, and for each tap over the channels of the group. A weight's
//! gradient sums over the images, and for each image over the positions of the output. Blocks lie along the images. If the operands
//! have blocks, the gradient sums over the positions, and for each position over the images. Each tap or position begins with a
//! block.

use super::blocks::{block_of_segments, block_within, has_blocks};
use super::form::AccumulatedForm;
use super::layout::{Layout, Results, Steps};
use crate::product::convolution::{Convolution, ConvolutionProduct};
use crate::product::windows::Windows;

/// The entry of a table of windows where a window reads beyond its plane.
pub(crate) const OUTSIDE: u32 = u32::MAX;

/// The operands: a weight and planes, or an output's gradient and x. A group is a matrix.
pub(super) fn layouts(
    convolution: &Convolution,
    product: &ConvolutionProduct,
    forms: &[AccumulatedForm; 2],
    shapes: &[Vec<usize>; 2],
    segment: usize,
) -> [Layout; 2] {
    let groups = convolution.groups;
    let shape = product.shape();
    let plane = count(&shapes[1]);
    let layout = |i: usize, matrix, free, summed, given| Layout {
        leading: vec![groups],
        matrix,
        free,
        summed,
        given,
        block: match forms[i].kind.scale {
            Some(_) => {
                let block = block_of_segments(forms[i], &shapes[i], given);
                block_within(block, given, segment)
            }
            None => 0,
        },
    };
    if let ConvolutionProduct::WeightGradient(_) = product {
        let [rows, channels, images] = [shape[0] / groups, shape[1], shapes[1][0]];
        let [positions, taps] = [count(&shapes[0]), count(shape)];
        let has_blocks = has_blocks(forms);
        let summed = |tensor: &[usize], along_positions: Steps| {
            let of_image = tensor[1] * count(tensor);
            match has_blocks {
                true => [along_positions, Steps::of(segment, of_image)],
                false => [Steps::of(images, of_image), along_positions],
            }
        };
        let given = if has_blocks { images } else { positions };
        return [
            layout(
                0,
                rows * positions,
                [Steps::ONE, Steps::of(rows, positions)],
                summed(&shapes[0], Steps::of(positions, 1)),
                given,
            ),
            layout(
                1,
                channels * plane,
                [
                    Steps::of(channels, plane),
                    Steps::of_windows(taps, positions),
                ],
                summed(&shapes[1], Steps::of_windows(positions, 1)),
                given,
            ),
        ];
    }
    let [rows, channels] = [shape[1], shapes[1][1]].map(|all| all / groups);
    let [positions, taps] = [count(shape), count(&shapes[0])];
    // [groups, outputs, inputs, taps]
    let [of_row, of_channel] = match product {
        ConvolutionProduct::InputGradient(_) => [taps, rows * taps],
        _ => [channels * taps, taps],
    };
    [
        layout(
            0,
            rows * channels * taps,
            [Steps::ONE, Steps::of(rows, of_row)],
            [Steps::of(taps, 1), Steps::of(segment, of_channel)],
            channels,
        ),
        layout(
            1,
            channels * plane,
            [
                Steps::of(shapes[1][0], shapes[1][1] * plane),
                Steps::of_windows(positions, 1),
            ],
            [
                Steps::of_windows(taps, positions),
                Steps::of(segment, plane),
            ],
            channels,
        ),
    ]
}

/// Elements of a plane or a window.
fn count(shape: &[usize]) -> usize {
    shape[2..].iter().product()
}

/// Groups, and in each the rows and columns.
pub(super) fn results(convolution: &Convolution, product: &ConvolutionProduct) -> Results {
    let shape = product.shape();
    let of_plane = count(shape);
    match product {
        ConvolutionProduct::WeightGradient(_) => {
            let row = shape[1] * of_plane;
            Results {
                matrix: shape[0] / convolution.groups * row,
                row,
                column: [of_plane, 1],
            }
        }
        _ => Results {
            matrix: shape[1] / convolution.groups * of_plane,
            row: of_plane,
            column: [shape[1] * of_plane, 1],
        },
    }
}

/// The table of windows, `[taps, positions]`: the place of the element that a window reads, within its plane. Taps lie as in the weight.
pub(super) fn windows(
    convolution: &Convolution,
    product: &ConvolutionProduct,
    [first, second]: &[Vec<usize>; 2],
) -> Vec<u32> {
    let (plane, result) = (&second[2..], &product.shape()[2..]);
    let windows = match product {
        ConvolutionProduct::Output(_) => {
            Windows::of_output(convolution, plane, &first[2..], result)
        }
        ConvolutionProduct::InputGradient(_) => {
            Windows::of_input_gradient(convolution, plane, &first[2..], result)
        }
        ConvolutionProduct::WeightGradient(_) => {
            Windows::of_output(convolution, plane, result, &first[2..])
        }
    };
    let (taps, positions) = (windows.taps(), windows.count());
    let plane: Vec<u32> = (0..count(second) as u32).collect();
    let mut table = vec![OUTSIDE; taps * positions];
    let of_taps = table.chunks_exact_mut(positions.max(1)).enumerate();
    for (tap, places) in of_taps {
        let tap = match product {
            // The first element of the weight meets the last one of a window.
            ConvolutionProduct::InputGradient(_) => taps - 1 - tap,
            _ => tap,
        };
        windows.write(&plane, tap, 0, places);
    }
    table
}
