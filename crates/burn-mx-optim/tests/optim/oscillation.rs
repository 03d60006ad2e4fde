//! The reset of oscillating weights, against a written-out loop.

use burn_core as burn;
use burn_core::{
    module::{Module, Param},
    record::{BinBytesRecorder, FullPrecisionSettings, Recorder},
    tensor::{Tensor, TensorData, backend::Backend},
};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxAutodiff, MxBackend, MxDevice, MxSpecs};
use burn_mx_module::{master, set_specs_at, specs_of};
use burn_mx_optim::{OptimizerStates, OscillationReset, ResettingOptimizer};
use burn_optim::{
    AdamWConfig, GradientsParams, MuonConfig, Optimizer, SgdConfig, momentum::MomentumConfig,
};

use microscaling::Dialect;

use crate::normal;

type Mx = MxAutodiff<Flex>;

/// Named as Burn's: a layer is found by the name.
#[derive(Module, Debug)]
struct Linear<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

#[derive(Module, Debug)]
struct Conv1d<B: Backend> {
    weight: Param<Tensor<B, 3>>,
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    first: Linear<B>,
    head: Linear<B>,
    empty: Linear<B>,
    conv: Conv1d<B>,
    /// A parameter of no layer.
    own: Param<Tensor<B, 2>>,
}

const MATRIX: [usize; 2] = [70, 12];
const KERNELS: [usize; 3] = [5, 40, 3];

fn net(specs: &MxSpecs) -> Net<Mx> {
    let device = MxDevice::new(FlexDevice, specs).unwrap();
    let values = |shape: &[usize], seed| {
        let count = shape.iter().product();
        TensorData::new(normal(count, seed), shape.to_vec())
    };
    let matrix = |shape: [usize; 2], seed| {
        Param::from_tensor(Tensor::from_data(values(&shape, seed), &device))
    };
    let linear = |shape: [usize; 2], seed| Linear {
        weight: matrix(shape, seed),
        bias: Param::from_tensor(Tensor::from_data(values(&shape[1..], seed), &device)),
    };
    let net = Net {
        first: linear(MATRIX, 1),
        head: linear(MATRIX, 2),
        empty: linear([0, 3], 3),
        conv: Conv1d {
            weight: Param::from_tensor(Tensor::from_data(values(&KERNELS, 4), &device)),
        },
        own: matrix(MATRIX, 5),
    };
    let float = MxSpecs::preset("bfloat16").unwrap().resolve().unwrap();
    set_specs_at(net, "head", &float).unwrap()
}

fn bits<const D: usize>(param: &Param<Tensor<Mx, D>>) -> Vec<u32> {
    let values = param.val().into_data().into_vec::<f32>().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

/// The bits of all parameters.
fn all(net: &Net<Mx>) -> [Vec<u32>; 6] {
    [
        bits(&net.first.weight),
        bits(&net.first.bias),
        bits(&net.head.weight),
        bits(&net.conv.weight),
        bits(&net.own),
        bits(&net.empty.weight),
    ]
}

/// Numbers that a step subtracts: weights move forth and back, and a little on.
fn moves(count: usize, step: u64) -> Vec<f32> {
    let sign = if step.is_multiple_of(2) { 0.02 } else { -0.02 };
    let drift = normal(count, 1000 + step);
    drift.iter().map(|x| sign + 0.004 * x).collect()
}

fn gradients(net: &Net<Mx>, step: u64) -> GradientsParams {
    fn register<const D: usize>(
        all: &mut GradientsParams,
        param: &Param<Tensor<Mx, D>>,
        step: u64,
    ) {
        let weight = param.val().inner();
        let data = TensorData::new(moves(param.shape().num_elements(), step), param.shape());
        let gradient = Tensor::<MxBackend<Flex>, D>::from_data(data, &weight.device());
        all.register(param.id, master(gradient));
    }
    let mut all = GradientsParams::new();
    register(&mut all, &net.first.weight, step);
    register(&mut all, &net.first.bias, step + 100);
    register(&mut all, &net.head.weight, step);
    register(&mut all, &net.empty.weight, step);
    register(&mut all, &net.conv.weight, step);
    register(&mut all, &net.own, step);
    all
}

const RESET: OscillationReset = OscillationReset {
    start: 7,
    period: 10,
    window: 6,
    threshold: 3.0,
};

fn run<O: Optimizer<Net<Mx>, Mx>>(
    optimizer: &mut O,
    mut net: Net<Mx>,
    steps: core::ops::Range<u64>,
) -> Net<Mx> {
    for step in steps {
        let of_net = gradients(&net, step);
        net = optimizer.step(1.0, net, of_net);
    }
    net
}

/// MXFP4 by its definition: a block of 32 numbers along an axis has the scale 2^(floor(log2 amax) − 2); to the nearest of FP4's
/// numbers, ties to the even code. Bfloat16 before.
fn mxfp4(weights: &[f32], outer: usize, axis: usize, inner: usize) -> Vec<f32> {
    const NUMBERS: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let bfloat16 = |x: f32| {
        let odd = x.to_bits() >> 16 & 1;
        f32::from_bits((x.to_bits() + 0x7fff + odd) & 0xffff_0000)
    };
    let mut quantized = vec![0.0; weights.len()];
    for outer in 0..outer {
        for column in 0..inner {
            for begin in (0..axis).step_by(32) {
                let rows = begin..axis.min(begin + 32);
                let places = rows.map(|row| (outer * axis + row) * inner + column);
                let amax = places.clone().map(|at| bfloat16(weights[at]).abs());
                let amax = amax.fold(0.0, f32::max);
                let scale = 2f32.powi(amax.log2().floor() as i32 - 2);
                for at in places {
                    let x = bfloat16(weights[at]);
                    let codes = NUMBERS.iter().enumerate();
                    let nearest = codes.min_by(|(code, a), (other, b)| {
                        let distance = |number: f32| (x.abs() / scale - number).abs();
                        let by_distance = distance(**a).total_cmp(&distance(**b));
                        by_distance.then((code % 2).cmp(&(other % 2)))
                    });
                    quantized[at] = (nearest.unwrap().1 * scale).copysign(x);
                }
            }
        }
    }
    quantized
}

/// The code of TetraJet-v2, line by line, for SGD. Returns the weights after the last step and how many were reset.
fn written_out(mut w: Vec<f32>, steps: u64, q: impl Fn(&[f32]) -> Vec<f32>) -> (Vec<f32>, u64) {
    let mut resets = 0;
    let (mut last, mut of_w, mut of_q) = (vec![], vec![], vec![]);
    for step in 0..steps {
        let count = w.len();
        for (w, g) in w.iter_mut().zip(moves(count, step)) {
            *w -= g;
        }
        if step < 7 {
            continue;
        }
        match step % 10 {
            0 => (last, of_w, of_q) = (w.clone(), vec![0.0; count], vec![0.0; count]),
            1..=6 if !last.is_empty() => {
                let (now, before) = (q(&w), q(&last));
                for at in 0..count {
                    of_q[at] += (now[at] - before[at]).abs();
                    of_w[at] += (w[at] - last[at]).abs();
                }
                last = w.clone();
            }
            7 if !last.is_empty() => {
                let now = q(&w);
                for at in 0..count {
                    let ratio = if of_w[at] == 0.0 {
                        0.0
                    } else {
                        of_q[at] / of_w[at]
                    };
                    if ratio >= 3.0 {
                        w[at] = now[at];
                        resets += 1;
                    }
                }
                last.clear();
            }
            _ => {}
        }
    }
    (w, resets)
}

fn floats(bits: &[u32]) -> Vec<f32> {
    bits.iter().copied().map(f32::from_bits).collect()
}

fn same(got: &[u32], expected: &[f32]) -> bool {
    let expected = expected.iter().map(|x| x.to_bits());
    got.iter().copied().eq(expected)
}

#[test]
fn the_same_bits_as_a_written_out_loop() {
    let start = net(&MxSpecs::mxfp4());
    let weights = all(&start).map(|bits| floats(&bits));
    let mut optimizer = RESET.optimizer(SgdConfig::new().init(), &start).unwrap();
    let mut net = start;
    let mut done = 0;
    for steps in [8, 11, 17, 18, 29, 41] {
        net = run(&mut optimizer, net, done..steps);
        done = steps;
        let [first, bias, head, conv, own, empty] = all(&net);
        let (expected, of_first) = written_out(weights[0].clone(), steps, |w| mxfp4(w, 1, 70, 12));
        assert!(same(&first, &expected), "linear, {steps} steps");
        let (expected, of_conv) = written_out(weights[3].clone(), steps, |w| mxfp4(w, 5, 40, 3));
        assert!(same(&conv, &expected), "convolution, {steps} steps");
        assert_eq!(
            optimizer.state().resets,
            of_first + of_conv,
            "{steps} steps"
        );
        assert_eq!(of_first > 0, steps > 17, "resets come after step 17");
        assert!(of_first < 840 && of_conv < 600, "not of all");
        // The head has no block format, and the others stand in no layer.
        for (got, weights) in [(head, &weights[2]), (own, &weights[4])] {
            let (expected, _) = written_out(weights.clone(), steps, <[f32]>::to_vec);
            assert!(same(&got, &expected), "left alone");
        }
        assert_eq!((bias.len(), empty.len()), (12, 0));
    }
    let specs = specs_of(&net.first.weight.val()).expect("a reset keeps the specs");
    assert!(specs.has_mx() && net.first.weight.is_require_grad());
}

/// The centre of a bin is the number that the engine serves.
#[test]
fn a_dialect_gives_the_centres() {
    let dialect = Dialect::ModelOpt;
    let specs = MxSpecs {
        dialect_w: Some(dialect),
        bfloat: 0,
        ..MxSpecs::mxfp4()
    };
    let start = net(&specs);
    let weights = floats(&bits(&start.first.weight));
    let mut optimizer = RESET.optimizer(SgdConfig::new().init(), &start).unwrap();
    let net = run(&mut optimizer, start, 0..18);
    let served = |w: &[f32]| {
        let mut w = w.to_vec();
        let format = "mxfp4".parse().unwrap();
        dialect.quantize(format, &mut w, &MATRIX, 0).unwrap();
        w
    };
    let (expected, resets) = written_out(weights.clone(), 18, served);
    assert!(resets > 0 && same(&bits(&net.first.weight), &expected));
    let (other, _) = written_out(weights, 18, |w| mxfp4(w, 1, 70, 12));
    assert_ne!(other, expected, "the dialect has numbers of its own");
}

/// Rows in another format stay, and the others have their blocks without them.
#[test]
fn hot_rows_are_left_alone() {
    let order: Vec<usize> = (0..70).map(|row| (row * 11 + 4) % 70).collect();
    let ranking: Vec<String> = order.iter().map(usize::to_string).collect();
    let hot = format!(
        "hot_columns(percent=20,format=mxfp8_e4m3,chosen=fixed,ranking={})",
        ranking.join(" ")
    );
    let specs = MxSpecs {
        hot_columns: Some(hot.parse().unwrap()),
        ..MxSpecs::mxfp4()
    };
    let start = net(&MxSpecs::mxfp4());
    let start = set_specs_at(start, "first", &specs.resolve().unwrap()).unwrap();
    let weights = floats(&bits(&start.first.weight));
    let mut optimizer = RESET.optimizer(SgdConfig::new().init(), &start).unwrap();
    let net = run(&mut optimizer, start.clone(), 0..18);
    let in_parts = |w: &[f32]| {
        let row = |row: &usize| w[row * 12..row * 12 + 12].to_vec();
        let others: Vec<f32> = order[14..].iter().flat_map(row).collect();
        let mut q = w.to_vec();
        for (row, values) in order[14..].iter().zip(mxfp4(&others, 1, 56, 12).chunks(12)) {
            q[row * 12..row * 12 + 12].copy_from_slice(values);
        }
        q
    };
    let (expected, resets) = written_out(weights.clone(), 18, in_parts);
    assert!(resets > 0 && same(&bits(&net.first.weight), &expected));
    let (other, _) = written_out(weights, 18, |w| mxfp4(w, 1, 70, 12));
    assert_ne!(other, expected, "the parts have blocks of their own");

    let in_product = MxSpecs {
        hot_columns: Some("hot_columns(format=mxfp8_e4m3)".parse().unwrap()),
        ..MxSpecs::mxfp4()
    };
    let start = set_specs_at(start, "first", &in_product.resolve().unwrap()).unwrap();
    let refused = RESET.optimizer(SgdConfig::new().init(), &start);
    let error = refused.err().expect("no ranking is fixed");
    assert_eq!(
        error.to_string(),
        "`hot_columns` is chosen=product at first.weight; allowed: chosen=fixed, or none"
    );
}

/// A threshold that no weight reaches, and the time before `start`.
#[test]
fn without_a_reset_no_bit_changes_and_nothing_is_kept() {
    let config = AdamWConfig::new();
    let start = net(&MxSpecs::mxfp4());
    let plain = all(&run(&mut config.init(), start.clone(), 0..30));
    let late = OscillationReset { start: 31, ..RESET };
    let high = OscillationReset {
        threshold: 1e30,
        ..RESET
    };
    for reset in [late, high] {
        let mut optimizer = reset.optimizer(config.init(), &start).unwrap();
        assert_eq!(all(&run(&mut optimizer, start.clone(), 0..30)), plain);
        let state = optimizer.state();
        assert_eq!((state.steps, state.resets), (30, 0));
        assert!(state.watched.is_empty(), "no window is open");
    }
}

type Bytes = BinBytesRecorder<FullPrecisionSettings>;

fn resumed<O: Optimizer<Net<Mx>, Mx>>(make: impl Fn() -> O, name: &str) {
    let start = net(&MxSpecs::mxfp4());
    let wrapped = || RESET.optimizer(make(), &start).unwrap();
    let mut whole = wrapped();
    let expected = run(&mut whole, start.clone(), 0..40);
    assert!(whole.state().resets > 0, "{name}");
    // Before, in and after windows.
    for stop in [5, 13, 17, 18, 25] {
        let mut first = wrapped();
        let net = run(&mut first, start.clone(), 0..stop);
        let recorder = Bytes::new();
        let saved = Recorder::<Mx>::record(&recorder, first.to_record(), ()).unwrap();
        let weights = Recorder::<Mx>::record(&recorder, net.clone().into_record(), ()).unwrap();
        let device = net.first.weight.device();
        let net = net.load_record(recorder.load(weights, &device).unwrap());
        let record = recorder.load(saved, &device).unwrap();
        let mut second: ResettingOptimizer<O> = wrapped().load_record(record);
        let got = run(&mut second, net, stop..40);
        assert!(all(&got) == all(&expected), "{name}, stopped after {stop}");
        assert_eq!(second.state(), whole.state());
    }
}

#[test]
fn every_optimizer_resumes_to_the_same_bits() {
    let states = OptimizerStates::preset("bitsandbytes").unwrap();
    let states = OptimizerStates {
        smallest: 0,
        ..states
    };
    let small = AdamWConfig::new().with_weight_decay(0.0);
    resumed(|| SgdConfig::new().init(), "SGD of Burn");
    let momentum = SgdConfig::new().with_momentum(Some(MomentumConfig::new().with_momentum(0.1)));
    let float = OptimizerStates::default();
    resumed(|| float.sgd(&momentum).unwrap(), "SGD");
    let scaled = || Scaled(states.adamw(&small).unwrap());
    resumed(scaled, "AdamW with 8 bits");
}

/// An optimizer with a smaller learning rate: steps of AdamW are as long as their rate.
#[derive(Clone)]
struct Scaled<O>(O);

impl<O: Optimizer<Net<Mx>, Mx>> Optimizer<Net<Mx>, Mx> for Scaled<O> {
    type Record = O::Record;

    fn step(&mut self, lr: f64, module: Net<Mx>, grads: GradientsParams) -> Net<Mx> {
        self.0.step(0.02 * lr, module, grads)
    }

    fn step_multi(
        &mut self,
        lr: f64,
        module: Net<Mx>,
        grads: burn_optim::MultiGradientsParams,
    ) -> Net<Mx> {
        self.0.step_multi(0.02 * lr, module, grads)
    }

    fn to_record(&self) -> Self::Record {
        self.0.to_record()
    }

    fn load_record(self, record: Self::Record) -> Self {
        Self(self.0.load_record(record))
    }
}

/// Serde keeps NaN and Inf, also in JSON.
#[test]
fn a_state_as_json_keeps_every_bit() {
    let start = net(&MxSpecs::mxfp4());
    let mut optimizer = RESET.optimizer(SgdConfig::new().init(), &start).unwrap();
    run(&mut optimizer, start, 0..13);
    let mut state = optimizer.state().clone();
    let watched = state
        .watched
        .get_mut("first.weight")
        .expect("a window is open");
    (watched.last[0], watched.moved[1]) = (f32::INFINITY, -0.0);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(
        serde_json::from_str::<burn_mx_optim::OscillationState>(&text).unwrap(),
        state
    );
}

#[test]
fn wrong_settings_are_errors_before_the_first_step() {
    let refused = |reset: OscillationReset, specs: &MxSpecs, text: &str| {
        let result = reset.optimizer(SgdConfig::new().init(), &net(specs));
        assert_eq!(result.err().expect(text).to_string(), text);
    };
    let mxfp4 = MxSpecs::mxfp4();
    let window = OscillationReset {
        window: 199,
        ..OscillationReset::default()
    };
    refused(
        window,
        &mxfp4,
        "`window` is 199; allowed: 1 to `period` − 2, 198",
    );
    let window = OscillationReset { window: 0, ..RESET };
    refused(
        window,
        &mxfp4,
        "`window` is 0; allowed: 1 to `period` − 2, 8",
    );
    let period = OscillationReset { period: 0, ..RESET };
    refused(period, &mxfp4, "`period` is 0; allowed: 3 or more");
    for (threshold, shown) in [
        (0.0, "0"),
        (-8.0, "-8"),
        (f32::NAN, "NaN"),
        (f32::INFINITY, "inf"),
    ] {
        let reset = OscillationReset { threshold, ..RESET };
        let text = format!("`threshold` is {shown}; allowed: a finite number above 0");
        refused(reset, &mxfp4, &text);
    }
    let text = "`w_elem_format` is none in every linear layer and convolution; allowed: specs with a format for weights, such as \
                `w_elem_format` mxfp4";
    refused(RESET, &MxSpecs::none(), text);
    let text = "`hadamard_forward` is a transform at first.weight; allowed: none";
    refused(RESET, &MxSpecs::quartet(), text);
    let unknown = serde_json::from_str::<OscillationReset>(r#"{"perod": 100}"#);
    assert!(unknown.unwrap_err().to_string().contains("`perod`"));
}

/// A state of a model with other shapes.
#[test]
#[should_panic(
    expected = "the state of oscillating weights has 3 numbers of first.weight, and the model 840"
)]
fn a_state_of_another_model_is_refused() {
    let start = net(&MxSpecs::mxfp4());
    let mut optimizer = RESET.optimizer(SgdConfig::new().init(), &start).unwrap();
    let net = run(&mut optimizer, start, 0..12);
    let (record, mut state) = optimizer.to_record();
    state
        .watched
        .get_mut("first.weight")
        .unwrap()
        .last
        .truncate(3);
    run(&mut optimizer.load_record((record, state)), net, 12..13);
}

/// Muon, which takes matrices alone.
#[test]
fn muon_takes_resets() {
    let start = net(&MxSpecs::mxfp4());
    let muon = OptimizerStates::default().muon::<Mx, Net<Mx>>(&MuonConfig::new());
    let mut optimizer = RESET.optimizer(muon.unwrap(), &start).unwrap();
    let mut model = start;
    for step in 0..30 {
        let mut all = gradients(&model, step);
        let mut matrices = GradientsParams::new();
        let id = model.first.weight.id;
        let gradient = all.remove::<MxBackend<Flex>, 2>(id).unwrap();
        matrices.register(id, gradient);
        model = optimizer.step(0.05, model, matrices);
    }
    assert!(optimizer.state().resets > 0);
}
