//! Signals, without a terminal.

use std::process::Command;

use rustix::process::Signal;

use crate::cli::{BINARY, Running, call, fairlock, hold, hold_with, run};
use crate::stores::on_each_store;

#[test]
fn one_who_waits_can_be_interrupted() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            let waiting = Running::start(&mut fairlock(store, &["run", "-v", "x", "echo", "no"]));
            waiting.expect_to_say("waiting for the lock");
            waiting.signal(signal);
            let ended = waiting.wait();
            assert_eq!((ended.code(), ended.stdout.as_str()), (code, ""));
        }
        // It left nothing behind that would get the lock now.
        holder.signal(Signal::TERM);
        assert_eq!(holder.wait().code(), 143);
        assert_eq!(call(store, &["run", "-n", "x", "true"]).code(), 0);
    });
}

#[test]
fn signals_are_passed_on_to_the_command() {
    on_each_store(|store| {
        let names = ["INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"];
        let signals =
            [Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH];
        let traps: String = names.map(|name| format!("trap 'echo {name}' {name};")).concat();
        let script =
            format!("{traps} trap 'echo TERM; exit 9' TERM; echo $$; while :; do sleep 0.05; done");
        let (mut running, _) = hold_with(store, &[], "x", &script);
        for (name, signal) in names.into_iter().zip(signals) {
            running.signal(signal);
            assert_eq!(running.line(), name);
        }
        running.signal(Signal::TERM);
        assert_eq!(running.line(), "TERM");
        assert_eq!(running.wait().code(), 9);
    });
}

#[test]
fn what_the_caller_ignores_stays_ignored() {
    on_each_store(|store| {
        let script = "trap '' HUP; exec \"$0\" run x -- sh -c 'kill -HUP $$; echo alive'";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, BINARY]).env("FAIRLOCK_STORE", store.address());
        let ended = run(&mut shell);
        assert_eq!((ended.code(), ended.stdout.as_str()), (0, "alive\n"));
    });
}

#[test]
fn in_the_background_of_a_script_it_runs_as_well() {
    on_each_store(|store| {
        let script = "\"$0\" run x -- sh -c 'echo here; exit 3' & wait $!; echo \"code=$?\"";
        let mut shell = Command::new("setsid");
        shell.args(["sh", "-c", script, BINARY]).env("FAIRLOCK_STORE", store.address());
        assert_eq!(run(&mut shell).stdout, "here\ncode=3\n");
    });
}
