//! Finding where one RESP2 or RESP3 frame ends and the next begins.

/// Cuts a byte stream, fed in any pieces, into whole frames.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that belong to elements of the current frame already known to be whole,
    /// so that a large frame arriving in small pieces is not scanned again for each piece.
    scanned: usize,
    /// Elements the current frame still lacks beyond `scanned`. Zero: no frame was begun.
    missing: usize,
}

impl FrameReader {
    /// Adds bytes from the stream.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        if self.missing == 0 {
            self.missing = 1;
        }
        while self.missing > 0 {
            let element = Element::at_start_of(&self.buffer[self.scanned..])?;
            self.scanned += element.length;
            self.missing = self.missing - 1 + element.children;
        }
        let rest = self.buffer.split_off(self.scanned);
        self.scanned = 0;
        Some(Frame { bytes: std::mem::replace(&mut self.buffer, rest) })
    }
}

/// One whole frame, as it was on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    /// The frame as it was on the wire.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether this is a RESP3 push: something that no request asked for.
    pub(crate) fn is_push(&self) -> bool {
        self.bytes[0] == b'>'
    }

    /// Whether this is an array.
    pub(crate) fn is_array(&self) -> bool {
        self.bytes[0] == b'*'
    }

    /// The text at `index`, in lower case: of the elements in an array or push, of the words in
    /// an inline command. None when there is no such element or it is not a text.
    pub(crate) fn word(&self, index: usize) -> Option<String> {
        if !self.is_array() && !self.is_push() {
            let words = String::from_utf8_lossy(&self.bytes);
            return words.split_ascii_whitespace().nth(index).map(str::to_ascii_lowercase);
        }
        let mut rest = &self.bytes[Element::at_start_of(&self.bytes)?.length..];
        for _ in 0..index {
            let skipped = Element::at_start_of(rest)?;
            if skipped.children > 0 {
                return None;
            }
            rest = &rest[skipped.length..];
        }
        Some(Element::at_start_of(rest)?.text(rest)?.to_ascii_lowercase())
    }
}

/// One value, or only the header of an aggregate: its children follow as elements.
struct Element {
    header_length: usize,
    length: usize,
    children: usize,
}

impl Element {
    /// The element `bytes` start with, or None when they hold only a part of it.
    fn at_start_of(bytes: &[u8]) -> Option<Element> {
        let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let header_length = line_end + 2;
        let line = |children| Element { header_length, length: header_length, children };
        let count = || count_in(&bytes[1..line_end]);
        let element = match bytes[0] {
            b'*' | b'~' | b'>' => line(count()),
            b'%' => line(count() * 2),
            // An attribute stands before the value it describes, which belongs to the frame.
            b'|' => line(count() * 2 + 1),
            b'$' | b'=' | b'!' if &bytes[1..line_end] != b"-1" => {
                Element { header_length, length: header_length + count() + 2, children: 0 }
            }
            // Simple strings, errors, numbers, booleans, nulls and inline commands are one line.
            _ => line(0),
        };
        (element.length <= bytes.len()).then_some(element)
    }

    fn text<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        let text = match bytes[0] {
            b'+' => &bytes[1..self.length - 2],
            b'$' if self.length > self.header_length => &bytes[self.header_length..self.length - 2],
            _ => return None,
        };
        std::str::from_utf8(text).ok()
    }
}

/// The length in a header; RESP2's null array has -1 children, which is none.
fn count_in(digits: &[u8]) -> usize {
    if digits == b"-1" {
        return 0;
    }
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|text| text.parse().ok())
        .unwrap_or_else(|| panic!("not a RESP length: {:?}", String::from_utf8_lossy(digits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE_FRAMES: &[&str] = &[
        "+OK\r\n",
        "-NOSCRIPT No matching script.\r\n",
        ":-12\r\n",
        "$5\r\nhello\r\n",
        "$0\r\n\r\n",
        "$-1\r\n",
        "$4\r\n\r\n\r\n\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*2\r\n$3\r\nGET\r\n$1\r\nx\r\n",
        "_\r\n",
        "%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n:2\r\n:3\r\n",
        "%0\r\n",
        "~2\r\n:1\r\n:2\r\n",
        ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        ",3.14\r\n",
        ",inf\r\n",
        "#t\r\n",
        "=7\r\ntxt:abc\r\n",
        "!5\r\nERR x\r\n",
        "(3492890328409238509324850943850943825024385\r\n",
        "|1\r\n+ttl\r\n:3600\r\n$1\r\nx\r\n",
        "*3\r\n*2\r\n:1\r\n*1\r\n$1\r\na\r\n_\r\n%1\r\n+k\r\n~1\r\n#f\r\n",
        "PING\r\n",
    ];

    #[test]
    fn every_kind_of_frame_ends_where_it_should() {
        for text in WHOLE_FRAMES {
            let mut reader = FrameReader::default();
            reader.feed(text.as_bytes());
            let frame = reader.next_frame().unwrap_or_else(|| panic!("{text:?} is whole"));
            assert_eq!(frame.bytes(), text.as_bytes());
            assert_eq!(reader.next_frame(), None, "after {text:?}");
        }
    }

    #[test]
    fn frames_come_out_whole_when_fed_byte_by_byte() {
        let mut reader = FrameReader::default();
        let mut frames = Vec::new();
        for byte in WHOLE_FRAMES.concat().bytes() {
            reader.feed(&[byte]);
            while let Some(frame) = reader.next_frame() {
                frames.push(String::from_utf8(frame.bytes).expect("the samples are text"));
            }
        }
        assert_eq!(frames, WHOLE_FRAMES);
    }

    #[test]
    fn frames_come_out_one_by_one_when_fed_at_once() {
        let mut reader = FrameReader::default();
        reader.feed(WHOLE_FRAMES.concat().as_bytes());
        for text in WHOLE_FRAMES {
            let frame = reader.next_frame().expect("one frame per sample");
            assert_eq!(frame.bytes(), text.as_bytes());
        }
        assert_eq!(reader.next_frame(), None);
    }

    #[test]
    fn words_are_found_by_place() {
        let frame = |text: &str| Frame { bytes: text.as_bytes().to_vec() };
        let hello = frame("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n");
        assert_eq!(hello.word(0).as_deref(), Some("hello"));
        assert_eq!(hello.word(1).as_deref(), Some("3"));
        assert_eq!(hello.word(2), None);
        assert_eq!(frame(">1\r\n+message\r\n").word(0).as_deref(), Some("message"));
        assert_eq!(frame("PING now\r\n").word(1).as_deref(), Some("now"));
        assert_eq!(frame("*0\r\n").word(0), None);
        assert_eq!(frame("*1\r\n$-1\r\n").word(0), None);
        assert_eq!(frame("*1\r\n:1\r\n").word(0), None);
    }

    #[test]
    fn only_pushes_are_pushes() {
        for text in WHOLE_FRAMES {
            let frame = Frame { bytes: text.as_bytes().to_vec() };
            assert_eq!(frame.is_push(), text.starts_with('>'), "{text:?}");
        }
    }
}
