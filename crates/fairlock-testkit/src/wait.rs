//! Bounded waiting.

use std::thread;
use std::time::{Duration, Instant};

/// Polls `condition` until it holds.
///
/// # Panics
///
/// When it still does not hold after `bound`; the message says `what` was waited for.
pub fn eventually(bound: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let met = poll(bound, || condition().then_some(()));
    assert!(met.is_some(), "still not so after {bound:?}: {what}");
}

/// Polls `condition` for the whole of `bound`, to see that it does not come to hold.
///
/// # Panics
///
/// When it does; the message says `what` should not have happened.
pub fn never_within(bound: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let met = poll(bound, || condition().then_some(()));
    assert!(met.is_none(), "happened within {bound:?}: {what}");
}

/// Makes attempts until one has a result, or `bound` is over.
#[expect(
    clippy::disallowed_methods,
    reason = "everything that waits for a condition, with a bound, does it here; and a test that \
              is suspended may take longer"
)]
pub(crate) fn poll<T>(bound: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        let result = attempt();
        if result.is_some() || started.elapsed() >= bound {
            return result;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_once_the_condition_holds() {
        let mut polls = 0;
        eventually(Duration::from_secs(5), "three polls", || {
            polls += 1;
            polls == 3
        });
        assert_eq!(polls, 3);
    }

    #[test]
    #[should_panic(expected = "pigs fly")]
    fn names_what_it_waited_for() {
        eventually(Duration::from_millis(20), "pigs fly", || false);
    }

    #[test]
    fn never_holds_for_what_does_not_happen() {
        never_within(Duration::from_millis(20), "pigs fly", || false);
    }

    #[test]
    #[should_panic(expected = "pigs fly")]
    fn never_names_what_happened() {
        never_within(Duration::from_secs(5), "pigs fly", || true);
    }
}
