//! What users of either side rely on, with the other side holding the lock.

use fairlock_testkit::{Peer, eventually};

use crate::stage::{BOUND, Part, Stage, WATCHDOG, ms, pass};
use crate::table::Scenario;

pub(crate) const SCENARIOS: [Scenario; 10] = [
    Scenario::both_ways("re-entry", re_entry),
    Scenario::both_ways("wait time-out", time_out),
    Scenario::both_ways("lease expiry", lease_expiry),
    Scenario::both_ways("force unlock", force_unlock),
    Scenario::once("watchdogs over three leases", watchdogs),
    Scenario::both_ways("release by one who is not the owner", not_the_owner),
    Scenario::both_ways("a lost lock", lost_lock),
    Scenario::both_ways("the lease is seen", the_lease_is_seen),
    Scenario::both_ways("names with braces", names_with_braces),
    Scenario::once("no key without a TTL", nothing_stays),
];

fn pair<'a>(stage: &Stage, one: &'a Peer, other: &'a Peer, name: &str) -> (Part<'a>, Part<'a>) {
    (Part::new(stage, one, "lock", name), Part::new(stage, other, "lock", name))
}

fn re_entry(stage: &Stage, holder: &Peer, other: &Peer) -> String {
    let name = stage.new_name("reentered");
    let (holder, other) = pair(stage, holder, other, &name);
    holder.does("lock", "held");
    holder.does("lock", "held");
    holder.does("trylock", "held");
    holder.does("count", "3");
    let counts: Vec<u64> = stage.query(&["HVALS", &name]);
    assert_eq!(counts, [3], "as Redisson writes it");
    for left in ["2", "1"] {
        holder.does("unlock", "released");
        holder.does("count", left);
        other.does("trylock", "busy");
        other.does("islocked", "true");
        other.does("count", "0");
    }
    holder.does("unlock", "released");
    other.does("islocked", "false");
    other.does("trylock", "held");
    other.does("unlock", "released");
    String::new()
}

fn time_out(stage: &Stage, holder: &Peer, waiter: &Peer) -> String {
    let name = stage.new_name("waited");
    let (holder, waiter) = pair(stage, holder, waiter, &name);
    let held = holder.answer("lock", "");
    assert_eq!(waiter.answer("trylock", "0 5000").text, "busy");
    let gave_up = waiter.answer("trylock", "600 5000");
    assert_eq!(gave_up.text, "busy");
    let waited = ms((gave_up.at_us - held.at_us) / 1_000);
    assert!(waited >= ms(600) && waited < ms(5_000), "{waited:?}");
    holder.does("unlock", "released");
    assert_eq!(waiter.answer("trylock", "600 5000").text, "held");
    waiter.does("unlock", "released");
    format!("gave up after {waited:?}")
}

fn lease_expiry(stage: &Stage, holder: &Peer, waiter: &Peer) -> String {
    let name = stage.new_name("expired");
    let (holder, waiter) = pair(stage, holder, waiter, &name);
    let held = holder.answer("lock", "900");
    assert_eq!(held.text, "held");
    let waiting = waiter.begin("lock", "");
    let next = waiting.answer();
    assert_eq!(next.text, "held");
    let after = ms((next.at_us - held.at_us) / 1_000);
    // The lease began a little before the answer.
    assert!(after >= ms(800) && after < ms(3_000), "{after:?}");
    holder.does("unlock", "not-owner");
    waiter.does("held", "true");
    waiter.does("unlock", "released");
    format!("after {after:?} of 900 ms")
}

fn force_unlock(stage: &Stage, holder: &Peer, other: &Peer) -> String {
    let name = stage.new_name("forced");
    let (holder, other) = pair(stage, holder, other, &name);
    other.does("force", "false");
    holder.does("lock", "held");
    // A waiter of the holder's side is woken by it.
    let waiter = holder.sibling(stage);
    let waiting = waiter.begin("lock", "");
    stage.await_listeners(&name, 1);
    pass(ms(20));
    other.does("force", "true");
    assert_eq!(waiting.answer().text, "held");
    holder.does("unlock", "not-owner");
    waiter.does("unlock", "released");
    String::new()
}

/// Both at once: it takes its time.
fn watchdogs(stage: &Stage) -> String {
    let [java, rust] = [&stage.java[0], &stage.rust[0]];
    let (by_java, by_rust) = (stage.new_name("watched"), stage.new_name("watched"));
    let (java_holder, rust_waiter) = pair(stage, java, rust, &by_java);
    let (rust_holder, java_waiter) = pair(stage, rust, java, &by_rust);
    java_holder.does("lock", "held");
    rust_holder.does("lock", "held");
    let (rust_waits, java_waits) = (rust_waiter.begin("lock", ""), java_waiter.begin("lock", ""));
    pass(WATCHDOG * 3);
    assert_eq!(rust_waits.try_answer(), None, "Java's watchdog keeps its lock");
    assert_eq!(java_waits.try_answer(), None, "our watchdog keeps ours");
    java_holder.does("unlock", "released");
    rust_holder.does("unlock", "released");
    assert_eq!(rust_waits.answer().text, "held");
    assert_eq!(java_waits.answer().text, "held");
    rust_waiter.does("unlock", "released");
    java_waiter.does("unlock", "released");
    String::new()
}

/// Java can try to unlock what it never locked. In Rust that takes a guard, so there it is one
/// whose lease has run out.
fn not_the_owner(stage: &Stage, holder: &Peer, other: &Peer) -> String {
    let name = stage.new_name("foreign");
    let (holder, other) = pair(stage, holder, other, &name);
    assert_eq!(other.answer("lock", "300").text, "held");
    holder.does("lock", "held");
    other.does("unlock", "not-owner");
    other.does("unlock", "not-owner");
    holder.does("count", "1");
    holder.does("unlock", "released");
    String::new()
}

fn lost_lock(stage: &Stage, holder: &Peer, other: &Peer) -> String {
    let name = stage.new_name("lost");
    let (holder, other) = pair(stage, holder, other, &name);
    holder.does("lock", "held");
    assert_eq!(stage.query::<u64>(&["DEL", &name]), 1);
    other.does("trylock", "held");
    eventually(BOUND, "the holder knows", || holder.ask("held") == "false");
    holder.does("unlock", "not-owner");
    other.does("count", "1");
    other.does("unlock", "released");
    String::new()
}

fn the_lease_is_seen(stage: &Stage, holder: &Peer, other: &Peer) -> String {
    let name = stage.new_name("leased");
    let (holder, other) = pair(stage, holder, other, &name);
    other.does("ttl", "-2");
    assert_eq!(holder.answer("lock", "50000").text, "held");
    let left: u64 = other.ask("ttl").parse().unwrap();
    assert!((40_000..=50_000).contains(&left), "{left}");
    holder.does("unlock", "released");
    String::new()
}

fn names_with_braces(stage: &Stage, holder: &Peer, other: &Peer) -> String {
    for name in ["{tag}:a", "a{b", "x{}y", "ünïcode"].map(|name| stage.new_name(name)) {
        let (holder, other) = pair(stage, holder, other, &name);
        holder.does("lock", "held");
        let waiting = other.begin("lock", "30000");
        pass(ms(100));
        assert_eq!(waiting.try_answer(), None, "{name}");
        let released = holder.answer("unlock", "");
        assert_eq!(released.text, "released");
        let woken = waiting.answer();
        let after = ms(woken.at_us.saturating_sub(released.at_us) / 1_000);
        assert!(woken.text == "held" && after < WATCHDOG / 2, "{name}: {woken:?}, {after:?}");
        other.does("unlock", "released");
    }
    String::new()
}

fn nothing_stays(stage: &Stage) -> String {
    assert_eq!(stage.server.keys_without_ttl(), Vec::<String>::new());
    format!("{} keys with one", stage.server.keys().len())
}
