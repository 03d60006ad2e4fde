//! The worked examples of published models, in the figures that their authors and the project's notes give.

use burn_mx_cost::{Numbers, Product, Tables, exact_bits, kept_bits, tile_lines};
use microscaling::{BlockFormat, FloatFormat};
use microscaling_product::Accumulator;

fn numbers(format: &str) -> Numbers {
    format.parse::<BlockFormat>().unwrap().into()
}

fn of_16_bits() -> Numbers {
    Numbers::float(Some(FloatFormat::bfloat(16).unwrap()))
}

fn assert_near(got: f64, expected: f64, within: f64, what: &str) {
    assert!(
        (got - expected).abs() <= within,
        "{what}: {got}, not {expected}"
    );
}

const MXINT4: &str = "mxint4";
const NVINT4: &str = "nvint4";

/// arXiv 2302.08007, section IV, d.
#[test]
fn lines_of_memory() {
    let fp8 = Numbers {
        bits: 8.0,
        ..numbers("mxfp8_e4m3")
    };
    assert_eq!(tile_lines(fp8, 256, 64), 4);
    for (format, lines) in [
        ("mxfp8_e4m3", 5),
        ("mx9", 5),
        ("mx6", 3),
        ("mx4", 2),
        ("mxfp4", 3),
        ("nvfp4", 3),
    ] {
        assert_eq!(tile_lines(numbers(format), 256, 64), lines, "{format}");
    }
}

/// arXiv 2510.25602, equations 44 to 48, with textbook weights: gates of a lane relative to MXFP8 E4M3's.
#[test]
fn gates_of_a_lane() {
    let area = Tables::default().area;
    let lane = |format: &str| area.lane(numbers(format), numbers(format), None);
    let unit = lane("mxfp8_e4m3");
    assert_near(unit, 576.0, 0.5, "gates of MXFP8 E4M3");
    for (format, expected) in [
        ("mxfp8_e5m2", 0.96),
        ("mxint8", 0.85),
        ("mxfp6_e2m3", 0.61),
        ("mxfp6_e3m2", 0.77),
        ("mxfp4", 0.38),
        (MXINT4, 0.27),
        ("nvfp4", 0.51),
        (NVINT4, 0.40),
    ] {
        assert_near(lane(format) / unit, expected, 0.005, format);
    }
    // The areas that the paper prints, from a library of cells that is not published: near, and no nearer.
    for (format, printed) in [("mxint8", 0.79), ("nvfp4", 0.54), (NVINT4, 0.38)] {
        assert_near(lane(format) / unit, printed, 0.065, format);
    }
}

#[test]
fn gates_are_monotone_and_symmetric() {
    let area = Tables::default().area;
    let of = |exponent_bits, mantissa_bits| Numbers {
        exponent_bits,
        mantissa_bits,
        ..numbers("mxfp8_e4m3")
    };
    let lane = |numbers| area.lane(numbers, numbers, None);
    for x in 0..6 {
        for y in 0..8 {
            assert!(lane(of(x, y + 1)) > lane(of(x, y)), "mantissa {x} {y}");
            // From integers to floats of one exponent bit it is another unit.
            if x > 0 {
                assert!(lane(of(x + 1, y)) > lane(of(x, y)), "exponent {x} {y}");
            }
        }
    }
    let (a, b) = (numbers("mxfp8_e4m3"), numbers("nvfp4"));
    assert_eq!(area.lane(a, b, None), area.lane(b, a, None));
    assert!(lane(b) < area.lane(a, b, None));
    assert!(area.lane(a, a, Some(14)) < lane(a) && lane(a) == area.lane(a, a, Some(24)));
}

#[test]
fn exact_sums() {
    for (format, expected) in [
        (MXINT4, [11, 12, 19]),
        ("mxint8", [19, 20, 27]),
        ("mxfp4", [13, 14, 21]),
        ("mxfp6_e2m3", [17, 18, 25]),
        ("mxfp6_e3m2", [23, 24, 31]),
    ] {
        let numbers = numbers(format);
        let bits = [16, 32, 4096].map(|products| exact_bits(numbers, numbers, products));
        assert_eq!(bits, expected, "{format}");
    }
    // Formats with codes for NaN and Inf: by the largest number.
    for (format, expected) in [("mxfp8_e4m3", [41, 42, 49]), ("mxfp8_e5m2", [69, 70, 77])] {
        let numbers = numbers(format);
        let bits = [16, 32, 4096].map(|products| exact_bits(numbers, numbers, products));
        assert_eq!(bits, expected, "{format}");
    }
    let hopper: Accumulator = "accumulator(order=joint,terms=32,fraction_bits=13,output=e8m13_rz)"
        .parse()
        .unwrap();
    let fp8 = numbers("mxfp8_e4m3");
    assert_eq!(kept_bits(&hopper, fp8, fp8), 14);
}

/// Horowitz, ISSCC 2014.
#[test]
fn energies() {
    let operations = Tables::default().operations;
    let int8 = numbers("mxint8");
    let half = Numbers::float(Some(FloatFormat::fp(16).unwrap()));
    assert_near(
        operations.multiply_accumulate(int8, int8, 16),
        0.25,
        1e-9,
        "INT8, 16-bit sum",
    );
    assert_near(
        operations.multiply_accumulate(half, half, 32),
        2.0,
        1e-9,
        "FP16, float32 sum",
    );
    assert_near(
        operations.memory(of_16_bits().bits),
        320.0,
        1e-9,
        "a bfloat16 weight",
    );
    assert_near(
        operations.memory(numbers("nvfp4").bits),
        90.0,
        1e-9,
        "an NVFP4 weight",
    );
}

/// By the lines through Horowitz's points: 0.4 and 0.9 pJ for additions of floats of 16 and 32 bits, 1.1 and 3.7 for multiplications
/// of significands of 11 and 24 bits, 0.03 for an addition of 8-bit integers.
#[test]
fn energies_of_accumulators_and_scales() {
    let tables = Tables::default();
    let picojoules = |format: &str, accumulator: Option<&str>| {
        let mut product = Product::matmul("", [1; 4], numbers(format), numbers(format));
        product.lhs.elements = 0.0;
        product.rhs.elements = 0.0;
        product.accumulator = accumulator.map(|text| text.parse().unwrap());
        tables.cost(&[product]).picojoules
    };
    let multiply = |sides: f64| 1.1 + (sides - 121.0) * (3.7 - 1.1) / (576.0 - 121.0);
    let add = |bits: f64| 0.4 + (bits - 16.0) * 0.5 / 16.0;
    // Two E8M0 scales for 32 elements.
    let e8m0 = 2.0 * 0.03 / 32.0;
    let joint = |bits: u32| {
        format!("accumulator(order=joint,terms=32,fraction_bits={bits},output=e8m13_rz)")
    };
    let in_float32 = picojoules("mxfp8_e4m3", None);
    assert_near(
        in_float32,
        multiply(16.0) + 0.9 + e8m0,
        1e-9,
        "float32 sums",
    );
    let hopper = picojoules("mxfp8_e4m3", Some(&joint(13)));
    assert_near(hopper, multiply(16.0) + add(22.0) + e8m0, 1e-9, "14 bits");
    let of_24_bits = picojoules("mxfp8_e4m3", Some(&joint(23)));
    assert_near(of_24_bits, in_float32, 1e-9, "24 bits are a float32's");
    let in_halves = picojoules("mxfp8_e4m3", Some("accumulator(order=fma,output=f16_rne)"));
    assert_near(
        in_halves,
        multiply(16.0) + add(19.0) + e8m0,
        1e-9,
        "float16 sums",
    );
    // Integers: a product of 8 by 8 bits, an addition of 16 or 32 bits, and one float32 for each block.
    let per_block = e8m0 + 0.9 / 32.0;
    let integers = picojoules("mxint8", None);
    assert_near(integers, 0.2 + 0.1 + per_block, 1e-9, "32-bit integers");
    let short = picojoules("mxint8", Some("accumulator(order=integer,bits=16)"));
    assert_near(short, 0.2 + 0.05 + per_block, 1e-9, "16-bit integers");
    // Scales of 3 mantissa bits for 16 elements: 4 by 4 bits, then 8 by 24.
    let [e4m3, ue5m3] = ["nvfp4", "amdfp4"].map(|format| picojoules(format, None));
    let scales = (multiply(16.0) + multiply(192.0)) / 16.0;
    assert_near(e4m3, multiply(4.0) + 0.9 + scales, 1e-9, "E4M3 scales");
    assert_near(e4m3, ue5m3, 1e-9, "UE5M3 scales");
    let float32 = picojoules("block(element=e2m1,scale=float32,block_size=16)", None);
    let wide = (multiply(576.0) + multiply(48.0 * 24.0)) / 16.0;
    assert_near(float32, multiply(4.0) + 0.9 + wide, 1e-9, "float32 scales");
    let powers = picojoules("mx(element=fp4_e2m1,block_size=16)", None);
    assert_near(
        powers,
        multiply(4.0) + 0.9 + 2.0 * e8m0,
        1e-9,
        "E8M0 scales",
    );
    // A float without a mantissa is a power of two.
    let bare = "block(element=e2m1,scale=float(exponent_bits=8,mantissa_bits=0,bias=127,specials=ieee),block_size=16)";
    assert_near(
        picojoules(bare, None),
        powers,
        1e-9,
        "floats without a mantissa",
    );
    // The area of a lane, too: fewer mantissa bits in a scale, fewer gates.
    let area = |scale: &str| {
        let numbers = numbers(&format!("block(element=e2m1,scale={scale},block_size=16)"));
        tables.area.lane(numbers, numbers, None)
    };
    assert_eq!(area("ue4m3"), area("ue5m3"));
    let areas = ["e8m0", "ue6m2", "ue4m3", "bfloat16", "float32"].map(area);
    assert!(areas.is_sorted_by(|a, b| a < b), "{areas:?}");
}

/// Microseconds of M × 8192 × 8192.
#[test]
fn time_on_chips() {
    let tables = Tables::default();
    let microseconds = |chip: &str, m, numbers| {
        let product = Product::matmul("", [1, m, 8192, 8192], numbers, numbers);
        1e6 * tables.chip(chip).unwrap().seconds(&product).unwrap()
    };
    let formats = [
        of_16_bits(),
        numbers("mxfp8_e4m3"),
        numbers("mxfp6_e2m3"),
        numbers("nvfp4"),
    ];
    for (chip, m, expected, within) in [
        ("b200", 16, [16.8, 8.7, 6.6, 4.8], 0.05),
        ("b200", 8192, [489.0, 244.0, 244.0, 122.0], 0.5),
        ("mi355x", 8192, [437.0, 218.0, 109.0, 109.0], 0.5),
        ("rubin", 8192, [275.0, 63.0, 63.0, 31.0], 0.5),
    ] {
        for (numbers, expected) in formats.into_iter().zip(expected) {
            assert_near(microseconds(chip, m, numbers), expected, within, chip);
        }
    }
    // Without a unit for FP4 it is FP8's, with fewer bytes.
    assert_eq!(
        microseconds("h100", 8192, formats[3]),
        microseconds("h100", 8192, formats[1])
    );
    assert!(microseconds("h100", 16, formats[3]) < microseconds("h100", 16, formats[1]));
}

/// The rows of a product at which multiplying takes as long as reading the weight.
#[test]
fn break_even_rows() {
    let tables = Tables::default();
    let b200 = tables.chip("b200").unwrap();
    let formats = [
        of_16_bits(),
        numbers("mxfp8_e4m3"),
        numbers("mxfp6_e2m3"),
        numbers("nvfp4"),
    ];
    for (numbers, expected) in formats.into_iter().zip([281.0, 290.0, 220.0, 316.0]) {
        let rate = b200.tflops[&b200.unit(numbers.element_bits).unwrap()];
        let rows = rate * numbers.bits / (16.0 * b200.terabytes_per_second);
        assert_near(rows, expected, 0.5, "rows");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let tables = Tables::default();
    let fp32 = Numbers::float(None);
    let product = Product::matmul("", [1; 4], fp32, fp32);
    let error = tables.chip("b200").unwrap().seconds(&product).unwrap_err();
    assert_eq!(
        error.to_string(),
        "b200 has no unit for elements of 32 bits; it has units for [4, 6, 8, 16]"
    );
    let error = tables.chip("b20").unwrap_err().to_string();
    assert!(
        error.contains("`b20`") && error.contains("mi355x"),
        "{error}"
    );
    let text = include_str!("../src/tables.json");
    for (from, to, message) in [
        ("\"and\": 1.25", "\"and\": -1", "`area.and` is -1"),
        (
            "[16, 0.4], [32, 0.9]",
            "[16, 0.4]",
            "`operations.float_add`",
        ),
        (
            "[16, 0.4], [32, 0.9]",
            "[16, 0.4], [16, 0.9]",
            "`operations.float_add`",
        ),
        (
            "\"8\": 1979}, \"terabytes_per_second\": 3.35",
            "\"8\": 0}, \"terabytes_per_second\": 3.35",
            "`chips.h100.tflops.8` is 0",
        ),
        ("\"memory_bit\"", "\"memory\"", "unknown field `memory`"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let error = Tables::from_json(&changed).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn costs_add_up() {
    let tables = Tables::default();
    let (fp8, fp4) = (numbers("mxfp8_e4m3"), numbers("mxfp4"));
    let products = [
        Product::matmul("a", [1, 64, 32, 96], fp8, fp8),
        Product::matmul("b", [2, 64, 32, 96], fp4, fp4),
    ];
    let cost = tables.cost(&products);
    assert_eq!(cost.macs, 3.0 * 64.0 * 32.0 * 96.0);
    assert_near(cost.bits, (8.25 + 2.0 * 4.25) / 3.0, 1e-12, "bits");
    let [one, two] = products
        .each_ref()
        .map(|product| tables.cost(std::slice::from_ref(product)));
    assert_near(one.area, 1.0, 1e-12, "area");
    assert_near(cost.area, (1.0 + 2.0 * two.area) / 3.0, 1e-12, "area");
    assert_near(
        cost.picojoules,
        one.picojoules + two.picojoules,
        1e-3,
        "energy",
    );
    assert_eq!(tables.cost(&[]), burn_mx_cost::Cost::default());
}
