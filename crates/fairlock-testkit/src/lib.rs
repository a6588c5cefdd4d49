//! Parts for testing fairlock against the real thing.
//!
//! - [`Server`]: a private `redis-server` or `valkey-server` process that dies with the test.
//! - [`Proxy`]: a TCP proxy that loses replies, holds requests back and cuts connections.
//! - [`Seed`] and [`Rng`]: random tests that can be replayed.
//! - [`eventually`] and [`never_within`]: bounded waiting for a condition.
//! - [`Recorder`]: judges from recorded holds whether a lock excluded.
//! - [`Peer`] and [`Redisson`]: other processes that lock, among them the real Redisson.
//! - [`Scratch`]: a folder that goes with its owner.
//!
//! These are fixtures: whatever goes wrong in them panics, with what happened in the message.

#![forbid(unsafe_code)]

mod checker;
mod peers;
mod proxy;
mod resp;
mod scratch;
mod seed;
mod servers;
mod wait;

pub use checker::{Hold, Recorder, check_exclusion, monotonic_ns};
pub use peers::{Answer, Peer, Pending, Redisson};
pub use proxy::Proxy;
pub use scratch::Scratch;
pub use seed::{Announcement, Rng, Seed};
pub use servers::{ClientKind, Flavour, Server, ServerBuilder, flavours, main_flavour};
pub use wait::{eventually, never_within};
