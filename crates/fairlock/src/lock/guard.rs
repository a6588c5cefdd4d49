//! The guard: while it lives and is not lost, the lock is held.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use crate::client::hold::Hold;
use crate::client::shared::Task;
use crate::engine::Lane;
use crate::error::{LockError, Lost, ReleaseError};
use crate::ids::{Name, OwnerId, Token};
use crate::time::BootTime;

/// The lock is held. Dropping the guard gives it back, in the background.
///
/// A lease may end before the guard does: the process was stopped for too long, the store was
/// unreachable, somebody broke the lock. Then the guard is *lost*, finally. It knows by itself,
/// from the clock: [`is_held`](Self::is_held) asks nobody, and [`lost`](Self::lost) ends before
/// anybody else can get the lock.
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct Guard {
    hold: Option<Arc<Hold>>,
}

/// What a release has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    pub(crate) holds_left: u32,
    pub(crate) waiters_told: bool,
}

impl Released {
    /// How many guards of the same owner still hold the lock; zero: it is free.
    pub fn holds_left(&self) -> u32 {
        self.holds_left
    }

    /// `false` is a warning: the store's access rules forbid to publish, so those who wait find
    /// out only when the lease would have ended. Allow the user the channel.
    pub fn waiters_told(&self) -> bool {
        self.waiters_told
    }
}

impl Guard {
    /// The guard that comes with a new hold.
    pub(crate) fn first(hold: Arc<Hold>) -> Self {
        Self { hold: Some(hold) }
    }

    /// Enters again through a hold that other guards count on as well.
    pub(crate) async fn another(hold: &Arc<Hold>, lease_ms: u64) -> Result<Self, LockError> {
        if !hold.add_guard() {
            return Err(hold.loss().into());
        }
        // From here on dropping this guard takes the count back.
        let guard = Self { hold: Some(hold.clone()) };
        hold.confirm_reentry(lease_ms).await?;
        Ok(guard)
    }

    /// The lock's name.
    pub fn name(&self) -> &Name {
        &self.hold().wish.name
    }

    /// The owner as it stands in the store.
    pub fn owner_id(&self) -> &OwnerId {
        &self.hold().owner
    }

    /// The fencing token of this hold; re-entry keeps it.
    pub fn token(&self) -> Token {
        self.hold().token
    }

    /// Whether the lock is surely held, by this machine's clock. Asks nobody.
    pub fn is_held(&self) -> bool {
        self.held_until().is_some()
    }

    /// Until when the lock is surely held, if nothing renews it; `None` once it is lost.
    pub fn held_until(&self) -> Option<BootTime> {
        self.hold().sure_until()
    }

    /// Ends when the lock is lost, before anybody else can get it, unless it was broken by force.
    ///
    /// # Cancel safety
    /// Only waits; dropping the future changes nothing.
    pub async fn lost(&self) -> Lost {
        self.hold().lost().await
    }

    /// Runs a future for as long as the lock is held: drops it when the lock is lost.
    ///
    /// ```
    /// # use fairlock::Client;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fairlock::Error> {
    /// # let client = Client::connect("memory:").await?;
    /// # async fn ship_order(number: u32, token: fairlock::Token) {}
    /// let guard = client.lock("orders:42").lock().await?;
    /// guard.run(ship_order(42, guard.token())).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Lost`] if the future was dropped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the inner one; the lock stays held.
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        let mut future = pin!(future);
        let mut lost = pin!(self.lost());
        poll_fn(|context| {
            if let Poll::Ready(lost) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(lost));
            }
            future.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Enters again: another guard of the same owner, counted in the store.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the hold is gone: there is nothing to enter again.
    ///
    /// # Cancel safety
    /// Dropping the future takes the count back in the background; this guard stays.
    pub async fn reenter(&self) -> Result<Guard, LockError> {
        let hold = self.hold();
        Self::another(hold, hold.wish.plan.lease_ms).await
    }

    /// Gives the lock back and says how that went. Dropping the guard does the same unheard.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`] if the lock was no longer ours: what ran under it may have
    /// overlapped with another holder. [`ReleaseError::Store`] if the store cannot be reached; the
    /// client goes on trying.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release: it goes on in the background.
    pub async fn release(mut self) -> Result<Released, ReleaseError> {
        let hold = self.hold.take().expect("only a release takes the hold out of a guard");
        hold.remove_guard();
        let unfinished = Unfinished(&hold);
        let released = hold.settle(Lane::Caller).await;
        if !matches!(released, Err(ReleaseError::Store(_))) {
            std::mem::forget(unfinished);
        }
        released
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        self.hold.as_ref().expect("only a release takes the hold out of a guard")
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hold = self.hold();
        f.debug_struct("Guard")
            .field("name", &hold.wish.name)
            .field("owner", &hold.owner)
            .field("token", &hold.token)
            .field("held_until", &hold.sure_until())
            .finish_non_exhaustive()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.remove_guard();
            hold.wish.core.clone().queue(Task::Release(hold));
        }
    }
}

/// A release that its caller no longer waits for: the driver finishes it.
struct Unfinished<'a>(&'a Arc<Hold>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.wish.core.queue(Task::Release(self.0.clone()));
    }
}
