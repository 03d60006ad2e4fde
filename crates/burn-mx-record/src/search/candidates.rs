//! The formats to choose from.

use burn_mx_core::{MxSpecs, Slot, SlotFormat, SpecsError};
use microscaling::BlockFormat;

use super::SearchError;
use crate::config::named_specs;

/// A candidate, with its block format for each slot.
pub(super) struct CandidateFormat([BlockFormat; Slot::ALL.len()]);

impl CandidateFormat {
    /// The candidate of this name. The name has the meaning of an entry of
    /// [`RecorderConfig::what_if`](crate::RecorderConfig::what_if).
    pub(super) fn new(name: &str, specs: &MxSpecs) -> Result<Self, SearchError> {
        let error = |reason: String| SearchError::Format {
            format: name.to_owned(),
            reason,
        };
        let own = named_specs(name).map_err(error)?;
        // A block format stands for itself; a preset for roundings and transforms, too.
        if MxSpecs::preset(name).is_ok() && rest(&own) != rest(specs) {
            return Err(error(
                "the preset has other roundings or transforms than the specs; expected a block format, or a preset that \
                 differs in formats alone"
                    .to_owned(),
            ));
        }
        let resolved = own.resolve().map_err(|reason| error(reason.to_string()))?;
        let mut formats = [None; Slot::ALL.len()];
        for slot in Slot::ALL {
            formats[slot as usize] = resolved.block_format(slot);
        }
        let none = || error("a slot has no block format".to_owned());
        let formats: Option<Vec<BlockFormat>> = formats.into_iter().collect();
        let formats = formats.and_then(|formats| formats.try_into().ok());
        formats.map(Self).ok_or_else(none)
    }

    pub(super) fn of(&self, slot: Slot) -> BlockFormat {
        self.0[slot as usize]
    }
}

/// The same specs with a block format in each slot, so that no field for elements is left over.
pub(super) fn in_blocks(specs: &MxSpecs) -> Result<MxSpecs, SpecsError> {
    let resolved = specs.resolve()?;
    let mut in_blocks = rest(specs);
    for slot in Slot::ALL {
        let format = resolved.block_format(slot);
        *in_blocks.slot_format_mut(slot) = format.map(SlotFormat::Block);
    }
    Ok(in_blocks)
}

/// The fields that do not belong to block formats.
fn rest(specs: &MxSpecs) -> MxSpecs {
    let none = MxSpecs::default();
    let mut rest = MxSpecs {
        block_size: none.block_size,
        scale_bits: none.scale_bits,
        scale_mode: none.scale_mode,
        shared_exp_method: none.shared_exp_method,
        mx_flush_fp32_subnorms: none.mx_flush_fp32_subnorms,
        ..specs.clone()
    };
    for slot in Slot::ALL {
        *rest.slot_format_mut(slot) = None;
    }
    rest
}
