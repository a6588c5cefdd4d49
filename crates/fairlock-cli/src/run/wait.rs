//! Getting the lock, and telling the person at the terminal what it waits for.

use std::io::{self, IsTerminal};
use std::time::Duration;

use fairlock::{Client, Guard, Info, Lock, LockError, Options};
use rustix::process::{Signal, getpgrp};
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use super::signals::Signals;
use crate::clock::{Moment, sleep_towards};
use crate::config::{RunConfig, Wait};
use crate::duration::spell;
use crate::say::{self, Verbosity};

/// How waiting ended.
#[derive(Debug)]
pub(crate) enum Waited {
    Held(Guard),
    /// We did not get it; this is who has it, where that is known.
    Busy(String),
    Interrupted(Signal),
    Failed(LockError),
}

/// Tries or waits for the lock.
pub(crate) async fn acquire(client: &Client, config: &RunConfig, signals: &mut Signals) -> Waited {
    let mut options = Options::new();
    if let Wait::For(wait) = config.wait {
        options = options.wait(wait);
    }
    if let Some(max_hold) = config.max_hold {
        options = options.max_hold(max_hold);
    }
    let lock = client.lock(config.name_bytes()).with(options);
    let attempt = async {
        match config.wait {
            Wait::No => lock.try_lock().await,
            Wait::For(_) | Wait::Forever => lock.lock().await.map(Some),
        }
    };
    let mut status = StatusLine::new(config);
    let attempt = tokio::select! {
        biased;
        attempt = attempt => attempt,
        signal = signals.next_to_end_us() => {
            status.clear();
            return Waited::Interrupted(signal);
        }
        () = status.keep(&lock) => unreachable!("it is kept until the attempt ends"),
    };
    status.clear();
    match attempt {
        Ok(Some(guard)) => Waited::Held(guard),
        Ok(None) => Waited::Busy(match lock.inspect().await {
            Ok(info) => format!("the lock {} is {}", config.name_for_people(), holder(&info)),
            Err(_) => format!("the lock {} is busy", config.name_for_people()),
        }),
        Err(error @ LockError::TimedOut { .. }) => Waited::Busy(error.to_string()),
        Err(error) => Waited::Failed(error),
    }
}

/// Who holds a lock, as part of a sentence.
pub(crate) fn holder(info: &Info) -> String {
    match (&info.holder, &info.owner) {
        (Some(holder), _) => holder.to_string(),
        (None, Some(owner)) => {
            let lease = info.lease.map(|lease| format!(", for {} more or longer", spell(lease)));
            format!("held by {owner}, not a fairlock client{}", lease.unwrap_or_default())
        }
        (None, None) => "free just now".to_owned(),
    }
}

/// The line that is rewritten every second. Nothing but a terminal gets it; with `-v` anything
/// else gets one line that stays.
#[derive(Debug)]
struct StatusLine<'a> {
    config: &'a RunConfig,
    since: Moment,
    is_live: bool,
    is_shown: bool,
}

impl<'a> StatusLine<'a> {
    fn new(config: &'a RunConfig) -> Self {
        let is_live = io::stderr().is_terminal() && config.verbosity >= Verbosity::Normal;
        Self { config, since: Moment::now(), is_live, is_shown: false }
    }

    /// Shows and refreshes the line until it is dropped.
    async fn keep(&mut self, lock: &Lock) {
        if !self.is_live && self.config.verbosity < Verbosity::Verbose {
            return std::future::pending().await;
        }
        let mut next = Moment::now().plus(FIRST_LOOK);
        loop {
            while Moment::now() < next {
                sleep_towards(next).await;
            }
            next = Moment::now().plus(REFRESH);
            let who = match lock.inspect().await {
                Ok(info) => holder(&info),
                Err(error) => error.to_string(),
            };
            self.show(&who);
            if !self.is_live {
                return std::future::pending().await;
            }
        }
    }

    fn show(&mut self, who: &str) {
        let name = self.config.name_for_people();
        let waited = spell(self.since.until(Moment::now()));
        if !self.is_live {
            return say::error(format_args!("waiting for the lock {name}, {who}"));
        }
        // A job in the background must not write over what the person types.
        if tcgetpgrp(io::stderr()).is_ok_and(|foreground| foreground != getpgrp()) {
            return;
        }
        let line = format!("fairlock: waiting {waited} for {name}, {who}");
        // A line that wraps could not be rewritten.
        let columns = match tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
            _ => 80,
        };
        let line: String = line.chars().filter(|c| !c.is_control()).take(columns - 1).collect();
        say::raw(&format!("\r{line}\x1b[K"));
        self.is_shown = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            say::raw("\r\x1b[K");
        }
    }
}

/// Most locks come free sooner, and a line that flashes up disturbs.
const FIRST_LOOK: Duration = Duration::from_millis(300);
const REFRESH: Duration = Duration::from_secs(1);
