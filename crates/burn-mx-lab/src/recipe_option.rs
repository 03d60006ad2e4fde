//! `--recipe FILE[_METHOD]` of the programs that quantize trained models.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use burn_mx::ptq::QuantConfig;

const ENDING: &str = ".json";

/// The file that a text names.
pub fn file(text: &str) -> Option<PathBuf> {
    let end = text.rfind(ENDING)?;
    Some(PathBuf::from(&text[..end + ENDING.len()]))
}

/// The configuration of a recipe in a file, and its name. A method may follow the file's name: `found.json_GPTQ`.
pub fn read(text: &str) -> Result<(String, QuantConfig), Box<dyn Error>> {
    let end = text.rfind(ENDING).ok_or(
        "expected a file's name that ends in .json, with a method behind it or without, as in found.json_GPTQ",
    )?;
    let (file, method) = text.split_at(end + ENDING.len());
    let recipe = serde_json::from_str(&fs::read_to_string(file)?)?;
    let config = QuantConfig::from_recipe(recipe)?.with_method(method)?;
    let stem = Path::new(file).file_stem().unwrap_or_default();
    Ok((format!("{}{method}", stem.to_string_lossy()), config))
}
