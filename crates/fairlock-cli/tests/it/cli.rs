//! Calling the real binary, with a bound on everything.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use fairlock_testkit::eventually;
use rustix::process::Signal;

use crate::stores::Store;
use crate::{BOUND, processes};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_fairlock");

/// A call on a store, with nothing of fairlock in its environment but that.
pub(crate) fn fairlock<S: AsRef<OsStr>>(store: &Store, args: &[S]) -> Command {
    let mut command = without_settings();
    command.env("FAIRLOCK_STORE", store.address()).args(args);
    command
}

/// A call without any settings.
pub(crate) fn without_settings() -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FAIRLOCK") {
            command.env_remove(name);
        }
    }
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// How a call ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> i32 {
        let signal = self.status.signal();
        self.status.code().unwrap_or_else(|| panic!("killed by signal {signal:?}: {self:?}"))
    }
}

/// Runs to the end.
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command).wait()
}

/// Runs `fairlock ARGS...` on a store to the end.
pub(crate) fn call<S: AsRef<OsStr>>(store: &Store, args: &[S]) -> Ended {
    run(&mut fairlock(store, args))
}

/// A call that has not ended yet. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    read: Vec<String>,
    stderr: Option<thread::JoinHandle<()>>,
    said: Arc<Mutex<String>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the command starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // Nobody may be interested any more.
                sender.send(line).ok();
            }
        });
        let mut stderr = child.stderr.take().expect("piped");
        let said = Arc::<Mutex<String>>::default();
        let heard = said.clone();
        let stderr = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                heard
                    .lock()
                    .expect(NOT_POISONED)
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, lines, read: Vec::new(), stderr: Some(stderr), said }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The next line of standard output.
    pub(crate) fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(BOUND).expect("the command prints a line in time");
        self.read.push(line.clone());
        line
    }

    /// The next line of standard output, a number.
    pub(crate) fn number(&mut self) -> i32 {
        let line = self.line();
        line.trim().parse().unwrap_or_else(|_| panic!("{line:?} is no number"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        processes::signal(self.pid(), signal);
    }

    /// Waits until it has said this on standard error.
    pub(crate) fn expect_to_say(&self, text: &str) {
        eventually(BOUND, text, || self.said.lock().expect(NOT_POISONED).contains(text));
    }

    pub(crate) fn close_stdin(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Kills it and returns once it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the child can be waited for").is_some()
    }

    /// Waits for its end, for as long as anything may take.
    pub(crate) fn wait(mut self) -> Ended {
        eventually(BOUND, "the command ends", || self.has_ended());
        let status = self.child.wait().expect("the child can be waited for");
        let mut stdout = self.read.clone();
        while let Ok(line) = self.lines.recv_timeout(BOUND) {
            stdout.push(line);
        }
        let stderr = self.stderr.take().expect("only wait() takes it");
        stderr.join().expect("standard error was read");
        let stderr = self.said.lock().expect(NOT_POISONED).clone();
        let stdout = stdout.iter().map(|line| format!("{line}\n")).collect();
        Ended { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A holder: `run`, with these flags, of a command that prints its process id and stays.
pub(crate) fn hold(store: &Store, flags: &[&str], name: &str) -> (Running, i32) {
    let script = "echo $$; exec sleep 600";
    hold_with(store, flags, name, script)
}

/// The same with a script that prints its process id first.
pub(crate) fn hold_with(store: &Store, flags: &[&str], name: &str, script: &str) -> (Running, i32) {
    let args = [&["run"], flags, &[name, "--", "sh", "-c", script]].concat();
    let mut running = Running::start(&mut fairlock(store, &args));
    let group = running.number();
    (running, group)
}

const NOT_POISONED: &str = "the reader does not panic";
