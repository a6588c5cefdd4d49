//! First come, first served.

use std::time::Duration;

use fairlock_testkit::{Server, eventually, main_flavour, monotonic_ns, never_within};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::BOUND;
use crate::cli::{Running, call, fairlock, hold, run, without_settings};
use crate::pty::{CTRL_C, Shell};
use crate::stores::{Store, on_each_store};

/// What `show --json` tells.
fn shown(store: &Store) -> Value {
    let ended = call(store, &["show", "--json", "x"]);
    assert_eq!(ended.code(), 0, "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

/// How many are in the queue.
fn queued(store: &Store) -> usize {
    shown(store)["waiters"].as_array().map_or(0, Vec::len)
}

/// A `run` with these flags that is in the queue, at this place.
fn wait_in_line(store: &Store, flags: &[&str], place: usize, script: &str) -> Running {
    let args = [&["run"], flags, &["x", "--", "sh", "-c", script]].concat();
    let waiting = Running::start(&mut fairlock(store, &args));
    eventually(BOUND, "it is in the queue", || queued(store) == place);
    waiting
}

fn end(holder: Running) {
    holder.signal(Signal::TERM);
    assert_eq!(holder.wait().code(), 143);
}

/// A script that says when it has the lock, and stays.
const STAY: &str = "echo here; exec sleep 600";

#[test]
fn those_who_wait_are_served_in_their_order() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        let mut first = wait_in_line(store, &["-v"], 1, STAY);
        let mut second = wait_in_line(store, &["-v", "-w", "5m"], 2, STAY);
        first.expect_to_say("waiting for the lock \"x\", 1st in line, held by sh, pid");
        second.expect_to_say("waiting for the lock \"x\", 2nd in line, held by sh, pid");
        end(holder);
        assert_eq!(first.line(), "here");
        assert_eq!(queued(store), 1);
        second.expect_to_say("1st in line for \"x\"");
        assert!(!second.has_ended());
        end(first);
        assert_eq!(second.line(), "here");
        end(second);
        assert_eq!(shown(store)["held"], false);
    });
}

#[test]
fn ls_counts_those_who_wait() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        let _other = hold(store, &["--unfair"], "y");
        let listed = || -> Value {
            let locks = call(store, &["ls", "--json"]).stdout;
            let locks: Value = serde_json::from_str(&locks).expect("it is JSON");
            let count = |lock: &Value| json!([lock["name"], lock["kind"], lock["queued"]]);
            locks.as_array().expect("a list").iter().map(count).collect()
        };
        assert_eq!(listed(), json!([["x", "lock", 0], ["y", "lock", 0]]));
        let mut first = wait_in_line(store, &[], 1, STAY);
        let _second = wait_in_line(store, &[], 2, STAY);
        assert_eq!(listed(), json!([["x", "fair", 2], ["y", "lock", 0]]));
        let for_people = call(store, &["ls"]).stdout;
        let last = |line: &str| line.split_whitespace().last().unwrap_or_default().to_owned();
        let column: Vec<String> = for_people.lines().map(last).collect();
        assert_eq!(column, ["QUEUED", "2", "0"], "{for_people}");
        end(holder);
        assert_eq!(first.line(), "here");
        assert_eq!(listed(), json!([["x", "fair", 1], ["y", "lock", 0]]));
    });
}

#[test]
fn one_who_does_not_wait_never_jumps_the_queue() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        let mut first = wait_in_line(store, &[], 1, STAY);
        let busy = call(store, &["run", "-n", "x", "echo", "never"]);
        assert_eq!((busy.code(), busy.stdout.as_str()), (1, ""));
        assert!(busy.stderr.contains("in line before you: 1"), "{busy:?}");
        assert_eq!(queued(store), 1);
        end(holder);
        // Whatever moment it hits, the lock is the first one's.
        assert_eq!(call(store, &["run", "-n", "x", "echo", "never"]).code(), 1);
        assert_eq!(first.line(), "here");
        end(first);
        assert_eq!(call(store, &["run", "-n", "x", "true"]).code(), 0);
    });
}

#[test]
fn a_wait_time_that_ends_leaves_the_queue() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        let waiting = wait_in_line(store, &["-w", "1s"], 1, STAY);
        let ended = waiting.wait();
        assert_eq!(ended.code(), 1);
        assert!(ended.stderr.contains("held by sh, pid"), "{ended:?}");
        assert_eq!(queued(store), 0);
        end(holder);
    });
}

#[test]
fn an_interrupted_one_leaves_the_queue() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        let first = wait_in_line(store, &[], 1, STAY);
        let mut second = wait_in_line(store, &[], 2, STAY);
        first.signal(Signal::INT);
        assert_eq!(first.wait().code(), 130);
        assert_eq!(queued(store), 1);
        end(holder);
        assert_eq!(second.line(), "here");
        end(second);
    });
}

#[test]
fn the_status_line_shows_the_place_and_ctrl_c_leaves_it() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        let first = wait_in_line(store, &[], 1, STAY);
        let mut shell = Shell::start(store);
        shell.type_line("$F run -v --waiter-ttl 1s x -- echo never");
        shell.expect("\rfairlock: waiting ");
        shell.expect(&format!("for \"x\", 2nd in line, held by sh, pid {} on ", holder.pid()));
        first.signal(Signal::INT);
        assert_eq!(first.wait().code(), 130);
        shell.expect("\r\x1b[Kfairlock: 1st in line for \"x\"\r\n");
        shell.expect(&format!("for \"x\", 1st in line, held by sh, pid {} on ", holder.pid()));
        assert_eq!(queued(store), 1);
        shell.type_keys(CTRL_C);
        shell.expect("\r\x1b[K");
        shell.expect("$ ");
        shell.expect_code(130);
        assert_eq!(queued(store), 0);
        end(holder);
        assert_eq!(call(store, &["run", "-n", "x", "true"]).code(), 0);
    });
}

#[test]
fn a_killed_one_is_passed_over() {
    on_each_store(|store| {
        let ttl = Duration::from_secs(2);
        let (holder, _) = hold(store, &["--waiter-ttl", "2s"], "x");
        let mut killed = wait_in_line(store, &["--waiter-ttl", "2s"], 1, STAY);
        let mut next = wait_in_line(store, &["--waiter-ttl", "2s"], 2, STAY);
        killed.kill();
        end(holder);
        let since = monotonic_ns();
        assert_eq!(next.line(), "here");
        let took = Duration::from_nanos(monotonic_ns() - since);
        let at_most = if store.sees_death() { Duration::ZERO } else { ttl };
        assert!(took < at_most + Duration::from_secs(1), "took {took:?}");
        assert_eq!(queued(store), 0);
        end(next);
    });
}

#[test]
fn a_killed_holder_is_followed_by_the_first_in_line() {
    on_each_store(|store| {
        let (mut holder, _) = hold(store, &["--lease", "2s"], "x");
        let mut first = wait_in_line(store, &[], 1, STAY);
        let _second = wait_in_line(store, &[], 2, STAY);
        holder.kill();
        assert_eq!(first.line(), "here");
        assert_eq!(queued(store), 1);
        end(first);
    });
}

#[test]
fn a_lock_from_the_queue_is_kept_also_if_it_was_granted_for_a_short_time() {
    on_each_store(|store| {
        for on_lost in ["term", "kill"] {
            // The grant lasts as long as a place in the queue, the lease is much longer.
            let (holder, _) = hold(store, &["--waiter-ttl", "1s"], "x");
            let flags = ["--waiter-ttl", "1s", "--on-lost", on_lost];
            let mut next = wait_in_line(store, &flags, 1, STAY);
            end(holder);
            assert_eq!(next.line(), "here");
            never_within(Duration::from_secs(2), "it ends", || next.has_ended());
            assert!(shown(store)["lease_ms"].as_u64().is_some_and(|left| left > 10_000));
            end(next);
        }
    });
}

#[test]
fn breaking_serves_the_first_in_the_queue() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &["--lease", "3s"], "x");
        let mut first = wait_in_line(store, &[], 1, STAY);
        let second = wait_in_line(store, &[], 2, STAY);
        let broken = call(store, &["break", "--yes", "x"]);
        assert_eq!(broken.code(), 0, "{broken:?}");
        assert_eq!(first.line(), "here");
        assert_eq!(holder.wait().code(), 79);
        assert_eq!(shown(store)["holder"]["pid"], first.pid());
        assert_eq!(queued(store), 1);
        end(second);
        end(first);
    });
}

#[test]
fn show_lists_the_queue() {
    on_each_store(|store| {
        let (_holder, _) = hold(store, &[], "x");
        assert_eq!(
            (&shown(store)["kind"], &shown(store)["waiters"]),
            (&json!("lock"), &json!(null))
        );
        let _first = wait_in_line(store, &[], 1, STAY);
        let _second = wait_in_line(store, &[], 2, STAY);
        let shown = shown(store);
        assert_eq!(shown["kind"], "fair");
        assert_eq!(shown["holder"]["program"], "sh");
        let waiters = shown["waiters"].as_array().unwrap();
        for (position, waiter) in (1..).zip(waiters) {
            assert_eq!(waiter["position"], position);
            assert_eq!((&waiter["client"], &waiter["alive"]), (&json!("fairlock"), &json!(true)));
            assert!(waiter["waited_ms"].as_u64().is_some_and(|ms| ms < 20_000), "{waiter}");
        }
        let waited = |at: usize| waiters[at]["waited_ms"].as_u64();
        assert!(waited(0) > waited(1), "{shown}");

        let for_people = call(store, &["show", "x"]).stdout;
        let lines: Vec<&str> = for_people.lines().rev().take(3).collect();
        for (line, place) in [(lines[1], 0), (lines[0], 1)] {
            let owner = waiters[place]["owner"].as_str().unwrap();
            assert!(line.starts_with(&format!("{}      {owner}  fairlock", place + 1)), "{line:?}");
            assert!(line.ends_with("yes"), "{line:?}");
        }
        assert!(lines[2].starts_with("PLACE  WAITER "), "{for_people}");
        assert!(!for_people.contains('\x1b'), "no colours without a terminal");
    });
}

#[test]
fn show_lists_those_who_wait_with_redisson() {
    let server = Server::start(&main_flavour());
    let call =
        |args: &[&str]| run(without_settings().env("FAIRLOCK_STORE", server.url()).args(args));
    let client = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let (holder, alive, dead) =
        (format!("{client}:1"), format!("{client}:2"), format!("{client}:3"));
    server.query::<i64>(&["HSET", "x", &holder, "1"]);
    for (owner, until_ms) in [(&alive, "99999999999999"), (&dead, "1000")] {
        server.query::<i64>(&["RPUSH", "redisson_lock_queue:{x}", owner]);
        server.query::<i64>(&["ZADD", "redisson_lock_timeout:{x}", until_ms, owner]);
    }
    let shown: Value = serde_json::from_str(&call(&["show", "--json", "x"]).stdout).unwrap();
    assert_eq!((&shown["kind"], &shown["owner"]), (&json!("fair"), &json!(holder)));
    let foreign = |owner: &str, position: u32, alive: bool| {
        json!({"owner": owner, "position": position, "client": "foreign", "alive": alive,
            "waited_ms": null})
    };
    assert_eq!(shown["waiters"], json!([foreign(&alive, 1, true), foreign(&dead, 2, false)]));
    let for_people = call(&["show", "x"]).stdout;
    assert!(
        for_people.contains(&format!("1      {alive}  foreign  -       yes\n")),
        "{for_people}"
    );
    assert!(for_people.ends_with(&format!("2      {dead}  foreign  -       no\n")), "{for_people}");

    // A lock that is free belongs to the first in the queue.
    server.query::<i64>(&["DEL", "x"]);
    let busy = call(&["run", "-n", "x", "true"]);
    assert_eq!(busy.code(), 1);
    assert!(busy.stderr.contains("free just now; in line before you: 2"), "{busy:?}");
}

#[test]
fn unfair_ones_wait_without_a_queue() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &["--unfair"], "x");
        assert_eq!(call(store, &["run", "--unfair", "-n", "x", "true"]).code(), 1);
        let args = ["run", "--unfair", "-v", "x", "--", "sh", "-c", STAY];
        let mut waiting = Running::start(&mut fairlock(store, &args));
        waiting.expect_to_say("waiting for the lock \"x\", held by sh, pid");
        assert_eq!(queued(store), 0);
        let mut shell = Shell::start(store);
        shell.type_line("$F run --unfair x -- echo never");
        shell.expect(&format!("for \"x\", held by sh, pid {} on ", holder.pid()));
        shell.type_keys(CTRL_C);
        shell.expect("$ ");
        shell.expect_code(130);
        end(holder);
        assert_eq!(waiting.line(), "here");
        let broken = call(store, &["break", "--yes", "x"]);
        assert_eq!(broken.code(), 0, "{broken:?}");
    });
}

#[test]
fn nothing_of_the_queue_stays_on_a_server() {
    let server = Server::start(&main_flavour());
    let start = |args: &[&str]| {
        let mut command = without_settings();
        Running::start(command.env("FAIRLOCK_STORE", server.url()).args(args))
    };
    let mut holder = start(&["run", "x", "--", "sh", "-c", STAY]);
    assert_eq!(holder.line(), "here");
    let waiting = start(&["run", "x", "--", "sh", "-c", STAY]);
    let length = || server.query::<i64>(&["LLEN", "redisson_lock_queue:{x}"]);
    eventually(BOUND, "it is in the queue", || length() == 1);
    waiting.signal(Signal::INT);
    assert_eq!(waiting.wait().code(), 130);
    let kept = |keys: Vec<String>| keys.iter().filter(|key| key.contains("{x}")).count();
    let keys = server.keys();
    assert_eq!(length(), 0, "{keys:?}");
    assert_eq!(server.query::<i64>(&["ZCARD", "redisson_lock_timeout:{x}"]), 0, "{keys:?}");
    // Only the record of the last grant.
    assert_eq!(kept(keys.clone()), 1, "{keys:?}");
    end(holder);
}
