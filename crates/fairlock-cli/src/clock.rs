//! The boot clock, as a number that can be told to another process; and sleeping on it.
//!
//! The library's `BootTime` is the same clock, but has no number to pass on.

use std::time::Duration;

use fairlock::BootTime;

/// A point on the machine's boot clock, which goes on while the machine is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) fn now() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(CLOCK);
        Self(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// The same point in time, never later.
    pub(crate) fn of(time: BootTime) -> Self {
        let now = Self::now();
        now.plus(BootTime::now().until(time))
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long until `later`; zero if that has passed.
    pub(crate) fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

/// Sleeps until then, or for a second: timers do not count a suspend, so look again.
#[allow(clippy::disallowed_methods, reason = "the one place that sleeps")]
pub(crate) async fn sleep_towards(moment: Moment) {
    tokio::time::sleep(Moment::now().until(moment).min(LONGEST_SLEEP)).await;
}

/// Between two looks at something that nobody announces.
pub(crate) async fn short_pause() {
    sleep_towards(Moment::now().plus(SHORT_PAUSE)).await;
}

/// How long nobody should sleep on a timer that does not count a suspend.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Processes end within a millisecond or two; people and other machines do not notice ten.
pub(crate) const SHORT_PAUSE: Duration = Duration::from_millis(10);
