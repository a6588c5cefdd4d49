//! A port of its own for each server.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A TCP port that nobody listens on just now.
///
/// Not one the system hands out (`bind` to port 0): those are also given to outgoing connections,
/// which could take the port of a server that is down for a moment, even a client's own attempt
/// to connect to that server.
pub(super) fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new(RandomState::new().hash_one(0_u8) as u32));
    let candidates = u32::from(LAST_PORT - FIRST_PORT) + 1;
    (0..candidates)
        .map(|_| FIRST_PORT + (NEXT.fetch_add(1, Ordering::Relaxed) % candidates) as u16)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("some TCP port is free")
}

/// Below the ports that Linux, macOS and the BSDs give to outgoing connections.
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 31_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_differ() {
        let (first, second) = (free_port(), free_port());
        assert_ne!(first, second);
        TcpListener::bind((Ipv4Addr::LOCALHOST, first)).expect("a free port can be bound");
    }
}
