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

/// Three layers whose weights differ in magnitude.
fn fused(format: BlockFormat, on: &MxDevice<FlexDevice>) -> Vec<PackedLinear<Train>> {
    let of = |(outputs, seed, factor): (usize, u64, f32)| {
        let values = numbers(outputs * IN, seed);
        let values: Vec<f32> = values.into_iter().map(|x| x * factor).collect();
        let packed = Packed::encode(format, &values, &[outputs, IN], 1, Rounder::NearestEven);
        layer(packed.expect("finite"), false, CONFIG, on)
    };
    [(OUT, 1, 1.0), (16, 2, 9.0), (16, 3, 0.1)].map(of).into()
}

#[test]
fn fused_layers_are_merged_with_one_tensor_scale() -> Test {
    let nvfp4 = BlockFormat::nvfp4(true);
    let none = MxSpecs::none();
    let of_tool = |dialect| MxSpecs {
        dialect_w: Some(dialect),
        bfloat: 0,
        ..MxSpecs::nvfp4().straight_through()
    };
    let tools = [Dialect::ModelOpt, Dialect::CompressedTensors].map(of_tool);
    for specs in [&none, &tools[0], &tools[1]] {
        let on = MxDevice::new(FlexDevice, specs)?;
        let layers = fused(nvfp4, &on);
        let alone = layers.iter().map(|layer| layer.merge());
        let alone: Vec<_> = alone.collect::<Result<_, _>>()?;
        let scale = |layer: &PackedLinear<Train>| layer.packed().tensor_scale();
        assert!(scale(&alone[1].layer) > scale(&alone[0].layer));
        let layers: Vec<&PackedLinear<Train>> = layers.iter().collect();
        let merged = PackedLinear::merge_fused(&layers)?;

        // One tensor of all sums, packed at once.
        let sums = layers.iter().map(|layer| -> Vec<f32> {
            let adapter = layer.adapter().expect("it has one");
            let [a, b] = [&adapter.a, &adapter.b].map(|x| values(x.val()));
            let sum = |(at, w): (usize, &f32)| {
                let (out, i) = (at / IN, at % IN);
                let products = (0..4).map(|r| f64::from(b[out * 4 + r]) * f64::from(a[r * IN + i]));
                (f64::from(*w) + 2.0 * products.sum::<f64>()) as f32
            };
            layer
                .packed()
                .decode()
                .iter()
                .enumerate()
                .map(sum)
                .collect()
        });
        let sums: Vec<f32> = sums.flatten().collect();
        let shape = [sums.len() / IN, IN];
        let whole = match specs.dialect_w {
            Some(dialect) => dialect.encode(nvfp4, &sums, &shape)?.packed,
            None => Packed::encode(nvfp4, &sums, &shape, 1, Rounder::NearestEven)?,
        };
        let own: Vec<f32> = merged
            .iter()
            .flat_map(|merged| merged.layer.packed().decode())
            .collect();
        let pairs = own.iter().zip(whole.decode());
        let same = pairs.filter(|(x, y)| *x == y).count();
        assert!(same as f64 > 0.999 * own.len() as f64, "{same}");
        for (merged, alone) in merged.iter().zip(&alone) {
            assert_eq!(scale(&merged.layer), whole.tensor_scale());
            assert!(merged.relative_squared > 0.0 && alone.relative_squared > 0.0);
        }

        // Nothing to merge: the bytes stay.
        let layers: Vec<_> = merged.iter().map(|merged| &merged.layer).collect();
        let again = PackedLinear::merge_fused(&layers)?;
        for (again, merged) in again.iter().zip(&merged) {
            assert_eq!(again.layer.packed(), merged.layer.packed());
            assert_eq!(again.largest, 0.0);
        }
    }

    // Without a tensor scale there is nothing to share.
    let on = MxDevice::new(FlexDevice, &none)?;
    let mxfp4 = fused("mxfp4".parse()?, &on);
    let layers: Vec<_> = mxfp4.iter().collect();
    for (merged, layer) in PackedLinear::merge_fused(&layers)?.iter().zip(layers) {
        assert_eq!(merged.layer.packed(), layer.merge()?.layer.packed());
    }
    let nvfp4 = fused(nvfp4, &on);
    let error = PackedLinear::merge_fused(&[&mxfp4[0], &nvfp4[0]]).expect_err("two formats");
    let wanted = format!("packed as mxfp4 with {IN} inputs and as nvfp4(tensor_scale=true)");
    assert!(error.to_string().contains(&wanted), "{error}");
    Ok(())
}
