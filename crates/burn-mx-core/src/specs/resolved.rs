//! Specs ready to compute with.

use std::borrow::Cow;

use microscaling::{
    Accumulation, BlockFormat, ElementFormat, FloatFormat, Headroom, MxFormat, OperandQuantization,
    Rounding,
};

use crate::hooks::ProductKind;

use super::{GradientOperands, Hadamard, MxSpecs, Slot, SpecsError, static_input};

/// Specs with every default filled in and every value checked: the only form that computes.
///
/// Comes from [`MxSpecs::resolve`]. All accessors only read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolvedSpecs {
    specs: MxSpecs,
    /// By `Slot as usize`.
    formats: [Option<BlockFormat>; Slot::ALL.len()],
    float_format: Option<FloatFormat>,
    /// The scales of a layer's input, if a calibration fixed them.
    pub(super) static_input: static_input::Shared,
}

/// [`ResolvedSpecs`], or a reference to them; what takes specs and cannot fail takes a reference to this.
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

/// What specs may be given as where they can be refused: [`MxSpecs`], the name of a preset, or [`ResolvedSpecs`].
pub trait ToResolvedSpecs {
    /// The specs, checked and filled in.
    ///
    /// # Errors
    ///
    /// If they cannot be used, or there is no preset of that name.
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
        let shared = MxFormat {
            scale_bits: specs.scale_bits,
            scale_mode: specs.scale_mode,
            shared_exp_method: specs.shared_exp_method,
            flush_fp32_subnorms: specs.mx_flush_fp32_subnorms,
            // Every slot has an element of its own.
            ..MxFormat::new(ElementFormat::INT8, specs.block_size)
        };
        let formats = Slot::ALL.map(|slot| {
            let emulated = specs.quantize_backprop || !slot.is_backward();
            let format = specs.slot_format(slot).filter(|_| emulated)?;
            Some(match format.block_format(&shared)? {
                BlockFormat::Mx(format) if slot.is_backward() && !specs.headroom_bp.is_none() => {
                    let headroom = specs.headroom_bp;
                    MxFormat { headroom, ..format }.into()
                }
                format => format,
            })
        });
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
            static_input: None,
        }
    }

    /// The specs with every `Option` filled in that has a default, for what has no accessor here
    /// (`softmax_exp2`, …).
    pub fn specs(&self) -> &MxSpecs {
        &self.specs
    }

    /// Whether nothing is emulated: no format in any slot and no elementwise format.
    pub fn is_none(&self) -> bool {
        !self.has_mx() && self.float_format.is_none()
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

    /// What a forward product does to a weight that it quantizes in blocks as it lies there; `None` if the weight has no blocks or
    /// is transformed before.
    pub fn weight_quantization(&self) -> Option<OperandQuantization> {
        let format = self.block_format(Slot::W)?;
        let quantization = OperandQuantization {
            elementwise: self
                .float_format()
                .map(|format| (format, self.round_weight())),
            blocks: Some((format, self.round_mx_output())),
        };
        self.hadamard_forward().is_none().then_some(quantization)
    }

    /// The transform of the operands of every forward product, see [`MxSpecs::hadamard_forward`]; `None`: they stay as they
    /// are.
    pub fn hadamard_forward(&self) -> Option<Hadamard> {
        self.specs.hadamard_forward
    }

    /// The transform of the operands where an input's gradient is computed, see [`MxSpecs::hadamard_input_grad`];
    /// `None`: they stay as they are, as they do where no backward slot has a format.
    pub fn hadamard_input_grad(&self) -> Option<Hadamard> {
        self.hadamard_of_gradients(self.specs.hadamard_input_grad)
    }

    /// The transform of the operands where a weight's gradient is computed, see [`MxSpecs::hadamard_weight_grad`];
    /// `None`: they stay as they are, as they do where no backward slot has a format.
    pub fn hadamard_weight_grad(&self) -> Option<Hadamard> {
        self.hadamard_of_gradients(self.specs.hadamard_weight_grad)
    }

    /// The transform of a kind of gradient products that has this one of its own.
    fn hadamard_of_gradients(&self, own: Option<Hadamard>) -> Option<Hadamard> {
        let block_size = self.specs.hadamard_block_size;
        let common = (block_size > 0).then(|| Hadamard::new(block_size));
        let is_backward = |slot: &Slot| slot.is_backward() && self.block_format(*slot).is_some();
        let transform = own.or(common);
        transform.filter(|_| Slot::ALL.iter().any(is_backward))
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

    /// Whether the gradient of an operand needs that operand.
    pub(crate) fn masks_gradients(&self) -> bool {
        self.quantize_backprop() && self.mask_clipped()
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

#[cfg(test)]
mod tests {
    use microscaling::{ScaleMode, SharedExpMethod};

    use super::*;

    #[test]
    fn an_mx_format_has_all_that_shapes_it() {
        let specs = MxSpecs {
            a_elem_format: Some(ElementFormat::FP6_E2M3.into()),
            scale_bits: 5,
            block_size: 0,
            scale_mode: ScaleMode::Ceil,
            shared_exp_method: SharedExpMethod::None,
            mx_flush_fp32_subnorms: true,
            ..MxSpecs::default()
        };
        let resolved = specs.resolve().unwrap();
        let format = MxFormat {
            scale_bits: 5,
            scale_mode: ScaleMode::Ceil,
            shared_exp_method: SharedExpMethod::None,
            flush_fp32_subnorms: true,
            ..MxFormat::new(ElementFormat::FP6_E2M3, 0)
        };
        assert_eq!(resolved.block_format(Slot::ABpOs), Some(format.into()));
        assert_eq!(resolved.block_format(Slot::W), None);
        assert!(resolved.has_mx() && !resolved.is_none());
        let summary = "a fp6_e2m3, one scale an element, 5 scale bits, scale mode ceil";
        assert_eq!(resolved.to_string(), summary);
    }

    #[test]
    fn backward_slots_are_off_without_quantize_backprop() {
        let specs = MxSpecs {
            w_elem_format_bp: Some(ElementFormat::INT4.into()),
            quantize_backprop: false,
            ..MxSpecs::mxint8()
        };
        let resolved = specs.resolve().unwrap();
        assert!(!resolved.quantize_backprop());
        for slot in Slot::ALL {
            let forward = matches!(slot, Slot::W | Slot::A);
            assert_eq!(resolved.block_format(slot).is_some(), forward, "{slot:?}");
        }

        // With backward formats alone nothing is left to emulate.
        let mut specs = specs;
        (specs.w_elem_format, specs.a_elem_format, specs.bfloat) = (None, None, 0);
        assert!(specs.resolve().unwrap().is_none());
        specs.quantize_backprop = true;
        assert_eq!(specs.resolve().unwrap().to_string(), "w_bp int4, block 32");
    }

    #[test]
    fn a_hadamard_transform_needs_a_backward_format() {
        let mut specs = MxSpecs {
            w_elem_format_bp: Some(ElementFormat::FP4_E2M1.into()),
            hadamard_block_size: 32,
            ..MxSpecs::mx()
        };
        let resolved = specs.resolve().unwrap();
        assert_eq!(resolved.hadamard_input_grad(), Some(Hadamard::new(32)));
        assert_eq!(resolved.hadamard_weight_grad(), Some(Hadamard::new(32)));
        assert_eq!(resolved.hadamard_forward(), None);
        assert_eq!(resolved.to_string(), "w_bp fp4_e2m1, block 32, Hadamard 32");
        specs.quantize_backprop = false;
        assert_eq!(specs.resolve().unwrap().hadamards().next(), None);
    }

    #[test]
    fn float_formats() {
        let float_format = |bfloat, fp, bfloat_subnorms| {
            let specs = MxSpecs {
                bfloat,
                fp,
                bfloat_subnorms,
                ..MxSpecs::default()
            };
            let resolved = specs.resolve().unwrap();
            assert_eq!(resolved.is_none(), resolved.float_format().is_none());
            resolved.float_format()
        };
        for subnormals in [true, false] {
            assert_eq!(float_format(0, 0, subnormals), None);
            assert_eq!(float_format(32, 0, subnormals), None);
            for bits in 10..32 {
                let format = FloatFormat::bfloat(bits).unwrap();
                let format = format.with_subnormals(subnormals);
                assert_eq!(float_format(bits, 0, subnormals), Some(format));
            }
            for bits in 7..=29 {
                let format = FloatFormat::fp(bits).unwrap();
                let format = format.with_subnormals(subnormals);
                assert_eq!(float_format(0, bits, subnormals), Some(format));
            }
        }
    }

    #[test]
    fn the_widths_allowed_are_those_of_the_formats() {
        use crate::specs::validate::{BFLOAT, FP};
        for bits in 1..40 {
            assert_eq!(
                BFLOAT.check(bits).is_ok(),
                FloatFormat::bfloat(bits).is_ok()
            );
            assert_eq!(FP.check(bits).is_ok(), FloatFormat::fp(bits).is_ok());
        }
    }

    #[test]
    fn slots_index_their_place() {
        for (i, slot) in Slot::ALL.into_iter().enumerate() {
            assert_eq!(slot as usize, i);
        }
    }

    #[test]
    fn whole_axis_and_seed() {
        let specs = MxSpecs {
            block_size: 0,
            seed: 7,
            ..MxSpecs::mxfp4()
        };
        let resolved = specs.resolve().unwrap();
        assert_eq!(resolved.seed(), 7);
        let summary = "w fp4_e2m1, a fp4_e2m1, one block an axis, bfloat16";
        assert_eq!(resolved.to_string(), summary);
    }
}
