//! How much the result of a layer changes if its weight alone is quantized, weighted by the gradient.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_backend::tensor::FloatTensor;
use burn_backend::{AutodiffBackend, read_sync};
use burn_core::module::AutodiffModule;
use burn_core::tensor::Tensor;
use burn_mx_core::hooks::{
    self, Events, LayerCall, Observer, OperandView, ProductCall, ProductKind, ProductObserver,
};
use burn_mx_core::{
    MxBackend, MxKernels, MxSpecs, MxTensorOps, ResolvedSpecs, Slot, SlotFormat, SpecsError,
};
use burn_mx_module::{label_parameters, set_specs, set_specs_at};
use microscaling::{BlockFormat, ElementFormat};

use super::{SearchError, Sensitivity};
use crate::config::named_specs;

/// The score by which NVIDIA Model Optimizer's `auto_quantize` chooses formats, for the weights of a trained model. The score of a
/// layer in a format is Σ (∂L/∂y · (y_f − y))². The sum goes over the batches and the elements of the layer's result y. For y_f the weight
/// has the format, and everything else is unquantized. As in Model Optimizer, each product is clamped to ±1e10, and a
/// format has at most the score of each format with fewer bits.
///
/// `loss` and `forward` compute the model on a batch, the same each time. Model and batches are on devices without
/// emulation. Layers are linear layers and convolutions. The score of a format is [`Sensitivity::noise`], with the weight 1.
/// [`Search::find_by`](super::Search::find_by) chooses by such scores.
///
/// Each layer and format takes a forward pass for each batch. `progress(done, all)` counts them.
///
/// # Errors
///
/// If a format is not known, or has no block format for weights; if a layer has no gradient, or computes another result in the
/// second pass.
pub fn output_sensitivities<A, B, M, T, R>(
    model: &M,
    formats: &[String],
    batches: &[T],
    loss: impl Fn(&M, &T) -> Tensor<A, 1> + Sync,
    forward: impl Fn(&M::InnerModule, &T) -> R + Sync,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<Sensitivity>, SearchError>
where
    A: AutodiffBackend<InnerBackend = MxBackend<B>> + MxTensorOps,
    B: MxKernels,
    M: AutodiffModule<A> + Sync,
    M::InnerModule: Sync,
    T: Sync,
{
    let formats = formats.iter().map(|name| Alone::new(name));
    let mut formats: Vec<Alone> = formats.collect::<Result<_, SearchError>>()?;
    formats.sort_by(|a, b| a.bits.total_cmp(&b.bits));
    let trained = label_parameters(set_specs(model.clone(), &watched()?));
    let float = set_specs(model.valid(), &MxSpecs::none().resolve()?);
    let float = label_parameters(float);
    let mut sums: Vec<Sensitivity> = Vec::new();
    let (mut done, mut all) = (0, 0);
    for (number, batch) in batches.iter().enumerate() {
        let gradients = seen::<B>(PassPart::Gradients, || {
            drop(loss(&trained, batch).backward())
        });
        let exact = seen::<B>(PassPart::Results(None), || drop(forward(&float, batch)));
        all = all.max(exact.len() * formats.len() * batches.len());
        // A sum over fewer batches than the others' would be no score beside theirs.
        let is_passed = |known: &&Sensitivity| exact.iter().any(|layer| layer.label == known.layer);
        if let Some(left_out) = sums.iter().find(|known| !is_passed(known)) {
            return Err(SearchError::Layer {
                layer: left_out.layer.clone(),
                reason: NOT_EVERY_BATCH,
            });
        }
        for layer in exact {
            let mut with_gradient = gradients.iter();
            let gradient = with_gradient.find(|other| other.label == layer.label);
            let gradient = gradient.map_or_else(Vec::new, |other| other.gradients_of(&layer));
            let error = |reason| SearchError::Layer {
                layer: layer.label.to_owned(),
                reason,
            };
            let exact = layer.results();
            if gradient.len() != exact.len() {
                return Err(error("the loss has no gradient for the result"));
            }
            let mut noise = BTreeMap::new();
            for format in &formats {
                let quantized = set_specs_at(float.clone(), layer.label, &format.specs);
                let quantized = quantized.expect("the label is a path of the model");
                let results = PassPart::Results(Some(layer.label));
                let seen = seen::<B>(results, || drop(forward(&quantized, batch)));
                let results = seen.first().map_or_else(Vec::new, LayerCalls::results);
                if results.len() != exact.len() {
                    return Err(error("two passes on one batch differ"));
                }
                let score = score(&results, &exact, &gradient);
                noise.insert(format.name.clone(), score);
                done += 1;
                progress(done, all);
            }
            let known = sums.iter_mut().find(|known| known.layer == layer.label);
            match known {
                Some(known) => {
                    for (name, new) in noise {
                        *known.noise.entry(name).or_default() += new;
                    }
                }
                None if number == 0 => sums.push(Sensitivity {
                    layer: layer.label.to_owned(),
                    product: ProductKind::Forward,
                    slot: Slot::W,
                    elements: layer.elements as f64,
                    macs: 0.0,
                    result_elements: 0.0,
                    weight: 1.0,
                    noise,
                }),
                None => return Err(error(NOT_EVERY_BATCH)),
            }
        }
    }
    for place in &mut sums {
        limit_by_fewer_bits(&mut place.noise, &formats);
    }
    Ok(sums)
}

/// Σ (∂L/∂y · (y_f − y))² of a layer's result on a batch.
fn score(quantized: &[f32], exact: &[f32], gradient: &[f32]) -> f64 {
    let results = quantized.iter().zip(exact).zip(gradient);
    let squares = results.map(|((quantized, exact), gradient)| {
        let change = f64::from(*gradient) * (f64::from(*quantized) - f64::from(*exact));
        change.clamp(-LIMIT, LIMIT).powi(2)
    });
    squares.sum()
}

/// Gives each format at most the score of each format with fewer bits. The formats are in the order of their bits.
fn limit_by_fewer_bits(scores: &mut BTreeMap<String, f64>, formats: &[Alone]) {
    let mut least = f64::INFINITY;
    for format in formats {
        let score = scores.entry(format.name.clone()).or_default();
        least = least.min(*score);
        *score = least;
    }
}

const NOT_EVERY_BATCH: &str = "not every batch passes the layer";

/// Model Optimizer's limit of a product.
const LIMIT: f64 = 1e10;

/// Specs that quantize weights of forward products alone.
struct Alone {
    name: String,
    specs: ResolvedSpecs,
    bits: f64,
}

impl Alone {
    fn new(name: &str) -> Result<Self, SearchError> {
        let error = |reason: String| SearchError::Format {
            format: name.to_owned(),
            reason,
        };
        let own = named_specs(name).map_err(error)?;
        let format = own.resolve()?.block_format(Slot::W);
        let format = format.ok_or_else(|| error("weights have no block format".to_owned()))?;
        let mut specs = MxSpecs {
            bfloat: 0,
            fp: 0,
            ..own
        };
        for slot in Slot::ALL {
            *specs.slot_format_mut(slot) = None;
        }
        specs.w_elem_format = Some(SlotFormat::Block(format));
        Ok(Self {
            name: name.to_owned(),
            specs: specs.resolve()?,
            bits: format.bits_per_element(),
        })
    }
}

/// Specs by which observers see the gradients of results. Neither results nor these gradients change: only the input is
/// quantized from which a weight gradient is computed.
fn watched() -> Result<ResolvedSpecs, SpecsError> {
    let input = BlockFormat::mx(ElementFormat::FP8_E4M3, 32);
    let specs = MxSpecs {
        a_elem_format_bp: Some(SlotFormat::Block(input)),
        ..MxSpecs::none()
    };
    specs.resolve()
}

/// The calls of a layer in a pass, one after another.
struct LayerCalls {
    /// The label of its weight.
    label: &'static str,
    /// Elements of the weight.
    elements: usize,
    calls: Vec<Call>,
}

/// A call of a layer in a forward pass, or its part of a backward pass.
struct Call {
    input: Vec<f32>,
    /// The result, or the gradient of the result.
    result: Vec<f32>,
}

impl LayerCalls {
    /// The results of all calls.
    fn results(&self) -> Vec<f32> {
        let results = self.calls.iter().map(|call| &call.result[..]);
        results.collect::<Vec<_>>().concat()
    }

    /// The gradients of the calls of a forward pass. A backward pass visits calls in another order. Calls with the closest inputs belong
    /// together. Calls with the same input have the same result, and need no order.
    fn gradients_of(&self, forward: &Self) -> Vec<f32> {
        let mut rest: Vec<&Call> = self.calls.iter().collect();
        let mut gradients = Vec::new();
        for call in &forward.calls {
            let distance = |other: &Call| -> f64 {
                let pairs = call.input.iter().zip(&other.input);
                pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum()
            };
            let same = rest.iter().enumerate();
            let same = same.filter(|(_, other)| other.result.len() == call.result.len());
            let closest = same.min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)));
            if let Some(at) = closest.map(|(at, _)| at) {
                gradients.extend_from_slice(&rest.swap_remove(at).result);
            }
        }
        gradients
    }
}

/// The part of a pass to look at.
#[derive(Clone, Copy)]
enum PassPart {
    /// The results of all layers, or of the layer with this label alone.
    Results(Option<&'static str>),
    /// The gradients of all results.
    Gradients,
}

/// The layers of a pass.
fn seen<B: MxKernels>(what: PassPart, pass: impl FnOnce() + Send) -> Vec<LayerCalls> {
    let layers = Layers::default();
    hooks::alone(|| {
        let watch = Watch::<B> {
            what,
            layers: layers.clone(),
            backend: PhantomData,
        };
        let _installed = hooks::install_on_this_thread(Arc::new(watch));
        pass();
    });
    std::mem::take(&mut *layers.lock())
}

#[derive(Clone, Default)]
struct Layers(Arc<Mutex<Vec<LayerCalls>>>);

impl Layers {
    fn lock(&self) -> MutexGuard<'_, Vec<LayerCalls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, label: &'static str, elements: usize, call: Call) {
        let mut layers = self.lock();
        match layers.iter_mut().find(|layer| layer.label == label) {
            Some(layer) => layer.calls.push(call),
            None => layers.push(LayerCalls {
                label,
                elements,
                calls: vec![call],
            }),
        }
    }
}

struct Watch<B> {
    what: PassPart,
    layers: Layers,
    backend: PhantomData<fn() -> B>,
}

impl<B: MxKernels> Observer for Watch<B> {
    fn events(&self) -> Events {
        match self.what {
            PassPart::Results(_) => Events::LAYERS,
            PassPart::Gradients => Events::PRODUCTS,
        }
    }

    fn wants_layer(&self, label: &'static str) -> bool {
        match self.what {
            PassPart::Results(wanted) => wanted.is_none_or(|wanted| wanted == label),
            PassPart::Gradients => false,
        }
    }

    fn layer(&self, call: &LayerCall<'_>) {
        let tensors = call.input::<B>().zip(call.output::<B>());
        if let Some((input, result)) = tensors {
            let [input, result] = [input, result].map(values::<B>);
            let elements = call.weight.num_elements();
            self.layers
                .add(call.label, elements, Call { input, result });
        }
    }

    fn product(&self, call: &ProductCall) -> Option<Box<dyn ProductObserver>> {
        let gradient = Gradient {
            label: call.label?,
            layers: self.layers.clone(),
            operands: RefCell::default(),
        };
        let is_wanted = call.kind == ProductKind::WeightGradient;
        is_wanted.then(|| Box::new(gradient) as Box<dyn ProductObserver>)
    }
}

fn values<B: MxKernels>(tensor: FloatTensor<B>) -> Vec<f32> {
    let data = read_sync(B::float_into_data(tensor));
    let data = data.unwrap_or_else(|error| panic!("burn-mx: reading a tensor failed: {error}"));
    data.iter::<f32>().collect()
}

/// The product of a weight gradient.
struct Gradient {
    label: &'static str,
    layers: Layers,
    /// The operands that were seen, by whether they are the output gradient.
    operands: RefCell<[Option<Vec<f32>>; 2]>,
}

impl ProductObserver for Gradient {
    fn wants_operand(&self, slot: Slot) -> bool {
        matches!(slot, Slot::ABp | Slot::ABpEx)
    }

    fn operand(&self, operand: &dyn OperandView) {
        if operand.is_hot() {
            return;
        }
        let [values, _] = operand.values();
        let mut operands = self.operands.borrow_mut();
        operands[usize::from(operand.slot() == Slot::ABpEx)] = Some(values);
        if let [Some(input), Some(result)] = &mut *operands {
            let [input, result] = [input, result].map(std::mem::take);
            self.layers.add(self.label, 0, Call { input, result });
        }
    }
}
