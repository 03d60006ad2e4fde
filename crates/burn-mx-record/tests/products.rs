//! The products of a pass.

use burn_core::tensor::Tensor;
use burn_flex::{Flex, FlexDevice};
use burn_mx_core::{MxBackend, MxDevice, MxSpecs};
use burn_mx_cost::Product;
use burn_mx_record::{Pass, products};

type B = MxBackend<Flex>;

#[test]
fn products_of_activations() {
    let specs = MxSpecs {
        a_elem_format: "mxfp4".parse().ok(),
        a_elem_format_bp_os: "mxfp8_e5m2".parse().ok(),
        ..MxSpecs::default()
    };
    let device = MxDevice::new(FlexDevice, &specs).unwrap();
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
