//! A seat: one waiter of this process in the queue of a fair lock, as far as this process knows.
//!
//! A message may bring the lock: "this owner has it, with this token, for so long". It is a hint
//! that may be late, or old, or come twice. What makes it safe to believe:
//!
//! - The grant came after the last request that is known to have seen the waiter queued: its token
//!   is larger than the last one that was drawn then. So its time began to run after that request
//!   was sent, and the lock is ours at least until then plus the time granted.
//! - Before the first answer there is no such request, and none is needed: the owner's id was never
//!   used before its first request was sent.
//!
//! An old message about a grant that has ended meanwhile is found out by its token, a late one by
//! its time.

use std::time::Duration;

use crate::ids::Token;
use crate::time::BootTime;

/// One waiter of this process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    first_sent: BootTime,
    seen: Option<Seen>,
}

/// The last request that is known to have found the waiter in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    sent: BootTime,
    last_token: Token,
}

/// What to make of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belief {
    /// The lock is ours until then.
    Held { until: BootTime },
    /// It may be ours, but not for long: ask the store first.
    Ask,
    /// Old news.
    Nothing,
}

impl Seat {
    /// One whose first request is sent now.
    pub(crate) fn new(first_sent: BootTime) -> Self {
        Self { first_sent, seen: None }
    }

    /// An answer says that the waiter is queued. It belongs to a request that was sent then, and
    /// names the last token that was drawn.
    pub(crate) fn queued(&mut self, sent: BootTime, last_token: Token) {
        if self.seen.as_ref().is_none_or(|seen| seen.sent < sent) {
            self.seen = Some(Seen { sent, last_token });
        }
    }

    /// A message says that the waiter has the lock.
    pub(crate) fn granted(&self, token: Token, granted_ms: u64, now: BootTime) -> Belief {
        let began = match &self.seen {
            Some(seen) if token <= seen.last_token => return Belief::Nothing,
            Some(seen) => seen.sent,
            None => self.first_sent,
        };
        let granted = Duration::from_millis(granted_ms);
        let until = began.plus(granted);
        match now.until(until) >= granted / 2 {
            true => Belief::Held { until },
            false => Belief::Ask,
        }
    }
}

#[cfg(test)]
impl Seat {
    /// The same seat at another time, for a model checker that keeps its clock still. What makes no
    /// difference any more is zero.
    pub(crate) fn map(&mut self, sent: impl Fn(&mut BootTime), mut token: impl FnMut(&mut Token)) {
        sent(&mut self.first_sent);
        if let Some(seen) = &mut self.seen {
            self.first_sent = BootTime(0);
            sent(&mut seen.sent);
            token(&mut seen.last_token);
            if seen.sent == BootTime(0) {
                seen.last_token = Token(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: BootTime = BootTime(1_000_000_000_000);

    #[test]
    fn a_grant_counts_from_the_last_request_that_saw_the_waiter_queued() {
        let mut seat = Seat::new(T0);
        let grant = |seat: &Seat, now| seat.granted(Token(5), 10_000, now);
        assert_eq!(grant(&seat, T0), Belief::Held { until: T0.plus_ms(10_000) });
        seat.queued(T0, Token(4));
        seat.queued(T0.plus_ms(3_000), Token(4));
        let until = T0.plus_ms(13_000);
        assert_eq!(grant(&seat, T0.plus_ms(4_000)), Belief::Held { until });
        assert_eq!(grant(&seat, T0.plus_ms(8_001)), Belief::Ask, "too little of it is left");
        seat.queued(T0.plus_ms(1_000), Token(3));
        assert_eq!(grant(&seat, T0.plus_ms(4_000)), Belief::Held { until }, "a late answer is old");
    }

    #[test]
    fn an_old_grant_is_known_by_its_token() {
        let mut seat = Seat::new(T0);
        seat.queued(T0, Token(5));
        assert_eq!(seat.granted(Token(5), 10_000, T0), Belief::Nothing);
        assert_eq!(seat.granted(Token(4), 10_000, T0), Belief::Nothing);
        assert_ne!(seat.granted(Token(6), 10_000, T0), Belief::Nothing);
    }
}
