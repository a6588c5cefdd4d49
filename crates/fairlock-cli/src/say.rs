//! What we say goes to standard error, one line each, and never fails: standard output belongs to
//! the command, and a closed standard error is no reason to lose a lock.

use std::fmt;
use std::io::{self, Write};

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Only what went wrong.
    Quiet,
    /// Also what a person wants to know: who has the lock that we did not get.
    Normal,
    /// Also what goes well.
    Verbose,
}

impl Verbosity {
    /// Something went wrong.
    pub(crate) fn error(self, text: impl fmt::Display) {
        error(text);
    }

    /// Worth knowing; not with `-q`.
    pub(crate) fn note(self, text: impl fmt::Display) {
        if self >= Self::Normal {
            error(text);
        }
    }

    /// A step of the way; only with `-v`.
    pub(crate) fn step(self, text: impl fmt::Display) {
        if self >= Self::Verbose {
            error(text);
        }
    }
}

/// One line of ours.
pub(crate) fn error(text: impl fmt::Display) {
    raw(&format!("fairlock: {text}\n"));
}

/// What was asked for goes to standard output. A reader that has gone away has seen enough.
pub(crate) fn output(text: &str) {
    io::stdout().write_all(text.as_bytes()).ok();
}

/// Text for standard error as it is. In one write, so that lines of several processes do not mix.
pub(crate) fn raw(text: &str) {
    io::stderr().write_all(text.as_bytes()).ok();
}
