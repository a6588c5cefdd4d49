//! Futures that are dropped before they are done leave nothing behind: no lock, no waiter, no
//! subscription, no renewal.
//!
//! Every public future is polled a number of times and dropped, right after a poll or when it was
//! woken again, in every state that a lock can be in. Each case has a lock of its own, all cases
//! of a test run at the same time, and the store is looked at when they are done.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use fairlock::testing::TestStore;
use fairlock::{Client, Guard, Lock, LockError, ReleaseError};
use tokio::sync::Notify;
use tokio::task::{JoinSet, LocalSet};

use crate::conformance::redisson::{channels, listeners};
use crate::patience::{eventually, ms, pass, secs, soon, start};
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
    try_lock_can_be_dropped_at_any_point,
    lock_as_can_be_dropped_at_any_point,
    try_lock_as_can_be_dropped_at_any_point,
    re_entry_can_be_dropped_at_any_point,
    release_can_be_dropped_at_any_point,
    looking_and_waiting_can_be_dropped_at_any_point,
    force_unlock_can_be_dropped_at_any_point,
    close_can_be_dropped_at_any_point,
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
        let lease = |builder: fairlock::Builder| builder.lease(3 * RENEWED_EVERY);
        let (client, other) = (store.client_with(lease).await, store.client_with(lease).await);
        Arc::new(Self { store: Place::Redis(store), client, other })
    }

    /// The lock has no holder, and everybody can have it.
    async fn is_free(&self, name: &str) {
        eventually(&format!("{name:?} is free"), async || {
            !self.other.lock(name).is_locked().await.unwrap()
        })
        .await;
        for client in [&self.other, &self.client] {
            let lock = client.lock(name);
            let guard = soon(&format!("{name:?} can be had"), lock.lock()).await.unwrap();
            guard.release().await.unwrap();
        }
    }

    /// Nothing is held or waited for any more.
    async fn is_empty(&self) {
        match &self.store {
            Place::Memory(store) => {
                // What was waited for is listened to for a moment longer.
                store.clock().advance(secs(5)).await;
                assert_eq!(store.in_use().await, 0);
            }
            Place::Redis(store) => {
                let server = store.server().expect("this is one");
                eventually("nobody listens any more", async || channels(server).is_empty()).await;
                let left = server.keys();
                let records = left.iter().all(|key| key.starts_with("fairlock:{"));
                assert!(records, "locks are left: {left:?}");
                assert_eq!(server.keys_without_ttl(), [""; 0]);
            }
        }
    }

    /// Nothing is held, waited for or renewed any more, and nothing comes back.
    async fn is_quiet(&self) {
        self.is_empty().await;
        match &self.store {
            Place::Memory(store) => store.clock().advance(secs(600)).await,
            Place::Redis(store) => {
                let server = store.server().expect("this is one");
                // A request without an answer is cleaned up after for as long as it may arrive.
                // That is 2 s, and some more on a busy machine.
                pass(secs(4)).await;
                server.reset_stats();
                pass(RENEWED_EVERY + ms(200)).await;
                assert_eq!(server.script_calls(), 0, "something is renewed or asked for");
            }
        }
        self.is_empty().await;
    }
}

/// When a future is dropped: after so many polls, at once or when it was woken once more.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) polls: usize,
    when_woken: bool,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let then = if self.when_woken { " and a wake-up" } else { "" };
        write!(f, "after {} polls{then}", self.polls)
    }
}

impl Cut {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let cut = |polls| [false, true].map(|when_woken| Self { polls, when_woken });
        (0..=MOST_POLLS).flat_map(cut)
    }
}

/// A future that is polled by hand.
pub(crate) struct Stepped<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    bell: Arc<Bell>,
    output: Option<T>,
}

#[derive(Default)]
struct Bell(Notify);

impl Bell {
    /// Waits until the future was woken; but it may wait for something that does not happen.
    async fn rung(&self) {
        tokio::time::timeout(ms(20), self.0.notified()).await.ok();
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<T> Stepped<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Box::pin(future), bell: Arc::default(), output: None }
    }

    /// Polls so many times; it has to be woken in between, or seems not to be going to.
    pub(crate) async fn poll(&mut self, times: usize) {
        let waker = Waker::from(self.bell.clone());
        for number in 0..times {
            if number > 0 {
                self.bell.rung().await;
            }
            if self.output.is_some() {
                return;
            }
            let polled = self.future.as_mut().poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(output) = polled {
                self.output = Some(output);
            }
        }
    }

    /// Polls and drops; returns what has come until then.
    pub(crate) async fn cut(mut self, cut: Cut) -> Option<T> {
        self.poll(cut.polls).await;
        if cut.when_woken && self.output.is_none() {
            self.bell.rung().await;
        }
        self.output
    }
}

/// The states in which a lock is found by one who wants it.
#[derive(Clone, Copy, Debug)]
enum Scene {
    Free,
    HeldElsewhere,
    /// Others of the same process wait as well, before and after.
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
type Acquire = fn(Client, Lock) -> Pin<Box<dyn Future<Output = Option<Guard>> + Send>>;

async fn lock_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    acquire_everywhere(ground, |_, lock| Box::pin(async move { Some(lock.lock().await.unwrap()) }))
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

async fn try_lock_as_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    acquire_everywhere(ground, |client, lock| {
        Box::pin(async move { lock.try_lock_as(&client.owner()).await.unwrap() })
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
            let called = acquire(ground.client.clone(), ground.client.lock(&name));
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
    let (here, elsewhere) = (ground.client.lock(name), ground.other.lock(name));
    match scene {
        Scene::Free => drop(called.cut(cut).await),
        Scene::HeldElsewhere => {
            let held = elsewhere.lock().await.unwrap();
            drop(called.cut(cut).await);
            if let Place::Redis(store) = &ground.store {
                let server = store.server().expect("this is one");
                let unheard = format!("{name:?} is not waited for");
                eventually(&unheard, async || listeners(server, name) == 0).await;
            }
            held.release().await.unwrap();
        }
        Scene::AmongOthers => {
            let held = elsewhere.lock().await.unwrap();
            let mut others = Vec::new();
            for _ in 0..2 {
                let lock = here.clone();
                others.push(
                    start(async move {
                        lock.lock().await?.release().await.ok();
                        Ok(())
                    })
                    .await,
                );
                called.poll(1).await;
            }
            drop(called.cut(cut).await);
            held.release().await.unwrap();
            for other in others {
                let served: Result<(), LockError> = soon(name, other).await.unwrap();
                served.unwrap();
            }
        }
        Scene::HandedOverHere | Scene::HandedOverElsewhere => {
            let holder = if matches!(scene, Scene::HandedOverHere) { here } else { elsewhere };
            let held = holder.lock().await.unwrap();
            // By now it waits in the line, and listens.
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
        let guard = Arc::new(ground.client.lock(&name).lock().await.unwrap());
        let entered = guard.clone();
        let called = Stepped::new(async move { entered.reenter().await.unwrap() });
        drop(called.cut(cut).await);
        stays_held_once(&ground, Arc::into_inner(guard).unwrap(), &name).await;
    })
    .await;
    cut_everywhere(&ground, "lock_as", |ground, name, cut| async move {
        let (lock, owner) = (ground.client.lock(&name), ground.client.owner());
        let guard = lock.lock_as(&owner).await.unwrap();
        drop(Stepped::new(async move { lock.lock_as(&owner).await.unwrap() }).cut(cut).await);
        stays_held_once(&ground, guard, &name).await;
    })
    .await;
    ground.is_quiet().await;
}

/// A re-entry that was called off is counted down again, and its guard is none the worse.
async fn stays_held_once(ground: &Ground, guard: Guard, name: &str) {
    eventually("one hold is left", async || {
        ground.other.lock(name).inspect().await.unwrap().holds == 1
    })
    .await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    ground.is_free(name).await;
}

async fn release_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    cut_everywhere(&ground, "release", |ground, name, cut| async move {
        let guard = ground.client.lock(&name).lock().await.unwrap();
        if let Some(released) = Stepped::new(guard.release()).cut(cut).await {
            released.unwrap();
        }
        ground.is_free(&name).await;
    })
    .await;
    cut_everywhere(&ground, "release to a waiter", |ground, name, cut| async move {
        let lock = ground.client.lock(&name);
        let guard = lock.lock().await.unwrap();
        let waiting = start(async move { lock.lock().await.unwrap().release().await }).await;
        drop(Stepped::new(guard.release()).cut(cut).await);
        soon(&format!("{name:?} is handed over"), waiting).await.unwrap().unwrap();
        ground.is_free(&name).await;
    })
    .await;
    cut_everywhere(&ground, "release of one of two", |ground, name, cut| async move {
        let guard = ground.client.lock(&name).lock().await.unwrap();
        let again = guard.reenter().await.unwrap();
        drop(Stepped::new(again.release()).cut(cut).await);
        stays_held_once(&ground, guard, &name).await;
    })
    .await;
    ground.is_quiet().await;
}

async fn looking_and_waiting_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    cut_everywhere(&ground, "look", |ground, name, cut| async move {
        let guard = Arc::new(ground.client.lock(&name).lock().await.unwrap());
        let lock = ground.client.lock(&name);
        let (one, other) = (lock.clone(), lock.clone());
        Stepped::new(async move { one.inspect().await.unwrap() }).cut(cut).await;
        Stepped::new(async move { other.is_locked().await.unwrap() }).cut(cut).await;
        let lost = guard.clone();
        let lost = Stepped::new(async move { lost.lost().await }).cut(cut).await;
        assert_eq!(lost, None);
        let running = guard.clone();
        let run = async move { running.run(std::future::pending::<()>()).await };
        assert_eq!(Stepped::new(run).cut(cut).await, None);

        let info = ground.other.lock(&name).inspect().await.unwrap();
        assert_eq!((info.owner.as_ref(), info.holds), (Some(guard.owner_id()), 1));
        stays_held_once(&ground, Arc::into_inner(guard).unwrap(), &name).await;
    })
    .await;
    ground.is_empty().await;
}

async fn force_unlock_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    cut_everywhere(&ground, "force_unlock", |ground, name, cut| async move {
        let guard = ground.other.lock(&name).lock().await.unwrap();
        let lock = ground.client.lock(&name);
        let broken = Stepped::new(async move { lock.force_unlock().await.unwrap() }).cut(cut).await;
        let released = guard.release().await;
        let lost = matches!(released, Err(ReleaseError::Lost(_)));
        assert!(lost || (released.is_ok() && broken != Some(true)), "{broken:?} {released:?}");
        ground.is_free(&name).await;
    })
    .await;
    ground.is_empty().await;
}

async fn close_can_be_dropped_at_any_point(ground: Arc<Ground>) {
    cut_everywhere(&ground, "close", |ground, name, cut| async move {
        let client = match &ground.store {
            Place::Memory(store) => store.client(),
            Place::Redis(store) => store.client().await,
        };
        drop(client.lock(&name).lock().await.unwrap());
        Stepped::new(client.clone().close()).cut(cut).await;
        ground.is_free(&name).await;
        if cut.polls > 0 {
            eventually("the client is closed", async || {
                matches!(client.lock(&name).try_lock().await, Err(LockError::Closed))
            })
            .await;
        }
    })
    .await;
    ground.is_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_can_be_dropped_at_any_point() {
    let store = Store::redis();
    let server = store.server().unwrap();
    let connections = || server.query::<String>(&["CLIENT", "LIST"]).lines().count();
    let before = connections();
    let mut completed = 0;
    for cut in Cut::all() {
        let url = store.url();
        let client = Stepped::new(async move { Client::connect(&url).await.unwrap() }).cut(cut);
        completed += u64::from(client.await.is_some());
    }
    assert!(completed < Cut::all().count() as u64, "some were dropped on the way");
    eventually("every connection is closed", async || connections() == before).await;
}

/// The lease of the clients on a server is three times this. Short enough to wait for.
const RENEWED_EVERY: std::time::Duration = secs(4);
/// No call needs as many, unless it waits.
const MOST_POLLS: usize = 8;
