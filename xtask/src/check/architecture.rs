//! The map of the project shows every folder.

use std::collections::BTreeSet;

use super::Offence;
use crate::tree::Tree;

/// Finds folders that the map does not mention by their whole path, as in `crates/x/src/y/`.
pub(super) fn check(tree: &Tree) -> Vec<Offence> {
    let Some(map) = tree.text(MAP) else {
        return vec![Offence::new(MAP, 1, "the map of the project is missing")];
    };
    let folders: BTreeSet<&str> = tree
        .paths()
        .filter_map(|path| path.rfind('/').map(|slash| &path[..=slash]))
        .filter(|folder| belongs_on_map(folder))
        .collect();
    folders
        .into_iter()
        .filter(|folder| !mentions(map, folder))
        .map(|folder| Offence::new(MAP, 1, format!("does not mention `{folder}`")))
        .collect()
}

fn belongs_on_map(folder: &str) -> bool {
    let parts: Vec<&str> = folder.split('/').collect();
    let in_crate = matches!(parts.as_slice(), ["crates", _, "src" | "tests", ..]);
    in_crate || FOLDERS_AT_THE_TOP.contains(&parts[0])
}

/// Whether the map has `folder` itself, and not only a longer path with it inside.
fn mentions(map: &str, folder: &str) -> bool {
    let continues_path = |c: char| c.is_alphanumeric() || "_-./*".contains(c);
    map.match_indices(folder).any(|(start, _)| {
        let before = map[..start].chars().next_back();
        let mut after = map[start + folder.len()..].chars();
        let goes_on = match after.next() {
            // The end of a sentence, or of a hidden file's path.
            Some('.') => after.next().is_some_and(continues_path),
            other => other.is_some_and(continues_path),
        };
        !before.is_some_and(continues_path) && !goes_on
    })
}

const MAP: &str = "docs/ARCHITECTURE.md";
const FOLDERS_AT_THE_TOP: [&str; 4] = ["docs", "xtask", "interop", "bench"];

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(map: &str) -> Vec<String> {
        let tree = Tree::of_files(&[
            (MAP, map),
            ("README.md", ""),
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/engine/lua/x.lua", ""),
        ]);
        check(&tree).into_iter().map(|offence| offence.message).collect()
    }

    #[test]
    fn every_folder_with_files_is_wanted() {
        let map =
            "- `docs/`: texts\n- `crates/a/src/`: code\n- `crates/a/src/engine/lua/`: scripts";
        assert_eq!(messages(map), Vec::<String>::new());
        assert_eq!(
            messages("See docs/, crates/a/src/ and crates/a/src/engine/lua/."),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_longer_path_does_not_mention_the_shorter() {
        let expected = ["does not mention `crates/a/src/`", "does not mention `docs/`"];
        assert_eq!(messages("`crates/a/src/engine/lua/` and `x/docs/`"), expected);
    }

    #[test]
    fn the_map_itself_is_wanted() {
        assert_eq!(check(&Tree::of_files(&[])).len(), 1);
    }
}
