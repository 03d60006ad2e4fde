//! Conversions to formats of P3109 against the report's own steps in exact numbers: `RoundToPrecision`, `Saturate`, `Encode`.

use microscaling::RandomStream;
use microscaling::p3109::{P3109Format, P3109Rounding, Projection, Saturation};
use microscaling_vectors::{
    CodeFormat, ElementOverflow, ElementRounding, ElementRule, ElementSet, InputType, VectorSet,
};
use num_bigint::BigUint;

const ROUNDINGS: [&str; 9] = [
    "TowardZero",
    "TowardPositive",
    "TowardNegative",
    "NearestTiesToAway",
    "NearestTiesToEven",
    "ToOdd",
    "StochasticA",
    "StochasticB",
    "StochasticC",
];
const SATURATIONS: [&str; 3] = ["SatFinite", "SatPropagate", "SatNone"];

/// A format by its parameters alone.
#[derive(Clone, Copy)]
struct Model {
    bits: u32,
    precision: i64,
    signed: bool,
    extended: bool,
}

/// A mode by the report's names.
#[derive(Clone, Copy)]
struct Mode {
    rounding: &'static str,
    saturation: &'static str,
    random_bits: u32,
    random: u32,
}

impl Mode {
    /// Whether a number between two neighbours becomes the one with the larger magnitude. The fraction of the way there is rest / step.
    fn goes_away(self, negative: bool, is_even: bool, rest: &BigUint, step: &BigUint) -> bool {
        let twice = rest * 2_u32;
        let (n, random) = (self.random_bits, BigUint::from(self.random));
        let units = |bits: u32| BigUint::from(1_u32) << bits;
        // The fraction in units of 2^−bits, cut off.
        let cut = |bits: u32| (rest << bits) / step;
        match self.rounding {
            "TowardZero" => false,
            "TowardPositive" => !negative,
            "TowardNegative" => negative,
            "NearestTiesToAway" => twice >= *step,
            "NearestTiesToEven" => twice > *step || (twice == *step && !is_even),
            "ToOdd" => is_even,
            "StochasticA" => cut(n) + random >= units(n),
            "StochasticB" => cut(n + 1) + random * 2_u32 + 1_u32 >= units(n + 1),
            "StochasticC" => {
                let left = ((rest << n) % step) * 2_u32;
                let below = cut(n);
                let up = left > *step || (left == *step && below.bit(0));
                below + u32::from(up) + random >= units(n)
            }
            other => unreachable!("{other}"),
        }
    }
}

impl Model {
    /// All formats of 3 to 16 bits.
    fn all() -> impl Iterator<Item = Self> {
        let of_bits = |bits: u32| {
            (0..4).flat_map(move |flags| {
                let (signed, extended) = (flags & 1 != 0, flags & 2 != 0);
                let most = i64::from(bits) - i64::from(signed);
                (1..=most).map(move |precision| Self {
                    bits,
                    precision,
                    signed,
                    extended,
                })
            })
        };
        (3..=16).flat_map(of_bits)
    }

    fn name(self) -> String {
        let sign = if self.signed { 's' } else { 'u' };
        let domain = if self.extended { 'e' } else { 'f' };
        format!("binary{}p{}{sign}{domain}", self.bits, self.precision)
    }

    fn bias(self) -> i64 {
        let exponent_bits = i64::from(self.bits) - self.precision - i64::from(self.signed);
        1 << exponent_bits
    }

    /// The code of the largest number.
    fn largest(self) -> u64 {
        let codes = 1 << (self.bits - u32::from(self.signed));
        // Behind it are Inf and, without a sign, NaN.
        codes - 1 - u64::from(self.extended) - u64::from(!self.signed)
    }

    fn sign(self) -> u64 {
        1 << (self.bits - 1)
    }

    fn nan(self) -> u64 {
        if self.signed {
            self.sign()
        } else {
            2 * self.sign() - 1
        }
    }

    /// The value of a magnitude's code: significand · 2^exponent.
    fn value(self, code: u64) -> (u64, i64) {
        let (p, b) = (self.precision, self.bias());
        let trailing = code % (1 << (p - 1));
        match (code >> (p - 1)) as i64 {
            // T · 2^(1 − P) · 2^(1 − B)
            0 => (trailing, 2 - p - b),
            // (1 + T · 2^(1 − P)) · 2^(E − B)
            field => (trailing + (1 << (p - 1)), 1 - p + field - b),
        }
    }

    /// The code of ±significand · 2^exponent.
    fn code(self, negative: bool, (significand, exponent): (u64, i64), mode: Mode) -> u64 {
        if significand == 0 {
            return 0;
        }
        // Whole numbers of a unit that divides every number here.
        let (p, b) = (self.precision, self.bias());
        let unit = exponent.min(2 - p - b);
        let whole = |(significand, exponent): (u64, i64)| {
            BigUint::from(significand) << u64::try_from(exponent - unit).unwrap()
        };
        let x = whole((significand, exponent));
        // RoundToPrecision.
        let log2 = x.bits() as i64 - 1 + unit;
        let e = log2.max(1 - b) - p + 1;
        let step = BigUint::from(1_u32) << u64::try_from(e - unit).unwrap();
        let (floor, rest) = (&x / &step, &x % &step);
        let zero = BigUint::default();
        let is_even = match p {
            1 => floor == zero || (e + b) % 2 == 0,
            _ => !floor.bit(0),
        };
        let away = rest != zero && mode.goes_away(negative, is_even, &rest, &step);
        let rounded = (floor + u32::from(away)) * step;
        // Saturate.
        let largest = whole(self.value(self.largest()));
        let is_beyond = match negative && !self.signed {
            true => rounded != zero,
            false => rounded > largest,
        };
        if is_beyond {
            return self.beyond(negative, mode);
        }
        // Encode: the code of this value.
        let (mut low, mut high) = (0, self.largest());
        while low < high {
            let middle = low + (high - low) / 2;
            match whole(self.value(middle)) < rounded {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        assert_eq!(
            whole(self.value(low)),
            rounded,
            "{} has the number",
            self.name()
        );
        if low > 0 && negative {
            low + self.sign()
        } else {
            low
        }
    }

    fn extreme(self, negative: bool) -> u64 {
        match (negative, self.signed) {
            (true, false) => 0,
            (true, true) => self.largest() + self.sign(),
            (false, _) => self.largest(),
        }
    }

    /// A finite number beyond the extremes.
    fn beyond(self, negative: bool, mode: Mode) -> u64 {
        let stays = match mode.rounding {
            "TowardZero" => true,
            "TowardPositive" => negative,
            "TowardNegative" => !negative,
            "ToOdd" => !negative && !self.signed && self.extended,
            _ => false,
        };
        match mode.saturation == "SatNone" && !stays {
            true => self.infinity(negative, mode),
            false => self.extreme(negative),
        }
    }

    fn infinity(self, negative: bool, mode: Mode) -> u64 {
        match (mode.saturation, negative && !self.signed, self.extended) {
            ("SatFinite", ..) => self.extreme(negative),
            ("SatNone", true, _) => self.nan(),
            (_, true, _) | (_, _, false) => self.extreme(negative),
            (_, false, true) => self.extreme(negative) + 1,
        }
    }

    /// The code of a float64.
    fn project(self, x: f64, mode: Mode) -> u64 {
        let negative = x.is_sign_negative();
        match (x.is_nan(), x.is_infinite()) {
            (true, _) => self.nan(),
            (_, true) => self.infinity(negative, mode),
            _ => self.code(negative, parts(x), mode),
        }
    }
}

/// Significand and exponent of the magnitude of a finite float64.
fn parts(x: f64) -> (u64, i64) {
    let (field, trailing) = (x.to_bits() >> 52 & 0x7ff, x.to_bits() & ((1 << 52) - 1));
    match field {
        0 => (trailing, -1074),
        field => (trailing + (1 << 52), field as i64 - 1075),
    }
}

/// The float64 below a number, toward zero; `None` beyond float64.
fn to_f64((significand, exponent): (u64, i64)) -> Option<f64> {
    let log2 = exponent + i64::from(significand.checked_ilog2()?);
    let own = log2.max(-1022) - 52;
    let steps = match exponent - own {
        up @ 0.. => significand << up,
        down => significand.checked_shr(u32::try_from(-down).ok()?)?,
    };
    // The leading bit counts as one in the exponent field.
    (log2 <= 1023).then(|| f64::from_bits(steps + ((own + 1074) as u64) * (1 << 52)))
}

/// Random words.
struct Words {
    stream: RandomStream,
    next: u64,
}

impl Words {
    fn word(&mut self) -> u64 {
        self.next += 2;
        u64::from(self.stream.draw(self.next - 2)) << 32
            | u64::from(self.stream.draw(self.next - 1))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    fn mode(&mut self) -> Mode {
        let at = self.below(9) as usize;
        let random_bits = if at < 6 { 0 } else { 1 + self.below(31) as u32 };
        Mode {
            rounding: ROUNDINGS[at],
            saturation: SATURATIONS[self.below(3) as usize],
            random_bits,
            random: (self.word() & ((1 << random_bits) - 1)) as u32,
        }
    }

    /// A number of the format, or half-way between two, or next to one of both. Some are any float64 or float32, or special.
    fn number(&mut self, model: Model) -> f64 {
        let sign = self.word() & 1 << 63;
        let x = match self.below(8) {
            0 => f64::from_bits(self.word()),
            1 => f64::from(f32::from_bits(self.word() as u32)),
            2 => [0.0, f64::INFINITY, f64::NAN, f64::MAX, 5e-324][self.below(5) as usize],
            _ => {
                let (significand, exponent) = model.value(self.below(model.largest() + 2));
                let middle = (2 * significand + self.below(2), exponent - 1);
                let x = to_f64(middle).unwrap_or(0.0).to_bits();
                f64::from_bits((x + self.below(3)).saturating_sub(1))
            }
        };
        f64::from_bits(x.to_bits() & !(1 << 63) | sign)
    }
}

fn projection(mode: Mode) -> Projection {
    let Mode {
        rounding,
        saturation,
        random_bits,
        random,
    } = mode;
    Projection {
        rounding: P3109Rounding::named(rounding, random_bits, random).unwrap(),
        saturation: saturation.parse::<Saturation>().unwrap(),
    }
}

/// Compares this number of conversions to each format.
fn check_projections(of_each: u64) -> u64 {
    let mut compared = 0;
    for (seed, model) in Model::all().enumerate() {
        let format: P3109Format = model.name().parse().unwrap();
        let mut words = Words {
            stream: RandomStream::new(seed as u64, 58),
            next: 0,
        };
        for _ in 0..of_each {
            let (x, mode) = (words.number(model), words.mode());
            let got = u64::from(format.project(x, projection(mode)));
            let wanted = model.project(x, mode);
            let Mode {
                rounding,
                saturation,
                random_bits,
                random,
            } = mode;
            assert_eq!(
                got, wanted,
                "{format}: {x:e} {rounding} {saturation} {random_bits} {random}"
            );
            compared += 1;
        }
    }
    compared
}

/// The cases of the sets of formats of up to 8 bits, by the rule that `microscaling vectors` and `check` have.
fn check_sets(limit: u64) -> u64 {
    let mut compared = 0;
    let small = Model::all().filter(|model| model.bits <= 8);
    for (seed, model) in small.enumerate() {
        let mut words = Words {
            stream: RandomStream::new(seed as u64, 59),
            next: 0,
        };
        for rounding in ROUNDINGS {
            let mode = Mode {
                rounding,
                random_bits: 1 + words.below(31) as u32,
                ..words.mode()
            };
            let own: ElementRounding = rounding.parse().unwrap();
            let rule = ElementRule {
                rounding: own,
                random_bits: mode.random_bits,
                overflow: mode.saturation.parse::<ElementOverflow>().unwrap(),
                ..ElementRule::default()
            };
            let format: CodeFormat = model.name().parse().unwrap();
            let limit = Some(limit);
            let set = ElementSet::new(format, InputType::Float32, rule, false, 5, limit).unwrap();
            for case in 0..set.cases() {
                let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
                set.inputs(case, &mut inputs);
                set.outputs(&inputs, &[], &mut outputs);
                let mode = match own.is_stochastic() {
                    true => Mode {
                        random: inputs[1] as u32,
                        ..mode
                    },
                    false => Mode {
                        random_bits: 0,
                        random: 0,
                        ..mode
                    },
                };
                let x = f64::from(f32::from_bits(inputs[0] as u32));
                let wanted = model.project(x, mode);
                assert_eq!(outputs[0], wanted, "{}, case {case}: {x:e}", set.name());
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn conversions_are_those_of_the_report_in_rationals() {
    assert_eq!(check_projections(20), 504 * 20);
    assert!(check_sets(20) > 20_000);
}

/// More than 10^6 conversions.
#[test]
#[ignore = "takes minutes"]
fn a_million_conversions_are_those_of_the_report_in_rationals() {
    let (numbers, cases) = (check_projections(1500), check_sets(300));
    println!("{numbers} numbers and {cases} cases of sets");
    assert!(numbers + cases > 1_000_000, "{numbers} + {cases}");
}
