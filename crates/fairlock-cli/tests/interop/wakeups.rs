//! A release wakes a waiter of the other side, every time.

use std::time::Duration;

use fairlock_testkit::Peer;

use crate::stage::{Part, Stage, ms, pass};
use crate::table::Scenario;

pub(crate) const SCENARIOS: [Scenario; 2] =
    [Scenario::both_ways("200 wake-ups", plain), Scenario::both_ways("fair: 200 wake-ups", fair)];

fn plain(stage: &Stage, holder: &Peer, waiter: &Peer) -> String {
    woken(stage, holder, waiter, "lock", |name| stage.await_listeners(name, 1))
}

fn fair(stage: &Stage, holder: &Peer, waiter: &Peer) -> String {
    woken(stage, holder, waiter, "fair", |name| stage.await_fair_listener(name))
}

fn woken(
    stage: &Stage,
    holder: &Peer,
    waiter: &Peer,
    kind: &str,
    await_listener: impl Fn(&str),
) -> String {
    let name = stage.new_name("woken");
    let (holder, waiter) =
        (Part::new(stage, holder, kind, &name), Part::new(stage, waiter, kind, &name));
    let mut delays: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            assert_eq!(holder.answer("lock", LONG_LEASE).text, "held");
            let waiting = waiter.begin("lock", LONG_LEASE);
            await_listener(&name);
            // It listens; the attempt that follows takes a moment.
            pass(ms(3));
            assert_eq!(waiting.try_answer(), None);
            let released = holder.answer("unlock", "");
            assert_eq!(released.text, "released");
            let woken = waiting.answer();
            assert_eq!(woken.text, "held");
            waiter.does("unlock", "released");
            Duration::from_micros(woken.at_us.saturating_sub(released.at_us))
        })
        .collect();
    delays.sort();
    let in_time = delays.iter().filter(|delay| **delay <= IN_TIME).count();
    let longest = delays[ROUNDS - 1];
    assert!(longest < MISSED, "a wake-up was missed: it took {longest:?}");
    assert!(in_time >= ROUNDS - HICCUPS, "{in_time} of {ROUNDS} within {IN_TIME:?}");
    let median = delays[ROUNDS / 2];
    format!("{in_time} within {IN_TIME:?}, median {median:?}, longest {longest:?}")
}

const ROUNDS: usize = 200;
const IN_TIME: Duration = ms(200);
/// Nothing but a message ends a wait so soon: the lease is much longer.
const MISSED: Duration = ms(2_000);
const LONG_LEASE: &str = "30000";
/// A machine that does other things may stand still for a moment.
const HICCUPS: usize = 2;
