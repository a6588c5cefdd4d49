//! The list of scenarios names tests that exist.

use super::Offence;
use super::rust_text::{RustText, contains_word};
use crate::tree::Tree;

/// Finds tests that are named in the list but are nowhere, and behaviours without a test.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let Some(list) = tree.text(LIST) else {
        return vec![Offence::new(LIST, 1, "the list of scenarios is missing")];
    };
    let files: Vec<TestFile> = tree.rust_files().filter_map(TestFile::new).collect();
    let mut offences = Vec::new();
    let mut wants_tests = false;
    for (line, text) in (1..).zip(list.lines()) {
        let tests: Vec<&str> = tests_in(text).collect();
        let unknown = tests.iter().filter(|test| !files.iter().any(|file| file.has(test)));
        offences.extend(
            unknown.map(|test| Offence::new(LIST, line, format!("there is no test `{test}`"))),
        );
        let is_row = text.starts_with('|');
        if wants_tests && is_row && tests.is_empty() && !text.starts_with("|---") {
            offences.push(Offence::new(LIST, line, "names no test"));
        }
        wants_tests = is_row && (wants_tests || text.ends_with(TESTS_COLUMN));
    }
    offences
}

/// What is written like `` `module::function` ``; types have capital letters.
fn tests_in(line: &str) -> impl Iterator<Item = &str> {
    let is_path = |text: &&str| {
        let is_part = |part: &str| {
            part == "*"
                || !part.is_empty()
                    && part.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c))
        };
        text.contains("::") && text.split("::").all(is_part)
    };
    line.split('`').skip(1).step_by(2).filter(is_path)
}

struct TestFile {
    /// As in `crates::fairlock::tests::it::fair::fifo`.
    module: String,
    code: Vec<String>,
}

impl TestFile {
    fn new((path, text): (&str, &str)) -> Option<TestFile> {
        let in_tests = path.starts_with("crates/") && path.contains("/tests/");
        let module = path.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
        in_tests.then(|| TestFile { module, code: RustText::new(text).code })
    }

    /// Whether the test, which may be `*`, is in this file.
    fn has(&self, test: &str) -> bool {
        let Some((module, function)) = test.rsplit_once("::") else { return false };
        let is_here = format!("::{}", self.module).ends_with(&format!("::{module}"));
        let function = format!("fn {function}");
        is_here
            && (test.ends_with('*') || self.code.iter().any(|line| contains_word(line, &function)))
    }
}

const LIST: &str = "docs/SCENARIOS.md";
const TESTS_COLUMN: &str = "| test here |";

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(list: &str) -> Vec<String> {
        let tree = Tree::of_files(&[
            (LIST, list),
            ("crates/a/tests/it/fair/fifo.rs", "async fn in_order(store: Store) {}\n// fn gone()"),
            ("crates/a/tests/it/pins.rs", ""),
            ("crates/a/src/fifo.rs", "fn elsewhere() {}"),
        ]);
        let message = |offence: Offence| format!("{}: {}", offence.line, offence.message);
        check(&tree).into_iter().map(message).collect()
    }

    #[test]
    fn tests_are_known_by_the_end_of_their_path() {
        assert_eq!(messages("`fifo::in_order`, `fair::fifo::in_order`, `pins::*`"), [""; 0]);
        let expected = ["2: there is no test `air::fifo::in_order`", "2: there is no test `a::*`"];
        assert_eq!(messages("\n`air::fifo::in_order`, `a::*`"), expected);
        for test in ["fifo::in_orde", "fifo::gone", "fifo::elsewhere", "pins::in_order"] {
            assert_eq!(messages(&format!("`{test}`")), [format!("1: there is no test `{test}`")]);
        }
    }

    #[test]
    fn other_names_are_no_tests() {
        assert_eq!(messages("`Guard::lost`, `cancel`, fifo::gone, `file:`, `death::…`"), [""; 0]);
    }

    #[test]
    fn a_behaviour_has_a_test() {
        let list = "| behaviour | test here |\n|---|---|\n| a | `fifo::in_order` |\n| b | none |\n";
        assert_eq!(messages(list), ["4: names no test"]);
        assert_eq!(messages("| a | why not here |\n|---|---|\n| a | b |\n"), [""; 0]);
    }

    #[test]
    fn the_list_itself_is_wanted() {
        assert_eq!(check(&Tree::of_files(&[])).len(), 1);
    }
}
