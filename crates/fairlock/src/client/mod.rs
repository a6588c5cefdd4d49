//! A client: the way from the public types to an engine and back.
//!
//! Callers act in their own tasks ([`acquire`], [`hold`]); everything they do not wait for is done
//! by one [`driver`] per client. Both work on one table ([`shared`]), and both send requests the
//! same way ([`call`]).

pub(crate) mod acquire;
pub(crate) mod call;
mod driver;
pub(crate) mod fair;
pub(crate) mod hold;
mod list;
pub(crate) mod shared;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use self::shared::{Core, Shared, Task};
use crate::engine::{Engine, Lane, WakeReceiver, memory};
use crate::error::{ConnectError, StoreError};
use crate::ids::Name;
use crate::lock::{FairLock, Holder, Lock, Owner};
use crate::options::ClientOptions;
use crate::os;
use crate::runtime;
use crate::time::Clock;

/// A connection to a store, and the watchdog of all locks that are held through it.
///
/// Cheap to clone; clones are the same client. One per process is enough.
#[derive(Clone, Debug)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    /// Connects to a store:
    ///
    /// | address | store |
    /// |---|---|
    /// | `memory:` | in this process, for this client alone |
    /// | `memory:NAME` | in this process, shared by all clients that use the same name |
    /// | `file:DIR` | a directory, shared by all processes of this machine that use it |
    /// | `redis://[USER:PASSWORD@]HOST[:PORT]/[DB]` | a Redis or Valkey server |
    /// | `rediss://…` | the same over TLS |
    /// | `redis+unix:///PATH` | the same over a Unix socket |
    ///
    /// # Errors
    /// If the address is wrong or the store cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime; [`crate::blocking::Client`] needs none.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::builder(address).connect().await
    }

    /// For a client with other options than the defaults.
    pub fn builder(address: &str) -> Builder {
        Builder { address: address.to_owned(), options: ClientOptions::default() }
    }

    /// The reentrant lock of this name.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(self.core.clone(), Name::new(name))
    }

    /// The fair lock of this name: first come, first served.
    pub fn fair_lock(&self, name: impl AsRef<[u8]>) -> FairLock {
        FairLock::new(self.core.clone(), Name::new(name))
    }

    /// A new owner, for [`Lock::lock_as`].
    pub fn owner(&self) -> Owner {
        Owner::new()
    }

    /// What shows other processes that this client is alive: a file that is locked with flock(2)
    /// for as long as any duplicate of this descriptor is open. `None` where a store needs none.
    ///
    /// On a `file:` store the locks of a dead client are passed over at once. A process that
    /// inherits this keeps the client alive in the eyes of others until it ends, too.
    ///
    /// # Errors
    /// If the directory of the store cannot be used.
    pub fn liveness(&self) -> Result<Option<std::os::fd::OwnedFd>, StoreError> {
        match &self.core.engine {
            #[cfg(feature = "embedded")]
            Engine::Embedded(engine) => engine.liveness().map(Some),
            _ => Ok(None),
        }
    }

    /// Finishes what dropped guards and futures have left to do, within the client's time-out, and
    /// ends the client. Guards that are still alive are lost; their locks end with their leases.
    ///
    /// Call it before the program ends: a guard dropped right before the end may otherwise not get
    /// to the store, and its lock stays until its lease ends.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the closing.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        self.core.queue(Task::Close(done));
        // An error means that the driver has ended, which is what we wait for.
        closed.await.ok();
    }

    /// A client of a store in this process.
    pub(crate) fn on_memory(store: Arc<memory::Store>, options: ClientOptions) -> Self {
        let (wake, wakes) = mpsc::unbounded_channel();
        let clock = store.clock().clone();
        let uuid = os::new_client_uuid();
        let engine = Engine::Memory(memory::Engine::new(store, &uuid, wake));
        let client = Self::start(engine, wakes, clock.clone(), options, uuid);
        client.core.server_clock.observe(clock.now(), clock.wall());
        client
    }

    fn start(
        engine: Engine,
        wakes: WakeReceiver,
        clock: Clock,
        options: ClientOptions,
        uuid: String,
    ) -> Self {
        let process = os::Process::current();
        let program = options.program.as_ref().unwrap_or(&process.program);
        let identity = Holder::introduce(process.pid, &process.host, program);
        let (tasks, jobs) = mpsc::unbounded_channel();
        let shared = Shared::new(engine, clock, options, uuid, identity.into(), tasks);
        runtime::handle().spawn(driver::run(shared.clone(), jobs, wakes));
        Self { core: Arc::new(Core(shared)) }
    }

    /// Makes sure that the store answers, and learns its time. Tries once: one who connects wants
    /// to know at once if that does not work.
    async fn say_hello(self) -> Result<Self, StoreError> {
        let hello = async {
            for lane in [Lane::Driver, Lane::Caller] {
                let server_time = self.core.engine.hello(lane).await?;
                self.core.server_clock.observe(self.core.clock.now(), server_time);
            }
            Ok(())
        };
        match tokio::time::timeout(self.core.options.timeout, hello).await {
            Ok(answer) => answer.map(|()| self),
            Err(_) => Err(self.core.unreachable()),
        }
    }
}

/// What to set before connecting.
#[derive(Clone)]
#[must_use = "nothing happens before connect()"]
pub struct Builder {
    address: String,
    options: ClientOptions,
}

impl Builder {
    /// The lease that the watchdog renews, every third of it: how long a lock stays when its
    /// holder dies. 30 s by default, as Redisson's `lockWatchdogTimeout`.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How long an operation may take before the store counts as unreachable, repetitions
    /// included. 10 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// How long a waiter for a fair lock keeps its place without a sign of life, and so how long
    /// waiters that died can hold up the others. 10 s by default; three heartbeats go into it.
    pub fn waiter_ttl(mut self, waiter_ttl: Duration) -> Self {
        self.options.waiter_ttl = waiter_ttl;
        self
    }

    /// What others see as the program that holds a lock; the name of the executable by default.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.options.program = Some(program.into());
        self
    }

    /// Connects; see [`Client::connect`].
    ///
    /// # Errors
    /// If an option is out of range, the address is wrong or the store cannot be used.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        self.connect_from(Handle::current()).await
    }

    /// Connects; `home` is the runtime that serves what callers wait for.
    pub(crate) async fn connect_from(self, home: Handle) -> Result<Client, ConnectError> {
        self.options.check()?;
        let Self { address, options } = self;
        match address.split_once(':') {
            Some(("memory", "")) => Ok(Client::on_memory(memory::Store::new(Clock::Os), options)),
            Some(("memory", name)) => Ok(Client::on_memory(memory::Store::shared(name), options)),
            #[cfg(feature = "embedded")]
            Some(("file", directory)) if !directory.is_empty() => {
                let (wake, wakes) = mpsc::unbounded_channel();
                let uuid = os::new_client_uuid();
                let engine = crate::engine::embedded::Engine::open(directory, &uuid, wake)?;
                let engine = Engine::Embedded(Box::new(engine));
                let client = Client::start(engine, wakes, Clock::Os, options, uuid);
                Ok(client.say_hello().await?)
            }
            #[cfg(feature = "redis")]
            Some(("redis" | "rediss" | "redis+unix" | "unix" | "valkey" | "valkeys", _)) => {
                let (wake, wakes) = mpsc::unbounded_channel();
                let uuid = os::new_client_uuid();
                let engine = crate::engine::redis::Engine::new(&address, &uuid, home, wake)?;
                let engine = Engine::Redis(Box::new(engine));
                let client = Client::start(engine, wakes, Clock::Os, options, uuid);
                Ok(client.say_hello().await?)
            }
            _ => {
                let _ = home;
                let reason = "fairlock does not know this kind of store".to_owned();
                Err(ConnectError::Address { url: without_password(&address), reason })
            }
        }
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = without_password(&self.address);
        f.debug_struct("Builder")
            .field("address", &address)
            .field("options", &self.options)
            .finish()
    }
}

/// A URL with a mistake in it may still have a password in it.
pub(crate) fn without_password(url: &str) -> String {
    let (url, query) = url.split_once('?').map_or((url, ""), |(url, _)| (url, "?***"));
    let start = url.find("://").map_or(0, |scheme| scheme + 3);
    match url.rfind('@') {
        Some(at) if start <= at => format!("{}***{}{query}", &url[..start], &url[at..]),
        _ => format!("{url}{query}"),
    }
}
