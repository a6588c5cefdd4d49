//! Every Lua file says at its top what it is.

use super::Offence;
use crate::lua::{Header, is_script};
use crate::tree::Tree;

/// Finds Lua files without a header, and scripts whose header leaves out what they take, give or
/// change.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let files = tree.lua_files().filter(|(path, _)| path.starts_with("crates/fairlock/src/"));
    files.flat_map(|(path, text)| offences_in(path, text)).collect()
}

fn offences_in(path: &str, text: &str) -> Vec<Offence> {
    match Header::of(text) {
        None => vec![Offence::new(path, 1, "does not start with a comment")],
        Some(header) if is_script(path) => header
            .missing()
            .map(|word| Offence::new(path, 1, format!("no line of the header begins with {word}")))
            .collect(),
        Some(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::complaints;

    const FOLDER: &str = "crates/fairlock/src/engine/lua";

    #[test]
    fn a_script_says_what_it_takes_gives_and_changes() {
        let path = format!("{FOLDER}/lock.lua");
        let full = "-- Locks.\n-- KEYS[1] lock\n-- ARGV none\n-- Replies nil\n-- Changes nothing";
        assert!(complaints(check, &path, full).is_empty());
        let late = "-- Locks.\n-- KEYS[1]\n-- ARGV\n-- Changes it\nreturn 1 -- Replies";
        let expected = ["1: no line of the header begins with Replies"];
        assert_eq!(complaints(check, &path, late), expected);
    }

    #[test]
    fn every_file_starts_with_a_comment() {
        let missing = ["1: does not start with a comment"];
        for name in ["lock.lua", "_time.lua", "shared/time.lua"] {
            let path = format!("{FOLDER}/{name}");
            assert_eq!(complaints(check, &path, "return 1"), missing);
        }
    }

    #[test]
    fn parts_of_scripts_take_and_give_nothing() {
        for name in ["_time.lua", "shared/time.lua"] {
            let path = format!("{FOLDER}/{name}");
            assert!(complaints(check, &path, "-- The time.\n").is_empty());
        }
    }
}
