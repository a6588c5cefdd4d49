//! Looking at and signalling processes.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Whether any process of a group is able to run; the dead that nobody asked for do not count.
pub(crate) fn group_is_alive(group: i32) -> bool {
    members(group) > 0
}

/// How many processes of a group are able to run.
pub(crate) fn members(group: i32) -> usize {
    stats().filter(|stat| stat.group == group && !stat.is_dead()).count()
}

/// Whether a process is able to run.
pub(crate) fn is_alive(pid: i32) -> bool {
    stats().any(|stat| stat.pid == pid && !stat.is_dead())
}

/// Whether a process stands still.
pub(crate) fn is_stopped(pid: i32) -> bool {
    stats().any(|stat| stat.pid == pid && stat.state == 'T')
}

/// The process ids of the watcher that a wrapper has started.
pub(crate) fn watcher_of(wrapper: i32) -> Option<i32> {
    let is_watcher = |pid: i32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.contains("--internal-watch"))
    };
    stats().find(|stat| stat.parent == wrapper && is_watcher(stat.pid)).map(|stat| stat.pid)
}

/// How many processes have this argument.
pub(crate) fn count_of(argument: &str) -> usize {
    let has_it = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes())
    };
    stats().filter(|stat| !stat.is_dead() && has_it(stat.pid)).count()
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process id");
    kill_process(pid, signal).expect("the process can be signalled");
}

struct Stat {
    pid: i32,
    state: char,
    parent: i32,
    group: i32,
}

impl Stat {
    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

fn stats() -> impl Iterator<Item = Stat> {
    let entries = fs::read_dir("/proc").expect("/proc can be read").flatten();
    entries.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (pid, rest) = stat.split_once(" (")?;
        let mut parts = rest[rest.rfind(')')? + 1..].split_ascii_whitespace();
        Some(Stat {
            pid: pid.parse().ok()?,
            state: parts.next()?.chars().next()?,
            parent: parts.next()?.parse().ok()?,
            group: parts.next()?.parse().ok()?,
        })
    })
}
