//! The numbers that blocks of a weight can hold, once their scales are fixed.

use microscaling::{BlockFormat, Packed, Rounder};

use super::ScaleSearch;

/// The format of a weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightFormat {
    pub(super) format: BlockFormat,
    /// The largest magnitude of the fused layers that share the weight's tensor scale.
    pub(super) largest: Option<f32>,
}

impl From<BlockFormat> for WeightFormat {
    fn from(format: BlockFormat) -> Self {
        Self {
            format,
            largest: None,
        }
    }
}

/// A weight `[outputs, inputs]` whose blocks, along the inputs, have fixed scales.
pub(super) struct WeightGrid {
    packed: Packed,
    /// The numbers that a block can hold, by its scale's byte.
    numbers: Vec<Numbers>,
}

/// The numbers of a block, in ascending order, with their codes.
struct Numbers(Vec<(f32, u32)>);

impl Numbers {
    /// The number closest to a value. If two numbers are equally close: the number with the even code.
    fn nearest(&self, value: f64) -> (f32, u32) {
        let after = self
            .0
            .partition_point(|(number, _)| f64::from(*number) < value);
        let candidates = &self.0[after.saturating_sub(1)..(after + 1).min(self.0.len())];
        let distance = |(number, _): &(f32, u32)| (f64::from(*number) - value).abs();
        let by_distance = |a: &&(f32, u32), b: &&(f32, u32)| {
            let by_code = (a.1 & 1).cmp(&(b.1 & 1));
            distance(a).total_cmp(&distance(b)).then(by_code)
        };
        *candidates
            .iter()
            .min_by(by_distance)
            .expect("a block holds numbers")
    }
}

/// The number of scale bytes that a search tries below the format's own byte, and above. One byte more is a factor of 2 in MX.
/// Sixteen bytes more are a factor of 4 in NVFP4.
fn reach(format: BlockFormat) -> u8 {
    match format.has_exponent() {
        true => 1,
        false => 6,
    }
}

impl WeightGrid {
    /// Whether blocks of a format are a scale byte and elements that multiply it.
    pub(super) fn has(format: BlockFormat) -> bool {
        let is_known = format.is_mx() && format.block_size > 0 || format.is_nvfp4();
        is_known && !format.square && format.other_scales().is_none()
    }

    /// The grid of a finite weight. `importance` are factors of squared errors, one for each input.
    pub(super) fn new(
        WeightFormat { format, largest }: WeightFormat,
        weight: &[f32],
        shape: [usize; 2],
        search: ScaleSearch,
        importance: &[f64],
    ) -> Self {
        let even = Rounder::NearestEven;
        let encoded = match largest {
            Some(largest) => Packed::encode_part(format, weight, &shape, 1, even, largest),
            None => Packed::encode(format, weight, &shape, 1, even),
        };
        let packed = encoded.expect("the format was checked, and values are finite");
        let numbers = (0..=u8::MAX).map(|scale| numbers(&packed, scale)).collect();
        let mut grid = Self { packed, numbers };
        if search != ScaleSearch::None {
            grid.search(weight, shape, search, importance);
        }
        grid
    }

    /// The number that is closest to a value in this row and column.
    pub(super) fn nearest(&self, row: usize, column: usize, value: f64) -> (f32, u32) {
        self.numbers[usize::from(self.scale(row, column))].nearest(value)
    }

    /// The weight with these codes, in row-major order.
    pub(super) fn pack(self, codes: &[u32]) -> Packed {
        self.packed.map_codes(|at, _| codes[at])
    }

    fn blocks_a_row(&self) -> usize {
        let [_, inputs] = *self.packed.shape() else {
            unreachable!("a weight has two axes");
        };
        inputs.div_ceil(self.packed.format().group_size())
    }

    fn scale(&self, row: usize, column: usize) -> u8 {
        let block = column / self.packed.format().group_size();
        self.packed.scales()[row * self.blocks_a_row() + block]
    }

    /// Replaces the scale of each block by the one with the least squared error of rounding to nearest.
    fn search(
        &mut self,
        weight: &[f32],
        [rows, inputs]: [usize; 2],
        search: ScaleSearch,
        importance: &[f64],
    ) {
        let size = self.packed.format().group_size();
        let reach = reach(self.packed.format());
        let mut scales = Vec::with_capacity(self.packed.scales().len());
        for row in 0..rows {
            for start in (0..inputs).step_by(size) {
                let columns = start..(start + size).min(inputs);
                let own = self.scale(row, start);
                let error = |scale: u8| {
                    let numbers = &self.numbers[usize::from(scale)];
                    if numbers.0.is_empty() {
                        return f64::INFINITY;
                    }
                    let error = |column: usize| {
                        let value = f64::from(weight[row * inputs + column]);
                        let (number, _) = numbers.nearest(value);
                        let factor = match search {
                            ScaleSearch::Hessian => importance[column],
                            _ => 1.0,
                        };
                        factor * (f64::from(number) - value).powi(2)
                    };
                    columns.clone().map(error).sum()
                };
                // The format's own first: it stays unless another one is better.
                let others = own.saturating_sub(reach)..=own.saturating_add(reach);
                let (mut best, mut least) = (own, error(own));
                for scale in others {
                    let now = error(scale);
                    if now < least {
                        (best, least) = (scale, now);
                    }
                }
                scales.push(best);
            }
        }
        let parts = self.packed.clone().into_parts();
        let packed = Packed::from_parts(
            parts.format,
            &parts.shape,
            parts.axis,
            parts.tensor_scale,
            scales,
            parts.elements,
        );
        self.packed = packed.expect("only scales changed");
    }
}

/// The numbers of a block with this scale in this weight; none if the scale is NaN.
fn numbers(weight: &Packed, scale: u8) -> Numbers {
    let format = weight.format();
    let (size, count) = (format.group_size(), 1_usize << format.element_bits());
    // Blocks enough for one element of each code.
    let shape = [1, count.next_multiple_of(size)];
    let zeros = vec![0.0; shape[1]];
    let zeros = Packed::encode(format, &zeros, &shape, 1, Rounder::NearestEven);
    let parts = zeros.expect("zeros can be packed").into_parts();
    let scales = vec![scale; parts.scales.len()];
    let tensor_scale = weight.tensor_scale();
    let elements = parts.elements;
    let block = Packed::from_parts(format, &shape, 1, tensor_scale, scales, elements);
    let block = block.expect("only scales changed");
    let values = block.map_codes(|at, _| at as u32).decode();
    let numbers = values.into_iter().zip(0..).take(count);
    let mut numbers: Vec<(f32, u32)> = numbers.filter(|(value, _)| value.is_finite()).collect();
    numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
    // −0 and 0 are one number, and so is every code with a scale of 0.
    numbers.reverse();
    numbers.dedup_by(|next, kept| next.0 == kept.0);
    numbers.reverse();
    Numbers(numbers)
}
