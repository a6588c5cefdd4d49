//! Every Lua file says at its top what it is.

use super::Offence;
use crate::tree::Tree;

/// Finds Lua files without a header, and scripts whose header leaves out what they take or give.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let files = tree.lua_files().filter(|(path, _)| path.starts_with("crates/fairlock/src/"));
    files.flat_map(|(path, text)| offences_in(path, text)).collect()
}

fn offences_in(path: &str, text: &str) -> Vec<Offence> {
    let Some(header) = header_of(text) else {
        return vec![Offence::new(path, 1, "does not start with a comment")];
    };
    let wanted: &[&str] = if is_script(path) { &SCRIPT_WORDS } else { &[] };
    wanted
        .iter()
        .filter(|word| !header.contains(*word))
        .map(|word| Offence::new(path, 1, format!("the header does not say {word}")))
        .collect()
}

/// Whether the file is run by itself, and not only put together with others.
fn is_script(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    !name.starts_with('_') && !parts.any(|folder| folder == "shared")
}

/// The comment the text starts with: one block, or all lines up to the first other one.
fn header_of(text: &str) -> Option<String> {
    if let Some(block) = text.strip_prefix("--[[") {
        return block.split_once("]]").map(|(header, _)| header.to_owned());
    }
    let lines: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

const SCRIPT_WORDS: [&str; 3] = ["KEYS", "ARGV", "Replies"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::complaints;

    const FOLDER: &str = "crates/fairlock/src/engine/lua";

    #[test]
    fn a_script_says_what_it_takes_and_gives() {
        let path = format!("{FOLDER}/lock.lua");
        let full = "-- Locks.\n-- KEYS[1] lock\n-- ARGV none\n-- Replies nil\nreturn 1";
        assert!(complaints(check, &path, full).is_empty());
        let block = "--[[ Locks. KEYS, ARGV, Replies ]]\nreturn 1";
        assert!(complaints(check, &path, block).is_empty());
        let late = "-- Locks.\n-- KEYS[1], ARGV\nreturn 1 -- Replies";
        assert_eq!(complaints(check, &path, late), ["1: the header does not say Replies"]);
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
