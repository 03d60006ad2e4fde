//! Whether an op is emulated, and by which specs: its context, the process-wide default, the phase, and observers decide.

use burn_backend::FloatDType;

use crate::hooks;
use crate::phase;
use crate::specs::{AttentionSpecs, ResolvedSpecs};
use crate::tensor::shared_specs::{self, SharedSpecs};
use crate::tensor::{Flags, Meta, OpContext};
use crate::warnings;

impl OpContext {
    /// The specs by which the op is emulated; `None` if the result equals the wrapped backend's. This is so without
    /// specs, with nothing to emulate, in an optimizer's arithmetic, for constants alone, in a full-precision piece, and
    /// in a loss. An elementwise op out of the specs' scope is the wrapped backend's, too.
    ///
    /// # Panics
    ///
    /// If the op is to be emulated and its operands are of different float types.
    pub(crate) fn emulation(&self) -> Option<&'static SharedSpecs> {
        self.emulation_by(ResolvedSpecs::emulates_ops)
    }

    /// As [`emulation`](Self::emulation), of attention whose points have their own formats.
    pub(crate) fn attention(&self) -> Option<(&'static SharedSpecs, &'static AttentionSpecs)> {
        let shared = self.emulation_by(|specs| specs.attention().is_some())?;
        Some((shared, shared.specs.attention()?))
    }

    /// The specs by which the op is emulated if they emulate something of this kind.
    fn emulation_by(
        &self,
        emulates: impl Fn(&ResolvedSpecs) -> bool,
    ) -> Option<&'static SharedSpecs> {
        if self.result.flags.intersects(Flags::PLAIN) {
            return None;
        }
        let shared = self
            .specs
            .or_else(shared_specs::installed_default)
            .map(hooks::specs_of_op)
            .filter(|shared| emulates(&shared.specs))
            .filter(|shared| self.is_in_scope(shared))?;
        if let Some(other) = self.mixed_with {
            let name = |storage: Option<FloatDType>| storage.unwrap_or(FloatDType::F32);
            panic!(
                "burn-mx: the operands of an op are of different float types, {:?} and {:?}; cast one of them",
                name(self.result.storage),
                name(other)
            );
        }
        Some(shared)
    }

    /// Whether these specs reach the op: every product, and elementwise ops on what their scope names.
    fn is_in_scope(&self, shared: &SharedSpecs) -> bool {
        self.is_product || !shared.is_scoped() || self.result.is_activation()
    }

    /// Whether the op is emulated and rounds, for operands of any type: an embedding's operands are not all floats.
    pub(crate) fn rounds(&self) -> bool {
        let of_one_type = Self {
            mixed_with: None,
            ..*self
        };
        of_one_type
            .emulation()
            .is_some_and(|shared| shared.specs.float_format().is_some())
    }

    /// Whether elementwise ops with the op's specs are rounded, if their scope reaches them.
    pub(crate) fn has_elementwise_format(&self) -> bool {
        let in_scope = Self {
            is_product: true,
            ..*self
        };
        in_scope.rounds()
    }

    /// Whether the op's specs, a parameter's, exempt it from the emulation that another operand comes from.
    pub(crate) fn is_exempt(&self) -> bool {
        let by_specs = !self.result.flags.intersects(Flags::PLAIN);
        let by_default = || {
            let default = shared_specs::installed_default().filter(|_| self.any_unset);
            default.is_some_and(|shared| !shared.specs.is_none())
        };
        let computed_by = self.specs.map(hooks::specs_of_op);
        by_specs
            && computed_by.is_some_and(|shared| shared.specs.is_none())
            && (self.any_emulated || by_default())
    }

    /// As [`OpContext::emulation`], and `None` too in a backward pass that is not to be quantized.
    pub(crate) fn quantization(&self) -> Option<&'static SharedSpecs> {
        self.emulation()
            .filter(|shared| shared.specs.quantize_backprop() || !phase::is_backward())
    }

    /// Says once through `log` that specs were forgotten, where a product `operation` runs with none.
    pub(crate) fn warn_if_unset(&self, operation: &str) {
        if self.specs.is_none()
            && !self.result.flags.intersects(Flags::PLAIN)
            && shared_specs::installed_default().is_none()
        {
            warnings::warn_unset(operation);
        }
    }
}

impl Meta {
    /// The specs by which an op on this tensor alone is emulated.
    pub(crate) fn emulation(self) -> Option<&'static SharedSpecs> {
        OpContext::of([Some(self)]).emulation()
    }
}
