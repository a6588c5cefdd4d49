//! A child process that cannot outlive the test.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running program, and the shell that watches over it.
///
/// The shell kills the program as soon as the pipe on its standard input closes, which the kernel
/// sees to when this process ends, in whatever way it ends.
#[derive(Debug)]
pub(super) struct Process {
    shell: Child,
    lifeline: Option<ChildStdin>,
    pid: Pid,
}

impl Process {
    /// Starts `binary` with `args`; what it prints is added to the file `log`.
    pub(super) fn start(binary: &Path, args: &[String], log: &Path) -> Process {
        let log_file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", log.display()));
        let mut shell = Command::new("sh")
            .args(["-c", WATCHING_SCRIPT, "sh"])
            .arg(binary)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log_file)
            // Keeps Ctrl-C from ending the shell before it has ended the program.
            .process_group(0)
            .spawn()
            .expect("sh starts");
        let lifeline = shell.stdin.take();
        let mut first_line = String::new();
        let stdout = shell.stdout.take().expect("the shell's output is piped");
        BufReader::new(stdout).read_line(&mut first_line).expect("the shell prints a line");
        let pid = first_line.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.unwrap_or_else(|| panic!("the shell printed {first_line:?}, not a pid"));
        Process { shell, lifeline, pid }
    }

    /// The process id of the program itself.
    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether the program has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.shell.try_wait().expect("the shell can be waited for").is_some()
    }

    /// Sends the program a signal.
    pub(super) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal)
            .unwrap_or_else(|error| panic!("cannot signal process {}: {error}", self.pid()));
    }

    /// Kills the program and returns once it is gone.
    pub(super) fn kill(&mut self) {
        drop(self.lifeline.take());
        self.shell.wait().expect("the shell can be waited for");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs "$@" with its output in the log, which is this script's standard error. The first line
/// printed is the program's process id; the script ends when the program has ended.
const WATCHING_SCRIPT: &str = r#"
exec 3<&0
"$@" </dev/null >&2 3<&- &
program=$!
echo "$program"
{ read -r _ <&3; kill -9 "$program"; } >/dev/null 2>&1 &
watcher=$!
wait "$program" 2>/dev/null
kill "$watcher" 2>/dev/null
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::time::Duration;

    use crate::eventually;

    #[test]
    fn kill_ends_the_program() {
        let mut process = sleeper();
        assert!(is_alive(process.pid()));
        process.kill();
        assert!(!is_alive(process.pid()));
    }

    #[test]
    fn a_stopped_program_can_be_killed_too() {
        let mut process = sleeper();
        process.signal(Signal::STOP);
        process.kill();
        assert!(!is_alive(process.pid()));
    }

    #[test]
    fn a_program_that_ends_is_noticed() {
        let args = ["0".to_owned()];
        let mut process = Process::start(Path::new("sleep"), &args, Path::new("/dev/null"));
        eventually(Duration::from_secs(5), "sleep 0 ends", || process.has_ended());
    }

    /// Not a test of its own: the victim of `the_program_dies_with_a_killed_parent`, which runs
    /// this same test binary again with the variable set.
    #[test]
    fn victim() {
        if env::var_os(VICTIM_VARIABLE).is_some() {
            let process = sleeper();
            println!("\npid={}", process.pid());
            let _ = std::io::stdin().read_line(&mut String::new());
        }
    }

    #[test]
    fn the_program_dies_with_a_killed_parent() {
        let mut parent = Command::new(env::current_exe().expect("the test binary has a path"))
            .args(["--exact", "servers::process::tests::victim", "--nocapture"])
            .env(VICTIM_VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test binary starts");
        let stdout = BufReader::new(parent.stdout.take().expect("piped"));
        let pid = stdout
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("pid=").and_then(|pid| pid.parse().ok()))
            .expect("the victim prints the pid of its program");
        assert!(is_alive(pid));
        parent.kill().expect("the victim can be killed");
        parent.wait().expect("the victim can be waited for");
        eventually(Duration::from_secs(5), "the program of a killed parent is gone", || {
            !is_alive(pid)
        });
    }

    fn sleeper() -> Process {
        let args = ["60".to_owned()];
        Process::start(Path::new("sleep"), &args, Path::new("/dev/null"))
    }

    fn is_alive(pid: u32) -> bool {
        let pid = Pid::from_raw(pid as i32).expect("a pid");
        rustix::process::test_kill_process(pid).is_ok()
    }

    const VICTIM_VARIABLE: &str = "FAIRLOCK_TESTKIT_VICTIM";
}
