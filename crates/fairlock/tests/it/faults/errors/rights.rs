//! Users that may not do everything.

use fairlock::{Client, Options, StoreErrorKind};
use fairlock_testkit::{Server, main_flavour};

use super::super::scene::{
    connect_with, holds, holds_exactly, in_time, is_tidy, somebody_waits, until_within,
};
use super::trouble;
use crate::patience::{eventually, ms, pass, secs};

/// A server with a user of these rights, and the address for that user.
fn server_with_user(rights: &[&str]) -> (Server, String) {
    let server = Server::start(&main_flavour());
    let user = ["ACL", "SETUSER", "alice", "reset", "on", ">secret"];
    server.query::<()>(&[&user[..], rights].concat());
    let url = format!("redis://alice:secret@127.0.0.1:{}/", server.port());
    (server, url)
}

/// All that a user needs, on all keys that begin with `orders:`.
const ENOUGH: [&str; 8] = [
    "~orders:*",
    "~fairlock:*",
    "&redisson_lock__channel:*",
    "+evalsha",
    "+eval",
    "+script|load",
    "+@connection",
    "+subscribe",
];
const COMMANDS: [&str; 17] = [
    "+time",
    "+hexists",
    "+exists",
    "+hlen",
    "+hget",
    "+hgetall",
    "+hset",
    "+hdel",
    "+get",
    "+set",
    "+del",
    "+pttl",
    "+pexpire",
    "+unsubscribe",
    "+publish",
    "-select",
    "-ping",
];

/// What the fair lock needs besides.
const FAIR_KEYS: [&str; 3] =
    ["~redisson_lock_queue:*", "~redisson_lock_timeout:*", "&fairlock:client:*"];
const FAIR_COMMANDS: [&str; 17] = [
    "+hkeys",
    "+hmget",
    "+lindex",
    "+llen",
    "+lpop",
    "+lrange",
    "+lrem",
    "+linsert",
    "+rpush",
    "+zadd",
    "+zcard",
    "+zrem",
    "+zscore",
    "+zmscore",
    "+pexpireat",
    "+persist",
    "+pubsub|numsub",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_that_are_listed_are_enough() {
    let (server, url) = server_with_user(&[&ENOUGH[..], &COMMANDS[..]].concat());
    let lease = |builder: fairlock::Builder| builder.lease(ms(900));
    let (alice, also_alice) = (connect_with(&url, lease).await, connect_with(&url, lease).await);
    let lock = alice.lock("orders:1");
    let guard = lock.lock().await.unwrap();
    let again = guard.reenter().await.unwrap();
    assert!(also_alice.lock("orders:1").try_lock().await.unwrap().is_none());
    assert_eq!(also_alice.lock("orders:1").inspect().await.unwrap().holds, 2);
    pass(ms(1_200)).await;
    assert!(guard.is_held(), "renewals go on");
    assert_eq!(again.release().await.unwrap().holds_left(), 1);
    let waiting = tokio::spawn({
        let lock = also_alice.lock("orders:1");
        async move { lock.lock().await.unwrap() }
    });
    somebody_waits(&server, "orders:1").await;
    assert!(guard.release().await.unwrap().waiters_told());
    let guard = in_time("its turn", waiting).await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    drop(guard);
    assert_eq!(trouble(alice.lock("invoices:1").lock().await), StoreErrorKind::Denied);
    also_alice.close().await;
    assert!(is_tidy(&server, "orders:1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_that_are_listed_are_enough_to_queue() {
    let rights = [&ENOUGH[..], &COMMANDS[..], &FAIR_KEYS[..], &FAIR_COMMANDS[..]].concat();
    let (server, url) = server_with_user(&rights);
    let brief = |builder: fairlock::Builder| builder.waiter_ttl(secs(2));
    let (alice, also_alice) = (connect_with(&url, brief).await, connect_with(&url, brief).await);
    let lock = alice.fair_lock("orders:1");
    let held = lock.lock().await.unwrap();
    let waits = |client: &Client| {
        let lock = client.fair_lock("orders:1");
        tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() })
    };
    let waiting = [waits(&alice), waits(&also_alice), waits(&also_alice)];
    let queued = async || lock.inspect().await.unwrap().queued;
    eventually("all wait", async || queued().await == Some(3)).await;
    waiting[1].abort();
    eventually("one has left", async || queued().await == Some(2)).await;
    // Longer than a place lives without a heartbeat.
    pass(secs(3)).await;
    assert_eq!(queued().await, Some(2));
    assert!(also_alice.fair_lock("orders:1").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    for waiting in waiting {
        in_time("its turn", waiting).await.ok();
    }
    assert!(is_tidy(&server, "orders:1") && !lock.is_locked().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_look_at_queues_a_list_does_not_count_them() {
    let (server, url) = server_with_user(&[&ENOUGH[..], &COMMANDS[..], &["+scan"]].concat());
    let (alice, root) = (connect_with(&url, |b| b).await, connect_with(&server.url(), |b| b).await);
    let _held = [alice.lock("orders:1").lock().await, root.lock("elsewhere").lock().await];
    let listed = alice.list("*").await.unwrap();
    assert_eq!(listed.len(), 1, "of what it may see: {listed:?}");
    assert_eq!((listed[0].name.as_bytes(), listed[0].queued), (&b"orders:1"[..], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_publish_a_release_counts_and_warns() {
    for rights in [&["~*", "&*", "+@all", "-publish"][..], &["~*", "resetchannels", "+@all"]] {
        let (server, url) = server_with_user(rights);
        let client = connect_with(&url, |builder| builder).await;
        let guard = client.lock("a").lock().await.unwrap();
        let again = guard.reenter().await.unwrap();
        assert!(again.release().await.unwrap().waiters_told(), "there was nothing to tell");
        let released = guard.release().await.unwrap();
        assert_eq!(released.holds_left(), 0);
        assert!(!released.waiters_told(), "{rights:?}");
        assert!(holds(&server, "a").is_empty());
        let guard = client.lock("a").lock().await.unwrap();
        assert!(client.lock("a").force_unlock().await.unwrap());
        assert!(holds(&server, "a").is_empty());
        drop(guard);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_publish_waiters_look_when_the_lease_can_have_ended() {
    let (server, url) = server_with_user(&["~*", "&*", "+@all", "-publish"]);
    let holder = connect_with(&url, |builder| builder.lease(secs(2))).await;
    let waiter = connect_with(&server.url(), |builder| builder).await;
    let guard = holder.lock("a").lock().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.lock("a").lock().await.unwrap() });
    somebody_waits(&server, "a").await;
    assert!(!guard.release().await.unwrap().waiters_told());
    in_time("its turn", waiting).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_call_scripts_nothing_works() {
    let (server, url) = server_with_user(&["~*", "&*", "+@all", "-evalsha"]);
    // Whether that shows when it connects or when it locks.
    let refused = match Client::connect(&url).await {
        Ok(client) => client.lock("a").lock().await.map(drop).map_err(fairlock::Error::from),
        Err(error) => Err(error.into()),
    };
    let error = refused.expect_err("it is forbidden");
    assert!(error.to_string().contains("ACL"), "{error}");
    let kind = match error {
        fairlock::Error::Connect(error) => trouble(Err::<(), _>(error)),
        fairlock::Error::Lock(error) => trouble(Err::<(), _>(error)),
        error => panic!("{error:?}"),
    };
    assert_eq!(kind, StoreErrorKind::Denied);
    assert!(server.keys().is_empty());
}

/// What a script had done when it came to what is forbidden.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_right_that_locking_needs_nothing_is_left() {
    for missing in ["-hset", "-pexpire", "-set"] {
        let (server, url) = server_with_user(&["~*", "&*", "+@all", missing]);
        let client = connect_with(&url, |builder| builder).await;
        let refused = client.lock("a").lock().await;
        assert_eq!(trouble(refused), StoreErrorKind::Denied, "{missing}");
        until_within(SOON, "the lock is free", || is_tidy(&server, "a")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_right_that_locking_needs_a_waiter_leaves_nothing() {
    for missing in ["-hset", "-pexpire", "-set"] {
        let (server, url) = server_with_user(&["~*", "&*", "+@all", missing]);
        let holder = connect_with(&server.url(), |builder| builder).await;
        let waiter = connect_with(&url, |builder| builder).await;
        let guard = holder.lock("a").lock().await.unwrap();
        let waiting = tokio::spawn(async move { waiter.lock("a").lock().await });
        somebody_waits(&server, "a").await;
        guard.release().await.unwrap();
        let refused = in_time("an answer", waiting).await.unwrap();
        assert_eq!(trouble(refused), StoreErrorKind::Denied, "{missing}");
        until_within(SOON, missing, || is_tidy(&server, "a")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_delete_a_lock_ends_with_its_lease() {
    let (server, url) = server_with_user(&["~*", "&*", "+@all", "-del"]);
    let client = connect_with(&url, |builder| builder.lease(secs(1))).await;
    let guard = client.lock("a").lock().await.unwrap();
    assert_eq!(trouble(guard.release().await), StoreErrorKind::Denied);
    assert!(server.keys_without_ttl().is_empty(), "{:?}", server.keys());
    until_within(SOON, "the lease has ended", || is_tidy(&server, "a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_subscribe_there_is_no_waiting() {
    for rights in [&["~*", "&*", "+@all", "-subscribe"][..], &["~*", "resetchannels", "+@all"]] {
        let (server, url) = server_with_user(rights);
        let holder = connect_with(&server.url(), |builder| builder).await;
        let client = connect_with(&url, |builder| builder).await;
        client.lock("a").lock().await.unwrap().release().await.unwrap();
        let guard = holder.lock("a").lock().await.unwrap();
        assert!(client.lock("a").try_lock().await.unwrap().is_none());
        for options in [Options::new(), Options::new().wait(secs(5))] {
            let refused = in_time("an answer", client.lock("a").with(options).lock()).await;
            assert_eq!(trouble(refused), StoreErrorKind::Denied, "{rights:?}");
        }
        assert!(holds_exactly(&server, &guard, 1));
        guard.release().await.unwrap();
        client.lock("a").lock().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_load_scripts_they_are_sent_along() {
    let (server, url) = server_with_user(&["~*", "&*", "+@all", "-script"]);
    let client = connect_with(&url, |builder| builder.lease(ms(900))).await;
    let guard = client.lock("a").lock().await.unwrap();
    let again = guard.reenter().await.unwrap();
    pass(ms(1_200)).await;
    assert!(guard.is_held() && holds_exactly(&server, &guard, 2), "renewals go on");
    again.release().await.unwrap();
    guard.release().await.unwrap();
    assert!(!client.lock("a").force_unlock().await.unwrap());
    assert!(is_tidy(&server, "a"));
    assert!(server.calls("eval") > 0, "that is what it was about");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_taken_away_lose_no_lock_silently() {
    let (server, url) = server_with_user(&["~*", "&*", "+@all"]);
    let client = connect_with(&url, |builder| builder.lease(secs(2))).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.query::<()>(&["ACL", "SETUSER", "alice", "-evalsha", "-eval"]);
    assert_eq!(trouble(guard.reenter().await), StoreErrorKind::Denied);
    in_time("the loss", guard.lost()).await;
    assert!(!guard.is_held());
    guard.release().await.expect_err("it is lost, or forbidden");
}

/// Long against the time that a clean-up takes, short against a lease.
const SOON: std::time::Duration = secs(10);
