//! What the reentrant lock costs, each figure as a ratio to a peer measured in the same run.
//!
//! `cargo xtask bench lock`: an uncontended pair against the bare client crate; 64 tasks that pass
//! one lock around against the steps of Redisson; the share of two processes. Rounds of the two
//! sides take turns, so that a machine that slows down slows both; the median counts.

mod measure;
mod peers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairlock::Client;
use fairlock_testkit::{Server, main_flavour};
use measure::{HAND_OFFS, ROUNDS, WORKER, crowd, report, runtime, spawned, two_processes, worker};
use peers::{BareScripts, RedissonSteps};

fn main() {
    if let Some(url) = std::env::var_os(WORKER) {
        return worker(&url.to_string_lossy(), |client, count| async move {
            let guard = client.lock("bench:share").lock().await.expect("a turn");
            count.fetch_add(1, Ordering::Relaxed);
            guard.release().await.expect("still held");
        });
    }
    let server = Server::start(&main_flavour());
    println!("{}: ratios are fairlock / peer, medians of {ROUNDS} rounds", main_flavour().name);
    uncontended(&server);
    hand_offs(&server);
    two_processes(&server.url(), ">= 30 %");
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

const PAIRS: u32 = 1_000;
