//! Places of its own for each server: a folder and a port.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed with its owner.
#[derive(Debug)]
pub(super) struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    pub(super) fn new() -> ScratchFolder {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        // Short, because the path of a Unix socket in it may have no more than about 100 bytes.
        let path = std::env::temp_dir().join(format!("fairlock-{}-{number}", process::id()));
        // A process that was killed under the same id may have left one behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
        ScratchFolder { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes every file in it but `kept`.
    pub(super) fn empty_except(&self, kept: &Path) {
        for entry in fs::read_dir(&self.path).expect("the scratch folder can be read") {
            let file = entry.expect("the scratch folder can be read").path();
            if file != kept {
                fs::remove_file(&file)
                    .unwrap_or_else(|error| panic!("cannot remove {}: {error}", file.display()));
            }
        }
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A TCP port that nobody listens on just now.
///
/// Not one the system hands out (`bind` to port 0): those are also given to outgoing connections,
/// which could take the port of a server that is down for a moment, even a client's own attempt
/// to connect to that server.
pub(super) fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new(RandomState::new().hash_one(0_u8) as u32));
    let candidates = u32::from(LAST_PORT - FIRST_PORT) + 1;
    (0..candidates)
        .map(|_| FIRST_PORT + (NEXT.fetch_add(1, Ordering::Relaxed) % candidates) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("some TCP port is free")
}

/// Below the ports that Linux, macOS and the BSDs give to outgoing connections.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 31_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_differ() {
        let (first, second) = (free_port(), free_port());
        assert_ne!(first, second);
        TcpListener::bind((Ipv4Addr::LOCALHOST, first)).expect("a free port can be bound");
    }

    #[test]
    fn a_scratch_folder_goes_with_its_owner() {
        let folder = ScratchFolder::new();
        let path = folder.path().to_owned();
        fs::write(path.join("kept"), "").expect("written");
        fs::write(path.join("removed"), "").expect("written");
        folder.empty_except(&path.join("kept"));
        assert!(path.join("kept").exists());
        assert!(!path.join("removed").exists());
        drop(folder);
        assert!(!path.exists());
    }
}
