//! The numbers that weights become.

use super::QuantizeArgs;
use crate::error::Error;
use crate::export::{IntegerLayer, integers_config};
use crate::output::{Planned, ignored};
use crate::scheme::{Scheme, SchemeWeights};
use crate::target::NewLayout;
use microscaling::internal::CompressedNumbers;
use microscaling::safetensors::{CheckpointLayout, IntegerFormat, IntegerLayout, PackedFiles};
use microscaling::{BlockFormat, ElementRounding, ParseFormatError, Rounding, WeightLayout};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::str::FromStr;

/// A format of blocks or of integers.
#[derive(Clone, Copy, Debug)]
pub(super) enum NumberFormat {
    Blocks(BlockFormat),
    Integers(IntegerFormat),
}

impl FromStr for NumberFormat {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.starts_with("int") {
            true => text.parse().map(Self::Integers),
            false => text.parse().map(Self::Blocks),
        }
    }
}

impl Display for NumberFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(format) => format.fmt(f),
            Self::Integers(format) => format.fmt(f),
        }
    }
}

/// The numbers that weights become, and their layout.
#[derive(Clone, Copy)]
pub(super) enum NewNumbers {
    Blocks(BlockFormat, CheckpointLayout, Rounding),
    Integers(IntegerFormat, IntegerLayout),
    Compressed(CompressedNumbers),
}

impl NewNumbers {
    pub(super) fn of(args: &QuantizeArgs) -> Result<Self, Error> {
        let refuse = |format: String, allowed: &str| {
            let layout = args.layout.name();
            Err(Error::Arguments(format!(
                "`--format` is {format}, and the layout is {layout}; allowed: {allowed}"
            )))
        };
        if let Some(SchemeWeights::Numbers(numbers)) = args.scheme.map(|scheme| scheme.weights) {
            return Ok(Self::Compressed(numbers));
        }
        let (format, layout) = match (args.format, args.layout) {
            (None, NewLayout::Packed(CheckpointLayout::Microscaling)) => {
                return Err(Error::Arguments(
                    "layout microscaling has every format: `--format` has to say which".into(),
                ));
            }
            (None, NewLayout::Packed(CheckpointLayout::Weights(layout))) => {
                (layout.format(), layout.into())
            }
            (Some(NumberFormat::Blocks(format)), NewLayout::Packed(layout)) => (format, layout),
            (Some(NumberFormat::Integers(format)), NewLayout::Packed(_)) => {
                let allowed = "a block format, such as mxint8, or the layouts gptq, gptq_v2, awq";
                return refuse(format.to_string(), allowed);
            }
            (Some(NumberFormat::Blocks(format)), NewLayout::Integers(_)) => {
                return refuse(format.to_string(), "int2, int3, int4, int8");
            }
            (_, NewLayout::Float) => unreachable!("a scheme alone gives this layout"),
            (format, NewLayout::Integers(layout)) => {
                let own = IntegerFormat {
                    bits: 4,
                    group_size: 128,
                    zero_points: layout == IntegerLayout::Awq,
                };
                let format = match format {
                    Some(NumberFormat::Integers(format)) => format,
                    _ => own,
                };
                check_options(args, layout)?;
                return Ok(Self::Integers(format, layout));
            }
        };
        let rounding = rounding(args, format)?;
        check_seed(args, rounding)?;
        Ok(Self::Blocks(format, layout, rounding))
    }

    /// The name of the scheme, or the format's.
    pub(super) fn format(self, scheme: Option<Scheme>) -> String {
        if let Some(scheme) = scheme {
            return scheme.name.to_owned();
        }
        match self {
            Self::Compressed(_) => String::new(),
            Self::Blocks(format, ..) => format.to_string(),
            Self::Integers(format, _) => format.to_string(),
        }
    }

    /// The format, if it has blocks.
    pub(super) const fn blocks(self) -> Option<BlockFormat> {
        match self {
            Self::Blocks(format, ..) => Some(format),
            Self::Integers(..) | Self::Compressed(_) => None,
        }
    }

    /// The layout of the files, or one whose files have the same metadata as files of integers.
    pub(super) fn layout(self) -> CheckpointLayout {
        match self {
            Self::Blocks(_, layout, _) => layout,
            Self::Integers(..) | Self::Compressed(_) => WeightLayout::Mxfp4PackQuantized.into(),
        }
    }

    /// The `quantization_config` of a scheme or of integers.
    pub(super) fn config(
        self,
        scheme: Option<Scheme>,
        read: &PackedFiles<'_>,
        planned: &[Planned],
    ) -> Option<Value> {
        let replaced: BTreeSet<&str> = planned.iter().map(|x| x.name.as_str()).collect();
        let ignored = ignored(read, &replaced);
        if let Some(scheme) = scheme {
            return Some(scheme.config(&ignored));
        }
        let Self::Integers(format, layout) = self else {
            return None;
        };
        let layers = planned.iter().map(|weight| {
            let shape = read.tensor(&weight.name).expect("it is planned").shape;
            IntegerLayer {
                module: weight.name.strip_suffix(".weight").unwrap_or(&weight.name),
                bits: format.bits,
                inputs: shape[1],
                group: format
                    .group(layout, &weight.name, &shape)
                    .expect("it is planned"),
                is_symmetric: !format.zero_points,
                is_permuted: false,
            }
        });
        let layers: Vec<_> = layers.collect();
        integers_config(layout, &layers, &ignored).ok()
    }
}

/// Checks that no option is given that integers have no use for.
fn check_options(args: &QuantizeArgs, layout: IntegerLayout) -> Result<(), Error> {
    let given = [
        ("--axis", args.axis.is_some()),
        ("--rounding", args.rounding.is_some()),
        ("--seed", args.seed.is_some()),
        ("--dialect", args.dialect.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Error::Arguments(format!(
            "`{option}` has no effect in layout {}; allowed: no `{option}`",
            layout.name()
        ))),
    }
}

/// The rounding of the arguments, unless the format has its own.
fn rounding(args: &QuantizeArgs, format: BlockFormat) -> Result<Rounding, Error> {
    match (format.conversion.rounding, args.rounding) {
        (None, given) => Ok(given.unwrap_or(Rounding::NearestEven)),
        // The format says how random numbers are drawn, if they are.
        (Some(ElementRounding::Stochastic(_)), given) => Ok(given.unwrap_or(Rounding::Stochastic)),
        // Nothing else looks at the rounding.
        (Some(_), None) => Ok(Rounding::NearestEven),
        (Some(own), Some(given)) => Err(Error::Arguments(format!(
            "`--rounding` is {given}, and {format} has the rounding {own}; allowed: no `--rounding`"
        ))),
    }
}

/// Checks that stochastic rounding has a seed; says that a seed without it has no effect.
fn check_seed(args: &QuantizeArgs, rounding: Rounding) -> Result<(), Error> {
    match (rounding, args.seed) {
        (Rounding::Stochastic, None) => {
            return Err(Error::Arguments(
                "stochastic rounding draws random numbers: `--seed` has to say which".into(),
            ));
        }
        (Rounding::Stochastic, Some(_)) | (_, None) => {}
        // On the standard error, as results are read by programs. A loop over roundings may give all of them a seed.
        (rounding, Some(seed)) => {
            let _ = writeln!(
                io::stderr(),
                "microscaling: `--seed {seed}` has no effect: rounding `{rounding}` draws no random numbers"
            );
        }
    }
    Ok(())
}
