//! Compares with measured and emulated sums of chips, bit for bit. The files are described in the repository's `tests/data`.

mod cases;

use cases::{Case, CaseSums, FILES};
use microscaling_product::{Accumulator, Order, ScaleAt, SumFormat};
use std::path::PathBuf;

const LICENSE: &str = "LICENSE-MATLAB-tensor-core.txt";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/accumulators")
}

/// The cases of a file, by the rule and by the kernels.
fn checked(name: &str) -> Vec<Case> {
    let path = folder().join(name).with_extension("safetensors");
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let cases = cases::cases(name, &bytes);
    for case in &cases {
        if let Some(preset) = case.preset {
            assert_eq!(case.accumulator, preset, "{}", case.text);
        }
        assert_eq!(case.wrong_by_the_rule(), None, "{}", case.text);
        assert_eq!(case.wrong_by_the_kernels(), None, "{}", case.text);
    }
    cases
}

#[test]
fn every_file_is_read() {
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = name
            .strip_suffix(".safetensors")
            .is_some_and(|name| FILES.contains(&name));
        assert!(known || name == LICENSE, "no test reads {name}");
    }
}

#[test]
fn dots() {
    assert_eq!(checked("dots").len(), 147);
}

/// The results of eight GPUs: 32 sets of 220 dot products.
#[test]
fn silicon() {
    let cases = checked("silicon");
    assert_eq!(cases.len(), 32);
    let dots = |case: &Case| match &case.sums {
        CaseSums::Dots([c, _]) => c.len(),
        CaseSums::Product { .. } => 0,
    };
    assert_eq!(cases.iter().map(dots).sum::<usize>(), 7040);
}

#[test]
fn products() {
    let cases = checked("products");
    assert_eq!(cases.len(), 20);
    for case in cases {
        let CaseSums::Product {
            y,
            differs_from_exact,
        } = &case.sums
        else {
            panic!("{}", case.text);
        };
        // The figures of the case, from the exact sums of the file's numbers.
        let exact = Accumulator {
            promote_every: 0,
            scale_at: ScaleAt::Product,
            ..Accumulator::new(Order::Exact {
                terms: 1024,
                output: SumFormat::F32_RNE,
            })
        };
        let [lhs, rhs] = case.operands();
        let mut sums = vec![0.0; y.len()];
        exact.multiply(&lhs, &rhs, &mut sums).unwrap();
        let differs = y.iter().zip(&sums).filter(|(got, exact)| got != exact);
        assert_eq!(differs.count(), *differs_from_exact, "{}", case.text);
    }
}
