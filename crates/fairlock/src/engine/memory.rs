//! The memory engine: the model behind a mutex, for one process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Found, Generation, Grant, Page, Renewed, Rules, Wake, WakeSender};
use crate::ids::Name;
use crate::protocol::model::fair::{self, Beaten, Context, Heartbeat};
use crate::protocol::model::reentrant::{self, LockState, Message};
use crate::protocol::op::{Heard, Op, Renew, Reply};
use crate::protocol::pattern::Pattern;
use crate::testing::Busy;
use crate::time::{Clock, ServerTime};

/// One client's access to a [`Store`].
#[derive(Debug)]
pub(crate) struct Engine {
    store: Arc<Store>,
    client: String,
    subscriber: u64,
    wake: WakeSender,
}

impl Engine {
    pub(crate) fn new(store: Arc<Store>, client: &str, wake: WakeSender) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let subscriber = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { store, client: client.to_owned(), subscriber, wake }
    }

    pub(crate) fn call(&self, rules: Rules, name: &Name, op: &Op, expires: ServerTime) -> Reply {
        let mut tables = self.store.tables();
        let now = self.store.clock.wall();
        let mut lock = tables.locks.remove(name).unwrap_or_default();
        let (mut reply, message) = match rules {
            Rules::Plain => reentrant::apply(&mut lock, op, expires, now),
            Rules::Fair { waiter_ttl_ms } => {
                let hears = |client: &str| tables.ears.contains_key(client);
                let context = self.context(now, expires, waiter_ttl_ms, &hears);
                fair::apply(&mut lock, op, &context)
            }
        };
        tables.put_back(name, lock, now);
        reply.heard = tables.tell(name, message, &self.store.clock);
        reply
    }

    pub(crate) fn beat(
        &self,
        waiter_ttl_ms: u64,
        name: &Name,
        beat: &Heartbeat,
        expires: ServerTime,
    ) -> Beaten {
        let mut tables = self.store.tables();
        let now = self.store.clock.wall();
        let mut lock = tables.locks.remove(name).unwrap_or_default();
        let hears = |client: &str| tables.ears.contains_key(client);
        let context = self.context(now, expires, waiter_ttl_ms, &hears);
        let (beaten, message) = fair::beat(&mut lock, beat, &context);
        tables.put_back(name, lock, now);
        tables.tell(name, message, &self.store.clock);
        beaten
    }

    fn context<'a>(
        &'a self,
        now: ServerTime,
        expires: ServerTime,
        waiter_ttl_ms: u64,
        hears: &'a dyn Fn(&str) -> bool,
    ) -> Context<'a> {
        Context { now, expires, waiter_ttl_ms, client: &self.client, hears }
    }

    pub(crate) fn hear_grants(&self) -> Generation {
        let mut tables = self.store.tables();
        tables.ears.insert(self.client.clone(), self.wake.clone());
        Generation(1)
    }

    pub(crate) fn renew(&self, items: &[Renew], expires: ServerTime) -> Renewed {
        let mut tables = self.store.tables();
        let server_time = self.store.clock.wall();
        if server_time > expires {
            return Renewed { server_time, items: None };
        }
        let renewed = items.iter().map(|item| {
            let mut lock = tables.locks.remove(&item.name).unwrap_or_default();
            let answer = reentrant::renew(&mut lock, item, server_time);
            tables.put_back(&item.name, lock, server_time);
            answer
        });
        Renewed { server_time, items: Some(renewed.collect()) }
    }

    /// All of them: nobody else has to wait for long.
    pub(crate) fn names(&self, pattern: &Pattern) -> Page {
        let tables = self.store.tables();
        let matching = tables.locks.iter().filter(|(name, _)| pattern.matches(name.as_bytes()));
        let found = matching
            .map(|(name, lock)| Found { name: name.clone(), queued: Some(lock.queue.list.len()) });
        Page { found: found.collect(), next: None }
    }

    pub(crate) fn wall(&self) -> ServerTime {
        self.store.clock.wall()
    }

    pub(crate) fn subscribe(&self, name: &Name) -> Generation {
        let mut tables = self.store.tables();
        let subscribers = tables.subscribers.entry(name.clone()).or_default();
        subscribers.insert(self.subscriber, self.wake.clone());
        // Nothing can break this connection, so any number above zero will do.
        Generation(1)
    }

    pub(crate) fn unsubscribe(&self, name: &Name) {
        let mut tables = self.store.tables();
        if let Some(subscribers) = tables.subscribers.get_mut(name) {
            subscribers.remove(&self.subscriber);
            if subscribers.is_empty() {
                tables.subscribers.remove(name);
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let mut tables = self.store.tables();
        tables.ears.remove(&self.client);
        tables.subscribers.retain(|_, subscribers| {
            subscribers.remove(&self.subscriber);
            !subscribers.is_empty()
        });
    }
}

/// The locks of one `memory:` store.
#[derive(Debug)]
pub(crate) struct Store {
    clock: Clock,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    locks: HashMap<Name, LockState>,
    subscribers: HashMap<Name, HashMap<u64, WakeSender>>,
    /// The clients that hear of grants.
    ears: HashMap<String, WakeSender>,
    /// Sweep when there are this many locks: expired ones are found only when somebody asks.
    sweep_at: usize,
}

impl Store {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self { clock, tables: Mutex::default() })
    }

    /// The store `memory:NAME`: the same for all clients of this process, while there are any.
    pub(crate) fn shared(name: &str) -> Arc<Self> {
        static SHARED: Mutex<Option<HashMap<String, Weak<Store>>>> = Mutex::new(None);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let stores = shared.get_or_insert_default();
        stores.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return store;
        }
        let store = Self::new(Clock::Os);
        stores.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How many names the store keeps something about that is held or listened to.
    pub(crate) fn in_use(&self) -> usize {
        let now = self.clock.wall();
        let mut tables = self.tables();
        tables.locks.values_mut().for_each(|lock| lock.expire(now));
        let in_use = |lock: &&LockState| lock.hold.is_some() || !lock.queue.is_empty();
        tables.locks.values().filter(in_use).count() + tables.subscribers.len()
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn put_back(&mut self, name: &Name, lock: LockState, now: ServerTime) {
        if !lock.is_empty() {
            self.locks.insert(name.clone(), lock);
        }
        if self.locks.len() > self.sweep_at.max(FIRST_SWEEP) {
            self.locks.retain(|_, lock| {
                lock.expire(now);
                !lock.is_empty()
            });
            self.sweep_at = self.locks.len() * 2;
        }
    }

    fn tell(&self, name: &Name, message: Message, clock: &Clock) -> Heard {
        let send = |sender: &WakeSender, wake: Wake| sender.send(wake).is_ok();
        let heard = match message {
            // Java has no way into this store.
            Message::None | Message::Call(_) => 0,
            Message::Free => {
                let subscribers = self.subscribers.get(name).into_iter().flat_map(HashMap::values);
                let news = || Wake::Message(name.clone(), Busy::new(clock));
                subscribers.filter(|sender| send(sender, news())).count()
            }
            Message::Grant { owner, token, granted_ms } => {
                let ear = self.ears.get(fair::client_of(&owner));
                let grant = Grant { owner, token, granted_ms };
                usize::from(ear.is_some_and(|ear| send(ear, Wake::Grant(grant, Busy::new(clock)))))
            }
        };
        Heard::By(heard as u64)
    }
}

/// Fewer locks than this are not worth a sweep.
const FIRST_SWEEP: usize = 1_024;
