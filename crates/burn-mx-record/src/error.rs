//! Why recording fails.

use std::path::PathBuf;

/// Why recording failed, fully or in part.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// A field of the configuration that cannot be used.
    #[error("`{field}` is {value}; {allowed}")]
    Config {
        /// The field of [`RecorderConfig`](crate::RecorderConfig).
        field: &'static str,
        /// Its value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// Another recorder is running.
    #[error("{whose} recorder already; finish it before another one is started")]
    Running {
        /// The owner of the other recorder.
        whose: &'static str,
    },
    /// The folder has records of another run.
    #[error(
        "`{}` has records of another run; name another folder, or add to them with `Recorder::append`",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file or folder cannot be read or written.
    #[error("`{}`: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// A line is not a valid record.
    #[error("`{}` line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// The reason why the line is not valid.
        reason: String,
    },
}

microscaling::debug_is_display!(RecordError);
