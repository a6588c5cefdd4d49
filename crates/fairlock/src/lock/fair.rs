//! The fair lock: Redisson's `getFairLock`, first come, first served.

use std::fmt;
use std::sync::Arc;

use super::handle::Handle;
use super::{Guard, Info, Owner};
use crate::client::shared::Core;
use crate::error::{InvalidName, LockError};
use crate::ids::Name;
use crate::options::Options;
use crate::protocol::op::Kind;

/// A fair lock by its name. Cheap to make and to clone: nothing is sent until it is used.
///
/// Whoever asks first gets it first, over all processes and machines, for as long as it waits and
/// lives. A waiter that died is passed over within the client's
/// [`waiter_ttl`](crate::Builder::waiter_ttl), all waiters of one process at once. When the lock
/// comes free its next holder is told so directly and needs no request of its own.
///
/// Use one kind of lock per name: a plain [`Lock`](super::Lock) does not look at the queue.
///
/// Every [`lock`](Self::lock) is an owner of its own, also within one task: what waits for a lock
/// that the same task holds waits for ever. To enter again use [`Guard::reenter`], or lock as an
/// [`Owner`].
#[derive(Clone)]
pub struct FairLock(Handle);

impl FairLock {
    pub(crate) fn new(core: Arc<Core>, name: Result<Name, InvalidName>) -> Self {
        Self(Handle::new(core, Kind::Fair, name))
    }

    /// The same lock with other options.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, Options};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fairlock::Error> {
    /// # let client = Client::connect("memory:").await?;
    /// let patient = client.fair_lock("orders:42").with(Options::new().wait(Duration::from_secs(5)));
    /// let guard = patient.lock().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with(&self, options: Options) -> Self {
        Self(self.0.with(options))
    }

    /// Waits until the lock is ours, or until the `wait` of the options has passed.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] names the holder where it is known. [`LockError::Store`] says what
    /// is wrong with the store; nothing stays locked then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line and undoes what was sent: no lock and no waiter stays
    /// behind. The driver cleans up in the background. The place in the queue is given up.
    pub async fn lock(&self) -> Result<Guard, LockError> {
        self.0.lock().await
    }

    /// As [`Self::lock`], and tells the place in line while it waits: 1 is the next to be served.
    /// Called when the place is known, and when it has changed, at most once per heartbeat.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fairlock::Error> {
    /// # let client = fairlock::Client::connect("memory:").await?;
    /// let lock = client.fair_lock("orders:42");
    /// let guard = lock.lock_watching(|place| println!("number {place} in line")).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Self::lock`].
    ///
    /// # Cancel safety
    /// As [`Self::lock`].
    pub async fn lock_watching(&self, watch: impl FnMut(u64)) -> Result<Guard, LockError> {
        self.0.lock_watching(watch).await
    }

    /// Takes the lock if it is free and nobody waits for it; never waits, and never jumps the queue.
    ///
    /// # Errors
    /// As [`Self::lock`], but never [`LockError::TimedOut`].
    ///
    /// # Cancel safety
    /// As [`Self::lock`].
    pub async fn try_lock(&self) -> Result<Option<Guard>, LockError> {
        self.0.try_lock().await
    }

    /// As [`Self::lock`], but as this owner, which enters again if it holds the lock already.
    ///
    /// # Errors
    /// As [`Self::lock`], and [`LockError::Lost`] if the owner's hold turns out to be gone.
    ///
    /// # Cancel safety
    /// As [`Self::lock`]; a hold that the owner had before stays.
    pub async fn lock_as(&self, owner: &Owner) -> Result<Guard, LockError> {
        self.0.lock_as(owner).await
    }

    /// As [`Self::try_lock`], but as this owner, which enters again if it holds the lock already.
    ///
    /// # Errors
    /// As [`Self::lock_as`], but never [`LockError::TimedOut`].
    ///
    /// # Cancel safety
    /// As [`Self::lock_as`].
    pub async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, LockError> {
        self.0.try_lock_as(owner).await
    }

    /// Who holds the lock, since when and for how long.
    ///
    /// # Errors
    /// If the store cannot be asked.
    ///
    /// # Cancel safety
    /// Only looks; dropping the future changes nothing.
    pub async fn inspect(&self) -> Result<Info, LockError> {
        self.0.inspect().await
    }

    /// Whether anybody holds the lock.
    ///
    /// # Errors
    /// If the store cannot be asked.
    ///
    /// # Cancel safety
    /// Only looks; dropping the future changes nothing.
    pub async fn is_locked(&self) -> Result<bool, LockError> {
        Ok(self.inspect().await?.held)
    }

    /// Frees the lock, whoever holds it; `false` if nobody did. Those who wait keep their places, and
    /// the first of them gets it.
    ///
    /// The holder is not asked. Its guard notices with the next renewal, within a third of its
    /// lease, and until then two may work at the same time.
    ///
    /// # Errors
    /// If the store cannot be used, or has something at this name that cannot be a lock.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the lock broken or not.
    pub async fn force_unlock(&self) -> Result<bool, LockError> {
        self.0.force_unlock().await
    }
}

impl fmt::Debug for FairLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("FairLock", f)
    }
}
