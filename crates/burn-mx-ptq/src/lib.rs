//! Post-training quantization: converts a trained model to block formats by a named configuration, and tunes it layer by
//! layer.
//!
//! ```
//! # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_ptq as ptq; }
//! use burn_core::module::Param;
//! use burn_core::tensor::{Distribution, Tensor};
//! use burn_flex::Flex;
//! use burn_mx::ptq::{QuantConfig, Quantizer};
//! use burn_mx::{MxBackend, MxDevice};
//! # use burn_core as burn;
//! # use burn_core::module::Module;
//! # use burn_core::tensor::{backend::Backend, module::linear};
//! # #[derive(Module, Debug)]
//! # struct Linear<B: Backend> { weight: Param<Tensor<B, 2>> }
//! # #[derive(Module, Debug)]
//! # struct Model<B: Backend> { layer: Linear<B> }
//! # impl<B: Backend> Model<B> {
//! #     fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> { linear(x, self.layer.weight.val(), None) }
//! # }
//!
//! type B = MxBackend<Flex>; // was: Flex
//! let device = MxDevice::default();
//! let normal = |shape| Tensor::<B, 2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
//! # let model = Model { layer: Linear { weight: Param::from_tensor(normal([64, 32])) } };
//! // `model` is any module; its weights are as they were trained.
//! let calibration = [normal([16, 64]), normal([16, 64])];
//! let quantizer = Quantizer::new(QuantConfig::named("MXFP4E2M1_ADAQUANT")?)?;
//! let quantized = quantizer.quantize(model, &calibration, |model, x| model.forward(x.clone()))?;
//! for layer in &quantized.tuned {
//!     println!("{}: {:.4} -> {:.4}", layer.layer, layer.error_before, layer.error_after);
//! }
//! let output = quantized.model.forward(normal([1, 64]));
//! # Ok::<(), burn_mx::ptq::PtqError>(())
//! ```
//!
//! The quantized model is the same module. Its layers carry their own specs, by which their products quantize weights and
//! inputs. Values between layers are not rounded. Products of two activations, as in attention, follow the specs of the
//! device.

mod calibration;
mod calls;
mod config;
mod error;
mod fold;
mod fused;
mod gptq;
mod parameters;
mod passes;
mod quantizer;
mod resume;
mod tuning;

pub use config::{Activations, BatchNormPair, FastFinetune, OptimAlgorithm, QuantConfig, Rotation};
pub use error::PtqError;
pub use fold::FoldedNorm;
pub use gptq::{Gptq, GptqLayer, ScaleSearch};
pub use quantizer::{Quantized, QuantizedLayer, Quantizer};
pub use tuning::TunedLayer;
