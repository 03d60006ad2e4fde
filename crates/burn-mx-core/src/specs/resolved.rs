//! Specs ready to compute with.

pub(super) mod static_input;
mod summary;
pub(super) mod validate;

use std::borrow::Cow;

use microscaling::{
    BlockFormat, Dialect, ElementFormat, FloatFormat, Headroom, OperandQuantization, Rounding,
    ScaleFormat, Subnormals,
};
use microscaling_product::Accumulation;

use crate::specs::{ProductKind, ProductOp};

use super::{
    AttentionSpecs, ColumnChoice, ElementwiseScope, GradientOperands, Hadamard, HotColumns,
    HotTreatment, MxSpecs, Slot, SpecsError,
};

/// Specs with every default filled in and every value checked: the only form that computes.
///
/// Comes from [`MxSpecs::resolve`]. All accessors only read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolvedSpecs {
    specs: MxSpecs,
    /// By `Slot as usize`.
    formats: [Option<BlockFormat>; Slot::ALL.len()],
    float_format: Option<FloatFormat>,
    /// The format of hot columns.
    hot_format: Option<BlockFormat>,
    /// The scales of a layer's input, if a calibration fixed them.
    pub(super) static_input: static_input::Shared,
}

/// [`ResolvedSpecs`], or a reference to them. Infallible functions take their specs as a reference to this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` are no resolved specs",
    label = "specs have to be checked and completed before they are computed with",
    note = "write `&specs.resolve()?`: `MxSpecs::resolve` gives `ResolvedSpecs`"
)]
pub trait AsResolvedSpecs: sealed::Sealed {
    /// The specs.
    fn as_resolved(&self) -> &ResolvedSpecs;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ResolvedSpecs {}
    impl<T: Sealed + ?Sized> Sealed for &T {}
}

impl AsResolvedSpecs for ResolvedSpecs {
    fn as_resolved(&self) -> &ResolvedSpecs {
        self
    }
}

impl<T: AsResolvedSpecs + ?Sized> AsResolvedSpecs for &T {
    fn as_resolved(&self) -> &ResolvedSpecs {
        (**self).as_resolved()
    }
}

/// Types that a fallible function takes as specs: [`MxSpecs`], the name of a preset, or [`ResolvedSpecs`].
pub trait ToResolvedSpecs {
    /// The specs, checked and filled in.
    ///
    /// # Errors
    ///
    /// The errors of [`MxSpecs::resolve`], or an unknown name of a preset.
    fn to_resolved(&self) -> Result<Cow<'_, ResolvedSpecs>, SpecsError>;
}

impl ToResolvedSpecs for ResolvedSpecs {
    fn to_resolved(&self) -> Result<Cow<'_, ResolvedSpecs>, SpecsError> {
        Ok(Cow::Borrowed(self))
    }
}

impl ToResolvedSpecs for MxSpecs {
    fn to_resolved(&self) -> Result<Cow<'_, ResolvedSpecs>, SpecsError> {
        self.resolve().map(Cow::Owned)
    }
}

impl ToResolvedSpecs for str {
    fn to_resolved(&self) -> Result<Cow<'_, ResolvedSpecs>, SpecsError> {
        MxSpecs::preset(self)?.resolve().map(Cow::Owned)
    }
}

impl<T: ToResolvedSpecs + ?Sized> ToResolvedSpecs for &T {
    fn to_resolved(&self) -> Result<Cow<'_, ResolvedSpecs>, SpecsError> {
        (**self).to_resolved()
    }
}

impl MxSpecs {
    /// Fills in the unset fields, as the reference's `finalize_mx_specs` does, and checks all values.
    ///
    /// The defaults, in order: `scale_bits` ← 8, `w_elem_format_bp` ← `w_elem_format`, the three `a_elem_format_bp*` ←
    /// `a_elem_format`. Then `round_weight`, `round_output`, `round_grad_weight`, `round_grad_input` and
    /// `round_mx_output` ← `round`, and last the five `round_mx_*_grad_*` ← `round_grad_input`.
    ///
    /// # Errors
    /// [`SpecsError::OutOfRange`], [`SpecsError::BfloatAndFp`] and [`SpecsError::Format`] name the field.
    /// [`SpecsError::WithoutEffect`] is for a field of MX blocks if every set slot has a whole block format.
    /// [`SpecsError::Contradiction`] is for a field that contradicts the others, [`SpecsError::Accumulator`] for
    /// operands that an accumulator does not take, and [`SpecsError::Dialect`] for a format that a tool does not have.
    pub fn resolve(&self) -> Result<ResolvedSpecs, SpecsError> {
        self.validate()?;
        let mut specs = self.clone().with_others();
        if specs.scale_bits == 0 {
            specs.scale_bits = 8;
        }
        let resolved = ResolvedSpecs::new(specs);
        resolved.check_accumulators()?;
        resolved.check_dialects()?;
        Ok(resolved)
    }
}

/// Declares the accessors of the roundings that `resolve` fills in.
macro_rules! rounding_accessors {
    ($($field:ident)*) => {$(
        #[doc = concat!("[`MxSpecs::", stringify!($field), "`], or what it defaults to.")]
        pub fn $field(&self) -> Rounding {
            // `resolve` filled it; the alternative is never taken.
            self.specs.$field.unwrap_or(self.specs.round)
        }
    )*};
}

impl ResolvedSpecs {
    /// `specs` are checked and filled in.
    pub(super) fn new(specs: MxSpecs) -> Self {
        let shared = BlockFormat {
            scale: ScaleFormat::exponent(specs.scale_bits)
                .expect("`resolve` checked the number of bits"),
            scale_mode: specs.scale_mode,
            shared_exp_method: specs.shared_exp_method,
            subnormals: match specs.mx_flush_fp32_subnorms {
                true => Subnormals::FlushBlocks,
                false => Subnormals::Kept,
            },
            // Every slot has its own element.
            ..BlockFormat::mx(ElementFormat::INT8, specs.block_size)
        };
        let formats = Slot::ALL.map(|slot| {
            let emulated = specs.quantize_backprop || !slot.is_backward();
            let format = specs.slot_format(slot).filter(|_| emulated)?;
            let format = format.block_format(&shared)?;
            let has_headroom = slot.is_backward() && !specs.headroom_bp.is_none();
            Some(match has_headroom && format.is_mx() {
                true => BlockFormat {
                    headroom: specs.headroom_bp,
                    ..format
                },
                false => format,
            })
        });
        let hot_format = specs.hot_columns.as_ref().and_then(|hot| hot.format);
        let hot_format = hot_format.and_then(|format| format.block_format(&shared));
        let float_format = match (specs.bfloat, specs.fp) {
            (0, 0) => None,
            (0, fp) => Some(FloatFormat::fp(fp)),
            (bfloat, _) => Some(FloatFormat::bfloat(bfloat)),
        };
        let float_format = float_format
            .map(|format| format.expect("`resolve` checked the width"))
            .map(|format| format.with_subnormals(specs.bfloat_subnorms))
            .filter(|format| !format.is_identity());
        Self {
            specs,
            formats,
            float_format,
            hot_format,
            static_input: None,
        }
    }

    /// The specs with their defaults filled in, for fields without an accessor here (`softmax_exp2`, …).
    pub fn specs(&self) -> &MxSpecs {
        &self.specs
    }

    /// Whether nothing is emulated: no format in any slot, no elementwise format, and no specs of attention.
    pub fn is_none(&self) -> bool {
        !self.emulates_ops() && self.attention().is_none()
    }

    /// Whether other ops than attention with its own formats are emulated.
    pub(crate) fn emulates_ops(&self) -> bool {
        self.has_mx() || self.float_format.is_some()
    }

    /// The hot columns of linear layers, see [`MxSpecs::hot_columns`]; `None` also for fixed columns without a ranking.
    pub fn hot_columns(&self) -> Option<&HotColumns> {
        let hot = self.specs.hot_columns.as_ref();
        hot.filter(|hot| hot.chosen == ColumnChoice::Product || hot.ranking.is_some())
    }

    /// The same specs with these hot columns, which have the format that these specs' own have.
    #[doc(hidden)]
    #[must_use]
    pub fn with_hot_columns(&self, hot: HotColumns) -> Self {
        let mut specs = self.clone();
        specs.specs.hot_columns = Some(hot);
        specs
    }

    /// Whether linear layers quantize the mean of an operand's rows apart, see [`MxSpecs::mean_apart`].
    pub fn mean_apart(&self) -> bool {
        self.specs.mean_apart
    }

    /// The block format of hot columns or of their residuals.
    pub fn hot_format(&self) -> Option<BlockFormat> {
        self.hot_format
    }

    /// The formats of attention's points, see [`MxSpecs::attention`].
    pub fn attention(&self) -> Option<&AttentionSpecs> {
        self.specs.attention.as_ref()
    }

    /// Whether any slot has a format.
    pub fn has_mx(&self) -> bool {
        self.formats.iter().any(Option::is_some)
    }

    /// The block format of an operand; `None`: it is not quantized. The four backward slots are `None`
    /// without [`quantize_backprop`](Self::quantize_backprop).
    pub fn block_format(&self, slot: Slot) -> Option<BlockFormat> {
        self.formats[slot as usize]
    }

    /// The tool whose rules quantize an operand of a slot, see [`MxSpecs::dialect_w`].
    pub fn dialect(&self, slot: Slot) -> Option<Dialect> {
        match slot {
            Slot::W => self.specs.dialect_w,
            Slot::A => self.specs.dialect_a,
            _ => None,
        }
    }

    /// The forward product's quantization of a weight in blocks, in the weight's own layout; `None` if the weight has no blocks, is
    /// transformed before, or has [columns in another format](Self::has_weight_parts).
    pub fn weight_quantization(&self) -> Option<OperandQuantization> {
        let whole = self.quantization_of_weight_parts();
        whole.filter(|_| !self.has_weight_parts())
    }

    /// Whether the hot rows of a linear layer's weight are in another format than the rest, see [`HotTreatment::Format`].
    pub fn has_weight_parts(&self) -> bool {
        let hot = self.hot_columns();
        hot.is_some_and(|hot| hot.treatment == HotTreatment::Format)
    }

    /// As [`weight_quantization`](Self::weight_quantization), but of the rows that are not hot, in the order of the ranking.
    pub fn quantization_of_weight_parts(&self) -> Option<OperandQuantization> {
        let format = self.block_format(Slot::W)?;
        let quantization = OperandQuantization {
            elementwise: self
                .float_format()
                .map(|format| (format, self.round_weight())),
            blocks: Some((format, self.round_mx_output())),
            ..OperandQuantization::default()
        };
        self.hadamard_forward().is_none().then_some(quantization)
    }

    /// The transform of the operands of every forward product, see [`MxSpecs::hadamard_forward`]; `None`: they stay as they
    /// are.
    pub fn hadamard_forward(&self) -> Option<Hadamard> {
        self.specs.hadamard_forward
    }

    /// The transform of the operands where an input's gradient is computed, see [`MxSpecs::hadamard_input_grad`];
    /// `None`: no transform, also if no backward slot has a format.
    pub fn hadamard_input_grad(&self) -> Option<Hadamard> {
        self.hadamard_of_gradients(self.specs.hadamard_input_grad)
    }

    /// The transform of the operands where a weight's gradient is computed, see [`MxSpecs::hadamard_weight_grad`];
    /// `None`: no transform, also if no backward slot has a format.
    pub fn hadamard_weight_grad(&self) -> Option<Hadamard> {
        self.hadamard_of_gradients(self.specs.hadamard_weight_grad)
    }

    /// The transform of a kind of gradient products with this setting of its kind.
    fn hadamard_of_gradients(&self, own: Option<Hadamard>) -> Option<Hadamard> {
        let block_size = self.specs.hadamard_block_size;
        let common = (block_size > 0).then(|| Hadamard::new(block_size));
        let is_backward = |slot: &Slot| slot.is_backward() && self.block_format(*slot).is_some();
        let transform = own.or(common);
        transform.filter(|_| Slot::ALL.iter().any(is_backward))
    }

    /// The transform of the operands of products of this kind.
    pub(crate) fn hadamard(&self, product: ProductKind) -> Option<Hadamard> {
        match product {
            ProductKind::Forward => self.hadamard_forward(),
            ProductKind::InputGradient => self.hadamard_input_grad(),
            ProductKind::WeightGradient => self.hadamard_weight_grad(),
        }
    }

    /// All transforms.
    pub(crate) fn hadamards(&self) -> impl Iterator<Item = Hadamard> {
        let all = [
            self.hadamard_forward(),
            self.hadamard_input_grad(),
            self.hadamard_weight_grad(),
        ];
        all.into_iter().flatten()
    }

    /// Headroom of the gradient products' operands, see [`MxSpecs::headroom_bp`].
    pub fn headroom_bp(&self) -> Headroom {
        self.specs.headroom_bp
    }

    /// Which operands the gradient products read, see [`MxSpecs::gradient_operands`].
    pub fn gradient_operands(&self) -> GradientOperands {
        self.specs.gradient_operands
    }

    /// Whether a gradient is zero where its operand was clipped, see [`MxSpecs::mask_clipped`].
    pub fn mask_clipped(&self) -> bool {
        self.specs.mask_clipped
    }

    /// Whether gradient products read operands that are rounded to the elementwise format.
    pub(crate) fn gradients_read_rounded(&self) -> bool {
        self.quantize_backprop() || self.gradient_operands() == GradientOperands::Forward
    }

    /// The matrix unit that sums up products of this kind, see [`MxSpecs::accumulator`]; `None`: the backend's float32.
    pub fn accumulator(&self, product: ProductKind) -> Option<Accumulation> {
        let of_product = match product {
            ProductKind::Forward => self.specs.accumulator_forward,
            ProductKind::InputGradient => self.specs.accumulator_input_grad,
            ProductKind::WeightGradient => self.specs.accumulator_weight_grad,
        };
        of_product.or(self.specs.accumulator)
    }

    /// Whether products of two activations are quantized in blocks, see [`MxSpecs::quantize_matmul`].
    pub fn quantize_matmul(&self) -> bool {
        self.specs.quantize_matmul
    }

    /// Whether products of an activation with a constant are quantized in blocks, see [`MxSpecs::quantize_constants`].
    pub fn quantize_constants(&self) -> bool {
        self.specs.quantize_constants
    }

    /// Whether losses are emulated, see [`MxSpecs::quantize_loss`].
    pub fn quantize_loss(&self) -> bool {
        self.specs.quantize_loss
    }

    /// The elementwise format; `None`: float32, that is `bfloat` and `fp` are 0 or `bfloat` is 32.
    /// The backward pass uses it only with [`quantize_backprop`](Self::quantize_backprop).
    pub fn float_format(&self) -> Option<FloatFormat> {
        self.float_format
    }

    /// Which ops the elementwise format applies to, see [`MxSpecs::elementwise_scope`].
    pub fn elementwise_scope(&self) -> ElementwiseScope {
        self.specs.elementwise_scope
    }

    /// Whether the backward pass is emulated, see [`MxSpecs::quantize_backprop`].
    pub fn quantize_backprop(&self) -> bool {
        self.specs.quantize_backprop
    }

    /// Seed of `stochastic` rounding and of the signs of the Hadamard transform.
    pub fn seed(&self) -> u64 {
        self.specs.seed
    }

    /// Whether anything is drawn at random: a rounding is stochastic, or operands are transformed.
    pub fn is_random(&self) -> bool {
        let roundings = [
            self.round(),
            self.round_weight(),
            self.round_output(),
            self.round_grad_weight(),
            self.round_grad_input(),
            self.round_mx_output(),
            self.round_mx_input_grad_input(),
            self.round_mx_weight_grad_input(),
            self.round_mx_grad_output_grad_input(),
            self.round_mx_input_grad_weight(),
            self.round_mx_grad_output_grad_weight(),
        ];
        roundings.contains(&Rounding::Stochastic) || self.hadamards().next().is_some()
    }

    /// Rounding of elementwise operations, see [`MxSpecs::round`].
    pub fn round(&self) -> Rounding {
        self.specs.round
    }

    /// The rounding of blocks of an operand in this slot.
    pub(crate) fn rounding_of_blocks(&self, op: ProductOp, slot: Slot) -> Rounding {
        match (op, slot) {
            (_, Slot::W | Slot::A) => self.round_mx_output(),
            // Either gradient of a matmul is an input's.
            (ProductOp::Matmul, Slot::WBp | Slot::ABp) => self.round_mx_input_grad_input(),
            (_, Slot::WBp) => self.round_mx_weight_grad_input(),
            (_, Slot::ABp) => self.round_mx_input_grad_weight(),
            (_, Slot::ABpOs) => self.round_mx_grad_output_grad_input(),
            (_, Slot::ABpEx) => self.round_mx_grad_output_grad_weight(),
        }
    }

    rounding_accessors! {
        round_weight
        round_output
        round_grad_weight
        round_grad_input
        round_mx_output
        round_mx_input_grad_input
        round_mx_weight_grad_input
        round_mx_grad_output_grad_input
        round_mx_input_grad_weight
        round_mx_grad_output_grad_weight
    }
}
