//! What stands on the server, so that Redisson's clients can read it, and what they write.

use std::collections::BTreeMap;

use fairlock::{LockError, Options};
use fairlock_testkit::Server;

use crate::patience::{eventually, ms, secs, soon, start};
use crate::stores::Store;

/// The lock's hash: owners and their counts.
pub(crate) fn fields(server: &Server, name: &str) -> BTreeMap<String, String> {
    server.query(&["HGETALL", name])
}

/// What is left of a key, in milliseconds.
pub(crate) fn pttl(server: &Server, key: &str) -> i64 {
    server.query(&["PTTL", key])
}

/// All channels that anybody listens to.
pub(crate) fn channels(server: &Server) -> Vec<String> {
    server.query(&["PUBSUB", "CHANNELS"])
}

/// How many connections wait for news about a lock.
pub(crate) fn listeners(server: &Server, name: &str) -> u64 {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    let (_, count): (String, u64) = server.query(&["PUBSUB", "NUMSUB", &channel]);
    count
}

/// Takes a lock as a thread of a Redisson client does, which is not running here.
fn lock_as_redisson(server: &Server, name: &str, holds: u32, lease_ms: u64) {
    server.query::<()>(&["HSET", name, JAVA_THREAD, &holds.to_string()]);
    server.query::<()>(&["PEXPIRE", name, &lease_ms.to_string()]);
}

fn unlock_as_redisson(server: &Server, name: &str) {
    server.query::<()>(&["DEL", name]);
    server.query::<()>(&["PUBLISH", &format!("redisson_lock__channel:{{{name}}}"), "0"]);
}

#[tokio::test]
async fn a_hold_is_one_field_with_its_count_and_the_lease_as_its_ttl() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client().await;

    let guard = client.lock("a").lock().await.unwrap();
    let owner = guard.owner_id().to_string();
    assert_eq!(fields(server, "a"), BTreeMap::from([(owner.clone(), "1".to_owned())]));
    let left = pttl(server, "a");
    assert!((20_000..=30_000).contains(&left), "the watchdog's lease is 30 s, not {left} ms");
    let (uuid, number) = owner.split_once(':').expect("UUID:NUMBER");
    assert_eq!((uuid.len(), uuid.as_bytes()[14]), (36, b'8'), "{owner}");
    number.parse::<u64>().expect("UUID:NUMBER");

    let again = guard.reenter().await.unwrap();
    assert_eq!(fields(server, "a"), BTreeMap::from([(owner.clone(), "2".to_owned())]));
    again.release().await.unwrap();
    assert_eq!(fields(server, "a"), BTreeMap::from([(owner, "1".to_owned())]));
    guard.release().await.unwrap();
    assert_eq!(pttl(server, "a"), NO_KEY);

    let fixed = client.lock("a").with(Options::new().lease(secs(3_600)));
    let guard = fixed.lock().await.unwrap();
    let left = pttl(server, "a");
    assert!((3_590_000..=3_600_000).contains(&left), "{left}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn nothing_stays_without_an_end() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client().await;
    let guard = client.lock("a").lock().await.unwrap();
    assert_eq!(server.keys(), ["a", "fairlock:{a}:grant"]);
    assert_eq!(server.keys_without_ttl(), [""; 0]);
    guard.release().await.unwrap();
    assert_eq!(server.keys(), ["fairlock:{a}:grant"], "it carries the tokens on");
    assert_eq!(server.keys_without_ttl(), [""; 0]);
}

#[tokio::test]
async fn a_release_is_told_as_redisson_tells_it() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client().await;
    for (name, channel) in
        [("a", "redisson_lock__channel:{a}"), ("shop{42}", "redisson_lock__channel:shop{42}")]
    {
        let mut connection = server.connection();
        let mut listening = connection.as_pubsub();
        listening.subscribe(channel).unwrap();
        let guard = client.lock(name).lock().await.unwrap();
        let again = guard.reenter().await.unwrap();
        again.release().await.unwrap();
        listening.set_read_timeout(Some(ms(100))).unwrap();
        assert!(listening.get_message().is_err(), "nothing is told while it is held");
        guard.release().await.unwrap();
        listening.set_read_timeout(Some(secs(10))).unwrap();
        assert_eq!(listening.get_message().unwrap().get_payload::<String>().unwrap(), "0");
    }
}

#[tokio::test]
async fn tokens_grow_also_when_their_record_was_deleted() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client().await;
    let mut last = 0;
    for _ in 0..20 {
        let guard = client.lock("a").lock().await.unwrap();
        assert!(guard.token().get() > last, "{} after {last}", guard.token());
        last = guard.token().get();
        server.query::<()>(&["DEL", "fairlock:{a}:grant"]);
        guard.release().await.unwrap();
        server.query::<()>(&["DEL", "fairlock:{a}:grant"]);
    }
}

#[tokio::test]
async fn a_hold_of_redisson_is_respected_and_shown() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client().await;
    client.lock("a").lock().await.unwrap().release().await.unwrap();
    lock_as_redisson(server, "a", 3, 60_000);

    assert!(client.lock("a").try_lock().await.unwrap().is_none());
    let info = client.lock("a").inspect().await.unwrap();
    let owner = info.owner.expect("held");
    assert_eq!((owner.as_str(), info.holds), (JAVA_THREAD, 3));
    assert!(!owner.is_fairlock());
    assert_eq!((info.token, info.holder), (None, None), "of an earlier holder");
    let error = client.lock("a").with(Options::new().wait(ms(100))).lock().await.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { holder: None, .. }), "{error}");
    assert_eq!(fields(server, "a").len(), 1, "nobody else came in");
}

#[tokio::test]
async fn a_release_by_redisson_wakes_those_who_wait() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client().await;
    lock_as_redisson(server, "a", 1, 600_000);
    let lock = client.lock("a");
    let waiting = start(async move { lock.lock().await.unwrap() }).await;
    eventually("the waiter listens", async || listeners(server, "a") == 1).await;
    unlock_as_redisson(server, "a");
    let guard = soon("the waiter has the lock", waiting).await.unwrap();
    assert_eq!(fields(server, "a").keys().collect::<Vec<_>>(), [guard.owner_id().as_str()]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_of_redisson_that_ends_hands_the_lock_over() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client().await;
    lock_as_redisson(server, "a", 1, 500);
    let guard = soon("the lease has ended", client.lock("a").lock()).await.unwrap();
    guard.release().await.unwrap();
}

/// A version 4 uuid, as Java makes them.
const JAVA_THREAD: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
/// How `PTTL` says that there is no such key.
const NO_KEY: i64 = -2;
