//! Operations beside loops that are written out.

use burn_mx_optim::communication::{Communication, RankOrder, Route, TensorState};
use microscaling::{Rounder, Rounding};

use super::{
    Choices, all_reduce, assert_same, bits, floats, normal, row,
    written_out::{Loops, float},
};

const FORMATS: [&str; 9] = [
    "mxfp8_e5m2",
    "mxfp4",
    "mxint8",
    "nvfp4",
    "bfp16",
    "bfloat16",
    "mx(element=fp8_e4m3,block_size=0)",
    "block(element=int4,scale=float32,block_size=128)",
    "block(element=e2m1,scale=ue5m3,block_size=5)",
];

const LENGTHS: [usize; 12] = [0, 1, 2, 3, 5, 8, 31, 32, 33, 100, 257, 1000];

fn choose(choices: &mut Choices) -> Communication {
    let route = choices.of(&[Route::Ring, Route::Tree, Route::AllToAll]);
    let is_all_to_all = route == Route::AllToAll;
    let ranks_per_node = if is_all_to_all {
        choices.of(&[0, 1, 2, 4])
    } else {
        0
    };
    let some = |text: &str| Some(text.to_owned());
    let between = choices.of(&[None, Some("mxint8"), Some("bfloat16")]);
    Communication {
        format: some(choices.of(&FORMATS)),
        format_between_nodes: between.filter(|_| ranks_per_node > 0).map(str::to_owned),
        rounding: choices.of(&[
            Rounding::NearestEven,
            Rounding::Stochastic,
            Rounding::TowardZero,
            Rounding::NearestAway,
        ]),
        operand: choices
            .of(&[None, Some("bfloat16"), Some("fp16")])
            .map(str::to_owned),
        accumulator: choices
            .of(&[None, Some("bfloat16"), Some("fp16")])
            .map(str::to_owned),
        route,
        order: choices.of(&[RankOrder::OwnerLast, RankOrder::Ascending]),
        requantize: is_all_to_all || choices.of(&[true, false]),
        quantize_own: choices.of(&[true, false]),
        ranks_per_node,
        mean: choices.of(&[true, false]),
        seed: choices.below(1000) as u64,
        ..Communication::default()
    }
}

/// Operands of which some have a NaN or Inf.
fn operands(choices: &mut Choices, ranks: usize, count: usize) -> Vec<Vec<f32>> {
    let operand = |rank: usize, choices: &mut Choices| {
        let mut operand = normal(count, (100 * count + rank) as u64);
        let factor = choices.of(&[1.0, 1e-6, 1e4]);
        operand.iter_mut().for_each(|x| *x *= factor);
        if count > 3 && choices.below(6) == 0 {
            let at = choices.below(count);
            operand[at] = choices.of(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0]);
        }
        operand
    };
    (0..ranks).map(|rank| operand(rank, choices)).collect()
}

#[test]
fn reductions_equal_written_out_loops() {
    let mut choices = Choices::new(1);
    for case in 0..600 {
        let wire = choose(&mut choices);
        let ranks = match wire.ranks_per_node {
            0 | 1 => choices.of(&[2, 3, 4, 5, 7, 8]),
            node => node * choices.of(&[1, 2, 3]),
        };
        let count = choices.of(&LENGTHS);
        let operands = operands(&mut choices, ranks, count);
        let tensor = choices.below(9) as u64;
        let what = format!("case {case}, {ranks} ranks, {count} numbers, {wire:?}");
        let mut state = TensorState::new(tensor);
        for call in 0..2 {
            let expected = Loops::new(&wire, tensor, call).all_reduce(&operands);
            let got = all_reduce(&wire, &operands, &mut state);
            assert_same(&got, &expected, &what);
        }
        let rows = operands.iter().map(|x| row(x)).collect();
        let got = wire.reduce_scatter(rows, &mut state).unwrap();
        let expected = Loops::new(&wire, tensor, 2).reduce_scatter(&operands);
        assert_eq!(got.len(), ranks, "{what}");
        for (got, expected) in got.into_iter().zip(&expected) {
            assert_same(&floats(got), expected, &what);
        }
    }
}

#[test]
fn gathers_equal_written_out_loops() {
    let mut choices = Choices::new(2);
    for case in 0..100 {
        let wire = choose(&mut choices);
        let ranks = choices.of(&[2, 3, 8]);
        // Shards of different lengths.
        let shards: Vec<Vec<f32>> = (0..ranks)
            .map(|rank| {
                let count = choices.of(&LENGTHS);
                operands(&mut choices, rank + 1, count).pop().unwrap()
            })
            .collect();
        let loops = Loops::new(&wire, 0, 0);
        let expected = shards.iter().enumerate().map(|(rank, shard)| {
            let mut shard = shard.clone();
            if let Some(format) = wire.operand.as_deref().and_then(float) {
                format.round_slice(&mut shard, Rounder::NearestEven);
            }
            loops.sent(4, rank, rank, &shard)
        });
        let expected = expected.collect::<Vec<_>>().concat();
        let shards = shards.iter().map(|shard| row(shard)).collect();
        let got = wire
            .all_gather(shards, 0, &mut TensorState::default())
            .unwrap();
        assert_same(&floats(got), &expected, &format!("case {case}, {wire:?}"));
    }
}

#[test]
fn one_rank_changes_no_bit() {
    let x = [normal(1000, 1), vec![f32::NAN, f32::INFINITY, -0.0, 1e-42]].concat();
    for preset in Communication::PRESETS {
        let wire = Communication::preset(preset).unwrap();
        let mut state = TensorState::default();
        let gathered = wire.all_gather(vec![row(&x)], 0, &mut state).unwrap();
        assert_same(&floats(gathered), &x, preset);
        if wire.difference {
            continue;
        }
        assert_same(
            &all_reduce(&wire, core::slice::from_ref(&x), &mut state),
            &x,
            preset,
        );
        let mut scattered = wire.reduce_scatter(vec![row(&x)], &mut state).unwrap();
        assert_eq!(bits(scattered.remove(0)), bits(row(&x)));
        assert_eq!(state, TensorState::default());
    }
}

#[test]
fn without_a_format_the_sum_is_float32_in_the_stated_order() {
    let mut choices = Choices::new(3);
    for _ in 0..50 {
        let ranks = choices.of(&[2, 3, 4, 7]);
        let count = choices.of(&LENGTHS);
        let operands = operands(&mut choices, ranks, count);
        let length = count.div_ceil(ranks).max(1);
        let ascending = |at: usize| operands.iter().map(|x| x[at]).reduce(|a, b| a + b).unwrap();
        let owner_last = |at: usize| {
            let next = |i: usize| operands[(at / length + 1 + i) % ranks][at];
            (0..ranks).map(next).reduce(|a, b| a + b).unwrap()
        };
        for route in [Route::Ring, Route::AllToAll] {
            for order in [RankOrder::Ascending, RankOrder::OwnerLast] {
                let wire = Communication {
                    route,
                    order,
                    ..Communication::default()
                };
                let expected: Vec<f32> = match order {
                    RankOrder::Ascending => (0..count).map(ascending).collect(),
                    _ => (0..count).map(owner_last).collect(),
                };
                let got = all_reduce(&wire, &operands, &mut TensorState::default());
                assert_same(&got, &expected, &format!("{wire:?}"));
            }
        }
    }
}

#[test]
fn a_gather_joins_along_an_axis() {
    let wire = Communication {
        format: Some("mxfp4".into()),
        ..Communication::default()
    };
    let shards = [2, 0, 3].map(|columns| crate::tensor::<burn_flex::Flex, 2>([4, columns], 5));
    let parts = shards.clone().map(floats);
    let expected = parts
        .iter()
        .enumerate()
        .map(|(rank, x)| Loops::new(&wire, 0, 0).sent(4, rank, rank, x));
    let expected: Vec<_> = expected.collect();
    let got = wire
        .all_gather(shards.to_vec(), 1, &mut TensorState::default())
        .unwrap();
    assert_eq!(got.dims(), [4, 5]);
    assert_eq!(floats(got.clone().narrow(1, 0, 2)), expected[0]);
    assert_eq!(floats(got.narrow(1, 2, 3)), expected[2]);
}

#[test]
fn a_sent_tensor_is_one_message() {
    let mut choices = Choices::new(5);
    for case in 0..60 {
        let wire = choose(&mut choices);
        let (rank, count) = (choices.below(8), choices.of(&LENGTHS));
        let mut x = operands(&mut choices, 1, count).remove(0);
        let got = wire.sent(row(&x), rank, &mut TensorState::new(4)).unwrap();
        if let Some(format) = wire.operand.as_deref().and_then(float) {
            format.round_slice(&mut x, Rounder::NearestEven);
        }
        let expected = Loops::new(&wire, 4, 0).sent(0, rank, 0, &x);
        assert_same(&floats(got), &expected, &format!("case {case}, {wire:?}"));
    }
    let shared = Communication::preset("ms_amp").unwrap();
    let error = shared
        .sent(row(&[1.0]), 0, &mut TensorState::default())
        .unwrap_err();
    assert!(
        error.to_string().starts_with("`shared_scale` is true; "),
        "{error}"
    );
}
