//! Functions that the reference has as one and Burn composes of smaller ops.
//!
//! The rounded ops of the forward pass are the same, or nearly so; the gradient is rounded at other places. Below stand both
//! sequences of rounded ops, from the numbers on that they share bit for bit. How far the two results can be apart follows
//! from that for each element, see `roundings.rs` and "Bounds" in `docs/src/op-coverage.md`.

use burn::module::Param;
use burn::nn::RmsNormConfig;
use burn::tensor::{Tensor, activation};
use burn_mx::ResolvedSpecs;
use burn_mx::module::MxTensorOps;

use super::compare::AgreementRule;
use super::ops::Compared;
use super::roundings::{Bounded, Ops};
use super::tensors::{Example, Op, OpInputs};

/// A function as Burn, or a program that uses Burn, composes it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Composition {
    /// `activation::silu`: a product with a sigmoid.
    Silu,
    /// A product with a sigmoid, written by hand: Burn has none.
    GeluFirstOrder,
    /// `nn::RmsNorm`, which divides by the root and has no bias.
    RmsNorm { eps: f64 },
}

/// The slope of the first-order gelu in the reference: 1.702 in bfloat16.
const SLOPE: f32 = 1.703125;

impl Composition {
    /// How closely a result has to agree.
    pub(crate) fn rule(self, compared: Compared<'_>) -> AgreementRule {
        let specs = compared.specs;
        let format = specs
            .float_format()
            .expect("every spec of `vector` has an elementwise format");
        match (self, compared.grad) {
            (Self::Silu | Self::GeluFirstOrder, None) => AgreementRule::OneStep {
                format,
                share: 0.01,
            },
            // A sum of the gradient in both.
            (Self::RmsNorm { .. }, Some("bias")) => match compared.format() {
                Some(_) => AgreementRule::Bits,
                None => AgreementRule::OfLargest(1e-6),
            },
            (_, grad) => AgreementRule::Within {
                allowed: self.apart(compared.example, specs, grad),
            },
        }
    }

    /// How far the reference's result and the composed one can be apart, for each element of the output or of a gradient.
    fn apart(self, example: &Example<'_>, specs: &ResolvedSpecs, grad: Option<&str>) -> Vec<f64> {
        let x = &example.inputs["x"].values;
        let g = &example.grad_out.values;
        let gated = |gate: Gate| x.iter().zip(g).map(|(&x, &g)| gate.apart(x, g)).collect();
        match self {
            Self::Silu => gated(Gate::new(specs, None)),
            Self::GeluFirstOrder => gated(Gate::new(specs, Some(SLOPE))),
            Self::RmsNorm { eps } => {
                let norm = RmsNorm::new(specs, example, eps as f32);
                match grad {
                    None => norm.output(x),
                    Some("x") => norm.of_x(x, g),
                    Some(_) => norm.of_gamma(x, g),
                }
            }
        }
    }
}

/// Two numbers that a float32 result of `x`, off by the part `share`, may be rounded to.
fn either(ops: Ops, x: f64, share: f64) -> [f32; 2] {
    [1.0 - share, 1.0 + share].map(|factor| ops.value((x * factor) as f32))
}

/// The largest that `apart` says for any two of the numbers that the one side and the other may have.
fn farthest(numbers: [f32; 2], apart: impl Fn(f32, f32) -> f64) -> f64 {
    let [low, high] = numbers;
    let pairs = [(low, low), (low, high), (high, low), (high, high)];
    let pairs = if low == high { &pairs[..1] } else { &pairs[..] };
    pairs
        .iter()
        .map(|&(ours, theirs)| apart(ours, theirs))
        .fold(0.0, f64::max)
}

/// `x σ(s x)` and its gradient `g σ + g x s σ (1 − σ)`.
#[derive(Clone, Copy)]
struct Gate {
    forward: Ops,
    backward: Ops,
    exp2: bool,
    slope: Option<f32>,
}

impl Gate {
    /// Without a slope it is silu.
    fn new(specs: &ResolvedSpecs, slope: Option<f32>) -> Self {
        Self {
            forward: Ops::of_forward(specs),
            backward: Ops::of_backward(specs),
            exp2: specs.specs().vec_use_exp2,
            slope,
        }
    }

    /// How far the gradients can be apart. The sigmoid is the same in both, but for one case. If its exponential is near the
    /// limit between two roundings, two libraries with errors of up to two units in the last place may round differently.
    fn apart(self, x: f32, g: f32) -> f64 {
        let f = self.forward;
        let rounded = f.value(x);
        let argument = -self.slope.map_or(rounded, |slope| f.value(rounded * slope));
        let exponential = match self.exp2 {
            true => f64::from(f.value(1.4453125 * argument)).exp2(),
            false => f64::from(argument).exp(),
        };
        let gates = either(f, exponential, 2.0_f64.powi(-22))
            .map(|exponential| f.value(1.0 / f.value(exponential + 1.0)));
        let g = self.backward.value(g);
        farthest(gates, |ours, theirs| {
            self.composed(x, g, ours)
                .apart(self.reference(x, g, theirs))
        })
    }

    /// The reference's gradient with the sigmoid `gate`: four roundings.
    fn reference(self, x: f32, g: f32, gate: f32) -> Bounded {
        let (f, b) = (self.forward, self.backward);
        let complement = b.value(1.0 - gate);
        let derivative = match self.slope {
            // y (1 − σ), with y the output.
            None => b.round(
                f.round(Bounded::from(f.value(x)).times(gate))
                    .times(complement),
            ),
            Some(slope) => {
                let derivative = Bounded::from(b.value(gate * complement));
                b.round(b.round(derivative.times(slope)).times(b.value(x)))
            }
        };
        b.round(b.round(derivative.plus(gate.into())).times(g))
    }

    /// The gradients of the product and of the sigmoid, added up: five roundings.
    fn composed(self, x: f32, g: f32, gate: f32) -> Bounded {
        let b = self.backward;
        let through_product = b.round(Bounded::from(g).times(gate));
        let of_gate = b.round(Bounded::from(g).times(b.value(x)));
        let derivative = b.value(gate * b.value(1.0 - gate));
        let mut through_gate = b.round(of_gate.times(derivative));
        if let Some(slope) = self.slope {
            through_gate = b.round(through_gate.times(slope));
        }
        b.round(through_product.plus(through_gate))
    }
}

/// `γ x / q + β` over the last axis with `q` the root mean square, and its gradients `g γ / q − n mean(g γ n) / q` of x, with
/// n the normalized x, and `Σ g n` of γ.
struct RmsNorm<'a> {
    forward: Ops,
    backward: Ops,
    gamma: &'a [f32],
    beta: &'a [f32],
    eps: f32,
}

impl<'a> RmsNorm<'a> {
    fn new(specs: &ResolvedSpecs, example: &'a Example<'_>, eps: f32) -> Self {
        Self {
            forward: Ops::of_forward(specs),
            backward: Ops::of_backward(specs),
            gamma: &example.inputs["weight"].values,
            beta: &example.inputs["bias"].values,
            eps,
        }
    }

    /// The root of a row is the same in both, unless the sum of squares is so near the limit between two roundings that sums
    /// in other orders round differently.
    fn roots(&self, row: &[f32]) -> [f32; 2] {
        let f = self.forward;
        let square = |&x: &f32| f64::from(f.value(f.value(x) * f.value(x)));
        let sum: f64 = row.iter().map(square).sum();
        let count = row.len() as f32;
        either(f, sum, f64::from(count) * 2.0_f64.powi(-24)).map(|sum| {
            let mean = f.value(f.value(sum / count) + self.eps);
            f.value(mean.sqrt())
        })
    }

    /// n as the reference has it, x · (1 / q), and as Burn does, x / q.
    fn normalized(&self, x: f32, ours: f32, theirs: f32) -> [Bounded; 2] {
        let f = self.forward;
        let x = Bounded::from(f.value(x));
        [f.div(x, ours), f.round(x.times(f.value(1.0 / theirs)))]
    }

    fn output(&self, x: &[f32]) -> Vec<f64> {
        let f = self.forward;
        let mut apart = Vec::with_capacity(x.len());
        for row in x.chunks(self.gamma.len()) {
            let roots = self.roots(row);
            for (i, &x) in row.iter().enumerate() {
                apart.push(farthest(roots, |ours, theirs| {
                    let [ours, theirs] = self.normalized(x, ours, theirs).map(|n| {
                        let scaled = f.round(n.times(f.value(self.gamma[i])));
                        f.round(scaled.plus(f.value(self.beta[i]).into()))
                    });
                    ours.apart(theirs)
                }));
            }
        }
        apart
    }

    fn of_x(&self, x: &[f32], g: &[f32]) -> Vec<f64> {
        let features = self.gamma.len();
        let rows = x.chunks(features).zip(g.chunks(features));
        let row = |(x, g): (&[f32], &[f32])| {
            let [low, high] = self.roots(x);
            let ours = [low, high].map(|root| self.composed(x, g, root));
            let theirs = [low, high].map(|root| self.reference(x, g, root));
            let apart = |i: usize| {
                let pairs = ours
                    .iter()
                    .flat_map(|ours| theirs.iter().map(move |theirs| ours[i].apart(theirs[i])));
                pairs.fold(0.0, f64::max)
            };
            (0..features).map(apart).collect::<Vec<_>>()
        };
        rows.flat_map(row).collect()
    }

    /// g γ, which both have.
    fn scaled(&self, g: &[f32]) -> Vec<f32> {
        let b = self.backward;
        let scaled = |(&g, &gamma): (&f32, &f32)| b.value(b.value(g) * b.value(gamma));
        g.iter().zip(self.gamma).map(scaled).collect()
    }

    /// The reference's gradient of a row: a − n mean(a n) with a = g γ (1 / q).
    fn reference(&self, x: &[f32], g: &[f32], root: f32) -> Vec<Bounded> {
        let (f, b) = (self.forward, self.backward);
        let inverse = f.value(1.0 / root);
        let normalized: Vec<f32> = x.iter().map(|&x| f.value(f.value(x) * inverse)).collect();
        let own: Vec<Bounded> = self
            .scaled(g)
            .into_iter()
            .map(|scaled| b.round(Bounded::from(scaled).times(inverse)))
            .collect();
        let products: Vec<Bounded> = own
            .iter()
            .zip(&normalized)
            .map(|(own, &n)| b.round(own.times(n)))
            .collect();
        let mean = b.round(b.sum(&products).over(x.len() as f32));
        let unrounded = b.unrounded();
        own.into_iter()
            .zip(normalized)
            .map(|(own, n)| unrounded.round(own.minus(b.round(mean.times(n)))))
            .collect()
    }

    /// The gradients of the quotient, the root, the mean and the square, added up.
    fn composed(&self, x: &[f32], g: &[f32], root: f32) -> Vec<Bounded> {
        let (f, b) = (self.forward, self.backward);
        let scaled = self.scaled(g);
        let products: Vec<Bounded> = scaled
            .iter()
            .zip(x)
            .map(|(&scaled, &x)| {
                let normalized = f.div(f.value(x).into(), root);
                b.round(b.div(normalized, -root).times(scaled))
            })
            .collect();
        let of_root = b.sum(&products);
        let of_mean = b.div(b.round(of_root.over(2.0)), root);
        let share = b.round(of_mean.over(x.len() as f32));
        let of_element = |(&scaled, &x): (&f32, &f32)| {
            let own = b.div(scaled.into(), root);
            let through_square = b.round(share.times(b.value(2.0 * b.value(x))));
            b.round(own.plus(through_square))
        };
        scaled.iter().zip(x).map(of_element).collect()
    }

    fn of_gamma(&self, x: &[f32], g: &[f32]) -> Vec<f64> {
        let (b, features) = (self.backward, self.gamma.len());
        let roots: Vec<[f32; 2]> = x.chunks(features).map(|row| self.roots(row)).collect();
        let of_feature = |i: usize| {
            let products = |side: usize| {
                // Where a root may be one of two, what that makes of the product counts as the product's error.
                let product = |(row, roots): (usize, &[f32; 2])| {
                    let at = row * features + i;
                    let [low, high] = roots.map(|root| {
                        let n = self.normalized(x[at], root, root)[side];
                        b.round(n.times(b.value(g[at])))
                    });
                    low.or(high)
                };
                b.sum(&roots.iter().enumerate().map(product).collect::<Vec<_>>())
            };
            products(0).apart(products(1))
        };
        (0..features).map(of_feature).collect()
    }
}

impl Op for Composition {
    fn forward<B: MxTensorOps, const D: usize>(&self, inputs: &OpInputs<B>) -> Tensor<B, D> {
        let x = inputs.activation::<D>("x");
        match *self {
            Self::Silu => activation::silu(x),
            Self::GeluFirstOrder => x.clone() * activation::sigmoid(x * SLOPE),
            Self::RmsNorm { eps } => {
                let gamma = inputs.weight::<1>("weight");
                let config = RmsNormConfig::new(gamma.dims()[0]).with_epsilon(eps);
                let mut norm = config.init::<B>(&gamma.device());
                norm.gamma = Param::from_tensor(gamma);
                norm.forward(x) + inputs.weight::<1>("bias").unsqueeze()
            }
        }
    }

    fn name(&self, golden: &str) -> String {
        match self {
            Self::GeluFirstOrder => format!("{golden} (composed)"),
            Self::Silu | Self::RmsNorm { .. } => format!("{golden} (Burn's own)"),
        }
    }
}
