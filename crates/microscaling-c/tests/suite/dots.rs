//! Dot products under accumulators.

use crate::compiled::{Compiled, has_compiler};
use microscaling::{BlockFormat, NonFinite, RandomStream, ScaleFormat};
use microscaling_c::{Reference, Subject};
use microscaling_product::{Accumulation, AccumulatorOperand, Axis, OperandKind};

/// The operands of a format: their kind, and the values of codes.
struct Operands {
    subject: Subject,
    kind: OperandKind,
}

/// Two rows as codes, and the float32 that the sum starts from.
struct Row {
    codes: [Vec<u32>; 2],
    scales: [Vec<u32>; 2],
    c: f32,
}

impl Operands {
    fn of(text: &str) -> Self {
        let subject: Subject = text.parse().unwrap();
        let kind = match subject {
            Subject::Block(format) => OperandKind::of_format(&format).unwrap(),
            Subject::Element(element) => element.into(),
            Subject::P3109(_) => unreachable!(),
        };
        Self { subject, kind }
    }

    fn element(&self, code: u32) -> f32 {
        match self.subject {
            Subject::Block(BlockFormat { element, .. }) | Subject::Element(element) => {
                element.decode(code)
            }
            Subject::P3109(_) => unreachable!(),
        }
    }

    fn scale(&self, code: u32) -> f32 {
        let Subject::Block(format) = self.subject else {
            return 1.0;
        };
        match format.scale.float() {
            Some(float) => float.decode(code),
            None if format.scale == ScaleFormat::FLOAT32 => f32::from_bits(code),
            None if code == 255 && format.non_finite == NonFinite::TopExponent => f32::INFINITY,
            None if code == 255 => f32::NAN,
            None if code == 0 => f32::from_bits(1 << 22),
            None => f32::from_bits(code << 23),
        }
    }

    fn is_integer(&self) -> bool {
        match self.subject {
            Subject::Block(BlockFormat { element, .. }) | Subject::Element(element) => {
                element.is_integer()
            }
            Subject::P3109(_) => false,
        }
    }

    fn bits(&self) -> u32 {
        match self.subject {
            Subject::Block(BlockFormat { element, .. }) | Subject::Element(element) => {
                element.bits()
            }
            Subject::P3109(_) => unreachable!(),
        }
    }

    fn blocks(&self, length: usize) -> usize {
        match (self.kind.scale, self.kind.block) {
            (None, _) => 0,
            (_, 0) => usize::from(length > 0),
            (_, block) => length.div_ceil(block),
        }
    }

    /// A row of some kind: any codes, near ones, or such that products cancel.
    fn row(&self, seed: u64) -> Row {
        let stream = RandomStream::new(seed, 21);
        let word = |i: u64| stream.draw(i);
        let length = (word(0) % 150) as usize;
        let (kind, sign) = (word(1) % 7, 1 << (self.bits() - 1));
        let mask = 2 * sign - 1;
        let mut codes = [0, 1].map(|side| {
            let code = |i: u64| {
                let code = word(1000 * (side + 1) + i) & mask;
                let code = match kind {
                    // Small magnitudes with any sign; large ones.
                    0 => code & ((mask / 4) | sign),
                    1 => code | (mask / 8 * 3),
                    // Powers of two, between which sums lie on edges; zeros of any sign.
                    4 => self.power_of_two(code),
                    // Products that are all −0.
                    5 => (1 - side as u32) * sign,
                    _ => code,
                };
                // Few rows have NaN or Inf. No integer is the most negative one.
                let most_negative = self.is_integer() && code == sign;
                match !most_negative && (self.element(code).is_finite() || kind == 2) {
                    true => code,
                    false => 0,
                }
            };
            (0..length as u64).map(code).collect::<Vec<u32>>()
        });
        if kind == 3 {
            // The second half has the products of the first one with the other sign, but for a few.
            let half = length / 2;
            for i in 0..half {
                let from = (i * 7 + 3) % half.max(1);
                let negated = self.negative_of(codes[0][from]);
                codes[0][half + i] = if word(5000 + i as u64) % 8 == 0 {
                    codes[0][half + i]
                } else {
                    negated
                };
                codes[1][half + i] = codes[1][from];
            }
            for side in &mut codes {
                side.iter_mut()
                    .filter(|code| !self.element(**code).is_finite())
                    .for_each(|code| *code = 0);
            }
        }
        let scales = [0, 1].map(|side| {
            let scale = |i: u64| self.scale_code(word(8000 + 200 * side + i), word(9000 + i));
            (0..self.blocks(length) as u64)
                .map(scale)
                .collect::<Vec<u32>>()
        });
        let c = match word(2) % 8 {
            // Far above the products, and below.
            _ if kind == 4 => f32::from_bits(word(3) & 0x8000_0000 | (word(4) % 90 + 70) << 23),
            _ if kind == 5 => f32::from_bits(word(3) & 0x8000_0000),
            0 => f32::from_bits(word(3)),
            1 => -0.0,
            2..5 => 0.0,
            _ => f32::from_bits(word(3) & 0x807f_ffff | (110 + word(4) % 40) << 23),
        };
        Row { codes, scales, c }
    }

    /// The code of a power of two with a middle exponent, with the sign of a code.
    fn power_of_two(&self, code: u32) -> u32 {
        let mantissa_bits = match self.subject {
            Subject::Block(BlockFormat { element, .. }) | Subject::Element(element) => {
                element.mantissa_bits()
            }
            Subject::P3109(_) => 0,
        };
        let sign = 1 << (self.bits() - 1);
        let middle = (sign >> mantissa_bits) / 2;
        let field = (middle + code % 32)
            .saturating_sub(16)
            .clamp(1, 2 * middle.max(1) - 1);
        code & sign | (field << mantissa_bits & (sign - 1))
    }

    fn negative_of(&self, code: u32) -> u32 {
        let all = 0..1 << self.bits();
        let wanted = -self.element(code);
        all.into_iter()
            .find(|other| self.element(*other) == wanted)
            .unwrap_or(0)
    }

    fn scale_code(&self, word: u32, choice: u32) -> u32 {
        let Subject::Block(format) = self.subject else {
            return 0;
        };
        if format.scale == ScaleFormat::FLOAT32 {
            return word & 0x007f_ffff | (100 + choice % 50) << 23;
        }
        let mask = (1_u32 << format.scale.bits()) - 1;
        match choice % 40 {
            0 => word & mask,
            1..4 if format.has_exponent() => word & 255,
            _ if format.has_exponent() => 120 + word % 12,
            // Not NaN.
            _ => (word & mask).min(mask - 8),
        }
    }
}

fn check(format: &str, accumulator: &str, count: u64) {
    let operands = Operands::of(format);
    let rows: Vec<Row> = (0..count).map(|seed| operands.row(seed)).collect();
    let finite = check_rows(format, accumulator, &rows);
    assert!(
        finite > count / 10,
        "{format} {accumulator}: {finite} finite sums of {count}"
    );
}

/// Compares the sums of rows. Returns the number of sums that are neither 0 nor NaN nor Inf.
fn check_rows(format: &str, accumulator: &str, rows: &[Row]) -> u64 {
    let operands = Operands::of(format);
    let accumulation: Accumulation = accumulator.parse().unwrap();
    let reference = Reference::new(operands.subject).unwrap();
    let reference = reference.with_accumulator(accumulation).unwrap();
    let compiled = Compiled::new(&reference, operands.subject, true);
    let rule = accumulation.of(operands.kind, operands.kind).unwrap();
    let mut commands = Vec::new();
    for row in rows {
        commands.extend([
            5,
            row.codes[0].len() as u32,
            row.scales[0].len() as u32,
            row.c.to_bits(),
        ]);
        row.codes
            .iter()
            .chain(&row.scales)
            .for_each(|words| commands.extend(words));
    }
    let got = compiled.run(commands);
    assert_eq!(got.len(), rows.len());
    let mut finite = 0;
    for (seed, (row, got)) in rows.iter().zip(got).enumerate() {
        let elements = row.codes.each_ref().map(|codes| {
            codes
                .iter()
                .map(|code| operands.element(*code))
                .collect::<Vec<f32>>()
        });
        let scales = row.scales.each_ref().map(|codes| {
            codes
                .iter()
                .map(|code| operands.scale(*code))
                .collect::<Vec<f32>>()
        });
        let length = elements[0].len();
        let operand = |side: usize| AccumulatorOperand {
            kind: operands.kind,
            elements: &elements[side],
            free: Axis {
                length: 1,
                stride: length,
            },
            summed: Axis { length, stride: 1 },
            scales: &scales[side],
        };
        let expected = rule.dot(&operand(0), 0, &operand(1), 0, row.c).unwrap();
        finite += u64::from(expected.is_finite() && expected != 0.0);
        assert_eq!(
            got,
            expected.to_bits(),
            "{format} {accumulator}, row {seed} of {length}: {:e}, not {expected:e}",
            f32::from_bits(got)
        );
    }
    finite
}

/// Formats of two operands, and the accumulators that sum their products.
const PAIRS: [(&str, &str); 36] = [
    ("bfp16ebs8", "xdna2"),
    (
        "mx(element=binary8p4sf,block_size=4)",
        "accumulator(order=fma)",
    ),
    (
        "mx(element=binary8p4se,block_size=8,overflow=infinity)",
        "accumulator(order=joint,terms=16,fraction_bits=14,output=f32_rz)",
    ),
    (
        "mx(element=binary8p3uf,block_size=8)",
        "accumulator(order=exact,terms=4)",
    ),
    (
        "block(element=binary8p4se,scale=binary8p1uf,block_size=32)",
        "accumulator(order=joint,terms=32,fraction_bits=25,output=f32_rz,promote_every=32,scale_at=promotion)",
    ),
    (
        "block(element=binary6p3ue,scale=binary8p3se,block_size=8)",
        "accumulator(order=exact,terms=8)",
    ),
    (
        "block(element=binary8p4se,scale=binary16p8sf,block_size=8)",
        "accumulator(order=pairs,terms=4)",
    ),
    ("mxfp8_e4m3", "hopper"),
    ("mxfp8_e4m3", "hopper_promote128"),
    ("mxfp8_e5m2", "hopper(promote_every=32,scale_at=promotion)"),
    ("mxfp8_e4m3", "blackwell"),
    ("mxfp4", "blackwell"),
    ("nvfp4", "blackwell"),
    (
        "nvfp4(tensor_scale=true)",
        "accumulator(order=joint,terms=64,fraction_bits=35,group=16,output=f32_rne)",
    ),
    (
        "mxfp6_e3m2",
        "accumulator(order=joint,terms=4,fraction_bits=60,output=f32_rz)",
    ),
    (
        "mxfp6_e2m3",
        "accumulator(order=joint,terms=1024,fraction_bits=1,output=e4m3_rz)",
    ),
    (
        "mxfp8_e4m3",
        "accumulator(order=joint,terms=4,fraction_bits=4,output=e8m4_rz,floor_exponent=-3)",
    ),
    ("fp8_e4m3", "hopper"),
    (
        "float(exponent_bits=4,mantissa_bits=3,bias=8,specials=fnuz)",
        "cdna3",
    ),
    ("bfloat16", "cdna3"),
    (
        "mxfp8_e5m2",
        "accumulator(order=late,terms=16,fraction_bits=24,interleave=true)",
    ),
    (
        "mxfp8_e5m2",
        "accumulator(order=late,terms=3,fraction_bits=31,output=bf16_rne)",
    ),
    ("float16", "cdna1"),
    ("bfloat16", "cdna2"),
    (
        "mxfp8_e5m2",
        "accumulator(order=exact,terms=5,output=e8m13_rz)",
    ),
    (
        "mxfp8_e5m2",
        "accumulator(order=pairs,terms=8,flush=true,output=f16_rne)",
    ),
    (
        "block(element=fp8_e4m3,scale=float32,block_size=16)",
        "accumulator(order=pairs,terms=4)",
    ),
    (
        "block(element=fp8_e4m3,scale=float32,block_size=16)",
        "accumulator(order=fma,promote_every=16,scale_at=promotion)",
    ),
    ("mxfp8_e4m3", "accumulator(order=fma)"),
    ("mxfp4", "accumulator(order=fma,output=bf16_rne)"),
    (
        "mxint8",
        "accumulator(order=integer,bits=24,promote_every=32)",
    ),
    (
        "mxint8",
        "accumulator(order=integer,bits=17,overflow=saturate,promote_every=16)",
    ),
    ("int8", "accumulator(order=integer,bits=14)"),
    (
        "int4",
        "accumulator(order=integer,bits=8,overflow=saturate)",
    ),
    (
        "int4",
        "accumulator(order=integer,bits=62,overflow=saturate)",
    ),
    (
        "mx(element=fp8_e4m3,block_size=0)",
        "accumulator(order=joint,terms=16,fraction_bits=25,output=f32_rz)",
    ),
];

#[test]
fn dots_equal_the_library() {
    if !has_compiler() {
        return;
    }
    for (format, accumulator) in PAIRS {
        check(format, accumulator, 600);
    }
}

/// The sum of products is kept to 32 bits below the largest exponent, c's included: one bit decides a tie here.
#[test]
fn late_keeps_32_bits() {
    if !has_compiler() {
        return;
    }
    let power = |exponent: i32| ((exponent + 127) as u32) << 7;
    let row = |lowest: i32| Row {
        codes: [
            vec![power(-8) | 1 << 15, power(-9) | 1 << 15, power(lowest)],
            vec![power(0); 3],
        ],
        scales: [vec![], vec![]],
        c: 1.0,
    };
    let rows: Vec<Row> = (-40..-20).map(row).collect();
    let accumulator = "accumulator(order=late,terms=3,fraction_bits=31,output=bf16_rne)";
    assert_eq!(check_rows("bfloat16", accumulator, &rows), 20);
}
