//! Linear layers whose frozen weight stays packed, and their adapters.

mod base;
mod error;
mod merge;

use burn_core as burn;

use burn_core::module::{Module, Param};
use burn_core::tensor::backend::Backend;
use burn_core::tensor::module::linear;
use burn_core::tensor::{Distribution, Tensor, TensorPrimitive};
use microscaling::Packed;

use super::change::change;
use super::fused::How;
use super::pieces::{emulated, full_precision};
use base::Base;
pub use base::load_adapters;
use burn_mx_core::hooks::SharedSpecs;
use burn_mx_core::{FrozenWeight, MxTensorOps, TensorChange};
pub use error::PackedLinearError;
pub use merge::Merged;
use merge::pack;

/// The sizes of a [`PackedLinear`]'s adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoraConfig {
    /// Rows of `a` and columns of `b`: 1 to the smaller one of the layer's numbers of inputs and outputs.
    pub rank: usize,
    /// The adapter's output is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// Whether the magnitude of each output is a parameter: DoRA ([2402.09353](https://arxiv.org/abs/2402.09353)).
    pub dora: bool,
}

/// The trained parameters of a [`PackedLinear`].
#[derive(Module, Debug)]
pub struct Adapter<B: Backend> {
    /// `[rank, in]`.
    pub a: Param<Tensor<B, 2>>,
    /// `[out, rank]`.
    pub b: Param<Tensor<B, 2>>,
    /// `[out]`, with DoRA.
    pub magnitude: Option<Param<Tensor<B, 1>>>,
}

/// A linear layer whose frozen weight stays packed in memory: `y = x·wᵀ + bias`, with w the values of the bytes. With an adapter
/// (LoRA, [2106.09685](https://arxiv.org/abs/2106.09685)), `y = x·wᵀ + bias + (alpha / rank)·(x·aᵀ)·bᵀ`. DoRA multiplies the
/// two products by `magnitude / ‖w + (alpha / rank)·b·a‖`, with the norm of each output's row in float32. As in the paper, the norm is a
/// constant in the backward pass.
///
/// Forward and backward product unpack the weight, and drop the values after use. Results and gradients equal, bit for bit,
/// a linear layer's with the unpacked weight and two linear layers for the adapter, under the same specs. The specs of the weight come
/// from the device, or by path from [`set_specs_at`](super::set_specs_at). Forward products take the bytes' values unchanged, so the specs'
/// `w_elem_format` must be the packed format or none. `dialect_w` decides how [`merge`](Self::merge) packs.
///
/// Shapes: `x` `[.., in]`, packed weight `[out, in]` with blocks along `in`, bias `[out]`, output `[.., out]`; float32.
///
/// A record holds bias and adapter, and identifies the packed weight: [`load_adapters`] refuses the record of another base.
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// # use burn_core::module::AutodiffModule;
/// # use burn_core::tensor::{Distribution, Tensor};
/// # use burn_flex::{Flex, FlexDevice};
/// # use burn_mx::{MxAutodiff, MxDevice, MxSpecs};
/// # use burn_mx::module::{LoraConfig, PackedLinear, pack}; use microscaling::Rounder;
/// type B = MxAutodiff<Flex>;
/// let device = MxDevice::new(FlexDevice, MxSpecs::mxfp4().straight_through())?;
/// let weight = Tensor::<B, 2>::random([16, 64], Distribution::Default, &device);
/// let packed = pack(weight, 1, "mxfp4".parse()?, Rounder::NearestEven)?;
/// let config = LoraConfig { rank: 4, alpha: 8.0, dora: false };
/// let layer = PackedLinear::<B>::new(packed, None, &device)?.with_adapter(config)?;
/// let loss = layer.forward(Tensor::<B, 2>::ones([2, 64], &device)).mean();
/// let gradients = loss.backward();
/// let adapter = layer.adapter().expect("it has one");
/// assert!(adapter.b.grad(&gradients).is_some());
/// let merged = layer.valid().merge()?;
/// assert_eq!(merged.largest, 0.0); // b is still 0
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Module, Debug)]
pub struct PackedLinear<B: Backend> {
    base: Base<B>,
    bias: Option<Param<Tensor<B, 1>>>,
    adapter: Option<Adapter<B>>,
}

impl<B: MxTensorOps> PackedLinear<B> {
    /// The layer of a packed weight `[out, in]` with blocks along axis 1, with the specs of the device.
    ///
    /// # Errors
    ///
    /// If the bytes are of another shape or axis, the device's specs quantize weights otherwise, or the bias has not `out` elements.
    pub fn new(
        packed: Packed,
        bias: Option<Tensor<B, 1>>,
        device: &B::Device,
    ) -> Result<Self, PackedLinearError> {
        Self::like(packed, bias, Tensor::zeros([1], device))
    }

    /// The layer of a linear layer's weight `[in, out]`, with the specs of the weight. A weight from a checkpoint keeps the bytes
    /// of the file. Any other weight is packed as its forward product quantizes the weight.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new); the specs have no format for the weight, or the format cannot pack the weight.
    pub fn from_weight(
        weight: Tensor<B, 2>,
        bias: Option<Tensor<B, 1>>,
    ) -> Result<Self, PackedLinearError> {
        let primitive = weight.clone().into_primitive().tensor();
        let specs = B::specs_of(&primitive).ok_or(PackedLinearError::NoFormat)?;
        let packed = match B::packed_of(&primitive, 0) {
            Some(packed) => packed.clone(),
            None => {
                let how = How::of(specs).ok_or(PackedLinearError::NoFormat)?;
                let [inputs, outputs] = weight.dims();
                let values = values(weight.clone().transpose());
                pack(&how, values, [outputs, inputs], None)?
            }
        };
        let mut like = Tensor::zeros([1], &weight.device());
        like = change(like, TensorChange::Pin(Some(SharedSpecs::of(specs))));
        if let Some(label) = B::label_of(&primitive) {
            like = change(like, TensorChange::Label(label));
        }
        Self::like(packed, bias, like)
    }

    /// With the specs and the device of `like`.
    fn like(
        packed: Packed,
        bias: Option<Tensor<B, 1>>,
        like: Tensor<B, 1>,
    ) -> Result<Self, PackedLinearError> {
        let packed = FrozenWeight::new(packed)?;
        let primitive = like.clone().into_primitive().tensor();
        B::specs_of(&primitive).map_or(Ok(()), |specs| packed.check(specs))?;
        let outputs = packed.packed().shape()[0];
        if let Some(bias) = bias.as_ref().filter(|bias| bias.dims() != [outputs]) {
            return Err(PackedLinearError::Bias {
                got: bias.dims()[0],
                outputs,
            });
        }
        let frozen = |tensor| Param::from_tensor(tensor).set_require_grad(false);
        Ok(Self {
            base: Base::new(packed, frozen(like)),
            bias: bias.map(frozen),
            adapter: None,
        })
    }

    /// The layer with a new adapter, which changes no output yet: `a` is uniform within ±1/√in, `b` is 0, and DoRA's magnitudes are
    /// the norms of the weight's rows.
    ///
    /// # Errors
    ///
    /// If the rank is 0 or larger than the layer, or `alpha` is not finite.
    pub fn with_adapter(mut self, config: LoraConfig) -> Result<Self, PackedLinearError> {
        let [outputs, inputs] = self.shape();
        let largest = outputs.min(inputs);
        let LoraConfig { rank, alpha, dora } = config;
        if !(1..=largest).contains(&rank) {
            return Err(PackedLinearError::Rank { rank, largest });
        }
        if !alpha.is_finite() {
            return Err(PackedLinearError::Alpha { alpha });
        }
        let device = self.base.like.val().device();
        let bound = (inputs as f64).sqrt().recip();
        let a = Tensor::random(
            [rank, inputs],
            Distribution::Uniform(-bound, bound),
            &device,
        );
        self.base.config = Some(config);
        self.adapter = Some(Adapter {
            a: Param::from_tensor(a),
            b: Param::from_tensor(Tensor::zeros([outputs, rank], &device)),
            magnitude: dora.then(|| {
                let norms = values(norms(self.rows()));
                Param::from_tensor(Tensor::from_floats(norms.as_slice(), &device))
            }),
        });
        Ok(self)
    }

    /// The packed weight, `[out, in]`.
    pub fn packed(&self) -> &Packed {
        self.base.packed.packed()
    }

    /// The bias `[out]`, if the layer has one.
    pub fn bias(&self) -> Option<Tensor<B, 1>> {
        self.bias.as_ref().map(Param::val)
    }

    /// The adapter, if the layer has one.
    pub fn adapter(&self) -> Option<&Adapter<B>> {
        self.adapter.as_ref()
    }

    /// The frozen weight `[in, out]` without the adapter, for a linear layer. The layer's products and checkpoints take the values unchanged.
    pub fn weight(&self) -> Tensor<B, 2> {
        let like = self.base.like.val().into_primitive().tensor();
        Tensor::from_primitive(TensorPrimitive::Float(B::unpack_weight(
            &self.base.packed,
            &like,
        )))
    }

    /// The outputs `[.., out]` of inputs `[.., in]`.
    ///
    /// # Panics
    ///
    /// If `x` does not have `in` inputs, or specs that were set by path [quantize](burn_mx_core::FrozenWeightError::Specs) the weight otherwise.
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        if D == 1 {
            return self.forward(x.unsqueeze::<2>()).squeeze_dim(0);
        }
        let bias = self.bias();
        let Some((adapter, scale)) = self.scaled() else {
            return self.product(x, bias);
        };
        let [a, b] = [&adapter.a, &adapter.b].map(|matrix| matrix.val().transpose());
        let own = linear(linear(x.clone(), a, None), b, None) * scale;
        let Some(magnitude) = &adapter.magnitude else {
            return self.product(x, bias) + own;
        };
        let factor = emulated(full_precision(magnitude.val()) / norms(self.sum()));
        let y = (self.product(x, None) + own) * factor.unsqueeze();
        match bias {
            Some(bias) => y + bias.unsqueeze(),
            None => y,
        }
    }

    /// `[out, in]`.
    fn shape(&self) -> [usize; 2] {
        let shape = self.packed().shape();
        [shape[0], shape[1]]
    }

    /// The adapter, and the factor of its output.
    fn scaled(&self) -> Option<(&Adapter<B>, f64)> {
        let LoraConfig { rank, alpha, .. } = self.base.config?;
        Some((self.adapter.as_ref()?, alpha / rank as f64))
    }

    fn product<const D: usize>(&self, x: Tensor<B, D>, bias: Option<Tensor<B, 1>>) -> Tensor<B, D> {
        let like = self.base.like.val().into_primitive().tensor();
        let x = x.into_primitive().tensor();
        let bias = bias.map(|bias| bias.into_primitive().tensor());
        let y = B::linear_packed(x, &self.base.packed, &like, bias);
        Tensor::from_primitive(TensorPrimitive::Float(y))
    }

    /// The values `[out, in]` of the frozen weight, in full precision.
    fn rows(&self) -> Tensor<B, 2> {
        let device = self.base.like.val().device();
        let rows = B::unpack(&self.packed().view(), &device);
        full_precision(Tensor::from_primitive(TensorPrimitive::Float(rows)))
    }

    /// The weight with the adapter, but for magnitudes: `[out, in]`, in full precision, without gradients.
    fn sum(&self) -> Tensor<B, 2> {
        let rows = self.rows();
        let Some((adapter, scale)) = self.scaled() else {
            return rows;
        };
        let [a, b] = [&adapter.a, &adapter.b].map(|matrix| full_precision(matrix.val().detach()));
        rows + b.matmul(a) * scale
    }
}

/// The norms of rows. A row of zeros gets the smallest normal number, by which zeros may be divided.
fn norms<B: Backend>(rows: Tensor<B, 2>) -> Tensor<B, 1> {
    let squares = rows.powi_scalar(2).sum_dim(1).squeeze_dim(1);
    squares.sqrt().clamp_min(f32::MIN_POSITIVE)
}

fn values<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Vec<f32> {
    let data = tensor.into_data().convert::<f32>();
    data.into_vec().expect("the data were converted")
}
