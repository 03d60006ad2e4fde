//! Elements: all codes, and conversions to them.

use crate::compiled::{Compiled, has_compiler, mode_number};
use crate::numbers::{bfloat16, midpoints, patterns};
use microscaling::{BlockFormat, ElementFormat, RandomStream, Rounding};
use microscaling_c::{Reference, Subject};

/// The element of a number by the library, in a block with the scale 1.
fn expected(element: ElementFormat, x: u32, rounding: Rounding, draw: u32) -> u32 {
    let format = BlockFormat::mx(element, 1);
    let x = f32::from_bits(x);
    let finite = if x.is_infinite() {
        f32::MAX.copysign(x)
    } else {
        x
    };
    format
        .round_scaled(finite, 1.0, 1.0, rounding, draw)
        .to_bits()
}

fn check(text: &str) {
    let element: ElementFormat = text.parse().unwrap();
    let subject = Subject::Element(element);
    let compiled = Compiled::new(&Reference::new(subject).unwrap(), subject, false);
    let codes = 0..1_u32 << element.bits();
    let decoded = compiled.run(codes.clone().flat_map(|code| [0, code]).collect());
    for (code, got) in codes.zip(&decoded) {
        assert_eq!(
            *got,
            element.decode(code).to_bits(),
            "{text}: code {code:#x}"
        );
    }
    let random = patterns(1, 20_000);
    let inputs = midpoints(element)
        .into_iter()
        .chain(bfloat16())
        .chain(random);
    let draws = RandomStream::new(2, 0);
    // Every bit counts: the least fraction goes up with the largest word, and all but one stay down with 0.
    let draw = |x: u32| match x % 5 {
        0 => u32::MAX,
        1 => 0,
        _ => draws.draw(u64::from(x)),
    };
    let cases: Vec<[u32; 3]> = inputs
        .flat_map(|x| (0..4).map(move |mode| [x, mode, draw(x)]))
        .collect();
    let commands = cases
        .iter()
        .flat_map(|[x, mode, draw]| [1, *x, *mode, *draw]);
    let got = compiled.run(commands.collect());
    assert_eq!(got.len(), cases.len());
    let has_nan = decoded.iter().any(|x| f32::from_bits(*x).is_nan());
    for ([x, mode, draw], code) in cases.into_iter().zip(got) {
        let rounding = Rounding::ALL
            .into_iter()
            .find(|each| mode_number(*each) == mode)
            .unwrap();
        let value = element.decode(code);
        let wanted = match f32::from_bits(x).is_nan() {
            true if has_nan => f32::NAN.to_bits(),
            true => 0,
            false => expected(element, x, rounding, draw),
        };
        // Elements without a −0 have 0 in its place.
        let wanted = match wanted {
            0x8000_0000 if !element.has_negative_zero() => 0,
            wanted => wanted,
        };
        assert_eq!(
            value.to_bits(),
            wanted,
            "{text}: {x:#x} {rounding} {draw:#x}: code {code:#x}"
        );
        assert_eq!(code >> element.bits(), 0);
    }
}

#[test]
fn elements_equal_the_library() {
    if !has_compiler() {
        return;
    }
    for text in [
        "fp8_e4m3",
        "fp8_e5m2",
        "fp6_e3m2",
        "fp6_e2m3",
        "fp4_e2m1",
        "int8",
        "int4",
        "int2",
        "e1m2",
        "bfloat16",
        "float16",
        "float(exponent_bits=3,mantissa_bits=4,bias=3,specials=none)",
        "float(exponent_bits=4,mantissa_bits=3,bias=8,specials=fnuz)",
        "float(exponent_bits=5,mantissa_bits=0,bias=15,specials=ieee)",
        "float(exponent_bits=4,mantissa_bits=0,bias=7,specials=none)",
        "float(exponent_bits=3,mantissa_bits=0,bias=2,specials=none)",
        "float(exponent_bits=7,mantissa_bits=8,bias=63,specials=nan)",
        "fixed(bits=5,fraction_bits=3)",
        "fixed(bits=16,fraction_bits=20)",
    ] {
        check(text);
    }
}
