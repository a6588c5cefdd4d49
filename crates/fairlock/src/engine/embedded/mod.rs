//! The embedded engine: one directory, any number of processes of one machine, no server.
//!
//! An operation is one transaction: load the lock, apply the model, store it. It takes microseconds
//! and runs in the task that asks, inside the [`gate`] of the lock's shard. When another process is inside, the
//! task tries again in a moment; a process that stays inside is named in the error.
//!
//! Messages are datagrams that only say "look". A holder whose process has died is passed over at
//! once ([`alive`]), its lease is only for processes that stand still.

mod alive;
mod folder;
mod format;
mod gate;
mod open;
mod room;
mod shard;
mod store;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::alive::{DeathWatch, Life};
use self::folder::explain;
use self::format::Entry;
use self::shard::Change;
use self::store::{Place, Store};
use super::{Generation, Page, Renewed, Rules, Wake, WakeSender};
use crate::error::StoreError;
use crate::ids::{Name, OwnerId};
use crate::protocol::model::fair::{self, Beaten, Context, Heartbeat, client_of};
use crate::protocol::model::reentrant::{self, LockState, Message};
use crate::protocol::op::{Heard, Lease, Op, Renew, Reply, State};
use crate::protocol::pattern::Pattern;
use crate::runtime;
use crate::testing::Busy;
use crate::time::{BootTime, Clock, ServerTime};

/// One client's access to a directory of locks.
#[derive(Debug)]
pub(crate) struct Engine {
    directory: PathBuf,
    address: String,
    client: String,
    wake: WakeSender,
    names: Arc<Mutex<HashMap<Vec<u8>, Name>>>,
    deaths: DeathWatch,
    presence: Mutex<Arc<Presence>>,
}

/// A client in a store: replaced as a whole when the directory was removed under it.
#[derive(Debug)]
struct Presence {
    store: Arc<Store>,
    life: Life,
    clients: PathBuf,
    /// Paths of sockets are short: they are reached through the folder's descriptor.
    clients_descriptor: OwnedFd,
    sender: UnixDatagram,
    hearing: tokio::task::JoinHandle<()>,
}

impl Engine {
    pub(crate) fn open(
        directory: &str,
        client: &str,
        wake: WakeSender,
    ) -> Result<Self, StoreError> {
        let directory = PathBuf::from(directory);
        let names = Arc::default();
        let presence = Presence::begin(&directory, client, &wake, &names)?;
        Ok(Self {
            address: format!("file:{}", directory.display()),
            directory,
            client: client.to_owned(),
            wake,
            names,
            deaths: DeathWatch::default(),
            presence: Mutex::new(Arc::new(presence)),
        })
    }

    pub(crate) async fn call(
        &self,
        rules: Rules,
        name: &Name,
        op: &Op,
        expires: ServerTime,
    ) -> Result<Reply, StoreError> {
        let presence = self.presence()?;
        if matches!((rules, op), (Rules::Fair { .. }, Op::Queue { .. })) {
            self.awaited().insert(name.as_bytes().to_vec(), name.clone());
        }
        let place = Place::of(name);
        let (mut reply, message, listeners, holder) = presence
            .change(&place, |change| {
                let now = presence.store.now();
                change.update(&place, now, |Entry { state, listeners, .. }| {
                    presence.pass_over_dead(state, op);
                    let (reply, message) = match rules {
                        Rules::Plain => reentrant::apply(state, op, expires, now),
                        Rules::Fair { waiter_ttl_ms } => {
                            let hears = |client: &str| alive::is_alive(&presence.clients, client);
                            let client = self.client.as_str();
                            let context =
                                Context { now, expires, waiter_ttl_ms, client, hears: &hears };
                            fair::apply(state, op, &context)
                        }
                    };
                    let is_free = message == Message::Free;
                    let listeners = if is_free { listeners.clone() } else { Vec::new() };
                    (reply, message, listeners, holder_of(state))
                })
            })
            .await?;
        match message {
            Message::Free => {
                reply.heard = Heard::By(self.tell(&presence, name, &listeners).await?);
            }
            // Who was granted the lock looks, and finds that it has it.
            Message::Grant { owner, .. } => {
                let heard = presence.send(client_of(&owner), name);
                reply.heard = Heard::By(u64::from(heard));
            }
            Message::None | Message::Call(_) => {}
        }
        if let (Op::Acquire(claim) | Op::Queue { claim, .. }, Some(holder)) = (op, holder)
            && holder != claim.owner
        {
            self.wake_when_dead(&presence, &holder);
        }
        Ok(reply)
    }

    pub(crate) async fn beat(
        &self,
        waiter_ttl_ms: u64,
        name: &Name,
        beat: &Heartbeat,
        expires: ServerTime,
    ) -> Result<Beaten, StoreError> {
        let presence = self.presence()?;
        let place = Place::of(name);
        let (beaten, message, holder) = presence
            .change(&place, |change| {
                let now = presence.store.now();
                change.update(&place, now, |Entry { state, .. }| {
                    presence.pass_over_dead(state, &Op::Inspect);
                    let hears = |client: &str| alive::is_alive(&presence.clients, client);
                    let client = self.client.as_str();
                    let context = Context { now, expires, waiter_ttl_ms, client, hears: &hears };
                    let (beaten, message) = fair::beat(state, beat, &context);
                    (beaten, message, holder_of(state))
                })
            })
            .await?;
        if let Message::Grant { owner, .. } = message {
            presence.send(client_of(&owner), name);
        }
        if let Some(holder) = holder {
            self.wake_when_dead(&presence, &holder);
        }
        Ok(beaten)
    }

    /// Nobody of this client waits for this fair lock any more.
    pub(crate) fn stop_awaiting(&self, name: &Name) {
        self.awaited().remove(name.as_bytes());
    }

    pub(crate) async fn renew(
        &self,
        items: &[Renew],
        expires: ServerTime,
    ) -> Result<Renewed, StoreError> {
        let presence = self.presence()?;
        let places: Vec<Place> = items.iter().map(|item| Place::of(&item.name)).collect();
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|index| places[*index].shard());
        let mut answers = vec![(State::NotHeld, Lease::None); items.len()];
        let mut server_time = presence.store.now();
        for shard in order.chunk_by(|a, b| places[*a].shard() == places[*b].shard()) {
            let renewed = presence.change(&places[shard[0]], |change| {
                let now = presence.store.now();
                let renew = |&index: &usize| {
                    change.update(&places[index], now, |Entry { state, .. }| {
                        reentrant::renew(state, &items[index], now)
                    })
                };
                match now > expires {
                    true => Ok((now, None)),
                    false => {
                        Ok((now, Some(shard.iter().map(renew).collect::<Result<Vec<_>, _>>()?)))
                    }
                }
            });
            let (now, renewed) = renewed.await?;
            server_time = now;
            let Some(renewed) = renewed else { return Ok(Renewed { server_time, items: None }) };
            for (index, answer) in shard.iter().zip(renewed) {
                answers[*index] = answer;
            }
        }
        Ok(Renewed { server_time, items: Some(answers) })
    }

    pub(crate) async fn subscribe(&self, name: &Name) -> Result<Generation, StoreError> {
        self.awaited().insert(name.as_bytes().to_vec(), name.clone());
        let presence = self.presence()?;
        self.set_listening(&presence, name, true).await?;
        // A datagram socket does not break; a removed directory is noticed by its users.
        Ok(Generation(1))
    }

    pub(crate) async fn unsubscribe(&self, name: &Name) -> Result<(), StoreError> {
        self.awaited().remove(name.as_bytes());
        let presence = self.presence()?;
        self.set_listening(&presence, name, false).await
    }

    /// The store's time.
    pub(crate) fn hello(&self) -> Result<ServerTime, StoreError> {
        Ok(self.presence()?.store.now())
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The error for a process that stays inside the gate.
    pub(crate) fn stuck(&self) -> StoreError {
        let presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        presence.store.stuck()
    }

    /// A duplicate of what says that this client is alive.
    pub(crate) fn liveness(&self) -> Result<OwnedFd, StoreError> {
        let presence = self.presence()?;
        let descriptor: BorrowedFd<'_> = presence.life.descriptor();
        descriptor.try_clone_to_owned().map_err(|error| explain(&self.directory, error))
    }

    /// The names of all locks that are held, or were not long ago.
    pub(crate) async fn names(&self, pattern: &Pattern) -> Result<Page, StoreError> {
        let presence = self.presence()?;
        let mut found = Vec::new();
        for shard in presence.store.shards() {
            found.extend(presence.retry(|| shard.try_find_all()).await?);
        }
        found.retain(|found| pattern.matches(found.name.as_bytes()));
        Ok(Page { found, next: None })
    }

    /// This client in the store; a new one if the directory was removed. Then what was held in it
    /// is not held any more, and the store answers so.
    fn presence(&self) -> Result<Arc<Presence>, StoreError> {
        let mut presence = self.presence.lock().unwrap_or_else(PoisonError::into_inner);
        if !presence.store.is_there() {
            let begun = Presence::begin(&self.directory, &self.client, &self.wake, &self.names)?;
            *presence = Arc::new(begun);
            self.wake_all();
        }
        Ok(presence.clone())
    }

    async fn set_listening(
        &self,
        presence: &Presence,
        name: &Name,
        listening: bool,
    ) -> Result<(), StoreError> {
        let place = Place::of(name);
        let changed = presence.change(&place, |change| {
            change.update(&place, presence.store.now(), |Entry { listeners, .. }| {
                listeners.retain(|listener| *listener != self.client);
                if listening {
                    listeners.push(self.client.clone());
                }
            })
        });
        changed.await
    }

    /// Tells the listeners; says how many there were. The dead are taken off the list.
    async fn tell(
        &self,
        presence: &Presence,
        name: &Name,
        listeners: &[String],
    ) -> Result<u64, StoreError> {
        let (mut heard, mut deaf) = (0, Vec::new());
        for listener in listeners {
            let told = if *listener == self.client {
                self.wake.send(Wake::Message(name.clone(), Busy::new(&Clock::Os))).is_ok()
            } else {
                presence.send(listener, name)
            };
            match told {
                true => heard += 1,
                false => deaf.push(listener.clone()),
            }
        }
        if !deaf.is_empty() {
            let place = Place::of(name);
            let removed = presence.change(&place, |change| {
                change.update(&place, presence.store.now(), |Entry { listeners, .. }| {
                    listeners.retain(|listener| !deaf.contains(listener));
                })
            });
            removed.await?;
        }
        Ok(heard)
    }

    /// Looks at all locks that are waited for, as soon as the holder's client is dead.
    fn wake_when_dead(&self, presence: &Presence, holder: &OwnerId) {
        let client = client_of(holder);
        if client == self.client {
            return;
        }
        let (names, wake) = (self.names.clone(), self.wake.clone());
        self.deaths.watch(&presence.clients, client, move || wake_all(&names, &wake));
    }

    fn wake_all(&self) {
        wake_all(&self.names, &self.wake);
    }

    /// The locks that somebody of this client waits for.
    fn awaited(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    fn begin(
        directory: &Path,
        client: &str,
        wake: &WakeSender,
        names: &Arc<Mutex<HashMap<Vec<u8>, Name>>>,
    ) -> Result<Self, StoreError> {
        let store = Store::of(directory)?;
        let clients = folder::clients(store.folder());
        let failed = |error| explain(&clients, error);
        let life = Life::begin(&clients, client).map_err(failed)?;
        let descriptor = std::fs::File::open(&clients).map_err(failed)?;
        let near = near_path(&descriptor, &alive::socket_path(&clients, client));
        let receiver = UnixDatagram::bind(near).map_err(failed)?;
        receiver.set_nonblocking(true).map_err(failed)?;
        let sender = UnixDatagram::unbound().map_err(failed)?;
        sender.set_nonblocking(true).map_err(failed)?;
        let hearing = runtime::handle().spawn(hear(receiver, names.clone(), wake.clone()));
        let clients_descriptor = descriptor.into();
        Ok(Self { store, life, clients, clients_descriptor, sender, hearing })
    }

    /// Runs a transaction, waiting its turn among the processes.
    async fn change<T>(
        &self,
        place: &Place,
        change: impl Fn(&mut Change<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.retry(|| self.store.try_change(place, &change)).await
    }

    #[allow(clippy::disallowed_methods, reason = "waits for other processes, in real time")]
    async fn retry<T>(
        &self,
        attempt: impl Fn() -> Result<Option<T>, StoreError>,
    ) -> Result<T, StoreError> {
        for round in 0..SPINS + YIELDS {
            if let Some(done) = attempt()? {
                return Ok(done);
            }
            match round < SPINS {
                true => (0..PAUSES_PER_SPIN).for_each(|_| std::hint::spin_loop()),
                false => std::thread::yield_now(),
            }
        }
        let give_up_at = BootTime::now().plus(STUCK);
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            if let Some(done) = attempt()? {
                return Ok(done);
            }
            if BootTime::now() >= give_up_at {
                return Err(self.store.stuck());
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Somebody who asks for a lock does not wait for the lease of a dead holder.
    fn pass_over_dead(&self, lock: &mut LockState, op: &Op) {
        let asking = match op {
            Op::Acquire(claim) | Op::Queue { claim, .. } => Some(&claim.owner),
            Op::Release { next: Some(next), .. } => Some(&next.owner),
            Op::Inspect => None,
            Op::Reenter { .. } | Op::Release { next: None, .. } => return,
        };
        let dead = |hold: &mut reentrant::Hold| {
            let client = client_of(&hold.owner);
            asking.map(client_of) != Some(client) && !alive::is_alive(&self.clients, client)
        };
        lock.hold.take_if(dead);
    }

    /// Whether the other one is there. One with a full buffer has enough reasons to look.
    fn send(&self, client: &str, name: &Name) -> bool {
        let path = near_path(&self.clients_descriptor, &alive::socket_path(&self.clients, client));
        let message = &name.as_bytes()[..name.as_bytes().len().min(LONGEST_MESSAGE)];
        match self.sender.send_to(message, path) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.hearing.abort();
    }
}

fn holder_of(lock: &LockState) -> Option<OwnerId> {
    lock.hold.as_ref().map(|hold| hold.owner.clone())
}

/// Turns datagrams into wake-ups.
async fn hear(receiver: UnixDatagram, names: Arc<Mutex<HashMap<Vec<u8>, Name>>>, wake: WakeSender) {
    let receiver = match tokio::net::UnixDatagram::from_std(receiver) {
        Ok(receiver) => receiver,
        Err(error) => return tracing::warn!(%error, "cannot listen; leases will wake waiters"),
    };
    let mut buffer = vec![0; LONGEST_MESSAGE];
    loop {
        match receiver.recv(&mut buffer).await {
            Ok(length) if length == LONGEST_MESSAGE => wake_all(&names, &wake),
            Ok(length) => {
                let names = names.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(name) = names.get(&buffer[..length]).cloned() {
                    wake.send(Wake::Message(name, Busy::new(&Clock::Os))).ok();
                }
            }
            Err(error) => return tracing::warn!(%error, "cannot listen; leases will wake waiters"),
        }
    }
}

fn wake_all(names: &Mutex<HashMap<Vec<u8>, Name>>, wake: &WakeSender) {
    let names = names.lock().unwrap_or_else(PoisonError::into_inner);
    for name in names.values() {
        wake.send(Wake::Message(name.clone(), Busy::new(&Clock::Os))).ok();
    }
}

/// A short way to a socket, however deep its folder lies: their paths end at 108 bytes.
fn near_path(folder: &impl AsRawFd, socket: &Path) -> PathBuf {
    if !cfg!(target_os = "linux") {
        return socket.to_owned();
    }
    let folder = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    folder.join(socket.file_name().unwrap_or_default())
}

/// How long another process may be inside the gate before it counts as stuck. Far more than any
/// transaction takes, and less than the patience of a request.
const STUCK: Duration = Duration::from_secs(1);
/// Others are inside for microseconds: it pays to try again in one, ...
const SPINS: usize = 30;
const PAUSES_PER_SPIN: usize = 10;
/// ... then to let one that was interrupted inside come out, ...
const YIELDS: usize = 20;
/// ... and then to come back less and less often.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// Longer names are not sent; their listeners look at everything they wait for.
const LONGEST_MESSAGE: usize = 1_024;
