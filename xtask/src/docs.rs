//! `cargo xtask docs`: what the documentation takes from the code, word for word.
//!
//! The description of the scripts in `docs/PROTOCOL.md` is put together from their headers. It
//! stands between two marks; what is around it is written by hand.

use std::fs;
use std::process::ExitCode;

use crate::lua::{Header, is_script};
use crate::tree::Tree;
use crate::{Failure, repository_root};

/// Writes what has changed.
pub(crate) fn run() -> Result<ExitCode, Failure> {
    let root = repository_root();
    let tree = Tree::of_repository(root)?;
    let old = tree.text(PROTOCOL).ok_or_else(|| format!("{PROTOCOL} is missing"))?;
    let new = Document::parse(old)?.with_region(&scripts(&tree));
    if new == old {
        println!("docs: {PROTOCOL} is up to date");
    } else {
        fs::write(root.join(PROTOCOL), new)
            .map_err(|error| format!("cannot write {PROTOCOL}: {error}"))?;
        println!("docs: {PROTOCOL} written");
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the document is not what [`run`] would write: line and reason.
pub(crate) fn out_of_date(tree: &Tree) -> Option<(usize, String)> {
    let Some(text) = tree.text(PROTOCOL) else {
        return Some((1, "is missing".to_owned()));
    };
    let new = match Document::parse(text) {
        Ok(document) => document.with_region(&scripts(tree)),
        Err(reason) => return Some((1, reason)),
    };
    let same = text.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
    let reason = "the headers of the scripts say something else; run `cargo xtask docs`";
    (text != new).then(|| (same + 1, reason.to_owned()))
}

/// A document with a region that is written by this command.
struct Document<'a> {
    before: &'a str,
    after: &'a str,
}

impl Document<'_> {
    fn parse(text: &str) -> Result<Document<'_>, String> {
        let around = text.split_once(BEGIN).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(END)?;
            Some(Document { before, after })
        });
        around.ok_or_else(|| format!("has no place for the scripts: `{BEGIN}`, then `{END}`"))
    }

    fn with_region(&self, region: &str) -> String {
        format!("{}{BEGIN}\n\n{region}{END}{}", self.before, self.after)
    }
}

/// A section for each script, those of one kind of lock together.
fn scripts(tree: &Tree) -> String {
    let in_folder = |(path, text)| Some((str::strip_prefix(path, FOLDER)?, text));
    let mut scripts: Vec<(&str, &str)> = tree.lua_files().filter_map(in_folder).collect();
    scripts.retain(|(name, _)| is_script(name));
    scripts.sort_by_key(|(name, _)| (name.split_once('_').map(|(kind, _)| kind), *name));
    scripts.iter().filter_map(|(name, text)| Some(section(name, &Header::of(text)?))).collect()
}

fn section(name: &str, Header { purpose, terms }: &Header) -> String {
    format!("### `{name}`\n\n{purpose}\n\n```text\n{terms}\n```\n\n")
}

pub(crate) const PROTOCOL: &str = "docs/PROTOCOL.md";
const FOLDER: &str = "crates/fairlock/src/engine/redis/lua/";
const BEGIN: &str =
    "<!-- scripts: `cargo xtask docs` writes this from the headers of the files -->";
const END: &str = "<!-- end of scripts -->";

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "-- Locks.\n--\n-- KEYS  lock\n-- Changes  it\nreturn 1";

    fn tree(protocol: &str) -> Tree {
        let script = |name: &str| format!("{FOLDER}{name}");
        Tree::of_files(&[
            (PROTOCOL, protocol),
            (&script("lock.lua"), LOCK),
            (&script("fair_ask.lua"), "-- Asks.\n--\n-- KEYS  lock, queue"),
            (&script("_shared.lua"), "-- Shared."),
            ("crates/fairlock/benches/peers/other.lua", "-- Other."),
        ])
    }

    #[test]
    fn the_region_holds_what_the_headers_say() {
        let old = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n");
        let new = Document::parse(&old).unwrap().with_region(&scripts(&tree(&old)));
        let lock = "### `lock.lua`\n\nLocks.\n\n```text\nKEYS  lock\nChanges  it\n```\n\n";
        let ask = "### `fair_ask.lua`\n\nAsks.\n\n```text\nKEYS  lock, queue\n```\n\n";
        assert_eq!(new, format!("# Title\n\n{BEGIN}\n\n{lock}{ask}{END}\n\nThe end.\n"));
        assert_eq!(out_of_date(&tree(&new)), None);
    }

    #[test]
    fn what_is_out_of_date_is_told_with_the_command_that_mends_it() {
        let (line, reason) = out_of_date(&tree(&format!("a\n{BEGIN}\n\nold\n{END}\n"))).unwrap();
        assert_eq!(line, 4);
        assert!(reason.contains("cargo xtask docs"), "{reason}");
        let (_, reason) = out_of_date(&tree(&format!("{END} {BEGIN}"))).unwrap();
        assert!(reason.contains(BEGIN), "{reason}");
        assert!(out_of_date(&Tree::of_files(&[])).is_some());
    }
}
