//! Distributed locks that queue: reentrant locks on Redis or Valkey, shared with Redisson, or in
//! memory with no server at all.
//!
//! ```
//! use fairlock::Client;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fairlock::Error> {
//! let client = Client::connect("memory:").await?; // or "redis://127.0.0.1/"
//! let guard = client.lock("orders:42").lock().await?; // waits; a watchdog keeps it alive
//! // ... the lock is ours ...
//! guard.release().await?; // or just drop it
//! # Ok(())
//! # }
//! ```
//!
//! # Which lock do I use?
//! | you want | use |
//! |---|---|
//! | one at a time, from async code | [`Client::lock`] |
//! | one at a time, from threads | [`blocking::Client::lock`] |
//! | to enter a lock again that you hold | [`Guard::reenter`], or [`Lock::lock_as`] an [`Owner`] |
//! | to know when the lock is lost | [`Guard::lost`], [`Guard::run`] |
//! | to be safe even if you do not notice | [`Guard::token`], checked by the resource |
//! | tests without a server | [`testing::TestStore`] |
//!
//! # What a lock with a lease cannot do
//! A lease ends by itself when its holder is cut off, so that others can go on. A holder that was
//! cut off may not know yet that it has lost. fairlock's guards find out in time by their own
//! clock, but code that does not look at its guard goes on; the fencing token is for that case.

#![deny(unsafe_code)]
#![cfg_attr(
    not(feature = "redis"),
    allow(dead_code, unused_variables, reason = "parts that only a remote store needs")
)]

pub mod blocking;
mod client;
mod engine;
mod error;
mod ids;
mod lock;
mod options;
mod os;
mod protocol;
mod runtime;
pub mod testing;
mod time;

pub use client::{Builder, Client};
pub use error::{
    ConnectError, Error, InvalidName, LockError, Lost, LostCause, ReleaseError, StoreError,
    StoreErrorKind,
};
pub use ids::{Name, OwnerId, Token};
pub use lock::{FairLock, Guard, Holder, Info, Lock, Owner, Released, Waiter};
pub use options::Options;
pub use time::BootTime;
