//! The command's process group: all that it has started, unless a program left on purpose.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::processes;

/// A process group by the id of its first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) Pid);

impl Group {
    pub(crate) fn from_raw(number: i32) -> Option<Self> {
        // Group 1 is never ours, and a mistake here would be a signal to everybody.
        Pid::from_raw(number).filter(|_| number > 1).map(Self)
    }

    /// Sends a signal to all members. Those that are gone, or not ours to signal, are no error.
    pub(crate) fn signal(self, signal: Signal) {
        kill_process_group(self.0, signal).ok();
    }

    /// Asks all members to end. A stopped process cannot hear that, so it has to go on.
    pub(crate) fn terminate(self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
    }

    /// Whether a member is still able to do something.
    ///
    /// The kernel also counts the dead that nobody has asked about yet, and in a container that
    /// may stay so for ever; so where it says that there is somebody, look who.
    pub(crate) fn is_alive(self) -> bool {
        if test_kill_process_group(self.0) == Err(Errno::SRCH) {
            return false;
        }
        processes::all().is_none_or(|all| all.iter().any(|one| one.group == self.0 && !one.is_dead))
    }
}
