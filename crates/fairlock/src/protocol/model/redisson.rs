//! Redisson's fair lock, on the same state: what Java clients do to the keys that we share.
//!
//! Only tests need it. It knows list, scores and hash, and nothing of places, records and ends:
//! that is the point of it. What it does is compared with recordings of the real one.

use super::reentrant::{Hold, LockState, Message};
use crate::ids::OwnerId;
use crate::time::ServerTime;

/// What one of Java's attempts answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tried {
    Acquired,
    /// Try again after so many milliseconds, or when told.
    Wait(u64),
}

/// One attempt of a Java thread.
#[derive(Clone, Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) owner: &'a OwnerId,
    pub(crate) wait_ms: u64,
    pub(crate) lease_ms: u64,
    /// Java's own clock.
    pub(crate) java_now_ms: u64,
}

/// Takes the lock, or queues for it.
pub(crate) fn queueing_try(lock: &mut LockState, attempt: &Attempt<'_>, now: ServerTime) -> Tried {
    begin(lock, attempt.java_now_ms, now);
    if taken(lock, attempt, now) {
        return Tried::Acquired;
    }
    let pttl = lock.hold.as_ref().map(|hold| now.ms_until(hold.ends));
    let owner = attempt.owner;
    if lock.queue.scores.contains_key(owner) {
        return Tried::Wait(pttl.unwrap_or(0));
    }
    let tail = lock.queue.list.back().filter(|tail| *tail != owner);
    let base = tail.and_then(|tail| lock.queue.scores.get(tail)).copied();
    // Two less than now is what the number of an absent key adds up to.
    let free_at = pttl.map_or(attempt.java_now_ms - 2, |pttl| attempt.java_now_ms + pttl);
    let base = base.unwrap_or(free_at);
    lock.queue.scores.insert(owner.clone(), base + attempt.wait_ms);
    lock.queue.list.push_back(owner.clone());
    Tried::Wait(base.saturating_sub(attempt.java_now_ms))
}

/// Takes the lock, or does nothing.
pub(crate) fn plain_try(lock: &mut LockState, attempt: &Attempt<'_>, now: ServerTime) -> bool {
    begin(lock, attempt.java_now_ms, now);
    taken(lock, attempt, now)
}

/// Stops waiting. Nobody is told, even if the lock is free.
pub(crate) fn leave(lock: &mut LockState, owner: &OwnerId, wait_ms: u64, now: ServerTime) {
    lock.expire(now);
    if let Some(own) = lock.queue.list.iter().position(|entry| entry == owner) {
        for behind in lock.queue.list.iter().skip(own + 1) {
            lower(&mut lock.queue.scores, behind, wait_ms);
        }
    }
    lock.queue.scores.remove(owner);
    lock.queue.list.retain(|entry| entry != owner);
}

/// Gives one hold back; `false` if the lock is somebody else's.
pub(crate) fn unlock(
    lock: &mut LockState,
    owner: &OwnerId,
    lease_ms: u64,
    java_now_ms: u64,
    now: ServerTime,
) -> (bool, Message) {
    begin(lock, java_now_ms, now);
    let Some(hold) = &mut lock.hold else {
        return (true, call_head(lock));
    };
    if hold.owner != *owner {
        return (false, Message::None);
    }
    if hold.count > 1 {
        hold.count -= 1;
        hold.ends = now.plus_ms(lease_ms);
        return (true, Message::None);
    }
    lock.hold = None;
    (true, call_head(lock))
}

/// Breaks the lock; the queue stays.
pub(crate) fn force(lock: &mut LockState, java_now_ms: u64, now: ServerTime) -> (bool, Message) {
    begin(lock, java_now_ms, now);
    match lock.hold.take() {
        Some(_) => (true, call_head(lock)),
        None => (false, Message::None),
    }
}

/// Every script but `leave` begins so: heads past their scores go, whoever they are.
fn begin(lock: &mut LockState, java_now_ms: u64, now: ServerTime) {
    lock.expire(now);
    while let Some(head) = lock.queue.list.front() {
        match lock.queue.scores.get(head) {
            Some(score) if *score <= java_now_ms => {
                lock.queue.scores.remove(head);
                lock.queue.list.pop_front();
            }
            _ => break,
        }
    }
}

fn taken(lock: &mut LockState, attempt: &Attempt<'_>, now: ServerTime) -> bool {
    let (owner, ends) = (attempt.owner, now.plus_ms(attempt.lease_ms));
    if let Some(hold) = lock.hold.as_mut() {
        if hold.owner != *owner {
            return false;
        }
        hold.count += 1;
        hold.ends = ends;
        return true;
    }
    if lock.queue.list.front().is_some_and(|head| head != owner) {
        return false;
    }
    lock.queue.list.pop_front();
    lock.queue.scores.remove(owner);
    let others: Vec<OwnerId> = lock.queue.scores.keys().cloned().collect();
    for other in &others {
        lower(&mut lock.queue.scores, other, attempt.wait_ms);
    }
    lock.hold = Some(Hold { owner: owner.clone(), count: 1, ends });
    true
}

fn lower(scores: &mut std::collections::BTreeMap<OwnerId, u64>, owner: &OwnerId, by_ms: u64) {
    if let Some(score) = scores.get_mut(owner) {
        *score = score.saturating_sub(by_ms);
    }
}

fn call_head(lock: &LockState) -> Message {
    lock.queue.list.front().cloned().map_or(Message::None, Message::Call)
}
