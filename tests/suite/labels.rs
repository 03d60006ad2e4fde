//! Products by name: what a model's products are called once its parameters are labelled.

use std::cell::RefCell;
use std::sync::Once;

use burn::module::{AutodiffModule, Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::record::{BinBytesRecorder, FullPrecisionSettings, Recorder};
use burn::tensor::Tensor;
use burn::tensor::backend::Backend;
use burn_mx::MxSpecs;
use burn_mx::module::{label_of, label_parameters, set_specs_at};
use log::{LevelFilter, Log, Metadata, Record};

use crate::support::{Mx, mx_device, noise_tensor, with_noise_weights};

thread_local! {
    /// The products of this thread, while they are listened for.
    static PRODUCTS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

struct Products;

impl Log for Products {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "burn_mx::product" && PRODUCTS.with_borrow(Option::is_some)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let product = record.args().to_string();
            PRODUCTS.with_borrow_mut(|products| products.as_mut().map(|list| list.push(product)));
        }
    }

    fn flush(&self) {}
}

/// The products that `work` computes, in order, and its result.
fn products<T>(work: impl FnOnce() -> T) -> (Vec<String>, T) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        log::set_logger(&Products).expect("no other test of this process has a logger");
        log::set_max_level(LevelFilter::Trace);
    });
    PRODUCTS.set(Some(Vec::new()));
    let result = work();
    (PRODUCTS.take().expect("they were listened for"), result)
}

/// A convolution, a product of two activations, a linear layer, and a parameter in a plain matmul.
#[derive(Module, Debug)]
struct Model<B: Backend> {
    conv: Conv2d<B>,
    blocks: Vec<Linear<B>>,
    mix: Param<Tensor<B, 2>>,
}

impl<B: Backend> Model<B> {
    fn new(device: &B::Device) -> Self {
        let model = Self {
            conv: Conv2dConfig::new([2, 4], [3, 3])
                .with_padding(PaddingConfig2d::Same)
                .init(device),
            blocks: vec![LinearConfig::new(16, 16).init(device)],
            mix: Param::from_tensor(noise_tensor([16, 8], 3, device)),
        };
        // Burn's own random numbers are the whole process's.
        with_noise_weights(model, 4)
    }
}

fn input<B: Backend>(device: &B::Device) -> Tensor<B, 4> {
    noise_tensor::<B, 3>([2, 2, 16], 5, device).reshape([2, 2, 4, 4])
}

impl<B: Backend> Model<B> {
    fn sample(&self, device: &B::Device) -> Tensor<B, 2> {
        let x = self.conv.forward(input::<B>(device));
        let x = x.reshape([8, 16]);
        let x = self.blocks[0].forward(x.clone()) + x;
        let x = x.clone().transpose().matmul(x);
        x.matmul(self.mix.val())
    }
}

const FORWARD: [&str; 4] = [
    "output of convolution conv.weight",
    "output of linear blocks.0.weight",
    "output of matmul",
    "output of matmul mix",
];

#[test]
fn every_product_of_a_labelled_model_knows_its_layer() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let model = label_parameters(Model::<Mx>::new(&device));
    let (forward, loss) = products(|| model.sample(&device).sum());
    assert_eq!(forward, FORWARD);

    let (mut backward, _) = products(|| loss.backward());
    backward.sort();
    assert_eq!(
        backward,
        [
            "input gradient of linear blocks.0.weight",
            "input gradient of matmul",
            "input gradient of matmul",
            "input gradient of matmul mix",
            "weight gradient of convolution conv.weight",
            "weight gradient of linear blocks.0.weight",
            "weight gradient of matmul mix",
        ]
    );

    // So does inference.
    let (forward, _) = products(|| model.valid().sample(&device));
    assert_eq!(forward, FORWARD);
}

#[test]
fn labels_change_no_number() {
    let specs = MxSpecs {
        seed: 3,
        ..MxSpecs::mxfp4_sr_rht()
    };
    let device = mx_device(&specs);
    let train = |label: bool| {
        Mx::seed(&device, 7);
        let mut model = Model::<Mx>::new(&device);
        if label {
            model = label_parameters(model);
        }
        let mut optimizer = AdamWConfig::new().init();
        let mut bits = Vec::new();
        for _ in 0..3 {
            let loss = model.sample(&device).mean();
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(1e-2, model, grads);
            bits.push(loss.into_scalar().to_bits());
        }
        bits
    };
    assert_eq!(train(false), train(true));
}

#[test]
fn labels_survive_what_specs_by_path_survive() {
    let device = mx_device(&MxSpecs::mxfp8_e4m3());
    let other = mx_device(&MxSpecs::mxint8());
    let labels = |model: &Model<Mx>| {
        [
            label_of(&model.conv.weight.val()),
            label_of(&model.blocks[0].weight.val()),
            label_of(&model.mix.val()),
        ]
    };
    let named = [Some("conv.weight"), Some("blocks.0.weight"), Some("mix")];

    let model = Model::<Mx>::new(&device);
    assert_eq!(labels(&model), [None; 3]);
    let model = label_parameters(model);
    assert_eq!(labels(&model), named);
    // A step, a move, a record.
    let grads = GradientsParams::from_grads(model.sample(&device).sum().backward(), &model);
    let model = AdamWConfig::new().init().step(1e-2, model, grads);
    assert_eq!(labels(&model), named);
    let model = model.to_device(&other).fork(&device);
    assert_eq!(labels(&model), named);
    let recorder = BinBytesRecorder::<FullPrecisionSettings>::new();
    let saved = Recorder::<Mx>::record(&recorder, model.clone().into_record(), ()).unwrap();
    let record = Recorder::<Mx>::load(&recorder, saved, &device).unwrap();
    let model = model.load_record(record);
    assert_eq!(labels(&model), named);

    // Values that are computed from a parameter are not a parameter, but the parameter's view is.
    assert_eq!(label_of(&model.mix.val().transpose()), Some("mix"));
    assert_eq!(label_of(&(model.mix.val() * 2.0)), None);

    // Setting specs by path labels, too.
    let model = set_specs_at(
        Model::<Mx>::new(&device),
        "mix",
        &MxSpecs::mxfp4().resolve().unwrap(),
    );
    assert_eq!(labels(&model.unwrap()), [None, None, Some("mix")]);
}
