//! `microscaling inspect`.

use crate::checkpoint::Checkpoint;
use crate::companions::{called, quantized};
use crate::done::Done;
use crate::error::Error;
use crate::formats::{bytes_of, table};
use comfy_table::Table;
use microscaling::safetensors::{CheckpointLayout, PackedFiles};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Show the contents of a checkpoint: its packed weights, which are read and checked, and all other tensors; the exit status is 2
/// if a packed weight is damaged
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// A safetensors file, the index of several, a folder with one of either, or NumPy's `.npy`
    input: PathBuf,
    /// The layout; needed only for `gguf-mxfp4`, which names and types of tensors do not reveal
    #[arg(long)]
    from: Option<CheckpointLayout>,
}

pub(crate) fn run(args: &InspectArgs) -> Result<Done, Error> {
    let input = Checkpoint::open(&args.input)?;
    let read = input.read(args.from)?;
    let (mut bytes, mut elements) = (0, 0);
    let mut weights = table([
        "Packed weight",
        "Layout",
        "Format",
        "Shape",
        "Axis",
        "Bytes",
    ]);
    let mut unread = table(["Weight that is not read", "Type", "Shape", "Reason"]);
    let mut status = 0;
    for (name, layout) in read.weights() {
        let packed = match read.packed(name).expect("it is one of the weights") {
            Ok(packed) => packed,
            Err(error) => {
                unread.add_row([name, layout.name(), "-", &error.to_string()]);
                status = 2;
                continue;
            }
        };
        let (shape, size) = (packed.shape(), bytes_of(&packed));
        bytes += size;
        elements += shape.iter().product::<usize>();
        weights.add_row([
            name,
            layout.name(),
            &packed.format().to_string(),
            &format!("{shape:?}"),
            &packed.axis().to_string(),
            &size.to_string(),
        ]);
    }
    for (name, weight) in read.scaled() {
        let codes = read.tensor(name).expect("it is one of the names");
        let scales = read.tensor(&weight.scales).expect("the weight has it");
        let size = codes.bytes.len() + scales.bytes.len();
        bytes += size;
        elements += codes.bytes.len();
        weights.add_row([
            name,
            "scaled",
            &format!(
                "{}, a scale in {} for each {:?}",
                weight.element, scales.dtype, weight.block
            ),
            &format!("{:?}", codes.shape),
            "-",
            &size.to_string(),
        ]);
    }
    add_unknown(&mut unread, &input, &read);
    let (others, of_others) = others(&read);
    let mut done = Done::default();
    done.table("weights", weights);
    if elements > 0 {
        let bits = 8.0 * bytes as f64 / elements.max(1) as f64;
        done.text(format!(
            "{bytes} bytes of packed weights, {bits:.3} bits an element\n\n"
        ));
        done.fact("bits_per_element", bits);
    }
    // CSV has no empty table of weights that are not read.
    match unread.row_count() {
        0 => done.fact("unread", serde_json::json!([])),
        _ => done.table("unread", unread),
    }
    done.table("others", others);
    if of_others > 0 {
        done.text(format!("{of_others} bytes of other tensors\n"));
    }
    done.fact("bytes_of_weights", bytes);
    done.fact("bytes_of_others", of_others);
    done.status = status;
    Ok(done)
}

/// Adds the weights that are quantized in an unknown layout to the table of those that are not read.
fn add_unknown(unread: &mut Table, input: &Checkpoint, read: &PackedFiles<'_>) {
    for (name, codes) in quantized(read) {
        if read.scaled().contains_key(&name) {
            continue;
        }
        let tensor = read.tensor(&codes).expect("it is one of the names");
        let called = called(&input.config, &name);
        let called = called.map(|called| format!("; config.json: {called}"));
        let reason = format!("unknown layout{}", called.unwrap_or_default());
        unread.add_row([
            &name,
            &tensor.dtype,
            &format!("{:?}", tensor.shape),
            &reason,
        ]);
    }
}

/// The tensors outside of quantized weights, and their bytes.
fn others(read: &PackedFiles<'_>) -> (Table, usize) {
    let mut others = table(["Other tensor", "Type", "Shape", "Bytes"]);
    let mut bytes = 0;
    let scaled = read.scaled().iter();
    let of_scaled: BTreeSet<&String> = scaled
        .flat_map(|(name, weight)| [name, &weight.scales])
        .collect();
    for name in read.others() {
        if of_scaled.contains(name) {
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
