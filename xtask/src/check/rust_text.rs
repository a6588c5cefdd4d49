//! Telling code, strings and comments in Rust text apart.

/// The lines of a Rust file, without what a check should not see.
#[derive(Debug, Default)]
pub(super) struct RustText {
    /// Without comments and without the content of strings.
    pub(super) code: Vec<String>,
    /// Without comments.
    pub(super) code_and_strings: Vec<String>,
}

impl RustText {
    pub(super) fn new(text: &str) -> RustText {
        let chars: Vec<char> = text.chars().collect();
        let mut splitter =
            Splitter { chars: &chars, at: 0, code: String::new(), all: String::new() };
        splitter.run();
        let lines = |text: &str| text.split('\n').map(str::to_owned).collect();
        RustText { code: lines(&splitter.code), code_and_strings: lines(&splitter.all) }
    }
}

/// Whether `word` stands in `line` on its own, not as a part of a longer name.
pub(super) fn contains_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let joins = |outside: Option<char>, edge: Option<char>| {
        outside.is_some_and(is_name) && edge.is_some_and(is_name)
    };
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !joins(before, word.chars().next()) && !joins(after, word.chars().next_back())
    })
}

struct Splitter<'a> {
    chars: &'a [char],
    at: usize,
    code: String,
    all: String,
}

impl Splitter<'_> {
    fn run(&mut self) {
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('/')) => self.skip_line_comment(),
                ('/', Some('*')) => self.skip_block_comment(),
                ('"', _) => self.take_string(),
                ('r', Some('"' | '#')) if self.starts_raw_string() => self.take_raw_string(),
                ('\'', _) => self.take_quote(),
                _ => self.take_code(1),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn take_code(&mut self, count: usize) {
        for _ in 0..count {
            let Some(c) = self.peek(0) else { return };
            self.code.push(c);
            self.all.push(c);
            self.at += 1;
        }
    }

    fn take_string_content(&mut self) {
        let Some(c) = self.peek(0) else { return };
        if c == '\n' {
            self.code.push(c);
        }
        self.all.push(c);
        self.at += 1;
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            if self.peek(0) == Some('\n') {
                self.code.push('\n');
                self.all.push('\n');
            }
            self.at += 1;
        }
    }

    fn skip_line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.skip(1);
        }
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        while let Some(c) = self.peek(0) {
            match (c, self.peek(1)) {
                ('/', Some('*')) => depth += 1,
                ('*', Some('/')) => depth -= 1,
                _ => {
                    self.skip(1);
                    continue;
                }
            }
            self.skip(2);
            if depth == 0 {
                return;
            }
        }
    }

    fn take_string(&mut self) {
        self.take_code(1);
        while let Some(c) = self.peek(0) {
            match c {
                '"' => return self.take_code(1),
                '\\' => {
                    self.take_string_content();
                    self.take_string_content();
                }
                _ => self.take_string_content(),
            }
        }
    }

    /// At an `r`: whether it begins a raw string (`r"`, `br#"`), and not `r#name` or `for"`.
    fn starts_raw_string(&self) -> bool {
        let is_name = |c: &char| c.is_alphanumeric() || *c == '_';
        let before: Vec<char> = self.chars[..self.at].iter().rev().take(2).copied().collect();
        let begins_a_word = match before.as_slice() {
            ['b' | 'c', rest @ ..] => !rest.first().is_some_and(is_name),
            [other, ..] => !is_name(other),
            [] => true,
        };
        begins_a_word && self.peek(1 + self.hashes_at(1)) == Some('"')
    }

    fn take_raw_string(&mut self) {
        let hashes = self.hashes_at(1);
        self.take_code(hashes + 2);
        while let Some(c) = self.peek(0) {
            if c == '"' && self.hashes_at(1) >= hashes {
                return self.take_code(hashes + 1);
            }
            self.take_string_content();
        }
    }

    fn hashes_at(&self, ahead: usize) -> usize {
        (0..).take_while(|count| self.peek(ahead + count) == Some('#')).count()
    }

    /// A character such as `'"'`, or the quote that begins a lifetime.
    fn take_quote(&mut self) {
        if self.peek(1) == Some('\\') {
            let rest = &self.chars[(self.at + 3).min(self.chars.len())..];
            let close = rest.iter().position(|c| *c == '\'').unwrap_or(0);
            self.take_code(close + 4);
        } else if self.peek(2) == Some('\'') {
            self.take_code(3);
        } else {
            self.take_code(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        RustText::new(text).code.join("\n")
    }

    #[test]
    fn comments_are_left_out_and_lines_kept() {
        assert_eq!(code("a // b\nc"), "a \nc");
        assert_eq!(code("/// doc\n//! doc\nx"), "\n\nx");
        assert_eq!(code("a /* b /* c */\nd */ e"), "a \n e");
    }

    #[test]
    fn string_content_is_kept_apart() {
        let text = RustText::new(r#"f("x // y", "\"z");"#);
        assert_eq!(text.code, [r#"f("", "");"#]);
        assert_eq!(text.code_and_strings, [r#"f("x // y", "\"z");"#]);
        assert_eq!(code("s(r#\"a \" // b\"#) // c"), "s(r#\"\"#) ");
        assert_eq!(code("br\"\\\" x"), "br\"\" x");
        assert_eq!(code("\"a\nb\" c"), "\"\n\" c");
    }

    #[test]
    fn quotes_that_begin_no_string_are_code() {
        assert_eq!(code(r#"'"' // a"#), r#"'"' "#);
        assert_eq!(code(r"'\'' // a"), r"'\'' ");
        assert_eq!(code(r"'\u{1F600}' // a"), r"'\u{1F600}' ");
        assert_eq!(code("fn f<'a>(x: &'a str) {} // b"), "fn f<'a>(x: &'a str) {} ");
        assert_eq!(code("r#type // a"), "r#type ");
    }

    #[test]
    fn words_stand_on_their_own() {
        assert!(contains_word("use rand::Rng;", "rand"));
        assert!(!contains_word("let operand = brand;", "rand"));
        assert!(contains_word("x.await?", ".await"));
        assert!(!contains_word("x.awaited", ".await"));
        assert!(!contains_word("fred_redis::x", "redis::"));
    }
}
