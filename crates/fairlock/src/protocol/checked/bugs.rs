//! Mistakes that the checker must find: each is one that an implementation could make.

use super::Checked;
use super::world::{Call, NOW, World};
use crate::ids::OwnerId;
use crate::protocol::model::reentrant::{LockState, Message};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// A message counts whatever its token.
    NoTokenFloor,
    /// A client uses one wire id for all its waits.
    ReusedIds,
    /// A heartbeat of a waiter sets the lease of a hold instead of raising it.
    ShrinkingLease,
    /// A guard is valid from when its answer came instead of from when it was asked for.
    CountedFromTheReply,
    /// The message is sent, and then the store refuses to write.
    PublishedBeforeWritten,
    /// Scores of fairlock waiters are added up as Java's are, and not raised by heartbeats.
    AdditiveScores,
}

impl Bug {
    /// Does the wrong thing to the store after it did the right one; whether the request failed.
    pub(super) fn spoil(
        self,
        world: &mut World,
        before: &LockState,
        client: u8,
        call: &Call,
        message: &Message,
        checked: &Checked,
    ) -> bool {
        match (self, call) {
            (Self::ShrinkingLease, Call::Beat { ids }) => {
                let held =
                    world.lock.hold.as_mut().filter(|hold| {
                        ids.iter().any(|id| checked.owner(client, *id) == hold.owner)
                    });
                if let Some(hold) = held {
                    hold.ends = NOW.plus_ms(checked.waiter_ttl_ms);
                }
                false
            }
            (Self::PublishedBeforeWritten, _) if matches!(message, Message::Grant { .. }) => {
                world.lock = before.clone();
                true
            }
            (Self::AdditiveScores, _) => {
                add_up(&mut world.lock, before);
                false
            }
            _ => false,
        }
    }
}

/// As Java keeps them: the score of the tail and a wait more, which goes when the waiter goes.
fn add_up(lock: &mut LockState, before: &LockState) {
    let gone = |owner: &&OwnerId| owner.is_fairlock() && !lock.queue.list.contains(*owner);
    let gone = before.queue.list.iter().filter(gone).count() as u64;
    let tail = before.queue.list.back().and_then(|tail| before.queue.scores.get(tail)).copied();
    let pttl = before.hold.as_ref().map_or(0, |hold| NOW.ms_until(hold.ends));
    for (owner, score) in &mut lock.queue.scores {
        *score = match before.queue.scores.get(owner) {
            Some(old) => old.saturating_sub(gone * WAIT_MS),
            None => tail.unwrap_or(NOW.as_ms() + pttl) + WAIT_MS,
        };
    }
}

const WAIT_MS: u64 = 60_000;
