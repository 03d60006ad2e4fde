//! `dots`, `products`, `silicon`: sums as matrix units of chips make them. Every case is two checks of microscaling: its scalar rule,
//! and its kernels. A product whose operands are what a block format makes of a tensor is also one of each backend. Bits are compared.

use std::{fs, path::Path};

use burn::tensor::{Tensor, TensorData};
use burn_mx::{MxBackend, MxDevice, MxKernels, MxSpecs};
use burn_mx_lab::{backends::BackendName, with_backend};
use microscaling::{BlockFormat, Rounder};
use microscaling_product::{AccumulatorMatrix, OperandKind};

use super::compare::Mismatch;
use super::golden::GoldenError;
use super::report::{CheckReport, Outcome};

// A link to the file of the tests of microscaling-product, which read the same files.
#[allow(dead_code, reason = "microscaling's tests check more of a case")]
mod cases;

pub(crate) use cases::FILES;
use cases::{Case, CaseSums, OperandRows, first_wrong};

/// Checks every case, or the one with this number.
pub(crate) fn check(
    path: &Path,
    name: &str,
    backends: &[BackendName],
    number: Option<&str>,
) -> Result<Vec<CheckReport>, GoldenError> {
    let bytes = fs::read(path).map_err(|reason| GoldenError::Read {
        path: path.to_owned(),
        reason,
    })?;
    let mut cases: Vec<(String, Case)> = cases::cases(name, &bytes)
        .into_iter()
        .enumerate()
        .map(|(i, case)| (i.to_string(), case))
        .collect();
    cases.retain(|(i, _)| number.is_none_or(|number| number == i));
    if cases.is_empty() {
        return Ok(Vec::new());
    }
    let mut slice = CheckReport::new(name, "slice");
    for (i, case) in &cases {
        for (way, wrong) in [
            ("rule", case.wrong_by_the_rule()),
            ("kernels", case.wrong_by_the_kernels()),
        ] {
            slice.add(
                format!("case {i}, by the {way}: {}", case.text),
                outcome(wrong),
            );
        }
    }
    let mut reports = vec![slice];
    let quantized: Vec<_> = cases
        .iter()
        .filter_map(|(i, case)| Some((i, case, formats(case)?)))
        .collect();
    if quantized.is_empty() {
        return Ok(reports);
    }
    for backend in backends {
        let mut report = CheckReport::new(name, &backend.name());
        for (i, case, formats) in &quantized {
            let wrong = with_backend!(*backend, B => wrong_on::<B>(case, *formats));
            report.add(format!("case {i}: {}", case.text), outcome(wrong));
        }
        reports.push(report);
    }
    Ok(reports)
}

fn outcome(wrong: Option<String>) -> Outcome {
    wrong.map(|wrong| Mismatch::new("sums", wrong)).into()
}

/// The block formats that make the operands of a product of the values that these have; `None` if there are none.
fn formats(case: &Case) -> Option<[BlockFormat; 2]> {
    let CaseSums::Product { .. } = case.sums else {
        return None;
    };
    let [lhs, rhs] = &case.operands;
    Some([format(lhs, 1)?, format(rhs, 0)?])
}

fn format(rows: &OperandRows, axis: usize) -> Option<BlockFormat> {
    BlockFormat::NAMES.into_iter().find_map(|name| {
        let format: BlockFormat = name.parse().ok()?;
        if OperandKind::of_format(&format) != Some(rows.kind) {
            return None;
        }
        let rounder = Rounder::NearestEven;
        let made =
            AccumulatorMatrix::quantize(&format, &values(rows, axis), rows.shape, axis, rounder);
        let made = made.ok()?;
        let operand = made.operand();
        let same = operand.elements == rows.elements && operand.scales == rows.scales;
        (same && made.tensor_scale().is_none()).then_some(format)
    })
}

/// Elements times scales, of blocks along an axis.
fn values(rows: &OperandRows, axis: usize) -> Vec<f32> {
    let [length, block] = [rows.shape[axis], rows.kind.block];
    let value = |(i, element): (usize, &f32)| {
        let at = [i / rows.shape[1], i % rows.shape[1]];
        let scale = at[1 - axis] * length.div_ceil(block) + at[axis] / block;
        element * rows.scales[scale]
    };
    rows.elements.iter().enumerate().map(value).collect()
}

/// The first wrong element of the matrix product on a backend.
fn wrong_on<B: MxKernels>(case: &Case, [of_lhs, of_rhs]: [BlockFormat; 2]) -> Option<String> {
    let specs = MxSpecs {
        // The right operand is a weight.
        a_elem_format: Some(of_lhs.into()),
        w_elem_format: Some(of_rhs.into()),
        accumulator: Some(case.accumulator.into()),
        ..MxSpecs::none()
    };
    let specs = match specs.resolve() {
        Ok(specs) => specs,
        Err(error) => return Some(error.to_string()),
    };
    let device = MxDevice::new(B::Device::default(), &specs).ok()?;
    let [lhs, rhs] = [(0, 1), (1, 0)].map(|(i, axis)| {
        let rows = &case.operands[i];
        let data = TensorData::new(values(rows, axis), rows.shape);
        Tensor::<MxBackend<B>, 2>::from_data(data, &device)
    });
    let product = lhs.matmul(rhs.set_require_grad(true)).into_data();
    let got = product.to_vec::<f32>().expect("it is float32");
    let CaseSums::Product { y, .. } = &case.sums else {
        return None;
    };
    first_wrong(got.into_iter(), y)
}
