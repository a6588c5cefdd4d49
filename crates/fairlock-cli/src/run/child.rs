//! Starting the command so that it cannot run before everything is in place.
//!
//! The id of a process group is known only once its first process exists, and the watcher must
//! know it before the command does anything: else a wrapper that is killed right then would leave
//! the command behind. So the first process is ourselves once more, which waits for a word:
//!
//! ```text
//! wrapper                                   first process of the new group
//!   spawn, standard input = a socket  ────▶   waits on the socket
//!   tells the watcher the group
//!   makes the group the terminal's foreground
//!   go, with the real standard input  ────▶   becomes the command (exec)
//!   end of stream               ◀──────────   (the socket closes with exec)
//!   or an error number          ◀──────────   exec failed
//! ```
//!
//! If the wrapper dies before its word, the stream ends and the command never runs. The socket
//! travels as standard input, and the real one is passed through it, because those are descriptors
//! that can be handed over without unsafe code, and none is left for the command to inherit.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

use super::group::Group;
use crate::exit::Exit;

/// The command's process, and before that the one that becomes it.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) group: Group,
    pid: Pid,
    socket: UnixStream,
}

/// What has become of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// It ended; this is the code to end with.
    Ended(Exit),
    /// It was stopped by this signal.
    Stopped(i32),
}

impl Child {
    /// Starts the process that waits for [`Self::go`].
    pub(crate) fn prepare(
        command: &[OsString],
        environment: &[(&str, OsString)],
    ) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = super::ourselves()
            .arg(super::EXEC)
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Self { group: Group(pid), pid, socket })
    }

    /// Lets it become the command.
    pub(crate) fn go(&self) -> io::Result<()> {
        let stdin = io::stdin();
        let stdin = [stdin.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&stdin));
        sendmsg(&self.socket, &[IoSlice::new(GO)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// What has happened since it was asked last.
    pub(crate) fn news(&self) -> Option<News> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        match waitpid(Some(self.pid), options) {
            Ok(Some((_, status))) => self.understand(status),
            // Interrupted: the next SIGCHLD, or the next look, tells.
            _ => None,
        }
    }

    /// Why the command could not be started, if it could not. Ask once it has ended.
    pub(crate) fn exec_error(&self) -> Option<io::Error> {
        // The other end is closed, so this does not wait.
        let mut number = [0; 4];
        (&self.socket).read_exact(&mut number).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
    }

    fn understand(&self, status: WaitStatus) -> Option<News> {
        if let Some(signal) = status.stopping_signal() {
            return Some(News::Stopped(signal));
        }
        if let Some(signal) = status.terminating_signal() {
            return Some(News::Ended(Exit::of_signal(signal)));
        }
        status.exit_status().map(|code| News::Ended(Exit::of_command(code)))
    }
}

/// The other side: waits for the word, then becomes the command. Returns only if that fails.
pub(crate) fn wait_and_become(command: &[OsString]) -> Exit {
    let Some((program, args)) = command.split_first() else { return Exit::USAGE };
    let Ok(stdin) = wait_for_word() else { return Exit::SYSTEM };
    // Standard input is about to be the real one; keep the socket to report on.
    let Ok(report) = io::stdin().as_fd().try_clone_to_owned() else { return Exit::SYSTEM };
    let error = Command::new(program).args(args).stdin(Stdio::from(stdin)).exec();
    let number = error.raw_os_error().unwrap_or(0).to_ne_bytes();
    UnixStream::from(report).write_all(&number).ok();
    exit_of(&error)
}

/// The code of a command that could not be started.
pub(crate) fn exit_of(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound => Exit::NOT_FOUND,
        _ => Exit::CANNOT_EXECUTE,
    }
}

fn wait_for_word() -> io::Result<OwnedFd> {
    let mut word = [0; GO.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut word)];
    let stdin = io::stdin();
    recvmsg(stdin.as_fd(), &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let passed = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    passed.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The word that lets the command run.
const GO: &[u8] = b"g";
