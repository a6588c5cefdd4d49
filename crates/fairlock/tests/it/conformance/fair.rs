//! The fair lock: first come, first served.

use std::sync::{Arc, Mutex};

use fairlock::{Client, FairLock, Guard, LockError, LostCause, Options, ReleaseError};
use fairlock_testkit::Seed;
use tokio::task::JoinHandle;

use crate::patience::{Stopwatch, eventually, ms, pass, secs, soon, start, within};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    lock_reenter_release,
    everybody_sees_whether_it_is_held,
    waiters_are_served_in_the_order_of_their_arrival,
    those_who_leave_do_not_disturb_the_order,
    try_lock_never_jumps_the_queue,
    trying_leaves_nothing_behind,
    a_wait_time_of_zero_tries_once,
    a_wait_time_that_ends_leaves_the_queue,
    a_wait_time_ends_also_behind_a_closed_client,
    a_lease_that_ends_hands_the_lock_on,
    the_lock_of_a_closed_client_goes_on_when_its_lease_has_ended,
    waiters_keep_their_places_through_a_long_hold,
    breaking_the_lock_serves_the_first_in_the_queue,
    breaking_the_lock_frees_it_if_nobody_waits,
    what_was_granted_is_held_for_as_long_as_it_was_asked_for,
    the_head_may_leave_while_it_is_served,
    owners_enter_again,
    nothing_stays_behind,
    a_place_in_line_can_be_watched,
    a_list_counts_those_who_wait,
    any_bytes_are_a_name,
);

/// The order in which waiters got the lock.
type Served = Arc<Mutex<Vec<usize>>>;

/// Two clients whose waiters show that they live every 200 ms.
async fn pair(store: &Store) -> (Client, Client) {
    let client = || store.client_with(|builder| builder.waiter_ttl(TTL));
    (client().await, client().await)
}

/// So many wait in the store's queue.
async fn until_queued(store: &Store, count: usize) {
    let lock = store.client().await.fair_lock("a");
    eventually("so many are queued", async || {
        lock.inspect().await.unwrap().waiters.is_some_and(|waiters| waiters.len() == count)
    })
    .await;
}

/// One who waits: notes its number once it has the lock.
async fn line_up(
    lock: &FairLock,
    number: usize,
    served: &Served,
) -> JoinHandle<Result<(), LockError>> {
    let (lock, served) = (lock.clone(), served.clone());
    start(async move {
        let guard = lock.lock().await?;
        served.lock().unwrap().push(number);
        guard.release().await.expect("nobody takes it away");
        Ok(())
    })
    .await
}

async fn waits(lock: FairLock) -> JoinHandle<Result<Guard, LockError>> {
    start(async move { lock.lock().await }).await
}

async fn lock_reenter_release(store: Store) {
    let (alice, bob) = pair(&store).await;
    let guard = alice.fair_lock("a").lock().await.unwrap();
    assert!(guard.is_held() && guard.token().get() > 0);
    assert!(bob.fair_lock("a").try_lock().await.unwrap().is_none());
    let again = guard.reenter().await.unwrap();
    assert_eq!(alice.fair_lock("a").inspect().await.unwrap().holds, 2);
    assert_eq!(guard.release().await.unwrap().holds_left(), 1);
    assert!(again.is_held());
    let token = again.token();
    again.release().await.unwrap();
    let next = bob.fair_lock("a").try_lock().await.unwrap().expect("free");
    assert!(next.token() > token);
    next.release().await.unwrap();
    assert!(!bob.fair_lock("a").is_locked().await.unwrap());
}

async fn everybody_sees_whether_it_is_held(store: Store) {
    let (alice, bob) = pair(&store).await;
    let is_locked = async || {
        let seen = [alice.fair_lock("a").is_locked().await, bob.fair_lock("a").is_locked().await];
        let [alice, bob] = seen.map(Result::unwrap);
        assert_eq!(alice, bob);
        alice
    };
    assert!(!is_locked().await);
    let guard = alice.fair_lock("a").lock().await.unwrap();
    assert!(guard.is_held() && is_locked().await);
    let info = bob.fair_lock("a").inspect().await.unwrap();
    assert_eq!(info.owner.as_ref(), Some(guard.owner_id()));
    guard.release().await.unwrap();
    assert!(!is_locked().await);
}

async fn waiters_are_served_in_the_order_of_their_arrival(store: Store) {
    let (alice, bob) = pair(&store).await;
    for round in 0..3 {
        let held = alice.fair_lock("a").lock().await.unwrap();
        let (served, mut waiting) = (Served::default(), Vec::new());
        for number in 0..20 {
            let client = if (number * 7 + round) % 3 == 0 { &alice } else { &bob };
            waiting.push(line_up(&client.fair_lock("a"), number, &served).await);
            until_queued(&store, number + 1).await;
        }
        held.release().await.unwrap();
        for waiting in waiting {
            soon("everybody is served", waiting).await.unwrap().unwrap();
        }
        assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
    }
}

async fn those_who_leave_do_not_disturb_the_order(store: Store) {
    let (alice, bob) = pair(&store).await;
    let seed = Seed::from_env_or_random("FAIRLOCK_SEED");
    let _announcement = seed.announce("those_who_leave_do_not_disturb_the_order");
    let mut rng = seed.rng();
    let held = alice.fair_lock("a").lock().await.unwrap();
    let (served, mut staying, mut leaving) = (Served::default(), Vec::new(), Vec::new());
    for number in 0..24 {
        let client = if rng.chance(1, 2) { &alice } else { &bob };
        let waiting = line_up(&client.fair_lock("a"), number, &served).await;
        until_queued(&store, number + 1).await;
        match rng.chance(1, 3) {
            true => leaving.push(waiting),
            false => staying.push((number, waiting)),
        }
    }
    leaving.iter().for_each(JoinHandle::abort);
    until_queued(&store, staying.len()).await;
    held.release().await.unwrap();
    let mut expected = Vec::new();
    for (number, waiting) in staying {
        expected.push(number);
        soon("everybody is served", waiting).await.unwrap().unwrap();
    }
    assert_eq!(*served.lock().unwrap(), expected);
}

async fn try_lock_never_jumps_the_queue(store: Store) {
    let (alice, bob) = pair(&store).await;
    let held = alice.fair_lock("a").lock().await.unwrap();
    let waiting = waits(bob.fair_lock("a")).await;
    until_queued(&store, 1).await;
    held.release().await.unwrap();
    assert!(alice.fair_lock("a").try_lock().await.unwrap().is_none());
    let guard = soon("the waiter is served", waiting).await.unwrap().unwrap();
    assert!(alice.fair_lock("a").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(alice.fair_lock("a").try_lock().await.unwrap().is_some());
}

async fn trying_leaves_nothing_behind(store: Store) {
    let (alice, bob) = pair(&store).await;
    let short = alice.fair_lock("a").with(Options::new().lease(ms(500)));
    let held = short.try_lock().await.unwrap().expect("free");
    for client in [&alice, &bob, &alice] {
        assert!(client.fair_lock("a").try_lock().await.unwrap().is_none());
    }
    until_queued(&store, 0).await;
    held.release().await.unwrap();
    let held = short.try_lock().await.unwrap().expect("nobody is in the way");
    assert!(bob.fair_lock("a").try_lock().await.unwrap().is_none());
    eventually("the lease has ended", async || {
        bob.fair_lock("a").try_lock().await.unwrap().is_some()
    })
    .await;
    assert!(!held.is_held());
}

async fn a_wait_time_of_zero_tries_once(store: Store) {
    let (alice, bob) = pair(&store).await;
    let lock = bob.fair_lock("a").with(Options::new().wait(ms(0)));
    for _ in 0..20 {
        soon("a free lock is taken", lock.lock()).await.unwrap().release().await.unwrap();
    }
    let held = alice.fair_lock("a").lock().await.unwrap();
    let error = soon("a held one is not waited for", lock.lock()).await.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    until_queued(&store, 0).await;
    held.release().await.unwrap();
}

async fn a_wait_time_that_ends_leaves_the_queue(store: Store) {
    let (alice, bob) = pair(&store).await;
    let held = alice.fair_lock("a").lock().await.unwrap();
    let watch = Stopwatch::start();
    let impatient = bob.fair_lock("a").with(Options::new().wait(ms(300)));
    let error = impatient.lock().await.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    assert!(watch.elapsed() >= ms(300));
    until_queued(&store, 0).await;
    held.release().await.unwrap();
    drop(alice.fair_lock("a").try_lock().await.unwrap().expect("nobody is in the way"));
}

async fn a_wait_time_ends_also_behind_a_closed_client(store: Store) {
    let (alice, bob) = pair(&store).await;
    let _orphan = alice.fair_lock("a").lock().await.unwrap();
    alice.close().await;
    let watch = Stopwatch::start();
    let impatient = bob.fair_lock("a").with(Options::new().wait(ms(300)));
    let error = soon("the wait time ends", impatient.lock()).await.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    assert!(watch.elapsed() >= ms(300), "{:?}", watch.elapsed());
    until_queued(&store, 0).await;
}

async fn a_lease_that_ends_hands_the_lock_on(store: Store) {
    let (alice, bob) = pair(&store).await;
    let short = alice.fair_lock("a").with(Options::new().lease(ms(500)));
    let held = short.lock().await.unwrap();
    let waiting = waits(bob.fair_lock("a")).await;
    let guard = within(secs(3), "served when the lease has ended", waiting).await.unwrap().unwrap();
    assert!(!held.is_held());
    let ReleaseError::Lost(lost) = held.release().await.unwrap_err() else { panic!() };
    assert_eq!(lost.cause, LostCause::LeaseEnded);
    assert!(guard.is_held());
    let owner = bob.fair_lock("a").inspect().await.unwrap().owner;
    assert_eq!(owner.as_ref(), Some(guard.owner_id()), "a late release takes nothing away");
}

async fn the_lock_of_a_closed_client_goes_on_when_its_lease_has_ended(store: Store) {
    let alice = store.client_with(|builder| builder.lease(TTL)).await;
    let (_, bob) = pair(&store).await;
    let orphan = alice.fair_lock("a").lock().await.unwrap();
    let first = waits(bob.fair_lock("a")).await;
    until_queued(&store, 1).await;
    let second = waits(bob.fair_lock("a")).await;
    until_queued(&store, 2).await;
    soon("closed", alice.close()).await;
    let first = within(TTL + secs(3), "the lease has ended", first).await.unwrap().unwrap();
    assert!(first.token() > orphan.token());
    assert!(!second.is_finished());
    first.release().await.unwrap();
    soon("then the second", second).await.unwrap().unwrap().release().await.unwrap();
}

async fn waiters_keep_their_places_through_a_long_hold(store: Store) {
    let (alice, bob) = pair(&store).await;
    let held = alice.fair_lock("a").lock().await.unwrap();
    let (served, mut waiting) = (Served::default(), Vec::new());
    for number in 0..6 {
        let client = if number % 2 == 0 { &alice } else { &bob };
        waiting.push(line_up(&client.fair_lock("a"), number, &served).await);
        until_queued(&store, number + 1).await;
    }
    pass(TTL * 6).await;
    until_queued(&store, 6).await;
    held.release().await.unwrap();
    for waiting in waiting {
        soon("everybody is served", waiting).await.unwrap().unwrap();
    }
    assert_eq!(*served.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

async fn breaking_the_lock_serves_the_first_in_the_queue(store: Store) {
    let (alice, bob) = pair(&store).await;
    let held = alice.fair_lock("a").lock().await.unwrap();
    let first = waits(bob.fair_lock("a")).await;
    until_queued(&store, 1).await;
    let second = waits(alice.fair_lock("a")).await;
    until_queued(&store, 2).await;
    assert!(bob.fair_lock("a").force_unlock().await.unwrap());
    let first = soon("the first is served", first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    first.release().await.unwrap();
    let second = soon("then the second", second).await.unwrap().unwrap();
    assert!(held.release().await.is_err(), "it was broken");
    assert!(second.is_held());
    second.release().await.unwrap();
    assert!(!bob.fair_lock("a").force_unlock().await.unwrap());
}

async fn breaking_the_lock_frees_it_if_nobody_waits(store: Store) {
    let (alice, bob) = pair(&store).await;
    let broken = alice.fair_lock("a").lock().await.unwrap();
    assert!(bob.fair_lock("a").force_unlock().await.unwrap());
    assert!(!alice.fair_lock("a").is_locked().await.unwrap());
    assert!(!bob.fair_lock("a").is_locked().await.unwrap());
    let next = alice.fair_lock("a").try_lock().await.unwrap().expect("it is free");
    assert!(next.token() > broken.token());
    assert!(broken.release().await.is_err());
    assert!(next.is_held());
}

async fn what_was_granted_is_held_for_as_long_as_it_was_asked_for(store: Store) {
    let (alice, bob) = pair(&store).await;
    for options in [Options::new(), Options::new().lease(TTL * 4)] {
        let held = alice.fair_lock("a").lock().await.unwrap();
        let waiting = waits(bob.fair_lock("a").with(options)).await;
        until_queued(&store, 1).await;
        held.release().await.unwrap();
        let guard = soon("served", waiting).await.unwrap().unwrap();
        pass(TTL * 2).await;
        assert!(guard.is_held(), "longer than a grant without a sign of life: {options:?}");
        guard.release().await.unwrap();
    }
}

async fn the_head_may_leave_while_it_is_served(store: Store) {
    let (alice, bob) = pair(&store).await;
    for round in 0..30 {
        let held = alice.fair_lock("a").lock().await.unwrap();
        let client = if round % 2 == 0 { &alice } else { &bob };
        let head = waits(client.fair_lock("a")).await;
        until_queued(&store, 1).await;
        let next = waits(bob.fair_lock("a")).await;
        until_queued(&store, 2).await;
        let release = tokio::spawn(held.release());
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        head.abort();
        // One that has the guard already gives it back.
        drop(head);
        release.await.unwrap().unwrap();
        let guard = soon("the lock goes on", next).await.unwrap().unwrap();
        guard.release().await.unwrap();
    }
}

async fn owners_enter_again(store: Store) {
    let (alice, bob) = pair(&store).await;
    let (lock, owner) = (alice.fair_lock("a"), alice.owner());
    let held = bob.fair_lock("a").lock().await.unwrap();
    let (waiting, same) = (lock.clone(), owner.clone());
    let waiting = start(async move { waiting.lock_as(&same).await }).await;
    until_queued(&store, 1).await;
    held.release().await.unwrap();
    let first = soon("served", waiting).await.unwrap().unwrap();
    let second = lock.lock_as(&owner).await.unwrap();
    assert_eq!(first.owner_id(), second.owner_id());
    assert_eq!(lock.inspect().await.unwrap().holds, 2);
    first.release().await.unwrap();
    assert!(bob.fair_lock("a").try_lock().await.unwrap().is_none());
    second.release().await.unwrap();
    drop(bob.fair_lock("a").try_lock().await.unwrap().expect("free"));
}

async fn nothing_stays_behind(store: Store) {
    let (alice, bob) = pair(&store).await;
    let held = alice.fair_lock("a").lock().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..8 {
        waiting.push(waits(bob.fair_lock("a")).await);
        until_queued(&store, number + 1).await;
    }
    waiting.drain(..4).for_each(|waiting| waiting.abort());
    until_queued(&store, 4).await;
    held.release().await.unwrap();
    for waiting in waiting {
        soon("served", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    until_queued(&store, 0).await;
    alice.close().await;
    bob.close().await;
    if let Some(server) = store.server() {
        assert_eq!(server.keys_without_ttl(), Vec::<String>::new());
        assert_eq!(server.keys(), ["fairlock:{a}:grant"]);
    }
}

async fn a_place_in_line_can_be_watched(store: Store) {
    let (alice, bob) = pair(&store).await;
    let held = alice.fair_lock("a").lock().await.unwrap();
    let first = waits(alice.fair_lock("a")).await;
    until_queued(&store, 1).await;
    let second = waits(bob.fair_lock("a")).await;
    until_queued(&store, 2).await;
    let places = Arc::new(Mutex::new(Vec::new()));
    let (lock, seen) = (bob.fair_lock("a"), places.clone());
    let watching =
        start(async move { lock.lock_watching(|place| seen.lock().unwrap().push(place)).await })
            .await;
    until_queued(&store, 3).await;
    eventually("the third in line", async || *places.lock().unwrap() == [3]).await;
    second.abort();
    eventually("then the second", async || *places.lock().unwrap() == [3, 2]).await;
    held.release().await.unwrap();
    let first = soon("served", first).await.unwrap().unwrap();
    eventually("then the first", async || *places.lock().unwrap() == [3, 2, 1]).await;
    first.release().await.unwrap();
    soon("served", watching).await.unwrap().unwrap().release().await.unwrap();
}

async fn a_list_counts_those_who_wait(store: Store) {
    let (alice, bob) = pair(&store).await;
    let held = alice.fair_lock("a").lock().await.unwrap();
    let plain = alice.lock("b").lock().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..3 {
        let counts: Vec<_> = bob.list("*").await.unwrap().iter().map(|info| info.queued).collect();
        assert_eq!(counts, [Some(number), Some(0)]);
        waiting.push(waits(bob.fair_lock("a")).await);
        until_queued(&store, number + 1).await;
    }
    assert_eq!(bob.fair_lock("a").inspect().await.unwrap().queued, Some(3));
    assert_eq!(
        bob.lock("a").inspect().await.unwrap().queued,
        None,
        "it does not look at the queue"
    );
    waiting.iter().for_each(JoinHandle::abort);
    until_queued(&store, 0).await;
    assert_eq!(bob.list("a").await.unwrap()[0].queued, Some(0));
    plain.release().await.unwrap();
    held.release().await.unwrap();
}

async fn any_bytes_are_a_name(store: Store) {
    let (alice, bob) = pair(&store).await;
    let names: [Vec<u8>; 7] = [
        vec![0],
        (0..=255).collect(),
        "замок 🔒".into(),
        b"{shop}:42".to_vec(),
        b"}{".to_vec(),
        b"two\r\nlines\n".to_vec(),
        vec![b'x'; 65_536],
    ];
    for name in names {
        let shown = name[..name.len().min(20)].escape_ascii().to_string();
        let held = alice.fair_lock(&name).lock().await.unwrap();
        let waiting = waits(bob.fair_lock(&name)).await;
        eventually(&shown, async || {
            let waiters = alice.fair_lock(&name).inspect().await.unwrap().waiters;
            waiters.is_some_and(|waiters| waiters.len() == 1)
        })
        .await;
        held.release().await.unwrap();
        let guard = soon(&shown, waiting).await.unwrap().unwrap();
        assert_eq!(guard.name().as_bytes(), name, "{shown}");
        guard.release().await.unwrap();
        assert!(!alice.fair_lock(&name).is_locked().await.unwrap(), "{shown}");
    }
    if let Some(server) = store.server() {
        assert_eq!(server.keys_without_ttl(), [""; 0]);
    }
}

/// How long a waiter counts as alive without a sign of life.
const TTL: std::time::Duration = ms(600);
