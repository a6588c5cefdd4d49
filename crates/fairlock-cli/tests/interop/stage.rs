//! Where a scenario plays: a server, two Java processes, two Rust processes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use fairlock_testkit::{Answer, Flavour, Peer, Pending, Redisson, Server, eventually};
use redis::{Connection, FromRedisValue};

use crate::rust_peer;

pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) redisson: Redisson,
    pub(crate) java: [Peer; 2],
    pub(crate) rust: [Peer; 2],
    connection: Mutex<Connection>,
    numbers: AtomicU32,
}

impl Stage {
    pub(crate) fn set(redisson: &Redisson, flavour: &Flavour) -> Self {
        let server = Server::start(flavour);
        let url = server.url();
        let java = thread::scope(|scope| {
            let start = || redisson.start(&url, WATCHDOG, FAIR_WAIT_OF_REDISSON);
            let starting = [(); 2].map(|()| scope.spawn(start));
            starting.map(|one| one.join().expect("Java starts"))
        });
        let rust = [(); 2].map(|()| rust_peer::start(&url, WATCHDOG));
        let connection = Mutex::new(server.connection());
        let redisson = redisson.clone();
        Self { server, redisson, java, rust, connection, numbers: AtomicU32::new(0) }
    }

    /// One more Java process, for a scenario that ends it.
    pub(crate) fn another_java(&self) -> Peer {
        self.redisson.start(&self.server.url(), WATCHDOG, FAIR_WAIT_OF_REDISSON)
    }

    /// One more Rust process, for a scenario that ends it.
    pub(crate) fn another_rust(&self) -> Peer {
        rust_peer::start(&self.server.url(), WATCHDOG)
    }

    /// The name of a lock, or of a thread, that nobody else uses.
    pub(crate) fn new_name(&self, what: &str) -> String {
        format!("{what}-{}", self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn query<T: FromRedisValue>(&self, args: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        for arg in args {
            command.arg(*arg);
        }
        let mut connection = self.connection.lock().unwrap();
        command.query(&mut *connection).unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    /// Waits until somebody listens for the release of a lock of the plain kind.
    pub(crate) fn await_listeners(&self, name: &str, least: u64) {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        eventually(BOUND, "somebody listens", || {
            let (_, count): (String, u64) = self.query(&["PUBSUB", "NUMSUB", &channel]);
            count >= least
        });
    }
}

impl Stage {
    /// Waits until so many are in the queue of a fair lock.
    pub(crate) fn await_queued(&self, name: &str, count: u64) {
        let queue = format!("redisson_lock_queue:{{{name}}}");
        eventually(BOUND, "so many are queued", || self.query::<u64>(&["LLEN", &queue]) == count);
    }

    /// Waits until the head of a fair lock's queue listens for Redisson's message to it.
    pub(crate) fn await_fair_listener(&self, name: &str) {
        let queue = format!("redisson_lock_queue:{{{name}}}");
        eventually(BOUND, "the head of the queue listens", || {
            let head: Option<String> = self.query(&["LINDEX", &queue, "0"]);
            head.is_some_and(|head| {
                let own = format!("redisson_lock__channel:{{{name}}}:{head}");
                let client = head.rsplit_once(':').map_or("", |(client, _)| client);
                let client = format!("fairlock:client:{client}");
                let heard = |channel: &str| -> u64 {
                    self.query::<(String, u64)>(&["PUBSUB", "NUMSUB", channel]).1
                };
                // A waiter of ours hears of grants in another way, too.
                heard(&own) > 0 || heard(&client) > 0
            })
        });
    }
}

/// A logical thread of a process, and one lock: what most scenarios are about.
pub(crate) struct Part<'a> {
    peer: &'a Peer,
    thread: String,
    lock: String,
}

impl<'a> Part<'a> {
    pub(crate) fn new(stage: &Stage, peer: &'a Peer, kind: &str, name: &str) -> Self {
        Self { peer, thread: stage.new_name("thread"), lock: format!("{kind} {name}") }
    }

    /// Another thread of the same process, on the same lock.
    pub(crate) fn sibling(&self, stage: &Stage) -> Part<'a> {
        Part { peer: self.peer, thread: stage.new_name("thread"), lock: self.lock.clone() }
    }

    /// Begins `verb KIND NAME arguments`.
    pub(crate) fn begin(&self, verb: &str, arguments: &str) -> Pending {
        let command = format!("{verb} {} {arguments}", self.lock);
        self.peer.begin(&self.thread, command.trim_end())
    }

    pub(crate) fn answer(&self, verb: &str, arguments: &str) -> Answer {
        self.begin(verb, arguments).answer()
    }

    pub(crate) fn ask(&self, verb: &str) -> String {
        self.answer(verb, "").text
    }

    /// Does something that has to end like this.
    #[track_caller]
    pub(crate) fn does(&self, verb: &str, expected: &str) {
        let answer = self.ask(verb);
        assert_eq!(answer, expected, "{}: {verb} {}", self.peer.label(), self.lock);
    }
}

/// Lets time pass, where that is what a scenario is about.
#[expect(clippy::disallowed_methods, reason = "other processes wait in real time")]
pub(crate) fn pass(duration: Duration) {
    thread::sleep(duration);
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The lease that the watchdogs of both sides renew.
pub(crate) const WATCHDOG: Duration = ms(2_000);
/// Zero: Redisson's own.
const FAIR_WAIT_OF_REDISSON: Duration = Duration::ZERO;
/// Far more than anything takes that is to happen at once.
pub(crate) const BOUND: Duration = Duration::from_secs(20);
