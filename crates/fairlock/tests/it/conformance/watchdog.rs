//! The watchdog: keeps what is held, whatever the caller's runtime does, and nothing else.

use fairlock::{Client, Guard, LostCause, Options};
use tokio::sync::oneshot;

use super::redisson::pttl;
use crate::patience::{Stopwatch, block_thread, eventually, ms, pass, soon};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    a_lease_never_falls_below_its_half_while_it_is_held,
    a_lock_can_be_held_for_longer_than_its_lease_every_time,
    a_lock_is_kept_after_others_were_entered_twice_and_left,
    a_blocked_runtime_does_not_lose_its_locks,
    a_dropped_runtime_does_not_lose_its_locks,
    a_guard_keeps_its_client_alive,
    hundreds_of_locks_are_kept_when_one_of_them_is_lost,
    max_hold_ends_a_hold_that_would_be_renewed,
);

async fn a_lease_never_falls_below_its_half_while_it_is_held(store: Store) {
    let alice = store.client_with(|builder| builder.lease(ms(1_800))).await;
    let bob = store.client().await;
    let first = alice.lock("a").lock().await.unwrap();
    let second = first.reenter().await.unwrap();
    let watch = Stopwatch::start();
    while watch.elapsed() < ms(5_400) {
        let lease = bob.lock("a").inspect().await.unwrap().lease.expect("held");
        assert!(lease >= ms(900), "only {lease:?} left after {:?}", watch.elapsed());
        assert!(first.is_held() && second.is_held());
        pass(ms(30)).await;
    }
    second.release().await.unwrap();
    first.release().await.unwrap();
}

async fn a_lock_can_be_held_for_longer_than_its_lease_every_time(store: Store) {
    let client = store.client_with(|builder| builder.lease(ms(600))).await;
    for pause in [0, 0, 700] {
        pass(ms(pause)).await;
        let guard = client.lock("a").lock().await.unwrap();
        pass(ms(900)).await;
        guard.release().await.unwrap();
        assert!(!client.lock("a").is_locked().await.unwrap());
    }
}

async fn a_lock_is_kept_after_others_were_entered_twice_and_left(store: Store) {
    let client = store.client_with(|builder| builder.lease(ms(500))).await;
    let first = client.lock("a").lock().await.unwrap();
    let second = first.reenter().await.unwrap();
    second.release().await.unwrap();
    first.release().await.unwrap();
    let kept = client.lock("a").lock().await.unwrap();
    pass(ms(1_500)).await;
    assert!(kept.is_held());
    let owner = client.lock("a").inspect().await.unwrap().owner;
    assert_eq!(owner.as_ref(), Some(kept.owner_id()));
}

/// Takes "a" on a runtime of its own, tells that it has it, and does `then` on that runtime.
fn on_own_runtime(
    url: String,
    held: oneshot::Sender<()>,
    then: impl FnOnce(Guard) -> Guard,
) -> Guard {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::builder(&url).lease(ms(600)).connect().await.unwrap();
        let guard = client.lock("a").lock().await.unwrap();
        held.send(()).unwrap();
        then(guard)
    })
}

async fn a_blocked_runtime_does_not_lose_its_locks(store: Store) {
    let other = store.client().await;
    let (tell, held) = oneshot::channel();
    let url = store.url();
    let blocking = tokio::task::spawn_blocking(move || {
        on_own_runtime(url, tell, |guard| {
            block_thread(ms(1_800));
            assert!(guard.is_held());
            guard
        })
    });
    held.await.unwrap();
    while !blocking.is_finished() {
        assert!(other.lock("a").try_lock().await.unwrap().is_none());
        pass(ms(20)).await;
    }
    blocking.await.unwrap().release().await.unwrap();
    assert!(other.lock("a").try_lock().await.unwrap().is_some());
}

async fn a_dropped_runtime_does_not_lose_its_locks(store: Store) {
    let other = store.client().await;
    let (tell, _held) = oneshot::channel();
    let url = store.url();
    let guard = tokio::task::spawn_blocking(move || on_own_runtime(url, tell, |guard| guard));
    let guard = guard.await.unwrap();
    let watch = Stopwatch::start();
    while watch.elapsed() < ms(1_800) {
        assert!(guard.is_held());
        assert!(other.lock("a").try_lock().await.unwrap().is_none());
        pass(ms(20)).await;
    }
    let again = soon("entered again from another runtime", guard.reenter()).await.unwrap();
    again.release().await.unwrap();
    soon("released from another runtime", guard.release()).await.unwrap();
    assert!(other.lock("a").try_lock().await.unwrap().is_some());
}

async fn a_guard_keeps_its_client_alive(store: Store) {
    let client = store.client_with(|builder| builder.lease(ms(500))).await;
    let other = store.client().await;
    let guard = client.lock("a").lock().await.unwrap();
    drop(client);
    pass(ms(1_500)).await;
    assert!(guard.is_held());
    assert!(other.lock("a").try_lock().await.unwrap().is_none());
    drop(guard);
    drop(soon("the last handle gave it back", other.lock("a").lock()).await.unwrap());
}

async fn hundreds_of_locks_are_kept_when_one_of_them_is_lost(store: Store) {
    let client = store.client_with(|builder| builder.lease(ms(1_500))).await;
    let mut guards = Vec::new();
    for number in 0..300 {
        guards.push(client.lock(format!("lock {number}")).lock().await.unwrap());
    }
    let lost = guards.swap_remove(100);
    match store.server() {
        Some(server) => {
            server.query::<()>(&["DEL", "lock 100"]);
            server.query::<()>(&["SET", "lock 100", "not a lock"]);
        }
        None => assert!(client.lock("lock 100").force_unlock().await.unwrap()),
    }
    assert_eq!(soon("the loss is noticed", lost.lost()).await.cause, LostCause::Gone);
    pass(ms(3_000)).await;
    assert!(guards.iter().all(Guard::is_held));
    let owner = client.lock("lock 299").inspect().await.unwrap().owner;
    assert!(owner.is_some());
    client.close().await;
}

async fn max_hold_ends_a_hold_that_would_be_renewed(store: Store) {
    let client = store.client_with(|builder| builder.lease(ms(600))).await;
    let watch = Stopwatch::start();
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = client.lock(format!("{number}")).with(Options::new().max_hold(ms(1_500)));
        guards.push(lock.lock().await.unwrap());
        pass(ms(7)).await;
    }
    for guard in &guards {
        let lost = soon("max_hold is over", guard.lost()).await;
        assert_eq!(lost.cause, LostCause::MaxHold, "{}", guard.name());
        assert!(watch.elapsed() >= ms(1_200), "{:?}: it was renewed before", watch.elapsed());
    }
    eventually("the store has freed it", async || !client.lock("19").is_locked().await.unwrap())
        .await;
    for guard in guards {
        guard.release().await.unwrap_err();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watchdog_rests_when_nothing_is_held() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client_with(|builder| builder.lease(ms(600))).await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(client.lock(format!("{number}")).lock().await.unwrap());
    }
    server.reset_stats();
    eventually("the watchdog is at work", async || server.script_calls() > 0).await;
    assert!(client.lock("0").force_unlock().await.unwrap());
    soon("the loss is noticed", guards[0].lost()).await;
    for guard in guards.drain(10..) {
        guard.release().await.unwrap();
    }
    drop(guards);
    eventually("all is given back", async || {
        server.keys().iter().all(|key| key.starts_with("fairlock:"))
    })
    .await;
    // What was on its way comes to an end.
    pass(ms(100)).await;
    server.reset_stats();
    pass(ms(700)).await;
    assert_eq!(server.script_calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_go_on_when_all_connections_were_cut() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client_with(|builder| builder.lease(ms(2_400))).await;
    let guard = client.lock("a").lock().await.unwrap();
    for _ in 0..4 {
        server.kill_all_clients();
        pass(ms(1_200)).await;
        assert!(guard.is_held());
        assert!(pttl(server, "a") > 0);
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_without_an_end_gets_one_again() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client_with(|builder| builder.lease(ms(600))).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.query::<()>(&["PERSIST", "a"]);
    eventually("the watchdog sets the lease", async || pttl(server, "a") > 0).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}
