//! Layouts of whole checkpoints.

use crate::names::NameError;
use crate::pack::WeightLayout;
use core::fmt::{self, Display};
use core::str::FromStr;

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
