//! For tests of *your* code: a store without a server, and a clock that you advance.
//!
//! Everything runs as in production, the watchdog included, but time passes only when the test
//! says so. A lease of 30 s takes no time at all to run out.
//!
//! ```
//! use std::time::Duration;
//! use fairlock::{Options, testing::TestStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = TestStore::new();
//! let (alice, bob) = (store.client(), store.client()); // as if in two processes
//!
//! let fixed = Options::new().lease(Duration::from_secs(10));
//! let guard = alice.lock("report").with(fixed).lock().await?;
//! assert!(bob.lock("report").try_lock().await?.is_none());
//!
//! store.clock().advance(Duration::from_secs(11)).await;
//! assert!(!guard.is_held());
//! assert!(bob.lock("report").try_lock().await?.is_some());
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::client::Client;
use crate::engine::memory::Store;
use crate::options::ClientOptions;
use crate::time::{BootTime, Clock, ServerTime};

/// A store in memory with a clock that only tests move.
#[derive(Clone, Debug)]
pub struct TestStore {
    store: Arc<Store>,
    clock: Arc<TestClock>,
}

impl TestStore {
    /// An empty store.
    pub fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        Self { store: Store::new(Clock::Test(clock.clone())), clock }
    }

    /// A new client, as if it lived in a process of its own.
    pub fn client(&self) -> Client {
        Client::on_memory(self.store.clone(), ClientOptions::default())
    }

    /// The clock of the store and of all its clients.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// How many locks are held, plus how many are waited for: zero when all is tidied up.
    ///
    /// Lets what guards have queued when they were dropped come to an end first.
    ///
    /// # Cancel safety
    /// Only looks; dropping the future changes nothing.
    pub async fn in_use(&self) -> usize {
        self.clock.settle().await;
        self.store.in_use()
    }
}

impl Default for TestStore {
    fn default() -> Self {
        Self::new()
    }
}

/// A clock that stands still until it is advanced.
pub struct TestClock {
    inner: Mutex<Inner>,
}

struct Inner {
    now: BootTime,
    next_key: u64,
    sleeps: BTreeMap<u64, (BootTime, Waker)>,
    /// Sleeps that have ended and whose sleeper has not yet done what it woke up for.
    fired: Vec<u64>,
    busy: usize,
    settling: Vec<Waker>,
}

impl TestClock {
    fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                now: BootTime(1_000_000_000_000),
                next_key: 0,
                sleeps: BTreeMap::new(),
                fired: Vec::new(),
                busy: 0,
                settling: Vec::new(),
            }),
        }
    }

    /// What this clock shows.
    pub fn now(&self) -> BootTime {
        self.inner().now
    }

    /// Lets time pass. Everything that fairlock would do meanwhile (renew, give up, notice a loss)
    /// is done in its order, at its time, before this returns.
    ///
    /// # Cancel safety
    /// Dropped early, the clock has advanced up to some moment before the end.
    pub async fn advance(&self, by: Duration) {
        let target = self.now().plus(by);
        loop {
            self.settle().await;
            let mut inner = self.inner();
            let next = inner.sleeps.values().map(|(at, _)| *at).min();
            match next.filter(|at| *at <= target) {
                Some(at) => inner.move_to(at),
                None => break inner.move_to(target),
            }
        }
        self.settle().await;
    }

    /// Moves the clock in one jump, as a suspended machine or a stopped process sees it: nothing
    /// is renewed on the way.
    pub fn jump(&self, by: Duration) {
        let mut inner = self.inner();
        let target = inner.now.plus(by);
        inner.move_to(target);
    }

    pub(crate) fn wall(&self) -> ServerTime {
        ServerTime(WALL_AT_ZERO_US + self.now().0 / 1_000)
    }

    pub(crate) fn poll_sleep(
        &self,
        deadline: BootTime,
        key: &mut Option<u64>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut inner = self.inner();
        if inner.now >= deadline {
            return Poll::Ready(());
        }
        let key = *key.get_or_insert_with(|| {
            inner.next_key += 1;
            inner.next_key
        });
        inner.sleeps.insert(key, (deadline, context.waker().clone()));
        Poll::Pending
    }

    pub(crate) fn forget_sleep(&self, key: u64) {
        let mut inner = self.inner();
        inner.sleeps.remove(&key);
        inner.fired.retain(|fired| *fired != key);
        inner.tell_settling();
    }

    /// Ends when no client of this clock has anything to do.
    pub(crate) async fn settle(&self) {
        poll_fn(|context| {
            let mut inner = self.inner();
            if inner.is_settled() {
                return Poll::Ready(());
            }
            inner.settling.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClock").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Inner {
    fn move_to(&mut self, target: BootTime) {
        self.now = self.now.max(target);
        let now = self.now;
        self.sleeps.retain(|key, (at, waker)| {
            let ended = *at <= now;
            if ended {
                self.fired.push(*key);
                waker.wake_by_ref();
            }
            !ended
        });
    }

    fn is_settled(&self) -> bool {
        self.busy == 0 && self.fired.is_empty()
    }

    fn tell_settling(&mut self) {
        if self.is_settled() {
            self.settling.drain(..).for_each(Waker::wake);
        }
    }
}

/// While one of these lives, a test clock does not advance: somebody has work to do. It costs
/// nothing on the clock of the operating system.
#[derive(Debug)]
pub(crate) struct Busy(Option<Arc<TestClock>>);

impl Busy {
    pub(crate) fn new(clock: &Clock) -> Self {
        match clock {
            Clock::Os => Self(None),
            Clock::Test(clock) => {
                clock.inner().busy += 1;
                Self(Some(clock.clone()))
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(clock) = self.0.take() {
            let mut inner = clock.inner();
            inner.busy -= 1;
            inner.tell_settling();
        }
    }
}

/// The wall clock when a test clock stood at zero: 2020-09-13, a time as good as any.
const WALL_AT_ZERO_US: u64 = 1_600_000_000_000_000;
