//! fairlock's own thread: the watchdogs and the wake-ups of all clients of this process live on
//! it, whatever happens to the runtimes of the callers.

use std::future::pending;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};

/// The runtime of that thread, started with the first client and kept.
pub(crate) fn handle() -> Handle {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    HANDLE.get_or_init(start).clone()
}

fn start() -> Handle {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the operating system has a poller and a timer for one more thread");
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name("fairlock".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))
        .expect("the operating system has room for one more thread");
    handle
}
