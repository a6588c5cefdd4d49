//! What it costs the store, and what others see there.

use fairlock::{Client, Guard};
use fairlock_testkit::{Server, main_flavour};
use redis::PushKind;
use tokio::task::JoinSet;

use super::scene::{
    Scene, channel, connect_with, holds, holds_exactly, in_time, is_tidy, lease_left_ms, listeners,
    record, somebody_waits, until,
};
use crate::patience::{Stopwatch, ms, pass, secs};

async fn connect(server: &Server) -> Client {
    connect_with(&server.url(), |builder| builder).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_lock_costs_two_calls() {
    let server = Server::start(&main_flavour());
    let client = connect(&server).await;
    server.reset_stats();
    client.lock("a").lock().await.unwrap().release().await.unwrap();
    assert_eq!((server.calls("evalsha"), server.script_calls()), (2, 2));
    assert_eq!(server.calls("publish"), 1, "the script tells that the lock is free");
    for command in ["subscribe", "unsubscribe", "script|load", "ping", "hello", "watch", "multi"] {
        assert_eq!(server.calls(command), 0, "{command}");
    }
    server.reset_stats();
    let guard = client.lock("a").try_lock().await.unwrap().expect("it is free");
    let again = guard.reenter().await.unwrap();
    again.release().await.unwrap();
    drop(guard);
    until("the lock is free", || holds(&server, "a").is_empty()).await;
    assert_eq!((server.calls("evalsha"), server.script_calls()), (4, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_at_a_guard_and_having_a_client_cost_nothing() {
    let server = Server::start(&main_flavour());
    let client = connect(&server).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.reset_stats();
    for _ in 0..1_000 {
        assert!(guard.is_held() && guard.held_until().is_some());
    }
    pass(secs(2)).await;
    assert_eq!(server.script_calls(), 0);
    assert_eq!(server.calls("ping"), 0);
}

/// As long as nobody has tried in vain meanwhile, which is a matter of luck: so try some times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_goes_on_within_a_process_in_one_call_and_without_a_message() {
    let server = Server::start(&main_flavour());
    let client = connect(&server).await;
    let mut cheap = 0;
    for _ in 0..10 {
        server.reset_stats();
        let first = client.lock("a").lock().await.unwrap();
        let lock = client.lock("a");
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        until("it has tried twice", || server.script_calls() == 3).await;
        server.reset_stats();
        first.release().await.unwrap();
        let second = in_time("its turn", waiting).await.unwrap();
        cheap += u32::from(server.script_calls() == 1 && server.calls("publish") == 0);
        assert!(holds_exactly(&server, &second, 1));
        second.release().await.unwrap();
        until("nobody listens any more", || listeners(&server, "a") == 0).await;
        if cheap > 0 {
            return;
        }
    }
    panic!("not once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_of_one_process_try_once_per_lease() {
    let scene = Scene::start();
    let lease = secs(2);
    let holder = connect_with(&scene.server.url(), |builder| builder.lease(lease)).await;
    let held = holder.lock("a").lock().await.unwrap();
    let client = scene.client().await;
    let before = scene.proxy.script_calls_seen();
    let mut waiters = JoinSet::new();
    for _ in 0..1_000 {
        let lock = client.lock("a");
        waiters.spawn(async move {
            let guard = lock.lock().await.unwrap();
            let token = guard.token();
            guard.release().await.unwrap();
            token
        });
    }
    let attempts = || scene.proxy.script_calls_seen() - before;
    until("one has tried, listened, and tried again", || attempts() >= 2).await;
    let watch = Stopwatch::start();
    pass(lease * 4).await;
    // A look comes when the lease would have ended that the look before has seen. Of a lease that
    // is renewed every third of it, that one has seen two thirds at least.
    let most = 2 + watch.elapsed().as_millis() * 3 / lease.as_millis() / 2 + 1;
    assert!(u128::from(attempts()) <= most, "{} attempts, at most {most}", attempts());
    assert_eq!(listeners(&scene.server, "a"), 1, "one subscription for all");

    let before = scene.proxy.script_calls_seen();
    held.release().await.unwrap();
    let tokens = in_time("a thousand turns", waiters.join_all()).await;
    let mut sorted = tokens.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 1_000, "every turn has a token of its own");
    let calls = scene.proxy.script_calls_seen() - before;
    assert!(calls <= 2_000, "{calls} calls for a thousand turns");
    until("the lock is free", || is_tidy(&scene.server, "a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_locks_are_renewed_with_some_calls() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder.lease(secs(6))).await;
    let mut locking = JoinSet::new();
    for number in 0..1_000 {
        let lock = client.lock(format!("lock-{number}"));
        locking.spawn(async move { lock.lock().await.unwrap() });
    }
    let guards: Vec<Guard> = in_time("a thousand locks", locking.join_all()).await;
    server.reset_stats();
    let watch = Stopwatch::start();
    pass(secs(7)).await;
    // Four batches every two seconds, if all fall due together; they may come in some groups.
    let rounds = watch.elapsed().as_secs() / 2 + 1;
    let calls = server.script_calls();
    assert!(calls >= 4 * 3, "{calls} calls for three rounds of a thousand renewals");
    assert!(calls <= 4 * rounds * 4, "{calls} calls in {rounds} rounds");
    assert!(guards.iter().all(Guard::is_held));
    assert_eq!(server.query::<Vec<String>>(&["KEYS", "lock-*"]).len(), 1_000);
    drop(guards);
    in_time("closing", client.close()).await;
    assert!(server.query::<Vec<String>>(&["KEYS", "lock-*"]).is_empty());
    assert!(server.keys_without_ttl().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_looks_like_one_of_redisson() {
    let server = Server::start(&main_flavour());
    let client = connect(&server).await;
    let guard = client.lock("a").lock().await.unwrap();
    assert!(holds_exactly(&server, &guard, 1));
    let (uuid, number) = guard.owner_id().as_str().split_once(':').expect("uuid:number");
    assert_eq!((uuid.len(), uuid.matches('-').count()), (36, 4), "{uuid}");
    assert!(number.parse::<u64>().is_ok(), "{number}");
    let again = guard.reenter().await.unwrap();
    let watch = Stopwatch::start();
    // Two renewals: one every ten seconds.
    while watch.elapsed() < secs(22) {
        let left_ms = lease_left_ms(&server, "a");
        assert!((15_000..=30_000).contains(&left_ms), "{left_ms} ms left");
        assert!(holds_exactly(&server, &guard, 2));
        pass(ms(250)).await;
    }
    assert!(guard.is_held() && again.is_held());
    again.release().await.unwrap();
    assert!(holds_exactly(&server, &guard, 1));
    guard.release().await.unwrap();
    assert_eq!(server.keys(), [record("a")], "the record alone is left");
    assert!(is_tidy(&server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_told_on_the_channel_of_redisson() {
    let server = Server::start(&main_flavour());
    let client = connect(&server).await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let listener = redis::Client::open(format!("{}?protocol=resp3", server.url())).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_push_sender(tell);
    let mut listener =
        listener.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    listener.subscribe(channel("a")).await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    let again = guard.reenter().await.unwrap();
    again.release().await.unwrap();
    guard.release().await.unwrap();
    let broken = client.lock("a").lock().await.unwrap();
    assert!(client.lock("a").force_unlock().await.unwrap());
    drop(broken);
    client.close().await;
    server.query::<()>(&["PUBLISH", &channel("a"), "the end"]);
    let mut messages = Vec::new();
    while messages.last().is_none_or(|last| last != "the end") {
        let push = in_time("a message", told.recv()).await.expect("the listener lives");
        if push.kind == PushKind::Message {
            messages.push(redis::from_redis_value::<String>(push.data[1].clone()).unwrap());
        }
    }
    assert_eq!(messages, ["0", "0", "the end"], "one for the release, one for the break");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listens_for_a_lock_that_nobody_waits_for() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) = (connect(&server).await, connect(&server).await);
    let mut waiting = JoinSet::new();
    let mut held = Vec::new();
    for number in 0..20 {
        let name = format!("lock-{number}");
        held.push(holder.lock(&name).lock().await.unwrap());
        let lock = waiter.lock(&name);
        waiting.spawn(async move { lock.lock().await.unwrap().release().await.unwrap() });
        somebody_waits(&server, &name).await;
    }
    assert_eq!(server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len(), 20);
    for guard in held {
        guard.release().await.unwrap();
    }
    in_time("their turns", waiting.join_all()).await;
    let channels = || server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]);
    until("nobody listens any more", || channels().is_empty()).await;

    // One who leaves stops listening, too.
    let held = holder.lock("a").lock().await.unwrap();
    let lock = waiter.lock("a");
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    somebody_waits(&server, "a").await;
    waiting.abort();
    until("nobody listens any more", || channels().is_empty()).await;
    held.release().await.unwrap();
    assert!(server.keys_without_ttl().is_empty());
}
