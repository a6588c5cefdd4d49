//! Those who leave, or are sent away, are out of the queue at once.

use fairlock::{LockError, Options};

use super::queue::{JAVA_GHOST, LIST, NAME, SCORES, clients, queued, waits};
use crate::faults::scene::until;
use crate::patience::{Stopwatch, ms, secs, soon};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    a_client_that_closes_leaves_the_queue,
    one_that_shares_a_client_with_a_broken_holder_is_served,
);

async fn a_client_that_closes_leaves_the_queue(store: Store) {
    let clients = clients(&store, 2, secs(60)).await;
    let (here, elsewhere) = (clients[0].fair_lock(NAME), clients[1].fair_lock(NAME));
    let held = here.lock().await.unwrap();
    let mut closed = Vec::new();
    for number in 0..4 {
        closed.push(waits(&elsewhere).await);
        queued(&here, number + 1).await;
    }
    let behind = waits(&here).await;
    queued(&here, 5).await;
    soon("closing", clients[1].clone().close()).await;
    let info = here.inspect().await.unwrap();
    assert_eq!(info.waiters.unwrap().len(), 1, "those of a closed client are still there");
    for waiting in closed {
        let refused = soon("told", waiting).await.unwrap();
        assert!(matches!(refused, Err(LockError::Closed)), "{refused:?}");
    }
    held.release().await.unwrap();
    soon("its turn", behind).await.unwrap().unwrap().release().await.unwrap();
}

async fn one_that_shares_a_client_with_a_broken_holder_is_served(store: Store) {
    let clients = clients(&store, 2, secs(3)).await;
    let (here, elsewhere) = (clients[0].fair_lock(NAME), clients[1].fair_lock(NAME));
    let held = here.lock().await.unwrap();
    let waiting = waits(&here).await;
    queued(&here, 1).await;
    let watch = Stopwatch::start();
    assert!(elsewhere.force_unlock().await.unwrap());
    let guard = soon("its turn", waiting).await.unwrap().unwrap();
    println!("served {:?} after the break", watch.elapsed());
    assert!(held.release().await.is_err());
    guard.release().await.unwrap();
}

/// Whatever their wait times were: until when those behind count as alive for Redisson stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_leaves_takes_nothing_from_those_behind_it() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let clients = clients(&store, 2, secs(10)).await;
    let (here, elsewhere) = (clients[0].fair_lock(NAME), clients[1].fair_lock(NAME));
    let held = here.lock().await.unwrap();
    let hasty = waits(&elsewhere.with(Options::new().wait(secs(1)))).await;
    queued(&here, 1).await;
    let patient = waits(&elsewhere.with(Options::new().wait(secs(3_600)))).await;
    queued(&here, 2).await;
    let endless = waits(&here).await;
    let behind = queued(&here, 3).await.split_off(1);
    let scores = || -> Vec<f64> {
        behind.iter().map(|owner| server.query(&["ZSCORE", SCORES, owner.as_str()])).collect()
    };
    let before = scores();
    let outcome = soon("the wait time ends", hasty).await.unwrap();
    assert!(matches!(outcome, Err(LockError::TimedOut { .. })), "{outcome:?}");
    assert_eq!(queued(&here, 2).await, behind);
    let after = scores();
    assert!(
        before.iter().zip(&after).all(|(before, after)| before <= after),
        "{before:?} {after:?}"
    );
    patient.abort();
    assert_eq!(queued(&here, 1).await, behind[1..]);
    assert!(server.query::<f64>(&["ZSCORE", SCORES, behind[1].as_str()]) >= after[1]);
    held.release().await.unwrap();
    let watch = Stopwatch::start();
    soon("its turn", endless).await.unwrap().unwrap().release().await.unwrap();
    assert!(watch.elapsed() < ms(1_000), "{:?}", watch.elapsed());
}

/// With Redisson in the queue every waiter has a channel of its own, for as long as it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_leaves_stops_listening_to_redisson() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let lock = clients(&store, 1, secs(3)).await.remove(0).fair_lock(NAME);
    let held = lock.lock().await.unwrap();
    server.query::<()>(&["RPUSH", LIST, JAVA_GHOST]);
    server.query::<()>(&["ZADD", SCORES, "99999999999999", JAVA_GHOST]);
    let listening =
        || -> Vec<String> { server.query(&["PUBSUB", "CHANNELS", "redisson_lock__channel:*"]) };
    let (stays, leaves) = (waits(&lock).await, waits(&lock).await);
    queued(&lock, 3).await;
    until("both listen", || listening().len() == 2).await;
    leaves.abort();
    until("one of them listens", || listening().len() == 1).await;
    server.query::<()>(&["LREM", LIST, "0", JAVA_GHOST]);
    server.query::<()>(&["ZREM", SCORES, JAVA_GHOST]);
    held.release().await.unwrap();
    soon("its turn", stays).await.unwrap().unwrap().release().await.unwrap();
    until("nobody listens any more", || listening().is_empty()).await;
}
