//! Packed weights as other people's checkpoints have them.

use crate::inputs::numbers;
use crate::packed::encode;
use microscaling::{
    BlockFormat, Dialect, Packed, RandomStream, Rounder, StoredTensor, StoredType, StoredView,
    WeightLayout, WeightLayoutError,
};

fn find<'a>(stored: &'a [StoredTensor]) -> impl Fn(&str) -> Option<StoredView<'a>> {
    |name| {
        let tensor = stored.iter().find(|tensor| tensor.name == name)?;
        Some(StoredView {
            dtype: tensor.dtype,
            shape: &tensor.shape,
            bytes: &tensor.bytes,
        })
    }
}

/// Of 64 rows of 64 in a layout.
fn stored(layout: WeightLayout) -> (Packed, Vec<StoredTensor>) {
    stored_rows(layout, 64)
}

fn stored_rows(layout: WeightLayout, rows: usize) -> (Packed, Vec<StoredTensor>) {
    // With a tensor scale that has a divisor.
    let mut data = numbers(64 * rows, 0, false, 7);
    data[0] = 1344.0;
    let packed = encode(layout.format(), &data, &[rows, 64], 1);
    let stored = layout.store("w", &packed.view(), None).unwrap();
    (packed, stored)
}

/// One worked block of each: names, types, shapes and bytes.
#[test]
fn worked_blocks() {
    // Codes 0 to 15 twice, scale 2^3; of NVFP4 codes 0 to 15 with the scale 1.5 and the tensor scale 1/4.
    let pairs: Vec<u8> = (0..16)
        .map(|j| (2 * j % 16) | (2 * j % 16 + 1) << 4)
        .collect();
    let halves: Vec<u8> = (0..16).map(|j| j | j << 4).collect();
    for layout in WeightLayout::ALL {
        let format = layout.format();
        let block = format.group_size();
        let (scale, tensor_scale) = match format.tensor_scale {
            true => (0x3c, Some(0.25)),
            false => (130, None),
        };
        let elements = match layout {
            WeightLayout::Mxfp8Quantized | WeightLayout::Mxfp6PackQuantized => {
                (0..4 * format.element_bits() as u8).collect()
            }
            _ => pairs[..block / 2].to_vec(),
        };
        let shape = [1, block];
        let packed = Packed::from_parts(
            format,
            &shape,
            1,
            tensor_scale,
            vec![scale],
            elements.clone(),
        )
        .unwrap();
        let got = layout.store("a.weight", &packed.view(), None).unwrap();
        let tensor = |name: &str, dtype, shape: &[usize], bytes: &[u8]| StoredTensor {
            name: format!("a.weight{name}"),
            dtype,
            shape: shape.to_vec(),
            bytes: bytes.to_vec(),
        };
        let (u8, e4m3, f32) = (StoredType::U8, StoredType::F8E4M3, StoredType::F32);
        let expected = match layout {
            WeightLayout::Mxfp4PackQuantized => vec![
                tensor("_packed", u8, &[1, 16], &pairs),
                tensor("_scale", u8, &[1, 1], &[130]),
            ],
            WeightLayout::Mxfp6PackQuantized => vec![
                tensor("_packed", u8, &[1, 24], &elements),
                tensor("_scale", u8, &[1, 1], &[130]),
            ],
            WeightLayout::Mxfp8Quantized => vec![
                tensor("", e4m3, &[1, 32], &elements),
                tensor("_scale", u8, &[1, 1], &[130]),
            ],
            WeightLayout::Nvfp4PackQuantized => vec![
                tensor("_packed", u8, &[1, 8], &pairs[..8]),
                tensor("_scale", e4m3, &[1, 1], &[0x3c]),
                tensor("_global_scale", f32, &[1], &4.0_f32.to_le_bytes()),
            ],
            WeightLayout::ModelOptNvfp4 => vec![
                tensor("", u8, &[1, 8], &pairs[..8]),
                tensor("_scale", e4m3, &[1, 1], &[0x3c]),
                tensor("_scale_2", f32, &[], &0.25_f32.to_le_bytes()),
            ],
            WeightLayout::GptOss => vec![
                tensor("_blocks", u8, &[1, 1, 16], &pairs),
                tensor("_scales", u8, &[1, 1], &[130]),
            ],
            WeightLayout::GgufMxfp4 => {
                vec![tensor("", u8, &[1, 17], &[&[130], &halves[..]].concat())]
            }
            other => unimplemented!("{other} is not known here"),
        };
        assert_eq!(got, expected, "{layout}");
        assert_eq!(layout.load("a.weight", find(&got)), Ok(packed), "{layout}");
    }
}

/// Loading returns the stored weight, also for weights packed by other tools' rules.
#[test]
fn nothing_is_lost() {
    for layout in WeightLayout::ALL {
        assert_eq!(layout.name().parse(), Ok(layout));
        let data = numbers(96 * 64, 0, false, 9);
        for dialect in Dialect::ALL {
            let format = layout.format();
            if !dialect.formats().contains(&format.to_string().as_str()) {
                continue;
            }
            let own = dialect.encode(format, &data, &[96, 64]).unwrap();
            let stored = layout.store("w", &own.packed.view(), own.divisor);
            if let Err(error @ WeightLayoutError::Divisor { .. }) = &stored {
                let remedy = "the dialect compressed-tensors packs weights with such a scale";
                assert!(error.to_string().contains(remedy), "{error}");
            }
            if let Err(WeightLayoutError::Divisor { tensor_scale, .. }) = stored {
                assert_eq!(
                    (layout, own.divisor),
                    (WeightLayout::Nvfp4PackQuantized, None)
                );
                assert_eq!(Some(tensor_scale), own.packed.tensor_scale());
                continue;
            }
            let stored = stored.unwrap();
            assert_eq!(
                layout.load("w", find(&stored)),
                Ok(own.packed),
                "{layout} {dialect}"
            );
            if let (Some(divisor), WeightLayout::Nvfp4PackQuantized) = (own.divisor, layout) {
                assert_eq!(stored[2].bytes, divisor.to_le_bytes());
            }
        }
    }
    // Of the experts of a layer.
    for layout in [WeightLayout::GptOss, WeightLayout::GgufMxfp4] {
        let packed = encode(
            layout.format(),
            &numbers(3 * 4 * 96, 0, false, 1),
            &[3, 4, 96],
            2,
        );
        let stored = layout.store("w", &packed.view(), None).unwrap();
        assert_eq!(layout.load("w", find(&stored)), Ok(packed));
    }
}

/// MXFP4 takes 4.25 bits an element, NVFP4 4.5 and a number, MXFP8 8.25.
#[test]
fn sizes() {
    for layout in WeightLayout::ALL {
        let (_, stored) = stored(layout);
        let bytes: usize = stored.iter().map(|tensor| tensor.bytes.len()).sum();
        let numbers = if layout.format().tensor_scale { 4 } else { 0 };
        let bits = layout.format().bits_per_element();
        assert_eq!((bytes - numbers) as f64 * 8.0, bits * 4096.0, "{layout}");
    }
}

#[test]
fn what_a_layout_cannot_say() {
    let mxfp4: BlockFormat = "mxfp4".parse().unwrap();
    let error = |layout: WeightLayout, packed: &Packed| {
        layout
            .store("w", &packed.view(), None)
            .unwrap_err()
            .to_string()
    };
    let ones = |format: &str, shape: &[usize], axis| {
        let count = shape.iter().product();
        encode(format.parse().unwrap(), &vec![1.0; count], shape, axis)
    };
    assert_eq!(
        error(WeightLayout::GptOss, &ones("mxfp6_e3m2", &[2, 32], 1)),
        "layout gpt-oss: `w` is mxfp6_e3m2, expected mxfp4"
    );
    for other in [
        "mx(element=fp4_e2m1,block_size=16)",
        "mx(element=fp4_e2m1,square=true)",
        "mx(element=fp4_e2m1,shared_exp_method=none)",
        // Two scales a block.
        "mx(element=fp4_e2m1,sign_scales=true)",
        "nvfp4",
    ] {
        assert!(
            error(WeightLayout::GgufMxfp4, &ones(other, &[32, 32], 1)).contains("expected mxfp4")
        );
    }
    // How the scale was chosen does not matter.
    let even = ones("mx(element=fp4_e2m1,scale_mode=even)", &[2, 32], 1);
    assert!(WeightLayout::GptOss.store("w", &even.view(), None).is_ok());
    assert_eq!(
        error(
            WeightLayout::Mxfp4PackQuantized,
            &ones("mxfp4", &[32, 32], 0)
        ),
        "layout mxfp4-pack-quantized: `w` has shape [32, 32] with blocks along axis 0, expected two axes with blocks along \
         the last one, a multiple of 32"
    );
    for shape in [&[2, 40][..], &[32], &[0, 32]] {
        let axis = shape.len() - 1;
        let error = error(WeightLayout::GptOss, &ones("mxfp4", shape, axis));
        assert!(error.contains("expected two axes or more"), "{error}");
    }
    assert!(
        error(
            WeightLayout::Mxfp8Quantized,
            &ones("mxfp8_e4m3", &[2, 2, 32], 2)
        )
        .contains("two axes")
    );
    let mut data = [1.0; 64];
    data[40] = f32::NAN;
    assert_eq!(
        error(WeightLayout::GgufMxfp4, &encode(mxfp4, &data, &[1, 64], 1)),
        "layout gguf-mxfp4: block 1 of `w` is NaN or Inf, expected numbers"
    );
    let nvfp4 = WeightLayout::ModelOptNvfp4.format();
    for (scale, tensor_scale) in [(0xff, 1.0), (0x38, f32::INFINITY), (0x38, -1.0)] {
        let packed = Packed::from_parts(
            nvfp4,
            &[1, 16],
            1,
            Some(tensor_scale),
            vec![scale],
            vec![0; 8],
        );
        let error = error(WeightLayout::ModelOptNvfp4, &packed.unwrap());
        assert!(error.contains("block 0 of `w` is NaN or Inf"), "{error}");
    }
    // Just below 1 numbers are twice as dense as their reciprocals.
    let below_one = 0.99_f32.to_bits();
    let (mut said, mut refused) = (0, 0);
    for bits in below_one..below_one + 8 {
        let scale = Some(f32::from_bits(bits));
        let packed = Packed::from_parts(nvfp4, &[1, 16], 1, scale, vec![0x38], vec![0; 8]).unwrap();
        let layout = WeightLayout::Nvfp4PackQuantized;
        match layout.store("w", &packed.view(), None) {
            Ok(stored) => {
                assert_eq!(layout.load("w", find(&stored)), Ok(packed));
                said += 1;
            }
            Err(error) => {
                assert!(
                    error.to_string().contains("the tensor scale of `w` is 9.9"),
                    "{error}"
                );
                refused += 1;
            }
        }
    }
    assert_eq!((said, refused), (4, 4));
}

/// Every defect of a file's tensors is its own error.
#[test]
fn what_is_no_weight_of_a_layout() {
    for layout in WeightLayout::ALL {
        let (_, good) = stored(layout);
        let error = |change: &dyn Fn(&mut Vec<StoredTensor>)| {
            let mut changed = good.clone();
            change(&mut changed);
            layout.load("w", find(&changed)).unwrap_err()
        };
        for i in 0..good.len() {
            let name = &good[i].name;
            let part = |part: &String| part == name;
            let missing = error(&|stored| drop(stored.remove(i)));
            assert!(matches!(missing, WeightLayoutError::Missing { part: p } if part(&p)));
            let other = match good[i].dtype {
                StoredType::U8 => StoredType::F8E4M3,
                _ => StoredType::U8,
            };
            let wrong = error(&|stored| stored[i].dtype = other);
            assert!(matches!(wrong, WeightLayoutError::Type { part: p, .. } if part(&p)));
            let short = error(&|stored| stored[i].bytes.truncate(good[i].bytes.len() - 1));
            assert!(matches!(short, WeightLayoutError::Part { part: p, .. } if part(&p)));
            let huge = error(&|stored| stored[i].shape = vec![usize::MAX, 3]);
            assert!(matches!(huge, WeightLayoutError::Part { part: p, .. } if part(&p)));
            if good[i].dtype != StoredType::F32 {
                let no_axes = error(&|stored| {
                    (stored[i].shape, stored[i].bytes) = (vec![], vec![0]);
                });
                let of_layout = matches!(
                    no_axes,
                    WeightLayoutError::Part { .. } | WeightLayoutError::Scales { .. }
                );
                assert!(of_layout, "{layout}: {no_axes}");
            }
        }
        if good.len() > 1 {
            let scales = error(&|stored| stored[1].shape.reverse());
            assert!(
                matches!(scales, WeightLayoutError::Scales { .. }),
                "{layout}: {scales}"
            );
        }
    }
    let (_, mut good) = stored(WeightLayout::Nvfp4PackQuantized);
    for divisor in [0.0_f32, -1.0, f32::NAN, f32::INFINITY] {
        good[2].bytes = divisor.to_le_bytes().to_vec();
        let error = WeightLayout::Nvfp4PackQuantized.load("w", find(&good));
        assert!(
            matches!(error, Err(WeightLayoutError::NotANumber { .. })),
            "{divisor}"
        );
    }
    let (_, mut good) = stored(WeightLayout::GgufMxfp4);
    good[0].shape = vec![17, 128];
    assert!(matches!(
        WeightLayout::GgufMxfp4.load("w", find(&good)),
        Err(WeightLayoutError::Part { .. })
    ));
}

/// A file with any shapes and bytes: an error, or a weight that becomes the same tensors again.
#[test]
fn hostile_tensors() {
    const LENGTHS: [usize; 10] = [0, 1, 2, 3, 16, 17, 32, 34, 1 << 60, usize::MAX];
    let stream = RandomStream::new(4, 0);
    let mut loaded = [0; WeightLayout::ALL.len()];
    for i in 0..60_000 {
        let draw = |j: u64| stream.draw(64 * i + j) as usize;
        let which = i as usize % loaded.len();
        let layout = WeightLayout::ALL[which];
        let (_, good) = stored_rows(layout, 1 + draw(0) % 3);
        let mut tensors = good;
        // One of the tensors is something else, or none.
        let changed = draw(1) % (tensors.len() + 1);
        if let Some(tensor) = tensors.get_mut(changed) {
            let rank = draw(2) % 4;
            tensor.shape = (0..rank)
                .map(|j| LENGTHS[draw(3 + j as u64) % 10])
                .collect();
            let product = tensor
                .shape
                .iter()
                .try_fold(1_usize, |a, b| a.checked_mul(*b));
            let length = product.filter(|length| *length < 4096 && draw(8) % 8 > 0);
            tensor.bytes = vec![draw(9) as u8; length.unwrap_or(draw(10) % 64)];
        }
        if let Ok(packed) = layout.load("w", find(&tensors)) {
            loaded[which] += 1;
            let mut again = layout.store("w", &packed.view(), None).unwrap();
            if let Some(number) = again.iter_mut().find(|t| t.dtype == StoredType::F32) {
                // A number may have an axis or none, and several divisors one reciprocal.
                let own = tensors.iter().find(|t| t.name == number.name).unwrap();
                (number.shape, number.bytes) = (own.shape.clone(), own.bytes.clone());
            }
            assert_eq!(again, tensors, "{layout}");
        }
    }
    assert!(loaded.iter().all(|count| *count > 1000), "{loaded:?}");
}

#[cfg(feature = "safetensors")]
#[test]
fn what_a_config_says() {
    for layout in WeightLayout::ALL {
        let Some(config) = layout.quantization_config(&["lm_head"]) else {
            assert_eq!(layout, WeightLayout::GgufMxfp4);
            continue;
        };
        let ignored = config
            .get("ignore")
            .or(config.get("modules_to_not_convert"));
        assert_eq!(ignored, Some(&serde_json::json!(["lm_head"])));
        let method = config["quant_method"].as_str().unwrap();
        match layout {
            WeightLayout::GptOss => assert_eq!(method, "mxfp4"),
            WeightLayout::ModelOptNvfp4 => {
                assert_eq!(
                    (method, &config["quant_algo"]),
                    ("modelopt", &"W4A16_NVFP4".into())
                );
            }
            _ => {
                assert_eq!(
                    (method, &config["format"]),
                    ("compressed-tensors", &layout.name().into())
                );
                let weights = &config["config_groups"]["group_0"]["weights"];
                assert_eq!(weights["group_size"], layout.format().group_size());
                assert_eq!(weights["num_bits"], layout.format().element_bits());
            }
        }
    }
}

/// Scales of MX under the type's own name are the same bytes. NVFP4's scales are E4M3, and elements are not scales.
#[test]
fn scales_as_e8m0() {
    for layout in WeightLayout::ALL {
        let weight: Vec<f32> = (0..128).map(|i| i as f32 - 60.0).collect();
        let packed =
            Packed::encode(layout.format(), &weight, &[2, 64], 1, Rounder::NearestEven).unwrap();
        let stored = layout.store("w", &packed.view(), None).unwrap();
        for i in 0..stored.len() {
            let mut retyped = stored.clone();
            retyped[i].dtype = StoredType::F8E8M0;
            let loaded = layout.load("w", |name| {
                let tensor = retyped.iter().find(|tensor| tensor.name == name)?;
                Some(StoredView {
                    dtype: tensor.dtype,
                    shape: &tensor.shape,
                    bytes: &tensor.bytes,
                })
            });
            let scales = stored[i].name.ends_with("_scale") || stored[i].name.ends_with("_scales");
            if scales && layout.format().has_exponent() {
                assert_eq!(loaded.as_ref(), Ok(&packed), "{layout}");
            } else {
                assert!(
                    matches!(&loaded, Err(WeightLayoutError::Type { part, .. }) if *part == stored[i].name),
                    "{layout}: {loaded:?}"
                );
            }
        }
    }
}
