//! A person at a terminal.

use std::time::Duration;

use fairlock_testkit::eventually;
use rustix::process::Signal;

use crate::BOUND;
use crate::cli::{call, hold};
use crate::processes::{group_is_alive, is_stopped};
use crate::pty::{CTRL_C, CTRL_Z, Shell};
use crate::stores::on_each_store;

#[test]
fn the_terminal_is_the_commands_and_comes_back() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        shell.type_line("$F run x -- sh -c 'echo rea''dy; read line; echo got=$line; exit 3'");
        shell.expect("ready");
        shell.type_line("hello");
        shell.expect("got=hello");
        shell.expect("$ ");
        shell.expect_code(3);
    });
}

#[test]
fn the_terminal_comes_back_to_a_script() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        // Unlike an interactive shell, one that runs a script does not take it back by itself.
        shell.type_line("sh -c '$F run x true; echo ne''xt; read line; echo got=$line'");
        shell.expect("next");
        shell.type_line("hello");
        shell.expect("got=hello");
        shell.expect("$ ");
        shell.expect_code(0);
    });
}

#[test]
fn ctrl_c_ends_a_running_command() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        shell.type_line("$F run x -- sh -c 'echo gro''up=$$; exec sleep 600'");
        let group = shell.expect_number("group=");
        shell.type_keys(CTRL_C);
        shell.expect("$ ");
        shell.expect_code(130);
        assert!(!group_is_alive(group));
    });
}

#[test]
fn ctrl_c_ends_the_waiting_and_the_status_line() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        let mut shell = Shell::start(store);
        shell.type_line("$F run x -- echo never");
        shell.expect("\rfairlock: waiting ");
        let who = format!("for \"x\", 1st in line, held by sh, pid {} on ", holder.pid());
        shell.expect(&who);
        // It is rewritten.
        shell.expect("\rfairlock: waiting ");
        shell.type_keys(CTRL_C);
        shell.expect("\r\x1b[K");
        shell.expect("$ ");
        shell.expect_code(130);
        holder.signal(Signal::TERM);
        assert_eq!(holder.wait().code(), 143);
        assert_eq!(call(store, &["run", "-n", "x", "true"]).code(), 0);
    });
}

#[test]
fn a_quiet_one_waits_without_a_word() {
    on_each_store(|store| {
        let (holder, _) = hold(store, &[], "x");
        let mut shell = Shell::start(store);
        shell.type_line("$F run -q -w 1.5 x -- echo never");
        let shown = shell.expect("$ ");
        assert!(!shown.contains("waiting") && !shown.contains("held"), "{shown}");
        shell.expect_code(1);
        drop(holder);
    });
}

#[test]
fn ctrl_z_stops_command_and_wrapper_and_fg_continues_both() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        shell.type_line("$F run x -- sh -c 'echo gro''up=$$; read line; echo got=$line; exit 4'");
        let group = shell.expect_number("group=");
        for _ in 0..2 {
            shell.type_keys(CTRL_Z);
            shell.expect("Stopped");
            shell.expect("$ ");
            assert!(is_stopped(group));
            shell.type_line("fg");
            eventually(BOUND, "the command goes on", || !is_stopped(group));
        }
        shell.type_line("hello");
        shell.expect("got=hello");
        shell.expect("$ ");
        shell.expect_code(4);
    });
}

#[test]
fn bg_lets_a_stopped_command_go_on_without_the_terminal() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        // Not a loop of short commands: a shell that is stopped between vfork and exec of one does
        // not stop.
        shell.type_line("$F run x -- sh -c 'echo gro''up=$$; exec sleep 600'");
        let group = shell.expect_number("group=");
        shell.type_keys(CTRL_Z);
        shell.expect("Stopped");
        shell.type_line("bg");
        eventually(BOUND, "the command goes on", || !is_stopped(group));
        // The shell has the keyboard.
        shell.type_line("echo pro''mpt");
        shell.expect("prompt");
        shell.type_line("fg");
        shell.expect("fg");
        // With the job in the foreground its keys reach the command, too.
        shell.expect("run x");
        shell.type_keys(CTRL_C);
        eventually(BOUND, "the command ends", || !group_is_alive(group));
        shell.expect("$ ");
        shell.expect_code(130);
    });
}

#[test]
fn a_command_stopped_past_its_lease_does_not_go_on() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        let script = "echo gro''up=$$; read line; echo \"went\" on";
        shell.type_line(&format!("$F run --lease 1s x -- sh -c '{script}'"));
        let group = shell.expect_number("group=");
        shell.type_keys(CTRL_Z);
        shell.expect("Stopped");
        eventually(BOUND, "the group is gone", || !group_is_alive(group));
        shell.type_line("fg");
        shell.expect("fairlock: the lock \"x\" was lost");
        let shown = shell.expect("$ ");
        assert!(!shown.contains("went on"), "{shown}");
        shell.expect_code(79);
    });
}

#[test]
fn in_the_background_it_runs_and_gets_the_terminal_when_it_is_brought_forward() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        shell.type_line("$F run x -- sh -c 'echo gro''up=$$; read line; echo got=$line; exit 5' &");
        let group = shell.expect_number("group=");
        eventually(BOUND, "it wants to read and is stopped", || is_stopped(group));
        shell.type_line("fg");
        eventually(BOUND, "it goes on", || !is_stopped(group));
        shell.type_line("hello");
        shell.expect("got=hello");
        shell.expect("$ ");
        shell.expect_code(5);
    });
}

#[test]
fn the_rest_of_a_pipeline_keeps_the_terminal() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        let pager = "sh -c 'read line; echo $line.; read key </dev/tty; echo key=$key'";
        shell.type_line(&format!("$F run x -- sh -c 'echo gro''up=$$; exec sleep 600' | {pager}"));
        let line = shell.expect(".\r\n");
        let group = line.rsplit("group=").next().expect("a number").parse().expect("a number");
        shell.type_line("q");
        shell.expect("key=q");
        // Ctrl-Z and Ctrl-C reach the command, too.
        shell.type_keys(CTRL_Z);
        shell.expect("Stopped");
        eventually(BOUND, "it is stopped", || is_stopped(group));
        shell.type_line("fg");
        eventually(BOUND, "it goes on", || !is_stopped(group));
        shell.type_keys(CTRL_C);
        eventually(BOUND, "it is gone", || !group_is_alive(group));
        shell.expect("$ ");
        shell.expect_code(0);
    });
}

#[test]
fn ctrl_z_stops_a_script_around_us_as_well() {
    on_each_store(|store| {
        let mut shell = Shell::start(store);
        let command = "$F run x -- sh -c \"echo gro''up=\\$\\$; read line; echo got=\\$line\"";
        shell.type_line(&format!("sh -c '{command}; echo af''ter'"));
        let group = shell.expect_number("group=");
        shell.type_keys(CTRL_Z);
        shell.expect("Stopped");
        shell.expect("$ ");
        assert!(is_stopped(group));
        shell.type_line("fg");
        eventually(Duration::from_secs(5), "it goes on", || !is_stopped(group));
        shell.type_line("hello");
        shell.expect("got=hello");
        shell.expect("after");
        shell.expect_code(0);
    });
}
