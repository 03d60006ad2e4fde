//! A recurrent network that reads a picture row by row.

use burn::{
    nn::{Linear, LinearConfig, Lstm, LstmConfig},
    prelude::*,
};
use serde::Serialize;

use crate::training::tasks::digits::{CLASSES, Classifier, SIDE};

/// An LSTM over the rows of a digit, and a classifier of the state that it ends in.
#[derive(Module, Debug)]
pub(crate) struct Reader<B: Backend> {
    lstm: Lstm<B>,
    head: Linear<B>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct ReaderConfig {
    /// Width of the recurrent state.
    pub(crate) hidden: usize,
}

impl ReaderConfig {
    pub(crate) fn init<B: Backend>(&self, device: &B::Device) -> Reader<B> {
        Reader {
            lstm: LstmConfig::new(SIDE, self.hidden, true).init(device),
            head: LinearConfig::new(self.hidden, CLASSES).init(device),
        }
    }
}

impl<B: Backend> Classifier<B> for Reader<B> {
    fn logits(&self, pixels: Tensor<B, 2>) -> Tensor<B, 2> {
        let rows = pixels.reshape([-1, SIDE as i32, SIDE as i32]);
        let (_, end) = self.lstm.forward(rows, None);
        self.head.forward(end.hidden)
    }
}
