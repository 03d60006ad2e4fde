//! Functions of the bfloat16 numbers, of which there are so few that a table holds every result.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{LazyLock, PoisonError, RwLock};

use super::loops::in_parts;
use super::rounding::{BFLOAT16, FunctionRounding};
use crate::arithmetic::Function;
use microscaling_processor::instruction_set::dispatch;

/// Shorter slices are computed, unless the table exists: to fill a table takes as long as to compute 65,536 elements.
const SHORTEST: usize = 1 << 12;

/// Elements that are looked up at once: what the nearest cache holds beside the part of a table that numbers of a tensor
/// need.
const CHUNK: usize = 1 << 10;

/// A function, by which a table was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tabled {
    /// The function of a number.
    Function(Function),
    /// The derivative, by which the function multiplies a gradient.
    Derivative(Function),
    /// The address of a backend's function on a tensor.
    #[cfg(feature = "host")]
    Backends(usize),
}

/// A result for each bfloat16 number. Results are bfloat16 numbers, too.
pub(crate) struct Table([u16; 1 << 16]);

impl Table {
    /// The table for a slice of `elements`, if results follow from 16 bits of a number. `compute` replaces numbers by
    /// results; a table is filled once and stays.
    pub(crate) fn of(
        tabled: Tabled,
        rounding: FunctionRounding,
        elements: usize,
        compute: impl FnOnce(&mut [f32]),
    ) -> Option<&'static Self> {
        type Tables = HashMap<(Tabled, FunctionRounding), &'static Table>;
        static TABLES: LazyLock<RwLock<Tables>> = LazyLock::new(RwLock::default);
        if rounding.format != BFLOAT16 {
            return None;
        }
        let key = (tabled, rounding);
        let tables = TABLES.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(&table) = tables.get(&key) {
            return Some(table);
        }
        drop(tables);
        if elements < SHORTEST || flushes() {
            return None;
        }
        let mut results: Vec<f32> = (0..=u16::MAX).map(number).collect();
        compute(&mut results);
        let mut table = Box::new(Self([0; 1 << 16]));
        for (code, result) in table.0.iter_mut().zip(results) {
            *code = code_of(result);
        }
        let mut tables = TABLES.write().unwrap_or_else(PoisonError::into_inner);
        Some(tables.entry(key).or_insert_with(|| Box::leak(table)))
    }

    /// Replaces every number by the function of the number after `round`.
    pub(crate) fn replace(
        &self,
        data: &mut [f32],
        round: impl Fn(f32) -> f32 + Copy + Send + Sync,
    ) {
        in_parts(data, 1, &|data: &mut [f32]| {
            let mut codes = [0; CHUNK];
            for data in data.chunks_mut(CHUNK) {
                let codes = &mut codes[..data.len()];
                codes_of(codes, data, round);
                self.look_up(data, codes);
            }
        });
    }

    /// Multiplies every gradient, after `round`, by the function of the number in `input` after `round`.
    pub(super) fn multiply(
        &self,
        grad: &mut [f32],
        input: &[f32],
        round: impl Fn(f32) -> f32 + Copy + Send + Sync,
    ) {
        assert_eq!(grad.len(), input.len(), "multiply: lengths differ");
        in_parts((grad, input), 1, &|(grad, input): (&mut [f32], &[f32])| {
            let (mut codes, mut factors) = ([0; CHUNK], [0.0; CHUNK]);
            for (grad, input) in grad.chunks_mut(CHUNK).zip(input.chunks(CHUNK)) {
                let codes = &mut codes[..input.len()];
                let factors = &mut factors[..input.len()];
                codes_of(codes, input, round);
                self.look_up(factors, codes);
                dispatch(
                    #[inline(always)]
                    || {
                        for (g, factor) in grad.iter_mut().zip(factors.iter()) {
                            *g = round(*factor * round(*g));
                        }
                    },
                );
            }
        });
    }

    /// Not by `dispatch`: a vector of indices is taken apart again, which is slower than to load one after the other.
    fn look_up(&self, results: &mut [f32], codes: &[u16]) {
        for (result, &code) in results.iter_mut().zip(codes) {
            *result = number(self.0[usize::from(code)]);
        }
    }
}

/// The codes of numbers after `round`.
fn codes_of(codes: &mut [u16], numbers: &[f32], round: impl Fn(f32) -> f32) {
    dispatch(
        #[inline(always)]
        || {
            for (code, x) in codes.iter_mut().zip(numbers) {
                *code = code_of(round(*x));
            }
        },
    );
}

/// The upper half of a bfloat16 number. A NaN that has bits in the lower half only stays one.
#[inline(always)]
fn code_of(x: f32) -> u16 {
    const QUIET: u32 = 1 << 22;
    let bits = x.to_bits();
    let bits = if bits & 0xffff == 0 {
        bits
    } else {
        bits | QUIET
    };
    (bits >> 16) as u16
}

#[inline(always)]
fn number(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// Whether this thread replaces subnormal numbers by zero. All threads look into a table, which a backend's function may fill, so
/// that such a thread fills none.
fn flushes() -> bool {
    black_box(f32::MIN_POSITIVE) * black_box(0.5) == 0.0
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use microscaling::{FloatFormat, Rounding};

    use super::*;

    /// Calls `work` while this thread flushes subnormal numbers to zero.
    fn flushing<T>(work: impl FnOnce() -> T) -> T {
        const FLUSH: u32 = 1 << 15 | 1 << 6;
        let mut before = 0_u32;
        // SAFETY: four bytes are written, which are there.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut before) };
        let set = |word: u32| {
            // SAFETY: four bytes are read, which are there. Only the two bits of flushing change.
            unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const word) };
        };
        set(before | FLUSH);
        let result = black_box(black_box(work)());
        set(before);
        result
    }

    const ROUNDING: FunctionRounding = FunctionRounding {
        format: BFLOAT16,
        rounding: Rounding::NearestEven,
        quantize_backward: true,
        exp2: false,
        reciprocal: false,
    };

    #[test]
    fn a_thread_that_flushes_fills_no_table() {
        // A rounding that no other test has.
        let rounding = FunctionRounding {
            exp2: true,
            reciprocal: true,
            ..ROUNDING
        };
        let has_table = |elements| {
            let nobodys = Tabled::Function(Function::Exp2);
            Table::of(nobodys, rounding, elements, |_| ()).is_some()
        };
        assert!(!flushing(|| has_table(SHORTEST)));
        assert!(!has_table(SHORTEST - 1), "none was filled");
        assert!(has_table(SHORTEST));
        assert!(has_table(1));
        assert!(flushing(|| has_table(1)));
    }

    #[test]
    fn a_thread_that_flushes_has_the_same_functions() {
        let bits = |x: Vec<f32>| -> Vec<u32> { x.into_iter().map(f32::to_bits).collect() };
        // Subnormal numbers, and the least normal ones.
        let x: Vec<f32> = (0..1 << 10).map(|i| f32::from_bits(i << 15)).collect();
        let g: Vec<f32> = x.iter().map(|x| 0.75 * x).collect();
        for format in [BFLOAT16, FloatFormat::bfloat(20).unwrap()] {
            let rounding = FunctionRounding { format, ..ROUNDING };
            for &function in Function::ALL {
                let forward = || {
                    let mut x = x.clone();
                    function.apply(&mut x, rounding);
                    bits(x)
                };
                let backward = || {
                    let mut g = g.clone();
                    function.apply_gradient(&mut g, &x, rounding);
                    bits(g)
                };
                assert!(flushing(forward) == forward(), "{function:?} {rounding:?}");
                assert!(flushing(backward) == backward(), "gradient of {function:?}");
            }
        }
    }
}
