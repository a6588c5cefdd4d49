//! Looking at locks, and breaking one: `ls`, `show`, `break`.

mod breaking;
mod json;
mod table;

use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;

use fairlock::{Client, Info, LockError, Waiter};

pub(crate) use self::breaking::break_lock;
pub(crate) use self::table::Style;

use crate::config::LookConfig;
use crate::exit::Exit;
use crate::say;

/// `fairlock ls`.
pub(crate) async fn ls(config: LookConfig, pattern: String) -> Exit {
    with_client(&config, async |client| {
        let locks = client.list(&pattern).await?;
        if config.json {
            say::output(&json::list(&locks));
        } else if locks.is_empty() {
            say::error("no lock is held that matches");
        } else {
            say::output(&table::list(&locks, config.style));
        }
        Ok(Exit::OK)
    })
    .await
}

/// `fairlock show`.
pub(crate) async fn show(config: LookConfig, name: &OsStr) -> Exit {
    with_client(&config, async |client| {
        let info = client.fair_lock(name.as_bytes()).inspect().await?;
        say::output(&match config.json {
            true => json::one(&info),
            false => table::one(&info, config.style),
        });
        Ok(Exit::OK)
    })
    .await
}

/// Who queues for a lock. `None` says nothing about its kind: a store has the same entry for a plain
/// lock and for a fair one that nobody waits for.
fn queue(info: &Info) -> Option<&[Waiter]> {
    info.waiters.as_deref().filter(|waiters| !waiters.is_empty())
}

/// Connects, does something, and says what went wrong if anything did.
async fn with_client<F>(config: &LookConfig, work: impl FnOnce(Client) -> F) -> Exit
where
    F: Future<Output = Result<Exit, LockError>>,
{
    let client = match Client::connect(&config.store).await {
        Ok(client) => client,
        Err(error) => {
            say::error(&error);
            return Exit::of_connect_error(&error);
        }
    };
    work(client).await.unwrap_or_else(|error| {
        say::error(&error);
        Exit::of_lock_error(&error)
    })
}
