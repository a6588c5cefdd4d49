//! The fair lock: first come, first served.
//!
//! Beside the hold and the record of the reentrant lock there is a queue. It is Redisson's: a list
//! of owners and a score for each, the time after which Java takes a waiter for dead. fairlock adds
//! *places*, kept alive by heartbeats: a fairlock waiter lives as long as its place, whatever its
//! score; scores serve only Java.
//!
//! Whatever operation finds the lock free gives it to the head of the queue ([`pass_on`]), which
//! needs no request of its own for it. A Java head is only told: it comes and takes the lock itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::reentrant::{LockState, Message};
use crate::ids::{OwnerId, Token};
use crate::protocol::op::{Claim, Lease, Op, Reply, State, Ticket, Waiting};
use crate::time::ServerTime;

/// Who waits for a lock, as the store keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    /// In the order of service.
    pub(crate) list: VecDeque<OwnerId>,
    /// Until when Java waits for each of them, in ms.
    pub(crate) scores: BTreeMap<OwnerId, u64>,
    pub(crate) places: BTreeMap<OwnerId, Place>,
    /// When all of it is forgotten; `None` while only Java is in there, which sets no end.
    pub(crate) ends: Option<ServerTime>,
}

/// The place of a fairlock waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// When it queued first: its order among fairlock waiters when it has to queue again.
    pub(crate) ticket: Ticket,
    /// When it counts as dead, unless a heartbeat comes before.
    pub(crate) deadline: ServerTime,
    pub(crate) lease_ms: u64,
    /// What Java's waiters before it can take from its score: it is kept ahead of the clock by so
    /// much more.
    pub(crate) waits_ms: u64,
    pub(crate) identity: Arc<str>,
}

/// What an operation is executed in.
pub(crate) struct Context<'a> {
    pub(crate) now: ServerTime,
    /// After that the request changes nothing.
    pub(crate) expires: ServerTime,
    /// How long a place lives without a heartbeat, and a grant without a word from its owner.
    pub(crate) waiter_ttl_ms: u64,
    /// Who asks: what concerns one of its own owners stands in the reply.
    pub(crate) client: &'a str,
    /// Whether a client would hear a message.
    pub(crate) hears: &'a dyn Fn(&str) -> bool,
}

/// The waiters of one client for one lock, who want to keep their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub(crate) waiting: Vec<OwnerId>,
}

/// What a heartbeat answers: for each waiter, whether it is `Queued`, `Held` or `NotHeld`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beaten {
    pub(crate) states: Vec<State>,
    /// The lock as a whole; its state is `Late`, `Busy` or `Free`. The grantee is one of the asking
    /// client's waiters that has the lock now.
    pub(crate) reply: Reply,
}

/// Executes one operation.
pub(crate) fn apply(lock: &mut LockState, op: &Op, context: &Context<'_>) -> (Reply, Message) {
    let now = context.now;
    lock.expire(now);
    if now > context.expires {
        return (lock.reply(State::Late, now), Message::None);
    }
    match op {
        Op::Acquire(claim) => acquire(lock, claim, None, context),
        Op::Queue { claim, ticket } => acquire(lock, claim, Some(*ticket), context),
        Op::Reenter { owner, count, lease_ms } => {
            (lock.reenter(owner, *count, *lease_ms, now), Message::None)
        }
        Op::Release { owner, remaining, .. } => release(lock, owner, *remaining, context),
        Op::Inspect => (lock.inspect(now), Message::None),
    }
}

/// Executes the heartbeat of one client's waiters: refreshes all of them first.
pub(crate) fn beat(
    lock: &mut LockState,
    beat: &Heartbeat,
    context: &Context<'_>,
) -> (Beaten, Message) {
    let now = context.now;
    lock.expire(now);
    if now > context.expires {
        let reply = lock.reply(State::Late, now);
        return (Beaten { states: Vec::new(), reply }, Message::None);
    }
    let last = beat.waiting.iter().filter_map(|owner| refresh(lock, owner, context)).max();
    lock.queue.set_end(last, now);
    let message = pass_on(lock, context);
    let states = beat.waiting.iter().map(|owner| lock.state_of(owner)).collect();
    let state = if lock.hold.is_some() { State::Busy } else { State::Free };
    let reply = Reply { foreign: is_foreign(lock), ..lock.reply(state, now) };
    (Beaten { states, reply: with_grantee(lock, reply, context) }, message)
}

/// Takes the lock, or queues for it if there is a `ticket` to do so with. Asking again is harmless:
/// a holder is told so, a waiter keeps its place.
fn acquire(
    lock: &mut LockState,
    claim: &Claim,
    ticket: Option<Option<Ticket>>,
    context: &Context<'_>,
) -> (Reply, Message) {
    let (now, owner) = (context.now, &claim.owner);
    if lock.holds(owner) {
        let token = lock.token_of(claim, now);
        return (Reply { token, ..lock.reply(State::Held, now) }, Message::None);
    }
    let score = refresh(lock, owner, context);
    lock.queue.set_end(score, now);
    let message = pass_on(lock, context);
    if lock.holds(owner) {
        // A grant in a request of its own: no need to wait for a sign of life.
        if let Some(hold) = &mut lock.hold {
            hold.ends = hold.ends.max(now.plus_ms(claim.lease_ms));
        }
        let token = lock.token_of(claim, now);
        return (Reply { token, ..lock.reply(State::Held, now) }, message);
    }
    if lock.hold.is_none() && lock.queue.list.is_empty() {
        let token = lock.grant(claim, now);
        return (Reply { token, ..lock.reply(State::Held, now) }, message);
    }
    let Some(ticket) = ticket else {
        return (with_grantee(lock, lock.reply(State::Busy, now), context), message);
    };
    let mut position = 0;
    if !lock.queue.is_queued(owner) {
        enqueue(lock, claim, ticket, context);
        position = lock.queue.list.len() as u64;
    }
    let foreign = is_foreign(lock);
    let reply = Reply { position, foreign, ..lock.reply(State::Queued, now) };
    (with_grantee(lock, reply, context), message)
}

/// Gives back, or leaves: whatever the owner has here is gone, and the lock goes on.
fn release(
    lock: &mut LockState,
    owner: &OwnerId,
    remaining: u32,
    context: &Context<'_>,
) -> (Reply, Message) {
    let now = context.now;
    let held = lock.holds(owner);
    if let Some(hold) = lock.hold.as_mut().filter(|_| held && remaining > 0) {
        hold.count = remaining;
        let token = lock.recorded_token(owner);
        return (Reply { token, ..lock.reply(State::Held, now) }, Message::None);
    }
    if held {
        // Who has the lock is not in the queue any more.
        lock.hold = None;
    } else if lock.queue.knows(owner) {
        lock.queue.remove(owner);
    }
    let message = pass_on(lock, context);
    let state = if held { State::Released } else { State::NotHeld };
    (with_grantee(lock, lock.reply(state, now), context), message)
}

/// Gives a free lock to the first in the queue who is alive. One of the asking client is named in
/// the reply, any other is told by a message.
fn pass_on(lock: &mut LockState, context: &Context<'_>) -> Message {
    let now = context.now;
    if lock.hold.is_some() {
        return Message::None;
    }
    while let Some(head) = lock.queue.list.front().cloned() {
        if !head.is_fairlock() {
            if lock.queue.scores.get(&head).is_some_and(|score| *score > now.as_ms()) {
                return Message::Call(head);
            }
            // Past its score, or without one: Java would wait for it for ever.
            lock.queue.remove_head();
            continue;
        }
        let place = lock.queue.places.get(&head).filter(|place| place.deadline >= now);
        let is_own = client_of(&head) == context.client;
        let hears = || is_own || (context.hears)(client_of(&head));
        let Some(place) = place.cloned().filter(|_| hears()) else {
            lock.queue.remove_head();
            continue;
        };
        lock.queue.remove_head();
        let granted_ms = place.lease_ms.min(context.waiter_ttl_ms);
        let claim = Claim { owner: head.clone(), lease_ms: granted_ms, identity: place.identity };
        let token = lock.grant(&claim, now);
        return match is_own {
            true => Message::None,
            false => Message::Grant { owner: head, token, granted_ms },
        };
    }
    // Scores and places of those who are in the list no more.
    lock.queue = Queue::default();
    Message::None
}

/// A first enqueue goes to the end. Who comes back goes before the first fairlock waiter that
/// queued later than it did.
fn enqueue(lock: &mut LockState, claim: &Claim, ticket: Option<Ticket>, context: &Context<'_>) {
    let now = context.now;
    // What is left of an earlier life of this entry.
    let comes_back = ticket.is_some() || lock.queue.knows(&claim.owner);
    if comes_back {
        lock.queue.remove(&claim.owner);
    }
    let queue = &mut lock.queue;
    let before = ticket.and_then(|ticket| {
        let later = |owner: &OwnerId| {
            owner.is_fairlock() && queue.places.get(owner).is_some_and(|p| p.ticket > ticket)
        };
        queue.list.iter().position(later)
    });
    let lease_ms = lock.hold.as_ref().map_or(0, |hold| now.ms_until(hold.ends));
    let waits_ms = queue.waits_ms(now, lease_ms);
    let score = now.as_ms() + least_margin_ms(context.waiter_ttl_ms) + waits_ms;
    // What is made anew has no end yet.
    queue.ends.take_if(|_| comes_back || queue.list.is_empty());
    match before {
        Some(place) => queue.list.insert(place, claim.owner.clone()),
        None => queue.list.push_back(claim.owner.clone()),
    }
    queue.scores.insert(claim.owner.clone(), score);
    let place = Place {
        ticket: ticket.unwrap_or(Ticket(now.0)),
        deadline: now.plus_ms(context.waiter_ttl_ms),
        lease_ms: claim.lease_ms,
        waits_ms,
        identity: claim.identity.clone(),
    };
    queue.places.insert(claim.owner.clone(), place);
    queue.set_end(Some(score), now);
}

/// A sign of life. It revives a place that still is one, and never makes one. Returns the score of
/// one in the queue.
fn refresh(lock: &mut LockState, owner: &OwnerId, context: &Context<'_>) -> Option<u64> {
    let now = context.now;
    if lock.holds(owner) {
        return None;
    }
    let Queue { list, scores, places, .. } = &mut lock.queue;
    let (place, score) = (places.get_mut(owner)?, scores.get_mut(owner)?);
    place.deadline = place.deadline.max(now.plus_ms(context.waiter_ttl_ms));
    if place.waits_ms > 0 && list.iter().all(OwnerId::is_fairlock) {
        place.waits_ms = 0;
    }
    *score = (*score).max(now.as_ms() + least_margin_ms(context.waiter_ttl_ms) + place.waits_ms);
    Some(*score)
}

/// The token in a reply is that of the grantee, else the last one drawn: a grant that comes by
/// message counts only if its token is larger.
fn with_grantee(lock: &LockState, reply: Reply, context: &Context<'_>) -> Reply {
    // Also one that was granted before: its message may be lost.
    let holder = lock.hold.as_ref().map(|hold| hold.owner.clone());
    let grantee = holder.filter(|owner| client_of(owner) == context.client);
    let lease = match lock.queue.list.front().and_then(|head| lock.queue.scores.get(head)) {
        // Reserved for a Java waiter until then.
        Some(score) if lock.hold.is_none() => {
            Lease::Ms(score.saturating_sub(reply.server_time.as_ms()))
        }
        _ => reply.lease,
    };
    Reply { token: lock.last_token(), grantee, lease, ..reply }
}

/// Whether Redisson holds the lock or waits for it, and so tells waiters in its own way.
fn is_foreign(lock: &LockState) -> bool {
    let held_by_java = lock.hold.as_ref().is_some_and(|hold| !hold.owner.is_fairlock());
    held_by_java || lock.queue.java() > 0
}

/// The client that an owner belongs to.
pub(crate) fn client_of(owner: &OwnerId) -> &str {
    owner.as_str().split_once(':').map_or(owner.as_str(), |(client, _)| client)
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.scores.is_empty() && self.places.is_empty()
    }

    /// In the list with a score, and with a place. Redisson takes list entry and score away
    /// together, so the score answers for both.
    fn is_queued(&self, owner: &OwnerId) -> bool {
        self.places.contains_key(owner) && self.scores.contains_key(owner)
    }

    /// Whether something of this owner may be in here: what a look through the list is saved by.
    fn knows(&self, owner: &OwnerId) -> bool {
        self.scores.contains_key(owner) || self.places.contains_key(owner)
    }

    pub(crate) fn waiters(&self) -> Vec<Waiting> {
        let waiting = |owner: &OwnerId| Waiting {
            owner: owner.clone(),
            score: self.scores.get(owner).copied(),
            place: self.places.get(owner).map(|place| (place.ticket, place.deadline)),
        };
        self.list.iter().map(waiting).collect()
    }

    fn remove(&mut self, owner: &OwnerId) {
        self.list.retain(|entry| entry != owner);
        self.scores.remove(owner);
        self.places.remove(owner);
        self.forget_end_if_java_is_alone();
    }

    fn remove_head(&mut self) {
        if let Some(head) = self.list.pop_front() {
            self.scores.remove(&head);
            self.places.remove(&head);
            self.forget_end_if_java_is_alone();
        }
    }

    /// How many of Redisson's are in the list; fewer if it has taken away a dead waiter of ours, but
    /// not its place. Good enough to know whether to listen to it.
    fn java(&self) -> usize {
        self.list.len().saturating_sub(self.places.len())
    }

    /// What the waiters of Java can take from the score of one who queues now. Java takes a head
    /// whose score has passed for dead, and subtracts the whole wait of each of its own waiters from
    /// all scores when that one is served or leaves.
    fn waits_ms(&self, now: ServerTime, lease_ms: u64) -> u64 {
        let Some(tail) = self.list.back() else { return 0 };
        match self.places.get(tail).filter(|_| tail.is_fairlock()) {
            Some(place) => place.waits_ms,
            None => self.java_waits_ms(now, lease_ms),
        }
    }

    /// How long a Java waiter waits stands nowhere. It has put its wait on top of the score of the
    /// one before it, or of the lease, and what is left of that can be seen. Who has little left has
    /// asked for a short wait; anybody else waits for as long as Java does by itself. More than that
    /// is never counted: Java's scores are built on ours, and ours must not be built on them.
    fn java_waits_ms(&self, now: ServerTime, lease_ms: u64) -> u64 {
        let (mut sum, mut base) = (0, now.as_ms() + lease_ms.min(JAVA_LEASE_MS));
        for owner in &self.list {
            let score = self.scores.get(owner).copied().unwrap_or_default();
            if !owner.is_fairlock() {
                let left = score.saturating_sub(base);
                sum += if left > SHORT_WAIT_MS { JAVA_WAIT_MS } else { 2 * left };
            }
            base = score.max(now.as_ms());
        }
        sum
    }

    /// List, scores and places end together, about a day beyond the last score: moving their end
    /// costs, so it is not done for less than an hour.
    fn set_end(&mut self, score: Option<u64>, now: ServerTime) {
        let Some(score) = score else { return };
        let wanted = score.saturating_sub(now.as_ms()) + FORGOTTEN_AFTER_MS;
        if self.ends.is_none_or(|ends| now.ms_until(ends) < wanted - END_MOVES_BY_MS) {
            self.ends = Some(ServerTime(score * 1_000).plus_ms(FORGOTTEN_AFTER_MS));
        }
    }

    fn forget_end_if_java_is_alone(&mut self) {
        if self.places.is_empty() {
            self.ends = None;
        }
    }
}

impl LockState {
    fn state_of(&self, owner: &OwnerId) -> State {
        match self.holds(owner) {
            true => State::Held,
            false if self.queue.is_queued(owner) => State::Queued,
            false => State::NotHeld,
        }
    }

    fn last_token(&self) -> Token {
        self.record.as_ref().map_or(Token(0), |(record, _)| record.token)
    }
}

/// Several heartbeats: as long as a waiter that missed one or two is not dead.
fn least_margin_ms(waiter_ttl_ms: u64) -> u64 {
    2 * waiter_ttl_ms
}

/// How long a Java waiter waits, as far as its score goes, unless it says so itself.
const JAVA_WAIT_MS: u64 = 300_000;
/// A Java waiter with so little left is one that has asked for a short wait.
const SHORT_WAIT_MS: u64 = 30_000;
/// The lease that Java keeps by itself: a longer one need not have been there when it queued.
const JAVA_LEASE_MS: u64 = 30_000;
/// The keys of a queue outlive its last score by about a day: never one of them alone.
const FORGOTTEN_AFTER_MS: u64 = 86_400_000;
const END_MOVES_BY_MS: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::redisson::{self, Attempt, Tried};

    const WAIT_MS: u64 = 300_000;

    fn at(ms: u64) -> ServerTime {
        ServerTime((1_000_000_000 + ms) * 1_000)
    }

    fn fairlock(number: u64) -> OwnerId {
        OwnerId::new(format!("00000000-0000-8000-8000-000000000000:{number}"))
    }

    fn java(number: u64) -> OwnerId {
        OwnerId::new(format!("00000000-0000-4000-8000-000000000000:{number}"))
    }

    fn context(ms: u64) -> Context<'static> {
        Context {
            now: at(ms),
            expires: at(ms),
            waiter_ttl_ms: 10_000,
            client: "",
            hears: &|_| true,
        }
    }

    fn queue(lock: &mut LockState, number: u64, lease_ms: u64, ms: u64) -> State {
        let claim = Claim { owner: fairlock(number), lease_ms, identity: "".into() };
        apply(lock, &Op::Queue { claim, ticket: None }, &context(ms)).0.state
    }

    fn release(lock: &mut LockState, number: u64, ms: u64) {
        let op = Op::Release { owner: fairlock(number), remaining: 0, next: None };
        apply(lock, &op, &context(ms));
    }

    fn sign_of_life(lock: &mut LockState, number: u64, ms: u64) {
        beat(lock, &Heartbeat { waiting: vec![fairlock(number)] }, &context(ms));
    }

    fn java_tries(lock: &mut LockState, number: u64, ms: u64) -> bool {
        let (owner, java_now_ms) = (java(number), at(ms).as_ms());
        let attempt = Attempt { owner: &owner, wait_ms: WAIT_MS, lease_ms: 30_000, java_now_ms };
        redisson::queueing_try(lock, &attempt, at(ms)) == Tried::Acquired
    }

    fn java_unlocks(lock: &mut LockState, number: u64, ms: u64) {
        redisson::unlock(lock, &java(number), 30_000, at(ms).as_ms(), at(ms));
    }

    #[test]
    fn the_place_of_a_waiter_that_java_took_away_does_not_hide_java() {
        let mut lock = LockState::default();
        assert_eq!(queue(&mut lock, 1, 70_000, 0), State::Held);
        assert_eq!(queue(&mut lock, 2, 30_000, 0), State::Queued);
        assert!(!java_tries(&mut lock, 1, 60_000));
        assert_eq!(lock.queue.list, [java(1)], "the dead waiter is gone, its place is not");
        assert_eq!(queue(&mut lock, 3, 30_000, 60_000), State::Queued);
        sign_of_life(&mut lock, 3, 69_000);
        assert!(java_tries(&mut lock, 1, 71_000));
        java_unlocks(&mut lock, 1, 71_000);
        assert_eq!(lock.queue.list, [fairlock(3)], "the live waiter stays");
    }

    /// Of the score of a Java waiter only what is left of it can be seen; it subtracts all of it.
    #[test]
    fn a_java_waiter_that_has_waited_for_long_evicts_nobody() {
        let mut lock = LockState::default();
        assert_eq!(queue(&mut lock, 1, 30_000, 0), State::Held);
        assert!(!java_tries(&mut lock, 1, 0));
        lock.hold.as_mut().unwrap().ends = at(90_000);
        assert_eq!(queue(&mut lock, 2, 30_000, 60_000), State::Queued);
        release(&mut lock, 1, 61_000);
        assert!(java_tries(&mut lock, 1, 61_000));
        java_unlocks(&mut lock, 1, 62_000);
        assert_eq!(lock.queue.list, [fairlock(2)]);
    }

    /// Java builds its scores on ours, and ours look at Java's.
    #[test]
    fn scores_do_not_grow_while_java_and_fairlock_come_and_go() {
        let mut lock = LockState::default();
        assert_eq!(queue(&mut lock, 0, 30_000, 0), State::Held);
        assert!(!java_tries(&mut lock, 0, 0));
        for round in 0..100 {
            let ms = round * 3_000;
            assert_eq!(queue(&mut lock, round + 1, 30_000, ms), State::Queued);
            release(&mut lock, round, ms + 1_000);
            assert!(java_tries(&mut lock, round, ms + 1_000));
            sign_of_life(&mut lock, round + 1, ms + 2_000);
            assert!(!java_tries(&mut lock, round + 1, ms + 2_000));
            java_unlocks(&mut lock, round, ms + 2_000);
            sign_of_life(&mut lock, round + 1, ms + 2_000);
            assert!(lock.holds(&fairlock(round + 1)));
            let last = lock.queue.scores.values().max().unwrap();
            let ahead_ms = last - at(ms).as_ms();
            assert!(ahead_ms <= 3 * WAIT_MS, "{ahead_ms} ms ahead in round {round}");
        }
    }
}
