//! Formats of training recipes in four bits. An independent program computed the figures from the definitions of the formats, in float64.

use burn_mx::MxSpecs;
use microscaling::{BlockFormat, Comparison, ErrorParts, FloatFormat, Rounder, Rounding};

use super::super::random::{Distribution, RandomNumbers, error_and_shrinkage, quantized};
use super::Tolerance::{Absolute, Relative};
use super::{PublishedFigure, PublishedFigures, ROW, ROWS, Tolerance};

const FLOAT64: &str = "recipes of 2026, our float64";
const HIF4: &str = "HiF4 pretraining, arXiv 2604.08826";

pub(super) fn recipes() -> PublishedFigures {
    let x = RandomNumbers::new(9).many(Distribution::Gauss, ROWS * ROW);
    let mut figures = steps(&x)?;
    figures.extend(tables(&x)?);
    figures.extend(two_scales(x.clone())?);
    figures.extend(weights(&x)?);
    figures.extend(error_parts(&x)?);
    Ok(figures)
}

pub(super) fn figure(
    case: impl Into<String>,
    published: f64,
    tolerance: Tolerance,
    ours: f64,
) -> PublishedFigure {
    PublishedFigure {
        source: FLOAT64,
        case: case.into(),
        published,
        tolerance,
        ours,
    }
}

/// The format of a preset's weights in forward products.
fn of_weights(specs: MxSpecs) -> Result<BlockFormat, Box<dyn std::error::Error>> {
    let format = specs.resolve()?.block_format(burn_mx::Slot::W);
    Ok(format.ok_or("weights have no format")?)
}

/// UFP4 and the recipe that it is compared with.
fn steps(x: &[f32]) -> PublishedFigures {
    let mut figures = Vec::new();
    for (name, specs, nearest, shrinkage, stochastic) in [
        ("ufp4", MxSpecs::ufp4(), 7.26e-3, -0.66e-3, 14.52e-3),
        (
            "ufp4_baseline",
            MxSpecs::ufp4_baseline(),
            8.87e-3,
            4.00e-3,
            17.86e-3,
        ),
    ] {
        let format = of_weights(specs)?;
        let of = |rounding| -> Result<[f64; 2], Box<dyn std::error::Error>> {
            let q = quantized(format, x, ROW, rounding, 9)?;
            Ok(error_and_shrinkage(x, &q, ROW))
        };
        let [error, ours] = of(Rounding::NearestEven)?;
        figures.extend([
            figure(
                format!("`{name}`, squared error, nearest"),
                nearest,
                Relative(0.01),
                error,
            ),
            figure("… shrinkage", shrinkage, Absolute(3e-4), ours),
        ]);
        let [error, _] = of(Rounding::Stochastic)?;
        let case = format!("`{name}`, squared error, stochastic");
        figures.push(figure(case, stochastic, Relative(0.03), error));
    }
    Ok(figures)
}

/// FP4's numbers up to 2, 3 and 4: equal steps have more error on normal numbers where there are fewer of them.
fn tables(x: &[f32]) -> PublishedFigures {
    let cut = |(numbers, published): (&str, f64)| {
        let negative = numbers.replace(' ', " -");
        let text =
            format!("block(element=table(0 {numbers} -{negative}),scale=float32,block_size=16)");
        let q = quantized(text.parse()?, x, ROW, Rounding::NearestEven, 0)?;
        let [ours, _] = error_and_shrinkage(x, &q, ROW);
        let case = format!("FP4's numbers 0 {numbers} alone, float32 scale, squared error");
        Ok(figure(case, published, Relative(0.01), ours))
    };
    [
        ("0.5 1 1.5 2", 22.3e-3),
        ("0.5 1 1.5 2 3", 13.1e-3),
        ("0.5 1 1.5 2 3 4", 9.46e-3),
    ]
    .into_iter()
    .map(cut)
    .collect()
}

/// Four over six under a tensor scale that a largest magnitude of 5.75 fixes, and HiF4 beside NVFP4.
fn two_scales(mut x: Vec<f32>) -> PublishedFigures {
    x[0] = 5.75;
    let error = |text: &str| -> Result<f64, Box<dyn std::error::Error>> {
        let q = quantized(text.parse()?, &x, ROW, Rounding::NearestEven, 0)?;
        Ok(error_and_shrinkage(&x, &q, ROW)[0])
    };
    let text = "nvfp4(tensor_scale=true,four_over_six=true)";
    let better: BlockFormat = text.parse()?;
    let six = BlockFormat {
        four_over_six: false,
        ..better
    };
    let scale = better.tensor_scale_of(5.75_f32.to_bits());
    let blocks = x.chunks(better.block_size);
    let is_four = |block: &&[f32]| {
        let [better, six] = [better, six].map(|format| format.block_scale_of(block, scale));
        better != six
    };
    let fours = blocks.clone().filter(is_four).count();
    let share = 100.0 * fours as f64 / blocks.len() as f64;
    let ratio = error("nvfp4(tensor_scale=true)")? / error("hif4")?;
    Ok(vec![
        figure(
            "four over six, squared error",
            7.57e-3,
            Relative(0.01),
            error(text)?,
        ),
        figure(
            "four over six, blocks with 4 in %",
            45.2,
            Relative(0.01),
            share,
        ),
        PublishedFigure {
            source: HIF4,
            ..figure(
                "squared error of NVFP4 over HiF4's",
                1.32,
                Relative(0.01),
                ratio,
            )
        },
    ])
}

/// Weights of quantization-aware training.
fn weights(x: &[f32]) -> PublishedFigures {
    let kimi = of_weights(MxSpecs::kimi_qat())?;
    let groups = BlockFormat {
        block_size: 128,
        ..kimi
    };
    let mut figures = Vec::new();
    let gpt_oss: BlockFormat =
        "mx(element=fp4_e2m1,scale_mode=rceil,rounding=ties-to-zero)".parse()?;
    for (case, format, published) in [
        ("`kimi_qat`, squared error", kimi, 9.41e-3),
        ("… in groups of 128", groups, 13.75e-3),
        (
            "MXFP4 of `gpt_oss_qat`'s rule, squared error",
            gpt_oss,
            13.31e-3,
        ),
    ] {
        let q = quantized(format, x, ROW, Rounding::NearestEven, 0)?;
        let [error, _] = error_and_shrinkage(x, &q, ROW);
        figures.push(figure(case, published, Relative(0.01), error));
    }

    let mut x = x.to_vec();
    FloatFormat::bfloat(16)?.round_slice(&mut x, Rounder::NearestEven);
    let by = |rounding: &str| {
        let text = format!("mx(element=fp4_e2m1,scale_mode=rceil,rounding={rounding})");
        let q = quantized(text.parse()?, &x, ROW, Rounding::NearestEven, 0)?;
        Ok::<_, Box<dyn std::error::Error>>(q)
    };
    let toward_zero = by("ties-to-zero")?;
    for (case, rounding, published) in [
        ("… ties among bfloat16 numbers in %", "nearest", 1.14),
        ("… numbers that ties to even change, in %", "even", 0.49),
    ] {
        let other = by(rounding)?;
        let pairs = toward_zero.iter().zip(&other);
        let share = 100.0 * pairs.filter(|(a, b)| a != b).count() as f64 / x.len() as f64;
        figures.push(figure(case, published, Relative(0.02), share));
    }
    Ok(figures)
}

/// The parts of MXFP4's squared error, with scales rounded up.
fn error_parts(x: &[f32]) -> PublishedFigures {
    let format: BlockFormat = "mx(element=fp4_e2m1,scale_mode=rceil)".parse()?;
    let rounding = Rounding::NearestEven;
    let comparison = Comparison {
        original: x,
        quantized: &quantized(format, x, ROW, rounding, 0)?,
        shape: &[x.len() / ROW, ROW],
        axis: 1,
        format: Some(format),
    };
    let parts = ErrorParts::of(comparison, rounding)?.ok_or("MXFP4 has no parts")?;
    let share = parts.dead_zone_elements() as f64 / parts.elements() as f64;
    let percent = Some(100.0 * share);
    // Half of the last digit where that is more than 1 %.
    let cases = [
        ("by the scale", parts.scale(), 1.774, Relative(0.01)),
        ("by the dead zone", parts.dead_zone(), 0.020, Absolute(5e-4)),
        ("by the grid", parts.grid(), 0.748, Relative(0.01)),
        (
            "cosine of scale and grid",
            parts.cosine(),
            -0.669,
            Relative(0.01),
        ),
        (
            "mean log2 of scale over exact scale",
            parts.scale_bias(),
            0.454,
            Relative(0.01),
        ),
        (
            "elements in the dead zone, in %",
            percent,
            7.8,
            Relative(0.01),
        ),
    ];
    let figure = |(case, ours, published, tolerance): (_, Option<f64>, _, _)| {
        let case = format!("MXFP4's squared error, {case}");
        Ok(figure(case, published, tolerance, ours.ok_or("no error")?))
    };
    cases.into_iter().map(figure).collect()
}
