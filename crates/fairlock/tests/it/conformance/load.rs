//! Exclusion under load: what only a lock protects stays exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fairlock::{Client, Guard, LockError, Options};
use fairlock_testkit::{Recorder, Rng, Seed, monotonic_ns};
use tokio::task::{JoinSet, yield_now};

use super::redisson::channels;
use crate::actor::Actor;
use crate::patience::{eventually, ms, secs, soon, within};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    tasks_of_two_clients_exclude_each_other,
    a_hundred_clients_exclude_each_other,
    tasks_of_two_clients_exclude_each_other_with_a_fair_lock,
    a_hundred_clients_exclude_each_other_with_a_fair_lock,
    tasks_that_walk_over_many_locks_all_arrive,
    tasks_that_only_try_never_lose_what_they_got,
    exclusion_holds_whatever_the_tasks_do,
);

/// Something that is right only if one at a time uses it.
#[derive(Default)]
struct Shelf {
    number: AtomicU64,
    recorder: Recorder,
}

impl Shelf {
    /// Adds one, in steps, on purpose: only the lock makes them one.
    async fn add_one(&self, guard: &Guard) {
        let start = monotonic_ns();
        let number = self.number.load(Ordering::Relaxed);
        yield_now().await;
        self.number.store(number + 1, Ordering::Relaxed);
        self.recorder.record(guard.token().get(), start, monotonic_ns());
    }

    fn check(&self, rounds: u64) {
        assert_eq!(self.number.load(Ordering::Relaxed), rounds);
        self.recorder.check().unwrap();
    }
}

/// Which lock they use.
#[derive(Clone, Copy)]
enum Kind {
    Plain,
    Fair,
}

impl Kind {
    async fn lock(self, client: &Client) -> Guard {
        match self {
            Self::Plain => client.lock("a").lock().await.unwrap(),
            Self::Fair => client.fair_lock("a").lock().await.unwrap(),
        }
    }
}

async fn tasks_of_two_clients_exclude_each_other(store: Store) {
    two_clients_count(store, Kind::Plain).await;
}

async fn tasks_of_two_clients_exclude_each_other_with_a_fair_lock(store: Store) {
    two_clients_count(store, Kind::Fair).await;
}

async fn two_clients_count(store: Store, kind: Kind) {
    let shelf = Arc::new(Shelf::default());
    let mut tasks = JoinSet::new();
    for client in [store.client().await, store.client().await] {
        for _ in 0..16 {
            let (client, shelf) = (client.clone(), shelf.clone());
            tasks.spawn(async move {
                for _ in 0..100 {
                    let guard = kind.lock(&client).await;
                    shelf.add_one(&guard).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    within(secs(60), "all rounds are done", tasks.join_all()).await;
    shelf.check(3_200);
}

async fn a_hundred_clients_exclude_each_other(store: Store) {
    a_hundred_clients_count(store, Kind::Plain).await;
}

async fn a_hundred_clients_exclude_each_other_with_a_fair_lock(store: Store) {
    a_hundred_clients_count(store, Kind::Fair).await;
}

async fn a_hundred_clients_count(store: Store, kind: Kind) {
    let shelf = Arc::new(Shelf::default());
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(store.client().await);
    }
    for client in clients {
        let shelf = shelf.clone();
        tasks.spawn(async move {
            let guard = kind.lock(&client).await;
            shelf.add_one(&guard).await;
            guard.release().await.unwrap();
        });
    }
    within(secs(60), "everybody has had the lock", tasks.join_all()).await;
    shelf.check(100);
}

async fn tasks_that_walk_over_many_locks_all_arrive(store: Store) {
    let shelves: Arc<Vec<Shelf>> = Arc::new((0..20).map(|_| Shelf::default()).collect());
    let mut tasks = JoinSet::new();
    for client in [store.client().await, store.client().await] {
        for patience in [ms(60_000), ms(2)] {
            let (client, shelves) = (client.clone(), shelves.clone());
            tasks.spawn(async move {
                for round in 0..200 {
                    let lock = client.lock(format!("shelf {}", round % 20));
                    loop {
                        match lock.with(Options::new().wait(patience)).lock().await {
                            Ok(guard) => {
                                shelves[round % 20].add_one(&guard).await;
                                break guard.release().await.map(drop).unwrap();
                            }
                            Err(error) => assert!(matches!(error, LockError::TimedOut { .. })),
                        }
                    }
                }
            });
        }
    }
    within(secs(60), "everybody has arrived", tasks.join_all()).await;
    shelves.iter().for_each(|shelf| shelf.check(40));
}

async fn tasks_that_only_try_never_lose_what_they_got(store: Store) {
    let lock = store.client().await.lock("a");
    let shelf = Arc::new(Shelf::default());
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let (lock, shelf) = (lock.clone(), shelf.clone());
        tasks.spawn(async move {
            let mut rounds = 0;
            for _ in 0..200 {
                if let Some(guard) = lock.try_lock().await.unwrap() {
                    shelf.add_one(&guard).await;
                    assert!(guard.is_held());
                    guard.release().await.unwrap();
                    rounds += 1;
                }
            }
            rounds
        });
    }
    let rounds = within(secs(60), "all have tried", tasks.join_all()).await;
    shelf.check(rounds.iter().sum());
    assert!(rounds.iter().sum::<u64>() > 0, "somebody gets it");
}

async fn exclusion_holds_whatever_the_tasks_do(store: Store) {
    let seed = Seed::from_env_or_random("FAIRLOCK_SEED");
    let _replay = seed.announce("exclusion_holds_whatever_the_tasks_do");
    let mut rng = seed.rng();
    let (alice, bob) = (store.client().await, store.client().await);
    let shelf = Arc::new(Shelf::default());
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let client = if number % 2 == 0 { alice.clone() } else { bob.clone() };
        let (shelf, mut rng) = (shelf.clone(), rng.fork());
        tasks.spawn(async move {
            let mut rounds = 0;
            for _ in 0..100 {
                rounds += u64::from(one_round(&client, &shelf, &mut rng).await);
            }
            rounds
        });
    }
    let rounds = within(secs(60), "all rounds are done", tasks.join_all()).await;
    shelf.check(rounds.iter().sum());

    soon("the lock is free", bob.lock("a").lock()).await.unwrap().release().await.unwrap();
    if let Some(server) = store.server() {
        eventually("nobody listens any more", async || channels(server).is_empty()).await;
        assert_eq!(server.keys(), ["fairlock:{a}:grant"]);
    }
}

/// Gets the lock or not, in one of many ways, and gives it back in one of many ways.
async fn one_round(client: &Client, shelf: &Shelf, rng: &mut Rng) -> bool {
    let lock = client.lock("a");
    let limit = ms(rng.below(5));
    let guard = match rng.below(6) {
        0 => lock.try_lock().await.unwrap(),
        1 => lock.try_lock_as(&client.owner()).await.unwrap(),
        2 => lock.with(Options::new().wait(limit)).lock().await.ok(),
        3 => tokio::time::timeout(limit, lock.lock()).await.ok().map(Result::unwrap),
        4 => Some(lock.lock_as(&client.owner()).await.unwrap()),
        _ => Some(lock.lock().await.unwrap()),
    };
    let Some(guard) = guard else { return false };
    shelf.add_one(&guard).await;
    let again = match rng.below(4) {
        0 => Some(guard.reenter().await.unwrap()),
        1 => tokio::time::timeout(limit, guard.reenter()).await.ok().map(Result::unwrap),
        _ => None,
    };
    match rng.below(3) {
        0 => drop((guard, again)),
        1 => drop(tokio::time::timeout(limit, guard.release()).await),
        _ => {
            drop(again);
            guard.release().await.unwrap();
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_exclude_each_other() {
    let store = Store::redis();
    let file = std::env::temp_dir().join(format!("fairlock-count-{}", std::process::id()));
    std::fs::write(&file, "0").unwrap();
    let path = file.to_str().unwrap().to_owned();
    let url = store.url();
    let counting = tokio::task::spawn_blocking(move || {
        let mut actors: Vec<Actor> = (0..3).map(|_| Actor::start(&url, secs(30))).collect();
        actors.iter_mut().for_each(|actor| actor.tell(&format!("loop a {path} 100")));
        for actor in &mut actors {
            assert_eq!(actor.answer(), "done");
        }
    });
    within(secs(60), "all processes are done", counting).await.unwrap();
    let count = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(count, "300");
}
