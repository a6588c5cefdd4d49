//! Waiting: for how long, how quietly, and what wakes.

use fairlock::{LockError, Options, StoreErrorKind};

use super::redisson::{channels, listeners};
use crate::patience::{Stopwatch, eventually, ms, pass, secs, soon, start};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    try_lock_never_waits,
    a_wait_time_ends_and_the_error_names_the_holder,
    a_wait_time_of_zero_tries_once,
    a_wait_time_can_be_long_enough,
    the_wait_time_starts_with_the_call,
    one_whose_wait_time_ended_leaves_nothing_behind,
    a_lock_of_a_closed_client_is_waited_for_in_vain,
    an_ended_lease_hands_the_lock_over_without_a_message,
    waiters_of_many_clients_are_all_served,
);

async fn try_lock_never_waits(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let _held = alice.lock("a").lock().await.unwrap();
    let watch = Stopwatch::start();
    let lock = bob.lock("a").with(Options::new().wait(secs(60)));
    for _ in 0..20 {
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(lock.try_lock_as(&bob.owner()).await.unwrap().is_none());
    }
    assert!(watch.elapsed() < secs(10), "{:?}", watch.elapsed());
}

async fn a_wait_time_ends_and_the_error_names_the_holder(store: Store) {
    let alice = store.client_with(|builder| builder.program("nightly backup")).await;
    let bob = store.client().await;
    let _held = alice.lock("orders").lock().await.unwrap();
    for waiter in [&alice, &bob] {
        let watch = Stopwatch::start();
        let lock = waiter.lock("orders").with(Options::new().wait(ms(300)));
        let error = soon("the wait time ends", lock.lock()).await.unwrap_err();
        assert!(watch.elapsed() >= ms(300), "{:?}", watch.elapsed());

        let text = error.to_string();
        let LockError::TimedOut { name, waited, holder } = error else { panic!("{text}") };
        assert_eq!(name, "orders");
        assert!(waited >= ms(300), "{waited:?}");
        let holder = holder.expect("the holder is known");
        let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        assert_eq!((&*holder.program, &*holder.host), ("nightly backup", &*host));
        let whom = format!("held by nightly backup, pid {} on {host}", std::process::id());
        assert!(text.contains(&whom) && text.contains("orders"), "{text}");
    }
}

async fn a_wait_time_of_zero_tries_once(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let lock = bob.lock("a").with(Options::new().wait(ms(0)));
    soon("a free lock is taken", lock.lock()).await.unwrap().release().await.unwrap();
    let _held = alice.lock("a").lock().await.unwrap();
    let error = soon("a held one is not waited for", lock.lock()).await.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
}

async fn a_wait_time_can_be_long_enough(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = alice.lock("a").lock().await.unwrap();
    let patient = bob.lock("a").with(Options::new().wait(secs(60)));
    let waiting = start(async move { patient.lock().await.unwrap().release().await }).await;
    pass(ms(200)).await;
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    soon("the waiter has had the lock", waiting).await.unwrap().unwrap();
}

/// Also for those who wait behind others of their own process, who wait longer.
async fn the_wait_time_starts_with_the_call(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = alice.lock("a").lock().await.unwrap();
    let patient = bob.lock("a");
    let patient = start(async move { patient.lock().await.unwrap().release().await }).await;
    let mut hasty = Vec::new();
    for wait in [300, 100, 200] {
        let lock = bob.lock("a").with(Options::new().wait(ms(wait)));
        hasty.push((wait, start(async move { lock.lock().await.unwrap_err() }).await));
    }
    for (wait, waiting) in hasty {
        let error = soon("the wait time ends", waiting).await.unwrap();
        let LockError::TimedOut { waited, .. } = error else { panic!("{error}") };
        assert!(waited >= ms(wait), "{waited:?} of {wait} ms");
    }
    assert!(!patient.is_finished());
    held.release().await.unwrap();
    soon("the patient one has had the lock", patient).await.unwrap().unwrap();
}

async fn one_whose_wait_time_ended_leaves_nothing_behind(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = alice.lock("a").lock().await.unwrap();
    for wait in [0, 10, 50] {
        let lock = bob.lock("a").with(Options::new().wait(ms(wait)));
        lock.lock().await.unwrap_err();
    }
    held.release().await.unwrap();
    for _ in 0..10 {
        assert!(!alice.lock("a").is_locked().await.unwrap(), "nobody is left who wants it");
        pass(ms(10)).await;
    }
    let guard = alice.lock("a").try_lock().await.unwrap();
    guard.expect("it is free at once").release().await.unwrap();
    if let Some(server) = store.server() {
        eventually("nobody listens any more", async || channels(server).is_empty()).await;
        assert_eq!(server.keys(), ["fairlock:{a}:grant"]);
    }
}

async fn a_lock_of_a_closed_client_is_waited_for_in_vain(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let _orphan = alice.lock("a").lock().await.unwrap();
    alice.close().await;
    let lock = bob.lock("a").with(Options::new().wait(ms(300)));
    let error = soon("the wait time ends", lock.lock()).await.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
}

async fn an_ended_lease_hands_the_lock_over_without_a_message(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let watch = Stopwatch::start();
    let late = alice.lock("a").with(Options::new().lease(ms(600))).lock().await.unwrap();
    let guard = soon("the lease has ended", bob.lock("a").lock()).await.unwrap();
    assert!(watch.elapsed() >= ms(600), "{:?}", watch.elapsed());
    assert!(!late.is_held());
    assert!(guard.token() > late.token());
    late.release().await.unwrap_err();
    assert!(guard.is_held());
    let owner = bob.lock("a").inspect().await.unwrap().owner;
    assert_eq!(owner.as_ref(), Some(guard.owner_id()), "a late release takes nothing away");
}

async fn waiters_of_many_clients_are_all_served(store: Store) {
    let held = store.client().await.lock("a").lock().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let client = store.client().await;
        for _ in 0..4 {
            let lock = client.lock("a");
            waiting.push(start(async move { lock.lock().await.unwrap().release().await }).await);
        }
    }
    held.release().await.unwrap();
    for waiting in waiting {
        soon("every waiter has had the lock", waiting).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_vanishes_without_a_message_is_found_when_its_lease_would_have_ended() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let (alice, bob) = (store.client().await, store.client().await);
    let _gone = alice.lock("a").with(Options::new().lease(secs(2))).lock().await.unwrap();
    let waiting = start(async move { bob.lock("a").lock().await.unwrap().release().await }).await;
    eventually("bob listens", async || listeners(server, "a") == 1).await;
    server.query::<()>(&["DEL", "a"]);
    soon("bob has had the lock", waiting).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_leave_the_server_in_peace() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let (alice, bob) = (store.client().await, store.client().await);
    let held = alice.lock("a").lock().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let lock = bob.lock("a");
        waiting.push(start(async move { lock.lock().await.unwrap().release().await }).await);
    }
    eventually("bob listens", async || listeners(server, "a") == 1).await;
    // The try that follows the subscription.
    pass(ms(200)).await;

    server.reset_stats();
    pass(secs(1)).await;
    assert_eq!(server.script_calls(), 0, "nothing is asked while nothing can have changed");
    assert_eq!(channels(server).len(), 1, "a hundred waiters share a subscription");

    held.release().await.unwrap();
    for waiting in waiting {
        soon("every waiter has had the lock", waiting).await.unwrap().unwrap();
    }
    // One call passes it on, two release it and try for the next; a herd would need thousands.
    assert!(server.script_calls() <= 250, "{} calls", server.script_calls());
    eventually("nobody listens any more", async || channels(server).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_for_many_locks_share_a_connection() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let (alice, bob) = (store.client().await, store.client().await);
    let connections = || server.query::<String>(&["CLIENT", "LIST"]).lines().count();
    let before = connections();
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..100 {
        held.push(alice.lock(format!("{number}")).lock().await.unwrap());
        let lock = bob.lock(format!("{number}"));
        waiting.push(start(async move { lock.lock().await.unwrap().release().await }).await);
    }
    eventually("bob listens to all of them", async || channels(server).len() == 100).await;
    assert_eq!(connections(), before);
    drop(held);
    for waiting in waiting {
        soon("every waiter has had its lock", waiting).await.unwrap().unwrap();
    }
    eventually("nobody listens any more", async || channels(server).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_gone_is_told_as_such() {
    let Store::Redis(mut server) = Store::redis() else { panic!() };
    let connecting = fairlock::Client::builder(&server.url()).timeout(ms(500)).connect();
    let client = connecting.await.unwrap();
    let guard = client.lock("held").lock().await.unwrap();
    server.kill();
    let patient = client.lock("a").with(Options::new().wait(secs(60)));
    let outcomes = [
        soon("an answer", client.lock("a").try_lock()).await.map(drop),
        soon("an answer", patient.lock()).await.map(drop),
        soon("an answer", client.lock("a").inspect()).await.map(drop),
        soon("an answer", client.lock("a").force_unlock()).await.map(drop),
    ];
    for outcome in outcomes {
        let Err(LockError::Store(error)) = outcome else { panic!("{outcome:?}") };
        assert!(matches!(error.kind(), StoreErrorKind::Unreachable { .. }), "{error}");
        assert!(error.is_transient());
        assert!(error.to_string().contains(&server.port().to_string()), "{error}");
    }
    assert!(guard.is_held(), "until its lease ends, nobody else can have it");
}
