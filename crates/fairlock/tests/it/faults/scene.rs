//! A server, a network in front of it that can fail, and a look behind the scenes.

use std::collections::BTreeMap;
use std::time::Duration;

use fairlock::{Builder, Client, Guard, LockError};
use fairlock_testkit::{Flavour, Proxy, Server, main_flavour};
use tokio::task::JoinHandle;

use crate::patience::{Stopwatch, ms, pass, secs, within};

/// A server and a proxy in front of it.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) proxy: Proxy,
}

impl Scene {
    pub(crate) fn start() -> Self {
        Self::on(&main_flavour())
    }

    pub(crate) fn on(flavour: &Flavour) -> Self {
        let server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        Self { server, proxy }
    }

    /// A client whose network can fail.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(|builder| builder).await
    }

    pub(crate) async fn client_with(&self, set: impl FnOnce(Builder) -> Builder) -> Client {
        connect_with(&self.proxy.url(), set).await
    }

    /// A client whose network does not fail.
    pub(crate) async fn unharmed(&self) -> Client {
        connect_with(&self.server.url(), |builder| builder).await
    }
}

/// Starts to wait for a lock; when this returns, it has found it busy, listens, and has found it
/// busy again.
pub(crate) async fn starts_to_wait(scene: &Scene, lock: fairlock::Lock) -> Locking {
    let before = scene.proxy.script_calls_seen();
    let waiting = tokio::spawn(async move { lock.lock().await });
    until("it has tried twice", || scene.proxy.script_calls_seen() >= before + 2).await;
    waiting
}

/// Somebody who locks in the background.
pub(crate) type Locking = JoinHandle<Result<Guard, LockError>>;

/// Connects; more than once if need be, for a client whose patience is shorter than this takes on
/// a busy machine.
pub(crate) async fn connect_with(url: &str, set: impl FnOnce(Builder) -> Builder) -> Client {
    let builder = set(Client::builder(url));
    for _ in 0..4 {
        if let Ok(client) = builder.clone().connect().await {
            return client;
        }
    }
    builder.connect().await.expect("the store can be reached")
}

/// Who holds a lock, and how often, as it stands in the store.
pub(crate) fn holds(server: &Server, name: &str) -> BTreeMap<String, u32> {
    server.query(&["HGETALL", name])
}

/// Whether this guard's owner holds the lock, so many times, and nobody else does.
pub(crate) fn holds_exactly(server: &Server, guard: &Guard, count: u32) -> bool {
    let name = guard.name().to_string();
    holds(server, &name) == BTreeMap::from([(guard.owner_id().to_string(), count)])
}

/// Milliseconds that the lock has left; negative if it is free or has no end.
pub(crate) fn lease_left_ms(server: &Server, name: &str) -> i64 {
    server.query(&["PTTL", name])
}

/// How many connections listen for this lock.
pub(crate) fn listeners(server: &Server, name: &str) -> u64 {
    let channel = channel(name);
    let counts: Vec<(String, u64)> = server.query(&["PUBSUB", "NUMSUB", &channel]);
    counts[0].1
}

/// Where releases of a lock are told.
pub(crate) fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Where the record of a lock's grants is.
pub(crate) fn record(name: &str) -> String {
    format!("fairlock:{{{name}}}:grant")
}

/// Waits until somebody listens for this lock.
pub(crate) async fn somebody_waits(server: &Server, name: &str) {
    until("somebody listens for the lock", || listeners(server, name) > 0).await;
}

/// Whether the lock is free, and nothing of anything is there to stay.
pub(crate) fn is_tidy(server: &Server, name: &str) -> bool {
    holds(server, name).is_empty() && server.keys_without_ttl().is_empty()
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    until_within(BOUND, what, condition).await;
}

/// Looks again and again, for this long at most, until something is so.
pub(crate) async fn until_within(bound: Duration, what: &str, condition: impl Fn() -> bool) {
    let watch = Stopwatch::start();
    while !condition() {
        assert!(watch.elapsed() < bound, "still not so after {bound:?}: {what}");
        pass(ms(10)).await;
    }
}

/// Sees to it that something stays as it is for this long.
pub(crate) async fn stays(duration: Duration, what: &str, condition: impl Fn() -> bool) {
    let watch = Stopwatch::start();
    while watch.elapsed() < duration {
        assert!(condition(), "no longer so after {:?}: {what}", watch.elapsed());
        pass(ms(20)).await;
    }
}

/// What a future brings that may take a while, but must not hang.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(BOUND, what, future).await
}

/// Longer than anything takes that is not wrong, on a machine that has a lot else to do.
const BOUND: Duration = secs(30);
