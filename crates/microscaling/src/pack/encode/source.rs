//! Where the numbers that are packed come from.

use crate::pack::number::EncodeNumber;
use crate::pack::plan::Bytes;
use crate::quantize::QuantizeError;
use crate::quantize::largest::largest_of;
use crate::quantize::layout::check_length;
use crate::round::bits::{ABS, INFINITY};
use alloc::{vec, vec::Vec};
use microscaling_processor::threads::Divide;

/// Numbers of some type, as float32. The loops that pack them know of no other type: each would be compiled for every format.
pub(crate) trait Source: Sync {
    /// Checks that there are as many as the shape has.
    fn check_length(&self, shape: &[usize]) -> Result<(), QuantizeError>;

    /// The largest magnitude as a pattern: of a NaN or Inf if there is one. By all threads.
    fn largest(&self) -> u32;

    /// The position of the first NaN or Inf.
    fn not_finite(&self) -> Option<usize>;

    /// Calls `pack` with the numbers of these runs, all at once or in pieces.
    fn pieces(&self, bytes: Bytes<'_>, pack: &mut dyn FnMut(&[f32], Bytes<'_>));
}

/// Elements of a piece, where runs are not longer: what stays in the cache near the core.
const PIECE: usize = 1 << 13;

impl<T: EncodeNumber> Source for &[T] {
    fn check_length(&self, shape: &[usize]) -> Result<(), QuantizeError> {
        check_length(self, shape)
    }

    fn largest(&self) -> u32 {
        largest_of(
            self,
            #[inline(always)]
            |x| x.pattern(),
        )
    }

    fn not_finite(&self) -> Option<usize> {
        self.iter().position(|x| x.pattern() & ABS >= INFINITY)
    }

    fn pieces(&self, bytes: Bytes<'_>, pack: &mut dyn FnMut(&[f32], Bytes<'_>)) {
        fn divided(bytes: Bytes<'_>, work: &mut dyn FnMut(Bytes<'_>)) {
            if bytes.elements() <= PIECE {
                return work(bytes);
            }
            match bytes.halves() {
                Ok([low, high]) => {
                    divided(low, work);
                    divided(high, work);
                }
                Err(whole) => work(whole),
            }
        }
        let all = |bytes: &Bytes<'_>| {
            let start = bytes.start();
            &self[start..start + bytes.elements()]
        };
        if let Some(data) = T::as_f32(all(&bytes)) {
            return pack(data, bytes);
        }
        let mut buffer = Vec::new();
        divided(bytes, &mut |bytes| {
            let data = all(&bytes);
            if buffer.len() < data.len() {
                buffer = vec![0.0; data.len()];
            }
            let wide = &mut buffer[..data.len()];
            for (wide, x) in wide.iter_mut().zip(data) {
                *wide = f32::from_bits(x.pattern());
            }
            pack(wide, bytes);
        });
    }
}
