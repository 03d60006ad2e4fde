//! The published figures, and ours.

mod attention;
mod columns;
mod recipes;

use std::error::Error;

use Tolerance::{Absolute, AtLeast, Relative};
use burn::{
    backend::Flex,
    tensor::{Tensor, TensorData},
};
use microscaling::{
    BlockFormat, ElementFormat, FloatFormat, Packed, Rounder, Rounding, ScaleFormat,
};
use serde_json::{Value, json};

use super::random::{
    Distribution, RandomNumbers, error, error_and_shrinkage, mean_decibels, quantized,
};

/// How far ours may be from the published figure.
#[derive(Clone, Copy)]
pub(crate) enum Tolerance {
    /// A share of the published figure.
    Relative(f64),
    Absolute(f64),
    /// The published figure is a lower bound.
    AtLeast,
}

pub(crate) struct PublishedFigure {
    source: &'static str,
    case: String,
    published: f64,
    tolerance: Tolerance,
    ours: f64,
}

impl PublishedFigure {
    pub(crate) fn passes(&self) -> bool {
        let difference = (self.ours - self.published).abs();
        match self.tolerance {
            Relative(share) => difference <= share * self.published.abs(),
            Absolute(most) => difference <= most,
            AtLeast => self.ours >= self.published,
        }
    }

    pub(crate) fn row(&self) -> [String; 6] {
        let tolerance = match self.tolerance {
            Relative(share) => format!("{} %", number(100.0 * share)),
            Absolute(most) => number(most),
            AtLeast => "at least".into(),
        };
        [
            self.source.into(),
            self.case.clone(),
            number(self.published),
            tolerance,
            number(self.ours),
            if self.passes() { "pass" } else { "FAIL" }.into(),
        ]
    }

    pub(crate) fn json(&self) -> Value {
        let tolerance = match self.tolerance {
            Relative(share) => json!({ "relative": share }),
            Absolute(most) => json!({ "absolute": most }),
            AtLeast => json!("at least"),
        };
        json!({
            "source": self.source,
            "case": self.case,
            "published": self.published,
            "tolerance": tolerance,
            "here": self.ours,
            "pass": self.passes(),
        })
    }
}

/// With four significant digits.
fn number(x: f64) -> String {
    if x == 0.0 || (1e-3..1e6).contains(&x.abs()) {
        let digits = if x == 0.0 {
            0
        } else {
            (3 - x.abs().log10().floor() as i32).max(0)
        };
        let text = format!("{x:.*}", digits as usize);
        return match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.').into(),
            false => text,
        };
    }
    format!("{x:.3e}")
}

type PublishedFigures = Result<Vec<PublishedFigure>, Box<dyn Error>>;

const QUARTET_2: &str = "Quartet II, arXiv 2601.22813";
const QUARTET: &str = "Quartet, arXiv 2505.14669";
const OPTIMAL: &str = "Max 1960; Quartet's notebook";
const INTEGERS: &str = "INT or FP, arXiv 2510.25602";
const MICROEXPONENTS: &str = "Microexponents, arXiv 2302.08007";
const SINGLE: &str = "Learning-CUDA, pull request 80";
const FOUR_OVER_SIX: &str = "Four over six, arXiv 2512.02010";
const NUMPY: &str = "our NumPy, float64";

/// A source, and the function that computes its figures.
type Computation = (&'static str, fn() -> PublishedFigures);

/// All of them.
pub(crate) const ALL: [Computation; 12] = [
    (QUARTET_2, nvfp4),
    (QUARTET_2, nvfp4_stochastic),
    (QUARTET_2, nvfp4_products),
    (QUARTET, mxfp4),
    (OPTIMAL, optimal_steps),
    (INTEGERS, reciprocal_steps),
    (MICROEXPONENTS, microexponents),
    (SINGLE, single),
    (NUMPY, anchors),
    ("recipes of 2026", recipes::recipes),
    ("products of recipes of 2026", columns::columns),
    ("attention of recipes of 2026", attention::sagebwd),
];

fn nvfp4() -> PublishedFigures {
    const N: usize = 2048;
    let x = RandomNumbers::new(1).many(Distribution::Gauss, N * N);
    let cases = [
        ("nvfp4(tensor_scale=true)", 9.05e-3),
        ("nvfp4(tensor_scale=true,four_over_six=true)", 7.56e-3),
        ("nvfp4(tensor_scale=true,square=true)", 12.40e-3),
        (
            "nvfp4(tensor_scale=true,square=true,four_over_six=true)",
            12.38e-3,
        ),
    ];
    let figure = |(format, published): (&str, f64)| {
        let q = quantized(format.parse()?, &x, N, Rounding::NearestAway, 0)?;
        Ok(PublishedFigure {
            source: QUARTET_2,
            case: format!("normal, squared error of `{format}`, nearest"),
            published,
            tolerance: Relative(0.005),
            ours: error_and_shrinkage(&x, &q, N)[0],
        })
    };
    cases.into_iter().map(figure).collect()
}

/// Rows of the length of the papers' Hadamard transforms.
const ROW: usize = 128;
const ROWS: usize = 1 << 15;

/// Stochastic rounding of elements, rounding to nearest, and stochastic rounding of scales (MS-EDEN).
fn nvfp4_stochastic() -> PublishedFigures {
    let x = RandomNumbers::new(2).scaled_rows(ROWS, ROW);
    let mut figures = Vec::new();
    for (format, rounding, published, tolerances) in [
        (
            "nvfp4(tensor_scale=true,headroom=17/16)",
            Rounding::Stochastic,
            [23.5e-3, 0.0],
            [Relative(0.005), Absolute(3e-4)],
        ),
        (
            "nvfp4(tensor_scale=true,headroom=1581/1600)",
            Rounding::NearestEven,
            [9.0e-3, 7.92e-3],
            [Relative(0.01), Relative(0.05)],
        ),
        (
            "nvfp4(tensor_scale=true,headroom=1581/1600,eden=true)",
            Rounding::Stochastic,
            [9.8e-3, 5.6e-4],
            [Relative(0.01), Absolute(3e-4)],
        ),
    ] {
        let q = quantized(format.parse()?, &x, ROW, rounding, 2)?;
        let whats = ["squared error", "shrinkage"];
        let ours = error_and_shrinkage(&x, &q, ROW);
        for (i, what) in whats.into_iter().enumerate() {
            figures.push(PublishedFigure {
                source: QUARTET_2,
                case: format!("rows of many sizes, {what} of `{format}`, {rounding}"),
                published: published[i],
                tolerance: tolerances[i],
                ours: ours[i],
            });
        }
    }
    Ok(figures)
}

/// The mean of products whose operands are rounded stochastically: without bias each factor of four is worth a bit.
fn nvfp4_products() -> PublishedFigures {
    const N: usize = 256;
    const K: usize = 1024;
    let format: BlockFormat = "nvfp4(tensor_scale=true,headroom=17/16)".parse()?;
    let mut numbers = RandomNumbers::new(3);
    let operands = [(); 2].map(|()| numbers.many(Distribution::Gauss, N * K));
    let product = |[lhs, rhs]: &[Vec<f32>; 2]| -> Result<Vec<f32>, Box<dyn Error>> {
        let [lhs, rhs] = [lhs, rhs].map(|x| {
            let data = TensorData::new(x.clone(), [N, K]);
            Tensor::<Flex, 2>::from_data(data, &Default::default())
        });
        Ok(lhs.matmul(rhs.transpose()).into_data().to_vec::<f32>()?)
    };
    let exact = product(&operands)?;
    let mut sums = vec![0.0; N * N];
    let mut figures = Vec::new();
    for n in 1..=16_u64 {
        let [lhs, rhs] = [0, 1].map(|i| {
            quantized(
                format,
                &operands[i],
                K,
                Rounding::Stochastic,
                2 * n + i as u64,
            )
        });
        for (sum, x) in sums.iter_mut().zip(product(&[lhs?, rhs?])?) {
            *sum += f64::from(x);
        }
        let published = match n {
            1 => 2.197,
            4 => 3.196,
            16 => 4.196,
            _ => continue,
        };
        let mean: Vec<f32> = sums.iter().map(|sum| (sum / n as f64) as f32).collect();
        figures.push(PublishedFigure {
            source: QUARTET_2,
            case: format!("bits of the mean of {n} products, both operands stochastic"),
            published,
            tolerance: Absolute(0.02),
            ours: -0.5 * error(&exact, &mean).log2(),
        });
    }
    Ok(figures)
}

fn mxfp4() -> PublishedFigures {
    let x = RandomNumbers::new(4).scaled_rows(ROWS, ROW);
    // The paper's rows divide by 2^(floor(log2 amax) − 2) and multiply by 3/4 under that.
    let three_quarters = |rounding| -> Result<[f64; 2], Box<dyn Error>> {
        let format = "mx(element=fp4_e2m1,headroom=4/3)".parse()?;
        let less: Vec<f32> = x.iter().map(|x| 0.75 * x).collect();
        let q = quantized(format, &less, ROW, rounding, 4)?;
        let q: Vec<f32> = q.iter().map(|q| q / 0.75).collect();
        Ok(error_and_shrinkage(&x, &q, ROW))
    };
    let stochastic = three_quarters(Rounding::Stochastic)?;
    let nearest = three_quarters(Rounding::NearestEven)?;
    let format = "mx(element=fp4_e2m1,scale_mode=rms,headroom=3/2)".parse()?;
    let q = quantized(format, &x, ROW, Rounding::NearestEven, 0)?;
    let quest = error_and_shrinkage(&x, &q, ROW);
    let figure = |case: &str, published, tolerance, ours| PublishedFigure {
        source: QUARTET,
        case: case.into(),
        published,
        tolerance,
        ours,
    };
    Ok(vec![
        figure(
            "MXFP4, largest magnitude, stochastic: squared error",
            2.77e-2,
            Relative(0.005),
            stochastic[0],
        ),
        figure("… shrinkage", 0.0, Absolute(3e-4), stochastic[1]),
        figure(
            "MXFP4, largest magnitude, nearest: squared error",
            1.37e-2,
            Relative(0.01),
            nearest[0],
        ),
        figure("… shrinkage", 9.3e-3, Relative(0.04), nearest[1]),
        figure(
            "MXFP4, QuEST (`scale_mode=rms,headroom=3/2`): squared error",
            1.32e-2,
            Relative(0.012),
            quest[0],
        ),
        figure("… shrinkage", 1.3e-2, Relative(0.08), quest[1]),
    ])
}

/// The mean squared error of an element format on a normal number, if its numbers are this far apart: a sum over a fine grid.
fn error_of_step(element: ElementFormat, step: f64) -> Result<f64, Box<dyn Error>> {
    const POINTS: usize = 1 << 20;
    const END: f64 = 10.0;
    let unit = END / POINTS as f64;
    let max = f64::from(element.max());
    let at = |i: usize| (i as f64 + 0.5) * unit;
    // A block as long as the axis, whose largest magnitude makes the scale 1.
    let mut q: Vec<f32> = (0..POINTS)
        .map(|i| (at(i) / step).min(max) as f32)
        .collect();
    let format: BlockFormat = format!("mx(element={element},block_size=0)").parse()?;
    format.quantize(&mut q, &[POINTS], 0, Rounder::NearestEven)?;
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let errors = q.iter().enumerate().map(|(i, q)| {
        let x = at(i);
        2.0 * unit * density(x) * (x - step * f64::from(*q)).powi(2)
    });
    Ok(errors.sum())
}

fn optimal_steps() -> PublishedFigures {
    // The unit of an integer of b bits is its 2^(b − 2)th part.
    let cases = [
        ("fp4_e2m1", 0.487_079_2, 0.012_684_90),
        ("int2", 1.224_01, 0.190_174),
        ("fixed(bits=3,fraction_bits=1)", 0.650_770, 0.046_860_0),
        ("int4", 0.353_411, 0.012_889_4),
        ("int8", 0.030_870_1, 8.8308e-5),
    ];
    let figure = |(element, step, published): (&str, f64, f64)| {
        let element: ElementFormat = element.parse()?;
        let unit = match element.is_integer() {
            true => step / f64::from(element.min_subnormal()),
            false => step,
        };
        Ok(PublishedFigure {
            source: OPTIMAL,
            case: format!(
                "`{element}` with the best step {step}: mean squared error on a normal number"
            ),
            published,
            tolerance: Relative(2e-5),
            ours: error_of_step(element, unit)?,
        })
    };
    cases.into_iter().map(figure).collect()
}

/// A step of amax / 127 in one arithmetic: how often the largest number becomes 128 steps.
fn reciprocal_steps() -> PublishedFigures {
    const COUNT: usize = 1 << 20;
    let x = RandomNumbers::new(5).many(Distribution::Gauss, COUNT);
    let share = |format: Option<FloatFormat>| {
        let round = |numbers: &mut [f32]| {
            if let Some(format) = format {
                format.round_slice(numbers, Rounder::NearestEven);
            }
        };
        let mut x = x.clone();
        round(&mut x);
        let mut steps: Vec<f32> = x.iter().map(|x| x / 127.0).collect();
        round(&mut steps);
        let mut quotients: Vec<f32> = x.iter().zip(&steps).map(|(x, step)| x / step).collect();
        round(&mut quotients);
        let over = quotients.iter().filter(|q| q.round_ties_even() >= 128.0);
        100.0 * over.count() as f64 / COUNT as f64
    };
    let figure = |name: &str, format, published, most| PublishedFigure {
        source: INTEGERS,
        case: format!("x / (x / 127) becomes 128 in {name}: share in %"),
        published,
        tolerance: Absolute(most),
        ours: share(format),
    };
    Ok(vec![
        figure("bfloat16", Some(FloatFormat::bfloat(16)?), 16.82, 0.15),
        figure("float16", Some(FloatFormat::fp(16)?), 0.02, 0.01),
        figure("float32", None, 0.0, 0.0),
    ])
}

fn microexponents() -> PublishedFigures {
    const VECTORS: usize = 2048;
    const LENGTH: usize = 1024;
    let mut numbers = RandomNumbers::new(6);
    let mut x = Vec::with_capacity(VECTORS * LENGTH);
    for _ in 0..VECTORS {
        let deviation = numbers.gauss().abs();
        x.extend((0..LENGTH).map(|_| (deviation * numbers.gauss()) as f32));
    }
    let mean = |format: &str| -> Result<f64, Box<dyn Error>> {
        let q = quantized(format.parse()?, &x, LENGTH, Rounding::NearestAway, 0)?;
        Ok(mean_decibels(&x, &q, LENGTH))
    };
    let mx4 = |sub_block: usize, shift_bits: u32| {
        mean(&format!(
            "microexponent(bit_width=11,block_size=16,sub_block_size={sub_block},shift_bits={shift_bits})"
        ))
    };
    let figure = |case: &str, published, tolerance, ours| PublishedFigure {
        source: MICROEXPONENTS,
        case: case.into(),
        published,
        tolerance,
        ours,
    };
    let [of_mx4, of_mx6, of_mx9] = [mean("mx4")?, mean("mx6")?, mean("mx9")?];
    let msfp16 = mean("bfp(bit_width=16,block_size=16)")?;
    Ok(vec![
        figure("MX9 − MSFP16, dB", 3.6, Absolute(0.1), of_mx9 - msfp16),
        figure(
            "MX4, sub-blocks of 2 for 8, dB",
            2.0,
            Absolute(0.1),
            mx4(2, 1)? - mx4(8, 1)?,
        ),
        figure(
            "MX4, sub-blocks of 1 for 2, dB",
            0.7,
            Absolute(0.1),
            mx4(1, 1)? - mx4(2, 1)?,
        ),
        figure(
            "MX4, 2 shift bits for 1, dB",
            0.5,
            Absolute(0.1),
            mx4(2, 2)? - mx4(2, 1)?,
        ),
        figure("MX4, dB (theorem 1)", 4.6, AtLeast, of_mx4),
        figure("MX6, dB (theorem 1)", 16.7, AtLeast, of_mx6),
        figure("MX9, dB (theorem 1)", 34.7, AtLeast, of_mx9),
    ])
}

fn single() -> PublishedFigures {
    const N: usize = 1024;
    let x = RandomNumbers::new(7).many(Distribution::Gauss, N * N);
    let mut figures = Vec::new();
    for (format, published) in [
        ("nvfp4(tensor_scale=true)", 9.048_78e-3),
        ("mxfp8_rceil", 7.062_41e-4),
    ] {
        let q = quantized(format.parse()?, &x, N, Rounding::NearestEven, 0)?;
        let errors = x.iter().zip(&q).map(|(x, q)| f64::from(x - q).powi(2));
        figures.push(PublishedFigure {
            source: SINGLE,
            case: format!("1024 × 1024 normal numbers, mean squared error of `{format}`"),
            published,
            tolerance: Relative(0.005),
            ours: errors.sum::<f64>() / (N * N) as f64,
        });
    }
    for (format, published) in [("mxfp8_e4m3", 3.8788), ("nvfp4", 7.1111)] {
        let format: BlockFormat = format.parse()?;
        let packed = Packed::encode(format, &x, &[N, N], 1, Rounder::NearestEven)?;
        let bytes = packed.scales().len() + packed.elements().len();
        figures.push(PublishedFigure {
            source: SINGLE,
            case: format!("bytes of float32 over those of packed `{format}`"),
            published,
            tolerance: Relative(1e-4),
            ours: (4 * N * N) as f64 / bytes as f64,
        });
    }
    // A block of four in a tensor whose scale is 1: its largest number is 6 · 256 in another block.
    let x = [10.0, 20.0, 30.0, 40.0];
    for (format, published) in [("nvfp4", 4.328), ("nvfp4(four_over_six=true)", 0.0)] {
        let mut q = x;
        let format: BlockFormat = format.parse()?;
        format.quantize(&mut q, &[4], 0, Rounder::NearestEven)?;
        let errors = x.iter().zip(&q).map(|(x, q)| f64::from(x - q).powi(2));
        figures.push(PublishedFigure {
            source: FOUR_OVER_SIX,
            case: format!("block 10, 20, 30, 40, mean squared error of `{format}`"),
            published,
            tolerance: Absolute(1e-3),
            ours: errors.sum::<f64>() / 4.0,
        });
    }
    let amdfp4 = BlockFormat::AMDFP4;
    for (case, published, ours) in [
        (
            "the largest UE5M3 number",
            114_688.0,
            ScaleFormat::UE5M3.max(),
        ),
        ("the smallest one", 2.0_f64.powi(-17), amdfp4.scale_min()),
    ] {
        figures.push(PublishedFigure {
            source: "bit layout, bias 15",
            case: case.into(),
            published,
            tolerance: Absolute(0.0),
            ours: f64::from(ours),
        });
    }
    Ok(figures)
}

const SAMPLES: usize = 1 << 20;
const DISTRIBUTIONS: [(&str, Distribution, f64); 4] = [
    ("normal", Distribution::Gauss, 0.01),
    ("Laplace", Distribution::Laplace, 0.01),
    ("t5", Distribution::Student(5), 0.02),
    ("t3", Distribution::Student(3), 0.08),
];

/// Figures that we found nowhere, computed by an independent program: 10^3 times the squared error.
fn anchors() -> PublishedFigures {
    /// A scale of FP4 in blocks of 8, 16 and 32, each on all four distributions.
    const FP4: [(&str, [[f64; 4]; 3]); 7] = [
        (
            "block(element=e2m1,scale=float32,block_size=N)",
            [
                [7.01, 6.02, 6.10, 5.2],
                [8.85, 8.33, 8.26, 7.7],
                [10.20, 10.55, 10.38, 11.0],
            ],
        ),
        (
            "nvfp4(tensor_scale=true,block_size=N)",
            [
                [7.30, 6.40, 6.47, 5.6],
                [9.03, 8.59, 8.52, 8.1],
                [10.30, 10.73, 10.56, 11.3],
            ],
        ),
        (
            "block(element=e2m1,scale=ue5m3,block_size=N)",
            [
                [7.30, 6.40, 6.48, 5.6],
                [9.03, 8.60, 8.53, 8.1],
                [10.32, 10.73, 10.57, 11.3],
            ],
        ),
        (
            "block(element=e2m1,scale=ue5m2,block_size=N)",
            [
                [8.17, 7.54, 7.59, 7.2],
                [9.58, 9.42, 9.35, 9.4],
                [10.64, 11.27, 11.16, 12.4],
            ],
        ),
        (
            "mx(element=e2m1,block_size=N)",
            [
                [14.57, 15.72, 15.49, 16.8],
                [13.88, 15.68, 15.40, 17.7],
                [13.21, 16.08, 15.92, 19.7],
            ],
        ),
        (
            "mx(element=e2m1,block_size=N,scale_mode=even)",
            [
                [11.67, 12.55, 12.37, 13.4],
                [12.12, 13.77, 13.57, 15.6],
                [12.51, 15.38, 15.34, 19.2],
            ],
        ),
        (
            "mx(element=e2m1,block_size=N,scale_mode=rceil)",
            [
                [12.13, 13.43, 13.19, 14.5],
                [12.73, 15.20, 14.98, 17.6],
                [13.32, 17.47, 17.61, 22.6],
            ],
        ),
    ];
    /// Formats, on the first three.
    const OTHERS: [(&str, [f64; 3]); 10] = [
        ("nvfp4(tensor_scale=true)", [9.04, 8.58, 8.54]),
        (
            "nvfp4(tensor_scale=true,four_over_six=true)",
            [7.56, 7.60, 7.50],
        ),
        ("nvint4", [7.47, 10.52, 10.36]),
        ("if4", [6.18, 7.01, 6.82]),
        ("razer", [6.21, 6.51, 6.51]),
        (
            "block(element=table(0 0.5 1 1.5 2 3 4 6 5 -0.5 -1 -1.5 -2 -3 -4 -6/0 0.5 1 1.5 2 3 4 6 -5 -0.5 -1 -1.5 -2 -3 -4 -6/\
             0 0.5 1 1.5 2 3 4 6 8 -0.5 -1 -1.5 -2 -3 -4 -6/0 0.5 1 1.5 2 3 4 6 -8 -0.5 -1 -1.5 -2 -3 -4 -6),scale=ue3m3,\
             block_size=16,tensor_scale=true)",
            [5.67, 5.49, 5.49],
        ),
        (
            "block(element=table(nf4),scale=float32,block_size=16)",
            [6.54, 6.68, 6.60],
        ),
        (
            "block(element=table(nf4),scale=float32,block_size=32)",
            [7.63, 8.69, 8.59],
        ),
        ("nf4", [8.46, 10.75, 10.91]),
        ("hif4", [6.88, 7.97, 7.74]),
    ];
    /// Elements in MX blocks with scale mode `rceil`, on normal numbers.
    const ELEMENTS: [(&str, f64); 10] = [
        ("fp8_e4m3", 0.703),
        ("fp8_e5m2", 2.796),
        ("fp6_e2m3", 0.801),
        ("fp6_e3m2", 2.796),
        ("e2m2", 3.236),
        ("e3m1", 10.76),
        ("e1m2", 20.7),
        ("e3m0", 37.8),
        ("float(exponent_bits=3,mantissa_bits=4)", 0.177),
        ("e2m5", 0.0497),
    ];
    /// Scales of FP4 in blocks of 16, on normal numbers with these standard deviations.
    const DEVIATIONS: [f32; 4] = [1e-2, 1e-3, 1e-4, 1e-5];
    const RANGES: [(&str, [f64; 4]); 3] = [
        (
            "block(element=e2m1,scale=ue4m3,block_size=16)",
            [15.9, 79.5, 1000.0, 1000.0],
        ),
        ("amdfp4", [9.04, 9.03, 9.93, 16.6]),
        ("nvfp4(tensor_scale=true)", [9.03; 4]),
    ];

    let mut numbers = RandomNumbers::new(8);
    let data = DISTRIBUTIONS.map(|(_, distribution, _)| numbers.many(distribution, SAMPLES));
    let mut figures = Vec::new();
    let mut add = |format: &str, on: &str, x: &[f32], published: f64, share: f64| {
        let q = quantized(format.parse()?, x, SAMPLES, Rounding::NearestEven, 0)?;
        figures.push(PublishedFigure {
            source: NUMPY,
            case: format!("`{}`, {on}", short(format)),
            published: 1e-3 * published,
            tolerance: Relative(share),
            ours: error(x, &q),
        });
        Ok::<(), Box<dyn Error>>(())
    };
    for (pattern, published) in FP4 {
        for (size, published) in ["8", "16", "32"].into_iter().zip(published) {
            let format = pattern.replace('N', size);
            for (i, (name, _, share)) in DISTRIBUTIONS.into_iter().enumerate() {
                add(&format, name, &data[i], published[i], share)?;
            }
        }
    }
    for (format, published) in OTHERS {
        for (i, published) in published.into_iter().enumerate() {
            let (name, _, share) = DISTRIBUTIONS[i];
            add(format, name, &data[i], published, share)?;
        }
    }
    for (element, published) in ELEMENTS {
        let format = format!("mx(element={element},scale_mode=rceil)");
        add(&format, "normal", &data[0], published, 0.01)?;
    }
    for (format, published) in RANGES {
        for (deviation, published) in DEVIATIONS.into_iter().zip(published) {
            let x: Vec<f32> = data[0].iter().map(|x| x * deviation).collect();
            let on = format!("normal, deviation {deviation:e}");
            add(format, &on, &x, published, 0.01)?;
        }
    }
    Ok(figures)
}

/// A format's text without the numbers of its tables.
fn short(format: &str) -> String {
    match (format.find("table(0"), format.find("),")) {
        (Some(begin), Some(end)) => format!("{}table(…){}", &format[..begin], &format[end + 1..]),
        _ => format.into(),
    }
}
