//! The peak of the heap in a training step of LoRA on packed weights, beside the same step on float32 weights.

use burn_core::module::Param;
use burn_core::tensor::activation::relu;
use burn_core::tensor::module::linear;
use burn_core::tensor::{Distribution, Tensor};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::process::keep_quantized_weights;
use burn_mx_core::{MxAutodiff, MxDevice, MxSpecs};
use burn_mx_module::{LoraConfig, PackedLinear, pack};
use microscaling::Rounder;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

type B = MxAutodiff<Flex>;

const WIDTH: usize = 1024;
const LAYERS: usize = 24;

/// The peak of the second step of a model of layers, the layers included.
fn peak<L>(
    make: impl Fn() -> L,
    forward: impl Fn(&L, Tensor<B, 2>) -> Tensor<B, 2>,
    on: &MxDevice<FlexDevice>,
) -> usize {
    let before = HEAP.current_usage();
    let layers: Vec<L> = (0..LAYERS).map(|_| make()).collect();
    let step = || {
        let x = Tensor::random([64, WIDTH], Distribution::Default, on);
        let y = layers.iter().fold(x, |x, layer| relu(forward(layer, x)));
        y.mean().backward()
    };
    drop(step());
    HEAP.reset_peak_usage();
    drop(step());
    HEAP.peak_usage() - before
}

#[test]
fn a_step_on_packed_weights_needs_less_than_half_of_the_memory()
-> Result<(), Box<dyn std::error::Error>> {
    let on = MxDevice::new(FlexDevice, MxSpecs::mxfp4().straight_through())?;
    let mxfp4 = "mxfp4".parse()?;
    let config = LoraConfig {
        rank: 8,
        alpha: 16.0,
        dora: false,
    };
    let packed = || {
        let weight = Tensor::<B, 2>::random([WIDTH, WIDTH], Distribution::Default, &on);
        let packed = pack(weight, 1, mxfp4, Rounder::NearestEven).expect("finite");
        let layer = PackedLinear::<B>::new(packed, None, &on).expect("it fits");
        layer.with_adapter(config).expect("the sizes are allowed")
    };
    let float = || {
        let layer = packed();
        let adapter = layer.adapter().expect("it has one").clone();
        let weight = Tensor::<B, 2>::from_data(layer.weight().into_data(), &on);
        (Param::from_tensor(weight).set_require_grad(false), adapter)
    };
    // Copies of the frozen float32 weights would make the peer larger still.
    keep_quantized_weights(false);
    let own = peak(packed, |layer, x| layer.forward(x), &on);
    let peer = peak(
        float,
        |(weight, adapter), x| {
            let [a, b] = [&adapter.a, &adapter.b].map(|matrix| matrix.val().transpose());
            linear(x.clone(), weight.val(), None) + linear(linear(x, a, None), b, None) * 2.0
        },
        &on,
    );
    let ratio = own as f64 / peer as f64;
    println!("{own} bytes, float32 {peer} bytes, ratio {ratio:.3}");
    assert!(ratio <= 0.45, "{own} bytes, float32 {peer} bytes");
    Ok(())
}
