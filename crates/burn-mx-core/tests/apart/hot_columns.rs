//! Hot columns, forward and gradients.

use std::sync::{Arc, Mutex};

use burn_core::module::Param;
use burn_core::tensor::Tensor;
use burn_core::tensor::module::linear;
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::hooks::{Events, Observer, install_on_this_thread};
use burn_mx_core::{ColumnRanking, GradientOperands, HotColumns, MxBackend, MxDevice, MxSpecs};
use burn_mx_module::label_parameters;
use microscaling::{BlockFormat, ElementFormat, Rounding, ScaleMode};

use super::exact::*;
use super::specs;

/// A block of hot columns, coarse enough to change numbers.
const FP3: &str = "mx(element=int4,block_size=8)";

const SHAPES: [[usize; 4]; 6] = [
    [1, 4, 40, 9],
    [2, 3, 64, 17],
    [1, 32, 30, 16],
    [3, 5, 7, 5],
    [1, 1, 20, 1],
    [2, 17, 33, 12],
];

/// In two parts, gradients from the operands before quantization, or from the forward product's.
fn parts(
    layer: &Layer,
    hot_format: &str,
    order: &[usize],
    hot: usize,
    by_forward: bool,
) -> [Rows; 3] {
    let (x, w, g) = (layer.x(), layer.w(), layer.g());
    let (hot, others) = order.split_at(hot);
    let [hot_x, other_x] = [(hot, hot_format), (others, FP4)]
        .map(|(columns, format)| in_rows(&columns_of(&x, columns), format));
    let [hot_w, other_w] = [(hot, hot_format), (others, FP4)]
        .map(|(rows, format)| in_columns(&rows_of(&w, rows), format));
    let y = plus(&times(&other_x, &other_w), &times(&hot_x, &hot_w));

    let saved_w = match by_forward {
        true => placed([hot_w, other_w], order),
        false => w,
    };
    let dx = times(&in_rows(&g, FP4), &in_columns(&transposed(&saved_w), FP4));
    let saved_x = match by_forward {
        true => transposed(&placed([transposed(&hot_x), transposed(&other_x)], order)),
        false => x,
    };
    let dw = [(hot, hot_format), (others, FP4)].map(|(columns, format)| {
        let along_rows = |entry: Rows| in_columns(&entry, format);
        let x = layer.by_entry(&columns_of(&saved_x, columns), along_rows);
        let g = layer.by_entry(&g, along_rows);
        times(&transposed(&x), &g)
    });
    [y, dx, placed(dw, order)]
}

#[test]
fn hot_columns_are_a_product_in_their_own_format() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let layer = Layer::random(shape, seed as u64);
        for (format, percent, multiple) in [(FP8, 20, 1), (FP3, 35, 4), (FP8, 99, 3)] {
            let text =
                format!("hot_columns(percent={percent},multiple={multiple},format={format})");
            let hot = text.parse::<HotColumns>().expect("it is hot columns");
            let most = (shape[2] - 1) / multiple * multiple;
            let share = (shape[2] * percent / 100).div_ceil(multiple) * multiple;
            let count = share.min(most);
            assert_eq!(hot.count(shape[2]), count);
            let specs = specs(&text);
            let expected = parts(&layer, format, &layer.by_norm(), count, false);
            layer.assert(&layer.pass(&specs), expected, &text);

            let by_forward = MxSpecs {
                gradient_operands: GradientOperands::Forward,
                ..specs
            };
            let expected = parts(&layer, format, &layer.by_norm(), count, true);
            layer.assert(&layer.pass(&by_forward), expected, &text);
        }
    }
}

#[test]
fn a_straight_through_gradient_reads_both_parts() {
    let layer = Layer::random([2, 3, 64, 17], 4);
    let text = format!("hot_columns(percent=25,format={FP8})");
    let [y, ..] = parts(&layer, FP8, &layer.by_norm(), 16, true);
    let order = layer.by_norm();
    let (hot, others) = order.split_at(16);
    let w = [(hot, FP8), (others, FP4)]
        .map(|(rows, format)| in_columns(&rows_of(&layer.w(), rows), format));
    let x = [(hot, FP8), (others, FP4)]
        .map(|(columns, format)| transposed(&in_rows(&columns_of(&layer.x(), columns), format)));
    let dx = times(&layer.g(), &transposed(&placed(w, &order)));
    let dw = times(&placed(x, &order), &layer.g());
    let got = layer.pass(&specs(&text).straight_through());
    layer.assert(&got, [y, dx, dw], &text);
}

#[test]
fn hot_columns_without_a_format_are_exact() {
    let layer = Layer::random([1, 4, 40, 9], 8);
    let [y, ..] = layer.pass(&specs("hot_columns(percent=99)"));
    let order = layer.by_norm();
    let (hot, others) = order.split_at(39);
    let part = |columns: &[usize]| {
        [
            columns_of(&layer.x(), columns),
            rows_of(&layer.w(), columns),
        ]
    };
    let ([hot_x, hot_w], [x, w]) = (part(hot), part(others));
    let expected = plus(
        &times(&hot_x, &hot_w),
        &times(&in_rows(&x, FP4), &in_columns(&w, FP4)),
    );
    let expected = plus(
        &expected,
        &vec![layer.bias.iter().map(|x| f64::from(*x)).collect(); 4],
    );
    assert_eq!(rows(&y, 9), expected);
}

/// y = x̃·w̃ − Δx·w̃ − x̃·Δw, the last two over hot columns.
fn with_residuals(layer: &Layer, order: &[usize], hot: usize, format: Option<&str>) -> Rows {
    let (x, w) = (layer.x(), layer.w());
    let (qx, qw) = (in_rows(&x, FP4), in_columns(&w, FP4));
    let hot = &order[..hot];
    let residual = |q: &Rows, exact: &Rows| minus(q, exact);
    let dx = residual(&columns_of(&qx, hot), &columns_of(&x, hot));
    let dw = residual(&rows_of(&qw, hot), &rows_of(&w, hot));
    let (dx, dw) = match format {
        Some(format) => (in_rows(&dx, format), in_columns(&dw, format)),
        None => (dx, dw),
    };
    let patch = plus(
        &times(&dx, &rows_of(&qw, hot)),
        &times(&columns_of(&qx, hot), &dw),
    );
    minus(&times(&qx, &qw), &patch)
}

/// The gradients of a layer without hot columns.
fn usual_gradients(layer: &Layer) -> [Rows; 2] {
    let g = layer.g();
    let dx = times(&in_rows(&g, FP4), &in_columns(&transposed(&layer.w()), FP4));
    let along_rows = |entry: Rows| in_columns(&entry, FP4);
    let [x, g] = [layer.x(), g].map(|matrix| layer.by_entry(&matrix, along_rows));
    [dx, times(&transposed(&x), &g)]
}

#[test]
fn residuals_of_hot_columns_are_subtracted() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let layer = Layer::random(shape, 20 + seed as u64);
        let (x, w) = (layer.x(), layer.w());
        let dx = minus(&in_rows(&x, FP4), &x);
        let dw = minus(&in_columns(&w, FP4), &w);
        // The sums are exact, and both quotients and their sum are float32.
        let score = |column: usize| -> f32 {
            let of_x: f64 = dx.iter().map(|row| row[column].abs()).sum();
            let of_w: f64 = dw[column].iter().map(|x| x.abs()).sum();
            of_x as f32 / dx.len() as f32 + of_w as f32 / dw[column].len() as f32
        };
        let mut order: Vec<usize> = (0..shape[2]).collect();
        order.sort_by(|a, b| score(*b).total_cmp(&score(*a)));
        let by_score = "percent=30,score=error,treatment=residual";
        let hot = shape[2] * 30 / 100;
        let [dx, dw] = usual_gradients(&layer);
        for (format, order, text) in [
            (
                None,
                layer.by_norm(),
                "percent=30,treatment=residual".to_owned(),
            ),
            (None, order.clone(), by_score.to_owned()),
            (Some(FP3), order, format!("{by_score},format={FP3}")),
        ] {
            let text = format!("hot_columns({text})");
            let y = with_residuals(&layer, &order, hot, format);
            layer.assert(
                &layer.pass(&specs(&text)),
                [y, dx.clone(), dw.clone()],
                &text,
            );
        }
    }
}

#[test]
fn a_ranking_fixes_hot_columns_and_none_is_no_hot_columns() {
    let layer = Layer::random([2, 3, 20, 6], 3);
    let fixed = format!("chosen=fixed,percent=40,format={FP8}");
    let without = layer.pass(&specs(&format!("hot_columns({fixed})")));
    assert_eq!(without, layer.pass(&specs("")));

    let order: Vec<usize> = (0..20).map(|i| (i * 7 + 3) % 20).collect();
    let ranking: Vec<u32> = order.iter().map(|i| *i as u32).collect();
    let ranking = ColumnRanking::new(&ranking).expect("each index is there once");
    let text = format!("hot_columns({fixed},ranking={ranking})");
    let expected = parts(&layer, FP8, &order, 8, false);
    layer.assert(&layer.pass(&specs(&text)), expected, &text);
    // The specs pass through text.
    let specs = specs(&text);
    assert_eq!(MxSpecs::from_json(&specs.to_json()), Ok(specs.clone()));
    let hot = specs.hot_columns.expect("they were set");
    assert_eq!(hot.to_string().parse(), Ok(hot));
}

#[test]
#[should_panic(expected = "`hot_columns.ranking` has 3 columns, and a linear layer has 20")]
fn a_ranking_of_another_layer_is_refused() {
    let text = "hot_columns(chosen=fixed,ranking=2 0 1)";
    Layer::random([2, 3, 20, 6], 3).pass(&specs(text));
}

#[test]
fn inference_equals_training_and_a_narrow_layer_has_no_hot_columns() {
    let layer = Layer::random([1, 8, 64, 5], 9);
    let text = format!("hot_columns(percent=10,multiple=32,format={FP8})");
    for specs in [specs(&text), specs(&text.replace("32,f", "64,f"))] {
        let device = MxDevice::new(FlexDevice, &specs).expect("sound specs");
        let x = tensor::<MxBackend<Flex>, 3>(&layer.x, [1, 8, 64], &device);
        let w = tensor::<MxBackend<Flex>, 2>(&layer.w, [64, 5], &device);
        let bias = tensor(&layer.bias, [5], &device);
        let [y, ..] = layer.pass(&specs);
        assert_eq!(values(linear(x, w, Some(bias))), y);
    }
    let narrow = specs(&text.replace("32,f", "64,f"));
    assert_eq!(layer.pass(&narrow), layer.pass(&specs("")));
    assert_ne!(layer.pass(&specs(&text)), layer.pass(&specs("")));
}

/// Keeps scores.
#[derive(Default)]
struct Scores(Mutex<Vec<(&'static str, Vec<f32>)>>);

impl Observer for Scores {
    fn events(&self) -> Events {
        Events::COLUMNS
    }

    fn wants_columns(&self, label: &'static str) -> bool {
        label == "0"
    }

    fn columns(&self, label: &'static str, scores: &[f32]) {
        let mut seen = self.0.lock().expect("nobody panics");
        seen.push((label, scores.to_vec()));
    }
}

#[test]
fn observers_see_scores_of_fixed_columns() {
    let specs = specs("hot_columns(chosen=fixed)");
    let device = MxDevice::new(FlexDevice, &specs).expect("sound specs");
    let weight = Tensor::<Emulated, 2>::ones([3, 2], &device);
    let model = label_parameters(vec![Param::from_tensor(weight)]);
    let scores = Arc::new(Scores::default());
    let installed = install_on_this_thread(scores.clone());
    let x = tensor::<Emulated, 2>(&[3.0, 0.0, -1.0, 4.0, 0.0, 2.0], [2, 3], &device);
    let _ = linear(x, model[0].val(), None);
    drop(installed);
    let seen = scores.0.lock().expect("nobody panics");
    assert_eq!(*seen, [("0", vec![5.0, 0.0, 5.0_f32.sqrt()])]);
}

#[test]
fn wrong_hot_columns_are_errors_of_the_specs() {
    let hot = |fields: &str| specs(&format!("hot_columns({fields})"));
    let square = "format=nvfp4(square=true)";
    let hadamard = MxSpecs {
        hadamard_forward: Some("16:none".parse().expect("a transform")),
        ..hot("percent=5")
    };
    let mask = MxSpecs {
        mask_clipped: true,
        ..hot("percent=5")
    };
    let accumulator = MxSpecs {
        accumulator: Some("hopper".parse().expect("a chip")),
        ..hot("percent=5")
    };
    let stochastic = MxSpecs {
        round_mx_output: Some(Rounding::Stochastic),
        ..hot("treatment=residual")
    };
    let scale_mode = MxSpecs {
        w_elem_format: Some(ElementFormat::FP4_E2M1.into()),
        a_elem_format: Some(ElementFormat::FP4_E2M1.into()),
        block_size: 16,
        scale_mode: ScaleMode::Rms,
        ..hot("format=int8")
    };
    let nothing = MxSpecs {
        w_elem_format: None,
        a_elem_format: None,
        ..hot("percent=5")
    };
    for (specs, parts) in [
        (hot("percent=0"), ["`hot_columns.percent` is 0", "1 to 99"]),
        (
            hot("percent=100"),
            ["`hot_columns.percent` is 100", "1 to 99"],
        ),
        (
            hot("multiple=0"),
            ["`hot_columns.multiple` is 0", "1 or more"],
        ),
        (hot(square), ["`hot_columns.format` is", "square=true"]),
        (
            hot("rounding=stochastic"),
            ["`hot_columns.rounding` is stochastic", "even"],
        ),
        (
            hot("ranking=1 0"),
            ["`hot_columns.ranking` is 1 0", "chosen=fixed"],
        ),
        (hadamard, ["`hadamard_forward` is 16:none", "none"]),
        (mask, ["`mask_clipped` is true", "false"]),
        (accumulator, ["`accumulator` is hopper", "none"]),
        (stochastic, ["`round_mx_output` is stochastic", "even"]),
        (scale_mode, ["`hot_columns.format` is int8", "rms"]),
        (nothing, ["`hot_columns` is hot_columns(percent=5)", "none"]),
    ] {
        let error = specs
            .resolve()
            .expect_err("the specs are wrong")
            .to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn wrong_texts_of_hot_columns_are_errors() {
    for (text, parts) in [
        ("hot", ["hot columns `hot` are unknown", "percent"]),
        ("hot_columns(share=3)", ["share", "percent"]),
        (
            "hot_columns(score=norm)",
            ["`score` is `norm`", "input, error"],
        ),
        (
            "hot_columns(ranking=0 0)",
            ["`ranking` is `0 0`", "every index from 0"],
        ),
        (
            "hot_columns(ranking=0 2)",
            ["`ranking` is `0 2`", "every index from 0"],
        ),
        ("hot_columns(format=fp9)", ["`format` is `fp9`", "fp8_e4m3"]),
    ] {
        let error = text
            .parse::<HotColumns>()
            .expect_err("the text is wrong")
            .to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn an_element_has_the_blocks_of_the_slots() {
    let specs = MxSpecs {
        w_elem_format: Some(ElementFormat::FP4_E2M1.into()),
        a_elem_format: Some(ElementFormat::FP4_E2M1.into()),
        ..MxSpecs {
            scale_bits: 8,
            block_size: 16,
            ..specs("hot_columns(format=fp8_e4m3)")
        }
    };
    let format = specs.resolve().expect("sound specs").hot_format();
    assert_eq!(format, Some(BlockFormat::mx(ElementFormat::FP8_E4M3, 16)));
    let nan = ColumnRanking::of_scores(&[1.0, f32::NAN, 1.0, 3.0]).expect("there are scores");
    assert_eq!(nan.order(), [1, 3, 0, 2]);
}

/// The Hadamard transform of 16 elements without signs, in each column.
fn transformed_columns(matrix: &Rows) -> Rows {
    let block = |block: &[f64]| -> Vec<f64> {
        let sign = |i: usize, j: usize| f64::from(1 - 2 * ((i & j).count_ones() as i32 % 2));
        let element = |i| {
            block
                .iter()
                .enumerate()
                .map(|(j, x)| sign(i, j) * x / 4.0)
                .sum()
        };
        (0..16).map(element).collect()
    };
    let row = |row: &Vec<f64>| row.chunks(16).flat_map(block).collect();
    transposed(&transposed(matrix).iter().map(row).collect())
}

#[test]
fn hot_rows_of_a_weights_gradient_are_not_transformed() {
    let layer = Layer::random([1, 32, 30, 16], 5);
    let text = format!("hot_columns(percent=20,format={FP8})");
    let transform = MxSpecs {
        hadamard_weight_grad: Some("16:none".parse().expect("a transform")),
        ..specs(&text)
    };
    let order = layer.by_norm();
    let (hot, others) = order.split_at(6);
    let along_rows = |matrix: &Rows, format| in_columns(matrix, format);
    let (x, g) = (layer.x(), layer.g());
    let hot = times(
        &transposed(&along_rows(&columns_of(&x, hot), FP8)),
        &along_rows(&g, FP8),
    );
    let [x, g] =
        [columns_of(&x, others), g].map(|matrix| along_rows(&transformed_columns(&matrix), FP4));
    let dw = placed([hot, times(&transposed(&x), &g)], &order);
    let [y, dx, _] = parts(&layer, FP8, &order, 6, false);
    layer.assert(&layer.pass(&transform), [y, dx, dw], &text);
}
