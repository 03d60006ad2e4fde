//! Records of another base, and wrong input.

use burn_core::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn_mx_module::load_adapters;

use super::*;

#[test]
fn a_record_is_small_and_refuses_another_base() -> Test {
    let on = MxDevice::new(FlexDevice, MxSpecs::none())?;
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::default();
    let mxfp4 = "mxfp4".parse()?;
    let own = layer(packed(mxfp4, [256, 256], 1), false, CONFIG, &on);
    let bytes = Recorder::<Train>::record(&recorder, own.clone().into_record(), ())?;
    let adapter = 4 * 2 * 256 * 4;
    assert!(
        (adapter..adapter + 600).contains(&bytes.len()),
        "{}",
        bytes.len()
    );

    let fresh = |seed, shape, config| {
        let layer =
            PackedLinear::<Train>::new(packed(mxfp4, shape, seed), None, &on).expect("it fits");
        layer.with_adapter(config).expect("the sizes are allowed")
    };
    let record =
        || Recorder::<Train>::load(&recorder, bytes.clone(), &on).expect("it was recorded");
    let loaded = load_adapters(fresh(1, [256, 256], CONFIG), record())?;
    let x = tensor::<Train, 2>(&numbers(256, 8), [1, 256], &on);
    assert_eq!(bits(loaded.forward(x.clone())), bits(own.forward(x)));
    let refused = [
        fresh(2, [256, 256], CONFIG),
        fresh(1, [512, 128], CONFIG),
        fresh(1, [256, 256], LoraConfig { rank: 8, ..CONFIG }),
        fresh(
            1,
            [256, 256],
            LoraConfig {
                alpha: 4.0,
                ..CONFIG
            },
        ),
        fresh(
            1,
            [256, 256],
            LoraConfig {
                dora: true,
                ..CONFIG
            },
        ),
    ];
    for layer in refused {
        let model = vec![fresh(1, [256, 256], CONFIG), layer];
        let error =
            load_adapters(model, vec![record(), record()]).expect_err("it is of another base");
        assert!(
            error.to_string().contains("LoRA of rank 4 and alpha 8"),
            "{error}"
        );
    }
    Ok(())
}

#[test]
#[should_panic(expected = "the record's adapter belongs to a packed weight of shape [48, 64]")]
fn burns_load_panics_with_another_base() {
    let on = MxDevice::new(FlexDevice, MxSpecs::none()).expect("sound specs");
    let of = |seed| {
        layer(
            packed("mxfp4".parse().expect("a name"), [OUT, IN], seed),
            false,
            CONFIG,
            &on,
        )
    };
    let _ = of(1).load_record(of(2).into_record());
}

#[test]
fn wrong_input_is_an_error() -> Test {
    let on = MxDevice::new(FlexDevice, MxSpecs::none())?;
    let weight = || packed("mxfp4".parse().expect("a name"), [48, 64], 1);
    let new = |packed, bias| PackedLinear::<Train>::new(packed, bias, &on);
    let layer = new(weight(), None)?;
    let error = |result: Result<PackedLinear<Train>, burn_mx_module::PackedLinearError>| {
        result.expect_err("it is wrong").to_string()
    };
    let with = |rank, alpha| {
        error(layer.clone().with_adapter(LoraConfig {
            rank,
            alpha,
            dora: false,
        }))
    };
    assert!(with(0, 1.0).starts_with("rank is 0; allowed: 1 to 48"));
    assert!(with(49, 1.0).starts_with("rank is 49; allowed: 1 to 48"));
    assert!(with(4, f64::NAN).starts_with("alpha is NaN"));
    let values = numbers(48 * 64, 1);
    let columns = Packed::encode(
        "mxfp4".parse()?,
        &values,
        &[64, 48],
        0,
        Rounder::NearestEven,
    )?;
    assert!(error(new(columns, None)).contains("shape [64, 48] and blocks along axis 0"));
    assert!(
        error(new(weight(), Some(Tensor::zeros([64], &on))))
            .contains("the bias has 64 elements; allowed: 48")
    );
    let other = MxDevice::new(FlexDevice, MxSpecs::mxfp8_e4m3())?;
    let error_of_specs = error(PackedLinear::<Train>::new(weight(), None, &other));
    assert!(
        error_of_specs.contains("packed as mxfp4"),
        "{error_of_specs}"
    );
    let unquantized = tensor::<Train, 2>(&values, [64, 48], &on);
    assert!(error(PackedLinear::from_weight(unquantized, None)).contains("do not quantize"));
    Ok(())
}

#[test]
#[should_panic(expected = "packed as mxfp4")]
fn specs_by_path_with_another_format_are_refused() {
    let on = MxDevice::new(FlexDevice, MxSpecs::none()).expect("sound specs");
    let layer = layer(
        packed("mxfp4".parse().expect("a name"), [OUT, IN], 1),
        false,
        CONFIG,
        &on,
    );
    let mxfp8 = MxSpecs::mxfp8_e4m3().resolve().expect("a preset");
    let layer = set_specs_at(layer, "base", &mxfp8).expect("there is such a path");
    let _ = layer.forward(Tensor::<Train, 2>::ones([1, IN], &on));
}
