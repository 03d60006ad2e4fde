//! Settings and arguments that no operation can use are errors before any work. The message names the field, the value and the allowed values.

use burn_mx_optim::communication::{
    Communication, CommunicationState, Route, TensorState, micro_batches,
};
use burn_optim::GradientsParams;

use super::{floats, row};
use crate::{B, gradients, net, tensor};

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn with(format: &str) -> Communication {
    Communication {
        format: some(format),
        ..Communication::default()
    }
}

fn refused(wire: Communication, start: &str) {
    let error = wire.check().unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(start) && text.contains("; allowed: "),
        "{text}"
    );
    assert_eq!(format!("{error:?}"), text);
    let operands = || vec![row(&[1.0]), row(&[2.0])];
    let mut state = TensorState::default();
    assert!(wire.all_reduce(operands(), &mut state).is_err());
    assert!(wire.reduce_scatter(operands(), &mut state).is_err());
    assert!(wire.all_gather(operands(), 0, &mut state).is_err());
    assert_eq!(state, TensorState::default());
    let net = net();
    let mut state = CommunicationState::default();
    let of_ranks = vec![gradients(&net, 1), gradients(&net, 2)];
    assert!(
        wire.reduce_gradients::<B, _>(&net, of_ranks, &mut state)
            .is_err()
    );
    assert!(wire.gather_weights::<B, _>(net, 2, &mut state).is_err());
    assert_eq!(state, CommunicationState::default());
}

#[test]
fn wrong_fields_are_named() {
    let default = Communication::default;
    refused(with("mxfp9"), "`format` is mxfp9; allowed: ");
    refused(
        with("linear4"),
        "`format` is linear4; allowed: a format with negative numbers",
    );
    let square = "block(element=e2m1,scale=float32,square=true)";
    refused(with(square), &format!("`format` is {square}; allowed: "));
    let odd = Communication {
        rounding: microscaling::Rounding::TowardZero,
        ..with("int4_clipped")
    };
    refused(
        odd,
        "`format` is int4_clipped with rounding floor; allowed: ",
    );
    refused(
        Communication {
            operand: some("mxfp4"),
            ..default()
        },
        "`operand` is mxfp4; allowed: ",
    );
    refused(
        Communication {
            accumulator: some("mxfp4"),
            ..default()
        },
        "`accumulator` is mxfp4; allowed: ",
    );
}

#[test]
fn fields_that_do_not_fit_together_are_named() {
    let default = Communication::default;
    refused(
        Communication {
            ranks_per_node: 2,
            ..with("mxfp4")
        },
        "`ranks_per_node` is 2; allowed: 0, unless",
    );
    refused(
        Communication {
            format_between_nodes: some("mxfp4"),
            route: Route::AllToAll,
            ..with("mxfp8_e4m3")
        },
        "`format_between_nodes` is mxfp4; allowed: no format, unless `ranks_per_node`",
    );
    refused(
        Communication {
            requantize: false,
            route: Route::AllToAll,
            ..with("mxfp4")
        },
        "`requantize` is false; allowed: true, unless `route`",
    );
    for hadamard in [3, 8192] {
        refused(
            Communication {
                hadamard,
                ..with("mxfp4")
            },
            &format!("`hadamard` is {hadamard}; "),
        );
    }
    for (wire, field) in [
        (
            Communication {
                hadamard: 32,
                ..default()
            },
            "hadamard",
        ),
        (
            Communication {
                error_feedback: some("float32"),
                ..default()
            },
            "error_feedback",
        ),
        (
            Communication {
                requantize: false,
                ..default()
            },
            "requantize",
        ),
        (
            Communication {
                tensors: vec!["*".into()],
                ..default()
            },
            "tensors",
        ),
    ] {
        refused(
            wire,
            &format!("`{field}` is set; allowed: the default, unless `format` is set"),
        );
    }
}

#[test]
fn fields_with_scales_of_other_kinds_are_named() {
    refused(
        Communication {
            shared_scale: true,
            ..with("mxfp4")
        },
        "`format` is mxfp4; allowed: with `shared_scale`",
    );
    let shared = Communication::preset("ms_amp").unwrap();
    refused(
        Communication {
            hadamard: 32,
            ..shared.clone()
        },
        "`hadamard` is set; allowed: the default with `shared_scale`",
    );
    refused(
        Communication {
            error_feedback: some("float32"),
            ..shared
        },
        "`error_feedback` is set; ",
    );
    refused(
        Communication {
            blocks_by_shape: true,
            ..with("bfloat16")
        },
        "`blocks_by_shape` is true; ",
    );
    refused(
        Communication {
            difference: true,
            error_feedback: some("float32"),
            ..with("mxfp4")
        },
        "`difference` is true; allowed: false with `error_feedback`",
    );
    let error = Communication::preset("nccl").unwrap_err().to_string();
    assert!(
        error.starts_with("`preset` is nccl; allowed: float32, bfloat16, qwz"),
        "{error}"
    );
}

fn starts<T>(result: Result<T, impl ToString>, start: &str) {
    let text = result.err().expect("an error").to_string();
    assert!(
        text.starts_with(start) && text.contains("; allowed: "),
        "{text}"
    );
}

#[test]
fn wrong_operands_are_named() {
    let wire = with("mxfp4");
    let state = &mut TensorState::default();
    starts(
        wire.all_reduce::<burn_flex::Flex, 1>(vec![], state),
        "`operands` is empty; ",
    );
    let different = || vec![row(&[1.0]), row(&[1.0, 2.0])];
    starts(
        wire.all_reduce(different(), state),
        "`operands` is of shapes [[1], [2]]; ",
    );
    starts(
        wire.reduce_scatter(different(), state),
        "`operands` is of shapes [[1], [2]]; ",
    );
    starts(
        wire.all_gather::<burn_flex::Flex, 1>(vec![], 0, state),
        "`shards` is empty; ",
    );
    starts(
        wire.all_gather(different(), 1, state),
        "`axis` is 1; allowed: 0 to 0",
    );
    let columns = vec![tensor::<burn_flex::Flex, 2>([2, 3], 1), tensor([2, 4], 1)];
    starts(
        wire.all_gather(columns, 0, state),
        "`shards` is of shapes [[2, 3], [2, 4]]; ",
    );
    let nodes = Communication {
        route: Route::AllToAll,
        ranks_per_node: 2,
        ..wire.clone()
    };
    let three = || vec![row(&[1.0]); 3];
    starts(
        nodes.all_reduce(three(), state),
        "`ranks_per_node` is 2; allowed: a divisor of the 3 ranks",
    );
    let difference = Communication {
        difference: true,
        ..wire
    };
    starts(
        difference.all_reduce(three(), state),
        "`difference` is true; allowed: false, unless weights",
    );
    assert_eq!(*state, TensorState::default());
}

#[test]
fn a_state_of_other_operands_is_refused() {
    let wire = Communication {
        error_feedback: some("float32"),
        ..with("mxfp4")
    };
    let state = &mut TensorState::default();
    wire.all_reduce(vec![row(&[1.0, 1.3]); 2], state).unwrap();
    let before = state.clone();
    starts(
        wire.all_reduce(vec![row(&[1.0]); 2], state),
        "`state` is of ranks with [2, 2] numbers; ",
    );
    starts(
        wire.all_reduce(vec![row(&[1.0, 1.3]); 3], state),
        "`state` is of ranks with [2, 2] numbers; ",
    );
    assert_eq!(*state, before);
    wire.all_reduce(vec![row(&[1.0, 1.3]); 2], state).unwrap();

    // The state of a module with another number of ranks is refused, and no parameter is reduced.
    let net = net();
    let mut state = CommunicationState::default();
    let of = |ranks: u64| (0..ranks).map(|rank| gradients(&net, rank)).collect();
    wire.reduce_gradients::<B, _>(&net, of(2), &mut state)
        .unwrap();
    let before = state.clone();
    let error = wire
        .reduce_gradients::<B, _>(&net, of(4), &mut state)
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("`state` is of ranks with [5000, 5000] numbers at vector; "),
        "{text}"
    );
    assert_eq!(state, before);
}

#[test]
fn wrong_ranks_and_patterns_are_named() {
    let net = net();
    let state = &mut CommunicationState::default();
    let none: Vec<GradientsParams> = Vec::new();
    starts(
        with("mxfp4").reduce_gradients::<B, _>(&net, none, state),
        "`ranks` is 0; allowed: 1 or more",
    );
    starts(
        with("mxfp4").gather_weights::<B, _>(net.clone(), 0, state),
        "`ranks` is 0; ",
    );
    let of = || vec![gradients(&net, 1), gradients(&net, 2)];
    for format in ["fp8", "fp16"] {
        let result = with(format).reduce_gradients::<B, _>(&net, of(), state);
        starts(
            result,
            &format!(
                "`format` is {format}; allowed: bfloat10 to bfloat16, or a format with a scale"
            ),
        );
    }
    let pattern = |text: &str| Communication {
        tensors: vec!["matrix".into(), text.into()],
        ..with("mxfp4")
    };
    let result = pattern("matrices").reduce_gradients::<B, _>(&net, of(), state);
    starts(
        result,
        "`tensors` is matrices; allowed: a pattern that matches a parameter; the module has vector, matrix",
    );
    starts(
        pattern("a[").gather_weights::<B, _>(net.clone(), 2, state),
        "`tensors` is a[; ",
    );
    assert_eq!(*state, CommunicationState::default());

    let batch = || tensor::<burn_flex::Flex, 2>([6, 2], 1);
    starts(
        micro_batches(batch(), 0),
        "`ranks` is 0; allowed: 1 or more, a divisor of the 6 items",
    );
    starts(micro_batches(batch(), 4), "`ranks` is 4; ");
    let parts = micro_batches(batch(), 3).unwrap();
    let joined: Vec<f32> = parts.into_iter().flat_map(floats).collect();
    assert_eq!(joined, floats(batch()));

    let (x, w) = (batch(), tensor::<burn_flex::Flex, 2>([2, 6], 2));
    for ranks in [0, 3] {
        let product =
            with("mxfp4").summed_product(x.clone(), w.clone(), ranks, &mut TensorState::default());
        starts(
            product,
            &format!("`ranks` is {ranks}; allowed: 1 or more, a divisor of the 2 numbers"),
        );
    }
}
