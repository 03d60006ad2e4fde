//! Hadamard transforms as text.

use burn_mx::{Hadamard, HadamardSigns};

#[test]
fn text_is_read_back() {
    for text in ["16", "32:step", "64:product", "128:none", "16:0xd7e8"] {
        let transform: Hadamard = text.parse().unwrap();
        assert_eq!(transform.to_string(), text);
        let json = serde_json::to_string(&transform).unwrap();
        assert_eq!(serde_json::from_str::<Hadamard>(&json).unwrap(), transform);
    }
    let all: Hadamard = format!("128:{:#x}", u128::MAX).parse().unwrap();
    assert_eq!(all.signs, HadamardSigns::Given(u128::MAX));
    assert_eq!("32:0x0".parse::<Hadamard>().unwrap().to_string(), "32:none");
}

#[test]
fn an_error_says_what_is_allowed() {
    for text in [
        "",
        "0",
        "8",
        "17",
        "256",
        "64:",
        "64:both",
        "64:d7e8",
        "64:0x",
        "16:0x10000",
        "64 :step",
    ] {
        let error = text.parse::<Hadamard>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{text}` is no")), "{error}");
        assert!(error.contains("`:product`"), "{error}");
    }
}
