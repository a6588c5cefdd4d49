//! The exit codes of `fairlock`, and what they mean. Nowhere else is one written down.
//!
//! Those of `run` keep the habits of flock(1), of shells (126, 127, 128 + n) and of sysexits(3)
//! (64, 69). A lost lock has a number of its own, because it is the one thing that a script must
//! not mistake for anything else.

use std::process::ExitCode;

use fairlock::{ConnectError, LockError};

/// How a call of `fairlock` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    /// Done.
    pub(crate) const OK: Self = Self(0);
    /// `run`: busy or timed out (`-E` changes it). `break`: nobody held it, or nobody said yes.
    pub(crate) const BUSY: Self = Self(1);
    /// Wrong arguments or settings; a `run` inside a `run` of the same lock.
    pub(crate) const USAGE: Self = Self(64);
    /// The store cannot be used: unreachable, wrong password, no rights.
    pub(crate) const STORE: Self = Self(69);
    /// The machine refuses something that we cannot do without: no more processes, for example.
    pub(crate) const SYSTEM: Self = Self(71);
    /// The lock was lost while the command ran.
    pub(crate) const LOST: Self = Self(79);
    /// The command is there but cannot be executed.
    pub(crate) const CANNOT_EXECUTE: Self = Self(126);
    /// There is no such command.
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// The command's own code.
    pub(crate) fn of_command(code: i32) -> Self {
        Self(code as u8)
    }

    /// The code that `-E` asks for.
    pub(crate) fn chosen(code: u8) -> Self {
        Self(code)
    }

    /// A signal ended the command, or ended our waiting.
    pub(crate) fn of_signal(number: i32) -> Self {
        Self(128_u8.wrapping_add(number as u8))
    }

    pub(crate) fn of_connect_error(error: &ConnectError) -> Self {
        match error {
            ConnectError::Address { .. } | ConnectError::Option(_) => Self::USAGE,
            _ => Self::STORE,
        }
    }

    /// For everything but a time-out, whose code may be chosen with `-E`.
    pub(crate) fn of_lock_error(error: &LockError) -> Self {
        match error {
            LockError::TimedOut { .. } => Self::BUSY,
            LockError::Name(_) | LockError::Option(_) => Self::USAGE,
            LockError::Lost(_) => Self::LOST,
            _ => Self::STORE,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// The table for `--help`.
pub(crate) const TABLE: &str = "\
EXIT CODES
  0    the command succeeded
  1    busy (-n) or timed out (-w); choose another code with -E
  64   wrong usage, or `run` inside a `run` of the same lock
  69   the store cannot be used
  71   the system refused to start a process
  79   the lock was lost while the command ran
  126  the command cannot be executed
  127  the command was not found
  128+n  signal n ended the command, or ended the waiting (Ctrl-C: 130)
  else   the command's own code";
