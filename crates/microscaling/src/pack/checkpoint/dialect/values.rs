//! Tensors in the numbers that other tools serve: the rules over words, as loops over many blocks.

use super::encoding::{MX_BLOCK, MxEncoding, ScaleRule, Signs, Ties};
use super::nvfp4::{NVFP4_BLOCK, Nvfp4Encoding};
use super::rule::{DialectRule, ToolRule};
use super::{Dialect, DialectError};
use crate::format::BlockFormat;
use crate::pack::PackError;
use crate::quantize::blocks::contiguous::largest_of_block;
use crate::quantize::blocks::interleaved::{ColumnMax, Lines};
use crate::quantize::largest::{largest, magnitude_max};
use crate::quantize::layout::{Layout, Runs, checked_layout};
use crate::quantize::rules::TOGETHER;
use microscaling_processor::instruction_set::{Kernel, at_level};

/// Runs the loops, compiled once for each rule: choices between operations are constants inside of the kernel.
macro_rules! run_compiled {
    ($level:expr, $runs:expr, $rule:expr) => {
        run_compiled! {
            $level, $runs, $rule,
            [
                { scale: ScaleRule::Power(power), least_exponent: -126, ties: Ties::Even, signs: Signs::Kept }
                { scale: ScaleRule::Power(power), least_exponent: -127, ties: Ties::Even, signs: Signs::Kept }
                { scale: ScaleRule::Power(power), least_exponent: -127, ties: Ties::Even, signs: Signs::OfNumbers }
                { scale: ScaleRule::CeilLog2, least_exponent: -127, ties: Ties::Even, signs: Signs::Kept }
                { scale: ScaleRule::CeilLog2, least_exponent: -127, ties: Ties::TowardZero, signs: Signs::ZeroIsNegative }
                { scale: ScaleRule::FloorLog2, least_exponent: -127, ties: Ties::TowardZero, signs: Signs::NoNegativeZero }
                { scale: ScaleRule::RoundUp, least_exponent: -127, ties: Ties::Even, signs: Signs::Kept }
            ]
            [
                { ToolRule::Nvfp4(None) }
                { ToolRule::Nvfp4(Some(Nvfp4Encoding::CompressedTensors)) }
                { ToolRule::Nvfp4(Some(Nvfp4Encoding::ModelOpt)) }
                { ToolRule::Nvfp4(Some(Nvfp4Encoding::TransformerEngine)) }
                { ToolRule::Nvfp4(Some(Nvfp4Encoding::TransformerEngineFastMath)) }
                { ToolRule::Q8_0 }
            ]
        }
    };
    ($level:expr, $runs:expr, $rule:expr, [$({ $($mx:tt)* })*] [$({ $($other:tt)* })*]) => {
        match $rule {
            $(ToolRule::Mx(MxEncoding { element, $($mx)* }) => $level.run(
                #[inline(always)]
                || $runs.quantize(ToolRule::Mx(MxEncoding { element, $($mx)* })),
            ),)*
            // Slow: a rule that is not listed.
            rule @ ToolRule::Mx(_) => $level.run(
                #[inline(always)]
                || $runs.quantize(rule),
            ),
            $($($other)* => $level.run(
                #[inline(always)]
                || $runs.quantize($($other)*),
            ),)*
        }
    };
}

impl Dialect {
    /// Quantizes a tensor of any shape in place, in blocks along `axis`, to the numbers of the bytes that [`encode`](Self::encode) gives:
    /// what the tool computes with when it serves the tensor.
    ///
    /// Training meets tensors that [`encode`](Self::encode) refuses. A last block that is shorter than the others is padded with zeros. A
    /// block with a NaN or an Inf becomes NaN, and so does a tensor with a tensor scale. A tensor that the tool would make NaN of,
    /// because its largest magnitude is zero or tiny, becomes zeros.
    ///
    /// # Errors
    /// * [`DialectError::Format`]: the dialect does not have the format.
    /// * [`DialectError::Pack`]: the data do not fit the shape, or the shape does not have the axis.
    pub fn quantize(
        self,
        format: BlockFormat,
        data: &mut [f32],
        shape: &[usize],
        axis: usize,
    ) -> Result<(), DialectError> {
        self.check(format)?;
        if let Some(rounder) = self.is_ours(&format) {
            let quantized = format.quantize(data, shape, axis, rounder);
            return Ok(quantized.map_err(PackError::from)?);
        }
        let layout =
            checked_layout(data, shape, axis, format.block_shape()).map_err(PackError::from)?;
        let rule = ToolRule::of(self, &format);
        if data.is_empty() {
            return Ok(());
        }
        let tensor_amax = match format.tensor_scale {
            true => largest(data),
            false => 0,
        };
        let runs = Runs::of(layout);
        runs.share(data, runs.all(data), &|data, at, _| {
            let mut runs = BlockRuns {
                data,
                at,
                layout,
                tensor_amax,
            };
            at_level(|level| run_compiled!(level, runs, rule));
        });
        Ok(())
    }
}

/// Elements of a row that are worked on together.
const COLUMNS: usize = 512;

/// Consecutive [`Runs`] of a tensor. The last block of an axis may be short, as if it were padded with zeros: a largest magnitude does not
/// count these.
struct BlockRuns<'a> {
    data: &'a mut [f32],
    /// Position on the axis.
    at: usize,
    layout: Layout,
    /// The largest magnitude of a tensor with a tensor scale.
    tensor_amax: u32,
}

impl BlockRuns<'_> {
    #[inline(always)]
    fn quantize(&mut self, rule: ToolRule) {
        let Self {
            at,
            layout,
            tensor_amax,
            ..
        } = *self;
        let Layout {
            axis, inner, block, ..
        } = layout;
        let rule = TensorRule {
            rule: DialectRule { rule },
            tensor_amax,
        };
        let mut rest = &mut *self.data;
        let mut at = at;
        while !rest.is_empty() {
            let rows = layout.next_rows(at, rest.len());
            let (run, tail) = rest.split_at_mut(rows * inner);
            match inner {
                1 => rule.contiguous(run, block),
                _ => rule.interleaved(run, &Lines::of(&layout, rows), inner),
            }
            at = (at + rows) % axis;
            rest = tail;
        }
    }
}

/// The rule for the blocks of a tensor with this largest magnitude.
#[derive(Clone, Copy)]
struct TensorRule {
    rule: DialectRule,
    tensor_amax: u32,
}

impl TensorRule {
    /// Quantizes contiguous blocks, of which the last one may be short.
    #[inline(always)]
    fn contiguous(self, data: &mut [f32], block: usize) {
        let mut of_elements = [[0; TOGETHER * MX_BLOCK]; 3];
        for window in data.chunks_mut(TOGETHER * block) {
            let mut maxima = [0; TOGETHER];
            for (amax, block) in maxima.iter_mut().zip(window.chunks(block)) {
                *amax = largest_in(block);
            }
            let mut of_blocks = [[0; TOGETHER]; 3];
            let [first, second, third] = &mut of_blocks;
            self.words(&maxima, [first, second, third]);
            for (of_elements, of_blocks) in of_elements.iter_mut().zip(of_blocks) {
                for (elements, word) in of_elements.chunks_mut(block).zip(of_blocks) {
                    elements.fill(word);
                }
            }
            let [first, second, third] = &of_elements;
            self.round(window, [first, second, third]);
        }
    }

    /// Quantizes interleaved blocks, one in each of `inner` columns.
    #[inline(always)]
    fn interleaved(self, data: &mut [f32], lines: &Lines, inner: usize) {
        let mut buffers = [[0; COLUMNS]; 4];
        for columns in lines.tiles(COLUMNS) {
            let [maxima, first, second, third] =
                (buffers.each_mut()).map(|words| &mut words[..columns.len()]);
            maxima.fill(0);
            ColumnMax {
                maxima: &mut *maxima,
                data,
                lines,
                columns: columns.clone(),
            }
            .run();
            if lines.width > inner {
                join_rows(maxima, inner);
            }
            self.words(maxima, [&mut *first, &mut *second, &mut *third]);
            for line in data.chunks_mut(lines.width) {
                let end = columns.end.min(line.len());
                self.round(&mut line[columns.start..end], [first, second, third]);
            }
        }
    }

    /// The words of blocks with these largest magnitudes.
    #[inline(always)]
    fn words(self, maxima: &[u32], [first, second, third]: [&mut [u32]; 3]) {
        let of_blocks = first.iter_mut().zip(second).zip(third);
        for (amax, ((first, second), third)) in maxima.iter().zip(of_blocks) {
            (*first, *second, *third) = self.rule.words(*amax, self.tensor_amax);
        }
    }

    /// Rounds elements with the words of their blocks.
    #[inline(always)]
    fn round(self, data: &mut [f32], [first, second, third]: [&[u32]; 3]) {
        let words = first.iter().zip(second).zip(third);
        for (x, ((first, second), third)) in data.iter_mut().zip(words) {
            let rounded = self.rule.round(x.to_bits(), (*first, *second, *third));
            *x = f32::from_bits(rounded);
        }
    }
}

/// The largest magnitude of a block.
#[inline(always)]
fn largest_in(block: &[f32]) -> u32 {
    if let Ok(block) = <&[f32; MX_BLOCK]>::try_from(block) {
        largest_of_block(block)
    } else if let Ok(block) = <&[f32; NVFP4_BLOCK]>::try_from(block) {
        largest_of_block(block)
    } else {
        magnitude_max(block)
    }
}

/// Replaces the largest magnitudes in a line of several rows by the largest magnitudes of the columns, for each row.
#[inline(always)]
fn join_rows(maxima: &mut [u32], inner: usize) {
    let (columns, others) = maxima.split_at_mut(inner);
    for row in others.chunks(inner) {
        for (amax, other) in columns.iter_mut().zip(row) {
            *amax = (*amax).max(*other);
        }
    }
    for row in others.chunks_mut(inner) {
        row.copy_from_slice(columns);
    }
}
