//! `cargo xtask check`: the style checks that no other tool does.

mod architecture;
mod cancel_safety;
mod docs;
mod length;
mod lua_headers;
mod lua_in_rust;
mod names;
mod purity;
mod rust_text;
mod scenarios;
mod unfinished;

use std::fmt;
use std::process::ExitCode;

use crate::tree::Tree;

use crate::{Failure, repository_root};

/// Runs every check and prints what they find.
pub(crate) fn run() -> Result<ExitCode, Failure> {
    let tree = Tree::of_repository(repository_root())?;
    let mut offences: Vec<Offence> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    offences.sort();
    for offence in &offences {
        println!("{offence}");
    }
    let files = tree.paths().count();
    if offences.is_empty() {
        println!("check: {files} files, no offences");
        Ok(ExitCode::SUCCESS)
    } else {
        eprintln!("check: {files} files, {} offences", offences.len());
        Ok(ExitCode::FAILURE)
    }
}

/// Something a check does not accept.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Offence {
    path: String,
    line: usize,
    message: String,
}

impl Offence {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Offence {
        Offence { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

type Check = fn(&Tree) -> Vec<Offence>;

const CHECKS: [Check; 10] = [
    purity::check,
    length::check,
    cancel_safety::check,
    architecture::check,
    names::check,
    unfinished::check,
    lua_in_rust::check,
    lua_headers::check,
    docs::check,
    scenarios::check,
];

/// What a check says about one file, as `line: message`.
#[cfg(test)]
fn complaints(check: Check, path: &str, text: &str) -> Vec<String> {
    let offences = check(&Tree::of_files(&[(path, text)]));
    assert!(offences.iter().all(|offence| offence.path == path));
    offences.iter().map(|offence| format!("{}: {}", offence.line, offence.message)).collect()
}
