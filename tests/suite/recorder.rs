//! The recorder: it changes nothing, and its figures are what they say.

use std::fs;
use std::path::Path;
use std::thread;

use burn::backend::{Flex, NdArray, ndarray::NdArrayDevice};
use burn::module::{AutodiffModule, Module};
use burn::nn::attention::MultiHeadAttentionConfig;
use burn::nn::attention::{MhaInput, MultiHeadAttention};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::prelude::*;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::module::linear;
use burn::train::metric::{Metric, MetricMetadata, Numeric};
use burn::{data::dataloader::Progress, train::metric::NumericEntry};
use burn_mx::microscaling::{BlockFormat, RandomStream, Rounding};
use burn_mx::module::{MxTensorOps, label_parameters, scope};
use burn_mx::record::{
    MxSaturation, MxSqnr, MxUnderflow, OperandRecord, Pass, ProductKind, ProductRecord, RECORDS,
    REPORT_HTML, REPORT_JSON, RecordError, Recorder, RecorderConfig, Recording, Report, Statistic,
    StepRecord,
};
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs, Slot, keep_quantized_weights};
use tempfile::TempDir;

use super::models::{
    Architecture, Convolutions, Forward, Mlp, Recurrent, Transformer, Wide, model,
};
use super::support::*;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

/// Records this thread alone, as the other tests of this process run beside.
fn record_here(config: RecorderConfig, folder: &TempDir) -> Recording {
    let recorder = Recorder::new(config);
    recorder
        .on_this_thread()
        .start(folder)
        .expect("the folder is new")
}

fn steps(report: &Report) -> Vec<&StepRecord> {
    report.steps().collect()
}

fn product<'a>(step: &'a StepRecord, layer: &str, kind: ProductKind) -> &'a ProductRecord {
    let mut products = step.products.iter();
    let found = products.find(|product| product.layer == layer && product.product == kind);
    found.unwrap_or_else(|| panic!("{layer} {kind}: {:?}", names(step)))
}

fn operand<'a>(product: &'a ProductRecord, name: &str) -> &'a OperandRecord {
    let found = product
        .operands
        .iter()
        .find(|operand| operand.operand == name);
    found.unwrap_or_else(|| panic!("{name}: {product:?}"))
}

fn names(step: &StepRecord) -> Vec<(&str, ProductKind)> {
    let products = step.products.iter();
    products
        .map(|product| (product.layer.as_str(), product.product))
        .collect()
}

/// What random numbers draw most from: gradients stochastically, elementwise values too.
fn stochastic() -> MxSpecs {
    MxSpecs {
        round: Rounding::Stochastic,
        ..MxSpecs::mxfp4_sr_rht()
    }
}

/// Losses and weights of three steps, recorded or not.
fn trained<A: Architecture, B: MxKernels>(
    specs: &MxSpecs,
    inner: B::Device,
    recorded: bool,
) -> (Vec<Vec<f32>>, usize)
where
    MxAutodiff<B>: AutodiffBackend<Device = MxDevice<B::Device>> + MxTensorOps,
{
    let device = MxDevice::new(inner, &specs.resolve().expect("the specs are sound"));
    MxAutodiff::<B>::seed(&device, 5);
    let folder = folder();
    let config = RecorderConfig::default().what_if(["mxfp4_sr_rht", "nvfp4", "mxfp8_rceil"]);
    let recording = recorded.then(|| record_here(config, &folder));
    let mut model = label_parameters(model::<A, MxAutodiff<B>>(&device));
    let mut optimizer = SgdConfig::new().init();
    let mut all = Vec::new();
    for _ in 0..3 {
        let outputs = model.outputs(&device);
        let target = noise_tensor(outputs.dims(), 31, &device);
        let loss = (outputs - target).square().mean();
        all.push(values(loss.clone()));
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.05, model, grads);
    }
    // An evaluation is no part of a step, and its copies are kept.
    for _ in 0..3 {
        all.push(values(model.valid().outputs(&device)));
    }
    all.extend(weights(&model));
    let count = recording.map_or(0, |recording| {
        let report = recording.finish().expect("the records are whole");
        steps(&report).len()
    });
    (all, count)
}

fn is_undisturbed<A: Architecture>() {
    for specs in [
        MxSpecs::mxfp8_e4m3(),
        MxSpecs::nvfp4(),
        MxSpecs::mx6(),
        MxSpecs::mxfp4_sr_rht(),
        stochastic(),
    ] {
        let (off, _) = trained::<A, Flex>(&specs, Default::default(), false);
        let (on, recorded) = trained::<A, Flex>(&specs, Default::default(), true);
        assert_eq!(recorded, 3);
        assert_all_same_bits(&on, &off, &format!("flex, {specs:?}"));
    }
    let specs = stochastic();
    let (off, _) = trained::<A, NdArray>(&specs, NdArrayDevice::Cpu, false);
    let (on, _) = trained::<A, NdArray>(&specs, NdArrayDevice::Cpu, true);
    assert_all_same_bits(&on, &off, "ndarray");
}

#[test]
fn recording_changes_no_bit() {
    is_undisturbed::<Mlp>();
    is_undisturbed::<Wide>();
    is_undisturbed::<Transformer>();
    is_undisturbed::<Convolutions>();
    is_undisturbed::<Recurrent>();
}

/// The records of one training pass.
fn records_of_a_pass<A: Architecture, B: MxKernels>(inner: B::Device) -> String
where
    MxAutodiff<B>: AutodiffBackend<Device = MxDevice<B::Device>> + MxTensorOps,
{
    let specs = MxSpecs::mxfp6_e3m2().resolve().expect("a preset");
    let device = MxDevice::new(inner, &specs);
    let folder = folder();
    let recording = record_here(RecorderConfig::default().what_if(["mx9"]), &folder);
    let model = label_parameters(model::<A, MxAutodiff<B>>(&device));
    model.outputs(&device).sum().backward();
    recording.finish().expect("the records are whole");
    fs::read_to_string(folder.path().join(RECORDS)).expect("it was written")
}

#[test]
fn backends_and_threads_have_the_same_figures() {
    let on = |threads: usize, flex: bool| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("threads can be started")
            .install(|| match flex {
                true => records_of_a_pass::<Wide, Flex>(Default::default()),
                false => records_of_a_pass::<Wide, NdArray>(NdArrayDevice::Cpu),
            })
    };
    let one = on(1, true);
    assert!(one.contains("input_gradient"));
    assert_eq!(on(3, true), one);
    // Gradients that pass a float32 sum may differ in the last bits.
    let forward = |records: &str| -> Vec<ProductRecord> {
        let line = records.lines().nth(1).expect("a step");
        let step: StepRecord = serde_json::from_str(line).expect("a record");
        let is_forward = |product: &ProductRecord| product.product == ProductKind::Forward;
        step.products
            .into_iter()
            .filter(is_forward)
            .take(1)
            .collect()
    };
    assert_eq!(forward(&on(2, false)), forward(&one));
}

fn quantized(x: &[f32], shape: [usize; 2], axis: usize, format: &str) -> Vec<f32> {
    let format: BlockFormat = format.parse().expect("a format");
    let mut quantized = x.to_vec();
    let even = Rounding::Even.with(RandomStream::new(0, 0));
    format
        .quantize(&mut quantized, &shape, axis, even)
        .expect("it fits");
    quantized
}

/// By the definitions, of a matrix before and after.
fn assert_figures(operand: &OperandRecord, x: &[f32], q: &[f32]) {
    let pairs: Vec<(f64, f64)> = x
        .iter()
        .zip(q)
        .map(|(x, q)| (f64::from(*x), f64::from(*q)))
        .collect();
    let sum = |term: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(x, q)| term(*x, *q)).sum::<f64>();
    let (power, error) = (sum(&|x, _| x * x), sum(&|x, q| (x - q) * (x - q)));
    let count = x.len() as f64;
    let figures = &operand.figures;
    let close = |got: Option<f64>, expected: f64| {
        let got = got.expect("it is recorded");
        assert!(
            (got - expected).abs() <= 1e-9 * expected.abs(),
            "{got}, not {expected}: {operand:?}"
        );
    };
    assert_eq!(figures.elements, x.len() as u64);
    close(figures.mse, error / count);
    close(figures.sqnr, 10.0 * (power / error).log10());
    close(figures.slope, sum(&|x, q| x * q) / power);
    let lost = pairs.iter().filter(|(x, q)| *x != 0.0 && *q == 0.0).count();
    close(figures.underflow, 100.0 * lost as f64 / count);
    let amax = pairs
        .iter()
        .fold(0.0, |amax: f64, (x, _)| amax.max(x.abs()));
    close(figures.amax, amax);
    let smallest = pairs.iter().map(|(x, _)| x.abs()).filter(|x| *x > 0.0);
    let smallest = smallest.fold(f64::INFINITY, f64::min);
    close(figures.amin, smallest);
    close(figures.dynamic_range, (amax / smallest).log2());
}

/// `[rows, columns]` of the product of matrices, in float64.
fn matmul(a: &[f32], b: &[f32], [rows, summed, columns]: [usize; 3]) -> Vec<f64> {
    let at = |row: usize, column: usize| {
        let terms = (0..summed)
            .map(|k| f64::from(a[row * summed + k]) * f64::from(b[k * columns + column]));
        terms.sum()
    };
    (0..rows * columns)
        .map(|i| at(i / columns, i % columns))
        .collect()
}

fn transposed(x: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    (0..rows * columns)
        .map(|i| x[i % rows * columns + i / rows])
        .collect()
}

#[test]
fn every_figure_of_a_linear_layer_is_its_definition() {
    let device = mx_device(&mx_only(MxSpecs::mxfp4()));
    let folder = folder();
    let recording = record_here(RecorderConfig::default().what_if(["mxfp8_rceil"]), &folder);
    let layer = LinearConfig::new(64, 48)
        .with_bias(false)
        .init::<Mx>(&device);
    let layer = label_parameters(with_noise_weights(layer, 3));
    let x = noise_tensor::<Mx, 2>([40, 64], 5, &device).require_grad();
    let gradient = noise_tensor::<Mx, 2>([40, 48], 6, &device);
    (layer.forward(x.clone()) * gradient.clone())
        .sum()
        .backward();
    let report = recording.finish().expect("the records are whole");
    let [step] = steps(&report)[..] else {
        panic!("one step")
    };

    let (x, w, g) = (values(x), values(layer.weight.val()), values(gradient));
    // (kind, operands by name with their shape and summed axis)
    let parts = [
        (
            ProductKind::Forward,
            [("input", &x, [40, 64], 1), ("weight", &w, [64, 48], 0)],
        ),
        (
            ProductKind::InputGradient,
            [
                ("output gradient", &g, [40, 48], 1),
                ("weight", &w, [64, 48], 1),
            ],
        ),
        (
            ProductKind::WeightGradient,
            [
                ("input", &x, [40, 64], 0),
                ("output gradient", &g, [40, 48], 0),
            ],
        ),
    ];
    assert_eq!(step.products.len(), 3);
    for (kind, operands) in parts {
        let product = product(step, "weight", kind);
        assert_eq!((product.uses, product.operands.len()), (1, 2));
        let matrices = operands.map(|(name, x, shape, axis)| {
            let q = quantized(x, shape, axis, "mxfp4");
            let recorded = operand(product, name);
            assert_eq!(recorded.format.as_deref(), Some("mxfp4"));
            let blocks = shape[1 - axis] * shape[axis].div_ceil(32);
            assert_eq!(recorded.figures.blocks, blocks as u64);
            assert_figures(recorded, x, &q);
            let other = OperandRecord {
                figures: recorded.what_if["mxfp8_rceil"].clone(),
                ..recorded.clone()
            };
            // The preset has bfloat16, which the operand is rounded to before.
            assert!(other.figures.sqnr > recorded.figures.sqnr);
            assert_eq!(other.figures.saturation, Some(0.0));
            (x.clone(), q)
        });
        let [(a, qa), (b, qb)] = matrices;
        let result = |a: &[f32], b: &[f32]| match kind {
            ProductKind::Forward => matmul(a, b, [40, 64, 48]),
            ProductKind::InputGradient => matmul(a, &transposed(b, [64, 48]), [40, 48, 64]),
            ProductKind::WeightGradient => matmul(&transposed(a, [40, 64]), b, [64, 40, 48]),
        };
        let (exact, got) = (result(&a, &b), result(&qa, &qb));
        let sum = |term: &dyn Fn(f64, f64) -> f64| {
            exact
                .iter()
                .zip(&got)
                .map(|(x, q)| term(*x, *q))
                .sum::<f64>()
        };
        let norm = sum(&|x, _| x * x);
        let error = (sum(&|x, q| (x - q) * (x - q)) / norm).sqrt();
        let cosine = sum(&|x, q| x * q) / (norm * sum(&|_, q| q * q)).sqrt();
        let recorded = product.result.expect("results are compared");
        assert!((recorded.relative_error.unwrap() - error).abs() < 1e-5);
        assert!((recorded.cosine.unwrap() - cosine).abs() < 1e-6);
    }
}

#[test]
fn uses_of_a_layer_add_up() {
    let device = mx_device(&MxSpecs::mxfp4());
    let layer = LinearConfig::new(32, 32)
        .with_bias(false)
        .init::<Mx>(&device);
    let layer = label_parameters(with_noise_weights(layer, 3));
    let inputs = [5, 6].map(|seed| noise_tensor::<Mx, 2>([8, 32], seed, &device));
    let record = |inputs: &[Tensor<Mx, 2>]| {
        let folder = folder();
        let recording = record_here(RecorderConfig::default(), &folder);
        let outputs: Vec<_> = inputs
            .iter()
            .map(|x| layer.forward(x.clone()).sum())
            .collect();
        Tensor::cat(outputs, 0).sum().backward();
        let report = recording.finish().expect("the records are whole");
        let step = steps(&report)[0].clone();
        product(&step, "weight", ProductKind::Forward).clone()
    };
    let both = record(&inputs);
    let [first, second] = [record(&inputs[..1]), record(&inputs[1..])];
    assert_eq!((first.uses, second.uses, both.uses), (1, 1, 2));
    let figure = |product: &ProductRecord| {
        let figures = &operand(product, "input").figures;
        [
            figures.elements as f64,
            figures.mse.unwrap() * figures.elements as f64,
        ]
    };
    let [sum, first, second] = [&both, &first, &second].map(figure);
    assert_eq!(sum[0], first[0] + second[0]);
    assert!((sum[1] - first[1] - second[1]).abs() < 1e-9 * sum[1]);
}

/// Attention, grouped convolution, a weight that two layers share.
#[derive(Module, Debug)]
struct Zoo<B: Backend> {
    conv: Conv2d<B>,
    attention: MultiHeadAttention<B>,
    tied: Linear<B>,
}

impl<B: Backend> Zoo<B> {
    fn new(device: &B::Device) -> Self {
        let zoo = Self {
            conv: Conv2dConfig::new([4, 4], [3, 3])
                .with_groups(2)
                .init(device),
            attention: MultiHeadAttentionConfig::new(16, 2)
                .with_dropout(0.0)
                .init(device),
            tied: LinearConfig::new(16, 16).with_bias(false).init(device),
        };
        with_noise_weights(zoo, 9)
    }

    fn outputs(&self, device: &B::Device, scoped: bool) -> Tensor<B, 2> {
        let x = self
            .conv
            .forward(noise_tensor::<B, 4>([2, 4, 6, 6], 3, device));
        let x = x.reshape([2, 4, 16]);
        let attend = || {
            self.attention
                .forward(MhaInput::self_attn(x.clone()))
                .context
        };
        let x = match scoped {
            true => scope("block", || scope("attention", attend)),
            false => attend(),
        };
        let x = self.tied.forward(x.flatten::<2>(0, 1));
        // The same weight, the other way.
        linear(x, self.tied.weight.val().transpose(), None)
    }
}

#[test]
fn every_product_has_a_name() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let of = |label: bool, scoped: bool| {
        let folder = folder();
        let recording = record_here(RecorderConfig::default(), &folder);
        let mut zoo = Zoo::<Mx>::new(&device);
        if label {
            zoo = label_parameters(zoo);
        }
        zoo.outputs(&device, scoped).sum().backward();
        let report = recording.finish().expect("the records are whole");
        let mut layers: Vec<String> = Vec::new();
        for product in &steps(&report)[0].products {
            if !layers.contains(&product.layer) {
                layers.push(product.layer.clone());
            }
        }
        (layers, steps(&report)[0].clone())
    };
    let (layers, step) = of(true, true);
    assert_eq!(
        layers,
        [
            "conv.weight",
            "attention.query.weight",
            "attention.key.weight",
            "attention.value.weight",
            "block.attention.matmul 0",
            "block.attention.matmul 1",
            "attention.output.weight",
            "tied.weight",
        ]
    );
    assert_eq!(product(&step, "tied.weight", ProductKind::Forward).uses, 2);
    // Of two activations: the gradients of both, each with operands of its own.
    let gradients = product(
        &step,
        "block.attention.matmul 0",
        ProductKind::InputGradient,
    );
    let mut operands: Vec<_> = gradients
        .operands
        .iter()
        .map(|x| x.operand.as_str())
        .collect();
    operands.sort_unstable();
    assert_eq!(
        operands,
        ["lhs", "output gradient", "output gradient for rhs", "rhs"]
    );
    assert_eq!(gradients.uses, 2);

    let (layers, _) = of(true, false);
    let after = |count: usize| format!("attention.value.weight > matmul {count}");
    assert_eq!(layers[4..6], [after(0), after(1)]);

    // Without labels, by kind and order; gradients know the names of their forward products.
    let (layers, step) = of(false, false);
    let names = [
        "convolution 0",
        "linear 0",
        "linear 1",
        "linear 2",
        "matmul 0",
        "matmul 1",
        "linear 3",
        "linear 4",
        "linear 5",
    ];
    assert_eq!(layers, names);
    for name in names {
        let kinds = step.products.iter().filter(|product| product.layer == name);
        assert!(kinds.count() >= 2, "{name}: {:?}", self::names(&step));
    }
}

#[test]
fn steps_operands_and_statistics_are_chosen() {
    let device = mx_device(&MxSpecs::mxfp4());
    let folder = folder();
    let config = RecorderConfig {
        every: 2,
        start: 1,
        end: Some(6),
        layers: vec!["up".into(), "h*".into()],
        products: vec![ProductKind::Forward],
        operands: vec![Slot::W],
        statistics: vec![Statistic::Sqnr],
        ..RecorderConfig::default()
    };
    let json = serde_json::to_string(&config).expect("it is plain JSON");
    let config: RecorderConfig = serde_json::from_str(&json).expect("it was written so");
    let recording = record_here(config, &folder);
    let model = label_parameters(model::<Mlp, Mx>(&device));
    assert!(recording.latest().is_none());
    for _ in 0..8 {
        model.outputs(&device).sum().backward();
    }
    let latest = recording.latest().expect("three were recorded");
    let report = recording.finish().expect("the records are whole");
    let recorded: Vec<u64> = report.steps().map(|step| step.step).collect();
    assert_eq!(recorded, [1, 3, 5]);
    assert_eq!(*latest, *steps(&report)[2]);
    for step in report.steps() {
        assert_eq!(
            names(step),
            [
                ("up.weight", ProductKind::Forward),
                ("head.weight", ProductKind::Forward)
            ]
        );
        for product in &step.products {
            assert!(product.result.is_none());
            let [operand] = &product.operands[..] else {
                panic!("the weight alone")
            };
            assert_eq!(operand.slot, Slot::W);
            let figures = &operand.figures;
            assert!(figures.sqnr.is_some());
            let others = [
                figures.mse,
                figures.slope,
                figures.underflow,
                figures.saturation,
                figures.amax,
            ];
            assert_eq!(others, [None; 5]);
            assert!(figures.scale_inv_histogram.is_none() && figures.block_sqnr.is_none());
        }
    }
}

#[test]
fn inference_is_recorded_where_it_is_asked_for() {
    keep_quantized_weights(true);
    let device = mx_device(&MxSpecs::mxfp4());
    let folder = folder();
    let config = RecorderConfig {
        pass: Pass::Inference,
        ..RecorderConfig::default()
    };
    let recording = record_here(config, &folder);
    let model = label_parameters(model::<Mlp, Mx>(&device));
    let evaluated = model.valid();
    for _ in 0..2 {
        evaluated.outputs(&device);
        recording.next_step();
    }
    // Neither is training a part of it, nor does it end a step.
    model.outputs(&device).sum().backward();
    // Nobody ends this one; copies of the weights are kept by now, and recorded as they were.
    evaluated.outputs(&device);
    let report = recording.finish().expect("the records are whole");
    let [first, second, third] = steps(&report)[..] else {
        panic!("three steps")
    };
    assert_eq!(first.products, second.products);
    assert_eq!(first.products, third.products);
    assert_eq!(first.products.len(), 4);
}

#[test]
#[should_panic(expected = "steps end with each backward pass")]
fn steps_of_training_end_by_themselves() {
    let folder = folder();
    record_here(RecorderConfig::default(), &folder).next_step();
}

#[test]
fn threads_do_not_mix() {
    let train = |specs: MxSpecs, steps: usize| {
        let folder = folder();
        let recording = record_here(RecorderConfig::default(), &folder);
        let device = mx_device(&specs);
        let model = label_parameters(model::<Mlp, Mx>(&device));
        for _ in 0..steps {
            model.outputs(&device).sum().backward();
        }
        recording.finish().expect("the records are whole")
    };
    let runs = [(MxSpecs::mxfp4(), 3), (MxSpecs::mxint8(), 5)];
    let alone = runs.clone().map(|(specs, steps)| train(specs, steps));
    let together = thread::scope(|scope| {
        let threads = runs.map(|(specs, steps)| scope.spawn(move || train(specs, steps)));
        threads.map(|thread| thread.join().expect("it trains"))
    });
    for (together, alone) in together.iter().zip(&alone) {
        assert_eq!(steps(together), steps(alone));
    }
    // A backward pass that a rayon task begins moves to another thread; its products are the task's.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
    let in_a_task = pool
        .expect("threads can be started")
        .install(|| train(MxSpecs::mxfp4(), 3));
    assert_eq!(steps(&in_a_task), steps(&alone[0]));
}

#[test]
fn a_run_that_dies_leaves_what_it_recorded() {
    let folder = folder();
    let device = mx_device(&MxSpecs::mxfp4());
    let run = |steps: u64, first: u64, append: bool| {
        let recorder = Recorder::new(RecorderConfig::default())
            .run("a")
            .first_step(first)
            .on_this_thread();
        let recording = match append {
            true => recorder.append(&folder),
            false => recorder.start(&folder),
        };
        let recording = recording.expect("the folder can be written to");
        let model = label_parameters(model::<Mlp, Mx>(&device));
        for _ in 0..steps {
            model.outputs(&device).sum().backward();
        }
        drop(recording);
    };
    run(3, 0, false);
    let path = folder.path().join(RECORDS);
    let whole = fs::read_to_string(&path).expect("it is there");
    assert_eq!(whole.lines().count(), 4);
    // Broken off in the middle of a line.
    fs::write(&path, &whole[..whole.len() - 200]).expect("it can be written");
    let report = Report::read([folder.path()]).expect("a torn end is no error");
    assert_eq!(steps(&report).len(), 2);
    // And gone on with: the later record of a step counts.
    run(3, 1, true);
    let report = Report::read([folder.path()]).expect("the torn line is passed over");
    let recorded: Vec<u64> = report.steps().map(|step| step.step).collect();
    assert_eq!(recorded, [0, 1, 2, 3]);

    report
        .save(folder.path().join("out"))
        .expect("it can be written");
    let html = fs::read_to_string(folder.path().join("out").join(REPORT_HTML)).expect("a page");
    assert!(html.contains("up.weight") && !html.contains("__DATA__"));
    let json = fs::read_to_string(folder.path().join("out").join(REPORT_JSON)).expect("its data");
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["runs"][0]["steps"], serde_json::json!([0, 1, 2, 3]));
    assert!(report.table().contains("up.weight"));

    // A line that is none, in the middle.
    let torn = whole.replacen("\"step\":1", "\"step\":\"one\"", 1);
    fs::write(&path, torn).expect("it can be written");
    let error = Report::read([folder.path()])
        .expect_err("line 3 is no record")
        .to_string();
    assert!(error.contains("line 3") && error.contains("one"), "{error}");
}

#[test]
fn what_cannot_be_is_refused_before_any_work() {
    let message = |config: RecorderConfig| {
        let folder = folder();
        let error = Recorder::new(config)
            .on_this_thread()
            .start(&folder)
            .expect_err("it is refused");
        assert!(!folder.path().join(RECORDS).exists());
        error.to_string()
    };
    let default = RecorderConfig::default;
    assert_eq!(
        message(RecorderConfig {
            every: 0,
            ..default()
        }),
        "`every` is 0; allowed: 1 or more"
    );
    assert_eq!(
        message(RecorderConfig {
            start: 5,
            end: Some(5),
            ..default()
        }),
        "`end` is 5; allowed: more than `start`, 5"
    );
    assert!(
        message(RecorderConfig {
            operands: vec![],
            ..default()
        })
        .starts_with("`operands` is empty")
    );
    assert!(
        message(RecorderConfig {
            layers: vec!["a[".into()],
            ..default()
        })
        .starts_with("`layers` is a[")
    );
    let unknown = message(default().what_if(["mxfp5"]));
    assert!(
        unknown.starts_with("`what_if` is mxfp5") && unknown.contains("mxfp4_sr_rht"),
        "{unknown}"
    );
    assert!(message(default().what_if(["mxfp4", "mxfp4"])).contains("each format once"));
    let typo = serde_json::from_str::<RecorderConfig>(r#"{"evry": 3}"#).expect_err("a typo");
    assert!(typo.to_string().contains("evry"), "{typo}");

    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "").expect("it can be written");
    let below = Recorder::new(default())
        .on_this_thread()
        .start(file.join("below"))
        .expect_err("no folder");
    assert!(matches!(below, RecordError::Io { .. }) && below.to_string().contains("below"));

    let first = record_here(default(), &folder);
    let second = Recorder::new(default())
        .on_this_thread()
        .start(folder.path().join("other"));
    assert!(matches!(
        second.expect_err("there is one"),
        RecordError::Running { .. }
    ));
    drop(first);
    let again = Recorder::new(default())
        .on_this_thread()
        .start(&folder)
        .expect_err("it has records");
    assert!(matches!(again, RecordError::Exists { .. }) && again.to_string().contains(RECORDS));
    let missing = Report::read([Path::new("/nowhere/at/all")]).expect_err("there is none");
    assert!(missing.to_string().contains("/nowhere/at/all"), "{missing}");
}

#[test]
fn burn_train_sees_the_worst_and_the_mean() {
    let folder = folder();
    let recording = record_here(RecorderConfig::default(), &folder);
    let metadata = || MetricMetadata {
        progress: Progress {
            items_processed: 1,
            items_total: 1,
        },
        global_progress: Progress {
            items_processed: 1,
            items_total: 1,
        },
        iteration: Some(1),
        lr: None,
    };
    let mut worst = MxSqnr::worst(&recording);
    let nothing = worst.update(&(), &metadata());
    assert!(nothing.formatted.contains("nothing recorded yet"));

    let device = mx_device(&MxSpecs::mxfp4());
    let model = label_parameters(model::<Mlp, Mx>(&device));
    model.outputs(&device).sum().backward();
    let latest = recording.latest().expect("a step was recorded");
    let operands = latest.products.iter().flat_map(|product| &product.operands);
    let figures: Vec<_> = operands.map(|operand| operand.figures.clone()).collect();
    let all = |figure: fn(&burn_mx::record::Figures) -> Option<f64>| -> Vec<f64> {
        figures.iter().filter_map(figure).collect()
    };
    let value = |entry: NumericEntry| entry.current();
    let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len() as f64;

    let sqnr = all(|figures| figures.sqnr);
    let entry = worst.update(&(), &metadata());
    assert_eq!(
        value(worst.value()),
        sqnr.iter().copied().fold(f64::INFINITY, f64::min)
    );
    assert!(
        entry.formatted.contains("weight") && entry.formatted.contains("dB"),
        "{}",
        entry.formatted
    );
    let mut of_all = MxSqnr::mean(&recording);
    of_all.update(&(), &metadata());
    assert!((value(of_all.value()) - mean(&sqnr)).abs() < 1e-9);
    assert_ne!(worst.name(), of_all.name());

    let mut underflow = MxUnderflow::worst(&recording);
    underflow.update(&(), &metadata());
    let largest = |figures: Vec<f64>| figures.into_iter().fold(0.0, f64::max);
    assert_eq!(
        value(underflow.value()),
        largest(all(|figures| figures.underflow))
    );
    let mut saturation = MxSaturation::worst(&recording);
    saturation.update(&(), &metadata());
    assert_eq!(
        value(saturation.value()),
        largest(all(|figures| figures.saturation))
    );
}
