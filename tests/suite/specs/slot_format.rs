//! Formats of slots as text.

use burn_mx::{BlockFormat, ElementFormat, ParseFormatError, ScaleFormat, ScaleMode, SlotFormat};

#[test]
fn every_name() {
    let shared = BlockFormat {
        scale: ScaleFormat::exponent(3).unwrap(),
        scale_mode: ScaleMode::Rceil,
        ..BlockFormat::mx(ElementFormat::FP8_E4M3, 48)
    };
    let mut names = Vec::new();
    for element in ElementFormat::NAMED {
        assert_eq!(element.to_string().parse(), Ok(SlotFormat::from(element)));
        assert_eq!(SlotFormat::from(element).to_string(), element.to_string());
        let block = SlotFormat::from(element).block_format(&shared);
        assert_eq!(block, Some(BlockFormat { element, ..shared }));
        names.push(element.name().unwrap());
    }
    for name in BlockFormat::NAMES {
        let format: BlockFormat = name.parse().unwrap();
        assert_eq!(name.parse(), Ok(SlotFormat::from(format)));
        assert_eq!(SlotFormat::from(format).block_format(&shared), Some(format));
        assert_eq!(SlotFormat::from(format).to_string(), name);
        names.push(name);
    }
    assert_eq!(SlotFormat::NAMES.to_vec(), names);
    let fp4 = Ok(SlotFormat::Element(ElementFormat::FP4_E2M1));
    assert_eq!("fp4".parse(), fp4);
}

#[test]
fn json_is_the_text() {
    for text in ["fp6_e3m2", "mx6", "mx(element=int4,block_size=16)"] {
        let slot: SlotFormat = text.parse().unwrap();
        let json = serde_json::to_string(&slot).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<SlotFormat>(&json).unwrap(), slot);
    }
    assert!(serde_json::from_str::<SlotFormat>("3").is_err());
}

#[test]
fn errors_list_elements_and_blocks() {
    let error = "fp5".parse::<SlotFormat>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown format `fp5`: expected one of fp8_e5m2, fp8_e4m3, fp6_e3m2, fp6_e2m3, fp4_e2m1, int8, int4, \
         int2, float16, bfloat16, fp8_e3m4, fp8_e2m5, fp8_e4m3fnuz, fp8_e4m3b11fnuz, fp8_e5m2fnuz, fp5_e3m1, \
         fp5_e2m2, fp4_e3m0, fp4_e1m2, fp3_e2m0, int6, int5, int3, float(…), fixed(…), table(…), binary8p4se (P3109), mxfp8_e5m2, mxfp8_e4m3, mxfp6_e3m2, \
         mxfp6_e2m3, mxfp4, mxint8, mxfp8_rceil, mx4, mx6, mx9, bfp16, nvfp4, mxint4, nvint4, amdfp4, amdfp4_g32, \
         nf4, if4, razer, hif4, amxfp4, bfp16ebs8, \
         mx(…), bfp16ebs8(…), bfp(…), \
         microexponent(…), nvfp4(…), block(…)"
    );
    assert!(matches!(
        "bfp(bit_width=12".parse::<SlotFormat>(),
        Err(ParseFormatError::Bracket { .. })
    ));
    let invalid = SlotFormat::Block(BlockFormat {
        tensor_scale: true,
        ..BlockFormat::mx(ElementFormat::INT8, 32)
    });
    assert!(invalid.validate().is_err());
}
