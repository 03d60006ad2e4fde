//! Writes on from a prompt.

use burn::prelude::*;
use burn_mx::module::MxTensorOps;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{Cache, Decoder, Error, Stored};

/// How the next token is chosen.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// The most probable one.
    Greedy,
    /// Drawn by the probabilities of logits that are divided by a temperature, out of the `top` most probable ones.
    Sampled {
        /// 1 leaves the probabilities as they are; less makes probable tokens more probable.
        temperature: f64,
        /// The number of tokens to choose from. `None`: all.
        top: Option<usize>,
        /// The same text for the same seed.
        seed: u64,
    },
}

/// Calls `next` with each of `count` tokens that follow the prompt, as soon as the token is known.
///
/// # Errors
///
/// If the prompt is empty, or prompt and continuation are longer than `longest`.
pub fn generate<B: MxTensorOps>(
    model: &Decoder<B>,
    (prompt, count): (&[u32], usize),
    longest: usize,
    choice: Choice,
    stored: Option<&Stored<B>>,
    mut next: impl FnMut(u32),
) -> Result<(), Error> {
    let device = model.model.embed_tokens.weight.val().device();
    if prompt.is_empty() {
        return Err(Error::Text {
            what: "the prompt".into(),
            tokens: 0,
            needed: 1,
        });
    }
    // The last token is not read.
    let asked = prompt.len() + count.saturating_sub(1);
    if asked > longest {
        return Err(Error::Context { asked, longest });
    }
    let mut random = StdRng::seed_from_u64(match choice {
        Choice::Greedy => 0,
        Choice::Sampled { seed, .. } => seed,
    });
    let mut cache = Cache::new(model.model.layers.len(), stored);
    let mut tokens: Vec<i64> = prompt.iter().map(|token| i64::from(*token)).collect();
    for _ in 0..count {
        let length = tokens.len();
        let read = TensorData::new(core::mem::take(&mut tokens), [1, length]);
        let logits = model.forward_cached(Tensor::from_data(read, &device), &mut cache);
        let logits = logits.narrow(1, length - 1, 1).into_data();
        let logits: Vec<f64> = logits.iter::<f64>().collect();
        let token = choose(&logits, choice, &mut random);
        next(token);
        tokens.push(i64::from(token));
    }
    Ok(())
}

fn choose(logits: &[f64], choice: Choice, random: &mut StdRng) -> u32 {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // Of equal ones the first.
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let (temperature, top) = match choice {
        Choice::Greedy => return order[0] as u32,
        Choice::Sampled {
            temperature, top, ..
        } => (temperature, top),
    };
    order.truncate(top.unwrap_or(logits.len()));
    let largest = logits[order[0]];
    let weight = |token: &usize| ((logits[*token] - largest) / temperature).exp();
    let all: f64 = order.iter().map(weight).sum();
    let mut place = random.random::<f64>() * all;
    let chosen = order.iter().find(|token| {
        place -= weight(token);
        place < 0.0
    });
    *chosen.unwrap_or(&order[order.len() - 1]) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_follow_probabilities() {
        let logits = [1.0, 3.0, 2.0, -1.0];
        let mut random = StdRng::seed_from_u64(1);
        assert_eq!(choose(&logits, Choice::Greedy, &mut random), 1);
        let mut shares = |temperature, top| {
            let choice = Choice::Sampled {
                temperature,
                top,
                seed: 0,
            };
            let mut counts = [0.0_f64; 4];
            for _ in 0..20_000 {
                counts[choose(&logits, choice, &mut random) as usize] += 1.0 / 20_000.0;
            }
            counts
        };
        // Softmax of the logits, and of twice the logits among the first two.
        for (got, wanted) in shares(1.0, None)
            .iter()
            .zip([0.0871, 0.6438, 0.2369, 0.0118])
        {
            assert!((got - wanted).abs() < 0.012, "{got} {wanted}");
        }
        let [_, first, second, _] = shares(0.5, Some(2));
        assert!((first - 0.8808).abs() < 0.012 && (second - 0.1192).abs() < 0.012);
    }
}
