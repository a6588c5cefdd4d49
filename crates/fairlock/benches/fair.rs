//! What the fair lock costs, each figure as a ratio to a peer measured in the same run.
//!
//! `cargo xtask bench fair`: 64 tasks that pass one lock around, against the steps of Redisson's
//! *unfair* lock, of its fair lock, and against our own plain lock; the share of two processes; what
//! a hand-off costs the server with ten and with ten thousand waiters.

mod measure;
mod peers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlock::{Client, FairLock};
use fairlock_testkit::{Server, eventually, main_flavour};
use measure::{HAND_OFFS, ROUNDS, WORKER, crowd, median, report, runtime, two_processes, worker};
use peers::{RedissonFairSteps, RedissonSteps};
use tokio::runtime::Runtime;

fn main() {
    if let Some(url) = std::env::var_os(WORKER) {
        return worker(&url.to_string_lossy(), |client, count| async move {
            let guard = client.fair_lock("bench:share").lock().await.expect("a turn");
            count.fetch_add(1, Ordering::Relaxed);
            guard.release().await.expect("still held");
        });
    }
    let server = Server::start(&main_flavour());
    println!("{}: ratios are fair lock / peer, medians of {ROUNDS} rounds", main_flavour().name);
    hand_offs(&server);
    two_processes(&server.url(), "48 to 50 %");
    server_time();
}

/// 64 tasks that want one lock all the time: hand-offs per second, so a high ratio is good.
fn hand_offs(server: &Server) {
    let runtime = runtime();
    let url = server.url();
    let client = runtime.block_on(Client::connect(&url)).expect("the server runs");
    let unfair = Arc::new(runtime.block_on(RedissonSteps::connect(&url, "bench:unfair")));
    let fair = Arc::new(runtime.block_on(RedissonFairSteps::connect(&url, "bench:fair-steps")));
    let ours = || {
        let lock = client.fair_lock("bench:fair");
        crowd(&runtime, Arc::new(AtomicU64::new(HAND_OFFS)), move || {
            let lock = lock.clone();
            async move { pass_through(&lock).await }
        })
    };
    let per_second = |time: Duration| HAND_OFFS as f64 / time.as_secs_f64();
    let unfair_steps = || {
        let steps = unfair.clone();
        crowd(&runtime, Arc::new(AtomicU64::new(HAND_OFFS)), move || {
            let steps = steps.clone();
            async move { steps.lock_and_unlock().await }
        })
    };
    let what = "hand-offs/s, Redisson's unfair steps";
    report(what, ours, unfair_steps, per_second, ">= 1.2");
    let fair_steps = || {
        let steps = fair.clone();
        crowd(&runtime, Arc::new(AtomicU64::new(HAND_OFFS)), move || {
            let steps = steps.clone();
            async move { steps.lock_and_unlock().await }
        })
    };
    report("hand-offs/s, Redisson's fair steps", ours, fair_steps, per_second, ">= 3");
    let plain = || {
        let lock = client.lock("bench:plain");
        crowd(&runtime, Arc::new(AtomicU64::new(HAND_OFFS)), move || {
            let lock = lock.clone();
            async move {
                lock.lock().await.expect("a turn").release().await.expect("still held");
            }
        })
    };
    report("hand-offs/s, our plain lock", ours, plain, per_second, "none");
}

async fn pass_through(lock: &FairLock) {
    lock.lock().await.expect("a turn").release().await.expect("still held");
}

/// What the server spends on a hand-off, with many and with few waiters: a low ratio is good.
fn server_time() {
    let runtime = runtime();
    let rounds: Vec<(f64, f64)> =
        (0..5).map(|_| (spent_us(&runtime, 10_000), spent_us(&runtime, 10))).collect();
    println!(
        "server time per hand-off, us: {:.1} with 10,000 waiters, {:.1} with 10, ratio {:.2} (goal: <= 1.3)",
        median(rounds.iter().map(|(many, _)| *many)),
        median(rounds.iter().map(|(_, few)| *few)),
        median(rounds.iter().map(|(many, few)| many / few)),
    );
}

/// Microseconds of script time per hand-off while so many wait.
fn spent_us(runtime: &Runtime, waiters: u64) -> f64 {
    let server = Server::start(&main_flavour());
    runtime.block_on(async {
        let builder = Client::builder(&server.url()).waiter_ttl(Duration::from_secs(600));
        let client = builder.connect().await.expect("the server runs");
        let lock = client.fair_lock("bench:many");
        let held = lock.lock().await.expect("free");
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..waiters + MEASURED {
            let lock = lock.clone();
            tasks.spawn(async move { lock.lock().await });
        }
        let queue = "redisson_lock_queue:{bench:many}";
        eventually(Duration::from_secs(60), "everybody waits", || {
            server.query::<u64>(&["LLEN", queue]) == waiters + MEASURED
        });
        server.reset_stats();
        held.release().await.expect("still held");
        for _ in 0..MEASURED {
            let guard = tasks.join_next().await.expect("somebody waits").expect("no panic");
            guard.expect("a turn").release().await.expect("still held");
        }
        let stats: String = server.query(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
        let field = |name: &str| -> f64 {
            let fields = line.expect("scripts were called").split([':', ',']);
            let value =
                fields.filter_map(|field| field.split_once('=')).find(|(key, _)| *key == name);
            value.expect("a field").1.parse().expect("a number")
        };
        field("usec") / field("calls")
    })
}

/// Hand-offs whose cost is measured.
const MEASURED: u64 = 300;
