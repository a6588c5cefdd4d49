//! The command line on locks that Java holds, and Java on locks that the command line holds.

use std::process::{Command, Stdio};

use fairlock_testkit::eventually;
use serde_json::Value;

use crate::stage::{BOUND, Part, Stage};
use crate::table::Scenario;

pub(crate) const SCENARIOS: [Scenario; 2] = [
    Scenario::once("ls, show and break of Java's lock", look_and_break),
    Scenario::once("fairlock run takes turns with Java", run),
];

fn fairlock(stage: &Stage, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlock"));
    command.env("FAIRLOCK_STORE", stage.server.url()).args(args).stdin(Stdio::null());
    command
}

fn json(stage: &Stage, args: &[&str]) -> Value {
    let output = fairlock(stage, args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn look_and_break(stage: &Stage) -> String {
    let name = stage.new_name("looked-at");
    let java = Part::new(stage, &stage.java[0], "lock", &name);
    assert_eq!(java.answer("lock", "60000").text, "held");
    java.does("trylock", "held");

    let owners: Vec<String> = stage.query(&["HKEYS", &name]);
    let shown = json(stage, &["show", "--json", &name]);
    assert_eq!(shown["owner"], owners[0].as_str());
    assert_eq!((&shown["held"], &shown["holds"]), (&Value::from(true), &Value::from(2)));
    assert_eq!(shown["holder"], Value::Null, "Redisson does not say who it is");
    assert_eq!(shown["token"], Value::Null, "and draws no tokens");
    let listed = json(stage, &["ls", "--json", &format!("{name}*")]);
    assert_eq!(listed[0]["owner"], owners[0].as_str(), "{listed}");

    let broken = fairlock(stage, &["break", "--yes", &name]).output().unwrap();
    assert!(broken.status.success(), "{broken:?}");
    java.does("islocked", "false");
    java.does("unlock", "not-owner");
    String::new()
}

fn run(stage: &Stage) -> String {
    let name = stage.new_name("run");
    let java = Part::new(stage, &stage.java[0], "lock", &name);
    java.does("lock", "held");
    // Java's getLock has no queue.
    let busy = fairlock(stage, &["run", "--unfair", "-n", &name, "true"]).output().unwrap();
    assert_eq!(busy.status.code(), Some(1));
    let said = String::from_utf8_lossy(&busy.stderr);
    assert!(said.contains("not a fairlock client"), "{said}");
    let mut waiting = fairlock(stage, &["run", "--unfair", &name, "cat"]);
    let mut waiting = waiting.stdin(Stdio::piped()).spawn().unwrap();
    stage.await_listeners(&name, 1);
    java.does("unlock", "released");
    // The command line has it while `cat` has an input.
    eventually(BOUND, "the command runs", || java.ask("islocked") == "true");
    java.does("trylock", "busy");
    let next = java.begin("lock", "");
    drop(waiting.stdin.take());
    assert!(waiting.wait().unwrap().success());
    assert_eq!(next.answer().text, "held");
    java.does("unlock", "released");
    String::new()
}
