//! A checkpoint's packed weights as Burn's quantized tensors, and a file of burn-store with quantized tensors as packed weights.

use std::error::Error;

use burn_core::module::{Param, Quantizer};
use burn_core::tensor::quantization::{
    Calibration, QuantLevel, QuantScheme, QuantStore, QuantValue,
};
use burn_core::tensor::{Distribution, Tensor};
use burn_flex::{Flex, FlexDevice};
use burn_mx_checkpoint::{Checkpoint, packed_weights};
use burn_mx_core::{MxBackend, MxDevice, MxSpecs};
use burn_mx_module::{packed_of_data, quantized_tensor};
use burn_store::{BurnpackStore, ModuleSnapshot, ModuleStore};

fn dequantized(tensor: Tensor<Flex, 2>) -> Vec<f32> {
    tensor.dequantize().into_data().iter().collect()
}

#[test]
fn a_checkpoint_becomes_burns_quantized_tensors_and_back_by_burn_store()
-> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    let specs = MxSpecs {
        w_elem_format: Some("mxint8".parse()?),
        ..MxSpecs::mxfp4()
    };
    let device = MxDevice::new(FlexDevice, specs)?;
    let weight = Tensor::<MxBackend<Flex>, 2>::random([64, 16], Distribution::Default, &device);
    let model = vec![Param::from_tensor(weight)];
    Checkpoint::new(&path).summed_axis("0", 0).save(&model)?;
    let packed = &packed_weights(&path)?["0"];
    let quantized = quantized_tensor::<Flex, 2>(packed, &FlexDevice)?;
    assert_eq!(quantized.dims(), [16, 64]);
    assert_eq!(dequantized(quantized.clone()), packed.decode());

    // Beside a weight that Burn quantized by itself. burn-store 0.21 does not save the 4 bits of Flex.
    let scheme = QuantScheme::default()
        .with_value(QuantValue::Q8S)
        .with_level(QuantLevel::block([32]))
        .with_store(QuantStore::Native);
    let calibration = Calibration::MinMax;
    let float = Tensor::<Flex, 2>::random([8, 64], Distribution::Default, &FlexDevice);
    let float = Param::from_tensor(float);
    let by_burn = burn_core::module::Module::<Flex>::quantize_weights(
        float,
        &mut Quantizer {
            calibration,
            scheme,
        },
    );
    let by_burn = by_burn.val();
    let model = [quantized, by_burn].map(Param::from_tensor).to_vec();
    let file = folder.path().join("model.bpk");
    model.save_into(&mut BurnpackStore::from_file(&file))?;
    let mut store = BurnpackStore::from_file(&file);
    let snapshots = store.get_all_snapshots()?;
    assert_eq!(snapshots.len(), 2);
    for (snapshot, layer) in snapshots.values().zip(&model) {
        let data = snapshot.to_data().map_err(|error| format!("{error:?}"))?;
        assert_eq!(packed_of_data(&data)?.decode(), dequantized(layer.val()));
    }
    Ok(())
}
