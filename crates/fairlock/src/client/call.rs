//! Sending a request until it is answered.
//!
//! A request is repeated when its answer does not come; every operation is made so that this does
//! no harm. Each copy carries its own expiry in server time, so that a copy which was held up on
//! its way does nothing once nobody waits for it any more. The [`Trail`] remembers until when a
//! copy without an answer may still do something.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::shared::Shared;
use crate::engine::{Lane, Rules};
use crate::error::StoreError;
use crate::ids::Name;
use crate::protocol::model::fair::{Beaten, Heartbeat};
use crate::protocol::op::{Kind, Lease, Op, Renew, Reply, State};
use crate::time::{BootTime, ServerTime};

/// An answer, and the copy that it belongs to.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// When the answered copy was sent.
    pub(crate) sent: BootTime,
    /// When the first copy was sent.
    pub(crate) first_sent: BootTime,
    /// How many copies were sent in all.
    pub(crate) copies: u32,
}

/// Which copies of requests that can bring one owner the lock are without an answer.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    lost_us: AtomicU64,
    in_flight_us: AtomicU64,
}

impl Trail {
    /// Until when a copy on its way may still bring the lock.
    pub(crate) fn risky_until(&self) -> ServerTime {
        let lost = self.lost_us.load(Ordering::Acquire);
        ServerTime(lost.max(self.in_flight_us.load(Ordering::Acquire)))
    }

    fn sending(&self, expires: ServerTime) {
        // One that is still in flight belongs to a call that was dropped.
        let dropped = self.in_flight_us.swap(expires.0, Ordering::AcqRel);
        self.lost_us.fetch_max(dropped, Ordering::AcqRel);
    }

    fn answered(&self) {
        self.in_flight_us.store(0, Ordering::Release);
    }

    fn lost(&self) {
        let expires = self.in_flight_us.swap(0, Ordering::AcqRel);
        self.lost_us.fetch_max(expires, Ordering::AcqRel);
    }
}

impl Shared {
    /// Sends an operation, again and again until `until` if need be.
    pub(crate) async fn call(
        &self,
        lane: Lane,
        kind: Kind,
        name: &Name,
        op: &Op,
        trail: &Trail,
        until: BootTime,
    ) -> Result<Answered, StoreError> {
        let rules = match kind {
            Kind::Plain => Rules::Plain,
            Kind::Fair => Rules::Fair { waiter_ttl_ms: self.options.waiter_ttl_ms() },
        };
        let mut copies = Copies::new(self, until, PATIENCE);
        let mut first_sent = None;
        loop {
            let copy = copies.next().await?;
            let first_sent = *first_sent.get_or_insert(copy.sent);
            trail.sending(copy.expires);
            let request = self.engine.call(lane, rules, name, op, copy.expires);
            match copies.wait(&copy, lane, request).await {
                Ok(reply) => {
                    trail.answered();
                    self.learn(reply.server_time);
                    if reply.state != State::Late {
                        let (sent, copies) = (copy.sent, copies.count);
                        return Ok(Answered { reply, sent, first_sent, copies });
                    }
                }
                Err(error) if error.is_transient() => {
                    trail.lost();
                    copies.last_error = Some(error);
                }
                Err(error) => {
                    trail.answered();
                    return Err(error);
                }
            }
        }
    }

    /// Renews a batch; says when the answered copy was sent.
    pub(crate) async fn renew(
        &self,
        items: &[Renew],
        until: BootTime,
    ) -> Result<(Vec<(State, Lease)>, BootTime), StoreError> {
        let shortest_ms = items.iter().map(|item| item.lease_ms).min().unwrap_or(0);
        let patience = PATIENCE.min(Duration::from_millis(shortest_ms) / 6);
        let mut copies = Copies::new(self, until, patience);
        loop {
            let copy = copies.next().await?;
            let request = self.engine.renew(items, copy.expires);
            match copies.wait(&copy, Lane::Driver, request).await {
                Ok(renewed) => {
                    self.learn(renewed.server_time);
                    if let Some(items) = renewed.items {
                        return Ok((items, copy.sent));
                    }
                }
                Err(error) if error.is_transient() => copies.last_error = Some(error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a heartbeat; says when the answered copy was sent.
    pub(crate) async fn beat(
        &self,
        name: &Name,
        beat: &Heartbeat,
    ) -> Result<(Beaten, BootTime), StoreError> {
        let waiter_ttl_ms = self.options.waiter_ttl_ms();
        let until = self.clock.now().plus(self.options.heartbeat());
        let mut copies = Copies::new(self, until, PATIENCE.min(self.options.heartbeat()));
        loop {
            let copy = copies.next().await?;
            let request = self.engine.beat(waiter_ttl_ms, name, beat, copy.expires);
            match copies.wait(&copy, Lane::Driver, request).await {
                Ok(beaten) => {
                    self.learn(beaten.reply.server_time);
                    if beaten.reply.state != State::Late {
                        return Ok((beaten, copy.sent));
                    }
                }
                Err(error) if error.is_transient() => copies.last_error = Some(error),
                Err(error) => return Err(error),
            }
        }
    }

    fn learn(&self, server_time: ServerTime) {
        self.server_clock.observe(self.clock.now(), server_time);
    }
}

/// The copies of one request.
struct Copies<'a> {
    shared: &'a Shared,
    until: BootTime,
    patience: Duration,
    count: u32,
    pause: Duration,
    last_error: Option<StoreError>,
}

struct Copy {
    sent: BootTime,
    expires: ServerTime,
    patience: Duration,
}

impl<'a> Copies<'a> {
    fn new(shared: &'a Shared, until: BootTime, patience: Duration) -> Self {
        Self { shared, until, patience, count: 0, pause: FIRST_PAUSE, last_error: None }
    }

    /// The next copy, after a pause if the one before failed; an error when time is up.
    async fn next(&mut self) -> Result<Copy, StoreError> {
        if self.last_error.is_some() {
            self.shared.pause(self.pause).await;
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        let sent = self.shared.clock.now();
        let left = sent.until(self.until);
        if left.is_zero() && self.count > 0 {
            return Err(self.last_error.take().unwrap_or_else(|| self.shared.unreachable()));
        }
        self.count += 1;
        let patience = self.patience.min(left.max(SHORTEST_PATIENCE));
        let expires = self.shared.server_clock.at(sent.plus(patience));
        Ok(Copy { sent, expires, patience })
    }

    async fn wait<T>(
        &self,
        copy: &Copy,
        lane: Lane,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(copy.patience, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                self.shared.engine.suspect(lane);
                Err(self.shared.unreachable())
            }
        }
    }
}

impl Shared {
    pub(crate) fn unreachable(&self) -> StoreError {
        self.engine.no_answer()
    }

    #[allow(clippy::disallowed_methods, reason = "back-off towards a server is in real time")]
    pub(crate) async fn pause(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// How long to wait for an answer before the connection counts as dead: a round trip takes
/// milliseconds, a busy server some hundred.
const PATIENCE: Duration = Duration::from_secs(2);
/// The least that a request gets, even if its caller has no time left.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);
/// A server that restarts is back within tens of milliseconds ...
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// ... and one that stays away should be noticed soon when it comes back.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
