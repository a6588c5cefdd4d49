//! Keys and channels of a lock, in Redisson's spelling; all of one lock hash to one cluster slot.

use crate::ids::{Name, OwnerId};
use crate::protocol::pattern::Pattern;

/// The record of the last grant.
pub(crate) fn record(name: &Name) -> Vec<u8> {
    tagged(b"fairlock:", name, b":grant")
}

/// Where every release of a plain lock is told.
pub(crate) fn channel(name: &Name) -> Vec<u8> {
    tagged(b"redisson_lock__channel:", name, b"")
}

/// Who waits for a fair lock, in the order of service.
pub(crate) fn queue(name: &Name) -> Vec<u8> {
    tagged(b"redisson_lock_queue:", name, b"")
}

/// Until when Java takes each of them for alive.
pub(crate) fn scores(name: &Name) -> Vec<u8> {
    tagged(b"redisson_lock_timeout:", name, b"")
}

/// The places of fairlock's own waiters.
pub(crate) fn places(name: &Name) -> Vec<u8> {
    tagged(b"fairlock:", name, b":places")
}

/// Where Redisson tells one waiter for a fair lock that it is free.
pub(crate) fn waiter_channel(name: &Name, owner: &OwnerId) -> Vec<u8> {
    [&channel(name), b":".as_slice(), owner.as_str().as_bytes()].concat()
}

/// Where a client is told that it got a fair lock. Not in the slot of any lock.
pub(crate) fn client_channel(uuid: &str) -> String {
    format!("fairlock:client:{uuid}")
}

/// A pattern as `SCAN MATCH` reads it: there, brackets and backslashes mean something, too.
pub(crate) fn glob(pattern: &Pattern) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'[' | b']' | b'\\' | b'^' => vec![b'\\', *byte],
        _ => vec![*byte],
    };
    pattern.as_bytes().iter().flat_map(escape).collect()
}

/// Redisson's rule, taken literally, also where it is silly: a name with a `{` anywhere in it
/// stays as it is, any other is put in braces.
fn tagged(prefix: &[u8], name: &Name, suffix: &[u8]) -> Vec<u8> {
    let name = name.as_bytes();
    let (open, close): (&[u8], &[u8]) =
        if name.contains(&b'{') { (b"", b"") } else { (b"{", b"}") };
    [prefix, open, name, close, suffix].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(name: &str) -> [String; 2] {
        let name = Name::new(name).unwrap();
        [record(&name), channel(&name)].map(|key| String::from_utf8(key).unwrap())
    }

    #[test]
    fn the_fair_lock_has_a_queue() {
        let name = Name::new("a").unwrap();
        assert_eq!(queue(&name), b"redisson_lock_queue:{a}");
        assert_eq!(scores(&name), b"redisson_lock_timeout:{a}");
        assert_eq!(places(&name), b"fairlock:{a}:places");
    }

    #[test]
    fn names_are_put_in_braces_unless_they_have_some() {
        assert_eq!(spelled("a"), ["fairlock:{a}:grant", "redisson_lock__channel:{a}"]);
        assert_eq!(spelled("a{b}"), ["fairlock:a{b}:grant", "redisson_lock__channel:a{b}"]);
        assert_eq!(glob(&Pattern::new("a*?[b]\\")), b"a*?\\[b\\]\\\\");
        assert_eq!(spelled("a{b"), ["fairlock:a{b:grant", "redisson_lock__channel:a{b"]);
    }
}
