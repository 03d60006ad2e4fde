//! A training step of LoRA on frozen linear layers, whose weights are packed or in float32.

use burn::backend::{Flex, flex::FlexDevice};
use burn::module::{AutodiffModule, Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, Optimizer};
use burn::tensor::backend::Backend;
use burn::tensor::module::linear;
use burn::tensor::{Distribution, Tensor, activation::relu};
use burn_mx::module::{LoraConfig, PackedLinear, pack};
use burn_mx::{BlockFormat, MxAutodiff, MxDevice, MxSpecs, Rounder, Slot};

type B = MxAutodiff<Flex>;
type Failure = Box<dyn std::error::Error>;

const WIDTH: usize = 1024;
const LAYERS: usize = 24;
const TOKENS: usize = 64;
const CONFIG: LoraConfig = LoraConfig {
    rank: 8,
    alpha: 16.0,
    dora: false,
};

pub(crate) fn name() -> String {
    format!("LoRA ({LAYERS} × {WIDTH}, {TOKENS})")
}

pub(crate) trait Layer: AutodiffModule<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2>;
}

impl Layer for PackedLinear<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        PackedLinear::forward(self, x)
    }
}

/// A frozen linear layer of Burn with an adapter.
#[derive(Module, Debug)]
pub(crate) struct FloatLayer<B: Backend> {
    frozen: Linear<B>,
    a: Param<Tensor<B, 2>>,
    b: Param<Tensor<B, 2>>,
}

impl Layer for FloatLayer<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let [a, b] = [&self.a, &self.b].map(|matrix| matrix.val().transpose());
        let scale = CONFIG.alpha / CONFIG.rank as f64;
        self.frozen.forward(x.clone()) + linear(linear(x, a, None), b, None) * scale
    }
}

/// A device with a preset's specs, and the format of its weights.
pub(crate) fn device(preset: &str) -> Result<(MxDevice<FlexDevice>, BlockFormat), Failure> {
    let specs = MxSpecs::preset(preset)?;
    let format = specs.resolve()?.block_format(Slot::W);
    let format = format
        .ok_or_else(|| format!("--lora {preset}: allowed: presets with a format for weights"))?;
    let specs = specs.straight_through().resolve()?;
    Ok((MxDevice::new(FlexDevice, &specs)?, format))
}

pub(crate) fn packed(
    device: &MxDevice<FlexDevice>,
    format: BlockFormat,
) -> Result<PackedLinear<B>, Failure> {
    let weight = Tensor::<B, 2>::random([WIDTH, WIDTH], Distribution::Normal(0.0, 0.03), device);
    let packed = pack(weight, 1, format, Rounder::NearestEven)?;
    Ok(PackedLinear::new(packed, None, device)?.with_adapter(CONFIG)?)
}

/// The same layer with its weight in float32.
pub(crate) fn float(
    device: &MxDevice<FlexDevice>,
    format: BlockFormat,
) -> Result<FloatLayer<B>, Failure> {
    let layer = packed(device, format)?;
    let mut frozen = LinearConfig::new(WIDTH, WIDTH)
        .with_bias(false)
        .init(device);
    let values = Tensor::from_data(layer.weight().into_data(), device);
    frozen.weight = Param::from_tensor(values);
    let adapter = layer.adapter().ok_or("the layer has an adapter")?;
    Ok(FloatLayer {
        frozen: frozen.no_grad(),
        a: adapter.a.clone(),
        b: adapter.b.clone(),
    })
}

/// A function that runs one step of training.
pub(crate) fn trainer<L: Layer>(
    make: impl Fn(&MxDevice<FlexDevice>, BlockFormat) -> Result<L, Failure>,
    preset: &str,
) -> Result<impl FnMut(), Failure> {
    let (device, format) = device(preset)?;
    let layers = (0..LAYERS).map(|_| make(&device, format));
    let mut model = Some(layers.collect::<Result<Vec<L>, _>>()?);
    let mut optimizer = AdamWConfig::new().init::<B, Vec<L>>();
    Ok(move || {
        let Some(layers) = model.take() else { return };
        let x = Tensor::random([TOKENS, WIDTH], Distribution::Default, &device);
        let y = layers.iter().fold(x, |x, layer| relu(layer.forward(x)));
        let grads = GradientsParams::from_grads(y.powi_scalar(2).mean().backward(), &layers);
        model = Some(optimizer.step(1e-3, layers, grads));
    })
}
