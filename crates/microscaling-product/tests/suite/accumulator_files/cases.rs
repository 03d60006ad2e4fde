//! The cases of the files of sums that chips' matrix units make, see the repository's `tests/data`. Tests of
//! microscaling and the program `burn-mx-lab conformance` read them.

use microscaling::ScaleFormat;
use microscaling_product::{
    Accumulation, Accumulator, AccumulatorOperand, Axis, OperandKind, Order, ScaleAt, ScaleType,
    SumFormat,
};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

/// The files, without `.safetensors`.
pub(crate) const FILES: [&str; 3] = ["dots", "products", "silicon"];

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
            // The file has no separate output for the case.
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
pub(crate) struct OperandRows {
    pub(crate) kind: OperandKind,
    pub(crate) elements: Vec<f32>,
    pub(crate) shape: [usize; 2],
    pub(crate) scales: Vec<f32>,
}

impl OperandRows {
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

    /// Sums run along the axis `summed`.
    fn operand(&self, summed: usize) -> AccumulatorOperand<'_> {
        let axis = |axis: usize| Axis {
            length: self.shape[axis],
            stride: [self.shape[1], 1][axis],
        };
        AccumulatorOperand {
            kind: self.kind,
            elements: &self.elements,
            free: axis(1 - summed),
            summed: axis(summed),
            scales: &self.scales,
        }
    }
}

/// The numbers that a case compares.
pub(crate) enum CaseSums {
    /// c and d of the dot products of row i and row i.
    Dots([Vec<f32>; 2]),
    /// The product of rows and columns. `differs_from_exact` elements differ from the exact sums, rounded.
    Product {
        y: Vec<f32>,
        differs_from_exact: usize,
    },
}

/// A case of a file.
pub(crate) struct Case {
    /// The case as text, from the file.
    pub(crate) text: String,
    pub(crate) accumulator: Accumulator,
    /// The accumulator of the chip that the case names, unless the case has another one.
    pub(crate) preset: Option<Accumulator>,
    pub(crate) operands: [OperandRows; 2],
    pub(crate) sums: CaseSums,
}

impl Case {
    pub(crate) fn operands(&self) -> [AccumulatorOperand<'_>; 2] {
        let [lhs, rhs] = &self.operands;
        let rhs = match self.sums {
            CaseSums::Dots(_) => rhs.operand(1),
            CaseSums::Product { .. } => rhs.operand(0),
        };
        [lhs.operand(1), rhs]
    }

    /// The first wrong sum by the scalar rule, one dot product after another.
    pub(crate) fn wrong_by_the_rule(&self) -> Option<String> {
        let [lhs, rhs] = self.operands();
        let dot = |row, column, c| self.accumulator.dot(&lhs, row, &rhs, column, c).unwrap();
        match &self.sums {
            CaseSums::Dots([c, d]) => {
                let sums = c.iter().enumerate().map(|(i, c)| dot(i, i, *c));
                first_wrong(sums, d)
            }
            CaseSums::Product { y, .. } => {
                let columns = rhs.free.length;
                let sums = (0..y.len()).map(|i| dot(i / columns, i % columns, 0.0));
                first_wrong(sums, y)
            }
        }
    }

    /// The first wrong sum by the kernels, which multiply all rows by all columns.
    pub(crate) fn wrong_by_the_kernels(&self) -> Option<String> {
        let [lhs, rhs] = self.operands();
        let n = rhs.free.length;
        let mut product = vec![0.0; lhs.free.length * n];
        match &self.sums {
            CaseSums::Dots([c, d]) => {
                (0..n).for_each(|i| product[i * n + i] = c[i]);
                self.accumulator
                    .multiply_add(&lhs, &rhs, &mut product)
                    .unwrap();
                first_wrong((0..n).map(|i| product[i * n + i]), d)
            }
            CaseSums::Product { y, .. } => {
                product.fill(f32::NAN);
                self.accumulator.multiply(&lhs, &rhs, &mut product).unwrap();
                first_wrong(product.into_iter(), y)
            }
        }
    }
}

/// The first sum with other bits; any NaN is one.
pub(crate) fn first_wrong(
    got: impl ExactSizeIterator<Item = f32>,
    expected: &[f32],
) -> Option<String> {
    if got.len() != expected.len() {
        return Some(format!("{} sums, not {}", got.len(), expected.len()));
    }
    let same = |a: f32, b: f32| {
        a.to_bits() == b.to_bits() || b.is_nan() && a.to_bits() == f32::NAN.to_bits()
    };
    let mut sums = got.zip(expected).enumerate();
    let (at, (got, expected)) = sums.find(|(_, (got, expected))| !same(*got, **expected))?;
    let [a, b] = [got, *expected].map(f32::to_bits);
    Some(format!(
        "sum {at}: {got:e} {a:08x}, not {expected:e} {b:08x}"
    ))
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> (Vec<f32>, Vec<usize>) {
    let view = tensors.tensor(name).unwrap();
    assert_eq!(view.dtype(), Dtype::F32, "{name}");
    let (words, _) = view.data().as_chunks();
    (
        words.iter().map(|word| f32::from_le_bytes(*word)).collect(),
        view.shape().to_vec(),
    )
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
    /// How many dot products a wrong accumulator changes.
    noticed: Option<HashMap<String, usize>>,
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

/// All cases of the file with this name and these bytes.
///
/// # Panics
/// If the file is not as described.
pub(crate) fn cases(name: &str, bytes: &[u8]) -> Vec<Case> {
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(bytes).unwrap();
    let json = &metadata.metadata().as_ref().unwrap()["cases"];
    fn all<T: DeserializeOwned>(json: &str, case: impl Fn(T) -> Case) -> Vec<Case> {
        let cases: Vec<T> = serde_json::from_str(json).unwrap();
        cases.into_iter().map(case).collect()
    }
    match name {
        "dots" => all(json, |case| dot_case(case, &tensors)),
        "products" => all(json, |case| product_case(case, &tensors)),
        "silicon" => all(json, |case| silicon_case(case, &tensors)),
        _ => panic!("no file of accumulators is called {name}"),
    }
}

fn dot_case(case: DotCase, tensors: &SafeTensors<'_>) -> Case {
    let DotCase { chip, set, k, .. } = &case;
    let kinds = [&case.a, &case.b].map(|t| kind(t, case.scale.as_deref(), case.block));
    let accumulator = case.accumulator.accumulator();
    // An instruction that later ones replace, and FP4 by the one of any mix.
    let usual = case.key != "bf16_old" && set != "mx_e2m1";
    let read = |x: &str, s: &str, kind| {
        let name = |x: &str| format!("in/{set}/{k}/{x}");
        let rows = OperandRows::read(tensors, &name(x), &name(s), kind);
        assert_eq!(rows.shape, [case.n, *k]);
        rows
    };
    let operands = [read("a", "sa", kinds[0]), read("b", "sb", kinds[1])];
    let (c, _) = floats(tensors, &format!("in/{set}/{k}/c"));
    let (d, _) = floats(tensors, &format!("out/{chip}/{set}/{k}/d"));
    let noticed = case.noticed.as_ref();
    assert!(noticed.is_none_or(|changes| changes.values().any(|count| *count > 0)));
    Case {
        preset: usual.then(|| preset(chip, kinds[0], kinds[1])),
        text: format!("{case:?}"),
        accumulator,
        operands,
        sums: CaseSums::Dots([c, d]),
    }
}

fn silicon_case(case: SiliconCase, tensors: &SafeTensors<'_>) -> Case {
    let SiliconCase { gpu, chip, set, .. } = &case;
    let kind = kind(&case.r#type, None, None);
    // As the note of the case says, if it names another one.
    let promote_every = match case.note.as_str() {
        note if note.contains("promote_every = 32") => 32,
        _ => 0,
    };
    assert_eq!(case.matched, "5000 of 5000 in the full file");
    let read = |x: &str| {
        let rows = OperandRows::read(tensors, &format!("in/{set}/{x}"), "", kind);
        assert_eq!(rows.shape, [case.n, case.k]);
        rows
    };
    let sums = ["c", "d"].map(|x| floats(tensors, &format!("out/{gpu}/{set}/{x}")).0);
    Case {
        text: format!("{case:?}"),
        accumulator: case.accumulator.accumulator(),
        preset: Some(Accumulator {
            promote_every,
            ..preset(chip, kind, kind)
        }),
        operands: [read("a"), read("b")],
        sums: CaseSums::Dots(sums),
    }
}

fn product_case(case: ProductCase, tensors: &SafeTensors<'_>) -> Case {
    let ProductCase { set, chip, .. } = &case;
    let kinds = [&case.x, &case.w].map(|t| kind(t, case.scale.as_deref(), case.block));
    let read = |name: &str, kind| {
        OperandRows::read(
            tensors,
            &format!("{set}/{name}"),
            &format!("{set}/{name}_scale"),
            kind,
        )
    };
    let operands = [read("x", kinds[0]), read("w", kinds[1])];
    assert_eq!(
        operands.each_ref().map(|rows| rows.shape),
        [[case.m, case.k], [case.k, case.n]]
    );
    assert!(case.max_error_over_max < 1e-2);
    let (y, _) = floats(tensors, &format!("{set}/{chip}/y"));
    Case {
        text: format!("{case:?}"),
        accumulator: case.accumulator.accumulator(),
        preset: Some(preset(chip, kinds[0], kinds[1])),
        operands,
        sums: CaseSums::Product {
            y,
            differs_from_exact: case.differs_from_exact_rounded,
        },
    }
}
