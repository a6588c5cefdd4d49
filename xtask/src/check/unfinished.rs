//! Nothing is left unfinished or switched off.

use super::Offence;
use super::rust_text::RustText;
use crate::tree::Tree;

/// Finds ignored tests and code that is still to be written.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    tree.rust_files().flat_map(|(path, text)| offences_in(path, text)).collect()
}

fn offences_in(path: &str, text: &str) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (index, line) in RustText::new(text).code.iter().enumerate() {
        for mark in MARKS.iter().filter(|mark| line.contains(*mark)) {
            offences.push(Offence::new(path, index + 1, format!("`{mark}` is not allowed")));
        }
    }
    offences
}

const MARKS: [&str; 3] = ["#[ignore", "todo!(", "unimplemented!("];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::complaints;

    #[test]
    fn marks_are_found_in_code_only() {
        let text =
            "#[test]\n#[ignore = \"slow\"]\nfn f() { todo!() }\n// todo!()\nlet x = \"todo!()\";";
        let expected = ["2: `#[ignore` is not allowed", "3: `todo!(` is not allowed"];
        assert_eq!(complaints(check, "src/a.rs", text), expected);
    }
}
