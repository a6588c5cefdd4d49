//! What others do to a fair lock: Redisson by its rules, and somebody who knows none.

use fairlock_testkit::Rng;

use super::fair::{JAVA, garbage_place, owner};
use crate::ids::OwnerId;
use crate::protocol::model::fair::Place;
use crate::protocol::model::reentrant::{Hold, LockState};
use crate::protocol::op::Ticket;
use crate::time::ServerTime;

/// The model's state of a fair lock, and what only Redis has: three keys with an end each.
#[derive(Clone, Debug, Default)]
pub(super) struct Fair {
    pub(super) lock: LockState,
    /// Whether the list ends with the places. Java makes a list without an end, if there is none.
    pub(super) list_ends: bool,
    pub(super) scores_end: bool,
}

/// How it was before an operation.
pub(super) struct Kept {
    places: Option<ServerTime>,
    marked: Option<ServerTime>,
    /// Who had a score.
    scored: Vec<OwnerId>,
}

impl Fair {
    pub(super) fn expire(&mut self, now: ServerTime) {
        if self.lock.queue.ends.is_some_and(|ends| ends < now) {
            let queue = &mut self.lock.queue;
            queue.ends = None;
            queue.places.clear();
            if self.list_ends {
                queue.list.clear();
            }
            if self.scores_end {
                queue.scores.clear();
            }
        }
        self.lock.expire(now);
        self.forget_ends();
    }

    /// Before an operation: the scripts look at the end of the list. It gets a mark, a microsecond
    /// that no end has, so that it can be seen whether it was set.
    pub(super) fn begin(&mut self) -> Kept {
        let queue = &mut self.lock.queue;
        let places = queue.ends;
        queue.ends = places.filter(|_| self.list_ends).map(|ends| ServerTime(ends.0 + 1));
        Kept { places, marked: queue.ends, scored: queue.scores.keys().cloned().collect() }
    }

    /// After it: an end that was set is the end of all three keys.
    pub(super) fn settle(&mut self, kept: Kept) {
        let queue = &mut self.lock.queue;
        // If nobody has kept its score, there were none in between.
        self.scores_end &= kept.scored.iter().any(|owner| queue.scores.contains_key(owner));
        if queue.ends == kept.marked {
            queue.ends = kept.places.filter(|_| !queue.places.is_empty());
        } else if queue.ends.is_some() {
            self.list_ends = true;
            self.scores_end = true;
        } else if !queue.places.is_empty() {
            queue.ends = kept.places;
        }
        self.forget_ends();
    }

    /// A key that has become empty is gone, and its end with it.
    fn forget_ends(&mut self) {
        self.list_ends &= !self.lock.queue.list.is_empty();
        self.scores_end &= !self.lock.queue.scores.is_empty();
    }

    pub(super) fn java(&mut self, java: &Java, now: ServerTime) {
        let owner = OwnerId::new(java.owner);
        if java.what != "leave" {
            self.java_prunes(now);
            self.forget_ends();
        }
        match java.what {
            "leave" => self.java_leaves(&owner, java.wait_ms),
            "unlock" => self.java_unlocks(&owner, java.lease_ms, now),
            what => self.java_acquires(java, &owner, what == "lock", now),
        }
        self.forget_ends();
    }

    fn java_prunes(&mut self, now: ServerTime) {
        let queue = &mut self.lock.queue;
        while let Some(head) = queue.list.front() {
            match queue.scores.get(head) {
                Some(score) if *score <= now.as_ms() => {
                    queue.scores.remove(head);
                    queue.list.pop_front();
                }
                _ => return,
            }
        }
    }

    fn java_acquires(&mut self, java: &Java, owner: &OwnerId, queues: bool, now: ServerTime) {
        let LockState { hold, queue, .. } = &mut self.lock;
        let ends = now.plus_ms(java.lease_ms);
        match hold {
            None if queue.list.front().is_none_or(|head| head == owner) => {
                queue.list.pop_front();
                queue.scores.remove(owner);
                queue.scores.values_mut().for_each(|score| *score -= java.wait_ms);
                *hold = Some(Hold { owner: owner.clone(), count: 1, ends });
            }
            Some(hold) if hold.owner == *owner => {
                hold.count += 1;
                hold.ends = ends;
            }
            _ if queues && !queue.scores.contains_key(owner) => {
                let tail = queue.list.back().filter(|tail| *tail != owner);
                let free_at = match hold {
                    Some(hold) => now.as_ms() + now.ms_until(hold.ends),
                    // What Redis says about a key that is not there.
                    None => now.as_ms() - 2,
                };
                let base = tail.and_then(|tail| queue.scores.get(tail)).copied();
                queue.scores.insert(owner.clone(), base.unwrap_or(free_at) + java.wait_ms);
                queue.list.push_back(owner.clone());
            }
            _ => {}
        }
    }

    fn java_leaves(&mut self, owner: &OwnerId, wait_ms: u64) {
        let queue = &mut self.lock.queue;
        let behind = queue.list.iter().skip_while(|entry| *entry != owner);
        for entry in behind.filter(|entry| *entry != owner) {
            if let Some(score) = queue.scores.get_mut(entry) {
                *score -= wait_ms;
            }
        }
        queue.scores.remove(owner);
        queue.list.retain(|entry| entry != owner);
    }

    fn java_unlocks(&mut self, owner: &OwnerId, lease_ms: u64, now: ServerTime) {
        let hold = &mut self.lock.hold;
        if let Some(hold) = hold.as_mut().filter(|hold| hold.owner == *owner) {
            hold.count -= 1;
            hold.ends = now.plus_ms(lease_ms);
        }
        hold.take_if(|hold| hold.count == 0);
    }

    pub(super) fn poison(&mut self, poison: &Poison) {
        let queue = &mut self.lock.queue;
        let owner = &poison.owner;
        match poison.what {
            "no score" => drop(queue.scores.remove(owner)),
            "no entry" => queue.list.retain(|entry| entry != owner),
            "entry" => queue.list.push_back(owner.clone()),
            "score" => drop(queue.scores.insert(owner.clone(), poison.score)),
            "place" => drop(queue.places.insert(owner.clone(), poison.place.clone())),
            "garbage place" => {
                queue.scores.remove(owner);
                queue.places.insert(owner.clone(), garbage_place());
            }
            "no place" => drop(queue.places.remove(owner)),
            "no queue" => queue.list.clear(),
            "no scores" => queue.scores.clear(),
            "no places" => queue.places.clear(),
            what => panic!("no such poison: {what}"),
        }
        if queue.places.is_empty() {
            queue.ends = None;
        }
        self.forget_ends();
    }
}

/// A request of Redisson.
#[derive(Clone, Debug)]
pub(super) struct Java {
    pub(super) what: &'static str,
    pub(super) owner: &'static str,
    pub(super) wait_ms: u64,
    pub(super) lease_ms: u64,
}

impl Java {
    /// Mostly what there is to do: the holder unlocks, the head locks.
    pub(super) fn random(rng: &mut Rng, fair: &Fair) -> Self {
        let what = *rng.pick(&["lock", "lock", "lock", "lock", "try", "leave", "unlock", "unlock"]);
        let due = match what {
            "unlock" => fair.lock.hold.as_ref().map(|hold| &hold.owner),
            _ => fair.lock.queue.list.front().filter(|_| rng.chance(1, 2)),
        };
        let due = due.and_then(|due| JAVA.iter().find(|owner| **owner == due.as_str()));
        Self {
            what,
            owner: due.unwrap_or_else(|| rng.pick(&JAVA)),
            wait_ms: *rng.pick(&[300_000, 300_000, 60_000, 1_000]),
            lease_ms: *rng.pick(&[100, 30_000]),
        }
    }
}

/// Something that no client does.
#[derive(Clone, Debug)]
pub(super) struct Poison {
    pub(super) what: &'static str,
    pub(super) owner: OwnerId,
    pub(super) score: u64,
    pub(super) place: Place,
}

impl Poison {
    pub(super) fn random(rng: &mut Rng, fair: &Fair, now: ServerTime) -> Self {
        let list = &fair.lock.queue.list;
        let owner = match rng.below(4) {
            0 => owner(rng),
            1 => OwnerId::new(*rng.pick(&JAVA)),
            _ if list.is_empty() => owner(rng),
            _ => list[rng.below(list.len() as u64) as usize].clone(),
        };
        let place = Place {
            ticket: Ticket(now.0 - rng.below(100_000_000)),
            deadline: ServerTime(now.0 + rng.below(40_000_000) - 20_000_000),
            lease_ms: 30_000,
            waits_ms: 1_000 * rng.below(100) * rng.below(2),
            identity: "somebody".into(),
        };
        let score = now.as_ms() + rng.below(400_000) - 100_000;
        // A garbage place with a score is none to the scripts, which the model cannot say.
        let garbage = fair.lock.queue.places.get(&owner) == Some(&garbage_place());
        let what = if garbage { "no place" } else { *rng.pick(&POISONS) };
        Self { what, owner, score, place }
    }
}

const POISONS: [&str; 10] = [
    "no score",
    "no entry",
    "entry",
    "score",
    "place",
    "garbage place",
    "no place",
    "no queue",
    "no scores",
    "no places",
];
