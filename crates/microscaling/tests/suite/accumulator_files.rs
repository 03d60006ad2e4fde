//! Compares with measured and emulated sums of chips, bit for bit. The files are described in the repository's `tests/data`.

use crate::golden_file::{Golden, floats};
use microscaling::{
    Accumulation, Accumulator, AccumulatorOperand, Axis, OperandKind, Order, ScaleAt, ScaleFormat,
    ScaleType, SumFormat,
};
use safetensors::SafeTensors;
use serde::Deserialize;
use std::path::Path;

const FILES: [&str; 3] = [
    "dots.safetensors",
    "products.safetensors",
    "silicon.safetensors",
];
const LICENSE: &str = "LICENSE-MATLAB-tensor-core.txt";

#[test]
fn every_file_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/accumulators");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = FILES.contains(&name.as_str()) || name == LICENSE;
        assert!(known, "no test reads {name}");
    }
}

/// The fields of an accumulator in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    order: String,
    terms: usize,
    fraction_bits: u32,
    output: SumFormat,
    floor_exponent: i32,
    group: usize,
    interleave: bool,
    flush: bool,
    promote_every: usize,
    scale_at: ScaleAt,
}

impl Fields {
    fn accumulator(&self) -> Accumulator {
        let &Self {
            terms,
            fraction_bits,
            floor_exponent,
            group,
            output,
            interleave,
            flush,
            ..
        } = self;
        let order = match self.order.as_str() {
            "joint" => Order::Joint {
                terms,
                fraction_bits,
                floor_exponent,
                group,
                output,
            },
            "late" => Order::Late {
                terms,
                fraction_bits,
                interleave,
                output,
            },
            "exact" => Order::Exact { terms, output },
            // The file has no output of its own for it.
            "pairs" => Order::Pairs {
                terms,
                flush,
                output: SumFormat::F32_RNE,
            },
            order => panic!("unknown order {order}"),
        };
        Accumulator {
            promote_every: self.promote_every,
            scale_at: self.scale_at,
            ..Accumulator::new(order)
        }
    }
}

fn kind(element: &str, scale: Option<&str>, block: Option<usize>) -> OperandKind {
    let scale = scale.map(|scale| match scale {
        "ue8m0" => ScaleType::PowerOfTwo,
        "ue4m3" => ScaleType::Float(ScaleFormat::UE4M3),
        scale => panic!("unknown scale {scale}"),
    });
    OperandKind {
        element: element.parse().unwrap(),
        scale,
        block: block.unwrap_or(0),
    }
}

/// The accumulator of the chip that a case names, whose fields the case has.
fn preset(chip: &str, lhs: OperandKind, rhs: OperandKind) -> Accumulator {
    let text = match chip {
        "hopper_promote32" => "hopper(promote_every=32)",
        "hopper_scaled_promote32" => "hopper(promote_every=32,scale_at=promotion)",
        chip => chip,
    };
    let choice: Accumulation = text.parse().unwrap();
    choice.of(lhs, rhs).unwrap()
}

/// Rows of elements, and the scales of their blocks.
struct Rows {
    kind: OperandKind,
    elements: Vec<f32>,
    shape: [usize; 2],
    scales: Vec<f32>,
}

impl Rows {
    fn read(tensors: &SafeTensors<'_>, name: &str, scale: &str, kind: OperandKind) -> Self {
        let (elements, shape) = floats(tensors, name);
        let scales = match kind.scale {
            None => Vec::new(),
            Some(_) => floats(tensors, scale).0,
        };
        Self {
            kind,
            elements,
            shape: [shape[0], shape[1]],
            scales,
        }
    }

    fn operand(&self) -> AccumulatorOperand<'_> {
        let [free, summed] = self.shape;
        AccumulatorOperand {
            kind: self.kind,
            elements: &self.elements,
            free: axis(free, summed),
            summed: axis(summed, 1),
            scales: &self.scales,
        }
    }
}

fn axis(length: usize, stride: usize) -> Axis {
    Axis { length, stride }
}

/// The same bits; any NaN is one.
fn assert_bits(got: f32, expected: f32, case: &dyn std::fmt::Debug, at: usize) {
    let same = got.to_bits() == expected.to_bits()
        || expected.is_nan() && got.to_bits() == f32::NAN.to_bits();
    assert!(
        same,
        "{case:?}, {at}: {got:e} {:08x}, not {expected:e} {:08x}",
        got.to_bits(),
        expected.to_bits()
    );
}

/// Dot products of row i and row i, by the rule and by the kernels: these multiply all rows by all rows.
fn check_dots(
    accumulator: Accumulator,
    lhs: &Rows,
    rhs: &Rows,
    [c, expected]: [&[f32]; 2],
    case: &dyn std::fmt::Debug,
) {
    let (lhs, rhs) = (lhs.operand(), rhs.operand());
    let n = c.len();
    assert_eq!([n; 2], [lhs.free.length, expected.len()]);
    let mut product = vec![0.0; n * n];
    for i in 0..n {
        let got = accumulator.dot(&lhs, i, &rhs, i, c[i]).unwrap();
        assert_bits(got, expected[i], case, i);
        product[i * n + i] = c[i];
    }
    accumulator.multiply_add(&lhs, &rhs, &mut product).unwrap();
    for i in 0..n {
        assert_bits(product[i * n + i], expected[i], case, i);
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DotCase {
    chip: String,
    set: String,
    #[serde(rename = "K")]
    k: usize,
    n: usize,
    a: String,
    b: String,
    scale: Option<String>,
    block: Option<usize>,
    key: String,
    accumulator: Fields,
    #[serde(default)]
    noticed: Option<serde_json::Value>,
}

#[test]
fn dots() {
    let golden = Golden::open("accumulators/dots.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<DotCase> = golden.cases();
    assert_eq!(cases.len(), 147);
    for case in cases {
        let DotCase { chip, set, k, .. } = &case;
        let [lhs, rhs] = [&case.a, &case.b].map(|t| kind(t, case.scale.as_deref(), case.block));
        let accumulator = case.accumulator.accumulator();
        // An instruction that later ones replace, and FP4 by the one of any mix.
        if case.key != "bf16_old" && set != "mx_e2m1" {
            assert_eq!(accumulator, preset(chip, lhs, rhs), "{case:?}");
        }
        assert!(
            case.noticed
                .as_ref()
                .is_none_or(serde_json::Value::is_object)
        );
        let read = |x: &str, s: &str, kind| {
            Rows::read(
                &tensors,
                &format!("in/{set}/{k}/{x}"),
                &format!("in/{set}/{k}/{s}"),
                kind,
            )
        };
        let (lhs, rhs) = (read("a", "sa", lhs), read("b", "sb", rhs));
        assert_eq!(lhs.shape, [case.n, *k]);
        let (c, _) = floats(&tensors, &format!("in/{set}/{k}/c"));
        let (expected, _) = floats(&tensors, &format!("out/{chip}/{set}/{k}/d"));
        check_dots(accumulator, &lhs, &rhs, [&c, &expected], &case);
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SiliconCase {
    gpu: String,
    chip: String,
    set: String,
    r#type: String,
    #[serde(rename = "K")]
    k: usize,
    n: usize,
    note: String,
    accumulator: Fields,
    matched: String,
}

/// What eight GPUs computed: 32 sets of 220 dot products.
#[test]
fn silicon() {
    let golden = Golden::open("accumulators/silicon.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<SiliconCase> = golden.cases();
    assert_eq!(cases.len(), 32);
    let mut count = 0;
    for case in cases {
        let SiliconCase { gpu, chip, set, .. } = &case;
        let kind = kind(&case.r#type, None, None);
        let accumulator = case.accumulator.accumulator();
        let usual = preset(chip, kind, kind);
        // As the note of the case says, where it is another one.
        let promote_every = match case.note.as_str() {
            note if note.contains("promote_every = 32") => 32,
            _ => 0,
        };
        assert_eq!(
            accumulator,
            Accumulator {
                promote_every,
                ..usual
            },
            "{case:?}"
        );
        assert_eq!(case.matched, "5000 of 5000 in the full file");
        let read = |x: &str| Rows::read(&tensors, &format!("in/{set}/{x}"), "", kind);
        let (lhs, rhs) = (read("a"), read("b"));
        assert_eq!(lhs.shape, [case.n, case.k]);
        let [c, expected] = ["c", "d"].map(|x| floats(&tensors, &format!("out/{gpu}/{set}/{x}")).0);
        count += c.len();
        check_dots(accumulator, &lhs, &rhs, [&c, &expected], &case);
    }
    assert_eq!(count, 7040);
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProductCase {
    set: String,
    chip: String,
    #[serde(rename = "M")]
    m: usize,
    #[serde(rename = "K")]
    k: usize,
    #[serde(rename = "N")]
    n: usize,
    x: String,
    w: String,
    scale: Option<String>,
    block: Option<usize>,
    accumulator: Fields,
    differs_from_exact_rounded: usize,
    max_error_over_max: f64,
}

#[test]
fn products() {
    let golden = Golden::open("accumulators/products.safetensors");
    let tensors = golden.tensors();
    let cases: Vec<ProductCase> = golden.cases();
    assert_eq!(cases.len(), 20);
    for case in cases {
        let &ProductCase {
            m,
            k,
            n,
            ref set,
            ref chip,
            ..
        } = &case;
        let [x, w] = [&case.x, &case.w].map(|t| kind(t, case.scale.as_deref(), case.block));
        let accumulator = case.accumulator.accumulator();
        assert_eq!(accumulator, preset(chip, x, w), "{case:?}");
        let read = |name: &str, kind| {
            Rows::read(
                &tensors,
                &format!("{set}/{name}"),
                &format!("{set}/{name}_scale"),
                kind,
            )
        };
        let (x, w) = (read("x", x), read("w", w));
        assert_eq!((x.shape, w.shape), ([m, k], [k, n]));
        let lhs = x.operand();
        let rhs = AccumulatorOperand {
            free: axis(n, 1),
            summed: axis(k, n),
            ..w.operand()
        };
        let (expected, _) = floats(&tensors, &format!("{set}/{chip}/y"));
        let mut result = vec![f32::NAN; m * n];
        accumulator.multiply(&lhs, &rhs, &mut result).unwrap();
        for (at, (got, expected)) in result.iter().zip(&expected).enumerate() {
            assert_bits(*got, *expected, &case, at);
        }
        // The figures of the case, from the exact sums of the file's numbers.
        let exact = Accumulator {
            promote_every: 0,
            scale_at: ScaleAt::Product,
            ..Accumulator::new(Order::Exact {
                terms: 1024,
                output: SumFormat::F32_RNE,
            })
        };
        let mut sums = vec![0.0; m * n];
        exact.multiply(&lhs, &rhs, &mut sums).unwrap();
        let differs = result.iter().zip(&sums).filter(|(got, exact)| got != exact);
        assert_eq!(differs.count(), case.differs_from_exact_rounded, "{case:?}");
        assert!(case.max_error_over_max < 1e-2);
    }
}
