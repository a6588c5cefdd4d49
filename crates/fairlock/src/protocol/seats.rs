//! The seats: everybody in this process who waits for one fair lock.
//!
//! Each of them has a place of its own in the store's queue, under an id of its own. One heartbeat
//! keeps all of them; it also asks what became of them, so whatever a lost message would have told
//! is found out by the next one. It is sent early when something may have changed: when the lease of
//! the holder can have ended, when a connection was made anew, when a message is doubtful.
//!
//! A place that the store has dropped is queued for anew, under a new id and with the ticket of the
//! first time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::line::{GRACE, LONGEST_SILENCE};
use super::op::{Claim, Lease, Ticket};
use super::seat::{Belief, Seat};
use crate::ids::{OwnerId, Token};
use crate::time::{BootTime, ServerTime};

/// The waiters of one process for one fair lock. `T` is how a waiter is told.
#[derive(Debug)]
pub(crate) struct Seats<T> {
    seats: BTreeMap<SeatId, Sitting<T>>,
    by_owner: HashMap<OwnerId, SeatId>,
    gives_up: BTreeSet<(BootTime, SeatId)>,
    /// A heartbeat is on its way.
    beating: bool,
    /// The next heartbeat is not to be later than this.
    beat_at: Option<BootTime>,
    /// Something may have changed since the last answer.
    woken: bool,
}

/// Which seat, whatever its waiter is called in the store at the moment. In the order of arrival.
/// Never given twice in the life of a client: one who has left may not know so yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeatId(pub(crate) u64);

/// One who waits.
#[derive(Debug)]
pub(crate) struct Sitting<T> {
    pub(crate) claim: Claim,
    pub(crate) tell: T,
    gives_up_at: Option<BootTime>,
    seat: Seat,
    ticket: Option<Ticket>,
    /// No answer has said yet that it is queued.
    asking: bool,
    /// Whether Redisson's messages to it are heard.
    pub(crate) hears_java: bool,
}

/// An answer that says that a waiter is queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    /// When the answered copy was sent.
    pub(crate) sent: BootTime,
    /// When it queued, or a moment before.
    pub(crate) server_time: ServerTime,
    /// The last token that was drawn.
    pub(crate) token: Token,
    /// When something can change by itself.
    pub(crate) lease: Lease,
}

/// What the driver is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send the heartbeat of these, then call [`Seats::beaten`].
    Beat(Vec<OwnerId>),
    /// Nothing until this time, or until something happens.
    Rest(Option<BootTime>),
}

impl<T> Seats<T> {
    pub(crate) fn new() -> Self {
        Self {
            seats: BTreeMap::new(),
            by_owner: HashMap::new(),
            gives_up: BTreeSet::new(),
            beating: false,
            beat_at: None,
            woken: false,
        }
    }

    /// Somebody is about to ask for the lock.
    pub(crate) fn sit(
        &mut self,
        id: SeatId,
        claim: Claim,
        gives_up_at: Option<BootTime>,
        tell: T,
        now: BootTime,
    ) {
        self.by_owner.insert(claim.owner.clone(), id);
        let seat = Seat::new(now);
        self.seats.insert(
            id,
            Sitting {
                claim,
                tell,
                gives_up_at,
                seat,
                ticket: None,
                asking: true,
                hears_java: false,
            },
        );
    }

    /// Leaves: it has the lock, or does not want it any more.
    pub(crate) fn leave(&mut self, id: SeatId) -> Option<Sitting<T>> {
        let sitting = self.seats.remove(&id)?;
        self.by_owner.remove(&sitting.claim.owner);
        if let Some(at) = sitting.gives_up_at {
            self.gives_up.remove(&(at, id));
        }
        Some(sitting)
    }

    /// The same, by the id in the store.
    pub(crate) fn leave_as(&mut self, owner: &OwnerId) -> Option<Sitting<T>> {
        self.leave(*self.by_owner.get(owner)?)
    }

    /// Those whose wait time is over, among those who have been answered.
    pub(crate) fn give_up(&mut self, now: BootTime) -> Vec<Sitting<T>> {
        let mut gone = Vec::new();
        while let Some((_, id)) = self.gives_up.first().filter(|(at, _)| *at <= now).copied() {
            gone.extend(self.leave(id));
        }
        gone
    }

    /// Everybody leaves.
    pub(crate) fn disband(&mut self) -> Vec<Sitting<T>> {
        self.by_owner.clear();
        self.gives_up.clear();
        std::mem::take(&mut self.seats).into_values().collect()
    }

    /// An answer to the request of one who asked: it is queued.
    pub(crate) fn queued(&mut self, id: SeatId, queued: Queued, period: Duration, now: BootTime) {
        let Some(sitting) = self.seats.get_mut(&id) else { return };
        sitting.asking = false;
        // Before its first answer it may have the lock already: it has been asked for, whatever the
        // wait time.
        self.gives_up.extend(sitting.gives_up_at.map(|at| (at, id)));
        sitting.ticket.get_or_insert(Ticket(queued.server_time.0));
        sitting.seat.queued(queued.sent, queued.token);
        self.look_again(queued.sent, queued.lease, period, now);
    }

    /// A message says that somebody has the lock.
    pub(crate) fn granted(
        &mut self,
        owner: &OwnerId,
        token: Token,
        granted_ms: u64,
        now: BootTime,
    ) -> Belief {
        let sitting = self.by_owner.get(owner).and_then(|id| self.seats.get(id));
        let Some(sitting) = sitting else { return Belief::Nothing };
        let belief = sitting.seat.granted(token, granted_ms, now);
        self.woken |= belief == Belief::Ask;
        belief
    }

    /// Something may have changed, or a message may be lost.
    pub(crate) fn wake(&mut self) {
        self.woken = true;
    }

    /// A heartbeat was answered. Who is still queued has been seen; the others are for the caller.
    pub(crate) fn beaten(
        &mut self,
        still_queued: impl Iterator<Item = OwnerId>,
        queued: Queued,
        period: Duration,
        now: BootTime,
    ) {
        self.beating = false;
        self.beat_at = None;
        for owner in still_queued {
            if let Some(id) = self.by_owner.get(&owner).copied() {
                self.queued(id, queued, period, now);
            }
        }
        self.look_again(queued.sent, queued.lease, period, now);
    }

    /// A heartbeat failed: again soon.
    pub(crate) fn beat_failed(&mut self, period: Duration, now: BootTime) {
        self.beating = false;
        self.beat_at = Some(now.plus(period / 10));
    }

    /// How one who waits is told.
    pub(crate) fn teller(&self, id: SeatId) -> Option<&T> {
        self.seats.get(&id).map(|sitting| &sitting.tell)
    }

    /// Those who are not told yet what Redisson says to them, and will be from now on.
    pub(crate) fn begin_to_hear_java(&mut self) -> Vec<OwnerId> {
        let deaf = self.seats.values_mut().filter(|sitting| !sitting.hears_java);
        let begin = |sitting: &mut Sitting<T>| {
            sitting.hears_java = true;
            sitting.claim.owner.clone()
        };
        deaf.map(begin).collect()
    }

    /// Whether this one is told what Redisson says to it.
    pub(crate) fn hears_java(&self, owner: &OwnerId) -> bool {
        let sitting = self.by_owner.get(owner).and_then(|id| self.seats.get(id));
        sitting.is_some_and(|sitting| sitting.hears_java)
    }

    /// What Redisson says to this one could not be heard.
    pub(crate) fn deaf_to_java_is(&mut self, owner: &OwnerId) {
        let id = self.by_owner.get(owner);
        if let Some(sitting) = id.and_then(|id| self.seats.get_mut(id)) {
            sitting.hears_java = false;
        }
    }

    /// The connection that brought Redisson's messages is gone.
    pub(crate) fn deaf_to_java(&mut self) {
        self.seats.values_mut().for_each(|sitting| sitting.hears_java = false);
    }

    /// Everybody, by their ids in the store.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OwnerId, &T)> {
        self.seats.values().map(|sitting| (&sitting.claim.owner, &sitting.tell))
    }

    /// Whether one with this id in the store waits.
    pub(crate) fn is_seated(&self, owner: &OwnerId) -> bool {
        self.by_owner.contains_key(owner)
    }

    /// The lease that a waiter wants.
    pub(crate) fn lease_ms(&self, owner: &OwnerId) -> Option<u64> {
        self.seats.get(self.by_owner.get(owner)?).map(|sitting| sitting.claim.lease_ms)
    }

    /// The store has dropped a place: asks anew as `claim`; says with which ticket.
    pub(crate) fn ask_anew(
        &mut self,
        owner: &OwnerId,
        claim: Claim,
        now: BootTime,
    ) -> Option<(SeatId, Option<Ticket>, &T)> {
        let id = self.by_owner.remove(owner)?;
        let sitting = self.seats.get_mut(&id)?;
        self.by_owner.insert(claim.owner.clone(), id);
        sitting.claim = claim;
        sitting.hears_java = false;
        sitting.seat = Seat::new(now);
        sitting.asking = true;
        Some((id, sitting.ticket, &sitting.tell))
    }

    /// What to do next. Call it after every change, and at the time it names.
    pub(crate) fn poll(&mut self, now: BootTime) -> Step {
        let next = self.gives_up.first().map(|(at, _)| *at);
        let queued = self.seats.values().filter(|sitting| !sitting.asking);
        let mut queued = queued.map(|sitting| sitting.claim.owner.clone()).peekable();
        if self.beating || queued.peek().is_none() {
            return Step::Rest(next);
        }
        match self.beat_at.filter(|at| *at > now && !self.woken) {
            Some(at) => Step::Rest(next.map_or(Some(at), |next| Some(next.min(at)))),
            None => {
                let owners = queued.collect();
                self.beating = true;
                self.woken = false;
                Step::Beat(owners)
            }
        }
    }

    /// When the first wait time is over.
    pub(crate) fn next_give_up(&self) -> Option<BootTime> {
        self.gives_up.first().map(|(at, _)| *at)
    }

    /// Whether nobody waits any more.
    pub(crate) fn is_done(&self) -> bool {
        self.seats.is_empty() && !self.beating
    }

    fn look_again(&mut self, sent: BootTime, lease: Lease, period: Duration, now: BootTime) {
        let changes = match lease {
            Lease::Ms(left) => now.plus_ms(left).plus(GRACE),
            Lease::None => now.plus(GRACE),
            Lease::Endless => now.plus(LONGEST_SILENCE),
        };
        let next = sent.plus(period).min(changes);
        self.beat_at = Some(self.beat_at.map_or(next, |at| at.min(next)));
    }
}
