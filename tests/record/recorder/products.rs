//! The products of a pass.

use burn::tensor::Tensor;
use burn_mx::cost::Product;
use burn_mx::record::{Pass, StepRecord, products};
use burn_mx::{MxBackend, MxSpecs};
use serde_json::json;

use crate::support::*;

type B = MxBackend<TestBackend>;

#[test]
fn products_of_activations() {
    let specs = MxSpecs {
        a_elem_format: "mxfp4".parse().ok(),
        a_elem_format_bp_os: "mxfp8_e5m2".parse().ok(),
        ..MxSpecs::default()
    };
    let device = mx_device(&specs);
    let x = Tensor::<B, 3>::ones([2, 3, 64], &device);
    let y = Tensor::<B, 3>::ones([1, 64, 5], &device);
    let seen = products(Pass::Training, || drop(x.matmul(y)));
    let macs = 2.0 * 3.0 * 64.0 * 5.0;
    let elements = |product: &Product| {
        [
            product.lhs.elements,
            product.rhs.elements,
            product.result_elements,
        ]
    };
    assert_eq!(
        seen.iter().map(|product| product.macs).sum::<f64>(),
        3.0 * macs
    );
    assert_eq!(
        seen.iter().map(elements).collect::<Vec<_>>(),
        [
            [384.0, 320.0, 30.0],
            [30.0, 320.0, 384.0],
            [384.0, 30.0, 320.0]
        ]
    );
    assert_eq!(seen[0].lhs.numbers.bits, 4.25);
    assert_eq!(
        [seen[1].lhs.numbers.bits, seen[2].rhs.numbers.bits],
        [8.25; 2]
    );
    let inference = products(Pass::Inference, || ());
    assert!(inference.is_empty());
}

#[test]
fn a_recorded_product_is_left_out_if_its_cost_is_unknown() {
    let count = |format: &str, macs: u64, slots: &[&str]| {
        let operand = |slot: &&str| json!({"slot": slot, "operand": "", "format": format, "elements": 64, "blocks": 2});
        let operands: Vec<_> = slots.iter().map(operand).collect();
        let step = json!({
            "run": "", "thread": 0, "step": 0,
            "products": [{
                "layer": "up.weight", "op": "linear", "product": "forward", "uses": 1, "specs": "",
                "macs": macs, "result_elements": 64, "operands": operands,
            }],
        });
        let step: StepRecord = serde_json::from_value(step).unwrap();
        step.cost_products().len()
    };
    assert_eq!(count("mxfp4", 4096, &["a", "w"]), 1);
    assert_eq!(count("a_later_format", 4096, &["a", "w"]), 0);
    assert_eq!(count("mxfp4", 0, &["a", "w"]), 0);
    assert_eq!(count("mxfp4", 4096, &["w"]), 0);
}
