use super::*;
use microscaling::BlockFormat;

const SHAPE: [usize; 2] = [8, 70];
const SAMPLES: usize = 200;

/// The numbers of `reference.py`.
fn noise(seed: u32) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24) - 0.5
    }
}

fn weight() -> Vec<f32> {
    let mut next = noise(1);
    let mut product = || 8.0 * next() * next().abs();
    (0..SHAPE[0] * SHAPE[1]).map(|_| product() as f32).collect()
}

/// The Hessian of inputs that resemble their neighbours. Some inputs are larger than others.
fn hessian() -> Vec<f64> {
    let [_, inputs] = SHAPE;
    let mut next = noise(2);
    let mut sum = vec![0.0; inputs * inputs];
    for _ in 0..SAMPLES {
        let mut before = 0.0;
        let x: Vec<f64> = (0..inputs)
            .map(|i| {
                before = 0.75 * before + next();
                before * (1 + i % 5) as f64
            })
            .collect();
        for i in 0..inputs {
            for j in 0..inputs {
                sum[i * inputs + j] += x[i] * x[j];
            }
        }
    }
    sum
}

fn solved(config: &Gptq, format: &str) -> Solved {
    let format: BlockFormat = format.parse().unwrap();
    solve(config, format.into(), &weight(), SHAPE, &hessian()).unwrap()
}

/// The same weights as NumPy's, and the same errors within 1e-5 of them.
#[test]
fn results_are_those_of_numpy() {
    #[derive(serde::Deserialize)]
    struct Case {
        format: String,
        act_order: bool,
        quantized: Vec<f64>,
        error: f64,
        error_nearest: f64,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("reference.json")).unwrap();
    assert_eq!(cases.len(), 4);
    for case in cases {
        let config = Gptq {
            act_order: case.act_order,
            ..Gptq::default()
        };
        let solved = solved(&config, &case.format);
        let what = format!("{}, act_order {}", case.format, case.act_order);
        for (got, wanted) in solved.packed.decode().iter().zip(&case.quantized) {
            assert!(
                (f64::from(*got) - wanted).abs() <= 1e-6 * wanted.abs(),
                "{what}: {got} {wanted}"
            );
        }
        let close = |got: f64, wanted: f64| (got - wanted).abs() < 1e-5 * wanted;
        assert!(
            close(solved.error, case.error),
            "{what}: {} {}",
            solved.error,
            case.error
        );
        assert!(close(solved.error_nearest, case.error_nearest), "{what}");
        assert!(solved.error < 0.6 * solved.error_nearest, "{what}");
    }
}

/// Without correlations there is nothing to make up for: GPTQ rounds to nearest, as the format does.
#[test]
fn independent_inputs_are_rounded_to_nearest() {
    let [_, inputs] = SHAPE;
    let mut identity = vec![0.0; inputs * inputs];
    for i in 0..inputs {
        identity[i * inputs + i] = 1.0 + i as f64;
    }
    for format in ["mxfp4", "mxfp8_e4m3", "mxfp6_e2m3", "mxint8", "nvfp4"] {
        let format: BlockFormat = format.parse().unwrap();
        for act_order in [false, true] {
            let config = Gptq {
                act_order,
                ..Gptq::default()
            };
            let solved = solve(&config, format.into(), &weight(), SHAPE, &identity).unwrap();
            let mut nearest = weight();
            let rounder = microscaling::Rounder::NearestEven;
            format.quantize(&mut nearest, &SHAPE, 1, rounder).unwrap();
            assert_eq!(solved.packed.decode(), nearest, "{format}");
            assert_eq!(solved.error, solved.error_nearest);
        }
    }
}

/// A search never rounds a block worse than the format's own scale, and some blocks better.
#[test]
fn searched_scales_have_smaller_errors() {
    let [_, inputs] = SHAPE;
    let diagonal: Vec<f64> = (0..inputs).map(|i| 1.0 + (i % 7) as f64).collect();
    for format in ["mxfp4", "nvfp4"] {
        let format: BlockFormat = format.parse().unwrap();
        for (search, importance) in [
            (ScaleSearch::SquaredError, vec![1.0; inputs]),
            (ScaleSearch::Hessian, diagonal.clone()),
        ] {
            let errors = |search| {
                let grid = WeightGrid::new(format.into(), &weight(), SHAPE, search, &diagonal);
                let size = format.group_size();
                let mut errors = vec![0.0; SHAPE[0] * inputs.div_ceil(size)];
                for (at, value) in weight().into_iter().enumerate() {
                    let (row, column) = (at / inputs, at % inputs);
                    let (number, _) = grid.nearest(row, column, f64::from(value));
                    let error = importance[column] * f64::from(number - value).powi(2);
                    errors[row * inputs.div_ceil(size) + column / size] += error;
                }
                errors
            };
            let [plain, searched] = [ScaleSearch::None, search].map(errors);
            let worse = plain
                .iter()
                .zip(&searched)
                .filter(|(plain, new)| *new > plain);
            assert_eq!(worse.count(), 0, "{format} {search:?}");
            let [plain, searched] = [plain, searched].map(|errors| errors.iter().sum::<f64>());
            assert!(
                searched < 0.97 * plain,
                "{format} {search:?}: {searched} {plain}"
            );
        }
    }
}

/// An input that never comes has no say, and its weights are rounded to nearest.
#[test]
fn inputs_that_are_always_zero_do_no_harm() {
    let [_, inputs] = SHAPE;
    let mut hessian = hessian();
    for i in 0..inputs {
        hessian[3 * inputs + i] = 0.0;
        hessian[i * inputs + 3] = 0.0;
    }
    let format: BlockFormat = "mxfp4".parse().unwrap();
    let solved = solve(&Gptq::default(), format.into(), &weight(), SHAPE, &hessian).unwrap();
    let grid = WeightGrid::new(format.into(), &weight(), SHAPE, ScaleSearch::None, &[]);
    for row in 0..SHAPE[0] {
        let at = row * inputs + 3;
        let (nearest, _) = grid.nearest(row, 3, f64::from(weight()[at]));
        assert_eq!(solved.packed.decode()[at], nearest);
    }
    let zeros = vec![0.0; inputs * inputs];
    let solved = solve(&Gptq::default(), format.into(), &weight(), SHAPE, &zeros).unwrap();
    assert_eq!(solved.error, 0.0);
    hessian[5] = f64::NAN;
    assert!(solve(&Gptq::default(), format.into(), &weight(), SHAPE, &hessian).is_none());
}

#[test]
fn what_has_no_fixed_scales_is_refused() {
    use crate::{QuantConfig, Quantizer};
    let error = |change: fn(&mut QuantConfig)| {
        let mut config = QuantConfig::named("MXFP4E2M1_GPTQ").unwrap();
        change(&mut config);
        Quantizer::new(config).unwrap_err().to_string()
    };
    let of_format = error(|config| config.specs.w_elem_format = Some("mx6".parse().unwrap()));
    assert!(
        of_format.contains("`gptq`") && of_format.contains("MX or NVFP4"),
        "{of_format}"
    );
    assert!(error(|config| config.gptq.as_mut().unwrap().damping = 0.0).contains("`damping` is 0"));
    assert!(error(|config| config.specs.bfloat = 16).contains("`bfloat`"));
    assert!(
        error(|config| config.specs.hadamard_forward = Some("32".parse().unwrap()))
            .contains("given signs")
    );
    assert!(
        error(|config| config.fast_finetune = Some(Default::default())).contains("one of the two")
    );
    let unknown = QuantConfig::named("MX6_GPTQ").unwrap_err().to_string();
    assert!(unknown.contains("MX6_GPTQ"), "{unknown}");
    let named = QuantConfig::named("MXFP4E2M1_MRGPTQ").unwrap();
    assert_eq!(QuantConfig::from_json(&named.to_json()).unwrap(), named);
}
