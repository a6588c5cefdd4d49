//! A hold: one owner that has the lock, shared by the guards that count on it.
//!
//! Until when a hold is sure is one atomic number, so that a guard can tell without asking
//! anybody. Zero means that it is over, and nothing ever makes it grow again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};

use super::call::Answered;
use super::shared::{CleanUp, Shared, Task, Then, Wish, lease_end};
use crate::engine::Lane;
use crate::error::{LockError, Lost, LostCause, ReleaseError, StoreError};
use crate::ids::{OwnerId, Token};
use crate::lock::Released;
use crate::protocol::line::Found;
use crate::protocol::op::{Claim, Heard, Kind, Op, State};
use crate::protocol::renewal::{Verdict, margin};
use crate::time::BootTime;

/// One owner that has the lock.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) wish: Wish,
    pub(crate) owner: OwnerId,
    pub(crate) token: Token,
    sure_until_ns: AtomicU64,
    /// When `max_hold` ends it.
    last_moment: Option<BootTime>,
    lost_because: OnceLock<LostCause>,
    over: Notify,
    /// How many guards there are: what the hold count in the store should be.
    guards: AtomicU32,
    /// Operations of one owner go one after the other.
    wire: Mutex<Wire>,
}

/// What the store has been told.
#[derive(Debug)]
struct Wire {
    count: u32,
    /// To whom a release that is on its way is to bring the lock.
    passing: Option<Passing>,
    /// Whether the hold was sure when its release was first sent.
    was_sure: Option<bool>,
    /// How many times a release to zero was begun; one that was called off may have been sent.
    releases: u32,
    /// How the release to zero ended, for everybody who waited for it.
    ended: Option<Result<Released, Lost>>,
}

#[derive(Debug)]
struct Passing {
    claim: Claim,
    wish: Wish,
}

impl Hold {
    pub(crate) fn new(
        wish: Wish,
        owner: OwnerId,
        token: Token,
        sent: BootTime,
        sure_until: BootTime,
    ) -> Self {
        let last_moment = wish.plan.max_hold.map(|max_hold| sent.plus(max_hold));
        Self {
            wish,
            owner,
            token,
            sure_until_ns: AtomicU64::new(sure_until.0),
            last_moment,
            lost_because: OnceLock::new(),
            over: Notify::new(),
            guards: AtomicU32::new(1),
            wire: Mutex::new(Wire {
                count: 1,
                passing: None,
                was_sure: None,
                releases: 0,
                ended: None,
            }),
        }
    }

    /// Until when the lock is surely held; `None` once it is not.
    pub(crate) fn sure_until(&self) -> Option<BootTime> {
        let mut known = self.sure_until_ns.load(Ordering::Acquire);
        loop {
            if known == 0 {
                return None;
            }
            if self.wish.core.clock.now().0 < known {
                return Some(BootTime(known));
            }
            // Only the one that sees the old value may end it: a confirmation in time wins.
            match self.end_if(known, self.why_it_ran_out(BootTime(known))) {
                Ok(()) => return None,
                Err(newer) => known = newer,
            }
        }
    }

    /// Confirmed until then. Does nothing once the hold is over.
    pub(crate) fn extend(&self, until: BootTime) {
        let mut known = self.sure_until_ns.load(Ordering::Acquire);
        while known != 0 && known < until.0 {
            let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
            match self.sure_until_ns.compare_exchange(known, until.0, set, fetch) {
                Ok(_) => return,
                Err(newer) => known = newer,
            }
        }
    }

    /// It is over, finally. One whose time has run out was over before, and for that reason.
    pub(crate) fn lose(&self, cause: LostCause) {
        while let Some(BootTime(known)) = self.sure_until() {
            if self.end_if(known, cause).is_ok() {
                return;
            }
        }
    }

    /// It was not confirmed in time.
    pub(crate) fn run_out(&self) {
        // Looking is enough: past its time it is over.
        self.sure_until();
    }

    fn why_it_ran_out(&self, sure_until: BootTime) -> LostCause {
        // The last renewal asks for what is left, in whole milliseconds.
        let margin = margin(self.wish.plan.lease_ms) + Duration::from_millis(20);
        match self.last_moment {
            Some(end) if sure_until.plus(margin) >= end => LostCause::MaxHold,
            _ => LostCause::LeaseEnded,
        }
    }

    fn end_if(&self, known: u64, cause: LostCause) -> Result<(), u64> {
        self.sure_until_ns.compare_exchange(known, 0, Ordering::AcqRel, Ordering::Acquire)?;
        self.lost_because.set(cause).ok();
        self.over.notify_waiters();
        Ok(())
    }

    /// Ends when the hold is over, and says why.
    pub(crate) async fn lost(&self) -> Lost {
        loop {
            let over = self.over.notified();
            if self.sure_until().is_none() {
                return self.loss();
            }
            over.await;
        }
    }

    pub(crate) fn loss(&self) -> Lost {
        let cause = self.lost_because.get().copied().unwrap_or(LostCause::LeaseEnded);
        Lost { name: self.wish.name.to_string(), cause }
    }

    /// One guard more, unless the last one has gone already.
    pub(crate) fn add_guard(&self) -> bool {
        let add = |guards| if guards == 0 { None } else { Some(guards + 1) };
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    /// One guard less. What the store is to know follows by [`Self::settle`].
    pub(crate) fn remove_guard(&self) {
        self.guards.fetch_sub(1, Ordering::AcqRel);
    }

    /// The client closes: it is over for those who count on it. A release that is on its way goes on.
    pub(crate) fn close(&self) {
        if !self.is_abandoned() {
            self.lose(LostCause::Closed);
        }
    }

    /// Whether no guard counts on it any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.guards.load(Ordering::Acquire) == 0
    }

    /// Tells the store of a guard that [`Self::add_guard`] added.
    pub(crate) async fn confirm_reentry(&self, lease_ms: u64) -> Result<(), LockError> {
        let core = &self.wish.core;
        let mut wire = self.wire.lock().await;
        if self.sure_until().is_none() {
            return Err(self.loss().into());
        }
        let count = self.guards.load(Ordering::Acquire);
        let room_ms = self.last_moment.map(|end| core.clock.now().until(end).as_millis() as u64);
        let lease_ms = room_ms.map_or(lease_ms, |room_ms| room_ms.min(lease_ms));
        let op = Op::Reenter { owner: self.owner.clone(), count, lease_ms };
        let name = &self.wish.name;
        // Whatever becomes of this request: a release of this guard has something to take back.
        wire.count = count;
        core.table().renewals.set_count(&self.owner, count);
        let answered = core
            .call(Lane::Caller, self.wish.kind, name, &op, &self.wish.trail, core.patience())
            .await?;
        // Where the store lost this hold, a late copy of the acquire may have brought another one.
        let is_this = [self.token, Token::default()].contains(&answered.reply.token);
        if answered.reply.state != State::Held || !is_this {
            core.table().renewals.remove(&self.owner);
            self.lose(LostCause::Gone);
            return Err(self.loss().into());
        }
        wire.count = count;
        let (lease, now) = (answered.reply.lease, core.clock.now());
        let mut table = core.table();
        table.renewals.set_count(&self.owner, count);
        let verdict = table.renewals.confirmed(&self.owner, answered.sent, lease, now);
        core.wake_driver(&mut table);
        drop(table);
        if let Some(Verdict::Sure(until)) = verdict {
            self.extend(until);
        }
        if self.sure_until().is_none() {
            return Err(self.loss().into());
        }
        Ok(())
    }

    /// Tells the store how many guards are left, and sees to it that the lock goes on to the next
    /// when there are none. Dropped early, it can be called again and goes on where it was.
    pub(crate) async fn settle(&self, lane: Lane) -> Result<Released, ReleaseError> {
        let mut wire = self.wire.lock().await;
        if let Some(ended) = &wire.ended {
            return ended.clone().map_err(ReleaseError::from);
        }
        let remaining = self.guards.load(Ordering::Acquire);
        if remaining == 0 {
            return self.release(lane, &mut wire).await;
        }
        if remaining != wire.count {
            let core = &self.wish.core;
            let owner = self.owner.clone();
            let op = Op::Release { owner, remaining, next: None };
            let trail = &self.wish.trail;
            let Wish { kind, name, .. } = &self.wish;
            let answered = core.call(lane, *kind, name, &op, trail, core.patience()).await?;
            if answered.reply.state != State::Held {
                core.table().renewals.remove(&self.owner);
                self.lose(LostCause::Gone);
            }
            wire.count = remaining;
            let mut table = core.table();
            table.renewals.set_count(&self.owner, remaining);
            // A re-entry that was called off may still arrive, and count up: the first renewal
            // after its expiry sets that right.
            let stray_ms = answered.reply.server_time.ms_until(self.wish.trail.risky_until());
            if stray_ms > 0 {
                table.renewals.renew_at(&self.owner, core.clock.now().plus_ms(stray_ms + 2));
                core.wake_driver(&mut table);
            }
        }
        match self.sure_until() {
            Some(_) => Ok(Released { holds_left: remaining, waiters_told: true }),
            None => Err(self.loss().into()),
        }
    }

    async fn release(&self, lane: Lane, wire: &mut Wire) -> Result<Released, ReleaseError> {
        let core = &self.wish.core;
        let was_sure = *wire.was_sure.get_or_insert_with(|| self.sure_until().is_some());
        {
            let mut table = core.table();
            table.renewals.remove(&self.owner);
            table.holds.remove(&self.owner);
            if wire.passing.is_none() {
                wire.passing = next_in_line(core, &mut table, self);
            }
        }
        let next = wire.passing.as_ref().map(|passing| passing.claim.clone());
        let op = Op::Release { owner: self.owner.clone(), remaining: 0, next };
        let passing_wish = wire.passing.as_ref().map(|passing| &passing.wish);
        let trail = passing_wish.map_or(&self.wish.trail, |wish| &wish.trail);
        wire.releases += 1;
        let Wish { kind, name, .. } = &self.wish;
        let result = core.call(lane, *kind, name, &op, trail, core.patience()).await;
        match result {
            Ok(answered) => {
                wire.count = 0;
                self.after_release(wire.passing.take(), &answered);
                let only_copy = wire.releases == 1 && answered.copies == 1;
                let ended = self.judge(was_sure, only_copy, &answered);
                wire.ended = Some(ended.clone());
                Ok(ended?)
            }
            Err(error) => {
                if !error.is_transient() {
                    self.call_off(wire.passing.take());
                }
                Err(error.into())
            }
        }
    }

    /// Tells the line what a release has brought.
    fn after_release(&self, passing: Option<Passing>, answered: &Answered) {
        let core = &self.wish.core;
        let name = &self.wish.name;
        let now = core.clock.now();
        if self.wish.kind == Kind::Fair {
            core.came_with(name, &answered.reply, answered.sent);
        }
        let mut table = core.table();
        match passing {
            Some(Passing { claim, .. }) => {
                let granted = answered.reply.grantee.as_ref() == Some(&claim.owner);
                let lease = answered.reply.lease;
                let found = if granted {
                    Found::Held { ends: lease_end(lease, answered.sent) }
                } else {
                    Found::Busy { lease }
                };
                table.line(name).passed_on(&claim.owner, found, now);
                if granted {
                    core.deliver(&mut table, name, &claim, &answered.reply, answered.sent);
                }
            }
            None => {
                if let Some(entry) = table.lines.get_mut(name) {
                    entry.line.given_up(answered.reply.heard, now);
                }
            }
        }
        core.settle(&mut table, name);
        drop(table);
        // A copy of the acquire may still be on its way, and would find the lock free.
        if self.wish.trail.risky_until() > answered.reply.server_time {
            core.queue(Task::CleanUp(CleanUp {
                kind: self.wish.kind,
                name: name.clone(),
                owner: self.owner.clone(),
                trail: self.wish.trail.clone(),
                lease_ms: self.wish.plan.lease_ms,
                then: Then::Nothing,
            }));
        }
    }

    /// "Not held" after a release was sent twice means that the first copy did it.
    fn judge(
        &self,
        was_sure: bool,
        only_copy: bool,
        answered: &Answered,
    ) -> Result<Released, Lost> {
        let reply = &answered.reply;
        if !was_sure {
            return Err(self.loss());
        }
        let in_time = self.sure_until().is_some();
        self.lose(LostCause::Gone);
        if reply.state == State::NotHeld && only_copy && in_time {
            return Err(self.loss());
        }
        Ok(Released { holds_left: 0, waiters_told: reply.heard != Heard::Refused })
    }

    fn call_off(&self, passing: Option<Passing>) {
        let Some(Passing { claim, .. }) = passing else { return };
        let core = &self.wish.core;
        let mut table = core.table();
        table.line(&self.wish.name).passed_on(&claim.owner, Found::Unknown, core.clock.now());
        core.settle(&mut table, &self.wish.name);
    }

    /// Releases in the background, for as long as there may be something to release.
    pub(crate) async fn settle_until_done(self: Arc<Self>, shared: Arc<Shared>) {
        let lease = Duration::from_millis(self.wish.plan.lease_ms);
        let give_up_at = shared.clock.now().plus(lease).plus(shared.options.timeout);
        loop {
            match self.settle(Lane::Driver).await {
                Err(ReleaseError::Store(error))
                    if error.is_transient() && shared.clock.now() < give_up_at =>
                {
                    shared.pause(RETRY).await;
                }
                Err(ReleaseError::Store(error)) => return self.give_up_release(&error).await,
                Err(ReleaseError::Lost(lost)) => return tracing::warn!("{lost}"),
                Ok(released) if !released.waiters_told => {
                    return tracing::warn!(lock = %self.wish.name, "the store refused to publish");
                }
                Ok(_) => return,
            }
        }
    }

    async fn give_up_release(&self, error: &StoreError) {
        tracing::warn!(lock = %self.wish.name, %error, "a release failed; the lease will end it");
        let passing = self.wire.lock().await.passing.take();
        self.call_off(passing);
    }
}

fn next_in_line(core: &Shared, table: &mut super::shared::Table, hold: &Hold) -> Option<Passing> {
    if hold.wish.kind == Kind::Fair {
        // The store knows who is next.
        return None;
    }
    let line = &mut table.lines.get_mut(&hold.wish.name)?.line;
    let claim = line.pass_on(core.clock.now())?;
    let wish = line.head()?.ticket.wish.clone();
    Some(Passing { claim, wish })
}

/// Between two tries to release in the background.
const RETRY: Duration = Duration::from_millis(250);
