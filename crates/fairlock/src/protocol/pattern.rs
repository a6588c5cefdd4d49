//! Patterns for names: `*` stands for any bytes, `?` for one byte, everything else for itself.

/// What names are to look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<u8>);

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether a whole name looks like that.
    ///
    /// Only the last `*` is ever tried again, so the time is at most the product of both lengths.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let pattern = &self.0;
        let (mut at, mut in_name) = (0, 0);
        // After the last star, and where in the name what follows it was tried to begin.
        let mut retry: Option<(usize, usize)> = None;
        while in_name < name.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    at += 1;
                    retry = Some((at, in_name));
                }
                Some(byte) if *byte == b'?' || *byte == name[in_name] => {
                    at += 1;
                    in_name += 1;
                }
                _ => match retry.as_mut() {
                    Some((after_star, began)) => {
                        *began += 1;
                        (at, in_name) = (*after_star, *began);
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "anything"),
            ("orders:*", "orders:42"),
            ("orders:??", "orders:42"),
            ("*:42", "orders:42"),
            ("a*b*c", "a-b-b-c"),
            ("**a", "aaa"),
            ("[a]\\", "[a]\\"),
            ("", ""),
        ] {
            assert!(Pattern::new(pattern).matches(name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("?", ""),
            ("a", "ab"),
            ("orders:?", "orders:42"),
            ("*:43", "orders:42"),
            ("[ab]", "a"),
            ("a*b", "a-b-"),
        ] {
            assert!(!Pattern::new(pattern).matches(name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_few() {
        let pattern = Pattern::new(&("a*".repeat(50) + "b"));
        assert!(!pattern.matches(&[b'a'; 10_000]));
    }
}
