//! Who is alive: every client has a file that it keeps locked for its life.
//!
//! flock(2) belongs to the open file, not to the process: a watcher that inherits the descriptor
//! keeps its client alive in the eyes of others until it has ended, too. To learn of a death at
//! once, a thread waits for the lock of the file; it costs nothing until then.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

/// This client's own sign of life, taken down when it ends.
#[derive(Debug)]
pub(super) struct Life {
    file: File,
    path: PathBuf,
}

impl Life {
    /// Begins a life. The file gets its name when it is locked: nobody sees it unlocked.
    pub(super) fn begin(folder: &Path, client: &str) -> io::Result<Self> {
        let path = life_path(folder, client);
        let unborn = folder.join(format!("{client}.new"));
        let file = File::options().write(true).create_new(true).open(&unborn)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unborn, &path)?;
        Ok(Self { file, path })
    }

    /// What a watcher has to inherit to keep this client alive.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // The folder may have been removed and made anew, and the name be that of a second life.
        let inode = |metadata: fs::Metadata| metadata.ino();
        let ours = self.file.metadata().map(inode).ok();
        if fs::metadata(&self.path).map(inode).ok() == ours {
            fs::remove_file(self.path.with_extension(SOCKET)).ok();
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Whether a client is alive; `true` in doubt, its lease will end it then.
pub(super) fn is_alive(folder: &Path, client: &str) -> bool {
    match File::open(life_path(folder, client)) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Removes what dead clients have left behind.
pub(super) fn bury_the_dead(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != LIFE) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_file(path.with_extension(SOCKET)).ok();
            fs::remove_file(&path).ok();
        }
    }
    Ok(())
}

/// The clients whose death this process waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct DeathWatch {
    watched: Arc<Mutex<HashSet<String>>>,
}

impl DeathWatch {
    /// Calls `then` once when that client is dead. Watches each client once at a time.
    pub(super) fn watch(&self, folder: &Path, client: &str, then: impl FnOnce() + Send + 'static) {
        let watched = self.watched.clone();
        let locked = || watched.lock().unwrap_or_else(PoisonError::into_inner);
        if !locked().insert(client.to_owned()) {
            return;
        }
        let (path, name) = (life_path(folder, client), client.to_owned());
        let in_thread = watched.clone();
        let thread = std::thread::Builder::new()
            .name("fairlock-watch".to_owned())
            .stack_size(THREAD_STACK)
            .spawn(move || {
                if let Ok(file) = File::open(path) {
                    // An error other than an interruption means that nothing can be known.
                    while flock(&file, FlockOperation::LockShared) == Err(rustix::io::Errno::INTR) {
                    }
                }
                in_thread.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                then();
            });
        if thread.is_err() {
            // No room for a thread: the holder's lease still ends.
            locked().remove(client);
        }
    }
}

pub(super) fn socket_path(folder: &Path, client: &str) -> PathBuf {
    folder.join(format!("{client}.{SOCKET}"))
}

fn life_path(folder: &Path, client: &str) -> PathBuf {
    folder.join(format!("{client}.{LIFE}"))
}

const LIFE: &str = "alive";
const SOCKET: &str = "sock";
/// The thread only waits.
const THREAD_STACK: usize = 64 << 10;
