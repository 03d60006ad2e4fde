//! The smallest dot product on which two rules differ.

use super::inputs::{DotCase, DotMaker, KINDS};

/// Cases that a search tries before it gives up.
const TRIES: usize = 4096;

/// A case on which `differ` is true, without products and other parts that the difference does not need.
pub(super) fn smallest(maker: &mut DotMaker, differ: impl Fn(&DotCase) -> bool) -> Option<DotCase> {
    let found = (0..TRIES).map(|i| maker.case(i % KINDS)).find(&differ)?;
    Some(reduced(maker, found, differ))
}

fn reduced(maker: &DotMaker, mut case: DotCase, differ: impl Fn(&DotCase) -> bool) -> DotCase {
    let zeros = maker.zeros();
    loop {
        let before = case.clone();
        let mut attempt = |change: &dyn Fn(&mut DotCase)| {
            let mut other = case.clone();
            change(&mut other);
            if other != case && differ(&other) {
                case = other;
            }
        };
        attempt(&|case| case.c = 0);
        for side in 0..2 {
            for block in 0..zeros.scales[side].len() {
                attempt(&|case| case.scales[side][block] = zeros.scales[side][block]);
            }
        }
        // Halves, quarters, and so on down to single products.
        let mut part = maker.length.next_power_of_two();
        while part > 0 {
            for start in (0..maker.length).step_by(part) {
                let range = start..(start + part).min(maker.length);
                attempt(&|case| {
                    for side in 0..2 {
                        case.elements[side][range.clone()].fill(0);
                    }
                });
            }
            part /= 2;
        }
        if case == before {
            return case;
        }
    }
}
