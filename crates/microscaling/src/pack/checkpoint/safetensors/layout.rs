//! Layouts of whole checkpoints.

use super::FileError;
use crate::names::NameError;
use crate::pack::WeightLayout;
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use core::fmt::{self, Display};
use core::str::FromStr;
use serde_json::{Map, Value};

/// The key of the description in the metadata of burn-mx's checkpoints, JSON: the layout, the specs and static scales of packed
/// weights, and the framework whose names tensors have.
pub const DESCRIPTION_KEY: &str = "burn_mx";

/// How a checkpoint stores packed weights: in this project's layout, or in another tool's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckpointLayout {
    /// `microscaling`: this project's own layout, for every format; see [the module](crate::safetensors). burn-mx's
    /// tensors have Burn's names there.
    Microscaling,
    /// The layout of another tool, by its name, such as `mxfp4-pack-quantized`. burn-mx gives its tensors PyTorch's names.
    Weights(WeightLayout),
}

impl CheckpointLayout {
    /// Every layout.
    pub const ALL: [Self; 1 + WeightLayout::ALL.len()] = {
        let mut all = [Self::Microscaling; 1 + WeightLayout::ALL.len()];
        let mut i = 1;
        while i < all.len() {
            all[i] = Self::Weights(WeightLayout::ALL[i - 1]);
            i += 1;
        }
        all
    };

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Microscaling => "microscaling",
            Self::Weights(layout) => layout.name(),
        }
    }

    /// The framework whose names and shapes burn-mx's tensors have in this layout, if the description names none.
    const fn usual_names(self) -> &'static str {
        match self {
            Self::Microscaling => "burn",
            Self::Weights(_) => "pytorch",
        }
    }

    /// The description of a checkpoint of burn-mx, for the same tensors in this layout. `description` is the text under
    /// [`DESCRIPTION_KEY`]. The tensors keep their names and shapes.
    ///
    /// # Errors
    /// [`FileError::Json`]; [`FileError::NoLayout`] and [`FileError::Description`] for a text without a known layout.
    pub fn describe(self, description: &str) -> Result<String, FileError> {
        let parsed = serde_json::from_str(description);
        let mut fields: Map<String, Value> = parsed.map_err(|source| FileError::Json {
            part: "description under `burn_mx`",
            source,
        })?;
        let layout = fields.get("layout").and_then(Value::as_str);
        let layout = layout.ok_or(FileError::NoLayout)?.parse::<Self>();
        let layout = layout.map_err(FileError::Description)?;
        let names = fields.entry("names");
        names.or_insert_with(|| layout.usual_names().into());
        fields.insert("layout".to_owned(), self.name().into());
        Ok(Value::Object(fields).to_string())
    }
}

impl From<WeightLayout> for CheckpointLayout {
    fn from(layout: WeightLayout) -> Self {
        Self::Weights(layout)
    }
}

impl Display for CheckpointLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CheckpointLayout {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        let mut all = Self::ALL.into_iter();
        all.find(|layout| layout.name() == name)
            .ok_or_else(|| NameError::new("layout", name, Self::ALL.map(Self::name).to_vec()))
    }
}
