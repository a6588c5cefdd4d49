//! How a lock is written down: its name, its state, and who listens for its release.

use crate::ids::{Name, OwnerId, Token};
use crate::protocol::model::fair::{Place, Queue};
use crate::protocol::model::reentrant::{Hold, LockState};
use crate::protocol::op::{Record, Ticket};
use crate::time::ServerTime;

/// What the store keeps under one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) state: LockState,
    /// The clients to be told when the lock comes free.
    pub(super) listeners: Vec<String>,
}

impl Entry {
    pub(super) fn new(name: &Name) -> Self {
        Self { name: name.clone(), state: LockState::default(), listeners: Vec::new() }
    }

    /// Whether nothing needs to be remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.state.is_empty() && self.listeners.is_empty()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        put_bytes(&mut bytes, self.name.as_bytes());
        put_flag(&mut bytes, self.state.hold.is_some());
        if let Some(hold) = &self.state.hold {
            put_bytes(&mut bytes, hold.owner.as_str().as_bytes());
            put_number(&mut bytes, u64::from(hold.count));
            put_number(&mut bytes, hold.ends.0);
        }
        put_flag(&mut bytes, self.state.record.is_some());
        if let Some((record, ends)) = &self.state.record {
            put_number(&mut bytes, record.token.0);
            put_bytes(&mut bytes, record.owner.as_str().as_bytes());
            put_number(&mut bytes, record.since_ms);
            put_bytes(&mut bytes, record.identity.as_bytes());
            put_number(&mut bytes, ends.0);
        }
        put_number(&mut bytes, self.listeners.len() as u64);
        for listener in &self.listeners {
            put_bytes(&mut bytes, listener.as_bytes());
        }
        put_flag(&mut bytes, !self.state.queue.is_empty());
        if !self.state.queue.is_empty() {
            put_queue(&mut bytes, &self.state.queue);
        }
        bytes
    }

    /// `None` if this is not an entry.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let name = Name::new(Reader(bytes).bytes()?).ok()?;
        Self::decode_for(&name, bytes)
    }

    /// `None` if this is not the entry of that lock.
    pub(super) fn decode_for(name: &Name, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.bytes()? != name.as_bytes() {
            return None;
        }
        let mut state = LockState::default();
        if reader.flag()? {
            let owner = OwnerId::new(reader.text()?);
            let count = u32::try_from(reader.number()?).ok()?;
            state.hold = Some(Hold { owner, count, ends: ServerTime(reader.number()?) });
        }
        if reader.flag()? {
            let record = Record {
                token: Token(reader.number()?),
                owner: OwnerId::new(reader.text()?),
                since_ms: reader.number()?,
                identity: reader.text()?.into(),
            };
            state.record = Some((record, ServerTime(reader.number()?)));
        }
        let count = reader.number()?;
        let listeners = (0..count).map(|_| reader.text().map(str::to_owned)).collect::<Option<_>>();
        if reader.flag()? {
            state.queue = reader.queue()?;
        }
        Some(Self { name: name.clone(), state, listeners: listeners? })
    }
}

/// The head of a store: its format, and how far the boot clock lies behind the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) offset_us: u64,
}

impl Head {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = FORMAT.to_vec();
        put_number(&mut bytes, self.offset_us);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let offset_us = Reader(bytes.strip_prefix(FORMAT)?).number()?;
        Some(Self { offset_us })
    }
}

fn put_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    put_number(bytes, part.len() as u64);
    bytes.extend_from_slice(part);
}

fn put_flag(bytes: &mut Vec<u8>, flag: bool) {
    bytes.push(u8::from(flag));
}

fn put_queue(bytes: &mut Vec<u8>, queue: &Queue) {
    put_number(bytes, queue.list.len() as u64);
    for owner in &queue.list {
        put_bytes(bytes, owner.as_str().as_bytes());
    }
    put_number(bytes, queue.scores.len() as u64);
    for (owner, score) in &queue.scores {
        put_bytes(bytes, owner.as_str().as_bytes());
        put_number(bytes, *score);
    }
    put_number(bytes, queue.places.len() as u64);
    for (owner, place) in &queue.places {
        put_bytes(bytes, owner.as_str().as_bytes());
        put_number(bytes, place.ticket.0);
        put_number(bytes, place.deadline.0);
        put_number(bytes, place.lease_ms);
        put_number(bytes, place.waits_ms);
        put_bytes(bytes, place.identity.as_bytes());
    }
    put_number(bytes, queue.ends.map_or(0, |ends| ends.0));
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn queue(&mut self) -> Option<Queue> {
        let mut queue = Queue::default();
        for _ in 0..self.number()? {
            queue.list.push_back(OwnerId::new(self.text()?));
        }
        for _ in 0..self.number()? {
            queue.scores.insert(OwnerId::new(self.text()?), self.number()?);
        }
        for _ in 0..self.number()? {
            let owner = OwnerId::new(self.text()?);
            let place = Place {
                ticket: Ticket(self.number()?),
                deadline: ServerTime(self.number()?),
                lease_ms: self.number()?,
                waits_ms: self.number()?,
                identity: self.text()?.into(),
            };
            queue.places.insert(owner, place);
        }
        queue.ends = Some(self.number()?).filter(|ends| *ends > 0).map(ServerTime);
        Some(queue)
    }

    fn flag(&mut self) -> Option<bool> {
        let (flag, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*flag == 1)
    }
}

/// Changes with every change of what stands in this file.
const FORMAT: &[u8] = b"fairlock 2\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Entry {
        let hold = Hold { owner: OwnerId::new("a:1"), count: 2, ends: ServerTime(77) };
        let record = Record {
            token: Token(5),
            owner: OwnerId::new("a:1"),
            since_ms: 9,
            identity: "4711\nhost\nprogram".into(),
        };
        let place = Place {
            ticket: Ticket(3),
            deadline: ServerTime(8),
            lease_ms: 4,
            waits_ms: 7,
            identity: "another".into(),
        };
        let queue = Queue {
            list: ["a:2", "b:1"].map(OwnerId::new).into(),
            scores: [(OwnerId::new("a:2"), 5)].into(),
            places: [(OwnerId::new("a:2"), place)].into(),
            ends: Some(ServerTime(6)),
        };
        let state = LockState { hold: Some(hold), record: Some((record, ServerTime(99))), queue };
        let listeners = vec!["b".to_owned(), "c".to_owned()];
        Entry { name: Name::new([0, 255]).unwrap(), state, listeners }
    }

    #[test]
    fn what_is_written_can_be_read() {
        for entry in [full(), Entry::new(&Name::new("x").unwrap())] {
            assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        }
        let head = Head { offset_us: 1 << 50 };
        assert_eq!(Head::decode(&head.encode()), Some(head));
    }

    #[test]
    fn half_of_it_is_nothing() {
        let bytes = full().encode();
        for length in 0..bytes.len() {
            assert_eq!(Entry::decode(&bytes[..length]), None, "{length} of {}", bytes.len());
        }
        assert_eq!(Head::decode(b"something else"), None);
    }
}
