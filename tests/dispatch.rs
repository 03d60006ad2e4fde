//! Burn's `Dispatch`, which chooses the backend by the device at run time. The how-to shows a part.

use burn::backend::flex::FlexDevice;
use burn::prelude::*;
use burn::{Dispatch, DispatchDevice};
use burn_mx::{MxAutodiff, MxDevice, Portable};

#[test]
fn a_backend_that_is_chosen_at_run_time() -> Result<(), burn_mx::SpecsError> {
    // ANCHOR: dispatch
    type B = MxAutodiff<Portable<Dispatch>>; // was: Dispatch
    let device = DispatchDevice::Flex(FlexDevice); // was: DispatchDevice::autodiff(FlexDevice)
    let device = MxDevice::new(device, "mxfp8_e4m3")?;
    // ANCHOR_END: dispatch
    let x = Tensor::<B, 2>::from_floats([[1.0, 0.3]], &device);
    let w = Tensor::<B, 2>::from_floats([[1.0], [1.0]], &device).require_grad();
    let y = x.matmul(w.clone());
    // 0.3 in FP8 with the scale of its block, by hand: 0.3125.
    assert_eq!(y.clone().into_scalar(), 1.3125);
    let gradient = w.grad(&y.backward()).expect("a leaf").into_data();
    assert_eq!(gradient.to_vec::<f32>().expect("floats"), [1.0, 0.3125]);
    Ok(())
}
