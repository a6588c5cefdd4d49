//! The watcher: a small process that ends the command if we cannot.
//!
//! It is ourselves once more, started before the command, in a process group of its own, so that
//! no key of the terminal reaches it. It kills the command's group when
//!
//! - the pipe from the wrapper closes without a good-bye: the wrapper was killed; or
//! - the time has come until which the lock is sure, and the wrapper has not told a later one: the
//!   wrapper is stopped, or stuck.
//!
//! Then it stays until no process of the group is alive. Where the store knows who is alive by a
//! locked file, the watcher holds a duplicate of that descriptor: for everybody else our death is
//! complete only when the watcher has ended, and that is when the command has.
//!
//! A parent-death signal would not do: it spares grandchildren, and it fires when the *thread*
//! that started the child ends.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child as Process, ChildStdin, Stdio};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::group::Group;
use crate::clock::{LONGEST_SLEEP, Moment, SHORT_PAUSE};
use crate::exit::Exit;

/// The wrapper's side of the pipe.
#[derive(Debug)]
pub(crate) struct Watcher {
    pipe: ChildStdin,
    process: Process,
}

impl Watcher {
    /// Starts a watcher that holds `liveness` for as long as it runs.
    pub(crate) fn start(liveness: Option<OwnedFd>) -> io::Result<Self> {
        let liveness = match liveness {
            Some(descriptor) => Stdio::from(descriptor),
            None => Stdio::null(),
        };
        let mut process = super::ourselves()
            .arg(super::WATCH)
            .stdin(Stdio::piped())
            // Standard output and error would keep a pipe open that somebody reads to its end.
            .stdout(liveness)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take().expect("its standard input is piped");
        // A watcher that does not read must not make us wait.
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe, process })
    }

    /// Whom to kill. A watcher dies only by force; the wrapper is then the only one to watch.
    pub(crate) fn watch(&mut self, group: Group) {
        self.tell(Message::Group(group));
    }

    /// Until when the command may run.
    pub(crate) fn may_run_until(&mut self, moment: Moment) {
        self.tell(Message::Until(moment));
    }

    /// The group has ended, there is nothing left to watch.
    pub(crate) fn dismiss(mut self) {
        self.tell(Message::Bye);
        let pid = Pid::from_child(&self.process);
        drop(self.pipe);
        // If it takes a moment, whoever inherits our children asks for it.
        waitpid(Some(pid), WaitOptions::NOHANG).ok();
    }

    fn tell(&mut self, message: Message) {
        self.pipe.write_all(&message.encode()).ok();
    }
}

/// What the wrapper tells: a letter and a number, always of the same length, so that no write is
/// ever cut in two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Group(Group),
    Until(Moment),
    Bye,
}

impl Message {
    fn encode(self) -> [u8; MESSAGE_BYTES] {
        let (letter, number) = match self {
            Self::Group(Group(pid)) => (b'g', pid.as_raw_nonzero().get() as u64),
            Self::Until(Moment(nanoseconds)) => (b'u', nanoseconds),
            Self::Bye => (b'b', 0),
        };
        let mut bytes = [letter; MESSAGE_BYTES];
        bytes[1..].copy_from_slice(&number.to_ne_bytes());
        bytes
    }

    fn decode(bytes: [u8; MESSAGE_BYTES]) -> Option<Self> {
        let [letter, number @ ..] = bytes;
        let number = u64::from_ne_bytes(number);
        match letter {
            b'g' => Group::from_raw(i32::try_from(number).ok()?).map(Self::Group),
            b'u' => Some(Self::Until(Moment(number))),
            b'b' => Some(Self::Bye),
            _ => None,
        }
    }
}

/// The watcher's side: returns when the command's group has ended, or was ended.
pub(crate) fn watch() -> Exit {
    // Nobody ends the watcher with a polite signal: it has to stay longer than the command.
    SigSet::all().thread_block().ok();
    let (mut group, mut until) = (None, None);
    // A descriptor of our own: the buffer of the standard one could swallow what poll waits for.
    let Ok(pipe) = io::stdin().as_fd().try_clone_to_owned() else { return Exit::SYSTEM };
    let mut pipe = std::fs::File::from(pipe);
    loop {
        let is_over = until.is_some_and(|until| Moment::now() >= until);
        if is_over {
            end(group);
            // The wrapper has still to say good-bye, or to die.
            until = None;
        }
        if !readable_within(&pipe, until) {
            continue;
        }
        let mut bytes = [0; MESSAGE_BYTES];
        match pipe.read_exact(&mut bytes).ok().and_then(|()| Message::decode(bytes)) {
            Some(Message::Group(told)) => group = Some(told),
            Some(Message::Until(told)) => until = Some(told),
            Some(Message::Bye) => return Exit::OK,
            None => {
                end(group);
                return Exit::OK;
            }
        }
    }
}

/// Kills the group, again and again: a process may be in the middle of starting another one.
fn end(group: Option<Group>) {
    let Some(group) = group else { return };
    loop {
        group.kill();
        if !group.is_alive() {
            return;
        }
        pause(SHORT_PAUSE);
    }
}

fn readable_within(pipe: &impl AsFd, until: Option<Moment>) -> bool {
    // Looking again every second also counts a suspend.
    let timeout = until.map(|until| Moment::now().until(until).min(LONGEST_SLEEP));
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut pipes = [PollFd::new(pipe, PollFlags::IN)];
    matches!(poll(&mut pipes, timeout.as_ref()), Ok(1..))
}

fn pause(duration: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: duration.subsec_nanos().into() };
    poll(&mut [], Some(&timeout)).ok();
}

const MESSAGE_BYTES: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_pipe() {
        let group = Group::from_raw(4711).unwrap();
        for message in [Message::Group(group), Message::Until(Moment(1 << 60)), Message::Bye] {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        assert_eq!(Message::decode([0; MESSAGE_BYTES]), None);
    }

    #[test]
    fn a_group_that_would_be_everybody_is_refused() {
        for number in [0_u64, 1, u64::MAX] {
            let mut bytes = [b'g'; MESSAGE_BYTES];
            bytes[1..].copy_from_slice(&number.to_ne_bytes());
            assert_eq!(Message::decode(bytes), None);
        }
    }
}
