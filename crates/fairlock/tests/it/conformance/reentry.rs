//! One owner that enters a lock more than once.

use fairlock::{Guard, Lock, LockError, LostCause, Options, Owner};
use tokio::task::JoinSet;

use crate::patience::{eventually, ms, pass, secs, soon, start};
use crate::stores::{Store, on_every_engine};

on_every_engine!(
    holds_are_counted_up_and_down,
    the_lock_is_free_only_after_the_last_guard_in_any_order,
    re_entry_keeps_owner_and_token,
    an_owner_enters_again_where_others_wait,
    clones_of_an_owner_are_the_same_owner,
    an_owner_can_lock_again_after_it_has_released,
    an_owner_is_a_stranger_through_another_client,
    tasks_of_one_owner_enter_together,
    tasks_of_one_owner_wait_together,
    a_task_that_leaves_does_not_take_its_owner_along,
    a_wait_time_counts_also_behind_a_task_of_the_same_owner,
    a_partial_release_keeps_the_lease,
    re_entry_renews_a_fixed_lease,
    re_entry_after_a_loss_is_refused,
    guards_of_one_hold_can_be_released_all_at_once,
    guards_of_one_hold_can_be_dropped_all_at_once,
);

async fn holds(lock: &Lock) -> u32 {
    lock.inspect().await.unwrap().holds
}

async fn holds_are_counted_up_and_down(store: Store) {
    let lock = store.client().await.lock("a");
    assert_eq!(holds(&lock).await, 0);
    let first = lock.lock().await.unwrap();
    assert_eq!(holds(&lock).await, 1);
    first.release().await.unwrap();
    assert_eq!(holds(&lock).await, 0);

    let first = lock.lock().await.unwrap();
    let second = first.reenter().await.unwrap();
    let third = second.reenter().await.unwrap();
    assert_eq!(holds(&lock).await, 3);
    assert_eq!(third.release().await.unwrap().holds_left(), 2);
    assert_eq!(holds(&lock).await, 2);
    drop(second);
    eventually("a dropped guard is counted down", async || holds(&lock).await == 1).await;
    assert_eq!(first.release().await.unwrap().holds_left(), 0);
    assert_eq!(holds(&lock).await, 0);
}

async fn the_lock_is_free_only_after_the_last_guard_in_any_order(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    for keep in 0..3 {
        let first = alice.lock("a").lock().await.unwrap();
        let second = first.reenter().await.unwrap();
        let third = first.reenter().await.unwrap();
        let mut guards = vec![first, second, third];
        let last = guards.swap_remove(keep);
        for guard in guards {
            assert!(guard.release().await.unwrap().holds_left() > 0);
            assert!(bob.lock("a").try_lock().await.unwrap().is_none());
        }
        assert!(last.is_held());
        assert_eq!(last.release().await.unwrap().holds_left(), 0);
        let next = bob.lock("a").try_lock().await.unwrap().expect("it is free");
        next.release().await.unwrap();
    }
}

async fn re_entry_keeps_owner_and_token(store: Store) {
    let client = store.client().await;
    let owner = client.owner();
    let first = client.lock("a").lock_as(&owner).await.unwrap();
    let entered = [
        first.reenter().await.unwrap(),
        client.lock("a").lock_as(&owner).await.unwrap(),
        client.lock("a").try_lock_as(&owner).await.unwrap().expect("its own lock"),
    ];
    for guard in &entered {
        assert_eq!(guard.owner_id(), first.owner_id());
        assert_eq!(guard.token(), first.token());
    }
    assert_eq!(holds(&client.lock("a")).await, 4);
}

async fn an_owner_enters_again_where_others_wait(store: Store) {
    let client = store.client().await;
    let (lock, owner, other) = (client.lock("a"), client.owner(), client.owner());
    let held = lock.lock_as(&owner).await.unwrap();

    assert!(lock.try_lock_as(&other).await.unwrap().is_none());
    assert!(lock.try_lock().await.unwrap().is_none());
    let waiting = start({
        let lock = lock.clone();
        async move { lock.lock_as(&other).await.unwrap().token() }
    })
    .await;
    let again = soon("the owner is in again", lock.lock_as(&owner)).await.unwrap();
    assert!(!waiting.is_finished());

    again.release().await.unwrap();
    let token = held.token();
    held.release().await.unwrap();
    assert!(soon("the other owner has the lock", waiting).await.unwrap() > token);
}

async fn clones_of_an_owner_are_the_same_owner(store: Store) {
    let client = store.client().await;
    let owner = client.owner();
    let held = client.lock("a").lock_as(&owner).await.unwrap();
    let again = client.clone().lock("a").try_lock_as(&owner.clone()).await.unwrap();
    assert_eq!(again.expect("its own lock").owner_id(), held.owner_id());
    let elsewhere = client.lock("b").lock_as(&owner).await.unwrap();
    assert_eq!(holds(&client.lock("b")).await, 1, "each lock is counted by itself");
    elsewhere.release().await.unwrap();
}

async fn an_owner_can_lock_again_after_it_has_released(store: Store) {
    let client = store.client().await;
    let (lock, owner) = (client.lock("a"), client.owner());
    let first = lock.lock_as(&owner).await.unwrap();
    let token = first.token();
    first.release().await.unwrap();
    let second = lock.try_lock_as(&owner).await.unwrap().expect("it is free");
    assert!(second.token() > token, "a new acquisition");
    drop(second);
    let third = soon("the drop has freed it", lock.lock_as(&owner)).await.unwrap();
    assert_eq!(holds(&lock).await, 1);
    third.release().await.unwrap();
}

async fn an_owner_is_a_stranger_through_another_client(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let owner = alice.owner();
    let held = alice.lock("a").lock_as(&owner).await.unwrap();
    assert!(bob.lock("a").try_lock_as(&owner).await.unwrap().is_none());
    held.release().await.unwrap();
    assert!(bob.lock("a").try_lock_as(&owner).await.unwrap().is_some());
}

/// Locks as one owner in this many tasks at a time.
async fn lock_in_tasks(lock: &Lock, tasks: usize, owner: &Owner) -> JoinSet<Guard> {
    let mut entered = JoinSet::new();
    for _ in 0..tasks {
        let (lock, owner) = (lock.clone(), owner.clone());
        entered.spawn(async move { lock.lock_as(&owner).await.unwrap() });
    }
    entered
}

async fn tasks_of_one_owner_enter_together(store: Store) {
    let client = store.client().await;
    let (lock, owner) = (client.lock("a"), client.owner());
    for _ in 0..10 {
        let entered = lock_in_tasks(&lock, 8, &owner).await;
        let guards = soon("all tasks are in", entered.join_all()).await;
        assert_eq!(holds(&lock).await, 8);
        assert!(guards.iter().all(|guard| guard.owner_id() == guards[0].owner_id()));
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert_eq!(holds(&lock).await, 0);
    }
}

async fn tasks_of_one_owner_wait_together(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = bob.lock("a").lock().await.unwrap();
    let entered = lock_in_tasks(&alice.lock("a"), 8, &alice.owner()).await;
    held.release().await.unwrap();
    let guards = soon("all tasks are in", entered.join_all()).await;
    assert_eq!(holds(&bob.lock("a")).await, 8);
    drop(guards);
    soon("it is free again", bob.lock("a").lock()).await.unwrap().release().await.unwrap();
}

async fn a_task_that_leaves_does_not_take_its_owner_along(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = bob.lock("a").lock().await.unwrap();
    let owner = alice.owner();
    let task = |owner: Owner| {
        let lock = alice.lock("a");
        start(async move { lock.lock_as(&owner).await.unwrap() })
    };
    let leaving = task(owner.clone()).await;
    let staying = task(owner.clone()).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    held.release().await.unwrap();
    let guard = soon("the other task is in", staying).await.unwrap();
    assert_eq!(holds(&bob.lock("a")).await, 1);
    guard.release().await.unwrap();
}

async fn a_wait_time_counts_also_behind_a_task_of_the_same_owner(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    let held = bob.lock("a").lock().await.unwrap();
    let owner = alice.owner();
    let patient = start({
        let (lock, owner) = (alice.lock("a"), owner.clone());
        async move { lock.lock_as(&owner).await.unwrap().release().await }
    })
    .await;
    let hasty = alice.lock("a").with(Options::new().wait(ms(200)));
    let error = soon("the wait time ends", hasty.lock_as(&owner)).await.unwrap_err();
    assert!(matches!(error, LockError::TimedOut { .. }), "{error}");
    held.release().await.unwrap();
    soon("the patient one has had the lock", patient).await.unwrap().unwrap();
}

async fn a_partial_release_keeps_the_lease(store: Store) {
    let client = store.client().await;
    let (lock, owner) = (client.lock("a").with(Options::new().lease(secs(60))), client.owner());
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(lock.lock_as(&owner).await.unwrap());
    }
    for guard in guards.drain(1..) {
        guard.release().await.unwrap();
    }
    let lease = lock.inspect().await.unwrap().lease.expect("it has an end");
    assert!(lease <= secs(60) && lease > secs(40), "{lease:?}");
}

async fn re_entry_renews_a_fixed_lease(store: Store) {
    let client = store.client().await;
    let held = client.lock("a").with(Options::new().lease(secs(60))).lock().await.unwrap();
    let before = held.held_until().expect("held");
    pass(ms(300)).await;
    let again = held.reenter().await.unwrap();
    let after = held.held_until().expect("held");
    assert!(before.until(after) >= ms(250), "{before:?} {after:?}");
    assert_eq!(again.held_until(), Some(after));
}

async fn re_entry_after_a_loss_is_refused(store: Store) {
    let client = store.client().await;
    let (lock, owner) = (client.lock("a"), client.owner());
    let guard = lock.lock_as(&owner).await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    for outcome in [guard.reenter().await, lock.lock_as(&owner).await] {
        match outcome.unwrap_err() {
            LockError::Lost(lost) => assert_eq!(lost.cause, LostCause::Gone),
            other => panic!("{other}"),
        }
    }
    assert!(!lock.is_locked().await.unwrap(), "nothing was taken");
    drop(guard);
    let anew = soon("a new acquisition", lock.lock_as(&owner)).await.unwrap();
    anew.release().await.unwrap();
}

async fn enter_times(lock: &Lock, times: usize) -> Vec<Guard> {
    let mut guards = vec![lock.lock().await.unwrap()];
    while guards.len() < times {
        guards.push(guards[0].reenter().await.unwrap());
    }
    guards
}

async fn guards_of_one_hold_can_be_released_all_at_once(store: Store) {
    let lock = store.client().await.lock("a");
    for _ in 0..50 {
        let mut releases = JoinSet::new();
        for guard in enter_times(&lock, 4).await {
            releases.spawn(guard.release());
        }
        for outcome in soon("all are released", releases.join_all()).await {
            outcome.expect("nobody has lost anything");
        }
        assert!(!lock.is_locked().await.unwrap());
    }
}

async fn guards_of_one_hold_can_be_dropped_all_at_once(store: Store) {
    let (alice, bob) = (store.client().await, store.client().await);
    for _ in 0..10 {
        drop(enter_times(&alice.lock("a"), 4).await);
        let next = soon("it is free", bob.lock("a").lock()).await.unwrap();
        assert_eq!(holds(&bob.lock("a")).await, 1);
        next.release().await.unwrap();
    }
}
