//! The same locks for threads, with no async runtime in sight.
//!
//! The thread is the owner, as in Java: a thread that locks again what it holds enters again.
//!
//! ```
//! use fairlock::blocking::Client;
//!
//! # fn main() -> Result<(), fairlock::Error> {
//! let client = Client::connect("memory:")?;
//! let lock = client.lock("orders:42");
//! let guard = lock.lock()?;
//! let again = lock.lock()?; // the same thread: enters again
//! drop(again);
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::error::{ConnectError, LockError, Lost, ReleaseError};
use crate::ids::{Name, OwnerId, Token};
use crate::lock::{Info, Owner, Released};
use crate::options::Options;
use crate::runtime;
use crate::time::BootTime;

/// A connection to a store; see [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
    id: Arc<()>,
}

impl Client {
    /// Connects to a store; see [`crate::Client::connect`] for the addresses.
    ///
    /// # Errors
    /// If the address is wrong or the store cannot be used.
    pub fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::builder(address).connect()
    }

    /// For a client with other options than the defaults.
    pub fn builder(address: &str) -> Builder {
        Builder(crate::Client::builder(address))
    }

    /// The reentrant lock of this name.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock { inner: self.inner.lock(name), client: self.id.clone() }
    }

    /// The fair lock of this name: first come, first served.
    pub fn fair_lock(&self, name: impl AsRef<[u8]>) -> FairLock {
        FairLock { inner: self.inner.fair_lock(name), client: self.id.clone() }
    }

    /// All locks that are held and whose names match; see [`crate::Client::list`].
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub fn list(&self, pattern: &str) -> Result<Vec<Info>, LockError> {
        block_on(self.inner.list(pattern))
    }

    /// Finishes what dropped guards have left to do; see [`crate::Client::close`].
    pub fn close(self) {
        block_on(self.inner.close());
    }
}

/// What to set before connecting; see [`crate::Builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before connect()"]
pub struct Builder(crate::Builder);

impl Builder {
    /// The lease that the watchdog renews; see [`crate::Builder::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// How long an operation may take; see [`crate::Builder::timeout`].
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// How long waiters for fair locks keep their places; see [`crate::Builder::waiter_ttl`].
    pub fn waiter_ttl(self, waiter_ttl: Duration) -> Self {
        Self(self.0.waiter_ttl(waiter_ttl))
    }

    /// What others see as the holder; see [`crate::Builder::program`].
    pub fn program(self, program: impl Into<String>) -> Self {
        Self(self.0.program(program))
    }

    /// Connects.
    ///
    /// # Errors
    /// If an option is out of range, the address is wrong or the store cannot be used.
    pub fn connect(self) -> Result<Client, ConnectError> {
        let inner = block_on(self.0.connect_from(runtime::handle()))?;
        Ok(Client { inner, id: Arc::new(()) })
    }
}

/// A lock by its name; see [`crate::Lock`].
#[derive(Clone, Debug)]
pub struct Lock {
    inner: crate::Lock,
    client: Arc<()>,
}

impl Lock {
    /// The same lock with other options.
    #[must_use]
    pub fn with(&self, options: Options) -> Self {
        Self { inner: self.inner.with(options), client: self.client.clone() }
    }

    /// Waits until the lock is ours, or until the `wait` of the options has passed. Enters again
    /// if this thread holds it.
    ///
    /// # Errors
    /// As [`crate::Lock::lock_as`].
    pub fn lock(&self) -> Result<Guard, LockError> {
        block_on(self.inner.lock_as(&owner_of(&self.client))).map(Guard::new)
    }

    /// Takes the lock if it is free, or enters again; never waits.
    ///
    /// # Errors
    /// As [`crate::Lock::try_lock_as`].
    pub fn try_lock(&self) -> Result<Option<Guard>, LockError> {
        let guard = block_on(self.inner.try_lock_as(&owner_of(&self.client)))?;
        Ok(guard.map(Guard::new))
    }

    /// Who holds the lock, since when and for how long.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub fn inspect(&self) -> Result<Info, LockError> {
        block_on(self.inner.inspect())
    }

    /// Whether anybody holds the lock.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub fn is_locked(&self) -> Result<bool, LockError> {
        block_on(self.inner.is_locked())
    }

    /// Frees the lock, whoever holds it; see [`crate::Lock::force_unlock`].
    ///
    /// # Errors
    /// If the store cannot be used.
    pub fn force_unlock(&self) -> Result<bool, LockError> {
        block_on(self.inner.force_unlock())
    }
}

/// A fair lock by its name; see [`crate::FairLock`].
#[derive(Clone, Debug)]
pub struct FairLock {
    inner: crate::FairLock,
    client: Arc<()>,
}

impl FairLock {
    /// The same lock with other options.
    #[must_use]
    pub fn with(&self, options: Options) -> Self {
        Self { inner: self.inner.with(options), client: self.client.clone() }
    }

    /// Waits until the lock is ours, or until the `wait` of the options has passed. Enters again
    /// if this thread holds it.
    ///
    /// # Errors
    /// As [`crate::FairLock::lock_as`].
    pub fn lock(&self) -> Result<Guard, LockError> {
        block_on(self.inner.lock_as(&owner_of(&self.client))).map(Guard::new)
    }

    /// Takes the lock if it is free and nobody waits for it, or enters again; never waits.
    ///
    /// # Errors
    /// As [`crate::FairLock::try_lock_as`].
    pub fn try_lock(&self) -> Result<Option<Guard>, LockError> {
        let guard = block_on(self.inner.try_lock_as(&owner_of(&self.client)))?;
        Ok(guard.map(Guard::new))
    }

    /// Who holds the lock, since when and for how long.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub fn inspect(&self) -> Result<Info, LockError> {
        block_on(self.inner.inspect())
    }

    /// Whether anybody holds the lock.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub fn is_locked(&self) -> Result<bool, LockError> {
        block_on(self.inner.is_locked())
    }

    /// Frees the lock, whoever holds it; see [`crate::FairLock::force_unlock`].
    ///
    /// # Errors
    /// If the store cannot be used.
    pub fn force_unlock(&self) -> Result<bool, LockError> {
        block_on(self.inner.force_unlock())
    }
}

/// This thread, as an owner of locks of this client.
fn owner_of(client: &Arc<()>) -> Owner {
    thread_local! {
        static OWNERS: RefCell<HashMap<usize, (std::sync::Weak<()>, Owner)>> = RefCell::default();
    }
    OWNERS.with_borrow_mut(|owners| {
        owners.retain(|_, (client, _)| client.strong_count() > 0);
        let entry = owners.entry(Arc::as_ptr(client) as usize);
        entry.or_insert_with(|| (Arc::downgrade(client), Owner::new())).1.clone()
    })
}

/// The lock is held by this thread; see [`crate::Guard`]. It stays on its thread, as the guard of
/// a [`std::sync::Mutex`] does.
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    inner: crate::Guard,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Guard {
    fn new(inner: crate::Guard) -> Self {
        Self { inner, stays_on_its_thread: PhantomData }
    }

    /// The lock's name.
    pub fn name(&self) -> &Name {
        self.inner.name()
    }

    /// The owner as it stands in the store.
    pub fn owner_id(&self) -> &OwnerId {
        self.inner.owner_id()
    }

    /// The fencing token of this hold; re-entry keeps it.
    pub fn token(&self) -> Token {
        self.inner.token()
    }

    /// Whether the lock is surely held, by this machine's clock. Asks nobody.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// Until when the lock is surely held, if nothing renews it; `None` once it is lost.
    pub fn held_until(&self) -> Option<BootTime> {
        self.inner.held_until()
    }

    /// Waits until the lock is lost.
    pub fn wait_until_lost(&self) -> Lost {
        block_on(self.inner.lost())
    }

    /// Gives the lock back and says how that went; see [`crate::Guard::release`].
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<Released, ReleaseError> {
        block_on(self.inner.release())
    }
}

/// Runs a future on this thread; its timers and sockets are served by fairlock's own. Unlike a
/// runtime's `block_on` it does not mind being called from inside another runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let runtime = runtime::handle();
    let _context = runtime.enter();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
