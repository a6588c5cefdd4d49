//! Two kinds of time, which never mix: the store's wall clock and this machine's boot clock.
//!
//! Leases and tokens are the store's business and run on [`ServerTime`]. How long a guard is
//! *surely* valid is this process's business and runs on [`BootTime`], which, unlike
//! [`std::time::Instant`] on Linux, goes on while the machine is suspended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::testing::TestClock;

/// A point on this machine's boot clock, in nanoseconds since the machine started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BootTime(pub(crate) u64);

impl BootTime {
    /// Now, on the operating system's clock.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the boot clock")]
    pub fn now() -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        // Elsewhere (macOS, the BSDs) the monotonic clock goes on through a suspend.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let now = rustix::time::clock_gettime(CLOCK);
        Self(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    /// How long until `later`; zero if that has passed.
    pub fn until(self, later: BootTime) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn plus_ms(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds.saturating_mul(1_000_000)))
    }

    pub(crate) fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn micros(self) -> i64 {
        (self.0 / 1_000) as i64
    }
}

impl fmt::Debug for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootTime({:.6} s)", self.0 as f64 / 1e9)
    }
}

/// A point on the store's wall clock, in microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct ServerTime(pub(crate) u64);

impl ServerTime {
    pub(crate) fn plus_ms(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds.saturating_mul(1_000)))
    }

    /// Whole milliseconds from here until `later`; zero if that has passed.
    pub(crate) fn ms_until(self, later: ServerTime) -> u64 {
        later.0.saturating_sub(self.0) / 1_000
    }

    pub(crate) fn as_ms(self) -> u64 {
        self.0 / 1_000
    }
}

impl fmt::Debug for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTime({} us)", self.0)
    }
}

/// The clock of a client: the operating system's, or one that a test advances.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    Os,
    Test(Arc<TestClock>),
}

impl Clock {
    pub(crate) fn now(&self) -> BootTime {
        match self {
            Self::Os => BootTime::now(),
            Self::Test(clock) => clock.now(),
        }
    }

    /// The wall clock of a store that lives in this process.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub(crate) fn wall(&self) -> ServerTime {
        match self {
            Self::Os => {
                let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                ServerTime(since_1970.as_micros() as u64)
            }
            Self::Test(clock) => clock.wall(),
        }
    }

    /// Ends when `deadline` has surely come on this clock.
    pub(crate) async fn wait_until(&self, deadline: BootTime) {
        while self.now() < deadline {
            self.sleep_until(deadline).await;
        }
    }

    /// Ends when `deadline` has come on this clock.
    #[allow(clippy::disallowed_methods, reason = "the one place that sleeps")]
    pub(crate) fn sleep_until(&self, deadline: BootTime) -> Sleep {
        match self {
            Self::Os => {
                let duration = self.now().until(deadline).min(LONGEST_SLEEP);
                Sleep::Os(Box::pin(tokio::time::sleep(duration)))
            }
            Self::Test(clock) => Sleep::Test { clock: clock.clone(), deadline, key: None },
        }
    }
}

/// A sleep on a [`Clock`]. On the operating system's clock it may end early; look again then.
#[derive(Debug)]
pub(crate) enum Sleep {
    Os(Pin<Box<tokio::time::Sleep>>),
    Test { clock: Arc<TestClock>, deadline: BootTime, key: Option<u64> },
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.get_mut() {
            Self::Os(sleep) => sleep.as_mut().poll(context),
            Self::Test { clock, deadline, key } => clock.poll_sleep(*deadline, key, context),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Self::Test { clock, key: Some(key), .. } = self {
            clock.forget_sleep(*key);
        }
    }
}

/// What is known about the store's clock: server time minus boot time, estimated from below.
///
/// The estimate is low by at most the time the last reply took. So an expiry computed with it
/// passes on the server no later than here, and a request that its caller has given up on is
/// refused.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    offset_us: AtomicI64,
}

impl ServerClock {
    /// Learns from a reply that arrived at `received` and says that it is `server` o'clock.
    pub(crate) fn observe(&self, received: BootTime, server: ServerTime) {
        self.offset_us.store(server.0 as i64 - received.micros(), Ordering::Relaxed);
    }

    /// The server's time at `here`, never later than the truth.
    pub(crate) fn at(&self, here: BootTime) -> ServerTime {
        ServerTime((here.micros() + self.offset_us.load(Ordering::Relaxed)).max(0) as u64)
    }
}

/// Timers do not count a suspend, the boot clock does: so look again this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
