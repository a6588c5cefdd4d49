//! Whose lock it is, where neither a thread nor a task is an identity; and giving it back.

use fairlock::{Guard, LockError, Options};

use crate::patience::{Stopwatch, eventually, ms, secs, soon, start};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    two_futures_of_one_task_exclude_each_other,
    a_guard_may_move_to_another_task,
    a_guard_is_released_by_whoever_has_it,
    options_belong_to_one_acquisition,
    a_panic_gives_the_lock_back,
    an_aborted_task_gives_the_lock_back,
);

async fn two_futures_of_one_task_exclude_each_other(store: Store) {
    let client = store.client().await;
    let hold_for_a_while = async || {
        let guard = client.lock("a").lock().await.unwrap();
        let busy = client.lock("a").try_lock().await.unwrap();
        assert!(busy.is_none(), "the same task is a stranger too");
        for _ in 0..10 {
            tokio::task::yield_now().await;
            assert_eq!(client.lock("a").inspect().await.unwrap().holds, 1);
        }
        let token = guard.token();
        guard.release().await.unwrap();
        token
    };
    let both = Box::pin(async { tokio::join!(hold_for_a_while(), hold_for_a_while()) });
    let (first, second) = soon("both have had the lock", both).await;
    assert_ne!(first, second);

    let _held = client.lock("a").lock().await.unwrap();
    let lock = client.lock("a").with(Options::new().wait(ms(100)));
    let error = soon("the wait time ends", lock.lock()).await.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
}

async fn a_guard_may_move_to_another_task(store: Store) {
    let client = store.client().await;
    let guard = client.lock("a").lock().await.unwrap();
    let work = |guard: Guard| async move {
        assert!(guard.is_held());
        let again = guard.reenter().await.unwrap();
        again.release().await.unwrap();
        guard
    };
    let guard = tokio::spawn(work(guard)).await.unwrap();
    let guard = tokio::spawn(work(guard)).await.unwrap();
    guard.release().await.unwrap();
}

async fn a_guard_is_released_by_whoever_has_it(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let guard = alice.lock("a").lock().await.unwrap();
    drop(alice);
    tokio::spawn(guard.release()).await.unwrap().unwrap();
    assert!(bob.lock("a").try_lock().await.unwrap().is_some());
}

async fn options_belong_to_one_acquisition(store: Store) {
    let client = store.client().await;
    let lock = client.lock("a");
    let hasty = lock.with(Options::new().wait(ms(50)).lease(secs(60)));
    let held = lock.lock().await.unwrap();
    soon("the wait time ends", hasty.lock()).await.unwrap_err();
    let patient = start({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap().release().await }
    })
    .await;
    let back = hasty.with(Options::new());
    let also_patient = start(async move { back.lock().await.unwrap().release().await }).await;
    soon("the wait time ends", hasty.lock()).await.unwrap_err();
    assert!(!patient.is_finished() && !also_patient.is_finished());
    held.release().await.unwrap();
    soon("served", patient).await.unwrap().unwrap();
    soon("served", also_patient).await.unwrap().unwrap();
}

async fn a_panic_gives_the_lock_back(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let lock = alice.lock("a");
    let panicking = tokio::spawn(async move {
        let _guard = lock.lock().await.unwrap();
        std::panic::resume_unwind(Box::new("this test panics on purpose"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    drop(soon("the lock is free", bob.lock("a").lock()).await.unwrap());
}

async fn an_aborted_task_gives_the_lock_back(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let lock = alice.lock("a");
    let working = tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        guard.run(std::future::pending::<()>()).await
    });
    eventually("it works", async || bob.lock("a").is_locked().await.unwrap()).await;
    working.abort();
    drop(soon("the lock is free", bob.lock("a").lock()).await.unwrap());
}

#[tokio::test(flavor = "current_thread")]
async fn dropping_a_guard_does_not_wait_for_the_server() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let (alice, bob) = (store.client().await, store.client().await);
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(alice.lock(format!("{number}")).lock().await.unwrap());
    }
    server.freeze();
    let watch = Stopwatch::start();
    drop(guards);
    let took = watch.elapsed();
    server.thaw();
    assert!(took < ms(500), "{took:?}");
    for number in 0..100 {
        let lock = bob.lock(format!("{number}"));
        soon("given back", lock.lock()).await.unwrap().release().await.unwrap();
    }
}
