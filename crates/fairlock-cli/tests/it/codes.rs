//! Exit codes, arguments, streams and the environment.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use fairlock_testkit::{Server, main_flavour};

use crate::cli::{BINARY, Running, call, fairlock, hold, run, without_settings};
use crate::stores::on_each_store;

#[test]
fn the_code_is_the_commands_own() {
    on_each_store(|store| {
        assert_eq!(call(store, &["run", "x", "true"]).code(), 0);
        assert_eq!(call(store, &["run", "x", "--", "sh", "-c", "exit 7"]).code(), 7);
        assert_eq!(call(store, &["run", "x", "--", "sh", "-c", "exit 255"]).code(), 255);
        assert_eq!(call(store, &["run", "x", "--", "sh", "-c", "kill -9 $$"]).code(), 137);
        assert_eq!(call(store, &["run", "x", "--", "sh", "-c", "kill -INT $$"]).code(), 130);
    });
}

#[test]
fn standard_output_has_what_the_command_prints_and_nothing_else() {
    on_each_store(|store| {
        let ended = call(store, &["run", "x", "--", "echo", "one at a time"]);
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("one at a time\n", ""));
        let ended = call(store, &["run", "-v", "x", "echo", "-n", "-w"]);
        assert_eq!(ended.stdout, "-w\n");
        assert!(ended.stderr.contains("token") && ended.stderr.contains("back"), "{ended:?}");
    });
}

#[test]
fn a_command_that_cannot_run_says_so() {
    on_each_store(|store| {
        let ended = call(store, &["run", "x", "no-such-command-here"]);
        assert_eq!(ended.code(), 127);
        assert!(ended.stderr.contains("no-such-command-here"), "{ended:?}");

        let file = std::env::temp_dir().join(format!("fairlock-plain-{}", std::process::id()));
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let ended = call(store, &[OsStr::new("run"), OsStr::new("x"), file.as_os_str()]);
        fs::remove_file(&file).unwrap();
        assert_eq!(ended.code(), 126);
        assert!(ended.stderr.contains("cannot execute"), "{ended:?}");

        // Nothing stays locked, and the next one runs at once.
        assert_eq!(call(store, &["run", "-n", "x", "true"]).code(), 0);
    });
}

#[test]
fn busy_and_timed_out_are_one_or_what_you_choose() {
    on_each_store(|store| {
        let (_holder, _) = hold(store, &[], "x");
        let ended = call(store, &["run", "-n", "x", "echo", "never"]);
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""));
        assert!(ended.stderr.contains("held by sh, pid"), "{ended:?}");
        let ended = call(store, &["run", "-w", "0.3", "x", "echo", "never"]);
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""));
        assert!(ended.stderr.contains("held by sh, pid"), "{ended:?}");
        assert_eq!(call(store, &["run", "-w0", "-E", "42", "x", "true"]).code(), 42);
        assert_eq!(call(store, &["run", "-w", "100ms", "-E0", "x", "true"]).code(), 0);
        let ended = call(store, &["run", "-qn", "x", "true"]);
        assert_eq!((ended.code(), ended.stderr.as_str()), (1, ""));
    });
}

#[test]
fn one_after_the_other() {
    on_each_store(|store| {
        let (mut holder, _) = {
            let script = "echo $$; read _";
            let mut command = fairlock(store, &["run", "x", "--", "sh", "-c", script]);
            let mut running = Running::start(command.stdin(Stdio::piped()));
            let group = running.number();
            (running, group)
        };
        let mut waiting = Running::start(&mut fairlock(store, &["run", "-v", "x", "echo", "now"]));
        assert!(!waiting.has_ended());
        holder.close_stdin();
        assert_eq!(waiting.line(), "now");
        let ended = waiting.wait();
        assert_eq!(ended.code(), 0);
        assert_eq!(holder.wait().code(), 1);
    });
}

#[test]
fn wrong_usage_is_64() {
    on_each_store(|store| {
        let too_long = "x".repeat(70_000);
        for args in [
            &["run"][..],
            &["run", "x"],
            &["run", "--bogus", "x", "true"],
            &["run", "-n", "-w", "1", "x", "true"],
            &["run", "-w", "soon", "x", "true"],
            &["run", "-E", "256", "x", "true"],
            &["run", "--on-lost", "pray", "x", "true"],
            &["run", "--lease", "1ms", "x", "true"],
            &["run", "--waiter-ttl", "1ms", "x", "true"],
            &["run", "", "true"],
            &["run", &too_long, "true"],
            &["run", "--store", "carrier-pigeon:", "x", "true"],
            &["run", "--store", "memory:", "x", "true"],
            &["walk"],
            &[],
        ] {
            let ended = call(store, args);
            assert_eq!(ended.code(), 64, "{ended:?}");
            assert_eq!(ended.stdout, "");
            assert!(!ended.stderr.is_empty());
        }
        let ended = call(store, &["run", "x"]);
        assert_eq!(ended.stderr.lines().count(), 1);
        assert!(ended.stderr.ends_with("see fairlock run --help\n"), "{ended:?}");
        assert!(call(store, &["runn"]).stderr.contains("'run'"));
        let ended = run(fairlock(store, &["run", "x", "true"]).env("FAIRLOCK_LEASE", "long"));
        assert_eq!(ended.code(), 64);
        assert!(ended.stderr.contains("FAIRLOCK_LEASE"), "{ended:?}");
    });
}

#[test]
fn names_may_have_spaces_and_any_bytes() {
    on_each_store(|store| {
        let print = ["sh", "-c", "echo \"$FAIRLOCK_NAME\""];
        let ended = call(store, &[&["run", "two words", "--"], &print[..]].concat());
        assert_eq!((ended.code(), ended.stdout.as_str()), (0, "two words\n"));
        let bytes = OsStr::from_bytes(b"\xff\xfe{}");
        assert_eq!(call(store, &["run".as_ref(), bytes, "true".as_ref()]).code(), 0);
        let long = "x".repeat(65_536);
        assert_eq!(call(store, &["run", &long, "true"]).code(), 0);
    });
}

#[test]
fn the_command_knows_its_lock() {
    on_each_store(|store| {
        let script = "echo $FAIRLOCK_NAME; echo $FAIRLOCK_TOKEN; echo $FAIRLOCK_OWNER";
        let token = || {
            let ended = call(store, &["run", "x", "--", "sh", "-c", script]);
            let lines: Vec<&str> = ended.stdout.lines().collect();
            assert_eq!(lines[0], "x");
            assert!(lines[2].contains(':'), "{ended:?}");
            lines[1].parse::<u64>().expect("a token is a number")
        };
        assert!(token() < token());
    });
}

#[test]
fn a_run_inside_a_run_of_the_same_lock_is_refused() {
    on_each_store(|store| {
        let ended = call(store, &["run", "x", "--", BINARY, "run", "x", "--", "echo", "never"]);
        assert_eq!((ended.code(), ended.stdout.as_str()), (64, ""));
        assert!(ended.stderr.contains("\"x\" is held by the `fairlock run`"), "{ended:?}");
        // However deep, and also if it would not wait.
        let args = ["run", "x", BINARY, "run", "y", BINARY, "run", "-n", "x", "true"];
        assert_eq!(call(store, &args).code(), 64);
        // Another lock is another matter, and so is a lock that has been given back since.
        assert_eq!(call(store, &["run", "x", BINARY, "run", "y", "true"]).code(), 0);
        let script = "echo $FAIRLOCK_HELD";
        let held = call(store, &["run", "x", "--", "sh", "-c", script]).stdout;
        let mut later = fairlock(store, &["run", "x", "true"]);
        assert_eq!(run(later.env("FAIRLOCK_HELD", held.trim())).code(), 0);
    });
}

#[test]
fn standard_input_is_the_commands() {
    on_each_store(|store| {
        let file = std::env::temp_dir().join(format!("fairlock-input-{}", std::process::id()));
        fs::write(&file, "hi\n").unwrap();
        let input = fs::File::open(&file).unwrap();
        let ended = run(fairlock(store, &["run", "x", "cat"]).stdin(Stdio::from(input)));
        fs::remove_file(&file).unwrap();
        assert_eq!((ended.code(), ended.stdout.as_str()), (0, "hi\n"));
    });
}

#[test]
fn closed_streams_do_no_harm() {
    on_each_store(|store| {
        for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let script = format!("\"$0\" run -v x -- sh -c 'exit 5' {closed}");
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &script, BINARY]).env("FAIRLOCK_STORE", store.address());
            assert_eq!(run(&mut shell).code(), 5, "{closed}");
        }
        // A reader that goes away.
        let script = "\"$0\" run x -- sh -c 'echo a; echo b; exit 5' | head -n 1";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", script, BINARY]).env("FAIRLOCK_STORE", store.address());
        assert_eq!(run(&mut shell).stdout, "a\n");
    });
}

#[test]
fn the_command_inherits_no_descriptor_of_ours() {
    on_each_store(|store| {
        let list = ["sh", "-c", "ls /proc/self/fd"];
        let bare = run(std::process::Command::new(list[0]).args(&list[1..]).stdin(Stdio::null()));
        let ended = call(store, &[&["run", "x", "--"], &list[..]].concat());
        assert_eq!(ended.stdout, bare.stdout);
    });
}

#[test]
fn a_missing_server_is_69() {
    let server = Server::start(&main_flavour());
    let address = server.url();
    drop(server);
    let ended = run(without_settings().args(["run", "--store", &address, "x", "true"]));
    assert_eq!(ended.code(), 69);
    assert!(ended.stderr.contains("cannot be reached; check"), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1);
}

#[test]
fn a_wrong_password_is_69_and_is_not_shown() {
    let server = Server::builder(&main_flavour()).password("right").start();
    let address = server.url().replace("right", "wrong");
    let ended = run(without_settings().args(["run", "--store", &address, "x", "true"]));
    assert_eq!(ended.code(), 69);
    assert!(ended.stderr.contains("password"), "{ended:?}");
    assert!(!ended.stderr.contains("wrong"), "{ended:?}");
}
