//! A queue, from both sides: those who wait in it, and what stands in the store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlock::{Builder, Client, FairLock, Guard, LockError, OwnerId};
use fairlock_testkit::Server;
use tokio::task::JoinHandle;

use crate::faults::scene::{connect_with, holds};
use crate::patience::{eventually, start};
use crate::stores::Store;

/// The lock that is waited for.
pub(super) const NAME: &str = "a";
/// A waiter of fairlock that is nowhere.
pub(super) const GHOST: &str = "00000000-0000-8000-8000-000000000000:1";
/// A waiter of Redisson that is nowhere.
pub(super) const JAVA_GHOST: &str = "00000000-0000-4000-8000-000000000000:1";

pub(super) const LIST: &str = "redisson_lock_queue:{a}";
pub(super) const SCORES: &str = "redisson_lock_timeout:{a}";
pub(super) const PLACES: &str = "fairlock:{a}:places";
pub(super) const RECORD: &str = "fairlock:{a}:grant";

/// Who got the lock, in that order.
pub(super) type Served = Arc<Mutex<Vec<OwnerId>>>;

/// Clients whose waiters live for so long without a sign of life.
pub(super) async fn clients(store: &Store, count: usize, waiter_ttl: Duration) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(store.client_with(|builder| builder.waiter_ttl(waiter_ttl)).await);
    }
    clients
}

/// A client of this address whose waiters live for so long without a sign of life.
pub(super) async fn client(url: &str, waiter_ttl: Duration) -> Client {
    connect_with(url, |builder: Builder| builder.waiter_ttl(waiter_ttl)).await
}

/// Who waits, in the order of arrival, once there are so many.
pub(super) async fn queued(lock: &FairLock, count: usize) -> Vec<OwnerId> {
    let mut owners = Vec::new();
    eventually(&format!("{count} are queued"), async || {
        let waiters = lock.inspect().await.unwrap().waiters.expect("a fair lock has a queue");
        owners = waiters.into_iter().map(|waiter| waiter.owner).collect();
        owners.len() == count
    })
    .await;
    owners
}

/// One who waits; when this returns it has asked.
pub(super) async fn waits(lock: &FairLock) -> JoinHandle<Result<Guard, LockError>> {
    let lock = lock.clone();
    start(async move { lock.lock().await }).await
}

/// One who waits, notes that it was served, and gives the lock back.
pub(super) async fn passes(lock: &FairLock, served: &Served) -> JoinHandle<()> {
    let (lock, served) = (lock.clone(), served.clone());
    start(async move {
        let guard = lock.lock().await.unwrap();
        served.lock().unwrap().push(guard.owner_id().clone());
        guard.release().await.expect("nobody takes it away");
    })
    .await
}

/// How many entries the list, the scores and the places have.
pub(super) fn sizes(server: &Server) -> [u64; 3] {
    [("LLEN", LIST), ("ZCARD", SCORES), ("HLEN", PLACES)]
        .map(|(length, key)| server.query(&[length, key]))
}

/// How many clients would hear of a grant.
pub(super) fn hearing(server: &Server) -> usize {
    server.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "fairlock:client:*"]).len()
}

/// Whether nobody holds the lock or waits for it, and only the record of its grants is left.
pub(super) fn is_drained(server: &Server) -> bool {
    let only_record = server.keys().iter().all(|key| key == RECORD);
    holds(server, NAME).is_empty() && only_record && server.keys_without_ttl().is_empty()
}
