//! Random specs, models and inputs: a processor's fast paths give the bits of the same steps one after another. So do other threads,
//! gradient checkpointing, a recorder and inference.
//!
//! `MX_RANDOM_SPECS=1000` draws this number of cases, other ones for each number. The message of a failure has the specs.

mod layers;
mod plainly;
#[path = "../../crates/microscaling/tests/fuzz/random.rs"]
#[allow(dead_code, reason = "the fuzzer has more uses for it")]
mod random;
mod settings;

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::autodiff::checkpoint::strategy::{
    BalancedCheckpointing, CheckpointStrategy, NoCheckpointing,
};
use burn::backend::{Flex, NdArray};
use burn::prelude::*;
use burn::tensor::activation;
use burn::tensor::backend::AutodiffBackend;
use burn_backend::ops::FloatTensorOps;
use burn_backend::read_sync;
use burn_backend::tensor::FloatTensor;
use burn_mx::module::as_activation;
use burn_mx::record::{Recorder, RecorderConfig};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, ResolvedSpecs};
use burn_mx_core::MxModelOps;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

use self::layers::{Layer, Net};
use self::plainly::Plain;
use self::settings::{Settings, any_seed, settings, specs};
use crate::support::*;

#[derive(Clone, Debug)]
struct Case {
    /// The model's settings, and the settings of every other parameter if it `has_others`.
    settings: [Settings; 2],
    has_others: bool,
    seed: u64,
    input: [usize; 2],
    /// Whether some tensors have NaN, Inf, subnormals and huge numbers.
    is_wild: bool,
    input_is_leaf: bool,
    layers: Vec<Layer>,
    loss: u8,
}

fn cases() -> impl Strategy<Value = Case> {
    let length = || {
        prop_oneof![
            4 => 1..70_usize,
            1 => Just(1_usize),
            1 => prop::sample::select(vec![16_usize, 32, 64]),
        ]
    };
    let input = prop_oneof![
        30 => [length(), length()],
        1 => [0..1_usize, 1..70_usize],
        1 => [100..300_usize, 100..300_usize],
    ];
    let layer = (0..Layer::KINDS, any::<[u8; 8]>());
    let layer = layer.prop_map(|(kind, numbers)| Layer { kind, numbers });
    let layers = prop::collection::vec(layer, 1..4);
    let settings = [settings(), settings()];
    let flags = [0.25, 0.25, 0.5].map(prop::bool::weighted);
    let parts = (settings, any_seed(), input, flags, layers, 0..5_u8);
    parts.prop_map(
        |(settings, seed, input, [has_others, is_wild, input_is_leaf], layers, loss)| Case {
            settings,
            has_others,
            seed,
            input,
            is_wild,
            input_is_leaf,
            layers,
            loss,
        },
    )
}

/// Results in turn, or the message of a panic.
type Results = Result<Vec<Vec<f32>>, String>;

fn read<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    let data = read_sync(B::float_into_data(tensor)).expect("it is in memory");
    data.into_vec().expect("the tensor holds f32")
}

impl Case {
    fn input<B: MxModelOps>(&self, net: &mut Net<B>) -> Tensor<B, 2> {
        match self.input_is_leaf {
            true => as_activation(net.leaf(self.input)),
            false => net.data(self.input),
        }
    }

    fn output<B: MxModelOps>(&self, net: &mut Net<B>) -> Tensor<B, 2> {
        net.restart(self.seed);
        let x = self.input(net);
        let layers = self.layers.iter();
        layers.fold(x, |x, layer| layer.forward(x, net))
    }

    fn loss<B: Exact + MxModelOps>(&self, out: Tensor<B, 2>, net: &mut Net<B>) -> Tensor<B, 1> {
        let [rows, columns] = out.dims();
        let target = net.data([rows, columns]);
        // In row-major order: the order of Burn's own sums follows from where the numbers lie.
        let out = out.reshape([rows * columns]).reshape([rows, columns]);
        match self.loss {
            0 => B::loss_with_gradient(out, target),
            1 => (out - target).square().mean(),
            2 => {
                let labels = (0..rows).map(|i| (i * 7 % columns) as i64);
                let labels = labels.collect::<Vec<_>>();
                let labels = Tensor::<B, 1, Int>::from_data(&*labels, &net.device);
                let out = activation::log_softmax(out, 1);
                -out.gather(1, labels.reshape([rows, 1])).mean()
            }
            3 => (out * target).sum(),
            _ => out.sum(),
        }
    }

    /// The output, the loss, all gradients, and the outputs of two passes of inference.
    fn results<B: MxKernels, C: CheckpointStrategy>(&self, specs: &[ResolvedSpecs; 2]) -> Results {
        let run = || {
            let [device, other] = specs
                .each_ref()
                .map(|specs| MxDevice::new(B::Device::default(), specs).expect("resolved specs"));
            for (device, specs) in [(&device, &specs[0]), (&other, &specs[1])] {
                MxAutodiff::<B, C>::seed(device, specs.seed());
            }
            let mut net = Net::<MxAutodiff<B, C>>::new(device.clone(), self.seed, self.is_wild);
            if self.has_others {
                net.others = vec![device.clone(), other];
            }
            let out = self.output(&mut net);
            let loss = self.loss(out.clone(), &mut net);
            let mut results = vec![values(out), values(loss.clone())];
            if !net.leaves.is_empty() {
                let grads = loss.backward();
                let gradient = |leaf| MxAutodiff::<B, C>::grad(leaf, &grads);
                let gradients = net.leaves.iter().map(gradient);
                results
                    .extend(gradients.map(|grad| grad.map_or_else(Vec::new, read::<MxBackend<B>>)));
            }
            // As `valid` does.
            let valid = |leaf| {
                let leaf = MxAutodiff::<B, C>::inner(leaf);
                <MxBackend<B> as FloatTensorOps<_>>::float_set_require_grad(leaf, false)
            };
            let mut net = net.on::<MxBackend<B>>(device, valid);
            for _ in 0..2 {
                results.push(values(self.output(&mut net)));
            }
            results
        };
        catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default()
        })
    }
}

/// Parts of the messages for refused settings.
const REFUSED: [&str; 9] = [
    "burn-mx: attention_scope: `attention.tile`",
    "burn-mx: attention_scope: `attention.delta`",
    "`hot_columns.ranking` has",
    "which only matrix products and convolutions have",
    "expected a divisor of the block of",
    // Burn's.
    "=== Tensor Operation Error ===",
    "input rank for GroupNorm should be",
    "has size 0",
    // A gradient of `conv1d` in groups, without specs.
    "could not broadcast array from shape",
];

fn difference(got: &Results, expected: &Results) -> Option<String> {
    let (got, expected) = match (got, expected) {
        (Ok(got), Ok(expected)) => (got, expected),
        // A recorder names layers.
        (Err(got), Err(expected)) => {
            let refused = |text: &str| REFUSED.iter().position(|refused| text.contains(refused));
            let is_known = refused(got).is_some() && refused(got) == refused(expected);
            return (!is_known).then(|| format!("a panic: {got}, and {expected}"));
        }
        (Err(error), other) => return Some(format!("{error}, instead of {}", message(other))),
        (Ok(_), Err(error)) => return Some(format!("numbers instead of {error}")),
    };
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        if got.len() != expected.len() {
            return Some(format!(
                "result {i}: {} and {} numbers",
                got.len(),
                expected.len()
            ));
        }
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        let wrong = got.iter().zip(expected).filter(|pair| !same(*pair)).count();
        if let Some(at) = got.iter().zip(expected).position(|pair| !same(pair)) {
            return Some(format!(
                "result {i} of {}: {wrong} of {} differ, [{at}] is {:e}, expected {:e}",
                got.len(),
                got.len(),
                got[at],
                expected[at]
            ));
        }
    }
    None
}

fn without_signs_of_zeros(results: Results) -> Results {
    let numbers = |numbers: Vec<f32>| numbers.into_iter().map(|x| x + 0.0).collect();
    results.map(|results| results.into_iter().map(numbers).collect())
}

fn message(result: &Results) -> &str {
    match result {
        Ok(_) => "numbers",
        Err(error) => error,
    }
}

/// A case with its specs.
struct Run {
    case: Case,
    specs: [ResolvedSpecs; 2],
    /// The specs as the log names them.
    name: String,
}

impl Run {
    fn new(mut case: Case) -> Self {
        let seeds = [case.seed, case.seed / 2];
        let specs = [0, 1].map(|i| specs(&case.settings[i], seeds[i]));
        let specs = specs.map(|specs| specs.resolve().expect("the changes are allowed"));
        let name = match case.has_others {
            true => format!("{}; every other parameter: {}", specs[0], specs[1]),
            false => specs[0].to_string(),
        };
        // The unit multiplies a NaN with its sign, which is the processor's.
        case.is_wild &= !name.contains("xdna2");
        Self { case, specs, name }
    }

    fn on<B: MxKernels>(&self) -> Results {
        self.case.results::<B, NoCheckpointing>(&self.specs)
    }

    fn names(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.name.contains(word))
    }

    fn assert_same(
        &self,
        what: &str,
        got: &Results,
        expected: &Results,
    ) -> Result<(), TestCaseError> {
        let difference = difference(got, expected);
        let text = || {
            format!(
                "{what}: {}\n{}",
                difference.clone().unwrap_or_default(),
                self.name
            )
        };
        prop_assert!(difference.is_none(), "{}", text());
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let fast = self.on::<Flex>();
        self.assert_same("fast", &fast, &self.on::<Plain<Flex>>())?;
        self.check_inference(&fast)?;
        match self.case.seed % 5 {
            0 => self.assert_same("one thread", &on_threads(1, || self.on::<Flex>()), &fast),
            1 => self.assert_same("three threads", &on_threads(3, || self.on::<Flex>()), &fast),
            2 => self.check_checkpointing(&fast),
            // A recorder may make a copy in row-major order, and Burn's own product gives a zero another sign by that.
            3 => {
                let [recorded, fast] = [self.recorded(), fast].map(without_signs_of_zeros);
                self.assert_same("recorded", &recorded, &fast)
            }
            // Burn's NdArray divides by the number of rows.
            _ if self.case.input[0] == 0 => Ok(()),
            // Burn's NdArray adds some gradients in the order of its threads.
            _ => on_threads(1, || {
                self.assert_same(
                    "NdArray",
                    &self.on::<NdArray>(),
                    &self.on::<Plain<NdArray>>(),
                )
            }),
        }
    }

    /// Inference gives the output of training, in each pass.
    fn check_inference(&self, fast: &Results) -> Result<(), TestCaseError> {
        // An op with random numbers draws others in each pass.
        let is_random = self.names(&["stochastic", ":product", ":step"]);
        // Burn's own softmax, norms and attention have other sums where gradients are wanted.
        let is_emulated = self.names(&["everywhere"]) && !self.case.has_others;
        let is_exempt = !is_emulated || self.case.layers.iter().any(Layer::is_exempt);
        let (false, false, Ok(fast)) = (is_random, is_exempt, fast) else {
            return Ok(());
        };
        let output = Ok(vec![fast[0].clone()]);
        let mut passes = fast[fast.len() - 2..].iter();
        passes.try_for_each(|pass| self.assert_same("inference", &Ok(vec![pass.clone()]), &output))
    }

    fn check_checkpointing(&self, fast: &Results) -> Result<(), TestCaseError> {
        let got = self
            .case
            .results::<Flex, BalancedCheckpointing>(&self.specs);
        let is_refused = message(&got).contains("checkpointing");
        // An op that is computed again takes random numbers.
        let is_random = self.names(&["stochastic", ":product"]);
        match is_refused || is_random {
            true => Ok(()),
            false => self.assert_same("checkpointing", &got, fast),
        }
    }

    fn recorded(&self) -> Results {
        let folder = tempfile::tempdir().expect("there is room");
        let config = RecorderConfig {
            elementwise: true,
            ..RecorderConfig::default()
        };
        let recorder = Recorder::new(config.what_if(["mxfp4_sr_rht", "nvfp4"]));
        let recording = recorder.on_this_thread().start(&folder);
        let recording = recording.expect("the folder is new");
        let results = self.on::<Flex>();
        recording.finish().expect("the records are whole");
        results
    }
}

/// Calls in a pool of this number of threads.
fn on_threads<T: Send>(count: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(count).build();
    pool.expect("threads can be started").install(work)
}

#[test]
fn fast_paths_of_random_specs_give_the_bits_of_plain_ones() {
    const USUAL: u32 = 150;
    let cases_wanted = std::env::var("MX_RANDOM_SPECS").map_or(USUAL, |count| {
        count.parse().expect("MX_RANDOM_SPECS is a number")
    });
    let mut runner = TestRunner::new(Config {
        cases: cases_wanted,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(cases_wanted.into()),
        max_shrink_iters: 3000,
        ..Config::default()
    });
    if let Err(error) = runner.run(&cases(), |case| Run::new(case).check()) {
        panic!("{error}");
    }
}
