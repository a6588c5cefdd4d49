//! Owners: who enters a lock again, where neither a thread nor a task is an identity.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::MutexGuard;

use super::Guard;
use crate::client::acquire::acquire;
use crate::client::hold::Hold;
use crate::client::shared::Core;
use crate::error::LockError;
use crate::ids::Name;
use crate::options::Options;
use crate::protocol::op::Kind;

/// Somebody who can hold locks more than once: a request, a job, an actor.
///
/// Clones are the same owner. [`Lock::lock_as`](super::Lock::lock_as) counts up a lock that the
/// owner holds already, instead of waiting for itself.
#[derive(Clone, Debug, Default)]
pub struct Owner {
    holds: Arc<Mutex<HashMap<LockKey, Arc<Slot>>>>,
}

type LockKey = (Kind, Name);

/// The current hold of one lock. One at a time tries for it: else two tasks of one owner would
/// wait for each other.
type Slot = tokio::sync::Mutex<Weak<Hold>>;

impl Owner {
    /// A new owner, different from all others.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) async fn lock(
        &self,
        core: &Arc<Core>,
        kind: Kind,
        name: &Name,
        options: &Options,
        waits: bool,
    ) -> Result<Option<Guard>, LockError> {
        let started = core.clock.now();
        let slot = self.slot(kind, name);
        let mut current = match waits {
            true => wait_for(&slot, core, name, options.wait).await?,
            false => match slot.try_lock() {
                Ok(current) => current,
                Err(_) => return Ok(None),
            },
        };
        let waited = started.until(core.clock.now());
        let options =
            &Options { wait: options.wait.map(|wait| wait.saturating_sub(waited)), ..*options };
        if let Some(hold) = current.upgrade().filter(|hold| Arc::ptr_eq(&hold.wish.core, core)) {
            match Guard::another(&hold, options.plan(core.options.lease)?.lease_ms).await {
                Ok(guard) => return Ok(Some(guard)),
                // Its last guard has gone, or it was lost: so this is a new acquisition.
                Err(LockError::Lost(_)) if hold.is_abandoned() => {}
                Err(error) => return Err(error),
            }
        }
        let guard = acquire(core, kind, name, options, waits).await?;
        if let Some(guard) = &guard {
            *current = Arc::downgrade(guard.hold());
        }
        Ok(guard)
    }

    fn slot(&self, kind: Kind, name: &Name) -> Arc<Slot> {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|_, slot| {
            let in_use = Arc::strong_count(slot) > 1;
            in_use || slot.try_lock().is_ok_and(|hold| hold.strong_count() > 0)
        });
        holds.entry((kind, name.clone())).or_default().clone()
    }
}

/// Waits behind another task of the same owner, for the wait time at most.
async fn wait_for<'a>(
    slot: &'a Slot,
    core: &Core,
    name: &Name,
    wait: Option<Duration>,
) -> Result<MutexGuard<'a, Weak<Hold>>, LockError> {
    let Some(wait) = wait else { return Ok(slot.lock().await) };
    let give_up_at = core.clock.now().plus(wait);
    tokio::select! {
        biased;
        current = slot.lock() => Ok(current),
        () = core.clock.wait_until(give_up_at) => {
            Err(LockError::TimedOut { name: name.to_string(), waited: wait, holder: None })
        }
    }
}
