//! The lengths of blocks in config.json.

use super::Schemes;
use crate::config::{ConfigError, ModelConfig};
use microscaling::safetensors::PackedFiles;
use serde_json::Value;

/// The lengths of a block that shares a scale, as config.json has them.
pub(crate) struct SaidBlock<'a> {
    pub(crate) field: &'static str,
    pub(crate) said: &'a Value,
    /// A length for each axis of the weight; `None` if the field has no two positive numbers.
    pub(crate) lengths: Option<Vec<usize>>,
}

impl Schemes {
    /// The lengths of a block of a module's weight, with a length for each of the axes.
    pub(crate) fn block(&self, module: &str, axes: usize) -> Option<SaidBlock<'_>> {
        let weights = &self.group(module)?.weights;
        let of = |key: &str| weights.get(key).filter(|value| !value.is_null());
        let positive = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|x| *x > 0);
        let (field, said, lengths) = match (of("block_structure"), of("group_size")) {
            (Some(said), _) => {
                let numbers = said.as_array().map(|numbers| numbers.iter().map(positive));
                let lengths = numbers.and_then(Iterator::collect::<Option<Vec<_>>>);
                let field = match self.method.as_deref() {
                    Some("fp8") => "weight_block_size",
                    _ => "block_structure",
                };
                (field, said, lengths.filter(|lengths| lengths.len() == 2))
            }
            (None, Some(said)) => ("group_size", said, Some(vec![1, positive(said)?])),
            (None, None) => return None,
        };
        let more = vec![1; axes.saturating_sub(2)];
        let lengths = lengths.map(|lengths| [more, lengths].concat());
        Some(SaidBlock {
            field,
            said,
            lengths,
        })
    }

    /// Says the lengths of a config, and the version of GPTQ, to every weight that they fit. Files without weights of FP8 or integers need no config.
    ///
    /// # Errors
    /// See [`Schemes::of`].
    pub fn set_blocks(model: &ModelConfig, read: &mut PackedFiles<'_>) -> Result<(), ConfigError> {
        if read.scaled().is_empty() && read.integers().is_empty() {
            return Ok(());
        }
        let schemes = Self::of(model)?;
        if schemes.is_gptq_v2 {
            read.set_gptq_v2();
        }
        let scaled = read.scaled().keys();
        let scaled = scaled.map(|name| (name, read.tensor(name).map_or(0, |x| x.shape.len())));
        let integers = read.integers().keys().map(|name| (name, 2));
        let said = scaled.chain(integers).filter_map(|(name, axes)| {
            let module = name.strip_suffix(".weight").unwrap_or(name);
            Some((name.clone(), schemes.block(module, axes)?.lengths?))
        });
        let said: Vec<_> = said.collect();
        for (name, lengths) in said {
            // Lengths that do not fit are found by `doubt`.
            read.set_block(&name, &lengths);
        }
        Ok(())
    }
}
