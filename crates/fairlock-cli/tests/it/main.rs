//! The real binary, as people use it: with real processes, signals and terminals, on every store.

#![forbid(unsafe_code)]

mod cli;
mod codes;
mod look;
mod loss;
mod orphans;
mod processes;
mod pty;
mod queue;
mod signals;
mod stores;
mod terminal;

use std::time::Duration;

/// Longer than anything here takes on the slowest machine.
const BOUND: Duration = Duration::from_secs(20);
