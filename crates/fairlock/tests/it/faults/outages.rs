//! The server restarts or stands still, messages get lost, the network is cut in two.

use std::sync::Arc;

use fairlock::{Client, Guard, LostCause, Options, ReleaseError};
use fairlock_testkit::{ClientKind, Server, main_flavour};
use tokio::task::{JoinHandle, JoinSet};

use super::scene::{
    Scene, connect_with, holds_exactly, in_time, is_tidy, lease_left_ms, listeners, somebody_waits,
    stays, until,
};
use crate::patience::{Stopwatch, ms, pass, secs};

fn wait_for(client: &Client, name: &str) -> JoinHandle<Guard> {
    let lock = client.lock(name);
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_learns_that_the_server_has_lost_its_data() {
    let mut server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder.lease(secs(9))).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.restart();
    let watch = Stopwatch::start();
    let lost = in_time("the loss", guard.lost()).await;
    assert_eq!(lost.cause, LostCause::Gone);
    // The next renewal tells, a third of a lease after the last; the rest is slack.
    assert!(watch.elapsed() < secs(6), "{:?}", watch.elapsed());
    assert!(!guard.is_held());
    let release = guard.release().await;
    assert!(matches!(release, Err(ReleaseError::Lost(_))), "{release:?}");
    let again = client.lock("a").lock().await.unwrap();
    assert!(holds_exactly(&server, &again, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_after_a_restart() {
    let mut server = Server::start(&main_flavour());
    let url = server.url();
    let (holder, waiter) =
        (connect_with(&url, |builder| builder).await, connect_with(&url, |builder| builder).await);
    let held = holder.lock("a").lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for client in [&holder, &waiter] {
        let lock = client.lock("a");
        waiting.spawn(async move { lock.lock().await.unwrap() });
    }
    until("both wait", || listeners(&server, "a") == 2).await;
    server.kill();
    pass(ms(500)).await;
    assert!(waiting.try_join_next().is_none());
    server.restart();
    // The server does not know the holder any more; whoever waits finds the lock free.
    while let Some(guard) = in_time("its turn", waiting.join_next()).await {
        let guard = guard.unwrap();
        assert!(guard.token() > held.token());
        assert!(holds_exactly(&server, &guard, 1));
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_for_five_seconds_loses_nobody_a_lock() {
    let scene = Scene::start();
    let (holder, renewing) = (
        scene.unharmed().await,
        connect_with(&scene.server.url(), |builder| builder.lease(secs(12))).await,
    );
    let held = holder.lock("a").lock().await.unwrap();
    let renewed = renewing.lock("b").lock().await.unwrap();
    let waiter = scene.unharmed().await;
    let waiting = wait_for(&waiter, "a");
    somebody_waits(&scene.server, "a").await;

    scene.server.freeze();
    let begun = wait_for(&waiter, "c");
    pass(secs(5)).await;
    assert!(held.is_held() && renewed.is_held());
    assert!(!begun.is_finished() && !waiting.is_finished());
    scene.server.thaw();

    let begun = in_time("what began during the freeze", begun).await.unwrap();
    assert!(holds_exactly(&scene.server, &begun, 1));
    assert!(holds_exactly(&scene.server, &held, 1));
    in_time("a renewal", until("b is renewed", || lease_left_ms(&scene.server, "b") > 9_000)).await;
    assert!(holds_exactly(&scene.server, &renewed, 1) && renewed.is_held());
    held.release().await.unwrap();
    let next = in_time("its turn", waiting).await.unwrap();
    assert!(holds_exactly(&scene.server, &next, 1));
    for guard in [begun, renewed, next] {
        guard.release().await.unwrap();
    }
    assert!(is_tidy(&scene.server, "a") && is_tidy(&scene.server, "c"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_not_told_looks_when_the_lease_can_have_ended() {
    let scene = Scene::start();
    let holder = connect_with(&scene.server.url(), |builder| builder.lease(secs(3))).await;
    let held = holder.lock("a").lock().await.unwrap();
    let waiting = wait_for(&scene.client().await, "a");
    somebody_waits(&scene.server, "a").await;
    scene.proxy.drop_pushes(true);
    held.release().await.unwrap();
    let watch = Stopwatch::start();
    let guard = in_time("its turn", waiting).await.unwrap();
    assert_eq!(scene.proxy.pushes_dropped(), 1, "the message did not arrive");
    assert!(watch.elapsed() < secs(3) + SLACK, "{:?}", watch.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_was_not_told_looks_when_it_listens_again() {
    let scene = Scene::start();
    let fixed = Options::new().lease(secs(120));
    let held = scene.unharmed().await.lock("a").with(fixed).lock().await.unwrap();
    let waiting = wait_for(&scene.client().await, "a");
    somebody_waits(&scene.server, "a").await;
    scene.proxy.drop_pushes(true);
    held.release().await.unwrap();
    until("the message is lost", || scene.proxy.pushes_dropped() == 1).await;
    scene.server.kill_clients(ClientKind::PubSub);
    in_time("its turn", waiting).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_knows_that_it_lost_before_anybody_else_can_hold() {
    let scene = Scene::start();
    let lease = secs(6);
    let client = scene.client_with(|builder| builder.lease(lease)).await;
    // The lease begins to run long before the answer comes.
    scene.proxy.delay_replies(ms(300));
    let guard = Arc::new(client.lock("a").lock().await.unwrap());
    let other = scene.unharmed().await;
    let waiting = wait_for(&other, "a");
    let losing = tokio::spawn({
        let (guard, mut connection) = (guard.clone(), scene.server.connection());
        async move {
            let lost = guard.lost().await;
            (lost, redis::cmd("PTTL").arg("a").query::<i64>(&mut connection).unwrap())
        }
    });
    scene.proxy.pause();
    let mut connection = scene.server.connection();
    loop {
        let still_there: bool = redis::cmd("EXISTS").arg("a").query(&mut connection).unwrap();
        let still_ours = waiting.is_finished() || !still_there;
        assert!(!(still_ours && guard.is_held()), "two hold the lock");
        if waiting.is_finished() {
            break;
        }
        pass(ms(1)).await;
    }
    let (lost, left_ms) = in_time("the loss", losing).await.unwrap();
    assert_eq!(lost.cause, LostCause::LeaseEnded);
    assert!(left_ms > 0, "told when the lease had ended in the store already: {left_ms}");
    let next = waiting.await.unwrap();
    scene.proxy.resume();
    let guard = Arc::into_inner(guard).expect("nobody else has it");
    let release = in_time("releasing", guard.release()).await;
    assert!(matches!(release, Err(ReleaseError::Lost(_))), "{release:?}");
    stays(ms(500), "the next one holds it", || holds_exactly(&scene.server, &next, 1)).await;
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_for_less_than_its_lease_keeps_the_lock() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.lease(secs(6))).await;
    let guard = client.lock("a").lock().await.unwrap();
    // Two renewals and their repetitions get no answer.
    for cut_off in [ms(4_000), ms(500)] {
        scene.proxy.pause();
        pass(cut_off).await;
        assert!(guard.is_held());
        scene.proxy.resume();
        let renewed = || lease_left_ms(&scene.server, "a") > 5_000;
        until("it is renewed", renewed).await;
    }
    assert!(guard.is_held() && holds_exactly(&scene.server, &guard, 1));
    guard.release().await.unwrap();
    assert!(is_tidy(&scene.server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_lease_ends_for_the_holder_first_also_when_it_can_reach_the_store() {
    let scene = Scene::start();
    let (holder, other) = (scene.unharmed().await, scene.unharmed().await);
    let fixed = Options::new().lease(secs(2));
    let guard = holder.lock("a").with(fixed).lock().await.unwrap();
    let waiting = wait_for(&other, "a");
    while !waiting.is_finished() {
        pass(ms(1)).await;
    }
    assert!(!guard.is_held());
    let lost = in_time("the loss", guard.lost()).await;
    assert_eq!(lost.cause, LostCause::LeaseEnded);
    waiting.await.unwrap().release().await.unwrap();
}

/// For a machine that has a lot else to do.
const SLACK: std::time::Duration = secs(3);
