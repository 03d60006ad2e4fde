//! Which random numbers a rounding gets.
//!
//! The ops of some specs are numbered in the order in which they run. Each rounding of an op has its own stream: a
//! function of the seed, the specs, the op's number and the rounding's number within the op. So streams depend neither
//! on threads nor on the known properties of a tensor. Code that remembers an op's number can draw its random numbers
//! again: a backward pass does so to repeat a rounding of the forward pass.

mod hash;

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard};

use microscaling::{RandomStream, Rounding, Signs};

use crate::specs::{HadamardSigns, MxSpecs, ResolvedSpecs};

/// The numbers that the ops of some specs get, one after another.
#[derive(Debug)]
pub(crate) struct OpNumbers {
    /// A hash of the specs, so that other specs with the same seed have other random numbers.
    fingerprint: u64,
    /// Whether the specs draw anything: numbers are given out only then.
    drawn: bool,
    next: Mutex<Next>,
}

/// Where the sequence has come to.
#[derive(Clone, Copy, Debug)]
struct Next {
    op: OpNumber,
    /// Training steps begun before this one.
    step: u64,
    /// Whether the step has come to its gradient products.
    in_gradients: bool,
}

impl Next {
    fn first(key: u64) -> Self {
        Self {
            op: OpNumber::first(key),
            step: 0,
            in_gradients: false,
        }
    }

    /// The random numbers of the next op.
    fn draws(&mut self) -> Draws {
        let draws = Draws {
            step: self.step,
            ..Draws::replay(self.op)
        };
        self.op.number += 1;
        draws
    }
}

/// An op's place in the sequence, which determines its random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpNumber {
    /// Of the generator: seed and specs.
    key: u64,
    number: u64,
}

impl OpNumbers {
    /// The random numbers of `specs`, from their seed on.
    pub(crate) fn of(specs: &ResolvedSpecs) -> Self {
        let fingerprint = fingerprint(specs);
        Self {
            fingerprint,
            drawn: specs.is_random(),
            next: Mutex::new(Next::first(specs.seed() ^ fingerprint)),
        }
    }

    /// The random numbers of the next op.
    pub(crate) fn draws(&self) -> Draws {
        if !self.drawn {
            return Draws::replay(OpNumber::first(0));
        }
        let mut next = self.lock();
        next.draws()
    }

    /// [`draws`](Self::draws) of a product. The first one of a forward pass after gradient products begins another step.
    pub(crate) fn draws_of_product(&self, is_gradient: bool) -> Draws {
        if !self.drawn {
            return Draws::replay(OpNumber::first(0));
        }
        let mut next = self.lock();
        next.step += u64::from(next.in_gradients && !is_gradient);
        next.in_gradients = is_gradient;
        next.draws()
    }

    /// The random numbers that all ops have in common, without one of their own.
    pub(crate) fn common(&self) -> Draws {
        let next = *self.lock();
        Draws {
            step: next.step,
            ..Draws::replay(OpNumber::first(next.op.key))
        }
    }

    /// Random numbers that no op gets, another set for each number. They come from the other key of these specs.
    pub(crate) fn draws_beside(&self, number: u64) -> Draws {
        let key = !self.fingerprint;
        Draws::replay(OpNumber { key, number })
    }

    /// Starts the sequence anew from `seed`. Ops that have their number keep it.
    pub(crate) fn reseed(&self, seed: u64) {
        *self.lock() = Next::first(seed ^ self.fingerprint);
    }

    fn lock(&self) -> MutexGuard<'_, Next> {
        self.next
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }
}

impl OpNumber {
    fn first(key: u64) -> Self {
        Self { key, number: 0 }
    }
}

/// The random numbers of one op, for its roundings in the order of its formula.
#[derive(Debug)]
pub(crate) struct Draws {
    op: OpNumber,
    step: u64,
    roundings: Cell<u64>,
}

/// Stochastic roundings that an op may have, and one more.
const ROUNDINGS: u64 = 1 << 16;
/// The difference between the key of the signs of steps and the key of ops.
const STEPS: u64 = 0x5354_4550_5349_474e;

impl Draws {
    /// The random numbers of an op, from its first rounding on.
    pub(crate) fn replay(op: OpNumber) -> Self {
        Self {
            op,
            step: 0,
            roundings: Cell::new(0),
        }
    }

    /// The argument with which [`replay`](Self::replay) draws these numbers again.
    pub(crate) fn op(&self) -> OpNumber {
        self.op
    }

    /// The random numbers of the op's next rounding. Only stochastic rounding uses numbers up. Values that are known to
    /// be rounded already use numbers up, too. Otherwise the later roundings would depend on this knowledge, which a
    /// record does not hold.
    pub(crate) fn next(&self, rounding: Rounding) -> RandomStream {
        if rounding != Rounding::Stochastic {
            return RandomStream::new(0, 0);
        }
        let rounding = self.roundings.get();
        assert!(
            rounding < ROUNDINGS - 1,
            "an op rounds less than {} times",
            ROUNDINGS - 1
        );
        self.roundings.set(rounding + 1);
        let number = self.op.number.wrapping_mul(ROUNDINGS);
        RandomStream::new(self.op.key, number | rounding)
    }

    /// The signs of a Hadamard transform, which no rounding gets. All operands of a product must take them from the same
    /// `Draws`: another thread may reseed at any time.
    pub(crate) fn signs(&self, signs: HadamardSigns) -> Signs {
        let OpNumber { key, number } = self.op;
        match signs {
            HadamardSigns::Seed => RandomStream::new(key, u64::MAX).into(),
            HadamardSigns::Step => RandomStream::new(key ^ STEPS, self.step).into(),
            HadamardSigns::Product => {
                let last = number.wrapping_mul(ROUNDINGS) | (ROUNDINGS - 1);
                RandomStream::new(key, last).into()
            }
            HadamardSigns::Given(signs) => Signs::Repeated(signs),
        }
    }
}

/// A number that tells specs apart, the same in each run, on each platform and in each version of this crate. The
/// number is a hash of the fields that are not at their default, without the seed, by name and as JSON. Two fields keep the
/// random numbers of earlier versions. Earlier versions had a field `round_m`, which resolved to `round`; the entry stays. They had
/// no `elementwise_scope`, which draws nothing and has no entry.
fn fingerprint(specs: &ResolvedSpecs) -> u64 {
    let fields = |specs: &MxSpecs| match serde_json::to_value(specs) {
        Ok(serde_json::Value::Object(fields)) => fields,
        other => unreachable!("specs are a JSON object, not {other:?}"),
    };
    let defaults = fields(&MxSpecs::default());
    let mut set: Vec<String> = fields(specs.specs())
        .into_iter()
        .filter(|(name, _)| !["seed", "elementwise_scope"].contains(&name.as_str()))
        .filter(|(name, value)| defaults.get(name) != Some(value))
        .map(|(name, value)| format!("{name}={value};"))
        .chain([format!("round_m=\"{}\";", specs.round())])
        .collect();
    set.sort();
    // FNV-1a, whose low bits are good, then the finalizer of SplitMix64 for the others.
    let hash = hash::fnv_1a(hash::EMPTY, set.concat().as_bytes());
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stochastic(seed: u64) -> MxSpecs {
        MxSpecs {
            round: Rounding::Stochastic,
            seed,
            ..MxSpecs::mxfp4()
        }
    }

    fn numbers(specs: &MxSpecs) -> OpNumbers {
        OpNumbers::of(&specs.resolve().expect("the specs are sound"))
    }

    #[test]
    fn every_rounding_of_every_op_has_its_own_stream() {
        let numbers = numbers(&stochastic(3));
        let mut streams = Vec::new();
        for _ in 0..4 {
            let draws = numbers.draws();
            streams.extend((0..4).map(|_| draws.next(Rounding::Stochastic)));
            for signs in [
                HadamardSigns::Seed,
                HadamardSigns::Step,
                HadamardSigns::Product,
            ] {
                let Signs::Random(stream) = draws.signs(signs) else {
                    panic!("{signs:?} are drawn")
                };
                assert!(!streams.contains(&stream));
            }
        }
        for (i, stream) in streams.iter().enumerate() {
            assert!(!streams[..i].contains(stream), "{stream:?}");
        }
    }

    #[test]
    fn an_op_is_drawn_again_from_its_number() {
        let numbers = numbers(&stochastic(3));
        numbers.draws();
        let draws = numbers.draws();
        let rounding = [
            Rounding::Stochastic,
            Rounding::NearestEven,
            Rounding::Stochastic,
        ];
        let first = rounding.map(|rounding| draws.next(rounding));
        numbers.reseed(4);
        let again = Draws::replay(draws.op());
        assert_eq!(rounding.map(|rounding| again.next(rounding)), first);
        for signs in [HadamardSigns::Seed, HadamardSigns::Product] {
            assert_eq!(again.signs(signs), draws.signs(signs));
        }
    }

    #[test]
    fn signs_are_those_of_the_seed_the_step_or_the_product() {
        let numbers = numbers(&stochastic(3));
        let signs = |is_gradient| {
            let draws = numbers.draws_of_product(is_gradient);
            [
                HadamardSigns::Seed,
                HadamardSigns::Step,
                HadamardSigns::Product,
            ]
            .map(|signs| draws.signs(signs))
        };
        let steps = [[false, false, true, true], [false, false, true, true]];
        let [first, second] = steps.map(|kinds| kinds.map(signs));
        let all = || first.iter().chain(&second);
        assert!(all().all(|[seed, ..]| *seed == first[0][0]));
        for step in [&first, &second] {
            assert!(step.iter().all(|[_, signs, _]| *signs == step[0][1]));
        }
        assert_ne!(first[0][1], second[0][1]);
        for (i, [.., product]) in all().enumerate() {
            assert!(all().take(i).all(|[.., other]| other != product));
        }
        let given = numbers.draws().signs(HadamardSigns::Given(5));
        assert_eq!(given, Signs::Repeated(5));
    }

    #[test]
    fn the_sequence_starts_anew_with_a_seed() {
        let numbers = numbers(&stochastic(3));
        let ops = || [numbers.draws().op(), numbers.draws().op()];
        let first = ops();
        numbers.reseed(4);
        assert!(ops().iter().all(|op| !first.contains(op)));
        numbers.reseed(3);
        assert_eq!(ops(), first);
    }

    #[test]
    fn only_specs_that_draw_count_ops() {
        let numbers = numbers(&MxSpecs::mxfp8_e4m3());
        assert_eq!(numbers.draws().op(), numbers.draws().op());
        for specs in [MxSpecs::mxfp4_sr_rht(), stochastic(0)] {
            let numbers = self::numbers(&specs);
            assert_ne!(numbers.draws().op(), numbers.draws().op());
        }
    }

    /// Written down, so that a run gives the same numbers in years to come.
    #[test]
    fn fingerprints_stay_what_they_are() {
        let of = |specs: MxSpecs| fingerprint(&specs.resolve().expect("the specs are sound"));
        assert_eq!(of(MxSpecs::default()), FINGERPRINT_OF_NOTHING);
        assert_eq!(of(MxSpecs::mxfp4_sr_rht()), FINGERPRINT_OF_MXFP4_SR_RHT);
    }

    const FINGERPRINT_OF_NOTHING: u64 = 0x8b86_a574_1b96_cbb6;
    const FINGERPRINT_OF_MXFP4_SR_RHT: u64 = 0x89b5_0f38_a3e3_40a5;

    #[test]
    fn specs_that_differ_draw_different_numbers() {
        let key = |specs: &MxSpecs| numbers(specs).draws().op().key;
        let specs = stochastic(3);
        let others = [
            stochastic(4),
            MxSpecs {
                block_size: 16,
                ..specs.clone()
            },
            MxSpecs {
                bfloat: 12,
                ..specs.clone()
            },
            MxSpecs {
                round_weight: Some(Rounding::NearestEven),
                ..specs.clone()
            },
        ];
        for other in others {
            assert_ne!(key(&other), key(&specs), "{other:?}");
        }
        assert_eq!(key(&specs), key(&stochastic(3)));
    }
}
