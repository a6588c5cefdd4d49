//! Futures of a fair lock that are dropped before they are done leave nobody in the queue and no
//! lock behind. How futures are cut short is explained in [`crate::cancel`].

use std::pin::Pin;
use std::sync::Arc;

use fairlock::testing::TestStore;
use fairlock::{Client, FairLock, Guard};
use tokio::task::{JoinSet, LocalSet};

use super::queue::waits;
use crate::cancel::{Cut, Stepped};
use crate::patience::{eventually, secs, soon, start};
use crate::stores::Store;

/// Makes a test of each behaviour (`async fn(Ground)`) in memory and on a server.
macro_rules! on_all_grounds {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    super::$behaviour(super::Ground::memory()).await;
                }
            )+
        }
        mod redis {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    super::$behaviour(super::Ground::redis().await).await;
                }
            )+
        }
    };
}

on_all_grounds!(
    lock_can_be_dropped_at_any_point,
    lock_watching_can_be_dropped_at_any_point,
    try_lock_can_be_dropped_at_any_point,
    lock_as_can_be_dropped_at_any_point,
    re_entry_can_be_dropped_at_any_point,
    release_can_be_dropped_at_any_point,
);

/// Where a test takes place: a store, the client whose futures are dropped, and another one.
struct Ground {
    store: Place,
    client: Client,
    other: Client,
}

enum Place {
    Memory(TestStore),
    Redis(Store),
}

impl Ground {
    fn memory() -> Arc<Self> {
        let store = TestStore::new();
        let (client, other) = (store.client(), store.client());
        Arc::new(Self { store: Place::Memory(store), client, other })
    }

    async fn redis() -> Arc<Self> {
        let store = Store::redis();
        // Longer than anything here may take: what is left behind does not end by itself.
        let set = |builder: fairlock::Builder| builder.lease(secs(60)).waiter_ttl(secs(60));
        let (client, other) = (store.client_with(set).await, store.client_with(set).await);
        Arc::new(Self { store: Place::Redis(store), client, other })
    }

    /// Nobody holds the lock or waits for it, and everybody can have it.
    async fn is_free(&self, name: &str) {
        eventually(&format!("{name:?} is free"), async || {
            let info = self.other.fair_lock(name).inspect().await.unwrap();
            !info.held && info.waiters.unwrap().is_empty()
        })
        .await;
        for client in [&self.other, &self.client] {
            let lock = client.fair_lock(name);
            let guard = soon(&format!("{name:?} can be had"), lock.lock()).await.unwrap();
            guard.release().await.unwrap();
        }
    }

    /// Nothing is held or waited for any more, and nothing comes back.
    async fn is_quiet(&self) {
        match &self.store {
            Place::Memory(store) => {
                store.clock().advance(secs(600)).await;
                assert_eq!(store.in_use().await, 0);
            }
            Place::Redis(store) => {
                let server = store.server().expect("this is one");
                // What a request without an answer may have left is cleaned up by then.
                self.client.clone().close().await;
                let left = server.keys();
                assert!(left.iter().all(|key| key.ends_with(":grant")), "left: {left:?}");
                assert_eq!(server.keys_without_ttl(), [""; 0]);
            }
        }
    }
}

/// The states in which a lock is found by one who wants it.
#[derive(Clone, Copy, Debug)]
enum Scene {
    Free,
    HeldElsewhere,
    /// Others wait as well, before and after.
    AmongOthers,
    /// The holder is releasing it, in the same process or in another.
    HandedOverHere,
    HandedOverElsewhere,
}

const SCENES: [Scene; 5] = [
    Scene::Free,
    Scene::HeldElsewhere,
    Scene::AmongOthers,
    Scene::HandedOverHere,
    Scene::HandedOverElsewhere,
];

/// A call that may bring a lock.
type Acquire = fn(Client, FairLock) -> Pin<Box<dyn Future<Output = Option<Guard>> + Send>>;

async fn lock_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    acquire_everywhere(ground, |_, lock| Box::pin(async move { Some(lock.lock().await.unwrap()) }))
        .await;
}

async fn lock_watching_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    acquire_everywhere(ground, |_, lock| {
        Box::pin(async move { Some(lock.lock_watching(|_| {}).await.unwrap()) })
    })
    .await;
}

async fn try_lock_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    acquire_everywhere(ground, |_, lock| Box::pin(async move { lock.try_lock().await.unwrap() }))
        .await;
}

async fn lock_as_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    acquire_everywhere(ground, |client, lock| {
        Box::pin(async move { Some(lock.lock_as(&client.owner()).await.unwrap()) })
    })
    .await;
}

async fn acquire_everywhere(ground: Arc<Ground>, acquire: Acquire) {
    let (mut cases, here) = (JoinSet::new(), LocalSet::new());
    for (scene, cut) in SCENES.into_iter().flat_map(|scene| Cut::all().map(move |cut| (scene, cut)))
    {
        let ground = ground.clone();
        let case = async move {
            let name = format!("{scene:?} {cut}");
            let called = acquire(ground.client.clone(), ground.client.fair_lock(&name));
            play(&ground, scene, &name, Stepped::new(called), cut).await;
            ground.is_free(&name).await;
        };
        cases.spawn_local_on(case, &here);
    }
    here.run_until(cases.join_all()).await;
    ground.is_quiet().await;
}

/// Brings a lock into a state, and cuts a call that wants it.
async fn play(
    ground: &Ground,
    scene: Scene,
    name: &str,
    mut called: Stepped<Option<Guard>>,
    cut: Cut,
) {
    let (here, elsewhere) = (ground.client.fair_lock(name), ground.other.fair_lock(name));
    match scene {
        Scene::Free => drop(called.cut(cut).await),
        Scene::HeldElsewhere => {
            let held = elsewhere.lock().await.unwrap();
            drop(called.cut(cut).await);
            eventually(&format!("{name:?} is not waited for"), async || {
                elsewhere.inspect().await.unwrap().waiters.unwrap().is_empty()
            })
            .await;
            held.release().await.unwrap();
        }
        Scene::AmongOthers => {
            let held = elsewhere.lock().await.unwrap();
            let mut others = Vec::new();
            for lock in [&here, &elsewhere] {
                others.push(waits(lock).await);
                called.poll(1).await;
            }
            drop(called.cut(cut).await);
            held.release().await.unwrap();
            // In whichever order they came.
            let mut serving = JoinSet::new();
            for other in others {
                serving.spawn(async move { other.await.unwrap().unwrap().release().await });
            }
            soon(name, serving.join_all()).await;
        }
        Scene::HandedOverHere | Scene::HandedOverElsewhere => {
            let holder = if matches!(scene, Scene::HandedOverHere) { here } else { elsewhere };
            let held = holder.lock().await.unwrap();
            // By now it is in the queue.
            called.poll(3).await;
            let releasing = start(held.release()).await;
            drop(called.cut(cut).await);
            releasing.await.unwrap().unwrap();
        }
    }
}

/// Runs a case for every cut at the same time, each with a lock of its own.
async fn cut_everywhere<F>(
    ground: &Arc<Ground>,
    what: &str,
    case: fn(Arc<Ground>, String, Cut) -> F,
) where
    F: Future<Output = ()> + 'static,
{
    let (mut cases, here) = (JoinSet::new(), LocalSet::new());
    for cut in Cut::all() {
        cases.spawn_local_on(case(ground.clone(), format!("{what} {cut}"), cut), &here);
    }
    here.run_until(cases.join_all()).await;
}

async fn re_entry_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    cut_everywhere(&ground, "reenter", |ground, name, cut| async move {
        let guard = Arc::new(ground.client.fair_lock(&name).lock().await.unwrap());
        let behind = waits(&ground.other.fair_lock(&name)).await;
        let entered = guard.clone();
        let called = Stepped::new(async move { entered.reenter().await.unwrap() });
        drop(called.cut(cut).await);
        stays_held_once(&ground, Arc::into_inner(guard).unwrap(), &name).await;
        soon(&name, behind).await.unwrap().unwrap().release().await.unwrap();
        ground.is_free(&name).await;
    })
    .await;
    cut_everywhere(&ground, "lock_as", |ground, name, cut| async move {
        let (lock, owner) = (ground.client.fair_lock(&name), ground.client.owner());
        let guard = lock.lock_as(&owner).await.unwrap();
        drop(Stepped::new(async move { lock.lock_as(&owner).await.unwrap() }).cut(cut).await);
        stays_held_once(&ground, guard, &name).await;
        ground.is_free(&name).await;
    })
    .await;
    ground.is_quiet().await;
}

/// A re-entry that was called off is counted down again, and its guard is none the worse.
async fn stays_held_once(ground: &Ground, guard: Guard, name: &str) {
    eventually("one hold is left", async || {
        ground.other.fair_lock(name).inspect().await.unwrap().holds == 1
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

async fn release_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    cut_everywhere(&ground, "release", |ground, name, cut| async move {
        let guard = ground.client.fair_lock(&name).lock().await.unwrap();
        if let Some(released) = Stepped::new(guard.release()).cut(cut).await {
            released.unwrap();
        }
        ground.is_free(&name).await;
    })
    .await;
    cut_everywhere(&ground, "release to a waiter", |ground, name, cut| async move {
        for waiter in [&ground.client, &ground.other] {
            let guard = ground.client.fair_lock(&name).lock().await.unwrap();
            let waiting = waits(&waiter.fair_lock(&name)).await;
            drop(Stepped::new(guard.release()).cut(cut).await);
            let served = soon(&format!("{name:?} is handed over"), waiting).await;
            served.unwrap().unwrap().release().await.unwrap();
        }
        ground.is_free(&name).await;
    })
    .await;
    cut_everywhere(&ground, "release of one of two", |ground, name, cut| async move {
        let guard = ground.client.fair_lock(&name).lock().await.unwrap();
        let again = guard.reenter().await.unwrap();
        drop(Stepped::new(again.release()).cut(cut).await);
        stays_held_once(&ground, guard, &name).await;
        ground.is_free(&name).await;
    })
    .await;
    ground.is_quiet().await;
}
