//! When the command has to end, as a pure decision: the time and the guard's word in, an act out.
//!
//! ```text
//!   holding ──(sure until - lead)──▶ TERM ──(sure until)──▶ KILL       it cannot be kept
//!   holding ──(found gone)─────────▶ TERM ──(grace)───────▶ KILL       deleted or broken
//!   holding ──(past sure until)────▶ KILL                              we were stopped
//! ```
//!
//! The first `sure until` may come early: one who waited in the queue is granted the lock for a short
//! time, until it shows that it lives. Then the lead is a part of that time.
//!
//! `sure until` already lies before the moment at which the store can give the lock to somebody
//! else, so a command that is killed then is gone in time. A lock that was found gone may already
//! be somebody else's, and every moment counts; yet the command gets a grace to clean up, because
//! whoever breaks a lock by force was told that two may work at the same time for a while.

use std::time::Duration;

use fairlock::LostCause;

use crate::args::OnLost;
use crate::clock::Moment;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Nothing before this moment.
    Rest(Moment),
    /// Nothing any more.
    Done,
    /// Ask the command to end.
    Terminate(Why),
    /// End it.
    Kill(Why),
    /// It may go on without the lock.
    LetRun(Why),
}

/// Why the command has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The lock could not be renewed, and this much is left of it.
    EndsIn(Duration),
    /// It is lost already.
    Lost(LostCause),
    /// We asked it to end and it did not.
    StillThere,
}

/// The decision, step by step.
#[derive(Debug)]
pub(crate) struct Deadline {
    on_lost: OnLost,
    lead: Duration,
    since: Moment,
    sure_until: Moment,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Holding,
    Terminated { kill_at: Moment },
    Over,
}

impl Deadline {
    /// For a lock with this lease, got at `since` and sure until then for now.
    pub(crate) fn new(on_lost: OnLost, lease: Duration, since: Moment, sure_until: Moment) -> Self {
        let lead = (lease / 4).min(LONGEST_LEAD);
        Self { on_lost, lead, since, sure_until, state: State::Holding }
    }

    /// What to do now, if the lock is `held` until then, or lost.
    pub(crate) fn next(&mut self, now: Moment, held: Result<Moment, LostCause>) -> Act {
        match (self.state, held) {
            (State::Holding, Ok(sure_until)) => self.holding(now, sure_until),
            (State::Holding, Err(cause)) => self.lost(now, cause),
            (State::Terminated { kill_at }, _) if now >= kill_at => {
                self.state = State::Over;
                Act::Kill(Why::StillThere)
            }
            (State::Terminated { kill_at }, _) => Act::Rest(kill_at),
            (State::Over, _) => Act::Done,
        }
    }

    /// Whether the lock has not been given up yet.
    pub(crate) fn is_holding(&self) -> bool {
        self.state == State::Holding
    }

    /// Until when the command may run, as things stand; `None` once that is decided.
    pub(crate) fn may_run_until(&self) -> Option<Moment> {
        match (self.on_lost, self.state) {
            (OnLost::Ignore, _) | (_, State::Over) => None,
            (_, State::Holding) => Some(self.sure_until),
            (_, State::Terminated { kill_at }) => Some(kill_at),
        }
    }

    fn holding(&mut self, now: Moment, sure_until: Moment) -> Act {
        self.sure_until = sure_until;
        let lead = self.lead.min(self.since.until(sure_until) / 4);
        let act_at = match self.on_lost {
            OnLost::Term => sure_until.minus(lead),
            // They have nothing to do before it is lost.
            OnLost::Kill | OnLost::Ignore => return Act::Rest(sure_until),
        };
        if now < act_at {
            return Act::Rest(act_at);
        }
        self.state = State::Terminated { kill_at: sure_until };
        Act::Terminate(Why::EndsIn(now.until(sure_until)))
    }

    fn lost(&mut self, now: Moment, cause: LostCause) -> Act {
        let why = Why::Lost(cause);
        self.state = State::Over;
        match (self.on_lost, cause) {
            (OnLost::Ignore, _) => Act::LetRun(why),
            (OnLost::Term, LostCause::Gone) => {
                // What our lease had left is how long others would have waited for us anyway.
                let grace = now.until(self.sure_until).clamp(SHORTEST_GRACE, LONGEST_GRACE);
                self.state = State::Terminated { kill_at: now.plus(grace) };
                Act::Terminate(why)
            }
            (OnLost::Kill | OnLost::Term, _) => Act::Kill(why),
        }
    }
}

/// Enough to flush and to remove a lock file, and short against the usual lease of 30 s.
const LONGEST_LEAD: Duration = Duration::from_secs(5);
/// A shell script with a trap needs some tens of milliseconds.
const SHORTEST_GRACE: Duration = Duration::from_secs(1);
/// Somebody else may be at work already.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Moment {
        Moment(seconds * S)
    }

    fn deadline(on_lost: OnLost) -> Deadline {
        Deadline::new(on_lost, Duration::from_secs(30), at(0), at(30))
    }

    #[test]
    fn term_comes_five_seconds_before_the_end_and_kill_at_the_end() {
        let mut deadline = deadline(OnLost::Term);
        assert_eq!(deadline.next(at(1), Ok(at(30))), Act::Rest(at(25)));
        assert_eq!(deadline.next(at(11), Ok(at(40))), Act::Rest(at(35)));
        let why = Why::EndsIn(Duration::from_secs(5));
        assert_eq!(deadline.next(at(35), Ok(at(40))), Act::Terminate(why));
        // A renewal that comes now is too late: the command was told to end.
        assert_eq!(deadline.next(at(36), Ok(at(66))), Act::Rest(at(40)));
        assert_eq!(deadline.next(at(40), Ok(at(66))), Act::Kill(Why::StillThere));
        assert_eq!(deadline.next(at(41), Ok(at(66))), Act::Done);
    }

    #[test]
    fn a_short_lease_leaves_a_quarter_of_it() {
        let mut deadline = Deadline::new(OnLost::Term, Duration::from_secs(4), at(0), at(4));
        assert_eq!(deadline.next(at(0), Ok(at(4))), Act::Rest(at(3)));
    }

    #[test]
    fn a_lock_granted_for_a_short_time_is_not_given_up_at_once() {
        let mut deadline = Deadline::new(OnLost::Term, Duration::from_secs(30), at(0), at(4));
        assert_eq!(deadline.next(at(0), Ok(at(4))), Act::Rest(at(3)));
        assert_eq!(deadline.next(at(2), Ok(at(31))), Act::Rest(at(26)));
        let mut deadline = Deadline::new(OnLost::Term, Duration::from_secs(30), at(0), at(4));
        let why = Why::EndsIn(Duration::from_secs(1));
        assert_eq!(deadline.next(at(3), Ok(at(4))), Act::Terminate(why));
    }

    #[test]
    fn a_lock_found_gone_leaves_a_short_grace() {
        for (found_at, kill_at) in [(10, 15), (27, 30), (29, 30)] {
            let mut deadline = deadline(OnLost::Term);
            let lost = Err(LostCause::Gone);
            let terminate = Act::Terminate(Why::Lost(LostCause::Gone));
            assert_eq!(deadline.next(at(found_at), lost), terminate);
            assert_eq!(deadline.next(at(found_at), lost), Act::Rest(at(kill_at)));
            assert_eq!(deadline.may_run_until(), Some(at(kill_at)));
        }
    }

    #[test]
    fn a_lease_that_is_over_leaves_nothing() {
        for on_lost in [OnLost::Term, OnLost::Kill] {
            let kill = Act::Kill(Why::Lost(LostCause::LeaseEnded));
            assert_eq!(deadline(on_lost).next(at(31), Err(LostCause::LeaseEnded)), kill);
        }
    }

    #[test]
    fn kill_and_ignore_wait_for_the_loss() {
        for (on_lost, act) in [
            (OnLost::Kill, Act::Kill(Why::Lost(LostCause::Gone))),
            (OnLost::Ignore, Act::LetRun(Why::Lost(LostCause::Gone))),
        ] {
            let mut deadline = deadline(on_lost);
            assert_eq!(deadline.next(at(29), Ok(at(30))), Act::Rest(at(30)));
            assert_eq!(deadline.next(at(29), Err(LostCause::Gone)), act);
            assert_eq!(deadline.next(at(29), Err(LostCause::Gone)), Act::Done);
        }
    }
}
