//! Gradients by the backend's own products.

use burn::backend::Flex;
use burn::tensor::module::{conv2d, linear};
use burn::tensor::{Shape, Tensor, TensorData};
use burn_backend::ops::ConvOptions;
use burn_mx::process::reproducible_products;
use burn_mx::{MxAutodiff, MxDevice, MxKernels, MxSpecs};

use super::support::whole_numbers;
use crate::backend::TestBackend;

/// Gradients that are not quantized have the bits of true float32: CUDA's own products would round the numbers of 12
/// significant bits to 11. All sums are exact.
#[test]
fn gradients_that_are_not_quantized() {
    reproducible_products(true);
    fn gradients<B: MxKernels>() -> Vec<Vec<f32>> {
        let mut specs = MxSpecs::preset("mxfp8_e4m3").expect("the preset is there");
        specs.quantize_backprop = false;
        let device = MxDevice::new(B::Device::default(), specs).expect("the specs are sound");
        let parameter = |shape: &[usize], seed| {
            TensorData::new(whole_numbers(shape, seed), Shape::from(shape.to_vec()))
        };
        // Odd whole numbers up to 4095.
        let weights = |shape: &[usize]| {
            let number = |i: usize| (i * 7919 % 4096) as f32 * 2.0 - 4095.0;
            let count = shape.iter().product();
            TensorData::new(
                (0..count).map(number).collect(),
                Shape::from(shape.to_vec()),
            )
        };
        let mut all = Vec::new();
        macro_rules! both {
            ($rank:literal, $second:literal, $shapes:expr, $op:expr) => {
                let [x, w, y]: [&[usize]; 3] = $shapes;
                let tensor = |data| Tensor::<MxAutodiff<B>, $rank>::from_data(data, &device);
                let x = tensor(parameter(x, 1)).require_grad();
                let w = Tensor::<MxAutodiff<B>, $second>::from_data(parameter(w, 2), &device)
                    .require_grad();
                let output = $op(x.clone(), w.clone());
                let gradients = (output * tensor(weights(y))).sum().backward();
                let values = |data: TensorData| data.into_vec::<f32>().expect("it holds float32");
                all.push(values(x.grad(&gradients).expect("x has one").into_data()));
                all.push(values(w.grad(&gradients).expect("w has one").into_data()));
            };
        }
        both!(3, 2, [&[2, 5, 40], &[40, 8], &[2, 5, 8]], |x, w| linear(
            x, w, None
        ));
        both!(3, 3, [&[2, 5, 40], &[2, 40, 8], &[2, 5, 8]], Tensor::matmul);
        both!(
            4,
            4,
            [&[2, 3, 9, 7], &[4, 3, 3, 3], &[2, 4, 9, 7]],
            |x, w| { conv2d(x, w, None, ConvOptions::new([1; 2], [1; 2], [1; 2], 1)) }
        );
        all
    }
    assert_eq!(gradients::<TestBackend>(), gradients::<Flex>());
}
