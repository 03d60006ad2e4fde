//! The job for each block, and the steps that the kernels of quantization share.

use super::known::Known;
use super::rules::{self, Format, Grid};
use crate::cube::numbers::random::{Stream, draw, four_words};
use crate::cube::numbers::round::round_float;
use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::prelude::*;
use microscaling::{BlockFormat, FloatFormat, Rounding};

/// The job for each block, known when a kernel is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) struct Job {
    /// The elementwise format and rounding before quantization.
    pub(in crate::cube) elementwise: Option<(FloatFormat, Rounding)>,
    pub(in crate::cube) format: Format,
    pub(in crate::cube) rounding: Rounding,
    /// Whether clipped elements become 1, and others 0.
    pub(super) marks_clipped: bool,
    /// Whether elements are in units of the tensor's scale.
    pub(in crate::cube) in_units: bool,
}

impl Job {
    pub(in crate::cube) fn of(
        elementwise: Option<(FloatFormat, Rounding)>,
        (format, rounding): (BlockFormat, Rounding),
    ) -> Self {
        Self {
            elementwise,
            format: Format::of(format),
            rounding,
            marks_clipped: false,
            in_units: false,
        }
    }

    /// The job on this device.
    pub(super) fn on<R: CubeRuntime>(self, client: &ComputeClient<R>) -> Self {
        Self {
            format: self.format.on(client),
            ..self
        }
    }

    /// Leaves the tensor's scale, if there is one, out of the quantized elements.
    pub(in crate::cube) fn in_units(self) -> Self {
        Self {
            in_units: self.format.tensor_scale,
            ..self
        }
    }

    /// Whether MS-EDEN corrects and rounds scales.
    pub(super) fn corrects_scales(self) -> bool {
        self.format.eden && self.rounding == Rounding::Stochastic
    }

    /// Writes marks of clipped elements in place of quantized elements.
    pub(in crate::cube) fn marking_clipped(format: BlockFormat) -> Self {
        Self {
            marks_clipped: true,
            ..Self::of(None, (format, Rounding::NearestEven))
        }
    }
}

/// Units of a cube of [`shared_kernel`], and of one that works on a square block.
pub(in crate::cube) const UNITS: usize = 256;

/// The factor of a block's elements, if they are in units of the tensor's scale.
#[cube]
pub(in crate::cube) fn scale_of_results(
    grid: Grid,
    amax: u32,
    choice: u32,
    known: &Known,
    #[comptime] job: Job,
) -> u32 {
    if comptime!(job.in_units) {
        rules::scale_of_block(grid, amax, choice, known, comptime!(job.format.block()))
    } else {
        0u32.runtime()
    }
}

/// The random word that rounds the element at a position; 0 where none is needed.
#[cube]
pub(in crate::cube) fn word_at(stream: &Stream, position: usize, #[comptime] job: Job) -> u32 {
    if comptime!(job.rounding == Rounding::Stochastic) {
        draw(stream, position)
    } else {
        0u32.runtime()
    }
}

/// The random words that are drawn at once.
pub(super) const WORDS: usize = 4;

/// The words of [`WORDS`] elements, of which the first one's position is a multiple of that.
#[cube]
pub(in crate::cube) fn words_at(
    stream: &Stream,
    position: usize,
    #[comptime] job: Job,
) -> Array<u32> {
    let mut words = Array::<u32>::new(WORDS);
    if comptime!(job.rounding == Rounding::Stochastic) {
        let drawn = four_words(stream, position / WORDS);
        words[0] = drawn.0;
        words[1] = drawn.1;
        words[2] = drawn.2;
        words[3] = drawn.3;
    }
    words
}

/// An element of a block, rounded by a random word.
#[cube]
pub(in crate::cube) fn rounded(
    x: u32,
    grid: Grid,
    scale: u32,
    word: u32,
    known: &Known,
    #[comptime] job: Job,
) -> u32 {
    if comptime!(job.marks_clipped) {
        rules::clipped(x, grid, known, job.format)
    } else if comptime!(job.in_units) {
        let element = comptime!(job.format.element);
        let scale = rules::scale_of_sign(x, grid, scale, known, job.format);
        let grid = rules::grid_of_sign(x, grid, known, job.format);
        rules::round_in_units(x, grid, scale, word, known, element, job.rounding)
    } else {
        rules::round(x, grid, word, known, job.format, job.rounding)
    }
}

/// An element as it goes into its block.
#[cube]
pub(in crate::cube) fn element(x: u32, #[comptime] job: Job) -> u32 {
    match comptime!(job.elementwise) {
        Some(elementwise) => round_float(x, 0, elementwise.0, elementwise.1),
        None => x,
    }
}
