//! Hints of error messages: the names that a writer may have meant.

/// `; nearest: …` with at most three of `names` that are most like `name`, or an empty text if no name is alike. A name that begins
/// with `name` is alike. If no name does, names with few letters changed are. Upper and lower case do not differ.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 3;
    let name = name.to_ascii_lowercase();
    let names: Vec<_> = names
        .into_iter()
        .map(|known| (known, known.to_ascii_lowercase()))
        .collect();
    let begins = |(_, known): &&(&str, String)| !name.is_empty() && known.starts_with(&name);
    let mut alike: Vec<&str> = names
        .iter()
        .filter(begins)
        .map(|(known, _)| *known)
        .collect();
    if alike.is_empty() {
        let distance = |known: &str| strsim::damerau_levenshtein(&name, known);
        let mut near: Vec<_> = names
            .iter()
            .map(|(known, lower)| (distance(lower), *known))
            .filter(|(distance, _)| *distance <= name.len().div_ceil(4))
            .collect();
        near.sort_by_key(|(distance, _)| *distance);
        alike = near.into_iter().map(|(_, known)| known).collect();
    }
    alike.truncate(MOST);
    match alike.is_empty() {
        true => String::new(),
        false => format!("; nearest: {}", alike.join(", ")),
    }
}

/// `; …` with the way from a Python dictionary to JSON, if a text that is not JSON looks like one, or an empty text.
pub fn of_python(text: &str) -> &'static str {
    let words = ["'", "None", "True", "False"];
    match words.iter().any(|word| text.contains(word)) {
        true => "; allowed: JSON. In Python, `json.dumps(specs)` writes a dictionary as JSON",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_begin_so_come_first_then_names_with_a_letter_changed() {
        let names = ["mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mx6", "MXINT8"];
        let nearest = |name| nearest(name, names);
        assert_eq!(nearest("mxfp6"), "; nearest: mxfp6_e3m2, mxfp6_e2m3");
        assert_eq!(nearest("MXFP6_e2m4"), "; nearest: mxfp6_e2m3, mxfp6_e3m2");
        assert_eq!(nearest("mxint"), "; nearest: MXINT8");
        assert_eq!(nearest("nvfp8_block"), "");
        assert_eq!(nearest(""), "");
    }
}
