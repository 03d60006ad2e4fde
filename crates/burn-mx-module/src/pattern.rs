//! Paths of parameters, and patterns of paths.

use globset::{Glob, GlobMatcher};
use thiserror::Error;

/// Why specs could not be set by path.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum PathError {
    /// The pattern is not a glob.
    #[error(
        "path pattern `{pattern}`: {reason}; allowed: a parameter path such as `layers.0.weight`, a prefix of one, or a glob such as `blocks.*`"
    )]
    Pattern {
        /// The pattern given.
        pattern: String,
        /// The reason why the pattern is not a glob.
        reason: String,
    },
    /// No parameter has a path that matches.
    #[error("path pattern `{pattern}` matches no parameter; the module has: {paths}")]
    NoMatch {
        /// The pattern given.
        pattern: String,
        /// The module's parameter paths, separated by commas.
        paths: String,
    },
}

/// A path, a prefix of a path that ends at a dot, or a glob.
#[derive(Debug)]
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

    /// Whether the pattern matches the parameter or the module at this path.
    pub fn matches(&self, path: &str) -> bool {
        let inside = path
            .strip_prefix(&self.text)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        inside || self.glob.is_match(path)
    }
}
