//! A request is held up on its way and arrives when its caller is no longer waiting for it. For
//! good it changes nothing.

use std::time::Duration;

use fairlock::{LockError, Options, StoreErrorKind};
use fairlock_testkit::ClientKind;
use tokio::task::JoinHandle;

use super::scene::{
    Locking, Scene, holds, holds_exactly, in_time, is_tidy, lease_left_ms, record, starts_to_wait,
    stays, until, until_within,
};
use crate::patience::{ms, secs};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_takes_nothing_after_its_caller_gave_up() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(SHORT)).await;
    scene.proxy.hold_requests();
    let refused = client.lock("a").lock().await;
    assert!(is_unreachable(&refused), "{refused:?}");
    until("its request is on its way", || scene.proxy.held() > 0).await;
    scene.proxy.release_requests();
    in_time("closing", client.close()).await;
    assert!(!scene.server.keys().contains(&record("a")), "the lock was taken for a moment");
    assert!(is_tidy(&scene.server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_was_called_off_is_undone() {
    let scene = Scene::start();
    let client = scene.client().await;
    scene.proxy.hold_requests();
    let locking = lock_in_background(&client, "a", Options::new());
    until("its request is on its way", || scene.proxy.held() == 1).await;
    call_off(locking).await;
    scene.proxy.release_requests();
    in_time("closing", client.close()).await;
    assert!(is_tidy(&scene.server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_was_called_off_is_undone_also_if_it_comes_after_its_clean_up() {
    let scene = Scene::start();
    let client = scene.client().await;
    scene.proxy.hold_requests_of_open_connections();
    // What the driver sends takes a new connection, and overtakes.
    cut_connections(&scene, " resp=3");
    let locking = lock_in_background(&client, "a", Options::new().lease(LONG));
    until("its request is on its way", || scene.proxy.held() == 1).await;
    scene.server.reset_stats();
    call_off(locking).await;
    until("the clean-up has begun", || scene.server.script_calls() > 0).await;
    scene.proxy.release_requests();
    until("the lock was taken too late", || scene.server.keys().contains(&record("a"))).await;
    until("the lock is free", || holds(&scene.server, "a").is_empty()).await;
    in_time("closing", client.close()).await;
    assert!(is_tidy(&scene.server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_was_called_off_disturbs_nobody_who_got_the_lock_meanwhile() {
    let scene = Scene::start();
    let (late, other) = (scene.client().await, scene.unharmed().await);
    scene.proxy.hold_requests();
    let locking = lock_in_background(&late, "a", Options::new());
    until("its request is on its way", || scene.proxy.held() == 1).await;
    let guard = other.lock("a").with(Options::new().lease(LONG)).lock().await.unwrap();
    let left_ms = lease_left_ms(&scene.server, "a");
    call_off(locking).await;
    scene.proxy.release_requests();
    in_time("closing", late.close()).await;
    assert!(holds_exactly(&scene.server, &guard, 1));
    assert!(lease_left_ms(&scene.server, "a") <= left_ms);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_copy_takes_nothing_after_the_lock_was_given_back() {
    let scene = Scene::start();
    let client = scene.client().await;
    scene.proxy.hold_requests_of_open_connections();
    // The second copy goes over a new connection.
    let guard = in_time("locking", client.lock("a").lock()).await.unwrap();
    assert!(holds_exactly(&scene.server, &guard, 1));
    guard.release().await.unwrap();
    let token = scene.server.query::<String>(&["GET", &record("a")]);
    assert!(scene.proxy.held() > 0, "the first copy is still on its way");
    scene.proxy.release_requests();
    in_time("closing", client.close()).await;
    assert_eq!(scene.server.query::<String>(&["GET", &record("a")]), token, "it was taken again");
    assert!(is_tidy(&scene.server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_frees_nothing_that_somebody_else_got_meanwhile() {
    let scene = Scene::start();
    let (client, other) = (scene.client().await, scene.unharmed().await);
    let guard = client.lock("a").lock().await.unwrap();
    scene.proxy.hold_requests_of_open_connections();
    in_time("releasing", guard.release()).await.unwrap();
    let next = other.lock("a").lock().await.unwrap();
    assert!(scene.proxy.held() > 0, "the first copy is still on its way");
    scene.proxy.release_requests();
    in_time("closing", client.close()).await;
    assert!(holds_exactly(&scene.server, &next, 1));
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_passes_the_lock_on_does_so_once() {
    let scene = Scene::start();
    let client = scene.client().await;
    let first = client.lock("a").lock().await.unwrap();
    let waiting = starts_to_wait(&scene, client.lock("a")).await;
    scene.proxy.hold_requests_of_open_connections();
    in_time("releasing", first.release()).await.unwrap();
    let second = in_time("its turn", waiting).await.unwrap().unwrap();
    in_time("releasing", second.release()).await.unwrap();
    let token = scene.server.query::<String>(&["GET", &record("a")]);
    assert!(scene.proxy.held() > 0, "the first copy is still on its way");
    scene.proxy.release_requests();
    in_time("closing", client.close()).await;
    assert_eq!(scene.server.query::<String>(&["GET", &record("a")]), token, "it was taken again");
    assert!(is_tidy(&scene.server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_caller_has_gone_passes_the_lock_on_once() {
    let scene = Scene::start();
    let client = scene.client().await;
    let first = client.lock("a").lock().await.unwrap();
    let waiting = starts_to_wait(&scene, client.lock("a").with(Options::new().lease(LONG))).await;
    scene.proxy.hold_requests_of_open_connections();
    // The driver goes on over a new connection, and overtakes what the caller has sent.
    scene.server.kill_clients(ClientKind::PubSub);
    let before = scene.proxy.script_calls_seen();
    until("the waiter has tried again", || scene.proxy.script_calls_seen() > before).await;
    let releasing = tokio::spawn(async move { first.release().await });
    until("the release is on its way", || scene.proxy.held() == 1).await;
    releasing.abort();
    let second = in_time("its turn", waiting).await.unwrap().unwrap();
    assert!(holds_exactly(&scene.server, &second, 1));
    drop(second);
    until("the lock is free", || holds(&scene.server, "a").is_empty()).await;
    // Nobody waits any more for the caller's copy, which names the second one as the next.
    scene.proxy.release_requests();
    in_time("closing", client.close()).await;
    assert!(is_tidy(&scene.server, "a"), "{:?} nobody owns", holds(&scene.server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_changes_nothing_after_the_lock_went_to_somebody_else() {
    let scene = Scene::start();
    let (client, other) =
        (scene.client_with(|builder| builder.lease(secs(6))).await, scene.unharmed().await);
    let guard = client.lock("a").lock().await.unwrap();
    scene.proxy.hold_requests_of_open_connections();
    until("the renewal is on its way", || scene.proxy.held() == 1).await;
    in_time("releasing", guard.release()).await.unwrap();
    let fixed = Options::new().lease(secs(3));
    let next = other.lock("a").with(fixed).lock().await.unwrap();
    scene.proxy.release_requests();
    in_time("closing", client.close()).await;
    assert!(holds_exactly(&scene.server, &next, 1));
    assert!(lease_left_ms(&scene.server, "a") <= 3_000);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_does_not_take_back_a_re_entry_that_overtook_it() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.lease(secs(6))).await;
    let guard = client.lock("a").lock().await.unwrap();
    scene.proxy.hold_requests_of_open_connections();
    // What the caller sends takes a new connection.
    cut_connections(&scene, " resp=2");
    until("the renewal is on its way", || scene.proxy.held() == 1).await;
    let again = guard.reenter().await.unwrap();
    assert!(holds_exactly(&scene.server, &guard, 2));
    scene.server.reset_stats();
    scene.proxy.release_requests();
    until("the renewal has arrived", || scene.server.script_calls() > 0).await;
    // At the latest the next one would put this right, in two seconds.
    until_within(ms(500), "it is held twice", || holds_exactly(&scene.server, &guard, 2)).await;
    stays(ms(500), "held twice", || holds_exactly(&scene.server, &guard, 2)).await;
    again.release().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_re_entry_counts_for_nothing_after_its_caller_gave_up() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(SHORT)).await;
    let guard = client.lock("a").with(Options::new().lease(LONG)).lock().await.unwrap();
    scene.proxy.hold_requests();
    let refused = guard.reenter().await;
    assert!(is_unreachable(&refused), "{refused:?}");
    until("its request is on its way", || scene.proxy.held() > 0).await;
    scene.proxy.release_requests();
    stays(ms(500), "held once", || holds_exactly(&scene.server, &guard, 1)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_breaks_nobody_who_came_after_its_caller_gave_up() {
    let scene = Scene::start();
    let client = scene.client_with(|builder| builder.timeout(SHORT)).await;
    let other = scene.unharmed().await;
    scene.proxy.hold_requests();
    let refused = client.lock("a").force_unlock().await;
    assert!(is_unreachable(&refused), "{refused:?}");
    let guard = other.lock("a").lock().await.unwrap();
    assert!(scene.proxy.held() > 0, "its request is on its way");
    scene.proxy.release_requests();
    stays(ms(500), "held once", || holds_exactly(&scene.server, &guard, 1)).await;
    guard.release().await.unwrap();
}

fn lock_in_background(client: &fairlock::Client, name: &str, options: Options) -> Locking {
    let lock = client.lock(name).with(options);
    tokio::spawn(async move { lock.lock().await })
}

async fn call_off<T: std::fmt::Debug>(task: JoinHandle<T>) {
    task.abort();
    assert!(task.await.expect_err("it cannot have ended").is_cancelled());
}

/// Cuts the one connection through the proxy that speaks this protocol: RESP3 is the driver's.
fn cut_connections(scene: &Scene, protocol: &str) {
    let clients = scene.server.query::<String>(&["CLIENT", "LIST"]);
    let mut cut = 0;
    for line in clients.lines().filter(|line| line.contains(protocol)) {
        let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
        // This very question came from a connection that says what it asks.
        if field("cmd=") != Some("client|list") {
            let id = field("id=").expect("every connection has an id");
            cut += scene.server.query::<u32>(&["CLIENT", "KILL", "ID", id]);
        }
    }
    assert_eq!(cut, 1);
}

fn is_unreachable<T>(result: &Result<T, LockError>) -> bool {
    let Err(LockError::Store(error)) = result else { return false };
    matches!(error.kind(), StoreErrorKind::Unreachable { .. })
}

/// Patience of clients that are to give up soon.
const SHORT: Duration = ms(700);
/// Longer than any test: what is left behind with this lease is noticed.
const LONG: Duration = secs(120);
