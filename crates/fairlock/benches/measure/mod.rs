//! How the benchmarks measure: rounds of two sides take turns, and the median counts.

#![allow(dead_code, reason = "each benchmark needs some of it")]

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fairlock::{BootTime, Client};
use tokio::runtime::Runtime;

/// Runs `once` in 64 tasks until `left` is used up.
pub(crate) fn crowd<F, W>(runtime: &Runtime, left: Arc<AtomicU64>, once: W) -> Duration
where
    W: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let start = BootTime::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|_| {
                let (once, left) = (once.clone(), left.clone());
                tokio::spawn(async move {
                    let take = |left: u64| left.checked_sub(1);
                    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                        once().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
    });
    start.until(BootTime::now())
}

pub(crate) fn spawned(
    runtime: &Runtime,
    work: impl Future<Output = ()> + Send + 'static,
) -> Duration {
    let start = BootTime::now();
    runtime.block_on(async { tokio::spawn(work).await.expect("the task does not panic") });
    start.until(BootTime::now())
}

pub(crate) fn report(
    what: &str,
    mut ours: impl FnMut() -> Duration,
    mut peer: impl FnMut() -> Duration,
    figure: impl Fn(Duration) -> f64,
    goal: &str,
) {
    ours();
    peer();
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (figure(ours()), figure(peer()))).collect();
    let ours = median(rounds.iter().map(|(ours, _)| *ours));
    let peer = median(rounds.iter().map(|(_, peer)| *peer));
    let ratio = median(rounds.iter().map(|(ours, peer)| ours / peer));
    println!("{what:<34} {ours:>8.1} / {peer:>8.1} = {ratio:.2} (goal: {goal})");
}

pub(crate) fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

/// Two processes with 32 tasks each on one lock: the smaller share. Each is this program, started
/// again with the address in [`WORKER`]; it says `ready`, waits for a line, and says its count.
pub(crate) fn two_processes(url: &str, goal: &str) {
    let mut workers: Vec<Child> = (0..2).map(|_| spawn_worker(url)).collect();
    let mut lines: Vec<_> = workers
        .iter_mut()
        .map(|worker| BufReader::new(worker.stdout.take().expect("piped")).lines())
        .collect();
    for line in &mut lines {
        assert_eq!(line.next().expect("a line").expect("text"), "ready");
    }
    for worker in &mut workers {
        worker.stdin.take().expect("piped").write_all(b"go\n").expect("the worker reads");
    }
    let counts: Vec<f64> = lines
        .iter_mut()
        .map(|line| line.next().expect("a line").expect("text").parse().expect("a number"))
        .collect();
    for worker in &mut workers {
        worker.wait().expect("the worker ends");
    }
    let total: f64 = counts.iter().sum();
    let least = counts.iter().copied().fold(f64::MAX, f64::min);
    println!(
        "{:<34} {:>8.0} per second in all, the slower one has {:.1} % (goal: {goal})",
        "two processes x 32 tasks",
        total / SHARE_TIME.as_secs_f64(),
        100.0 * least / total
    );
}

/// What each of them does: `turn` takes the lock, counts, and gives it back.
pub(crate) fn worker<F>(
    url: &str,
    turn: impl Fn(Client, Arc<AtomicU64>) -> F + Copy + Send + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let runtime = runtime();
    let client = runtime.block_on(Client::connect(url)).expect("the server runs");
    println!("ready");
    std::io::stdin().lines().next();
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..32)
            .map(|_| {
                let (client, stop, count) = (client.clone(), stop.clone(), count.clone());
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        turn(client.clone(), count.clone()).await;
                    }
                })
            })
            .collect();
        tokio::time::timeout(SHARE_TIME, std::future::pending::<()>()).await.ok();
        println!("{}", count.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            task.await.expect("no task panics");
        }
        client.close().await;
    });
}

fn spawn_worker(url: &str) -> Child {
    let program = std::env::current_exe().expect("a running program has a file");
    Command::new(program)
        .env(WORKER, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program can be started again")
}

pub(crate) const WORKER: &str = "FAIRLOCK_BENCH_WORKER";
pub(crate) const ROUNDS: usize = 15;
pub(crate) const HAND_OFFS: u64 = 3_000;
pub(crate) const SHARE_TIME: Duration = Duration::from_secs(5);
