//! Getting the lock, and telling the person at the terminal what it waits for.

use std::io::{self, IsTerminal};
use std::time::Duration;

use fairlock::{Client, FairLock, Guard, Info, Lock, LockError, Options};
use rustix::process::{Signal, getpgrp};
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use tokio::sync::watch;

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
    let lock = EitherLock::new(client, config);
    // Nobody knows the place yet.
    let (show_place, place) = watch::channel(0);
    let attempt = async {
        match config.wait {
            Wait::No => lock.try_lock().await,
            Wait::For(_) | Wait::Forever => lock.lock(&show_place).await.map(Some),
        }
    };
    let mut status = StatusLine::new(config, place);
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
            Ok(info) => format!("the lock {} is {}", config.name_for_people(), state(&info)),
            Err(_) => format!("the lock {} is busy", config.name_for_people()),
        }),
        Err(error @ LockError::TimedOut { .. }) => Waited::Busy(error.to_string()),
        Err(error) => Waited::Failed(error),
    }
}

/// The lock of the kind that was asked for.
#[derive(Debug)]
enum EitherLock {
    Fair(FairLock),
    Unfair(Lock),
}

impl EitherLock {
    fn new(client: &Client, config: &RunConfig) -> Self {
        let mut options = Options::new();
        if let Wait::For(wait) = config.wait {
            options = options.wait(wait);
        }
        if let Some(max_hold) = config.max_hold {
            options = options.max_hold(max_hold);
        }
        match config.fair {
            true => Self::Fair(client.fair_lock(config.name_bytes()).with(options)),
            false => Self::Unfair(client.lock(config.name_bytes()).with(options)),
        }
    }

    async fn try_lock(&self) -> Result<Option<Guard>, LockError> {
        match self {
            Self::Fair(lock) => lock.try_lock().await,
            Self::Unfair(lock) => lock.try_lock().await,
        }
    }

    async fn lock(&self, place: &watch::Sender<u64>) -> Result<Guard, LockError> {
        match self {
            Self::Fair(lock) => {
                let watch = |now| {
                    place.send_replace(now);
                };
                lock.lock_watching(watch).await
            }
            Self::Unfair(lock) => lock.lock().await,
        }
    }

    async fn inspect(&self) -> Result<Info, LockError> {
        match self {
            Self::Fair(lock) => lock.inspect().await,
            Self::Unfair(lock) => lock.inspect().await,
        }
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

/// Why one who does not wait did not get the lock.
fn state(info: &Info) -> String {
    let holder = holder(info);
    match info.waiters.as_deref() {
        None | Some([]) => holder,
        Some(waiters) => format!("{holder}; in line before you: {}", waiters.len()),
    }
}

/// The line that is rewritten every second, and when the place in line has changed. Nothing but a
/// terminal gets it; with `-v` anything else gets one line that stays, and one for each new place.
#[derive(Debug)]
struct StatusLine<'a> {
    config: &'a RunConfig,
    /// The place in line; zero if there is none, or nobody knows it yet.
    place: watch::Receiver<u64>,
    since: Moment,
    is_live: bool,
    is_shown: bool,
}

impl<'a> StatusLine<'a> {
    fn new(config: &'a RunConfig, place: watch::Receiver<u64>) -> Self {
        let is_live = io::stderr().is_terminal() && config.verbosity >= Verbosity::Normal;
        Self { config, place, since: Moment::now(), is_live, is_shown: false }
    }

    /// Shows and refreshes the line until it is dropped.
    async fn keep(&mut self, lock: &EitherLock) {
        if !self.is_live && self.config.verbosity < Verbosity::Verbose {
            return std::future::pending().await;
        }
        sleep_until(self.since.plus(FIRST_LOOK)).await;
        let mut told = *self.place.borrow_and_update();
        let mut who = who(lock).await;
        if !self.is_live {
            let (name, place) = (self.config.name_for_people(), in_line(told));
            say::error(format_args!("waiting for the lock {name}{place}, {who}"));
        }
        let mut refresh_at = Moment::now().plus(REFRESH);
        loop {
            let place = *self.place.borrow_and_update();
            if std::mem::replace(&mut told, place) != place {
                self.clear();
                let name = self.config.name_for_people();
                self.config.verbosity.step(format_args!("{} for {name}", ordinal_in_line(place)));
            }
            self.show(&who, place);
            let is_live = self.is_live;
            tokio::select! {
                Ok(()) = self.place.changed() => {}
                () = sleep_until(refresh_at), if is_live => {
                    who = self::who(lock).await;
                    refresh_at = Moment::now().plus(REFRESH);
                }
                else => return std::future::pending().await,
            }
        }
    }

    fn show(&mut self, who: &str, place: u64) {
        // A job in the background must not write over what the person types.
        if !self.is_live || tcgetpgrp(io::stderr()).is_ok_and(|foreground| foreground != getpgrp())
        {
            return;
        }
        let (name, place) = (self.config.name_for_people(), in_line(place));
        let waited = spell(self.since.until(Moment::now()));
        let line = format!("fairlock: waiting {waited} for {name}{place}, {who}");
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

async fn who(lock: &EitherLock) -> String {
    match lock.inspect().await {
        Ok(info) => holder(&info),
        Err(error) => error.to_string(),
    }
}

async fn sleep_until(moment: Moment) {
    while Moment::now() < moment {
        sleep_towards(moment).await;
    }
}

/// The place as part of the status line: nothing where there is none.
fn in_line(place: u64) -> String {
    match place {
        0 => String::new(),
        _ => format!(", {}", ordinal_in_line(place)),
    }
}

fn ordinal_in_line(place: u64) -> String {
    let ending = match (place % 10, place % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{place}{ending} in line")
}

/// Most locks come free sooner, and a line that flashes up disturbs.
const FIRST_LOOK: Duration = Duration::from_millis(300);
const REFRESH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_as_people_do() {
        let places = [1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111, 113].map(ordinal_in_line);
        let expected = ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd"];
        let expected = expected.iter().chain(&["101st", "111th", "113th"]);
        for (place, expected) in places.iter().zip(expected) {
            assert_eq!(*place, format!("{expected} in line"));
        }
        assert_eq!(in_line(0), "");
    }
}
