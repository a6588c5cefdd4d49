//! The fair lock under a model checker.
//!
//! The store is [`LockState`](super::model::reentrant::LockState), driven by the functions that the
//! product runs and by a model of Redisson; the clients believe grants by the product's
//! [`Seat`](super::seat::Seat). Between them requests, answers and messages are under way, and
//! arrive late, twice, in another order or never; clients give up, die and are cut off; the store
//! forgets everything. The checker goes through every state that can come of it, and each must show
//! all of [`properties`]. How it is known that the checker would notice: [`bugs`].

mod bugs;
mod client;
mod configurations;
mod forget;
mod progress;
mod properties;
mod recorded;
mod store;
mod world;

use std::sync::Arc;

use bugs::Bug;
use properties::under_way;
use stateright::{Model, Property};
use world::{Call, Client, Faults, Java, NOW, Packet, Phase, Wait, Who, World};

use crate::ids::{Name, OwnerId, Token};
use crate::protocol::model::reentrant::LockState;

/// How large the world is, and how wrong.
#[derive(Clone, Debug)]
struct Checked {
    clients: u8,
    /// Waits of each client, in all and at once.
    waits: u8,
    at_once: usize,
    /// Copies of one request.
    copies: u8,
    /// Packets under way beyond which nobody sends anything of its own accord.
    crowded: usize,
    /// Whether holders renew their leases.
    renews: bool,
    faults: Faults,
    unit_ms: u64,
    waiter_ttl_ms: u64,
    lease_ms: u64,
    /// Of a request, and how long after that it may still arrive; of an answer.
    life_ms: u64,
    late_ms: u64,
    java_owners: Vec<OwnerId>,
    java_tries: u8,
    java_wait_ms: u64,
    java_lease_ms: u64,
    bug: Option<Bug>,
    /// Progress is looked at in one of so many states, for so many units of time.
    progress_of_every: u64,
    rounds: u32,
    identity: Arc<str>,
    name: Name,
    owners: Vec<Vec<OwnerId>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Start(u8),
    /// Sends what the waiter wants, or sends it again.
    Ask(Who),
    Beat(u8),
    GiveUp(Who),
    Release(Who),
    Reenter(Who),
    Deliver(u8),
    Lose(u8),
    Double(u8),
    Crash(u8),
    Disconnect(u8),
    Reconnect(u8),
    Restart,
    DeleteKey,
    Tick,
    JavaTries(u8),
    JavaUnlocks(u8),
    JavaLeaves(u8),
    JavaDies(u8),
}

impl Model for Checked {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let client = Client {
            alive: true,
            hears: true,
            next_id: 0,
            waits_left: self.waits,
            beaten: false,
            waits: Vec::new(),
        };
        vec![World {
            lock: LockState::default(),
            clients: vec![client; usize::from(self.clients)],
            java: vec![Java::Idle { left: self.java_tries }; self.java_owners.len()],
            wire: Vec::new(),
            left: self.faults,
            arrived: Vec::new(),
            mistaken: Vec::new(),
            last_token: Token(0),
            lost_token: Token(0),
            wrong: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let left = &world.left;
        for client in 0..self.clients {
            self.client_actions(world, client, actions);
        }
        for (index, packet) in world.wire.iter().enumerate() {
            if index > 0 && world.wire[index - 1] == *packet {
                continue;
            }
            actions.push(Action::Deliver(index as u8));
            if left.lost > 0 {
                actions.push(Action::Lose(index as u8));
            }
            if left.doubled > 0 && matches!(packet, Packet::Grant { .. }) {
                actions.push(Action::Double(index as u8));
            }
        }
        for (thread, java) in world.java.iter().enumerate() {
            let thread = thread as u8;
            match java {
                Java::Idle { left } if *left > 0 => actions.push(Action::JavaTries(thread)),
                Java::Waiting { told, wake, .. } => {
                    if *told || *wake <= NOW {
                        actions.push(Action::JavaTries(thread));
                    }
                    if left.java_leaves > 0 {
                        actions.push(Action::JavaLeaves(thread));
                    }
                }
                Java::Held { .. } => actions.push(Action::JavaUnlocks(thread)),
                _ => {}
            }
            if left.java_deaths > 0 && *java != Java::Dead {
                actions.push(Action::JavaDies(thread));
            }
        }
        if left.restarts > 0 {
            actions.push(Action::Restart);
        }
        if left.deletions > 0 && world.lock.hold.is_some() {
            actions.push(Action::DeleteKey);
        }
        actions.push(Action::Tick);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        self.act(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl Checked {
    fn client_actions(&self, world: &World, client: u8, actions: &mut Vec<Action>) {
        let (state, left) = (&world.clients[usize::from(client)], &world.left);
        if !state.alive {
            // Its connection breaks, sooner or later.
            actions.extend(state.hears.then_some(Action::Disconnect(client)));
            return;
        }
        if left.crashes > 0 {
            actions.push(Action::Crash(client));
        }
        if !state.hears {
            actions.push(Action::Reconnect(client));
        } else if left.disconnects > 0 {
            actions.push(Action::Disconnect(client));
        }
        let active = state.waits.iter().filter(|wait| wait.phase != Phase::Leaving).count();
        let is_crowded = world.wire.len() >= self.crowded;
        // They are all alike; so they begin in their order.
        let before = usize::from(client).checked_sub(1).map(|before| &world.clients[before]);
        let is_next = before.is_none_or(|before| before.waits_left < self.waits);
        if is_next && state.waits_left > 0 && active < self.at_once {
            actions.push(Action::Start(client));
        }
        let waiting = state.waits.iter().any(|wait| wait.phase == Phase::Waiting);
        let beats = |of: u8, call: &Call| of == client && matches!(call, Call::Beat { .. });
        if waiting && !is_crowded && !state.beaten && !under_way(world, beats) {
            actions.push(Action::Beat(client));
        }
        for wait in &state.waits {
            let who = Who { client, id: wait.id };
            if !is_crowded && self.may_ask(world, who, wait) {
                actions.push(Action::Ask(who));
            }
            match wait.phase {
                Phase::Asking | Phase::Waiting if left.given_up > 0 => {
                    actions.push(Action::GiveUp(who));
                }
                Phase::Held { count, wanted, .. } if count == wanted => {
                    actions.push(Action::Release(who));
                    if count == 1 && left.reentries > 0 {
                        actions.push(Action::Reenter(who));
                    }
                }
                _ => {}
            }
        }
    }

    /// A copy more of what is not answered, or the same again if all copies are lost.
    fn may_ask(&self, world: &World, who: Who, wait: &Wait) -> bool {
        let is_under_way = under_way(world, |client, call| {
            client == who.client
                && match (&wait.phase, call) {
                    (Phase::Asking, Call::Queue { id, .. })
                    | (Phase::Held { .. }, Call::Renew { id, .. } | Call::Reenter { id, .. })
                    | (Phase::Held { .. } | Phase::Leaving, Call::Release { id, .. }) => {
                        *id == who.id
                    }
                    _ => false,
                }
        });
        match wait.phase {
            Phase::Waiting => false,
            Phase::Asking => wait.copies < self.copies || !is_under_way,
            Phase::Held { count, wanted, .. } if count == wanted => {
                self.renews && !wait.renewed && !is_under_way
            }
            Phase::Held { .. } => wait.copies < self.copies || !is_under_way,
            Phase::Leaving => {
                let over = wait.unanswered == 0 || NOW > wait.last_expiry;
                wait.copies < self.copies || (over && !is_under_way)
            }
        }
    }

    fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Start(client) => self.start(world, client),
            Action::Ask(who) => self.ask(world, who),
            Action::Beat(client) => self.beat(world, client),
            Action::GiveUp(who) => {
                world.left.given_up -= 1;
                self.leave(world, who);
            }
            Action::Release(who) | Action::Reenter(who) => self.count(world, who, &action),
            Action::Deliver(index) => self.deliver(world, index),
            Action::Lose(index) => {
                world.left.lost -= 1;
                world.wire.remove(usize::from(index));
            }
            Action::Double(index) => {
                world.left.doubled -= 1;
                let packet = world.wire[usize::from(index)].clone();
                world.send(packet);
            }
            Action::Crash(client) => {
                world.left.crashes -= 1;
                self.crash(world, client);
            }
            Action::Disconnect(client) => {
                let state = &mut world.clients[usize::from(client)];
                world.left.disconnects -= u8::from(state.alive);
                state.hears = false;
            }
            Action::Reconnect(client) => world.clients[usize::from(client)].hears = true,
            Action::Restart => {
                world.left.restarts -= 1;
                self.restart(world);
            }
            Action::DeleteKey => {
                world.left.deletions -= 1;
                self.delete_key(world);
            }
            Action::Tick => self.tick(world),
            Action::JavaTries(thread) => {
                if let Java::Idle { left } = &mut world.java[usize::from(thread)] {
                    *left -= 1;
                }
                self.java_tries(world, thread);
            }
            Action::JavaUnlocks(thread) => self.java_unlocks(world, thread),
            Action::JavaLeaves(thread) => {
                world.left.java_leaves -= 1;
                self.java_leaves(world, thread);
            }
            Action::JavaDies(thread) => {
                world.left.java_deaths -= 1;
                world.java[usize::from(thread)] = Java::Dead;
                world.wire.retain(|packet| *packet != Packet::CallJava { thread });
            }
        }
        self.forget_what_nobody_will_read(world);
    }

    fn count(&self, world: &mut World, who: Who, action: &Action) {
        let enters = matches!(action, Action::Reenter(_));
        world.left.reentries -= u8::from(enters);
        let Some(wait) = world.wait(who) else { return };
        match &mut wait.phase {
            Phase::Held { wanted, .. } if enters => *wanted = 2,
            Phase::Held { count: 2, wanted, .. } => *wanted = 1,
            _ => return self.leave(world, who),
        }
        wait.copies = 0;
        self.ask(world, who);
    }

    fn deliver(&self, world: &mut World, index: u8) {
        match world.wire.remove(usize::from(index)) {
            Packet::Request { client, call, sent, expires } => {
                self.execute(world, client, call, sent, expires);
            }
            Packet::Reply { client, call, sent, answer } => {
                self.answered(world, client, call, sent, &answer);
            }
            Packet::Grant { who, token, granted_ms } => {
                self.granted(world, who, token, granted_ms);
            }
            Packet::CallJava { thread } => {
                if let Java::Waiting { told, .. } = &mut world.java[usize::from(thread)] {
                    *told = true;
                }
            }
        }
    }

    /// What it has sent still arrives; what it is sent does not.
    fn crash(&self, world: &mut World, client: u8) {
        let state = &mut world.clients[usize::from(client)];
        *state = Client { alive: false, waits: Vec::new(), waits_left: 0, ..state.clone() };
        world.wire.retain(|packet| match packet {
            Packet::Reply { client: to, .. } => *to != client,
            Packet::Grant { who, .. } => who.client != client,
            _ => true,
        });
    }

    fn owner(&self, client: u8, id: u8) -> OwnerId {
        self.owners[usize::from(client)][usize::from(id)].clone()
    }

    fn who(&self, owner: &OwnerId) -> Option<Who> {
        let [.., client, b':', id] = owner.as_str().as_bytes() else { return None };
        self.java_thread(owner).is_none().then(|| Who { client: client - b'0', id: id - b'0' })
    }

    fn java_thread(&self, owner: &OwnerId) -> Option<u8> {
        self.java_owners.iter().position(|java| java == owner).map(|thread| thread as u8)
    }

    fn client_named(&self, name: &str) -> Option<usize> {
        name.as_bytes().last().map(|digit| usize::from(digit - b'0'))
    }

    /// Longer than anything lasts.
    fn old_ms(&self) -> u64 {
        self.waiter_ttl_ms.max(self.lease_ms).max(self.life_ms)
    }
}
