//! While the command runs: its signals, its stops, and the lock's deadline.
//!
//! One loop. Every round looks at the deadline *first*: whatever woke us, and after a time in
//! which we were stopped above all, a command whose lock is over must not go on.

use std::time::Duration;

use fairlock::{Guard, LostCause};
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};

use super::child::{Child, News};
use super::deadline::{Act, Deadline, Why};
use super::signals::{Signals, is_forwarded};
use super::terminal::Terminal;
use super::watcher::Watcher;
use crate::clock::{Moment, SHORT_PAUSE, short_pause, sleep_towards};
use crate::config::RunConfig;
use crate::duration::spell;
use crate::exit::Exit;

/// A running command and all that belongs to it.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    pub(crate) config: &'a RunConfig,
    pub(crate) guard: &'a Guard,
    pub(crate) child: &'a Child,
    pub(crate) watcher: &'a mut Watcher,
    pub(crate) signals: &'a mut Signals,
    pub(crate) terminal: Option<&'a Terminal>,
    /// When the lock was acquired.
    pub(crate) since: Moment,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    /// Whether it was ended, or went on, because its lock was lost.
    pub(crate) lost: bool,
}

impl Supervisor<'_> {
    /// Runs until the command and all that it left in its group have ended.
    pub(crate) async fn run(mut self) -> Outcome {
        let sure_until = self.held().await.unwrap_or(self.since);
        let (on_lost, lease) = (self.config.on_lost, self.config.lease());
        let mut deadline = Deadline::new(on_lost, lease, self.since, sure_until);
        let mut lost = false;
        // Set while we wait to be stopped ourselves, after the command was.
        let mut pause_ends: Option<Moment> = None;
        let exit = loop {
            let mut wake_at = Moment::now().plus(lease / LOOKS_PER_LEASE);
            match deadline.next(Moment::now(), self.held().await) {
                Act::Rest(until) => wake_at = wake_at.min(until),
                act => lost |= self.act(act),
            }
            if let Some(until) = deadline.may_run_until() {
                self.watcher.may_run_until(until);
                // A lock that came from the queue is renewed sooner than its lease says.
                let half = Moment::now().until(until) / 2;
                wake_at = wake_at.min(Moment::now().plus(half.max(SHORT_PAUSE)));
            }
            if let Some(end) = pause_ends {
                if Moment::now() >= end {
                    pause_ends = None;
                    self.resume();
                }
                wake_at = wake_at.min(end);
            }
            match self.child.news() {
                Some(News::Ended(exit)) => break exit,
                Some(News::Stopped(signal)) => {
                    if self.stopped(signal) {
                        pause_ends = Some(Moment::now().plus(UNTIL_STOPPED));
                    }
                    continue;
                }
                None => {}
            }
            tokio::select! {
                biased;
                _ = self.guard.lost(), if deadline.is_holding() => {}
                signal = self.signals.next() => match signal {
                    Signal::CONT => pause_ends = Some(Moment::now()),
                    Signal::TSTP => self.child.group.signal(Signal::TSTP),
                    signal if is_forwarded(signal) => self.child.group.signal(signal),
                    _ => {}
                },
                () = sleep_towards(wake_at) => {}
            }
        };
        if let Some(terminal) = self.terminal {
            terminal.take_back(self.child.group);
        }
        self.end_the_rest().await;
        Outcome { exit, lost }
    }

    async fn held(&self) -> Result<Moment, LostCause> {
        match self.guard.held_until() {
            Some(until) => Ok(Moment::of(until)),
            // Lost already, so this does not wait.
            None => Err(self.guard.lost().await.cause),
        }
    }

    /// Does what the deadline demands; `true` if the lock is lost.
    fn act(&self, act: Act) -> bool {
        match act {
            Act::Terminate(why) => {
                let why = self.explain(why);
                self.config.verbosity.error(format_args!("{why}; stopping the command"));
                self.child.group.terminate();
            }
            Act::Kill(why) => {
                let why = self.explain(why);
                self.config.verbosity.error(format_args!("{why}; killing the command"));
                self.child.group.kill();
            }
            Act::LetRun(why) => {
                let why = self.explain(why);
                let text = "the command goes on without it, as --on-lost ignore wants";
                self.config.verbosity.error(format_args!("{why}; {text}"));
            }
            Act::Rest(_) | Act::Done => return false,
        }
        true
    }

    fn explain(&self, why: Why) -> String {
        let name = self.config.name_for_people();
        let max_hold = self.config.max_hold.map(spell).unwrap_or_default();
        match why {
            Why::EndsIn(left) if self.is_end_of_max_hold(left) => {
                format!("--max-hold {max_hold} for the lock {name} is nearly over")
            }
            Why::EndsIn(left) => {
                let left = spell(left);
                format!("the lock {name} cannot be renewed and ends in {left} (is the store up?)")
            }
            Why::Lost(LostCause::Gone) => {
                format!("the lock {name} is gone: somebody broke or deleted it")
            }
            Why::Lost(LostCause::MaxHold) => {
                format!("--max-hold {max_hold} for the lock {name} is over")
            }
            Why::Lost(LostCause::LeaseEnded) => {
                format!("the lock {name} was lost: it could not be renewed in time")
            }
            Why::Lost(cause) => format!("the lock {name} was lost: {cause}"),
            Why::StillThere => "the command did not stop in time".to_owned(),
        }
    }

    /// Whether what ends in `left` is the time that `--max-hold` allows.
    fn is_end_of_max_hold(&self, left: Duration) -> bool {
        let margin = self.config.lease() / 10;
        let held_at_the_end = self.since.until(Moment::now().plus(left)) + margin;
        self.config.max_hold.is_some_and(|max_hold| held_at_the_end >= max_hold)
    }

    /// The command was stopped. Ctrl-Z is meant for us, too: takes the terminal back and stops our
    /// own group, for the shell to see. `true` if we have done so and wait to be continued.
    fn stopped(&mut self, signal: i32) -> bool {
        // Without a terminal nobody would continue us, and our lease would end.
        let Some(terminal) = self.terminal else { return false };
        let group = self.child.group;
        let wants_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal);
        if wants_terminal && terminal.hand_over(group) {
            group.signal(Signal::CONT);
            return false;
        }
        // Somebody stopped it by name (SIGSTOP), and will continue it by name: keep the lock.
        if !wants_terminal && signal != Signal::TSTP.as_raw() {
            return false;
        }
        terminal.take_back(group);
        if terminal.is_shared {
            // Our neighbours got the key themselves; what it does to us is to tell the command.
            kill_process(getpid(), Signal::STOP).ok();
        } else {
            // Whoever waits for us in our own group, a script, stops with us.
            kill_current_process_group(Signal::TSTP).ok();
        }
        true
    }

    /// We go on after a stop. The deadline has been looked at: if it is over, the command was
    /// killed and this does nothing.
    fn resume(&self) {
        let group = self.child.group;
        if let Some(terminal) = self.terminal {
            terminal.lend(group);
        }
        group.signal(Signal::CONT);
    }

    /// The command has ended; whatever it left behind in its group ends before the lock does.
    async fn end_the_rest(&self) {
        let group = self.child.group;
        if !group.is_alive() {
            return;
        }
        let text = "the command has ended; ending the processes that it left behind";
        self.config.verbosity.note(text);
        group.terminate();
        let ends = Moment::now().plus(GRACE_FOR_THE_REST);
        while group.is_alive() && Moment::now() < ends && self.guard.is_held() {
            short_pause().await;
        }
        let ends = Moment::now().plus(LONGEST_KILL);
        while group.is_alive() && Moment::now() < ends {
            group.kill();
            short_pause().await;
        }
        if group.is_alive() {
            self.config.verbosity.error("some of them cannot be killed; the watcher keeps trying");
        }
    }
}

/// So often the watcher is told until when the lock is sure. The lease is renewed three times as
/// long as it lasts, so this is early enough.
const LOOKS_PER_LEASE: u32 = 6;
/// How long it may take at most until a stop signal to ourselves has its effect. If it has none,
/// nobody is there who could continue us, and the command goes on after this time.
const UNTIL_STOPPED: Duration = Duration::from_millis(200);
/// What is left of a command that has ended is most often in a hurry to end as well.
const GRACE_FOR_THE_REST: Duration = Duration::from_secs(1);
/// A killed process ends at once, unless the kernel waits for a disk or a network in its name.
const LONGEST_KILL: Duration = Duration::from_secs(10);
