//! Operations and replies: what travels between a client and its store.

use std::sync::Arc;

use crate::ids::{Name, OwnerId, Token};
use crate::time::ServerTime;

/// Which rules a lock follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Whoever is first when it comes free.
    Plain,
    /// First come, first served.
    Fair,
}

/// One operation on one lock. Every one can be sent again without doing harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Take the lock if it is free. Taken already by this owner: says so again.
    Acquire(Claim),
    /// The fair lock's way to acquire: take it, or queue for it. One that comes back brings the
    /// ticket of its first time. Queued already: says so again.
    Queue { claim: Claim, ticket: Option<Ticket> },
    /// Set the hold count of the owner, which must hold the lock, and raise its lease.
    Reenter { owner: OwnerId, count: u32, lease_ms: u64 },
    /// Set the hold count of the owner to `remaining`. At zero the lock is free, and goes on to
    /// `next` if there is one: then nobody is told, else every waiting client is.
    Release { owner: OwnerId, remaining: u32, next: Option<Claim> },
    /// Tell who holds the lock.
    Inspect,
}

/// Server time of a first enqueue, in us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// Who wants a lock, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) owner: OwnerId,
    pub(crate) lease_ms: u64,
    /// Host, process and program, for the record of the holder.
    pub(crate) identity: Arc<str>,
}

/// One hold that a client wants to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Renew {
    pub(crate) name: Name,
    pub(crate) owner: OwnerId,
    /// The hold count: heals what a late copy of an earlier request may have set.
    pub(crate) count: u32,
    pub(crate) lease_ms: u64,
}

/// What every operation answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) state: State,
    pub(crate) server_time: ServerTime,
    /// What is left of the lease of whoever holds the lock now.
    pub(crate) lease: Lease,
    /// The place in line; zero where a kind of lock has no line in the store.
    pub(crate) position: u64,
    /// The token of the hold that the reply speaks of; zero if there is none.
    pub(crate) token: Token,
    /// Who got the lock with this operation, if it was passed on.
    pub(crate) grantee: Option<OwnerId>,
    /// How many subscribers heard that the lock is free.
    pub(crate) heard: Heard,
    /// Only of the fair lock: whether Redisson holds it or waits for it, too.
    pub(crate) foreign: bool,
    /// Only for [`Op::Inspect`].
    pub(crate) details: Option<Details>,
}

/// What an operation found or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    /// The request came after its own expiry: nothing was done.
    Late,
    /// The asking owner holds the lock.
    Held,
    /// Somebody else holds the lock.
    Busy,
    /// The lock was given back, or broken.
    Released,
    /// The asking owner does not hold the lock.
    NotHeld,
    /// Nobody holds the lock.
    Free,
    /// The asking owner waits in the store's queue.
    Queued,
}

impl State {
    /// The numbers that the scripts use.
    pub(crate) const ALL: [Self; 7] = [
        Self::Late,
        Self::Held,
        Self::Busy,
        Self::Released,
        Self::NotHeld,
        Self::Free,
        Self::Queued,
    ];

    pub(crate) fn from_number(number: i64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}

/// What is left of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Nobody holds the lock.
    None,
    /// The lock has no end of its own. fairlock and Redisson never leave one like that.
    Endless,
    /// It ends in so many milliseconds.
    Ms(u64),
}

impl Lease {
    /// From the numbers of `PTTL`.
    pub(crate) fn from_pttl(milliseconds: i64) -> Self {
        match milliseconds {
            -1 => Self::Endless,
            other => u64::try_from(other).map_or(Self::None, Self::Ms),
        }
    }
}

/// Who heard that a lock came free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// So many subscribers.
    By(u64),
    /// The store refused to publish; the lock is free all the same.
    Refused,
}

/// Who holds a lock, as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Details {
    /// The fields of the lock's hash.
    pub(crate) fields: Vec<(String, String)>,
    /// The record of the last fairlock grant, which may be of an earlier holder.
    pub(crate) record: Option<Record>,
    /// Only of the fair lock: its queue, in the order of service.
    pub(crate) waiters: Vec<Waiting>,
}

/// One entry of a fair lock's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) owner: OwnerId,
    /// Until when Java waits for it, in ms.
    pub(crate) score: Option<u64>,
    /// When it queued first, and when it counts as dead. Only fairlock waiters have one.
    pub(crate) place: Option<(Ticket, ServerTime)>,
}

/// The record of a grant: the last token drawn and who drew it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) token: Token,
    pub(crate) owner: OwnerId,
    pub(crate) since_ms: u64,
    pub(crate) identity: Arc<str>,
}

impl Record {
    /// Reads `token \n owner \n since \n identity`; `None` if it is something else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, '\n');
        Some(Self {
            token: Token(parts.next()?.parse().ok()?),
            owner: OwnerId::new(parts.next()?),
            since_ms: parts.next()?.parse().ok()?,
            identity: parts.next()?.into(),
        })
    }
}

/// How long a record outlives the lease it was written with. Tokens grow with the server's clock,
/// so the record is needed only to get over a clock that is set back.
pub(crate) const RECORD_MS: u64 = 3_600_000;
