//! What can go wrong, by operation; every message says what to do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lock::Holder;

/// Why a client could not be made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The store's address is not one that fairlock knows.
    #[error(
        "cannot use the store address {url:?}: {reason}; write memory:, memory:NAME, file:DIR, \
         redis://HOST:PORT/, rediss://HOST:PORT/ or redis+unix:///PATH"
    )]
    Address {
        /// The address, without its password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An option is outside of its range.
    #[error("{0}")]
    Option(String),
    /// The store could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a lock was not acquired.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The wait time ended before the lock came free.
    #[error("{}", timed_out(.name, *.waited, .holder.as_deref()))]
    TimedOut {
        /// The lock.
        name: String,
        /// How long was waited.
        waited: Duration,
        /// Who held it at the end, where that is known.
        holder: Option<Box<Holder>>,
    },
    /// Re-entry through an owner or a guard whose hold is gone.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The name cannot be used.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// An option is outside of its range; the text says which and how.
    #[error("{0}")]
    Option(String),
    /// The client was closed.
    #[error("the client is closed; connect a new one")]
    Closed,
    /// The store could not be used. Whatever the attempt left there is being undone.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a release could not report success.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was no longer ours. What ran under it may have overlapped with another holder.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The store could not be reached. The client goes on trying until the lease has ended.
    #[error("{0}; the release goes on in the background, at the latest the lease frees the lock")]
    Store(#[from] StoreError),
}

/// A hold is gone, finally, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lock {name:?} was lost: {cause}")]
pub struct Lost {
    /// The lock.
    pub name: String,
    /// Why.
    pub cause: LostCause,
}

/// Why a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostCause {
    /// The lease could not be confirmed in time: it may have ended on the store.
    LeaseEnded,
    /// The store says that this owner does not hold the lock: it was deleted or broken by force,
    /// the store lost its data, or somebody else got it after the lease had ended.
    Gone,
    /// It was held for as long as `max_hold` allows.
    MaxHold,
    /// The client was closed while the guard was alive.
    Closed,
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseEnded => "its lease could not be renewed or confirmed in time",
            Self::Gone => "the store no longer knows this hold (deleted, broken, or expired)",
            Self::MaxHold => "it was held for the longest time allowed (max_hold)",
            Self::Closed => "the client was closed",
        })
    }
}

/// A lock name that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// No bytes at all.
    #[error("a lock needs a name: this one is empty")]
    Empty,
    /// More than 65,536 bytes.
    #[error("a lock name has at most 65,536 bytes, this one has {length}; use a hash of it")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
}

/// Trouble with the store. Nothing of the failed operation stays behind.
#[derive(Clone, thiserror::Error)]
#[error("{kind}{}", detail(.source))]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    pub(crate) fn new(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }

    pub(crate) fn with_source(
        kind: StoreErrorKind,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { kind, source: Some(Arc::new(source)) }
    }

    /// What kind of trouble it is.
    pub fn kind(&self) -> &StoreErrorKind {
        &self.kind
    }

    /// Whether the same request may succeed in a moment without anybody doing anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unreachable { .. }
                | StoreErrorKind::NotReady
                | StoreErrorKind::Stuck { .. }
        )
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({self})")
    }
}

/// The kinds of trouble with a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No connection, or no answer in time.
    #[error(
        "the store at {address} cannot be reached; check that it runs and that the address is right"
    )]
    Unreachable {
        /// Where it should be, without the password.
        address: String,
    },
    /// The store is there but loads its data, or runs a long script.
    #[error(
        "the store is not ready yet (it loads data or runs a long script); try again in a moment"
    )]
    NotReady,
    /// User name or password were refused, or are missing.
    #[error(
        "the store refuses the login; check user and password in its address (redis://USER:PASSWORD@HOST/)"
    )]
    Login,
    /// The user may not run a command, or not on this key or channel.
    #[error(
        "the store's access rules (ACL) forbid this; allow the user the commands, keys and channels listed in docs/PROTOCOL.md"
    )]
    Denied,
    /// The lock's key holds something that is not a lock.
    #[error(
        "there is something else than a lock at this name; choose another name, or delete the key if it is not needed"
    )]
    WrongType,
    /// The server is a replica.
    #[error("the server is a read-only replica; connect to the master")]
    ReadOnly,
    /// The server's memory limit is reached.
    #[error("the server is out of memory (maxmemory); free some or raise the limit")]
    OutOfMemory,
    /// A process was stopped in the middle of a transaction of a `file:` store.
    #[error("store stuck: {}; let that process go on, or end it", stuck(*.pid, .path))]
    Stuck {
        /// That process, where the system tells.
        pid: Option<u32>,
        /// The store's folder.
        path: String,
    },
    /// A `file:` store has no room for more locks.
    #[error(
        "the store is full; it has room for tens of thousands of locks, so maybe their names never repeat"
    )]
    StoreFull,
    /// The disk is full.
    #[error("no space left on the disk of {path}; make room, or choose another directory")]
    DiskFull {
        /// Where.
        path: String,
    },
    /// This user may not use the directory.
    #[error("no rights to use {path}; choose a directory of your own")]
    NoRights {
        /// Where.
        path: String,
    },
    /// Nothing can be written there.
    #[error("the file system of {path} is read-only; choose another directory")]
    ReadOnlyFileSystem {
        /// Where.
        path: String,
    },
    /// Locks of files do not work reliably over a network.
    #[error(
        "{path} lies on a network file system, where locks are not reliable; choose a local directory, or a Redis server"
    )]
    NetworkFileSystem {
        /// Where.
        path: String,
    },
    /// There is something else.
    #[error("{path} is not a directory for a store; choose another one")]
    NotAStore {
        /// Where.
        path: String,
    },
    /// The files are not what fairlock has written.
    #[error(
        "the store at {path} is damaged or of another kind; end its users and remove it, nothing in it outlives them anyway"
    )]
    Damaged {
        /// Where.
        path: String,
    },
    /// Another error of the file system.
    #[error("the file system refuses to serve {path}")]
    FileSystem {
        /// Where.
        path: String,
    },
    /// The server answered something that this version of fairlock does not understand.
    #[error("the store gave an unexpected answer")]
    Unexpected,
}

fn detail(source: &Option<Arc<dyn std::error::Error + Send + Sync>>) -> String {
    source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default()
}

fn stuck(pid: Option<u32>, path: &str) -> String {
    match pid {
        Some(pid) => format!("pid {pid} stands still inside {path}"),
        None => format!("some process stands still inside {path}"),
    }
}

fn timed_out(name: &str, waited: Duration, holder: Option<&Holder>) -> String {
    let holder = holder.map(|holder| format!(": {holder}")).unwrap_or_default();
    format!("the lock {name:?} did not come free within {waited:.1?}{holder}")
}

/// Any error of this crate, for programs that only report it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From connecting.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// From acquiring.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// From releasing.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// From a guard that was lost.
    #[error(transparent)]
    Lost(#[from] Lost),
}
