//! Errors that ranks keep, and states that are written and read.

use burn_mx_optim::communication::{Communication, Route, TensorState};
use microscaling::Rounding;

use super::{Choices, all_reduce, normal};

fn wire(route: Route) -> Communication {
    Communication {
        format: Some("mx(element=int4,block_size=8)".into()),
        error_feedback: Some("float32".into()),
        route,
        ranks_per_node: if route == Route::AllToAll { 2 } else { 0 },
        ..Communication::default()
    }
}

/// Whole numbers in blocks with powers of two for scales: every difference and every sum is exact.
fn whole(choices: &mut Choices, ranks: usize, count: usize) -> Vec<Vec<f32>> {
    let mut operand = || {
        (0..count)
            .map(|_| choices.below(201) as f32 - 100.0)
            .collect()
    };
    (0..ranks).map(|_| operand()).collect()
}

fn add(total: &mut [f32], x: &[f32]) {
    total.iter_mut().zip(x).for_each(|(total, x)| *total += x);
}

#[test]
fn feedback_conserves_the_sum() {
    for route in [Route::Ring, Route::Tree, Route::AllToAll] {
        for rounding in [
            Rounding::NearestEven,
            Rounding::Stochastic,
            Rounding::TowardZero,
        ] {
            let wire = Communication {
                rounding,
                ..wire(route)
            };
            let without = Communication {
                error_feedback: None,
                ..wire.clone()
            };
            let mut choices = Choices::new(4);
            let (mut state, mut other) = (TensorState::default(), TensorState::default());
            let [mut sent, mut received, mut lossy] = [(); 3].map(|()| vec![0.0; 43]);
            for step in 0..400 {
                // At the end, ranks only send their kept errors.
                let mut operands = whole(&mut choices, 6, 43);
                if step >= 20 {
                    operands.iter_mut().flatten().for_each(|x| *x = 0.0);
                }
                operands.iter().for_each(|operand| add(&mut sent, operand));
                add(&mut received, &all_reduce(&wire, &operands, &mut state));
                add(&mut lossy, &all_reduce(&without, &operands, &mut other));
            }
            assert_eq!(received, sent, "{route:?}, {rounding}");
            assert_ne!(lossy, sent);
        }
    }
}

#[test]
fn a_state_goes_on_after_it_was_written() {
    let presets = Communication::PRESETS.map(|name| Communication::preset(name).unwrap());
    let others = [Route::Ring, Route::Tree, Route::AllToAll].map(|route| Communication {
        rounding: Rounding::Stochastic,
        error_feedback: Some("block(element=int8,scale=float32,block_size=32)".into()),
        ..wire(route)
    });
    for wire in presets.into_iter().chain(others) {
        let call = |state: &mut TensorState, step: u64| {
            let operand = |rank| {
                let mut x = normal(100, 10 * step + rank);
                // A NaN must not stay in the kept errors.
                x[7] = if step == 1 && !wire.difference {
                    f32::NAN
                } else {
                    x[7]
                };
                super::row(&x)
            };
            let operands = (0..4).map(operand).collect();
            let result = match wire.difference {
                true => wire.all_gather(operands, 0, state),
                false => wire.all_reduce(operands, state),
            };
            crate::bits(result.unwrap())
        };
        let mut at_once = TensorState::new(3);
        let results: Vec<_> = (0..6).map(|step| call(&mut at_once, step)).collect();
        let mut state = TensorState::new(3);
        for step in 0..6 {
            let text = serde_json::to_string(&state).unwrap();
            state = serde_json::from_str(&text).unwrap();
            assert_eq!(call(&mut state, step), results[step as usize], "{wire:?}");
        }
        assert_eq!(state, at_once);
        assert_eq!(state.calls(), 6);
        let is_nan = |bits: &u32| f32::from_bits(*bits).is_nan();
        assert!(!results[5].iter().any(is_nan), "{wire:?}");
    }
}

/// LoCo: errors in int8 make a mean over steps better than no errors.
#[test]
fn kept_errors_make_a_mean_over_steps_better() {
    let operands: Vec<_> = (0..4).map(|rank| normal(4096, rank)).collect();
    let mut exact = vec![0.0; 4096];
    operands.iter().for_each(|operand| add(&mut exact, operand));
    let error = |feedback: Option<&str>| {
        let wire = Communication {
            format: Some("int4_clipped".into()),
            error_feedback: feedback.map(str::to_owned),
            ..Communication::default()
        };
        let mut state = TensorState::default();
        let mut total = vec![0.0; 4096];
        for _ in 0..20 {
            add(&mut total, &all_reduce(&wire, &operands, &mut state));
        }
        let pairs = total.iter().zip(&exact);
        pairs
            .map(|(total, exact)| (total / 20.0 - exact).powi(2))
            .sum::<f32>()
    };
    let [none, float32, int8] =
        [None, Some("float32"), Some("int8_clipped(block_size=128)")].map(error);
    assert!(float32 < none / 50.0, "{float32} {none}");
    assert!(int8 < none / 50.0, "{int8} {none}");
}
