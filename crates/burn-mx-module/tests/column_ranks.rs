//! Hot columns that are ranked over a window of training steps.

use std::sync::Mutex;

use burn_core as burn;
use burn_core::module::{Module, Param};
use burn_core::tensor::{Tensor, TensorData, backend::Backend, module::linear};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxAutodiff, MxBackend, MxDevice, MxSpecs};
use burn_mx_module::{ColumnRanks, ColumnRecord, label_parameters, set_specs_at, specs_of};

type Mx = MxAutodiff<Flex>;

/// A watch sees the layers of all threads, and the tests' layers have the same paths.
static ALONE: Mutex<()> = Mutex::new(());

/// Named as Burn's: a layer is found by the name.
#[derive(Module, Debug)]
struct Linear<B: Backend> {
    weight: Param<Tensor<B, 2>>,
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
    head: Linear<B>,
}

const WIDTH: usize = 8;

fn specs() -> MxSpecs {
    MxSpecs {
        hot_columns: "hot_columns(chosen=fixed,percent=25,format=mxfp8_e4m3)"
            .parse()
            .ok(),
        ..MxSpecs::mxfp4()
    }
}

fn numbers(seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..3 * WIDTH).map(|_| next()).collect()
}

fn net() -> Net<Mx> {
    let device = MxDevice::new(FlexDevice, specs()).expect("sound specs");
    let layer = || Linear {
        weight: Param::from_tensor(Tensor::ones([WIDTH, WIDTH], &device)),
    };
    let net = Net {
        first: layer(),
        second: layer(),
        head: layer(),
    };
    let float = MxSpecs::preset("bfloat16").and_then(|specs| specs.resolve());
    let net = set_specs_at(net, "head", &float.expect("sound specs"));
    label_parameters(net.expect("the head is there"))
}

/// A training step: both layers see numbers of this step.
fn step(net: &Net<Mx>, step: u32) {
    let device = net.first.weight.val().device();
    for (layer, seed) in [(&net.first, step), (&net.second, step + 100)] {
        let data = TensorData::new(numbers(seed), [3, WIDTH]);
        let x = Tensor::<Mx, 2>::from_data(data, &device);
        let loss = linear(x, layer.weight.val(), None).sum();
        let _ = loss.backward();
    }
}

/// The ranking after windows of these steps.
fn by_sums(steps: impl Iterator<Item = u32>, seed: u32) -> Vec<u32> {
    let mut sums = [0.0; WIDTH];
    for step in steps {
        let x = numbers(step + seed);
        for (column, sum) in sums.iter_mut().enumerate() {
            let of_column = x.iter().skip(column).step_by(WIDTH);
            *sum += of_column.map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        }
    }
    let mut order: Vec<u32> = (0..WIDTH as u32).collect();
    order.sort_by(|a, b| sums[*b as usize].total_cmp(&sums[*a as usize]));
    order
}

fn rankings(net: &Net<Mx>) -> [Option<Vec<u32>>; 3] {
    [&net.first, &net.second, &net.head].map(|layer| {
        let specs = specs_of(&layer.weight.val()).expect("the device has specs");
        let ranking = specs.hot_columns()?.ranking.as_ref()?;
        Some(ranking.order().to_vec())
    })
}

#[test]
fn a_window_ranks_columns() {
    let _alone = ALONE.lock();
    for period in [0, 5] {
        let mut net = net();
        let ranks = ColumnRanks {
            start: 2,
            steps: 3,
            period,
        };
        let mut watch = ranks.watch(&net, 0).expect("sound settings");
        for number in 0..14 {
            // Steps 3, 4 and 5 are the window; the next ones begin with steps 8 and 13.
            let expected = match (number, period) {
                (0..=5, _) => [None, None, None],
                (6..=10, _) | (_, 0) => [Some(by_sums(3..6, 0)), Some(by_sums(3..6, 100)), None],
                _ => [Some(by_sums(8..11, 0)), Some(by_sums(8..11, 100)), None],
            };
            assert_eq!(
                rankings(&net),
                expected,
                "before step {number}, period {period}"
            );
            step(&net, number);
            // Inference does not count.
            let x = Tensor::<MxBackend<Flex>, 2>::ones(
                [1, WIDTH],
                &net.first.weight.val().inner().device(),
            );
            let _ = linear(x * 50.0, net.first.weight.val().inner(), None);
            net = watch.after_step(net);
        }
    }
}

#[test]
fn wrong_windows_and_models_are_errors() {
    let ranks = ColumnRanks::default();
    assert_eq!((ranks.start, ranks.steps, ranks.period), (501, 50, 0));
    let error = |ranks: ColumnRanks, net: &Net<Mx>| {
        let error = ranks.watch(net, 0).expect_err("it is wrong");
        error.to_string()
    };
    let net = net();
    assert_eq!(
        error(ColumnRanks { steps: 0, ..ranks }, &net),
        "`steps` is 0; allowed: 1 or more"
    );
    assert_eq!(
        error(
            ColumnRanks {
                period: 50,
                ..ranks
            },
            &net
        ),
        "`period` is 50; allowed: 0, or more than `steps`"
    );
    let without = MxSpecs::mxfp4().resolve().expect("sound specs");
    let plain = set_specs_at(net.clone(), "*", &without).expect("there are weights");
    assert!(error(ranks, &plain).contains("chosen=fixed"));
    let device = MxDevice::new(FlexDevice, specs()).expect("sound specs");
    let layer = || Linear {
        weight: Param::from_tensor(Tensor::<Mx, 2>::ones([WIDTH, WIDTH], &device)),
    };
    let unnamed = Net {
        first: layer(),
        second: layer(),
        head: layer(),
    };
    assert!(error(ranks, &unnamed).starts_with("the weight `first.weight` has the label none"));
    // A part of the model has other paths.
    assert!(ranks.watch(&net.first, 0).is_err());
}

/// Stopped after each step, and resumed with another model from text.
#[test]
fn a_resumed_watch_goes_on() {
    let _alone = ALONE.lock();
    let ranks = ColumnRanks {
        start: 2,
        steps: 3,
        period: 5,
    };
    let mut text = r#"{"next":0,"sums":{},"rankings":{}}"#.to_owned();
    for number in 0..14 {
        let record = serde_json::from_str(&text).expect("a record");
        let (net, mut watch) = ranks.resume(net(), &record).expect("its own record");
        let expected = match number {
            0..=5 => [None, None, None],
            6..=10 => [Some(by_sums(3..6, 0)), Some(by_sums(3..6, 100)), None],
            _ => [Some(by_sums(8..11, 0)), Some(by_sums(8..11, 100)), None],
        };
        assert_eq!(rankings(&net), expected, "before step {number}");
        step(&net, number);
        let net = watch.after_step(net);
        text = serde_json::to_string(&watch.record(&net)).expect("a record is JSON");
    }
}

#[test]
fn records_of_other_models_are_errors() {
    let ranks = ColumnRanks::default();
    let error = |text: &str| {
        let record: ColumnRecord = serde_json::from_str(text).expect("a record");
        let error = ranks.resume(net(), &record).expect_err("another model's");
        error.to_string()
    };
    assert_eq!(
        error(r#"{"next":0,"sums":{},"rankings":{"first.weight":[1,0]}}"#),
        "the record has 2 columns for `first.weight`; allowed: 8"
    );
    assert_eq!(
        error(r#"{"next":510,"sums":{"third.weight":[0]},"rankings":{}}"#),
        "the record has 1 columns for `third.weight`; allowed: a linear layer of the model with fixed hot columns"
    );
    let twice = r#"{"next":0,"sums":{},"rankings":{"first.weight":[0,0]}}"#;
    let error = serde_json::from_str::<ColumnRecord>(twice).expect_err("an index twice");
    assert!(error.to_string().starts_with("`0` of 2 columns"), "{error}");
}
