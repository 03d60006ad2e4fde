//! The tensors that are packed.

use super::numbers::NewNumbers;
use super::shared::Shared;
use super::{QuantizeArgs, along};
use crate::checkpoint::Checkpoint;
use crate::done::Done;
use crate::error::Error;
use crate::numbers::{floats, is_matrix};
use crate::output::Planned;
use globset::{Glob, GlobSet, GlobSetBuilder};
use microscaling::safetensors::{FileTensor, PackedFiles};
use microscaling::{BlockFormat, Dialect, DialectError, internal};
use microscaling_checkpoint::is_companion;

/// The names of the tensors to pack.
pub(super) fn chosen(
    args: &QuantizeArgs,
    input: &Checkpoint,
    read: &PackedFiles<'_>,
) -> Result<Vec<String>, Error> {
    let nothing = |reason: String| Error::NothingToPack {
        path: input.path.clone(),
        reason,
    };
    let names = || read.names();
    for glob in args.only.iter().chain(&args.skip) {
        let matcher = glob.compile_matcher();
        if !names().any(|name| matcher.is_match(name)) {
            return Err(nothing(format!("no name matches `{}`", glob.glob())));
        }
    }
    let (only, skip) = (set(&args.only)?, set(&args.skip)?);
    let mut chosen = Vec::new();
    for name in names() {
        let tensor = read.tensor(name).expect("it is one of the names");
        let is_named = only.is_match(name);
        let what = if !is_matrix(&tensor) {
            Some("")
        } else if tensor.bytes.is_empty() {
            Some("without elements, ")
        } else if is_bias(name) {
            Some("a bias, ")
        } else {
            is_companion(read, name).then_some("part of a quantized weight, ")
        };
        if skip.is_match(name) || !(is_named || only.is_empty() && what.is_none()) {
            continue;
        }
        if let Some(what) = what {
            return Err(Error::NoWeight {
                path: input.path.clone(),
                tensor: name.to_owned(),
                what,
                dtype: tensor.dtype,
                shape: tensor.shape,
            });
        }
        along(args, input, name, &tensor.shape)?;
        chosen.push(name.to_owned());
    }
    match chosen.is_empty() {
        true => Err(nothing(
            "no tensor of floats has elements, has two axes or more, and is a weight".into(),
        )),
        false => Ok(chosen),
    }
}

/// The tensors to pack, and the names of those that the dialect makes NaN of, which stay as they are.
pub(super) fn plan(
    args: &QuantizeArgs,
    target: NewNumbers,
    (input, read): (&Checkpoint, &PackedFiles<'_>),
    names: &[String],
    shared: &Shared,
) -> Result<(Vec<Planned>, Vec<String>), Error> {
    let (mut planned, mut zeros) = (Vec::new(), Vec::new());
    for name in names {
        let tensor = read.tensor(name).expect("it is one of the names");
        let fits = match target {
            NewNumbers::Blocks(..) => Ok(()),
            _ if along(args, input, name, &tensor.shape)?.0 == 0 => {
                Err("its products sum over axis 0; allowed: the last axis".to_owned())
            }
            NewNumbers::Integers(format, layout) => {
                format.group(layout, name, &tensor.shape).map(drop)
            }
            NewNumbers::Compressed(numbers) => numbers.block(name, &tensor.shape).map(drop),
        };
        fits.map_err(|reason| Error::Unheld {
            path: input.path.clone(),
            layer: name.clone(),
            what: format!("to become {}; {reason}", target.format(args.scheme)),
            target: args.layout.name().to_owned(),
        })?;
        let largest = shared.largest(name);
        let dialect = args.dialect.zip(target.blocks());
        if dialect.is_some_and(|(dialect, format)| is_zero(dialect, format, &tensor, largest)) {
            zeros.push(name.to_owned());
            continue;
        }
        planned.push(Planned {
            name: name.to_owned(),
            file: read.file_of(name).expect("it is in a file"),
            replaces: vec![name.to_owned()],
            layout: Some(args.layout),
            retold: Vec::new(),
        });
    }
    match planned.is_empty() {
        true => Err(Error::NothingToPack {
            path: input.path.clone(),
            reason: format!("the dialect makes NaN of zeros: {}", zeros.join(", ")),
        }),
        false => Ok((planned, zeros)),
    }
}

/// Whether the dialect makes NaN of a tensor, whose largest magnitude is zero or nearly so. `of_group` is the largest magnitude of a
/// group of fused layers with the tensor.
fn is_zero(
    dialect: Dialect,
    format: BlockFormat,
    tensor: &FileTensor<'_>,
    of_group: Option<f32>,
) -> bool {
    if !format.tensor_scale {
        return false;
    }
    let numbers = floats(tensor).unwrap_or_default();
    // A NaN is the largest.
    let largest = of_group.unwrap_or_else(|| f32::from_bits(internal::largest(&numbers)));
    let block = format.group_size();
    let encoded = dialect.encode(format, &vec![largest; block], &[1, block]);
    !numbers.is_empty() && matches!(encoded, Err(DialectError::Zeros { .. }))
}

fn is_bias(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.split('_').any(|word| word == "bias")
}

fn set(globs: &[Glob]) -> Result<GlobSet, Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(glob.clone());
    }
    set.build()
        .map_err(|error| Error::Arguments(error.to_string()))
}

/// Adds the tensors that stay unchanged, because the dialect makes NaN of them.
pub(super) fn add_zeros(args: &QuantizeArgs, done: &mut Done, zeros: Vec<String>) {
    if let (Some(dialect), false) = (args.dialect, zeros.is_empty()) {
        done.text(format!(
            "Unchanged, because {dialect} makes NaN of zeros: {}\n",
            zeros.join(", ")
        ));
    }
    done.fact("zeros", zeros);
}
