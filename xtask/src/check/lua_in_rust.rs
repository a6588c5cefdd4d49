//! Lua lives in Lua files.

use super::Offence;
use super::rust_text::RustText;
use crate::tree::Tree;

/// Finds scripts written inside the Rust of the crates. (The tools may speak of Lua.)
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let files = tree.rust_files().filter(|(path, _)| path.starts_with("crates/"));
    files.flat_map(|(path, text)| offences_in(path, text)).collect()
}

fn offences_in(path: &str, text: &str) -> Vec<Offence> {
    let lines = RustText::new(text).code_and_strings;
    let with_lua = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| SIGNS_OF_LUA.iter().any(|sign| line.contains(sign)));
    with_lua
        .map(|(index, _)| Offence::new(path, index + 1, "Lua inside Rust; give it a .lua file"))
        .collect()
}

const SIGNS_OF_LUA: [&str; 2] = ["redis.call(", "redis.pcall("];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::complaints;

    #[test]
    fn scripts_in_strings_are_found() {
        let text = format!("let a = 1;\nlet script = \"return {}'GET', 'x')\";", SIGNS_OF_LUA[0]);
        let expected = ["2: Lua inside Rust; give it a .lua file"];
        assert_eq!(complaints(check, "crates/a/src/a.rs", &text), expected);
        let comment = format!("// sends {}...)", SIGNS_OF_LUA[0]);
        assert!(complaints(check, "crates/a/src/a.rs", &comment).is_empty());
    }
}
