//! Layers without emulation are named, so that none is missing unseen.

use burn::nn::{Linear, LinearConfig};
use burn_mx::module::{label_parameters, set_specs_at};
use burn_mx::record::{RecorderConfig, Report};
use burn_mx::{MxAutodiff, MxSpecs};

use super::{folder, record_here, steps};
use crate::support::{TestBackend, mx_device, noise_tensor};

#[test]
fn layers_without_emulation_are_named() {
    type B = MxAutodiff<TestBackend>;
    let device = mx_device(&MxSpecs::mxfp4());
    let layers: Vec<Linear<B>> = (0..4)
        .map(|_| LinearConfig::new(32, 32).init(&device))
        .collect();
    let float = MxSpecs::none().resolve().unwrap();
    // The first layer runs before any emulated product.
    let model = set_specs_at(label_parameters(layers), "0", &float).unwrap();
    let model = set_specs_at(model, "3", &float).unwrap();
    let step = || {
        let x = noise_tensor::<B, 2>([4, 32], 1, &device);
        let output = model.iter().fold(x, |x, layer| layer.forward(x));
        output.sum().backward();
    };
    let recorded = |layers: &[&str]| {
        let folder = folder();
        let config = RecorderConfig {
            layers: layers.iter().map(|name| (*name).to_owned()).collect(),
            ..RecorderConfig::default()
        };
        let recording = record_here(config, &folder);
        step();
        step();
        recording.finish().unwrap();
        Report::read([folder.path()]).unwrap()
    };
    let report = recorded(&[]);
    for step in steps(&report) {
        assert_eq!(step.not_emulated, ["0.weight", "3.weight"]);
    }
    assert!(report.table().contains("not emulated: 0.weight, 3.weight"));
    let page = report.html();
    assert!(page.contains("\"not_emulated\":[\"0.weight\",\"3.weight\"]"));
    // The report does not name the layers that the recorder has to leave out.
    let report = recorded(&["0", "1"]);
    assert_eq!(steps(&report)[0].not_emulated, ["0.weight"]);
}
