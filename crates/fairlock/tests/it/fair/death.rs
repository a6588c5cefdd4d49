//! Waiters die, or stand still, and those behind them do not wait for long.

use std::time::Duration;

use fairlock::{Client, Guard};
use fairlock_testkit::{Proxy, Server, main_flavour};
use rustix::process::Signal;

use super::queue::{NAME, client, hearing, queued, waits};
use crate::actor::Actor;
use crate::faults::scene::until;
use crate::patience::{Stopwatch, ms, secs, within};
use crate::stores::Store;

/// Eight who wait at the head of the queue, in so many processes; and a holder, and one behind them.
struct Line {
    holder: Guard,
    victims: Vec<Actor>,
    behind: tokio::task::JoinHandle<Result<Guard, fairlock::LockError>>,
}

/// The victims reach the store at an address of their own.
async fn line_up(client: &Client, url: &str, processes: usize) -> Line {
    let lock = client.fair_lock(NAME);
    let holder = lock.lock().await.unwrap();
    let mut victims = Vec::new();
    for number in 0..processes {
        let mut victim = Actor::start_fair(url, WAITER_TTL);
        assert_eq!(victim.ask(&format!("fair {NAME} {}", 8 / processes)), "asked");
        queued(&lock, (number + 1) * 8 / processes).await;
        victims.push(victim);
    }
    let behind = waits(&lock).await;
    queued(&lock, 9).await;
    Line { holder, victims, behind }
}

/// How long the one behind the dead has to wait once the lock is released.
async fn release(holder: Guard, behind: tokio::task::JoinHandle<Served>) -> Duration {
    let watch = Stopwatch::start();
    holder.release().await.unwrap();
    let guard = within(secs(30), "its turn", behind).await.unwrap().unwrap();
    let waited = watch.elapsed();
    guard.release().await.unwrap();
    waited
}

type Served = Result<Guard, fairlock::LockError>;

async fn nobody_waits_for_those_whose_end_was_seen(store: Store, processes: usize) {
    let client = client(&store.url(), WAITER_TTL).await;
    let Line { holder, victims, behind } = line_up(&client, &store.url(), processes).await;
    victims.into_iter().for_each(Actor::kill);
    if let Some(server) = store.server() {
        until("the server has seen them go", || hearing(server) == 1).await;
    }
    let waited = release(holder, behind).await;
    println!("passed over eight dead waiters of {processes} processes in {waited:?}");
    assert!(waited < AT_ONCE, "{waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_dead_processes_of_a_closed_connection_cost_nothing() {
    nobody_waits_for_those_whose_end_was_seen(Store::redis(), 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_dead_waiters_of_a_closed_connection_cost_nothing() {
    nobody_waits_for_those_whose_end_was_seen(Store::redis(), 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_dead_processes_of_this_machine_cost_nothing() {
    nobody_waits_for_those_whose_end_was_seen(Store::file(), 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_dead_waiters_of_this_machine_cost_nothing() {
    nobody_waits_for_those_whose_end_was_seen(Store::file(), 1).await;
}

/// Their machine is gone: for the server, their connections stay open.
async fn those_whose_end_nobody_saw(processes: usize) {
    let server = Server::start(&main_flavour());
    let proxy = Proxy::start(server.port());
    let client = client(&server.url(), WAITER_TTL).await;
    let Line { holder, victims, behind } = line_up(&client, &proxy.url(), processes).await;
    proxy.pause();
    victims.into_iter().for_each(Actor::kill);
    let waited = release(holder, behind).await;
    println!("passed over eight unseen dead of {processes} processes in {waited:?}");
    assert!(waited < WAITER_TTL + secs(1), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_dead_processes_cost_one_waiter_ttl() {
    those_whose_end_nobody_saw(8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_dead_waiters_of_one_process_cost_one_waiter_ttl() {
    those_whose_end_nobody_saw(1).await;
}

/// Those who stand still lose their turn, and get another one when they go on.
async fn those_who_stand_still_are_passed_over(store: Store) {
    let client = client(&store.url(), WAITER_TTL).await;
    let Line { holder, mut victims, behind } = line_up(&client, &store.url(), 2).await;
    victims.iter().for_each(|victim| victim.signal(Signal::STOP));
    let waited = release(holder, behind).await;
    println!("passed over eight stopped waiters in {waited:?}");
    assert!(waited < WAITER_TTL + secs(1), "{waited:?}");
    victims.iter().for_each(|victim| victim.signal(Signal::CONT));
    let served = tokio::task::spawn_blocking(move || {
        victims
            .iter_mut()
            .for_each(|victim| (0..4).for_each(|_| assert_eq!(victim.answer(), "served")));
    });
    within(secs(30), "their turns", served).await.unwrap();
    queued(&client.fair_lock(NAME), 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_stand_still_are_passed_over_on_redis() {
    those_who_stand_still_are_passed_over(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_stand_still_are_passed_over_on_file() {
    those_who_stand_still_are_passed_over(Store::file()).await;
}

/// The head dies with the lock, as soon as it has it.
async fn a_grantee_that_dies_is_passed_over(store: Store) {
    let client = client(&store.url(), WAITER_TTL).await;
    let lock = client.fair_lock(NAME);
    let mut victim = Actor::start_fair(&store.url(), WAITER_TTL);
    let holder = lock.lock().await.unwrap();
    assert_eq!(victim.ask(&format!("fair {NAME} 1")), "asked");
    queued(&lock, 1).await;
    let behind = waits(&lock).await;
    queued(&lock, 2).await;
    // It cannot hear of its turn any more, and nobody knows.
    victim.signal(Signal::STOP);
    holder.release().await.unwrap();
    victim.kill();
    let watch = Stopwatch::start();
    within(secs(30), "its turn", behind).await.unwrap().unwrap().release().await.unwrap();
    println!("got the lock of a dead grantee in {:?}", watch.elapsed());
    assert!(watch.elapsed() < WAITER_TTL + secs(1), "{:?}", watch.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grantee_that_dies_is_passed_over_on_redis() {
    a_grantee_that_dies_is_passed_over(Store::redis()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grantee_that_dies_is_passed_over_on_file() {
    a_grantee_that_dies_is_passed_over(Store::file()).await;
}

const WAITER_TTL: Duration = secs(2);
/// 200 ms on a machine that has nothing else to do.
const AT_ONCE: Duration = ms(1_000);
