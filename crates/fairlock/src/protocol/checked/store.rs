//! The store of the checked world: it only ever does what the model of the locks does.

use super::Checked;
use super::world::{Answer, Call, Faults, HERE, Java, NOW, Packet, Phase, Who, World, Wrong};
use crate::ids::{OwnerId, Token};
use crate::protocol::model::fair::{self, Context, Heartbeat, Queue};
use crate::protocol::model::redisson::{self, Attempt, Tried};
use crate::protocol::model::reentrant::{self, LockState, Message};
use crate::protocol::op::{Claim, Lease, Op, Renew, Reply, State, Ticket};
use crate::time::{BootTime, ServerTime};

impl Checked {
    /// A request of a client arrives.
    pub(super) fn execute(
        &self,
        world: &mut World,
        client: u8,
        call: Call,
        sent: BootTime,
        expires: ServerTime,
    ) {
        let before = expired(&world.lock);
        let heard: Vec<bool> = world.clients.iter().map(|client| client.hears).collect();
        let hears = |name: &str| self.client_named(name).is_some_and(|client| heard[client]);
        let asking = self.owner(client, 0);
        let context = Context {
            now: NOW,
            expires,
            waiter_ttl_ms: self.waiter_ttl_ms,
            client: fair::client_of(&asking),
            hears: &hears,
        };
        let lock = &mut world.lock;
        let (states, reply, message) = match &call {
            Call::Beat { ids } => {
                let waiting = ids.iter().map(|id| self.owner(client, *id)).collect();
                let (beaten, message) = fair::beat(lock, &Heartbeat { waiting }, &context);
                (beaten.states, beaten.reply, message)
            }
            Call::Renew { id, count } => {
                let (state, lease) = if NOW > expires {
                    (State::Late, Lease::None)
                } else {
                    reentrant::renew(lock, &self.renew(client, *id, *count), NOW)
                };
                // Only to have the rest of a reply.
                let (reply, _) = reentrant::apply(lock, &Op::Inspect, NOW, NOW);
                (vec![state], Reply { lease, ..reply }, Message::None)
            }
            call => {
                let (reply, message) = fair::apply(lock, &self.op(client, call), &context);
                (vec![reply.state], reply, message)
            }
        };
        if self.bug.is_some_and(|bug| bug.spoil(world, &before, client, &call, &message, self)) {
            return self.publish(world, message);
        }
        self.judge(world, &before, Some((client, &call)));
        self.publish(world, message);
        let answer = Answer {
            states,
            server_time: NOW,
            ticket: Ticket(NOW.0),
            lease_ms: match reply.lease {
                Lease::Ms(lease_ms) => lease_ms,
                Lease::None | Lease::Endless => 0,
            },
            token: reply.token,
            grantee: reply.grantee.and_then(|owner| self.who(&owner)).map(|who| who.id),
        };
        if world.clients[usize::from(client)].alive {
            world.send(Packet::Reply { client, call, sent, answer });
        }
    }

    fn publish(&self, world: &mut World, message: Message) {
        match message {
            Message::Grant { owner, token, granted_ms } => {
                let who = self.who(&owner).expect("a fairlock owner");
                let client = &world.clients[usize::from(who.client)];
                if client.alive && client.hears {
                    world.send(Packet::Grant { who, token, granted_ms });
                }
            }
            Message::Call(owner) => {
                if let Some(thread) = self.java_thread(&owner) {
                    let packet = Packet::CallJava { thread };
                    // Told twice is told.
                    if world.java[usize::from(thread)].waits() && !world.wire.contains(&packet) {
                        world.send(packet);
                    }
                }
            }
            Message::None | Message::Free => {}
        }
    }

    /// A Java thread tries, for the first time or again.
    pub(super) fn java_tries(&self, world: &mut World, thread: u8) {
        let before = expired(&world.lock);
        let java = &world.java[usize::from(thread)];
        let (left, is_new) = (java.left(), !java.waits());
        let attempt = Attempt {
            owner: &self.java_owners[usize::from(thread)],
            wait_ms: self.java_wait_ms,
            lease_ms: self.java_lease_ms,
            java_now_ms: NOW.as_ms(),
        };
        let mut tried = redisson::queueing_try(&mut world.lock, &attempt, NOW);
        if is_new && tried != Tried::Acquired {
            // It has begun to listen meanwhile, and looks again.
            tried = redisson::queueing_try(&mut world.lock, &attempt, NOW);
        }
        world.java[usize::from(thread)] = match tried {
            Tried::Acquired => Java::Held { left },
            Tried::Wait(ms) => Java::Waiting { left, told: false, wake: NOW.plus_ms(ms) },
        };
        world.wire.retain(|packet| *packet != Packet::CallJava { thread });
        self.judge(world, &before, None);
    }

    pub(super) fn java_unlocks(&self, world: &mut World, thread: u8) {
        let before = expired(&world.lock);
        let owner = &self.java_owners[usize::from(thread)];
        let lease_ms = self.java_lease_ms;
        let (_, message) = redisson::unlock(&mut world.lock, owner, lease_ms, NOW.as_ms(), NOW);
        let left = world.java[usize::from(thread)].left();
        world.java[usize::from(thread)] = Java::Idle { left };
        self.judge(world, &before, None);
        self.publish(world, message);
    }

    pub(super) fn java_leaves(&self, world: &mut World, thread: u8) {
        let before = expired(&world.lock);
        let owner = &self.java_owners[usize::from(thread)];
        redisson::leave(&mut world.lock, owner, self.java_wait_ms, NOW);
        let left = world.java[usize::from(thread)].left();
        world.java[usize::from(thread)] = Java::Idle { left };
        world.wire.retain(|packet| *packet != Packet::CallJava { thread });
        self.judge(world, &before, None);
    }

    /// Looks at what one step has done to the store.
    fn judge(&self, world: &mut World, before: &LockState, by: Option<(u8, &Call)>) {
        let wrong = self.wrong_by(world, before, by);
        world.wrong = world.wrong.or(wrong);
        world.last_token = world.last_token.max(token_of(&world.lock));
        let list = &world.lock.queue.list;
        world.arrived.retain(|who| list.iter().any(|owner| self.who(owner) == Some(*who)));
        for owner in list.iter().filter(|owner| !before.queue.list.contains(*owner)) {
            let Some(who) = self.who(owner) else { continue };
            let mut waits = world.clients[usize::from(who.client)].waits.iter();
            if !waits.any(|wait| wait.id == who.id && wait.came_back) {
                world.arrived.retain(|other| *other != who);
                world.arrived.push(who);
            }
        }
        self.note_mistakes(world, before);
        self.forget_what_nobody_reads(&mut world.lock);
    }

    /// How long a Java waiter waits can only be guessed.
    fn note_mistakes(&self, world: &mut World, before: &LockState) {
        let Queue { places, scores, .. } = &world.lock.queue;
        let place = |who: &Who| places.get(&self.owner(who.client, who.id));
        world.mistaken.retain(|who| place(who).is_some());
        let java = before.queue.list.iter().filter(|owner| self.java_thread(owner).is_some());
        let waits_ms = self.java_wait_ms * java.count() as u64;
        let came = |owner: &OwnerId| {
            scores.contains_key(owner) && !before.queue.scores.contains_key(owner)
        };
        for (owner, place) in places.iter().filter(|(owner, _)| came(owner)) {
            let Some(who) = self.who(owner) else { continue };
            world.mistaken.retain(|other| *other != who);
            if place.waits_ms < waits_ms {
                world.mistaken.push(who);
            }
        }
    }

    fn wrong_by(
        &self,
        world: &World,
        before: &LockState,
        by: Option<(u8, &Call)>,
    ) -> Option<Wrong> {
        let after = &world.lock;
        if by.is_some() {
            let is_java = |hold: &&reentrant::Hold| self.java_thread(&hold.owner).is_some();
            let (old, new) = (before.hold.as_ref(), after.hold.as_ref());
            let touched = old.filter(is_java) != new.filter(is_java);
            let lowered = |owner: &OwnerId| {
                let new = after.queue.scores.get(owner);
                before.queue.scores.get(owner).is_some_and(|old| new.is_some_and(|new| new < old))
            };
            if touched || self.java_owners.iter().any(lowered) {
                return Some(Wrong::JavaWasTouched);
            }
        }
        if token_of(after) == token_of(before) {
            return None;
        }
        if token_of(after) <= world.last_token {
            return Some(Wrong::TokenDidNotGrow);
        }
        let granted = after.hold.as_ref().map(|hold| hold.owner.clone())?;
        let head = before.queue.list.iter().find(|owner| {
            let score = before.queue.scores.get(*owner);
            let place = before.queue.places.get(*owner);
            match self.java_thread(owner) {
                Some(_) => score.is_some_and(|score| *score > NOW.as_ms()),
                // A place that is dead lives again when its owner says so.
                None => **owner == granted || place.is_some_and(|place| place.deadline >= NOW),
            }
        });
        if head.is_some_and(|head| self.java_thread(head).is_some()) {
            return Some(Wrong::JavaWasPassedOver);
        }
        let granted = self.who(&granted)?;
        let own_leave = match by {
            Some((client, Call::Release { id, .. })) => Some(Who { client, id: *id }),
            _ => None,
        };
        let rank = |who: &Who| world.arrived.iter().position(|other| other == who);
        let ticket = |who: &Who| {
            let place = before.queue.places.get(&self.owner(who.client, who.id));
            place.map(|place| place.ticket)
        };
        let passed_over = world.arrived.iter().any(|other| {
            let place = before.queue.places.get(&self.owner(other.client, other.id));
            let alive = place.is_some_and(|place| place.deadline >= NOW);
            let heard = world.clients[usize::from(other.client)].hears;
            let was_first = match (rank(&granted), ticket(&granted)) {
                (Some(granted), _) => rank(other) < Some(granted),
                (None, Some(granted)) => ticket(other) < Some(granted),
                (None, None) => true,
            };
            alive && heard && was_first && *other != granted && Some(*other) != own_leave
        });
        passed_over.then_some(Wrong::OutOfOrder)
    }

    /// Nothing in the model reads these; so they need not make one state two.
    fn forget_what_nobody_reads(&self, lock: &mut LockState) {
        if let Some((record, ends)) = &mut lock.record {
            record.since_ms = 0;
            if lock.hold.is_none() {
                record.owner = self.owners[0][0].clone();
            }
            *ends = NOW.plus_ms(A_LONG_TIME_MS);
        }
        if let Some(ends) = &mut lock.queue.ends {
            *ends = NOW.plus_ms(A_LONG_TIME_MS);
        }
        if self.java_owners.is_empty() {
            for score in lock.queue.scores.values_mut() {
                *score = NOW.plus_ms(A_LONG_TIME_MS).as_ms();
            }
        }
    }

    fn op(&self, client: u8, call: &Call) -> Op {
        match call {
            Call::Queue { id, ticket } => {
                let owner = self.owner(client, *id);
                let identity = self.identity.clone();
                let claim = Claim { owner, lease_ms: self.lease_ms, identity };
                Op::Queue { claim, ticket: *ticket }
            }
            Call::Reenter { id, count } => {
                let (owner, count) = (self.owner(client, *id), u32::from(*count));
                Op::Reenter { owner, count, lease_ms: self.lease_ms }
            }
            Call::Release { id, remaining } => {
                let (owner, remaining) = (self.owner(client, *id), u32::from(*remaining));
                Op::Release { owner, remaining, next: None }
            }
            Call::Renew { .. } | Call::Beat { .. } => Op::Inspect,
        }
    }

    fn renew(&self, client: u8, id: u8, count: u8) -> Renew {
        let (owner, count) = (self.owner(client, id), u32::from(count));
        Renew { name: self.name.clone(), owner, count, lease_ms: self.lease_ms }
    }

    /// All is lost, and a moment passes.
    pub(super) fn restart(&self, world: &mut World) {
        world.lock = LockState::default();
        world.arrived.clear();
        world.mistaken.clear();
        world.lost_token = world.last_token;
        self.tick(world);
    }

    pub(super) fn delete_key(&self, world: &mut World) {
        world.lock.hold = None;
        world.lost_token = world.last_token;
    }

    /// Until something can change by itself. Only Java's times are many units long.
    fn step_ms(&self, world: &World) -> u64 {
        let lock = &world.lock;
        let is_still = world.wire.is_empty()
            && lock.hold.is_none()
            && world.clients.iter().all(|client| client.waits.is_empty())
            && lock.queue.places.values().all(|place| place.deadline < NOW);
        let scores = lock.queue.scores.values().map(|score| score.saturating_sub(NOW.as_ms()));
        let next = scores.filter(|ms| *ms > 0).min();
        next.filter(|_| is_still && !self.java_owners.is_empty()).unwrap_or(0).max(self.unit_ms)
    }

    /// Time passes. Guards whose time is over are lost, and their owners know it.
    pub(super) fn tick(&self, world: &mut World) {
        world.pass(self.step_ms(world), self.old_ms(), !self.java_owners.is_empty());
        world.lock.expire(NOW);
        self.forget_what_nobody_reads(&mut world.lock);
        world.wire.retain(|packet| match packet {
            Packet::Request { expires, .. } => expires.plus_ms(self.late_ms) >= NOW,
            Packet::Reply { sent, .. } => sent.plus_ms(self.life_ms + self.late_ms) >= HERE,
            Packet::Grant { .. } | Packet::CallJava { .. } => true,
        });
        for client in 0..self.clients {
            let waits = &world.clients[usize::from(client)].waits;
            let ended: Vec<u8> =
                waits.iter().filter(|wait| wait.has_ended()).map(|w| w.id).collect();
            for id in ended {
                self.leave(world, Who { client, id });
            }
        }
    }
}

impl super::world::Wait {
    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Held { until, .. } if until <= HERE)
    }
}

impl Java {
    pub(super) fn left(&self) -> u8 {
        match self {
            Self::Idle { left } | Self::Waiting { left, .. } | Self::Held { left } => *left,
            Self::Dead => 0,
        }
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }
}

impl Faults {
    pub(super) const NONE: Self = Self {
        lost: 0,
        doubled: 0,
        crashes: 0,
        disconnects: 0,
        restarts: 0,
        deletions: 0,
        given_up: 0,
        returns: 0,
        reentries: 0,
        java_deaths: 0,
        java_leaves: 0,
    };
}

fn expired(lock: &LockState) -> LockState {
    let mut lock = lock.clone();
    lock.expire(NOW);
    lock
}

fn token_of(lock: &LockState) -> Token {
    lock.record.as_ref().map_or(Token(0), |(record, _)| record.token)
}

const A_LONG_TIME_MS: u64 = 100_000_000;
