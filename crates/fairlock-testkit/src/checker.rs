//! Judging mutual exclusion from what the holders recorded.

use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};

/// One hold of one lock, as its holder saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The fencing token that came with the hold.
    pub token: u64,
    /// A moment, from [`monotonic_ns`], at which the lock was already held.
    pub start_ns: u64,
    /// A moment, from [`monotonic_ns`], at which the lock was still held.
    pub end_ns: u64,
}

/// Collects the holds of one lock from many threads.
#[derive(Debug, Default)]
pub struct Recorder {
    holds: Mutex<Vec<Hold>>,
}

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Adds one hold.
    pub fn record(&self, token: u64, start_ns: u64, end_ns: u64) {
        let hold = Hold { token, start_ns, end_ns };
        self.holds.lock().expect("no recording thread panics").push(hold);
    }

    /// The holds recorded so far.
    pub fn holds(&self) -> Vec<Hold> {
        self.holds.lock().expect("no recording thread panics").clone()
    }

    /// Judges the holds recorded so far: see [`check_exclusion`].
    pub fn check(&self) -> Result<(), String> {
        check_exclusion(&self.holds())
    }
}

/// Says whether `holds`, all of one lock, exclude each other: every token is unique, and in the
/// order of the tokens each hold starts no earlier than the one before it ended.
pub fn check_exclusion(holds: &[Hold]) -> Result<(), String> {
    if let Some(hold) = holds.iter().find(|hold| hold.end_ns < hold.start_ns) {
        return Err(format!("{hold:?} ends before it starts"));
    }
    let mut in_token_order = holds.to_vec();
    in_token_order.sort_by_key(|hold| hold.token);
    for pair in in_token_order.windows(2) {
        let (earlier, later) = (pair[0], pair[1]);
        if earlier.token == later.token {
            return Err(format!("{earlier:?} and {later:?} share a token"));
        }
        if later.start_ns < earlier.end_ns {
            return Err(format!("{later:?} starts before {earlier:?} ends"));
        }
    }
    Ok(())
}

/// Nanoseconds on the clock that all processes of this machine share, for [`Hold`].
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(token: u64, start_ns: u64, end_ns: u64) -> Hold {
        Hold { token, start_ns, end_ns }
    }

    #[test]
    fn accepts_one_after_the_other_in_any_recording_order() {
        let holds = [hold(3, 30, 40), hold(1, 0, 10), hold(7, 40, 41), hold(2, 10, 30)];
        assert_eq!(check_exclusion(&holds), Ok(()));
        assert_eq!(check_exclusion(&[]), Ok(()));
    }

    #[test]
    fn rejects_an_overlap() {
        let error = check_exclusion(&[hold(1, 0, 10), hold(2, 9, 20)]).expect_err("overlap");
        assert!(error.contains("starts before"), "{error}");
    }

    #[test]
    fn rejects_an_overlap_hidden_inside_a_long_hold() {
        let holds = [hold(1, 0, 100), hold(2, 10, 20), hold(3, 30, 40)];
        check_exclusion(&holds).expect_err("overlap");
    }

    #[test]
    fn rejects_tokens_that_run_against_time() {
        check_exclusion(&[hold(2, 0, 10), hold(1, 20, 30)]).expect_err("token order");
    }

    #[test]
    fn rejects_a_token_given_twice() {
        let error = check_exclusion(&[hold(5, 0, 1), hold(5, 2, 3)]).expect_err("duplicate");
        assert!(error.contains("share a token"), "{error}");
    }

    #[test]
    fn rejects_a_hold_that_ends_before_it_starts() {
        check_exclusion(&[hold(1, 5, 4)]).expect_err("backwards");
    }

    #[test]
    fn records_from_many_threads() {
        let recorder = Recorder::new();
        std::thread::scope(|scope| {
            for token in 0..8 {
                let recorder = &recorder;
                scope.spawn(move || recorder.record(token, token * 10, token * 10 + 10));
            }
        });
        assert_eq!(recorder.holds().len(), 8);
        assert_eq!(recorder.check(), Ok(()));
    }
}
