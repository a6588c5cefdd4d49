//! The store has done what it was asked, and the answer is lost: whichever answer that is, things
//! end as if it had come.
//!
//! A part is played again and again, each time with another answer lost, until one time none is.

use std::sync::Arc;
use std::time::Duration;

use fairlock::{Client, Options, ReleaseError};
use fairlock_testkit::{Proxy, Server, main_flavour};
use tokio::task::JoinSet;

use super::scene::{connect_with, holds, holds_exactly, in_time, is_tidy, somebody_waits, until};
use crate::patience::{pass, secs};

/// What a part is played with.
struct Stage {
    server: Arc<Server>,
    proxy: Proxy,
    /// Behind the proxy.
    client: Client,
    name: String,
}

impl Stage {
    fn lock(&self) -> fairlock::Lock {
        self.client.lock(&self.name)
    }

    /// A client that loses no answer.
    async fn unharmed(&self) -> Client {
        connect_with(&self.server.url(), |builder| builder).await
    }

    /// Waits until the store has been asked so many times since the fault was armed, one time more
    /// for the answer that was lost, and has answered.
    async fn asked(&self, since: u64, times: u64) {
        let enough = || {
            let lost = u64::from(self.proxy.swallowed());
            self.proxy.script_calls_seen() >= since + times + lost
        };
        until("the store is asked", enough).await;
    }
}

/// Plays a part `times` times at once, losing another answer each time, and none the last time.
async fn whichever_is_lost<Playing>(
    lose: fn(&Proxy, u64),
    times: u64,
    play: impl Fn(Arc<Stage>) -> Playing,
) where
    Playing: Future<Output = ()> + Send + 'static,
{
    let server = Arc::new(Server::start(&main_flavour()));
    let mut plays = JoinSet::new();
    for k in 0..times {
        let proxy = Proxy::start(server.port());
        let lease = |builder: fairlock::Builder| builder.lease(LEASE);
        let client = connect_with(&proxy.url(), lease).await;
        let name = format!("lost-{k}");
        let stage = Arc::new(Stage { server: server.clone(), proxy, client, name });
        lose(&stage.proxy, k);
        let playing = play(stage.clone());
        plays.spawn(async move {
            in_time(&format!("answer {k} is lost"), playing).await;
            let fired = stage.proxy.swallowed();
            in_time("closing", stage.client.clone().close()).await;
            assert!(is_tidy(&stage.server, &stage.name), "answer {k} was lost");
            (k, fired)
        });
    }
    let mut fired = plays.join_all().await;
    fired.sort();
    assert_eq!(fired.first(), Some(&(0, true)), "no answer was lost");
    assert_eq!(fired.last(), Some(&(times - 1, false)), "there are more answers to lose");
}

fn swallow(proxy: &Proxy, k: u64) {
    proxy.swallow_reply(k);
}

fn blackhole(proxy: &Proxy, k: u64) {
    proxy.blackhole_reply(k);
}

macro_rules! tests {
    ($($test:ident = $lose:ident, $times:literal, $play:ident;)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                whichever_is_lost($lose, $times, $play).await;
            }
        )+
    };
}

tests! {
    lock_and_release = swallow, 4, locks_and_releases;
    lock_and_release_in_silence = blackhole, 3, locks_and_releases;
    lock_and_drop = swallow, 4, locks_and_drops;
    try_lock = swallow, 4, tries;
    try_lock_of_a_busy_lock = swallow, 3, tries_what_is_busy;
    re_entry_and_its_release = swallow, 6, enters_again;
    re_entry_and_its_release_in_silence = blackhole, 5, enters_again;
    re_entry_as_an_owner = swallow, 6, enters_again_as_an_owner;
    release_to_a_waiter_of_the_same_process = swallow, 8, passes_on;
    release_to_a_waiter_of_the_same_process_in_silence = blackhole, 8, passes_on;
    waiting_for_another_process = swallow, 7, waits;
    waiting_for_another_process_in_silence = blackhole, 7, waits;
    renewal = swallow, 10, renews;
    renewal_in_silence = blackhole, 10, renews;
    force_unlock = swallow, 4, breaks;
    force_unlock_with_a_waiter_elsewhere = swallow, 4, breaks_for_a_waiter;
    force_unlock_of_a_free_lock = swallow, 3, breaks_nothing;
    inspect = swallow, 3, inspects;
    inspect_in_silence = blackhole, 2, inspects;
}

async fn locks_and_releases(stage: Arc<Stage>) {
    let guard = stage.lock().lock().await.unwrap();
    assert!(holds_exactly(&stage.server, &guard, 1));
    assert!(guard.is_held());
    let released = guard.release().await.unwrap();
    assert_eq!(released.holds_left(), 0);
    assert!(released.waiters_told());
    assert!(holds(&stage.server, &stage.name).is_empty());
}

async fn locks_and_drops(stage: Arc<Stage>) {
    let guard = stage.lock().lock().await.unwrap();
    let token = guard.token();
    drop(guard);
    until("the lock is free", || holds(&stage.server, &stage.name).is_empty()).await;
    let again = stage.lock().lock().await.unwrap();
    assert!(again.token() > token);
    assert!(holds_exactly(&stage.server, &again, 1));
}

async fn tries(stage: Arc<Stage>) {
    let guard = stage.lock().try_lock().await.unwrap().expect("the lock is free");
    assert!(holds_exactly(&stage.server, &guard, 1));
    guard.release().await.unwrap();
}

async fn tries_what_is_busy(stage: Arc<Stage>) {
    let other = stage.unharmed().await.lock(&stage.name).lock().await.unwrap();
    assert!(stage.lock().try_lock().await.unwrap().is_none());
    assert!(holds_exactly(&stage.server, &other, 1));
    other.release().await.unwrap();
}

async fn enters_again(stage: Arc<Stage>) {
    let outer = stage.lock().lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    assert_eq!(inner.token(), outer.token());
    assert!(holds_exactly(&stage.server, &outer, 2));
    assert_eq!(inner.release().await.unwrap().holds_left(), 1);
    assert!(holds_exactly(&stage.server, &outer, 1));
    assert!(outer.is_held());
    assert_eq!(outer.release().await.unwrap().holds_left(), 0);
    assert!(holds(&stage.server, &stage.name).is_empty());
}

async fn enters_again_as_an_owner(stage: Arc<Stage>) {
    let owner = stage.client.owner();
    let outer = stage.lock().lock_as(&owner).await.unwrap();
    let inner = stage.lock().try_lock_as(&owner).await.unwrap().expect("the owner has it");
    assert!(holds_exactly(&stage.server, &outer, 2));
    outer.release().await.unwrap();
    assert!(holds_exactly(&stage.server, &inner, 1));
    inner.release().await.unwrap();
}

async fn passes_on(stage: Arc<Stage>) {
    let before = stage.proxy.script_calls_seen();
    let first = stage.lock().lock().await.unwrap();
    // With a lease that is too long to be waited for, if its owner does not know that it has it.
    let lock = stage.lock().with(Options::new().lease(secs(120)));
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    somebody_waits(&stage.server, &stage.name).await;
    // It tries before and after it begins to listen; from then on the release brings it the lock.
    stage.asked(before, 3).await;
    let token = first.token();
    assert_eq!(first.release().await.unwrap().holds_left(), 0);
    let second = waiting.await.unwrap();
    assert!(second.token() > token);
    assert!(second.is_held());
    assert!(holds_exactly(&stage.server, &second, 1));
    second.release().await.unwrap();
}

async fn waits(stage: Arc<Stage>) {
    let other = stage.unharmed().await.lock(&stage.name).lock().await.unwrap();
    let lock = stage.lock();
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    somebody_waits(&stage.server, &stage.name).await;
    assert!(holds_exactly(&stage.server, &other, 1));
    other.release().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(holds_exactly(&stage.server, &guard, 1));
    guard.release().await.unwrap();
}

async fn renews(stage: Arc<Stage>) {
    let outer = stage.lock().lock().await.unwrap();
    let inner = outer.reenter().await.unwrap();
    let steps = 20;
    for _ in 0..steps {
        pass(LEASE * 3 / 2 / steps).await;
        assert!(outer.is_held() && inner.is_held());
        assert!(holds_exactly(&stage.server, &outer, 2));
    }
    inner.release().await.unwrap();
    outer.release().await.unwrap();
}

async fn breaks(stage: Arc<Stage>) {
    let other = stage.unharmed().await;
    let fixed = Options::new().lease(secs(60));
    let held = other.lock(&stage.name).with(fixed).lock().await.unwrap();
    assert!(stage.lock().force_unlock().await.unwrap(), "it was held");
    assert!(holds(&stage.server, &stage.name).is_empty());
    let release = held.release().await;
    assert!(matches!(release, Err(ReleaseError::Lost(_))), "{release:?}");
}

async fn breaks_for_a_waiter(stage: Arc<Stage>) {
    let (holder, waiter) = (stage.unharmed().await, stage.unharmed().await);
    let fixed = Options::new().lease(secs(60));
    let held = holder.lock(&stage.name).with(fixed).lock().await.unwrap();
    let lock = waiter.lock(&stage.name);
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    somebody_waits(&stage.server, &stage.name).await;
    assert!(stage.lock().force_unlock().await.unwrap(), "it was held");
    let next = waiting.await.unwrap();
    assert!(holds_exactly(&stage.server, &next, 1), "only the first holder was to be broken");
    next.release().await.unwrap();
    drop(held);
}

async fn breaks_nothing(stage: Arc<Stage>) {
    assert!(!stage.lock().force_unlock().await.unwrap());
}

async fn inspects(stage: Arc<Stage>) {
    let other = stage.unharmed().await.lock(&stage.name).lock().await.unwrap();
    let info = stage.lock().inspect().await.unwrap();
    assert_eq!(info.owner.as_ref(), Some(other.owner_id()));
    assert_eq!((info.held, info.holds, info.token), (true, 1, Some(other.token())));
    assert!(holds_exactly(&stage.server, &other, 1));
    other.release().await.unwrap();
}

/// Short, so that the watchdog has something to do; long against the time that an answer is
/// waited for.
const LEASE: Duration = secs(3);
