//! A step of AdamW on a device, in one pass over a parameter, its gradient and its moments.

use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use cubecl::std::tensor::layout::linear::LinearView;

use super::arithmetic::{Device, Emitter, KernelArithmetic};
use crate::cube::launch;
use crate::cube::numbers::float::Float32;
use crate::kernel_op::adamw::AdamWStep;

/// The patterns of an [`AdamWStep`], as a kernel's argument.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[allow(dead_code, reason = "read where the kernel is written")]
pub(in crate::cube) struct StepWords {
    beta_1: u32,
    beta_2: u32,
    share_1: u32,
    share_2: u32,
    correction_1: u32,
    correction_2: u32,
    epsilon: u32,
    kept: u32,
    rate: u32,
}

/// The new numbers of one element.
#[derive(CubeType, Clone, Copy)]
struct Element {
    parameter: u32,
    first: u32,
    second: u32,
}

/// The new parameter and the new moments, which are new tensors, from float32 tensors of one shape.
pub(in crate::cube) fn adamw<R: CubeRuntime>(
    step: AdamWStep,
    [parameter, gradient, first, second]: [CubeTensor<R>; 4],
) -> [CubeTensor<R>; 3] {
    let shape = parameter.shape();
    let elements = shape.num_elements();
    let outputs = [(); 3].map(|()| launch::empty_like(&parameter, shape.clone(), parameter.dtype));
    if elements == 0 {
        return outputs;
    }
    let client = parameter.client.clone();
    let (cubes, cube) = launch::units(&client, elements);
    let address_type = launch::address_type([&parameter, &gradient, &first, &second, &outputs[0]]);
    let float32 = Float32::of(&client);
    let view = |tensor: CubeTensor<R>| tensor.into_linear_view_like(&outputs[0]);
    let [new_parameter, new_first, new_second] = outputs
        .each_ref()
        .map(|output| output.clone().into_linear_view());
    let bits = f32::to_bits;
    // SAFETY: no unit writes outside of the views.
    unsafe {
        adamw_kernel::launch_unchecked(
            &client,
            cubes,
            cube,
            address_type,
            view(parameter),
            view(gradient),
            view(first),
            view(second),
            new_parameter,
            new_first,
            new_second,
            StepWordsLaunch::new(
                bits(step.betas[0]),
                bits(step.betas[1]),
                bits(step.shares[0]),
                bits(step.shares[1]),
                bits(step.corrections[0]),
                bits(step.corrections[1]),
                bits(step.epsilon),
                bits(step.kept),
                bits(step.rate),
            ),
            -0.0,
            float32,
        );
    }
    outputs
}

#[cube(launch_unchecked, address_type = "dynamic")]
pub(in crate::cube) fn adamw_kernel(
    parameter: &LinearView<u32>,
    gradient: &LinearView<u32>,
    first: &LinearView<u32>,
    second: &LinearView<u32>,
    new_parameter: &mut LinearView<u32, ReadWrite>,
    new_first: &mut LinearView<u32, ReadWrite>,
    new_second: &mut LinearView<u32, ReadWrite>,
    step: StepWords,
    zero: f32,
    #[comptime] float32: Float32,
) {
    if !new_parameter.is_in_bounds(ABSOLUTE_POS) {
        terminate!();
    }
    let element = Element {
        parameter: parameter[ABSOLUTE_POS],
        first: first[ABSOLUTE_POS],
        second: second[ABSOLUTE_POS],
    };
    let element = new_element(element, gradient[ABSOLUTE_POS], &step, zero, float32);
    new_parameter[ABSOLUTE_POS] = element.parameter;
    new_first[ABSOLUTE_POS] = element.first;
    new_second[ABSOLUTE_POS] = element.second;
}

#[cube]
#[allow(unused_variables, reason = "used where the kernel is written")]
fn new_element(
    element: Element,
    gradient: u32,
    step: &StepWords,
    zero: f32,
    #[comptime] float32: Float32,
) -> Element {
    intrinsic!(|scope| {
        let device = Device { zero, float32 };
        let step = AdamWStep {
            betas: [step.beta_1, step.beta_2],
            shares: [step.share_1, step.share_2],
            corrections: [step.correction_1, step.correction_2],
            epsilon: step.epsilon,
            kept: step.kept,
            rate: step.rate,
        };
        let moments = [element.first, element.second];
        let [parameter, first, second] = Emitter::within(scope, |emitter| {
            let arith = KernelArithmetic::unrounded(emitter, device);
            step.of_number(&arith, element.parameter, gradient, moments)
        });
        ElementExpand {
            parameter,
            first,
            second,
        }
    })
}
