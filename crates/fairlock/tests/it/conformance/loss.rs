//! Losing a lock: noticed in time, told with its cause, and final.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlock::{Guard, Lost, LostCause, Options, ReleaseError};
use fairlock_testkit::monotonic_ns;

use super::redisson::{fields, pttl};
use crate::patience::{Stopwatch, ms, pass, secs, soon, start};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    a_loss_is_told_before_anybody_else_gets_the_lock,
    a_broken_lock_is_noticed_with_the_next_renewal,
    a_broken_lock_is_noticed_by_its_release,
    releasing_a_lost_lock_does_not_free_the_next_holder,
    every_guard_of_a_hold_is_lost_with_it,
    run_returns_what_its_future_returns,
    run_stops_its_future_when_the_lock_is_lost,
    run_does_not_begin_when_the_lock_is_lost_already,
    a_loss_can_be_awaited_again_and_again,
);

fn cause(outcome: Result<fairlock::Released, ReleaseError>) -> LostCause {
    match outcome.unwrap_err() {
        ReleaseError::Lost(lost) => lost.cause,
        other => panic!("{other}"),
    }
}

async fn a_loss_is_told_before_anybody_else_gets_the_lock(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let guard = alice.lock("a").with(Options::new().lease(secs(3))).lock().await.unwrap();
    let losing = start(async move {
        guard.lost().await;
        (monotonic_ns(), guard)
    })
    .await;
    let next = soon("the lease has ended", bob.lock("a").lock()).await.unwrap();
    let next_at = monotonic_ns();
    let (lost_at, guard) = soon("the loss is told", losing).await.unwrap();
    assert!(lost_at < next_at, "told {} us too late", (lost_at - next_at) / 1_000);
    assert!(next.is_held() && !guard.is_held());
}

async fn a_broken_lock_is_noticed_with_the_next_renewal(store: Store) {
    let alice = store.client_with(|builder| builder.lease(secs(3))).await;
    let bob = store.client().await;
    let guard = alice.lock("a").lock().await.unwrap();
    assert!(bob.lock("a").force_unlock().await.unwrap());
    let next = bob.lock("a").lock().await.unwrap();
    let watch = Stopwatch::start();
    let lost = soon("the loss is noticed", guard.lost()).await;
    assert_eq!(lost, Lost { name: "a".to_owned(), cause: LostCause::Gone });
    // A third of the lease, and not its end.
    assert!(watch.elapsed() < ms(2_500), "{:?}", watch.elapsed());
    assert!(!guard.is_held());
    assert_eq!(guard.held_until(), None);
    assert_eq!(cause(guard.release().await), LostCause::Gone);
    assert!(next.is_held());
}

async fn a_broken_lock_is_noticed_by_its_release(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let guard = alice.lock("a").lock().await.unwrap();
    assert!(bob.lock("a").force_unlock().await.unwrap());
    assert!(guard.is_held(), "nobody has told it yet");
    assert_eq!(cause(guard.release().await), LostCause::Gone);

    let first = alice.lock("a").lock().await.unwrap();
    let second = first.reenter().await.unwrap();
    assert!(bob.lock("a").force_unlock().await.unwrap());
    assert_eq!(cause(second.release().await), LostCause::Gone);
    assert!(!first.is_held(), "the guards of a hold are lost together");
    assert_eq!(cause(first.release().await), LostCause::Gone);
}

async fn releasing_a_lost_lock_does_not_free_the_next_holder(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let broken = alice.lock("a").lock().await.unwrap();
    let dropped = broken.reenter().await.unwrap();
    assert!(bob.lock("a").force_unlock().await.unwrap());
    let next = bob.lock("a").lock().await.unwrap();
    drop(dropped);
    broken.release().await.unwrap_err();
    // Ends what was dropped.
    alice.close().await;
    let info = bob.lock("a").inspect().await.unwrap();
    assert_eq!((info.owner.as_ref(), info.holds), (Some(next.owner_id()), 1));
    next.release().await.unwrap();
}

async fn every_guard_of_a_hold_is_lost_with_it(store: Store) {
    let client = store.client_with(|builder| builder.lease(ms(600))).await;
    let first = client.lock("a").lock().await.unwrap();
    let mut watching = Vec::new();
    for _ in 0..5 {
        let guard = first.reenter().await.unwrap();
        watching.push(start(async move { guard.lost().await }).await);
    }
    assert!(client.lock("a").force_unlock().await.unwrap());
    for watching in watching {
        let lost = soon("each guard is told", watching).await.unwrap();
        assert_eq!(lost.cause, LostCause::Gone);
    }
    assert!(!first.is_held());
}

async fn run_returns_what_its_future_returns(store: Store) {
    let client = store.client_with(|builder| builder.lease(ms(600))).await;
    let guard = client.lock("a").lock().await.unwrap();
    let work = async {
        pass(ms(900)).await;
        "done"
    };
    assert_eq!(guard.run(work).await, Ok("done"));
    assert_eq!(guard.run(async { guard.token() }).await, Ok(guard.token()));
    guard.release().await.unwrap();
}

/// Work that never ends by itself, and a flag that says when it was dropped.
fn endless_work() -> (impl Future<Output = ()>, Arc<AtomicBool>) {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(dropped.clone());
    let work = async move {
        let _flag = flag;
        pending::<()>().await;
    };
    (work, dropped)
}

async fn run_stops_its_future_when_the_lock_is_lost(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let guard = alice.lock("a").with(Options::new().lease(ms(400))).lock().await.unwrap();
    let (work, dropped) = endless_work();
    let running = start(async move { (guard.run(work).await, guard) }).await;
    assert!(!dropped.load(Ordering::SeqCst));
    let (outcome, guard): (Result<(), Lost>, Guard) =
        soon("the work is stopped", running).await.unwrap();
    assert_eq!(outcome.unwrap_err().cause, LostCause::LeaseEnded);
    assert!(dropped.load(Ordering::SeqCst));
    assert!(!guard.is_held());
    drop(soon("the next one has it", bob.lock("a").lock()).await.unwrap());
}

async fn run_does_not_begin_when_the_lock_is_lost_already(store: Store) {
    let client = store.client().await;
    let guard = client.lock("a").with(Options::new().lease(ms(200))).lock().await.unwrap();
    soon("the lease has ended", guard.lost()).await;
    let begun = AtomicBool::new(false);
    let outcome = guard.run(async { begun.store(true, Ordering::SeqCst) }).await;
    assert_eq!(outcome.unwrap_err().cause, LostCause::LeaseEnded);
    assert!(!begun.load(Ordering::SeqCst));
}

async fn a_loss_can_be_awaited_again_and_again(store: Store) {
    let client = store.client().await;
    let guard = client.lock("a").with(Options::new().lease(ms(300))).lock().await.unwrap();
    let (first, second) = tokio::join!(guard.lost(), guard.lost());
    assert_eq!(first, second);
    assert_eq!(soon("told again", guard.lost()).await, first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_lock_is_lost() {
    let store = Store::redis();
    let client = store.client_with(|builder| builder.lease(ms(600))).await;
    let guard = client.lock("a").lock().await.unwrap();
    store.server().unwrap().query::<()>(&["DEL", "a"]);
    assert_eq!(soon("the loss is noticed", guard.lost()).await.cause, LostCause::Gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lock_does_not_come_back() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let client = store.client_with(|builder| builder.lease(ms(600))).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.query::<()>(&["DEL", "a"]);
    soon("the loss is noticed", guard.lost()).await;

    // As if the store had got its data back.
    let owner = guard.owner_id().as_str();
    server.query::<()>(&["HSET", "a", owner, "1"]);
    server.query::<()>(&["PEXPIRE", "a", "60000"]);
    let left = pttl(server, "a");
    pass(ms(900)).await;
    assert!(!guard.is_held());
    assert!(pttl(server, "a") <= left - 800, "nobody renews what is lost");
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_eq!(fields(server, "a"), BTreeMap::new(), "what is left of it is cleared away");
}
