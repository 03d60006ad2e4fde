//! burn-router: several backends as one. The router tells devices apart by their ids alone, which Flex and NdArray, and CUDA's first
//! device, have in common.

use burn_core::tensor::backend::Backend;
use burn_core::tensor::{Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{ElementwiseScope, MxAutodiff, MxBackend, MxDevice, MxSpecs, ResolvedSpecs};
use burn_router::Router;
use burn_router::duo::MultiDevice;
use burn_wgpu::{Vulkan, WgpuDevice};

use crate::layer::{pass, product};

type Both = Router<(Flex, Vulkan)>;

/// For all tensors: the layer's input is a leaf, as its weight is.
fn resolved(specs: MxSpecs) -> ResolvedSpecs {
    let specs = MxSpecs {
        elementwise_scope: ElementwiseScope::All,
        ..specs
    };
    specs.resolve().expect("a preset is sound")
}

/// Emulation around the router: each device computes what its backend computes alone.
#[test]
fn a_router_is_wrapped() {
    for specs in [MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4_sr_rht()].map(resolved) {
        let first = MxDevice::new(MultiDevice::B1(FlexDevice), &specs).expect("resolved specs");
        let second =
            MxDevice::new(MultiDevice::B2(WgpuDevice::default()), &specs).expect("resolved specs");
        let flex = MxDevice::new(FlexDevice, &specs).expect("resolved specs");
        let vulkan = MxDevice::new(WgpuDevice::default(), &specs).expect("resolved specs");
        MxAutodiff::<Flex>::seed(&flex, 1);
        let expected = pass::<MxAutodiff<Flex>>(&flex);
        MxAutodiff::<Flex>::seed(&flex, 1);
        assert_eq!(pass::<MxAutodiff<Both>>(&first), expected);
        MxAutodiff::<Vulkan>::seed(&vulkan, 1);
        let expected = pass::<MxAutodiff<Vulkan>>(&vulkan);
        MxAutodiff::<Vulkan>::seed(&vulkan, 1);
        assert_eq!(pass::<MxAutodiff<Both>>(&second), expected);
    }
}

/// Emulation within the router, whose backends have specs of their own.
#[test]
fn wrapped_backends_are_routed() {
    type Wrapped = Router<(MxBackend<Flex>, MxBackend<Vulkan>)>;
    let [first, second] = [MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4()].map(resolved);
    let flex = MxDevice::new(FlexDevice, &first).expect("resolved specs");
    let vulkan = MxDevice::new(WgpuDevice::default(), &second).expect("resolved specs");
    let by_flex = product::<MxBackend<Flex>>(&flex);
    let by_vulkan = product::<MxBackend<Vulkan>>(&vulkan);
    assert_ne!(by_flex, by_vulkan);
    assert_eq!(product::<Wrapped>(&MultiDevice::B1(flex)), by_flex);
    assert_eq!(product::<Wrapped>(&MultiDevice::B2(vulkan)), by_vulkan);
}

/// A tensor goes to the other backend and keeps its values; there the other device's specs are at work.
#[test]
fn tensors_move_between_the_backends() {
    let [first, second] = [MxSpecs::mxfp8_e4m3(), MxSpecs::mxfp4()].map(resolved);
    let first = MxDevice::new(MultiDevice::B1(FlexDevice), &first).expect("resolved specs");
    let second =
        MxDevice::new(MultiDevice::B2(WgpuDevice::default()), &second).expect("resolved specs");
    let values = TensorData::from([[1.0_f32, 1.7, 300.3], [0.1, -0.2, 5.0]]);
    let here = Tensor::<MxBackend<Both>, 2>::from_data(values.clone(), &first);
    let there = here.clone().to_device(&second);
    assert_eq!(there.device(), second);
    assert_eq!(there.to_data(), values);
    let products = [here, there].map(|x| x.clone().matmul(x.transpose()).into_data());
    assert_ne!(products[0], products[1]);
}
