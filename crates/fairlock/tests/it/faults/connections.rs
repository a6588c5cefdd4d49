//! Connections break, and servers forget scripts, at any moment: nobody notices but the network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fairlock::Client;
use fairlock_testkit::{ClientKind, Recorder, Rng, Server, main_flavour, monotonic_ns};
use tokio::task::{JoinHandle, JoinSet};

use super::scene::{
    Scene, connect_with, holds, holds_exactly, in_time, is_tidy, listeners, somebody_waits, stays,
    until,
};
use crate::patience::{ms, pass, secs};

#[derive(Clone, Copy, Debug)]
enum Victims {
    Normal,
    Subscribed,
    All,
}

const EVERY_KIND: [Victims; 3] = [Victims::Normal, Victims::Subscribed, Victims::All];

fn kill(server: &Server, victims: Victims) -> usize {
    match victims {
        Victims::Normal => server.kill_clients(ClientKind::Normal),
        Victims::Subscribed => server.kill_clients(ClientKind::PubSub),
        Victims::All => server.kill_all_clients(),
    }
}

fn wait_for(client: &Client, name: &str) -> JoinHandle<fairlock::Guard> {
    let lock = client.lock(name);
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_stays_one() {
    let server = Server::start(&main_flavour());
    for victims in [Victims::Normal, Victims::All] {
        let client = connect_with(&server.url(), |builder| builder.lease(ms(1_500))).await;
        let guard = client.lock("a").lock().await.unwrap();
        assert!(kill(&server, victims) >= 2, "both lanes of the client");
        let held = || guard.is_held() && holds_exactly(&server, &guard, 1);
        stays(secs(2), "held", held).await;
        kill(&server, victims);
        let again = guard.reenter().await.unwrap();
        until("it is held twice", || holds_exactly(&server, &guard, 2)).await;
        kill(&server, victims);
        again.release().await.unwrap();
        kill(&server, victims);
        guard.release().await.unwrap();
        assert!(is_tidy(&server, "a"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_its_turn() {
    let server = Server::start(&main_flavour());
    for victims in EVERY_KIND {
        for told_before in [false, true] {
            let (holder, waiter) = two_clients(&server).await;
            let held = holder.lock("a").lock().await.unwrap();
            let waiting = wait_for(&waiter, "a");
            somebody_waits(&server, "a").await;
            let (killed, released) = if told_before {
                let released = held.release().await;
                (kill(&server, victims), released)
            } else {
                let killed = kill(&server, victims);
                (killed, held.release().await)
            };
            assert!(killed > 0, "{victims:?}");
            released.unwrap();
            let guard = in_time("its turn", waiting).await.unwrap();
            assert!(holds_exactly(&server, &guard, 1), "{victims:?}");
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_listens_again() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) = two_clients(&server).await;
    let held = holder.lock("a").lock().await.unwrap();
    let waiting = wait_for(&waiter, "a");
    for victims in [Victims::Subscribed, Victims::All, Victims::Subscribed] {
        somebody_waits(&server, "a").await;
        assert!(kill(&server, victims) > 0);
    }
    somebody_waits(&server, "a").await;
    held.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_listens_again_also_if_its_new_connection_breaks_while_it_is_made() {
    let scene = Scene::start();
    let held = scene.unharmed().await.lock("a").lock().await.unwrap();
    let waiting = wait_for(&scene.client().await, "a");
    somebody_waits(&scene.server, "a").await;
    scene.proxy.delay_replies(ms(200));
    scene.server.kill_clients(ClientKind::PubSub);
    let is_being_made = || {
        let clients = scene.server.query::<String>(&["CLIENT", "LIST"]);
        clients.lines().any(|line| line.contains("cmd=script|load") && line.contains("resp=3"))
    };
    until("a new connection is told the scripts", is_being_made).await;
    scene.proxy.cut();
    scene.proxy.delay_replies(ms(0));
    somebody_waits(&scene.server, "a").await;
    scene.server.reset_stats();
    held.release().await.unwrap();
    in_time("its turn", waiting).await.unwrap().release().await.unwrap();
    let calls = scene.server.calls("subscribe");
    assert!(calls < 10, "subscribes {calls} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_of_the_same_process_gets_its_turn() {
    let server = Server::start(&main_flavour());
    for victims in EVERY_KIND {
        let (client, _) = two_clients(&server).await;
        let held = client.lock("a").lock().await.unwrap();
        let waiting = wait_for(&client, "a");
        somebody_waits(&server, "a").await;
        kill(&server, victims);
        held.release().await.unwrap();
        let guard = in_time("its turn", waiting).await.unwrap();
        assert!(holds_exactly(&server, &guard, 1), "{victims:?}");
        drop(guard);
        kill(&server, victims);
        until("the lock is free", || holds(&server, "a").is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_overlaps_and_nothing_fails_while_connections_break_all_the_time() {
    let server = Arc::new(Server::start(&main_flavour()));
    let recorder = Arc::new(Recorder::new());
    let mut workers = JoinSet::new();
    let over = Arc::new(AtomicBool::new(false));
    for _ in 0..3 {
        let client = connect_with(&server.url(), |builder| builder).await;
        for _ in 0..2 {
            let (lock, recorder, over) = (client.lock("a"), recorder.clone(), over.clone());
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
    let mut rng = Rng::new(monotonic_ns());
    let kills = 60;
    for _ in 0..kills {
        // Time enough for a new connection to be made and used, most of the time.
        pass(ms(5 + rng.below(60))).await;
        kill(&server, *rng.pick(&EVERY_KIND));
    }
    over.store(true, Ordering::Relaxed);
    workers.join_all().await;
    assert!(recorder.holds().len() > kills, "{}", recorder.holds().len());
    recorder.check().unwrap();
    until("the lock is free", || is_tidy(&server, "a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_forgets_its_scripts_is_told_again() {
    let server = Server::start(&main_flavour());
    let flush = || server.query::<()>(&["SCRIPT", "FLUSH"]);
    let client = connect_with(&server.url(), |builder| builder.lease(ms(900))).await;
    flush();
    let outer = client.lock("a").lock().await.unwrap();
    flush();
    let inner = outer.reenter().await.unwrap();
    assert!(holds_exactly(&server, &outer, 2));
    for _ in 0..4 {
        flush();
        pass(ms(400)).await;
        assert!(outer.is_held(), "renewals go on");
    }
    flush();
    assert_eq!(inner.release().await.unwrap().holds_left(), 1);
    flush();
    let waiting = wait_for(&client, "a");
    somebody_waits(&server, "a").await;
    flush();
    outer.release().await.unwrap();
    let guard = in_time("its turn", waiting).await.unwrap();
    flush();
    assert_eq!(client.lock("a").inspect().await.unwrap().holds, 1);
    flush();
    assert!(client.lock("a").force_unlock().await.unwrap());
    flush();
    drop(guard);
    client.close().await;
    assert!(is_tidy(&server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_takes_no_connections_for_a_moment_is_waited_for() {
    let scene = Scene::start();
    let client = scene.client().await;
    let guard = client.lock("a").lock().await.unwrap();
    let other = scene.unharmed().await.lock("b").lock().await.unwrap();
    let waiting = wait_for(&client, "b");
    somebody_waits(&scene.server, "b").await;
    scene.proxy.refuse(true);
    scene.proxy.cut();
    let released = tokio::spawn(guard.release());
    other.release().await.unwrap();
    pass(secs(2)).await;
    assert!(!released.is_finished() && !waiting.is_finished());
    scene.proxy.refuse(false);
    in_time("releasing", released).await.unwrap().unwrap();
    in_time("its turn", waiting).await.unwrap().release().await.unwrap();
    assert!(holds(&scene.server, "a").is_empty());
    until("nobody listens any more", || listeners(&scene.server, "b") == 0).await;
}

/// With the default lease: what is found only when the lease can have ended is found too late.
async fn two_clients(server: &Server) -> (Client, Client) {
    let url = server.url();
    (connect_with(&url, |builder| builder).await, connect_with(&url, |builder| builder).await)
}
