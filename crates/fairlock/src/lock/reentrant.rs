//! The reentrant lock: Redisson's `RLock`.

use std::fmt;
use std::sync::Arc;

use super::{Guard, Info, Owner};
use crate::client::acquire::{acquire, inspect};
use crate::client::shared::Core;
use crate::engine::Lane;
use crate::error::{InvalidName, LockError, StoreError, StoreErrorKind};
use crate::ids::Name;
use crate::options::Options;
use crate::protocol::op::{Op, State};

/// A lock by its name. Cheap to make and to clone: nothing is sent until it is used.
///
/// It is not fair: when it comes free, whoever is first gets it. Within one process those who
/// wait are served in their order.
///
/// Every [`lock`](Self::lock) is an owner of its own, also within one task: what waits for a lock
/// that the same task holds waits for ever. To enter again use [`Guard::reenter`], or lock as an
/// [`Owner`].
#[derive(Clone)]
pub struct Lock {
    core: Arc<Core>,
    name: Result<Name, InvalidName>,
    options: Options,
}

impl Lock {
    pub(crate) fn new(core: Arc<Core>, name: Result<Name, InvalidName>) -> Self {
        Self { core, name, options: Options::new() }
    }

    /// The same lock with other options.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use fairlock::{Client, Options};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fairlock::Error> {
    /// # let client = Client::connect("memory:").await?;
    /// let patient = client.lock("orders:42").with(Options::new().wait(Duration::from_secs(5)));
    /// let guard = patient.lock().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with(&self, options: Options) -> Self {
        Self { options, ..self.clone() }
    }

    /// Waits until the lock is ours, or until the `wait` of the options has passed.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] names the holder where it is known. [`LockError::Store`] says what
    /// is wrong with the store; nothing stays locked then.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line and undoes what was sent: no lock and no waiter stays
    /// behind. The driver cleans up in the background. A place in the line is lost.
    pub async fn lock(&self) -> Result<Guard, LockError> {
        let guard = acquire(&self.core, self.name()?, &self.options, true).await?;
        Ok(guard.expect("a waiting acquire ends with a guard or an error"))
    }

    /// Takes the lock if it is free and nobody of this process waits for it; never waits.
    ///
    /// # Errors
    /// As [`Self::lock`], but never [`LockError::TimedOut`].
    ///
    /// # Cancel safety
    /// As [`Self::lock`].
    pub async fn try_lock(&self) -> Result<Option<Guard>, LockError> {
        acquire(&self.core, self.name()?, &self.options, false).await
    }

    /// As [`Self::lock`], but as this owner, which enters again if it holds the lock already.
    ///
    /// # Errors
    /// As [`Self::lock`], and [`LockError::Lost`] if the owner's hold turns out to be gone.
    ///
    /// # Cancel safety
    /// As [`Self::lock`]; a hold that the owner had before stays.
    pub async fn lock_as(&self, owner: &Owner) -> Result<Guard, LockError> {
        let guard = owner.lock(&self.core, self.name()?, &self.options, true).await?;
        Ok(guard.expect("a waiting acquire ends with a guard or an error"))
    }

    /// As [`Self::try_lock`], but as this owner, which enters again if it holds the lock already.
    ///
    /// # Errors
    /// As [`Self::lock_as`], but never [`LockError::TimedOut`].
    ///
    /// # Cancel safety
    /// As [`Self::lock_as`].
    pub async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, LockError> {
        owner.lock(&self.core, self.name()?, &self.options, false).await
    }

    /// Who holds the lock, since when and for how long.
    ///
    /// # Errors
    /// If the store cannot be asked.
    ///
    /// # Cancel safety
    /// Only looks; dropping the future changes nothing.
    pub async fn inspect(&self) -> Result<Info, LockError> {
        inspect(&self.core, self.name()?, self.core.patience()).await
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

    /// Frees the lock, whoever holds it; `false` if nobody did.
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
        let core = &self.core;
        let (trail, until) = (Default::default(), core.patience());
        let mut tried = None;
        // Breaks the hold that is there now: a copy that comes late finds another one, or none.
        while let Some(owner) = inspect(core, self.name()?, until).await?.owner {
            if tried.as_ref() == Some(&owner) {
                // Still there although it holds nothing: what is shown of it is not its name.
                return Err(StoreError::new(StoreErrorKind::WrongType).into());
            }
            tried = Some(owner.clone());
            let op = Op::Release { owner, remaining: 0, next: None };
            let answered = core.call(Lane::Caller, self.name()?, &op, &trail, until).await?;
            if answered.reply.state == State::Released || answered.copies > 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn name(&self) -> Result<&Name, InvalidName> {
        self.name.as_ref().map_err(Clone::clone)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { core, name, options } = self;
        f.debug_struct("Lock")
            .field("store", &core.engine.address())
            .field("name", name)
            .field("options", options)
            .finish()
    }
}
