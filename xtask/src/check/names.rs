//! Files are named after what is in them.

use super::Offence;
use crate::tree::Tree;

/// Finds files whose names say nothing.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let says_nothing = |path: &&str| {
        let mut parts = path.trim_end_matches(".rs").rsplit('/');
        let name = parts.next().filter(|name| *name != "mod").or_else(|| parts.next());
        name.is_some_and(|name| EMPTY_NAMES.contains(&name))
    };
    let rust_paths = tree.rust_files().map(|(path, _)| path);
    rust_paths
        .filter(says_nothing)
        .map(|path| Offence::new(path, 1, "name the file after what is in it"))
        .collect()
}

const EMPTY_NAMES: [&str; 6] = ["util", "utils", "helper", "helpers", "common", "misc"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::complaints;

    #[test]
    fn names_that_say_nothing_are_found() {
        for path in ["src/utils.rs", "crates/a/tests/common/mod.rs", "misc.rs", "src/helpers.rs"] {
            assert_eq!(complaints(check, path, "").len(), 1, "{path}");
        }
        for path in ["src/lock.rs", "src/mod.rs", "src/utils/lock.rs", "src/common.lua"] {
            assert!(complaints(check, path, "").is_empty(), "{path}");
        }
    }
}
