//! The recordings of the real Redisson, replayed step by step on the model of it.

use std::collections::BTreeMap;

use crate::ids::OwnerId;
use crate::protocol::model::redisson::{self, Attempt, Tried};
use crate::protocol::model::reentrant::{LockState, Message};
use crate::time::ServerTime;

#[test]
fn redisson_4_7_0_does_what_its_model_does() {
    assert_eq!(replay(include_str!("../../../../../interop/redisson/recorded/fair-4.7.0.txt")), 18);
}

#[test]
fn redisson_3_43_0_does_what_its_model_does() {
    let recorded = include_str!("../../../../../interop/redisson/recorded/fair-3.43.0.txt");
    assert_eq!(replay(recorded), 18);
}

/// Replays a recording and compares the keys after every step; answers how many there were.
fn replay(recorded: &str) -> usize {
    let mut replay = Replay::default();
    let mut steps = 0;
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        match line.trim_start().split(' ').collect::<Vec<_>>().as_slice() {
            ["step", ..] => {
                steps += 1;
                replay.begin(line);
            }
            ["call", call @ ..] => replay.call(call),
            ["tell", owner] => replay.told(owner),
            ["hash", owner, count, "ttl", ttl] => {
                replay.hash = Some(((*owner).to_owned(), number(count) as u32, number(ttl)));
            }
            ["queue", owners @ ..] => {
                replay.queue = owners.iter().map(|owner| (*owner).to_owned()).collect();
            }
            ["score", owner, score] => {
                replay.scores.insert((*owner).to_owned(), number(score));
            }
            ["quiet", "at", at] => replay.compare(number(at)),
            other => panic!("not known: {other:?}"),
        }
    }
    steps
}

#[derive(Default)]
struct Replay {
    lock: LockState,
    step: String,
    message: Option<OwnerId>,
    hash: Option<(String, u32, u64)>,
    queue: Vec<String>,
    scores: BTreeMap<String, u64>,
}

impl Replay {
    fn begin(&mut self, step: &str) {
        self.step = step.to_owned();
        self.hash = None;
        self.queue.clear();
        self.scores.clear();
    }

    fn call(&mut self, call: &[&str]) {
        let told = match call {
            ["try", owner, "wait", wait, "lease", lease, "now", java, "at", at] => {
                let (owner, at) = (OwnerId::new(*owner), time(at));
                let attempt = attempt(&owner, wait, lease, java);
                let held = self.lock.hold.as_ref().is_none_or(|hold| hold.ends < at);
                let tried = redisson::queueing_try(&mut self.lock, &attempt, at);
                assert!(held || tried != Tried::Acquired || self.count() > 1, "{}", self.step);
                Message::None
            }
            ["plain", owner, "lease", lease, "wait", wait, "now", java, "at", at] => {
                let owner = OwnerId::new(*owner);
                let attempt = attempt(&owner, wait, lease, java);
                assert!(!redisson::plain_try(&mut self.lock, &attempt, time(at)), "{}", self.step);
                Message::None
            }
            ["leave", owner, "wait", wait, "at", at] => {
                redisson::leave(&mut self.lock, &OwnerId::new(*owner), number(wait), time(at));
                Message::None
            }
            ["unlock", owner, "lease", lease, "now", java, "at", at] => {
                let owner = OwnerId::new(*owner);
                let (lease, java) = (number(lease), java_time(java));
                let (done, told) = redisson::unlock(&mut self.lock, &owner, lease, java, time(at));
                assert!(done, "{}", self.step);
                told
            }
            ["force", "now", java, "at", at] => {
                let (done, told) = redisson::force(&mut self.lock, java_time(java), time(at));
                assert!(done, "{}", self.step);
                told
            }
            other => panic!("not known: {other:?}"),
        };
        if let Message::Call(owner) = told {
            assert_eq!(self.message.replace(owner), None, "{}", self.step);
        }
    }

    fn count(&self) -> u32 {
        self.lock.hold.as_ref().map_or(0, |hold| hold.count)
    }

    fn told(&mut self, owner: &str) {
        assert_eq!(self.message.take(), Some(OwnerId::new(owner)), "{}", self.step);
    }

    fn compare(&mut self, at: u64) {
        let at = time(&at.to_string());
        self.lock.expire(at);
        assert_eq!(self.message, None, "{}: nobody was told", self.step);
        let hold = self.lock.hold.as_ref();
        let ours = hold.map(|hold| (hold.owner.to_string(), hold.count));
        let theirs = self.hash.clone().map(|(owner, count, _)| (owner, count));
        assert_eq!(ours, theirs, "{}", self.step);
        if let (Some(hold), Some((_, _, ttl))) = (hold, &self.hash) {
            near(at.ms_until(hold.ends), *ttl, &self.step);
        }
        let list: Vec<&str> = self.lock.queue.list.iter().map(OwnerId::as_str).collect();
        assert_eq!(list, self.queue, "{}", self.step);
        let members: Vec<&str> = self.lock.queue.scores.keys().map(OwnerId::as_str).collect();
        let expected: Vec<&str> = self.scores.keys().map(String::as_str).collect();
        assert_eq!(members, expected, "{}", self.step);
        for (score, theirs) in self.lock.queue.scores.values().zip(self.scores.values()) {
            near(score - START_MS, *theirs, &self.step);
        }
    }
}

fn attempt<'a>(owner: &'a OwnerId, wait: &str, lease: &str, java: &str) -> Attempt<'a> {
    let (wait_ms, lease_ms) = (number(wait), number(lease));
    Attempt { owner, wait_ms, lease_ms, java_now_ms: java_time(java) }
}

fn near(ours: u64, theirs: u64, step: &str) {
    assert!(ours.abs_diff(theirs) <= TOLERANCE_MS, "{step}: {ours}, in truth {theirs}");
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

fn java_time(text: &str) -> u64 {
    START_MS + number(text)
}

fn time(text: &str) -> ServerTime {
    ServerTime(java_time(text) * 1_000)
}

/// Recordings count from zero; a score may not fall below that.
const START_MS: u64 = 1_000_000_000;
/// A call is recorded when the server has read it, a TTL begins to run when the script sets it,
/// and what is left of it is asked for a moment before the time.
const TOLERANCE_MS: u64 = 40;
