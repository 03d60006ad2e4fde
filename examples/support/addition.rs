//! Sums of two numbers as text: `07+95=`, to be continued with `201`, the digits of 102 from the ones upward,
//! in the order in which carries go.

use std::{error::Error, sync::Arc};

use burn::{
    data::dataset::{
        Dataset, InMemDataset,
        transform::{PartialDataset, ShuffledDataset},
    },
    prelude::*,
    train::ClassificationOutput,
};

use super::task::{Solver, Split, Task, classification, count};

/// Tokens: the digits 0 to 9, `+` and `=`.
pub(crate) const TOKENS: usize = 12;
const PLUS: u8 = 10;
const EQUALS: u8 = 11;

/// Digits of an operand, leading zeros included.
const DIGITS: usize = 2;
/// Numbers that an operand can be.
const NUMBERS: u16 = 10_u16.pow(DIGITS as u32);
/// Tokens of a sum up to `=`.
const QUESTION: usize = 2 * DIGITS + 2;
/// Tokens of its result.
const ANSWER: usize = DIGITS + 1;
/// Tokens that a model sees at most: the last digit of the result is for it to tell.
pub(crate) const CONTEXT: usize = QUESTION + ANSWER - 1;

/// Share of the pairs of operands that are for training.
const TRAIN_SHARE: f64 = 0.8;
const SPLIT_SEED: u64 = 12;

/// What is `a + b`?
#[derive(Debug, Clone)]
pub(crate) struct Addition;

/// A sum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    a: u16,
    b: u16,
}

/// `N` sums on a device, as tokens.
#[derive(Debug, Clone)]
pub(crate) struct SumBatch<B: Backend> {
    /// `[N, QUESTION]`
    questions: Tensor<B, 2, Int>,
    /// `[N, ANSWER]`
    answers: Tensor<B, 2, Int>,
}

/// A model that tells which token comes next.
pub(crate) trait Language<B: Backend> {
    /// Tokens `[N, T]`, `T` at most `CONTEXT`, to logits `[N, T, TOKENS]` of the token after each.
    fn next_token(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 3>;
}

impl<B: Backend, M: Language<B>> Solver<B, Addition> for M {
    /// Of the tokens of the result alone: what the operands are cannot be told.
    fn output(&self, batch: SumBatch<B>) -> ClassificationOutput<B> {
        let given = batch.answers.clone().narrow(1, 0, ANSWER - 1);
        let logits = self.next_token(Tensor::cat(vec![batch.questions, given], 1));
        let logits = logits.narrow(1, QUESTION - 1, ANSWER).flatten(0, 1);
        classification(logits, batch.answers.flatten(0, 1))
    }

    /// Those whose result is right in all digits, each told from the model's own digits before it.
    ///
    /// Not from the right digits in their place: an MX block of attention's operands lies along the tokens, so that the
    /// scale of a block would know of tokens still to come, in spite of the causal mask.
    fn solved(&self, batch: SumBatch<B>) -> usize {
        let text = (0..ANSWER).fold(batch.questions, |text, _| {
            let last = text.dims()[1] - 1;
            let logits = self.next_token(text.clone()).narrow(1, last, 1);
            Tensor::cat(vec![text, logits.argmax(2).squeeze_dim::<2>(2)], 1)
        });
        let answers = text.narrow(1, QUESTION, ANSWER);
        count(answers.equal(batch.answers).all_dim(1))
    }
}

impl Task for Addition {
    type Item = Sum;
    type Batch<B: Backend> = SumBatch<B>;

    const ITEMS: &'static str = "sums";
    const SCORE: &'static str = "exact match";

    /// `b + a` goes where `a + b` goes: who has seen the one has seen the other.
    fn load() -> Result<Split<Sum>, Box<dyn Error>> {
        let pairs = (0..NUMBERS).flat_map(|b| (0..=b).map(move |a| Sum { a, b }));
        let pairs = InMemDataset::new(pairs.collect());
        let train = (TRAIN_SHARE * pairs.len() as f64) as usize;
        let total = pairs.len();
        let shuffled = Arc::new(ShuffledDataset::new(pairs, SPLIT_SEED));
        Ok(Split {
            train: both_orders(&PartialDataset::new(shuffled.clone(), 0, train)),
            test: both_orders(&PartialDataset::new(shuffled, train, total)),
        })
    }

    fn batch<B: Backend>(items: &[Sum], device: &B::Device) -> SumBatch<B> {
        let tensor = |tokens: Vec<i64>| {
            let width = tokens.len() / items.len();
            Tensor::from_data(TensorData::new(tokens, [items.len(), width]), device)
        };
        SumBatch {
            questions: tensor(items.iter().flat_map(Sum::question).collect()),
            answers: tensor(items.iter().flat_map(Sum::answer).collect()),
        }
    }
}

fn both_orders(pairs: &impl Dataset<Sum>) -> Arc<dyn Dataset<Sum>> {
    let orders = |Sum { a, b }| {
        let other = (a != b).then_some(Sum { a: b, b: a });
        [Some(Sum { a, b }), other].into_iter().flatten()
    };
    Arc::new(InMemDataset::new(pairs.iter().flat_map(orders).collect()))
}

impl Sum {
    fn question(&self) -> impl Iterator<Item = i64> {
        let operand = |number| digits::<DIGITS>(number).into_iter().rev();
        let text = operand(self.a).chain([PLUS]).chain(operand(self.b));
        text.chain([EQUALS]).map(i64::from)
    }

    fn answer(&self) -> impl Iterator<Item = i64> {
        digits::<ANSWER>(self.a + self.b).into_iter().map(i64::from)
    }
}

/// The digits of `number` from the ones upward.
fn digits<const WIDTH: usize>(mut number: u16) -> [u8; WIDTH] {
    std::array::from_fn(|_| {
        let digit = (number % 10) as u8;
        number /= 10;
        digit
    })
}
