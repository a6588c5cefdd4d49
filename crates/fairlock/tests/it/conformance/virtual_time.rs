//! The store for tests of other people's code: time passes only when the test says so.

use std::time::Duration;

use fairlock::testing::TestStore;
use fairlock::{LockError, LostCause, Options};

use crate::patience::{Stopwatch, ms, poll_once, secs, soon, start};

const MINUTE: Duration = secs(60);

#[tokio::test]
async fn the_watchdog_renews_for_as_long_as_time_is_advanced() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    let watch = Stopwatch::start();
    let guard = alice.lock("a").lock().await.unwrap();
    for _ in 0..10 {
        store.clock().advance(MINUTE).await;
        assert!(guard.is_held());
        let lease = bob.lock("a").inspect().await.unwrap().lease.expect("held");
        assert!(lease >= secs(20) && lease <= secs(30), "{lease:?}");
        assert!(bob.lock("a").try_lock().await.unwrap().is_none());
    }
    guard.release().await.unwrap();
    store.clock().advance(MINUTE).await;
    assert_eq!(store.in_use().await, 0);
    assert!(watch.elapsed() < MINUTE, "{:?}", watch.elapsed());
}

#[tokio::test]
async fn time_stands_still_until_it_is_advanced() {
    let store = TestStore::new();
    let client = store.client();
    let before = store.clock().now();
    let guard = client.lock("a").with(Options::new().lease(ms(100))).lock().await.unwrap();
    assert_eq!(store.clock().now(), before);
    assert_eq!(client.lock("a").inspect().await.unwrap().lease, Some(ms(100)));
    store.clock().advance(ms(70)).await;
    assert_eq!(before.until(store.clock().now()), ms(70));
    assert_eq!(client.lock("a").inspect().await.unwrap().lease, Some(ms(30)));
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_loss_is_told_before_the_store_frees_the_lock() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    let guard = alice.lock("a").with(Options::new().lease(secs(10))).lock().await.unwrap();
    let until = guard.held_until().expect("held");
    let sure = store.clock().now().until(until);
    assert!(sure < secs(10) && sure > secs(9), "{sure:?}");

    store.clock().advance(sure - ms(1)).await;
    assert!(guard.is_held());
    store.clock().advance(ms(1)).await;
    assert!(!guard.is_held());
    assert_eq!(soon("told", guard.lost()).await.cause, LostCause::LeaseEnded);
    assert!(bob.lock("a").try_lock().await.unwrap().is_none(), "not yet free for others");
    store.clock().advance(secs(10) - sure + ms(1)).await;
    assert!(bob.lock("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_guard_knows_without_asking_that_it_slept_for_too_long() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    let guard = alice.lock("a").lock().await.unwrap();
    store.clock().jump(secs(31));
    assert!(!guard.is_held(), "no await since the machine woke up");
    assert_eq!(guard.held_until(), None);
    assert_eq!(soon("told", guard.lost()).await.cause, LostCause::LeaseEnded);
    let next = bob.lock("a").try_lock().await.unwrap().expect("the lease has ended");
    assert!(next.token() > guard.token());
    guard.release().await.unwrap_err();
    assert!(next.is_held());
}

#[tokio::test]
async fn a_short_sleep_loses_nothing() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    let guard = alice.lock("a").lock().await.unwrap();
    for _ in 0..5 {
        store.clock().jump(secs(25));
        assert!(guard.is_held());
        store.clock().advance(secs(1)).await;
        assert!(guard.is_held(), "renewed after the sleep");
    }
    assert!(bob.lock("a").try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn a_wait_time_ends_in_virtual_time() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    let held = alice.lock("a").lock().await.unwrap();
    let lock = bob.lock("a").with(Options::new().wait(60 * MINUTE));
    let waiting = start(async move { lock.lock().await.unwrap_err() }).await;
    store.clock().advance(59 * MINUTE).await;
    assert!(!waiting.is_finished());
    store.clock().advance(2 * MINUTE).await;
    let error = soon("the wait time has ended", waiting).await.unwrap();
    let LockError::TimedOut { waited, holder, .. } = error else { panic!("{error}") };
    assert!(waited >= 60 * MINUTE && waited <= 61 * MINUTE, "{waited:?}");
    assert!(holder.expect("known").to_string().contains("for 1 h"));
    assert!(held.is_held());
}

#[tokio::test]
async fn max_hold_ends_in_virtual_time() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    let guard = alice.lock("a").with(Options::new().max_hold(10 * MINUTE)).lock().await.unwrap();
    store.clock().advance(10 * MINUTE - secs(1)).await;
    assert!(guard.is_held());
    store.clock().advance(secs(2)).await;
    assert!(!guard.is_held());
    assert_eq!(soon("told", guard.lost()).await.cause, LostCause::MaxHold);
    assert!(bob.lock("a").try_lock().await.unwrap().is_some(), "free for others");
}

#[tokio::test]
async fn re_entry_does_not_stretch_max_hold() {
    let store = TestStore::new();
    let client = store.client();
    let (lock, owner) = (client.lock("a"), client.owner());
    let guard = lock.with(Options::new().max_hold(MINUTE)).lock_as(&owner).await.unwrap();
    store.clock().advance(secs(50)).await;
    let entered = [guard.reenter().await.unwrap(), lock.lock_as(&owner).await.unwrap()];
    store.clock().advance(secs(11)).await;
    assert!(!guard.is_held() && entered.iter().all(|guard| !guard.is_held()));
    let info = lock.inspect().await.unwrap();
    assert!(!info.held, "for {:?} more", info.lease);
}

#[tokio::test]
async fn an_ended_lease_hands_over_in_virtual_time() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    let _late = alice.lock("a").with(Options::new().lease(MINUTE)).lock().await.unwrap();
    let waiting = start(async move { bob.lock("a").lock().await.unwrap() }).await;
    store.clock().advance(secs(59)).await;
    assert!(!waiting.is_finished());
    store.clock().advance(secs(2)).await;
    let guard = soon("handed over", waiting).await.unwrap();
    assert!(guard.is_held());
    store.clock().advance(10 * MINUTE).await;
    assert!(guard.is_held(), "the watchdog keeps what was handed over");
}

#[tokio::test]
async fn tokens_grow_while_time_stands_still() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    let mut last = 0;
    for round in 0..100 {
        let client = if round % 2 == 0 { &alice } else { &bob };
        let guard = client.lock("a").lock().await.unwrap();
        assert!(guard.token().get() > last);
        last = guard.token().get();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_in_use_when_all_is_done() {
    let store = TestStore::new();
    let (alice, bob) = (store.client(), store.client());
    assert_eq!(store.in_use().await, 0);
    let held = alice.lock("a").lock().await.unwrap();
    assert_eq!(store.in_use().await, 1);
    let again = held.reenter().await.unwrap();
    let elsewhere = alice.lock("b").lock().await.unwrap();
    assert_eq!(store.in_use().await, 2);
    {
        let lock = bob.lock("a");
        let mut waiting = Box::pin(lock.lock());
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        assert_eq!(store.in_use().await, 3, "two are held and one is waited for");
    }
    // What was waited for is listened to for a moment longer.
    store.clock().advance(secs(5)).await;
    assert_eq!(store.in_use().await, 2, "the one who waited has left");
    drop((held, again));
    elsewhere.release().await.unwrap();
    assert_eq!(store.in_use().await, 0);
    store.clock().advance(10 * MINUTE).await;
    assert_eq!(store.in_use().await, 0);
}

#[tokio::test]
async fn stores_do_not_share_anything() {
    let (one, other) = (TestStore::new(), TestStore::default());
    let _held = one.client().lock("a").lock().await.unwrap();
    let _also = other.client().lock("a").try_lock().await.unwrap().expect("another store");
    one.clock().advance(MINUTE).await;
    assert_eq!(other.in_use().await, 1);
}
