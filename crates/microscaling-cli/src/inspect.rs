//! `microscaling inspect`.

use crate::checkpoint::Checkpoint;
use crate::done::Done;
use crate::error::Error;
use crate::formats::{bytes_of, table};
use microscaling::safetensors::CheckpointLayout;
use std::path::PathBuf;

/// Show the contents of a checkpoint: its packed weights, which are read and checked, and all other tensors
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A safetensors file, the index of several, a folder with one of either, or NumPy's `.npy`
    input: PathBuf,
    /// The layout; needed only for `gguf-mxfp4`, which names and types of tensors do not reveal
    #[arg(long)]
    from: Option<CheckpointLayout>,
}

pub(crate) fn run(args: &Args) -> Result<Done, Error> {
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
    for (name, layout) in read.weights() {
        let packed = read.packed(name).expect("it is one of the weights");
        let packed = packed.map_err(|source| Error::file(&input.path, source))?;
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
    let mut others = table(["Other tensor", "Type", "Shape", "Bytes"]);
    let mut of_others = 0;
    for name in read.others() {
        let tensor = read.tensor(name).expect("it is one of the names");
        of_others += tensor.bytes.len();
        others.add_row([
            name,
            &tensor.dtype,
            &format!("{:?}", tensor.shape),
            &tensor.bytes.len().to_string(),
        ]);
    }
    let mut done = Done::default();
    done.table("weights", weights);
    if !read.weights().is_empty() {
        let bits = 8.0 * bytes as f64 / elements.max(1) as f64;
        done.text(format!(
            "{bytes} bytes of packed weights, {bits:.3} bits an element\n\n"
        ));
        done.fact("bits_per_element", bits);
    }
    done.table("others", others);
    if !read.others().is_empty() {
        done.text(format!("{of_others} bytes of other tensors\n"));
    }
    done.fact("bytes_of_weights", bytes);
    done.fact("bytes_of_others", of_others);
    Ok(done)
}
