//! Events that the decorator shows to observers.
//!
//! An [`Observer`] sees products, elementwise roundings and the calls of layers, and may have ops computed by other specs: a
//! recorder, a diagnosis, a calibration. The decorator calls every installed observer through this trait. Without an
//! observer an op reads atomic counters and does nothing else.
//!
//! An observer is installed [for the process](install) or [for one thread](install_on_this_thread). A thread's observer
//! hides the process's observers from that thread: a recorder of the training does not see a diagnosis on one thread.
//!
//! ```
//! # extern crate burn_mx_core as burn_mx;
//! use std::sync::{Arc, Mutex};
//!
//! use burn_core::tensor::Tensor;
//! use burn_flex::{Flex, FlexDevice};
//! use burn_mx::hooks::{self, Events, LayerCall, Observer};
//! use burn_mx::{MxBackend, MxDevice, MxSpecs};
//!
//! /// Counts products.
//! #[derive(Default)]
//! struct Count(Mutex<usize>);
//!
//! impl Observer for Count {
//!     fn events(&self) -> Events {
//!         Events::PRODUCTS
//!     }
//!
//!     fn product(&self, _: &hooks::ProductCall) -> Option<Box<dyn hooks::ProductObserver>> {
//!         *self.0.lock().unwrap() += 1;
//!         None // neither operands nor result are looked at
//!     }
//! }
//!
//! let device = MxDevice::new(FlexDevice, "mxfp8_e4m3")?;
//! let x = Tensor::<MxBackend<Flex>, 2>::ones([2, 32], &device);
//! let count = Arc::new(Count::default());
//! let installed = hooks::install_on_this_thread(count.clone());
//! let _ = x.clone().matmul(x.transpose());
//! drop(installed);
//! assert_eq!(*count.0.lock().unwrap(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(super) mod alone;
mod dialect;
#[cfg(burn_mx_distributed)]
pub(crate) mod gradients;
mod installed;
mod layer;
mod layer_op;
mod product;
mod rounded_operand;
mod rounding;
mod statistics;
mod thread;
mod wanted;

use burn_backend::Shape;
use microscaling::{BlockFormat, ErrorParts};
use microscaling_product::{Accumulation, Side, SumStatistics};

pub use crate::semantics::attention::scope::AttentionMatmul;
use crate::specs::{PointFormat, Slot};
pub use crate::specs::{ProductKind, ProductOp};
pub use crate::tensor::shared_specs::{SharedSpecs, label};
pub use alone::alone;
pub use dialect::DialectDifference;
#[cfg(burn_mx_distributed)]
pub use gradients::{GradientExchange, GradientMessage, InstalledExchange, install_exchange};
pub use installed::{Installed, install, install_on_this_thread};
pub(crate) use installed::{
    columns, end_of_backward_pass, name_attention, name_elementwise, name_product, specs_of_op,
    specs_of_product, weight_used,
};
pub use layer::LayerCall;
pub(crate) use layer::layer;
pub use layer_op::LayerOp;
pub(crate) use product::{Original, ProductObservers};
pub(crate) use rounded_operand::RoundedOperand;
pub(crate) use rounding::{RoundingObservers, elementwise};
pub use statistics::ObservedStatistics;
pub(crate) use thread::{Thread, again, tracked};
pub use thread::{in_backward_pass, in_training, thread_of_work, work_for};

bitflags::bitflags! {
    /// The events that an [`Observer`] wants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Events: u8 {
        /// Products, their operands and results ([`Observer::product`]), and when a backward pass is over.
        const PRODUCTS = 1;
        /// Roundings to the elementwise format ([`Observer::elementwise`]).
        const ELEMENTWISE = 1 << 1;
        /// Calls of layers that have a weight ([`Observer::layer`]).
        const LAYERS = 1 << 2;
        /// The specs that ops are computed by ([`Observer::specs_of_op`], [`Observer::specs_of_product`]).
        const SPECS = 1 << 3;
        /// Uses of weights, emulated or not ([`Observer::weight_used`]).
        const WEIGHTS = 1 << 4;
        /// The scores of the columns of linear layers whose hot columns are fixed ([`Observer::columns`]).
        const COLUMNS = 1 << 5;
    }
}

/// Watches the decorator's computations. Each method is called on the thread that computes, before or after the op. A
/// method must not compute on emulated tensors.
pub trait Observer: Send + Sync {
    /// The events that the observer is told of. [`install`] asks once.
    fn events(&self) -> Events;

    /// A product is about to be computed. `None` if neither its operands nor its result are to be seen.
    fn product(&self, call: &ProductCall) -> Option<Box<dyn ProductObserver>> {
        let _ = call;
        None
    }

    /// A product of attention whose points have formats is about to be computed, one of the forward pass for each tile, or one for a gradient. `None` if
    /// neither its operands nor its result are to be seen.
    fn attention_product(&self, call: &AttentionProduct) -> Option<Box<dyn ProductObserver>> {
        let _ = call;
        None
    }

    /// An elementwise op is about to be computed that rounds. `None` if its roundings are not to be seen.
    fn elementwise(&self, call: &ElementwiseCall) -> Option<Box<dyn RoundingObserver>> {
        let _ = call;
        None
    }

    /// The name for a product of the forward pass whose operands have none. Its gradients get the same one.
    fn name_product(&self, op: ProductOp) -> Option<&'static str> {
        let _ = op;
        None
    }

    /// The name for an elementwise op of the forward pass whose operands have none, or for an attention whose points have formats. Its gradient gets
    /// the same one.
    fn name_elementwise(&self) -> Option<&'static str> {
        None
    }

    /// A backward pass of `MxAutodiff` is over on this thread.
    fn end_of_backward_pass(&self) {}

    /// Whether [`layer`](Self::layer) is to be called for the layer whose weight has this label.
    fn wants_layer(&self, label: &'static str) -> bool {
        let _ = label;
        false
    }

    /// A linear layer or a convolution with a labelled weight was computed.
    fn layer(&self, call: &LayerCall<'_>) {
        let _ = call;
    }

    /// A product with the weight of this label is about to be computed, emulated or not.
    fn weight_used(&self, label: &'static str) {
        let _ = label;
    }

    /// Whether [`columns`](Self::columns) is to be called for the linear layer whose weight has this label.
    fn wants_columns(&self, label: &'static str) -> bool {
        let _ = label;
        false
    }

    /// A linear layer is about to be computed whose [`HotColumns`](crate::HotColumns) are fixed, and its columns have these scores.
    fn columns(&self, label: &'static str, scores: &[f32]) {
        let _ = (label, scores);
    }

    /// The specs to compute an op by whose tensors have these.
    fn specs_of_op(&self, specs: &'static SharedSpecs) -> &'static SharedSpecs {
        specs
    }

    /// The specs to compute a product by whose op has these.
    fn specs_of_product(
        &self,
        kind: ProductKind,
        specs: &'static SharedSpecs,
    ) -> &'static SharedSpecs {
        let _ = kind;
        specs
    }
}

/// A product that is about to be computed.
#[derive(Clone, Copy, Debug)]
pub struct ProductCall {
    /// The op of Burn that it belongs to.
    pub op: ProductOp,
    /// Whether the product computes an output or a gradient, and whose.
    pub kind: ProductKind,
    /// The specs that it is computed by.
    pub specs: &'static SharedSpecs,
    /// The label of its weight, or the name that [`Observer::name_product`] gave it.
    pub label: Option<&'static str>,
}

/// A product of attention whose points have formats ([`MxSpecs::attention`](crate::MxSpecs::attention)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttentionProduct {
    /// Which product of the forward pass it is, or belongs to.
    pub which: AttentionMatmul,
    /// The operand of `which` whose gradient the product computes; `None` in the forward pass.
    pub gradient_of: Option<Side>,
    /// The name that [`Observer::name_elementwise`] gave the attention in the forward pass.
    pub label: Option<&'static str>,
    /// The specs that it is computed by.
    pub specs: &'static SharedSpecs,
    /// The formats of both operands; `None` is float32.
    pub formats: [Option<PointFormat>; 2],
    /// The matrix unit that sums up; `None` is float32.
    pub accumulator: Option<Accumulation>,
    /// Elements of both operands.
    pub elements: [u64; 2],
    /// The size of the product.
    pub size: ProductSize,
}

impl AttentionProduct {
    /// `qk` and `pv`, and the gradients `dq`, `dk`, `dp` and `dv`.
    pub fn name(&self) -> &'static str {
        match (self.which, self.gradient_of) {
            (which, None) => which.name(),
            (AttentionMatmul::Scores, Some(Side::Lhs)) => "dq",
            (AttentionMatmul::Scores, Some(Side::Rhs)) => "dk",
            (AttentionMatmul::Value, Some(Side::Lhs)) => "dp",
            (AttentionMatmul::Value, Some(Side::Rhs)) => "dv",
        }
    }
}

/// The size of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProductSize {
    /// Multiplications, each with an addition.
    pub macs: u64,
    /// Elements of the result.
    pub result_elements: u64,
}

/// Observes one product.
pub trait ProductObserver {
    /// The name by which the roundings of the product's result to the elementwise format go.
    fn layer(&self) -> Option<&'static str> {
        None
    }

    /// Whether operands of this slot are to be seen.
    fn wants_operand(&self, slot: Slot) -> bool {
        let _ = slot;
        false
    }

    /// An operand was quantized, or is about to be.
    fn operand(&self, operand: &dyn OperandView) {
        let _ = operand;
    }

    /// The product was computed and has this size.
    fn size(&self, size: ProductSize) {
        let _ = size;
    }

    /// Whether [`result`](Self::result) is called. The decorator then multiplies the unquantized operands, too, and compares.
    fn wants_result(&self) -> bool {
        false
    }

    /// Shows the effect of the operands' quantization in blocks on the result.
    fn result(&self, statistics: ObservedStatistics) {
        let _ = statistics;
    }

    /// `None` if [`sums`](Self::sums) is not called. Else further accumulators that some of the same sums are computed by.
    fn wants_sums(&self) -> Option<&[Accumulation]> {
        None
    }

    /// The error of the sums of the product's accumulator, and then the errors of each further accumulator. `None` stands for an
    /// accumulator that does not take the operands. Only products with an accumulator have these figures. The figures cover some of
    /// the sums, which are computed a second time.
    fn sums(&self, statistics: &[Option<SumStatistics>]) {
        let _ = statistics;
    }
}

/// An elementwise op that is about to be computed.
#[derive(Clone, Copy, Debug)]
pub struct ElementwiseCall {
    /// Its name: `add`, `gelu`, `layer_norm`.
    pub op: &'static str,
    /// The label of a parameter among its operands, or the name that [`Observer::name_elementwise`] gave it.
    pub label: Option<&'static str>,
    /// The format that it rounds to: a float, or the format of a point of attention.
    pub format: PointFormat,
}

/// Observes the roundings of one elementwise op.
pub trait RoundingObserver {
    /// A rounding, by its name: `lhs`, `output`, `input gradient`.
    fn rounding(&self, name: &'static str, view: &dyn View);
}

/// A tensor before and after it was rounded or quantized.
pub trait View {
    /// The shape of the tensor.
    fn shape(&self) -> Shape;

    /// The error that rounding or quantization made, in figures.
    fn statistics(&self) -> ObservedStatistics;

    /// Its values before and after, in row-major order; waits for the device.
    fn values(&self) -> [Vec<f32>; 2];
}

/// An operand of a product before and after it is quantized in blocks. The operand before quantization is rounded to the
/// elementwise format, and in the basis of the Hadamard transform, if there is one.
pub trait OperandView: View {
    /// The slot of the specs whose format it has.
    fn slot(&self) -> Slot;

    /// Which operand of a matrix product it is.
    fn side(&self) -> Option<Side>;

    /// Its block format.
    fn format(&self) -> Option<BlockFormat>;

    /// The format of its point, for an operand of attention whose points have formats, or for [hot](Self::is_hot) columns.
    fn point(&self) -> Option<PointFormat> {
        None
    }

    /// Whether these are the [hot columns](crate::HotColumns) of an operand, which form a product of their own. The other columns are
    /// an operand, too. Both products have one result.
    fn is_hot(&self) -> bool {
        false
    }

    /// The statistics of the operand under these specs. Each `number` draws other random numbers, and training draws
    /// none of these.
    fn statistics_by(&self, specs: &'static SharedSpecs, number: u64) -> ObservedStatistics;

    /// The parts of the error that quantization in blocks made; waits for the device. `None` where [`ErrorParts::of`] gives none,
    /// where another tool's rules (`dialect_*`) or a calibration choose the scales, and where elements are rounded stochastically.
    fn error_parts(&self) -> Option<ErrorParts>;

    /// The operand by its dialect beside the operand by its format's own rule; waits for the device. `None` without a dialect.
    fn dialect_difference(&self) -> Option<DialectDifference>;

    /// [`error_parts`](Self::error_parts) under these specs, with the random numbers of [`statistics_by`](Self::statistics_by).
    fn error_parts_by(&self, specs: &'static SharedSpecs, number: u64) -> Option<ErrorParts>;
}
