//! The format that a run trains in.

use burn_mx::ResolvedSpecs;

use crate::training::{layers::Layer, stages::SpecsStage};

/// The format that a run trains in.
#[derive(Debug, Clone)]
pub(crate) struct TrainingFormat {
    pub(crate) name: String,
    /// `None` for FP32.
    pub(crate) specs: Option<ResolvedSpecs>,
    /// Specs by path: of the layers that the preset exempts, then those that the command line names.
    pub(crate) layers: Vec<Layer>,
    /// Specs of later steps, if they change.
    pub(crate) stages: Vec<SpecsStage>,
    /// Whether MX options change the preset.
    pub(crate) overridden: bool,
}

impl TrainingFormat {
    pub(crate) fn fp32() -> Self {
        Self {
            name: "fp32".to_owned(),
            specs: None,
            layers: Vec::new(),
            stages: Vec::new(),
            overridden: false,
        }
    }

    /// The name for people, with a star if options change the preset.
    pub(crate) fn label(&self) -> String {
        format!("{}{}", self.name, if self.overridden { "*" } else { "" })
    }
}
