//! Elements by a table.

use microscaling::{
    BlockFormat, ElementFormat, FormatError, Packed, RandomStream, Rounder, Rounding, ScaleFormat,
};
use proptest::prelude::*;
use proptest::sample::select;

fn block(element: ElementFormat) -> BlockFormat {
    BlockFormat {
        tensor_scale: true,
        ..BlockFormat::float_scale(element, ScaleFormat::UE4M3, 16)
    }
}

/// The numbers of an element format, all of whose codes are numbers, in the order of its codes.
fn as_table(element: ElementFormat) -> ElementFormat {
    let numbers: Vec<f32> = (0..1 << element.bits())
        .map(|code| element.decode(code))
        .collect();
    ElementFormat::tables(&[&numbers]).unwrap()
}

/// Floats all of whose codes are numbers, with a last digit that is even or odd.
const FLOATS: [&str; 7] = ["e2m1", "e3m2", "e2m3", "e2m5", "e3m1", "e2m2", "e1m2"];

const DETERMINISTIC: [Rounding; 3] = [
    Rounding::NearestAway,
    Rounding::NearestEven,
    Rounding::TowardZero,
];

fn numbers() -> impl Strategy<Value = Vec<f32>> {
    let number = prop_oneof![
        4 => any::<f32>(),
        4 => -8.0_f32..8.0,
        // Ties.
        4 => (-64..64_i32).prop_map(|n| n as f32 / 8.0),
        1 => select(vec![0.0, -0.0, f32::MIN_POSITIVE, 1e-45]),
    ];
    prop::collection::vec(number, 1..200)
}

proptest! {
    /// A table of a float's numbers equals the float: values, codes, scales and clipped elements.
    #[test]
    fn a_float_as_a_table(
        x in numbers(),
        name in select(&FLOATS[..]),
        rounding in select(&DETERMINISTIC[..]),
    ) {
        let float: ElementFormat = name.parse().unwrap();
        let rounder = rounding.with(RandomStream::new(0, 0));
        let quantize = |element| {
            let format = block(element);
            let mut q = x.clone();
            format.quantize(&mut q, &[x.len()], 0, rounder).unwrap();
            let packed = Packed::encode(format, &x, &[x.len()], 0, rounder).unwrap();
            let mut mask = vec![1.0_f32; x.len()];
            format.mask_clipped(&x, &[x.len()], 0, &mut mask).unwrap();
            let bits: Vec<u32> = q.iter().map(|x| x.to_bits()).collect();
            let decoded: Vec<u32> = packed.decode().iter().map(|x| x.to_bits()).collect();
            (bits, decoded, packed.scales().to_vec(), packed.elements().to_vec(), mask)
        };
        prop_assert_eq!(quantize(float), quantize(as_table(float)));
    }

    /// No number of the table is nearer, for the scale that the block has.
    #[test]
    fn nearest(x in prop::collection::vec(-8.0_f32..8.0, 64), name in select(&ElementFormat::TABLE_NAMES[..])) {
        let text = format!("block(element=table({name}),scale=float32,block_size=64)");
        let format: BlockFormat = text.parse().unwrap();
        let packed = Packed::encode(format, &x, &[64], 0, Rounder::NearestEven).unwrap();
        let q = packed.decode();
        let scales = packed.scales();
        // The scale, and above it the number of the table.
        let scale = f32::from_le_bytes(scales[..4].try_into().unwrap());
        let table = scales.get(4).copied().unwrap_or(0);
        let values = values(name, table);
        for (x, q) in x.iter().zip(&q) {
            let distance = |value: &f32| (f64::from(*value) * f64::from(scale) - f64::from(*x)).abs();
            let least = values.iter().map(distance).fold(f64::INFINITY, f64::min);
            let own = f64::from(q - x).abs();
            prop_assert!(own <= least + 1e-6, "{} became {}, {} away; {}", x, q, own, least);
        }
    }

    /// A block has the better one of two tables.
    #[test]
    fn the_better_table(x in prop::collection::vec(-8.0_f32..8.0, 32)) {
        let with = |tables: &[&[f32]]| {
            let element = ElementFormat::tables(tables).unwrap();
            let format = BlockFormat::float_scale(element, ScaleFormat::FLOAT32, 32);
            let mut q = x.clone();
            format.quantize(&mut q, &[32], 0, Rounder::NearestEven).unwrap();
            x.iter().zip(&q).map(|(x, q)| f64::from(x - q).powi(2)).sum::<f64>()
        };
        let one: &[f32] = &[0.0, 0.5, 1.0, -0.5, -1.0];
        let other: &[f32] = &[0.0, 0.1, 1.0, -0.1, -1.0];
        let [first, second, both] = [with(&[one]), with(&[other]), with(&[one, other])];
        // Errors are compared in small units.
        prop_assert!((both - first.min(second)).abs() < 1e-3, "{} {} {}", first, second, both);
    }
}

/// The number of each code of a table with a name, from the papers.
fn values(name: &str, table: u8) -> Vec<f32> {
    let fp4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let signed =
        |magnitudes: &[f32]| -> Vec<f32> { magnitudes.iter().flat_map(|x| [*x, -*x]).collect() };
    match (name, table) {
        ("nf4", 0) => vec![
            -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
            0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.562_617, 0.7229568, 1.0,
        ],
        ("if4", 0) => signed(&fp4),
        ("if4", 1) => signed(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0].map(|i: f32| i * 6.0 / 7.0)),
        ("razer", 0) => [signed(&fp4), vec![5.0]].concat(),
        ("razer", 1) => [signed(&fp4), vec![-5.0]].concat(),
        other => unreachable!("{other:?}"),
    }
}

/// Stochastic rounding has no bias within a step.
#[test]
fn stochastic_rounding_has_the_mean() {
    let format: BlockFormat = "block(element=table(0 0.25 1 -1),scale=float32,block_size=0)"
        .parse()
        .unwrap();
    let count = 1 << 16;
    for value in [0.1, 0.25, 0.5, 0.9, -0.4] {
        let mut x = vec![value; count];
        x[0] = 1.0;
        let rounder = Rounding::Stochastic.with(RandomStream::new(3, 0));
        format.quantize(&mut x, &[count], 0, rounder).unwrap();
        let mean = x[1..].iter().map(|x| f64::from(*x)).sum::<f64>() / (count - 1) as f64;
        assert!((mean - f64::from(value)).abs() < 0.01, "{value}: {mean}");
    }
}

#[test]
fn what_is_no_table() {
    let of = |numbers: &[f32]| ElementFormat::tables(&[numbers]);
    let field = |field, min, max, got| {
        Err(FormatError::Field {
            format: "table",
            field,
            min,
            max,
            got,
        })
    };
    assert_eq!(of(&[0.0, 1.0]), field("length", 3, 256, 2));
    assert_eq!(of(&[0.0; 257]), field("length", 3, 256, 257));
    assert_eq!(ElementFormat::tables(&[]), field("alternatives", 1, 16, 0));
    for (numbers, at) in [
        (&[0.0, 1.0, f32::NAN][..], 2),
        (&[0.0, f32::INFINITY, 1.0], 1),
        (&[0.0, 1e20, 1.0], 1),
        (&[0.0, 1.0, 1e-12], 2),
        (&[0.0, 1.0, 1.0], 2),
        (&[0.5, 1.0, -1.0], 2),
        (&[-0.0, 1.0, -1.0], 2),
        (&[0.0, 0.5, -0.5], 2),
    ] {
        let Err(FormatError::TableNumber { code, .. }) = of(numbers) else {
            panic!("{numbers:?}");
        };
        assert_eq!(code, at, "{numbers:?}");
    }
    let two: [&[f32]; 2] = [&[0.0, 1.0, 2.0], &[0.0, 1.0, 2.0, 3.0, 4.0]];
    assert_eq!(
        ElementFormat::tables(&two),
        Err(FormatError::TableBits { bits: 2, got: 3 })
    );
}

/// Equal tables are one format, wherever they come from.
#[test]
fn equal_tables_are_equal() {
    let numbers: &[f32] = &[0.0, 1.0, -0.75];
    let one = ElementFormat::tables(&[numbers]).unwrap();
    assert_eq!(ElementFormat::tables(&[numbers]), Ok(one));
    assert_eq!("table(0 1 -0.75)".parse(), Ok(one));
    assert_eq!(one.to_string(), "table(0 1 -0.75)");
    assert_ne!(one, "table(0 -0.75 1)".parse().unwrap());
    let nf4: Vec<f32> = (0..16)
        .map(|code| ElementFormat::NF4.decode(code))
        .collect();
    assert_eq!(ElementFormat::tables(&[&nf4]), Ok(ElementFormat::NF4));
    assert_eq!(ElementFormat::NF4.to_string(), "table(nf4)");
}

/// Numbers far apart, neighbours of float32, one sign alone, and tables of which one makes a block NaN.
#[test]
fn tables_at_the_limits() {
    let quantized = |text: &str, x: &[f32]| {
        let format: BlockFormat = text.parse().unwrap();
        let mut q = x.to_vec();
        format
            .quantize(&mut q, &[x.len()], 0, Rounder::NearestAway)
            .unwrap();
        let mut mask = vec![1.0; x.len()];
        format.mask_clipped(x, &[x.len()], 0, &mut mask).unwrap();
        (q, mask)
    };
    let far = "block(element=table(0 0.001 1 -1),scale=float32)";
    assert_eq!(quantized(far, &[1.0, 0.0012, 0.0004]).0, [1.0, 0.001, 0.0]);
    // A number of the table stays, though no other number lies half way to its neighbour.
    let near = "block(element=table(0 1 1.0000001 2 -1),scale=float32)";
    let x = [2.0, 1.0, 1.000_000_1];
    assert_eq!(quantized(near, &x).0, x);
    let unsigned = "block(element=table(0 1 2),scale=float32)";
    let (q, mask) = quantized(unsigned, &[2.0, -3.0, -0.0, 1.0]);
    assert_eq!(
        (q, mask),
        (vec![1.5, 0.0, 0.0, 1.5], vec![1.0, 0.0, 1.0, 1.0])
    );
    // The first table's scale times the tensor's is too large for float32.
    let large =
        "block(element=table(0 1 -1 0.5/0 6 -6 3),scale=ue4m3,tensor_scale=true,headroom=4/3)";
    assert!(
        quantized(large, &[3e38, -1e38])
            .0
            .iter()
            .all(|q| !q.is_nan())
    );
    // Inf in units of the scale saturates.
    let format = BlockFormat {
        tensor_scale: true,
        ..BlockFormat::float_scale(as_table(ElementFormat::FP6_E3M2), ScaleFormat::UE4M3, 16)
    };
    let q = format.round_scaled(1e38, 448.0, 1e-30, Rounding::NearestEven, 0);
    assert_eq!(q, 28.0 * (448.0 * 1e-30));
    assert!("fixed(bits=2147483648)".parse::<ElementFormat>().is_err());
}
