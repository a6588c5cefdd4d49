//! Lock, wait, hand over, give back, look.

use fairlock::{Client, LockError, Options};

use crate::patience::{eventually, ms, secs, soon, start};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    a_waiter_gets_the_lock_when_it_is_released,
    a_held_lock_is_refused_to_everybody_else,
    a_lock_can_be_used_again_and_again,
    locks_of_different_names_do_not_disturb_each_other,
    everybody_sees_whether_a_lock_is_held,
    a_release_says_that_the_lock_is_free,
    dropping_the_guard_gives_the_lock_back,
    breaking_a_lock_frees_it_for_everybody,
    breaking_a_lock_wakes_those_who_wait,
    inspecting_a_held_lock_names_its_holder,
    inspecting_a_free_lock_tells_the_last_token,
    every_acquisition_is_an_owner_of_its_own,
    tokens_grow_over_acquisitions_and_clients,
    options_out_of_range_are_refused,
);

async fn a_waiter_gets_the_lock_when_it_is_released(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = alice.lock("a").lock().await.unwrap();
    assert!(bob.lock("a").try_lock().await.unwrap().is_none());
    let waiting = start(async move { bob.lock("a").lock().await.unwrap().token() }).await;
    let token = held.token();
    held.release().await.unwrap();
    assert!(soon("the waiter has the lock", waiting).await.unwrap() > token);
}

async fn a_held_lock_is_refused_to_everybody_else(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let lock = alice.lock("a");
    let held = lock.lock().await.unwrap();
    for other in [lock.clone(), alice.lock("a"), alice.clone().lock("a"), bob.lock("a")] {
        assert!(other.try_lock().await.unwrap().is_none(), "{other:?}");
    }
    held.release().await.unwrap();
    assert!(bob.lock("a").try_lock().await.unwrap().is_some());
}

async fn a_lock_can_be_used_again_and_again(store: Store) {
    let lock = store.client().await.lock("a");
    for _ in 0..100 {
        lock.lock().await.unwrap().release().await.unwrap();
        lock.try_lock().await.unwrap().expect("it is free").release().await.unwrap();
    }
}

async fn locks_of_different_names_do_not_disturb_each_other(store: Store) {
    let client = store.client().await;
    let mut guards = Vec::new();
    for name in ["a", "b", "A", "a:b", "{a}", "a ", " a", "redisson_lock__channel:{a}"] {
        guards.push(client.lock(name).try_lock().await.unwrap().expect(name));
    }
    let first = guards.swap_remove(0);
    first.release().await.unwrap();
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert!(client.lock("b").is_locked().await.unwrap());
    assert!(!client.lock("a").is_locked().await.unwrap());
}

async fn everybody_sees_whether_a_lock_is_held(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let is_locked = async || {
        let seen = [alice.lock("a").is_locked().await, bob.lock("a").is_locked().await];
        let [alice, bob] = seen.map(Result::unwrap);
        assert_eq!(alice, bob);
        alice
    };
    assert!(!is_locked().await);
    let guard = alice.lock("a").lock().await.unwrap();
    assert!(guard.is_held());
    assert!(is_locked().await);
    guard.release().await.unwrap();
    assert!(!is_locked().await);
}

async fn a_release_says_that_the_lock_is_free(store: Store) {
    let client = store.client().await;
    let released = client.lock("a").lock().await.unwrap().release().await.unwrap();
    assert_eq!(released.holds_left(), 0);
    assert!(released.waiters_told());
}

async fn dropping_the_guard_gives_the_lock_back(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    drop(alice.lock("a").lock().await.unwrap());
    eventually("a dropped guard has given its lock back", async || {
        !bob.lock("a").is_locked().await.unwrap()
    })
    .await;
    drop(alice.lock("a").lock().await.unwrap());
    let guard = soon("bob has the lock", bob.lock("a").lock()).await.unwrap();
    guard.release().await.unwrap();
}

async fn breaking_a_lock_frees_it_for_everybody(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let broken = alice.lock("a").lock().await.unwrap();
    assert!(bob.lock("a").force_unlock().await.unwrap());
    assert!(!alice.lock("a").is_locked().await.unwrap());
    assert!(!bob.lock("a").is_locked().await.unwrap());
    assert!(!bob.lock("a").force_unlock().await.unwrap(), "there is nothing left to break");
    let next = alice.lock("a").try_lock().await.unwrap().expect("it is free");
    assert!(next.token() > broken.token());
}

async fn breaking_a_lock_wakes_those_who_wait(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let broken = alice.lock("a").lock().await.unwrap();
    let near = start(async move { alice.lock("a").lock().await.unwrap().release().await }).await;
    let far = bob.lock("a");
    let far = start(async move { far.lock().await.unwrap().release().await }).await;
    assert!(bob.lock("a").force_unlock().await.unwrap());
    soon("the waiter of the same client has had the lock", near).await.unwrap().unwrap();
    soon("the waiter of another client has had the lock", far).await.unwrap().unwrap();
    drop(broken);
}

async fn inspecting_a_held_lock_names_its_holder(store: Store) {
    let alice = store.client_with(|builder| builder.program("nightly backup")).await;
    let bob = store.client().await;
    let lock = alice.lock("a").with(Options::new().lease(secs(60)));
    let guard = lock.lock().await.unwrap();

    let info = bob.lock("a").inspect().await.unwrap();
    assert!(info.held);
    assert_eq!(info.name, *guard.name());
    assert_eq!(info.owner.as_ref(), Some(guard.owner_id()));
    assert_eq!(info.holds, 1);
    assert_eq!(info.token, Some(guard.token()));
    let lease = info.lease.expect("it has an end");
    assert!(lease <= secs(60) && lease > secs(30), "{lease:?}");

    let holder = info.holder.expect("fairlock clients leave their card");
    assert_eq!(holder.program, "nightly backup");
    assert_eq!(holder.pid, std::process::id());
    assert_eq!(holder.host, rustix::system::uname().nodename().to_str().unwrap());
    assert!(holder.held_for < secs(30), "{:?}", holder.held_for);
}

async fn inspecting_a_free_lock_tells_the_last_token(store: Store) {
    let client = store.client().await;
    let unused = client.lock("unused").inspect().await.unwrap();
    assert!(!unused.held);
    assert_eq!((unused.owner, unused.holds, unused.lease), (None, 0, None));
    assert_eq!((unused.token, unused.holder), (None, None));

    let guard = client.lock("a").lock().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let used = client.lock("a").inspect().await.unwrap();
    assert!(!used.held);
    assert_eq!((used.owner, used.holds, used.lease, used.holder), (None, 0, None, None));
    assert_eq!(used.token, Some(token));
}

async fn every_acquisition_is_an_owner_of_its_own(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let mut owners = Vec::new();
    for client in [&alice, &alice.clone(), &bob] {
        let guard = client.lock("a").lock().await.unwrap();
        assert!(guard.owner_id().is_fairlock(), "{}", guard.owner_id());
        owners.push(guard.owner_id().to_string());
        guard.release().await.unwrap();
    }
    let clients: Vec<&str> = owners.iter().map(|id| id.split_once(':').unwrap().0).collect();
    assert_eq!(clients[0], clients[1], "a clone is the same client");
    assert_ne!(clients[0], clients[2]);
    assert_ne!(owners[0], owners[1], "no id is used twice");
}

async fn tokens_grow_over_acquisitions_and_clients(store: Store) {
    let clients = [store.client().await, store.client().await, store.client().await];
    let mut last = 0;
    for round in 0..60 {
        let client: &Client = &clients[round % clients.len()];
        let guard = client.lock("a").lock().await.unwrap();
        assert!(guard.token().get() > last, "{} after {last}", guard.token());
        last = guard.token().get();
        guard.release().await.unwrap();
    }
}

async fn options_out_of_range_are_refused(store: Store) {
    let lock = store.client().await.lock("a");
    for options in [
        Options::new().lease(ms(99)),
        Options::new().max_hold(ms(99)),
        Options::new().lease(secs(20 * 366 * 86_400)),
    ] {
        let lock = lock.with(options);
        for error in [lock.lock().await.unwrap_err(), lock.try_lock().await.unwrap_err()] {
            assert!(matches!(error, LockError::Option(_)), "{error}");
            assert!(error.to_string().contains("must be at"), "{error}");
        }
    }
    assert!(!lock.is_locked().await.unwrap());
    let builder = Client::builder(&store.url());
    let error = builder.clone().lease(ms(99)).connect().await.unwrap_err();
    assert!(error.to_string().contains("lease"), "{error}");
    let error = builder.timeout(ms(1)).connect().await.unwrap_err();
    assert!(error.to_string().contains("timeout"), "{error}");
}
