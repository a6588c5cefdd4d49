//! The gate: one transaction at a time, over all processes and threads.
//!
//! An flock(2) on a file beside the data. It is tried, never waited for in the kernel: a process
//! that was stopped inside must not make others hang. The kernel opens it when its process dies.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use super::folder::explain;
use super::store::stuck;
use crate::error::StoreError;
use crate::time::BootTime;

/// The entrance of a store.
#[derive(Debug)]
pub(super) struct Gate {
    file: File,
    /// An flock belongs to the open file, so it does not tell the threads of a process apart.
    threads: Mutex<()>,
}

/// While this lives, nobody else is inside.
#[derive(Debug)]
pub(super) struct Inside<'a> {
    gate: &'a Gate,
    _thread: MutexGuard<'a, ()>,
}

impl Gate {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self { file, threads: Mutex::new(()) })
    }

    /// Goes in, or says that another process is inside. Threads of this process are waited for:
    /// what they do inside takes microseconds.
    pub(super) fn try_enter(&self) -> io::Result<Option<Inside<'_>>> {
        let thread = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Inside { gate: self, _thread: thread })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Goes in as soon as the others are out; an error if one of them does not come out.
    pub(super) fn enter_patiently(&self, folder: &Path) -> Result<Inside<'_>, StoreError> {
        let give_up_at = BootTime::now().plus(super::STUCK);
        loop {
            if let Some(inside) = self.try_enter().map_err(|error| explain(folder, error))? {
                return Ok(inside);
            }
            if BootTime::now() >= give_up_at {
                return Err(stuck(folder, self.who_is_inside()));
            }
            std::thread::yield_now();
        }
    }

    /// Whether the file still has a name; it has none when the store was removed.
    pub(super) fn is_linked(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// Which process is inside, where the system tells.
    pub(super) fn who_is_inside(&self) -> Option<u32> {
        let inode = self.file.metadata().ok()?.ino().to_string();
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| holder_in(line, &inode))
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Cannot fail on a file that is open; and if it did, the next one would say who is inside.
        flock(&self.gate.file, FlockOperation::Unlock).ok();
    }
}

/// A line is `3: FLOCK  ADVISORY  WRITE 4711 fe:00:131074 0 EOF`, with the inode behind the device.
fn holder_in(line: &str, inode: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let is_flock = words.next()? == "FLOCK";
    let pid = words.nth(2)?;
    let file = words.next()?.rsplit(':').next()?;
    (is_flock && file == inode).then(|| pid.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_kernels_list() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 fe:00:131074 0 EOF";
        assert_eq!(holder_in(line, "131074"), Some(4711));
        assert_eq!(holder_in(line, "31074"), None);
        assert_eq!(holder_in("4: POSIX  ADVISORY  WRITE 4711 fe:00:131074 0 EOF", "131074"), None);
        assert_eq!(holder_in("4: -> FLOCK ADVISORY WRITE 12 fe:00:131074 0 EOF", "131074"), None);
        assert_eq!(holder_in("", "1"), None);
    }
}
