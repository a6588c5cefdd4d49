//! The most important behaviours on every other server in `FAIRLOCK_SERVERS`: older and newer
//! ones, and Valkey. The first in that list is the one that all other tests use.

use fairlock::{Client, LostCause, ReleaseError, StoreErrorKind};
use fairlock_testkit::{Flavour, Server, flavours};

use super::scene::{
    Scene, connect_with, holds, holds_exactly, in_time, is_tidy, listeners, somebody_waits, until,
};
use crate::patience::{ms, pass, secs};

/// Every server but the main one.
fn others() -> Vec<Flavour> {
    let others = flavours().split_off(1);
    for flavour in &others {
        eprintln!("on {}", flavour.name);
    }
    others
}

async fn clients(server: &Server) -> (Client, Client) {
    let url = server.url();
    (connect_with(&url, |builder| builder).await, connect_with(&url, |builder| builder).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_wait_hand_over_and_give_back() {
    for flavour in others() {
        let server = Server::start(&flavour);
        let (alice, bob) = clients(&server).await;
        let guard = alice.lock("a").lock().await.unwrap();
        assert!(holds_exactly(&server, &guard, 1), "{}", flavour.name);
        assert!(bob.lock("a").try_lock().await.unwrap().is_none());
        let token = guard.token();
        let waiting = tokio::spawn(async move { bob.lock("a").lock().await.unwrap() });
        somebody_waits(&server, "a").await;
        assert!(guard.release().await.unwrap().waiters_told());
        let guard = in_time("its turn", waiting).await.unwrap();
        assert!(guard.token() > token);
        assert!(holds_exactly(&server, &guard, 1), "{}", flavour.name);
        guard.release().await.unwrap();
        assert!(is_tidy(&server, "a"), "{}", flavour.name);
        until("nobody listens any more", || listeners(&server, "a") == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enter_again_and_stay_alive() {
    for flavour in others() {
        let server = Server::start(&flavour);
        let client = connect_with(&server.url(), |builder| builder.lease(ms(900))).await;
        let outer = client.lock("a").lock().await.unwrap();
        let inner = outer.reenter().await.unwrap();
        pass(ms(1_500)).await;
        assert!(outer.is_held() && holds_exactly(&server, &outer, 2), "{}", flavour.name);
        assert_eq!(inner.release().await.unwrap().holds_left(), 1);
        // A renewal that was on its way says once more what the count was; the next one mends it.
        until("the count is right", || holds_exactly(&server, &outer, 1)).await;
        let info = client.lock("a").inspect().await.unwrap();
        assert_eq!(info.token, Some(outer.token()), "{}", flavour.name);
        assert_eq!(outer.release().await.unwrap().holds_left(), 0);
        assert!(is_tidy(&server, "a"), "{}", flavour.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lose_any_one_answer() {
    for flavour in others() {
        let scene = Scene::on(&flavour);
        for k in 0..5 {
            let client = scene.client().await;
            scene.proxy.swallow_reply(k);
            let outer = client.lock("a").lock().await.unwrap();
            let inner = outer.reenter().await.unwrap();
            assert!(holds_exactly(&scene.server, &outer, 2), "{}, {k}", flavour.name);
            inner.release().await.unwrap();
            assert!(holds_exactly(&scene.server, &outer, 1), "{}, {k}", flavour.name);
            outer.release().await.unwrap();
            assert_eq!(scene.proxy.swallowed(), k < 4, "{}, {k}", flavour.name);
            in_time("closing", client.close()).await;
            assert!(is_tidy(&scene.server, "a"), "{}, {k}", flavour.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_a_lock() {
    for flavour in others() {
        let server = Server::start(&flavour);
        let holder = connect_with(&server.url(), |builder| builder.lease(ms(1_500))).await;
        let guard = holder.lock("a").lock().await.unwrap();
        let other = connect_with(&server.url(), |builder| builder).await;
        assert!(other.lock("a").force_unlock().await.unwrap(), "{}", flavour.name);
        assert!(holds(&server, "a").is_empty(), "{}", flavour.name);
        assert_eq!(in_time("the loss", guard.lost()).await.cause, LostCause::Gone);
        let release = guard.release().await;
        assert!(matches!(release, Err(ReleaseError::Lost(_))), "{release:?}");
        assert!(!other.lock("a").force_unlock().await.unwrap(), "{}", flavour.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forget_scripts_and_connections() {
    for flavour in others() {
        let server = Server::start(&flavour);
        let (alice, bob) = clients(&server).await;
        server.query::<()>(&["SCRIPT", "FLUSH"]);
        let guard = alice.lock("a").lock().await.unwrap();
        let waiting = tokio::spawn(async move { bob.lock("a").lock().await.unwrap() });
        somebody_waits(&server, "a").await;
        server.query::<()>(&["SCRIPT", "FLUSH"]);
        assert!(server.kill_all_clients() >= 4, "{}", flavour.name);
        guard.release().await.unwrap();
        in_time("its turn", waiting).await.unwrap().release().await.unwrap();
        assert!(is_tidy(&server, "a"), "{}", flavour.name);
    }
}

/// Servers word their errors differently, and older ones wrap those of scripts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn say_what_is_wrong() {
    for flavour in others() {
        let server = Server::start(&flavour);
        let rights = ["on", ">secret", "~*", "&*", "+@all", "-publish", "-subscribe"];
        server.query::<()>(&[&["ACL", "SETUSER", "alice"], &rights[..]].concat());
        let url = format!("redis://alice:secret@127.0.0.1:{}/", server.port());
        let (client, alice) =
            (connect_with(&server.url(), |b| b).await, connect_with(&url, |b| b).await);
        let kind = async |client: &Client, name: &str| match client.lock(name).lock().await {
            Err(fairlock::LockError::Store(error)) => error.kind().clone(),
            other => panic!("{}: {other:?}", flavour.name),
        };
        server.query::<()>(&["SET", "a", "payload"]);
        assert_eq!(kind(&client, "a").await, StoreErrorKind::WrongType, "{}", flavour.name);
        let released = alice.lock("b").lock().await.unwrap().release().await.unwrap();
        assert!(!released.waiters_told(), "{}", flavour.name);
        let held = client.lock("c").lock().await.unwrap();
        assert_eq!(kind(&alice, "c").await, StoreErrorKind::Denied, "{}", flavour.name);
        server.query::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(kind(&client, "d").await, StoreErrorKind::OutOfMemory, "{}", flavour.name);
        let again = held.reenter().await.unwrap();
        assert_eq!(again.release().await.unwrap().holds_left(), 1);
        assert!(holds_exactly(&server, &held, 1), "{}", flavour.name);
        held.release().await.unwrap();
        server.query::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        server.query::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
        assert_eq!(kind(&client, "e").await, StoreErrorKind::ReadOnly, "{}", flavour.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stand_still() {
    for flavour in others() {
        let server = Server::start(&flavour);
        let (client, other) = clients(&server).await;
        let guard = client.lock("a").lock().await.unwrap();
        server.freeze();
        let locking = tokio::spawn(async move { other.lock("b").lock().await.unwrap() });
        pass(secs(3)).await;
        assert!(guard.is_held() && !locking.is_finished());
        server.thaw();
        in_time("locking", locking).await.unwrap().release().await.unwrap();
        assert!(holds_exactly(&server, &guard, 1), "{}", flavour.name);
        guard.release().await.unwrap();
    }
}
