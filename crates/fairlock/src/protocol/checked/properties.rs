//! What every state of the checked world must show.

use super::Checked;
use super::progress;
use super::world::{HERE, NOW, Packet, Phase, Wait, Who, World, Wrong};
use crate::ids::{OwnerId, Token};
use stateright::Property;

/// All properties, by name.
pub(super) fn all() -> Vec<Property<Checked>> {
    vec![
        Property::<Checked>::always(EXCLUSION, |_, world| exclusion(world)),
        Property::<Checked>::always(BACKED, guards_are_backed),
        Property::<Checked>::always(TOKENS, |_, world| world.wrong != Some(Wrong::TokenDidNotGrow)),
        Property::<Checked>::always(ORDER, |_, world| world.wrong != Some(Wrong::OutOfOrder)),
        Property::<Checked>::always(COUNT, counts),
        Property::<Checked>::always(LEAKS, nothing_leaks),
        Property::<Checked>::always(JAVA_RESERVED, |_, world| {
            world.wrong != Some(Wrong::JavaWasPassedOver)
        }),
        Property::<Checked>::always(JAVA_UNTOUCHED, |_, world| {
            world.wrong != Some(Wrong::JavaWasTouched)
        }),
        Property::<Checked>::always(JAVA_CONSISTENT, java_is_consistent),
        Property::<Checked>::always(EVICTED, nobody_is_evicted),
        Property::<Checked>::always(PROGRESS, progress::everybody_is_served),
    ]
}

/// Never two guards that are valid at once. Where the store lost a hold, the tokens tell.
fn exclusion(world: &World) -> bool {
    let guards: Vec<(Token, Who)> = guards(world).map(|(who, token, _)| (token, who)).collect();
    guards.iter().enumerate().all(|(index, (token, _))| {
        guards[..index]
            .iter()
            .all(|(other, _)| token != other && token.min(other) <= &world.lost_token)
    })
}

/// Who has a valid guard has the lock in the store, for as long as it thinks or longer.
fn guards_are_backed(checked: &Checked, world: &World) -> bool {
    guards(world).filter(|(_, token, _)| *token > world.lost_token).all(|(who, _, left_ms)| {
        world.lock.hold.as_ref().is_some_and(|hold| {
            checked.who(&hold.owner) == Some(who) && NOW.ms_until(hold.ends) >= left_ms
        })
    })
}

/// Valid guards: whose, with which token, and for how long, in ms.
fn guards(world: &World) -> impl Iterator<Item = (Who, Token, u64)> {
    waits(world).filter_map(|(who, wait)| match wait.phase {
        Phase::Held { token, until, .. } if until > HERE => {
            Some((who, token, HERE.until(until).as_millis() as u64))
        }
        _ => None,
    })
}

pub(super) fn waits(world: &World) -> impl Iterator<Item = (Who, &Wait)> {
    world.clients.iter().enumerate().flat_map(|(client, state)| {
        let who = move |id| Who { client: client as u8, id };
        state.waits.iter().map(move |wait| (who(wait.id), wait))
    })
}

/// Nobody has the lock more often than it ever asked for; Java's threads have it once.
fn counts(checked: &Checked, world: &World) -> bool {
    world.lock.hold.as_ref().is_none_or(|hold| {
        let most = match checked.who(&hold.owner) {
            Some(_) if world.left.reentries < checked.faults.reentries => 2,
            _ => 1,
        };
        hold.count <= most && hold.count > 0
    })
}

/// What is over leaves nothing behind, except that of a dead client, which ends by itself.
fn nothing_leaks(checked: &Checked, world: &World) -> bool {
    let lock = &world.lock;
    let longest = NOW.plus_ms(checked.waiter_ttl_ms.max(checked.lease_ms));
    let ends = lock.hold.as_ref().is_none_or(|hold| hold.ends <= longest)
        && lock.queue.places.values().all(|place| place.deadline <= longest)
        && (lock.queue.places.is_empty() || lock.queue.ends.is_some());
    let entries = lock.hold.iter().map(|hold| &hold.owner).chain(&lock.queue.list);
    let mut entries = entries.chain(lock.queue.scores.keys()).chain(lock.queue.places.keys());
    ends && entries.all(|owner| {
        checked.who(owner).is_none_or(|who| {
            let client = &world.clients[usize::from(who.client)];
            !client.alive || client.waits.iter().any(|wait| wait.id == who.id)
        })
    })
}

/// A Java thread stands in the list as often as it has a score: once at most.
fn java_is_consistent(checked: &Checked, world: &World) -> bool {
    let queue = &world.lock.queue;
    checked.java_owners.iter().all(|owner| {
        let entries = queue.list.iter().filter(|entry| *entry == owner).count();
        entries == usize::from(queue.scores.contains_key(owner))
    })
}

/// A fairlock waiter that is alive stands in the list and has a score, unless it could not know how
/// long Java waits.
fn nobody_is_evicted(checked: &Checked, world: &World) -> bool {
    let queue = &world.lock.queue;
    queue.places.iter().all(|(owner, place)| {
        let stands = |owner: &OwnerId| queue.list.iter().filter(|entry| *entry == owner).count();
        let who = checked.who(owner).filter(|who| !world.mistaken.contains(who));
        let lives = place.deadline >= NOW && who.is_some();
        !lives || (stands(owner) == 1 && queue.scores.contains_key(owner))
    })
}

/// Whether a packet of this waiter of this kind is under way.
pub(super) fn under_way(world: &World, is: impl Fn(u8, &super::world::Call) -> bool) -> bool {
    world.wire.iter().any(|packet| match packet {
        Packet::Request { client, call, .. } | Packet::Reply { client, call, .. } => {
            is(*client, call)
        }
        _ => false,
    })
}

pub(super) const EXCLUSION: &str = "never two valid guards";
pub(super) const BACKED: &str = "a valid guard is a hold in the store";
pub(super) const TOKENS: &str = "tokens grow";
pub(super) const ORDER: &str = "first come, first served";
pub(super) const COUNT: &str = "no hold counts more than was asked for";
pub(super) const LEAKS: &str = "nothing is left behind";
pub(super) const JAVA_RESERVED: &str = "Java's turn is Java's";
pub(super) const JAVA_UNTOUCHED: &str = "Java's holds and scores are left alone";
pub(super) const JAVA_CONSISTENT: &str = "Java's list and scores agree";
pub(super) const EVICTED: &str = "no live waiter is evicted";
pub(super) const PROGRESS: &str = "everybody is served in the end";
