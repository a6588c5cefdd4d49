//! The stores that every test runs on.

use fairlock_testkit::{Server, main_flavour};

/// A store of its own for one test.
#[derive(Debug)]
pub(crate) struct Store {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Redis(Server),
}

impl Store {
    fn redis() -> Self {
        Self { kind: Kind::Redis(Server::start(&main_flavour())) }
    }

    /// What to give to `--store`.
    pub(crate) fn address(&self) -> String {
        match &self.kind {
            Kind::Redis(server) => server.url(),
        }
    }

    /// Whether others see at once that a holder was killed, without waiting for its lease.
    pub(crate) fn sees_death(&self) -> bool {
        match self.kind {
            Kind::Redis(_) => false,
        }
    }
}

/// Runs a test on every kind of store.
pub(crate) fn on_each_store(test: impl Fn(&Store)) {
    for new in KINDS {
        let store = new();
        eprintln!("on {}", store.address());
        test(&store);
    }
}

const KINDS: &[fn() -> Store] = &[Store::redis];
