//! Four bits for numbers that are not negative, k/16 times a scale with k = 1 … 16: second moments without a zero (arXiv 2309.01507). The
//! scale of a matrix' element is the smaller one of its row's largest number and its column's. A vector has a scale for each block.

use microscaling::Rounder;

use super::{CodedTensor, fractions, get, largest, put};

/// Number of scales.
pub(super) fn scales(&[rows, columns]: &[usize; 2], block_size: usize) -> usize {
    match rows {
        1 => columns.div_ceil(block_size),
        _ => rows.saturating_add(columns),
    }
}

/// The scale of each element.
fn scale(scales: &[u8], &[rows, columns]: &[usize; 2], block_size: usize, index: usize) -> f32 {
    if rows == 1 {
        return get(scales, index / block_size);
    }
    let [row, column] = [
        get(scales, index / columns),
        get(scales, rows + index % columns),
    ];
    match row.is_nan() || column.is_nan() {
        true => f32::NAN,
        false => row.min(column),
    }
}

pub(super) fn encode(
    data: &[f32],
    shape: &[usize; 2],
    block_size: usize,
    rounder: Rounder,
) -> CodedTensor {
    let &[rows, columns] = shape;
    let mut bytes = CodedTensor {
        elements: vec![0; data.len().div_ceil(2)],
        ..CodedTensor::default()
    };
    let block = if rows == 1 {
        block_size
    } else {
        columns.max(1)
    };
    for numbers in data.chunks(block) {
        put(&mut bytes.scales, largest(numbers.iter().copied()));
    }
    if rows != 1 {
        // A matrix without columns has rows all the same.
        bytes.scales.resize(4 * rows, 0);
        for column in 0..columns {
            let numbers = data[column.min(data.len())..].iter().step_by(columns);
            put(&mut bytes.scales, largest(numbers.copied()));
        }
    }
    let draws = fractions(rounder);
    for (index, x) in data.iter().enumerate() {
        let steps =
            16.0 * f64::from(*x) / f64::from(scale(&bytes.scales, shape, block_size, index));
        let steps = match &draws {
            Some(draw) => (steps + draw(index)).floor(),
            None => steps.round_ties_even(),
        };
        // Also for 0/0: 1/16 of a scale of zero is zero.
        let code = steps.clamp(1.0, 16.0) as u8;
        bytes.elements[index / 2] |= code.saturating_sub(1) << (4 * (index % 2));
    }
    bytes
}

pub(super) fn decode(
    scales: &[u8],
    elements: &[u8],
    shape: &[usize; 2],
    block_size: usize,
) -> Vec<f32> {
    let count = shape.iter().product();
    let number = |index: usize| {
        let code = elements[index / 2] >> (4 * (index % 2)) & 15;
        f32::from(code + 1) / 16.0 * scale(scales, shape, block_size, index)
    };
    (0..count).map(number).collect()
}
