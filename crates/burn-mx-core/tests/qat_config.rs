//! Each backward pass of `QatConfig` beside its formula, written out. All sums but the dialect's are exact in float32, so the bits are equal.

use burn_core::module::Param;
use burn_core::tensor::{Tensor, TensorData, module::linear};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxAutodiff, MxBackend, MxDevice, MxSpecs, QatBackward, QatConfig, SpecsError};
use burn_mx_module::as_activation;
use microscaling::{BlockFormat, Dialect, Rounder};

type B = MxAutodiff<Flex>;
type Test = Result<(), Box<dyn std::error::Error>>;

const ROWS: usize = 4;
const IN: usize = 64;
const OUT: usize = 8;

/// Multiples of 2^−9 with up to 10 bits, of which bfloat16 has 8.
fn numbers(count: usize, seed: u32, largest: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let n = (state >> 8) % (2 * largest + 1);
        (n as f32 - largest as f32) / 512.0
    };
    (0..count).map(|_| next()).collect()
}

fn operands() -> [Vec<f32>; 3] {
    [
        numbers(ROWS * IN, 1, 1023),
        numbers(IN * OUT, 2, 1023),
        numbers(ROWS * OUT, 3, 511),
    ]
}

/// The gradients of `x` and `w` of `y = x·w` for the gradient `g` of `y`.
fn gradients(specs: &MxSpecs) -> Result<[Vec<f32>; 2], Box<dyn std::error::Error>> {
    let device = MxDevice::new(FlexDevice, specs)?;
    let [x, w, g] = operands();
    let x = Tensor::<B, 2>::from_data(TensorData::new(x, [ROWS, IN]), &device);
    let x = as_activation(x.require_grad());
    let w = Param::from_tensor(Tensor::<B, 2>::from_data(
        TensorData::new(w, [IN, OUT]),
        &device,
    ));
    let y = linear(x.clone(), w.val(), None);
    let g = Tensor::<B, 2>::from_data(TensorData::new(g, [ROWS, OUT]), &device);
    let gradients = (y * g).sum().backward();
    let values = |gradient: Option<Tensor<MxBackend<Flex>, 2>>| {
        let gradient = gradient.expect("it is a leaf");
        gradient.into_data().to_vec::<f32>().expect("it is float32")
    };
    Ok([values(x.grad(&gradients)), values(w.val().grad(&gradients))])
}

/// To nearest, ties to even, by the bits.
fn bfloat16(x: &f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

fn rounded(values: &[f32]) -> Vec<f32> {
    values.iter().map(bfloat16).collect()
}

/// Rounded to bfloat16, then in blocks of MXFP4 along the summed axis.
fn quantized(values: &[f32], shape: [usize; 2], axis: usize) -> Vec<f32> {
    let mut values = rounded(values);
    let format: BlockFormat = "mxfp4".parse().expect("a name");
    let quantized = format.quantize(&mut values, &shape, axis, Rounder::NearestEven);
    quantized.expect("the axis is there");
    values
}

/// 0 for the elements that MXFP4 clips: at least 6 times the scale, the power of two below the block's largest magnitude, over 4.
fn kept(values: &[f32], shape: [usize; 2], axis: usize) -> Vec<f32> {
    let values = rounded(values);
    let element = |i: usize| {
        let (row, column) = (i / shape[1], i % shape[1]);
        let place = if axis == 0 { row } else { column };
        let neighbours = (place / 32 * 32..place / 32 * 32 + 32).map(|other| match axis {
            0 => values[other * shape[1] + column].abs(),
            _ => values[row * shape[1] + other].abs(),
        });
        let largest = neighbours.fold(0.0, f32::max);
        let scale = largest.log2().floor().exp2() / 4.0;
        if values[i].abs() < 6.0 * scale {
            1.0
        } else {
            0.0
        }
    };
    (0..values.len()).map(element).collect()
}

/// `dx = g·wᵀ` and `dw = xᵀ·g`.
fn products(x: &[f32], w: &[f32], g: &[f32]) -> [Vec<f32>; 2] {
    let dot = |terms: &mut dyn Iterator<Item = (f32, f32)>| {
        let sum: f64 = terms.map(|(a, b)| f64::from(a) * f64::from(b)).sum();
        assert!(f64::from(sum as f32) == sum, "{sum} is exact");
        sum as f32
    };
    let of_x = (0..ROWS * IN).map(|i| {
        let (row, input) = (i / IN, i % IN);
        dot(&mut (0..OUT).map(|out| (g[row * OUT + out], w[input * OUT + out])))
    });
    let of_w = (0..IN * OUT).map(|i| {
        let (input, out) = (i / OUT, i % OUT);
        dot(&mut (0..ROWS).map(|row| (x[row * IN + input], g[row * OUT + out])))
    });
    [of_x.collect(), of_w.collect()]
}

fn mxfp4(backward: QatBackward, bfloat: u32) -> QatConfig {
    QatConfig {
        w_elem_format: Some("mxfp4".into()),
        a_elem_format: Some("fp4_e2m1".into()),
        bfloat,
        backward,
        ..QatConfig::default()
    }
}

fn backward(kind: QatBackward) -> Result<[Vec<f32>; 2], Box<dyn std::error::Error>> {
    gradients(&mxfp4(kind, 16).specs()?)
}

#[test]
fn straight_through_and_masked() -> Test {
    let [x, w, g] = operands();
    let (of_x, of_w) = ([ROWS, IN], [IN, OUT]);
    let expected = products(&quantized(&x, of_x, 1), &quantized(&w, of_w, 0), &g);
    assert!(backward(QatBackward::StraightThrough)? == expected);

    let kept = [kept(&x, of_x, 1), kept(&w, of_w, 0)];
    let clipped = kept.iter().flatten().filter(|x| **x == 0.0).count();
    assert!(clipped > 20, "{clipped}");
    let masked = [0, 1].map(|i| {
        let both = expected[i].iter().zip(&kept[i]);
        both.map(|(gradient, kept)| gradient * kept)
            .collect::<Vec<f32>>()
    });
    assert!(backward(QatBackward::Masked)? == masked);
    Ok(())
}

#[test]
fn overrides_of_transformer_engine() -> Test {
    let [x, w, g] = operands();
    let (of_x, of_w) = ([ROWS, IN], [IN, OUT]);
    let all = [&x, &w, &g].map(|values| rounded(values));
    assert!(all[0] != x && all[1] != w && all[2] != g);
    let [rx, rw, rg] = all;
    let (qx, qw) = (quantized(&x, of_x, 1), quantized(&w, of_w, 0));
    let dequantized = products(&rounded(&qx), &rounded(&qw), &rg).map(|values| rounded(&values));
    assert!(backward(QatBackward::Dequantized)? == dequantized);
    let high = products(&rx, &rw, &rg).map(|values| rounded(&values));
    assert!(backward(QatBackward::HighPrecision)? == high);

    // The compute type float32 has the gradients that are named otherwise.
    let specs = mxfp4(QatBackward::Dequantized, 0).specs()?;
    assert_eq!(specs, mxfp4(QatBackward::StraightThrough, 0).specs()?);
    let specs = mxfp4(QatBackward::HighPrecision, 0).specs()?;
    assert!(gradients(&specs)? == products(&x, &w, &g));
    Ok(())
}

/// The gradient products of a dialect's values, which have more bits than bfloat16.
#[test]
fn overrides_with_a_dialect() -> Test {
    let [x, w, g] = operands();
    let format: BlockFormat = "nvfp4(tensor_scale=true)".parse()?;
    let config = QatConfig {
        w_elem_format: Some("nvfp4(tensor_scale=true)".into()),
        dialect_w: Some(Dialect::ModelOpt),
        backward: QatBackward::Dequantized,
        ..QatConfig::default()
    };
    let mut qw = rounded(&w);
    Dialect::ModelOpt.quantize(format, &mut qw, &[IN, OUT], 0)?;
    assert!(rounded(&qw) != qw);
    let [of_x, of_w] = gradients(&config.specs()?)?;
    let expected = products(&rounded(&x), &rounded(&w), &rounded(&g));
    assert!(of_w == rounded(&expected[1]));
    // These sums are not exact: neighbours of a tie may differ.
    let rows = 0..ROWS * IN;
    let wanted = rows.map(|i| {
        let (row, input) = (i / IN, i % IN);
        let products = (0..OUT).map(|out| {
            f64::from(bfloat16(&g[row * OUT + out])) * f64::from(bfloat16(&qw[input * OUT + out]))
        });
        products.sum::<f64>() as f32
    });
    for (own, wanted) in of_x.iter().zip(wanted) {
        let ulp = f32::from_bits(wanted.abs().to_bits() & 0x7f80_0000) / 128.0;
        assert!((own - wanted).abs() <= 0.501 * ulp + 1e-6, "{own} {wanted}");
    }
    Ok(())
}

#[test]
fn contradictions() {
    let error = |config: QatConfig| config.specs().expect_err("a contradiction").to_string();
    let sound = mxfp4(QatBackward::Masked, 16);
    let none = QatConfig::default();
    for (config, wanted) in [
        (
            none,
            "`w_elem_format` is none, but `a_elem_format` is none, too",
        ),
        (
            QatConfig {
                dialect_w: Some(Dialect::Ggml),
                ..none
            },
            "`w_elem_format` is none, but `dialect_w` is set; allowed: a format of the dialect",
        ),
        (
            QatConfig {
                a_elem_format: None,
                dialect_a: Some(Dialect::Ggml),
                ..sound
            },
            "`a_elem_format` is none, but `dialect_a` is set",
        ),
        (
            QatConfig {
                dialect_w: Some(Dialect::Quark),
                ..sound
            },
            "`dialect_w` is quark, but `mask_clipped` is true",
        ),
        (
            QatConfig {
                dialect_a: Some(Dialect::TransformerEngine),
                ..mxfp4(QatBackward::Dequantized, 16)
            },
            "`dialect_a` is transformer-engine, and the format of its slot is mxfp4; allowed with this dialect: nvfp4",
        ),
        (
            QatConfig {
                w_elem_format: Some("mxfp5".into()),
                ..sound
            },
            "`w_elem_format` is `mxfp5`",
        ),
        (QatConfig { bfloat: 9, ..sound }, "`bfloat` is 9; allowed: "),
        (
            mxfp4(QatBackward::HighPrecision, 24),
            "`bfloat` is 24, but the gradients of this backward pass are in bfloat16 or float32; allowed: 16",
        ),
    ] {
        let error = error(config);
        assert!(error.starts_with(wanted), "{error}");
    }
    let specs = MxSpecs {
        hadamard_block_size: 32,
        ..MxSpecs::mxfp4()
    };
    let error = QatBackward::HighPrecision.apply(specs);
    let error: SpecsError = error.expect_err("a transform without blocks");
    assert!(
        error
            .to_string()
            .starts_with("`hadamard_block_size` is 32, but"),
        "{error}"
    );
}

#[test]
fn names() {
    let error = "quick".parse::<QatBackward>().expect_err("no such pass");
    assert!(
        error
            .to_string()
            .contains("allowed: straight-through, masked"),
        "{error}"
    );
    for kind in [
        "straight-through",
        "masked",
        "dequantized",
        "high-precision",
    ] {
        let parsed: Result<QatBackward, _> = kind.parse();
        assert_eq!(parsed.expect("a name").to_string(), kind);
    }
}
