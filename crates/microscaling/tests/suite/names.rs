//! Block formats as text, and what their sizes are.

use crate::inputs::formats;
use microscaling::{
    BlockFormat, ElementConversion, ElementFormat, FormatError, Headroom, OuterScale,
    ParseFormatError, Rounder, ScaleMode, SharedExpMethod, Shifts, SubScales, Subnormals,
};
use proptest::prelude::*;
use proptest::sample::select;

const OCP: [(&str, &str, ElementFormat, f64); 6] = [
    ("mxfp8_e5m2", "MXFP8E5M2", ElementFormat::FP8_E5M2, 8.25),
    ("mxfp8_e4m3", "MXFP8E4M3", ElementFormat::FP8_E4M3, 8.25),
    ("mxfp6_e3m2", "MXFP6E3M2", ElementFormat::FP6_E3M2, 6.25),
    ("mxfp6_e2m3", "MXFP6E2M3", ElementFormat::FP6_E2M3, 6.25),
    ("mxfp4", "MXFP4E2M1", ElementFormat::FP4_E2M1, 4.25),
    ("mxint8", "MXINT8", ElementFormat::INT8, 8.25),
];

/// Bits per element of the paper's formats: 4, 6 and 9, as they are called.
const OWN: [(&str, &str, BlockFormat, f64); 5] = [
    ("mx4", "MX4", microexponent(BlockFormat::MX4), 4.0),
    ("mx6", "MX6", microexponent(BlockFormat::MX6), 6.0),
    ("mx9", "MX9", microexponent(BlockFormat::MX9), 9.0),
    ("bfp16", "BFP16", BlockFormat::BFP16, 9.0),
    ("nvfp4", "NVFP4", nvfp4(false), 4.5),
];

const fn microexponent(format: BlockFormat) -> BlockFormat {
    format
}

const fn nvfp4(tensor_scale: bool) -> BlockFormat {
    BlockFormat::nvfp4(tensor_scale)
}

#[test]
fn every_name() {
    let mut names = Vec::new();
    for (name, alias, element, bits) in OCP {
        let format = BlockFormat::mx(element, 32);
        assert_eq!(name.parse(), Ok(format));
        assert_eq!(alias.parse(), Ok(format));
        assert_eq!(format.to_string(), name);
        assert_eq!(format.bits_per_element(), bits);
        names.push(name);
    }
    let rceil = BlockFormat {
        scale_mode: ScaleMode::Rceil,
        ..BlockFormat::mx(ElementFormat::FP8_E4M3, 32)
    };
    assert_eq!("mxfp8_rceil".parse(), Ok(rceil));
    assert_eq!(rceil.to_string(), "mxfp8_rceil");
    names.push("mxfp8_rceil");
    for (name, alias, format, bits) in OWN {
        assert_eq!(name.parse(), Ok(format));
        assert_eq!(alias.parse(), Ok(format));
        assert_eq!(format.to_string(), name);
        assert_eq!(format.bits_per_element(), bits);
        names.push(name);
    }
    let block = |element: &str, scale: &str, block_size: usize| {
        BlockFormat::float_scale(element.parse().unwrap(), scale.parse().unwrap(), block_size)
    };
    let nvint4 = BlockFormat {
        tensor_scale: true,
        ..block("int4", "ue4m3", 16)
    };
    for (name, format, bits) in [
        ("mxint4", BlockFormat::mx(ElementFormat::INT4, 32), 4.25),
        ("nvint4", nvint4, 4.5),
        ("amdfp4", block("fp4_e2m1", "ue5m3", 16), 4.5),
        ("amdfp4_g32", block("fp4_e2m1", "ue5m3", 32), 4.25),
        ("nf4", block("table(nf4)", "float32", 64), 4.5),
        (
            "if4",
            BlockFormat {
                tensor_scale: true,
                ..block("table(if4)", "ue4m3", 16)
            },
            4.5,
        ),
        (
            "razer",
            BlockFormat {
                tensor_scale: true,
                ..block("table(razer)", "ue4m3", 16)
            },
            4.5,
        ),
    ] {
        assert_eq!(name.parse::<BlockFormat>(), Ok(format));
        assert_eq!(format.to_string(), name);
        assert_eq!(format.bits_per_element(), bits);
        names.push(name);
    }
    let hif4 = BlockFormat {
        sub_scales: SubScales::new(8, 4),
        ..block("e1m2", "ue6m2", 64)
    };
    assert_eq!("hif4".parse::<BlockFormat>(), Ok(hif4));
    names.push("hif4");
    let amxfp4 = BlockFormat {
        sign_scales: true,
        ..block("fp4_e2m1", "ue5m2", 32)
    };
    assert_eq!("amxfp4".parse::<BlockFormat>(), Ok(amxfp4));
    names.push("amxfp4");
    names.push("bfp16ebs8");
    assert_eq!(BlockFormat::NAMES.to_vec(), names);
}

/// Any element with any scale, as text.
#[test]
fn blocks() {
    for (text, shown) in [
        (
            "block(element=e2m1,scale=ue5m2)",
            "block(element=fp4_e2m1,scale=ue5m2,block_size=32)",
        ),
        (
            "block(element=float(exponent_bits=3,mantissa_bits=4),scale=float(exponent_bits=6,mantissa_bits=2,bias=40,specials=nan),block_size=0,headroom=4/3)",
            "block(element=float(exponent_bits=3,mantissa_bits=4,bias=3,specials=none),scale=float(exponent_bits=6,mantissa_bits=2,bias=40,specials=nan),block_size=0,headroom=4/3)",
        ),
        (
            "block(element=fixed(bits=7,fraction_bits=5),scale=float32,block_size=128,square=true)",
            "block(element=fixed(bits=7,fraction_bits=5),scale=float32,block_size=128,square=true)",
        ),
        ("block(element=e4m3,scale=e8m0)", "mxfp8_e4m3"),
        ("block(element=fp4,scale=ue5m3,block_size=16)", "amdfp4"),
        (
            "block(element=table(nf4),scale=ue4m3,block_size=16)",
            "block(element=table(nf4),scale=ue4m3,block_size=16)",
        ),
        (
            "block(element=table(0 0.5  1 -1/0 0.75 1 -2.5e0),scale=ue4m3)",
            "block(element=table(0 0.5 1 -1/0 0.75 1 -2.5),scale=ue4m3,block_size=32)",
        ),
        (
            "block(element=table(-1 -0.69619280099868774 -0.52507305145263672 -0.39491748809814453 -0.28444138169288635 \
             -0.18477343022823334 -0.09105003625154495 0 0.07958029955625534 0.16093020141124725 0.24611230194568634 \
             0.33791524171829224 0.44070982933044434 0.56261700391769409 0.72295683622360229 1),scale=float32,block_size=64)",
            "nf4",
        ),
        ("block(element=e2m1,scale=ue5m3)", "amdfp4_g32"),
        ("nvfp4(scale=ue4m3,block_size=16)", "nvfp4"),
        (
            "nvfp4(block_size=32,scale=ue5m3,tensor_scale=true)",
            "block(element=fp4_e2m1,scale=ue5m3,block_size=32,tensor_scale=true,subnormal_scales=false)",
        ),
        (
            "block(element=e1m2,scale=e8m0,block_size=16,scale_mode=ceil)",
            "mx(element=fp4_e1m2,block_size=16,scale_mode=ceil)",
        ),
    ] {
        let format: BlockFormat = text.parse().unwrap();
        assert_eq!(format.to_string(), shown);
        assert_eq!(shown.parse(), Ok(format));
    }
    let error = |text: &str| text.parse::<BlockFormat>().unwrap_err().to_string();
    for (text, expected) in [
        (
            "block(scale=ue5m3)",
            "block: element is missing, expected one of fp8_e5m2, fp8_e4m3, fp6_e3m2, fp6_e2m3, fp4_e2m1, int8, int4, int2, \
             float16, bfloat16, fp8_e3m4, fp8_e2m5, fp8_e4m3fnuz, fp8_e4m3b11fnuz, fp8_e5m2fnuz, fp5_e3m1, fp5_e2m2, \
             fp4_e3m0, fp4_e1m2, fp3_e2m0, int6, int5, int3, float(…), fixed(…), table(…), binary8p4se (P3109)",
        ),
        (
            "block(element=e2m1,scale=e9m0)",
            "block: scale is `e9m0`, expected one of e8m0, ue4m3, ue5m3, ue5m2, ue3m3, ue6m2, bfloat16, float32, float(…), binary8p1uf (P3109)",
        ),
        (
            "block(element=float(exponent_bits=9,mantissa_bits=1),scale=e8m0)",
            "element float: exponent_bits is 9, expected 1 to 8",
        ),
        (
            "block(element=table(0 1),scale=ue4m3)",
            "table: length is 2, expected 3 to 256",
        ),
        (
            "block(element=table(0 1 NaN),scale=ue4m3)",
            "table: number 2 is NaN, expected 0, or at least 2^-32 and less than 2^32, or the negative of that",
        ),
        (
            "block(element=table(0 1 -1 1),scale=ue4m3)",
            "table: number 3 is 1.0, expected another one than before",
        ),
        (
            "block(element=table(2 1 -1),scale=ue4m3)",
            "table: number 2 is -1.0, expected a 0 among them",
        ),
        (
            "block(element=table(0 0.5 -0.5),scale=ue4m3)",
            "table: number 2 is -0.5, expected a magnitude of 1 or more among them",
        ),
        (
            "block(element=table(0 1 2 3/0 1 2 3 4),scale=ue4m3)",
            "table: alternatives have codes of 2 and 3 bits, expected the same for all",
        ),
        (
            "block(element=table(0 1 x),scale=ue4m3)",
            "table: number is `x`, expected one of a number, nf4, if4, razer",
        ),
        (
            "block(element=table(nf4),scale=e8m0)",
            "MX format: element is table(nf4), expected a float or a fixed-point number beside a scale that is a power of two",
        ),
        (
            "block(element=float(exponent_bits=4,mantissa_bits=3,bias=200),scale=e8m0)",
            "element float: bias is 200, expected 1 to 15",
        ),
        (
            "block(element=fixed(bits=17),scale=e8m0)",
            "element fixed: bits is 17, expected 2 to 16",
        ),
        (
            "block(element=fp16,scale=ue4m3)",
            "block format: element is float16, expected one of at most 8 bits, its smallest number at least 2^-32, its \
             largest 1 to 2^33, beside a scale that is a float",
        ),
        (
            "block(element=e2m1,scale=float32,tensor_scale=true)",
            "block format: tensor_scale is true, expected false with a scale that is as large as float32's",
        ),
        (
            "block(element=e2m1,scale=ue5m3,four_over_six=true)",
            "block format: four_over_six is true, expected false; true is for element fp4_e2m1 with scale ue4m3",
        ),
        (
            "block(element=e2m1,scale=ue5m3,block_size=0,square=true)",
            "block format: square is true, expected false with block_size 0",
        ),
        (
            "block(element=e2m1,scale=ue5m3,scale_mode=ceil)",
            "block: scale_mode is `ceil`, expected `floor` beside a scale that is a float",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
}

proptest! {
    /// Text and serde give back the format.
    #[test]
    fn round_trips(format in formats()) {
        let text = format.to_string();
        prop_assert_eq!(text.parse(), Ok(format));
        let json = serde_json::to_string(&format).unwrap();
        prop_assert_eq!(&json, &format!("\"{text}\""));
        prop_assert_eq!(serde_json::from_str::<BlockFormat>(&json).unwrap(), format);
    }

    /// No text causes a panic, and every parsed format is valid.
    #[test]
    fn any_text(
        family in select(vec!["mx", "bfp", "microexponent", "nvfp4", "block", "fp8_e4m3", ""]),
        rest in prop_oneof![
            "[(]?(bit_width|block|block_size|element|shift_bits|tensor_scale)?=?[0-9a-z_]{0,4}[,)]{0,2}",
            any::<String>(),
        ],
    ) {
        let text = family.to_string() + &rest;
        if let Ok(format) = text.parse::<BlockFormat>() {
            prop_assert!(format.validate().is_ok());
        }
    }
}

#[test]
fn parameters() {
    let parse = |text: &str| text.parse::<BlockFormat>();
    let bfp = |bit_width, block_size| Ok(BlockFormat::bfp(bit_width, block_size).unwrap());
    assert_eq!(parse("bfp(bit_width=12,block=16)"), bfp(12, 16));
    assert_eq!(parse("bfp( block_size = 4 )"), bfp(16, 4));
    assert_eq!(parse("bfp"), bfp(16, 8));
    let free = BlockFormat::microexponent(12, 64, 8, 2).unwrap();
    let text = "microexponent(bit_width=12,block=64,sub_block=8,shift_bits=2)";
    assert_eq!(parse(text), Ok(microexponent(free)));
    assert_eq!(parse("nvfp4(tensor_scale=true)"), Ok(nvfp4(true)));
    assert_eq!(parse("mx(element=int8)"), parse("mxint8"));
    // 4 bits, a scale of 8 bits for each 16.
    assert_eq!(
        parse("mx(element=int4,block=16)")
            .unwrap()
            .bits_per_element(),
        4.5
    );
    assert_eq!(
        parse("mx(element=int4,block=0)")
            .unwrap()
            .bits_per_element(),
        4.0
    );
    let each = parse("mx(element=int4,shared_exp_method=none)").unwrap();
    assert_eq!(each.bits_per_element(), 12.0);
    // 3 + 1 bits, an exponent for 10, and shifts of 3 bits for 4, 4 and 2.
    let uneven = parse("microexponent(bit_width=12,block=10,sub_block=4,shift_bits=3)").unwrap();
    assert_eq!(uneven.bits_per_element(), 4.0 + 1.7);
}

/// The newer parameters are written only if they differ from their defaults.
#[test]
fn headroom_and_four_over_six() {
    let parse = |text: &str| text.parse::<BlockFormat>().unwrap();
    let headroom = Headroom::new(4, 3).unwrap();
    let mx = BlockFormat {
        headroom,
        ..BlockFormat::mx(ElementFormat::FP4_E2M1, 32)
    };
    for text in [
        "mx(element=fp4,headroom=4/3)",
        "mx(headroom=8/6,element=fp4)",
    ] {
        assert_eq!(parse(text), mx);
    }
    assert_eq!(
        mx.to_string(),
        "mx(element=fp4_e2m1,block_size=32,headroom=4/3)"
    );
    assert_eq!(parse("mx(element=fp4,headroom=1)"), parse("mxfp4"));
    assert_eq!(
        parse("nvfp4(four_over_six=false,headroom=7/7)"),
        parse("nvfp4")
    );
    let text = "nvfp4(tensor_scale=true,headroom=17/16,four_over_six=true)";
    assert_eq!(parse(text).to_string(), text);
    assert_eq!(
        parse(text),
        BlockFormat {
            headroom: Headroom::new(17, 16).unwrap(),
            four_over_six: true,
            ..BlockFormat::nvfp4(true)
        }
    );
    // All of small numbers.
    for numerator in 0..=255_u16 {
        for denominator in 0..=255_u16 {
            let inside = denominator > 0
                && (0.5..2.0).contains(&(f64::from(numerator) / f64::from(denominator)));
            let made = Headroom::new(numerator, denominator);
            assert_eq!(made.is_ok(), inside, "{numerator}/{denominator}");
            let Ok(made) = made else { continue };
            assert_eq!(
                u32::from(made.numerator()) * u32::from(denominator),
                u32::from(made.denominator()) * u32::from(numerator)
            );
            assert_eq!(made.to_string().parse(), Ok(made));
            let json = serde_json::to_string(&made).unwrap();
            assert_eq!(serde_json::from_str::<Headroom>(&json).unwrap(), made);
        }
    }
    assert_eq!(Headroom::default(), Headroom::NONE);
}

/// Each error, with its message.
#[test]
fn errors() {
    let error = |text: &str| text.parse::<BlockFormat>().unwrap_err().to_string();
    assert_eq!(
        error("mx5"),
        "unknown block format `mx5`: expected one of mxfp8_e5m2, mxfp8_e4m3, mxfp6_e3m2, mxfp6_e2m3, \
         mxfp4, mxint8, mxfp8_rceil, mx4, mx6, mx9, bfp16, nvfp4, mxint4, nvint4, amdfp4, amdfp4_g32, nf4, if4, razer, hif4, amxfp4, bfp16ebs8, mx(…), bfp16ebs8(…), bfp(…), \
         microexponent(…), nvfp4(…), block(…)"
    );
    let expected = "format `bfp(12)`: expected `bfp` or `bfp(field=value,…)`";
    assert_eq!(error("bfp(12)"), expected);
    assert!(matches!(
        "bfp(bit_width=12".parse::<BlockFormat>(),
        Err(ParseFormatError::Bracket { .. })
    ));
    assert_eq!(
        error("mx(element=float(exponent_bits=2,mantissa_bits=1,block_size=16)"),
        "format `float(exponent_bits=2,mantissa_bits=1,block_size=16`: a bracket `(` is open, expected `)` at the end"
    );
    for (text, name, family) in [
        (
            "mxfp4(block_size=16)",
            "mxfp4",
            "mx(element=fp4_e2m1,block_size=16)",
        ),
        (
            "MXFP8E4M3(square=true)",
            "mxfp8_e4m3",
            "mx(element=fp8_e4m3,square=true)",
        ),
        (
            "mxfp8_rceil(block_size=16)",
            "mxfp8_rceil",
            "mx(element=fp8_e4m3,scale_mode=rceil,block_size=16)",
        ),
        (
            "mx6(block_size=8)",
            "mx6",
            "microexponent(bit_width=13,block_size=8)",
        ),
        (
            "bfp16(block_size=16)",
            "bfp16",
            "bfp(bit_width=16,block_size=16)",
        ),
        (
            "nvint4(block_size=32)",
            "nvint4",
            "block(element=int4,scale=ue4m3,tensor_scale=true,block_size=32)",
        ),
        (
            "NVFP4(tensor_scale=true)",
            "nvfp4",
            "nvfp4(tensor_scale=true)",
        ),
    ] {
        assert_eq!(
            error(text),
            format!("format `{text}`: `{name}` is a name without parameters, expected `{family}`")
        );
        assert!(family.parse::<BlockFormat>().is_ok(), "{family}");
    }
    assert!(matches!(
        "mxfp4(block_size=16".parse::<BlockFormat>(),
        Err(ParseFormatError::Bracket { .. })
    ));
    assert_eq!(
        error("bfp(bits=12)"),
        "bfp: unknown parameter `bits`: expected one of bit_width, block_size"
    );
    assert_eq!(
        error("bfp(block=8,block_size=8)"),
        "bfp: block_size is `8`, expected no second value"
    );
    assert_eq!(
        error("bfp(bit_width=-1)"),
        "bfp: bit_width is `-1`, expected 10 to 32"
    );
    assert_eq!(
        error("bfp(bit_width=9)"),
        "bfp: bit_width is 9, expected 10 to 32"
    );
    assert_eq!(
        error("nvfp4(tensor_scale=1)"),
        "nvfp4: tensor_scale is `1`, expected true or false"
    );
    assert_eq!(
        error("mx(block_size=32)"),
        "mx: element is missing, expected one of fp8_e5m2, fp8_e4m3, fp6_e3m2, fp6_e2m3, fp4_e2m1, int8, \
         int4, int2, float16, bfloat16, fp8_e3m4, fp8_e2m5, fp8_e4m3fnuz, fp8_e4m3b11fnuz, fp8_e5m2fnuz, fp5_e3m1, \
         fp5_e2m2, fp4_e3m0, fp4_e1m2, fp3_e2m0, int6, int5, int3, float(…), fixed(…), table(…), binary8p4se (P3109)"
    );
    assert_eq!(
        error("mx(element=int8,scale_mode=up)"),
        "mx: scale_mode is `up`, expected one of floor, ceil, even, rceil, rms"
    );
    for (headroom, given) in [
        ("2", "`2`"),
        ("1/3", "`1/3`"),
        ("4/3/2", "`4/3/2`"),
        ("1/0", "`1/0`"),
        ("65536/65535", "`65536/65535`"),
        ("", "missing"),
        ("1.5", "`1.5`"),
    ] {
        assert_eq!(
            error(&format!("mx(element=int8,headroom={headroom})")),
            format!(
                "mx: headroom is {given}, expected 1, or a fraction of at least 1/2 and less than 2 of whole \
                 numbers up to 65535, such as 4/3"
            )
        );
    }
    assert_eq!(
        error("mx(element=int8,scale_mode=rms)"),
        "MX format: element is int8, expected fp4_e2m1 with scale mode rms"
    );
    assert_eq!(
        error("mx(element=int8,scale_bits=9)"),
        "MX format: scale_bits is 9, expected 1 to 8"
    );
    assert_eq!(
        serde_json::from_str::<BlockFormat>("3")
            .unwrap_err()
            .to_string(),
        "invalid type: integer `3`, expected the name of a block format at line 1 column 1"
    );
}

/// Every parameter out of range: the error names format, parameter, value and the allowed values, and the data are
/// unchanged.
#[test]
fn invalid_parameters() {
    let free = BlockFormat::MX6;
    let bfp = BlockFormat::BFP16;
    let most = usize::MAX;
    let shifts = |block_size, bits| Some(Shifts { block_size, bits });
    let error = |format, field, got, min, max| FormatError::Field {
        format,
        field,
        min,
        max,
        got,
    };
    for got in [0, 9, 33] {
        let expected = |format| Err(error(format, "bit_width", got as usize, 10, 32));
        assert_eq!(BlockFormat::bfp(got, 8), expected("bfp"));
        let microexponent = BlockFormat::microexponent(got, 16, 2, 1);
        assert_eq!(microexponent, expected("microexponent"));
    }
    let with_block = |block_size, format| BlockFormat {
        block_size,
        ..format
    };
    let with_shifts = |shifts| BlockFormat { shifts, ..free };
    let cases = [
        (with_block(0, bfp), "bfp", "block_size", 0, 1, most),
        (
            with_block(0, free),
            "microexponent",
            "block_size",
            0,
            1,
            most,
        ),
        (
            with_shifts(shifts(0, 1)),
            "microexponent",
            "sub_block_size",
            0,
            1,
            16,
        ),
        (
            with_shifts(shifts(17, 1)),
            "microexponent",
            "sub_block_size",
            17,
            1,
            16,
        ),
        (
            with_shifts(shifts(2, 9)),
            "microexponent",
            "shift_bits",
            9,
            0,
            8,
        ),
    ];
    for (block, format, field, got, min, max) in cases {
        let expected = error(format, field, got, min, max);
        assert_eq!(block.validate(), Err(expected));
        let allowed = match max {
            usize::MAX => format!("at least {min}"),
            max => format!("{min} to {max}"),
        };
        let text = format!("{format}: {field} is {got}, expected {allowed}");
        assert_eq!(expected.to_string(), text);
        let mut data = [1.1; 6];
        let result = block.quantize(&mut data, &[6], 0, Rounder::NearestEven);
        assert_eq!(result.unwrap_err().to_string(), format!("quantize: {text}"));
        assert_eq!(data, [1.1; 6]);
    }
}

/// Fields that contradict each other are refused, by the field, before anything is quantized.
#[test]
fn fields_that_formats_lack() {
    let shifts = Some(Shifts {
        block_size: 2,
        bits: 1,
    });
    let mx = BlockFormat::mx(ElementFormat::INT8, 32);
    let cases = [
        (BlockFormat { eden: true, ..mx }, "eden"),
        (
            BlockFormat {
                subnormal_scales: true,
                ..mx
            },
            "subnormal_scales",
        ),
        (
            BlockFormat {
                tensor_scale: true,
                ..BlockFormat::MX9
            },
            "tensor_scale",
        ),
        (
            BlockFormat {
                square: true,
                ..BlockFormat::BFP16
            },
            "square",
        ),
        // The elements of microexponents are signs and magnitudes.
        (BlockFormat { shifts, ..mx }, "element"),
        (
            BlockFormat {
                shifts,
                ..BlockFormat::NVFP4
            },
            "element",
        ),
        (
            BlockFormat {
                scale_mode: ScaleMode::Ceil,
                ..BlockFormat::NVFP4
            },
            "scale_mode",
        ),
    ];
    for (format, field) in cases {
        let error = format.validate().unwrap_err();
        assert!(
            matches!(error, FormatError::WithoutEffect { field: got, .. } if got == field),
            "{format:?}: {error}"
        );
        let text = error.to_string();
        let parts = [" is ", ", expected ", " beside "];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        let mut data = [1.1; 32];
        let result = format.quantize(&mut data, &[32], 0, Rounder::NearestEven);
        assert!(result.is_err());
        assert_eq!(data, [1.1; 32]);
    }
    for text in [
        "nvfp4(scale=e8m0)",
        "block(element=e2m1,scale=ue4m3,outer_size=32,outer_scale=e8m0)",
        "block(element=e2m1,scale=e9m0)",
        "block(element=e2m1,scale=e0m0)",
        "block(element=e2m1,scale=e8m0,tensor_scale=true)",
    ] {
        text.parse::<BlockFormat>().expect_err(text);
    }
    // A power of two of fewer bits has two texts.
    let text = "block(element=int8,scale=e4m0)";
    let format: BlockFormat = text.parse().unwrap();
    assert_eq!(
        format.to_string(),
        "mx(element=int8,block_size=32,scale_bits=4)"
    );
}

/// Formats that are built field by field: errors have the field, its value and the allowed values.
#[test]
fn errors_of_built_formats_name_the_value() {
    type B = BlockFormat;
    let mx = B::mx(ElementFormat::FP8_E4M3, 32);
    let conversion = |set: fn(&mut ElementConversion)| {
        let mut conversion = ElementConversion::LIBRARY;
        set(&mut conversion);
        conversion
    };
    let powers = "a scale that is a power of two";
    let fixed = "microexponents and block floating point";
    for (format, message) in [
        (
            B {
                tensor_scale: true,
                ..mx
            },
            format!("tensor_scale is true, expected false beside {powers}"),
        ),
        (
            B {
                scale_mode: ScaleMode::MaxAbsFinite,
                ..mx
            },
            format!(
                "scale_mode is max_abs_finite, expected floor, ceil, even, rceil or rms beside {powers}"
            ),
        ),
        (
            B {
                outer: Some(OuterScale::new(64)),
                ..mx
            },
            format!("outer is outer_size=64, expected none beside {powers}"),
        ),
        (
            B {
                headroom: Headroom::new(17, 16).unwrap(),
                ..B::BFP16
            },
            format!("headroom is 17/16, expected 1 beside {fixed}"),
        ),
        (
            B {
                element: ElementFormat::INT8,
                ..B::BFP16
            },
            format!("element is int8, expected a sign and a magnitude beside {fixed}"),
        ),
        (
            B {
                shared_exp_method: SharedExpMethod::None,
                ..B::NVFP4
            },
            "shared_exp_method is none, expected max beside a scale that is a float".to_owned(),
        ),
        (
            B {
                subnormals: Subnormals::FlushBlocks,
                ..B::NVFP4
            },
            "subnormals is FlushBlocks, expected Kept or FlushElements beside".to_owned(),
        ),
        (
            B {
                conversion: conversion(|own| own.random_bits = 7),
                ..B::MX9
            },
            "random_bits is 7, expected 31 beside".to_owned(),
        ),
        (
            B {
                conversion: conversion(|own| own.negative_zero = false),
                ..B::NF4
            },
            "negative_zero is false, expected true beside".to_owned(),
        ),
        (
            B {
                element: ElementFormat::NF4,
                ..mx
            },
            "element is table(nf4), expected a float or a fixed-point number".to_owned(),
        ),
    ] {
        let error = format.validate().unwrap_err().to_string();
        assert!(error.contains(&message), "{error}, not {message}");
    }
}
