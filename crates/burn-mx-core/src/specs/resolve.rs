//! From [`MxSpecs`] to [`ResolvedSpecs`]: every value checked, every default filled in.

use super::{MxSpecs, ResolvedSpecs, SpecsError};

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
    /// [`SpecsError::Contradiction`] is for a field that contradicts the others, and [`SpecsError::Accumulator`] for
    /// operands that an accumulator does not take.
    pub fn resolve(&self) -> Result<ResolvedSpecs, SpecsError> {
        self.validate()?;
        let mut specs = self.clone().with_others();
        if specs.scale_bits == 0 {
            specs.scale_bits = 8;
        }
        let resolved = ResolvedSpecs::new(specs);
        resolved.check_accumulators()?;
        Ok(resolved)
    }
}
