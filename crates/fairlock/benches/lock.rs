//! What the reentrant lock costs, each figure as a ratio to a peer measured in the same run.
//!
//! `cargo xtask bench lock`: an uncontended pair against the bare client crate; 64 tasks that pass
//! one lock around against the steps of Redisson; the share of two processes. Rounds of the two
//! sides take turns, so that a machine that slows down slows both; the median counts.

mod peers;

use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fairlock::{BootTime, Client};
use fairlock_testkit::{Server, main_flavour};
use peers::{BareScripts, RedissonSteps};
use tokio::runtime::Runtime;

fn main() {
    if let Some(url) = std::env::var_os(WORKER) {
        return worker(&url.to_string_lossy());
    }
    let server = Server::start(&main_flavour());
    println!("{}: ratios are fairlock / peer, medians of {ROUNDS} rounds", main_flavour().name);
    uncontended(&server);
    hand_offs(&server);
    two_processes(&server);
}

/// Lock and release, nobody else there: microseconds per pair, so a low ratio is good.
fn uncontended(server: &Server) {
    let runtime = runtime();
    let client = runtime.block_on(Client::connect(&server.url())).expect("the server runs");
    let bare = runtime.block_on(BareScripts::connect(&server.url()));
    let lock = client.lock("bench:uncontended");
    let ours = || {
        let lock = lock.clone();
        spawned(&runtime, async move {
            for _ in 0..PAIRS {
                lock.lock().await.expect("nobody else").release().await.expect("still held");
            }
        })
    };
    let peer = || {
        let bare = bare.clone();
        spawned(&runtime, async move { bare.pairs(PAIRS).await })
    };
    let per_pair = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(PAIRS);
    report("uncontended pair, us", ours, peer, per_pair, "<= 1.15 x the bare client");
}

/// 64 tasks that want one lock all the time: hand-offs per second, so a high ratio is good.
fn hand_offs(server: &Server) {
    let runtime = runtime();
    let client = runtime.block_on(Client::connect(&server.url())).expect("the server runs");
    let steps = Arc::new(runtime.block_on(RedissonSteps::connect(&server.url(), "bench:steps")));
    let lock = client.lock("bench:hand-offs");
    let ours = || {
        let lock = lock.clone();
        let left = AtomicU64::new(HAND_OFFS);
        crowd(&runtime, Arc::new(left), move || {
            let lock = lock.clone();
            async move {
                lock.lock().await.expect("a turn").release().await.expect("still held");
            }
        })
    };
    let peer = || {
        let steps = steps.clone();
        crowd(&runtime, Arc::new(AtomicU64::new(HAND_OFFS)), move || {
            let steps = steps.clone();
            async move { steps.lock_and_unlock().await }
        })
    };
    let per_second = |time: Duration| HAND_OFFS as f64 / time.as_secs_f64();
    report("hand-offs per second, 64 tasks", ours, peer, per_second, ">= 1.5 x Redisson's steps");
}

/// Two processes with 32 tasks each on one lock: the smaller share.
fn two_processes(server: &Server) {
    let mut workers: Vec<Child> = (0..2).map(|_| spawn_worker(&server.url())).collect();
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
        "{:<34} {:>8.0} per second in all, the slower one has {:.1} % (goal: >= 30 %)",
        "two processes x 32 tasks",
        total / SHARE_TIME.as_secs_f64(),
        100.0 * least / total
    );
}

fn worker(url: &str) {
    let runtime = runtime();
    let client = runtime.block_on(Client::connect(url)).expect("the server runs");
    println!("ready");
    std::io::stdin().lines().next();
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..32)
            .map(|_| {
                let (lock, stop) = (client.lock("bench:share"), stop.clone());
                let count = count.clone();
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock().await.expect("a turn");
                        count.fetch_add(1, Ordering::Relaxed);
                        guard.release().await.expect("still held");
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

/// Runs `once` in 64 tasks until `left` is used up.
fn crowd<F, W>(runtime: &Runtime, left: Arc<AtomicU64>, once: W) -> Duration
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

fn spawned(runtime: &Runtime, work: impl Future<Output = ()> + Send + 'static) -> Duration {
    let start = BootTime::now();
    runtime.block_on(async { tokio::spawn(work).await.expect("the task does not panic") });
    start.until(BootTime::now())
}

fn report(
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

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime")
}

const WORKER: &str = "FAIRLOCK_BENCH_WORKER";
const ROUNDS: usize = 15;
const PAIRS: u32 = 1_000;
const HAND_OFFS: u64 = 3_000;
const SHARE_TIME: Duration = Duration::from_secs(5);
