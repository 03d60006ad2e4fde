//! `microscaling inspect`.

use crate::checkpoint::Checkpoint;
use crate::done::Done;
use crate::error::Error;
use crate::formats::table;
use crate::fused::{FusedKinds, FusedScales};
use crate::groups::{groups, in_float};
use crate::numbers::floats;
use comfy_table::Table;
use microscaling::safetensors::{CheckpointLayout, PackedFiles};
use microscaling_checkpoint::{QuantizedLayers, Schemes};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Show the contents of a checkpoint: its quantized weights, the layers of each format, scales of activations, and other tensors
///
/// Packed weights are read and checked. The exit status is 2 if a quantized weight is not read or has damaged scales, or config.json contradicts the tensors.
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// A safetensors file, the index of several, a folder with one of either, or NumPy's `.npy`
    input: PathBuf,
    /// The layout; needed only for `gguf-mxfp4`, which names and types of tensors do not reveal
    #[arg(long)]
    from: Option<CheckpointLayout>,
    #[command(flatten)]
    fused: FusedKinds,
}

pub(crate) fn run(args: &InspectArgs) -> Result<Done, Error> {
    let fused = args.fused.layers()?;
    let input = Checkpoint::open(&args.input)?;
    let read = input.read(args.from)?;
    let layers = QuantizedLayers::of(&input.config, &read)?;
    let schemes = Schemes::of(&input.config)?;
    let mut done = Done::default();
    let bytes = weights(&mut done, &read, &layers);
    if !layers.known.is_empty() {
        done.table("groups", groups(&read, &schemes, &layers));
        done.table_of_some("in_float", in_float(&read, &schemes, &layers));
        let scales = FusedScales::of(&read, &layers, &fused);
        add_scales(&mut done, &read, &schemes, &layers, &scales);
    }
    let mut unread = table(["Weight that is not read", "Type", "Shape", "Reason"]);
    for (name, (codes, reason)) in &layers.unread {
        let tensor = read.tensor(codes);
        let (dtype, shape) = tensor.map_or(("-".to_owned(), "-".to_owned()), |tensor| {
            (tensor.dtype, format!("{:?}", tensor.shape))
        });
        unread.add_row([name, &dtype, &shape, reason]);
    }
    done.table_of_some("unread", unread);
    let damaged = damaged(&read);
    let is_finite = damaged.is_empty();
    done.table_of_some("damaged", damaged);
    let mut refused = table(["Field of config.json that is refused", "Reason"]);
    for field in &layers.refused {
        refused.add_row([field.field, &field.reason]);
    }
    done.table_of_some("refused", refused);
    let (others, of_others) = others(&read, &layers);
    done.table("others", others);
    if read.names().next().is_none() {
        done.text("no tensors\n");
    } else if of_others > 0 {
        done.text(format!("{of_others} bytes of other tensors\n"));
    }
    done.fact("bytes_of_weights", bytes);
    done.fact("bytes_of_others", of_others);
    let is_whole = is_finite && layers.unread.is_empty() && layers.doubts.is_empty();
    done.status = if !is_whole || !layers.refused.is_empty() {
        2
    } else {
        0
    };
    Ok(done)
}

/// The weights of integers that have scales of NaN or Inf, which no integer has.
fn damaged(read: &PackedFiles<'_>) -> Table {
    let mut rows = table(["Weight with damaged scales", "Reason"]);
    for (name, weight) in read.integers() {
        let scales = read.tensor(&weight.scales);
        let scales = scales
            .and_then(|scales| floats(&scales))
            .unwrap_or_default();
        if let Some(place) = scales.iter().position(|scale| !scale.is_finite()) {
            let (part, number) = (&weight.scales, scales[place]);
            let reason = format!("number {place} of `{part}` is {number}; expected finite numbers");
            rows.add_row([name, &reason]);
        }
    }
    rows
}

/// Adds the table of the weights, and gives their bytes.
fn weights(done: &mut Done, read: &PackedFiles<'_>, layers: &QuantizedLayers) -> usize {
    let (mut bytes, mut elements) = (0, 0);
    let mut rows = table([
        "Packed weight",
        "Layout",
        "Format",
        "Shape",
        "Axis",
        "Bytes",
    ]);
    for layer in layers.known.values() {
        let parts = layer.parts.iter();
        let sizes = parts.filter_map(|part| Some(read.tensor(part)?.bytes.len()));
        let size: usize = sizes.sum();
        bytes += size;
        elements += layer.shape.iter().product::<usize>();
        rows.add_row([
            &layer.name,
            layer.layout,
            &layer.format,
            &format!("{:?}", layer.shape),
            &layer.axis.map_or("-".to_owned(), |axis| axis.to_string()),
            &size.to_string(),
        ]);
    }
    done.table("weights", rows);
    if elements > 0 {
        let bits = 8.0 * bytes as f64 / elements.max(1) as f64;
        done.text(format!(
            "{bytes} bytes of quantized weights, {bits:.3} bits an element\n\n"
        ));
        done.fact("bits_per_element", bits);
    }
    bytes
}

/// Adds what the scales of several layers and of the cache say, and what config.json contradicts.
fn add_scales(
    done: &mut Done,
    read: &PackedFiles<'_>,
    schemes: &Schemes,
    layers: &QuantizedLayers,
    fused: &FusedScales,
) {
    let differ = fused.table();
    if fused.groups > 0 {
        let equal = fused.groups - fused.different_groups();
        done.text(format!(
            "Layers that engines fuse (q, k, v; gate, up): {equal} of {} groups share the scales of tensors\n",
            fused.groups
        ));
    }
    done.fact("fused_groups", fused.groups);
    done.table_of_some("fused_scales_that_differ", differ);
    let is_cache = |name: &&str| CACHE_SCALES.iter().any(|end| name.ends_with(end));
    let caches = read.names().filter(is_cache).count();
    if caches > 0 || !schemes.kv_cache.is_null() {
        let said = match &schemes.kv_cache {
            serde_json::Value::Null => "config.json says nothing".to_owned(),
            said => format!("config.json: {said}"),
        };
        done.text(format!(
            "Scales of the cache of keys and values: {caches}; {said}\n"
        ));
    }
    done.fact("kv_cache_scales", caches);
    done.fact("kv_cache", schemes.kv_cache.clone());
    let mut doubts = table(["Weight that config.json contradicts", "Reason"]);
    for doubt in &layers.doubts {
        doubts.add_row([doubt.0, doubt.1]);
    }
    done.table_of_some("contradictions", doubts);
}

/// The ends of the names of scales of the cache.
const CACHE_SCALES: [&str; 2] = [".k_scale", ".v_scale"];

/// The tensors outside of quantized weights, and their bytes.
fn others(read: &PackedFiles<'_>, layers: &QuantizedLayers) -> (Table, usize) {
    let mut others = table(["Other tensor", "Type", "Shape", "Bytes"]);
    let mut bytes = 0;
    let parts: BTreeSet<&String> = layers.known.values().flat_map(|x| &x.parts).collect();
    for name in read.others() {
        if parts.contains(name) {
            continue;
        }
        let tensor = read.tensor(name).expect("it is one of the names");
        bytes += tensor.bytes.len();
        others.add_row([
            name,
            &tensor.dtype,
            &format!("{:?}", tensor.shape),
            &tensor.bytes.len().to_string(),
        ]);
    }
    (others, bytes)
}
