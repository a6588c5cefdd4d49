//! Messages, answers and connections get lost: a waiter keeps its place, and is served once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairlock::{Client, LockError, Options};
use fairlock_testkit::{ClientKind, Proxy, Recorder, Seed, Server, main_flavour, monotonic_ns};
use tokio::task::{JoinSet, LocalSet};

use super::queue::{
    LIST, NAME, PLACES, SCORES, Served, client, hearing, is_drained, passes, queued, sizes, waits,
};
use crate::faults::scene::{Scene, holds, holds_exactly, in_time, until};
use crate::patience::{Stopwatch, ms, pass, secs};

async fn holder(scene: &Scene) -> Client {
    client(&scene.server.url(), WAITER_TTL).await
}

async fn waiter(scene: &Scene) -> Client {
    client(&scene.proxy.url(), WAITER_TTL).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_nobody_told_of_is_found_with_the_next_heartbeat() {
    let scene = Scene::start();
    let (holder, waiter) = (holder(&scene).await, waiter(&scene).await);
    let held = holder.fair_lock(NAME).lock().await.unwrap();
    let waiting = waits(&waiter.fair_lock(NAME)).await;
    queued(&holder.fair_lock(NAME), 1).await;
    scene.proxy.drop_pushes(true);
    held.release().await.unwrap();
    let watch = Stopwatch::start();
    let guard = in_time("its turn", waiting).await.unwrap().unwrap();
    assert_eq!(scene.proxy.pushes_dropped(), 1, "the message did not arrive");
    assert!(watch.elapsed() < WAITER_TTL / 3 + secs(1), "{:?}", watch.elapsed());
    assert!(guard.is_held() && holds_exactly(&scene.server, &guard, 1));
    guard.release().await.unwrap();
    assert!(is_drained(&scene.server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_asked_and_heard_nothing_is_queued_once() {
    for lose in [Proxy::swallow_reply, Proxy::blackhole_reply] {
        let scene = Scene::start();
        let (holder, waiter) = (holder(&scene).await, waiter(&scene).await);
        let held = holder.fair_lock(NAME).lock().await.unwrap();
        lose(&scene.proxy, 0);
        let waiting = waits(&waiter.fair_lock(NAME)).await;
        until("the answer is lost", || scene.proxy.swallowed()).await;
        let before = queued(&holder.fair_lock(NAME), 1).await;
        let asked_before = scene.proxy.script_calls_seen();
        until("it has asked again", || scene.proxy.script_calls_seen() > asked_before + 1).await;
        assert_eq!(queued(&holder.fair_lock(NAME), 1).await, before);
        assert_eq!(sizes(&scene.server), [1, 1, 1]);
        held.release().await.unwrap();
        let guard = in_time("its turn", waiting).await.unwrap().unwrap();
        assert_eq!(before[0], *guard.owner_id());
        guard.release().await.unwrap();
        // A copy that is still on the way is cleaned up after.
        in_time("closing", waiter.close()).await;
        assert!(is_drained(&scene.server));
    }
}

/// What the late answer speaks of has ended; but it is still the first in line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_answer_was_too_long_under_way_asks_once_more() {
    let scene = Scene::start();
    let waiter = waiter(&scene).await;
    let lock = waiter.fair_lock(NAME);
    // Connects and listens.
    lock.lock().await.unwrap().release().await.unwrap();
    scene.proxy.delay_replies(ms(300));
    let waiting = waits(&lock.with(Options::new().lease(ms(250)))).await;
    until("it has asked", || holds(&scene.server, NAME).len() == 1).await;
    scene.proxy.delay_replies(Duration::ZERO);
    let guard = in_time("its turn", waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    in_time("closing", waiter.close()).await;
    assert!(is_drained(&scene.server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_whose_answer_was_too_long_under_way_does_not_wait() {
    let scene = Scene::start();
    let waiter = waiter(&scene).await;
    let lock = waiter.fair_lock(NAME).with(Options::new().lease(ms(250)));
    lock.try_lock().await.unwrap().unwrap().release().await.unwrap();
    scene.proxy.delay_replies(ms(300));
    let tried = in_time("an answer", lock.try_lock()).await;
    assert!(matches!(tried, Err(LockError::Lost(_))), "{tried:?}");
    scene.proxy.delay_replies(Duration::ZERO);
    in_time("closing", waiter.close()).await;
    assert!(is_drained(&scene.server));
}

/// Its ticket is of its first time in the queue, which no answer has told it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_first_answer_was_lost_comes_back_to_its_place() {
    let scene = Scene::start();
    let (holder, waiter) = (holder(&scene).await, waiter(&scene).await);
    let lock = holder.fair_lock(NAME);
    let held = lock.lock().await.unwrap();
    scene.proxy.blackhole_reply(0);
    let first = waits(&waiter.fair_lock(NAME)).await;
    until("the answer is lost", || scene.proxy.swallowed()).await;
    let asked_before = scene.proxy.script_calls_seen();
    let old_first = queued(&lock, 1).await.remove(0);
    let second = waits(&lock).await;
    queued(&lock, 2).await;
    until("it has asked again", || scene.proxy.script_calls_seen() > asked_before + 1).await;
    scene.server.query::<u64>(&["DEL", LIST, SCORES, PLACES]);
    let anew = queued(&lock, 2).await;
    assert!(!anew.contains(&old_first), "all of them have new ids");
    held.release().await.unwrap();
    let guard = in_time("the first one's turn", first).await.unwrap().unwrap();
    assert_eq!(*guard.owner_id(), anew[0]);
    guard.release().await.unwrap();
    in_time("the second one's turn", second).await.unwrap().unwrap().release().await.unwrap();
}

/// One that waits for somebody else's hold, which is released or ends by itself, and one behind it.
/// Who cannot be reached when the lock comes free is passed over: so whichever of them is first.
async fn waits_its_turn(server: Arc<Server>, proxy: Arc<Proxy>, k: u64, lose: fn(&Proxy, u64)) {
    let name = format!("lost-{k}");
    let (holder, waiter) =
        (client(&server.url(), WAITER_TTL).await, client(&proxy.url(), WAITER_TTL).await);
    lose(&proxy, k);
    for options in [Options::new(), Options::new().lease(secs(3))] {
        let lock = holder.fair_lock(&name);
        let held = lock.with(options).lock().await.unwrap();
        let served = Served::default();
        let waiting = passes(&waiter.fair_lock(&name), &served).await;
        queued(&lock, 1).await;
        let behind = passes(&lock, &served).await;
        queued(&lock, 2).await;
        pass(WAITER_TTL).await;
        if options == Options::new() {
            held.release().await.unwrap();
        }
        in_time("its turn", waiting).await.unwrap();
        in_time("the last one's turn", behind).await.unwrap();
        assert_eq!(served.lock().unwrap().len(), 2);
    }
    in_time("closing", waiter.close()).await;
    until("the lock is free", || holds(&server, &name).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_answer_is_lost_everybody_is_served_once() {
    let server = Arc::new(Server::start(&main_flavour()));
    for lose in [Proxy::swallow_reply, Proxy::blackhole_reply] {
        let (mut plays, here) = (JoinSet::new(), LocalSet::new());
        for k in 0..10 {
            let proxy = Arc::new(Proxy::start(server.port()));
            plays.spawn_local_on(waits_its_turn(server.clone(), proxy, k, lose), &here);
        }
        here.run_until(plays.join_all()).await;
        let records = |key: &String| key.ends_with(":grant");
        assert!(server.keys().iter().all(records), "{:?}", server.keys());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_before_the_wait_is_made_anew() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) =
        (client(&server.url(), WAITER_TTL).await, client(&server.url(), WAITER_TTL).await);
    // Listens by now.
    waiter.fair_lock(NAME).lock().await.unwrap().release().await.unwrap();
    let held = holder.fair_lock(NAME).lock().await.unwrap();
    assert_eq!(server.kill_clients(ClientKind::PubSub), 2);
    let waiting = waits(&waiter.fair_lock(NAME)).await;
    queued(&holder.fair_lock(NAME), 1).await;
    until("both listen again", || hearing(&server) >= 1).await;
    held.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
    assert!(is_drained(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_in_the_queue_is_made_anew() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) =
        (client(&server.url(), secs(10)).await, client(&server.url(), secs(10)).await);
    let held = holder.fair_lock(NAME).lock().await.unwrap();
    let waiting = waits(&waiter.fair_lock(NAME)).await;
    let before = queued(&holder.fair_lock(NAME), 1).await;
    let behind = waits(&holder.fair_lock(NAME)).await;
    queued(&holder.fair_lock(NAME), 2).await;
    for _ in 0..3 {
        assert_eq!(server.kill_clients(ClientKind::PubSub), 2);
        until("both listen again", || hearing(&server) == 2).await;
    }
    held.release().await.unwrap();
    let watch = Stopwatch::start();
    let guard = in_time("its turn", waiting).await.unwrap().unwrap();
    assert!(watch.elapsed() < secs(1), "told at once: {:?}", watch.elapsed());
    assert_eq!(*guard.owner_id(), before[0]);
    assert!(!behind.is_finished());
    guard.release().await.unwrap();
    in_time("the last one's turn", behind).await.unwrap().unwrap().release().await.unwrap();
    assert!(is_drained(&server));
}

/// Right before, the grant finds nobody to hear it; right after, its message may be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_at_the_release_delays_by_a_heartbeat_at_most() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) =
        (client(&server.url(), WAITER_TTL).await, client(&server.url(), WAITER_TTL).await);
    for round in 0..12 {
        let held = holder.fair_lock(NAME).lock().await.unwrap();
        let waiting = waits(&waiter.fair_lock(NAME)).await;
        queued(&holder.fair_lock(NAME), 1).await;
        let watch = Stopwatch::start();
        if round % 2 == 0 {
            server.kill_clients(ClientKind::PubSub);
            held.release().await.unwrap();
        } else {
            let releasing = tokio::spawn(held.release());
            server.kill_clients(ClientKind::PubSub);
            releasing.await.unwrap().unwrap();
        }
        let guard = in_time("its turn", waiting).await.unwrap().unwrap();
        assert!(watch.elapsed() < WAITER_TTL + secs(1), "{:?}", watch.elapsed());
        assert!(guard.is_held() && holds_exactly(&server, &guard, 1));
        guard.release().await.unwrap();
    }
    until("the lock is free", || is_drained(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_after_the_grant_takes_nothing_away() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) =
        (client(&server.url(), WAITER_TTL).await, client(&server.url(), WAITER_TTL).await);
    let held = holder.fair_lock(NAME).lock().await.unwrap();
    let waiting = waits(&waiter.fair_lock(NAME)).await;
    queued(&holder.fair_lock(NAME), 1).await;
    held.release().await.unwrap();
    let guard = in_time("its turn", waiting).await.unwrap().unwrap();
    server.kill_all_clients();
    pass(WAITER_TTL * 2).await;
    assert!(guard.is_held() && holds_exactly(&server, &guard, 1), "longer than it was granted for");
    guard.release().await.unwrap();
    assert!(is_drained(&server));
}

/// As long as it takes until an attempt to listen again is given up, and longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_told_again_after_a_long_outage() {
    let scene = Scene::start();
    let holder = client(&scene.server.url(), secs(10)).await;
    let brief = |builder: fairlock::Builder| builder.timeout(ms(500)).waiter_ttl(secs(10));
    let waiter = scene.client_with(brief).await;
    let held = holder.fair_lock(NAME).lock().await.unwrap();
    let waiting = waits(&waiter.fair_lock(NAME)).await;
    let before = queued(&holder.fair_lock(NAME), 1).await;
    let behind = waits(&holder.fair_lock(NAME)).await;
    queued(&holder.fair_lock(NAME), 2).await;
    scene.proxy.refuse(true);
    scene.proxy.cut();
    pass(secs(3)).await;
    scene.proxy.refuse(false);
    until("it listens again", || hearing(&scene.server) == 2).await;
    held.release().await.unwrap();
    let guard = in_time("its turn", waiting).await.unwrap().unwrap();
    assert_eq!(*guard.owner_id(), before[0], "it kept its place");
    assert!(!behind.is_finished());
    guard.release().await.unwrap();
    in_time("the last one's turn", behind).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_its_scripts_is_told_again() {
    let server = Server::start(&main_flavour());
    let flush = || server.query::<()>(&["SCRIPT", "FLUSH"]);
    let (holder, waiter) =
        (client(&server.url(), WAITER_TTL).await, client(&server.url(), WAITER_TTL).await);
    flush();
    let held = holder.fair_lock(NAME).lock().await.unwrap();
    flush();
    let waiting = waits(&waiter.fair_lock(NAME)).await;
    queued(&holder.fair_lock(NAME), 1).await;
    let again = held.reenter().await.unwrap();
    for _ in 0..4 {
        flush();
        pass(WAITER_TTL / 2).await;
    }
    flush();
    again.release().await.unwrap();
    flush();
    held.release().await.unwrap();
    let guard = in_time("its turn", waiting).await.unwrap().unwrap();
    flush();
    assert!(waiter.fair_lock(NAME).try_lock().await.unwrap().is_none());
    flush();
    guard.release().await.unwrap();
    assert!(is_drained(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_overlaps_and_nothing_fails_while_connections_break_all_the_time() {
    let server = Arc::new(Server::start(&main_flavour()));
    let recorder = Arc::new(Recorder::new());
    let mut workers = JoinSet::new();
    let over = Arc::new(AtomicBool::new(false));
    for _ in 0..3 {
        let client = client(&server.url(), WAITER_TTL).await;
        for _ in 0..3 {
            let (lock, recorder, over) = (client.fair_lock(NAME), recorder.clone(), over.clone());
            workers.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let guard = in_time("locking", lock.lock()).await.unwrap();
                    let (token, start) = (guard.token().get(), monotonic_ns());
                    tokio::task::yield_now().await;
                    let end = monotonic_ns();
                    in_time("releasing", guard.release()).await.unwrap();
                    recorder.record(token, start, end);
                }
            });
        }
    }
    let seed = Seed::from_env_or_random("FAIRLOCK_SEED");
    let _announcement = seed.announce("nobody_overlaps_and_nothing_fails_while_connections_break");
    let mut rng = seed.rng();
    let kills = 60;
    for _ in 0..kills {
        // Time enough for a new connection to be made and used, most of the time.
        pass(ms(5 + rng.below(80))).await;
        match rng.below(3) {
            0 => server.kill_clients(ClientKind::Normal),
            1 => server.kill_clients(ClientKind::PubSub),
            _ => server.kill_all_clients(),
        };
    }
    over.store(true, Ordering::Relaxed);
    workers.join_all().await;
    println!("{} holds", recorder.holds().len());
    assert!(recorder.holds().len() > kills, "{}", recorder.holds().len());
    recorder.check().unwrap();
    until("the lock is free", || is_drained(&server)).await;
}

const WAITER_TTL: Duration = secs(2);
