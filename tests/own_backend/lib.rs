//! A crate that depends on burn-mx with `default-features = false`, and trains on its own backend by the portable
//! kernels. Run alone, `cargo test -p burn-mx-own-backend` compiles burn-mx without any backend; with the whole workspace
//! cargo unites the features.

#![cfg(test)]

// ANCHOR: train
use burn_core::tensor::{Tensor, backend::AutodiffBackend};
use burn_flex::FlexDevice;
use burn_mx::{MxAutodiff, MxDevice};

use backend::MyBackend;

mod backend;

type B = MxAutodiff<MyBackend>;
type Inner = <B as AutodiffBackend>::InnerBackend;

fn values<const D: usize>(tensor: Tensor<Inner, D>) -> Vec<f32> {
    tensor.into_data().to_vec().expect("f32")
}

/// The weight after one step of gradient descent on the sum of `x · w`.
fn trained(device: &MxDevice<FlexDevice>) -> Vec<f32> {
    let x = Tensor::<B, 2>::from_floats([[1.0, 0.3]], device);
    let weight = Tensor::<B, 2>::from_floats([[0.7], [1.0]], device).require_grad();
    let y = x.matmul(weight.clone());
    // In fp8_e4m3 0.7 is 0.6875, and 0.3 is 0.3125.
    assert_eq!(values(y.clone().inner()), [1.0]);
    let gradients = y.sum().backward();
    let gradient = weight.grad(&gradients).expect("it requires one");
    assert_eq!(values(gradient.clone()), [1.0, 0.3125]);
    values(weight.inner() - gradient * 0.1)
}

#[test]
fn products_are_quantized_and_the_step_is_in_float32() {
    let device = MxDevice::new(FlexDevice, "mxfp8_e4m3").expect("a preset");
    assert_eq!(trained(&device), [0.7 - 0.1, 1.0 - 0.3125 * 0.1]);
}
// ANCHOR_END: train

mod observer {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use burn_flex::FlexDevice;
    use burn_mx::MxDevice;
    use burn_mx::hooks::{self, Events, Observer, ProductCall, ProductObserver};

    use super::trained;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Observer for Count {
        fn events(&self) -> Events {
            Events::PRODUCTS
        }

        fn product(&self, _: &ProductCall) -> Option<Box<dyn ProductObserver>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            None
        }
    }

    #[test]
    fn an_observer_of_ones_own_sees_the_products() {
        let device = MxDevice::new(FlexDevice, "mxfp8_e4m3").expect("a preset");
        let count = Arc::new(Count::default());
        let installed = hooks::install_on_this_thread(count.clone());
        trained(&device);
        drop(installed);
        trained(&device);
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            2,
            "a forward product and a gradient"
        );
    }
}
