//! Processes are killed, stopped and continued, by real signals.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use fairlock::blocking::{Client, Guard};
use fairlock::{LockError, Options};
use fairlock_testkit::{Proxy, Server, eventually, main_flavour};
use rustix::process::Signal;

use super::scene::{holds, listeners};
use crate::actor::Actor;
use crate::patience::{Stopwatch, block_thread, ms, secs};

#[test]
fn the_lock_of_a_killed_process_comes_free_with_its_lease() {
    let server = Server::start(&main_flavour());
    let lease = secs(3);
    let mut victim = Actor::start(&server.url(), lease);
    assert!(victim.ask("lock a").starts_with("held "));
    victim.kill();
    let watch = Stopwatch::start();
    let guard = lock(&server, "a").unwrap();
    assert!(watch.elapsed() < lease + SLACK, "{:?}", watch.elapsed());
    guard.release().unwrap();
}

#[test]
fn a_process_that_ends_properly_leaves_its_lock_at_once() {
    let server = Server::start(&main_flavour());
    let mut actor = Actor::start(&server.url(), secs(60));
    assert!(actor.ask("lock a").starts_with("held "));
    actor.tell("quit");
    eventually(BOUND, "the lock is free", || holds(&server, "a").is_empty());
}

#[test]
fn a_process_stopped_for_longer_than_its_lease_knows_at_once_that_it_lost() {
    let server = Server::start(&main_flavour());
    let proxy = Proxy::start(server.port());
    let mut sleeper = Actor::start(&proxy.url(), secs(2));
    let held = sleeper.ask("lock a");
    sleeper.signal(Signal::STOP);
    let guard = lock(&server, "a").unwrap();
    assert!(guard.token().get() > held.strip_prefix("held ").unwrap().parse().unwrap());
    // Whatever it says now, it has asked nobody.
    proxy.pause();
    sleeper.signal(Signal::CONT);
    assert_eq!(sleeper.ask("is_held"), "false");
    proxy.resume();
    assert!(sleeper.ask("release").starts_with("lost "));
    assert!(guard.is_held());
    assert!(holds(&server, "a").contains_key(guard.owner_id().as_str()));
    guard.release().unwrap();
}

#[test]
fn a_process_stopped_for_less_than_its_lease_keeps_its_lock() {
    let server = Server::start(&main_flavour());
    let mut sleeper = Actor::start(&server.url(), secs(6));
    assert!(sleeper.ask("lock a").starts_with("held "));
    sleeper.signal(Signal::STOP);
    // A renewal is due after two seconds.
    block_thread(ms(2_500));
    sleeper.signal(Signal::CONT);
    assert_eq!(sleeper.ask("is_held"), "true");
    let renewed = || server.query::<i64>(&["PTTL", "a"]) > 5_000;
    eventually(BOUND, "the lock is renewed", renewed);
    assert_eq!(sleeper.ask("release"), "released");
}

#[test]
fn waiters_that_are_killed_disturb_nobody() {
    let server = Server::start(&main_flavour());
    let holder = lock(&server, "a").unwrap();
    let mut last = Actor::start(&server.url(), LONG);
    let mut victims: Vec<Actor> = (0..3).map(|_| Actor::start(&server.url(), ms(1_000))).collect();
    for waiter in victims.iter_mut().chain([&mut last]) {
        waiter.tell("lock a");
    }
    eventually(BOUND, "four wait", || listeners(&server, "a") == 4);
    victims.pop().unwrap().kill();
    eventually(BOUND, "three wait", || listeners(&server, "a") == 3);
    holder.release().unwrap();
    // One of the others may have got the lock, or be about to: it dies with it, or without it.
    victims.into_iter().for_each(Actor::kill);
    assert!(last.answer().starts_with("held "));
    assert_eq!(last.ask("release"), "released");
    assert!(holds(&server, "a").is_empty());
}

#[test]
fn a_waiter_that_is_stopped_disturbs_nobody() {
    let server = Server::start(&main_flavour());
    let holder = lock(&server, "a").unwrap();
    let mut stopped = Actor::start(&server.url(), LONG);
    let mut running = Actor::start(&server.url(), LONG);
    let pid = pid_of(&mut stopped, &server);
    for waiter in [&mut stopped, &mut running] {
        waiter.tell("lock a");
    }
    eventually(BOUND, "two wait", || listeners(&server, "a") == 2);
    stopped.signal(Signal::STOP);
    eventually(BOUND, "all its threads stand still", || is_stopped(pid));
    holder.release().unwrap();
    assert!(running.answer().starts_with("held "));
    assert_eq!(running.ask("release"), "released");
    stopped.signal(Signal::CONT);
    assert!(stopped.answer().starts_with("held "));
    assert_eq!(stopped.ask("release"), "released");
}

#[test]
fn four_processes_count_without_a_mistake() {
    let server = Server::start(&main_flavour());
    let counter = Counter::new("four-processes");
    let mut actors: Vec<Actor> = (0..4).map(|_| Actor::start(&server.url(), LONG)).collect();
    for actor in &mut actors {
        actor.tell(&format!("loop a {} 200", counter.path.display()));
    }
    for actor in &mut actors {
        assert_eq!(actor.answer(), "done");
    }
    assert_eq!(counter.text(), "800");
    assert!(holds(&server, "a").is_empty());
}

#[test]
fn processes_count_without_a_mistake_while_holders_are_killed() {
    let server = Server::start(&main_flavour());
    let counter = Counter::new("killed-holders");
    let victims: Vec<Actor> = (0..3).map(|_| Actor::start(&server.url(), ms(1_000))).collect();
    let mut actors: Vec<Actor> = (0..2).map(|_| Actor::start(&server.url(), LONG)).collect();
    for actor in &mut actors {
        actor.tell(&format!("loop a {} 300", counter.path.display()));
    }
    let mut counted = Vec::new();
    for mut victim in victims {
        assert!(victim.ask("lock a").starts_with("held "));
        let owner = holds(&server, "a").into_keys().next().expect("the victim holds it");
        let at_its_death = counter.text();
        victim.kill();
        let after = counter.text();
        if holds(&server, "a").contains_key(&owner) {
            assert_eq!(after, at_its_death, "somebody counted without the lock");
        }
        counted.push(at_its_death.parse::<u64>().unwrap());
    }
    for actor in &mut actors {
        assert_eq!(actor.answer(), "done");
    }
    assert!(counted[0] < 600, "the first was killed when all was over: {counted:?}");
    assert_eq!(counter.text(), "600");
    assert!(holds(&server, "a").is_empty());
}

/// The process id of an actor, which tells it by holding a lock.
fn pid_of(actor: &mut Actor, server: &Server) -> u32 {
    assert!(actor.ask("lock who").starts_with("held "));
    let client = Client::connect(&server.url()).expect("the store can be reached");
    let holder = client.lock("who").inspect().unwrap().holder;
    assert_eq!(actor.ask("release"), "released");
    holder.expect("a fairlock client says who it is").pid
}

/// Whether a process has come to a stop: a signal reaches one of its threads first, and the others
/// go on for a moment.
fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    let is_stopped = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|after_name| after_name.starts_with(" T"))
    };
    threads.flatten().all(is_stopped)
}

/// Locks from this process, which does not wait for ever.
fn lock(server: &Server, name: &str) -> Result<Guard, LockError> {
    let client = Client::connect(&server.url()).expect("the store can be reached");
    client.lock(name).with(Options::new().wait(BOUND)).lock()
}

/// A file with a number in it, which is removed with its owner.
struct Counter {
    path: PathBuf,
}

impl Counter {
    fn new(name: &str) -> Self {
        let file = format!("fairlock-counter-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        fs::write(&path, "0").expect("the temporary folder can be written to");
        Self { path }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}

const BOUND: Duration = secs(30);
/// Longer than any test: who waits for the end of this lease waits too long.
const LONG: Duration = secs(120);
/// For a machine that has a lot else to do.
const SLACK: Duration = secs(2);
