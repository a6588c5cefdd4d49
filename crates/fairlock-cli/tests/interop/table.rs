//! Scenarios, and the table of how they went.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use fairlock::BootTime;
use fairlock_testkit::{Peer, main_flavour};

use crate::stage::Stage;

/// Something that has to work with Redisson beside us. What it returns is shown in the table.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: Run,
}

#[derive(Clone, Copy)]
pub(crate) enum Run {
    Once(fn(&Stage) -> String),
    /// The same, on the first server only: what it is about is in Java.
    OnFirstServer(fn(&Stage) -> String),
    /// With Java as the first and Rust as the second, and the reverse.
    BothWays(fn(&Stage, &Peer, &Peer) -> String),
}

impl Scenario {
    pub(crate) const fn once(name: &'static str, run: fn(&Stage) -> String) -> Self {
        Self { name, run: Run::Once(run) }
    }

    pub(crate) const fn on_first_server(name: &'static str, run: fn(&Stage) -> String) -> Self {
        Self { name, run: Run::OnFirstServer(run) }
    }

    pub(crate) const fn both_ways(
        name: &'static str,
        run: fn(&Stage, &Peer, &Peer) -> String,
    ) -> Self {
        Self { name, run: Run::BothWays(run) }
    }

    /// Whether one of the words is part of its name, or there are none.
    pub(crate) fn is_named(&self, words: &[String]) -> bool {
        words.is_empty() || words.iter().any(|word| self.name.contains(word))
    }
}

pub(crate) struct Table {
    started: BootTime,
    rows: usize,
    failed: Vec<String>,
}

impl Table {
    pub(crate) fn begin() -> Self {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let payload = panic.payload();
            let said = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
            let said = said.unwrap_or_else(|| "panicked".to_owned());
            LAST_PANIC.lock().unwrap().push(format!("{said} ({place})"));
        }));
        println!("{:WIDTH$} {:9} {:11} result", "scenario", "redisson", "server");
        Self { started: BootTime::now(), rows: 0, failed: Vec::new() }
    }

    pub(crate) fn play(&mut self, scenario: &Scenario, stage: &Stage) {
        let name = scenario.name;
        match scenario.run {
            Run::Once(run) => self.row(name, stage, || run(stage)),
            Run::OnFirstServer(run) if *stage.server.flavour() == main_flavour() => {
                self.row(name, stage, || run(stage));
            }
            Run::OnFirstServer(_) => {}
            Run::BothWays(run) => {
                let java_first = || run(stage, &stage.java[0], &stage.rust[0]);
                self.row(&format!("{name}: Java, then Rust"), stage, java_first);
                let rust_first = || run(stage, &stage.rust[0], &stage.java[0]);
                self.row(&format!("{name}: Rust, then Java"), stage, rust_first);
            }
        }
    }

    fn row(&mut self, name: &str, stage: &Stage, run: impl FnOnce() -> String) {
        LAST_PANIC.lock().unwrap().clear();
        let started = BootTime::now();
        let outcome = catch_unwind(AssertUnwindSafe(run));
        let took = started.until(BootTime::now());
        let (version, server) = (&stage.redisson.version, &stage.server.flavour().name);
        let result = match outcome {
            Ok(detail) if detail.is_empty() => format!("ok, {}", seconds(took)),
            Ok(detail) => format!("ok, {}: {detail}", seconds(took)),
            Err(_) => {
                let said = LAST_PANIC.lock().unwrap().join("; ");
                self.failed.push(format!("{name}, Redisson {version}, {server}: {said}"));
                format!("FAILED: {said}")
            }
        };
        self.rows += 1;
        println!("{name:WIDTH$} {version:9} {server:11} {result}");
    }

    pub(crate) fn end(self) -> ExitCode {
        let took = seconds(self.started.until(BootTime::now()));
        println!("{} rows, {} failed, {took}", self.rows, self.failed.len());
        for failed in &self.failed {
            println!("failed: {failed}");
        }
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// What the running scenario has panicked with, in all its threads.
static LAST_PANIC: Mutex<Vec<String>> = Mutex::new(Vec::new());

const WIDTH: usize = 58;
