//! Fewer states for the same behaviour: what nobody will ever read need not make one state two.

use super::Checked;
use super::bugs::Bug;
use super::world::{Answer, Call, Client, HERE, Packet, Phase, World};
use crate::ids::Token;
use crate::protocol::op::{State, Ticket};
use crate::protocol::seat::Belief;
use crate::time::ServerTime;

impl Checked {
    /// Takes away what is under way and will change nothing, and what is in it and will not be read.
    /// Ids are never used again, so what is over is over.
    pub(super) fn forget_what_nobody_will_read(&self, world: &mut World) {
        if matches!(self.bug, Some(Bug::ReusedIds | Bug::NoTokenFloor)) {
            return;
        }
        let clients = &world.clients;
        world.wire.retain_mut(|packet| match packet {
            Packet::Reply { client, call, sent, answer } => {
                let client = &clients[usize::from(*client)];
                let is_read = simplify(client, call, answer);
                if matches!(call, Call::Release { remaining: 0, .. }) && answer.grantee.is_none() {
                    *sent = HERE;
                }
                is_read
            }
            Packet::Grant { who, token, granted_ms } => {
                let mut waits = clients[usize::from(who.client)].waits.iter();
                waits.any(|wait| {
                    wait.id == who.id
                        && wait.waits()
                        && wait.seat.granted(*token, *granted_ms, HERE) != Belief::Nothing
                })
            }
            _ => true,
        });
        if !world.wire.is_sorted() {
            world.wire.sort_unstable();
        }
    }
}

/// Whether there is anything in this answer for its client.
fn simplify(client: &Client, call: &mut Call, answer: &mut Answer) -> bool {
    let wait = |id: u8| client.waits.iter().find(|wait| wait.id == id);
    answer.grantee = answer.grantee.filter(|id| wait(*id).is_some_and(|wait| wait.waits()));
    let is_read = match call {
        Call::Release { id, remaining: 0 } => {
            let clean = |wait: &super::world::Wait| {
                wait.unanswered == 0 || answer.server_time > wait.last_expiry
            };
            answer.states != [State::Late] && wait(*id).is_some_and(clean)
        }
        Call::Beat { ids } => {
            let states = std::mem::take(&mut answer.states);
            let read = ids.iter().copied().zip(states);
            let read = read.filter(|(id, _)| wait(*id).is_some_and(|w| w.phase != Phase::Leaving));
            (*ids, answer.states) = read.unzip();
            !ids.is_empty()
        }
        Call::Queue { id, ticket } => {
            *ticket = None;
            wait(*id).is_some_and(|wait| wait.phase != Phase::Leaving)
        }
        Call::Reenter { id, .. } | Call::Release { id, .. } | Call::Renew { id, .. } => {
            wait(*id).is_some_and(|wait| matches!(wait.phase, Phase::Held { .. }))
        }
    };
    if !matches!(call, Call::Release { remaining: 0, .. }) {
        answer.server_time = ServerTime(0);
    }
    let has = |state| answer.states.contains(&state);
    if !matches!(call, Call::Queue { .. }) || !has(State::Queued) {
        answer.ticket = Ticket(0);
    }
    if !has(State::Held) && answer.grantee.is_none() {
        answer.lease_ms = 0;
        if !has(State::Queued) {
            answer.token = Token(0);
        }
    }
    is_read || answer.grantee.is_some()
}
