//! The second stage of a search: a few recipes under a budget are trained for short runs, and the best one is kept.

use std::{error::Error, path::PathBuf};

use burn_mx::{
    MxSpecs, Recipe, SlotFormat,
    record::{Budget, Found, Report, Score, Search},
};
use burn_mx_lab::{output::OutputFile, own_files};
use clap::Args;

use super::report::{CompareRun, groups};
use crate::training::models::ModelName;

/// The recipes to train.
#[derive(Debug, Args)]
pub(crate) struct CandidateArgs {
    /// Train recipes under --bits, and write the best one to --found. DIR has a recorder's records of the model. The recipes: found by
    /// each score, one format in all layers, and the first and the last layer in the widest format. Repeat it for more records
    #[arg(long = "search", value_name = "DIR", requires_all = ["bits", "formats"])]
    records: Vec<PathBuf>,

    /// Budget of --search: mean bits of an element of an operand, scales included
    #[arg(long, value_name = "BITS", requires = "records")]
    bits: Option<f64>,

    /// Candidate of --search, a preset or a block format that was recorded by --what-if; repeat it
    #[arg(long = "format", value_name = "FORMAT", requires = "records")]
    formats: Vec<String>,

    /// Preset of --search with the specs for all but the formats, such as roundings
    #[arg(
        long,
        value_name = "NAME",
        default_value = "mxfp8_e4m3",
        requires = "records"
    )]
    search_preset: String,

    /// File for the best recipe of --search
    #[arg(
        long,
        value_name = "FILE",
        default_value = "found.json",
        requires = "records"
    )]
    found: PathBuf,
}

/// Recipes that are trained, and the file for the best one.
pub(crate) struct Candidates {
    pub(crate) recipes: Vec<(String, Recipe)>,
    file: OutputFile,
}

impl CandidateArgs {
    /// The files that are read.
    pub(crate) fn records(&self) -> impl Iterator<Item = PathBuf> {
        own_files::records(&self.records)
    }

    /// The recipes under the budget; `None` without `--search`.
    pub(crate) fn candidates(
        &self,
        model: ModelName,
    ) -> Result<Option<Candidates>, Box<dyn Error>> {
        let Some(bits) = self.bits else {
            return Ok(None);
        };
        let report = Report::read(&self.records)?;
        let search = Search {
            formats: self.formats.clone(),
            budget: Budget::Bits(bits),
            specs: MxSpecs::preset(&self.search_preset)?,
            score: Score::default(),
            slots: Vec::new(),
            keep: Vec::new(),
            pairs: Vec::new(),
            shared: false,
        };
        let mut recipes = Vec::new();
        for score in Score::ALL {
            let found = Search {
                score,
                ..search.clone()
            };
            recipes.push((score.name().to_owned(), found.find(&report)?.recipe));
        }
        // Formats from the widest to the narrowest, each in all layers.
        let uniform = self.formats.iter().map(|format| {
            let one = Search {
                formats: vec![format.clone()],
                budget: Budget::Bits(f64::INFINITY),
                score: Score::Noise,
                ..search.clone()
            };
            Ok((format.clone(), one.find(&report)?))
        });
        let mut uniform: Vec<(String, Found)> = uniform.collect::<Result<_, Box<dyn Error>>>()?;
        uniform.sort_by(|(_, a), (_, b)| b.total.bits.total_cmp(&a.total.bits));
        let fitting = uniform.iter().filter(|(_, found)| found.total.bits <= bits);
        let fitting = fitting.map(|(format, found)| (format.clone(), found.recipe.clone()));
        recipes.extend(fitting);
        let (_, widest) = &uniform[0];
        for (format, _) in &uniform[1..] {
            let between = Search {
                formats: vec![format.clone()],
                budget: Budget::Bits(f64::INFINITY),
                score: Score::Noise,
                keep: model.first_and_last().map(str::to_owned).to_vec(),
                ..search.clone()
            };
            let mut recipe = between.find(&report)?.recipe;
            for (layer, specs) in &widest.recipe.layers {
                let layers = &mut recipe.layers;
                layers.entry(layer.clone()).or_insert(specs.clone());
            }
            if mean_bits(&recipe, widest) <= bits {
                recipes.push(("first_last".to_owned(), recipe));
                break;
            }
        }
        own_files::not_an_input("--found", &self.found, self.records())?;
        let file = OutputFile::open_own(&self.found)
            .map_err(|error| format!("--found '{}': {error}", self.found.display()))?;
        Ok(Some(Candidates { recipes, file }))
    }
}

/// The mean bits of an element of the operands of these places.
fn mean_bits(recipe: &Recipe, places: &Found) -> f64 {
    let (mut bits, mut elements) = (0.0, 0.0);
    for found in &places.places {
        let specs = &recipe.layers[&found.place.layer];
        if let Some(SlotFormat::Block(format)) = specs.slot_format(found.place.slot) {
            bits += format.bits_per_element() * found.place.elements;
            elements += found.place.elements;
        }
    }
    bits / elements
}

impl Candidates {
    /// Writes the recipe of the best runs: of the highest mean score, then of the lowest loss of the last epoch. Returns the ranking as
    /// text.
    pub(crate) fn rank(
        self,
        runs: &[CompareRun],
        epochs: usize,
        score: &str,
    ) -> Result<String, Box<dyn Error>> {
        let mut ranked = Vec::new();
        for group in groups(runs) {
            let mut recipes = self.recipes.iter();
            if let Some((name, recipe)) = recipes.find(|(name, _)| name == group.name()) {
                let [mean, ..] = group.scores();
                ranked.push((name, recipe, mean, group.final_loss(epochs)));
            }
        }
        ranked.sort_by(|a, b| b.2.total_cmp(&a.2).then(a.3.total_cmp(&b.3)));
        let (_, best, ..) = ranked.first().ok_or("no recipe was trained")?;
        let path = self.file.replace(&serde_json::to_vec_pretty(best)?)?;
        let mut text = String::from("recipes under the budget, the best one first:");
        for (place, (name, _, mean, loss)) in ranked.iter().enumerate() {
            let mean = 100.0 * mean;
            text += &format!(
                "\n{}. {name}: {score} {mean:.2} %, final loss {loss:.4}",
                place + 1
            );
        }
        Ok(format!("{text}\nthe best recipe: {}", path.display()))
    }
}
