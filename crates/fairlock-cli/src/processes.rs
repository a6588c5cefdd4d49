//! The processes of this machine and the signals that we ignore, as `/proc` tells. Where there is
//! no `/proc`, nothing is known, and every user says what that means for it.

use std::fs;

use rustix::process::{Pid, Signal};

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Option<Pid>,
    pub(crate) group: Pid,
    /// It has ended, and its parent has not asked yet how.
    pub(crate) is_dead: bool,
}

/// All processes that can be seen.
pub(crate) fn all() -> Option<Vec<Process>> {
    let folders = fs::read_dir("/proc").ok()?;
    let numbers = folders.flatten().filter_map(|entry| {
        let name = entry.file_name();
        name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))?;
        fs::read_to_string(entry.path().join("stat")).ok()
    });
    let processes: Vec<Process> = numbers.filter_map(|stat| parse(&stat)).collect();
    (!processes.is_empty()).then_some(processes)
}

/// Whether somebody works beside us in our own process group: another part of a pipeline, say.
/// Our ancestors do not count, they wait for us.
pub(crate) fn has_neighbours(own: Pid, group: Pid) -> bool {
    all().is_some_and(|all| neighbours(&all, own, group))
}

fn neighbours(all: &[Process], own: Pid, group: Pid) -> bool {
    let parent_of = |pid| all.iter().find(|one| one.pid == pid).and_then(|one| one.parent);
    let ours: Vec<Pid> = std::iter::successors(Some(own), |pid| parent_of(*pid)).take(64).collect();
    let stranger = |one: &&Process| one.group == group && !one.is_dead && !ours.contains(&one.pid);
    all.iter().any(|one| stranger(&one))
}

/// Signals that whoever started us wants to be ignored, as nohup(1) does with HUP.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal.as_raw() - 1) != 0
}

/// Reads a line like `12 (name) S 1 12 ...`; the name may have spaces and brackets in it.
fn parse(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let mut parts = rest[rest.rfind(')')? + 1..].split_ascii_whitespace();
    let state = parts.next()?;
    let pid_in = |text: Option<&str>| Pid::from_raw(text?.parse().ok()?);
    Some(Process {
        pid: pid_in(Some(pid))?,
        parent: pid_in(parts.next()),
        group: pid_in(parts.next())?,
        is_dead: matches!(state, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32) -> Process {
        let id = |number| Pid::from_raw(number).unwrap();
        Process { pid: id(pid), parent: Pid::from_raw(parent), group: id(group), is_dead: false }
    }

    #[test]
    fn names_may_look_like_anything() {
        assert_eq!(
            parse("12 (a) S (b) Z 3 4 5 0 -1"),
            Some(Process { is_dead: true, ..process(12, 3, 4) })
        );
        assert_eq!(parse("12 (sh) S 0 12 12"), Some(process(12, 0, 12)));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn a_script_around_us_is_no_neighbour_but_a_pipeline_is() {
        let (shell, script, own) = (process(1, 0, 1), process(2, 1, 2), process(3, 2, 2));
        let id = |number| Pid::from_raw(number).unwrap();
        assert!(!neighbours(&[shell, script, own], id(3), id(2)));
        assert!(neighbours(&[shell, script, own, process(4, 2, 2)], id(3), id(2)));
    }

    #[test]
    fn this_very_process_is_there() {
        let own = rustix::process::getpid();
        assert!(all().unwrap().iter().any(|one| one.pid == own && !one.is_dead));
    }
}
