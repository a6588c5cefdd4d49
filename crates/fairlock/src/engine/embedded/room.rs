//! Room in the data file, taken before it is needed.
//!
//! LMDB writes through a memory map. A page that the disk has no room for would end the process
//! with SIGBUS at the moment it is written, so blocks are asked for in advance, where a full disk
//! is an error like any other.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::open::MAP_BYTES;

/// The blocks that the data file is known to have.
#[derive(Debug)]
pub(super) struct Room {
    file: File,
    bytes: AtomicU64,
}

impl Room {
    /// Room for a first transaction; `None` where room cannot be had in advance: on a file system
    /// that does not know how, or for a process that may not have files as large as the map.
    pub(super) fn prepare(data: &Path) -> io::Result<Option<Self>> {
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < MAP_BYTES as u64) {
            return Ok(None);
        }
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(data)?;
        match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, STEP) {
            Ok(()) => Ok(Some(Self { file, bytes: AtomicU64::new(STEP) })),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure that the file has that many bytes, or all that it may ever have.
    pub(super) fn reserve(&self, bytes: u64) -> io::Result<()> {
        let known = self.bytes.load(Ordering::Relaxed);
        let wanted = bytes.next_multiple_of(STEP).min(MAP_BYTES as u64);
        if wanted > known {
            fallocate(&self.file, FallocateFlags::KEEP_SIZE, known, wanted - known)?;
            self.bytes.store(wanted, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Seldom enough to cost nothing, and little enough for a small disk.
const STEP: u64 = 64 << 10;
