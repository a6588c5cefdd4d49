//! The line: those of one process who wait for one lock.

use std::sync::{Arc, Mutex};

use fairlock::{Client, LockError, Options};
use tokio::task::{JoinHandle, JoinSet};

use crate::patience::{Stopwatch, ms, secs, soon, start, within};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    waiters_of_one_process_are_served_in_their_order,
    those_who_leave_do_not_disturb_the_order,
    those_who_give_up_do_not_disturb_the_order,
    the_head_may_leave_while_the_lock_is_handed_over,
    try_lock_does_not_overtake_those_who_wait,
    a_thousand_tasks_wait_for_one_lock,
    a_busy_process_does_not_starve_another,
);

/// The order in which waiters got the lock.
type Served = Arc<Mutex<Vec<usize>>>;

/// Puts a waiter in the line, which notes its number once it has the lock.
async fn line_up(
    client: &Client,
    number: usize,
    served: &Served,
) -> JoinHandle<Result<(), LockError>> {
    line_up_with(client, number, served, Options::new()).await
}

async fn line_up_with(
    client: &Client,
    number: usize,
    served: &Served,
    options: Options,
) -> JoinHandle<Result<(), LockError>> {
    let (lock, served) = (client.lock("a").with(options), served.clone());
    start(async move {
        let guard = lock.lock().await?;
        served.lock().unwrap().push(number);
        guard.release().await.expect("nobody takes it away");
        Ok(())
    })
    .await
}

async fn all_served(waiting: Vec<JoinHandle<Result<(), LockError>>>) {
    for waiting in waiting {
        soon("every waiter has had the lock", waiting).await.unwrap().unwrap();
    }
}

async fn waiters_of_one_process_are_served_in_their_order(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    for holder in [&alice, &bob] {
        let served = Served::default();
        let held = holder.lock("a").lock().await.unwrap();
        let mut waiting = Vec::new();
        for number in 0..50 {
            waiting.push(line_up(&alice, number, &served).await);
        }
        held.release().await.unwrap();
        all_served(waiting).await;
        assert_eq!(*served.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }
}

async fn those_who_leave_do_not_disturb_the_order(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let served = Served::default();
    let held = bob.lock("a").lock().await.unwrap();
    let (mut staying, mut leaving) = (Vec::new(), Vec::new());
    for number in 0..30 {
        let waiting = line_up(&alice, number, &served).await;
        if number % 3 == 0 { leaving.push(waiting) } else { staying.push(waiting) }
    }
    for waiting in leaving {
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
    }
    held.release().await.unwrap();
    all_served(staying).await;
    let expected: Vec<_> = (0..30).filter(|number| number % 3 != 0).collect();
    assert_eq!(*served.lock().unwrap(), expected);
}

async fn those_who_give_up_do_not_disturb_the_order(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let served = Served::default();
    let held = bob.lock("a").lock().await.unwrap();
    let (mut staying, mut leaving) = (Vec::new(), Vec::new());
    for number in 0..30 {
        if number % 3 == 0 {
            let options = Options::new().wait(ms(100));
            leaving.push(line_up_with(&alice, number, &served, options).await);
        } else {
            staying.push(line_up(&alice, number, &served).await);
        }
    }
    for waiting in leaving {
        let outcome = soon("the wait time has ended", waiting).await.unwrap();
        assert!(matches!(outcome, Err(LockError::TimedOut { .. })), "{outcome:?}");
    }
    held.release().await.unwrap();
    all_served(staying).await;
    let expected: Vec<_> = (0..30).filter(|number| number % 3 != 0).collect();
    assert_eq!(*served.lock().unwrap(), expected);
}

async fn the_head_may_leave_while_the_lock_is_handed_over(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    for round in 0..200 {
        let holder = if round % 2 == 0 { &alice } else { &bob };
        let served = Served::default();
        let held = holder.lock("a").lock().await.unwrap();
        let head = line_up(&alice, 0, &served).await;
        let next = line_up(&alice, 1, &served).await;
        let releasing = start(held.release()).await;
        head.abort();
        releasing.await.unwrap().unwrap();
        all_served(vec![next]).await;
        // The head has had its turn before it heard that it is to leave, or has no turn at all.
        head.await.ok();
        assert_eq!(served.lock().unwrap().last(), Some(&1));
    }
}

async fn try_lock_does_not_overtake_those_who_wait(store: Store) {
    let client = store.client().await;
    let lock = client.lock("a");
    let held = lock.lock().await.unwrap();
    let waiting = start({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    })
    .await;
    assert!(lock.try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none(), "it is the waiter's, now or soon");
    let guard = soon("the waiter has the lock", waiting).await.unwrap();
    guard.release().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_some());
}

async fn a_thousand_tasks_wait_for_one_lock(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let served = Served::default();
    let held = bob.lock("a").lock().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..1_000 {
        waiting.push(line_up(&alice, number, &served).await);
    }
    held.release().await.unwrap();
    within(secs(60), "a thousand have had the lock", all_served(waiting)).await;
    assert_eq!(*served.lock().unwrap(), (0..1_000).collect::<Vec<_>>());
    assert!(bob.lock("a").try_lock().await.unwrap().is_some());
}

async fn a_busy_process_does_not_starve_another(store: Store) {
    let (busy, other) = (store.client().await, store.client().await);
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let lock = busy.lock("a");
        tasks.spawn(async move {
            loop {
                lock.lock().await.unwrap().release().await.unwrap();
            }
        });
    }
    let watch = Stopwatch::start();
    for _ in 0..10 {
        let guard = soon("the other process has its turn", other.lock("a").lock()).await.unwrap();
        guard.release().await.unwrap();
    }
    assert!(watch.elapsed() < secs(20), "{:?}", watch.elapsed());
    tasks.shutdown().await;
}
