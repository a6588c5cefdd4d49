//! From here on nothing goes wrong: is everybody served, and soon?

use std::hash::{DefaultHasher, Hash, Hasher};

use super::properties::under_way;
use super::world::{Call, Client, Java, NOW, Packet, Phase, Who, World};
use super::{Action, Checked};

/// Plays on without faults until nobody waits, within a bound. Only for some of the states: it
/// takes far longer than all other properties.
pub(super) fn everybody_is_served(checked: &Checked, world: &World) -> bool {
    if checked.progress_of_every > 1 {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        if !hasher.finish().is_multiple_of(checked.progress_of_every) {
            return true;
        }
    }
    let mut world = world.clone();
    world.left.returns = u8::MAX;
    for client in world.clients.iter_mut().filter(|client| client.alive) {
        client.hears = true;
    }
    (0..checked.rounds).any(|_| {
        round(checked, &mut world);
        is_quiet(&world)
    })
}

fn is_quiet(world: &World) -> bool {
    world.clients.iter().all(|client| client.waits.is_empty())
        && world.java.iter().all(|java| !java.waits())
}

/// One unit of time: everything arrives, holders give back, waiters send signs of life.
fn round(checked: &Checked, world: &mut World) {
    deliver_all(checked, world);
    for client in 0..checked.clients {
        let state: &Client = &world.clients[usize::from(client)];
        let ids: Vec<u8> = state.waits.iter().map(|wait| wait.id).collect();
        for id in ids {
            act(checked, world, Who { client, id });
        }
        let waits = &world.clients[usize::from(client)].waits;
        if waits.iter().any(|wait| wait.phase == Phase::Waiting) {
            checked.beat(world, client);
        }
    }
    for thread in 0..world.java.len() as u8 {
        match world.java[usize::from(thread)] {
            Java::Waiting { told, wake, .. } if told || wake <= NOW => {
                checked.java_tries(world, thread);
            }
            Java::Held { .. } => checked.java_unlocks(world, thread),
            _ => {}
        }
    }
    deliver_all(checked, world);
    checked.tick(world);
}

fn act(checked: &Checked, world: &mut World, who: Who) {
    let is_asked = under_way(world, |client, call| {
        client == who.client && matches!(call, Call::Queue { id, .. } if *id == who.id)
    });
    let Some(wait) = world.wait(who) else { return };
    match wait.phase {
        Phase::Held { .. } => checked.leave(world, who),
        Phase::Asking if !is_asked => checked.ask(world, who),
        Phase::Leaving => checked.ask(world, who),
        _ => {}
    }
}

fn deliver_all(checked: &Checked, world: &mut World) {
    for _ in 0..MOST_PACKETS {
        // Requests last: they make more.
        let Some(last) = world.wire.len().checked_sub(1) else { return };
        let is_request = |packet: &Packet| matches!(packet, Packet::Request { .. });
        let other = world.wire.iter().position(|packet| !is_request(packet));
        checked.act(world, Action::Deliver(other.unwrap_or(last) as u8));
    }
}

const MOST_PACKETS: usize = 100;
