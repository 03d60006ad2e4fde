//! The kinds of progress display, and the best one for the terminal.

use std::io::{self, IsTerminal};

use clap::ValueEnum;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressKind {
    #[cfg_attr(
        feature = "tui",
        doc = "tui where all standard streams are a terminal, else"
    )]
    /// bar if standard error is a terminal, else lines
    Auto,
    /// burn-train's dashboard: metrics, plots, and q to stop
    #[cfg(feature = "tui")]
    Tui,
    /// a progress bar
    Bar,
    /// a line now and then
    Lines,
    /// nothing until the run is done
    None,
}

impl ProgressKind {
    /// Replaces `Auto` by the best kind for the terminal, and refuses the dashboard without a terminal.
    pub(crate) fn decide(self) -> Result<Self, String> {
        match self {
            Self::Auto => Ok(Self::best()),
            #[cfg(feature = "tui")]
            Self::Tui if !is_interactive() => Err(
                "--progress 'tui': standard input, output and error have to be a terminal that can be drawn on; \
                 allowed here: auto, bar, lines, none"
                    .to_owned(),
            ),
            decided => Ok(decided),
        }
    }

    fn best() -> Self {
        #[cfg(feature = "tui")]
        if is_interactive() {
            return Self::Tui;
        }
        if io::stderr().is_terminal() {
            Self::Bar
        } else {
            Self::Lines
        }
    }
}

/// Whether a terminal shows the drawing, and whether its keys reach this program.
#[cfg(feature = "tui")]
fn is_interactive() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    !dumb && io::stdin().is_terminal() && io::stdout().is_terminal() && io::stderr().is_terminal()
}
