//! The watchdog's book: which holds there are, until when each is sure, when to renew it.
//!
//! A hold is *sure* until the send time of the last confirmed request, plus the lease that its
//! reply reported, minus a margin. The send time, not the arrival of the reply: the lease began to
//! run somewhere between the two. Past that moment the hold is lost, finally, whatever a late
//! reply may say.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::ids::{Name, OwnerId};
use crate::options::Plan;
use crate::protocol::op::{Lease, Renew};
use crate::time::BootTime;

/// All holds of one client.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    holds: HashMap<OwnerId, Entry>,
    /// The next moment at which each hold needs attention.
    agenda: BTreeSet<(BootTime, OwnerId)>,
}

#[derive(Debug)]
struct Entry {
    name: Name,
    plan: Plan,
    count: u32,
    renewed: Renewed,
    sure_until: BootTime,
    /// Not to be held longer than this.
    last_moment: Option<BootTime>,
    attention_at: BootTime,
    in_flight: bool,
}

/// Whether the watchdog renews a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewed {
    Never,
    /// A fixed lease that was granted for a part of it, until its owner shows that it lives.
    Once,
    Always,
}

/// What a confirmation means for the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Sure until then.
    Sure(BootTime),
    /// The confirmation came after the hold had to be given up.
    TooLate,
}

impl Renewals {
    /// Takes in a new hold, confirmed by a request that was sent at `sent`.
    pub(crate) fn insert(
        &mut self,
        owner: OwnerId,
        name: Name,
        plan: Plan,
        sent: BootTime,
        lease: Lease,
    ) -> BootTime {
        let in_part = matches!(lease, Lease::Ms(left) if left < plan.lease_ms / 2);
        let renewed = match (plan.renewed, in_part) {
            (true, _) => Renewed::Always,
            (false, true) => Renewed::Once,
            (false, false) => Renewed::Never,
        };
        let fixed_ms = (renewed == Renewed::Once).then_some(plan.lease_ms);
        let longest = plan.max_hold.into_iter().chain(fixed_ms.map(Duration::from_millis)).min();
        let last_moment = longest.map(|longest| sent.plus(longest));
        let sure_until = sure_until(sent, lease, &plan, last_moment);
        let mut entry = Entry {
            name,
            plan,
            count: 1,
            renewed,
            sure_until,
            last_moment,
            attention_at: sure_until,
            in_flight: false,
        };
        let first = match lease {
            Lease::Ms(left) => entry.period().min(Duration::from_millis(left) / 3),
            Lease::None | Lease::Endless => entry.period(),
        };
        entry.schedule(sent.plus(first));
        self.agenda.insert((entry.attention_at, owner.clone()));
        self.holds.insert(owner, entry);
        sure_until
    }

    /// Forgets a hold: released or lost.
    pub(crate) fn remove(&mut self, owner: &OwnerId) {
        if let Some(entry) = self.holds.remove(owner) {
            self.agenda.remove(&(entry.attention_at, owner.clone()));
        }
    }

    /// The hold count that the next renewal is to carry.
    pub(crate) fn set_count(&mut self, owner: &OwnerId, count: u32) {
        if let Some(entry) = self.holds.get_mut(owner) {
            entry.count = count;
        }
    }

    /// When [`Self::lost`] or [`Self::due`] will have something to say.
    pub(crate) fn next(&self) -> Option<BootTime> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// Takes out the holds that could not be confirmed in time.
    pub(crate) fn lost(&mut self, now: BootTime) -> Vec<OwnerId> {
        let ripe = self.agenda.iter().take_while(|(at, _)| *at <= now);
        let over =
            |owner: &&OwnerId| self.holds.get(*owner).is_none_or(|entry| entry.sure_until <= now);
        let lost: Vec<OwnerId> = ripe.map(|(_, owner)| owner).filter(over).cloned().collect();
        for owner in &lost {
            self.remove(owner);
        }
        lost
    }

    /// The holds to renew now, in batches. What is due soon goes along, so that holds taken at
    /// different times share a request.
    pub(crate) fn due(&mut self, now: BootTime) -> Vec<Vec<Renew>> {
        let Some(first) = self.next().filter(|at| *at <= now) else { return Vec::new() };
        let horizon = first.max(now).plus(LOOK_AHEAD);
        let soon: Vec<OwnerId> = self
            .agenda
            .iter()
            .take_while(|(at, _)| *at <= horizon)
            .map(|(_, owner)| owner.clone())
            .collect();
        let mut items = Vec::new();
        for owner in soon {
            let Some(entry) = self.holds.get_mut(&owner) else { continue };
            if !entry.renewable(now) || entry.attention_at > now.plus(entry.period() / 2) {
                continue;
            }
            items.push(Renew {
                name: entry.name.clone(),
                owner: owner.clone(),
                count: entry.count,
                lease_ms: entry.wanted_lease_ms(now),
            });
            entry.in_flight = true;
            let sure_until = entry.sure_until;
            self.reschedule(&owner, sure_until);
        }
        items.chunks(BATCH).map(<[Renew]>::to_vec).collect()
    }

    /// A renewal or re-entry that was sent at `sent` is confirmed. `None`: no such hold any more.
    pub(crate) fn confirmed(
        &mut self,
        owner: &OwnerId,
        sent: BootTime,
        lease: Lease,
        now: BootTime,
    ) -> Option<Verdict> {
        let entry = self.holds.get_mut(owner)?;
        entry.in_flight = false;
        if now >= entry.sure_until {
            return Some(Verdict::TooLate);
        }
        if entry.renewed == Renewed::Once {
            entry.renewed = Renewed::Never;
        }
        let sure = sure_until(sent, lease, &entry.plan, entry.last_moment);
        entry.sure_until = entry.sure_until.max(sure);
        let (sure, next) = (entry.sure_until, sent.plus(entry.period()));
        self.reschedule(owner, next);
        Some(Verdict::Sure(sure))
    }

    /// A renewal carried this count: if the count has changed since, it may have set it back.
    pub(crate) fn recount(&mut self, owner: &OwnerId, count: u32, now: BootTime) {
        if self.holds.get(owner).is_some_and(|entry| entry.count != count) {
            self.reschedule(owner, now);
        }
    }

    /// Renews at this time at the latest.
    pub(crate) fn renew_at(&mut self, owner: &OwnerId, at: BootTime) {
        if self.holds.get(owner).is_some_and(|entry| !entry.in_flight && at < entry.attention_at) {
            self.reschedule(owner, at);
        }
    }

    /// A renewal got no usable answer: try again soon.
    pub(crate) fn failed(&mut self, owner: &OwnerId, now: BootTime) {
        let Some(entry) = self.holds.get_mut(owner) else { return };
        entry.in_flight = false;
        let next = now.plus(entry.period() / 10);
        self.reschedule(owner, next);
    }

    fn reschedule(&mut self, owner: &OwnerId, at: BootTime) {
        if let Some(entry) = self.holds.get_mut(owner) {
            self.agenda.remove(&(entry.attention_at, owner.clone()));
            entry.schedule(at);
            self.agenda.insert((entry.attention_at, owner.clone()));
        }
    }
}

impl Entry {
    /// Attention at `at` if it can be renewed then, else when it is lost.
    fn schedule(&mut self, at: BootTime) {
        self.attention_at =
            if self.renewable(at) { at.min(self.sure_until) } else { self.sure_until };
    }

    fn renewable(&self, at: BootTime) -> bool {
        let room = self.last_moment.is_none_or(|end| at < end && self.sure_until < end);
        self.renewed != Renewed::Never && !self.in_flight && room && at < self.sure_until
    }

    fn period(&self) -> Duration {
        Duration::from_millis(self.plan.lease_ms) / 3
    }

    fn wanted_lease_ms(&self, now: BootTime) -> u64 {
        let end = self.last_moment.map_or(u64::MAX, |end| now.until(end).as_millis() as u64);
        self.plan.lease_ms.min(end)
    }
}

/// How much earlier than the store this process considers a lease as ended: clocks of two machines
/// run apart, and a timer fires late.
pub(crate) fn margin(lease_ms: u64) -> Duration {
    (Duration::from_millis(lease_ms) / 50).max(Duration::from_millis(20))
}

fn sure_until(
    sent: BootTime,
    lease: Lease,
    plan: &Plan,
    last_moment: Option<BootTime>,
) -> BootTime {
    let lease_ms = match lease {
        Lease::None => 0,
        Lease::Ms(lease_ms) => lease_ms,
        // Somebody removed the end of our lease; the next renewal sets it again.
        Lease::Endless => plan.lease_ms,
    };
    let sure = sent.plus_ms(lease_ms).minus(margin(lease_ms.min(plan.lease_ms)));
    last_moment.map_or(sure, |end| sure.min(end))
}

/// Items per request: some hundreds keep the store busy for less than a millisecond or two.
const BATCH: usize = 250;
/// How far ahead to look for holds that may go along; half a period of each is the true bound.
const LOOK_AHEAD: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const T0: BootTime = BootTime(1_000_000_000_000);

    fn plan(lease_ms: u64) -> Plan {
        Plan { lease_ms, renewed: true, max_hold: None }
    }

    fn owner(number: u32) -> OwnerId {
        OwnerId::new(format!("client:{number}"))
    }

    fn book(plan: Plan, holds: u32) -> Renewals {
        let mut book = Renewals::default();
        for number in 0..holds {
            let name = Name::new(format!("lock {number}")).unwrap();
            book.insert(owner(number), name, plan, T0, Lease::Ms(plan.lease_ms));
        }
        book
    }

    #[test]
    fn renews_every_third_of_the_lease() {
        let mut book = book(plan(30_000), 1);
        assert_eq!(book.next(), Some(T0.plus_ms(10_000)));
        assert!(book.due(T0.plus_ms(9_999)).is_empty());
        let batches = book.due(T0.plus_ms(10_000));
        assert_eq!(batches[0][0].lease_ms, 30_000);
        assert!(book.due(T0.plus_ms(10_001)).is_empty(), "one renewal at a time");
        let sure =
            book.confirmed(&owner(0), T0.plus_ms(10_000), Lease::Ms(30_000), T0.plus_ms(10_500));
        assert_eq!(sure, Some(Verdict::Sure(T0.plus_ms(40_000).minus(margin(30_000)))));
        assert_eq!(book.next(), Some(T0.plus_ms(20_000)));
    }

    #[test]
    fn sure_counts_from_the_send_and_late_news_change_nothing() {
        let mut book = book(plan(3_000), 1);
        let end = T0.plus_ms(3_000).minus(margin(3_000));
        assert_eq!(book.due(T0.plus_ms(1_000)).len(), 1);
        assert_eq!(book.next(), Some(end));
        let late = book.confirmed(&owner(0), T0.plus_ms(1_000), Lease::Ms(3_000), end);
        assert_eq!(late, Some(Verdict::TooLate));
        assert_eq!(book.lost(end), vec![owner(0)]);
        assert_eq!(book.confirmed(&owner(0), T0, Lease::Ms(3_000), end), None);
    }

    #[test]
    fn thousands_of_holds_go_in_batches_of_hundreds() {
        let mut book = book(plan(30_000), 1_001);
        let sizes: Vec<_> = book.due(T0.plus_ms(10_000)).iter().map(Vec::len).collect();
        assert_eq!(sizes, [250, 250, 250, 250, 1]);
    }

    #[test]
    fn a_failed_renewal_is_tried_again_soon() {
        let mut book = book(plan(30_000), 1);
        book.due(T0.plus_ms(10_000));
        book.failed(&owner(0), T0.plus_ms(12_000));
        assert_eq!(book.due(T0.plus_ms(13_000)).len(), 1);
    }

    #[test]
    fn a_fixed_lease_is_not_renewed_and_ends() {
        let mut book = book(Plan { renewed: false, ..plan(1_000) }, 1);
        let end = T0.plus_ms(1_000).minus(margin(1_000));
        assert_eq!(book.next(), Some(end));
        assert!(book.due(end).is_empty());
        assert_eq!(book.lost(end), vec![owner(0)]);
    }

    #[test]
    fn max_hold_ends_the_renewal() {
        let max_hold = Some(Duration::from_millis(4_000));
        let mut book = book(Plan { max_hold, ..plan(3_000) }, 1);
        for (at, wanted) in [(1_000, 3_000), (2_000, 2_000)] {
            let now = T0.plus_ms(at);
            assert_eq!(book.due(now)[0][0].lease_ms, wanted);
            book.confirmed(&owner(0), now, Lease::Ms(wanted), now);
        }
        let mut now = T0.plus_ms(2_000);
        while let Some(next) = book.next() {
            now = next;
            for item in book.due(now).concat() {
                assert!(now.plus_ms(item.lease_ms) <= T0.plus_ms(4_000), "not beyond max_hold");
                book.confirmed(&owner(0), now, Lease::Ms(item.lease_ms), now);
            }
            book.lost(now);
        }
        assert!(now <= T0.plus_ms(4_000) && now >= T0.plus_ms(3_900), "{now:?}");
    }
}
