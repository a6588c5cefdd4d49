//! Every public asynchronous function says what happens when its future is dropped.

use super::Offence;
use super::rust_text::RustText;
use crate::tree::Tree;

/// Finds `pub async fn` without a section on cancel safety in the comment above it.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let files = tree.rust_files().filter(|(path, _)| path.starts_with("crates/fairlock/src/"));
    files.flat_map(|(path, text)| offences_in(path, text)).collect()
}

fn offences_in(path: &str, text: &str) -> Vec<Offence> {
    let lines: Vec<&str> = text.split('\n').map(str::trim).collect();
    let code = RustText::new(text).code;
    let functions =
        code.iter().enumerate().filter(|(_, line)| line.trim().starts_with("pub async fn"));
    functions
        .filter(|(index, _)| !has_section(&lines[..*index]))
        .map(|(index, _)| {
            Offence::new(
                path,
                index + 1,
                format!("`pub async fn` without `{SECTION}` in its doc comment"),
            )
        })
        .collect()
}

/// Whether the doc comment that ends these lines has the section; attributes may follow it.
fn has_section(mut above: &[&str]) -> bool {
    while let Some((last, rest)) = above.split_last() {
        if let Some(doc) = last.strip_prefix("///") {
            if doc.trim() == SECTION {
                return true;
            }
        } else if last.ends_with(']') {
            let start = above.iter().rposition(|line| line.starts_with("#["));
            above = &above[..start.unwrap_or(0)];
            continue;
        } else {
            return false;
        }
        above = rest;
    }
    false
}

const SECTION: &str = "# Cancel safety";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::complaints;

    const PATH: &str = "crates/fairlock/src/lock.rs";

    #[test]
    fn the_section_may_stand_above_attributes() {
        let text = "\
            /// Locks.\n///\n/// # Cancel safety\n///\n/// Safe.\n\
            #[must_use]\n#[expect(\n    dead_code,\n)]\npub async fn lock() {}\n";
        assert_eq!(complaints(check, PATH, text), Vec::<String>::new());
    }

    #[test]
    fn a_function_without_the_section_is_found() {
        let text = "/// # Cancel safety\npub async fn a() {}\n/// Locks.\npub async fn b() {}";
        let expected = ["4: `pub async fn` without `# Cancel safety` in its doc comment"];
        assert_eq!(complaints(check, PATH, text), expected);
        assert_eq!(complaints(check, PATH, "    pub async fn c() {}").len(), 1);
    }

    #[test]
    fn others_need_none() {
        let text = "pub(crate) async fn a() {}\nasync fn b() {}\n// pub async fn c() {}";
        assert_eq!(complaints(check, PATH, text), Vec::<String>::new());
        assert!(complaints(check, "crates/other/src/a.rs", "pub async fn a() {}").is_empty());
    }
}
