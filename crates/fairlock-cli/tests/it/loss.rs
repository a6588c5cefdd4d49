//! A lock that is lost while the command runs.

use std::process::Stdio;
use std::time::Duration;

use fairlock_testkit::{Server, eventually, main_flavour, monotonic_ns, never_within};
use rustix::process::Signal;

use crate::BOUND;
use crate::cli::{Ended, Running, call, hold, hold_with, without_settings};
use crate::processes::{group_is_alive, is_alive, is_stopped};
use crate::stores::on_each_store;

const LEASE: Duration = Duration::from_secs(3);

fn assert_lost(ended: &Ended, why: &str) {
    assert_eq!(ended.code(), 79, "{ended:?}");
    assert!(ended.stderr.contains(why), "{ended:?}");
}

#[test]
fn max_hold_ends_the_command() {
    on_each_store(|store| {
        let started = monotonic_ns();
        let (wrapper, group) = hold(store, &["--max-hold", "1s"], "x");
        assert_lost(&wrapper.wait(), "--max-hold 1.0 s");
        assert!(!group_is_alive(group));
        assert!(monotonic_ns() - started < 10_000_000_000);
    });
}

#[test]
fn a_wrapper_stopped_past_its_lease_finds_its_command_gone() {
    on_each_store(|store| {
        let started = monotonic_ns();
        let (wrapper, group) = hold_with(
            store,
            &["--lease", "1s"],
            "x",
            "trap '' TERM; echo $$; while :; do sleep 0.1; done",
        );
        wrapper.signal(Signal::STOP);
        eventually(BOUND, "the wrapper stands still", || is_stopped(wrapper.pid()));
        // The wrapper cannot do it, so the watcher does.
        eventually(BOUND, "the group is gone", || !group_is_alive(group));
        assert!(monotonic_ns() - started < 10_000_000_000);
        assert!(is_stopped(wrapper.pid()));
        wrapper.signal(Signal::CONT);
        assert_lost(&wrapper.wait(), "could not be renewed in time");
    });
}

#[test]
fn a_broken_lock_ends_the_command() {
    on_each_store(|store| {
        let (wrapper, group) = hold(store, &["--lease", "3s"], "x");
        let broken = call(store, &["break", "--yes", "x"]);
        assert_eq!(broken.code(), 0, "{broken:?}");
        let since = monotonic_ns();
        assert_lost(&wrapper.wait(), "somebody broke or deleted it");
        let took = Duration::from_nanos(monotonic_ns() - since);
        assert!(took < LEASE / 3 + Duration::from_secs(1), "took {took:?}");
        assert!(!group_is_alive(group));
    });
}

/// What only a server can do. The name of the lock is its key there.
struct OnServer {
    server: Server,
}

impl OnServer {
    fn new() -> Self {
        Self { server: Server::start(&main_flavour()) }
    }

    /// A holder of `x` with a lease of three seconds.
    fn hold(&self, flags: &[&str], script: &str) -> (Running, i32) {
        let mut command = without_settings();
        command.args(["run", "--store", &self.server.url(), "--lease", "3s"]).args(flags);
        command.args(["x", "--", "sh", "-c", script]).stdin(Stdio::piped());
        let mut running = Running::start(&mut command);
        let group = running.number();
        (running, group)
    }
}

#[test]
fn a_deleted_lock_is_noticed_within_a_third_of_the_lease() {
    let on = OnServer::new();
    let (wrapper, group) = on.hold(&[], "echo $$; exec sleep 600");
    assert_eq!(on.server.query::<i64>(&["DEL", "x"]), 1);
    let deleted = monotonic_ns();
    let ended = wrapper.wait();
    let took = Duration::from_nanos(monotonic_ns() - deleted);
    assert_lost(&ended, "somebody broke or deleted it");
    assert!(took < LEASE / 3 + Duration::from_secs(1), "took {took:?}");
    assert!(!group_is_alive(group));
}

#[test]
fn a_command_that_does_not_stop_is_killed_after_a_short_grace() {
    let on = OnServer::new();
    let script = "trap 'echo asked' TERM; echo $$; while :; do sleep 0.05; done";
    let (mut wrapper, group) = on.hold(&[], script);
    assert_eq!(on.server.query::<i64>(&["DEL", "x"]), 1);
    assert_eq!(wrapper.line(), "asked");
    let asked = monotonic_ns();
    assert_lost(&wrapper.wait(), "did not stop in time");
    assert!(!group_is_alive(group));
    assert!(Duration::from_nanos(monotonic_ns() - asked) < LEASE + Duration::from_secs(2));
}

#[test]
fn on_lost_kill_does_not_ask() {
    let on = OnServer::new();
    let script = "trap 'echo asked' TERM; echo $$; while :; do sleep 0.05; done";
    let (wrapper, group) = on.hold(&["--on-lost", "kill"], script);
    assert_eq!(on.server.query::<i64>(&["DEL", "x"]), 1);
    let ended = wrapper.wait();
    assert_lost(&ended, "killing the command");
    assert!(!ended.stdout.contains("asked"), "{ended:?}");
    assert!(!group_is_alive(group));
}

#[test]
fn on_lost_ignore_lets_it_run_and_tells_in_the_end() {
    let on = OnServer::new();
    let (mut wrapper, group) = on.hold(&["--on-lost", "ignore"], "echo $$; read _; echo done");
    assert_eq!(on.server.query::<i64>(&["DEL", "x"]), 1);
    wrapper.expect_to_say("goes on without it");
    // Longer than the lease: the watcher lets it run as well.
    never_within(LEASE + Duration::from_millis(500), "it ends", || !group_is_alive(group));
    wrapper.close_stdin();
    assert_eq!(wrapper.line(), "done");
    assert_eq!(wrapper.wait().code(), 79);
}

#[test]
fn with_the_server_unreachable_the_group_is_gone_before_the_lease_can_have_ended() {
    let on = OnServer::new();
    for script in ["echo $$; exec sleep 600", "trap '' TERM; echo $$; while :; do sleep 0.1; done"]
    {
        let (wrapper, group) = on.hold(&[], script);
        let before = monotonic_ns();
        let left_ms: u64 = on.server.query(&["PTTL", "x"]);
        on.server.freeze();
        // The lease cannot end before this: a renewal after the question would only move it on.
        let can_end = before + left_ms * 1_000_000;
        eventually(BOUND, "the group is gone", || !group_is_alive(group));
        assert!(monotonic_ns() < can_end, "the command outlived its lease");
        let ended = wrapper.wait();
        on.server.thaw();
        assert_lost(&ended, "cannot be renewed");
        eventually(BOUND, "the lock is free", || on.server.query::<i64>(&["EXISTS", "x"]) == 0);
    }
}

#[test]
fn a_server_that_is_away_for_a_moment_does_no_harm() {
    let on = OnServer::new();
    let (mut wrapper, group) = on.hold(&[], "echo $$; read _; exit 6");
    let renewals = on.server.script_calls();
    on.server.freeze();
    never_within(LEASE / 3, "the command ends", || !group_is_alive(group));
    on.server.thaw();
    eventually(BOUND, "it is renewed", || on.server.script_calls() > renewals);
    wrapper.close_stdin();
    assert_eq!(wrapper.wait().code(), 6);
}

#[test]
fn a_lock_that_was_lost_in_the_last_moment_is_79_as_well() {
    let on = OnServer::new();
    let (mut wrapper, group) = on.hold(&[], "echo $$; read _; exit 0");
    assert_eq!(on.server.query::<i64>(&["DEL", "x"]), 1);
    wrapper.close_stdin();
    let ended = wrapper.wait();
    assert_eq!(ended.code(), 79, "{ended:?}");
    assert!(!is_alive(group));
}
