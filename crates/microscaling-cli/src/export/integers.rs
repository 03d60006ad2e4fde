//! The configs of GPTQ and AWQ.

use super::{Export, Exported};
use crate::error::Error;
use microscaling::safetensors::IntegerLayout;
use serde_json::{Map, Value, json};

/// A layer of integers, as a config describes the layer.
pub(crate) struct IntegerLayer<'a> {
    pub(crate) module: &'a str,
    pub(crate) bits: u32,
    pub(crate) inputs: usize,
    /// How many inputs share a scale.
    pub(crate) group: usize,
    /// Whether every zero point is the middle of the integers.
    pub(crate) is_symmetric: bool,
    /// Whether the groups of inputs are permuted.
    pub(crate) is_permuted: bool,
}

impl Export<'_> {
    pub(super) fn integers_config(
        &self,
        exported: &[Exported<'_>],
        ignore: &[&str],
    ) -> Result<Value, Error> {
        let layout = self.target.of_integers().expect("the target has integers");
        let layers = exported.iter().map(|exported| {
            let layer = exported.layer;
            let weight = &self.read.integers()[&layer.name];
            let fits = weight.fits(layout, &layer.name, |name| self.read.tensor(name));
            let (is_symmetric, is_permuted) = fits.expect("the layout holds the layer");
            IntegerLayer {
                module: layer.module(),
                bits: weight.bits,
                inputs: weight.shape[1],
                group: weight.block[1],
                is_symmetric,
                is_permuted,
            }
        });
        integers_config(layout, &layers.collect::<Vec<_>>(), ignore).map_err(|(at, what)| {
            Error::Unheld {
                path: self.input.path.clone(),
                layer: exported[at].layer.name.clone(),
                what,
                target: self.target.to_string(),
            }
        })
    }
}

/// The `quantization_config` of layers of integers; `ignore` are the modules of other matrices.
///
/// # Errors
/// The place of a layer that the config cannot describe, and the reason.
pub(crate) fn integers_config(
    layout: IntegerLayout,
    layers: &[IntegerLayer<'_>],
    ignore: &[&str],
) -> Result<Value, (usize, String)> {
    let is_cut = |x: &IntegerLayer<'_>| x.group < x.inputs;
    let fields = |x: &IntegerLayer<'_>| {
        // A row of one group may have the length of other layers' groups.
        let is_size = layers
            .iter()
            .any(|other| is_cut(other) && other.group == x.group);
        let size = if is_size { json!(x.group) } else { json!(-1) };
        json!({"bits": x.bits, "group_size": size})
    };
    let first = fields(&layers[0]);
    let others = layers.iter().enumerate().skip(1);
    let mut others = others.filter(|(_, x)| fields(x) != first);
    let mut config = json!({
        "bits": first["bits"],
        "group_size": first["group_size"],
    });
    let is_head = |module: &str| module.rsplit('.').next() == Some("lm_head");
    if layout == IntegerLayout::Awq {
        if let Some((at, other)) = others.next() {
            let reason = format!(
                "in groups of {} inputs; allowed: {}, the groups of `{}`",
                other.group, layers[0].group, layers[0].module
            );
            return Err((at, reason));
        }
        config["quant_method"] = "awq".into();
        config["version"] = "gemm".into();
        config["zero_point"] = true.into();
        config["modules_to_not_convert"] = json!(ignore);
    } else {
        config["quant_method"] = "gptq".into();
        config["checkpoint_format"] = layout.name().into();
        config["sym"] = layers.iter().all(|x| x.is_symmetric).into();
        config["desc_act"] = layers.iter().any(|x| x.is_permuted).into();
        config["lm_head"] = layers.iter().any(|x| is_head(x.module)).into();
    }
    // For GPTQModel and vLLM: layers with fields of their own, and layers in float.
    let own = others.map(|(_, x)| (format!("+:^{}$", escaped(x.module)), fields(x)));
    let floats = ignore.iter().filter(|module| !is_head(module));
    let floats = floats.map(|module| (format!("-:^{}$", escaped(module)), json!({})));
    let dynamic: Map<String, Value> = own.chain(floats).collect();
    if !dynamic.is_empty() {
        config["dynamic"] = dynamic.into();
    }
    Ok(config)
}

/// A name as a regular expression.
fn escaped(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || letter == '_';
    let letters = name.chars().map(|letter| match is_plain(letter) {
        true => letter.to_string(),
        false => format!("\\{letter}"),
    });
    letters.collect()
}
