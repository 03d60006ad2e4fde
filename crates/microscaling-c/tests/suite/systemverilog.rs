//! Simulators run the SystemVerilog, and the tests compare the results with the library. Verilator's lint and Yosys read the source.

use crate::blocks::{FIXED_STEPS, FLOAT_SCALES, MX, NPU, P3109, SWITCHES};
use crate::cases::{BlockCase, block_cases, full};
use crate::compiled::mode_number;
use crate::numbers::{bfloat16, midpoints, patterns};
use crate::simulators::{Bench, Tool};
use crate::vectors::number;
use microscaling::p3109::{P3109Format, P3109Rounding, Projection, Saturation};
use microscaling::{
    BlockFormat, ElementConversion, ElementFormat, ElementRounding, RandomStream, Rounding,
};
use microscaling_c::{Reference, Subject};
use microscaling_product::{Accumulation, AccumulatorOperand, Axis, OperandKind};
use std::fmt::Write;

/// A vector with element 0 in its lowest bits.
fn vector(words: &[u32], length: usize) -> String {
    let missing = std::iter::repeat_n(&0, length - words.len());
    let words = missing.chain(words.iter().rev());
    words.map(|word| format!("{word:08x}")).collect()
}

fn block_bench(format: &BlockFormat, cases: &[BlockCase]) -> Bench {
    let mut text = String::new();
    let size = full(format);
    for case in cases {
        let [x, draws] = [&case.x, &case.draws].map(|words| vector(words, size));
        writeln!(text, "{x} {draws} {:x} {:x}", case.mode, case.tensor_scale).unwrap();
    }
    Bench::new(
        Subject::Block(*format),
        include_str!("block_bench.sv"),
        &text,
    )
}

fn check_block(text: &str, count: u64, tools: &[Tool], lint: bool) {
    let format: BlockFormat = text.parse().unwrap();
    let mut cases = block_cases(&format, count);
    if text.contains("rms") {
        // Zeros at the end change the mean.
        cases.retain(|case| case.x.len() == full(&format));
    }
    let bench = block_bench(&format, &cases);
    if lint {
        bench.lint();
    }
    for tool in tools.iter().filter(|tool| tool.is_installed()) {
        let results = bench.results(*tool);
        assert_eq!(results.len(), cases.len(), "{text} {tool:?}");
        for (number, (case, got)) in cases.iter().zip(results).enumerate() {
            case.check(&format!("{text}: {tool:?}, block {number}"), &got);
        }
    }
}

fn check_element(text: &str, count: usize, tools: &[Tool], lint: bool) {
    let element: ElementFormat = text.parse().unwrap();
    let inputs = midpoints(element)
        .into_iter()
        .chain(bfloat16().step_by(41))
        .chain(patterns(3, 500));
    let stream = RandomStream::new(4, 4);
    let mut inputs: Vec<u32> = inputs.collect();
    let step = (inputs.len() / count).max(1);
    inputs = inputs
        .into_iter()
        .step_by(step)
        .filter(|x| f32::from_bits(*x).is_finite())
        .collect();
    let mut cases = Vec::new();
    for (i, x) in inputs.into_iter().enumerate() {
        for mode in 0..12 {
            let draw = stream.draw((12 * i + mode as usize) as u64);
            // The library has the first four modes as a choice of the caller, and the others as a part of the format.
            let caller = Rounding::ALL
                .into_iter()
                .find(|own| mode_number(*own) == mode);
            let mut fixed = ElementRounding::FIXED.into_iter();
            let own = fixed.find(|own| number(*own) == mode);
            let format = BlockFormat {
                conversion: ElementConversion {
                    rounding: own.filter(|_| caller.is_none()),
                    ..ElementConversion::LIBRARY
                },
                ..BlockFormat::mx(element, 1)
            };
            let rounding = caller.unwrap_or(Rounding::NearestEven);
            let value = format
                .round_scaled(f32::from_bits(x), 1.0, 1.0, rounding, draw)
                .to_bits();
            let value = if value == 1 << 31 && !element.has_negative_zero() {
                0
            } else {
                value
            };
            cases.push(([x, mode, draw], value));
        }
    }
    let mut lines = String::new();
    for ([x, mode, draw], _) in &cases {
        writeln!(lines, "{x:x} {mode:x} {draw:x}").unwrap();
    }
    let bench = Bench::new(
        Subject::Element(element),
        include_str!("element_bench.sv"),
        &lines,
    );
    if lint {
        bench.lint();
    }
    for tool in tools.iter().filter(|tool| tool.is_installed()) {
        let results = bench.results(*tool);
        assert_eq!(results.len(), cases.len(), "{text} {tool:?}");
        for ((case, value), got) in cases.iter().zip(results) {
            let [code, decoded] = got[..] else {
                panic!("{got:?}")
            };
            assert_eq!(decoded, *value, "{text} {tool:?}: {case:x?}");
            assert_eq!(
                element.decode(code).to_bits(),
                *value,
                "{text} {tool:?}: {case:x?}"
            );
        }
    }
}

fn check_p3109(name: &str, count: u64, tools: &[Tool], lint: bool) {
    const ROUNDINGS: [&str; 9] = crate::p3109::ROUNDINGS;
    let format: P3109Format = name.parse().unwrap();
    let stream = RandomStream::new(6, 6);
    let codes = (0..1_u32 << format.bits()).filter_map(|code| format.decode(code).to_f32());
    let mut numbers: Vec<f32> = codes.filter(|x| x.is_finite()).collect();
    numbers.sort_by(f32::total_cmp);
    let means = numbers
        .windows(2)
        .map(|pair| (pair[0] / 2.0 + pair[1] / 2.0).to_bits());
    let near = means.flat_map(|x| [x.saturating_sub(1), x, x + 1]);
    let special = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        -0.0,
        f32::MAX,
        f32::MIN,
    ]
    .map(f32::to_bits);
    let inputs = special
        .into_iter()
        .chain(patterns(5, count).into_iter().chain(bfloat16().step_by(17)))
        .chain(near);
    let (mut lines, mut wanted) = (String::new(), Vec::new());
    for (i, x) in inputs.enumerate() {
        for (mode, name) in ROUNDINGS.iter().enumerate() {
            let bits = if mode < 6 {
                0
            } else {
                1 + stream.draw(i as u64) % [31, 3][i % 2]
            };
            let random = stream.draw(1 << 32 | i as u64) & ((1_u64 << bits) - 1) as u32;
            let number = (i + mode) % 3;
            let rounding = P3109Rounding::named(name, bits, random).unwrap();
            let saturation = [
                Saturation::SatFinite,
                Saturation::SatPropagate,
                Saturation::SatNone,
            ][number];
            writeln!(lines, "{x:x} {mode:x} {number:x} {bits:x} {random:x}").unwrap();
            let number = f64::from(f32::from_bits(x));
            wanted.push(format.project(
                number,
                Projection {
                    rounding,
                    saturation,
                },
            ));
        }
    }
    let bench = Bench::new(
        Subject::P3109(format),
        include_str!("p3109_bench.sv"),
        &lines,
    );
    if lint {
        bench.lint();
    }
    for tool in tools.iter().filter(|tool| tool.is_installed()) {
        let results = bench.results(*tool);
        assert_eq!(results.len(), wanted.len(), "{name} {tool:?}");
        for (line, (wanted, got)) in lines.lines().zip(wanted.iter().zip(results)) {
            let value = format.decode(*wanted).to_f32().unwrap().to_bits();
            assert_eq!(got, [*wanted, value], "{name} {tool:?}: {line}");
        }
    }
}

/// A small part of the tests below.
#[test]
fn icarus_equals_the_library() {
    let icarus = &[Tool::Icarus];
    for text in ["mxfp8_e4m3", "mx6", "nvfp4"] {
        check_block(text, 20, icarus, false);
    }
    for text in [
        "mx(element=fp4_e2m1,block_size=2)",
        "block(element=e2m1,scale=ue4m3,block_size=2,tensor_scale=true)",
    ] {
        check_block(text, 20, icarus, true);
    }
    check_element("fp8_e4m3", 300, &[Tool::Icarus, Tool::Gates], true);
    check_p3109("binary8p4se", 200, &[Tool::Icarus, Tool::Gates], true);
}

/// A small part of the tests below: switches of hardware, XDNA2 and P3109.
#[test]
fn switches_in_icarus_equal_the_library() {
    for text in [
        "mx(element=fp8_e5m2,block_size=2,rounding=down,overflow=infinity,flush_outputs=true)",
        "mx(element=fp8_e4m3,block_size=2,rounding=stochastic-c,random_bits=3,overflow=nan)",
        "block(element=fp6_e2m3,scale=ue4m3,block_size=2,rounding=odd,flush_outputs=true)",
        "block(element=binary6p3ue,scale=binary8p3se,block_size=2,non_finite=elements,overflow=infinity)",
        "bfp16ebs8(block_size=2)",
    ] {
        check_block(text, 40, &[Tool::Icarus], true);
    }
}

/// Icarus for every format; Verilator, and C by DPI in Verilator, for some, as a model compiles for seconds.
fn tools(number: usize, some: usize) -> &'static [Tool] {
    const ALL: [Tool; 3] = [Tool::Icarus, Tool::Verilator, Tool::Dpi];
    if number.is_multiple_of(some) {
        &ALL
    } else {
        &ALL[..1]
    }
}

#[test]
#[ignore = "takes minutes"]
fn blocks_in_simulators_equal_the_library() {
    let formats = MX.iter().chain(&FIXED_STEPS).chain(&FLOAT_SCALES);
    let formats = formats.chain(&SWITCHES).chain(&NPU).chain(&P3109);
    let with_length = formats.filter(|text| !text.contains("block_size=0"));
    for (i, text) in with_length.enumerate() {
        println!("{text}");
        check_block(text, 60, tools(i, 4), true);
    }
}

#[test]
#[ignore = "takes a minute"]
fn elements_in_simulators_equal_the_library() {
    let formats = [
        "fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp4_e2m1", "int8", "e1m2", "bfloat16", "float16",
    ];
    for (i, text) in formats.into_iter().enumerate() {
        println!("{text}");
        check_element(text, 5000, tools(i, 3), true);
    }
}

#[test]
#[ignore = "takes a minute"]
fn formats_of_p3109_in_simulators_equal_the_library() {
    let formats = [
        "binary8p4se",
        "binary8p3sf",
        "binary8p5ue",
        "binary8p2uf",
        "binary8p1sf",
        "binary6p6uf",
        "binary3p1se",
    ];
    for (i, name) in formats.into_iter().enumerate() {
        println!("{name}");
        check_p3109(name, 300, tools(i, 3), true);
    }
}

/// Gates that a synthesizer makes of the models, in Icarus. A block of two elements has all of a block's logic.
#[test]
#[ignore = "takes minutes"]
fn gates_equal_the_library() {
    let gates = &[Tool::Gates];
    for element in ["fp8_e5m2", "fp6_e3m2", "int8"] {
        check_element(element, 2000, gates, false);
    }
    for name in ["binary8p3sf", "binary8p1uf", "binary6p3ue"] {
        check_p3109(name, 200, gates, false);
    }
    for text in [
        "mx(element=fp4_e2m1,block_size=2)",
        "mx(element=fp8_e4m3,block_size=2,scale_mode=ceil)",
        "bfp(bit_width=13,block_size=2)",
        "bfp16ebs8(block_size=2)",
        "mx(element=fp8_e5m2,block_size=2,rounding=down,overflow=infinity,flush_outputs=true)",
    ] {
        println!("{text}");
        check_block(text, 60, gates, false);
    }
}

/// Sums by DPI, which Icarus does not have.
#[test]
#[ignore = "takes a minute"]
fn dots_by_dpi_equal_the_library() {
    if !Tool::Dpi.is_installed() {
        return;
    }
    let format: BlockFormat = "mxfp8_e4m3".parse().unwrap();
    let kind = OperandKind::of_format(&format).unwrap();
    let accumulation: Accumulation = "hopper_promote128".parse().unwrap();
    let reference = Reference::new(Subject::Block(format)).unwrap();
    let reference = reference.with_accumulator(accumulation).unwrap();
    let bench = Bench::of(reference, include_str!("dot_bench.sv"), "");
    let said = bench.simulate(Tool::Dpi);
    let sums = said
        .lines()
        .filter_map(|line| u32::from_str_radix(line, 16).ok());
    let sums: Vec<u32> = sums.collect();
    assert_eq!(sums.len(), 71, "{said}");
    for (length, got) in sums.into_iter().enumerate() {
        let codes = |factor, offset, modulus| {
            let code = move |i: usize| (i * factor + offset) % modulus;
            let number = move |i| format.element.decode(code(i) as u32);
            (0..length).map(number).collect::<Vec<f32>>()
        };
        let elements = [codes(37, 5, 126), codes(91, 130, 255)];
        let scale = |exponent: i32| 2.0_f32.powi(exponent);
        let blocks = 0..length.div_ceil(32) as i32;
        let scales = [
            blocks.clone().map(|i| scale(i - 7)).collect::<Vec<f32>>(),
            blocks.map(|i| scale(3 - i)).collect(),
        ];
        let operand = |side: usize| AccumulatorOperand {
            kind,
            elements: &elements[side],
            free: Axis {
                length: 1,
                stride: length,
            },
            summed: Axis { length, stride: 1 },
            scales: &scales[side],
        };
        let rule = accumulation.of(kind, kind).unwrap();
        let expected = rule.dot(&operand(0), 0, &operand(1), 0, 1.0).unwrap();
        assert_eq!(got, expected.to_bits(), "{length} elements");
    }
}

#[test]
fn blocks_as_long_as_an_axis_are_named() {
    let reference = Reference::new("mx(element=fp4_e2m1,block_size=0)".parse().unwrap()).unwrap();
    let error = reference.systemverilog().unwrap_err().to_string();
    assert!(error.contains("block_size is 0"), "{error}");
    assert!(reference.dpi("a.h", "a.c").is_err());
}
