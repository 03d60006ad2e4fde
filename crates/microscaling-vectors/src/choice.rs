//! How cases are chosen under a limit, and the random words of sets.

use microscaling::RandomStream;

/// Which of all candidates are the cases of a set: the first `must` in any case, then as many others as the limit leaves, spread evenly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaseChoice {
    must: u64,
    all: u64,
    limit: u64,
}

impl CaseChoice {
    pub(crate) fn new(must: usize, all: u64, limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(all).min(all);
        Self {
            must: (must as u64).min(limit),
            all,
            limit,
        }
    }

    pub(crate) fn cases(self) -> u64 {
        self.limit
    }

    /// The number of the candidate of a case.
    pub(crate) fn candidate(self, case: u64) -> u64 {
        if case < self.must || self.limit == self.all {
            return case;
        }
        let (rest, left) = (self.all - self.must, self.limit - self.must);
        let step = u128::from(case - self.must) * u128::from(rest) / u128::from(left);
        self.must + step as u64
    }
}

/// Random numbers, made of integers alone: the same on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Dice {
    stream: RandomStream,
    next: u64,
}

impl Dice {
    /// Each purpose has its own stream.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self {
            stream: RandomStream::new(seed, purpose),
            next: 0,
        }
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.next += 1;
        self.stream.draw(self.next - 1)
    }

    /// Less than `end`, which is above 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u64::from(self.word()) * end as u64) >> 32) as usize
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        f64::from(self.word()) / 4_294_967_296.0
    }

    pub(crate) fn sign(&mut self) -> f64 {
        if self.word() & 1 == 0 { 1.0 } else { -1.0 }
    }

    /// The sum of twelve uniform numbers, less 6: nearly normal, without a function that machines round differently.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
