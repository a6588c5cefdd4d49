//! Something else is at the lock's key, or at the key of its record.

use fairlock::{Client, LostCause, Options, StoreErrorKind};
use fairlock_testkit::{Server, main_flavour};

use super::super::scene::{connect_with, holds_exactly, in_time, record, somebody_waits};
use super::trouble;
use crate::patience::{ms, secs};

/// Commands that put something else at the key `a`.
const SOMETHING_ELSE: [&[&str]; 5] = [
    &["SET", "a", "payload"],
    &["RPUSH", "a", "one", "two"],
    &["ZADD", "a", "1", "one"],
    &["SADD", "a", "one"],
    &["XADD", "a", "1-1", "field", "value"],
];

/// The whole content of the key `a`.
fn content(server: &Server) -> Vec<u8> {
    server.query(&["DUMP", "a"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_at_the_name_is_not_touched() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder).await;
    let lock = client.lock("a").with(Options::new().wait(secs(5)));
    for command in SOMETHING_ELSE {
        server.query::<redis::Value>(command);
        let before = content(&server);
        assert_eq!(trouble(lock.lock().await), StoreErrorKind::WrongType);
        assert_eq!(trouble(lock.inspect().await), StoreErrorKind::WrongType);
        assert_eq!(trouble(lock.force_unlock().await), StoreErrorKind::WrongType);
        let owner = client.owner();
        assert_eq!(trouble(lock.lock_as(&owner).await), StoreErrorKind::WrongType);
        let text = lock.lock().await.expect_err("it is no lock").to_string();
        assert!(text.contains("choose another name"), "{text}");
        assert_eq!(content(&server), before, "{command:?}");
        assert_eq!(server.keys(), ["a"], "nothing besides");
        server.query::<()>(&["DEL", "a"]);
        lock.lock().await.expect("the name can be used").release().await.unwrap();
        server.query::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_does_not_look_busy_because_an_attempt_was_refused() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder).await;
    server.query::<()>(&["SET", "a", "payload"]);
    for _ in 0..10 {
        assert_eq!(trouble(client.lock("a").try_lock().await), StoreErrorKind::WrongType);
    }
    assert_eq!(trouble(client.lock("a").lock().await), StoreErrorKind::WrongType);
    server.query::<()>(&["DEL", "a"]);
    assert!(client.lock("a").try_lock().await.unwrap().is_some(), "it is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_that_replaced_a_held_lock_is_not_touched() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder).await;
    for command in SOMETHING_ELSE {
        let guard = client.lock("a").lock().await.unwrap();
        let again = guard.reenter().await.unwrap();
        server.query::<()>(&["DEL", "a"]);
        server.query::<redis::Value>(command);
        let before = content(&server);
        assert_eq!(trouble(guard.reenter().await), StoreErrorKind::WrongType);
        assert_eq!(trouble(again.release().await), StoreErrorKind::WrongType);
        assert_eq!(trouble(guard.release().await), StoreErrorKind::WrongType);
        assert_eq!(content(&server), before, "{command:?}");
        assert_eq!(server.query::<i64>(&["PTTL", "a"]), -1);
        server.query::<()>(&["DEL", "a"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_finds_something_else_says_lost_and_renews_the_others() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder.lease(ms(2_400))).await;
    let other = client.lock("b").lock().await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    for command in SOMETHING_ELSE {
        server.query::<()>(&["DEL", "a"]);
        server.query::<redis::Value>(command);
        let before = content(&server);
        let guard = client.lock("c").lock().await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(content(&server), before);
    }
    let lost = in_time("the loss", guard.lost()).await;
    assert_eq!(lost.cause, LostCause::Gone);
    assert_eq!(server.query::<String>(&["TYPE", "a"]), "stream");
    assert!(other.is_held() && holds_exactly(&server, &other, 1));
    other.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_told() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) = (
        connect_with(&server.url(), |builder| builder).await,
        connect_with(&server.url(), |builder| builder).await,
    );
    let guard = holder.lock("a").lock().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let lock = waiter.lock("a");
            tokio::spawn(async move { lock.lock().await })
        })
        .collect();
    somebody_waits(&server, "a").await;
    server.query::<()>(&["SET", "a", "payload"]);
    server.query::<()>(&["PUBLISH", &super::super::scene::channel("a"), "0"]);
    for waiting in waiting {
        let refused = in_time("an answer", waiting).await.unwrap();
        assert_eq!(trouble(refused), StoreErrorKind::WrongType);
    }
    assert_eq!(server.query::<String>(&["GET", "a"]), "payload");
    drop(guard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hash_of_somebody_else_can_be_looked_at_and_broken() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder).await;
    let hashes: [&[&[u8]]; 3] = [
        &[b"mode", b"write", b"somebody", b"1"],
        &[b"", b""],
        // No text: what is shown of it is not what is there.
        &[b"\xff\xfe:7", b"1"],
    ];
    for fields in hashes {
        let key: [&[u8]; 2] = [b"HSET", b"a"];
        server.query::<()>(&[&key[..], fields].concat());
        let lock = client.lock("a");
        assert!(lock.inspect().await.unwrap().held, "{fields:?}");
        assert!(lock.try_lock().await.unwrap().is_none(), "{fields:?}");
        server.reset_stats();
        let broken = in_time("breaking", lock.force_unlock()).await;
        assert!(server.script_calls() < 10, "{fields:?}: {} calls", server.script_calls());
        // What cannot be a lock may be refused, for a reason that is true.
        match broken {
            Ok(broken) => assert!(broken && server.keys().is_empty(), "{fields:?}"),
            refused => {
                assert_eq!(trouble(refused), StoreErrorKind::WrongType, "{fields:?}");
                assert_eq!(server.keys(), ["a"], "{fields:?}");
            }
        }
        server.query::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoilt_record_is_replaced_and_tokens_grow() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder).await;
    let key = record("a");
    let poisons: [&[&str]; 9] = [
        &["RPUSH", &key, "one"],
        &["HSET", &key, "field", "value"],
        &["SET", &key, ""],
        &["SET", &key, "garbage"],
        &["SET", &key, "\u{fffd}\n\n\n\n\n"],
        &["SET", &key, "-5\nsomebody\n1\n2\nhost\nprogram"],
        &["SET", &key, "17"],
        &["SET", &key, "99999999999999999999999999999\nsomebody\n1\n2\nhost\nprogram"],
        &["SET", &key, "18446744073709551615\nsomebody\n1\n2\nhost\nprogram"],
    ];
    let mut last = takes_it(&client, &server).await;
    for poison in poisons {
        server.query::<()>(&["DEL", &key]);
        server.query::<redis::Value>(poison);
        let info = client.lock("a").inspect().await.unwrap();
        assert!(!info.held, "{poison:?}");
        for _ in 0..2 {
            let token = takes_it(&client, &server).await;
            assert!(token > last, "{token} after {last}: {poison:?}");
            last = token;
        }
        assert!(server.keys_without_ttl().is_empty(), "{poison:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_spoilt_under_a_holder_disturbs_nothing() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder.lease(ms(900))).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.query::<()>(&["DEL", &record("a")]);
    server.query::<()>(&["RPUSH", &record("a"), "one"]);
    let again = guard.reenter().await.unwrap();
    assert_eq!(again.token(), guard.token());
    crate::patience::pass(ms(1_200)).await;
    assert!(guard.is_held() && holds_exactly(&server, &guard, 2), "renewals go on");
    assert_eq!(client.lock("a").inspect().await.unwrap().holds, 2);
    again.release().await.unwrap();
    let token = guard.token().get();
    guard.release().await.unwrap();
    assert!(takes_it(&client, &server).await > token);
    assert!(server.keys_without_ttl().is_empty());
}

/// Takes the lock and gives it back; tells the token.
async fn takes_it(client: &Client, server: &Server) -> u64 {
    let guard = client.lock("a").lock().await.unwrap();
    assert!(holds_exactly(server, &guard, 1));
    let token = guard.token().get();
    guard.release().await.unwrap();
    token
}
