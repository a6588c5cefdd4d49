//! What the embedded store costs, as ratios to flock(2) and flock(1) in the same run.
//!
//! `cargo xtask bench file`. flock(2) keeps no queue, no owner, no lease and no token; it is the
//! floor. The peer locks by name, as fairlock does: open, flock, close. Beside it stands flock(2) on
//! a file that is open already: two system calls, less than any store can do.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fairlock::{BootTime, Client};
use fairlock_testkit::Scratch;
use rustix::fs::{FlockOperation, flock};

fn main() {
    if let (Some(kind), Some(place)) = (std::env::var_os(WORKER), std::env::var_os(PLACE)) {
        let number = std::env::var(NUMBER).unwrap_or_default();
        println!("{}", worker(&kind.to_string_lossy(), Path::new(&place), &number));
        return;
    }
    println!("medians of {ROUNDS} rounds; pairs per second, so a high ratio is good");
    pairs("one process", 1);
    pairs("four processes, in all", 4);
    whole_commands();
}

fn pairs(what: &str, processes: usize) {
    let rounds: Vec<[f64; 3]> = (0..ROUNDS)
        .map(|_| ["fairlock", "open", "name"].map(|kind| total(kind, processes)))
        .collect();
    let figure = |index: usize| median(rounds.iter().map(|round| round[index]));
    let ratio = |peer: usize| median(rounds.iter().map(|round| round[0] / round[peer]));
    println!("{what}: fairlock {:.0}", figure(0));
    println!(
        "  flock(2), file by name       {:>9.0}, ratio {:.2} (goal: >= 0.3)",
        figure(2),
        ratio(2)
    );
    println!("  flock(2), file open already  {:>9.0}, ratio {:.2}", figure(1), ratio(1));
}

/// Pairs per second of all processes together.
fn total(kind: &str, processes: usize) -> f64 {
    let scratch = Scratch::new();
    let workers: Vec<Child> = (0..processes)
        .map(|number| {
            Command::new(std::env::current_exe().expect("a running program has a file"))
                .env(WORKER, kind)
                .env(PLACE, scratch.path())
                .env(NUMBER, number.to_string())
                .stdout(Stdio::piped())
                .spawn()
                .expect("this program can be started again")
        })
        .collect();
    workers.into_iter().map(count_of).sum::<f64>() / TIME.as_secs_f64()
}

fn count_of(mut worker: Child) -> f64 {
    let output = BufReader::new(worker.stdout.take().expect("piped"));
    let count = output.lines().next().expect("a line").expect("text");
    worker.wait().expect("the worker ends");
    count.parse().expect("a number")
}

/// Locks and releases, each process its own lock; says how often.
fn worker(kind: &str, place: &Path, number: &str) -> u64 {
    let file = place.join(format!("file-{number}"));
    match kind {
        "open" => {
            let file = File::create(file).expect("a scratch folder can be written to");
            repeat(|| {
                flock(&file, FlockOperation::LockExclusive).expect("a lock");
                flock(&file, FlockOperation::Unlock).expect("no lock");
            })
        }
        "name" => repeat(|| {
            let file = File::create(&file).expect("a scratch folder can be written to");
            flock(&file, FlockOperation::LockExclusive).expect("a lock");
        }),
        _ => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let address = format!("file:{}", place.join("store").display());
            let client = runtime.block_on(Client::connect(&address)).expect("a store");
            let lock = client.lock(number);
            repeat(|| {
                runtime.block_on(async {
                    lock.lock().await.expect("a lock").release().await.expect("no lock");
                });
            })
        }
    }
}

fn repeat(mut pair: impl FnMut()) -> u64 {
    let end = BootTime::now();
    let mut count = 0;
    while end.until(BootTime::now()) < TIME {
        for _ in 0..20 {
            pair();
        }
        count += 20;
    }
    count
}

/// From start to end, the program that does nothing: milliseconds, so a low ratio is good.
fn whole_commands() {
    let scratch = Scratch::new();
    let store = format!("file:{}", scratch.path().join("store").display());
    let file = scratch.path().join("file");
    let ours = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairlock"));
        milliseconds(command.args(["run", "--store", &store, "x", "true"]))
    };
    let peer = || milliseconds(Command::new("flock").arg(&file).arg("true"));
    ours();
    peer();
    let rounds: Vec<(f64, f64)> = (0..ROUNDS * 5).map(|_| (ours(), peer())).collect();
    println!(
        "whole commands: fairlock run x true {:.1} ms, flock FILE true {:.1} ms, ratio {:.2} (goal: <= 3)",
        median(rounds.iter().map(|round| round.0)),
        median(rounds.iter().map(|round| round.1)),
        median(rounds.iter().map(|round| round.0 / round.1)),
    );
}

fn milliseconds(command: &mut Command) -> f64 {
    let start = BootTime::now();
    assert!(command.status().expect("the program can be started").success());
    start.until(BootTime::now()).as_secs_f64() * 1e3
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

const WORKER: &str = "FAIRLOCK_BENCH_WORKER";
const PLACE: &str = "FAIRLOCK_BENCH_PLACE";
const NUMBER: &str = "FAIRLOCK_BENCH_NUMBER";
const ROUNDS: usize = 7;
const TIME: Duration = Duration::from_millis(500);
