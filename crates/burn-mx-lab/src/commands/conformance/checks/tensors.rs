//! Running one Burn op on golden tensors, forward and backward.

use std::{collections::BTreeMap, panic};

use burn::tensor::{
    Tensor, TensorData, TensorPrimitive,
    backend::{AutodiffBackend, Backend},
    ops::FloatTensor,
};
use burn_mx::module::{MxTensorOps, as_activation, full_precision};
use burn_mx::{MxAutodiff, MxBackend, MxDevice, MxKernels, ResolvedSpecs};

use super::compare::{AgreementRule, Mismatch, compare};
use super::golden::Array;

/// Calls `$body` with the constant `$D` for a rank that is known at run time; `None` for ranks that no op has.
macro_rules! with_rank {
    ($rank:expr, $D:ident => $body:expr) => {{
        macro_rules! arm {
            ($N:literal) => {{
                const $D: usize = $N;
                Some($body)
            }};
        }
        match $rank {
            1 => arm!(1),
            2 => arm!(2),
            3 => arm!(3),
            4 => arm!(4),
            5 => arm!(5),
            6 => arm!(6),
            _ => None,
        }
    }};
}

/// An op as a function of named tensors; the same code is trained with and inferred with.
pub(crate) trait Op {
    /// The output of rank `D`, the rank of the golden output.
    fn forward<B: MxTensorOps, const D: usize>(&self, inputs: &OpInputs<B>) -> Tensor<B, D>;

    /// The name in reports, given the name in the golden file.
    fn name(&self, golden: &str) -> String {
        golden.to_owned()
    }

    /// Inputs that PyTorch stores as [out, in] and Burn as [in, out].
    fn transposed(&self) -> &'static [&'static str] {
        &[]
    }
}

/// The inputs of an op on a backend, by name. All are leaves that require gradients.
pub(crate) struct OpInputs<B: Backend>(BTreeMap<String, Leaf<B>>);

struct Leaf<B: Backend> {
    primitive: FloatTensor<B>,
    rank: usize,
    transposed: bool,
}

impl<B: MxTensorOps> OpInputs<B> {
    fn new(
        arrays: &BTreeMap<&str, &Array<f32>>,
        transposed: &[&str],
        device: &B::Device,
    ) -> Option<Self> {
        let leaf = |(&name, &array): (&&str, &&Array<f32>)| {
            let transposed = transposed.contains(&name);
            let rank = array.rank();
            let primitive = with_rank!(rank, D => {
                let tensor: Tensor<B, D> = tensor(array, device);
                // Before it becomes a leaf, so that the leaf itself has Burn's shape.
                let tensor = if transposed { tensor.swap_dims(0, 1) } else { tensor };
                primitive(tensor.require_grad())
            })?;
            let leaf = Leaf {
                primitive,
                rank,
                transposed,
            };
            Some((name.to_owned(), leaf))
        };
        arrays.iter().map(leaf).collect::<Option<_>>().map(Self)
    }

    /// Whether there is an input of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Rank of an input.
    pub(crate) fn rank(&self, name: &str) -> usize {
        self.leaf(name).rank
    }

    /// An input in the role of a weight: as the leaf is.
    pub(crate) fn weight<const D: usize>(&self, name: &str) -> Tensor<B, D> {
        let leaf = self.leaf(name);
        assert_eq!(leaf.rank, D, "rank of input `{name}`");
        Tensor::from_primitive(TensorPrimitive::Float(leaf.primitive.clone()))
    }

    /// An input in the role of an activation, whose gradient is wanted nevertheless.
    pub(crate) fn activation<const D: usize>(&self, name: &str) -> Tensor<B, D> {
        as_activation(self.weight(name))
    }

    fn leaf(&self, name: &str) -> &Leaf<B> {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("the case has no input `{name}`"))
    }
}

impl<B: MxTensorOps + AutodiffBackend> OpInputs<B> {
    /// The gradients of all inputs that got one, in PyTorch's shapes.
    fn gradients(&self, gradients: &B::Gradients) -> BTreeMap<String, Array<f32>> {
        let gradient = |(name, leaf): (&String, &Leaf<B>)| {
            let grad = with_rank!(leaf.rank, D => {
                let grad = self.weight::<D>(name).grad(gradients)?;
                array(if leaf.transposed { grad.swap_dims(0, 1) } else { grad })
            })?;
            Some((name.clone(), grad))
        };
        self.0.iter().filter_map(gradient).collect()
    }
}

/// A golden case of one op.
pub(crate) struct Example<'a> {
    /// By name.
    pub(crate) inputs: BTreeMap<&'a str, &'a Array<f32>>,
    pub(crate) grad_out: &'a Array<f32>,
    pub(crate) out: &'a Array<f32>,
    /// By name of the input.
    pub(crate) grads: BTreeMap<&'a str, &'a Array<f32>>,
}

impl Example<'_> {
    /// Runs `op` on `MxAutodiff<B>` and compares output and gradients; `rule` says how, `None` being the
    /// output. Then runs it on `MxBackend<B>`, where the output has to have the same bits.
    ///
    /// A panic is a mismatch like any other.
    pub(crate) fn check<B: MxKernels>(
        &self,
        op: &impl Op,
        specs: &ResolvedSpecs,
        rule: impl Fn(Option<&str>) -> AgreementRule,
    ) -> Vec<Mismatch> {
        let device = MxDevice::new(B::Device::default(), specs).expect("resolved specs");
        let run = || {
            with_rank!(self.out.rank(), D => {
                let trained = self.train::<B, D>(op, &device);
                (trained, self.infer::<B, D>(op, &device))
            })
        };
        let (trained, inferred) = match panic::catch_unwind(panic::AssertUnwindSafe(run)) {
            Ok(Some((Some(trained), Some(inferred)))) => (trained, inferred),
            Ok(_) => return vec![Mismatch::new("in", "a rank that no op has")],
            Err(panic) => return vec![Mismatch::new("panic", panic_message(&*panic))],
        };

        let mut mismatches = Vec::new();
        mismatches.extend(compare("out", &trained.out, self.out, rule(None)));
        let name = "out of MxBackend, against that of MxAutodiff";
        mismatches.extend(compare(name, &inferred, &trained.out, AgreementRule::Bits));
        if let Some(injected) = &trained.injected {
            let name = "grad_out, as it arrives at the op";
            mismatches.extend(compare(name, injected, self.grad_out, AgreementRule::Bits));
        }
        for (&name, &expected) in &self.grads {
            let tensor = format!("grad/{name}");
            mismatches.extend(match trained.grads.get(name) {
                Some(got) => compare(&tensor, got, expected, rule(Some(name))),
                None => Some(Mismatch::new(tensor, "there is no gradient")),
            });
        }
        mismatches
    }

    fn train<B: MxKernels, const D: usize>(
        &self,
        op: &impl Op,
        device: &MxDevice<B::Device>,
    ) -> Option<Trained> {
        let inputs = OpInputs::<MxAutodiff<B>>::new(&self.inputs, op.transposed(), device)?;
        let out = op.forward::<_, D>(&inputs);
        let mut trained = Trained {
            out: array(out.clone()),
            injected: None,
            grads: BTreeMap::new(),
        };
        if trained.out.shape != self.grad_out.shape {
            return Some(trained);
        }
        // The gradient is injected right behind a tensor with the values of `out`, too, to see it arrive.
        let probe = tensor::<MxAutodiff<B>, D>(&trained.out, device).require_grad();
        let grads = self.inject(probe.clone(), device).backward();
        trained.injected = probe.grad(&grads).map(array);

        let grads = self.inject(out, device).backward();
        trained.grads = inputs.gradients(&grads);
        Some(trained)
    }

    /// A loss whose gradient with respect to `out` is exactly `grad_out`: nothing here is rounded.
    fn inject<B: MxKernels, const D: usize>(
        &self,
        out: Tensor<MxAutodiff<B>, D>,
        device: &MxDevice<B::Device>,
    ) -> Tensor<MxAutodiff<B>, 1> {
        let grad_out = tensor(self.grad_out, device);
        (full_precision(out) * full_precision(grad_out)).sum()
    }

    fn infer<B: MxKernels, const D: usize>(
        &self,
        op: &impl Op,
        device: &MxDevice<B::Device>,
    ) -> Option<Array<f32>> {
        let inputs = OpInputs::<MxBackend<B>>::new(&self.inputs, op.transposed(), device)?;
        Some(array(op.forward::<_, D>(&inputs)))
    }
}

/// The results of an op.
struct Trained {
    out: Array<f32>,
    /// The gradient that reached the output.
    injected: Option<Array<f32>>,
    grads: BTreeMap<String, Array<f32>>,
}

/// The array as a tensor on `device`.
pub(crate) fn tensor<B: Backend, const D: usize>(
    array: &Array<f32>,
    device: &B::Device,
) -> Tensor<B, D> {
    let data = TensorData::new(array.values.clone(), array.shape.clone());
    Tensor::from_data(data, device)
}

/// The values of a tensor.
pub(crate) fn array<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> Array<f32> {
    let data = tensor.into_data();
    let shape = data.shape.to_vec();
    let values = data.into_vec().expect("golden tensors are float32");
    Array { shape, values }
}

/// The same tensor where the compiler cannot see that both ranks are one.
pub(crate) fn same_rank<B: Backend, const D: usize, const D2: usize>(
    tensor: Tensor<B, D>,
) -> Tensor<B, D2> {
    assert_eq!(D, D2, "rank of the output");
    Tensor::from_primitive(TensorPrimitive::Float(primitive(tensor)))
}

fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

fn panic_message(panic: &dyn std::any::Any) -> String {
    let text = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    text.unwrap_or_else(|| "without a message".to_owned())
}
