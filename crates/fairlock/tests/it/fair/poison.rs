//! Something is wrong with the keys of a queue: it moves on, or somebody is told what is wrong.

use std::time::Duration;

use fairlock::{Client, LockError, LostCause, OwnerId, ReleaseError, StoreErrorKind};
use fairlock_testkit::{Server, main_flavour};

use super::queue::{
    GHOST, JAVA_GHOST, LIST, NAME, PLACES, RECORD, SCORES, Served, client, is_drained, passes,
    queued, waits,
};
use crate::faults::scene::{holds_exactly, until};
use crate::patience::{Stopwatch, pass, secs, within};

/// The store lost the hold, and a late copy of the acquire has brought another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_of_another_token_is_not_entered_again() {
    let server = Server::start(&main_flavour());
    let client = client(&server.url(), secs(2)).await;
    let guard = client.fair_lock(NAME).lock().await.unwrap();
    let token = guard.token().to_string();
    let record: String = server.query(&["GET", RECORD]);
    let other = record.replacen(&token, FAR_TOKEN, 1);
    assert_ne!(record, other);
    server.query::<String>(&["SET", RECORD, &other, "KEEPTTL"]);
    assert!(matches!(guard.reenter().await, Err(LockError::Lost(_))));
    assert!(!guard.is_held());
}

/// Stands for the id of the one who waits.
const WAITER: &str = "WAITER";
/// After every score and deadline that is in use, in ms.
const FAR: &str = "99999999999999";
/// After every token that is in use.
const FAR_TOKEN: &str = "8999999999999999";
const FOREIGN: &str = "1 9999999999999999 30000 someone";

/// What is done to the keys, and what it is called.
type Poison = (&'static str, &'static [&'static [&'static str]]);

/// What is wrong before anybody comes, or comes while somebody waits.
const ANYTIME: [Poison; 15] = [
    ("an entry without score", &[&["LPUSH", LIST, GHOST]]),
    ("an entry of Java without score", &[&["LPUSH", LIST, JAVA_GHOST]]),
    ("many of them", &[&["LPUSH", LIST, GHOST, JAVA_GHOST, GHOST, "x", JAVA_GHOST, GHOST]]),
    ("an entry at the end", &[&["RPUSH", LIST, GHOST, JAVA_GHOST]]),
    ("a score without entry", &[&["ZADD", SCORES, FAR, GHOST]]),
    ("a score of Java without entry", &[&["ZADD", SCORES, FAR, JAVA_GHOST]]),
    ("an endless score", &[&["ZADD", SCORES, "+inf", GHOST], &["LPUSH", LIST, GHOST]]),
    ("no score at all", &[&["ZADD", SCORES, "-inf", JAVA_GHOST], &["LPUSH", LIST, JAVA_GHOST]]),
    ("a score with a fraction", &[&["ZADD", SCORES, "1.5", "x"], &["LPUSH", LIST, "x"]]),
    ("garbage", &[&["LPUSH", LIST, "", "garbage", ":", "\n\0", "00000000-"]]),
    ("a place that is none", &[&["HSET", PLACES, GHOST, "x"], &["LPUSH", LIST, GHOST]]),
    ("a place without entry", &[&["HSET", PLACES, GHOST, FOREIGN, "x", FOREIGN]]),
    (
        "a place of one that nobody hears",
        &[
            &["HSET", PLACES, GHOST, FOREIGN],
            &["LPUSH", LIST, GHOST],
            &["ZADD", SCORES, FAR, GHOST],
        ],
    ),
    (
        "a place with numbers that are none",
        &[
            &["HSET", PLACES, GHOST, "99999999999999999999999 99999999999999999999999 -1 x"],
            &["LPUSH", LIST, GHOST],
            &["ZADD", SCORES, FAR, GHOST],
        ],
    ),
    ("a record that is none", &[&["SET", RECORD, "garbage"]]),
];

/// What is done to the entry of one who waits.
const WHILE_WAITING: [Poison; 9] = [
    ("is in there twice", &[&["RPUSH", LIST, WAITER]]),
    ("is in there often", &[&["LPUSH", LIST, WAITER, WAITER, GHOST, WAITER]]),
    ("has lost its entry", &[&["LREM", LIST, "0", WAITER]]),
    ("has lost its score", &[&["ZREM", SCORES, WAITER]]),
    ("has lost its place", &[&["HDEL", PLACES, WAITER]]),
    ("has a place that is none", &[&["HSET", PLACES, WAITER, "garbage"]]),
    ("has lost the list", &[&["DEL", LIST]]),
    ("has lost all", &[&["DEL", LIST, SCORES, PLACES, RECORD]]),
    ("has a score of long ago", &[&["ZADD", SCORES, "1", WAITER]]),
];

fn spoil(server: &Server, commands: &[&[&str]], waiter: &str) {
    for command in commands {
        let filled_in = |word: &&str| if *word == WAITER { waiter } else { word }.to_owned();
        let command: Vec<String> = command.iter().map(filled_in).collect();
        server.query::<redis::Value>(&command);
    }
}

async fn two_clients(server: &Server) -> (Client, Client) {
    (client(&server.url(), WAITER_TTL).await, client(&server.url(), WAITER_TTL).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoilt_queue_does_not_keep_anybody_out() {
    let server = Server::start(&main_flavour());
    let (alice, _) = two_clients(&server).await;
    for (what, commands) in ANYTIME {
        spoil(&server, commands, "");
        server.reset_stats();
        let lock = alice.fair_lock(NAME);
        let guard =
            within(BOUND, what, lock.lock()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(holds_exactly(&server, &guard, 1), "{what}");
        guard.release().await.unwrap();
        assert!(server.script_calls() <= MOST_CALLS, "{what}: {}", server.script_calls());
        assert!(is_drained(&server), "{what}: {:?}", server.keys());
        server.query::<()>(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_spoilt_moves_on() {
    let server = Server::start(&main_flavour());
    let (alice, bob) = two_clients(&server).await;
    for (what, commands) in ANYTIME.into_iter().chain(WHILE_WAITING) {
        let held = alice.fair_lock(NAME).lock().await.unwrap();
        let waiting = waits(&bob.fair_lock(NAME)).await;
        let waiter = queued(&alice.fair_lock(NAME), 1).await.remove(0);
        server.reset_stats();
        spoil(&server, commands, waiter.as_str());
        held.release().await.unwrap();
        let watch = Stopwatch::start();
        let guard = within(secs(30), what, waiting).await.unwrap();
        let guard = guard.unwrap_or_else(|error| panic!("{what}: {error}"));
        println!("{what}: served after {:?}", watch.elapsed());
        assert!(watch.elapsed() < BOUND, "{what}: {:?}", watch.elapsed());
        assert!(holds_exactly(&server, &guard, 1), "{what}");
        guard.release().await.unwrap();
        assert!(server.script_calls() <= MOST_CALLS, "{what}: {}", server.script_calls());
        until(what, || is_drained(&server)).await;
        server.query::<()>(&["FLUSHALL"]);
    }
}

/// Nobody comes and nothing is released: the one who waits does not ask all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_waits_in_a_spoilt_queue_does_not_spin() {
    let server = Server::start(&main_flavour());
    let (alice, bob) = two_clients(&server).await;
    for (what, commands) in WHILE_WAITING {
        let held = alice.fair_lock(NAME).lock().await.unwrap();
        let waiting = waits(&bob.fair_lock(NAME)).await;
        let waiter = queued(&alice.fair_lock(NAME), 1).await.remove(0);
        spoil(&server, commands, waiter.as_str());
        server.reset_stats();
        pass(secs(2)).await;
        assert!(server.script_calls() <= MOST_CALLS, "{what}: {}", server.script_calls());
        held.release().await.unwrap();
        let guard = within(BOUND, what, waiting).await.unwrap().unwrap();
        guard.release().await.unwrap();
        until(what, || is_drained(&server)).await;
    }
}

/// As Redisson does on a machine whose clock is hours ahead: all who wait look dead to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_was_wiped_comes_back_in_its_order() {
    let server = Server::start(&main_flavour());
    let (alice, bob) = two_clients(&server).await;
    let held = alice.fair_lock(NAME).lock().await.unwrap();
    let (served, mut waiting) = (Served::default(), Vec::new());
    for number in 0..6 {
        let client = if number % 3 == 0 { &alice } else { &bob };
        waiting.push(passes(&client.fair_lock(NAME), &served).await);
        queued(&alice.fair_lock(NAME), number + 1).await;
    }
    let tickets = || {
        let waiters = server.query::<Vec<(String, String)>>(&["HGETALL", PLACES]);
        let ticket = |place: &str| place.split(' ').next().unwrap().parse::<u64>().unwrap();
        let mut tickets: Vec<u64> = waiters.iter().map(|(_, place)| ticket(place)).collect();
        tickets.sort_unstable();
        tickets
    };
    let before = tickets();
    server.query::<()>(&["DEL", LIST, SCORES]);
    queued(&alice.fair_lock(NAME), 6).await;
    assert_eq!(tickets(), before, "everybody has come back with its ticket");
    let order = queued(&alice.fair_lock(NAME), 6).await;
    let ticket_of = |owner: &OwnerId| -> String { server.query(&["HGET", PLACES, owner.as_str()]) };
    assert!(order.iter().is_sorted_by_key(ticket_of), "{order:?}");
    held.release().await.unwrap();
    for waiting in waiting {
        within(BOUND, "everybody is served", waiting).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), order);
    until("nothing is left", || is_drained(&server)).await;
}

/// Nobody has released it, and nobody is told: who waits finds it free with its next heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_vanished_is_passed_on() {
    let server = Server::start(&main_flavour());
    let (alice, bob) = two_clients(&server).await;
    let held = alice.fair_lock(NAME).lock().await.unwrap();
    let waiting = waits(&bob.fair_lock(NAME)).await;
    queued(&alice.fair_lock(NAME), 1).await;
    server.query::<()>(&["DEL", NAME]);
    let watch = Stopwatch::start();
    let guard = within(secs(30), "its turn", waiting).await.unwrap().unwrap();
    assert!(watch.elapsed() < WAITER_TTL / 3 + secs(1), "{:?}", watch.elapsed());
    assert!(holds_exactly(&server, &guard, 1));
    let ReleaseError::Lost(lost) = held.release().await.unwrap_err() else { panic!() };
    assert_eq!(lost.cause, LostCause::Gone);
    assert!(holds_exactly(&server, &guard, 1), "a late release takes nothing away");
    guard.release().await.unwrap();
    until("nothing is left", || is_drained(&server)).await;
}

/// Who holds the lock goes on holding it, whatever it waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type_is_an_error_that_says_so() {
    let server = Server::start(&main_flavour());
    for key in [NAME, LIST, SCORES, PLACES] {
        for command in
            [&["SET", key, "x"][..], &["SADD", key, "x"], &["XADD", key, "1-1", "f", "v"]]
        {
            let (alice, bob) = two_clients(&server).await;
            server.query::<()>(&["FLUSHALL"]);
            server.query::<redis::Value>(command);
            let watch = Stopwatch::start();
            let outcome = within(BOUND, key, alice.fair_lock(NAME).lock()).await;
            is_wrong_type(outcome.map(drop), key);
            is_wrong_type(alice.fair_lock(NAME).try_lock().await.map(drop), key);
            assert!(watch.elapsed() < BOUND);
            assert_eq!(server.keys(), [key], "nothing is touched");
            server.query::<()>(&["FLUSHALL"]);

            let held = alice.fair_lock(NAME).lock().await.unwrap();
            let waiting = waits(&bob.fair_lock(NAME)).await;
            queued(&alice.fair_lock(NAME), 1).await;
            server.query::<()>(&["DEL", key]);
            server.query::<redis::Value>(command);
            server.reset_stats();
            let outcome = within(BOUND, "the waiter is told", waiting).await.unwrap();
            is_wrong_type(outcome.map(drop), key);
            assert!(server.script_calls() <= MOST_CALLS, "{}", server.script_calls());
            let released = within(BOUND, "the holder is told", held.release()).await;
            assert!(released.is_err(), "{key}: {released:?}");
            server.query::<()>(&["FLUSHALL"]);
            alice.fair_lock(NAME).lock().await.unwrap().release().await.unwrap();
        }
    }
}

/// It is written anew with the next grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_another_type_does_not_matter() {
    let server = Server::start(&main_flavour());
    let (alice, bob) = two_clients(&server).await;
    let held = alice.fair_lock(NAME).lock().await.unwrap();
    let waiting = waits(&bob.fair_lock(NAME)).await;
    queued(&alice.fair_lock(NAME), 1).await;
    server.query::<()>(&["DEL", RECORD]);
    server.query::<()>(&["LPUSH", RECORD, "x"]);
    let token = held.token();
    held.release().await.unwrap();
    let guard = within(BOUND, "its turn", waiting).await.unwrap().unwrap();
    assert!(guard.token() > token);
    guard.release().await.unwrap();
    assert!(is_drained(&server));
}

fn is_wrong_type(outcome: Result<(), LockError>, key: &str) {
    match outcome {
        Err(LockError::Store(error)) => {
            assert_eq!(*error.kind(), StoreErrorKind::WrongType, "{key}")
        }
        other => panic!("{key}: {other:?}"),
    }
}

const WAITER_TTL: Duration = secs(2);
/// How long a queue may stand still.
const BOUND: Duration = secs(3);
/// In as long as that: three heartbeats per `WAITER_TTL` of two clients, and some to come back.
const MOST_CALLS: u64 = 30;
