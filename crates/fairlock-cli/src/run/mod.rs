//! `fairlock run`: a command under a lock.
//!
//! ```text
//!   wrapper ──────── holds the lock, forwards signals, obeys the deadline
//!     ├── watcher ── ends the command if the wrapper cannot any more
//!     └── command ── in a process group of its own
//! ```
//!
//! The order matters: the lock, then the watcher, then the command. At the end: the command's
//! group is gone, then the watcher is dismissed, then the lock is given back.

mod child;
mod deadline;
mod group;
mod signals;
mod supervise;
mod terminal;
mod wait;
mod watcher;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fairlock::{Client, Guard, ReleaseError};

use self::child::Child;
use self::signals::Signals;
use self::supervise::{Outcome, Supervisor};
use self::terminal::Terminal;
use self::wait::Waited;
use self::watcher::Watcher;
use crate::clock::Moment;
use crate::config::RunConfig;
use crate::exit::Exit;

pub(crate) use self::child::wait_and_become;
pub(crate) use self::wait::holder;
pub(crate) use self::watcher::watch;

/// Runs the command; the code to end with.
pub(crate) async fn run(config: RunConfig) -> Exit {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return system_error(&config, "listen to signals", &error),
    };
    let mut builder = Client::builder(&config.store).lease(config.lease).program(config.program());
    if let Some(waiter_ttl) = config.waiter_ttl {
        builder = builder.waiter_ttl(waiter_ttl);
    }
    let client = tokio::select! {
        client = builder.connect() => client,
        signal = signals.next_to_end_us() => return Exit::of_signal(signal.as_raw()),
    };
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            config.verbosity.error(&error);
            return Exit::of_connect_error(&error);
        }
    };
    let exit = with_client(&client, &config, &mut signals).await;
    // A second Ctrl-C while we tidy up means it.
    tokio::select! {
        _ = tokio::time::timeout(LONGEST_CLOSE, client.close()) => {}
        _ = signals.next_to_end_us() => {}
    }
    exit
}

async fn with_client(client: &Client, config: &RunConfig, signals: &mut Signals) -> Exit {
    let say = config.verbosity;
    if let Some(exit) = refuse_to_wait_for_ourselves(client, config).await {
        return exit;
    }
    let asked = Moment::now();
    let guard = match wait::acquire(client, config, signals).await {
        Waited::Held(guard) => guard,
        Waited::Busy(who) => {
            say.note(who);
            return config.conflict_exit;
        }
        Waited::Interrupted(signal) => {
            say.note("interrupted, no longer waiting");
            return Exit::of_signal(signal.as_raw());
        }
        Waited::Failed(error) => {
            say.error(&error);
            return Exit::of_lock_error(&error);
        }
    };
    let since = Moment::now();
    let waited = crate::duration::spell(asked.until(since));
    let name = config.name_for_people();
    say.step(format_args!("got the lock {name} after {waited}, token {}", guard.token()));

    let outcome = match supervise(client, config, signals, &guard, since).await {
        Ok(outcome) => outcome,
        Err(exit) => Outcome { exit, lost: false },
    };
    if outcome.lost {
        // That has been told. Whatever is left to give back goes with the client, within a bound.
        return Exit::LOST;
    }
    match guard.release().await {
        Err(ReleaseError::Lost(lost)) => {
            say.error(format_args!("{lost}; the command may not have been alone"));
            Exit::LOST
        }
        Err(error) => {
            say.error(&error);
            outcome.exit
        }
        Ok(_) => {
            say.step(format_args!("gave the lock {name} back"));
            outcome.exit
        }
    }
}

/// Starts the watcher and the command, and stays with them until the end.
async fn supervise(
    client: &Client,
    config: &RunConfig,
    signals: &mut Signals,
    guard: &Guard,
    since: Moment,
) -> Result<Outcome, Exit> {
    let say = config.verbosity;
    let liveness = client.liveness().map_err(|error| {
        say.error(&error);
        Exit::STORE
    })?;
    let mut watcher = Watcher::start(liveness)
        .map_err(|error| system_error(config, "start the watcher", &error))?;
    let terminal = Terminal::open();
    if terminal.as_ref().is_some_and(|terminal| terminal.is_shared) {
        signals
            .add(rustix::process::Signal::TSTP)
            .map_err(|error| system_error(config, "listen to signals", &error))?;
    }
    let child = Child::prepare(&config.command, &environment(config, guard))
        .map_err(|error| system_error(config, "start a process", &error))?;
    watcher.watch(child.group);
    if let Some(terminal) = &terminal {
        terminal.lend(child.group);
    }
    // If it is gone already, its end tells.
    child.go().ok();
    let supervisor = Supervisor {
        config,
        guard,
        child: &child,
        watcher: &mut watcher,
        signals,
        terminal: terminal.as_ref(),
        since,
    };
    let mut outcome = supervisor.run().await;
    if !child.group.is_alive() {
        watcher.dismiss();
    }
    if let Some(error) = child.exec_error() {
        outcome.exit = child::exit_of(&error);
        let program = Path::new(&config.command[0]).display();
        say.error(match outcome.exit {
            Exit::NOT_FOUND => format!("there is no command {program}; check the name and PATH"),
            _ => format!("cannot execute {program}: {error}"),
        });
    }
    Ok(outcome)
}

/// A command under a lock that wants the same lock would wait for itself.
async fn refuse_to_wait_for_ourselves(client: &Client, config: &RunConfig) -> Option<Exit> {
    if config.held_around_us.is_empty() {
        return None;
    }
    // The variable may be a left-over in a process that outlived its lock; the store knows.
    let info = client.lock(config.name_bytes()).inspect().await.ok()?;
    let owner = info.owner?;
    config.held_around_us.iter().find(|held| held.as_str() == owner.as_str())?;
    config.verbosity.error(format_args!(
        "the lock {} is held by the `fairlock run` that this one runs in, so waiting would never \
         end; drop one of the two, or use another name",
        config.name_for_people()
    ));
    Some(Exit::USAGE)
}

fn environment(config: &RunConfig, guard: &Guard) -> Vec<(&'static str, OsString)> {
    let owner = guard.owner_id().as_str();
    let mut held = config.held_around_us.clone();
    held.push(owner.to_owned());
    vec![
        ("FAIRLOCK_NAME", config.name.clone()),
        ("FAIRLOCK_TOKEN", guard.token().to_string().into()),
        ("FAIRLOCK_OWNER", owner.into()),
        (crate::config::HELD_VARIABLE, held.join(" ").into()),
    ]
}

/// This very program once more, also if its file was replaced while we waited.
fn ourselves() -> Command {
    let running = Path::new("/proc/self/exe");
    let mut command = match running.exists() {
        true => Command::new(running),
        false => Command::new(std::env::current_exe().unwrap_or_else(|_| "fairlock".into())),
    };
    command.arg0("fairlock");
    command
}

fn system_error(config: &RunConfig, what: &str, error: &std::io::Error) -> Exit {
    config.verbosity.error(format_args!("cannot {what}: {error}"));
    Exit::SYSTEM
}

/// First argument of the process that becomes the command.
pub(crate) const EXEC: &str = "--internal-exec";
/// First argument of the watcher.
pub(crate) const WATCH: &str = "--internal-watch";
/// A store that does not answer may not keep a person waiting after Ctrl-C.
const LONGEST_CLOSE: Duration = Duration::from_secs(2);
