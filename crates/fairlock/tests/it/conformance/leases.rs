//! Leases that were asked for: as long as asked, never renewed, never remembered.

use fairlock::{BootTime, Client, LockError, LostCause, Options};
use fairlock_testkit::Proxy;

use super::redisson::pttl;
use crate::patience::{Stopwatch, eventually, ms, pass, secs, soon};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    a_lease_is_as_long_as_asked_for,
    a_lease_is_not_remembered_for_the_next_acquisition,
    a_fixed_lease_is_not_renewed,
    a_lease_that_ended_is_told_with_the_release,
    max_hold_is_a_lease_that_nobody_renews_for_longer,
    the_guard_gives_up_before_the_store_does,
);

async fn lease_of(client: &Client, name: &str) -> std::time::Duration {
    client.lock(name).inspect().await.unwrap().lease.expect("held, with an end")
}

async fn a_lease_is_as_long_as_asked_for(store: Store) {
    let client = store.client_with(|builder| builder.lease(secs(90))).await;
    let cases = [
        ("the client's", Options::new(), secs(90)),
        ("an hour", Options::new().lease(secs(3_600)), secs(3_600)),
        ("ten years", Options::new().lease(secs(3_650 * 86_400)), secs(3_650 * 86_400)),
        ("max_hold is shorter", Options::new().max_hold(secs(60)), secs(60)),
        ("max_hold is longer", Options::new().max_hold(secs(3_600)), secs(90)),
        ("both", Options::new().lease(secs(80)).max_hold(secs(70)), secs(70)),
    ];
    for (name, options, wanted) in cases {
        let guard = client.lock(name).with(options).lock().await.unwrap();
        let lease = lease_of(&client, name).await;
        assert!(lease <= wanted && lease + secs(20) > wanted, "{name}: {lease:?}");
        guard.release().await.unwrap();
    }
}

async fn a_lease_is_not_remembered_for_the_next_acquisition(store: Store) {
    let client = store.client().await;
    let lock = client.lock("a");
    let guard = lock.with(Options::new().lease(secs(3_600))).lock().await.unwrap();
    guard.release().await.unwrap();
    for _ in 0..2 {
        let guard = lock.lock().await.unwrap();
        let lease = lease_of(&client, "a").await;
        assert!(lease <= secs(30) && lease > secs(10), "{lease:?}");
        guard.release().await.unwrap();
    }
}

async fn a_fixed_lease_is_not_renewed(store: Store) {
    // A watchdog that would renew every 100 ms.
    let alice = store.client_with(|builder| builder.lease(ms(300))).await;
    let bob = store.client().await;
    let watch = Stopwatch::start();
    let guard = alice.lock("a").with(Options::new().lease(secs(1))).lock().await.unwrap();
    let until = guard.held_until().expect("held");
    assert!(BootTime::now().until(until) <= secs(1));
    let lost = soon("the lease has ended", guard.lost()).await;
    assert_eq!((lost.name.as_str(), lost.cause), ("a", LostCause::LeaseEnded));
    assert!(watch.elapsed() >= ms(900), "{:?}", watch.elapsed());
    assert!(!guard.is_held());
    let next = soon("the next one has it", bob.lock("a").lock()).await.unwrap();
    assert!(watch.elapsed() >= secs(1), "{:?}", watch.elapsed());
    next.release().await.unwrap();
}

async fn a_lease_that_ended_is_told_with_the_release(store: Store) {
    let client = store.client().await;
    let guard = client.lock("a").with(Options::new().lease(secs(1))).lock().await.unwrap();
    let again = guard.reenter().await.unwrap();
    eventually("the lease has ended", async || !client.lock("a").is_locked().await.unwrap()).await;
    for guard in [guard, again] {
        let error = guard.release().await.unwrap_err();
        let text = error.to_string();
        let fairlock::ReleaseError::Lost(lost) = error else { panic!("{text}") };
        assert_eq!(lost.cause, LostCause::LeaseEnded);
        assert!(text.contains("\"a\" was lost"), "{text}");
    }
}

async fn max_hold_is_a_lease_that_nobody_renews_for_longer(store: Store) {
    let client = store.client().await;
    let guard = client.lock("a").with(Options::new().max_hold(ms(400))).lock().await.unwrap();
    let lost = soon("it was held for long enough", guard.lost()).await;
    assert_eq!(lost.cause, LostCause::MaxHold);
    eventually("the store has freed it", async || !client.lock("a").is_locked().await.unwrap())
        .await;
}

async fn the_guard_gives_up_before_the_store_does(store: Store) {
    let client = store.client_with(|builder| builder.lease(secs(2))).await;
    for options in [Options::new(), Options::new().lease(secs(2))] {
        let guard = client.lock("a").with(options).lock().await.unwrap();
        for _ in 0..10 {
            let on_store = lease_of(&client, "a").await;
            let until = guard.held_until().expect("held");
            let here = BootTime::now().until(until);
            assert!(here < on_store, "{here:?} here, {on_store:?} on the store");
            pass(ms(20)).await;
        }
        guard.release().await.unwrap();
    }
}

/// Whatever the answer says: the lease began to run when the request was on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ended_before_the_answer_came_is_not_a_hold() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let proxy = Proxy::start(server.port());
    let client = Client::connect(&proxy.url()).await.unwrap();
    proxy.delay_replies(ms(600));
    let lock = client.lock("a").with(Options::new().lease(ms(400)));
    let error = soon("the late answer", lock.lock()).await.unwrap_err();
    assert!(matches!(error, LockError::Lost(_)), "{error}");
    proxy.delay_replies(ms(0));
    eventually("the store has freed it", async || pttl(server, "a") < 0).await;
}
