//! `microscaling convert`.

use crate::checkpoint::Checkpoint;
use crate::companions::{RenamedScale, quantized};
use crate::done::{Done, counted};
use crate::error::Error;
use crate::output::{Output, Planned};
use microscaling::safetensors::{CheckpointLayout, PackedFiles};
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
    /// The layout to write, see `formats`
    #[arg(long)]
    to: CheckpointLayout,
    /// The layout of the input; needed only for `gguf-mxfp4`, which names and types of tensors do not reveal
    #[arg(long)]
    from: Option<CheckpointLayout>,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<Done, Error> {
    let input = Checkpoint::open(&args.input)?;
    let read = input.read(args.from)?;
    check_packed(&input, &read, args.from)?;
    let weights = read.weights().keys().map(|name| {
        let mut replaces = read.parts_of(name);
        let first = replaces.first().and_then(|part| read.file_of(part));
        let scale = RenamedScale::of(&read, name, args.to);
        replaces.extend(scale.map(|scale| scale.from));
        Planned {
            name: name.clone(),
            file: first.unwrap_or(0),
            replaces,
        }
    });
    let planned: Vec<Planned> = weights.collect();
    let output = Output {
        input: &input,
        read: &read,
        path: &args.output,
        layout: args.to,
        force: args.force,
    };
    let (files, bytes) = output.write(&planned, |name| {
        let packed = read.packed(name).expect("it is one of the weights");
        let packed = packed.map_err(|source| Error::file(&input.path, source))?;
        Ok((packed, None))
    })?;
    let (count, layout) = (planned.len(), args.to);
    let mut done = Done::default();
    done.text(format!(
        "{} in layout {layout}; {bytes} bytes of tensors in\n",
        counted(count)
    ));
    let copied: Vec<String> = quantized(&read).into_keys().collect();
    if let Some(first) = copied.first() {
        done.text(format!(
            "{} weights that are quantized in other layouts are copied unchanged, such as `{first}`\n",
            copied.len()
        ));
    }
    done.fact("weights", count);
    done.fact("copied", copied);
    done.fact("layout", layout.name());
    done.fact("bytes", bytes);
    done.files(&files);
    Ok(done)
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
