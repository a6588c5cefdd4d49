//! The line: everybody in this process who waits for one lock.
//!
//! A thousand tasks may wait for one lock; the store hears of one attempt at a time, made for the
//! head of the line. The order of a waiting acquire is: try; listen; try again; then sleep until a
//! message says that the lock came free, or until the holder's lease can have ended, and try
//! again; give up at the wait time. A message is only a hint: whatever could have happened while
//! nobody listened is found by the try that follows the (re-)subscription.
//!
//! When a guard of this process is released, the head may get the lock in the same request
//! ([`Line::pass_on`]). That is fast, and unfair to other processes, so a streak of such passes is
//! bounded in number and time; after it the lock is given up for everybody, and if anybody else
//! listens this process stands back for a moment ([`Line::given_up`]).
//!
//! ```text
//!            arrive                      Busy                    listening
//!   (caller) ------> attempt in flight ------> Deaf -> Opening ----------> attempt in flight
//!                         |    ^                                                |
//!                    Held |    | message, or the lease can have ended           | Busy
//!                         v    +------------------------- waiting <-------------+
//!                       guard
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::ids::OwnerId;
use crate::protocol::op::{Claim, Heard, Lease};
use crate::time::BootTime;

/// The waiters of one process for one lock. `T` is how a waiter is told.
#[derive(Debug)]
pub(crate) struct Line<T> {
    waiting: VecDeque<Waiter<T>>,
    gives_up: BTreeSet<(BootTime, OwnerId)>,
    /// For whom a request that may bring the lock is on its way. At most one at a time.
    attempt: Option<OwnerId>,
    ear: Ear,
    /// Something may have changed since the last attempt was sent.
    woken: bool,
    /// When the holder's lease can have ended, as far as the last reply told.
    look_at: Option<BootTime>,
    stand_back: Option<StandBack>,
    streak: Option<Streak>,
    idle_since: Option<BootTime>,
}

/// One who waits.
#[derive(Debug)]
pub(crate) struct Waiter<T> {
    pub(crate) claim: Claim,
    pub(crate) gives_up_at: Option<BootTime>,
    pub(crate) ticket: T,
}

/// What an attempt found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The attempt brought the lock, until then at the latest.
    Held { ends: BootTime },
    /// Somebody else has it.
    Busy { lease: Lease },
    /// Nobody knows: the attempt was called off.
    Unknown,
}

/// What the driver is to do for a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Subscribe to the lock's channel, then call [`Line::listening`].
    Listen,
    /// Unsubscribe, then call [`Line::unsubscribed`].
    Unlisten,
    /// Try for this claim, then call [`Line::attempted`].
    Attempt(Claim),
    /// Nothing until this time, or until something happens.
    Rest(Option<BootTime>),
    /// The line is of no use any more.
    Remove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ear {
    Deaf,
    Opening,
    Open,
    Closing,
}

/// Passes from hand to hand within this process, since it won the lock from the store.
#[derive(Clone, Copy, Debug)]
struct Streak {
    passes: u32,
    since: BootTime,
}

/// Others may go first until then. The message of our own release is not a reason to hurry.
#[derive(Clone, Copy, Debug)]
struct StandBack {
    until: BootTime,
    own_message_expected: bool,
}

impl<T> Line<T> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            gives_up: BTreeSet::new(),
            attempt: None,
            ear: Ear::Deaf,
            woken: false,
            look_at: None,
            stand_back: None,
            streak: None,
            idle_since: None,
        }
    }

    /// Whether the newcomer may try at once; else it has to wait behind others.
    pub(crate) fn arrive(&mut self, owner: &OwnerId) -> bool {
        let first = self.attempt.is_none() && self.waiting.is_empty();
        if first {
            self.attempt = Some(owner.clone());
        }
        first
    }

    /// Waits at the end of the line.
    pub(crate) fn join(&mut self, waiter: Waiter<T>) {
        self.note_give_up(&waiter);
        self.waiting.push_back(waiter);
    }

    /// Waits at the head of the line: one who arrived first, tried, and found the lock busy.
    pub(crate) fn join_as_head(&mut self, waiter: Waiter<T>) {
        self.note_give_up(&waiter);
        self.waiting.push_front(waiter);
    }

    /// Leaves the line; nothing happens if it is not in there.
    pub(crate) fn leave(&mut self, owner: &OwnerId) -> Option<Waiter<T>> {
        let place = self.waiting.iter().position(|waiter| waiter.claim.owner == *owner)?;
        let waiter = self.waiting.remove(place)?;
        if let Some(at) = waiter.gives_up_at {
            self.gives_up.remove(&(at, owner.clone()));
        }
        Some(waiter)
    }

    /// Those whose wait time is over.
    pub(crate) fn give_up(&mut self, now: BootTime) -> Vec<Waiter<T>> {
        let mut gone = Vec::new();
        while let Some((_, owner)) = self.gives_up.first().filter(|(at, _)| *at <= now) {
            let owner = owner.clone();
            gone.extend(self.leave(&owner));
        }
        gone
    }

    /// Everybody leaves: the store cannot be used.
    pub(crate) fn disband(&mut self) -> Vec<Waiter<T>> {
        self.gives_up.clear();
        self.waiting.drain(..).collect()
    }

    /// An attempt for `owner` has ended.
    pub(crate) fn attempted(&mut self, owner: &OwnerId, found: Found, now: BootTime) {
        self.end_attempt(owner, found, now);
        if matches!(found, Found::Held { .. }) {
            self.streak = Some(Streak { passes: 0, since: now });
        }
    }

    /// Whom a release should bring the lock to. The answer counts as an attempt for that one.
    pub(crate) fn pass_on(&mut self, now: BootTime) -> Option<Claim> {
        if self.attempt.is_some() {
            return None;
        }
        let head = self.waiting.front()?;
        let streak = self.streak.get_or_insert(Streak { passes: 0, since: now });
        if streak.passes >= MOST_PASSES || streak.since.until(now) >= LONGEST_STREAK {
            return None;
        }
        streak.passes += 1;
        self.attempt = Some(head.claim.owner.clone());
        Some(head.claim.clone())
    }

    /// A release that was to bring the lock to `owner` has ended.
    pub(crate) fn passed_on(&mut self, owner: &OwnerId, found: Found, now: BootTime) {
        self.end_attempt(owner, found, now);
    }

    /// The lock was given up for everybody, and so many heard it.
    pub(crate) fn given_up(&mut self, heard: Heard, now: BootTime) {
        self.streak = None;
        self.woken = true;
        let own = u64::from(self.ear == Ear::Open);
        let others = matches!(heard, Heard::By(heard) if heard > own);
        self.stand_back = others
            .then(|| StandBack { until: now.plus(STAND_BACK), own_message_expected: own > 0 });
    }

    /// A message says that the lock came free.
    pub(crate) fn message(&mut self) {
        self.woken = true;
        match &mut self.stand_back {
            Some(back) if back.own_message_expected => back.own_message_expected = false,
            back => *back = None,
        }
    }

    /// The subscription is confirmed. What was missed before is found by trying again.
    pub(crate) fn listening(&mut self) {
        self.ear = Ear::Open;
        self.woken = true;
    }

    /// The subscription is gone, with its connection or because it failed.
    pub(crate) fn deaf(&mut self) {
        if self.ear == Ear::Open {
            self.ear = Ear::Deaf;
        }
    }

    /// A subscription or its end did not work out.
    pub(crate) fn unsubscribed(&mut self) {
        self.ear = Ear::Deaf;
    }

    /// What to do next. Call it after every change, and at the time it names.
    pub(crate) fn poll(&mut self, now: BootTime) -> Step {
        if self.attempt.is_some() {
            return Step::Rest(self.next_give_up());
        }
        let Some(head) = self.waiting.front() else { return self.poll_idle(now) };
        self.idle_since = None;
        match self.ear {
            Ear::Deaf => {
                self.ear = Ear::Opening;
                Step::Listen
            }
            Ear::Opening | Ear::Closing => Step::Rest(self.next_give_up()),
            Ear::Open => {
                let changed = if self.woken { None } else { self.look_at };
                let free_at = self.stand_back.map(|back| back.until);
                match changed.max(free_at).filter(|at| *at > now) {
                    Some(at) => {
                        Step::Rest(self.next_give_up().map_or(Some(at), |g| Some(g.min(at))))
                    }
                    None => {
                        let claim = head.claim.clone();
                        self.woken = false;
                        self.stand_back = None;
                        self.attempt = Some(claim.owner.clone());
                        Step::Attempt(claim)
                    }
                }
            }
        }
    }

    /// Who is next.
    pub(crate) fn head(&self) -> Option<&Waiter<T>> {
        self.waiting.front()
    }

    /// When the first wait time is over.
    pub(crate) fn next_give_up(&self) -> Option<BootTime> {
        self.gives_up.first().map(|(at, _)| *at)
    }

    /// Whether the line is of no use any more.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.attempt.is_none() && self.ear == Ear::Deaf
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn poll_idle(&mut self, now: BootTime) -> Step {
        match self.ear {
            Ear::Deaf => Step::Remove,
            Ear::Opening | Ear::Closing => Step::Rest(None),
            Ear::Open => {
                let ends = self.idle_since.get_or_insert(now).plus(LINGER);
                if ends > now {
                    return Step::Rest(Some(ends));
                }
                self.ear = Ear::Closing;
                Step::Unlisten
            }
        }
    }

    fn end_attempt(&mut self, owner: &OwnerId, found: Found, now: BootTime) {
        debug_assert_eq!(self.attempt.as_ref(), Some(owner), "one attempt at a time");
        self.attempt = None;
        match found {
            Found::Held { ends } => {
                self.woken = false;
                self.look_at = Some(ends.plus(GRACE));
            }
            Found::Busy { lease } => {
                self.look_at = Some(match lease {
                    Lease::Ms(left) => now.plus_ms(left).plus(GRACE),
                    Lease::None => now,
                    Lease::Endless => now.plus(LONGEST_SILENCE),
                });
            }
            Found::Unknown => self.woken = true,
        }
    }

    fn note_give_up(&mut self, waiter: &Waiter<T>) {
        if let Some(at) = waiter.gives_up_at {
            self.gives_up.insert((at, waiter.claim.owner.clone()));
        }
    }
}

/// A streak costs other processes the time of so many short holds ...
const MOST_PASSES: u32 = 32;
/// ... and never more than this: with long holds every release is for everybody.
const LONGEST_STREAK: Duration = Duration::from_millis(20);
/// Time for another process to hear the message and to try: some round trips.
const STAND_BACK: Duration = Duration::from_millis(5);
/// A look right after the moment a watchdog would have renewed the lease finds the new lease; a
/// look right before it would have to be repeated soon.
pub(super) const GRACE: Duration = Duration::from_millis(10);
/// A lock without end is nobody's plan; look from time to time.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(30);
/// Busy locks are contended again soon: keep the ear open for a moment.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const T0: BootTime = BootTime(1_000_000_000_000);

    fn claim(number: u32) -> Claim {
        let owner = OwnerId::new(format!("client:{number}"));
        Claim { owner, lease_ms: 30_000, identity: "".into() }
    }

    fn waiter(number: u32) -> Waiter<()> {
        Waiter { claim: claim(number), gives_up_at: None, ticket: () }
    }

    /// A line whose head, number 1, has tried, listened and tried again.
    fn waiting_line(lease_ms: u64) -> Line<()> {
        let mut line = Line::new();
        let owner = claim(1).owner;
        assert!(line.arrive(&owner));
        line.attempted(&owner, Found::Busy { lease: Lease::Ms(lease_ms) }, T0);
        line.join_as_head(waiter(1));
        assert_eq!(line.poll(T0), Step::Listen);
        assert_eq!(line.poll(T0), Step::Rest(None), "no attempt before the subscription");
        line.listening();
        assert_eq!(line.poll(T0), Step::Attempt(claim(1)));
        line.attempted(&owner, Found::Busy { lease: Lease::Ms(lease_ms) }, T0);
        line
    }

    #[test]
    fn tries_listens_tries_again_and_rests_until_the_lease_can_have_ended() {
        let mut line = waiting_line(500);
        let look_at = T0.plus_ms(500).plus(GRACE);
        assert_eq!(line.poll(T0), Step::Rest(Some(look_at)));
        assert_eq!(line.poll(look_at), Step::Attempt(claim(1)));
    }

    #[test]
    fn one_attempt_at_a_time_however_many_wait() {
        let mut line = waiting_line(30_000);
        for number in 2..1_000 {
            assert!(!line.arrive(&claim(number).owner));
            line.join(waiter(number));
        }
        line.message();
        assert_eq!(line.poll(T0), Step::Attempt(claim(1)));
        line.message();
        assert_eq!(line.poll(T0), Step::Rest(None));
        line.attempted(&claim(1).owner, Found::Busy { lease: Lease::Ms(30_000) }, T0);
        assert_eq!(line.poll(T0), Step::Attempt(claim(1)), "the message during it is not lost");
    }

    #[test]
    fn a_message_during_the_subscription_is_covered_by_the_second_try() {
        let mut line = waiting_line(30_000);
        line.deaf();
        assert_eq!(line.poll(T0), Step::Listen);
        line.listening();
        assert_eq!(line.poll(T0), Step::Attempt(claim(1)));
    }

    #[test]
    fn the_wait_time_ends_also_while_an_attempt_is_on_its_way() {
        let mut line = waiting_line(30_000);
        let late = Waiter { gives_up_at: Some(T0.plus_ms(100)), ..waiter(2) };
        line.join(late);
        line.message();
        assert_eq!(line.poll(T0), Step::Attempt(claim(1)));
        assert_eq!(line.poll(T0), Step::Rest(Some(T0.plus_ms(100))));
        assert_eq!(line.give_up(T0.plus_ms(99)).len(), 0);
        assert_eq!(line.give_up(T0.plus_ms(100)).len(), 1);
        assert_eq!(line.len(), 1);
    }

    #[test]
    fn a_streak_of_passes_is_bounded_in_number_and_time() {
        let mut line = waiting_line(30_000);
        line.join(waiter(2));
        let mut passes = 0;
        while let Some(next) = line.pass_on(T0) {
            line.passed_on(&next.owner, Found::Held { ends: T0.plus_ms(30_000) }, T0);
            passes += 1;
        }
        assert_eq!(passes, MOST_PASSES);
        line.given_up(Heard::By(1), T0);
        assert_eq!(line.poll(T0), Step::Attempt(claim(1)), "alone: no reason to stand back");
        line.attempted(&claim(1).owner, Found::Held { ends: T0.plus_ms(30_000) }, T0);
        assert!(line.pass_on(T0.plus(LONGEST_STREAK)).is_none());
        assert!(line.pass_on(T0).is_some());
    }

    #[test]
    fn stands_back_when_others_heard_the_release() {
        let mut line = waiting_line(30_000);
        line.given_up(Heard::By(2), T0);
        line.message();
        assert_eq!(line.poll(T0), Step::Rest(Some(T0.plus(STAND_BACK))));
        line.message();
        assert_eq!(line.poll(T0), Step::Attempt(claim(1)), "the other one has released already");
    }

    #[test]
    fn an_idle_line_stops_listening_and_goes() {
        let mut line = waiting_line(30_000);
        line.leave(&claim(1).owner);
        assert_eq!(line.poll(T0), Step::Rest(Some(T0.plus(LINGER))));
        assert_eq!(line.poll(T0.plus(LINGER)), Step::Unlisten);
        line.unsubscribed();
        assert_eq!(line.poll(T0.plus(LINGER)), Step::Remove);
    }
}
