//! Closing a client, and what becomes of its guards, waiters and calls.

use fairlock::{Client, LockError, LostCause, Options, ReleaseError};
use fairlock_testkit::monotonic_ns;

use crate::patience::{Stopwatch, eventually, ms, poll_once, soon, start};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    close_finishes_what_dropped_guards_have_left_to_do,
    guards_alive_at_close_are_lost,
    a_loss_by_closing_is_told_before_anybody_else_gets_the_lock,
    a_lock_of_a_closed_client_is_free_when_its_lease_has_ended,
    a_closed_client_locks_nothing,
    those_who_wait_are_told_of_the_close,
    those_who_wait_do_not_get_the_lock_of_a_client_that_closes,
    a_call_that_finds_the_lock_busy_while_the_client_closes_ends,
    a_call_that_finds_the_lock_free_while_the_client_closes_leaves_nothing,
    closing_twice_is_closing,
    the_last_handle_gives_everything_back,
);

async fn close_finishes_what_dropped_guards_have_left_to_do(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let names: Vec<String> = (0..50).map(|number| format!("lock {number}")).collect();
    let mut guards = Vec::new();
    for name in &names {
        let guard = alice.lock(name).lock().await.unwrap();
        guards.push(guard.reenter().await.unwrap());
        guards.push(guard);
    }
    drop(guards);
    soon("closed", alice.close()).await;
    for name in &names {
        assert!(!bob.lock(name).is_locked().await.unwrap(), "{name}");
    }
}

async fn guards_alive_at_close_are_lost(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let guard = alice.lock("a").lock().await.unwrap();
    let again = guard.reenter().await.unwrap();
    let watching = start(async move { again.lost().await }).await;
    soon("closed", alice.close()).await;
    assert!(!guard.is_held());
    assert_eq!(soon("told", watching).await.unwrap().cause, LostCause::Closed);
    let error = guard.reenter().await.unwrap_err();
    assert!(matches!(error, LockError::Lost(_) | LockError::Closed), "{error}");
    let ReleaseError::Lost(lost) = guard.release().await.unwrap_err() else { panic!() };
    assert_eq!(lost.cause, LostCause::Closed);
    drop(bob);
}

/// Also when closing takes longer than the lease, because there is much to clean up.
async fn a_loss_by_closing_is_told_before_anybody_else_gets_the_lock(store: Store) {
    let alice = store.client_with(|builder| builder.lease(ms(1_000))).await;
    let bob = store.client().await;
    let guard = alice.lock("a").lock().await.unwrap();
    let other = alice.lock("b");
    drop({
        let mut called_off = Box::pin(other.lock());
        let _ = poll_once(called_off.as_mut()).await;
        called_off
    });
    let losing = start(async move {
        guard.lost().await;
        (monotonic_ns(), guard)
    })
    .await;
    let closing = start(alice.close()).await;
    let next = soon("the lease has ended", bob.lock("a").lock()).await.unwrap();
    let next_at = monotonic_ns();
    let (lost_at, guard) = soon("the loss is told", losing).await.unwrap();
    assert!(lost_at < next_at, "told {} ms too late", (lost_at - next_at) / 1_000_000);
    assert!(next.is_held() && !guard.is_held());
    soon("closed", closing).await.unwrap();
}

async fn a_lock_of_a_closed_client_is_free_when_its_lease_has_ended(store: Store) {
    let alice = store.client_with(|builder| builder.lease(ms(600))).await;
    let bob = store.client().await;
    let orphan = alice.lock("a").lock().await.unwrap();
    soon("closed", alice.close()).await;
    let watch = Stopwatch::start();
    let guard = soon("the lease has ended", bob.lock("a").lock()).await.unwrap();
    assert!(watch.elapsed() < ms(5_000), "{:?}", watch.elapsed());
    assert!(guard.token() > orphan.token());
}

async fn a_closed_client_locks_nothing(store: Store) {
    let alice = store.client().await;
    let (lock, owner) = (alice.lock("a"), alice.owner());
    let clone = alice.clone();
    soon("closed", alice.close()).await;
    for lock in [lock, clone.lock("a")] {
        let outcomes = [
            lock.lock().await.map(drop),
            lock.with(Options::new().wait(ms(10))).lock().await.map(drop),
            lock.try_lock().await.map(drop),
            lock.lock_as(&owner).await.map(drop),
            lock.try_lock_as(&owner).await.map(drop),
        ];
        for outcome in outcomes {
            assert!(matches!(outcome, Err(LockError::Closed)), "{outcome:?}");
        }
    }
    assert!(!store.client().await.lock("a").is_locked().await.unwrap());
}

async fn those_who_wait_are_told_of_the_close(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = bob.lock("a").lock().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let lock = alice.lock("a");
        waiting.push(start(async move { lock.lock().await.unwrap_err() }).await);
    }
    soon("closed", alice.close()).await;
    for waiting in waiting {
        let error = soon("each waiter is told", waiting).await.unwrap();
        assert!(matches!(error, LockError::Closed), "{error}");
    }
    held.release().await.unwrap();
    assert!(bob.lock("a").try_lock().await.unwrap().is_some(), "nobody took it");
}

/// Nobody would renew it, and nobody would give it back.
async fn those_who_wait_do_not_get_the_lock_of_a_client_that_closes(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = alice.lock("a").lock().await.unwrap();
    let lock = alice.lock("a");
    let waiting = start(async move { lock.lock().await.map(drop) }).await;
    drop(held);
    soon("closed", alice.close()).await;
    soon("the waiter is told", waiting).await.unwrap().ok();
    drop(soon("the lock is free", bob.lock("a").lock()).await.unwrap());
}

/// A client that closes does not wait for long for calls that nobody polls.
async fn hasty_client(store: &Store) -> Client {
    store.client_with(|builder| builder.timeout(ms(1_000))).await
}

async fn a_call_that_finds_the_lock_busy_while_the_client_closes_ends(store: Store) {
    let bob = store.client().await;
    let _held = bob.lock("a").lock().await.unwrap();
    for polled_meanwhile in [true, false] {
        let alice = hasty_client(&store).await;
        let lock = alice.lock("a");
        let mut calling = Box::pin(async move { lock.lock().await });
        assert!(poll_once(calling.as_mut()).await.is_pending());
        let outcome = if polled_meanwhile {
            let calling = tokio::spawn(calling);
            soon("closed", alice.close()).await;
            soon("the call ends", calling).await.unwrap()
        } else {
            soon("closed", alice.close()).await;
            soon("the call ends", calling).await
        };
        let error = outcome.unwrap_err();
        assert!(matches!(error, LockError::Closed), "{error}");
    }
}

async fn a_call_that_finds_the_lock_free_while_the_client_closes_leaves_nothing(store: Store) {
    let bob = store.client().await;
    for polled_meanwhile in [true, false] {
        let alice = hasty_client(&store).await;
        let lock = alice.lock("a");
        let mut calling = Box::pin(async move { lock.lock().await.map(drop) });
        // In memory it has had the lock now; on a server the request is on its way.
        let early = poll_once(calling.as_mut()).await.is_ready();
        let calling = (!early).then_some(calling);
        if polled_meanwhile {
            let calling = calling.map(tokio::spawn);
            soon("closed", alice.close()).await;
            if let Some(calling) = calling {
                soon("the call ends", calling).await.unwrap().ok();
            }
        } else {
            soon("closed", alice.close()).await;
            if let Some(calling) = calling {
                soon("the call ends", calling).await.expect_err("nobody would watch over it");
            }
        }
        soon("the lock is free", bob.lock("a").lock()).await.unwrap().release().await.unwrap();
    }
}

async fn closing_twice_is_closing(store: Store) {
    let client = store.client().await;
    let (second, third) = (client.clone(), client.clone());
    let both = async { tokio::join!(client.close(), second.close()) };
    soon("closed at the same time", both).await;
    soon("closed already", third.close()).await;
}

async fn the_last_handle_gives_everything_back(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let (first, second) = (alice.lock("a").lock().await, alice.lock("b").lock().await);
    drop(alice);
    drop((first, second));
    for name in ["a", "b"] {
        eventually("given back", async || !bob.lock(name).is_locked().await.unwrap()).await;
    }
}
