//! The block formats on a device. The largest magnitudes of a block and a sub-block give a grid, and the grid rounds
//! each element, by `microscaling`'s rules for one element.

mod float_scale;
pub(super) mod known;
mod power_of_two;
pub(in crate::cube) mod tables;
pub(in crate::cube::quantize) mod tame;

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;
use microscaling::{BlockFormat, ElementFormat, NonFinite, Rounding, ScaleMode};
use std::ops::Deref;

use crate::cube::numbers::bits::{self, ABS, INFINITY, NAN, ONE, SIGN};
use crate::cube::numbers::float::Float32;
pub(in crate::cube) use float_scale::{
    both_levels, code_of_unit, scale_of_block, scale_of_sub_block,
};
pub(super) use float_scale::{
    eden_factor, eden_multiples, float_scales, round_in_units, round_unit, scaled,
};
use float_scale::{
    float_scale_code, float_scale_grid, largest_number, round_float_scale, tensor_scale,
};
use known::Known;
pub(super) use power_of_two::choice_of_mean;
use power_of_two::{power_grid, round_to_power_grid};

/// The numbers that elements are rounded to: two words by which the format rounds elements, and a third word. In the third word
/// is the number of the block's table, or a bit for each level of sub-blocks that doubles the scale.
pub(in crate::cube) type Grid = (u32, u32, u32);

/// A block format that there are kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) struct Format {
    format: BlockFormat,
    /// Who computes the products and quotients of scales and elements.
    pub(in crate::cube) float32: Float32,
}

impl Deref for Format {
    type Target = BlockFormat;

    fn deref(&self) -> &BlockFormat {
        &self.format
    }
}

impl Format {
    /// The format, whose numbers integers compute.
    ///
    /// # Panics
    ///
    /// At a format that came later than this crate's kernels.
    pub(in crate::cube) fn of(format: BlockFormat) -> Self {
        let mode = format.scale_mode;
        assert!(
            format.power_scale().is_some() || mode == ScaleMode::Rms,
            "burn-mx: no kernel for scale mode {mode}"
        );
        Self {
            format,
            float32: Float32::Integers,
        }
    }

    /// The format with its numbers computed by this device. They have the same bits.
    pub(in crate::cube) fn on<R: CubeRuntime>(self, client: &ComputeClient<R>) -> Self {
        Self {
            float32: Float32::of(client),
            ..self
        }
    }

    /// The format, as kernels take it.
    pub(in crate::cube) fn block(self) -> BlockFormat {
        self.format
    }

    /// Elements in a block along an axis of this length.
    pub(in crate::cube) fn block_length(self, axis_length: usize) -> usize {
        match self.group_size() {
            0 => axis_length,
            length => length.min(axis_length),
        }
    }

    /// Whether NaN and Inf pass unchanged.
    fn keeps_non_finite(self) -> bool {
        self.non_finite == NonFinite::Kept
    }

    /// Whether the grid follows from all elements of a block, in a second look at them.
    pub(in crate::cube) fn looks_twice(self) -> bool {
        self.scale_mode == ScaleMode::Rms || self.grids() > 1 || self.sign_scales
    }

    /// The format of the elements of one sign, where each sign has a scale; else the same format.
    fn of_one_sign(self) -> Self {
        Self {
            format: BlockFormat {
                sign_scales: false,
                ..self.format
            },
            ..self
        }
    }

    /// The grids among which the second look chooses, numbered from 0 on; 1 if it has no choice.
    pub(in crate::cube) fn grids(self) -> usize {
        match self.four_over_six {
            true => 2,
            false => self.element.table_numbers().len().max(1),
        }
    }

    /// The elements, if they are of tables.
    pub(in crate::cube) fn tables(self) -> Option<ElementFormat> {
        Some(self.element).filter(|element| element.is_table())
    }

    /// Elements that share a grid: a sub-block's, or all of a block.
    pub(in crate::cube) fn sub_block_length(self, block: usize) -> usize {
        let of_shifts = self.shifts.map(|shifts| shifts.block_size);
        let of_sub_scales = || self.sub_scales.map(|sub| sub.block_sizes()[1]);
        let of_outer = || self.outer.map(|_| self.block_size);
        let length = of_shifts.or_else(of_sub_scales).or_else(of_outer);
        length.map_or(block, |length| length.min(block))
    }

    /// Elements of a sub-block of the first of two levels.
    pub(in crate::cube) fn first_sub_block(self) -> Option<usize> {
        Some(self.sub_scales?.block_sizes()[0])
    }

    /// Whether a grid needs to know a sub-block's largest magnitude beside its block's.
    pub(in crate::cube) fn has_sub_blocks(self, block: usize) -> bool {
        self.sub_block_length(block) < block
            || self.first_sub_block().is_some()
            || self.has_outer_scale()
    }

    /// Whether blocks have an outer scale. They are the sub-blocks of what shares that scale.
    pub(in crate::cube) fn has_outer_scale(self) -> bool {
        self.outer.is_some()
    }
}

/// The part of a magnitude that counts for the largest one.
#[cube]
pub(in crate::cube) fn counted(abs: u32, #[comptime] format: Format) -> u32 {
    if comptime!(format.keeps_non_finite()) {
        select(abs < INFINITY, abs, 0)
    } else {
        abs
    }
}

/// The grid of a sub-block. The arguments are the largest counted magnitudes of its block and of the sub-block, where there are two
/// levels [of both](both_levels). For blocks that are looked at twice, the choice takes the sub-block's place.
///
/// With scales by sign, the grid has the largest magnitudes of the positive and of the negative elements, NaN where all of the block
/// becomes NaN. The third word is then the first word of the larger one's grid. [grid_of_sign] makes the grid of an element.
#[cube]
pub(in crate::cube) fn grid(
    amax: u32,
    sub_amax: u32,
    known: &Known,
    #[comptime] format: Format,
) -> Grid {
    if comptime!(format.sign_scales) {
        let of_sign = comptime!(format.of_one_sign());
        let (first, second, _) = grid_of_one(amax, amax, known, of_sign);
        let is_nan = if comptime!(format.has_exponent()) {
            second > INFINITY
        } else {
            first >= INFINITY
        };
        let other = sub_amax & ABS;
        let positive = select(sub_amax >= SIGN, other, amax);
        let negative = select(sub_amax >= SIGN, amax, other);
        (
            select(is_nan, NAN, positive),
            select(is_nan, NAN, negative),
            first,
        )
    } else {
        grid_of_one(amax, sub_amax, known, format)
    }
}

/// The grid of the elements with the sign of x.
#[cube]
pub(super) fn grid_of_sign(x: u32, grid: Grid, known: &Known, #[comptime] format: Format) -> Grid {
    if comptime!(format.sign_scales) {
        let amax = amax_of_sign(x, grid);
        grid_of_one(amax, amax, known, comptime!(format.of_one_sign()))
    } else {
        grid
    }
}

#[cube]
fn amax_of_sign(x: u32, grid: Grid) -> u32 {
    let (positive, negative, _) = grid;
    select(x < SIGN, positive, negative)
}

/// The scale of the elements with the sign of x, without the tensor's scale. `scale` is the scale of a block with one.
#[cube]
pub(super) fn scale_of_sign(
    x: u32,
    grid: Grid,
    scale: u32,
    known: &Known,
    #[comptime] format: Format,
) -> u32 {
    if comptime!(format.sign_scales) {
        let amax = amax_of_sign(x, grid);
        let of_sign = grid_of_sign(x, grid, known, format);
        let block = comptime!(format.of_one_sign().block());
        scale_of_block(of_sign, amax, amax, known, block)
    } else {
        scale
    }
}

#[cube]
fn grid_of_one(amax: u32, sub_amax: u32, known: &Known, #[comptime] format: Format) -> Grid {
    let block = comptime!(format.block());
    if comptime!(format.has_exponent()) {
        power_grid(amax, sub_amax, block)
    } else {
        float_scale_grid(amax, sub_amax, known, block)
    }
}

/// The argument of [grid] for a block as a whole, in the place of a sub-block's largest magnitude.
#[cube]
pub(in crate::cube) fn of_whole_block(choice: u32, #[comptime] format: Format) -> u32 {
    if comptime!(format.first_sub_block().is_some()) {
        // Zeros double no scale.
        0u32.runtime()
    } else {
        choice
    }
}

/// An element, rounded.
#[cube]
pub(in crate::cube) fn round(
    x: u32,
    grid: Grid,
    draw: u32,
    known: &Known,
    #[comptime] format: Format,
    #[comptime] rounding: Rounding,
) -> u32 {
    let grid = grid_of_sign(x, grid, known, format);
    if comptime!(format.has_exponent()) {
        let block = comptime!(format.of_one_sign().block());
        round_to_power_grid(x, grid, draw, block, rounding)
    } else {
        round_float_scale(x, grid, draw, known, format.element, rounding)
    }
}

/// The code of the scale NaN, of exponents.
pub(in crate::cube) const NAN_EXPONENT: u32 = 255;

/// The factor of all elements of a tensor with this largest magnitude, which is finite; 1 if the format has none.
#[cube]
pub(in crate::cube) fn scale_of_tensor(tensor_amax: u32, #[comptime] format: Format) -> u32 {
    if comptime!(format.has_exponent()) {
        ONE.runtime()
    } else {
        tensor_scale(tensor_amax, comptime!(format.block()))
    }
}

/// The largest number with the sign of x that an element of a grid can become; NaN where all of the block becomes NaN.
#[cube]
pub(in crate::cube) fn largest(
    x: u32,
    grid: Grid,
    known: &Known,
    #[comptime] format: Format,
) -> u32 {
    let grid = grid_of_sign(x, grid, known, format);
    let (_, second, _) = grid;
    if comptime!(format.has_exponent()) {
        second
    } else {
        largest_number(x, grid, known, format.element)
    }
}

/// The scale of a block with this largest magnitude and this grid, 0 if it has none; of scales by sign the one for the sign of this magnitude.
#[cube]
pub(in crate::cube) fn scale(amax: u32, grid: Grid, #[comptime] format: Format) -> u32 {
    let (first, second, third) = grid;
    let (first, second) = if comptime!(format.sign_scales) {
        (third, first)
    } else {
        (first, second)
    };
    let scale = if comptime!(!format.has_exponent()) {
        first
    } else if comptime!(format.has_fixed_steps()) {
        // As the rules take it: a block of subnormals has the exponent below the smallest normal number's.
        bits::scale(ONE.runtime(), (amax >> 23) as i32 - 127)
    } else {
        let exponent = first as i32 - comptime!(format.element.emin());
        select(second > INFINITY, 0, bits::scale(ONE.runtime(), exponent))
    };
    select(amax == 0 || scale >= INFINITY, 0, scale)
}

/// The code of the scale of a block with this largest magnitude and this grid.
#[cube]
pub(in crate::cube) fn scale_code(
    amax: u32,
    choice: u32,
    grid: Grid,
    known: &Known,
    #[comptime] format: Format,
) -> u32 {
    let (first, second, _) = grid;
    if comptime!(!format.has_exponent()) {
        let block = comptime!(format.block());
        let scale = scale_of_block(grid, amax, choice, known, block);
        float_scale_code(scale, block)
    } else if comptime!(format.has_fixed_steps()) {
        // Inf has the code of NaN; of a block that passes it, its finite numbers alone are counted.
        amax >> 23
    } else {
        let exponent = first as i32 - comptime!(format.element.emin());
        select(second > INFINITY, NAN_EXPONENT, (exponent + 127) as u32)
    }
}

/// 1 if an element is clipped, else 0: if it is finite and at least the largest number that an element of its grid can become.
#[cube]
pub(in crate::cube) fn clipped(
    x: u32,
    grid: Grid,
    known: &Known,
    #[comptime] format: Format,
) -> u32 {
    let largest = largest(x, grid, known, format);
    let abs = x & ABS;
    select(largest != 0 && abs >= largest && abs < INFINITY, ONE, 0)
}
