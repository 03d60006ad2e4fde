//! `microscaling convert`.

use crate::checkpoint::Checkpoint;
use crate::done::{Done, counted};
use crate::error::Error;
use crate::export::{Export, Exported, FusedResult, is_rounded};
use crate::formats::table;
use crate::fused::FusedArgs;
use crate::output::{Output, PackedWeight, Planned, ignored};
use crate::target::{NewLayout, ToLayout, Tool, WrittenForm};
use microscaling::WeightLayout;
use microscaling::safetensors::{CheckpointLayout, PackedFiles};
use microscaling_checkpoint::{QuantizedLayers, Schemes, companion_of};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Write the packed weights of a checkpoint in another layout: the same codes and scales, bit for bit
#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// A safetensors file, the index of several, or a folder with one of either
    input: PathBuf,
    /// The file to write, or the folder: for an input that is a folder or an index
    output: PathBuf,
    /// Replace files of the output that exist; an input is never replaced
    #[arg(long)]
    force: bool,
    /// The layout to write, see `formats`; or the layouts of a tool, one for each format: `compressed-tensors`, `modelopt`, `fp8`.
    /// `gptq`, `gptq_v2` and `awq` hold weights of integers
    #[arg(long)]
    to: ToLayout,
    /// Leave out how activations and the cache of keys and values are quantized
    #[arg(long)]
    weights_only: bool,
    /// The layout of the input; needed only for `gguf-mxfp4`, which names and types of tensors do not reveal
    #[arg(long)]
    from: Option<CheckpointLayout>,
    #[command(flatten)]
    fused: FusedArgs,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<Done, Error> {
    let is_fusing = matches!(args.to.tool(), Tool::CompressedTensors | Tool::ModelOpt);
    let why_none = || format!("layout {} shares no scales between layers", args.to);
    let fused = args.fused.layers(is_fusing, (!is_fusing).then(why_none))?;
    let input = Checkpoint::open(&args.input)?;
    let read = input.read(args.from)?;
    let layers = QuantizedLayers::of(&input.config, &read)?;
    check(args, &input, &read, &layers)?;
    let schemes = Schemes::of(&input.config)?;
    let export = Export {
        input: &input,
        read: &read,
        layers: &layers,
        schemes: &schemes,
        target: args.to,
        fused: &fused,
        weights_only: args.weights_only,
    };
    let mut exported = export.layers()?;
    let fused = export.fuse(&mut exported)?;
    let parts = exported.iter().flat_map(|x| &x.layer.parts);
    let parts: BTreeSet<&str> = parts.map(String::as_str).collect();
    let config = export.config(&exported, &ignored(&read, &parts))?;
    let first = exported.iter().find_map(|x| match x.form {
        WrittenForm::Packed(layout) => Some(layout),
        _ => None,
    });
    let mut summary = Summary {
        left_out: left_out(args, &read, &layers),
        count: exported.len(),
        fused,
        ..Summary::default()
    };
    let input_scales = exported.iter().filter_map(|x| x.input_scale.as_ref());
    summary.rounded_inputs = input_scales.filter(|x| is_rounded(&read, x)).count();
    if is_own(args) {
        let kept = exported
            .iter()
            .filter(|x| matches!(x.form, WrittenForm::Kept));
        let kept: Vec<String> = kept.map(|x| x.layer.name.clone()).collect();
        summary.count -= kept.len();
        let unknown = layers.unread.keys().cloned();
        summary.copied = kept.into_iter().chain(unknown).collect();
    }
    let mut planned: Vec<Planned> = exported
        .into_iter()
        .filter_map(|x| planned(&read, x))
        .collect();
    planned.extend(summary.left_out.iter().map(|name| Planned {
        name: name.clone(),
        file: read.file_of(name).unwrap_or(0),
        replaces: vec![name.clone()],
        layout: None,
        retold: Vec::new(),
    }));
    let output = Output {
        input: &input,
        read: &read,
        path: &args.output,
        layout: match args.to {
            ToLayout::Layout(layout) => layout,
            _ => first.unwrap_or(WeightLayout::Nvfp4PackQuantized.into()),
        },
        config,
        force: args.force,
    };
    let (files, bytes) = output.write(&planned, |name| {
        if let Some(weight) = read.integers().get(name) {
            let matrix = weight.matrix(|part| read.tensor(part));
            let layout = args.to.of_integers();
            let (matrix, layout) = matrix.zip(layout).expect("the layout holds the weight");
            return Ok(PackedWeight::Tensors(matrix.store(layout, name)));
        }
        let packed = read.packed(name).expect("it is one of the weights");
        let packed = packed.map_err(|source| Error::file(&input.path, source))?;
        // Powers of two have exact reciprocals.
        let is_rounded = packed.divisor().is_some_and(|x| x.to_bits() << 9 != 0);
        summary.rounded += usize::from(is_rounded && args.to.tool() == Tool::ModelOpt);
        Ok(PackedWeight::Blocks(packed, None))
    })?;
    Ok(summary.done(args, &files, bytes))
}

/// Whether weights get this project's layout, in which all other tensors may stand.
fn is_own(args: &ConvertArgs) -> bool {
    args.to == ToLayout::Layout(CheckpointLayout::Microscaling)
}

/// Checks that there are weights to convert, and that all of them are read.
fn check(
    args: &ConvertArgs,
    input: &Checkpoint,
    read: &PackedFiles<'_>,
    layers: &QuantizedLayers,
) -> Result<(), Error> {
    (layers.check_packed(read)).map_err(Error::unread(&input.path))?;
    if !is_own(args) {
        layers.check().map_err(Error::unread(&input.path))?;
    }
    layers.check_config(&input.config, args.from.is_some())?;
    match layers.known.values().next() {
        None => check_packed(input, read, args.from),
        Some(layer) if is_own(args) && read.weights().is_empty() => Err(Error::Unheld {
            path: input.path.clone(),
            layer: layer.name.clone(),
            what: format!("{} ({})", layer.format, layer.layout),
            target: args.to.to_string(),
        }),
        Some(_) => Ok(()),
    }
}

/// The result of a conversion.
#[derive(Default)]
struct Summary {
    /// The weights that have the new layout.
    count: usize,
    /// The weights in other layouts, which are copied.
    copied: Vec<String>,
    /// The tensors of quantized activations and caches that are left out.
    left_out: Vec<String>,
    /// The weights whose divisor became a factor that is rounded.
    rounded: usize,
    /// The scales of inputs that became a reciprocal whose own reciprocal is another number.
    rounded_inputs: usize,
    fused: FusedResult,
}

impl Summary {
    fn done(self, args: &ConvertArgs, files: &[PathBuf], bytes: u64) -> Done {
        let (target, mut done) = (args.to.to_string(), Done::default());
        done.text(format!(
            "{} in layout {target}; {bytes} bytes of tensors in\n",
            counted(self.count)
        ));
        if self.rounded > 0 {
            done.text(format!(
                "compressed-tensors divides by the tensor scale, and Model Optimizer multiplies by its reciprocal, which is \
                 rounded: in {}, values may differ by 2 units of float32's last place\n",
                counted(self.rounded)
            ));
        }
        if self.rounded_inputs > 0 {
            done.text(format!(
                "{} became a reciprocal that is rounded: back in the first layout, it differs by a unit of float32's last place\n",
                match self.rounded_inputs {
                    1 => "1 scale of an input".to_owned(),
                    count => format!("each of {count} scales of inputs"),
                }
            ));
        }
        let FusedResult {
            shared_inputs,
            differ,
            has_other_scales,
        } = self.fused;
        if shared_inputs > 0 {
            done.text(format!(
                "{} became the scale of the largest input among fused layers\n",
                match shared_inputs {
                    1 => "1 scale of an input".to_owned(),
                    count => format!("{count} scales of inputs"),
                }
            ));
        }
        let mut rows = table(["Layers that engines fuse", "Difference"]);
        for row in differ {
            rows.add_row(row);
        }
        done.table_of_some("fused_layers_that_differ", rows);
        if has_other_scales {
            done.text(
                "An engine that fuses layers with different tensor scales reads other values: it takes one tensor scale for all layers of a group. `quantize` \
                 gives them one, from the float model\n",
            );
        }
        if let Some(first) = self.copied.first() {
            done.text(format!(
                "{} that are quantized in other layouts are copied unchanged, such as `{first}`\n",
                counted(self.copied.len())
            ));
        }
        if let Some(first) = self.left_out.first() {
            let count = self.left_out.len();
            done.text(format!(
                "{count} tensors of quantized activations and caches left out, such as `{first}`\n"
            ));
        }
        done.fact("weights", self.count);
        done.fact("rounded_reciprocals", self.rounded);
        done.fact("rounded_input_scales", self.rounded_inputs);
        done.fact("shared_input_scales", shared_inputs);
        done.fact("copied", self.copied);
        done.fact("left_out", self.left_out);
        done.fact("layout", target);
        done.fact("bytes", bytes);
        done.files(files);
        done
    }
}

/// The plan of a weight and of the scale of its input; `None` of a weight that stays unchanged.
fn planned(read: &PackedFiles<'_>, exported: Exported<'_>) -> Option<Planned> {
    let layer = exported.layer;
    let (layout, mut retold, mut replaces) = match exported.form {
        WrittenForm::Repacked { layout, .. } => {
            let layout = NewLayout::Integers(layout);
            (Some(layout), Vec::new(), layer.parts.clone())
        }
        WrittenForm::Packed(layout) => {
            let layout = NewLayout::Packed(layout);
            (Some(layout), Vec::new(), layer.parts.clone())
        }
        WrittenForm::Retold(retold) => (None, retold, layer.parts.clone()),
        WrittenForm::Kept => (None, Vec::new(), Vec::new()),
    };
    replaces.extend(exported.input_scale.iter().map(|scale| scale.from.clone()));
    retold.extend(exported.input_scale);
    let file = layer.parts.iter().find_map(|part| read.file_of(part));
    (!replaces.is_empty()).then(|| Planned {
        name: layer.name.clone(),
        file: file.unwrap_or(0),
        replaces,
        layout,
        retold,
    })
}

/// The tensors of quantized activations and caches, if they are left out.
fn left_out(args: &ConvertArgs, read: &PackedFiles<'_>, layers: &QuantizedLayers) -> Vec<String> {
    let parts: BTreeSet<&String> = layers.known.values().flat_map(|x| &x.parts).collect();
    let is_left = |name: &&str| {
        args.weights_only
            && !parts.contains(&(*name).to_owned())
            && companion_of(name, |weight| layers.known.contains_key(weight))
    };
    read.names().filter(is_left).map(str::to_owned).collect()
}

/// Checks that a checkpoint has packed weights.
pub(crate) fn check_packed(
    input: &Checkpoint,
    read: &PackedFiles<'_>,
    layout: Option<CheckpointLayout>,
) -> Result<(), Error> {
    if !read.weights().is_empty() {
        return Ok(());
    }
    let looked_for = match layout {
        Some(layout) => format!("layout {layout}"),
        None => "any layout but gguf-mxfp4, which `--from` has to name".into(),
    };
    Err(Error::NothingPacked {
        path: input.path.clone(),
        looked_for,
    })
}
