//! The products of a model by shape and format, for [models of their cost](burn_mx_cost).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_backend::Shape;
use burn_mx_core::hooks::{
    self, AttentionMatmul, AttentionProduct, Events, LayerCall, Observer, OperandView, ProductCall,
    ProductKind, ProductObserver, ProductOp, ProductSize, SharedSpecs,
};
use burn_mx_core::{AttentionBackward, PointFormat, ResolvedSpecs, Slot};
use burn_mx_cost::{Numbers, Operand, Product};
use microscaling::{BlockFormat, ElementFormat, FloatFormat};
use microscaling_product::{Accumulation, OperandKind, OperandType, Side};

use crate::config::Pass;

/// The products of what `forward` computes on this thread: of layers with a [labelled](burn_mx_module::label_parameters) weight, and
/// emulated products of two activations.
///
/// `forward` is a forward pass. With [`Pass::Training`] each product brings the two products for gradients, with their formats in the
/// specs. Both count also where a backward pass would leave one out, such as the gradient of the first layer's input. A layer without specs
/// counts as float32.
pub fn products(pass: Pass, forward: impl FnOnce()) -> Vec<Product> {
    let seen = Arc::new(Mutex::new(ForwardProducts::default()));
    let installed = hooks::install_on_this_thread(Arc::new(Eye(Arc::clone(&seen))));
    forward();
    drop(installed);
    let products = std::mem::take(&mut lock(&seen).products);
    let products = products.iter().flat_map(|seen| match seen {
        Seen::Product(forward) => forward.all(pass),
        Seen::Attention(call) => of_attention(call, pass),
    });
    products.collect()
}

/// A forward product.
struct Forward {
    layer: String,
    specs: Option<&'static SharedSpecs>,
    /// Which operands are weights.
    is_weight: [bool; 2],
    /// The slot of the output gradient where a weight's gradient is computed.
    output_for_weight: Slot,
    macs: f64,
    /// Of the operands, and of the result.
    elements: [f64; 3],
}

impl Forward {
    /// The product, and with [`Pass::Training`] those for the gradients of both operands.
    fn all(&self, pass: Pass) -> Vec<Product> {
        let [lhs, rhs, result] = self.elements;
        let forward = self
            .is_weight
            .map(|weight| if weight { Slot::W } else { Slot::A });
        let saved = self
            .is_weight
            .map(|weight| if weight { Slot::WBp } else { Slot::ABp });
        let output = self.is_weight.map(|weight| match weight {
            true => self.output_for_weight,
            false => Slot::ABpOs,
        });
        let mut all = vec![self.product(forward, [lhs, rhs, result], ProductKind::Forward)];
        if pass == Pass::Training {
            let kind = self.is_weight.map(|weight| match weight {
                true => ProductKind::WeightGradient,
                false => ProductKind::InputGradient,
            });
            all.push(self.product([output[0], saved[1]], [result, rhs, lhs], kind[0]));
            all.push(self.product([saved[0], output[1]], [lhs, result, rhs], kind[1]));
        }
        all
    }

    fn product(&self, slots: [Slot; 2], elements: [f64; 3], kind: ProductKind) -> Product {
        let specs = self.specs.map(SharedSpecs::resolved);
        Formats {
            points: slots.map(|slot| Some(PointFormat::Block(self.block_format(specs, slot)?))),
            elementwise: specs.and_then(|specs| {
                let is_emulated = kind == ProductKind::Forward || specs.quantize_backprop();
                specs.float_format().filter(|_| is_emulated)
            }),
            accumulation: specs.and_then(|specs| specs.accumulator(kind)),
        }
        .product(&self.layer, self.macs, elements)
    }

    fn block_format(&self, specs: Option<&ResolvedSpecs>, slot: Slot) -> Option<BlockFormat> {
        let specs = specs?;
        let has_blocks = self.is_weight != [false; 2] || specs.quantize_matmul();
        specs.block_format(slot).filter(|_| has_blocks)
    }
}

/// A product of attention whose points have formats, and with [`Pass::Training`] those for the gradients of both operands.
fn of_attention(call: &AttentionProduct, pass: Pass) -> Vec<Product> {
    let layer = format!("attention {}", call.which.name());
    let ([lhs, rhs], result) = (call.elements, call.size.result_elements);
    let product = |points: [Option<PointFormat>; 2], elements: [u64; 3], accumulation| {
        Formats {
            points,
            elementwise: None,
            accumulation,
        }
        .product(
            &layer,
            call.size.macs as f64,
            elements.map(|count| count as f64),
        )
    };
    let mut all = vec![product(call.formats, [lhs, rhs, result], call.accumulator)];
    if pass == Pass::Inference {
        return all;
    }
    let specs = call.specs.resolved();
    let points = specs.attention().copied().unwrap_or_default();
    let is_quantized = specs.quantize_backprop() && points.backward == AttentionBackward::Quantized;
    // As the gradient of the other operand reads this one: in another format, or as the forward product.
    let saved =
        |own: Option<PointFormat>, side: usize| own.or(call.formats[side]).filter(|_| is_quantized);
    let [of_lhs, of_rhs] = match call.which {
        AttentionMatmul::Scores => [
            (
                points.d_scores,
                saved(points.k_bp, 1),
                points.dq_accumulator,
            ),
            (
                points.d_scores,
                saved(points.q_bp, 0),
                points.dk_accumulator,
            ),
        ],
        AttentionMatmul::Value => {
            let of_dp = points.d_output_dp.or(points.d_output);
            let of_dv = saved(points.probabilities_bp, 0);
            [
                (of_dp, saved(points.v_bp, 1), points.dp_accumulator),
                (points.d_output, of_dv, points.dv_accumulator),
            ]
        }
    };
    let (gradient, saved, unit) = of_lhs;
    all.push(product([gradient, saved], [result, rhs, lhs], unit));
    let (gradient, saved, unit) = of_rhs;
    all.push(match call.which {
        AttentionMatmul::Scores => product([gradient, saved], [result, lhs, rhs], unit),
        AttentionMatmul::Value => product([saved, gradient], [lhs, result, rhs], unit),
    });
    all
}

/// The formats of a product.
pub(crate) struct Formats {
    /// The formats of the operands, blocks but in attention.
    pub(crate) points: [Option<PointFormat>; 2],
    /// The format of operands without blocks; `None`: float32.
    pub(crate) elementwise: Option<FloatFormat>,
    pub(crate) accumulation: Option<Accumulation>,
}

impl Formats {
    /// A product in these formats, with the elements of its operands and of its result.
    pub(crate) fn product(&self, layer: &str, macs: f64, elements: [f64; 3]) -> Product {
        let operand = |side: usize| Operand {
            numbers: match self.points[side] {
                Some(PointFormat::Block(format)) => Numbers::from(format),
                Some(PointFormat::Element(element)) => Numbers::from(element),
                Some(PointFormat::Float(format)) => Numbers::float(Some(format)),
                _ => Numbers::float(self.elementwise),
            },
            elements: elements[side],
        };
        Product {
            layer: layer.to_owned(),
            macs,
            lhs: operand(0),
            rhs: operand(1),
            result_elements: elements[2],
            accumulator: self.accumulation.and_then(|accumulation| {
                let is_rounded = self.elementwise.is_some();
                let [lhs, rhs] = self.points.map(|format| kind_of(format, is_rounded));
                Accumulation::of(&accumulation, lhs?, rhs?).ok()
            }),
        }
    }
}

/// The operand's kind for an accumulator. Elementwise formats count as bfloat16.
fn kind_of(format: Option<PointFormat>, is_rounded: bool) -> Option<OperandKind> {
    match format {
        Some(PointFormat::Block(format)) => OperandKind::of_format(&format),
        Some(PointFormat::Element(element)) => Some(element.into()),
        Some(_) => Some(ElementFormat::BFLOAT16.into()),
        None if is_rounded => Some(ElementFormat::BFLOAT16.into()),
        None => Some(OperandType::Float32.into()),
    }
}

/// A product that was seen.
enum Seen {
    Product(Forward),
    Attention(Box<AttentionProduct>),
}

/// The products of a forward pass so far.
#[derive(Default)]
struct ForwardProducts {
    products: Vec<Seen>,
    /// The label and the specs of the layer's product that was computed last.
    of_layer: Option<(Option<&'static str>, &'static SharedSpecs)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Eye(Arc<Mutex<ForwardProducts>>);

impl Observer for Eye {
    fn events(&self) -> Events {
        Events::PRODUCTS | Events::LAYERS
    }

    fn wants_layer(&self, _: &'static str) -> bool {
        true
    }

    fn attention_product(&self, call: &AttentionProduct) -> Option<Box<dyn ProductObserver>> {
        if call.gradient_of.is_none() {
            let seen = Seen::Attention(Box::new(*call));
            lock(&self.0).products.push(seen);
        }
        None
    }

    /// The products of a layer come before the layer itself, which knows the shapes.
    fn product(&self, call: &ProductCall) -> Option<Box<dyn ProductObserver>> {
        if call.kind != ProductKind::Forward {
            return None;
        }
        if call.op != ProductOp::Matmul {
            lock(&self.0).of_layer = Some((call.label, call.specs));
            return None;
        }
        Some(Box::new(Matmul {
            seen: Arc::clone(&self.0),
            layer: call.label.unwrap_or("matmul"),
            specs: call.specs,
            operands: Mutex::default(),
        }))
    }

    fn layer(&self, call: &LayerCall<'_>) {
        let mut seen = lock(&self.0);
        let of_layer = seen.of_layer.take();
        let specs = of_layer.filter(|(label, _)| *label == Some(call.label));
        let [input, weight, output] =
            [&call.input_shape, &call.weight, &call.output_shape].map(elements);
        seen.products.push(Seen::Product(Forward {
            layer: call.label.to_owned(),
            specs: specs.map(|(_, specs)| specs),
            is_weight: [false, true],
            output_for_weight: Slot::ABpEx,
            macs: call.macs() as f64,
            elements: [input, weight, output],
        }));
    }
}

fn elements(shape: &Shape) -> f64 {
    shape.iter().map(|length| *length as f64).product()
}

/// The eye on one matrix product.
struct Matmul {
    seen: Arc<Mutex<ForwardProducts>>,
    layer: &'static str,
    specs: &'static SharedSpecs,
    /// The elements of the left and the right operand, and whether it is a weight.
    operands: Mutex<[Option<(f64, bool)>; 2]>,
}

impl ProductObserver for Matmul {
    fn wants_operand(&self, _: Slot) -> bool {
        true
    }

    fn operand(&self, operand: &dyn OperandView) {
        let side = usize::from(operand.side() == Some(Side::Rhs));
        let of_operand = (elements(&operand.shape()), operand.slot() == Slot::W);
        lock(&self.operands)[side] = Some(of_operand);
    }

    fn size(&self, size: ProductSize) {
        if let [Some((lhs, lhs_is_weight)), Some((rhs, is_weight))] = *lock(&self.operands) {
            lock(&self.seen).products.push(Seen::Product(Forward {
                layer: self.layer.to_owned(),
                specs: Some(self.specs),
                is_weight: [lhs_is_weight, is_weight],
                // A matrix product has one format for the output gradient.
                output_for_weight: Slot::ABpOs,
                macs: size.macs as f64,
                elements: [lhs, rhs, size.result_elements as f64],
            }));
        }
    }
}
