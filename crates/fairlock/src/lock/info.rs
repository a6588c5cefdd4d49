//! What can be seen of a lock from outside.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::ids::{Name, OwnerId, Token};
use crate::protocol::op::{Kind, Lease, Reply, Waiting};
use crate::time::ServerTime;

/// A lock as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The lock.
    pub name: Name,
    /// Whether anybody holds it.
    pub held: bool,
    /// The owner, also one of Redisson.
    pub owner: Option<OwnerId>,
    /// How many times the owner has entered.
    pub holds: u32,
    /// What is left of the lease; `None` if it is free or has no end.
    pub lease: Option<Duration>,
    /// The token of the current hold, or of the last one; `None` if fairlock knows none.
    pub token: Option<Token>,
    /// Who that is, if it is a fairlock client.
    pub holder: Option<Holder>,
    /// Who waits for it, in the order of service; `None` for a kind of lock whose waiters are not
    /// stored.
    pub waiters: Option<Vec<Waiter>>,
    /// How many are in its queue; `None` if the queue was not looked at, as by a plain lock. In a list
    /// ([`Client::list`](crate::Client::list)) every lock has it where the store says it.
    pub queued: Option<usize>,
}

/// Somebody in the queue of a fair lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The waiter as it stands in the store.
    pub owner: OwnerId,
    /// How long it has waited; `None` for one of Redisson, which does not say.
    pub waited: Option<Duration>,
    /// Whether it counts as alive: a fairlock waiter that has shown so lately, or one of Redisson
    /// whose time is not over.
    pub alive: bool,
}

impl Info {
    pub(crate) fn from_reply(kind: Kind, name: &Name, reply: &Reply) -> Self {
        let details = reply.details.clone().unwrap_or_default();
        let now = reply.server_time;
        let waiters: Vec<_> =
            details.waiters.iter().map(|waiter| Waiter::seen(waiter, now)).collect();
        let field = details.fields.into_iter().next();
        let owner = field.as_ref().map(|(owner, _)| OwnerId::new(owner.as_str()));
        let record = details.record;
        let current = record.as_ref().filter(|record| Some(&record.owner) == owner.as_ref());
        let holder = current.and_then(|record| {
            Holder::parse(&record.identity, record.since_ms, reply.server_time.as_ms())
        });
        Self {
            name: name.clone(),
            held: owner.is_some(),
            holds: field.and_then(|(_, count)| count.parse().ok()).unwrap_or(0),
            lease: match reply.lease {
                Lease::Ms(milliseconds) => Some(Duration::from_millis(milliseconds)),
                Lease::None | Lease::Endless => None,
            },
            // Redisson draws no tokens, so one beside a foreign owner is of an earlier hold.
            token: match owner.is_none() || current.is_some() {
                true => record.as_ref().map(|record| record.token),
                false => None,
            },
            holder,
            owner,
            queued: (kind == Kind::Fair).then_some(waiters.len()),
            waiters: (kind == Kind::Fair).then_some(waiters),
        }
    }

    /// Whether the lock is free, or its owner is written as fairlock and Redisson write it.
    ///
    /// `false` is a warning: there may be somebody's data at this name, which
    /// [`Lock::force_unlock`](crate::Lock::force_unlock) would delete.
    pub fn looks_like_a_lock(&self) -> bool {
        let Some(owner) = &self.owner else { return true };
        let is_owner = |(client, number): (&str, &str)| {
            uuid::Uuid::try_parse(client).is_ok() && number.parse::<i64>().is_ok()
        };
        self.holds > 0 && owner.as_str().rsplit_once(':').is_some_and(is_owner)
    }
}

impl Waiter {
    fn seen(waiting: &Waiting, now: ServerTime) -> Self {
        let Waiting { owner, score, place } = waiting;
        let alive = match place {
            Some((_, deadline)) => *deadline >= now,
            None => !owner.is_fairlock() && score.is_some_and(|score| score > now.as_ms()),
        };
        let waited = place.map(|(ticket, _)| Duration::from_micros(now.0.saturating_sub(ticket.0)));
        Self { owner: owner.clone(), waited, alive }
    }
}

/// Who holds a lock: a process on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The program.
    pub program: String,
    /// Since when, on the store's clock.
    pub since: SystemTime,
    /// For how long, when the store was asked.
    pub held_for: Duration,
}

impl Holder {
    /// How a process introduces itself to the store: `pid \n host \n program`.
    pub(crate) fn introduce(pid: u32, host: &str, program: &str) -> String {
        let line = |text: &str| text.replace('\n', " ");
        format!("{pid}\n{}\n{}", line(host), line(program))
    }

    fn parse(identity: &str, since_ms: u64, now_ms: u64) -> Option<Self> {
        let mut parts = identity.splitn(3, '\n');
        let pid = parts.next()?.parse().ok()?;
        let (host, program) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(since_ms);
        let held_for = Duration::from_millis(now_ms.saturating_sub(since_ms));
        Some(Self { host, pid, program, since, held_for })
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, pid, program, held_for, .. } = self;
        let seconds = held_for.as_secs();
        write!(f, "held by {program}, pid {pid} on {host}, for ")?;
        match seconds {
            0..60 => write!(f, "{:.1} s", held_for.as_secs_f64()),
            60..3_600 => write!(f, "{} m {} s", seconds / 60, seconds % 60),
            _ => write!(f, "{} h {} m", seconds / 3_600, seconds / 60 % 60),
        }
    }
}
