//! `kill -9` of holders and waiters of either side: the rest goes on in time.

use fairlock_testkit::Peer;

use crate::stage::{Part, Stage, WATCHDOG, ms, pass};
use crate::table::Scenario;

pub(crate) const SCENARIOS: [Scenario; 2] = [
    Scenario::once("kill -9 of Java, holder and waiter", java_dies),
    Scenario::once("kill -9 of Rust, holder and waiter", rust_dies),
];

fn java_dies(stage: &Stage) -> String {
    dies(stage, stage.another_java())
}

fn rust_dies(stage: &Stage) -> String {
    dies(stage, stage.another_rust())
}

/// The victim holds one lock and waits for another; both sides wait for both.
fn dies(stage: &Stage, victim: Peer) -> String {
    let [java, rust] = [&stage.java[1], &stage.rust[1]];
    let (held, awaited) = (stage.new_name("held-by-victim"), stage.new_name("awaited-by-victim"));
    let holder = Part::new(stage, rust, "lock", &awaited);
    holder.does("lock", "held");

    Part::new(stage, &victim, "lock", &held).does("lock", "held");
    let _never_answered = Part::new(stage, &victim, "lock", &awaited).begin("lock", "");
    let survivors: Vec<Part<'_>> =
        [java, rust].iter().map(|peer| Part::new(stage, peer, "lock", &held)).collect();
    let heirs: Vec<Part<'_>> =
        [java, rust].iter().map(|peer| Part::new(stage, peer, "lock", &awaited)).collect();
    let for_held: Vec<_> = survivors.iter().map(|part| part.begin("trylock", WAIT)).collect();
    let for_awaited: Vec<_> = heirs.iter().map(|part| part.begin("trylock", WAIT)).collect();
    pass(ms(300));
    let still_held = for_held.iter().all(|waiting| waiting.try_answer().is_none());
    assert!(still_held, "nobody has what the victim holds");
    let killed_at = holder.answer("islocked", "").at_us;
    victim.kill();

    let released = holder.answer("unlock", "");
    assert_eq!(released.text, "released");
    let after = one_after_the_other(heirs, for_awaited);
    let waiter_died = ms((after - released.at_us) / 1_000);
    assert!(waiter_died < ms(1_000), "a dead waiter does not hold up the others: {waiter_died:?}");

    let after = one_after_the_other(survivors, for_held);
    let holder_died = ms((after - killed_at) / 1_000);
    assert!(holder_died < WATCHDOG + ms(1_000), "the lease ends: {holder_died:?}");
    format!("served {waiter_died:?} and {holder_died:?} later")
}

/// Each gets the lock and gives it back; says when the last one got it.
fn one_after_the_other(parts: Vec<Part<'_>>, waiting: Vec<fairlock_testkit::Pending>) -> u64 {
    let mut last = 0;
    let mut waiting: Vec<_> = parts.into_iter().zip(waiting).collect();
    while !waiting.is_empty() {
        let mut served = None;
        fairlock_testkit::eventually(crate::stage::BOUND, "somebody is served", || {
            served = waiting.iter().enumerate().find_map(|(index, (_, pending))| {
                pending.try_answer().map(|answer| (index, answer))
            });
            served.is_some()
        });
        let (index, answer) = served.expect("just seen");
        assert_eq!(answer.text, "held");
        last = last.max(answer.at_us);
        waiting.remove(index).0.does("unlock", "released");
    }
    last
}

/// Wait time and lease, in ms.
const WAIT: &str = "15000 10000";
