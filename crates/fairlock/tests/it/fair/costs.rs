//! What a fair lock costs its server.

use fairlock::{Guard, Options};
use fairlock_testkit::{Server, main_flavour};
use tokio::task::JoinSet;

use super::queue::{LIST, NAME, client, is_drained, queued, waits};
use crate::actor::Actor;
use crate::faults::scene::{in_time, until, until_within};
use crate::patience::{Stopwatch, ms, pass, secs};
use crate::stores::Store;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_fair_lock_costs_two_calls() {
    let server = Server::start(&main_flavour());
    let client = client(&server.url(), secs(10)).await;
    // Listens by now.
    client.fair_lock(NAME).lock().await.unwrap().release().await.unwrap();
    server.reset_stats();
    client.fair_lock(NAME).lock().await.unwrap().release().await.unwrap();
    assert_eq!((server.calls("evalsha"), server.script_calls()), (2, 2));
    for command in ["publish", "subscribe", "unsubscribe", "script|load", "ping", "pubsub|numsub"] {
        assert_eq!(server.calls(command), 0, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_in_vain_costs_one_call() {
    let server = Server::start(&main_flavour());
    let (alice, bob) =
        (client(&server.url(), secs(10)).await, client(&server.url(), secs(10)).await);
    let held = alice.fair_lock(NAME).lock().await.unwrap();
    assert!(bob.fair_lock(NAME).try_lock().await.unwrap().is_none());
    server.reset_stats();
    for _ in 0..10 {
        assert!(bob.fair_lock(NAME).try_lock().await.unwrap().is_none());
    }
    bob.close().await;
    assert_eq!(server.script_calls(), 10);
    held.release().await.unwrap();
}

/// One by the releaser for each turn, whether the next one is of its own process or of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_costs_one_call() {
    let server = Server::start(&main_flavour());
    let mut clients = Vec::new();
    for _ in 0..2 {
        // No heartbeat is due while this is counted.
        clients.push(client(&server.url(), secs(120)).await);
    }
    let held = clients[0].fair_lock(NAME).lock().await.unwrap();
    // Listens by now.
    drop(clients[1].fair_lock(NAME).with(Options::new().wait(ms(1))).lock().await);
    queued(&clients[0].fair_lock(NAME), 0).await;
    server.reset_stats();
    let mut waiting = Vec::new();
    for number in 0..20 {
        waiting.push(waits(&clients[number / 2 % 2].fair_lock(NAME)).await);
        until("it is queued", || server.query::<u64>(&["LLEN", LIST]) == number as u64 + 1).await;
    }
    assert_eq!(server.script_calls(), 20, "one to queue");
    server.reset_stats();
    held.release().await.unwrap();
    for waiting in waiting {
        in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(server.script_calls(), 21, "one to hand on");
    assert_eq!(server.calls("publish"), 9, "one of its own process is told in the answer");
    assert!(is_drained(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_of_one_process_cost_a_few_calls() {
    let server = Server::start(&main_flavour());
    let waiter_ttl = secs(6);
    let (holder, client) =
        (client(&server.url(), waiter_ttl).await, client(&server.url(), waiter_ttl).await);
    let held = holder.fair_lock(NAME).lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..1_000 {
        let lock = client.fair_lock(NAME);
        waiters.spawn(async move { lock.lock().await.unwrap().release().await.unwrap() });
    }
    queued(&holder.fair_lock(NAME), 1_000).await;
    server.reset_stats();
    let watch = Stopwatch::start();
    pass(waiter_ttl * 2).await;
    let calls = server.script_calls();
    // The holder's renewals come every ten seconds.
    let most = watch.elapsed().as_secs() * 4 / waiter_ttl.as_secs() + 2;
    let stats: String = server.query(&["INFO", "commandstats"]);
    let each = figure(&stats, "usec_per_call=");
    println!("{calls} calls in {:?}, each takes {each:.0} us", watch.elapsed());
    assert!(calls <= most, "{calls} calls, at most {most}");
    assert_eq!(queued(&holder.fair_lock(NAME), 1_000).await.len(), 1_000);
    server.reset_stats();
    held.release().await.unwrap();
    in_time("a thousand turns", waiters.join_all()).await;
    let calls = server.script_calls();
    assert!(calls <= 1_001 + 20, "{calls} calls for a thousand turns");
    assert!(is_drained(&server));
}

/// Also when it waits for many locks: one connection and one channel, and none is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_for_many_locks_share_a_channel() {
    let server = Server::start(&main_flavour());
    let (holder, waiter) =
        (client(&server.url(), secs(10)).await, client(&server.url(), secs(10)).await);
    let channels = || server.query::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len();
    let connections = || server.query::<String>(&["CLIENT", "LIST"]).lines().count();
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let name = number.to_string();
        held.push(holder.fair_lock(&name).lock().await.unwrap());
        waiting.push(waits(&waiter.fair_lock(&name)).await);
        queued(&holder.fair_lock(&name), 1).await;
        // Its own connections, and those of two clients: for requests and for messages.
        assert!(channels() <= 2 && connections() <= 5, "{} {}", channels(), connections());
    }
    drop(held);
    for waiting in waiting {
        in_time("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    in_time("closing", holder.close()).await;
    in_time("closing", waiter.close()).await;
    until("nobody listens any more", || channels() == 0).await;
}

async fn those_who_wait_rest(store: Store) {
    let client = client(&store.url(), secs(3)).await;
    let held = client.fair_lock(NAME).lock().await.unwrap();
    let mut waiter = Actor::start_fair(&store.url(), secs(3));
    assert_eq!(waiter.ask(&format!("fair {NAME} 100")), "asked");
    queued(&client.fair_lock(NAME), 100).await;
    let before = waiter.processor_time();
    pass(secs(3)).await;
    let used = waiter.processor_time() - before;
    println!("a process with a hundred waiters has used {used:?} in 3 s");
    assert!(used < ms(600), "{used:?}");
    held.release().await.unwrap();
    let served = tokio::task::spawn_blocking(move || {
        (0..100).for_each(|_| assert_eq!(waiter.answer(), "served"));
    });
    in_time("their turns", served).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_use_little_processor_time_on_redis() {
    those_who_wait_rest(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_use_little_processor_time_on_file() {
    those_who_wait_rest(Store::file()).await;
}

/// Prints it: how it compares is for a quiet machine to say. Here, far more than it should be is
/// still a mistake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_does_not_cost_more_in_a_long_queue() {
    let server = Server::start(&main_flavour());
    let few = cost_of_a_hand_off(&server, 10, 40).await;
    let many = cost_of_a_hand_off(&server, 10_000, 1).await;
    println!("server time per hand-off: {few:.1} us with 10, {many:.1} us with 10,000");
    assert!(many < 3.0 * few, "{many:.1} us, but {few:.1} us in a short queue");
}

/// Microseconds of the server's time for one hand-off, with so many in the queue.
async fn cost_of_a_hand_off(server: &Server, waiters: u64, rounds: usize) -> f64 {
    // No heartbeat is due while this is measured.
    let clients = [client(&server.url(), secs(600)).await, client(&server.url(), secs(600)).await];
    let (mut calls, mut usec) = (0.0, 0.0);
    for _ in 0..rounds {
        let held = clients[0].fair_lock(NAME).lock().await.unwrap();
        let mut waiting: JoinSet<Guard> = JoinSet::new();
        for number in 0..waiters {
            let lock = clients[number as usize % 2].fair_lock(NAME);
            waiting.spawn(async move { lock.lock().await.unwrap() });
        }
        let length = || server.query::<u64>(&["LLEN", LIST]);
        until_within(secs(120), "all are queued", || length() == waiters).await;
        server.reset_stats();
        held.release().await.unwrap();
        for _ in 0..(waiters - 1).min(400) {
            let guard = in_time("a turn", waiting.join_next()).await.expect("more wait").unwrap();
            guard.release().await.unwrap();
        }
        let stats: String = server.query(&["INFO", "commandstats"]);
        calls += figure(&stats, "calls=");
        usec += figure(&stats, "usec=");
        waiting.shutdown().await;
        until_within(secs(120), "all have left", || length() == 0).await;
    }
    usec / calls
}

/// A figure of the line about scripts.
fn figure(stats: &str, name: &str) -> f64 {
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap();
    line.split(',').find_map(|part| part.strip_prefix(name)).unwrap().parse().unwrap()
}
