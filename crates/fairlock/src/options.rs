//! What can be set for a client and for one acquisition.

use std::time::Duration;

use crate::error::{ConnectError, LockError};

/// How one acquisition behaves. Belongs to that acquisition alone: nothing is remembered.
///
/// ```
/// use std::time::Duration;
/// use fairlock::Options;
///
/// let options = Options::new().wait(Duration::from_secs(5)).lease(Duration::from_secs(30));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
}

impl Options {
    /// Waits as long as it takes; the watchdog keeps the lease alive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives up after this time. Without it, waits for as long as it takes.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// A fixed lease: the lock ends after this time, held or not, and nobody renews it.
    ///
    /// Without it the watchdog renews the client's lease (30 s) for as long as the guard lives.
    /// At least 100 ms.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The watchdog stops renewing after this time, so that a stuck holder does not hold for ever.
    /// At least 100 ms.
    #[must_use]
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How the lease of an acquisition with these options is kept, or what is wrong with them.
    pub(crate) fn plan(&self, client_lease: Duration) -> Result<Plan, LockError> {
        for (what, value) in [("lease", self.lease), ("max_hold", self.max_hold)] {
            if let Some(value) = value {
                check_range(what, value).map_err(LockError::Option)?;
            }
        }
        let lease = self.lease.unwrap_or(client_lease);
        Ok(Plan {
            lease_ms: lease.min(self.max_hold.unwrap_or(lease)).as_millis() as u64,
            renewed: self.lease.is_none(),
            max_hold: self.max_hold,
        })
    }
}

/// How the lease of one hold is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) lease_ms: u64,
    pub(crate) renewed: bool,
    pub(crate) max_hold: Option<Duration>,
}

/// What a client is made with.
#[derive(Clone, Debug)]
pub(crate) struct ClientOptions {
    pub(crate) lease: Duration,
    pub(crate) timeout: Duration,
    pub(crate) waiter_ttl: Duration,
    pub(crate) program: Option<String>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            lease: DEFAULT_LEASE,
            timeout: DEFAULT_TIMEOUT,
            waiter_ttl: DEFAULT_WAITER_TTL,
            program: None,
        }
    }
}

impl ClientOptions {
    pub(crate) fn check(&self) -> Result<(), ConnectError> {
        check_range("lease", self.lease).map_err(ConnectError::Option)?;
        check_range("timeout", self.timeout).map_err(ConnectError::Option)?;
        check_range("waiter_ttl", self.waiter_ttl).map_err(ConnectError::Option)
    }

    pub(crate) fn waiter_ttl_ms(&self) -> u64 {
        self.waiter_ttl.as_millis() as u64
    }

    /// How often those who wait for fair locks show that they live.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.waiter_ttl / 3
    }
}

fn check_range(what: &str, value: Duration) -> Result<(), String> {
    if value < SHORTEST {
        return Err(format!("the {what} is {value:?}, but must be at least {SHORTEST:?}"));
    }
    if value > LONGEST {
        return Err(format!("the {what} is {value:?}, but must be at most 10 years"));
    }
    Ok(())
}

/// Redisson's `lockWatchdogTimeout`.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Rides through a server that stands still for some seconds, without trying a person's patience.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Survives a lost heartbeat or two, and is less than people take for a hang.
const DEFAULT_WAITER_TTL: Duration = Duration::from_secs(10);
/// Shorter leases end before a renewal can be confirmed over a network.
const SHORTEST: Duration = Duration::from_millis(100);
/// Milliseconds of this stay far below the integers that the scripts can count to.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);
