//! The terminal: whose keys it is for.
//!
//! The command runs in a process group of its own, so that all of it can be ended. A terminal
//! sends Ctrl-C and Ctrl-Z to *one* group, and lets only that one read. So the command's group
//! becomes the terminal's foreground, as a shell does it with a job, and we take the terminal back
//! when the command stops or ends.
//!
//! Not if others work beside us in our own group, as in `fairlock run NAME -- make | less`: they
//! would be cut off from the keyboard. Then the terminal stays with our group, its keys come to us
//! and we pass them on; only a command that does try to read the terminal gets it.

use std::fs::{File, OpenOptions};

use nix::sys::signal::{SigSet, Signal as Masked};
use rustix::process::{Pid, getpgrp, getpid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::group::Group;
use crate::processes;

/// The controlling terminal of this process.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
    own: Pid,
    /// Whether others share our process group, and so the terminal.
    pub(crate) is_shared: bool,
}

impl Terminal {
    /// `None` if there is none: a cron job, a service, another machine's ssh command.
    pub(crate) fn open() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let own = getpgrp();
        Some(Self { tty, own, is_shared: processes::has_neighbours(getpid(), own) })
    }

    /// Whether the terminal's keys are for our own group.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|foreground| foreground == self.own)
    }

    /// The command starts: the terminal is its, if it is ours to give and nobody else needs it.
    pub(crate) fn lend(&self, group: Group) {
        if !self.is_shared {
            self.hand_over(group);
        }
    }

    /// Gives the terminal to the command's group if it is ours to give.
    pub(crate) fn hand_over(&self, group: Group) -> bool {
        self.is_ours() && self.set_foreground(group.0)
    }

    /// Takes it back if the command's group has it.
    pub(crate) fn take_back(&self, group: Group) {
        if tcgetpgrp(&self.tty).is_ok_and(|foreground| foreground == group.0) {
            self.set_foreground(self.own);
        }
    }

    /// One who is not in the foreground is stopped for this (SIGTTOU) unless it blocks the signal.
    fn set_foreground(&self, group: Pid) -> bool {
        let mut stop = SigSet::empty();
        stop.add(Masked::SIGTTOU);
        stop.thread_block().ok();
        let done = tcsetpgrp(&self.tty, group).is_ok();
        stop.thread_unblock().ok();
        done
    }
}
