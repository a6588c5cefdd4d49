//! First come, first served: many waiters, many rounds. The order of arrival is what the store
//! says it is.

use fairlock::OwnerId;
use fairlock_testkit::Seed;
use tokio::task::JoinHandle;

use super::queue::{NAME, Served, clients, passes, queued};
use crate::patience::{ms, pass, secs, within};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    many_are_served_in_the_order_of_their_arrival,
    the_order_stands_while_some_leave_at_random,
    the_order_stands_through_a_hold_of_many_heartbeats,
    two_of_one_client_take_turns,
);

async fn many_are_served_in_the_order_of_their_arrival(store: Store) {
    let clients = clients(&store, 4, secs(10)).await;
    for _ in 0..rounds(&store, 50) {
        let held = clients[0].fair_lock(NAME).lock().await.unwrap();
        let (served, mut waiting) = (Served::default(), Vec::new());
        for number in 0..WAITERS {
            waiting.push(passes(&clients[number % 4].fair_lock(NAME), &served).await);
        }
        let arrived = queued(&clients[0].fair_lock(NAME), WAITERS).await;
        held.release().await.unwrap();
        all_are_served(waiting).await;
        assert_eq!(*served.lock().unwrap(), arrived);
    }
}

async fn the_order_stands_while_some_leave_at_random(store: Store) {
    let seed = Seed::from_env_or_random("FAIRLOCK_SEED");
    let _announcement = seed.announce("the_order_stands_while_some_leave_at_random");
    let mut rng = seed.rng();
    let clients = clients(&store, 4, secs(10)).await;
    for _ in 0..rounds(&store, 20) {
        let held = clients[0].fair_lock(NAME).lock().await.unwrap();
        let (served, mut staying, mut leaving) = (Served::default(), Vec::new(), Vec::new());
        for number in 0..WAITERS {
            let waiting = passes(&clients[number % 4].fair_lock(NAME), &served).await;
            if rng.chance(1, 3) { &mut leaving } else { &mut staying }.push(waiting);
        }
        let arrived = queued(&clients[0].fair_lock(NAME), WAITERS).await;
        let (early, late) = leaving.split_at(rng.below(leaving.len() as u64 + 1) as usize);
        early.iter().for_each(JoinHandle::abort);
        held.release().await.unwrap();
        for waiting in late {
            tokio::task::yield_now().await;
            waiting.abort();
        }
        let stayed = staying.len();
        all_are_served(staying).await;
        let served: Vec<OwnerId> = served.lock().unwrap().clone();
        let in_order: Vec<OwnerId> =
            arrived.into_iter().filter(|owner| served.contains(owner)).collect();
        assert_eq!(served, in_order);
        assert!(served.len() >= stayed);
        queued(&clients[0].fair_lock(NAME), 0).await;
    }
}

async fn the_order_stands_through_a_hold_of_many_heartbeats(store: Store) {
    let waiter_ttl = ms(300);
    let clients = clients(&store, 4, waiter_ttl).await;
    let held = clients[0].fair_lock(NAME).lock().await.unwrap();
    let (served, mut waiting) = (Served::default(), Vec::new());
    for number in 0..WAITERS {
        waiting.push(passes(&clients[number % 4].fair_lock(NAME), &served).await);
    }
    let arrived = queued(&clients[0].fair_lock(NAME), WAITERS).await;
    pass(waiter_ttl * 20).await;
    assert_eq!(queued(&clients[0].fair_lock(NAME), WAITERS).await, arrived);
    held.release().await.unwrap();
    all_are_served(waiting).await;
    assert_eq!(*served.lock().unwrap(), arrived);
}

/// The one who was served comes back before the other one has noticed that it is served.
async fn two_of_one_client_take_turns(store: Store) {
    let client = clients(&store, 1, secs(10)).await.remove(0);
    let (served, mut waiting) = (Served::default(), Vec::new());
    for _ in 0..2 {
        let (lock, served) = (client.fair_lock(NAME), served.clone());
        waiting.push(tokio::spawn(async move {
            for _ in 0..300 {
                let guard = lock.lock().await.unwrap();
                served.lock().unwrap().push(guard.owner_id().clone());
                guard.release().await.unwrap();
            }
        }));
    }
    all_are_served(waiting).await;
    assert_eq!(served.lock().unwrap().len(), 600);
}

async fn all_are_served(waiting: Vec<JoinHandle<()>>) {
    for waiting in waiting {
        within(secs(30), "everybody is served", waiting).await.unwrap();
    }
}

/// Fewer where each takes longer.
fn rounds(store: &Store, in_memory: usize) -> usize {
    match store {
        Store::Memory(_) => in_memory,
        Store::File(_) | Store::Redis(_) => in_memory / 5,
    }
}

const WAITERS: usize = 64;
