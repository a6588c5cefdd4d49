//! What is true of a queue with nobody but fairlock in it, whatever its clients do.

use std::collections::BTreeSet;

use fairlock::{Client, Guard, Options};
use fairlock_testkit::{ClientKind, Rng, Seed, Server, main_flavour};
use redis::Connection;

use super::queue::{LIST, NAME, PLACES, SCORES, client, is_drained};
use crate::faults::scene::{in_time, until};
use crate::patience::{ms, pass, secs};

/// The queue as it stands in the store at one moment.
type Snapshot = (i64, Vec<String>, Vec<(String, i64)>, Vec<String>, [i64; 3]);

fn check(connection: &mut Connection) {
    let mut look = redis::cmd("EVAL");
    look.arg(include_str!("snapshot.lua")).arg(3).arg(LIST).arg(SCORES).arg(PLACES);
    let (now_ms, list, scores, places, ends): Snapshot =
        look.query(connection).expect("the server answers");
    let entries: BTreeSet<&String> = list.iter().collect();
    assert_eq!(entries.len(), list.len(), "somebody is in there twice: {list:?}");
    let scored: BTreeSet<&String> = scores.iter().map(|(owner, _)| owner).collect();
    assert_eq!(scored, entries, "list and scores");
    assert_eq!(places.iter().collect::<BTreeSet<_>>(), entries, "list and places");
    for (owner, score) in &scores {
        assert!(*score <= now_ms + 120_000, "{owner}: {} ms ahead", score - now_ms);
    }
    assert!(!ends.contains(&-1), "no end: {ends:?}");
    assert!(list.is_empty() || ends.iter().max().unwrap() - ends.iter().min().unwrap() <= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_scores_and_places_agree_after_every_step() {
    let seed = Seed::from_env_or_random("FAIRLOCK_SEED");
    let _announcement = seed.announce("list_scores_and_places_agree_after_every_step");
    let mut rng = seed.rng();
    let server = Server::start(&main_flavour());
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(client(&server.url(), ms(600)).await);
    }
    let mut connection = server.connection();
    let mut waiting = Vec::new();
    for _ in 0..400 {
        step(&mut rng, &server, &clients, &mut waiting).await;
        check(&mut connection);
        // Others may be in the middle of something, or done with it.
        pass(ms(rng.below(8))).await;
        check(&mut connection);
    }
    for waiting in &waiting {
        waiting.abort();
    }
    drop(waiting);
    for client in clients {
        in_time("closing", client.close()).await;
    }
    until("nothing is left but the record", || is_drained(&server)).await;
}

type Waiting = tokio::task::JoinHandle<()>;

async fn step(rng: &mut Rng, server: &Server, clients: &[Client], waiting: &mut Vec<Waiting>) {
    let lock = rng.pick(clients).fair_lock(NAME);
    waiting.retain(|waiting| !waiting.is_finished());
    match rng.below(20) {
        0..=8 => {
            let hold = ms(rng.below(20));
            let wait = rng.chance(1, 4).then(|| ms(1 + rng.below(100)));
            let options = wait.map_or(Options::new(), |wait| Options::new().wait(wait));
            waiting.push(tokio::spawn(async move {
                if let Ok(guard) = lock.with(options).lock().await {
                    work(guard, hold).await;
                }
            }));
        }
        9..=13 if !waiting.is_empty() => {
            let index = rng.below(waiting.len() as u64) as usize;
            waiting.swap_remove(index).abort();
        }
        14 | 15 => drop(lock.try_lock().await.unwrap()),
        16 => {
            lock.force_unlock().await.unwrap();
        }
        // Dies, or looks like it: nobody releases it.
        17 => drop(lock.with(Options::new().lease(ms(100)).wait(secs(1))).lock().await),
        18 => {
            server.kill_clients(ClientKind::PubSub);
        }
        _ => pass(ms(rng.below(50))).await,
    }
}

async fn work(guard: Guard, hold: std::time::Duration) {
    pass(hold).await;
    // It may have been broken meanwhile.
    guard.release().await.ok();
}
