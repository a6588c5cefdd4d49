//! What all parts of a client share: the engine, the clocks, and one table behind one mutex.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, oneshot, watch};

use super::call::Trail;
use super::driver;
use super::fair::SeatsEntry;
use super::hold::Hold;
use crate::engine::{Engine, Generation};
use crate::error::{LockError, StoreError};
use crate::ids::{Name, OwnerId, Token};
use crate::lock::Guard;
use crate::options::{ClientOptions, Plan};
use crate::protocol::line::{Line, Step, Waiter};
use crate::protocol::model::fair::Heartbeat;
use crate::protocol::op::{self, Claim, Kind, Lease, Reply};
use crate::protocol::renewal::Renewals;
use crate::protocol::seats::SeatId;
use crate::runtime;
use crate::testing::Busy;
use crate::time::{BootTime, Clock, ServerClock};

/// The one behind all handles of a client. When the last handle goes, the driver finishes what is
/// queued and ends.
pub(crate) struct Core(pub(crate) Arc<Shared>);

impl Deref for Core {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.engine.address(), self.uuid)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.0.queue(Task::Quit);
    }
}

/// Shared between the handles and the driver.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) server_clock: ServerClock,
    pub(crate) options: ClientOptions,
    uuid: String,
    identity: Arc<str>,
    next_number: AtomicU64,
    itself: Weak<Shared>,
    table: Mutex<Table>,
    tasks: UnboundedSender<Job>,
    /// Which connection brings messages about grants.
    pub(super) ear: tokio::sync::Mutex<Option<Generation>>,
    /// Rings when the driver has to wake up earlier than it had planned.
    pub(crate) alarm: Notify,
}

/// Something for the driver to do.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) task: Task,
    /// Held until the job is done, for clocks of tests.
    pub(crate) busy: Busy,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Task {
    /// Tell the store how many guards are left of a hold.
    Release(Arc<Hold>),
    /// An acquire was called off: see to it that it leaves no lock behind.
    CleanUp(CleanUp),
    /// Subscribe for a line.
    Listen(Name),
    /// End a line's subscription.
    Unlisten(Name),
    /// Try for the head of a line.
    Attempt(Name, Claim, Arc<Trail>),
    /// Keep the seats for a fair lock.
    Beat(Name, Heartbeat),
    /// Queue for one who lost its place.
    QueueAnew(QueueAnew),
    /// The connection that brings messages about grants is gone: a new one.
    HearGrants,
    /// Redisson is about, too: hear what it tells these waiters.
    HearJava(Name, Vec<OwnerId>),
    /// This one waits no more.
    StopHearingJava(Name, OwnerId),
    /// Finish what is queued, then end.
    Close(oneshot::Sender<()>),
    /// The last handle is gone: the same, and nobody waits for it.
    Quit,
}

/// How to queue for one who lost its place.
#[derive(Debug)]
pub(crate) struct QueueAnew {
    pub(crate) seat: SeatId,
    pub(crate) wish: Wish,
    pub(crate) claim: Claim,
    pub(crate) ticket: Option<op::Ticket>,
    /// Ends when it is not to be queued for any more.
    pub(crate) gone: oneshot::Receiver<()>,
}

/// Whose claim to clean up after.
#[derive(Debug)]
pub(crate) struct CleanUp {
    pub(crate) kind: Kind,
    pub(crate) name: Name,
    pub(crate) owner: OwnerId,
    pub(crate) trail: Arc<Trail>,
    pub(crate) lease_ms: u64,
    pub(crate) then: Then,
}

/// What the line has to hear when a clean-up is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// The attempt that was called off has ended.
    AttemptEnded,
    /// The lock is free again. A message says so as well, but it may come before the news that
    /// the lock was ours at all, and be forgotten with it.
    Free,
}

/// The client's book-keeping. Never held across an await.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) lines: HashMap<Name, LineEntry>,
    pub(crate) line_timers: BTreeSet<(BootTime, Name)>,
    /// Those who wait for fair locks.
    pub(crate) seats: HashMap<Name, SeatsEntry>,
    pub(crate) seat_timers: BTreeSet<(BootTime, Name)>,
    pub(crate) next_seat: SeatId,
    /// For which lock an owner waits.
    pub(crate) sitting: HashMap<OwnerId, Name>,
    /// Those who are being queued for anew. Forgotten, and nothing more is sent for them.
    pub(crate) queueing_anew: HashMap<OwnerId, oneshot::Sender<()>>,
    pub(crate) renewals: Renewals,
    pub(crate) holds: HashMap<OwnerId, Weak<Hold>>,
    /// When the driver wakes up by itself.
    pub(crate) driver_sleeps_until: Option<BootTime>,
    /// Set while the alarm rings and the driver is not awake yet, for clocks of tests.
    pub(crate) ringing: Option<Busy>,
    /// Subscriptions of connections up to this one are gone.
    pub(crate) deaf_up_to: Generation,
    pub(crate) closed: bool,
}

/// A line, and when the driver is to look at it.
#[derive(Debug)]
pub(crate) struct LineEntry {
    pub(crate) line: Line<Ticket>,
    pub(crate) timer: Option<BootTime>,
}

/// How one who waits is told, and what its hold will need.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) tell: oneshot::Sender<Result<Guard, Refusal>>,
    /// For one who watches its place in line.
    pub(crate) place: Option<watch::Sender<u64>>,
    pub(crate) wish: Wish,
}

/// Why one who waited gets no lock.
#[derive(Debug)]
pub(crate) enum Refusal {
    TimedOut,
    Error(LockError),
}

/// What an acquisition wants, and what is needed to clean up after it.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) core: Arc<Core>,
    pub(crate) kind: Kind,
    pub(crate) name: Name,
    pub(crate) plan: Plan,
    pub(crate) trail: Arc<Trail>,
}

impl Shared {
    pub(crate) fn new(
        engine: Engine,
        clock: Clock,
        options: ClientOptions,
        uuid: String,
        identity: Arc<str>,
        tasks: UnboundedSender<Job>,
    ) -> Arc<Self> {
        let table = Table {
            lines: HashMap::new(),
            line_timers: BTreeSet::new(),
            seats: HashMap::new(),
            seat_timers: BTreeSet::new(),
            sitting: HashMap::new(),
            renewals: Renewals::default(),
            holds: HashMap::new(),
            driver_sleeps_until: None,
            ringing: None,
            next_seat: SeatId(0),
            queueing_anew: HashMap::new(),
            deaf_up_to: Generation(0),
            closed: false,
        };
        Arc::new_cyclic(|itself| Self {
            itself: itself.clone(),
            engine,
            clock,
            server_clock: ServerClock::default(),
            options,
            uuid,
            identity,
            next_number: AtomicU64::new(1),
            table: Mutex::new(table),
            tasks,
            ear: tokio::sync::Mutex::new(None),
            alarm: Notify::new(),
        })
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim with an id of its own, never used before or after.
    pub(crate) fn new_claim(&self, lease_ms: u64) -> Claim {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let owner = OwnerId::new(format!("{}:{number}", self.uuid));
        Claim { owner, lease_ms, identity: self.identity.clone() }
    }

    /// Gives the driver something to do. What comes after the client was closed is done all the
    /// same, by nobody in particular.
    pub(crate) fn queue(&self, task: Task) {
        let job = Job { task, busy: Busy::new(&self.clock) };
        if let Err(unsent) = self.tasks.send(job)
            && let Some(shared) = self.itself.upgrade()
        {
            runtime::handle().spawn(driver::perform(shared, unsent.0));
        }
    }

    /// Until when one operation may take.
    pub(crate) fn patience(&self) -> BootTime {
        self.clock.now().plus(self.options.timeout)
    }

    /// Does what a line wants after something has changed.
    pub(crate) fn settle(&self, table: &mut Table, name: &Name) {
        let now = self.clock.now();
        let Some(entry) = table.lines.get_mut(name) else { return };
        let timer = match entry.line.poll(now) {
            Step::Rest(timer) => timer,
            Step::Listen => {
                self.queue(Task::Listen(name.clone()));
                entry.line.next_give_up()
            }
            Step::Unlisten => {
                self.queue(Task::Unlisten(name.clone()));
                None
            }
            Step::Attempt(claim) => {
                let trail = entry.line.head().map(|head| head.ticket.wish.trail.clone());
                let trail = trail.expect("an attempt is made for the head of the line");
                self.queue(Task::Attempt(name.clone(), claim, trail));
                entry.line.next_give_up()
            }
            Step::Remove => None,
        };
        let old = std::mem::replace(&mut entry.timer, timer);
        if entry.line.is_done() {
            table.lines.remove(name);
        }
        if old != timer {
            if let Some(old) = old {
                table.line_timers.remove(&(old, name.clone()));
            }
            if let Some(timer) = timer {
                table.line_timers.insert((timer, name.clone()));
                self.wake_driver_by(table, timer);
            }
        }
    }

    /// Enters a hold that the store has just granted, and makes its first guard.
    pub(crate) fn enter_hold(
        &self,
        table: &mut Table,
        wish: &Wish,
        owner: &OwnerId,
        token: Token,
        lease: Lease,
        sent: BootTime,
    ) -> Guard {
        let sure_until =
            table.renewals.insert(owner.clone(), wish.name.clone(), wish.plan, sent, lease);
        let hold = Arc::new(Hold::new(wish.clone(), owner.clone(), token, sent, sure_until));
        table.holds.insert(owner.clone(), Arc::downgrade(&hold));
        self.wake_driver(table);
        Guard::first(hold)
    }

    /// The lock has come to somebody in the line: hands it over, or gives it back if that one has
    /// left meanwhile.
    pub(crate) fn deliver(
        &self,
        table: &mut Table,
        name: &Name,
        claim: &Claim,
        reply: &Reply,
        sent: BootTime,
    ) {
        let waiter = table.lines.get_mut(name).and_then(|entry| entry.line.leave(&claim.owner));
        let Some(Waiter { ticket, .. }) = waiter else {
            return self.queue(Task::CleanUp(CleanUp {
                kind: Kind::Plain,
                name: name.clone(),
                owner: claim.owner.clone(),
                trail: Arc::default(),
                lease_ms: claim.lease_ms,
                then: Then::Free,
            }));
        };
        let Reply { token, lease, .. } = *reply;
        let guard = self.enter_hold(table, &ticket.wish, &claim.owner, token, lease, sent);
        // A receiver that is gone drops the guard, and that gives the lock back.
        ticket.tell.send(Ok(guard)).ok();
    }

    /// Sends everybody in a line away, because the store cannot be used.
    pub(crate) fn disband(&self, table: &mut Table, name: &Name, error: &StoreError) {
        if let Some(entry) = table.lines.get_mut(name) {
            for waiter in entry.line.disband() {
                self.refuse(waiter, Refusal::Error(LockError::Store(error.clone())));
            }
        }
    }

    /// Tells one who waited that there is no lock for it, and cleans up after it.
    pub(crate) fn refuse(&self, waiter: Waiter<Ticket>, refusal: Refusal) {
        let Waiter { claim, ticket, .. } = waiter;
        self.clean_up_after(&ticket.wish, &claim);
        ticket.tell.send(Err(refusal)).ok();
    }

    /// One who leaves may still be brought the lock by a copy of a request that is on its way.
    pub(crate) fn clean_up_after(&self, wish: &Wish, claim: &Claim) {
        if wish.trail.risky_until() > self.server_clock.at(self.clock.now()) {
            self.clean_up(wish, &claim.owner);
        }
    }

    /// Takes whatever this owner has in the store away, for sure.
    pub(crate) fn clean_up(&self, wish: &Wish, owner: &OwnerId) {
        self.queue(Task::CleanUp(CleanUp {
            kind: wish.kind,
            name: wish.name.clone(),
            owner: owner.clone(),
            trail: wish.trail.clone(),
            lease_ms: wish.plan.lease_ms,
            then: Then::Nothing,
        }));
    }

    /// Sees to it that the driver wakes up for what comes next.
    pub(crate) fn wake_driver(&self, table: &mut Table) {
        if let Some(next) = table.next_event() {
            self.wake_driver_by(table, next);
        }
    }

    fn wake_driver_by(&self, table: &mut Table, at: BootTime) {
        if table.driver_sleeps_until.is_none_or(|until| at < until) {
            table.driver_sleeps_until = Some(at);
            table.ringing = Some(Busy::new(&self.clock));
            self.alarm.notify_one();
        }
    }
}

impl Table {
    /// The line for a lock, made if there is none.
    pub(crate) fn line(&mut self, name: &Name) -> &mut Line<Ticket> {
        let entry = self.lines.entry(name.clone());
        &mut entry.or_insert_with(|| LineEntry { line: Line::new(), timer: None }).line
    }

    /// How long the driver may sleep.
    pub(crate) fn next_event(&self) -> Option<BootTime> {
        let line = self.line_timers.first().map(|(at, _)| *at);
        let seats = self.seat_timers.first().map(|(at, _)| *at);
        line.into_iter().chain(seats).chain(self.renewals.next()).min()
    }
}

/// The end of the lease, on this machine's clock, as a reply tells it.
pub(crate) fn lease_end(lease: Lease, sent: BootTime) -> BootTime {
    match lease {
        Lease::Ms(milliseconds) => sent.plus_ms(milliseconds),
        Lease::None | Lease::Endless => sent,
    }
}
