//! Sums of two numbers as text: `07+95=`, to be continued with `201`, the digits of 102 from the ones upward,
//! in the order in which carries go.

use std::sync::Arc;

use burn::{
    data::dataset::{
        Dataset, InMemDataset,
        transform::{PartialDataset, ShuffledDataset},
    },
    prelude::*,
    train::ClassificationOutput,
};

use super::{Item, Split, classification, count};

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

/// A sum.
#[derive(Debug, Clone, Copy, Default)]
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

impl<B: Backend> SumBatch<B> {
    pub(super) fn new<'a>(sums: impl Iterator<Item = &'a Sum>, device: &B::Device) -> Self {
        let (questions, answers): (Vec<_>, Vec<_>) =
            sums.map(|sum| (sum.question(), sum.answer())).unzip();
        let tensor = |rows: Vec<Vec<i64>>| {
            let shape = [rows.len(), rows.first().map_or(0, Vec::len)];
            Tensor::from_data(TensorData::new(rows.concat(), shape), device)
        };
        Self {
            questions: tensor(questions),
            answers: tensor(answers),
        }
    }

    pub(super) fn to(self, device: impl Fn(&B::Device) -> B::Device) -> Self {
        let device = device(&self.questions.device());
        Self {
            questions: self.questions.to_device(&device),
            answers: self.answers.to_device(&device),
        }
    }

    /// Scores and loss of the result's tokens alone, because the operands cannot be predicted.
    pub(crate) fn output(self, model: &impl Language<B>) -> ClassificationOutput<B> {
        let given = self.answers.clone().narrow(1, 0, ANSWER - 1);
        let logits = model.next_token(Tensor::cat(vec![self.questions, given], 1));
        let logits = logits.narrow(1, QUESTION - 1, ANSWER).flatten(0, 1);
        classification(logits, self.answers.flatten(0, 1))
    }

    /// Number of sums whose result is right in all digits, each told from the model's own digits before it.
    ///
    /// The right digits are not in their place: an MX block of attention's operands lies along the tokens. So the scale
    /// of a block would reveal later tokens, in spite of the causal mask.
    pub(crate) fn solved(self, model: &impl Language<B>) -> usize {
        let text = (0..ANSWER).fold(self.questions, |text, _| {
            let last = text.dims()[1] - 1;
            let logits = model.next_token(text.clone()).narrow(1, last, 1);
            Tensor::cat(vec![text, logits.argmax(2).squeeze_dim::<2>(2)], 1)
        });
        let answers = text.narrow(1, QUESTION, ANSWER);
        count(answers.equal(self.answers).all_dim(1))
    }
}

/// `b + a` goes where `a + b` goes: who has seen the one has seen the other.
pub(super) fn load() -> Split {
    let pairs = (0..NUMBERS).flat_map(|b| (0..=b).map(move |a| Sum { a, b }));
    let pairs = InMemDataset::new(pairs.collect());
    let train = (TRAIN_SHARE * pairs.len() as f64) as usize;
    let total = pairs.len();
    let shuffled = Arc::new(ShuffledDataset::new(pairs, SPLIT_SEED));
    Split {
        train: both_orders(&PartialDataset::new(shuffled.clone(), 0, train)),
        test: both_orders(&PartialDataset::new(shuffled, train, total)),
    }
}

fn both_orders(pairs: &impl Dataset<Sum>) -> Arc<dyn Dataset<Item>> {
    let orders = |Sum { a, b }| {
        let other = (a != b).then_some(Sum { a: b, b: a });
        [Some(Sum { a, b }), other].into_iter().flatten()
    };
    let sums = pairs.iter().flat_map(orders).map(Item::Sum);
    Arc::new(InMemDataset::new(sums.collect()))
}

impl Sum {
    fn question(&self) -> Vec<i64> {
        let operand = |number| digits::<DIGITS>(number).into_iter().rev();
        let text = operand(self.a).chain([PLUS]).chain(operand(self.b));
        text.chain([EQUALS]).map(i64::from).collect()
    }

    fn answer(&self) -> Vec<i64> {
        digits::<ANSWER>(self.a + self.b).map(i64::from).to_vec()
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
