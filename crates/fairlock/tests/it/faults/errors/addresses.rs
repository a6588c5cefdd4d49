//! Addresses: wrong ones, unreachable ones, secret parts of them, and sockets.

use fairlock::{Client, ConnectError, StoreErrorKind};
use fairlock_testkit::{Server, main_flavour};

use super::trouble;
use crate::patience::{Stopwatch, secs};

async fn connect(url: &str) -> Result<Client, ConnectError> {
    Client::builder(url).timeout(secs(3)).connect().await
}

/// A port that nobody listens at: a server had it a moment ago.
fn deserted_port() -> u16 {
    let mut server = Server::start(&main_flavour());
    server.kill();
    server.port()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_where_nothing_listens() {
    let url = format!("redis://{USER}:{PASSWORD}@127.0.0.1:{}/", deserted_port());
    let watch = Stopwatch::start();
    let error = connect(&url).await.expect_err("nobody is there");
    assert!(watch.elapsed() < secs(10), "{:?}", watch.elapsed());
    let text = error.to_string();
    assert!(!format!("{text} {error:?}").contains(PASSWORD), "{text}");
    assert!(text.contains("cannot be reached") && text.contains("check that it runs"), "{text}");
    assert!(text.contains(&url[url.find("127").unwrap()..url.len() - 1]), "which one? {text}");
    assert!(matches!(trouble(Err::<(), _>(error)), StoreErrorKind::Unreachable { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_does_not_exist() {
    let error = connect("redis://no-such-host.invalid:6379/").await.expect_err("no such host");
    let text = error.to_string();
    assert!(text.contains("no-such-host.invalid"), "{text}");
    assert!(matches!(trouble(Err::<(), _>(error)), StoreErrorKind::Unreachable { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_wrong_or_missing() {
    let server = Server::builder(&main_flavour()).password(PASSWORD).start();
    let right = server.url();
    Client::connect(&right).await.expect("with the right one it works").close().await;

    let missing = format!("redis://127.0.0.1:{}/", server.port());
    let wrong = right.replace(PASSWORD, "guessed-it");
    for url in [missing, wrong] {
        let watch = Stopwatch::start();
        let error = connect(&url).await.expect_err("a login is needed");
        assert!(watch.elapsed() < secs(5), "waiting does not help: {:?}", watch.elapsed());
        let text = format!("{error} {error:?}");
        assert!(text.contains("check user and password"), "{text}");
        assert!(!text.contains("guessed-it"), "{text}");
        assert_eq!(trouble(Err::<(), _>(error)), StoreErrorKind::Login, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_are_none() {
    let addresses = [
        "",
        "localhost",
        "127.0.0.1:6379",
        "http://127.0.0.1:6379/",
        "redis",
        "redis:",
        "redis://",
        "redis://127.0.0.1:port/",
        "redis://127.0.0.1:99999/",
        "redis://127.0.0.1/database",
    ];
    for address in addresses {
        let error = connect(address).await.expect_err(address);
        assert!(matches!(error, ConnectError::Address { .. }), "{address}: {error:?}");
        let text = error.to_string();
        assert!(text.contains("redis://HOST:PORT/"), "what would be right? {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_not_shown_whatever_is_wrong_with_the_address() {
    let addresses = [
        format!("redis://{USER}:{PASSWORD}@127.0.0.1:port/"),
        format!("redis://{USER}:{PASSWORD}@127.0.0.1/database"),
        format!("redis://:{PASSWORD}@"),
        format!("redis://{USER}:{PASSWORD}@with@127.0.0.1:port/"),
        format!("http://{USER}:{PASSWORD}@127.0.0.1/"),
        format!("reddis://{USER}:{PASSWORD}@127.0.0.1/"),
        format!("{USER}:{PASSWORD}@127.0.0.1"),
        format!("redis:{USER}:{PASSWORD}@127.0.0.1"),
        format!("redis:/{USER}:{PASSWORD}@127.0.0.1:port"),
        format!("redis+unix:///no/such/socket?db=x&pass={PASSWORD}"),
        format!("unix:///no/such/socket?pass={PASSWORD}&protocol=5"),
    ];
    let shown = async |address: &String| {
        let error = connect(address).await.expect_err(address);
        let text = format!("{error} {error:?}");
        text.contains(PASSWORD).then_some(text)
    };
    let mut leaks = Vec::new();
    for address in &addresses {
        leaks.extend(shown(address).await);
    }
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_not_shown_by_a_client_either() {
    let server = Server::builder(&main_flavour()).password(PASSWORD).start();
    let builder = Client::builder(&server.url());
    let text = format!("{builder:?}");
    assert!(!text.contains(PASSWORD), "{text}");
    let client = builder.connect().await.unwrap();
    let lock = client.lock("a");
    let guard = lock.lock().await.unwrap();
    for text in [format!("{client:?}"), format!("{lock:?}"), format!("{guard:?}")] {
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket() {
    for password in [None, Some("p@ss/w:rd")] {
        let mut server = Server::builder(&main_flavour()).unix_socket();
        if let Some(password) = password {
            server = server.password(password);
        }
        let server = server.start();
        let alice = Client::connect(&server.socket_url()).await.unwrap();
        let bob = Client::connect(&server.url()).await.unwrap();
        let guard = alice.lock("a").lock().await.unwrap();
        assert!(bob.lock("a").try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
        bob.lock("a").lock().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_that_does_not_exist() {
    let error = connect("redis+unix:///no/such/socket").await.expect_err("there is none");
    let text = error.to_string();
    assert!(text.contains("redis+unix:///no/such/socket"), "{text}");
    assert!(matches!(trouble(Err::<(), _>(error)), StoreErrorKind::Unreachable { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_database() {
    let server = Server::start(&main_flavour());
    let client = Client::connect(&format!("{}3", server.url())).await.unwrap();
    let guard = client.lock("a").lock().await.unwrap();
    assert!(server.keys().is_empty(), "nothing in database 0");
    guard.release().await.unwrap();
    let none = Client::connect(&format!("{}99", server.url())).await.expect_err("there are 16");
    assert!(none.to_string().contains("99") || none.to_string().contains("DB"), "{none}");
}

const USER: &str = "alice";
const PASSWORD: &str = "s3cret-w0rd";
