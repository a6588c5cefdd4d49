//! Waiting for a fair lock: a request queues, a heartbeat keeps the place, a message brings the lock.
//!
//! The first request is sent in the caller's own task. From then on the driver keeps all seats of
//! this process for one lock with one heartbeat ([`Seats`]). The lock comes with a message, with the
//! answer to a release of this process, or with the answer to a heartbeat, whatever is first.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{oneshot, watch};

use super::acquire::{SHORTEST_TRY, finish};
use super::call::Answered;
use super::shared::{Core, QueueAnew, Refusal, Shared, Table, Task, Ticket, Wish};
use crate::engine::{Generation, Grant, Lane};
use crate::error::{LockError, StoreError};
use crate::ids::{Name, OwnerId, Token};
use crate::lock::Guard;
use crate::options::Options;
use crate::protocol::model::fair::{Beaten, Heartbeat};
use crate::protocol::op::{Kind, Lease, Op, Reply, State};
use crate::protocol::seat::Belief;
use crate::protocol::seats::{Queued, SeatId, Seats, Sitting, Step};
use crate::time::BootTime;

/// The seats for one lock, and when the driver is to look at them.
#[derive(Debug)]
pub(crate) struct SeatsEntry {
    pub(crate) seats: Seats<Ticket>,
    pub(crate) timer: Option<BootTime>,
}

/// Acquires a fair lock; `None` if it is not to be had without waiting and `waits` is false. Shows
/// the place in line to one who watches it.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    name: &Name,
    options: &Options,
    waits: bool,
    place: Option<watch::Sender<u64>>,
) -> Result<Option<Guard>, LockError> {
    let plan = options.plan(core.options.lease)?;
    let wish = Wish {
        core: core.clone(),
        kind: Kind::Fair,
        name: name.clone(),
        plan,
        trail: Arc::default(),
    };
    let started = core.clock.now();
    let gives_up_at = match waits {
        true => options.wait.map(|wait| started.plus(wait)),
        false => None,
    };
    let patience = core.options.timeout;
    let patience = options.wait.map_or(patience, |wait| patience.min(wait.max(SHORTEST_TRY)));
    if waits {
        let heard = tokio::time::timeout(patience, core.hear_grants()).await;
        heard.unwrap_or_else(|_| Err(core.unreachable()))?;
    }
    let mut waiting = Waiting::sit(&wish, gives_up_at, place)?;
    let claim = waiting.claim.clone();
    let op = match waits {
        true => Op::Queue { claim, ticket: None },
        false => Op::Acquire(claim),
    };
    let until = started.plus(patience);
    if waits && !waiting.is_alone {
        let_others_go_first().await;
        // A client that was closed meanwhile has sent everybody away.
        if let Ok(told) = waiting.told.try_recv() {
            return finish(&wish, told, started).await.map(Some);
        }
    }
    let answered = core.call(Lane::Caller, Kind::Fair, name, &op, &wish.trail, until).await;
    if let Ok(told) = waiting.told.try_recv() {
        // The lock has come by a message, or there will be none. In that case the request may have
        // come after what was cleaned up.
        if told.is_err() {
            core.clean_up(&wish, &waiting.claim.owner);
        }
        return finish(&wish, told, started).await.map(Some);
    }
    match answered {
        Err(error) => return Err(error.into()),
        Ok(answered) if answered.reply.state == State::Busy => {
            core.came_with(name, &answered.reply, answered.sent);
            waiting.leave_unqueued();
            return Ok(None);
        }
        Ok(answered) if waits => core.asked(name, waiting.seat, &answered),
        Ok(answered) => core.took(name, waiting.seat, &answered),
    }
    let told = (&mut waiting.told).await.unwrap_or(Err(Refusal::Error(LockError::Closed)));
    finish(&wish, told, started).await.map(Some)
}

/// With others of this process in the queue, one of them may just have got the lock, from the very
/// task that asks for it again. Its release is what everybody waits for: lets it be sent first, and
/// the server work on it while this request is made.
async fn let_others_go_first() {
    // About a turn for the one that has the lock, and one for the connection.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
}

/// A seat, left when this is dropped.
struct Waiting {
    wish: Wish,
    claim: crate::protocol::op::Claim,
    seat: SeatId,
    told: oneshot::Receiver<Result<Guard, Refusal>>,
    /// Nobody else of this process waited for the lock when this one came.
    is_alone: bool,
}

impl Waiting {
    /// Sits down, before anything is sent.
    fn sit(
        wish: &Wish,
        gives_up_at: Option<BootTime>,
        place: Option<watch::Sender<u64>>,
    ) -> Result<Self, LockError> {
        let core = &wish.core;
        let (tell, told) = oneshot::channel();
        let claim = core.new_claim(wish.plan.lease_ms);
        let ticket = Ticket { tell, place, wish: wish.clone() };
        let mut table = core.table();
        if table.closed {
            return Err(LockError::Closed);
        }
        let now = core.clock.now();
        table.sitting.insert(claim.owner.clone(), wish.name.clone());
        let seat = table.next_seat;
        table.next_seat.0 += 1;
        let seats = table.seats(&wish.name);
        let is_alone = seats.is_done();
        seats.sit(seat, claim.clone(), gives_up_at, ticket, now);
        core.settle_seats(&mut table, &wish.name);
        Ok(Self { wish: wish.clone(), claim, seat, told, is_alone })
    }

    /// Leaves after an answer that says that it never was in the store's queue.
    fn leave_unqueued(&self) {
        let core = &self.wish.core;
        let mut table = core.table();
        let Some(entry) = table.seats.get_mut(&self.wish.name) else { return };
        if let Some(sitting) = entry.seats.leave(self.seat) {
            core.stop_hearing_java(&sitting);
            table.sitting.remove(&self.claim.owner);
            // Another copy of the request may still be on its way.
            core.clean_up_after(&self.wish, &self.claim);
            core.settle_seats(&mut table, &self.wish.name);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let core = &self.wish.core;
        let mut table = core.table();
        let Some(entry) = table.seats.get_mut(&self.wish.name) else { return };
        if let Some(sitting) = entry.seats.leave(self.seat) {
            core.leave_queue(&mut table, &sitting);
            core.settle_seats(&mut table, &self.wish.name);
        }
    }
}

impl Shared {
    /// Sees to it that messages about grants are heard.
    pub(crate) async fn hear_grants(&self) -> Result<(), StoreError> {
        let mut ear = self.ear.lock().await;
        if ear.is_some_and(|generation| generation > self.table().deaf_up_to) {
            return Ok(());
        }
        *ear = Some(self.retry_listening(|| self.engine.hear_grants()).await?);
        Ok(())
    }

    /// Whether messages about grants are not heard, and nobody is about to change that.
    fn is_deaf(&self) -> bool {
        let heard = |generation: Generation| generation > self.table().deaf_up_to;
        self.ear.try_lock().is_ok_and(|ear| !ear.is_some_and(heard))
    }

    /// One who asked has the lock, for however long.
    fn took(&self, name: &Name, seat: SeatId, answered: &Answered) {
        let reply = &answered.reply;
        let mut table = self.table();
        let sitting = table.seats.get_mut(name).and_then(|entry| entry.seats.leave(seat));
        if let Some(sitting) = sitting {
            self.seated(&mut table, sitting, reply.token, reply.lease, answered.sent);
        }
        self.settle_seats(&mut table, name);
    }

    /// What the answer to the request of one who waits means.
    fn asked(&self, name: &Name, seat: SeatId, answered: &Answered) {
        let (reply, now) = (&answered.reply, self.clock.now());
        if reply.state == State::Held && is_fresh(reply.lease, answered.sent, now) {
            return self.took(name, seat, answered);
        }
        let mut table = self.table();
        // For one that has the lock, but not for long, the next heartbeat asks once more.
        let period = self.options.heartbeat();
        let mut queued = queued(reply, answered.sent);
        if reply.position == 0 {
            // An earlier copy has queued it, and its answer is lost.
            let first = self.server_clock.at(answered.first_sent);
            queued.server_time = queued.server_time.min(first);
        }
        table.seats(name).queued(seat, queued, period, now);
        if let Some(ticket) = table.seats(name).teller(seat)
            && reply.position > 0
        {
            ticket.show_place(reply.position);
        }
        if reply.state == State::Held {
            table.seats(name).wake();
        }
        self.mind_java(&mut table, name, reply);
        self.settle_seats(&mut table, name);
        drop(table);
        self.came_with(name, reply, answered.sent);
    }

    /// An answer may name somebody of this process who has the lock now.
    pub(crate) fn came_with(&self, name: &Name, reply: &Reply, sent: BootTime) {
        let Some(owner) = &reply.grantee else { return };
        let mut table = self.table();
        self.has_come(&mut table, name, owner, reply, sent);
        self.settle_seats(&mut table, name);
    }

    /// An answer says that one who waited has the lock. If it was long under way, the lock may be
    /// gone again: the next heartbeat tells.
    fn has_come(
        &self,
        table: &mut Table,
        name: &Name,
        owner: &OwnerId,
        reply: &Reply,
        sent: BootTime,
    ) {
        let entry = table.seats.get_mut(name);
        let Some(entry) = entry.filter(|entry| entry.seats.is_seated(owner)) else { return };
        if !is_fresh(reply.lease, sent, self.clock.now()) {
            entry.seats.wake();
        } else if let Some(sitting) = entry.seats.leave_as(owner) {
            self.seated(table, sitting, reply.token, reply.lease, sent);
        }
    }

    /// A message says that somebody has the lock.
    pub(crate) fn heard_of(&self, table: &mut Table, grant: &Grant) {
        let now = self.clock.now();
        let Some(name) = table.sitting.get(&grant.owner).cloned() else { return };
        let Some(entry) = table.seats.get_mut(&name) else { return };
        let belief = entry.seats.granted(&grant.owner, grant.token, grant.granted_ms, now);
        if let Belief::Held { until } = belief
            && let Some(sitting) = entry.seats.leave_as(&grant.owner)
        {
            let lease = Lease::Ms(grant.granted_ms);
            let sent = until.minus(std::time::Duration::from_millis(grant.granted_ms));
            self.seated(table, sitting, grant.token, lease, sent);
        }
        self.settle_seats(table, &name);
    }

    /// Somebody who waited has the lock.
    fn seated(
        &self,
        table: &mut Table,
        sitting: Sitting<Ticket>,
        token: Token,
        lease: Lease,
        sent: BootTime,
    ) {
        self.stop_hearing_java(&sitting);
        let Sitting { claim, tell: Ticket { tell, wish, .. }, .. } = sitting;
        table.sitting.remove(&claim.owner);
        table.queueing_anew.remove(&claim.owner);
        let guard = self.enter_hold(table, &wish, &claim.owner, token, lease, sent);
        // A receiver that is gone drops the guard, and that gives the lock back.
        tell.send(Ok(guard)).ok();
    }

    /// Takes one who does not wait any more out of the store's queue, for sure.
    pub(crate) fn leave_queue(&self, table: &mut Table, sitting: &Sitting<Ticket>) {
        self.stop_hearing_java(sitting);
        table.sitting.remove(&sitting.claim.owner);
        table.queueing_anew.remove(&sitting.claim.owner);
        self.clean_up(&sitting.tell.wish, &sitting.claim.owner);
    }

    /// Redisson tells the head of the queue on a channel of its own that the lock is free.
    fn mind_java(&self, table: &mut Table, name: &Name, reply: &Reply) {
        if reply.foreign {
            let owners = table.seats(name).begin_to_hear_java();
            if !owners.is_empty() {
                self.queue(Task::HearJava(name.clone(), owners));
            }
        }
    }

    fn stop_hearing_java(&self, sitting: &Sitting<Ticket>) {
        if sitting.hears_java {
            let (name, owner) = (sitting.tell.wish.name.clone(), sitting.claim.owner.clone());
            self.queue(Task::StopHearingJava(name, owner));
        }
    }

    /// Tells one who waited that there is no lock for it.
    pub(crate) fn refuse_seat(
        &self,
        table: &mut Table,
        sitting: Sitting<Ticket>,
        refusal: Refusal,
    ) {
        self.leave_queue(table, &sitting);
        sitting.tell.tell.send(Err(refusal)).ok();
    }

    /// Does what the seats want after something has changed.
    pub(crate) fn settle_seats(&self, table: &mut Table, name: &Name) {
        let Some(entry) = table.seats.get_mut(name) else { return };
        let timer = match entry.seats.poll(self.clock.now()) {
            Step::Rest(timer) => timer,
            Step::Beat(owners) => {
                self.queue(Task::Beat(name.clone(), Heartbeat { waiting: owners }));
                entry.seats.next_give_up()
            }
        };
        let old = std::mem::replace(&mut entry.timer, timer);
        if entry.seats.is_done() {
            table.seats.remove(name);
            self.engine.stop_awaiting(name);
        }
        if old != timer {
            if let Some(old) = old {
                table.seat_timers.remove(&(old, name.clone()));
            }
            if let Some(timer) = timer {
                table.seat_timers.insert((timer, name.clone()));
                self.wake_driver(table);
            }
        }
    }

    /// Looks at the seats whose time has come.
    pub(crate) fn step_seats(&self, table: &mut Table, now: BootTime) {
        while let Some((_, name)) = table.seat_timers.first().filter(|(at, _)| *at <= now).cloned()
        {
            table.seat_timers.pop_first();
            let Some(entry) = table.seats.get_mut(&name) else { continue };
            entry.timer = None;
            for sitting in entry.seats.give_up(now) {
                self.refuse_seat(table, sitting, Refusal::TimedOut);
            }
            self.settle_seats(table, &name);
        }
    }
}

/// Sends a heartbeat, and does what its answer asks for.
pub(super) async fn beat(shared: Arc<Shared>, name: Name, beat: Heartbeat) {
    let result = shared.beat(&name, &beat).await;
    let answered = result.is_ok();
    let watched = match result {
        Ok((beaten, sent)) => beaten_is(&shared, &name, &beat, beaten, sent),
        Err(error) => {
            beat_failed(&shared, &name, &error);
            false
        }
    };
    if watched {
        show_places(&shared, &name).await;
    }
    // The store can be reached again, but nobody tells us anything: an outage was so long that the
    // attempt to listen again was given up.
    if answered && shared.is_deaf() {
        shared.queue(Task::HearGrants);
    }
}

/// What the answer to a heartbeat means. Says whether somebody watches its place.
fn beaten_is(
    shared: &Arc<Shared>,
    name: &Name,
    beat: &Heartbeat,
    Beaten { states, reply }: Beaten,
    sent: BootTime,
) -> bool {
    let (now, period) = (shared.clock.now(), shared.options.heartbeat());
    let states: Vec<(&OwnerId, State)> = beat.waiting.iter().zip(states).collect();
    let in_state = |wanted: State| {
        states.iter().filter(move |(_, state)| *state == wanted).map(|(owner, _)| (*owner).clone())
    };
    let mut table = shared.table();
    table.seats(name).beaten(in_state(State::Queued), queued(&reply, sent), period, now);
    for owner in in_state(State::Held) {
        shared.has_come(&mut table, name, &owner, &reply, sent);
    }
    for owner in in_state(State::NotHeld) {
        ask_anew(shared, &mut table, name, &owner);
    }
    let watched = table.seats(name).iter().any(|(_, ticket)| ticket.place.is_some());
    shared.mind_java(&mut table, name, &reply);
    shared.settle_seats(&mut table, name);
    watched
}

fn beat_failed(shared: &Shared, name: &Name, error: &StoreError) {
    let mut table = shared.table();
    table.seats(name).beat_failed(shared.options.heartbeat(), shared.clock.now());
    if error.is_transient() {
        tracing::warn!(lock = %name, %error, "a heartbeat failed, trying again");
    } else {
        for sitting in table.seats(name).disband() {
            let refusal = Refusal::Error(LockError::Store(error.clone()));
            shared.refuse_seat(&mut table, sitting, refusal);
        }
    }
    shared.settle_seats(&mut table, name);
}

/// Shows their places to those who watch them, once per heartbeat. Not worth a second try.
async fn show_places(shared: &Shared, name: &Name) {
    let (trail, until) = (Default::default(), shared.patience());
    let seen = shared.call(Lane::Driver, Kind::Fair, name, &Op::Inspect, &trail, until).await;
    let Some(details) = seen.ok().and_then(|answered| answered.reply.details) else { return };
    let places: HashMap<&OwnerId, u64> =
        details.waiters.iter().map(|waiting| &waiting.owner).zip(1..).collect();
    let mut table = shared.table();
    let Some(entry) = table.seats.get_mut(name) else { return };
    for (owner, ticket) in entry.seats.iter() {
        if let Some(place) = places.get(owner) {
            ticket.show_place(*place);
        }
    }
}

impl Ticket {
    fn show_place(&self, place: u64) {
        let Some(watched) = &self.place else { return };
        watched.send_if_modified(|shown| std::mem::replace(shown, place) != place);
    }
}

/// Subscribes for what Redisson tells these waiters, and looks again: it may have told them already.
pub(super) async fn hear_java(shared: Arc<Shared>, name: Name, owners: Vec<OwnerId>) {
    let still_waits = |owner: &OwnerId| {
        let table = shared.table();
        table.seats.get(&name).is_some_and(|entry| entry.seats.hears_java(owner))
    };
    for owner in owners.iter().filter(|owner| still_waits(owner)) {
        let heard = shared.retry_listening(|| shared.engine.hear_java(&name, owner)).await;
        if heard.is_err() {
            // The next heartbeat tries again.
            if let Some(entry) = shared.table().seats.get_mut(&name) {
                entry.seats.deaf_to_java_is(owner);
            }
        } else if !still_waits(owner) {
            shared.queue(Task::StopHearingJava(name.clone(), owner.clone()));
        }
    }
    let mut table = shared.table();
    let Some(entry) = table.seats.get_mut(&name) else { return };
    entry.seats.wake();
    shared.settle_seats(&mut table, &name);
}

/// The store has dropped a place, although its owner lives: it leaves for good and queues again.
fn ask_anew(shared: &Arc<Shared>, table: &mut Table, name: &Name, owner: &OwnerId) {
    let Some(lease_ms) = table.seats(name).lease_ms(owner) else { return };
    if table.seats(name).hears_java(owner) {
        shared.queue(Task::StopHearingJava(name.clone(), owner.clone()));
    }
    let claim = shared.new_claim(lease_ms);
    let now = shared.clock.now();
    let asked = table.seats(name).ask_anew(owner, claim.clone(), now);
    let Some((seat, ticket, wish)) =
        asked.map(|(seat, ticket, old)| (seat, ticket, old.wish.clone()))
    else {
        return;
    };
    table.sitting.remove(owner);
    table.sitting.insert(claim.owner.clone(), name.clone());
    let (stays, gone) = oneshot::channel();
    table.queueing_anew.insert(claim.owner.clone(), stays);
    shared.clean_up(&wish, owner);
    shared.queue(Task::QueueAnew(QueueAnew { seat, wish, claim, ticket, gone }));
}

/// Queues for one who lost its place. Not any more once it has left, or has got the lock by a message:
/// its clean-up or its release then counts a request that is on its way as one without an answer. An
/// answer would not do: the request may have come after the release.
pub(super) async fn queue_anew(shared: Arc<Shared>, anew: QueueAnew) {
    let QueueAnew { seat, wish, claim, ticket, mut gone } = anew;
    let op = Op::Queue { claim: claim.clone(), ticket };
    let answered = loop {
        let until = shared.patience();
        let call = shared.call(Lane::Driver, Kind::Fair, &wish.name, &op, &wish.trail, until);
        let answered = tokio::select! {
            biased;
            _ = &mut gone => return,
            answered = call => answered,
        };
        match answered {
            // As with heartbeats: an outage is no reason to stop waiting.
            Err(error) if error.is_transient() => {
                tracing::warn!(lock = %wish.name, %error, "could not queue anew, trying again");
                shared.pause(shared.options.heartbeat() / 10).await;
            }
            answered => break answered,
        }
    };
    shared.table().queueing_anew.remove(&claim.owner);
    match answered {
        Ok(answered) => shared.asked(&wish.name, seat, &answered),
        Err(error) => {
            let mut table = shared.table();
            let entry = table.seats.get_mut(&wish.name);
            if let Some(sitting) = entry.and_then(|entry| entry.seats.leave(seat)) {
                shared.refuse_seat(&mut table, sitting, Refusal::Error(LockError::Store(error)));
                shared.settle_seats(&mut table, &wish.name);
            }
        }
    }
}

/// Whether at least half of a lease is left, counted from when it was asked for: what a grant by
/// message has to have, too.
fn is_fresh(lease: Lease, sent: BootTime, now: BootTime) -> bool {
    match lease {
        Lease::Ms(left) => now < sent.plus_ms(left / 2),
        Lease::Endless => true,
        Lease::None => false,
    }
}

fn queued(reply: &Reply, sent: BootTime) -> Queued {
    Queued { sent, server_time: reply.server_time, token: reply.token, lease: reply.lease }
}

impl Table {
    /// The seats for a lock, made if there are none.
    pub(crate) fn seats(&mut self, name: &Name) -> &mut Seats<Ticket> {
        let entry = self.seats.entry(name.clone());
        &mut entry.or_insert_with(|| SeatsEntry { seats: Seats::new(), timer: None }).seats
    }
}
