//! The same locks for threads: the thread is the owner.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fairlock::blocking::{Client, Lock};
use fairlock::{LockError, LostCause, Options, ReleaseError};
use fairlock_testkit::{Recorder, eventually, monotonic_ns};

use crate::patience::{SOON, block_thread, ms, secs, soon};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    a_thread_enters_its_own_lock_again,
    a_thread_is_another_owner_through_another_client,
    a_thread_that_released_is_a_stranger_again,
    threads_exclude_each_other,
    threads_queue_for_a_fair_lock,
    a_waiting_thread_gets_the_lock,
    a_wait_time_ends_for_threads_too,
    a_guard_that_its_thread_drops_gives_the_lock_back,
    the_watchdog_works_for_threads_too,
    a_loss_is_told_to_threads_too,
    closing_finishes_what_threads_have_dropped,
    threads_and_tasks_share_locks,
    a_blocking_client_can_be_used_inside_a_runtime,
);

/// Runs a test on a thread where no runtime is in sight.
async fn on_a_thread(store: Store, test: impl FnOnce(&str) + Send + 'static) {
    let url = store.url();
    let test = move || thread::spawn(move || test(&url)).join();
    if let Err(panic) = tokio::task::spawn_blocking(test).await.unwrap() {
        std::panic::resume_unwind(panic);
    }
}

/// What another thread gets.
fn tried_elsewhere(lock: &Lock) -> bool {
    let try_lock = || lock.try_lock().unwrap().is_some();
    thread::scope(|scope| scope.spawn(try_lock).join().unwrap())
}

async fn a_thread_enters_its_own_lock_again(store: Store) {
    on_a_thread(store, |url| {
        let client = Client::connect(url).unwrap();
        let lock = client.lock("a");
        let first = lock.lock().unwrap();
        let second = client.clone().lock("a").lock().unwrap();
        let third = lock.try_lock().unwrap().expect("its own lock");
        assert_eq!(lock.inspect().unwrap().holds, 3);
        assert_eq!((first.owner_id(), first.token()), (third.owner_id(), third.token()));
        assert!(!tried_elsewhere(&lock));

        assert_eq!(first.release().unwrap().holds_left(), 2);
        assert_eq!(third.release().unwrap().holds_left(), 1);
        assert!(second.is_held() && !tried_elsewhere(&lock));
        assert_eq!(second.release().unwrap().holds_left(), 0);
        assert!(!lock.is_locked().unwrap());
        assert!(tried_elsewhere(&lock));
    })
    .await;
}

async fn a_thread_is_another_owner_through_another_client(store: Store) {
    on_a_thread(store, |url| {
        let (alice, bob) = (Client::connect(url).unwrap(), Client::connect(url).unwrap());
        let held = alice.lock("a").lock().unwrap();
        assert!(bob.lock("a").try_lock().unwrap().is_none());
        held.release().unwrap();
        assert!(bob.lock("a").try_lock().unwrap().is_some());
    })
    .await;
}

async fn a_thread_that_released_is_a_stranger_again(store: Store) {
    on_a_thread(store, |url| {
        let client = Client::connect(url).unwrap();
        let lock = client.lock("a");
        let first = lock.lock().unwrap();
        let (owner, token) = (first.owner_id().clone(), first.token());
        first.release().unwrap();
        let second = lock.lock().unwrap();
        assert_ne!(*second.owner_id(), owner);
        assert!(second.token() > token);
        drop(second);
        // Waits for the drop to get to the store, and does not enter what is being left.
        let third = lock.lock().unwrap();
        assert_eq!(lock.inspect().unwrap().holds, 1);
        third.release().unwrap();
    })
    .await;
}

async fn threads_exclude_each_other(store: Store) {
    on_a_thread(store, |url| {
        let clients = [Client::connect(url).unwrap(), Client::connect(url).unwrap()];
        let (count, recorder) = (AtomicU64::new(0), Recorder::new());
        let work = |client: &Client| {
            for _ in 0..50 {
                let guard = client.lock("a").lock().unwrap();
                let start = monotonic_ns();
                // Not one step, on purpose: only the lock makes it one.
                let number = count.load(Ordering::Relaxed);
                thread::yield_now();
                count.store(number + 1, Ordering::Relaxed);
                recorder.record(guard.token().get(), start, monotonic_ns());
                guard.release().unwrap();
            }
        };
        thread::scope(|scope| {
            for number in 0..8 {
                let client = &clients[number % 2];
                scope.spawn(move || work(client));
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 400);
        recorder.check().unwrap();
    })
    .await;
}

async fn threads_queue_for_a_fair_lock(store: Store) {
    on_a_thread(store, |url| {
        let client = Client::connect(url).unwrap();
        let lock = client.fair_lock("a");
        let first = lock.lock().unwrap();
        let again = lock.try_lock().unwrap().expect("its own lock");
        assert_eq!(lock.inspect().unwrap().holds, 2);
        let served = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..4 {
                let (lock, served) = (&lock, &served);
                scope.spawn(move || {
                    let guard = lock.lock().unwrap();
                    served.lock().unwrap().push(number);
                    guard.release().unwrap();
                });
                let queued = || lock.inspect().unwrap().waiters.unwrap().len();
                eventually(SOON, "it is queued", || queued() == number + 1);
            }
            assert_eq!(first.release().unwrap().holds_left(), 1);
            assert!(again.is_held() && served.lock().unwrap().is_empty());
            again.release().unwrap();
        });
        assert_eq!(served.into_inner().unwrap(), [0, 1, 2, 3]);
        assert!(!lock.is_locked().unwrap());
    })
    .await;
}

async fn a_waiting_thread_gets_the_lock(store: Store) {
    on_a_thread(store, |url| {
        let client = Client::connect(url).unwrap();
        let lock = client.lock("a");
        let held = lock.lock().unwrap();
        let token = held.token();
        thread::scope(|scope| {
            let patient = lock.with(Options::new().wait(secs(60)));
            let waiting = scope.spawn(move || patient.lock().unwrap().token());
            block_thread(ms(100));
            assert!(!waiting.is_finished());
            held.release().unwrap();
            assert!(waiting.join().unwrap() > token);
        });
    })
    .await;
}

async fn a_wait_time_ends_for_threads_too(store: Store) {
    on_a_thread(store, |url| {
        let (alice, bob) = (Client::connect(url).unwrap(), Client::connect(url).unwrap());
        let _held = alice.lock("a").lock().unwrap();
        let lock = bob.lock("a").with(Options::new().wait(ms(200)));
        let error = lock.lock().unwrap_err();
        let LockError::TimedOut { waited, holder, .. } = error else { panic!("{error}") };
        assert!(waited >= ms(200), "{waited:?}");
        assert_eq!(holder.expect("known").pid, std::process::id());
    })
    .await;
}

async fn a_guard_that_its_thread_drops_gives_the_lock_back(store: Store) {
    on_a_thread(store, |url| {
        let client = Client::connect(url).unwrap();
        let lock = client.lock("a");
        drop(lock.lock().unwrap());
        eventually(SOON, "given back", || !lock.is_locked().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = lock.lock().unwrap();
            });
        });
        eventually(SOON, "a thread that ends leaves no lock", || !lock.is_locked().unwrap());
    })
    .await;
}

async fn the_watchdog_works_for_threads_too(store: Store) {
    on_a_thread(store, |url| {
        let client = Client::builder(url).lease(ms(600)).connect().unwrap();
        let guard = client.lock("a").lock().unwrap();
        let until = guard.held_until().expect("held");
        block_thread(ms(1_800));
        assert!(guard.is_held());
        assert!(guard.held_until() > Some(until));
        assert!(!tried_elsewhere(&client.lock("a")));
        guard.release().unwrap();
    })
    .await;
}

async fn a_loss_is_told_to_threads_too(store: Store) {
    on_a_thread(store, |url| {
        let client = Client::builder(url).lease(ms(600)).connect().unwrap();
        let guard = client.lock("a").lock().unwrap();
        assert!(client.lock("a").force_unlock().unwrap());
        assert_eq!(guard.wait_until_lost().cause, LostCause::Gone);
        let error = guard.release().unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    })
    .await;
}

async fn closing_finishes_what_threads_have_dropped(store: Store) {
    on_a_thread(store, |url| {
        let (alice, bob) = (Client::connect(url).unwrap(), Client::connect(url).unwrap());
        let guards: Vec<_> = (0..20).map(|n| alice.lock(n.to_string()).lock().unwrap()).collect();
        let lock = alice.lock("0");
        drop(guards);
        alice.close();
        assert!((0..20).all(|n| !bob.lock(n.to_string()).is_locked().unwrap()));
        assert!(matches!(lock.lock().unwrap_err(), LockError::Closed));
    })
    .await;
}

async fn threads_and_tasks_share_locks(store: Store) {
    let client = store.client().await;
    let guard = client.lock("a").lock().await.unwrap();
    let threads = Client::connect(&store.url()).unwrap();
    assert!(threads.lock("a").try_lock().unwrap().is_none());
    let thread = tokio::task::spawn_blocking(move || {
        threads.lock("a").lock().unwrap().release().unwrap();
    });
    guard.release().await.unwrap();
    soon("the thread has had the lock", thread).await.unwrap();
}

async fn a_blocking_client_can_be_used_inside_a_runtime(store: Store) {
    let client = Client::connect(&store.url()).unwrap();
    let guard = client.lock("a").lock().unwrap();
    assert!(guard.is_held());
    guard.release().unwrap();
    client.close();
}
