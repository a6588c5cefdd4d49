//! The protocol is pure: its files use no input, output, clock, thread or chance.

use super::Offence;
use super::rust_text::{RustText, contains_word};
use crate::tree::Tree;

/// Finds what may not stand in the protocol's code; comments and strings may say anything.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let files = tree.rust_files().filter(|(path, _)| path.starts_with(PURE_FOLDER));
    files.flat_map(|(path, text)| offences_in(path, &RustText::new(text).code)).collect()
}

fn offences_in(path: &str, code: &[String]) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut in_grouped_import = false;
    for (index, line) in code.iter().enumerate() {
        in_grouped_import |= line.contains("use std::{");
        let modules = if in_grouped_import { FORBIDDEN_STD_MODULES } else { &[] };
        // Sharing what does not change is pure.
        let line = &line.replace("std::sync::Arc", "");
        for word in FORBIDDEN.iter().chain(modules) {
            if contains_word(line, word) {
                offences.push(Offence::new(
                    path,
                    index + 1,
                    format!("`{word}` in the pure protocol"),
                ));
            }
        }
        in_grouped_import &= !line.contains(';');
    }
    offences
}

const PURE_FOLDER: &str = "crates/fairlock/src/protocol/";

const FORBIDDEN: &[&str] = &[
    "tokio",
    "redis::",
    "SystemTime",
    "Instant",
    "std::env",
    "std::fs",
    "std::net",
    "std::thread",
    "std::sync",
    "rand",
    "heed",
    "rustix",
    "async",
    ".await",
];

/// What `use std::{...}` may not list.
const FORBIDDEN_STD_MODULES: &[&str] = &["env", "fs", "net", "thread", "sync"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::complaints;

    const PATH: &str = "crates/fairlock/src/protocol/decode.rs";

    #[test]
    fn impure_code_is_found() {
        for line in [
            "use tokio::time;",
            "fn f(value: redis::Value) {}",
            "use std::time::{Duration, SystemTime};",
            "let now = Instant::now();",
            "std::env::var(x)",
            "use std::sync::Mutex;",
            "use std::{collections::HashMap, sync::Mutex};",
            "async fn f() {}",
            "x.await",
        ] {
            assert_eq!(complaints(check, PATH, line).len(), 1, "{line}");
        }
    }

    #[test]
    fn grouped_imports_are_looked_into() {
        let text = "use std::{\n    fmt,\n    fs,\n};\nlet fs = 1;";
        assert_eq!(complaints(check, PATH, text), ["3: `fs` in the pure protocol"]);
    }

    #[test]
    fn comments_strings_and_other_folders_may_say_anything() {
        let text =
            "// Redis replies, redis::Value, async\nlet text = \"tokio\"; let random = brand;";
        assert_eq!(complaints(check, PATH, text), Vec::<String>::new());
        assert!(complaints(check, "crates/fairlock/src/lib.rs", "use tokio::x;").is_empty());
    }
}
