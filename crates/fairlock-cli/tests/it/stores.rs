//! The stores that every test runs on.

use fairlock_testkit::{Scratch, Server, main_flavour};

/// A store of its own for one test.
#[derive(Debug)]
pub(crate) struct Store {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    File(Scratch),
    Redis(Server),
}

impl Store {
    fn file() -> Self {
        Self { kind: Kind::File(Scratch::new()) }
    }

    fn redis() -> Self {
        Self { kind: Kind::Redis(Server::start(&main_flavour())) }
    }

    /// What to give to `--store`.
    pub(crate) fn address(&self) -> String {
        match &self.kind {
            Kind::File(scratch) => format!("file:{}", scratch.path().join("store").display()),
            Kind::Redis(server) => server.url(),
        }
    }

    /// Whether others see at once that a holder was killed, without waiting for its lease.
    pub(crate) fn sees_death(&self) -> bool {
        match self.kind {
            Kind::File(_) => true,
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

const KINDS: &[fn() -> Store] = &[Store::file, Store::redis];
