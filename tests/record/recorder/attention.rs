//! The two products of attention whose points have formats: rows of the recorder, and the models of cost.

use burn::prelude::Tensor;
use burn::tensor::activation::softmax;
use burn::tensor::module::attention;
use burn_mx::cost::{Numbers, Product, Tables};
use burn_mx::module::scope;
use burn_mx::record::{Pass, ProductKind, ProductRecord, RecorderConfig, Report, products};
use burn_mx::{BlockFormat, ElementFormat, MxSpecs, Rounder, Rounding, attention_scope};

use super::{folder, product, record_here, steps};
use crate::support::{Mx, assert_same_bits, mx_device, noise, noise_tensor, values};

const QUERY: [usize; 4] = [1, 2, 5, 16];
const KEY: [usize; 4] = [1, 2, 12, 16];

fn specs(attention: &str) -> MxSpecs {
    MxSpecs {
        attention: Some(attention.parse().expect(attention)),
        round: Rounding::NearestEven,
        ..MxSpecs::default()
    }
}

/// The rows `block qk` and `block pv` of a training step.
fn rows(attention_specs: &str, written_out: bool) -> [ProductRecord; 2] {
    let device = mx_device(&specs(attention_specs));
    let compute = || {
        let [q, k, v] = [(QUERY, 1), (KEY, 2), (KEY, 3)]
            .map(|(shape, seed)| noise_tensor::<Mx, 4>(shape, seed, &device).require_grad());
        scope("block", || match written_out {
            true => attention_scope(|| softmax(q.matmul(k.transpose()) * 0.25, 3).matmul(v)),
            false => attention(q, k, v, None, None, Default::default()),
        })
    };
    let unseen = values(compute());
    let folder = folder();
    let config = RecorderConfig::default().what_if_accumulators(["blackwell"]);
    let recording = record_here(config, &folder);
    let output = compute();
    output.clone().sum().backward();
    recording.stop().expect("all is written");
    assert_same_bits(&values(output), &unseen, "recorded");
    let report = Report::read([folder.path()]).expect("there are records");
    let steps = steps(&report);
    ["block qk", "block pv"].map(|row| product(steps[0], row, ProductKind::Forward).clone())
}

/// The product of [2, 5, 16] and [2, 12, 16], each with this element and block size.
fn scores(format: Option<BlockFormat>) -> Vec<f64> {
    let operand = |[_, heads, rows, features]: [usize; 4], seed| {
        let mut values = noise(heads * rows * features, seed);
        if let Some(format) = format {
            let shape = [heads * rows, features];
            let rounded = format.quantize(&mut values, &shape, 1, Rounder::NearestEven);
            rounded.expect("axis 1 is one of two");
        }
        values.into_iter().map(f64::from).collect::<Vec<f64>>()
    };
    let (q, k) = (operand(QUERY, 1), operand(KEY, 2));
    let of = |head: usize, query: usize, key: usize| {
        let [q, k] = [
            &q[(head * 5 + query) * 16..][..16],
            &k[(head * 12 + key) * 16..][..16],
        ];
        q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>()
    };
    let all = (0..2 * 5 * 12).map(|i| of(i / 60, i / 12 % 5, i % 12));
    all.collect()
}

#[test]
fn each_product_has_a_row_with_its_error() {
    let text = "attention(q=nvfp4,k=nvfp4,v=fp8_e4m3,v_range=2.25,probabilities=mxfp8_e4m3,output=bfloat16)";
    for written_out in [false, true] {
        let [qk, pv] = rows(text, written_out);
        assert_eq!((qk.uses, qk.macs, qk.result_elements), (1, 1920, 120));
        assert_eq!((pv.uses, pv.macs, pv.result_elements), (1, 1920, 160));
        let formats = |row: &ProductRecord| {
            let formats = row.operands.iter().map(|operand| {
                let format = operand.format.clone();
                (operand.operand.clone(), format.expect("it has one"))
            });
            formats.collect::<Vec<_>>()
        };
        let pair = |lhs: &str, rhs: &str| {
            [("lhs", lhs), ("rhs", rhs)].map(|(side, format)| (side.into(), format.into()))
        };
        assert_eq!(formats(&qk), pair("nvfp4", "nvfp4"));
        assert_eq!(formats(&pv), pair("mxfp8_e4m3", "fp8_e4m3"));
        assert!(qk.sums.is_none() && qk.accumulator.is_none());
        let format = "nvfp4".parse().expect("it is a name");
        let (got, exact) = (scores(Some(format)), scores(None));
        let error: f64 = got
            .iter()
            .zip(&exact)
            .map(|(got, x)| (got - x).powi(2))
            .sum();
        let expected = (error / exact.iter().map(|x| x * x).sum::<f64>()).sqrt();
        let error = qk.result.expect("it is recorded").relative_error;
        let error = error.expect("scores are not 0");
        assert!(
            (error - expected).abs() < 1e-5 * expected,
            "{error}, {expected}"
        );
        assert!(pv.result.expect("it is recorded").relative_error > Some(1e-3));
    }
}

#[test]
fn a_matrix_unit_has_the_errors_of_its_sums() {
    let unit = "accumulator(order=joint,terms=4,fraction_bits=8,output=bf16_rz)";
    let fp8 = "mx(element=fp8_e4m3,block_size=4)";
    let tiles = format!(
        "attention(q={fp8},k={fp8},v={fp8},exponentials={fp8},qk_accumulator={unit},pv_accumulator={unit},tile=8)"
    );
    let [qk, pv] = rows(&tiles, false);
    // Tiles of 8 and 4 keys.
    assert_eq!((qk.uses, pv.uses), (1, 2));
    assert_eq!((pv.macs, pv.result_elements), (1920, 320));
    for row in [qk, pv] {
        let layer = &row.layer;
        assert_eq!(row.accumulator.as_deref(), Some(unit), "{layer}");
        let sums = row.sums.expect(layer);
        assert_eq!(sums.figures.sums, row.result_elements, "{layer}");
        assert!(
            sums.figures.relative_error > Some(1e-3),
            "{layer}: {sums:?}"
        );
        assert_eq!(sums.what_if.len(), 1, "{layer}");
    }
}

/// Products of a forward pass, with the gradients' where wanted.
fn listed(attention_specs: &str, pass: Pass) -> Vec<Product> {
    let device = mx_device(&specs(attention_specs));
    products(pass, || {
        let [q, k, v] = [(QUERY, 1), (KEY, 2), (KEY, 3)]
            .map(|(shape, seed)| noise_tensor::<Mx, 4>(shape, seed, &device));
        let _: Tensor<Mx, 4> = attention(q, k, v, None, None, Default::default());
    })
}

#[test]
fn models_of_cost_read_the_formats_of_points() {
    let text = "attention(q=nvfp4,k=mxfp4,v=fp8_e4m3,probabilities=bfloat16,d_output=mxfp8_e5m2,d_scores=fp8_e5m2)";
    let block = |name: &str| Numbers::from(name.parse::<BlockFormat>().expect(name));
    let element = |element: ElementFormat| Numbers::from(element);
    let bfloat16 = Numbers::float(burn_mx::FloatFormat::bfloat(16).ok());
    let (fp8, grad) = (
        element(ElementFormat::FP8_E4M3),
        element(ElementFormat::FP8_E5M2),
    );
    assert_eq!((fp8.bits, grad.bits), (8.0, 8.0));
    let numbers = |products: &[Product]| {
        let pairs = products.iter().map(|product| {
            assert_eq!(product.macs, 1920.0);
            (
                product.layer.clone(),
                product.lhs.numbers,
                product.rhs.numbers,
            )
        });
        pairs.collect::<Vec<_>>()
    };
    let (qk, pv) = ("attention qk".to_owned(), "attention pv".to_owned());
    let training = vec![
        (qk.clone(), block("nvfp4"), block("mxfp4")),
        (qk.clone(), grad, block("mxfp4")),
        (qk, grad, block("nvfp4")),
        (pv.clone(), bfloat16, fp8),
        (pv.clone(), block("mxfp8_e5m2"), fp8),
        (pv, bfloat16, block("mxfp8_e5m2")),
    ];
    assert_eq!(numbers(&listed(text, Pass::Training)), training);
    let inference = [training[0].clone(), training[3].clone()];
    assert_eq!(numbers(&listed(text, Pass::Inference)), inference);

    // Narrower points cost less, and a float backward pass reads float32.
    let tables = Tables::default();
    let area = |text: &str| tables.cost(&listed(text, Pass::Training)).area;
    let narrow = area(
        "attention(q=nvfp4,k=nvfp4,v=nvfp4,probabilities=nvfp4,d_output=nvfp4,d_scores=nvfp4)",
    );
    let wide = area("attention(q=nvfp4,k=nvfp4,v=nvfp4,probabilities=nvfp4)");
    assert!(
        narrow < wide && wide < area("attention"),
        "{narrow}, {wide}"
    );
    let float = listed("attention(q=nvfp4,backward=float)", Pass::Training);
    assert_eq!(float[2].rhs.numbers, Numbers::float(None));
    let own = listed(
        "attention(q=nvfp4,q_bp=mxfp4,d_output=mxfp4,d_output_dp=nvfp4,v_bp=fp8_e4m3)",
        Pass::Training,
    );
    assert_eq!(own[2].rhs.numbers, block("mxfp4"));
    assert_eq!(
        [own[4].lhs.numbers, own[4].rhs.numbers],
        [block("nvfp4"), fp8]
    );
    assert_eq!(own[5].rhs.numbers, block("mxfp4"));
}

/// The list has the products that the recorder saw, with their formats and units.
#[test]
fn recorded_products_have_the_listed_cost() {
    let unit = "accumulator(order=joint,terms=4,fraction_bits=8,output=bf16_rz)";
    for text in [
        "attention(q=nvfp4,k=mxfp4,v=fp8_e4m3,probabilities=bfloat16,d_scores=mxfp8_e5m2,d_output_dp=fp8_e5m2)".to_owned(),
        "attention(q=nvfp4,k_bp=mxfp8_e4m3,probabilities_bp=fp8_e4m3,v_bp=bfloat16,q_bp=mxfp4)".to_owned(),
        format!("attention(q=bfloat16,d_scores=bfloat16,k=bfloat16,qk_accumulator={unit},dq_accumulator={unit},dk_accumulator={unit})"),
    ] {
        let device = mx_device(&specs(&text));
        let folder = folder();
        let recording = record_here(RecorderConfig::default(), &folder);
        let [q, k, v] = [(QUERY, 1), (KEY, 2), (KEY, 3)]
            .map(|(shape, seed)| noise_tensor::<Mx, 4>(shape, seed, &device).require_grad());
        attention(q, k, v, None, None, Default::default())
            .sum()
            .backward();
        recording.finish().expect("all is written");
        let report = Report::read([folder.path()]).expect("there are records");
        let recorded = steps(&report)[0].cost_products();
        let without_names = |products: &[Product]| {
            let products = products.iter().map(|product| {
                let Product { macs, lhs, rhs, result_elements, accumulator, .. } = product;
                format!("{macs} {lhs:?} {rhs:?} {result_elements} {accumulator:?}")
            });
            products.collect::<Vec<_>>()
        };
        let listed = without_names(&listed(&text, Pass::Training));
        // The backward pass computes dv, dp, dq and dk.
        let in_order = [0, 3, 5, 4, 1, 2].map(|at| listed[at].clone());
        assert_eq!(without_names(&recorded), in_order, "{text}");
        assert!(text.contains("accumulator") == listed[1].contains("Accumulator"), "{listed:?}");
    }
}

/// A step's gradient products, in the layer of the forward pass.
fn gradients(attention_specs: &str, written_out: bool) -> [ProductRecord; 4] {
    let device = mx_device(&specs(attention_specs));
    let [q, k, v] = [(QUERY, 1), (KEY, 2), (KEY, 3)]
        .map(|(shape, seed)| noise_tensor::<Mx, 4>(shape, seed, &device).require_grad());
    let folder = folder();
    let recording = record_here(RecorderConfig::default().what_if(["mxfp4"]), &folder);
    let leaves = [&q, &k, &v].map(Tensor::clone);
    let output = scope("block", || match written_out {
        true => attention_scope(|| softmax(q.matmul(k.transpose()) * 0.25, 3).matmul(v)),
        false => attention(q, k, v, None, None, Default::default()),
    });
    let grads = (output * noise_tensor(QUERY, 4, &device)).sum().backward();
    recording.stop().expect("all is written");
    let seen = leaves
        .each_ref()
        .map(|leaf| values(leaf.grad(&grads).expect("it is a leaf")));
    assert!(seen.iter().flatten().all(|x| x.is_finite()));
    let report = Report::read([folder.path()]).expect("there are records");
    let steps = steps(&report);
    ["dq", "dk", "dp", "dv"].map(|name| {
        let row = format!("block {name}");
        product(steps[0], &row, ProductKind::InputGradient).clone()
    })
}

#[test]
fn gradient_products_have_rows_with_their_errors() {
    let text = "attention(q=nvfp4,k_bp=mxfp6_e2m3,v=mxfp8_e4m3,probabilities=fp8_e4m3,d_output=nvfp4,d_probabilities=bfloat16,d_scores=mxfp4)";
    for written_out in [false, true] {
        let rows = gradients(text, written_out);
        let formats = rows.each_ref().map(|row| {
            let operands = row.operands.iter().map(|operand| {
                assert_eq!(operand.what_if.len(), 1, "{operand:?}");
                (operand.operand.as_str(), operand.format.as_deref())
            });
            operands.collect::<Vec<_>>()
        });
        let expected = [
            vec![
                ("output gradient", Some("mxfp4")),
                ("rhs", Some("mxfp6_e2m3")),
            ],
            vec![("output gradient", Some("mxfp4")), ("rhs", Some("nvfp4"))],
            vec![
                ("output gradient", Some("nvfp4")),
                ("rhs", Some("mxfp8_e4m3")),
            ],
            vec![
                ("lhs", Some("fp8_e4m3")),
                ("output gradient for rhs", Some("nvfp4")),
            ],
        ];
        assert_eq!(formats, expected);
        for row in &rows {
            assert_eq!((row.uses, row.macs), (1, 1920), "{}", row.layer);
            let error = row.result.expect("it is recorded").relative_error;
            assert!(
                error > Some(1e-3) && error < Some(0.5),
                "{}: {error:?}",
                row.layer
            );
        }
        // dP = dO·vᵀ, beside float64.
        let (fp4, fp8) = ("nvfp4".parse().ok(), "mxfp8_e4m3".parse().ok());
        let (got, exact) = (
            gradient_of_probabilities([fp4, fp8]),
            gradient_of_probabilities([None; 2]),
        );
        let square = |x: f64| x * x;
        let error: f64 = got.iter().zip(&exact).map(|(got, x)| square(got - x)).sum();
        let expected = (error / exact.iter().map(|x| square(*x)).sum::<f64>()).sqrt();
        let error = rows[2].result.expect("it is recorded").relative_error;
        let error = error.expect("gradients are not 0");
        assert!(
            (error - expected).abs() < 1e-5 * expected,
            "{error}, {expected}"
        );
    }
}

/// [2, 5, 16] times [2, 12, 16] over the last axes. The left one has blocks along this axis, the right one along the axis of 12.
fn gradient_of_probabilities([of_g, of_v]: [Option<BlockFormat>; 2]) -> Vec<f64> {
    let operand =
        |[_, heads, rows, features]: [usize; 4], seed, format: Option<BlockFormat>, axis| {
            let mut values = noise(heads * rows * features, seed);
            if let Some(format) = format {
                let shape = [heads, rows, features];
                let rounded = format.quantize(&mut values, &shape, axis, Rounder::NearestEven);
                rounded.expect("the axis is one of three");
            }
            values.into_iter().map(f64::from).collect::<Vec<f64>>()
        };
    let (g, v) = (operand(QUERY, 4, of_g, 2), operand(KEY, 3, of_v, 1));
    let of = |head: usize, query: usize, key: usize| {
        let g = &g[(head * 5 + query) * 16..][..16];
        let v = &v[(head * 12 + key) * 16..][..16];
        g.iter().zip(v).map(|(g, v)| g * v).sum::<f64>()
    };
    (0..2 * 5 * 12)
        .map(|i| of(i / 60, i / 12 % 5, i % 12))
        .collect()
}

#[test]
fn a_matrix_unit_of_a_gradient_has_the_errors_of_its_sums() {
    let unit = "accumulator(order=joint,terms=4,fraction_bits=8,output=bf16_rz)";
    let text = format!("attention(q=fp8_e4m3,d_scores=fp8_e5m2,dk_accumulator={unit})");
    let [dq, dk, dp, dv] = gradients(&text, false);
    assert_eq!(dk.accumulator.as_deref(), Some(unit));
    let sums = dk.sums.expect("there is a unit");
    // Of many sums some are looked at.
    assert!(
        sums.figures.sums > 100 && sums.figures.sums <= dk.result_elements,
        "{sums:?}"
    );
    assert!(sums.figures.relative_error > Some(1e-3), "{sums:?}");
    for other in [dq, dp, dv] {
        assert!(
            other.accumulator.is_none() && other.sums.is_none(),
            "{}",
            other.layer
        );
    }
}
