//! One at a time, whoever it is.

use std::fs;

use fairlock_testkit::{Peer, Pending, Scratch};

use crate::stage::Stage;
use crate::table::Scenario;

pub(crate) const SCENARIOS: [Scenario; 2] = [
    Scenario::once("exclusion: 2 JVMs x 4, 2 Rust processes x 4", plain),
    Scenario::once("fair exclusion: 2 JVMs x 4, 2 Rust processes x 4", fair),
];

fn plain(stage: &Stage) -> String {
    everybody_adds(stage, "lock")
}

fn fair(stage: &Stage) -> String {
    everybody_adds(stage, "fair")
}

/// Everybody reads a number from a file, adds one and writes it back, under the lock.
fn everybody_adds(stage: &Stage, kind: &str) -> String {
    let (name, scratch) = (stage.new_name("counted"), Scratch::new());
    let file = scratch.path().join("number");
    fs::write(&file, "0").unwrap();
    let command = format!("add {kind} {name} {} {ROUNDS_OF_ONE}", file.display());
    let begin = |peer: &Peer| -> Vec<Pending> {
        (0..THREADS).map(|_| peer.begin(&stage.new_name("thread"), &command)).collect()
    };
    let peers = stage.java.iter().chain(&stage.rust);
    let begun: Vec<Pending> = peers.flat_map(begin).collect();
    let workers = begun.len() as u64;
    for pending in begun {
        assert_eq!(pending.answer().text, "done");
    }
    let counted: u64 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    assert_eq!(counted, workers * ROUNDS_OF_ONE);
    assert_eq!(stage.query::<u64>(&["EXISTS", &name]), 0);
    format!("{counted} rounds")
}

const THREADS: usize = 4;
/// 2,000 rounds by 16 workers.
const ROUNDS_OF_ONE: u64 = 125;
