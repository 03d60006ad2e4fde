//! Gradient checkpointing, which computes elementwise ops again in the backward pass, changes no bit, or is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::strategy::BalancedCheckpointing;
use burn::backend::flex::FlexDevice;
use burn::tensor::{Tensor, activation};
use burn_mx::Rounding;
use burn_mx::module::{as_weight, full_precision, with_specs};
use burn_mx::{MxAutodiff, MxDevice, MxSpecs};

use super::training::emulations;
use crate::models::*;
use crate::support::*;

type Checkpointed = MxAutodiff<Flex, BalancedCheckpointing>;

fn assert_checkpointing_changes_nothing<A: Architecture>() {
    for (name, specs) in emulations() {
        if !specs.quantize_backprop {
            continue;
        }
        let device = mx_device(&specs);
        let (outputs, grads) = training_pass::<A, Checkpointed>(&device);
        let (expected, expected_grads) = training_pass::<A, Mx>(&device);
        assert_same_bits(&outputs, &expected, &format!("{name}: output"));
        assert_all_same_bits(&grads, &expected_grads, &format!("{name}: gradient"));
    }
}

#[test]
fn gradient_checkpointing_changes_no_bit() {
    assert_checkpointing_changes_nothing::<Mlp>();
    assert_checkpointing_changes_nothing::<Transformer>();
    assert_checkpointing_changes_nothing::<Convolutions>();
    assert_checkpointing_changes_nothing::<Recurrent>();
    assert_checkpointing_changes_nothing::<Functions>();
}

#[test]
#[should_panic(expected = "gradient checkpointing recomputes elementwise ops")]
fn gradient_checkpointing_is_refused_without_quantize_backprop() {
    let specs = MxSpecs {
        quantize_backprop: false,
        ..MxSpecs::mxfp8_e4m3()
    };
    training_pass::<Mlp, Checkpointed>(&mx_device(&specs));
}

#[test]
#[should_panic(expected = "gradient checkpointing recomputes elementwise ops")]
fn gradient_checkpointing_of_functions_is_refused_without_quantize_backprop() {
    let specs = MxSpecs {
        quantize_backprop: false,
        ..bfloat16_only()
    };
    training_pass::<Functions, Checkpointed>(&mx_device(&specs));
}

fn stochastic() -> MxSpecs {
    MxSpecs {
        round: Rounding::Stochastic,
        ..everywhere(MxSpecs::mxfp8_e4m3())
    }
}

/// The message with which `op` is refused on a tensor of these specs that requires gradients.
fn refusal(
    specs: &MxSpecs,
    op: impl FnOnce(Tensor<Checkpointed, 2>) -> Tensor<Checkpointed, 2>,
) -> Option<String> {
    let device: MxDevice<FlexDevice> = mx_device(specs);
    let x = noise_tensor::<Checkpointed, 2>([3, 4], 1, &device).require_grad();
    let refused = catch_unwind(AssertUnwindSafe(|| drop(values(op(x))))).err()?;
    let message = refused.downcast::<String>();
    Some(
        *message.unwrap_or_else(|other| match other.downcast::<&str>() {
            Ok(message) => Box::new((*message).to_owned()),
            Err(_) => panic!("a panic has a message"),
        }),
    )
}

/// For any loss. For ops with burn-autodiff's own gradient, which cannot draw the same numbers again.
#[test]
fn stochastic_rounding_of_what_is_computed_again_is_refused_where_it_is_recorded() {
    type Op = fn(Tensor<Checkpointed, 2>) -> Tensor<Checkpointed, 2>;
    let ops: [(&str, Op); 5] = [
        ("mul_scalar", |x| x * 3.0),
        ("sin", |x| x.sin()),
        ("powf", |x| x.clone().powf(x)),
        ("add_scalar, of a product", |x| {
            activation::sigmoid(x.clone() * x) + 1.0
        }),
        ("sin, before an exact loss", |x| full_precision(x.sin())),
    ];
    for (name, op) in ops {
        let message = refusal(&stochastic(), op).unwrap_or_else(|| panic!("{name} is accepted"));
        for part in [
            "`round = stochastic`",
            "Allowed",
            "`nearest`",
            "`even`",
            "`floor`",
        ] {
            assert!(message.contains(part), "{name}: {message}");
        }
        let even = MxSpecs {
            round: Rounding::NearestEven,
            ..stochastic()
        };
        assert_eq!(refusal(&even, op), None, "{name}");
    }
}

#[test]
fn stochastic_rounding_of_what_is_not_computed_again_is_accepted() {
    assert_eq!(
        refusal(&stochastic(), |x| x.clone().matmul(x.transpose())),
        None,
        "product"
    );
    assert_eq!(
        refusal(&stochastic(), |x| full_precision(x).exp()),
        None,
        "exact"
    );
    assert_eq!(
        refusal(&stochastic(), |x| x.detach().set_require_grad(false).exp()),
        None,
        "no gradient"
    );
    let products = MxSpecs {
        round: Rounding::NearestEven,
        round_mx_output: Some(Rounding::Stochastic),
        ..MxSpecs::mxfp8_e4m3()
    };
    assert_eq!(
        refusal(&products, |x| x.exp()),
        None,
        "only blocks are rounded at random"
    );
}

#[test]
fn specs_of_a_piece_are_refused_too() {
    let piece = |x| {
        let specs = stochastic().resolve().expect("the specs are sound");
        with_specs(as_weight(x), &specs).cos()
    };
    assert!(refusal(&everywhere(MxSpecs::mxfp8_e4m3()), piece).is_some());
}

/// Ops with gradients of our own draw the same numbers when they are computed again.
#[test]
fn stochastic_ops_that_draw_the_same_numbers_again_change_no_bit() {
    fn gradient<B: Exact<Device = MxDevice<FlexDevice>>>() -> [Vec<f32>; 2] {
        let specs = MxSpecs {
            seed: 1_234_567,
            ..stochastic()
        };
        let device = mx_device(&specs);
        B::seed(&device, 5);
        let x = noise_tensor::<B, 2>([16, 16], 1, &device).require_grad();
        let y = activation::sigmoid(x.clone().exp().tanh() + x.clone());
        let y = activation::relu(y.clone() / (x.clone() - y.clone())) * y.sqrt();
        let grad = noise_tensor::<B, 2>([16, 16], 2, &device);
        let grads = B::loss_with_gradient(y.clone(), grad).backward();
        [values(y), values(x.grad(&grads).expect("it is a leaf"))]
    }
    assert_all_same_bits(&gradient::<Checkpointed>(), &gradient::<Mx>(), "tensor");
}
