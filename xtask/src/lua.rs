//! What a Lua file says of itself at its top.

/// The comment that a Lua file begins with, without the marks of a comment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// What the script is for.
    pub(crate) purpose: String,
    /// What it takes, gives and changes: from the first line that begins with one of the [`WORDS`],
    /// as it stands there.
    pub(crate) terms: String,
}

impl Header {
    /// The header of a file: one block, or all lines up to the first that is no comment.
    pub(crate) fn of(text: &str) -> Option<Header> {
        let lines: Vec<&str> = match text.strip_prefix("--[[") {
            Some(block) => block.split_once("]]")?.0.lines().collect(),
            None => text.lines().map_while(|line| line.strip_prefix("--")).collect(),
        };
        if lines.is_empty() {
            return None;
        }
        // The space that sets a comment off is no part of it.
        let lines: Vec<&str> =
            lines.iter().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
        let is_term = |line: &&str| WORDS.iter().any(|word| begins_with(line, word));
        let end = lines.iter().position(is_term).unwrap_or(lines.len());
        let joined = |lines: &[&str]| lines.join("\n").trim_matches('\n').to_owned();
        Some(Header { purpose: joined(&lines[..end]), terms: joined(&lines[end..]) })
    }

    /// Which of the [`WORDS`] begin no line.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &'static str> {
        let says = |word: &str| self.terms.lines().any(|line| begins_with(line, word));
        WORDS.into_iter().filter(move |word| !says(word))
    }
}

/// Whether the file is run by itself, and not only put together with others.
pub(crate) fn is_script(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let name = parts.next().unwrap_or_default();
    !name.starts_with('_') && !parts.any(|folder| folder == "shared")
}

fn begins_with(line: &str, word: &str) -> bool {
    let rest = line.trim_start().strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Each begins a line in the header of every script.
const WORDS: [&str; 4] = ["KEYS", "ARGV", "Replies", "Changes"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_purpose_and_terms() {
        let text =
            "-- Locks.\n-- Once.\n--\n-- KEYS  lock\n-- ARGV  a,\n--       b\nreturn 1 -- no";
        let header = Header::of(text).unwrap();
        assert_eq!(header.purpose, "Locks.\nOnce.");
        assert_eq!(header.terms, "KEYS  lock\nARGV  a,\n      b");
        assert_eq!(header.missing().collect::<Vec<_>>(), ["Replies", "Changes"]);
        let block =
            "--[[ Locks.\nKEYS[1] lock\nARGV none\nReplies: 1\nChanges nothing\n]]\nreturn 1";
        let header = Header::of(block).unwrap();
        assert_eq!(header.purpose, "Locks.");
        assert_eq!(header.missing().count(), 0);
        assert_eq!(Header::of("return 1"), None);
    }

    #[test]
    fn a_term_begins_a_line_with_its_whole_word() {
        let header = Header::of("-- Changes_of KEYS\n-- KEYS a\n-- ARGV Replies").unwrap();
        assert_eq!(header.purpose, "Changes_of KEYS");
        assert_eq!(header.missing().collect::<Vec<_>>(), ["Replies", "Changes"]);
    }
}
