//! The settings: a format for each tensor that an optimizer keeps.

use microscaling::{RandomStream, Rounding};
use serde::{Deserialize, Serialize};

use crate::{PackedState, StateFormat, StatesError};

/// A format for each tensor that an optimizer keeps, as the text of a [`StateFormat`]. `None` and `float32` leave a tensor unchanged.
///
/// ```
/// # use burn_mx_optim::OptimizerStates;
/// let states = OptimizerStates {
///     first_moment: Some("mxfp8_e4m3".into()),
///     second_moment: Some("dynamic8_unsigned".into()),
///     ..OptimizerStates::default()
/// };
/// states.check()?;
/// let wrong = OptimizerStates { second_moment: Some("mxfp9".into()), ..states };
/// assert!(wrong.check().unwrap_err().to_string().starts_with("`second_moment` is mxfp9; allowed: "));
/// # Ok::<(), burn_mx_optim::StatesError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerStates {
    /// The mean of gradients: Adam's first moment, the momentum of SGD and Muon.
    pub first_moment: Option<String>,
    /// How elements of the first moment are rounded: `even`, unless set.
    pub first_moment_rounding: Rounding,
    /// The mean of squared gradients, and AMSGrad's largest one.
    pub second_moment: Option<String>,
    /// How elements of the second moment are rounded: `even`, unless set.
    pub second_moment_rounding: Rounding,
    /// The weights. After each step a parameter holds numbers of this format.
    pub master: Option<String>,
    /// How weights are rounded: `even`, unless set.
    pub master_rounding: Rounding,
    /// Whether the optimizer keeps what rounding the weights lost, in the format of `master`, and adds it in the next step (Kahan's
    /// summation; arXiv 2010.06192 for training in bfloat16). `master` is then an elementwise format, rounded to `even`.
    pub kahan: bool,
    /// The sum of gradients of several backward passes, see [`GradientAccumulator`](crate::GradientAccumulator).
    pub gradient_accumulation: Option<String>,
    /// How sums of gradients are rounded: `even`, unless set.
    pub gradient_accumulation_rounding: Rounding,
    /// Both operands of each product in Muon's Newton–Schulz iteration.
    pub newton_schulz: Option<String>,
    /// Coefficients (a, b, c) of further steps of Muon's iteration, after the steps of `MuonConfig`. DeepSeek-V4 has 8 steps of
    /// `MuonConfig`'s coefficients, then two of (2, −1.5, 0.5).
    pub newton_schulz_further: Vec<[f32; 3]>,
    /// Whether Muon divides each gradient, and then the new momentum, by its Frobenius norm plus 1e-7, as MuonQ does (arXiv 2605.11396).
    pub normalized_momentum: bool,
    /// If not 0, Muon keeps the momentum of a matrix as a product of rank ⌊min(rows, columns)/divisor⌋ and the rest, both in the format of
    /// `first_moment`. One power iteration a step, which starts at the last step's product, finds the product. MuonQ has 16.
    pub low_rank_divisor: usize,
    /// Tensors with fewer elements stay float32. 4,096 unless set, as in bitsandbytes.
    pub smallest: usize,
    /// The seed of stochastic rounding. Runs with one seed are equal, also if a run is resumed from a record.
    pub seed: u64,
}

impl Default for OptimizerStates {
    fn default() -> Self {
        let even = Rounding::NearestEven;
        Self {
            first_moment: None,
            first_moment_rounding: even,
            second_moment: None,
            second_moment_rounding: even,
            master: None,
            master_rounding: even,
            kahan: false,
            gradient_accumulation: None,
            gradient_accumulation_rounding: even,
            newton_schulz: None,
            newton_schulz_further: Vec::new(),
            normalized_momentum: false,
            low_rank_divisor: 0,
            smallest: 4096,
            seed: 0,
        }
    }
}

/// A tensor that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    FirstMoment,
    SecondMoment,
    LargestSecondMoment,
    Master,
    Accumulation,
    LeftFactor,
    RightFactor,
    FirstRightFactor,
}

/// A format with a rounding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) format: StateFormat,
    pub(crate) rounding: Rounding,
}

/// Checked settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResolvedStates {
    pub(crate) first_moment: Option<Kept>,
    pub(crate) second_moment: Option<Kept>,
    pub(crate) master: Option<Kept>,
    pub(crate) kahan: bool,
    pub(crate) accumulation: Option<Kept>,
    pub(crate) newton_schulz: Option<Kept>,
    pub(crate) normalized_momentum: bool,
    low_rank_divisor: usize,
    smallest: usize,
    seed: u64,
}

impl ResolvedStates {
    /// The format of a tensor with this number of elements.
    fn kept(&self, slot: Slot, count: usize) -> Option<Kept> {
        let kept = match slot {
            Slot::FirstMoment | Slot::LeftFactor | Slot::RightFactor | Slot::FirstRightFactor => {
                self.first_moment
            }
            Slot::SecondMoment | Slot::LargestSecondMoment => self.second_moment,
            Slot::Master => self.master,
            Slot::Accumulation => self.accumulation,
        };
        kept.filter(|_| count >= self.smallest)
    }

    /// Packs a tensor, if it has a format. `tensor` counts the parameters, and `step` the steps.
    ///
    /// # Panics
    /// If the format has no code for a NaN or Inf among the numbers, as block floating point.
    pub(crate) fn pack(
        &self,
        slot: Slot,
        [tensor, step]: [u64; 2],
        shape: &[usize],
        data: impl FnOnce() -> Vec<f32>,
    ) -> Option<PackedState> {
        let kept = self.kept(slot, shape.iter().product())?;
        let stream = self.stream(slot, [tensor, step]);
        Some(packed(kept.format, kept.rounding, stream, &data(), shape))
    }

    /// Packs a factor of a matrix in the matrix' format. No two rows share a scale in formats of this crate.
    pub(crate) fn pack_factor(
        &self,
        slot: Slot,
        counters: [u64; 2],
        shape: [usize; 2],
        data: &[f32],
    ) -> PackedState {
        let kept = self.first_moment.expect("a split needs a format");
        let format = kept.format.with_rows(shape[1]);
        let stream = self.stream(slot, counters);
        packed(format, kept.rounding, stream, data, &shape)
    }

    /// The rank of the product that the first moment of this shape is kept with; `None` where the moment is not split.
    pub(crate) fn rank(&self, shape: &[usize]) -> Option<usize> {
        let [rows, columns] = shape else { return None };
        self.kept(Slot::FirstMoment, rows * columns)?;
        let rank = rows.min(columns).checked_div(self.low_rank_divisor)?;
        Some(rank).filter(|rank| *rank > 0)
    }

    pub(crate) fn stream(&self, slot: Slot, [tensor, step]: [u64; 2]) -> RandomStream {
        // 2^28 parameters, 2^32 steps, 16 slots.
        RandomStream::new(self.seed, tensor << 36 | step << 4 | slot as u64)
    }
}

fn packed(
    format: StateFormat,
    rounding: Rounding,
    stream: RandomStream,
    data: &[f32],
    shape: &[usize],
) -> PackedState {
    let packed = PackedState::encode(format, data, shape, rounding.with(stream));
    packed.unwrap_or_else(|error| panic!("burn-mx: an optimizer's state: {error}"))
}

/// The formats that a field allows.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Signed,
    Unsigned,
    Gradients,
    Master,
}

fn parse(
    field: &'static str,
    text: Option<&str>,
    rounding: Rounding,
    allows: Use,
) -> Result<Option<Kept>, StatesError> {
    let Some(text) = text.filter(|text| !["float32", "fp32"].contains(text)) else {
        return Ok(None);
    };
    let error = |allowed: &str| StatesError::new(field, text, allowed);
    let format: StateFormat = text.parse().map_err(|allowed: String| error(&allowed))?;
    if format.is_unsigned() && allows != Use::Unsigned {
        return Err(error(
            "a format with negative numbers, such as dynamic8, dynamic4, mxfp8_e4m3 or bfloat16",
        ));
    }
    if format.is_companded() && field != "first_moment" {
        return Err(error(
            "a format without a logarithm, which is for `first_moment` alone: the logarithm clips numbers beyond 1",
        ));
    }
    if allows == Use::Master && format.is_table() {
        return Err(error(
            "a format whose elements are floats or integers, such as bfloat16 or mxfp8_e4m3: a step that is smaller than the distance between \
             two numbers of a table is lost",
        ));
    }
    if let StateFormat::Elementwise(float) = format
        && allows == Use::Gradients
        && float.exponent_bits() < 8
    {
        return Err(error(
            "bfloat10 to bfloat16, or a format with a scale such as mxfp8_e5m2: gradients are below the range of 5 exponent bits",
        ));
    }
    let own = [Rounding::NearestEven, Rounding::Stochastic];
    if format.has_own_rounding() && !own.contains(&rounding) {
        return Err(StatesError::new(
            field,
            format!("{text} with rounding {rounding}"),
            "rounding even or stochastic",
        ));
    }
    let stream = RandomStream::new(0, 0);
    PackedState::encode(format, &[1.0], &[1], rounding.with(stream))
        .map_err(|reason| error(&reason.to_string()))?;
    Ok(Some(Kept { format, rounding }))
}

impl OptimizerStates {
    /// Checks all fields, as every function that takes them does before the first step.
    ///
    /// # Errors
    /// The first field that cannot be used:
    /// * a text without a format of this name;
    /// * numbers without a sign, in any field but `second_moment`;
    /// * a table for `master`;
    /// * a float with 5 exponent bits, without a scale, for `gradient_accumulation`;
    /// * a companded `first_moment` without `normalized_momentum`, since numbers beyond 1 are clipped;
    /// * `low_rank_divisor` without a format for `first_moment`;
    /// * `kahan` without an elementwise `master`;
    /// * a rounding that the format does not have.
    pub fn check(&self) -> Result<(), StatesError> {
        self.resolve().map(|_| ())
    }

    pub(crate) fn resolve(&self) -> Result<ResolvedStates, StatesError> {
        let master = parse(
            "master",
            self.master.as_deref(),
            self.master_rounding,
            Use::Master,
        )?;
        if self.kahan {
            let allowed = "false, unless `master` is an elementwise format such as bfloat16 with `master_rounding` even";
            let value = |master: &str| format!("true with `master` {master}");
            let Some(kept) = master else {
                return Err(StatesError::new("kahan", value("float32"), allowed));
            };
            let is_even = kept.rounding == Rounding::NearestEven;
            if !is_even || !matches!(kept.format, StateFormat::Elementwise(_)) {
                let value = value(&format!("{}, {}", kept.format, kept.rounding));
                return Err(StatesError::new("kahan", value, allowed));
            }
        }
        let mut coefficients = self.newton_schulz_further.iter().flatten();
        if let Some(number) = coefficients.find(|number| !number.is_finite()) {
            let allowed = "finite numbers";
            return Err(StatesError::new("newton_schulz_further", number, allowed));
        }
        let first_moment = parse(
            "first_moment",
            self.first_moment.as_deref(),
            self.first_moment_rounding,
            Use::Signed,
        )?;
        if let Some(kept) = first_moment.filter(|kept| kept.format.is_companded())
            && !self.normalized_momentum
        {
            let allowed = "a format without a logarithm, unless `normalized_momentum` is true: the logarithm clips numbers beyond 1";
            return Err(StatesError::new("first_moment", kept.format, allowed));
        }
        if self.low_rank_divisor != 0 && first_moment.is_none() {
            let allowed = "0, unless `first_moment` has a format";
            let divisor = self.low_rank_divisor;
            return Err(StatesError::new("low_rank_divisor", divisor, allowed));
        }
        Ok(ResolvedStates {
            first_moment,
            second_moment: parse(
                "second_moment",
                self.second_moment.as_deref(),
                self.second_moment_rounding,
                Use::Unsigned,
            )?,
            master,
            kahan: self.kahan,
            accumulation: parse(
                "gradient_accumulation",
                self.gradient_accumulation.as_deref(),
                self.gradient_accumulation_rounding,
                Use::Gradients,
            )?,
            newton_schulz: parse(
                "newton_schulz",
                self.newton_schulz.as_deref(),
                Rounding::NearestEven,
                Use::Signed,
            )?,
            normalized_momentum: self.normalized_momentum,
            low_rank_divisor: self.low_rank_divisor,
            smallest: self.smallest,
            seed: self.seed,
        })
    }
}
