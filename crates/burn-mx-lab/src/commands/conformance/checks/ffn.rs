//! `ffn`: thirty training steps of a residual MLP, an ordinary Burn model with an ordinary optimizer.
//!
//! The losses may be 5e-4 off (relative): a sum in another order now and then rounds to another number,
//! which training carries on.

use std::f64::consts::SQRT_2;

use burn::module::{Module, Param};
use burn::nn::loss::{MseLoss, Reduction};
use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::optim::{GradientsParams, Optimizer, SgdConfig};
use burn::tensor::{Tensor, activation, backend::Backend};
use burn_mx::module::full_precision;
use burn_mx::{MxAutodiff, MxDevice, MxKernels, ResolvedSpecs};
use serde::Deserialize;

use super::compare::{AgreementRule, Mismatch, compare};
use super::golden::{Array, Golden, GoldenError, Specs};
use super::report::CheckReport;
use super::tensors::{array, tensor};

#[derive(Debug, Deserialize)]
struct FfnParams {
    spec: String,
    steps: usize,
    lr: f64,
    eps: f64,
}

/// Checks every case on `MxAutodiff<B>`.
pub(crate) fn check<B: MxKernels>(
    file: &Golden,
    specs: &Specs,
    backend: &str,
) -> Result<CheckReport, GoldenError> {
    let mut report = CheckReport::new("ffn", backend);
    for case in file.cases::<FfnParams>()? {
        let (id, params) = (&case.id, &case.params);
        let specs = specs
            .get(&params.spec)
            .ok_or_else(|| file.bad_case(id, format!("specs.json has no `{}`", params.spec)))?;
        let run = FfnRun { file, id, params };
        let mismatch = match specs {
            Ok(specs) => {
                let losses = run.losses::<B>(specs)?;
                let expected = file.floats(&format!("{id}/losses"))?;
                compare("losses", &losses, expected, AgreementRule::Relative(5e-4))
            }
            Err(error) => Some(Mismatch::new("specs", error.to_string())),
        };
        report.add(format_args!("case {id}: spec {}", params.spec), mismatch);
    }
    Ok(report)
}

/// The model that the golden losses are of.
#[derive(Module, Debug)]
struct Ffn<B: Backend> {
    norm: LayerNorm<B>,
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> Ffn<B> {
    /// `x` and the output are [batch, hidden].
    fn forward(&self, x: Tensor<B, 2>, gelu: fn(Tensor<B, 2>) -> Tensor<B, 2>) -> Tensor<B, 2> {
        let inner = self.up.forward(self.norm.forward(x.clone()));
        x + self.down.forward(gelu(inner))
    }
}

/// gelu by erf, its gradient too. Without an elementwise format, Burn's own gelu is the wrapped backend's, and not
/// every backend has erf's gradient. NdArray has the tanh approximation's gradient, 1e-4 off.
fn erf_gelu<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let gate = (x.clone() / SQRT_2).erf() + 1.0;
    x * gate / 2.0
}

/// One case: its tensors are those under its id.
struct FfnRun<'a> {
    file: &'a Golden,
    id: &'a str,
    params: &'a FfnParams,
}

impl FfnRun<'_> {
    /// Trains and returns the loss before each step.
    fn losses<B: MxKernels>(&self, specs: &ResolvedSpecs) -> Result<Array<f32>, GoldenError> {
        let device = MxDevice::new(B::Device::default(), specs).expect("resolved specs");
        let mut model: Ffn<MxAutodiff<B>> = self.model(&device)?;
        let mut optimizer = SgdConfig::new().init();
        let x = self.tensor::<MxAutodiff<B>, 2>("x", &device)?;
        let target = self.tensor::<MxAutodiff<B>, 2>("target", &device)?;
        let target = full_precision(target);
        let gelu = match specs.float_format() {
            Some(_) => activation::gelu,
            None => erf_gelu,
        };

        let mut values = Vec::with_capacity(self.params.steps);
        for _ in 0..self.params.steps {
            let output = full_precision(model.forward(x.clone(), gelu));
            let loss = MseLoss::new().forward(output, target.clone(), Reduction::Mean);
            values.extend(array(loss.clone()).values);
            let grads = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(self.params.lr, model, grads);
        }
        let shape = vec![values.len()];
        Ok(Array { shape, values })
    }

    fn model<B: Backend>(&self, device: &B::Device) -> Result<Ffn<B>, GoldenError> {
        let bias = |name| Ok(Param::from_tensor(self.tensor::<B, 1>(name, device)?));
        // PyTorch's [out, in] becomes Burn's [in, out].
        let linear = |weight, bias_name| {
            let weight = self.tensor::<B, 2>(weight, device)?.swap_dims(0, 1);
            Ok(Linear {
                weight: Param::from_tensor(weight),
                bias: Some(bias(bias_name)?),
            })
        };
        let gamma = bias("init/ln_w")?;
        let norm = LayerNormConfig::new(gamma.dims()[0]).with_epsilon(self.params.eps);
        let mut norm = norm.init(device);
        (norm.gamma, norm.beta) = (gamma, Some(bias("init/ln_b")?));
        Ok(Ffn {
            norm,
            up: linear("init/w1", "init/b1")?,
            down: linear("init/w2", "init/b2")?,
        })
    }

    fn tensor<B: Backend, const D: usize>(
        &self,
        name: &str,
        device: &B::Device,
    ) -> Result<Tensor<B, D>, GoldenError> {
        let name = format!("{}/{name}", self.id);
        let array = self.file.floats(&name)?;
        if array.rank() != D {
            let reason = format!("`{name}` has rank {}, expected {D}", array.rank());
            return Err(self.file.bad_case(self.id, reason));
        }
        Ok(tensor(array, device))
    }
}
