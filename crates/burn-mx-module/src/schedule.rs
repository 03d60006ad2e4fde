//! Recipes over the steps of a training run.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::exempt::ExemptError;
use super::pattern::{PathError, Pattern, nearest};
use burn_mx_core::{MxSpecs, Recipe, SpecsError};

/// Recipes over the steps of a training run: a warm-up in bfloat16, the last steps in higher precision.
///
/// In JSON a schedule is a list of phases. A phase has a recipe, or the name of a preset:
///
/// ```
/// # mod burn_mx { pub use burn_mx_core::*; pub use burn_mx_module as module; }
/// use burn_mx::module::Schedule;
///
/// let schedule: Schedule = serde_json::from_str(
///     r#"[{"from": 0, "preset": "mxfp8_e4m3"}, {"from": 100, "ramp": 50, "preset": "mxfp4"}]"#,
/// )?;
/// let layers = ["embed", "head"];
/// let stages = schedule.stages(&layers)?;
/// let steps: Vec<u64> = stages.iter().map(|stage| stage.from).collect();
/// assert_eq!(steps, [0, 100, 125]); // MXFP4 in `embed`, then in all layers
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Stages`](super::Stages) sets the specs of a stage between two steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Phase>", into = "Vec<Phase>")]
pub struct Schedule(Vec<Phase>);

/// A part of a [`Schedule`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PhaseText")]
pub struct Phase {
    /// The first step; with [`when`](Self::when) the first step from which on the limit counts.
    pub from: u64,
    /// The limit at which the phase begins. Only the last phase may have a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Limit>,
    /// The number of steps over which the share of the layers with this recipe grows linearly; the other layers keep the recipe of the
    /// phase before. Layers change in the order of a forward pass. 0: all layers change at once.
    pub ramp: u64,
    /// The recipe.
    pub recipe: Recipe,
}

/// A limit of a recorder's figure: the mean over the recorded operands of a step. In JSON: `{"sqnr": 12.0}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The signal-to-quantization-noise ratio falls below this number of dB.
    Sqnr(f64),
    /// The percentage of nonzero elements that become zero rises above this number.
    Underflow(f64),
    /// The percentage of elements beyond the largest number under their block's scale rises above this number.
    Saturation(f64),
}

/// Steps with the same specs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stage {
    /// The first step; with [`when`](Self::when) the first step from which on the limit counts.
    pub from: u64,
    /// The limit at which the stage begins. Only the last stage may have a limit.
    pub when: Option<Limit>,
    /// The specs of the model and of each layer that differs. The recipe has no exemptions: `layers` has these layers.
    pub recipe: Recipe,
}

/// The reasons why phases do not form a schedule.
#[derive(Clone, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The schedule has no phase.
    #[error("the schedule is empty, expected one phase at least")]
    Empty,
    /// A phase begins too early or too late.
    #[error("phase {phase}: `from` is {from}, expected {expected}")]
    From {
        /// The number of the phase, from 0 on.
        phase: usize,
        /// Its first step.
        from: u64,
        /// The allowed steps.
        expected: String,
    },
    /// The first phase has nothing to grow from, or the next phase begins before the growth has ended.
    #[error("phase {phase}: `ramp` is {ramp}, expected at most {most}")]
    Ramp {
        /// The number of the phase, from 0 on.
        phase: usize,
        /// Its steps of growth.
        ramp: u64,
        /// The most steps.
        most: u64,
    },
    /// A phase cannot begin at a limit.
    #[error("phase {phase}: `when` is {limit:?}, expected {expected}")]
    When {
        /// The number of the phase, from 0 on.
        phase: usize,
        /// Its limit.
        limit: Limit,
        /// The allowed values.
        expected: &'static str,
    },
    /// A pattern of a recipe is not valid, or matches no layer.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The layers of the model could not be found.
    #[error(transparent)]
    Layers(#[from] ExemptError),
    /// Every parameter of the model has specs by path.
    #[error(
        "all {parameters} parameters of the model have specs by path, which a schedule does not change; allowed: at least one \
         without (`clear_specs_at`)"
    )]
    NothingToChange {
        /// The number of parameters.
        parameters: usize,
    },
    /// Specs do not resolve.
    #[error("phase {phase}: {error}")]
    Specs {
        /// The number of the phase, from 0 on.
        phase: usize,
        /// The reason.
        error: SpecsError,
    },
}

microscaling::debug_is_display!(ScheduleError);

/// The text of a phase.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseText {
    from: u64,
    when: Option<Limit>,
    #[serde(default)]
    ramp: u64,
    preset: Option<String>,
    recipe: Option<Recipe>,
}

impl TryFrom<PhaseText> for Phase {
    type Error = String;

    fn try_from(text: PhaseText) -> Result<Self, String> {
        let recipe = match (text.preset, text.recipe) {
            (Some(name), None) => Recipe::preset(&name).map_err(|error| error.to_string())?,
            (None, Some(recipe)) => recipe,
            _ => {
                return Err(format!(
                    "the phase from step {}: expected either `preset` or `recipe`",
                    text.from
                ));
            }
        };
        Ok(Self {
            from: text.from,
            when: text.when,
            ramp: text.ramp,
            recipe,
        })
    }
}

impl TryFrom<Vec<Phase>> for Schedule {
    type Error = ScheduleError;

    fn try_from(phases: Vec<Phase>) -> Result<Self, ScheduleError> {
        if phases.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let mut ends = 0;
        for (phase, of_phase) in phases.iter().enumerate() {
            let Phase {
                from,
                when,
                ramp,
                recipe,
            } = of_phase;
            let from = *from;
            let is_first = phase == 0;
            if let Some(limit) = *when {
                let is_last = !is_first && phase + 1 == phases.len();
                let (Limit::Sqnr(value) | Limit::Underflow(value) | Limit::Saturation(value)) =
                    limit;
                let expected = match (is_last && *ramp == 0, value.is_finite()) {
                    (false, _) => "none, except in the last of two or more phases, without a ramp",
                    (_, false) => "a finite number",
                    (true, true) => "",
                };
                if !expected.is_empty() {
                    return Err(ScheduleError::When {
                        phase,
                        limit,
                        expected,
                    });
                }
            }
            if (is_first && from != 0) || (!is_first && from < ends) {
                let expected = match is_first {
                    true => "0, as the first phase begins the run".to_owned(),
                    false => {
                        format!("{ends} or more, as phases stand in order and a ramp has to end")
                    }
                };
                return Err(ScheduleError::From {
                    phase,
                    from,
                    expected,
                });
            }
            if from == u64::MAX {
                return Err(ScheduleError::From {
                    phase,
                    from,
                    expected: format!("at most {}, as a phase has one step or more", u64::MAX - 1),
                });
            }
            let most = match is_first {
                true => 0,
                false => u64::MAX - 1 - from,
            };
            if *ramp > most {
                return Err(ScheduleError::Ramp {
                    phase,
                    ramp: *ramp,
                    most,
                });
            }
            let specs = [&recipe.specs].into_iter().chain(recipe.layers.values());
            for specs in specs {
                let resolved = specs.resolve();
                resolved.map_err(|error| ScheduleError::Specs { phase, error })?;
            }
            for pattern in recipe.layers.keys() {
                Pattern::new(pattern)?;
            }
            ends = from + (*ramp).max(1);
        }
        Ok(Self(phases))
    }
}

impl From<Schedule> for Vec<Phase> {
    fn from(schedule: Schedule) -> Self {
        schedule.0
    }
}

impl Schedule {
    /// The phases.
    pub fn phases(&self) -> &[Phase] {
        &self.0
    }

    /// The specs over the steps. `layers` has the paths of all layers of the model in the order of a forward pass, as
    /// [`exempt_layers`](super::exempt_layers) lists them for [`Exemptions::ALL`](burn_mx_core::Exemptions::ALL).
    ///
    /// # Errors
    ///
    /// If a pattern of a recipe is not valid, or matches no layer.
    pub fn stages(&self, layers: &[impl AsRef<str>]) -> Result<Vec<Stage>, ScheduleError> {
        let mut stages = Vec::new();
        let mut before: Vec<MxSpecs> = Vec::new();
        for phase in &self.0 {
            let new = specs_of_layers(&phase.recipe, layers)?;
            // All layers at the end of the growth.
            let changes = match phase.ramp {
                0 => vec![(phase.from, layers.len())],
                ramp => {
                    let count = layers.len().max(1) as u64;
                    // A long growth times the number of layers may be beyond 64 bits.
                    let steps =
                        |done: u64| u128::from(ramp) * u128::from(done - 1) / u128::from(count);
                    let step = |done: u64| phase.from + steps(done) as u64;
                    (1..=count)
                        .map(|done| (step(done), done as usize))
                        .collect()
                }
            };
            for (at, (from, changed)) in changes.iter().enumerate() {
                // A short growth changes several layers in one step.
                if changes.get(at + 1).is_some_and(|(next, _)| next == from) {
                    continue;
                }
                let is_all = *changed >= layers.len();
                let specs = match before.first() {
                    Some(_) if !is_all => &before,
                    _ => &new,
                };
                let of_layer = |at: usize| {
                    if at < *changed {
                        &new[at + 1]
                    } else {
                        &before[at + 1]
                    }
                };
                let own = layers.iter().enumerate();
                let own = own.filter(|(at, _)| of_layer(*at) != &specs[0]);
                let own = own.map(|(at, layer)| (layer.as_ref().to_owned(), of_layer(at).clone()));
                stages.push(Stage {
                    from: *from,
                    when: phase.when,
                    recipe: Recipe {
                        specs: specs[0].clone(),
                        layers: own.collect(),
                        ..Recipe::default()
                    },
                });
            }
            before = new;
        }
        Ok(stages)
    }
}

/// The specs of the model, then of each layer.
fn specs_of_layers(
    recipe: &Recipe,
    layers: &[impl AsRef<str>],
) -> Result<Vec<MxSpecs>, ScheduleError> {
    let own = recipe.layers.iter();
    let own = own.map(|(pattern, specs)| Ok((Pattern::new(pattern)?, specs)));
    let own: Vec<(Pattern, &MxSpecs)> = own.collect::<Result<_, PathError>>()?;
    let known = || layers.iter().map(AsRef::as_ref);
    for ((pattern, _), text) in own.iter().zip(recipe.layers.keys()) {
        if !known().any(|layer| pattern.matches(layer)) {
            return Err(ScheduleError::Path(PathError::NoMatch {
                pattern: text.clone(),
                paths: nearest(text, known()),
            }));
        }
    }
    let exempt = layers.len() - recipe.exemptions.count(layers.len());
    let of_layer = layers.iter().enumerate().map(|(at, layer)| {
        let matching = own.iter().rev();
        let mut matching = matching.filter(|(pattern, _)| pattern.matches(layer.as_ref()));
        match matching.next() {
            Some((_, specs)) => (*specs).clone(),
            None if at >= exempt => recipe.exempt_specs(),
            None => recipe.specs.clone(),
        }
    });
    Ok([recipe.specs.clone()].into_iter().chain(of_layer).collect())
}
