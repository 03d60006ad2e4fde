//! DoRA, and the merge of adapters.

use super::*;

/// The norm of each row of `w + 2·b·a`, in float64.
fn norms(packed: &Packed, a: &[f32], b: &[f32], rank: usize) -> Vec<f64> {
    let inputs = packed.shape()[1];
    let rows = packed.decode();
    let sum = |out: usize, i: usize| -> f64 {
        let products =
            (0..rank).map(|r| f64::from(b[out * rank + r]) * f64::from(a[r * inputs + i]));
        f64::from(rows[out * inputs + i]) + 2.0 * products.sum::<f64>()
    };
    let norm = |out| (0..inputs).map(|i| sum(out, i).powi(2)).sum::<f64>().sqrt();
    (0..packed.shape()[0]).map(norm).collect()
}

#[test]
fn dora_scales_each_output_to_its_magnitude() -> Test {
    let on = MxDevice::new(FlexDevice, MxSpecs::none())?;
    let packed = packed("mxfp4".parse()?, [OUT, IN], 1);
    let dora = LoraConfig {
        dora: true,
        ..CONFIG
    };
    let fresh = PackedLinear::<Train>::new(packed.clone(), None, &on)?;
    let x = tensor::<Train, 2>(&numbers(3 * IN, 8), [3, IN], &on);
    let float = values(fresh.forward(x.clone()));
    let started = values(fresh.with_adapter(dora)?.forward(x.clone()));
    for (own, float) in started.iter().zip(float) {
        assert!(
            (own - float).abs() <= 1e-5 * float.abs().max(1.0),
            "{own} {float}"
        );
    }

    let layer = layer(packed.clone(), true, dora, &on);
    let adapter = layer.adapter().expect("it has one");
    let magnitude = adapter.magnitude.as_ref().expect("DoRA has one").val();
    let [a, b] = [&adapter.a, &adapter.b].map(|x| values(x.val()));
    let norms = norms(&packed, &a, &b, 4);
    let factors: Vec<f64> = values(magnitude.clone())
        .iter()
        .zip(&norms)
        .map(|(m, n)| f64::from(*m) / n)
        .collect();
    let (x_rows, rows, bias) = (numbers(3 * IN, 8), packed.decode(), numbers(OUT, 5));
    let y = layer.forward(x);
    let gradient = magnitude
        .grad(&y.clone().sum().backward())
        .expect("trained");
    let (own, gradient) = (values(y), values(gradient));
    for out in 0..OUT {
        let mut sums = 0.0;
        for row in 0..3 {
            let x = |i: usize| f64::from(x_rows[row * IN + i]);
            let base: f64 = (0..IN).map(|i| x(i) * f64::from(rows[out * IN + i])).sum();
            let lora: f64 = (0..4)
                .map(|r| {
                    let inner: f64 = (0..IN).map(|i| x(i) * f64::from(a[r * IN + i])).sum();
                    inner * f64::from(b[out * 4 + r])
                })
                .sum();
            let product = base + 2.0 * lora;
            sums += product / norms[out];
            let expected = product * factors[out] + f64::from(bias[out]);
            let got = f64::from(own[row * OUT + out]);
            assert!(
                (got - expected).abs() <= 1e-4 * expected.abs().max(1.0),
                "{got} {expected}"
            );
        }
        let got = f64::from(gradient[out]);
        assert!(
            (got - sums).abs() <= 1e-4 * sums.abs().max(1.0),
            "{got} {sums}"
        );
    }
    Ok(())
}

#[test]
fn a_merge_packs_the_sum_and_says_its_error() -> Test {
    let [mxfp4, nvfp4]: [BlockFormat; 2] = ["mxfp4".parse()?, BlockFormat::nvfp4(true)];
    let none = MxSpecs::none();
    let tool = MxSpecs {
        dialect_w: Some(Dialect::CompressedTensors),
        bfloat: 0,
        ..MxSpecs::mxfp4().straight_through()
    };
    for (format, specs) in [(mxfp4, &none), (nvfp4, &none), (mxfp4, &tool)] {
        let on = MxDevice::new(FlexDevice, specs)?;
        let packed = packed(format, [OUT, IN], 1);
        for dora in [false, true] {
            let layer = layer(packed.clone(), true, LoraConfig { dora, ..CONFIG }, &on);
            let adapter = layer.adapter().expect("it has one");
            let [a, b] = [&adapter.a, &adapter.b].map(|x| values(x.val()));
            let magnitude = adapter.magnitude.as_ref().map(|m| values(m.val()));
            let norms = norms(&packed, &a, &b, 4);
            let sum: Vec<f64> = (packed.decode().iter().enumerate())
                .map(|(at, w)| {
                    let (out, i) = (at / IN, at % IN);
                    let products =
                        (0..4).map(|r| f64::from(b[out * 4 + r]) * f64::from(a[r * IN + i]));
                    let sum = f64::from(*w) + 2.0 * products.sum::<f64>();
                    let factor = |m: &Vec<f32>| f64::from(m[out]) / norms[out];
                    sum * magnitude.as_ref().map_or(1.0, factor)
                })
                .collect();
            let merged = layer.merge()?;
            assert_eq!(merged.layer.packed().format(), format);
            let decoded = merged.layer.packed().decode();
            let differences = decoded
                .iter()
                .zip(&sum)
                .map(|(x, sum)| (f64::from(*x) - sum).abs());
            let largest = differences.clone().fold(0.0, f64::max);
            let squares: f64 = differences.map(|x| x * x).sum();
            let relative = squares / sum.iter().map(|x| x * x).sum::<f64>();
            assert!(
                (merged.largest - largest).abs() < 1e-5,
                "{} {largest}",
                merged.largest
            );
            let own = merged.relative_squared;
            assert!(
                (own - relative).abs() < 1e-6 && relative > 1e-3,
                "{own} {relative}"
            );
            // No rounding of the sum is nearer: the packing is the format's or the tool's own.
            let float: Vec<f32> = sum.iter().map(|x| *x as f32).collect();
            let again = match specs.dialect_w {
                Some(dialect) => dialect.encode(format, &float, &[OUT, IN])?.packed,
                None => Packed::encode(format, &float, &[OUT, IN], 1, Rounder::NearestEven)?,
            };
            let same = again
                .decode()
                .iter()
                .zip(&decoded)
                .filter(|(x, y)| x == y)
                .count();
            assert!(same as f64 > 0.999 * decoded.len() as f64, "{same}");
            // Nothing to merge: the bytes stay.
            let second = merged.layer.merge()?;
            assert_eq!(second.layer.packed(), merged.layer.packed());
            assert_eq!((second.largest, second.relative_squared), (0.0, 0.0));
        }
    }
    Ok(())
}
