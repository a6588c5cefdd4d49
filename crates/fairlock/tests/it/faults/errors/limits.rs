//! Servers that cannot do what they are asked: out of memory, a replica, busy with something else.

use std::time::Duration;

use fairlock::{Options, StoreErrorKind};
use fairlock_testkit::{Server, eventually, main_flavour};

use super::super::scene::{connect_with, holds, holds_exactly, in_time, is_tidy, somebody_waits};
use super::trouble;
use crate::patience::{ms, pass, secs};

/// From now on every command that needs memory is refused.
fn fill_up(server: &Server) {
    server.query::<()>(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.query::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let mut connection = server.connection();
    let refused = redis::cmd("SET").arg("x").arg("y").exec(&mut connection);
    assert!(refused.is_err_and(|error| error.code() == Some("OOM")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_nothing_is_taken() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder).await;
    fill_up(&server);
    let lock = client.lock("a");
    assert_eq!(trouble(client.lock("b").try_lock().await), StoreErrorKind::OutOfMemory);
    assert_eq!(trouble(lock.lock().await), StoreErrorKind::OutOfMemory);
    let text = lock.lock().await.expect_err("there is no memory").to_string();
    assert!(text.contains("maxmemory"), "{text}");
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    assert!(!lock.inspect().await.unwrap().held);
    server.query::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    lock.lock().await.expect("there is memory again").release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_what_is_held_stays_and_can_be_given_back() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder.lease(ms(1_200))).await;
    let guard = client.lock("a").lock().await.unwrap();
    fill_up(&server);
    let again = guard.reenter().await.unwrap();
    let and_again = guard.reenter().await.unwrap();
    assert!(holds_exactly(&server, &guard, 3));
    assert_eq!(and_again.release().await.unwrap().holds_left(), 2);
    assert!(holds_exactly(&server, &guard, 2));
    pass(ms(2_000)).await;
    assert!(guard.is_held() && holds_exactly(&server, &guard, 2), "renewals go on");
    assert_eq!(again.release().await.unwrap().holds_left(), 1);
    assert_eq!(guard.release().await.unwrap().holds_left(), 0);
    assert!(holds(&server, "a").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_an_owner_enters_again_whatever_lease_it_asks_for() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder).await;
    let (owner, lock) = (client.owner(), client.lock("a"));
    let guard = lock.with(Options::new().lease(secs(60))).lock_as(&owner).await.unwrap();
    fill_up(&server);
    for lease in [secs(90), secs(60), secs(10)] {
        let again = lock.with(Options::new().lease(lease)).lock_as(&owner).await;
        let again = again.unwrap_or_else(|error| panic!("a lease of {lease:?}: {error}"));
        assert!(holds_exactly(&server, &guard, 2));
        again.release().await.unwrap();
    }
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_a_lock_can_be_passed_on_and_broken() {
    let server = Server::start(&main_flavour());
    let client = connect_with(&server.url(), |builder| builder).await;
    let guard = client.lock("a").lock().await.unwrap();
    let lock = client.lock("a");
    let waiting = tokio::spawn(async move { lock.lock().await });
    somebody_waits(&server, "a").await;
    fill_up(&server);
    guard.release().await.unwrap();
    // In the same request, or, if it was not yet waiting for that, by an attempt that is refused.
    match in_time("an outcome", waiting).await.unwrap() {
        Ok(next) => {
            assert!(holds_exactly(&server, &next, 1));
            assert!(client.lock("a").force_unlock().await.unwrap());
        }
        refused => assert_eq!(trouble(refused), StoreErrorKind::OutOfMemory),
    }
    assert!(holds(&server, "a").is_empty());
    assert!(is_tidy(&server, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_read_only() {
    let primary = Server::start(&main_flavour());
    let replica = Server::builder(&main_flavour()).replica_of(&primary).start();
    let in_sync =
        || replica.query::<String>(&["INFO", "replication"]).contains("master_link_status:up");
    eventually(BOUND, "the replica is in sync", in_sync);
    let (writer, reader) = (
        connect_with(&primary.url(), |builder| builder).await,
        connect_with(&replica.url(), |builder| builder).await,
    );
    let lock = reader.lock("a");
    assert_eq!(trouble(reader.lock("b").try_lock().await), StoreErrorKind::ReadOnly);
    assert_eq!(trouble(lock.lock().await), StoreErrorKind::ReadOnly);
    let text = lock.lock().await.expect_err("it cannot be written to").to_string();
    assert!(text.contains("connect to the master"), "{text}");
    let guard = writer.lock("a").lock().await.unwrap();
    eventually(BOUND, "the lock is copied", || !holds(&replica, "a").is_empty());
    assert_eq!(lock.inspect().await.unwrap().owner.as_ref(), Some(guard.owner_id()));
    assert_eq!(trouble(lock.force_unlock().await), StoreErrorKind::ReadOnly);
    assert!(holds_exactly(&primary, &guard, 1));
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_a_script_of_somebody_is_waited_for() {
    let server = Server::builder(&main_flavour()).arg("--lua-time-limit", "100").start();
    let patient = connect_with(&server.url(), |builder| builder).await;
    let hurried = connect_with(&server.url(), |builder| builder.timeout(ms(500))).await;
    let mut connection = server.connection();
    let script =
        std::thread::spawn(move || redis::cmd("EVAL").arg(ENDLESS).arg(0).exec(&mut connection));
    let mut watcher = server.connection();
    let mut busy = || redis::cmd("PING").exec(&mut watcher).is_err();
    eventually(BOUND, "the server is busy", &mut busy);
    assert_eq!(trouble(hurried.lock("b").lock().await), StoreErrorKind::NotReady);
    let lock = patient.lock("a");
    let locking = tokio::spawn(async move { lock.lock().await });
    pass(ms(300)).await;
    assert!(!locking.is_finished());
    redis::cmd("SCRIPT").arg("KILL").exec(&mut watcher).unwrap();
    let guard = in_time("the lock", locking).await.unwrap().unwrap();
    guard.release().await.unwrap();
    assert!(script.join().unwrap().is_err(), "it was killed");
    hurried.close().await;
    assert!(is_tidy(&server, "b"));
}

const ENDLESS: &str = include_str!("endless.lua");
const BOUND: Duration = secs(20);
