//! The world that is checked: one store, a few clients, and what is under way between them.
//!
//! The clock stands still at [`NOW`]; when time passes, everything else moves into the past. What
//! is so old that nobody can tell how old moves no further, so the number of states is finite.

use crate::ids::Token;
use crate::protocol::model::reentrant::LockState;
use crate::protocol::op::{State, Ticket};
use crate::protocol::seat::Seat;
use crate::time::{BootTime, ServerTime};

/// Everything there is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) lock: LockState,
    pub(super) clients: Vec<Client>,
    pub(super) java: Vec<Java>,
    /// What is under way, in no order; sorted.
    pub(super) wire: Vec<Packet>,
    pub(super) left: Faults,
    /// The waiters of fairlock in the order in which they queued, without those who came back.
    pub(super) arrived: Vec<Who>,
    /// Those who took the wait of a Java waiter before them for shorter than it is.
    pub(super) mistaken: Vec<Who>,
    /// The largest token that was ever drawn.
    pub(super) last_token: Token,
    /// The store lost a hold of a token up to this one: the guard may not know it yet.
    pub(super) lost_token: Token,
    /// The first thing that went wrong.
    pub(super) wrong: Option<Wrong>,
}

/// What may still happen, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    pub(super) lost: u8,
    pub(super) doubled: u8,
    pub(super) crashes: u8,
    pub(super) disconnects: u8,
    pub(super) restarts: u8,
    pub(super) deletions: u8,
    pub(super) given_up: u8,
    /// Waiters who find themselves gone from the queue and come back; others give up.
    pub(super) returns: u8,
    pub(super) reentries: u8,
    pub(super) java_deaths: u8,
    pub(super) java_leaves: u8,
}

/// What no state may show; see [`super::properties`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wrong {
    TokenDidNotGrow,
    OutOfOrder,
    JavaWasPassedOver,
    JavaWasTouched,
}

/// A waiter of fairlock: a client and one of its wire ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Who {
    pub(super) client: u8,
    pub(super) id: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) alive: bool,
    /// Whether its subscription stands.
    pub(super) hears: bool,
    pub(super) next_id: u8,
    pub(super) waits_left: u8,
    /// Whether it has sent a heartbeat at this instant.
    pub(super) beaten: bool,
    pub(super) waits: Vec<Wait>,
}

/// One wire id, from its first request until nothing of it can be left in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wait {
    pub(super) id: u8,
    pub(super) seat: Seat,
    pub(super) phase: Phase,
    /// Of its first time in the queue, once known.
    pub(super) ticket: Option<Ticket>,
    /// Whether it queues again under a new id.
    pub(super) came_back: bool,
    /// Whether it has sent a renewal at this instant.
    pub(super) renewed: bool,
    /// Copies of the request that is not answered yet.
    pub(super) copies: u8,
    /// Copies of its acquire without an answer, and when the last of them expires.
    pub(super) unanswered: u8,
    pub(super) last_expiry: ServerTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Not answered yet.
    Asking,
    Waiting,
    Held {
        token: Token,
        until: BootTime,
        count: u8,
        /// What it wants the count to be.
        wanted: u8,
    },
    /// Over: given up, given back or lost. What may be left of it is being cleaned up.
    Leaving,
}

/// A thread of Java.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Java {
    Idle { left: u8 },
    Waiting { left: u8, told: bool, wake: ServerTime },
    Held { left: u8 },
    Dead,
}

/// What a client asks of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Call {
    Queue { id: u8, ticket: Option<Ticket> },
    Reenter { id: u8, count: u8 },
    Release { id: u8, remaining: u8 },
    Renew { id: u8, count: u8 },
    Beat { ids: Vec<u8> },
}

/// What the store answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Answer {
    /// One for each waiter of a heartbeat, else just one.
    pub(super) states: Vec<State>,
    pub(super) server_time: ServerTime,
    /// The same time, as a number that has an order with others.
    pub(super) ticket: Ticket,
    pub(super) lease_ms: u64,
    pub(super) token: Token,
    pub(super) grantee: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Packet {
    Request { client: u8, call: Call, sent: BootTime, expires: ServerTime },
    Reply { client: u8, call: Call, sent: BootTime, answer: Answer },
    Grant { who: Who, token: Token, granted_ms: u64 },
    CallJava { thread: u8 },
}

impl World {
    pub(super) fn send(&mut self, packet: Packet) {
        let place = self.wire.binary_search(&packet).unwrap_or_else(|place| place);
        self.wire.insert(place, packet);
    }

    pub(super) fn wait(&mut self, who: Who) -> Option<&mut Wait> {
        let client = self.clients.get_mut(usize::from(who.client))?;
        client.waits.iter_mut().find(|wait| wait.id == who.id)
    }

    /// Lets time pass: shifts all times into the past. `old_ms` is longer than any lease.
    pub(super) fn pass(&mut self, step_ms: u64, old_ms: u64, has_java: bool) {
        for client in &mut self.clients {
            client.beaten = false;
            client.waits.iter_mut().for_each(|wait| wait.renewed = false);
        }
        let server = |time: &mut ServerTime| {
            let then = time.0.saturating_sub(step_ms * 1_000);
            time.0 = if then < NOW.0 - old_ms * 1_000 { 0 } else { then };
        };
        let boot = |time: &mut BootTime| {
            let then = time.0.saturating_sub(step_ms * 1_000_000);
            time.0 = if then < HERE.0 - old_ms * 1_000_000 { 0 } else { then };
        };
        if let Some(hold) = &mut self.lock.hold {
            server(&mut hold.ends);
        }
        let queue = &mut self.lock.queue;
        for place in queue.places.values_mut() {
            server(&mut place.deadline);
            // How long it is dead tells nobody anything.
            place.deadline = place.deadline.max(ServerTime(NOW.0 - 1));
        }
        if has_java {
            for score in queue.scores.values_mut() {
                *score = (*score - step_ms).max(NOW.as_ms() - old_ms);
            }
        }
        for wait in self.clients.iter_mut().flat_map(|client| &mut client.waits) {
            wait.seat.map(boot, |_| ());
            server(&mut wait.last_expiry);
            if wait.last_expiry < NOW && wait.phase != Phase::Leaving {
                // Whatever is sent from now on comes after every copy of the acquire.
                wait.unanswered = 0;
                wait.last_expiry = ServerTime(0);
            }
            if let Phase::Held { until, .. } = &mut wait.phase {
                boot(until);
            }
        }
        for packet in &mut self.wire {
            match packet {
                Packet::Request { sent, expires, .. } => {
                    server(expires);
                    boot(sent);
                }
                Packet::Reply { sent, answer, .. } => {
                    boot(sent);
                    server(&mut answer.server_time);
                }
                Packet::Grant { .. } | Packet::CallJava { .. } => {}
            }
        }
        for java in &mut self.java {
            if let Java::Waiting { wake, .. } = java {
                server(wake);
                *wake = (*wake).max(NOW);
            }
        }
        self.renumber();
        self.wire.sort_unstable();
    }

    /// Of tokens and of tickets in the past only the order counts.
    fn renumber(&mut self) {
        for kind in [Kind::Token, Kind::Ticket] {
            let mut numbers = Vec::new();
            self.each_number(kind, |number| numbers.push(*number));
            numbers.sort_unstable();
            numbers.dedup();
            numbers.retain(|number| *number != 0);
            let first = NOW.0 - numbers.len() as u64;
            self.each_number(kind, |number| {
                if let Ok(rank) = numbers.binary_search(number) {
                    *number = first + rank as u64;
                }
            });
        }
    }

    fn each_number(&mut self, kind: Kind, mut change: impl FnMut(&mut u64)) {
        let mut token = |token: &mut Token| {
            if kind == Kind::Token {
                change(&mut token.0);
            }
        };
        token(&mut self.last_token);
        token(&mut self.lost_token);
        if let Some((record, _)) = &mut self.lock.record {
            token(&mut record.token);
        }
        for wait in self.clients.iter_mut().flat_map(|client| &mut client.waits) {
            wait.seat.map(|_| (), &mut token);
            if let Phase::Held { token: held, .. } = &mut wait.phase {
                token(held);
            }
        }
        for packet in &mut self.wire {
            match packet {
                Packet::Reply { answer, .. } => token(&mut answer.token),
                Packet::Grant { token: granted, .. } => token(granted),
                Packet::Request { .. } | Packet::CallJava { .. } => {}
            }
        }
        if kind == Kind::Ticket {
            self.each_ticket(|ticket| change(&mut ticket.0));
        }
    }

    fn each_ticket(&mut self, mut change: impl FnMut(&mut Ticket)) {
        self.lock.queue.places.values_mut().for_each(|place| change(&mut place.ticket));
        let waits = self.clients.iter_mut().flat_map(|client| &mut client.waits);
        waits.filter_map(|wait| wait.ticket.as_mut()).for_each(&mut change);
        for packet in &mut self.wire {
            if let Packet::Reply { answer, .. } = packet {
                change(&mut answer.ticket);
            }
            if let Packet::Request { call: Call::Queue { ticket: Some(ticket), .. }, .. } = packet {
                change(ticket);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Token,
    Ticket,
}

/// The store's clock, always.
pub(super) const NOW: ServerTime = ServerTime(1_000_000_000_000_000);
/// Everybody else's clock, always.
pub(super) const HERE: BootTime = BootTime(NOW.0 * 1_000);
