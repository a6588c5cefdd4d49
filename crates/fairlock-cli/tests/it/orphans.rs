//! Nothing of a command outlives its lock, whoever is killed.

use std::thread;
use std::time::Duration;

use fairlock_testkit::{eventually, never_within};
use rustix::process::Signal;

use crate::BOUND;
use crate::cli::{Running, call, fairlock, hold, hold_with};
use crate::processes::{count_of, group_is_alive, is_alive, members, signal, watcher_of};
use crate::stores::on_each_store;

/// A family that does not end when it is asked to.
const STUBBORN: &str = "trap '' TERM INT HUP; (sleep 600 & wait) & echo $$; wait";

#[test]
fn a_killed_wrapper_takes_the_whole_group_along() {
    on_each_store(|store| {
        let (wrapper, group) = hold_with(store, &["--lease", "3s"], "x", STUBBORN);
        eventually(BOUND, "child, grandchild and its sleep run", || members(group) == 3);
        let watcher = watcher_of(wrapper.pid()).expect("there is a watcher");
        wrapper.signal(Signal::KILL);
        let bound = Duration::from_secs(if store.sees_death() { 1 } else { 4 });
        let next = call(store, &["run", "-w", &format!("{}s", bound.as_secs()), "x", "true"]);
        assert!(!group_is_alive(group), "somebody else got the lock before the group was gone");
        assert_eq!(next.code(), 0, "{next:?}");
        eventually(BOUND, "the watcher ends", || !is_alive(watcher));
    });
}

#[test]
fn a_killed_wrapper_does_not_leave_its_command_for_a_second() {
    on_each_store(|store| {
        let (wrapper, group) = hold_with(store, &[], "x", STUBBORN);
        wrapper.signal(Signal::KILL);
        eventually(Duration::from_secs(1), "the group is gone", || !group_is_alive(group));
    });
}

#[test]
fn killed_at_any_moment_a_wrapper_leaves_nothing_behind() {
    on_each_store(|store| {
        for round in 0..60_u32 {
            // A command that nobody else runs, under a lock of its own.
            let mark = format!("600.{}{round:02}", std::process::id());
            let args = ["run", &mark, "--", "sleep", &mark];
            let mut wrapper = Running::start(&mut fairlock(store, &args));
            // From before it connects until after the command runs.
            thread::park_timeout(Duration::from_micros(500) * round);
            wrapper.kill();
            eventually(Duration::from_secs(5), "nothing is left", || count_of(&mark) == 0);
        }
    });
}

#[test]
fn a_killed_command_takes_its_children_along() {
    on_each_store(|store| {
        let (wrapper, group) = hold_with(store, &[], "x", STUBBORN);
        eventually(BOUND, "the grandchildren run", || members(group) == 3);
        signal(group, Signal::KILL);
        assert_eq!(wrapper.wait().code(), 137);
        assert!(!group_is_alive(group));
        assert_eq!(call(store, &["run", "-n", "x", "true"]).code(), 0);
    });
}

#[test]
fn a_killed_grandchild_is_the_commands_own_affair() {
    on_each_store(|store| {
        let script = "echo $$; sleep 600 & echo $!; wait $!; exit 5";
        let (mut wrapper, group) = hold_with(store, &[], "x", script);
        let grandchild = wrapper.number();
        signal(grandchild, Signal::KILL);
        assert_eq!(wrapper.wait().code(), 5);
        assert!(!group_is_alive(group));
    });
}

#[test]
fn what_the_command_leaves_behind_ends_before_the_lock() {
    on_each_store(|store| {
        let script = "(trap '' TERM; exec sleep 600 >/dev/null 2>&1) & echo $$; exit 4";
        let (wrapper, group) = hold_with(store, &[], "x", script);
        let ended = wrapper.wait();
        assert!(!group_is_alive(group));
        assert_eq!(ended.code(), 4);
        assert!(ended.stderr.contains("left behind"), "{ended:?}");
    });
}

#[test]
fn the_watcher_goes_when_all_is_well_and_only_then() {
    on_each_store(|store| {
        let (wrapper, group) = hold(store, &[], "x");
        let watcher = watcher_of(wrapper.pid()).expect("there is a watcher");
        for polite in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            signal(watcher, polite);
        }
        never_within(Duration::from_millis(100), "the watcher ends", || !is_alive(watcher));
        signal(group, Signal::TERM);
        assert_eq!(wrapper.wait().code(), 143);
        eventually(BOUND, "the watcher ends", || !is_alive(watcher));
    });
}
