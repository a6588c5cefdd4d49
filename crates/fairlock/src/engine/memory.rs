//! The memory engine: the model behind a mutex, for one process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Generation, Page, Renewed, Wake, WakeSender};
use crate::ids::Name;
use crate::protocol::model::reentrant::{self, LockState, Message};
use crate::protocol::op::{Heard, Op, Renew, Reply};
use crate::protocol::pattern::Pattern;
use crate::testing::Busy;
use crate::time::{Clock, ServerTime};

/// One client's access to a [`Store`].
#[derive(Debug)]
pub(crate) struct Engine {
    store: Arc<Store>,
    subscriber: u64,
    wake: WakeSender,
}

impl Engine {
    pub(crate) fn new(store: Arc<Store>, wake: WakeSender) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { store, subscriber: NEXT.fetch_add(1, Ordering::Relaxed), wake }
    }

    pub(crate) fn call(&self, name: &Name, op: &Op, expires: ServerTime) -> Reply {
        let mut tables = self.store.tables();
        let now = self.store.clock.wall();
        let mut lock = tables.locks.remove(name).unwrap_or_default();
        let (mut reply, message) = reentrant::apply(&mut lock, op, expires, now);
        tables.put_back(name, lock, now);
        if message == Message::Free {
            reply.heard = Heard::By(tables.publish(name, &self.store.clock));
        }
        reply
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
        let matching = tables.locks.keys().filter(|name| pattern.matches(name.as_bytes()));
        Page { names: matching.cloned().collect(), next: None }
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
        tables.locks.values().filter(|lock| lock.hold.is_some()).count() + tables.subscribers.len()
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

    fn publish(&self, name: &Name, clock: &Clock) -> u64 {
        let Some(subscribers) = self.subscribers.get(name) else { return 0 };
        let send = |sender: &&WakeSender| {
            sender.send(Wake::Message(name.clone(), Busy::new(clock))).is_ok()
        };
        subscribers.values().filter(send).count() as u64
    }
}

/// Fewer locks than this are not worth a sweep.
const FIRST_SWEEP: usize = 1_024;
