//! Folders for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed with its owner.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty one.
    pub fn new() -> Scratch {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        // Short, because the path of a Unix socket in it may have no more than about 100 bytes.
        let path = std::env::temp_dir().join(format!("fairlock-{}-{number}", process::id()));
        // A process that was killed under the same id may have left one behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
        Scratch { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes every file in it but `kept`.
    pub(crate) fn empty_except(&self, kept: &Path) {
        for entry in fs::read_dir(&self.path).expect("the scratch folder can be read") {
            let file = entry.expect("the scratch folder can be read").path();
            if file != kept {
                fs::remove_file(&file)
                    .unwrap_or_else(|error| panic!("cannot remove {}: {error}", file.display()));
            }
        }
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_goes_with_its_owner() {
        let folder = Scratch::new();
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
