//! Until when a guard believes in its lock, and that nobody keeps alive what is released.

use fairlock::{BootTime, Client, Options};
use fairlock_testkit::{Proxy, Server, main_flavour};

use crate::patience::{eventually, ms, pass};

/// A server that answers slowly: the lease runs from somewhere before the answer, so the guard may
/// not count from the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_counts_from_the_request_not_from_the_reply() {
    let server = Server::start(&main_flavour());
    let proxy = Proxy::start(server.port());
    let client = Client::builder(&proxy.url()).lease(ms(6_000)).connect().await.unwrap();
    proxy.delay_replies(ms(400));

    let sent = BootTime::now();
    let guard = client.lock("a").with(Options::new().lease(ms(3_000))).lock().await.unwrap();
    assert!(sent.until(BootTime::now()) >= ms(400), "the answer is late");
    let believed = sent.until(guard.held_until().unwrap());
    assert!(believed <= ms(3_000), "believes in {believed:?} of a lease of 3 s");
    guard.release().await.unwrap();

    // The same for a renewal: it may not make the guard outlive the key.
    let guard = client.lock("b").lock().await.unwrap();
    let first = guard.held_until().unwrap();
    eventually("the watchdog renews", async || guard.held_until().unwrap() > first).await;
    let key_left: u64 = server.query(&["PTTL", "b"]);
    let believed = BootTime::now().until(guard.held_until().unwrap());
    assert!(believed <= ms(key_left), "believes in {believed:?}, the key has {key_left} ms");
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_renewed_after_its_release() {
    let server = Server::start(&main_flavour());
    let client = Client::builder(&server.url()).lease(ms(600)).connect().await.unwrap();
    client.lock("released").lock().await.unwrap().release().await.unwrap();
    drop(client.lock("dropped").lock().await.unwrap());
    let again = client.lock("entered twice").lock().await.unwrap();
    again.reenter().await.unwrap().release().await.unwrap();
    again.release().await.unwrap();
    eventually("the dropped guard is released", async || {
        server.keys().iter().all(|key| key.starts_with("fairlock:"))
    })
    .await;

    server.reset_stats();
    pass(ms(2_000)).await;
    assert_eq!(server.script_calls(), 0, "script calls after everything was released");
}
