//! Acquiring: the first try in the caller's own task, then a place in the line.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::fair;
use super::shared::{CleanUp, Core, Refusal, Task, Then, Ticket, Wish, lease_end};
use crate::engine::Lane;
use crate::error::LockError;
use crate::ids::{Name, OwnerId};
use crate::lock::{Guard, Holder, Info};
use crate::options::Options;
use crate::protocol::line::{Found, Waiter};
use crate::protocol::op::{Claim, Kind, Op, Reply, State};
use crate::time::BootTime;

/// Acquires a lock; `None` if it is not to be had without waiting and `waits` is false.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    kind: Kind,
    name: &Name,
    options: &Options,
    waits: bool,
) -> Result<Option<Guard>, LockError> {
    match kind {
        Kind::Plain => acquire_plain(core, name, options, waits).await,
        Kind::Fair => fair::acquire(core, name, options, waits, None).await,
    }
}

async fn acquire_plain(
    core: &Arc<Core>,
    name: &Name,
    options: &Options,
    waits: bool,
) -> Result<Option<Guard>, LockError> {
    let plan = options.plan(core.options.lease)?;
    let claim = core.new_claim(plan.lease_ms);
    let wish = Wish {
        core: core.clone(),
        kind: Kind::Plain,
        name: name.clone(),
        plan,
        trail: Arc::default(),
    };
    let started = core.clock.now();
    let gives_up_at = options.wait.map(|wait| started.plus(wait));

    let waiting = match enter(&wish, &claim, gives_up_at, waits)? {
        Entry::Turned => return Ok(None),
        Entry::Waiting(waiting) => waiting,
        Entry::First => match first_try(&wish, claim, options.wait, gives_up_at, waits).await? {
            FirstTry::Held(guard) => return still_held(guard).map(Some),
            FirstTry::Busy => return Ok(None),
            FirstTry::Waiting(waiting) => waiting,
        },
    };
    finish(&wish, waiting.await_turn().await, started).await.map(Some)
}

/// What one who waited since `started` is told.
pub(super) async fn finish(
    wish: &Wish,
    told: Result<Guard, Refusal>,
    started: BootTime,
) -> Result<Guard, LockError> {
    match told {
        Ok(guard) => still_held(guard),
        Err(Refusal::Error(error)) => Err(error),
        Err(Refusal::TimedOut) => {
            let waited = started.until(wish.core.clock.now());
            let holder = holder(&wish.core, wish.kind, &wish.name).await.map(Box::new);
            Err(LockError::TimedOut { name: wish.name.to_string(), waited, holder })
        }
    }
}

/// A lock whose lease is over when the news of it arrives was not acquired.
fn still_held(guard: Guard) -> Result<Guard, LockError> {
    match guard.is_held() {
        true => Ok(guard),
        false => Err(guard.hold().loss().into()),
    }
}

/// Asks the store about a lock.
pub(crate) async fn inspect(
    core: &Core,
    kind: Kind,
    name: &Name,
    until: BootTime,
) -> Result<Info, LockError> {
    let trail = Default::default();
    let answered = core.call(Lane::Caller, kind, name, &Op::Inspect, &trail, until).await?;
    Ok(Info::from_reply(kind, name, &answered.reply))
}

/// Who holds a lock, for a message: not worth a long wait.
async fn holder(core: &Core, kind: Kind, name: &Name) -> Option<Holder> {
    let until = core.clock.now().plus(Duration::from_millis(200));
    inspect(core, kind, name, until).await.ok()?.holder
}

enum Entry {
    /// Nobody is before us: try.
    First,
    /// Others are before us, and we do not wait.
    Turned,
    Waiting(Waiting),
}

fn enter(
    wish: &Wish,
    claim: &Claim,
    gives_up_at: Option<BootTime>,
    waits: bool,
) -> Result<Entry, LockError> {
    let core = &wish.core;
    let mut table = core.table();
    if table.closed {
        return Err(LockError::Closed);
    }
    if table.line(&wish.name).arrive(&claim.owner) {
        return Ok(Entry::First);
    }
    if !waits {
        return Ok(Entry::Turned);
    }
    let (waiter, waiting) = new_waiter(wish, claim.clone(), gives_up_at);
    table.line(&wish.name).join(waiter);
    core.settle(&mut table, &wish.name);
    Ok(Entry::Waiting(waiting))
}

enum FirstTry {
    Held(Guard),
    Busy,
    Waiting(Waiting),
}

async fn first_try(
    wish: &Wish,
    claim: Claim,
    wait: Option<Duration>,
    gives_up_at: Option<BootTime>,
    waits: bool,
) -> Result<FirstTry, LockError> {
    let (core, name) = (&wish.core, &wish.name);
    let patience = core.options.timeout;
    let patience = wait.map_or(patience, |wait| patience.min(wait.max(SHORTEST_TRY)));
    let until = core.clock.now().plus(patience);

    let unfinished = Unfinished { wish, claim: &claim };
    let op = Op::Acquire(claim.clone());
    let answered = core.call(Lane::Caller, wish.kind, name, &op, &wish.trail, until).await;
    std::mem::forget(unfinished);
    let answered = answered.inspect_err(|_| called_off(wish, &claim))?;

    let (reply, sent) = (&answered.reply, answered.sent);
    let now = core.clock.now();
    let mut table = core.table();
    let outcome = if reply.state == State::Held {
        let ends = lease_end(reply.lease, sent);
        table.line(name).attempted(&claim.owner, Found::Held { ends }, now);
        let Reply { token, lease, .. } = *reply;
        let guard = core.enter_hold(&mut table, wish, &claim.owner, token, lease, sent);
        // Nobody would renew it: dropping it gives it back.
        if table.closed { Err(LockError::Closed) } else { Ok(FirstTry::Held(guard)) }
    } else {
        table.line(name).attempted(&claim.owner, Found::Busy { lease: reply.lease }, now);
        if waits && !table.closed {
            let (waiter, waiting) = new_waiter(wish, claim, gives_up_at);
            table.line(name).join_as_head(waiter);
            Ok(FirstTry::Waiting(waiting))
        } else {
            core.clean_up_after(wish, &claim);
            if waits { Err(LockError::Closed) } else { Ok(FirstTry::Busy) }
        }
    };
    core.settle(&mut table, name);
    outcome
}

/// A first try that failed: the next one need not wait until it is cleaned up after.
fn called_off(wish: &Wish, claim: &Claim) {
    let (core, name) = (&wish.core, &wish.name);
    let mut table = core.table();
    table.line(name).attempted(&claim.owner, Found::Unknown, core.clock.now());
    core.settle(&mut table, name);
    core.queue(Task::CleanUp(CleanUp {
        kind: wish.kind,
        name: name.clone(),
        owner: claim.owner.clone(),
        trail: wish.trail.clone(),
        lease_ms: claim.lease_ms,
        then: Then::Nothing,
    }));
}

/// A first try whose future was dropped: whatever it left in the store is undone, and the
/// next one in the line gets its chance.
struct Unfinished<'a> {
    wish: &'a Wish,
    claim: &'a Claim,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.wish.core.queue(Task::CleanUp(CleanUp {
            kind: self.wish.kind,
            name: self.wish.name.clone(),
            owner: self.claim.owner.clone(),
            trail: self.wish.trail.clone(),
            lease_ms: self.claim.lease_ms,
            then: Then::AttemptEnded,
        }));
    }
}

fn new_waiter(
    wish: &Wish,
    claim: Claim,
    gives_up_at: Option<BootTime>,
) -> (Waiter<Ticket>, Waiting) {
    let (tell, told) = oneshot::channel();
    let waiting = Waiting { wish: wish.clone(), owner: claim.owner.clone(), told };
    (
        Waiter { claim, gives_up_at, ticket: Ticket { tell, place: None, wish: wish.clone() } },
        waiting,
    )
}

/// A place in the line, left when this is dropped.
struct Waiting {
    wish: Wish,
    owner: OwnerId,
    told: oneshot::Receiver<Result<Guard, Refusal>>,
}

impl Waiting {
    async fn await_turn(mut self) -> Result<Guard, Refusal> {
        let told = (&mut self.told).await;
        told.unwrap_or(Err(Refusal::Error(LockError::Closed)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let core = &self.wish.core;
        let mut table = core.table();
        let Some(entry) = table.lines.get_mut(&self.wish.name) else { return };
        if let Some(waiter) = entry.line.leave(&self.owner) {
            core.clean_up_after(&self.wish, &waiter.claim);
            core.settle(&mut table, &self.wish.name);
        }
    }
}

/// Even one who wants to wait for a moment only gives the store a fair chance to answer.
pub(super) const SHORTEST_TRY: Duration = Duration::from_millis(500);
