//! Layers that engines multiply by as one.

use alloc::{
    borrow::ToOwned,
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt::{self, Display};
use core::str::FromStr;
use thiserror::Error;

/// Kinds of layers that inference engines fuse: an engine stacks their weights \[out, in\] and computes one product. In a format with
/// a tensor scale the stacked weight has one such scale. So the layers need equal tensor scales. If they differ, vLLM warns and takes the
/// largest stored number of the group: `weight_global_scale.max()` of compressed-tensors' divisors, `weight_scale_2.max()` of Model
/// Optimizer's factors. The exporters of the engines therefore give all layers of a group the scale of the group's largest magnitude:
/// * llm-compressor 0.14.0.1: `Observer.get_global_scale` in `observers/base.py`, for the groups of `DEFAULT_FUSED_MAPPINGS` in
///   `entrypoints/model_free/microscale.py`; earlier versions: `update_fused_layer_weight_global_scales`, which takes the least
///   divisor;
/// * Model Optimizer 0.47.0: `preprocess_linear_fusion` in `torch/export/quant_utils.py`, for weights and inputs.
///
/// The default has the names of models for these exporters and of Burn's modules:
///
/// | names | of |
/// | --- | --- |
/// | `q_proj,k_proj,v_proj` | attention of Llama-like models |
/// | `gate_proj,up_proj` | SwiGLU of Llama-like models, and of their experts |
/// | `q_a_proj,kv_a_proj_with_mqa`, `wq_a,wkv_a_with_mqa` | latent attention of DeepSeek |
/// | `w1,w3` | SwiGLU of the first Llama, and Mixtral's experts |
/// | `wq,wk,wv` | attention of the first Llama |
/// | `query,key,value` | attention of BERT, and Burn's `MultiHeadAttention` |
/// | `linear_inner,linear_outer` | Burn's `SwiGlu` |
///
/// As text, a kind is the names of its members with commas between them. A name has one or more words of a module's path, the last ones:
/// `q_proj` or `attn.q_proj`.
///
/// ```
/// use microscaling::FusedLayers;
///
/// let fused = FusedLayers::default();
/// let groups = fused.groups(["h.0.attn.k_proj", "h.0.attn.q_proj", "h.1.attn.q_proj", "head"]);
/// assert_eq!(groups.len(), 1); // a layer alone is no group
/// assert_eq!(groups[0].to_string(), "h.0.attn.{q_proj,k_proj}");
/// assert_eq!(groups[0].members, ["h.0.attn.q_proj", "h.0.attn.k_proj"]);
/// # Ok::<(), microscaling::FusedLayersError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FusedLayers(Vec<FusedNames>);

/// The names of the members of one kind, in the order in which an engine stacks them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FusedNames(Vec<String>);

/// Layers of a model that are fused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FusedGroup {
    /// The path of the module that holds the members; empty at the top of the model.
    pub parent: String,
    /// The paths of the members, in the order of the names. Two or more.
    pub members: Vec<String>,
}

const DEFAULT: [&str; 8] = [
    "q_proj,k_proj,v_proj",
    "gate_proj,up_proj",
    "q_a_proj,kv_a_proj_with_mqa",
    "wq_a,wkv_a_with_mqa",
    "w1,w3",
    "wq,wk,wv",
    "query,key,value",
    "linear_inner,linear_outer",
];

impl Default for FusedLayers {
    fn default() -> Self {
        let kinds = DEFAULT.map(|names| names.parse().expect("the names are valid"));
        Self(kinds.into())
    }
}

impl FusedLayers {
    /// No layers are fused.
    pub const NONE: Self = Self(Vec::new());

    /// These kinds, and no others.
    ///
    /// # Errors
    /// [`FusedLayersError`]: a name occurs twice, or ends with the words of another. A layer would be in two groups.
    pub fn new(kinds: impl IntoIterator<Item = FusedNames>) -> Result<Self, FusedLayersError> {
        let kinds: Vec<FusedNames> = kinds.into_iter().collect();
        let names: Vec<&str> = kinds.iter().flat_map(|kind| kind.texts()).collect();
        match overlap(&names) {
            Some(error) => Err(error),
            None => Ok(Self(kinds)),
        }
    }

    /// The kinds.
    pub fn kinds(&self) -> &[FusedNames] {
        &self.0
    }

    /// The groups among the modules with these paths, sorted by path. A group has two members or more: a model without one of the
    /// members has a smaller group.
    pub fn groups<'a>(&self, modules: impl IntoIterator<Item = &'a str>) -> Vec<FusedGroup> {
        let mut found: BTreeMap<(&str, usize), Vec<(usize, &str)>> = BTreeMap::new();
        for module in modules {
            for (kind, names) in self.0.iter().enumerate() {
                let mut member = names.0.iter().enumerate();
                let member = member.find_map(|(place, name)| Some((place, above(module, name)?)));
                if let Some((place, parent)) = member {
                    found
                        .entry((parent, kind))
                        .or_default()
                        .push((place, module));
                }
            }
        }
        let groups = found.into_iter().map(|((parent, _), mut members)| {
            members.sort_unstable();
            members.dedup();
            FusedGroup {
                parent: parent.to_owned(),
                members: members.into_iter().map(|(_, path)| path.into()).collect(),
            }
        });
        groups.filter(|group| group.members.len() > 1).collect()
    }
}

/// The error of the first two names that a layer can have both of.
fn overlap(names: &[&str]) -> Option<FusedLayersError> {
    names.iter().enumerate().find_map(|(place, name)| {
        let mut others = names.iter().enumerate();
        let (_, other) = others.find(|(i, other)| *i != place && above(name, other).is_some())?;
        Some(match name == other {
            true => FusedLayersError {
                names: (*name).to_owned(),
                reason: "occurs twice",
            },
            false => FusedLayersError {
                names: format!("{name}` and `{other}"),
                reason: "are names of one layer",
            },
        })
    })
}

/// The path of the module that holds the module at this path, if its last words are the name.
fn above<'a>(module: &'a str, name: &str) -> Option<&'a str> {
    match module.strip_suffix(name)? {
        "" => Some(""),
        parent => parent.strip_suffix('.'),
    }
}

impl FusedGroup {
    /// The groups of those members that have one result of `what`, such as a number of inputs, in the order of their first members. A
    /// member whose result no other member has is left out.
    ///
    /// ```
    /// let fused = microscaling::FusedLayers::default();
    /// let group = &fused.groups(["attn.query", "attn.key", "attn.value"])[0];
    /// let inputs = |path: &str| if path == "attn.query" { 16 } else { 32 };
    /// assert_eq!(group.split(inputs)[0].to_string(), "attn.{key,value}");
    /// ```
    pub fn split<T: PartialEq>(&self, what: impl Fn(&str) -> T) -> Vec<Self> {
        let mut parts: Vec<(T, Vec<String>)> = Vec::new();
        for path in &self.members {
            let result = what(path);
            match parts.iter_mut().find(|(of_part, _)| *of_part == result) {
                Some((_, members)) => members.push(path.clone()),
                None => parts.push((result, [path.clone()].into())),
            }
        }
        let parts = parts.into_iter().filter(|(_, members)| members.len() > 1);
        let groups = parts.map(|(_, members)| Self {
            parent: self.parent.clone(),
            members,
        });
        groups.collect()
    }

    /// How two members differ: the first member, and the next member of which `what` says something else. `None` if `what` says the same
    /// of all members.
    ///
    /// ```
    /// let fused = microscaling::FusedLayers::default();
    /// let group = &fused.groups(["gate_proj", "up_proj"])[0];
    /// let inputs = |path: &str| format!("has {} inputs", if path == "up_proj" { 16 } else { 32 });
    /// let difference = group.difference(inputs);
    /// assert_eq!(difference.as_deref(), Some("`gate_proj` has 32 inputs, and `up_proj` has 16 inputs"));
    /// ```
    pub fn difference(&self, what: impl Fn(&str) -> String) -> Option<String> {
        let (first, others) = self.members.split_first()?;
        let of_first = what(first);
        let mut others = others.iter().map(|path| (path, what(path)));
        let (other, of_other) = others.find(|(_, text)| *text != of_first)?;
        Some(format!("`{first}` {of_first}, and `{other}` {of_other}"))
    }
}

impl FusedNames {
    /// The names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for FusedNames {
    type Err = FusedLayersError;

    fn from_str(text: &str) -> Result<Self, FusedLayersError> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let error = |reason| FusedLayersError {
            names: text.to_owned(),
            reason,
        };
        let is_path = |name: &String| name.split('.').all(|word| !word.is_empty());
        match () {
            () if !names.iter().all(is_path) => Err(error("has an empty name")),
            () if names.len() < 2 => Err(error("has one name")),
            () => {
                let names = Self(names);
                let texts: Vec<&str> = names.texts().collect();
                overlap(&texts).map_or(Ok(()), Err)?;
                Ok(names)
            }
        }
    }
}

impl Display for FusedNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// `PARENT.{MEMBER,MEMBER}`.
impl Display for FusedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dotted = match self.parent.is_empty() {
            true => String::new(),
            false => format!("{}.", self.parent),
        };
        let members = self.members.iter();
        let names = members.map(|path| path.strip_prefix(&dotted).unwrap_or(path).to_string());
        let names: Vec<String> = names.collect();
        write!(f, "{dotted}{{{}}}", names.join(","))
    }
}

crate::impl_serde_by_text!(FusedNames, "the names of fused layers");

/// Names of layers that do not make a group.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "fused layers: `{names}` {reason}; allowed: two names or more with commas between them, such as `q_proj,k_proj,v_proj`, \
     each once"
)]
#[non_exhaustive]
pub struct FusedLayersError {
    /// The given names.
    pub names: String,
    /// The fault of the names.
    pub reason: &'static str,
}

crate::error::debug_is_display!(FusedLayersError);
