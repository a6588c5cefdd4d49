//! Engines execute operations atomically and carry messages. They decide nothing.
//!
//! [`memory`] runs the model in this process; [`embedded`] runs it in transactions on a directory
//! that many processes share; [`redis`] runs it as Lua scripts on a server.

#[cfg(feature = "embedded")]
pub(crate) mod embedded;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::error::{StoreError, StoreErrorKind};
use crate::ids::{Name, OwnerId, Token};
use crate::protocol::model::fair::{Beaten, Heartbeat};
use crate::protocol::op::{Lease, Op, Renew, Reply, State};
use crate::protocol::pattern::Pattern;
use crate::testing::Busy;
use crate::time::ServerTime;

/// Where operations are executed.
#[derive(Debug)]
pub(crate) enum Engine {
    Memory(memory::Engine),
    #[cfg(feature = "embedded")]
    Embedded(Box<embedded::Engine>),
    #[cfg(feature = "redis")]
    Redis(Box<redis::Engine>),
}

/// The rules that an operation follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    Plain,
    Fair { waiter_ttl_ms: u64 },
}

/// On which way a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The caller's: its connection is served by the caller's own runtime, so an uncontended
    /// acquire costs no change of threads.
    Caller,
    /// The driver's: served by fairlock's own thread, alive also when the caller's runtime is
    /// blocked or gone.
    Driver,
}

/// What a store says without being asked. `Busy` lets a test clock wait until it was handled.
#[derive(Debug)]
pub(crate) enum Wake {
    /// This lock may have come free.
    Message(Name, #[allow(dead_code, reason = "held, not read")] Busy),
    /// This owner, a waiter of this client, has the lock.
    Grant(Grant, #[allow(dead_code, reason = "held, not read")] Busy),
    /// All subscriptions up to this generation are gone.
    Deaf(Generation),
}

/// What a message says about a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) owner: OwnerId,
    pub(crate) token: Token,
    pub(crate) granted_ms: u64,
}

/// Numbers the wake-up connections of a client one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Generation(pub(crate) u64);

pub(crate) type WakeSender = UnboundedSender<Wake>;
pub(crate) type WakeReceiver = UnboundedReceiver<Wake>;

/// Where a look through the names of a store goes on; begins with the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Cursor(pub(crate) u64);

/// Some of the names that may belong to locks.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) found: Vec<Found>,
    /// `None` if these were the last.
    pub(crate) next: Option<Cursor>,
}

/// A name that may belong to a lock.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: Name,
    /// How many entries its queue has; `None` if the store does not say.
    pub(crate) queued: Option<usize>,
}

/// The answer to a batch of renewals.
#[derive(Debug)]
pub(crate) struct Renewed {
    pub(crate) server_time: ServerTime,
    /// One per item, in order; `None` if the request came after its own expiry.
    pub(crate) items: Option<Vec<(State, Lease)>>,
}

impl Engine {
    /// Sends one copy of an operation and waits for its answer, without a limit of its own.
    pub(crate) async fn call(
        &self,
        lane: Lane,
        rules: Rules,
        name: &Name,
        op: &Op,
        expires: ServerTime,
    ) -> Result<Reply, StoreError> {
        match self {
            Self::Memory(engine) => Ok(engine.call(rules, name, op, expires)),
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.call(rules, name, op, expires).await,
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.call(lane, rules, name, op, expires).await,
        }
    }

    /// Sends one copy of the heartbeat of those who wait for a fair lock.
    pub(crate) async fn beat(
        &self,
        waiter_ttl_ms: u64,
        name: &Name,
        beat: &Heartbeat,
        expires: ServerTime,
    ) -> Result<Beaten, StoreError> {
        match self {
            Self::Memory(engine) => Ok(engine.beat(waiter_ttl_ms, name, beat, expires)),
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.beat(waiter_ttl_ms, name, beat, expires).await,
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.beat(waiter_ttl_ms, name, beat, expires).await,
        }
    }

    /// Asks for [`Wake::Grant`]s; they come from now on until [`Wake::Deaf`].
    pub(crate) async fn hear_grants(&self) -> Result<Generation, StoreError> {
        match self {
            Self::Memory(engine) => Ok(engine.hear_grants()),
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => Ok(Generation(u64::MAX)),
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.hear_grants().await,
        }
    }

    /// Asks a store that is elsewhere for its time.
    pub(crate) async fn hello(&self, lane: Lane) -> Result<ServerTime, StoreError> {
        match self {
            Self::Memory(engine) => Ok(engine.wall()),
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.hello(),
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.hello(lane).await,
        }
    }

    /// Sends one copy of a batch of renewals, on the driver's lane.
    pub(crate) async fn renew(
        &self,
        items: &[Renew],
        expires: ServerTime,
    ) -> Result<Renewed, StoreError> {
        match self {
            Self::Memory(engine) => Ok(engine.renew(items, expires)),
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.renew(items, expires).await,
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.renew(items, expires).await,
        }
    }

    /// One page of the names that match and may belong to locks.
    pub(crate) async fn names(
        &self,
        lane: Lane,
        pattern: &Pattern,
        cursor: Cursor,
    ) -> Result<Page, StoreError> {
        match self {
            Self::Memory(engine) => Ok(engine.names(pattern)),
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.names(pattern).await,
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.names(lane, pattern, cursor).await,
        }
    }

    /// Asks for [`Wake::Message`]s about a lock; they come from now on until [`Wake::Deaf`].
    pub(crate) async fn subscribe(&self, name: &Name) -> Result<Generation, StoreError> {
        match self {
            Self::Memory(engine) => Ok(engine.subscribe(name)),
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.subscribe(name).await,
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.subscribe(name).await,
        }
    }

    /// Ends what [`Self::subscribe`] began.
    pub(crate) async fn unsubscribe(&self, name: &Name) -> Result<(), StoreError> {
        match self {
            Self::Memory(engine) => {
                engine.unsubscribe(name);
                Ok(())
            }
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.unsubscribe(name).await,
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.unsubscribe(name).await,
        }
    }

    /// Asks for what Redisson tells this waiter, as [`Wake::Message`]s.
    pub(crate) async fn hear_java(
        &self,
        name: &Name,
        owner: &OwnerId,
    ) -> Result<Generation, StoreError> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.hear_java(name, owner).await,
            _ => {
                let _ = (name, owner);
                Ok(Generation(1))
            }
        }
    }

    /// Ends what [`Self::hear_java`] began.
    pub(crate) async fn stop_hearing_java(
        &self,
        name: &Name,
        owner: &OwnerId,
    ) -> Result<(), StoreError> {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.stop_hearing_java(name, owner).await,
            _ => {
                let _ = (name, owner);
                Ok(())
            }
        }
    }

    /// Nobody of this client waits for this fair lock any more.
    pub(crate) fn stop_awaiting(&self, name: &Name) {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.stop_awaiting(name),
            _ => {
                let _ = name;
            }
        }
    }

    /// An answer did not come in time: the next request takes a new connection.
    pub(crate) fn suspect(&self, lane: Lane) {
        match self {
            Self::Memory(_) => {}
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => {}
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.suspect(lane),
        }
    }

    /// The error for a request that was not answered in time.
    pub(crate) fn no_answer(&self) -> StoreError {
        match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.stuck(),
            _ => {
                let address = self.address().to_owned();
                StoreError::new(StoreErrorKind::Unreachable { address })
            }
        }
    }

    /// Where the store is, for messages; without a password.
    pub(crate) fn address(&self) -> &str {
        match self {
            Self::Memory(_) => "memory:",
            #[cfg(feature = "embedded")]
            Self::Embedded(engine) => engine.address(),
            #[cfg(feature = "redis")]
            Self::Redis(engine) => engine.address(),
        }
    }
}
