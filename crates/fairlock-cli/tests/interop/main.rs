//! The real Redisson beside fairlock, on real servers: `cargo xtask interop [WORD...]`.
//!
//! Java and Rust processes understand the same commands (`rust_peer`), so a scenario is written once
//! and runs both ways: Java holds and Rust asks, and the reverse. It prints a table with a row per
//! scenario, version of Redisson and server. Words pick the scenarios whose names contain them.

#![allow(clippy::unwrap_used, reason = "a scenario fails by panicking")]

mod cli;
mod crashes;
mod defects;
mod exclusion;
mod fair;
mod recording;
mod rules;
mod rust_peer;
mod stage;
mod table;
mod wakeups;

use std::process::ExitCode;

use fairlock_testkit::{Redisson, flavours};

use stage::Stage;
use table::{Scenario, Table};

fn main() -> ExitCode {
    if rust_peer::is_wanted() {
        rust_peer::play();
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let scenarios: Vec<Scenario> = all().into_iter().filter(|one| one.is_named(&words)).collect();
    if scenarios.is_empty() {
        eprintln!("no scenario is named like {words:?}");
        return ExitCode::FAILURE;
    }
    let mut table = Table::begin();
    for redisson in Redisson::all() {
        for flavour in flavours() {
            let stage = Stage::set(&redisson, &flavour);
            for scenario in &scenarios {
                table.play(scenario, &stage);
            }
        }
    }
    table.end()
}

fn all() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    scenarios.extend(exclusion::SCENARIOS);
    scenarios.extend(wakeups::SCENARIOS);
    scenarios.extend(rules::SCENARIOS);
    scenarios.extend(crashes::SCENARIOS);
    scenarios.extend(fair::SCENARIOS);
    scenarios.extend(cli::SCENARIOS);
    scenarios.extend(recording::SCENARIOS);
    scenarios.extend(defects::SCENARIOS);
    scenarios
}
