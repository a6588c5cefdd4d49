//! The server stands still or starts again, with its data or without.

use std::time::Duration;

use fairlock::{LockError, LostCause, Options};
use fairlock_testkit::{Server, main_flavour};
use tokio::task::JoinHandle;

use super::queue::{NAME, Served, client, is_drained, passes, queued, waits};
use crate::faults::scene::{holds_exactly, in_time, until};
use crate::patience::{Stopwatch, pass, secs};

async fn all_are_served(waiting: Vec<JoinHandle<()>>) {
    for waiting in waiting {
        in_time("everybody is served", waiting).await.unwrap();
    }
}

/// Places outlive five seconds without a heartbeat: nothing changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_for_five_seconds_keeps_the_order() {
    let server = Server::start(&main_flavour());
    let clients = [client(&server.url(), secs(10)).await, client(&server.url(), secs(10)).await];
    let held = clients[0].fair_lock(NAME).lock().await.unwrap();
    let (served, mut waiting) = (Served::default(), Vec::new());
    for number in 0..8 {
        waiting.push(passes(&clients[number % 2].fair_lock(NAME), &served).await);
    }
    let arrived = queued(&clients[0].fair_lock(NAME), 8).await;
    server.freeze();
    pass(secs(5)).await;
    assert!(held.is_held());
    server.thaw();
    held.release().await.unwrap();
    all_are_served(waiting).await;
    assert_eq!(*served.lock().unwrap(), arrived);
    assert!(is_drained(&server));
}

/// Places do not outlive it: who lost its place comes back, and everybody is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_for_longer_than_places_live_serves_everybody() {
    let server = Server::start(&main_flavour());
    let clients = [client(&server.url(), TTL).await, client(&server.url(), TTL).await];
    let held = clients[0].fair_lock(NAME).lock().await.unwrap();
    let (served, mut waiting) = (Served::default(), Vec::new());
    for number in 0..8 {
        waiting.push(passes(&clients[number % 2].fair_lock(NAME), &served).await);
    }
    queued(&clients[0].fair_lock(NAME), 8).await;
    server.freeze();
    let begun = passes(&clients[1].fair_lock("begun"), &Served::default()).await;
    let releasing = tokio::spawn(held.release());
    pass(secs(5)).await;
    server.thaw();
    let watch = Stopwatch::start();
    in_time("releasing", releasing).await.unwrap().unwrap();
    all_are_served(waiting).await;
    println!("served eight after a freeze in {:?}", watch.elapsed());
    assert_eq!(served.lock().unwrap().len(), 8);
    in_time("what began during the freeze", begun).await.unwrap();
    queued(&clients[0].fair_lock(NAME), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_data_changes_nothing() {
    let log = [("--appendonly", "yes"), ("--appendfsync", "always")];
    let builder = Server::builder(&main_flavour());
    let mut server =
        log.iter().fold(builder, |builder, (name, value)| builder.arg(name, value)).start();
    let clients = [client(&server.url(), secs(10)).await, client(&server.url(), secs(10)).await];
    let held = clients[0].fair_lock(NAME).lock().await.unwrap();
    let (served, mut waiting) = (Served::default(), Vec::new());
    for number in 0..8 {
        waiting.push(passes(&clients[number % 2].fair_lock(NAME), &served).await);
    }
    let arrived = queued(&clients[0].fair_lock(NAME), 8).await;
    server.restart_with_data();
    until("both listen again", || super::queue::hearing(&server) == 2).await;
    assert!(held.is_held() && holds_exactly(&server, &held, 1));
    held.release().await.unwrap();
    all_are_served(waiting).await;
    assert_eq!(*served.lock().unwrap(), arrived);
    assert!(is_drained(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_without_data_waiters_queue_again_and_the_holder_is_told() {
    let mut server = Server::start(&main_flavour());
    let set = |builder: fairlock::Builder| builder.waiter_ttl(TTL).lease(secs(6));
    let url = server.url();
    let clients = [
        crate::faults::scene::connect_with(&url, set).await,
        crate::faults::scene::connect_with(&url, set).await,
    ];
    let held = clients[0].fair_lock(NAME).lock().await.unwrap();
    let (served, mut waiting) = (Served::default(), Vec::new());
    for number in 0..8 {
        waiting.push(passes(&clients[number % 2].fair_lock(NAME), &served).await);
    }
    queued(&clients[0].fair_lock(NAME), 8).await;
    server.restart();
    let watch = Stopwatch::start();
    all_are_served(waiting).await;
    println!("served eight after a restart in {:?}", watch.elapsed());
    assert_eq!(served.lock().unwrap().len(), 8);
    let lost = in_time("the loss", held.lost()).await;
    assert_eq!(lost.cause, LostCause::Gone);
    assert!(held.release().await.is_err());
    until("nothing is left", || is_drained(&server)).await;
}

/// Also one whose client has not listened for grants before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_frozen_server_for_longer_than_it_wants_to() {
    let server = Server::start(&main_flavour());
    let (fresh, used) = (client(&server.url(), TTL).await, client(&server.url(), TTL).await);
    used.fair_lock(NAME).lock().await.unwrap().release().await.unwrap();
    server.freeze();
    for client in [&fresh, &used] {
        let watch = Stopwatch::start();
        let lock = client.fair_lock(NAME).with(Options::new().wait(secs(1)));
        let outcome = in_time("an answer", lock.lock()).await;
        assert!(outcome.is_err(), "{outcome:?}");
        assert!(watch.elapsed() < secs(4), "{:?}", watch.elapsed());
    }
    server.thaw();
    for client in [fresh, used] {
        let guard = in_time("its turn", client.fair_lock(NAME).lock()).await.unwrap();
        guard.release().await.unwrap();
        in_time("closing", client.close()).await;
    }
    assert!(is_drained(&server));
}

/// One who is in the queue when the server stops to answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_time_ends_also_while_the_server_stands_still() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) = (client(&server.url(), TTL).await, client(&server.url(), TTL).await);
    let held = holder.fair_lock(NAME).lock().await.unwrap();
    let lock = waiter.fair_lock(NAME).with(Options::new().wait(secs(2)));
    let waiting = waits(&lock).await;
    queued(&holder.fair_lock(NAME), 1).await;
    server.freeze();
    let watch = Stopwatch::start();
    let outcome = in_time("an answer", waiting).await.unwrap();
    assert!(matches!(outcome, Err(LockError::TimedOut { .. })), "{outcome:?}");
    assert!(watch.elapsed() < secs(4), "{:?}", watch.elapsed());
    server.thaw();
    queued(&holder.fair_lock(NAME), 0).await;
    held.release().await.unwrap();
    assert!(is_drained(&server));
}

const TTL: Duration = secs(2);
