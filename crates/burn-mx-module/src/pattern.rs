//! Paths of parameters, and patterns of paths.

use globset::{Glob, GlobMatcher};
use thiserror::Error;

/// Why specs could not be set by path.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PathError {
    /// The pattern is not a glob.
    #[error(
        "path pattern `{pattern}`: {reason}; allowed: the path of a parameter (`layers.0.weight`) or a module (`layers.0`), or a glob (`blocks.*`)"
    )]
    Pattern {
        /// The pattern given.
        pattern: String,
        /// The reason why the pattern is not a glob.
        reason: String,
    },
    /// No parameter has a path that matches.
    #[error("path pattern `{pattern}` matches no parameter; the module has {paths}")]
    NoMatch {
        /// The pattern given.
        pattern: String,
        /// The module's parameter paths, separated by commas: all of a few, else the [nearest] ones.
        paths: String,
    },
}

microscaling::debug_is_display!(PathError);

/// A path, the path of a module, or a glob over either. A pattern that matches a module matches everything in it.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    glob: GlobMatcher,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// [`PathError::Pattern`].
    pub fn new(text: &str) -> Result<Self, PathError> {
        let glob = Glob::new(text).map_err(|error| PathError::Pattern {
            pattern: text.to_owned(),
            reason: error.kind().to_string(),
        })?;
        Ok(Self {
            text: text.to_owned(),
            glob: glob.compile_matcher(),
        })
    }

    /// Whether the pattern matches the parameter or the module at this path, or a module that it is in.
    pub fn matches(&self, path: &str) -> bool {
        with_modules(path).any(|path| path == self.text || self.glob.is_match(path))
    }
}

/// The modules that the path is in, from the outermost one, and the path itself.
fn with_modules(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('.').map(|(dot, _)| dot);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// The paths that an error lists if a pattern matches none. Up to ten parameters are listed in full. If there are more, the error lists
/// the five parameters and modules whose paths are most like the pattern, and counts the other parameters.
pub fn nearest<'a>(pattern: &str, paths: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 5;
    let parameters: Vec<&str> = paths.into_iter().collect();
    if parameters.len() <= 2 * MOST {
        return parameters.join(", ");
    }
    let mut paths: Vec<&str> = parameters.iter().copied().flat_map(with_modules).collect();
    paths.sort_by_cached_key(|path| (strsim::damerau_levenshtein(pattern, path), *path));
    paths.dedup();
    paths.truncate(MOST);
    let is_left_out = |parameter: &&&str| !paths.contains(*parameter);
    let others = parameters.iter().filter(is_left_out).count();
    format!("{} and {others} other parameters", paths.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_of_modules_means_all_below_them() {
        let pattern = Pattern::new("blocks.*.down").unwrap();
        for path in [
            "blocks.0.down",
            "blocks.0.down.weight",
            "blocks.1.down.0.bias",
        ] {
            assert!(pattern.matches(path), "{path}");
        }
        for path in ["blocks.0.downs.weight", "blocks.0", "head.weight"] {
            assert!(!pattern.matches(path), "{path}");
        }
        let prefix = Pattern::new("head").unwrap();
        assert!(prefix.matches("head.weight") && !prefix.matches("header.weight"));
    }

    #[test]
    fn the_nearest_paths() {
        let paths: Vec<String> = (0..40).map(|i| format!("blocks.{i}.up.weight")).collect();
        let all = paths.iter().map(String::as_str).chain(["head.weight"]);
        let said = nearest("haed.weight", all.clone());
        assert!(
            said.starts_with("head.weight, head, ") && said.ends_with(" other parameters"),
            "{said}"
        );
        let said = nearest("blokcs.7.up", all);
        assert!(said.starts_with("blocks.7.up, "), "{said}");
        assert_eq!(nearest("x", ["a", "b"]), "a, b");
    }
}
