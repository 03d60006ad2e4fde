//! Matrix tiles: each sum by fused multiplications and additions of the test's own, and the dot products on the diagonal.

use microscaling::ElementFormat;
use microscaling_vectors::{Direction, DotSet, TileSet, TileShape, VectorSet};

const LENGTH: usize = 24;

fn dots(accumulator: &str, lhs: &str, rhs: &str) -> DotSet {
    let operands = [lhs, rhs].map(|operand| operand.parse().unwrap());
    DotSet::new(
        accumulator.parse().unwrap(),
        operands,
        Some(LENGTH),
        3,
        Some(200),
    )
    .unwrap()
}

fn tiles(dot: DotSet, shape: &str) -> TileSet {
    TileSet::new(dot, shape.parse().unwrap())
}

/// The words of a field in a case's inputs.
fn field<'a>(set: &TileSet, inputs: &'a [u64], name: &str) -> &'a [u64] {
    let mut start = 0;
    for field in set.layout().fields() {
        if field.name == name {
            return &inputs[start..][..field.words()];
        }
        start += field.words();
    }
    panic!("there is {name}")
}

#[test]
fn sums_of_rows_and_columns() {
    let set = tiles(
        dots(
            "accumulator(order=fma,output=f32_rne)",
            "fp8_e4m3",
            "fp6_e3m2",
        ),
        "3x5",
    );
    assert_eq!(set.cases(), 67);
    let formats: [ElementFormat; 2] = ["fp8_e4m3", "fp6_e3m2"].map(|name| name.parse().unwrap());
    let (mut sums, mut finite) = (0, 0);
    for case in 0..set.cases() {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        set.inputs(case, &mut inputs);
        set.outputs(&inputs, &[], &mut outputs);
        assert_eq!(outputs.len(), 15);
        let [a, b, c] = ["a", "b", "c"].map(|name| field(&set, &inputs, name));
        for (at, sum) in outputs.iter().enumerate() {
            let mut expected = f32::from_bits(c[at] as u32);
            for k in 0..LENGTH {
                let a = formats[0].decode(a[at / 5 * LENGTH + k] as u32);
                let b = formats[1].decode(b[at % 5 * LENGTH + k] as u32);
                expected = a.mul_add(b, expected);
            }
            let got = f32::from_bits(*sum as u32);
            assert!(
                got == expected || got.is_nan() && expected.is_nan(),
                "{case} {at}: {got} {expected}"
            );
            sums += 1;
            finite += usize::from(got.is_finite());
        }
    }
    assert_eq!(sums, 67 * 15);
    assert!(finite > 500, "{finite}");
}

#[test]
fn the_diagonal_has_the_dot_products_of_the_set() {
    for (accumulator, lhs) in [
        ("hopper", "fp8_e4m3"),
        ("blackwell", "nvfp4"),
        ("xdna2", "bfp16ebs8"),
    ] {
        let dot = dots(accumulator, lhs, lhs);
        let set = tiles(dot.clone(), "2x3");
        let mut seen = 0;
        for case in 0..set.cases() {
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            set.inputs(case, &mut inputs);
            set.outputs(&inputs, &[], &mut outputs);
            for i in 0..2 {
                let (mut one, mut sum) = (Vec::new(), Vec::new());
                dot.inputs((2 * case + i) % dot.cases(), &mut one);
                dot.outputs(&one, &[], &mut sum);
                assert_eq!(
                    outputs[(i * 3 + i) as usize],
                    sum[0],
                    "{accumulator} {case} {i}"
                );
                seen += 1;
            }
            // Any device with these sums agrees, and with another one differs.
            assert!(set.same(&outputs, &outputs) && set.refuse(&inputs).is_none());
        }
        assert!(seen >= dot.cases(), "{seen}");
        assert_eq!(set.layout().of(Direction::Output).words(), 6);
    }
}

#[test]
fn shapes_are_read() {
    assert_eq!("4x8".parse::<TileShape>().unwrap().to_string(), "4x8");
    for text in ["", "4", "4x", "x4", "0x4", "4x65", "4x4x4"] {
        let error = text.parse::<TileShape>().unwrap_err().to_string();
        assert!(
            error.contains("rows and columns, 1 to 64 each, such as 4x8"),
            "{error}"
        );
    }
}
