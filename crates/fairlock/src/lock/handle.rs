//! What the locks of all kinds have in common: a name, options, and the way to the client.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use super::{Guard, Info, Owner};
use crate::client::acquire::{acquire, inspect};
use crate::client::fair;
use crate::client::shared::Core;
use crate::engine::Lane;
use crate::error::{InvalidName, LockError, StoreError, StoreErrorKind};
use crate::ids::Name;
use crate::options::Options;
use crate::protocol::op::{Kind, Op, State};

/// A lock of some kind.
#[derive(Clone)]
pub(crate) struct Handle {
    core: Arc<Core>,
    kind: Kind,
    name: Result<Name, InvalidName>,
    options: Options,
}

impl Handle {
    pub(crate) fn new(core: Arc<Core>, kind: Kind, name: Result<Name, InvalidName>) -> Self {
        Self { core, kind, name, options: Options::new() }
    }

    pub(crate) fn with(&self, options: Options) -> Self {
        Self { options, ..self.clone() }
    }

    pub(crate) async fn lock(&self) -> Result<Guard, LockError> {
        Ok(acquire(&self.core, self.kind, self.name()?, &self.options, true).await?.expect(WAITED))
    }

    pub(crate) async fn lock_watching(
        &self,
        mut watch: impl FnMut(u64),
    ) -> Result<Guard, LockError> {
        let (show, mut shown) = tokio::sync::watch::channel(0);
        let name = self.name()?;
        let mut locking = pin!(fair::acquire(&self.core, name, &self.options, true, Some(show)));
        loop {
            tokio::select! {
                biased;
                guard = &mut locking => return Ok(guard?.expect(WAITED)),
                Ok(()) = shown.changed() => watch(*shown.borrow_and_update()),
            }
        }
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Guard>, LockError> {
        acquire(&self.core, self.kind, self.name()?, &self.options, false).await
    }

    pub(crate) async fn lock_as(&self, owner: &Owner) -> Result<Guard, LockError> {
        let (core, kind) = (&self.core, self.kind);
        Ok(owner.lock(core, kind, self.name()?, &self.options, true).await?.expect(WAITED))
    }

    pub(crate) async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, LockError> {
        owner.lock(&self.core, self.kind, self.name()?, &self.options, false).await
    }

    pub(crate) async fn inspect(&self) -> Result<Info, LockError> {
        inspect(&self.core, self.kind, self.name()?, self.core.patience()).await
    }

    pub(crate) async fn force_unlock(&self) -> Result<bool, LockError> {
        let (core, kind, name) = (&self.core, self.kind, self.name()?);
        let (trail, until) = (Default::default(), core.patience());
        let mut tried = None;
        // Breaks the hold that is there now: a copy that comes late finds another one, or none.
        while let Some(owner) = inspect(core, kind, name, until).await?.owner {
            if tried.as_ref() == Some(&owner) {
                // Still there although it holds nothing: what is shown of it is not its name.
                return Err(StoreError::new(StoreErrorKind::WrongType).into());
            }
            tried = Some(owner.clone());
            let op = Op::Release { owner, remaining: 0, next: None };
            let answered = core.call(Lane::Caller, kind, name, &op, &trail, until).await?;
            core.came_with(name, &answered.reply, answered.sent);
            if answered.reply.state == State::Released || answered.copies > 1 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn name(&self) -> Result<&Name, InvalidName> {
        self.name.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn debug(&self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { core, name, options, .. } = self;
        f.debug_struct(what)
            .field("store", &core.engine.address())
            .field("name", name)
            .field("options", options)
            .finish()
    }
}

const WAITED: &str = "a waiting acquire ends with a guard or an error";
