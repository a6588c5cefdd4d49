//! Which reply belongs to which request.

use std::collections::VecDeque;

use crate::resp::Frame;

/// Which replies the server still owes, oldest first.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    owed: VecDeque<RequestKind>,
    resp3: bool,
    /// In RESP2, messages look like replies once the client has subscribed.
    subscribed_in_resp2: bool,
}

impl Pairing {
    /// Takes note of a request on its way to the server.
    pub(super) fn expect_reply_to(&mut self, request: &Request) {
        match request.kind {
            RequestKind::Hello3 => self.resp3 = true,
            // Confirmed by pushes, not by a reply.
            RequestKind::Subscription => {
                self.subscribed_in_resp2 |= !self.resp3;
                return;
            }
            RequestKind::Script | RequestKind::Other => {}
        }
        self.owed.push_back(request.kind);
    }

    /// Says what a frame from the server is; a reply is no longer owed then.
    pub(super) fn classify(&mut self, frame: &Frame) -> Incoming {
        let first = frame.word(0).unwrap_or_default();
        let is_message = MESSAGES.contains(&first.as_str());
        let is_push = frame.is_push()
            || self.subscribed_in_resp2
                && frame.is_array()
                && (is_message || SUBSCRIPTIONS.contains(&first.as_str()));
        if is_push {
            return if is_message { Incoming::Message } else { Incoming::Other };
        }
        match self.owed.pop_front() {
            Some(RequestKind::Script) => Incoming::ScriptReply,
            _ => Incoming::Other,
        }
    }
}

/// What a frame from the server is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    ScriptReply,
    /// Something published.
    Message,
    Other,
}

/// A command on its way to the server.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) kind: RequestKind,
    pub(super) frame: Frame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Script,
    Subscription,
    Hello3,
    Other,
}

impl Request {
    pub(super) fn new(frame: Frame) -> Request {
        let kind = match frame.word(0).as_deref() {
            Some("evalsha" | "eval") => RequestKind::Script,
            Some("hello") if frame.word(1).as_deref() == Some("3") => RequestKind::Hello3,
            Some(name) if SUBSCRIPTIONS.contains(&name) => RequestKind::Subscription,
            _ => RequestKind::Other,
        };
        Request { kind, frame }
    }
}

const SUBSCRIPTIONS: [&str; 6] =
    ["subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe"];
const MESSAGES: [&str; 3] = ["message", "pmessage", "smessage"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::FrameReader;

    #[test]
    fn replies_are_paired_in_order() {
        let mut pairing = asked(&["GET x\r\n", "evalsha abc 0\r\n", "SET x 1\r\n", "EVAL s 0\r\n"]);
        let kinds = ["$-1\r\n", "-NOSCRIPT\r\n", "+OK\r\n", "*1\r\n:1\r\n"]
            .map(|reply| pairing.classify(&frame(reply)));
        use Incoming::{Other, ScriptReply};
        assert_eq!(kinds, [Other, ScriptReply, Other, ScriptReply]);
    }

    #[test]
    fn pushes_are_no_replies_in_resp3() {
        let mut pairing = asked(&["HELLO 3\r\n", "SUBSCRIBE news\r\n", "EVAL s 0\r\n"]);
        assert_eq!(pairing.classify(&frame("%0\r\n")), Incoming::Other);
        assert_eq!(pairing.classify(&frame(CONFIRMED_PUSH)), Incoming::Other);
        assert_eq!(pairing.classify(&frame(MESSAGE_PUSH)), Incoming::Message);
        assert_eq!(pairing.classify(&frame(MESSAGE_ARRAY)), Incoming::ScriptReply);
    }

    #[test]
    fn messages_are_no_replies_in_resp2_once_subscribed() {
        let mut pairing = asked(&["EVAL s 0\r\n"]);
        assert_eq!(pairing.classify(&frame(MESSAGE_ARRAY)), Incoming::ScriptReply);
        let mut pairing = asked(&["SUBSCRIBE news\r\n", "EVAL s 0\r\n"]);
        assert_eq!(pairing.classify(&frame(MESSAGE_ARRAY)), Incoming::Message);
        assert_eq!(pairing.classify(&frame(":1\r\n")), Incoming::ScriptReply);
    }

    fn asked(commands: &[&str]) -> Pairing {
        let mut pairing = Pairing::default();
        for command in commands {
            pairing.expect_reply_to(&Request::new(frame(command)));
        }
        pairing
    }

    fn frame(text: &str) -> Frame {
        let mut reader = FrameReader::default();
        reader.feed(text.as_bytes());
        reader.next_frame().expect("a whole frame")
    }

    const CONFIRMED_PUSH: &str = ">3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    const MESSAGE_PUSH: &str = ">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nm\r\n";
    const MESSAGE_ARRAY: &str = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nm\r\n";
}
