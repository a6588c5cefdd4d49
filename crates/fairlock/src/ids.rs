//! Names and numbers: lock names, clients, owners, fencing tokens.

use std::fmt;
use std::sync::Arc;

use crate::error::InvalidName;

/// The name of a lock: 1 to 65,536 bytes, any bytes.
///
/// On Redis the name *is* the key of the lock's hash, as in Redisson.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Checks and takes over a name.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let bytes = name.as_ref();
        match bytes.len() {
            0 => Err(InvalidName::Empty),
            1..=MAX_NAME_BYTES => Ok(Self(bytes.into())),
            length => Err(InvalidName::TooLong { length }),
        }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Who holds or wants a lock, as it stands in the store: `<client uuid>:<number>`.
///
/// Redisson writes `<client uuid>:<thread id>`; fairlock treats the ids of others as opaque text.
/// fairlock's client uuids are version 8, Redisson's version 4, so the two can be told apart.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    pub(crate) fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The id as it stands in the store.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a fairlock client made this id (a version 8 uuid), rather than Redisson.
    ///
    /// Two places in the text decide: this is asked about every waiter, also inside the server.
    pub fn is_fairlock(&self) -> bool {
        let bytes = self.0.as_bytes();
        bytes.get(13..15) == Some(b"-8") && bytes.get(36) == Some(&b':')
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A fencing token: strictly larger for every acquisition of one lock.
///
/// Hand it to the resource that the lock protects, and let the resource refuse a token smaller
/// than the largest it has seen. Then a holder that was stopped past its lease cannot do harm.
/// Zero means that no token is known: the holder is not a fairlock client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Token(pub(crate) u64);

impl Token {
    /// The number to hand to the protected resource.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

/// Longer names are a mistake: a path or a payload where a name was meant.
const MAX_NAME_BYTES: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_to_65536_bytes() {
        assert_eq!(Name::new(""), Err(InvalidName::Empty));
        assert_eq!(Name::new(vec![7; 65_537]), Err(InvalidName::TooLong { length: 65_537 }));
        assert!(Name::new([0, 255]).is_ok());
    }

    #[test]
    fn a_version_8_uuid_marks_a_fairlock_owner() {
        assert!(OwnerId::new("67e55044-10b1-826f-9247-bb680e5fe0c8:7").is_fairlock());
        assert!(!OwnerId::new("67e55044-10b1-426f-9247-bb680e5fe0c8:7").is_fairlock());
        assert!(!OwnerId::new("67e5504410b1826f9247bb680e5fe0c8:7").is_fairlock());
        assert!(!OwnerId::new("67e55044-10b1-826f-9247-bb680e5fe0c8").is_fairlock());
        assert!(!OwnerId::new("garbage").is_fairlock());
    }
}
