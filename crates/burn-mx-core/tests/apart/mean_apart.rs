//! Linear layers whose operands have their mean apart.

use burn_mx_core::{GradientOperands, MxSpecs};
use microscaling::Rounding;

use super::exact::*;

const SHAPES: [[usize; 4]; 4] = [
    [1, 8, 40, 9],
    [2, 4, 64, 17],
    [1, 1, 20, 16],
    [4, 8, 33, 32],
];

/// A layer whose inputs have large means in every other channel.
fn layer(shape: [usize; 4], seed: u64) -> Layer {
    let mut layer = Layer::random(shape, seed);
    for (at, x) in layer.x.iter_mut().enumerate() {
        if (at % shape[2]).is_multiple_of(2) {
            *x += 8.0;
        }
    }
    layer
}

fn specs() -> MxSpecs {
    MxSpecs {
        mean_apart: true,
        ..super::specs("")
    }
}

/// The mean of all rows in FP4, plus the rest by `quantize`.
fn apart(matrix: &Rows, quantize: impl Fn(&Rows) -> Rows) -> Rows {
    let count = matrix.len();
    let sum = |row: Vec<f64>, next: &Vec<f64>| row.iter().zip(next).map(|(a, b)| a + b).collect();
    let sums: Vec<f64> = matrix.iter().fold(vec![0.0; matrix[0].len()], sum);
    let mean: Vec<f64> = sums.iter().map(|sum| sum / count as f64).collect();
    let means = |mean: &Vec<f64>| vec![mean.clone(); count];
    let rest = quantize(&minus(matrix, &means(&mean)));
    plus(&rest, &means(&in_rows(&vec![mean], FP4)[0]))
}

fn expected(layer: &Layer, by_forward: bool) -> [Rows; 3] {
    let along_channels = |matrix: &Rows| apart(matrix, |rest| in_rows(rest, FP4));
    let along_rows = |matrix: &Rows| {
        apart(matrix, |rest| {
            layer.by_entry(rest, |entry| in_columns(&entry, FP4))
        })
    };
    let (x, w, g) = (layer.x(), layer.w(), layer.g());
    let (qx, qw) = (along_channels(&x), in_columns(&w, FP4));
    let y = times(&qx, &qw);
    let (x, w) = match by_forward {
        true => (qx, qw),
        false => (x, w),
    };
    let dx = times(&along_channels(&g), &in_columns(&transposed(&w), FP4));
    [y, dx, times(&transposed(&along_rows(&x)), &along_rows(&g))]
}

#[test]
fn the_mean_and_the_rest_have_scales_of_their_own() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        let layer = layer(shape, seed as u64);
        let got = layer.pass(&specs());
        layer.assert(&got, expected(&layer, false), "mean apart");
        assert_ne!(got, layer.pass(&super::specs("")));
        let by_forward = MxSpecs {
            gradient_operands: GradientOperands::Forward,
            ..specs()
        };
        layer.assert(
            &layer.pass(&by_forward),
            expected(&layer, true),
            "gradients of forward operands",
        );
    }
}

/// The mean of many passes with stochastic rounding is the layer without rounding.
#[test]
fn stochastic_rounding_draws_for_both() {
    let layer = layer([1, 4, 16, 3], 7);
    let unclipped = "mx(element=fp4_e2m1,block_size=16,scale_mode=rceil)"
        .parse()
        .ok();
    let stochastic = MxSpecs {
        round: Rounding::Stochastic,
        w_elem_format: unclipped,
        a_elem_format: unclipped,
        ..specs()
    };
    let passes: Vec<_> = (0..400).map(|_| layer.pass(&stochastic)).collect();
    assert_ne!(passes[0], passes[1]);
    let exact = layer.pass(&MxSpecs::none());
    let largest = exact[0].iter().fold(0.0_f32, |max, x| max.max(x.abs()));
    for (at, exact) in exact[0].iter().enumerate() {
        let mean = passes.iter().map(|pass| pass[0][at]).sum::<f32>() / passes.len() as f32;
        assert!(
            (mean - exact).abs() < 0.02 * largest,
            "{mean} is not {exact}"
        );
    }
}

#[test]
fn wrong_fields_beside_a_mean_apart_are_errors() {
    let cases = [
        (
            MxSpecs {
                hadamard_block_size: 32,
                ..specs()
            },
            "`hadamard_block_size` is 32, but it transforms the rows whose mean is apart (mean_apart); allowed: 0",
        ),
        (
            MxSpecs {
                hot_columns: "hot_columns".parse().ok(),
                ..specs()
            },
            "`hot_columns` is hot_columns, but columns are apart or the mean is (mean_apart); allowed: none",
        ),
        (
            MxSpecs {
                accumulator: "hopper".parse().ok(),
                ..specs()
            },
            "`accumulator` is hopper, but operands with their mean apart (mean_apart) are not in a block format; allowed: none",
        ),
        (
            MxSpecs {
                a_elem_format: None,
                ..specs()
            },
            "`mean_apart` is true, but neither inputs nor gradients have a format; allowed: false",
        ),
    ];
    for (specs, expected) in cases {
        assert_eq!(
            specs.resolve().expect_err("it is wrong").to_string(),
            expected
        );
    }
}
