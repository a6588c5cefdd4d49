//! The store did what it was asked, the answer was lost, and then the store could not be reached
//! for so long that the caller gave up: what it has left is undone when the store is back, long
//! before its lease ends.

use std::time::Duration;

use fairlock::{LockError, Options, ReleaseError, StoreErrorKind};

use super::scene::{
    Locking, Scene, holds, holds_exactly, in_time, is_tidy, starts_to_wait, until, until_within,
};
use crate::patience::{ms, pass, secs};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_failed_leaves_no_lock() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    scene.proxy.blackhole_reply(0);
    let lock = client.lock("a").with(Options::new().lease(LONG));
    let locking = tokio::spawn(async move { lock.lock().await });
    cut_off_when_done(&scene).await;
    assert_eq!(holds(&scene.server, "a").len(), 1, "the store has done it");
    let refused = in_time("giving up", locking).await.unwrap();
    assert!(matches!(refused, Err(LockError::Store(_))), "{refused:?}");
    is_undone_when_the_store_is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_was_called_off_leaves_no_lock() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    scene.proxy.blackhole_reply(0);
    let lock = client.lock("a").with(Options::new().lease(LONG));
    let locking = tokio::spawn(async move { lock.lock().await });
    cut_off_when_done(&scene).await;
    locking.abort();
    is_undone_when_the_store_is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_attempt_failed_leaves_no_lock() {
    let scene = Scene::start();
    let waiter = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    let waiting = waits_and_gets_it_unheard(&scene, &waiter).await;
    let refused = in_time("giving up", waiting).await.unwrap();
    assert!(matches!(refused, Err(LockError::Store(_))), "{refused:?}");
    is_undone_when_the_store_is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_went_away_during_its_attempt_leaves_no_lock() {
    let scene = Scene::start();
    let waiter = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    let waiting = waits_and_gets_it_unheard(&scene, &waiter).await;
    waiting.abort();
    is_undone_when_the_store_is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_failed_goes_on_in_the_background() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    let guard = client.lock("a").with(Options::new().lease(LONG)).lock().await.unwrap();
    scene.proxy.pause();
    let release = in_time("giving up", guard.release()).await;
    let Err(ReleaseError::Store(error)) = release else { panic!("{release:?}") };
    assert!(matches!(error.kind(), StoreErrorKind::Unreachable { .. }), "{error}");
    assert_eq!(holds(&scene.server, "a").len(), 1);
    is_undone_when_the_store_is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_dropped_while_the_store_is_away_is_released_when_it_is_back() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    let guard = client.lock("a").with(Options::new().lease(LONG)).lock().await.unwrap();
    scene.proxy.pause();
    drop(guard);
    is_undone_when_the_store_is_back(&scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_could_not_be_passed_on_comes_to_the_waiter_in_the_end() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    let first = client.lock("a").lock().await.unwrap();
    let waiting = starts_to_wait(&scene, client.lock("a")).await;
    scene.proxy.blackhole_reply(0);
    let releasing = tokio::spawn(first.release());
    cut_off_when_done(&scene).await;
    let release = in_time("giving up", releasing).await.unwrap();
    assert!(matches!(release, Err(ReleaseError::Store(_))), "{release:?}");
    scene.proxy.resume();
    // Whether it is told that the store was away, or gets the lock: nothing stays behind.
    if let Ok(second) = in_time("an outcome for the waiter", waiting).await.unwrap() {
        assert!(holds_exactly(&scene.server, &second, 1));
        second.release().await.unwrap();
    }
    until_within(SOON, "the lock is free", || holds(&scene.server, "a").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_re_entry_that_failed_does_not_count() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    let guard = client.lock("a").with(Options::new().lease(LONG)).lock().await.unwrap();
    scene.proxy.blackhole_reply(0);
    let refused = in_time("giving up", guard.reenter()).await;
    assert!(matches!(refused, Err(LockError::Store(_))), "{refused:?}");
    let once = || holds_exactly(&scene.server, &guard, 1);
    until_within(SOON, "it is held once", once).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_re_entry_that_was_called_off_does_not_count() {
    let scene = Scene::start();
    let client = scene.client().await;
    let guard = client.lock("a").with(Options::new().lease(LONG)).lock().await.unwrap();
    scene.proxy.blackhole_reply(0);
    let done = || scene.proxy.swallowed() && holds_exactly(&scene.server, &guard, 2);
    tokio::select! {
        () = until("the store has done it", done) => {}
        again = guard.reenter() => panic!("its answer was lost: {again:?}"),
    }
    let once = || holds_exactly(&scene.server, &guard, 1);
    until_within(SOON, "it is held once", once).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_in_time_while_the_store_is_away() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(PATIENCE)).await;
    let guard = client.lock("a").lock().await.unwrap();
    let kept = client.lock("b").lock().await.unwrap();
    scene.proxy.pause();
    drop(guard);
    in_time("closing", client.close()).await;
    assert!(!kept.is_held());
}

/// Somebody waits, the lock comes free, the store gives it to the one who waits, and the answer is
/// lost.
async fn waits_and_gets_it_unheard(scene: &Scene, waiter: &fairlock::Client) -> Locking {
    let holder = scene.unharmed().await.lock("a").lock().await.unwrap();
    let lock = waiter.lock("a").with(Options::new().lease(LONG));
    let waiting = starts_to_wait(scene, lock).await;
    scene.proxy.blackhole_reply(0);
    holder.release().await.unwrap();
    cut_off_when_done(scene).await;
    assert_eq!(holds(&scene.server, "a").len(), 1, "the store has done it");
    waiting
}

/// Cuts the client off from the store once the answer is lost.
async fn cut_off_when_done(scene: &Scene) {
    until("the answer is lost", || scene.proxy.swallowed()).await;
    scene.proxy.pause();
}

/// The store stays away for longer than one operation takes, its clean-up included.
async fn is_undone_when_the_store_is_back(scene: &Scene) {
    pass(PATIENCE * 3).await;
    scene.proxy.resume();
    until_within(SOON, "the lock is free", || holds(&scene.server, "a").is_empty()).await;
    assert!(is_tidy(&scene.server, "a"));
}

/// How long operations take at most.
const PATIENCE: Duration = ms(1_000);
/// Longer than any test: what is left behind with this lease is noticed.
const LONG: Duration = secs(120);
/// Long against [`PATIENCE`], short against [`LONG`].
const SOON: Duration = secs(12);
