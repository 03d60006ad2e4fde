//! Elementwise float formats over memory.

use crate::format::FloatFormat;
use crate::round::draws::{Draws, WINDOW};
use crate::round::mode::Rounder;
use crate::round::random::RandomStream;
use crate::round::{RoundingRule, with_rule};
use core::marker::PhantomData;
use microscaling_processor::instruction_set::{Kernel, dispatch};
use microscaling_processor::threads::{Piece, share_all};

impl FloatFormat {
    /// Rounds every number of `data` in place. A stochastic rounding takes the draw at the number's position.
    pub fn round_slice(&self, data: &mut [f32], rounder: Rounder) {
        if self.is_identity() {
            return;
        }
        let (format, stream) = (*self, rounder.stream());
        with_rule!(rounder.rounding(), R => match self.is_bfloat() {
            true => map_with_draws::<R>(
                data,
                stream,
                #[inline(always)]
                move |x, draw| format.round_bfloat::<R>(x, draw),
            ),
            false => map_with_draws::<R>(
                data,
                stream,
                #[inline(always)]
                move |x, draw| format.round_fp::<R>(x, draw),
            ),
        })
    }
}

/// Replaces every number by a function of the number and the draw at its position.
fn map_with_draws<R: RoundingRule>(
    data: &mut [f32],
    stream: RandomStream,
    function: impl Fn(f32, u32) -> f32 + Copy + Send + Sync,
) {
    share_all(Piece { data, start: 0 }, &|piece| {
        dispatch(Map {
            rule: PhantomData::<R>,
            piece,
            stream,
            function,
        })
    });
}

/// [`map_with_draws`] on one thread.
struct Map<'a, R, F> {
    rule: PhantomData<R>,
    piece: Piece<'a>,
    stream: RandomStream,
    function: F,
}

impl<R: RoundingRule, F: Fn(f32, u32) -> f32> Kernel for Map<'_, R, F> {
    #[inline(always)]
    fn run(self) {
        let Self {
            rule: _,
            piece: Piece { data, start },
            stream,
            function,
        } = self;
        let mut draws = Draws::new(stream, start + data.len() as u64);
        for (i, chunk) in data.chunks_mut(WINDOW).enumerate() {
            let draws = draws.get(R::USES_DRAWS, start + (i * WINDOW) as u64, chunk.len());
            for (x, draw) in chunk.iter_mut().zip(draws) {
                *x = function(*x, *draw);
            }
        }
    }
}
