//! Quantized copies of a weight, kept with the weight.
//!
//! A tensor's values never change, so a copy is good for as long as the tensor lives; an optimizer step makes a new
//! tensor, which has no copies yet. A copy is kept from its second use on. An evaluation or a recurrent cell uses a
//! weight again and again. An ordinary training step uses a weight once for each product, and would hold copies for
//! nothing.

use core::cell::Cell;
use core::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use microscaling::{BlockFormat, Dialect, FloatFormat, Packed, Rounding, Signs};

use crate::specs::{Hadamard, ResolvedSpecs, Slot};
use burn_mx_kernels::internal::OperandLayout;

/// Copies of one weight, one for a forward and one for a backward product. Other specs on the same weight make other
/// copies, which replace the least recently used one.
const COPIES: usize = 2;

static ENABLED: AtomicBool = AtomicBool::new(true);

/// Sets whether this process keeps quantized copies of weights for their next use, from now on. The default is to keep
/// them. Copies save the time to quantize a weight again. In inference they cost the weight's memory once more, or half
/// of this if products compute in bfloat16. Values are the same either way.
///
/// Existing copies stay with their weights.
pub fn keep_quantized_weights(on: bool) {
    ENABLED.store(on, Ordering::Relaxed);
}

thread_local! {
    /// Whether this thread keeps no copies for now.
    static PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. Meanwhile the ops that this thread calls keep no further copies of weights, as after
/// [`keep_quantized_weights(false)`](keep_quantized_weights).
pub fn without_keeping_weights<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            PAUSED.set(self.0);
        }
    }
    let _before = Before(PAUSED.replace(true));
    work()
}

fn keeps_copies() -> bool {
    ENABLED.load(Ordering::Relaxed) && !PAUSED.get()
}

/// The parameters that determine the values of a copy, beside the weight's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CopyKey {
    /// Rounding to the elementwise format, which comes first.
    pub(crate) elementwise: Option<(FloatFormat, Rounding)>,
    /// The transform after it, with its signs, and the number of groups along the axis, which the transform does not mix.
    pub(crate) hadamard: Option<(Hadamard, Signs, usize)>,
    /// The factor that follows.
    pub(crate) margin: Option<f32>,
    pub(crate) format: Option<BlockFormat>,
    /// The tool whose rules quantize to the format.
    pub(crate) dialect: Option<Dialect>,
    /// Rounding to the block format, along an axis.
    pub(crate) rounding: Rounding,
    pub(crate) axis: usize,
    /// Where the copy stands in a matrix product; in another op's it is a tensor as the weight is.
    pub(crate) place: Option<OperandLayout>,
    /// Whether its elements and scales are apart, for a matrix unit.
    pub(crate) accumulated: bool,
}

impl CopyKey {
    /// The key of a weight whose forward product sums over this axis, if its specs quantize the weight in blocks in its
    /// own layout.
    pub(crate) fn of_weight(specs: &ResolvedSpecs, axis: usize) -> Option<Self> {
        let quantization = specs.weight_quantization()?;
        let (format, rounding) = quantization.blocks?;
        Some(Self {
            elementwise: quantization.elementwise,
            hadamard: None,
            margin: None,
            format: Some(format),
            dialect: specs.dialect(Slot::W),
            rounding,
            axis,
            place: None,
            accumulated: false,
        })
    }

    /// Whether the same key gives the same values again; stochastic rounding draws new numbers.
    pub(crate) fn repeats(&self) -> bool {
        let elementwise = self.elementwise.map(|(_, rounding)| rounding);
        self.rounding != Rounding::Stochastic && elementwise != Some(Rounding::Stochastic)
    }
}

/// The unpacked values of a packed weight. Quantizing them again may give other values, because the scales of blocks and
/// tensor follow from the values.
#[derive(Debug)]
pub struct Unpacked {
    /// By which they were quantized, wherever the weight stands.
    pub(crate) key: CopyKey,
    /// A factor that all values have.
    pub(crate) tensor_scale: Option<f32>,
    /// The packed weight.
    pub(crate) packed: Arc<Packed>,
}

impl Unpacked {
    /// For a packed weight whose forward product sums over this axis of the layer's weight, by these specs. All values have the
    /// factor `tensor_scale`. `None` if the specs quantize the weight otherwise, or draw random numbers for it.
    pub fn new(
        packed: impl Into<Arc<Packed>>,
        tensor_scale: Option<f32>,
        specs: &ResolvedSpecs,
        axis: usize,
    ) -> Option<Self> {
        let packed = packed.into();
        let key = CopyKey::of_weight(specs, axis)?;
        let is_same = key.format == Some(packed.format()) && key.repeats();
        is_same.then_some(Self {
            key,
            tensor_scale,
            packed,
        })
    }
}

/// The copies of a weight, shared by all clones of its tensor; also a gradient's operands of two products.
pub(crate) struct WeightCache<P> {
    unpacked: Option<Arc<Unpacked>>,
    entries: Arc<Mutex<Vec<CacheEntry<P>>>>,
}

/// A key that was used, the most recent one last, and its result if it was used more than once.
struct CacheEntry<P> {
    key: CopyKey,
    copy: Option<P>,
}

impl<P> WeightCache<P> {
    /// For a weight whose values may be quantized already.
    pub(crate) fn new(unpacked: Option<Arc<Unpacked>>) -> Self {
        Self {
            unpacked,
            entries: Arc::default(),
        }
    }

    /// With copies that were made.
    pub(crate) fn of_copies(copies: [(CopyKey, P); COPIES]) -> Self {
        let entry = |(key, copy)| CacheEntry {
            key,
            copy: Some(copy),
        };
        Self {
            unpacked: None,
            entries: Arc::new(Mutex::new(copies.map(entry).into())),
        }
    }

    /// The unpacked values.
    pub(crate) fn unpacked(&self) -> Option<&Arc<Unpacked>> {
        self.unpacked.as_ref()
    }

    /// The same where this key would quantize the values just so.
    pub(crate) fn unpacked_by(&self, key: CopyKey) -> Option<&Arc<Unpacked>> {
        let key = CopyKey {
            place: None,
            accumulated: false,
            ..key
        };
        self.unpacked().filter(|unpacked| unpacked.key == key)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<CacheEntry<P>>> {
        self.entries
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

impl<P: Clone> WeightCache<P> {
    /// The copy by `key`, which `make` makes where none is kept.
    pub(crate) fn get(&self, key: CopyKey, make: impl FnOnce() -> P) -> P {
        if !key.repeats() {
            return make();
        }
        let used = {
            let mut entries = self.entries();
            let found = entries.iter().position(|entry| entry.key == key);
            let has_copy = found.is_some_and(|at| entries[at].copy.is_some());
            if !has_copy && !keeps_copies() {
                drop(entries);
                return make();
            }
            let entry = match found {
                Some(at) => entries.remove(at),
                None => {
                    if entries.len() == COPIES {
                        entries.remove(0);
                    }
                    CacheEntry { key, copy: None }
                }
            };
            let copy = entry.copy.clone();
            entries.push(entry);
            if let Some(copy) = copy {
                return copy;
            }
            found.is_some()
        };
        // Not under the lock: quantizing shares its work among threads, which may come by here, too.
        let copy = make();
        if used && let Some(entry) = self.entries().iter_mut().find(|entry| entry.key == key) {
            entry.copy = Some(copy.clone());
        }
        copy
    }
}

impl<P> Clone for WeightCache<P> {
    fn clone(&self) -> Self {
        Self {
            unpacked: self.unpacked.clone(),
            entries: Arc::clone(&self.entries),
        }
    }
}

impl<P> fmt::Debug for WeightCache<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries();
        let keys = entries.iter().filter(|entry| entry.copy.is_some());
        f.debug_list().entries(keys.map(|entry| entry.key)).finish()
    }
}

#[cfg(test)]
mod tests {
    use microscaling::{BlockFormat, ElementFormat};

    use super::*;

    fn key(axis: usize, rounding: Rounding) -> CopyKey {
        CopyKey {
            elementwise: None,
            hadamard: None,
            margin: None,
            format: Some(BlockFormat::mx(ElementFormat::FP8_E4M3, 32)),
            dialect: None,
            rounding,
            axis,
            place: None,
            accumulated: false,
        }
    }

    /// How many of these uses had to make a copy.
    fn made(uses: impl IntoIterator<Item = CopyKey>) -> usize {
        let kept = WeightCache::new(None);
        let made = Cell::new(0);
        for key in uses {
            let axis = kept.clone().get(key, || {
                made.set(made.get() + 1);
                key.axis
            });
            assert_eq!(axis, key.axis);
        }
        made.get()
    }

    #[test]
    fn a_copy_is_kept_from_its_second_use_on() {
        let [forward, backward] = [0, 1].map(|axis| key(axis, Rounding::NearestEven));
        assert_eq!(made([forward, backward]), 2);
        assert_eq!(made([forward; 5]), 2);
        assert_eq!(made([forward, backward].repeat(5)), 4);
    }

    #[test]
    fn the_least_recently_used_copy_goes() {
        let [a, b, c] = [0, 1, 2].map(|axis| key(axis, Rounding::NearestEven));
        assert_eq!(made([a, a, b, b, a, c, c, a, c]), 6);
        assert_eq!(made([a, a, b, b, a, c, b]), 6);
    }

    #[test]
    fn a_thread_that_pauses_keeps_no_copies() {
        let weight = key(0, Rounding::NearestEven);
        assert_eq!(without_keeping_weights(|| made([weight; 5])), 5);
        assert_eq!(made([weight; 5]), 2);
    }

    #[test]
    fn random_copies_are_not_kept() {
        assert_eq!(made([key(0, Rounding::Stochastic); 5]), 5);
    }

    #[test]
    fn copies_go_with_their_weight() {
        let weight = Arc::new(());
        let kept = WeightCache::new(None);
        for _ in 0..3 {
            kept.get(key(0, Rounding::NearestEven), || Arc::clone(&weight));
        }
        assert_eq!(Arc::strong_count(&weight), 2);
        drop(kept);
        assert_eq!(Arc::strong_count(&weight), 1);
    }
}
