//! One queue for Java and Rust: the mixed fair lock.

use fairlock_testkit::{Answer, Peer, Pending, eventually};

use crate::rust_peer::WAITER_TTL;
use crate::stage::{BOUND, Part, Stage, WATCHDOG, ms, pass};
use crate::table::Scenario;

pub(crate) const SCENARIOS: [Scenario; 10] = [
    Scenario::once("fair: 24 waiters of both sides, in their order", in_order),
    Scenario::both_ways("fair: re-entry, and no barging", no_barging),
    Scenario::both_ways("fair: time-out leaves the queue", time_out),
    Scenario::both_ways("fair: lease expiry", lease_expiry),
    Scenario::both_ways("fair: force unlock serves the queue", force_unlock),
    Scenario::once("fair: kill -9 of a holder, Java and Rust", holder_dies),
    Scenario::once("fair: kill -9 of waiters, Rust", rust_waiters_die),
    Scenario::once("fair: kill -9 of waiters, Java", java_waiters_die),
    Scenario::once("fair: the living keep their places for long", nobody_is_evicted),
    Scenario::once("fair: nothing stays", nothing_stays),
];

/// A waiter, and its answer when it comes.
struct Waiting<'a> {
    part: Part<'a>,
    pending: Pending,
}

/// Lines up one after the other; the server fixes their order.
fn line_up<'a>(
    stage: &Stage,
    name: &str,
    peers: impl Iterator<Item = &'a Peer>,
) -> Vec<Waiting<'a>> {
    let already: u64 = stage.query(&["LLEN", &queue(name)]);
    let join = |(peer, number): (&'a Peer, u64)| {
        let part = Part::new(stage, peer, "fair", name);
        let pending = part.begin("trylock", PATIENT);
        stage.await_queued(name, already + number);
        Waiting { part, pending }
    };
    peers.zip(1..).map(join).collect()
}

/// Everybody is served in the order of the line, and gives the lock back.
#[track_caller]
fn served_in_order(waiting: Vec<Waiting<'_>>) -> Vec<Answer> {
    let mut answers: Vec<Answer> = Vec::new();
    for (number, Waiting { part, pending }) in waiting.into_iter().enumerate() {
        let answer = pending.answer();
        assert_eq!(answer.text, "held", "number {number}");
        part.does("unlock", "released");
        answers.push(answer);
    }
    assert!(answers.is_sorted_by_key(|answer| answer.at_us), "out of order: {answers:?}");
    answers
}

fn in_order(stage: &Stage) -> String {
    let name = stage.new_name("mixed");
    let holder = Part::new(stage, &stage.rust[0], "fair", &name);
    assert_eq!(holder.answer("lock", "60000").text, "held");
    let sides = [&stage.java[0], &stage.rust[0], &stage.java[1], &stage.rust[1]];
    let waiting = line_up(stage, &name, sides.into_iter().cycle().take(24));
    let released = holder.answer("unlock", "");
    assert_eq!(released.text, "released");
    let answers = served_in_order(waiting);
    let took = ms((answers[23].at_us - released.at_us) / 1_000);
    format!("24 hand-overs in {took:?}")
}

fn no_barging(stage: &Stage, holder: &Peer, waiter: &Peer) -> String {
    let name = stage.new_name("not-barged");
    let holder = Part::new(stage, holder, "fair", &name);
    assert_eq!(holder.answer("lock", "60000").text, "held");
    holder.does("trylock", "held");
    holder.does("count", "2");
    let waiting = line_up(stage, &name, [waiter].into_iter());
    holder.does("unlock", "released");
    assert_eq!(waiting[0].pending.try_answer(), None);
    let others = [&stage.java[1], &stage.rust[1]].map(|peer| Part::new(stage, peer, "fair", &name));
    holder.does("unlock", "released");
    for other in &others {
        other.does("trylock", "busy");
    }
    served_in_order(waiting);
    for other in &others {
        other.does("trylock", "held");
        other.does("unlock", "released");
    }
    String::new()
}

fn time_out(stage: &Stage, holder: &Peer, waiter: &Peer) -> String {
    let name = stage.new_name("left");
    let holder = Part::new(stage, holder, "fair", &name);
    assert_eq!(holder.answer("lock", "60000").text, "held");
    let impatient = Part::new(stage, waiter, "fair", &name);
    let gives_up = impatient.begin("trylock", "700 5000");
    stage.await_queued(&name, 1);
    let behind = line_up(stage, &name, [&stage.java[1], &stage.rust[1]].into_iter());
    assert_eq!(gives_up.answer().text, "busy");
    stage.await_queued(&name, 2);
    holder.does("unlock", "released");
    served_in_order(behind);
    String::new()
}

fn lease_expiry(stage: &Stage, holder: &Peer, waiter: &Peer) -> String {
    let name = stage.new_name("fair-expired");
    let holder = Part::new(stage, holder, "fair", &name);
    let held = holder.answer("lock", "900");
    assert_eq!(held.text, "held");
    let waiting = line_up(stage, &name, [waiter].into_iter());
    let served = served_in_order(waiting);
    let after = ms((served[0].at_us - held.at_us) / 1_000);
    assert!(after >= ms(800) && after < ms(3_000), "{after:?}");
    format!("after {after:?} of 900 ms")
}

fn force_unlock(stage: &Stage, holder: &Peer, other: &Peer) -> String {
    let name = stage.new_name("fair-forced");
    let holder = Part::new(stage, holder, "fair", &name);
    assert_eq!(holder.answer("lock", "60000").text, "held");
    let waiting = line_up(stage, &name, [&stage.java[1], &stage.rust[1], other].into_iter());
    Part::new(stage, other, "fair", &name).does("force", "true");
    served_in_order(waiting);
    String::new()
}

fn holder_dies(stage: &Stage) -> String {
    let (mut killed, mut waiting) = (Vec::new(), Vec::new());
    for victim in [stage.another_java(), stage.another_rust()] {
        let name = stage.new_name("held-by-victim");
        Part::new(stage, &victim, "fair", &name).does("lock", "held");
        waiting.push(line_up(stage, &name, [&stage.java[1], &stage.rust[1]].into_iter()));
        killed.push(Part::new(stage, &stage.rust[0], "fair", &name).answer("islocked", "").at_us);
        victim.kill();
    }
    let delays: Vec<_> = waiting
        .into_iter()
        .zip(killed)
        .map(|(waiting, killed)| ms((served_in_order(waiting)[0].at_us - killed) / 1_000))
        .collect();
    let bound = WATCHDOG + ms(1_500);
    assert!(delays.iter().all(|delay| *delay < bound), "{delays:?}");
    format!("served {delays:?} later")
}

/// Two dead at the head, one in the middle: once for all.
fn rust_waiters_die(stage: &Stage) -> String {
    let delay = waiters_die(stage, stage.another_rust(), "10000 60000");
    assert!(delay < WAITER_TTL + ms(1_000), "{delay:?}");
    format!("served {delay:?} after the release")
}

/// A dead Java waiter counts as alive until Redisson's own time is over: the lease that was left
/// when it queued, and its wait. Behind a fairlock waiter that is not worse than three times that.
fn java_waiters_die(stage: &Stage) -> String {
    let delay = waiters_die(stage, stage.another_java(), "2000 60000");
    let among_java = (WATCHDOG + ms(2_000)) * 3;
    assert!(delay < among_java * 3, "{delay:?}");
    format!("served {delay:?} after the release; three among Java: up to {among_java:?}")
}

fn waiters_die(stage: &Stage, victim: Peer, wait: &str) -> std::time::Duration {
    let name = stage.new_name("dead-waiters");
    let holder = Part::new(stage, &stage.rust[0], "fair", &name);
    holder.does("lock", "held");
    let dying = |count: u64| {
        let part = Part::new(stage, &victim, "fair", &name);
        drop(part.begin("trylock", wait));
        stage.await_queued(&name, count);
    };
    dying(1);
    dying(2);
    let mut waiting = line_up(stage, &name, [&stage.rust[1]].into_iter());
    dying(4);
    waiting.extend(line_up(stage, &name, [&stage.java[1]].into_iter()));
    victim.kill();
    let released = holder.answer("unlock", "");
    assert_eq!(released.text, "released");
    let answers = served_in_order(waiting);
    ms((answers[1].at_us - released.at_us) / 1_000)
}

/// Heartbeats keep ours, Java's own times keep Java's; we never lower a score of Java.
fn nobody_is_evicted(stage: &Stage) -> String {
    let name = stage.new_name("kept");
    let holder = Part::new(stage, &stage.java[0], "fair", &name);
    assert_eq!(holder.answer("lock", "60000").text, "held");
    let sides = [&stage.rust[0], &stage.java[1], &stage.rust[1], &stage.java[0]];
    let waiting = line_up(stage, &name, sides.into_iter());
    let members: Vec<String> = stage.query(&["LRANGE", &queue(&name), "0", "-1"]);
    let score = |member: &str| -> f64 {
        stage.query(&["ZSCORE", &format!("redisson_lock_timeout:{{{name}}}"), member])
    };
    let before: Vec<f64> = members.iter().map(|member| score(member)).collect();
    pass(WAITER_TTL * 3);
    let after: Vec<f64> = members.iter().map(|member| score(member)).collect();
    let kept: Vec<String> = stage.query(&["LRANGE", &queue(&name), "0", "-1"]);
    assert_eq!(kept, members);
    for (number, (before, after)) in before.iter().zip(&after).enumerate() {
        assert!(after >= before, "the score of number {number} fell from {before} to {after}");
    }
    holder.does("unlock", "released");
    served_in_order(waiting);
    String::new()
}

fn nothing_stays(stage: &Stage) -> String {
    eventually(BOUND, "everything has an end", || stage.server.keys_without_ttl().is_empty());
    String::new()
}

fn queue(name: &str) -> String {
    format!("redisson_lock_queue:{{{name}}}")
}

/// Wait time and lease, in ms.
const PATIENT: &str = "40000 60000";
