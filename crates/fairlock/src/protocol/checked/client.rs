//! The clients of the checked world: what they send, and what they make of what they hear.

use super::Checked;
use super::bugs::Bug;
use super::world::{Answer, Call, HERE, NOW, Packet, Phase, Wait, Who, World};
use crate::ids::Token;
use crate::protocol::op::{State, Ticket};
use crate::protocol::seat::{Belief, Seat};
use crate::time::{BootTime, ServerTime};

impl Checked {
    /// A new wait.
    pub(super) fn start(&self, world: &mut World, client: u8) {
        world.clients[usize::from(client)].waits_left -= 1;
        self.queue(world, client, None);
    }

    /// Queues under a new id, with the ticket of an earlier one if there is one.
    fn queue(&self, world: &mut World, client: u8, again: Option<Option<Ticket>>) {
        let state = &mut world.clients[usize::from(client)];
        let id = state.next_id;
        if self.bug != Some(Bug::ReusedIds) {
            state.next_id += 1;
        }
        state.waits.push(Wait {
            id,
            seat: Seat::new(HERE),
            phase: Phase::Asking,
            ticket: again.flatten(),
            came_back: again.is_some(),
            renewed: false,
            copies: 0,
            unanswered: 0,
            last_expiry: NOW,
        });
        self.ask(world, Who { client, id });
    }

    /// Sends what this waiter wants, or sends it again.
    pub(super) fn ask(&self, world: &mut World, who: Who) {
        let expires = NOW.plus_ms(self.life_ms);
        let most = self.copies;
        let Some(wait) = world.wait(who) else { return };
        wait.copies = most.min(wait.copies + 1);
        let id = wait.id;
        let call = match &wait.phase {
            Phase::Asking | Phase::Waiting => {
                wait.unanswered += 1;
                wait.last_expiry = expires;
                Call::Queue { id, ticket: wait.ticket }
            }
            Phase::Held { count, wanted, .. } if wanted > count => {
                Call::Reenter { id, count: *wanted }
            }
            Phase::Held { count, wanted, .. } if wanted < count => {
                Call::Release { id, remaining: *wanted }
            }
            Phase::Held { count, .. } => {
                wait.renewed = true;
                Call::Renew { id, count: *count }
            }
            Phase::Leaving => Call::Release { id, remaining: 0 },
        };
        world.send(Packet::Request { client: who.client, call, sent: HERE, expires });
    }

    /// Keeps the places of all who wait and know it.
    pub(super) fn beat(&self, world: &mut World, client: u8) {
        world.clients[usize::from(client)].beaten = true;
        let waits = &world.clients[usize::from(client)].waits;
        let waiting = waits.iter().filter(|wait| wait.phase == Phase::Waiting);
        let call = Call::Beat { ids: waiting.map(|wait| wait.id).collect() };
        let expires = NOW.plus_ms(self.life_ms);
        world.send(Packet::Request { client, call, sent: HERE, expires });
    }

    /// Gives up, gives back, or has lost it.
    pub(super) fn leave(&self, world: &mut World, who: Who) {
        if let Some(wait) = world.wait(who) {
            wait.phase = Phase::Leaving;
            wait.ticket = None;
            wait.renewed = false;
            wait.copies = 0;
            // It never looks at messages again.
            wait.seat = Seat::new(LONG_AGO);
            self.ask(world, who);
        }
    }

    /// A message: this waiter has the lock.
    pub(super) fn granted(&self, world: &mut World, who: Who, token: Token, granted_ms: u64) {
        let floor = if self.bug == Some(Bug::NoTokenFloor) { Token(u64::MAX) } else { token };
        let Some(wait) = world.wait(who).filter(|wait| wait.waits()) else { return };
        if let Belief::Held { until } = wait.seat.granted(floor, granted_ms, HERE) {
            wait.hold(token, until);
        }
    }

    /// The store answers.
    pub(super) fn answered(
        &self,
        world: &mut World,
        client: u8,
        call: Call,
        sent: BootTime,
        answer: &Answer,
    ) {
        let sent_or_not = if self.bug == Some(Bug::CountedFromTheReply) { HERE } else { sent };
        let until = sent_or_not.plus_ms(answer.lease_ms);
        let ids = match &call {
            Call::Beat { ids } => ids.clone(),
            Call::Queue { id, .. }
            | Call::Reenter { id, .. }
            | Call::Release { id, .. }
            | Call::Renew { id, .. } => vec![*id],
        };
        for (id, state) in ids.into_iter().zip(&answer.states) {
            let who = Who { client, id };
            match &call {
                Call::Release { remaining: 0, .. } => self.cleaned(world, who, *state, answer),
                call => self.told(world, who, call, *state, sent, until, answer),
            }
        }
        let Some(id) = answer.grantee.filter(|_| until > HERE) else { return };
        if let Some(wait) = world.wait(Who { client, id }).filter(|wait| wait.waits()) {
            wait.hold(answer.token, until);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one answer")]
    fn told(
        &self,
        world: &mut World,
        who: Who,
        call: &Call,
        state: State,
        sent: BootTime,
        until: BootTime,
        answer: &Answer,
    ) {
        let Some(wait) = world.wait(who) else { return };
        // A copy that is answered during the clean-up may have been executed after it.
        let counts = sent.plus_ms(self.life_ms) >= HERE && wait.phase != Phase::Leaving;
        if counts && matches!(call, Call::Queue { .. }) {
            wait.unanswered = wait.unanswered.saturating_sub(1);
            if wait.unanswered == 0 {
                wait.last_expiry = ServerTime(0);
            }
        }
        match (state, &mut wait.phase) {
            (State::Late, _) | (_, Phase::Leaving) => {}
            (State::Held, Phase::Held { token, until: known, count, wanted }) => {
                // It may speak of an earlier grant, which the store has lost.
                if !matches!(call, Call::Renew { .. }) && *token != answer.token {
                    return;
                }
                *known = (*known).max(until);
                let set = match call {
                    Call::Reenter { count, .. } => *count,
                    Call::Release { remaining, .. } => *remaining,
                    _ => return,
                };
                if set == *wanted {
                    *count = set;
                    wait.copies = 0;
                }
            }
            (State::Held, Phase::Asking | Phase::Waiting) => {
                wait.phase = Phase::Waiting;
                wait.copies = 0;
                if until > HERE {
                    wait.hold(answer.token, until);
                }
            }
            (State::Queued, Phase::Asking | Phase::Waiting) => {
                wait.phase = Phase::Waiting;
                wait.copies = 0;
                wait.ticket.get_or_insert(answer.ticket);
                wait.seat.queued(sent, answer.token);
                wait.seat.map(|_| (), |_| ());
            }
            (State::NotHeld, Phase::Waiting) => {
                let ticket = wait.ticket;
                self.leave(world, who);
                if world.left.returns > 0 {
                    world.left.returns -= 1;
                    self.queue(world, who.client, Some(ticket));
                }
            }
            (State::NotHeld, Phase::Held { .. }) => self.leave(world, who),
            _ => {}
        }
    }

    /// The store has taken everything away that it had of this id. One more copy of the acquire may
    /// be on its way.
    fn cleaned(&self, world: &mut World, who: Who, state: State, answer: &Answer) {
        let client = &mut world.clients[usize::from(who.client)];
        if state != State::Late {
            client.waits.retain(|wait| {
                let clean = wait.unanswered == 0 || answer.server_time > wait.last_expiry;
                wait.id != who.id || wait.phase != Phase::Leaving || !clean
            });
        }
    }
}

impl Wait {
    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Asking | Phase::Waiting)
    }

    fn hold(&mut self, token: Token, until: BootTime) {
        self.phase = Phase::Held { token, until, count: 1, wanted: 1 };
        self.ticket = None;
        self.copies = 0;
        self.seat = Seat::new(LONG_AGO);
    }
}

/// Where time stops to be counted; see [`World::pass`].
const LONG_AGO: BootTime = BootTime(0);
