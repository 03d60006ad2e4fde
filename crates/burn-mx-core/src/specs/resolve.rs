//! From [`MxSpecs`] to [`ResolvedSpecs`]: every value checked, every default filled in.

use super::{MxSpecs, ResolvedSpecs, SpecsError};

impl MxSpecs {
    /// Fills in what is not set, as the reference's `finalize_mx_specs` does, and checks all
    /// values.
    ///
    /// `scale_bits` ← 8; `w_elem_format_bp` ← `w_elem_format`; the three `a_elem_format_bp*` ←
    /// `a_elem_format`; `round_weight`, `round_output`, `round_grad_weight`,
    /// `round_grad_input` and `round_mx_output` ← `round`; then the five `round_mx_*_grad_*` ←
    /// `round_grad_input`.
    ///
    /// # Errors
    /// [`SpecsError::OutOfRange`], [`SpecsError::BfloatAndFp`], [`SpecsError::Format`],
    /// [`SpecsError::WithoutEffect`] for a field that shapes MX blocks where every slot that is set brings a
    /// format of its own, [`SpecsError::Contradiction`] for a field that the others make no sense of, and
    /// [`SpecsError::Accumulator`] for operands that an accumulator does not take.
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
