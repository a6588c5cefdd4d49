//! The worlds that are checked.
//!
//! One world with everything in it has far too many states, so there are several, each with
//! something else that goes wrong. The larger ones are only checked if `FAIRLOCK_CHECK_ALL` is set.

use stateright::{Checker, HasDiscoveries, Model};

use super::Checked;
use super::bugs::Bug;
use super::properties;
use super::world::Faults;
use crate::ids::{Name, OwnerId};
use crate::os;
use crate::time::BootTime;

/// Two clients, two copies of every request, one that gives up, a message that comes twice.
#[test]
fn fair_lock_model_check() {
    let faults = Faults { given_up: 1, doubled: 1, ..Faults::NONE };
    let states = check("two clients", Checked { copies: 2, faults, ..two_clients() });
    assert!(states >= 500_000, "only {states} states");
}

#[test]
fn everybody_is_served_from_every_state() {
    check("progress", Checked { crowded: 3, progress_of_every: 1, ..two_clients() });
}

#[test]
fn requests_that_come_too_late_change_nothing() {
    check("late requests", Checked { late_ms: 1_000, ..two_clients() });
}

#[test]
fn clients_die_and_give_up() {
    let faults = Faults { crashes: 1, given_up: 1, ..Faults::NONE };
    check("crashes", Checked { faults, ..two_clients() });
}

#[test]
fn who_is_cut_off_comes_back() {
    let faults = Faults { disconnects: 1, returns: 1, ..Faults::NONE };
    check("disconnects", Checked { crowded: 1, faults, ..two_clients() });
}

#[test]
fn the_store_loses_its_data() {
    let faults = Faults { restarts: 1, deletions: 1, ..Faults::NONE };
    check("restarts and deletions", Checked { faults, ..two_clients() });
}

#[test]
fn holders_enter_again() {
    let faults = Faults { reentries: 1, ..Faults::NONE };
    check("re-entry", Checked { faults, ..two_clients() });
}

#[test]
fn packets_are_lost() {
    let faults = Faults { lost: 1, ..Faults::NONE };
    check("losses", Checked { faults, ..two_clients() });
}

/// Without renewals, and with one packet at a time that was sent of anybody's own accord.
#[test]
fn three_clients() {
    let few = Checked { clients: 3, crowded: 1, renews: false, ..two_clients() };
    check("three clients", Checked { lease_ms: 1_000, ..few });
}

#[test]
fn two_waits_of_one_client() {
    let faults = Faults { given_up: 1, ..Faults::NONE };
    check("siblings", Checked { clients: 1, waits: 2, at_once: 2, faults, ..two_clients() });
}

#[test]
fn beside_a_java_thread_that_leaves_and_dies() {
    let faults = Faults { java_deaths: 1, java_leaves: 1, given_up: 1, ..Faults::NONE };
    check("Java", Checked { clients: 1, java_tries: 2, faults, ..with_java(1) });
}

#[test]
fn beside_a_java_thread_that_waits_for_long() {
    let one = Checked { clients: 1, java_wait_ms: 300_000, ..with_java(1) };
    check("Java waits five minutes", one);
}

/// Not all of it; [`larger_worlds`] goes on.
#[test]
fn two_clients_beside_a_java_thread() {
    look_into("the first of two clients and Java", A_FEW_STEPS, two_clients_and_java());
}

#[test]
fn larger_worlds() {
    if !os::is_set("FAIRLOCK_CHECK_ALL") {
        return;
    }
    let none = Faults::NONE;
    let cut_off = Faults { disconnects: 1, returns: 1, ..none };
    let crash = Faults { crashes: 1, lost: 1, given_up: 1, doubled: 1, ..none };
    let siblings = Checked { clients: 1, waits: 2, at_once: 2, ..two_clients() };
    let java_dies = Faults { java_deaths: 1, ..none };
    check("cut off", Checked { faults: cut_off, ..two_clients() });
    check("crashes and losses", Checked { faults: crash, ..two_clients() });
    check(
        "siblings come back",
        Checked { copies: 2, faults: Faults { returns: 1, ..none }, ..siblings },
    );
    check("Java twice", Checked { clients: 1, ..with_java(2) });
    check("two clients and Java", two_clients_and_java());
    look_into(
        "two clients and Java that dies",
        MANY_STEPS,
        Checked { faults: java_dies, ..with_java(1) },
    );
    look_into("two waits each", MANY_STEPS, Checked { waits: 2, ..two_clients() });
    look_into("three clients at once", MANY_STEPS, Checked { clients: 3, ..two_clients() });
}

#[test]
fn planted_a_grant_is_believed_whatever_its_token() {
    find(properties::EXCLUSION, Bug::NoTokenFloor, Checked { copies: 2, ..two_clients() });
}

#[test]
fn planted_a_wire_id_is_used_again() {
    find(properties::EXCLUSION, Bug::ReusedIds, Checked { waits: 2, copies: 2, ..two_clients() });
}

#[test]
fn planted_a_lease_shrinks() {
    find(properties::BACKED, Bug::ShrinkingLease, Checked { crowded: 3, ..two_clients() });
}

#[test]
fn planted_validity_counts_from_the_reply() {
    let slow = Checked { life_ms: 2_000, ..two_clients() };
    find(properties::EXCLUSION, Bug::CountedFromTheReply, slow);
}

#[test]
fn planted_a_message_goes_out_before_the_write_is_refused() {
    find(properties::BACKED, Bug::PublishedBeforeWritten, two_clients());
}

#[test]
fn planted_scores_are_added_up() {
    find(properties::EVICTED, Bug::AdditiveScores, with_java(1));
}

/// Goes through all states of a world; all of them are well. Answers how many there are.
fn check(name: &str, checked: Checked) -> usize {
    let checker = checked.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    report(name, checker.spawn_bfs())
}

/// Goes through the first states of a world that has too many.
fn look_into(name: &str, steps: usize, checked: Checked) {
    let checker = checked.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    report(name, checker.target_state_count(steps).spawn_bfs());
}

fn report(name: &str, checker: impl Checker<Checked>) -> usize {
    let began = BootTime::now();
    let checker = checker.join();
    let seconds = began.until(BootTime::now()).as_secs_f64();
    let (states, steps) = (checker.unique_state_count(), checker.state_count());
    println!("{name}: {states} states, {steps} steps, {seconds:.1} s");
    for (property, path) in checker.discoveries() {
        let last = path.last_state().clone();
        println!("not true: {property}, after");
        path.into_actions().iter().for_each(|action| println!("    {action:?}"));
        println!("{last:#?}");
    }
    assert!(checker.is_done() && checker.discoveries().is_empty(), "{name}");
    states
}

/// Looks for the states in which a mistake shows.
fn find(property: &'static str, bug: Bug, checked: Checked) {
    let checked = Checked { bug: Some(bug), progress_of_every: u64::MAX, ..checked };
    let checker = checked.checker().finish_when(HasDiscoveries::AnyOf([property].into()));
    let checker = checker.spawn_bfs().join();
    let path = checker.discovery(property);
    let steps = path.expect("the checker finds the mistake").into_actions().len();
    println!("{bug:?}: {steps} steps, {} states", checker.unique_state_count());
}

/// Clients of fairlock among themselves. A unit of time is a second.
fn two_clients() -> Checked {
    let owner = |client, id| format!("00000000-0000-8000-8000-00000000000{client}:{id}");
    let owners = |client| (0..MOST_IDS).map(|id| OwnerId::new(owner(client, id))).collect();
    Checked {
        clients: 2,
        waits: 1,
        at_once: 1,
        copies: 1,
        crowded: 2,
        renews: true,
        faults: Faults::NONE,
        unit_ms: 1_000,
        waiter_ttl_ms: 1_000,
        lease_ms: 2_000,
        life_ms: 1_000,
        late_ms: 0,
        java_owners: Vec::new(),
        java_tries: 1,
        java_wait_ms: 60_000,
        java_lease_ms: 60_000,
        bug: None,
        progress_of_every: 512,
        rounds: 80,
        identity: "".into(),
        name: Name::new("checked").expect("a name"),
        owners: (0..3).map(owners).collect(),
    }
}

/// Threads of Java beside them. A unit is half a minute: scores are minutes ahead.
fn with_java(threads: u8) -> Checked {
    let owner = |thread| format!("00000000-0000-4000-8000-000000000000:{thread}");
    Checked {
        unit_ms: 30_000,
        waiter_ttl_ms: 30_000,
        lease_ms: 60_000,
        life_ms: 30_000,
        java_owners: (0..threads).map(|thread| OwnerId::new(owner(thread))).collect(),
        ..two_clients()
    }
}

/// As few times as can be: Java's are many.
fn two_clients_and_java() -> Checked {
    let java = Checked { java_lease_ms: 30_000, java_wait_ms: 30_000, ..with_java(1) };
    Checked { lease_ms: 30_000, crowded: 1, renews: false, ..java }
}

/// Some seconds.
const A_FEW_STEPS: usize = 1_000_000;
/// About a minute.
const MANY_STEPS: usize = 8_000_000;
/// Those who come back need more than one for each wait; [`super::progress`] lets them.
const MOST_IDS: u8 = 10;
