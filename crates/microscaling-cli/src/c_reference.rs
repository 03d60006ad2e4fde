//! `microscaling c-reference`

use crate::done::Done;
use crate::error::Error;
use crate::files::{check_targets, new_file};
use burn_mx_files::put_all;
use microscaling_c::{Reference, Subject};
use microscaling_product::Accumulation;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write a format down as a C99 header, and as SystemVerilog: integers alone, equal to this program bit for bit
#[derive(Debug, clap::Args)]
pub(crate) struct CReferenceArgs {
    /// The format: of blocks (`mxfp8_e4m3`, `nvfp4`, `block(…)`), of elements (`fp8_e4m3`), or of P3109 (`binary8p4se`)
    format: Subject,
    /// Add the dot product of two rows of codes, as this accumulator sums it: a chip, or `accumulator(…)`
    #[arg(long, value_name = "ACCUMULATOR")]
    accumulator: Option<Accumulation>,
    /// The prefix of all names, in place of the format's text
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// The C99 header to write
    #[arg(long, value_name = "FILE.h")]
    out: PathBuf,
    /// Also write elements and blocks in plain SystemVerilog, which is synthesizable
    #[arg(long, value_name = "FILE.sv")]
    systemverilog: Option<PathBuf>,
    /// Also write a package that imports the C functions into a simulator, and FILE.c, which the simulator compiles
    #[arg(long, value_name = "FILE.sv")]
    dpi: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &CReferenceArgs) -> Result<Done, Error> {
    let refused = |error: microscaling_c::ReferenceError| Error::Arguments(error.to_string());
    let mut reference = Reference::new(args.format).map_err(refused)?;
    if let Some(accumulation) = args.accumulator {
        reference = reference.with_accumulator(accumulation).map_err(refused)?;
    }
    if let Some(prefix) = &args.prefix {
        reference = reference.with_prefix(prefix).map_err(refused)?;
    }
    let mut texts = vec![(args.out.clone(), reference.header())];
    if let Some(path) = &args.systemverilog {
        texts.push((path.clone(), reference.systemverilog().map_err(refused)?));
    }
    if let Some(path) = &args.dpi {
        let source = path.with_extension("c");
        let header = relative(&args.out, &source)?;
        let text = reference
            .dpi(&header, &file_name(&source))
            .map_err(refused)?;
        let [package, code] = text;
        texts.extend([(path.clone(), package), (source, code)]);
    }
    let paths: Vec<PathBuf> = texts.iter().map(|(path, _)| path.clone()).collect();
    for (i, path) in paths.iter().enumerate() {
        if paths[..i].contains(path) {
            return Err(Error::Arguments(format!(
                "two outputs are `{}`; allowed: files that differ",
                path.display()
            )));
        }
    }
    check_targets(&paths, &[], args.force)?;
    let files = texts
        .iter()
        .map(|(path, text)| new_file(path, |file| file.write_all(text.as_bytes())));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut done = Done::default();
    done.files(&put_all(files, args.force).map_err(Error::put)?);
    Ok(done)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The header as the source includes it: its name, as both are in one folder.
fn relative(header: &Path, source: &Path) -> Result<String, Error> {
    let [own, other] = [header, source].map(|path| path.parent().unwrap_or(Path::new("")));
    match own == other {
        true => Ok(file_name(header)),
        false => Err(Error::Arguments(format!(
            "--dpi is in folder `{}`, expected the folder of --out, `{}`: its C file includes the header",
            other.display(),
            own.display()
        ))),
    }
}
