//! The presets, by name and as text.

use burn_mx::{BlockFormat, MxSpecs, Rounding, Slot, SpecsError};

#[test]
fn names_give_what_the_constructors_give() {
    let eden = "block(element=fp4_e2m1,scale=ue4m3,block_size=16,tensor_scale=true,eden=true,headroom=1581/1600)";
    let expected = [
        ("none", MxSpecs::none(), "no emulation"),
        (
            "mxfp8_e4m3",
            MxSpecs::mxfp8_e4m3(),
            "w fp8_e4m3, a fp8_e4m3, block 32, bfloat16, round even",
        ),
        (
            "mxfp8_e5m2",
            MxSpecs::mxfp8_e5m2(),
            "w fp8_e5m2, a fp8_e5m2, block 32, bfloat16, round even",
        ),
        (
            "mxfp6_e3m2",
            MxSpecs::mxfp6_e3m2(),
            "w fp6_e3m2, a fp6_e3m2, block 32, bfloat16, round even",
        ),
        (
            "mxfp6_e2m3",
            MxSpecs::mxfp6_e2m3(),
            "w fp6_e2m3, a fp6_e2m3, block 32, bfloat16, round even",
        ),
        (
            "mxfp4",
            MxSpecs::mxfp4(),
            "w fp4_e2m1, a fp4_e2m1, block 32, bfloat16, round even",
        ),
        (
            "mxint8",
            MxSpecs::mxint8(),
            "w int8, a int8, block 32, bfloat16, round even",
        ),
        (
            "mxfp8_rceil",
            MxSpecs::mxfp8_rceil(),
            "w fp8_e4m3, a fp8_e4m3, block 32, scale mode rceil, bfloat16, round even",
        ),
        ("mx4", MxSpecs::mx4(), "w mx4, a mx4, bfloat16, round even"),
        ("mx6", MxSpecs::mx6(), "w mx6, a mx6, bfloat16, round even"),
        ("mx9", MxSpecs::mx9(), "w mx9, a mx9, bfloat16, round even"),
        (
            "bfp16",
            MxSpecs::bfp16(),
            "w bfp16, a bfp16, bfloat16, round even",
        ),
        (
            "nvfp4",
            MxSpecs::nvfp4(),
            "w nvfp4(tensor_scale=true), a nvfp4(tensor_scale=true), bfloat16, round even",
        ),
        (
            "mxint4",
            MxSpecs::mxint4(),
            "w int4, a int4, block 32, bfloat16, round even",
        ),
        (
            "nvint4",
            MxSpecs::nvint4(),
            "w nvint4, a nvint4, bfloat16, round even",
        ),
        (
            "amdfp4",
            MxSpecs::amdfp4(),
            "w amdfp4, a amdfp4, bfloat16, round even",
        ),
        (
            "amdfp4_g32",
            MxSpecs::amdfp4_g32(),
            "w amdfp4_g32, a amdfp4_g32, bfloat16, round even",
        ),
        ("nf4", MxSpecs::nf4(), "w nf4, a nf4, bfloat16, round even"),
        ("if4", MxSpecs::if4(), "w if4, a if4, bfloat16, round even"),
        (
            "razer",
            MxSpecs::razer(),
            "w razer, a razer, bfloat16, round even",
        ),
        (
            "hif4",
            MxSpecs::hif4(),
            "w hif4, a hif4, bfloat16, round even",
        ),
        (
            "amxfp4",
            MxSpecs::amxfp4(),
            "w amxfp4, a amxfp4, bfloat16, round even",
        ),
        (
            "bfp16ebs8",
            MxSpecs::bfp16ebs8(),
            "w bfp16ebs8, a bfp16ebs8, bfloat16, round even",
        ),
        (
            "xdna2",
            MxSpecs::xdna2(),
            "w bfp16ebs8, a bfp16ebs8, accumulator xdna2, bfloat16, round even",
        ),
        (
            "mxfp4_sr_rht",
            MxSpecs::mxfp4_sr_rht(),
            "w fp4_e2m1, a fp4_e2m1, \
             w_bp mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), \
             a_bp mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), \
             a_bp_ex mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), \
             a_bp_os mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), \
             block 32, Hadamard 64, bfloat16, round even, round_mx_*_grad_* stochastic",
        ),
        (
            "kimi_qat",
            MxSpecs::kimi_qat(),
            "w block(element=int4,scale=bfloat16,block_size=32), gradients of forward operands, bfloat16, round even, \
             forward only",
        ),
        (
            "gpt_oss_qat",
            MxSpecs::gpt_oss_qat(),
            "w mxfp4, gradients of forward operands, weights as modelopt, bfloat16, round even, forward only",
        ),
        (
            "deepseek_v4_qat",
            MxSpecs::deepseek_v4_qat(),
            "w mx(element=fp4_e2m1,block_size=32,scale_mode=rceil), gradients of forward operands, bfloat16, round even, forward only",
        ),
        (
            "mxfp8_pretraining",
            MxSpecs::mxfp8_pretraining(),
            "w fp8_e4m3, a fp8_e4m3, block 32, scale mode rceil, no blocks between activations, bfloat16, round even",
        ),
        (
            "mxfp6_training",
            MxSpecs::mxfp6_training(),
            "w fp6_e3m2, a fp6_e3m2, block 32, bfloat16",
        ),
        (
            "mxfp4_backward",
            MxSpecs::mxfp4_backward(),
            "w_bp mxfp4, a_bp mxfp4, a_bp_ex mxfp4, a_bp_os mxfp4, Hadamard 64:product, \
             backward headroom 4/3, no blocks between activations, bfloat16, round even, round_mx_*_grad_* stochastic",
        ),
        (
            "nvfp4_pretraining",
            MxSpecs::nvfp4_pretraining(),
            "w nvfp4(tensor_scale=true,square=true), a nvfp4(tensor_scale=true), \
             weight gradient Hadamard 16:0xd7e8, no blocks between activations, bfloat16, round even, \
             round_mx_grad_output_grad_input stochastic, round_mx_grad_output_grad_weight stochastic",
        ),
        (
            "quartet",
            MxSpecs::quartet(),
            "w mx(element=fp4_e2m1,block_size=32,scale_mode=rms,headroom=3/2), \
             a mx(element=fp4_e2m1,block_size=32,scale_mode=rms,headroom=3/2), w_bp mxfp4, a_bp mxfp4, a_bp_ex mxfp4, \
             a_bp_os mxfp4, forward Hadamard 32:none, Hadamard 32:product, backward headroom 4/3, \
             gradients of forward operands, clipped ones masked, no blocks between activations, bfloat16, round even",
        ),
        (
            "quartet_code",
            MxSpecs::quartet_code(),
            "w mx(element=fp4_e2m1,block_size=32,scale_mode=rms), \
             a mx(element=fp4_e2m1,block_size=32,scale_mode=rms), w_bp mxfp4, a_bp mxfp4, a_bp_ex mxfp4, \
             a_bp_os mxfp4, forward Hadamard 32:none, Hadamard 32:product, backward headroom 4/3, \
             gradients of forward operands, clipped ones masked, no blocks between activations, bfloat16, round even",
        ),
        (
            "quartet2",
            MxSpecs::quartet2(),
            &format!(
                "w nvfp4(tensor_scale=true,four_over_six=true), a nvfp4(tensor_scale=true,four_over_six=true), \
                 w_bp {eden}, a_bp {eden}, a_bp_ex {eden}, a_bp_os {eden}, Hadamard 128:product, \
                 gradients of forward operands, no blocks between activations, bfloat16, round even, \
                 round_mx_*_grad_* stochastic"
            ),
        ),
        (
            "nvfp4_four_over_six",
            MxSpecs::nvfp4_four_over_six(),
            "w nvfp4(tensor_scale=true,square=true,four_over_six=true), a nvfp4(tensor_scale=true,four_over_six=true), \
             a_bp_ex nvfp4(tensor_scale=true,headroom=17/16,four_over_six=true), \
             a_bp_os nvfp4(tensor_scale=true,headroom=17/16,four_over_six=true), \
             weight gradient Hadamard 16:0xd7e8, no blocks between activations, bfloat16, round even, \
             round_mx_grad_output_grad_input stochastic, round_mx_grad_output_grad_weight stochastic",
        ),
        (
            "ufp4",
            MxSpecs::ufp4(),
            "w block(element=fp4_e1m2,scale=float32,block_size=16), \
             a block(element=fp4_e1m2,scale=float32,block_size=16), forward Hadamard 16:0xd7e8, Hadamard 16:0xd7e8, \
             no blocks between activations, bfloat16, round even, \
             round_mx_grad_output_grad_input stochastic, round_mx_grad_output_grad_weight stochastic",
        ),
        (
            "ufp4_baseline",
            MxSpecs::ufp4_baseline(),
            "w block(element=fp4_e2m1,scale=float32,block_size=16), \
             a block(element=fp4_e2m1,scale=float32,block_size=16), weight gradient Hadamard 16:0xd7e8, \
             no blocks between activations, bfloat16, round even, \
             round_mx_grad_output_grad_input stochastic, round_mx_grad_output_grad_weight stochastic",
        ),
        (
            "hif4_pretraining",
            MxSpecs::hif4_pretraining(),
            "w hif4, a hif4, Hadamard 64:product, no blocks between activations, bfloat16, round even",
        ),
        (
            "tetrajet_v2",
            MxSpecs::tetrajet_v2(),
            "w block(element=fp4_e2m1,scale=ue4m3,block_size=16,outer_size=128), \
             a block(element=fp4_e2m1,scale=ue4m3,block_size=16,outer_size=128), Hadamard 16:product, \
             gradients of forward operands, hot_columns(multiple=128,format=mxfp8_rceil,chosen=fixed), \
             no blocks between activations, bfloat16, round even, round_mx_*_grad_* stochastic",
        ),
        (
            "chon",
            MxSpecs::chon(),
            "w nvfp4(tensor_scale=true,square=true), a nvfp4(tensor_scale=true), weight gradient Hadamard 16:0xd7e8, \
             hot_columns(percent=5,treatment=residual,score=error), \
             no blocks between activations, bfloat16, round even, \
             round_mx_grad_output_grad_input stochastic, round_mx_grad_output_grad_weight stochastic",
        ),
        (
            "averis",
            MxSpecs::averis(),
            "w nvfp4(tensor_scale=true), a nvfp4(tensor_scale=true), mean apart, no blocks between activations, bfloat16, \
             round even, round_mx_output stochastic, round_mx_*_grad_* stochastic",
        ),
    ];
    assert_eq!(
        MxSpecs::PRESETS,
        expected.each_ref().map(|(name, ..)| *name)
    );
    for (name, specs, summary) in expected {
        assert_eq!(specs.resolve().unwrap().to_string(), summary);
        assert_eq!(MxSpecs::preset(name), Ok(specs));
    }
    assert!(MxSpecs::PRESETS.ends_with(MxSpecs::LITERATURE));
    assert_eq!(MxSpecs::mxint8().round, Rounding::NearestEven);
    assert_eq!(MxSpecs::mxint8().scale_bits, 8);
}

#[test]
fn quarks_names() {
    for (name, specs) in [
        ("MX4", MxSpecs::mx4()),
        ("MX6", MxSpecs::mx6()),
        ("MX9", MxSpecs::mx9()),
        ("MXFP8E5M2", MxSpecs::mxfp8_e5m2()),
        ("MXFP8E4M3", MxSpecs::mxfp8_e4m3()),
        ("MXFP6E3M2", MxSpecs::mxfp6_e3m2()),
        ("MXFP6E2M3", MxSpecs::mxfp6_e2m3()),
        ("MXFP4E2M1", MxSpecs::mxfp4()),
        ("MXINT8", MxSpecs::mxint8()),
        ("BFP16", MxSpecs::bfp16()),
    ] {
        assert_eq!(MxSpecs::preset(name), Ok(specs));
    }
}

/// One table of names for all programs: floats without blocks, too.
#[test]
fn floats_without_blocks() {
    for name in ["fp32", "FP32", "float32", "none"] {
        let specs = MxSpecs::preset(name).unwrap().resolve().unwrap();
        assert!(specs.is_none(), "{name}");
    }
    let specs = MxSpecs::preset("bfloat16").unwrap().resolve().unwrap();
    assert_eq!(specs.to_string(), "bfloat16, round even");
}

#[test]
fn names_are_understood_in_any_case() {
    for name in MxSpecs::PRESETS
        .iter()
        .copied()
        .chain(["mxfp8e4m3", "MxFp6E3M2", "bFp16"])
    {
        let expected = MxSpecs::preset(name);
        assert!(expected.is_ok(), "{name}");
        for name in [name.to_uppercase(), name.to_lowercase()] {
            assert_eq!(MxSpecs::preset(&name), expected, "{name}");
        }
    }
    assert_eq!(MxSpecs::preset("mxfp8_E4M3"), Ok(MxSpecs::mxfp8_e4m3()));
}

#[test]
fn every_named_format_has_a_preset_of_its_name() {
    for name in BlockFormat::NAMES {
        let format = match name {
            "nvfp4" => "nvfp4(tensor_scale=true)",
            name => name,
        };
        let specs = MxSpecs::preset(name).unwrap().resolve().unwrap();
        for slot in Slot::ALL {
            assert_eq!(
                specs.block_format(slot),
                Some(format.parse().unwrap()),
                "{name}"
            );
        }
    }
}

#[test]
fn an_unknown_name_is_told_the_known_ones() {
    let error = MxSpecs::preset("mxfp5").unwrap_err();
    assert_eq!(
        error,
        SpecsError::UnknownPreset {
            name: "mxfp5".into()
        }
    );
    assert_eq!(
        error.to_string(),
        "preset `mxfp5` is unknown; nearest: mxfp4, amxfp4; allowed: none, mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2, \
         mxfp6_e2m3, mxfp4, mxint8, mxfp8_rceil, mx4, mx6, mx9, bfp16, nvfp4, mxint4, nvint4, amdfp4, \
         amdfp4_g32, nf4, if4, razer, hif4, amxfp4, bfp16ebs8, xdna2, mxfp4_sr_rht, kimi_qat, gpt_oss_qat, deepseek_v4_qat, \
         mxfp8_pretraining, mxfp6_training, mxfp4_backward, nvfp4_pretraining, quartet, quartet_code, quartet2, \
         nvfp4_four_over_six, ufp4, ufp4_baseline, hif4_pretraining, tetrajet_v2, chon, averis, fp32, bfloat16"
    );
}

#[test]
fn mx_alone_and_none_emulate_nothing() {
    assert!(MxSpecs::mx().resolve().unwrap().is_none());
    assert!(MxSpecs::none().resolve().unwrap().is_none());
    assert_eq!(MxSpecs::none(), MxSpecs::default());
}

#[test]
fn an_unknown_name_is_told_what_may_be_meant() {
    for (name, hint) in [
        ("mxfp6", "nearest: mxfp6_e3m2, mxfp6_e2m3, mxfp6_training; "),
        (
            "mxfp8_e4m2",
            "nearest: mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2; ",
        ),
        (
            "fp6_e3m2",
            "`fp6_e3m2` is an element format, and the preset is `mxfp6_e3m2`; ",
        ),
        ("fp4", "the preset is `mxfp4`; "),
        ("int2", "`int2` is an element format: `w_elem_format`"),
        (
            "bfp(bit_width=12)",
            "`bfp(bit_width=12)` is a block format: `w_elem_format`",
        ),
        (
            "mxfp4(block_size=16)",
            "presets have no parameters. As a block format: format `mxfp4(block_size=16)`: `mxfp4` is a name without \
             parameters, expected `mx(element=fp4_e2m1,block_size=16)`; ",
        ),
    ] {
        let error = MxSpecs::preset(name).unwrap_err().to_string();
        assert!(error.contains(hint), "{error}");
    }
    let error = MxSpecs::preset("fp64").unwrap_err().to_string();
    assert!(
        error.starts_with("preset `fp64` is unknown; allowed: none,"),
        "{error}"
    );
}
