//! `fairlock break`: freeing a lock whoever holds it, after a question.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;

use fairlock::{Client, Info, LockError};

use super::{queue, with_client};
use crate::config::{LookConfig, for_people};
use crate::exit::Exit;
use crate::run::holder;
use crate::say;

pub(crate) async fn break_lock(config: LookConfig, name: &OsStr, yes: bool) -> Exit {
    with_client(&config, async |client| try_to_break(&client, name, yes).await).await
}

async fn try_to_break(client: &Client, name: &OsStr, yes: bool) -> Result<Exit, LockError> {
    let lock = client.fair_lock(name.as_bytes());
    let shown = for_people(&name.to_string_lossy());
    let mut info = lock.inspect().await?;
    if !info.held {
        say::error(format_args!("nobody holds the lock {shown}, there is nothing to break"));
        return Ok(Exit::BUSY);
    }
    if !info.looks_like_a_lock() {
        let text = "to delete it is not our business, choose another name or do it yourself";
        say::error(format_args!("there is something else than a lock at {shown}; {text}"));
        return Ok(Exit::STORE);
    }
    if !yes {
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            let text = "without a terminal to ask on it is broken only with --yes";
            say::error(format_args!("the lock {shown} is {}; {text}", holder(&info)));
            return Ok(Exit::USAGE);
        }
        if !ask(&shown, &info) {
            say::error("left as it is");
            return Ok(Exit::BUSY);
        }
        // The answer was about the one that was shown.
        let now = lock.inspect().await?;
        if now.held && now.owner != info.owner {
            say::error(format_args!("by now the lock {shown} is {}; left as it is", holder(&now)));
            return Ok(Exit::BUSY);
        }
        (info.waiters, info.queued) = (now.waiters, now.queued);
    }
    // The two wake different people: the first in the queue, or all who wait for a plain lock.
    let broken = match queue(&info) {
        Some(_) => lock.force_unlock().await?,
        None => client.lock(name.as_bytes()).force_unlock().await?,
    };
    match broken {
        true => {
            say::error(format_args!("broke the lock {shown}, {}", holder(&info)));
            Ok(Exit::OK)
        }
        false => {
            say::error(format_args!("the lock {shown} came free by itself"));
            Ok(Exit::BUSY)
        }
    }
}

fn ask(shown: &str, info: &Info) -> bool {
    say::error(format_args!("the lock {shown} is {}.", holder(info)));
    say::raw(
        "Its holder is not asked, and notices only within a third of its lease. Break it? [y/N] ",
    );
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}
