//! A square is one op, whose gradient is r(g · r(2x)), on every way that Burn has to one; a tensor times itself is a product.
//!
//! The two differ where rounding cuts off and in subnormals: 2 · r(g x) is another number than r(2 g x) there.

use burn::backend::{Flex, NdArray};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_mx::Rounding;
use burn_mx::module::as_activation;
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, MxSpecs};

use crate::emulation::{BFLOAT16, Emulation, FP16, Mode};
use crate::support::*;

const SHAPE: [usize; 2] = [20, 30];

type Function<B> = fn(Tensor<B, 2>) -> Tensor<B, 2>;

/// Every way that Burn has to a square.
fn squares<B: Backend>() -> [(&'static str, Function<B>); 5] {
    [
        ("square", Tensor::square),
        ("powi_scalar(2)", |x| x.powi_scalar(2)),
        ("powi_scalar(2.0)", |x| x.powi_scalar(2.0)),
        ("powf_scalar(2.0)", |x| x.powf_scalar(2.0)),
        ("powf_scalar(2)", |x| x.powf_scalar(2)),
    ]
}

/// The output and the gradient.
fn square(oracle: Emulation, x: f32, g: f32) -> [f32; 2] {
    let (input, slope) = (oracle.r(x), oracle.b(2.0 * oracle.b(x)));
    [oracle.r(input * input), oracle.b(oracle.b(g) * slope)]
}

fn specs() -> [(&'static str, MxSpecs, Emulation); 4] {
    let fp16 = MxSpecs {
        fp: 16,
        round: Rounding::TowardZero,
        ..MxSpecs::none()
    };
    let floor = Emulation {
        mode: Mode::Floor,
        ..FP16
    };
    let even = MxSpecs {
        round: Rounding::NearestEven,
        ..bfloat16_only()
    };
    let straight_through = MxSpecs {
        quantize_backprop: false,
        ..even.clone()
    };
    let flushed = MxSpecs {
        bfloat_subnorms: false,
        ..fp16.clone()
    };
    [
        ("fp16", fp16, floor),
        (
            "fp16 without subnormals",
            flushed,
            Emulation {
                subnormals: false,
                ..floor
            },
        ),
        ("bfloat16", even, BFLOAT16),
        (
            "bfloat16, backward exact",
            straight_through,
            Emulation {
                quantize_backprop: false,
                ..BFLOAT16
            },
        ),
    ]
}

/// Products with x from 2^-26 up, where fp16 ends, to normal ones.
fn gradient() -> Vec<f32> {
    let scaled = |(i, g): (usize, f32)| g * 2.0_f32.powi(i as i32 % 28 - 24);
    noise(600, 2).into_iter().enumerate().map(scaled).collect()
}

/// Zeros without their signs, which no rule fixes.
fn unsigned(values: Vec<f32>) -> Vec<f32> {
    values.into_iter().map(|x| x + 0.0).collect()
}

fn assert_squares<B: MxKernels>() {
    for (name, specs, oracle) in specs() {
        let device = MxDevice::new(B::Device::default(), &specs).expect("sound");
        let x = noise(600, 1);
        let g = gradient();
        let tensor = |values: &[f32]| {
            Tensor::<MxAutodiff<B>, 1>::from_floats(values, &device).reshape(SHAPE)
        };
        let results = |op: Function<MxAutodiff<B>>| {
            let leaf = tensor(&x).require_grad();
            let out = op(as_activation(leaf.clone()));
            let grads = MxAutodiff::<B>::loss_with_gradient(out.clone(), tensor(&g)).backward();
            let gradient = leaf.grad(&grads).expect("it is a leaf");
            (unsigned(values(out)), unsigned(values(gradient)))
        };
        let expected = x.iter().zip(&g).map(|(&x, &g)| square(oracle, x, g));
        let [out, dx]: [Vec<f32>; 2] =
            [0, 1].map(|at| unsigned(expected.clone().map(|both| both[at]).collect()));
        let inferred = squares::<MxBackend<B>>();
        for ((way, op), (_, inferred)) in squares().into_iter().zip(inferred) {
            let what = format!("{name}, {way}");
            let (got, gradient) = results(op);
            assert_same_bits(&got, &out, &what);
            assert_same_bits(&gradient, &dx, &format!("{what}, gradient"));
            let x = Tensor::<MxBackend<B>, 1>::from_floats(&x[..], &device).reshape(SHAPE);
            assert_same_bits(
                &unsigned(values(inferred(x))),
                &out,
                &format!("{what}, inferred"),
            );
        }

        let product = |(&x, &g): (&f32, &f32)| {
            let one = oracle.b(oracle.b(g) * oracle.b(x));
            oracle.b(one + one)
        };
        let products: Vec<f32> = unsigned(x.iter().zip(&g).map(product).collect());
        let (got, gradient) = results(|x| x.clone() * x);
        assert_same_bits(&got, &out, &format!("{name}, product"));
        assert_same_bits(
            &gradient,
            &products,
            &format!("{name}, gradient of a product"),
        );
        assert_eq!(
            name.starts_with("fp16"),
            products != dx,
            "{name}: a product and a square have other gradients where numbers end"
        );
    }
}

#[test]
fn the_gradient_of_a_square_is_that_of_one_op_on_flex() {
    assert_squares::<Flex>();
}

#[test]
fn the_gradient_of_a_square_is_that_of_one_op_on_ndarray() {
    assert_squares::<NdArray>();
}

/// Both factors are the one number that the operand was rounded to: 1 or 1.5, so the product 1.5 is not among the squares.
#[test]
fn a_square_draws_once_for_its_operand() {
    let device = mx_device(&MxSpecs {
        round: Rounding::Stochastic,
        bfloat: 10,
        ..MxSpecs::none()
    });
    let x = || Tensor::<Mx, 1>::from_data([1.25; 600], &device).reshape(SHAPE);
    let has = |tensor, number: f32| values(tensor).contains(&number);
    for (way, square) in squares() {
        assert!(!has(square(x()), 1.5), "{way}");
        assert!(has(square(x()), 1.0) && has(square(x()), 2.0), "{way}");
    }
    assert!(has(x() * x(), 1.5));
}
