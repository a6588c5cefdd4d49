//! The reentrant lock: one holder with a hold count and a lease.
//!
//! The state is what Redis keeps in two keys: the lock's hash ([`Hold`]) and the record of the
//! last grant ([`Record`]), which carries the fencing token on and names the holder.

use super::fair::Queue;
use crate::ids::{OwnerId, Token};
use crate::protocol::op::{
    Claim, Details, Heard, Lease, Op, RECORD_MS, Record, Renew, Reply, State,
};
use crate::time::ServerTime;

/// All that a store keeps of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LockState {
    pub(crate) hold: Option<Hold>,
    pub(crate) record: Option<(Record, ServerTime)>,
    /// Only for the fair lock.
    pub(crate) queue: Queue,
}

/// Who holds the lock, how often, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) owner: OwnerId,
    pub(crate) count: u32,
    pub(crate) ends: ServerTime,
}

/// What an operation does besides its reply: who is to be told. How many heard it is for the
/// engine to fill in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    None,
    /// To everybody who waits: the lock is free.
    Free,
    /// To the client of this owner: it has the lock.
    Grant {
        owner: OwnerId,
        token: Token,
        granted_ms: u64,
    },
    /// To this waiter of Redisson: the lock is free, and reserved for it.
    Call(OwnerId),
}

/// Executes one operation. A request that comes after `expires` changes nothing.
pub(crate) fn apply(
    lock: &mut LockState,
    op: &Op,
    expires: ServerTime,
    now: ServerTime,
) -> (Reply, Message) {
    lock.expire(now);
    if now > expires {
        return (lock.reply(State::Late, now), Message::None);
    }
    match op {
        // Without a queue to wait in, that is the same.
        Op::Acquire(claim) | Op::Queue { claim, .. } => (lock.acquire(claim, now), Message::None),
        Op::Reenter { owner, count, lease_ms } => {
            (lock.reenter(owner, *count, *lease_ms, now), Message::None)
        }
        Op::Release { owner, remaining, next } => {
            lock.release(owner, *remaining, next.as_ref(), now)
        }
        Op::Inspect => (lock.inspect(now), Message::None),
    }
}

/// Executes one item of a batch of renewals; its state is `Held` or `NotHeld`.
pub(crate) fn renew(lock: &mut LockState, item: &Renew, now: ServerTime) -> (State, Lease) {
    lock.expire(now);
    let Some(hold) = lock.hold.as_mut().filter(|hold| hold.owner == item.owner) else {
        return (State::NotHeld, Lease::None);
    };
    hold.count = item.count;
    hold.ends = hold.ends.max(now.plus_ms(item.lease_ms));
    if let Some((_, record_ends)) = lock.record.as_mut() {
        *record_ends = now.plus_ms(item.lease_ms + RECORD_MS);
    }
    (State::Held, lock.lease(now))
}

impl LockState {
    /// Forgets what has ended.
    pub(crate) fn expire(&mut self, now: ServerTime) {
        self.hold.take_if(|hold| hold.ends < now);
        self.record.take_if(|(_, ends)| *ends < now);
        if self.queue.ends.is_some_and(|ends| ends < now) {
            self.queue = Queue::default();
        }
    }

    /// Whether nothing of this lock is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.hold.is_none() && self.record.is_none() && self.queue.is_empty()
    }

    fn acquire(&mut self, claim: &Claim, now: ServerTime) -> Reply {
        if self.holds(&claim.owner) {
            let token = self.token_of(claim, now);
            return Reply { token, ..self.reply(State::Held, now) };
        }
        if self.hold.is_some() {
            return self.reply(State::Busy, now);
        }
        let token = self.grant(claim, now);
        Reply { token, ..self.reply(State::Held, now) }
    }

    pub(super) fn reenter(
        &mut self,
        owner: &OwnerId,
        count: u32,
        lease_ms: u64,
        now: ServerTime,
    ) -> Reply {
        let Some(hold) = self.hold.as_mut().filter(|hold| hold.owner == *owner) else {
            return self.reply(State::NotHeld, now);
        };
        hold.count = count;
        hold.ends = hold.ends.max(now.plus_ms(lease_ms));
        Reply { token: self.recorded_token(owner), ..self.reply(State::Held, now) }
    }

    fn release(
        &mut self,
        owner: &OwnerId,
        remaining: u32,
        next: Option<&Claim>,
        now: ServerTime,
    ) -> (Reply, Message) {
        let held = self.holds(owner);
        if let Some(hold) = self.hold.as_mut().filter(|_| held && remaining > 0) {
            hold.count = remaining;
            let token = self.recorded_token(owner);
            return (Reply { token, ..self.reply(State::Held, now) }, Message::None);
        }
        let state = if held { State::Released } else { State::NotHeld };
        self.hold.take_if(|_| held);
        let Some(next) = next else {
            let message = if held { Message::Free } else { Message::None };
            return (self.reply(state, now), message);
        };
        let token = if self.holds(&next.owner) {
            self.token_of(next, now)
        } else if self.hold.is_none() {
            self.grant(next, now)
        } else {
            return (self.reply(state, now), Message::None);
        };
        let grantee = Some(next.owner.clone());
        (Reply { token, grantee, ..self.reply(state, now) }, Message::None)
    }

    pub(super) fn inspect(&self, now: ServerTime) -> Reply {
        let state = if self.hold.is_some() { State::Busy } else { State::Free };
        Reply { details: Some(self.details()), ..self.reply(state, now) }
    }

    /// Who holds it, and the last grant.
    pub(crate) fn details(&self) -> Details {
        let fields = self.hold.iter().map(|hold| (hold.owner.to_string(), hold.count.to_string()));
        Details {
            fields: fields.collect(),
            record: self.record.as_ref().map(|(record, _)| record.clone()),
            waiters: self.queue.waiters(),
        }
    }

    pub(super) fn holds(&self, owner: &OwnerId) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.owner == *owner)
    }

    pub(super) fn grant(&mut self, claim: &Claim, now: ServerTime) -> Token {
        let ends = now.plus_ms(claim.lease_ms);
        self.hold = Some(Hold { owner: claim.owner.clone(), count: 1, ends });
        self.draw_token(claim, now)
    }

    /// The token of a claim that holds the lock already; drawn anew if its record was lost.
    pub(super) fn token_of(&mut self, claim: &Claim, now: ServerTime) -> Token {
        match self.recorded_token(&claim.owner) {
            Token(0) => self.draw_token(claim, now),
            token => token,
        }
    }

    pub(super) fn recorded_token(&self, owner: &OwnerId) -> Token {
        let own = self.record.as_ref().filter(|(record, _)| record.owner == *owner);
        own.map(|(record, _)| record.token).unwrap_or_default()
    }

    /// Larger than every token before, also when the record of those has expired, because the
    /// server's clock has moved on meanwhile.
    fn draw_token(&mut self, claim: &Claim, now: ServerTime) -> Token {
        let last = self.record.as_ref().map_or(0, |(record, _)| record.token.0);
        let token = Token(now.0.max(last + 1));
        let record = Record {
            token,
            owner: claim.owner.clone(),
            since_ms: now.as_ms(),
            identity: claim.identity.clone(),
        };
        self.record = Some((record, now.plus_ms(claim.lease_ms + RECORD_MS)));
        token
    }

    fn lease(&self, now: ServerTime) -> Lease {
        self.hold.as_ref().map_or(Lease::None, |hold| Lease::Ms(now.ms_until(hold.ends)))
    }

    pub(super) fn reply(&self, state: State, now: ServerTime) -> Reply {
        Reply {
            state,
            server_time: now,
            lease: self.lease(now),
            position: 0,
            token: Token::default(),
            grantee: None,
            heard: Heard::By(0),
            foreign: false,
            details: None,
        }
    }
}
