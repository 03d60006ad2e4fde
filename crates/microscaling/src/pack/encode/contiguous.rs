//! Packing contiguous blocks without sub-blocks: from numbers to codes in one pass, with nothing written in between.

use crate::format::element::places::CodePlaces;
use crate::pack::codes::eights;
use crate::quantize::blocks::contiguous::{LANES, lanes, largest_of_block};
use crate::quantize::blocks::{Job, TameSeconds};
use crate::quantize::rules::{ElementRule, ScalePair, TOGETHER};
use crate::round::bits::{ONE, pow2};
use crate::round::draws::{Draws, WINDOW};
use core::hint::black_box;
use microscaling_processor::instruction_set::{Kernel, Level};

/// Packs windows of [`TOGETHER`] blocks, up to one with a block that is not ordinary.
pub(super) struct PackWindows<'a, R> {
    pub(super) job: &'a Job<R>,
    pub(super) level: Level,
    pub(super) places: CodePlaces,
    /// Bits of a code, and bytes of the code of a scale.
    pub(super) bits: u32,
    pub(super) scale_bytes: usize,
    pub(super) data: &'a [f32],
    /// Position of the data in the tensor.
    pub(super) start: u64,
    pub(super) draws: &'a mut Draws,
    pub(super) scales: &'a mut [u8],
    pub(super) elements: &'a mut [u8],
}

impl<R: ElementRule> PackWindows<'_, R> {
    /// Packs blocks of a [usual](crate::quantize::blocks::contiguous::is_usual) length. Returns how many elements are packed.
    pub(super) fn run(self, block: usize) -> usize {
        // The lengths as constants, so that a block is a few vectors.
        match block {
            8 => self.run_of::<8>(),
            16 => self.run_of::<16>(),
            32 => self.run_of::<32>(),
            64 => self.run_of::<64>(),
            _ => 0,
        }
    }

    fn run_of<const B: usize>(self) -> usize {
        let mut done = 0;
        self.level.run(OfLength::<_, B> {
            windows: self,
            done: &mut done,
        });
        done
    }
}

struct OfLength<'a, 'b, R, const B: usize> {
    windows: PackWindows<'a, R>,
    /// To be increased by the elements that are packed.
    done: &'b mut usize,
}

impl<R: ElementRule, const B: usize> Kernel for OfLength<'_, '_, R, B> {
    #[inline(always)]
    fn run(self) {
        let PackWindows {
            places,
            bits,
            scale_bytes,
            start,
            draws,
            ..
        } = self.windows;
        // By value: loops without branches need their numbers in registers.
        let job = *self.windows.job;
        let (rule, element) = (job.rule, job.rule.unit_element());
        let smallest = pow2(element.emin);
        let mut codes = [0; WINDOW];
        let codes = &mut codes[..TOGETHER * B];
        let windows = self.windows.data.chunks_exact(TOGETHER * B);
        let records = self.windows.scales.chunks_exact_mut(TOGETHER * scale_bytes);
        let bytes = codes.len() / 8 * bits as usize;
        let bytes = self.windows.elements.chunks_exact_mut(bytes);
        let starts = (start..).step_by(TOGETHER * B);
        for (((window, start), records), bytes) in windows.zip(starts).zip(records).zip(bytes) {
            let mut maxima = [0; TOGETHER];
            for (amax, block) in maxima.iter_mut().zip(window.as_chunks::<B>().0) {
                *amax = largest_of_block(block);
            }
            if !rule.are_ordinary(&maxima) {
                return;
            }
            let mut refinements = maxima;
            if rule.looks_twice() {
                self.windows.level.run(TameSeconds::<B> {
                    rule: &rule,
                    maxima: &maxima,
                    blocks: window,
                    refinements: &mut refinements,
                });
            }
            let mut pairs = [[0; TOGETHER]; 2];
            rule.ordinary_pairs(
                &maxima,
                &refinements,
                pairs.each_mut().map(|words| &mut words[..]),
            );
            let [scales, inverses] = &pairs;
            let records = records.chunks_exact_mut(scale_bytes);
            for (record, (amax, scale)) in records.zip(maxima.iter().zip(scales)) {
                let code = rule.ordinary_scale_code(*amax, *scale).to_le_bytes();
                record.copy_from_slice(&code[..scale_bytes]);
            }
            let draws = draws.get(R::USES_DRAWS, start, window.len());
            let vectors = window.as_chunks::<LANES>().0.iter();
            let vectors = vectors.zip(codes.as_chunks_mut::<LANES>().0);
            for (j, (vector, codes)) in vectors.enumerate() {
                // Hidden, lest blocks become lanes.
                let j = black_box(j);
                let inverses = lanes::<B>(inverses, j * LANES / B);
                let mut units = [0.0; LANES];
                for i in 0..LANES {
                    let pair = ScalePair {
                        scale: ONE,
                        inverse: inverses[i],
                    };
                    let draw = match R::USES_DRAWS {
                        true => draws[j * LANES + i],
                        false => 0,
                    };
                    units[i] = job.element_rule.ordinary(&element, pair, vector[i], draw);
                }
                for (code, unit) in codes.iter_mut().zip(units) {
                    *code = places.code(smallest, unit.to_bits()) as u8;
                }
            }
            eights::pack(bits, codes, bytes);
            *self.done += TOGETHER * B;
        }
    }
}
