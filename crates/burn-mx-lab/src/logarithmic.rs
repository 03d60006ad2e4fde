//! The numbers of logarithmic axes.

use std::ops::Range;

/// The fewest numbers of a logarithmic axis.
const TICKS: usize = 4;

/// The numbers of a logarithmic axis: powers of ten, with 2 and 5 between them, with all multiples, or for a short axis round numbers
/// at equal distances. The first of these that has four numbers at least.
pub fn ticks(range: &Range<f64>) -> Vec<f64> {
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let multiples = |factors: &[f64]| -> Vec<f64> {
        let powers = decades.clone().map(|exponent| 10.0_f64.powi(exponent));
        let ticks = powers.flat_map(|power| factors.iter().map(move |factor| factor * power));
        ticks.filter(|tick| range.contains(tick)).collect()
    };
    let all: Vec<f64> = (1..10).map(f64::from).collect();
    for factors in [&[1.0][..], &[1.0, 2.0, 5.0], &all] {
        let ticks = multiples(factors);
        if ticks.len() >= TICKS {
            // A long axis has no place for every power.
            return ticks
                .iter()
                .copied()
                .step_by(ticks.len().div_ceil(12))
                .collect();
        }
    }
    let length = range.end - range.start;
    let power = 10.0_f64.powf((length / TICKS as f64).log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|factor| factor * power);
    let fits = |step: &&f64| (length / **step) as usize >= TICKS;
    let step = steps.iter().find(fits).unwrap_or(&steps[2]);
    let first = (range.start / step).ceil() as i64;
    let ticks = (first..).map(|count| count as f64 * step);
    ticks.take_while(|tick| range.contains(tick)).collect()
}

/// A number of a logarithmic axis as text.
pub fn label(tick: &f64) -> String {
    match (1e-3..1e5).contains(tick) {
        // Without the last digits of a sum of steps.
        true => ((tick * 1e6).round() / 1e6).to_string(),
        false => {
            let text = format!("{tick:.1e}");
            text.replace(".0e", "e")
        }
    }
}
