//! `microscaling vectors`, and the sets of vectors that `microscaling check` compares with.

mod array;

use crate::done::{Done, Form};
use crate::error::Error;
use crate::files::check_targets;
use crate::formats::table;
pub(crate) use array::array_of;
use burn_mx_files::{NewFile, put_all};
use comfy_table::Table;
use microscaling::BlockFormat;
use microscaling_product::Accumulation;
use microscaling_vectors::{
    BlockSet, CodeFormat, CodeSet, Cover, DotOperand, DotSet, ElementOverflow, ElementRounding,
    ElementRule, ElementSet, InputType, SmallResults, TileSet, TileShape, VectorForm, VectorSet,
    VectorWriter, VectorsError,
};
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Write test vectors for hardware: inputs, and the outputs that a device must give
///
/// Without `--output` the vectors go to the standard output, as a stream: `microscaling vectors … | simulator | microscaling check … -`.
#[derive(Debug, clap::Args)]
pub(crate) struct VectorsArgs {
    #[command(subcommand)]
    set: SetCommand,
    /// The form: `hex` (for `$readmemh`), `csv`, `jsonl` (JSON Lines) or `npy` (NumPy) [default: by the ending of the output, else `hex`]
    #[arg(long, global = true)]
    form: Option<VectorForm>,
    /// The file to write; the standard output if left out, or if `-`
    #[arg(long, short, global = true)]
    output: Option<PathBuf>,
    /// The file for the layout, in JSON: the bits of each field on the bus [default: beside an output in `hex`, with the ending
    /// `.layout.json`]
    #[arg(long, global = true)]
    layout: Option<PathBuf>,
    /// Replace files that exist
    #[arg(long, global = true)]
    force: bool,
    /// Say which codes, scales, roundings and special cases the set hits; without `--output`, in place of the vectors
    #[arg(long, global = true)]
    cover: bool,
}

/// A set of vectors.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SetCommand {
    /// Every code of a format, with its value
    Codes {
        /// An element format (`fp8_e4m3`, `float(exponent_bits=3,mantissa_bits=2,bias=3)`, `int8`) or one of P3109 (`binary8p4se`)
        format: CodeFormat,
        /// Most cases
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Conversions of numbers to an element format: codes, midpoints and their neighbours, edges, special cases
    Elements {
        /// An element format (`fp8_e4m3`, `float(exponent_bits=3,mantissa_bits=2,bias=3)`, `int8`) or one of P3109 (`binary8p4se`)
        format: CodeFormat,
        #[command(flatten)]
        conversion: ConversionArgs,
        /// Every input pattern: 256 of 8 bits, 65,536 of 16 bits, 2^32 of float32
        #[arg(long)]
        exhaustive: bool,
    },
    /// Quantizations of blocks: each boundary of the scale's rule, special blocks, ties, random numbers
    Blocks(Box<BlocksArgs>),
    /// Dot products under an accumulator: cancellation, alignment, sticky bits, promotion, extreme exponents
    Dot(Box<DotArgs>),
}

/// The blocks of a set.
#[derive(Debug, clap::Args)]
pub(crate) struct BlocksArgs {
    /// A block format: `mxfp4`, `nvfp4`, `block(element=e2m1,scale=ue5m3,block_size=32)`
    format: BlockFormat,
    #[command(flatten)]
    conversion: ConversionArgs,
    /// Leave out the dequantized numbers
    #[arg(long)]
    no_values: bool,
}

/// The rule of a conversion.
#[derive(Debug, clap::Args)]
pub(crate) struct ConversionArgs {
    /// The type of the inputs: `float32`, `bfloat16`, `float16`, `fp8_e5m2` or `fp8_e4m3`
    #[arg(long, default_value = "float32")]
    input: InputType,
    /// The rounding: `even`, `nearest` (ties away), `ties-to-zero`, `floor` (toward zero), `up`, `down`, `odd`, `stochastic`,
    /// `stochastic-b`, `stochastic-c` (P3109's variants), or a name of P3109
    #[arg(long, default_value = "even")]
    rounding: ElementRounding,
    /// Bits of the random word that each stochastic rounding has as an input, 1 to 31 [default: 31]
    #[arg(long, value_name = "N")]
    random_bits: Option<u32>,
    /// Numbers beyond the largest one: `saturate` (Inf, too), `propagate` (Inf stays), `infinity` or `nan`
    #[arg(long, default_value = "saturate")]
    overflow: ElementOverflow,
    /// Subnormal inputs count as zero
    #[arg(long)]
    flush_inputs: bool,
    /// Subnormal results become zero
    #[arg(long)]
    flush_outputs: bool,
    /// Results that are -0 become +0
    #[arg(long)]
    no_negative_zero: bool,
    /// The seed of random inputs and random words
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Most cases
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// The operands of a dot product.
#[derive(Debug, clap::Args)]
pub(crate) struct DotArgs {
    /// A chip (`hopper`, `blackwell(promote_every=128)`) or a unit: `accumulator(order=joint,terms=16,fraction_bits=14,output=f32_rz)`
    accumulator: Accumulation,
    /// The left operand: an element format, or a block format with one scale a block
    #[arg(long)]
    lhs: DotOperand,
    /// The right operand [default: as the left one]
    #[arg(long)]
    rhs: Option<DotOperand>,
    /// Products of a dot product [default: enough for several additions and promotions]
    #[arg(long)]
    length: Option<usize>,
    /// Tiles of this many rows and columns, `4x8`, in place of single dot products
    #[arg(long, value_name = "MxN", conflicts_with_all = ["tell_apart", "trace"])]
    tile: Option<TileShape>,
    /// Only the smallest dot product on which this other unit gives another sum
    #[arg(long, value_name = "ACCUMULATOR")]
    tell_apart: Option<Accumulation>,
    /// The seed of random operands
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Most cases
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// In place of vectors: each step of the sum of the case with this number, from 0 on
    #[arg(long, value_name = "CASE")]
    trace: Option<u64>,
}

pub(crate) fn error(error: VectorsError) -> Error {
    Error::Arguments(error.to_string())
}

impl ConversionArgs {
    fn rule(&self) -> Result<ElementRule, Error> {
        let stochastic = self.rounding.is_stochastic();
        if let (Some(bits), false) = (self.random_bits, stochastic) {
            let text = format!(
                "random-bits is {bits}; rounding {} has no random words",
                self.rounding
            );
            return Err(Error::Arguments(text));
        }
        let small = if self.flush_outputs {
            SmallResults::FlushedAfterRounding
        } else {
            SmallResults::Kept
        };
        Ok(ElementRule {
            rounding: self.rounding,
            random_bits: self.random_bits.unwrap_or(31),
            overflow: self.overflow,
            flush_inputs: self.flush_inputs,
            small,
            lose_negative_zero: self.no_negative_zero,
            ..ElementRule::default()
        })
    }
}

impl DotArgs {
    fn set(&self) -> Result<DotSet, Error> {
        let rhs = self.rhs.unwrap_or(self.lhs);
        let set = DotSet::new(
            self.accumulator,
            [self.lhs, rhs],
            self.length,
            self.seed,
            self.limit,
        )
        .map_err(error)?;
        match self.tell_apart {
            Some(other) => set.telling_apart(other).map_err(error),
            None => Ok(set),
        }
    }
}

impl SetCommand {
    pub(crate) fn set(&self) -> Result<Box<dyn VectorSet>, Error> {
        Ok(match self {
            Self::Codes { format, limit } => Box::new(CodeSet::new(*format, *limit)),
            Self::Elements {
                format,
                conversion,
                exhaustive,
            } => {
                let ConversionArgs {
                    input, seed, limit, ..
                } = *conversion;
                let set =
                    ElementSet::new(*format, input, conversion.rule()?, *exhaustive, seed, limit);
                Box::new(set.map_err(error)?)
            }
            Self::Blocks(args) => {
                let BlocksArgs {
                    format,
                    conversion,
                    no_values,
                } = &**args;
                let ConversionArgs {
                    input, seed, limit, ..
                } = *conversion;
                let set =
                    BlockSet::new(*format, input, conversion.rule()?, !no_values, seed, limit);
                Box::new(set.map_err(error)?)
            }
            Self::Dot(args) => match args.tile {
                Some(shape) => Box::new(TileSet::new(args.set()?, shape)),
                None => Box::new(args.set()?),
            },
        })
    }

    /// The number of the case whose sum is traced.
    pub(crate) fn trace(&self) -> Option<(&DotArgs, u64)> {
        match self {
            Self::Dot(args) => args.trace.map(|case| (&**args, case)),
            _ => None,
        }
    }
}

/// Writes all cases.
fn write_cases(
    set: &dyn VectorSet,
    form: VectorForm,
    to: impl Write,
    cover: Option<&mut Cover>,
) -> io::Result<()> {
    let mut writer = VectorWriter::new(form, set.layout(), &set.name(), set.cases(), to)?;
    each_case(set, cover, |words| writer.case(words))?;
    writer.finish()?;
    Ok(())
}

/// Makes all cases, and counts the codes and events that they hit.
fn each_case(
    set: &dyn VectorSet,
    mut cover: Option<&mut Cover>,
    mut see: impl FnMut(&[u64]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut inputs, mut words) = (Vec::new(), Vec::new());
    for case in 0..set.cases() {
        inputs.clear();
        set.inputs(case, &mut inputs);
        words.clear();
        words.extend_from_slice(&inputs);
        set.outputs(&inputs, &[], &mut words);
        if let Some(cover) = cover.as_deref_mut() {
            set.cover(&inputs, &words[inputs.len()..], cover);
        }
        see(&words)?;
    }
    Ok(())
}

fn covered(cover: &Cover) -> Table {
    let mut rows = table(["Covered", "Hit", "Of"]);
    for (what, hit, of) in cover.rows() {
        rows.add_row([
            what.to_owned(),
            hit.to_string(),
            of.map_or("-".to_owned(), |of| of.to_string()),
        ]);
    }
    rows
}

fn layout_json(set: &dyn VectorSet, form: VectorForm) -> serde_json::Value {
    let layout = set.layout();
    json!({
        "set": set.name(), "form": form.to_string(), "cases": set.cases(), "bits": layout.width(), "fields": layout.to_json(),
        "system_verilog": layout.to_system_verilog(),
    })
}

impl VectorsArgs {
    fn output(&self) -> Option<&PathBuf> {
        self.output.as_ref().filter(|path| path.as_os_str() != "-")
    }

    /// The form that is given, or that the ending of the output says.
    fn form(&self) -> Result<VectorForm, Error> {
        let ending = self.output().and_then(|path| path.extension());
        match (self.form, ending) {
            (Some(form), _) => Ok(form),
            (None, None) => Ok(VectorForm::Hex),
            (None, Some(ending)) => {
                let form = ending.to_string_lossy().parse::<VectorForm>();
                form.map_err(|_| {
                    let text = format!(
                        "output: the ending `.{}` says no form; allowed: .hex, .csv, .jsonl, .npy, or `--form`",
                        ending.display()
                    );
                    Error::Arguments(text)
                })
            }
        }
    }
}

pub(crate) fn run(args: &VectorsArgs, form: &Form) -> Result<Done, Error> {
    let set = args.set.set()?;
    let set = &*set;
    let mut done = Done::default();
    if let Some((dot, case)) = args.set.trace() {
        if args.output().is_some() || args.layout.is_some() || args.cover {
            let text = "--trace prints steps in place of vectors; allowed: without --output, --layout and --cover";
            return Err(Error::Arguments(text.to_owned()));
        }
        let steps = dot.set()?.trace(case).map_err(error)?;
        done.text(steps.join("\n"));
        done.fact("steps", steps);
        return Ok(done);
    }
    let vector_form = args.form()?;
    let to_stdout = args.output().is_none() && !args.cover;
    if to_stdout && form.is_given() {
        let text = "--json and --csv are for the report of --cover or --output; the form of vectors is `--form`";
        return Err(Error::Arguments(text.to_owned()));
    }
    let beside = args.output().filter(|_| vector_form == VectorForm::Hex);
    let layout = args
        .layout
        .clone()
        .or_else(|| beside.map(|path| path.with_extension("layout.json")));
    let targets: Vec<PathBuf> = args.output().into_iter().chain(&layout).cloned().collect();
    check_targets(&targets, &[], args.force)?;
    let mut files = Vec::new();
    if let Some(path) = &layout {
        files.push(crate::files::json_file(
            path,
            &layout_json(set, vector_form),
        )?);
    }
    let mut cover = args.cover.then(Cover::default);
    match args.output() {
        Some(path) => {
            files.push(file_of(set, vector_form, path, cover.as_mut())?);
        }
        None if args.cover => {
            each_case(set, cover.as_mut(), |_| Ok(()))
                .map_err(|source| Error::io(Path::new("the cases"), source))?;
        }
        None => stream(set, vector_form)?,
    }
    let written = put_all(files, args.force).map_err(Error::put)?;
    if to_stdout {
        return Ok(done);
    }
    if let Some(cover) = cover {
        done.table("cover", covered(&cover));
    }
    done.text(format!("{}: {} cases\n", set.name(), set.cases()));
    done.fact("set", set.name());
    done.fact("cases", set.cases());
    if !written.is_empty() {
        done.files(&written);
    }
    Ok(done)
}

/// The file of the vectors, complete, but not in its place yet.
fn file_of(
    set: &dyn VectorSet,
    form: VectorForm,
    path: &Path,
    cover: Option<&mut Cover>,
) -> Result<NewFile, Error> {
    crate::files::new_file(path, |file| {
        write_cases(set, form, BufWriter::new(file), cover)
    })
}

/// The vectors on the standard output. Who reads them may stop early.
fn stream(set: &dyn VectorSet, form: VectorForm) -> Result<(), Error> {
    let to = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match write_cases(set, form, to, None) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(source) => Err(Error::io("the standard output".as_ref(), source)),
        Ok(()) => Ok(()),
    }
}
