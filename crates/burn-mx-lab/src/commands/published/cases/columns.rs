//! Products of training recipes that treat columns or means of an operand apart. An independent program computed the figures from the definitions, in float64.

use std::error::Error;

use burn::backend::{Flex, flex::FlexDevice};
use burn::tensor::{Tensor, TensorData, module::linear};
use burn_mx::{BlockFormat, ColumnChoice, HotColumns, MxBackend, MxDevice, MxSpecs, Rounding};

use super::super::random::{Distribution, RandomNumbers, error, error_and_shrinkage, quantized};
use super::Tolerance::{Absolute, Relative};
use super::recipes::figure;
use super::{PublishedFigures, ROW, ROWS};

pub(super) fn columns() -> PublishedFigures {
    let mut figures = outer_scales()?;
    figures.extend(hot_channels()?);
    figures.extend(means()?);
    figures.extend(residuals()?);
    figures.extend(chain()?);
    Ok(figures)
}

/// The product `x · w` by these specs, without an elementwise format.
fn product(
    specs: &MxSpecs,
    [x, w]: [&[f32]; 2],
    columns: usize,
) -> Result<Vec<f32>, Box<dyn Error>> {
    let specs = MxSpecs {
        bfloat: 0,
        ..specs.clone()
    };
    let device = MxDevice::new(FlexDevice, &specs)?;
    let tensor = |values: &[f32], shape: [usize; 2]| {
        Tensor::<MxBackend<Flex>, 2>::from_data(TensorData::new(values.to_vec(), shape), &device)
    };
    let x = tensor(x, [x.len() / columns, columns]);
    let w = tensor(w, [columns, w.len() / columns]);
    Ok(linear(x, w, None).into_data().into_vec::<f32>()?)
}

/// TetraJet-v2's format on normal numbers, and on rows whose groups of 128 spread over 24 octaves.
fn outer_scales() -> PublishedFigures {
    let format = MxSpecs::tetrajet_v2()
        .resolve()?
        .block_format(burn_mx::Slot::W);
    let format = format.ok_or("weights have no format")?;
    let mut numbers = RandomNumbers::new(10);
    let x = numbers.many(Distribution::Gauss, ROWS * ROW);
    let of = |x: &[f32], format, rounding| -> Result<[f64; 2], Box<dyn Error>> {
        let q = quantized(format, x, ROW, rounding, 10)?;
        Ok(error_and_shrinkage(x, &q, ROW))
    };
    let [nearest, _] = of(&x, format, Rounding::NearestEven)?;
    let [stochastic, shrinkage] = of(&x, format, Rounding::Stochastic)?;
    let octave = |at: usize| 2.0_f32.powf(24.0 * (at / ROW) as f32 / ROWS as f32);
    let spread: Vec<f32> = x.iter().enumerate().map(|(at, x)| x * octave(at)).collect();
    let one_scale = BlockFormat {
        outer: None,
        tensor_scale: true,
        ..format
    };
    let [apart, _] = of(&spread, format, Rounding::NearestEven)?;
    let [together, _] = of(&spread, one_scale, Rounding::NearestEven)?;
    Ok(vec![
        figure(
            "`tetrajet_v2`, squared error, nearest",
            9.01e-3,
            Relative(0.01),
            nearest,
        ),
        figure(
            "`tetrajet_v2`, squared error, stochastic",
            18.7e-3,
            Relative(0.03),
            stochastic,
        ),
        figure("… shrinkage", 2.6e-3, Absolute(3e-4), shrinkage),
        figure(
            "… groups over 24 octaves, nearest",
            9.00e-3,
            Relative(0.01),
            apart,
        ),
        // The largest of all numbers decides which rows become zero. From draw to draw this number moves by a tenth, and so moves the
        // bound by 0.15 of 24 octaves.
        figure(
            "… with one scale of the tensor",
            0.145,
            Relative(0.05),
            together,
        ),
    ])
}

/// A product of which a tenth of the input channels is ten times as large.
fn hot_channels() -> PublishedFigures {
    const ROWS: usize = 1024;
    const COLUMNS: usize = 1280;
    let mut numbers = RandomNumbers::new(11);
    let mut x = numbers.many(Distribution::Gauss, ROWS * COLUMNS);
    let w = numbers.many(Distribution::Gauss, COLUMNS * 512);
    for (at, x) in x.iter_mut().enumerate() {
        if at % COLUMNS % 10 == 3 {
            *x *= 10.0;
        }
    }
    let with = |hot_columns| MxSpecs {
        hot_columns,
        ..MxSpecs::tetrajet_v2()
    };
    let in_product = MxSpecs::tetrajet_v2().hot_columns.map(|hot| HotColumns {
        chosen: ColumnChoice::Product,
        ..hot
    });
    let exact = product(&MxSpecs::none(), [&x, &w], COLUMNS)?;
    let of = |hot| -> Result<f64, Box<dyn Error>> {
        Ok(error(&exact, &product(&with(hot), [&x, &w], COLUMNS)?))
    };
    Ok(vec![
        figure(
            "`tetrajet_v2`, product with 128 hot channels, all FP4",
            1.77e-2,
            Relative(0.01),
            of(None)?,
        ),
        figure(
            "… with OutControl",
            2.77e-3,
            Relative(0.01),
            of(in_product)?,
        ),
    ])
}

/// The shape of the products below: rows, channels, outputs.
const SHAPE: [usize; 3] = [1024, 512, 512];

/// Normal numbers that `python/published.py` makes, too.
pub(super) fn reproducible(seed: u64, count: usize) -> Vec<f32> {
    let uniform = |at: usize| {
        let bits = splitmix(seed, at as u64);
        ((bits >> 11) as f64 + 0.5) / 2.0_f64.powi(53)
    };
    let normal = |at: usize| {
        let radius = (-2.0 * uniform(2 * at).ln()).sqrt();
        radius * (std::f64::consts::TAU * uniform(2 * at + 1)).cos()
    };
    (0..count).map(|at| normal(at) as f32).collect()
}

/// SplitMix64 of a counter.
fn splitmix(seed: u64, at: u64) -> u64 {
    let z = seed.wrapping_add((at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Averis: a product whose input channels have large means.
fn means() -> PublishedFigures {
    let [rows, channels, outputs] = SHAPE;
    let means = reproducible(1, channels);
    let mut x = reproducible(2, rows * channels);
    for row in x.chunks_mut(channels) {
        let pairs = row.iter_mut().zip(&means);
        pairs.for_each(|(x, mean)| *x = (f64::from(*x) + 4.0 * f64::from(*mean)) as f32);
    }
    let w = reproducible(3, channels * outputs);
    /// Less the mean of all rows.
    fn centred(y: &[f32]) -> Vec<f32> {
        let [rows, _, outputs] = SHAPE;
        let mut sums = vec![0.0; outputs];
        for row in y.chunks(outputs) {
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, y)| *sum += f64::from(*y));
        }
        let less =
            |(at, y): (usize, &f32)| (f64::from(*y) - sums[at % outputs] / rows as f64) as f32;
        y.iter().enumerate().map(less).collect()
    }
    let exact = product(&MxSpecs::none(), [&x, &w], channels)?;
    let mut figures = Vec::new();
    for (mean_apart, case, [published, total]) in [
        (
            false,
            "NVFP4, product of inputs with means",
            [0.16428, 1.7854e-2],
        ),
        (
            true,
            "`averis` to nearest, the same product",
            [1.8139e-2, 1.7277e-2],
        ),
    ] {
        let specs = MxSpecs {
            mean_apart,
            round_mx_output: Some(Rounding::NearestEven),
            ..MxSpecs::averis()
        };
        let y = product(&specs, [&x, &w], channels)?;
        let ours = error(&centred(&exact), &centred(&y));
        let case = format!("{case}, less the mean");
        figures.push(figure(case, published, Relative(0.01), ours));
        let ours = error(&exact, &y);
        figures.push(figure("… in total", total, Relative(0.01), ours));
    }
    Ok(figures)
}

/// CHON: a product with 16 hot channels, and the residuals of some channels.
fn residuals() -> PublishedFigures {
    let [rows, channels, outputs] = SHAPE;
    let mut x = reproducible(4, rows * channels);
    for row in x.chunks_mut(channels) {
        (0..16).for_each(|i| row[(29 * i + 7) % channels] *= 30.0);
    }
    let w = reproducible(5, channels * outputs);
    let exact = product(&MxSpecs::none(), [&x, &w], channels)?;
    // Percent of 512, which is rounded up to a multiple of 16.
    let cases = [
        (0, None, 1.8614e-2),
        (16, Some(1), 5.9558e-3),
        (32, Some(4), 5.5460e-3),
        (64, Some(12), 4.7704e-3),
    ];
    let mut figures = Vec::new();
    for (count, percent, published) in cases {
        let hot_columns = MxSpecs::chon().hot_columns.zip(percent);
        let specs = MxSpecs {
            hot_columns: hot_columns.map(|(hot, percent)| HotColumns {
                percent,
                multiple: 16,
                ..hot
            }),
            ..MxSpecs::chon()
        };
        let case = match count {
            0 => "`chon`, product with 16 hot channels, no residuals".into(),
            _ => format!("… with residuals of {count} channels"),
        };
        let ours = error(&exact, &product(&specs, [&x, &w], channels)?);
        figures.push(figure(case, published, Relative(0.01), ours));
    }
    Ok(figures)
}

/// DeepSeek-V4's weights from MXFP4 to FP8 in tiles: exact while the largest block scale of a tile is at most 2^14 times the smallest.
fn chain() -> PublishedFigures {
    const SIDE: usize = 128;
    let fp4: BlockFormat = "mx(element=fp4_e2m1)".parse()?;
    let tiles: BlockFormat = "mx(element=fp8_e4m3,block_size=128,square=true)".parse()?;
    let mut numbers = RandomNumbers::new(13);
    let mut figures = Vec::new();
    for octaves in [14, 15] {
        let mut x = numbers.many(Distribution::Gauss, SIDE * SIDE);
        for block in x.chunks_mut(32) {
            // FP4's numbers from 0.5 to 6, so that each block has the scale 1.
            for x in block.iter_mut() {
                *x = x.clamp(-3.0, 3.0) * 2.0;
            }
            (block[0], block[1]) = (6.0, 0.5);
        }
        let smaller = 2.0_f32.powi(-octaves);
        x[SIDE * SIDE / 2..].iter_mut().for_each(|x| *x *= smaller);
        let fours = quantized(fp4, &x, SIDE, Rounding::NearestEven, 0)?;
        let eights = quantized(tiles, &fours, SIDE, Rounding::NearestEven, 0)?;
        let wrong = fours.iter().zip(&eights).any(|(a, b)| a != b);
        let case =
            format!("`deepseek_v4_qat`, FP8 tiles are wrong with block scales 2^{octaves} apart");
        figures.push(figure(
            case,
            f64::from(octaves - 14),
            Absolute(0.0),
            f64::from(u8::from(wrong)),
        ));
    }
    Ok(figures)
}
