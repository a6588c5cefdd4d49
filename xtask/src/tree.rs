//! The files that are checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Every file of the repository; texts of those that a check reads.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// What git tracks, and what it would track if it were added: offences are to be found before
    /// they are committed.
    pub(crate) fn of_repository(root: &Path) -> Result<Tree, String> {
        let output = Command::new("git")
            .current_dir(root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`git ls-files` failed: {}", complaint.trim()));
        }
        let mut tree = Tree::default();
        let list = String::from_utf8_lossy(&output.stdout);
        for path in list.split('\0').filter(|path| !path.is_empty()) {
            let on_disk = root.join(path);
            // Git still lists what was removed but not yet committed.
            if !on_disk.is_file() {
                continue;
            }
            let is_read = READ_EXTENSIONS.iter().any(|extension| path.ends_with(extension));
            let bytes = if is_read { fs::read(&on_disk) } else { Ok(Vec::new()) };
            let bytes = bytes.map_err(|error| format!("cannot read {path}: {error}"))?;
            tree.files.insert(path.to_owned(), String::from_utf8_lossy(&bytes).into_owned());
        }
        Ok(tree)
    }

    /// A tree made up for a test.
    #[cfg(test)]
    pub(crate) fn of_files(files: &[(&str, &str)]) -> Tree {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Tree { files: files.iter().map(owned).collect() }
    }

    /// Every path, relative to the root of the repository.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Path and text of every Rust file.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files_named(".rs")
    }

    /// Path and text of every Lua file.
    pub(crate) fn lua_files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files_named(".lua")
    }

    fn files_named(&self, extension: &'static str) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.ends_with(extension))
    }
}

const READ_EXTENSIONS: [&str; 3] = [".rs", ".lua", ".md"];
