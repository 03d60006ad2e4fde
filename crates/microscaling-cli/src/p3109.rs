//! `microscaling p3109`

use crate::done::Done;
use crate::error::Error;
use crate::formats::table;
use microscaling::p3109::{P3109Format, P3109Rounding, Projection, Saturation};

/// Show a format of IEEE P3109 (interim report 4.0, a draft), and the codes of numbers
#[derive(Debug, clap::Args)]
pub(crate) struct P3109Args {
    /// The format: `binary8p4se` has 8 bits, precision 4, a sign (`s`; unsigned: `u`) and infinities (`e`; finite: `f`)
    format: P3109Format,
    /// Numbers to project onto the format, such as 0.3, 1e-5 or inf; without numbers, all codes of up to 8 bits are shown
    #[arg(allow_negative_numbers = true)]
    numbers: Vec<f64>,
    /// The rounding mode: TowardZero, TowardPositive, TowardNegative, NearestTiesToAway, NearestTiesToEven, ToOdd, StochasticA,
    /// StochasticB or StochasticC
    #[arg(long, default_value = "NearestTiesToEven")]
    rounding: String,
    /// The saturation mode: SatFinite, SatPropagate or SatNone
    #[arg(long, default_value_t = Saturation::SatFinite)]
    saturation: Saturation,
    /// Bits of the random number of stochastic rounding
    #[arg(long, value_name = "N", default_value_t = 0)]
    random_bits: u32,
    /// The random number of stochastic rounding, less than 2^N
    #[arg(long, value_name = "R", default_value_t = 0)]
    random: u32,
}

/// The properties of a format, and their values as text.
pub fn p3109_datasheet(format: P3109Format) -> Vec<(&'static str, String)> {
    let code = |code| format!("{code:#x}");
    let infinity = |negative| format.infinity(negative).map_or("-".into(), code);
    vec![
        ("bits", format.bits().to_string()),
        ("precision", format.precision().to_string()),
        ("bias", format.bias().to_string()),
        ("largest number", format.max().to_string()),
        ("smallest number above 0", format.min_positive().to_string()),
        ("code of NaN", code(format.nan())),
        ("code of +Inf", infinity(false)),
        ("code of -Inf", infinity(true)),
    ]
}

pub(crate) fn run(args: &P3109Args) -> Result<Done, Error> {
    let format = args.format;
    let rounding = P3109Rounding::named(&args.rounding, args.random_bits, args.random);
    let projection = Projection {
        rounding: rounding.map_err(|error| Error::Arguments(error.to_string()))?,
        saturation: args.saturation,
    };
    let mut done = Done::default();
    let mut properties = table(["Property", &format.to_string()]);
    for (property, value) in p3109_datasheet(format) {
        properties.add_row([property, &value]);
    }
    done.table("format", properties);
    if !args.numbers.is_empty() {
        let mut rows = table(["Number", "Code", "Value"]);
        for number in &args.numbers {
            let projected = format.project(*number, projection);
            let value = format.decode(projected).to_string();
            rows.add_row([&number.to_string(), &format!("{projected:#x}"), &value]);
        }
        done.text("\n");
        done.table("projections", rows);
    } else if format.bits() <= 8 {
        let mut rows = table(["Code", "Value"]);
        for each in 0..1 << format.bits() {
            rows.add_row([format!("{each:#x}"), format.decode(each).to_string()]);
        }
        done.text("\n");
        done.table("codes", rows);
    }
    Ok(done)
}
