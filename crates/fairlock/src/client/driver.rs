//! The driver: one task per client, on fairlock's own thread, that does what callers do not wait
//! for. It renews leases, hears wake-ups, tries for the heads of the lines, ends wait times,
//! releases what was dropped and cleans up what was called off.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::call::Trail;
use super::fair;
use super::shared::{CleanUp, Job, Refusal, Shared, Table, Task, Then, lease_end};
use crate::engine::{Generation, Lane, Wake, WakeReceiver};
use crate::error::{LockError, LostCause, StoreError};
use crate::ids::{Name, OwnerId};
use crate::protocol::line::Found;
use crate::protocol::op::{Claim, Kind, Op, Renew, State};
use crate::protocol::renewal::Verdict;
use crate::testing::Busy;
use crate::time::BootTime;

/// Runs until the client is closed or its last handle is gone.
pub(crate) async fn run(
    shared: Arc<Shared>,
    mut jobs: UnboundedReceiver<Job>,
    mut wakes: WakeReceiver,
) {
    let mut tasks = JoinSet::new();
    // A test clock stands still until the driver sleeps, with its alarm set.
    let mut awake = Some(Busy::new(&shared.clock));
    let last_job = loop {
        let next = step(&shared, &mut tasks);
        let mut sleep = next.map(|at| shared.clock.sleep_until(at));
        let sleeping = poll_fn(|context| {
            let polled = match &mut sleep {
                Some(sleep) => Pin::new(sleep).poll(context),
                None => Poll::Pending,
            };
            if polled.is_pending() {
                awake = None;
            }
            polled
        });
        tokio::select! {
            biased;
            Some(job) = jobs.recv() => {
                if matches!(job.task, Task::Quit | Task::Close(_)) {
                    break job;
                }
                tasks.spawn(perform(shared.clone(), job));
            }
            Some(wake) = wakes.recv() => hear(&shared, wake),
            Some(_) = tasks.join_next() => {}
            () = shared.alarm.notified() => {}
            () = sleeping => {
                // The end of a sleep counts as busy until the sleep is dropped: so work first.
                step(&shared, &mut tasks);
            }
        }
        // Before the sleep is forgotten: else the clock would see nobody awake and no alarm set.
        awake.get_or_insert_with(|| Busy::new(&shared.clock));
    };
    finish(&shared, jobs, tasks).await;
    if let Task::Close(done) = last_job.task {
        // The one who closes may have left.
        done.send(()).ok();
    }
}

/// Does what is due; says when to look again.
fn step(shared: &Arc<Shared>, tasks: &mut JoinSet<()>) -> Option<BootTime> {
    let now = shared.clock.now();
    let mut table = shared.table();
    table.ringing = None;
    for owner in table.renewals.lost(now) {
        if let Some(hold) = table.holds.remove(&owner).and_then(|hold| hold.upgrade()) {
            hold.run_out();
        }
    }
    for batch in table.renewals.due(now) {
        let busy = Busy::new(&shared.clock);
        tasks.spawn(renew(shared.clone(), batch, busy));
    }
    while let Some((_, name)) = table.line_timers.first().filter(|(at, _)| *at <= now).cloned() {
        if let Some(entry) = table.lines.get_mut(&name) {
            for waiter in entry.line.give_up(now) {
                shared.refuse(waiter, Refusal::TimedOut);
            }
        }
        table.line_timers.pop_first();
        shared.forget_timer(&mut table, &name);
        shared.settle(&mut table, &name);
    }
    shared.step_seats(&mut table, now);
    // Holds come and go all the time: keep an appointment that has become pointless, rather than
    // to be woken for each new one.
    let planned = table.driver_sleeps_until.filter(|at| *at > now);
    table.driver_sleeps_until = table.next_event().into_iter().chain(planned).min();
    table.driver_sleeps_until
}

/// Does one job.
pub(super) async fn perform(shared: Arc<Shared>, job: Job) {
    match job.task {
        Task::Release(hold) => hold.settle_until_done(shared).await,
        Task::CleanUp(clean_up) => clean(shared, clean_up).await,
        Task::Listen(name) => listen(shared, name).await,
        Task::Unlisten(name) => unlisten(shared, name).await,
        Task::Attempt(name, claim, trail) => attempt(shared, name, claim, trail).await,
        Task::Beat(name, beat) => fair::beat(shared, name, beat).await,
        Task::QueueAnew(anew) => fair::queue_anew(shared, anew).await,
        Task::HearGrants => hear_grants_again(shared).await,
        Task::HearJava(name, owners) => fair::hear_java(shared, name, owners).await,
        Task::StopHearingJava(name, owner) => {
            // If this fails the connection is gone, and the subscription with it.
            let stopped = shared.engine.stop_hearing_java(&name, &owner);
            tokio::time::timeout(shared.options.timeout, stopped).await.ok();
        }
        Task::Close(_) | Task::Quit => {}
    }
    drop(job.busy);
}

fn hear(shared: &Shared, wake: Wake) {
    let mut table = shared.table();
    match wake {
        Wake::Message(name, _busy) => {
            if let Some(entry) = table.lines.get_mut(&name) {
                entry.line.message();
                shared.settle(&mut table, &name);
            }
            if let Some(entry) = table.seats.get_mut(&name) {
                entry.seats.wake();
                shared.settle_seats(&mut table, &name);
            }
        }
        Wake::Grant(grant, _busy) => shared.heard_of(&mut table, &grant),
        Wake::Deaf(generation) => {
            table.deaf_up_to = table.deaf_up_to.max(generation);
            let names: Vec<Name> = table.lines.keys().cloned().collect();
            for name in names {
                table.line(&name).deaf();
                shared.settle(&mut table, &name);
            }
            table.seats.values_mut().for_each(|entry| entry.seats.deaf_to_java());
            if !table.seats.is_empty() {
                shared.queue(Task::HearGrants);
            }
        }
    }
}

async fn renew(shared: Arc<Shared>, batch: Vec<Renew>, _busy: Busy) {
    let shortest = batch.iter().map(|item| item.lease_ms).min().unwrap_or(0);
    let until = shared.clock.now().plus(Duration::from_millis(shortest) / 3);
    let result = shared.renew(&batch, until).await;
    let now = shared.clock.now();
    let mut table = shared.table();
    match result {
        Ok((answers, sent)) => {
            for (item, (state, lease)) in batch.iter().zip(answers) {
                let verdict = match state {
                    State::Held => table.renewals.confirmed(&item.owner, sent, lease, now),
                    _ => None,
                };
                table.renewals.recount(&item.owner, item.count, now);
                let hold = table.holds.get(&item.owner).and_then(Weak::upgrade);
                match (verdict, hold) {
                    (Some(Verdict::Sure(until)), Some(hold)) => hold.extend(until),
                    (Some(Verdict::TooLate), Some(hold)) => hold.run_out(),
                    (None, Some(hold)) if state != State::Held => {
                        table.renewals.remove(&item.owner);
                        table.holds.remove(&item.owner);
                        hold.lose(LostCause::Gone);
                    }
                    _ => {}
                }
            }
        }
        Err(error) => {
            tracing::warn!(%error, holds = batch.len(), "a renewal failed, trying again");
            batch.iter().for_each(|item| table.renewals.failed(&item.owner, now));
        }
    }
    shared.wake_driver(&mut table);
}

/// Messages may be lost until this is done; the heartbeats that follow find out.
async fn hear_grants_again(shared: Arc<Shared>) {
    if let Err(error) = shared.hear_grants().await {
        tracing::warn!(%error, "cannot hear of grants; heartbeats will bring them");
    }
    let mut table = shared.table();
    let names: Vec<Name> = table.seats.keys().cloned().collect();
    for name in names {
        table.seats(&name).wake();
        shared.settle_seats(&mut table, &name);
    }
}

async fn listen(shared: Arc<Shared>, name: Name) {
    let subscribed = shared.retry_listening(|| shared.engine.subscribe(&name)).await;
    let mut table = shared.table();
    let deaf_up_to = table.deaf_up_to;
    match subscribed {
        Ok(generation) if generation > deaf_up_to => table.line(&name).listening(),
        Ok(_) => table.line(&name).unsubscribed(),
        Err(error) => {
            table.line(&name).unsubscribed();
            shared.disband(&mut table, &name, &error);
        }
    }
    shared.settle(&mut table, &name);
}

async fn unlisten(shared: Arc<Shared>, name: Name) {
    // If this fails the connection is gone, and the subscription with it.
    let limit = shared.engine.unsubscribe(&name);
    tokio::time::timeout(shared.options.timeout, limit).await.ok();
    let mut table = shared.table();
    table.line(&name).unsubscribed();
    shared.settle(&mut table, &name);
}

async fn attempt(shared: Arc<Shared>, name: Name, claim: Claim, trail: Arc<Trail>) {
    let op = Op::Acquire(claim.clone());
    let (kind, until) = (Kind::Plain, shared.patience());
    let result = shared.call(Lane::Driver, kind, &name, &op, &trail, until).await;
    let now = shared.clock.now();
    let mut table = shared.table();
    match result {
        Ok(answered) if answered.reply.state == State::Held => {
            let ends = lease_end(answered.reply.lease, answered.sent);
            table.line(&name).attempted(&claim.owner, Found::Held { ends }, now);
            shared.deliver(&mut table, &name, &claim, &answered.reply, answered.sent);
        }
        Ok(answered) => {
            let lease = answered.reply.lease;
            table.line(&name).attempted(&claim.owner, Found::Busy { lease }, now);
        }
        Err(error) => {
            table.line(&name).attempted(&claim.owner, Found::Unknown, now);
            shared.queue(Task::CleanUp(CleanUp {
                kind: Kind::Plain,
                name: name.clone(),
                owner: claim.owner.clone(),
                trail,
                lease_ms: claim.lease_ms,
                then: Then::Nothing,
            }));
            shared.disband(&mut table, &name, &error);
        }
    }
    shared.settle(&mut table, &name);
}

/// Releases what a called-off acquire may have left, until no copy of it can come any more.
async fn clean(shared: Arc<Shared>, clean_up: CleanUp) {
    let CleanUp { kind, name, owner, trail, lease_ms, then } = clean_up;
    let mut then = Some(then);
    let op = Op::Release { owner: owner.clone(), remaining: 0, next: None };
    let risky_until = trail.risky_until();
    // Past this the lease of whatever was left has ended by itself.
    let last_change = risky_until.max(shared.server_clock.at(shared.clock.now()));
    let pointless_at = last_change.plus_ms(lease_ms);
    loop {
        let none = Trail::default();
        let answer = shared.call(Lane::Driver, kind, &name, &op, &none, shared.patience()).await;
        if let Ok(answered) = &answer {
            shared.came_with(&name, &answered.reply, answered.sent);
        }
        if let Some(then) = then.take() {
            tell_line(&shared, &name, &owner, then);
        }
        let server_time = match answer {
            Ok(answered) if answered.reply.server_time > risky_until => return,
            Ok(answered) => answered.reply.server_time,
            Err(error) => {
                let server_time = shared.server_clock.at(shared.clock.now());
                if !error.is_transient() || server_time > pointless_at {
                    return tracing::warn!(lock = %name, %error, "could not clean up");
                }
                server_time
            }
        };
        let wait_ms = server_time.ms_until(risky_until).max(SHORTEST_WAIT_MS);
        shared.pause(Duration::from_millis(wait_ms)).await;
    }
}

fn tell_line(shared: &Shared, name: &Name, owner: &OwnerId, then: Then) {
    let mut table = shared.table();
    let Some(entry) = table.lines.get_mut(name) else { return };
    match then {
        Then::Nothing => {}
        Then::AttemptEnded => entry.line.attempted(owner, Found::Unknown, shared.clock.now()),
        Then::Free => entry.line.message(),
    }
    shared.settle(&mut table, name);
}

/// Sends the waiters away, lets what is queued come to an end, and ends every hold.
async fn finish(shared: &Arc<Shared>, mut jobs: UnboundedReceiver<Job>, mut tasks: JoinSet<()>) {
    close(shared, &mut shared.table());
    let work = async {
        loop {
            while let Ok(job) = jobs.try_recv() {
                tasks.spawn(perform(shared.clone(), job));
            }
            if tasks.join_next().await.is_none() {
                return;
            }
        }
    };
    if tokio::time::timeout(shared.options.timeout, work).await.is_err() {
        tracing::warn!("closed with releases unfinished; leases will end them");
    }
    close(shared, &mut shared.table());
}

/// Nobody waits any more, and nobody believes in a lock that is not renewed any more.
fn close(shared: &Shared, table: &mut Table) {
    table.closed = true;
    for waiter in table.lines.values_mut().flat_map(|entry| entry.line.disband()) {
        waiter.ticket.tell.send(Err(Refusal::Error(LockError::Closed))).ok();
    }
    let sitting: Vec<_> =
        table.seats.values_mut().flat_map(|entry| entry.seats.disband()).collect();
    for sitting in sitting {
        shared.refuse_seat(table, sitting, Refusal::Error(LockError::Closed));
    }
    table.holds.values().filter_map(Weak::upgrade).for_each(|hold| hold.close());
}

impl Shared {
    /// Subscribes, trying for as long as one operation may take.
    pub(super) async fn retry_listening<F>(
        &self,
        subscribe: impl Fn() -> F,
    ) -> Result<Generation, StoreError>
    where
        F: Future<Output = Result<Generation, StoreError>>,
    {
        let until = self.patience();
        loop {
            let attempt = tokio::time::timeout(SUBSCRIBE, subscribe()).await;
            let error = match attempt {
                Ok(Ok(generation)) => return Ok(generation),
                Ok(Err(error)) if !error.is_transient() => return Err(error),
                Ok(Err(error)) => error,
                Err(_) => {
                    self.engine.suspect(Lane::Driver);
                    self.unreachable()
                }
            };
            if self.clock.now() >= until {
                return Err(error);
            }
            self.pause(RETRY).await;
        }
    }

    /// A timer that has fired is no longer set.
    fn forget_timer(&self, table: &mut Table, name: &Name) {
        if let Some(entry) = table.lines.get_mut(name) {
            entry.timer = None;
        }
    }
}

/// Between two tries to clean up.
const SHORTEST_WAIT_MS: u64 = 100;
/// How long one attempt to subscribe may take.
const SUBSCRIBE: Duration = Duration::from_secs(2);
/// Between two of them.
const RETRY: Duration = Duration::from_millis(50);
