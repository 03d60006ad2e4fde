//! With emulation off, values and gradients equal the wrapped backend's bit for bit.

use burn::backend::Autodiff;
#[cfg(test_backend = "flex")]
use burn::backend::NdArray;
use burn::tensor::Tensor;
use burn_mx::module::{emulated, full_precision, with_specs};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs};

use crate::models::*;
use crate::support::*;

fn assert_transparent<A: Architecture, B: MxKernels>() {
    let (expected, expected_grads) = training_pass::<A, Autodiff<B>>(&B::Device::default());
    let none = MxSpecs::none().resolve().expect("none is sound");
    let identity = MxSpecs {
        bfloat: 32,
        ..MxSpecs::mx()
    };
    let identity = identity.resolve().expect("bfloat 32 is sound");
    for (device, what) in [
        (MxDevice::default(), "unset"),
        (
            MxDevice::new(B::Device::default(), &none).expect("resolved specs"),
            "none",
        ),
        (
            MxDevice::new(B::Device::default(), &identity).expect("resolved specs"),
            "bfloat 32",
        ),
    ] {
        let (outputs, grads) = training_pass::<A, MxAutodiff<B>>(&device);
        assert_same_bits(&outputs, &expected, &format!("{what}: output"));
        assert_all_same_bits(&grads, &expected_grads, &format!("{what}: gradient"));
    }
}

macro_rules! transparency_tests {
    ($($name:ident: $architecture:ty;)*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn is_transparent_without_emulation() {
                assert_transparent::<$architecture, TestBackend>();
            }

            #[cfg(test_backend = "flex")]
            #[test]
            fn is_transparent_on_ndarray_without_emulation() {
                assert_transparent::<$architecture, NdArray>();
            }
        }
    )* };
}

transparency_tests! {
    mlp: Mlp;
    embedder: Embedder;
    transformer: Transformer;
    convolutions: Convolutions;
    recurrent: Recurrent;
    functions: Functions;
}

#[test]
fn inference_without_emulation_is_the_wrapped_backends() {
    use burn::module::AutodiffModule;
    let expected = model::<Transformer, Plain>(&Default::default()).valid();
    let expected = values(expected.outputs(&Default::default()));
    let device = mx_device(&MxSpecs::none());
    let got = model::<Transformer, Mx>(&device).valid();
    assert_same_bits(&values(got.outputs(&device)), &expected, "output");
}

#[test]
fn a_full_precision_piece_is_the_wrapped_backends_and_ends_where_it_is_said_to() {
    let device = mx_device(&everywhere(MxSpecs::mxfp8_e4m3()));
    let x = noise_tensor::<Mx, 2>([3, 5], 1, &device).require_grad();
    let exact = full_precision(x.clone()) * 1.3;
    let plain = noise_tensor::<Plain, 2>([3, 5], 1, &Default::default()) * 1.3;
    assert_same_bits(&values(exact.clone()), &values(plain), "piece");
    let after = values(emulated(exact) * 1.0);
    assert!(after.iter().all(|value| is_bfloat16(*value)));
    // The copy follows the values, but does not touch the tensor it was made from.
    assert!(values(x * 1.0).iter().all(|value| is_bfloat16(*value)));
}

#[test]
fn gradients_are_emulated_again_behind_a_full_precision_piece() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let x = noise_tensor::<Mx, 2>([3, 5], 1, &device).require_grad();
    let scale = noise_tensor::<Mx, 2>([3, 5], 2, &device);
    let loss = (full_precision(x.clone() * scale) * 1.3).sum();
    let grad = values(x.grad(&loss.backward()).expect("x is a leaf"));
    assert!(grad.iter().all(|value| is_bfloat16(*value)), "{grad:?}");
}

#[test]
fn specs_of_a_tensor_can_be_changed_on_the_way() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let coarse = MxSpecs {
        bfloat: 10,
        ..MxSpecs::none()
    };
    let coarse = coarse.resolve().expect("bfloat 10 is sound");
    let x = noise_tensor::<MxBackend<TestBackend>, 2>([3, 5], 1, &device);
    let rounded = values(with_specs(x, &coarse) * 1.0);
    let kept_bits = |value: &f32| value.to_bits() & 0x003f_ffff == 0;
    assert!(rounded.iter().all(kept_bits), "{rounded:?}");
}

#[test]
fn without_specs_nothing_is_rounded_beside_emulated_tensors() {
    let device = mx_device(&MxSpecs::none());
    let x = noise_tensor::<Mx, 2>([3, 5], 1, &device);
    let same: Tensor<Mx, 2> = x.clone() * 1.0;
    assert_same_bits(&values(same), &values(x), "value");
}
