//! The stores that a behaviour is tested on.

use std::sync::atomic::{AtomicU64, Ordering};

use fairlock::{Builder, Client};
use fairlock_testkit::{Flavour, Scratch, Server, main_flavour};

/// A store of its own for one test.
pub(crate) enum Store {
    Memory(String),
    File(Scratch),
    Redis(Server),
}

impl Store {
    /// A memory store that all clients of this test share.
    pub(crate) fn memory() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::Memory(format!("memory:test-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// A directory that all clients of this test share.
    pub(crate) fn file() -> Self {
        Self::File(Scratch::new())
    }

    /// The main server, started for this test alone.
    pub(crate) fn redis() -> Self {
        Self::flavour(&main_flavour())
    }

    /// A server of this flavour.
    pub(crate) fn flavour(flavour: &Flavour) -> Self {
        Self::Redis(Server::start(flavour))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory(url) => url.clone(),
            Self::File(scratch) => format!("file:{}", scratch.path().display()),
            Self::Redis(server) => server.url(),
        }
    }

    /// A new client, as if in another process.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(|builder| builder).await
    }

    pub(crate) async fn client_with(&self, set: impl FnOnce(Builder) -> Builder) -> Client {
        set(Client::builder(&self.url())).connect().await.expect("the store can be reached")
    }

    /// The server, for tests that look behind the scenes where there is one.
    pub(crate) fn server(&self) -> Option<&Server> {
        match self {
            Self::Memory(_) | Self::File(_) => None,
            Self::Redis(server) => Some(server),
        }
    }
}

/// Makes a test of each behaviour (`async fn(Store)`) for each engine: `memory::NAME`,
/// `file::NAME`, `redis::NAME`.
macro_rules! on_every_engine {
    ($($behaviour:ident),+ $(,)?) => {
        mod memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    super::$behaviour(crate::stores::Store::memory()).await;
                }
            )+
        }
        mod file {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    super::$behaviour(crate::stores::Store::file()).await;
                }
            )+
        }
        mod redis {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    super::$behaviour(crate::stores::Store::redis()).await;
                }
            )+
        }
    };
}

pub(crate) use on_every_engine;
