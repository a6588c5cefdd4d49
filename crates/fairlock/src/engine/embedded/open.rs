//! The one place with unsafe code: opening LMDB, and keeping its file from our children.
//!
//! # Why this is sound
//! A memory map is undefined behaviour when the file changes under it in a way that its user does
//! not expect. What LMDB expects, and how it is kept:
//!
//! - *One writer at a time, no reader beside it.* The environment is opened with `NO_LOCK`, so LMDB
//!   does no locking of its own; every transaction, of every process, runs inside the shard's gate
//!   ([`super::gate`]), an exclusive lock that the kernel gives back when a process dies. Nobody but
//!   [`super::shard`] can begin a transaction.
//! - *Local files.* On a network file system locks and maps of two machines do not agree; those are
//!   refused before this is called ([`super::folder`]).
//! - *A file that is whole.* Shorter than its own header says, it would be mapped past its end; the
//!   caller checks the length before and after.
//! - *Nobody else writes to it.* The folder is the user's own, mode 0700. Somebody who scribbles into
//!   the files of his own store can crash his own programs, as with any program's data.
//! - *Every page that is written has its block.* `WRITE_MAP` makes a commit two or three times as
//!   fast; [`super::room`] asks for the blocks before a transaction needs them. LMDB never changes a
//!   page that the last commit can see, so a process killed while it writes leaves that one whole.
//! - `NO_SYNC` risks data when the machine loses power. Then no holder is left either, and the folder
//!   of an earlier boot is never opened again.

#![allow(unsafe_code, reason = "opening a memory map; the argument stands above")]

use std::os::fd::BorrowedFd;
use std::path::Path;

use heed::{Env, EnvFlags, EnvOpenOptions};
use rustix::io::FdFlags;

/// Opens or makes the environment in a folder; if `through_map`, it is written through the map.
pub(super) fn open(folder: &Path, through_map: bool) -> heed::Result<Env> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES);
    let mut flags = EnvFlags::NO_SYNC | EnvFlags::NO_LOCK;
    flags.set(EnvFlags::WRITE_MAP, through_map);
    // SAFETY: see the module.
    let env = unsafe { options.flags(flags).open(folder)? };
    keep_from_children(&folder.join("data.mdb"));
    Ok(env)
}

/// LMDB lets the processes that we start inherit its file; they have no use for it. Best effort:
/// an inherited descriptor does no harm, it only stays open.
fn keep_from_children(data: &Path) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    for entry in entries.flatten() {
        let is_ours = std::fs::read_link(entry.path()).is_ok_and(|target| target == data);
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|_| is_ours) {
            // SAFETY: LMDB keeps the file open while the environment lives, which is our caller's.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC).ok();
        }
    }
}

/// Room for tens of thousands of locks in all shards; a page of the file is used only when it is needed.
pub(super) const MAP_BYTES: usize = 32 << 20;
