//! A recurrent network that reads a picture row by row.

use burn::{
    nn::{Linear, LinearConfig, Lstm, LstmConfig},
    prelude::*,
    tensor::backend::AutodiffBackend,
};
use clap::Args;

use crate::support::{
    Architecture,
    digits::{CLASSES, Classifier, Digits, SIDE},
    whole_number,
};

/// An LSTM over the rows of a digit, and a classifier of the state that it ends in.
#[derive(Module, Debug)]
pub(crate) struct Reader<B: Backend> {
    lstm: Lstm<B>,
    head: Linear<B>,
}

#[derive(Config, Debug, Args)]
pub(crate) struct ReaderConfig {
    /// Width of the recurrent state
    #[arg(long, default_value_t = 64, allow_negative_numbers = true)]
    #[arg(value_parser = whole_number::<usize>(1..=2048))]
    hidden: usize,
}

impl ReaderConfig {
    fn init<B: Backend>(&self, device: &B::Device) -> Reader<B> {
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

impl Architecture for ReaderConfig {
    type Task = Digits;
    type Model<B: AutodiffBackend> = Reader<B>;

    const NAME: &'static str = "lstm";
    const ABOUT: &'static str = "Train an LSTM to read handwritten digits row by row in FP32, then in \
        Microscaling (MX) formats, and compare";
    const TITLE: &'static str = "LSTM on the rows of 8×8 digits: training loss";
    const EPOCHS: &'static str = "30";
    const LR: &'static str = "3e-3";
    const FIRST_AND_LAST: [&'static str; 2] = ["lstm", "head"];

    fn init<B: AutodiffBackend>(&self, device: &B::Device) -> Reader<B> {
        ReaderConfig::init(self, device)
    }
}
