//! Files stay short enough to read.

use super::Offence;
use super::rust_text::RustText;
use crate::tree::Tree;

/// Finds files with too many lines of code, leaving out blank lines, comments and tests.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let files = tree.rust_files().filter(|(path, _)| !path.split('/').any(|part| part == "tests"));
    let offence = |(path, text): (&str, &str)| {
        let lines = RustText::new(text).code_and_strings;
        let count = lines.iter().filter(|line| !line.trim().is_empty()).count();
        let message = format!("{count} lines of code, more than {MOST_LINES}");
        (count > MOST_LINES).then(|| Offence::new(path, 1, message))
    };
    files.filter_map(offence).collect()
}

const MOST_LINES: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::complaints;

    #[test]
    fn only_code_counts() {
        let text = "let x = 1; // one\n".repeat(MOST_LINES) + &"// comment\n\n".repeat(100);
        assert_eq!(complaints(check, "src/a.rs", &text), Vec::<String>::new());
        let text = text + "let y = 2;\n";
        assert_eq!(complaints(check, "src/a.rs", &text), ["1: 501 lines of code, more than 500"]);
        assert!(complaints(check, "crates/a/tests/it/b.rs", &text).is_empty());
    }
}
