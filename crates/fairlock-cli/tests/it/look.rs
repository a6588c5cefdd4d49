//! Seeing who holds a lock, and breaking it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fairlock_testkit::{Server, eventually, main_flavour};
use serde_json::{Value, json};

use crate::BOUND;
use crate::cli::{Ended, call, hold, run, without_settings};
use crate::processes::group_is_alive;
use crate::pty::Shell;
use crate::stores::on_each_store;

fn parse(ended: &Ended) -> Value {
    assert_eq!(ended.code(), 0, "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[test]
fn show_tells_who_holds_a_lock() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &["--lease", "20s"], "x y");
        let shown = parse(&call(store, &["show", "--json", "x y"]));
        assert_eq!(shown["name"], "x y");
        assert_eq!(shown["kind"], "lock");
        assert_eq!(shown["held"], true);
        assert_eq!(shown["holds"], 1);
        assert_eq!(shown["waiters"], Value::Null);
        assert_eq!(shown["holder"]["pid"], holder.pid());
        assert_eq!(shown["holder"]["program"], "sh");
        assert!(shown["holder"]["since"].as_str().unwrap().ends_with('Z'), "{shown}");
        let lease_ms = shown["lease_ms"].as_u64().unwrap();
        assert!((10_000..=20_000).contains(&lease_ms), "{shown}");
        assert!(shown["token"].as_u64().is_some_and(|token| token > 0));
        assert_eq!(shown.get("name_bytes"), None);

        let for_people = call(store, &["show", "x y"]);
        assert!(for_people.stdout.contains(&format!("sh, pid {} on ", holder.pid())));
        assert!(!for_people.stdout.contains('\x1b'), "no colours without a terminal");
    });
}

#[test]
fn a_free_lock_is_nothing_special() {
    on_each_store(|store| {
        let shown = parse(&call(store, &["show", "--json", "x"]));
        let free = json!({
            "name": "x", "kind": "lock", "held": false, "owner": null, "holds": 0,
            "lease_ms": null, "token": null, "holder": null, "queued": 0, "waiters": null,
        });
        assert_eq!(shown, free);
        assert!(call(store, &["show", "x"]).stdout.contains("free"));
        let broken = call(store, &["break", "--yes", "x"]);
        assert_eq!((broken.code(), broken.stdout.as_str()), (1, ""));
        assert!(broken.stderr.contains("nobody holds"), "{broken:?}");
    });
}

#[test]
fn ls_lists_what_is_held_and_matches() {
    on_each_store(|store| {
        let nothing = call(store, &["ls"]);
        assert_eq!((nothing.code(), nothing.stdout.as_str()), (0, ""));
        assert_eq!(parse(&call(store, &["ls", "--json"])), json!([]));

        let _holders = ["orders:2", "orders:1", "[x]"].map(|name| hold(store, &[], name));
        let names = |args: &[&str]| {
            let list = parse(&call(store, &[&["ls", "--json"], args].concat()));
            let names = list.as_array().unwrap().iter().map(|lock| lock["name"].clone());
            Value::Array(names.collect())
        };
        assert_eq!(names(&[]), json!(["[x]", "orders:1", "orders:2"]));
        assert_eq!(names(&["orders:*"]), json!(["orders:1", "orders:2"]));
        assert_eq!(names(&["orders:?"]), json!(["orders:1", "orders:2"]));
        assert_eq!(names(&["[x]"]), json!(["[x]"]));
        assert_eq!(names(&["x"]), json!([]));
        let for_people = call(store, &["ls", "orders:1"]).stdout;
        assert_eq!(for_people.lines().count(), 2, "{for_people}");
        assert!(for_people.lines().nth(1).unwrap().starts_with("orders:1  sh "), "{for_people}");
    });
}

#[test]
fn names_that_are_no_text_are_shown_as_well_as_can_be() {
    on_each_store(|store| {
        let name = OsStr::from_bytes(b"a\xff");
        let shown = parse(&call(store, &["show".as_ref(), "--json".as_ref(), name]));
        assert_eq!((&shown["name"], &shown["name_bytes"]), (&json!("a\u{fffd}"), &json!("61ff")));
    });
}

#[test]
fn breaking_needs_a_yes() {
    on_each_store(|store| {
        let (_holder, group) = hold(store, &["--lease", "3s"], "x");
        let refused = call(store, &["break", "x"]);
        assert_eq!(refused.code(), 64);
        assert!(refused.stderr.contains("--yes"), "{refused:?}");

        let mut shell = Shell::start(store);
        shell.type_line("$F break x");
        shell.expect("is held by sh, pid");
        shell.expect("[y/N] ");
        shell.type_line("");
        shell.expect("left as it is");
        shell.expect("$ ");
        shell.expect_code(1);
        assert!(group_is_alive(group));

        shell.type_line("$F break x");
        shell.expect("[y/N] ");
        shell.type_line("y");
        shell.expect("broke the lock \"x\"");
        shell.expect("$ ");
        shell.expect_code(0);
        eventually(BOUND, "the holder's command ends", || !group_is_alive(group));
    });
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        shell.type_line("TERM=xterm $F show x");
        shell.expect("\x1b[1mx\x1b[0m");
        shell.expect("$ ");
        shell.type_line("NO_COLOR=1 TERM=xterm $F show x; echo do''ne");
        let shown = shell.expect("done");
        assert!(shown.contains("free") && !shown.contains("\x1b["), "{shown}");
    });
}

#[test]
fn what_redisson_holds_is_seen_and_can_be_broken() {
    let server = Server::start(&main_flavour());
    let owner = "67e55044-10b1-426f-9247-bb680e5fe0c8:57";
    server.query::<i64>(&["HSET", "orders:42", owner, "2"]);
    server.query::<i64>(&["PEXPIRE", "orders:42", "30000"]);
    let call =
        |args: &[&str]| run(without_settings().env("FAIRLOCK_STORE", server.url()).args(args));

    let shown = parse(&call(&["show", "--json", "orders:42"]));
    assert_eq!((&shown["owner"], &shown["holds"]), (&json!(owner), &json!(2)));
    assert_eq!((&shown["holder"], &shown["token"]), (&Value::Null, &Value::Null));
    assert!(shown["lease_ms"].as_u64().is_some_and(|lease_ms| lease_ms > 20_000));
    assert_eq!(parse(&call(&["ls", "--json"])).as_array().unwrap().len(), 1);
    assert!(call(&["ls"]).stdout.contains(owner));
    let busy = call(&["run", "-n", "orders:42", "true"]);
    assert_eq!(busy.code(), 1);
    assert!(busy.stderr.contains("not a fairlock client"), "{busy:?}");
    assert_eq!(call(&["break", "-y", "orders:42"]).code(), 0);
    assert_eq!(call(&["run", "-n", "orders:42", "true"]).code(), 0);
}

#[test]
fn what_is_no_lock_is_neither_listed_nor_broken() {
    let server = Server::start(&main_flavour());
    server.query::<i64>(&["HSET", "user:1", "name", "Bob"]);
    server.query::<()>(&["SET", "text", "hello"]);
    for number in 0..100 {
        server.query::<i64>(&["HSET", "large", &format!("field {number}"), "1"]);
    }
    let call =
        |args: &[&str]| run(without_settings().env("FAIRLOCK_STORE", server.url()).args(args));
    assert_eq!(parse(&call(&["ls", "--json"])), json!([]));
    assert!(call(&["show", "user:1"]).stdout.contains("something else than a lock"));
    for name in ["user:1", "text"] {
        let refused = call(&["break", "--yes", name]);
        assert_eq!(refused.code(), 69, "{refused:?}");
        assert!(refused.stderr.contains("something else than a lock"), "{refused:?}");
    }
    assert_eq!(server.query::<i64>(&["EXISTS", "user:1", "text"]), 2);
}

#[test]
fn many_keys_are_looked_through_page_by_page() {
    let server = Server::start(&main_flavour());
    let owner = "67e55044-10b1-426f-9247-bb680e5fe0c8:57";
    for number in 0..1_200 {
        server.query::<i64>(&["HSET", &format!("lock:{number:04}"), owner, "1"]);
    }
    let list =
        parse(&run(without_settings().args(["ls", "--json", "--store", &server.url(), "lock:*"])));
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 1_200);
    assert!(names.is_sorted());
}

#[test]
fn a_missing_server_is_69_for_all() {
    let server = Server::start(&main_flavour());
    let address = server.url();
    drop(server);
    for args in [&["ls"][..], &["show", "x"], &["break", "-y", "x"]] {
        let ended = run(without_settings().args(args).args(["--store", &address]));
        assert_eq!(ended.code(), 69, "{ended:?}");
        assert!(ended.stderr.contains("cannot be reached"), "{ended:?}");
    }
}

#[test]
fn help_completions_and_the_manual_go_to_standard_output() {
    let call = |args: &[&str]| run(without_settings().args(args));
    for args in [&["--help"][..], &["-h"], &["run", "-h"], &["run", "--help"], &["--version"]] {
        let ended = call(args);
        assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""), "{args:?}");
        assert!(!ended.stdout.is_empty());
    }
    let help = call(&["run", "--help"]).stdout;
    let parts = ["*/5 * * * *", "79", "FAIRLOCK_TOKEN", "500ms", "setsid"];
    for part in parts.into_iter().chain(["--unfair", "FAIRLOCK_WAITER_TTL", "THE QUEUE"]) {
        assert!(help.contains(part), "{part} is not in the help");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = call(&["completions", shell]).stdout;
        for flag in ["on-lost", "unfair", "waiter-ttl"] {
            assert!(script.contains(flag), "{shell}: {flag}");
        }
    }
    assert!(call(&["man"]).stdout.starts_with(".ie"));
    let manual = call(&["man", "run"]).stdout;
    assert!(manual.contains("fairlock\\-run") && manual.contains("\\-\\-unfair"), "{manual}");
    assert_eq!(call(&["man", "walk"]).code(), 64);
}
