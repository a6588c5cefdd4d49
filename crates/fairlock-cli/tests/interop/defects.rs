//! What Redisson does to its users, seen with the real one. docs/PROTOCOL.md lists these and what
//! fairlock does instead; a scenario here fails when a version does better, and the list is to be
//! mended then.

use crate::stage::{Part, Stage, WATCHDOG, ms, pass};
use crate::table::Scenario;

pub(crate) const SCENARIOS: [Scenario; 5] = [
    Scenario::on_first_server("Redisson: a lost lock is not told", loss_is_silent),
    Scenario::on_first_server("Redisson: a dead fair waiter costs its whole wait", dead_waiter),
    Scenario::on_first_server("Redisson: dead fair waiters add up", dead_waiters_add_up),
    Scenario::on_first_server("Redisson: an entry without a score blocks for ever", ghost_head),
    Scenario::on_first_server("Redisson: a lock without a TTL is asked in a loop", hot_loop),
];

/// The holder is not told; somebody else holds the lock, and it goes on working.
fn loss_is_silent(stage: &Stage) -> String {
    let name = stage.new_name("silent");
    let java = Part::new(stage, &stage.java[0], "lock", &name);
    let rust = Part::new(stage, &stage.rust[0], "lock", &name);
    java.does("lock", "held");
    assert_eq!(stage.query::<u64>(&["DEL", &name]), 1);
    rust.does("lock", "held");
    pass(WATCHDOG);
    // Until it asks.
    java.does("held", "false");
    java.does("unlock", "not-owner");
    rust.does("unlock", "released");
    // A guard of ours says so by itself.
    rust.does("lock", "held");
    let lost = rust.begin("lost", "");
    assert_eq!(stage.query::<u64>(&["DEL", &name]), 1);
    assert_eq!(lost.answer().text, "lost");
    rust.does("unlock", "not-owner");
    String::new()
}

/// How long a free lock is nobody's after waiters with these wait times have died.
fn stands_still(stage: &Stage, waits_ms: &[u64]) -> u64 {
    let name = stage.new_name("dead");
    let holder = Part::new(stage, &stage.java[0], "fair", &name);
    let survivor = Part::new(stage, &stage.java[1], "fair", &name);
    let victim = stage.another_java();
    holder.does("lock", "held");
    for (number, wait) in (1..).zip(waits_ms) {
        Part::new(stage, &victim, "fair", &name).begin("trylock", &format!("{wait} 60000"));
        stage.await_queued(&name, number);
    }
    victim.kill();
    let waiting = survivor.begin("trylock", "40000 60000");
    stage.await_queued(&name, waits_ms.len() as u64 + 1);
    let released = holder.answer("unlock", "");
    let served = waiting.answer();
    assert_eq!(served.text, "held");
    survivor.does("unlock", "released");
    (served.at_us - released.at_us) / 1_000
}

fn dead_waiter(stage: &Stage) -> String {
    let delay = stands_still(stage, &[2_000]);
    assert!(delay >= 2_000, "{delay} ms");
    format!("{delay} ms for a wait of 2000 ms")
}

fn dead_waiters_add_up(stage: &Stage) -> String {
    let delay = stands_still(stage, &[2_000, 2_000, 2_000]);
    assert!(delay >= 6_000, "{delay} ms");
    format!("{delay} ms for three waits of 2000 ms")
}

fn ghost_head(stage: &Stage) -> String {
    let name = stage.new_name("ghost");
    let queue = format!("redisson_lock_queue:{{{name}}}");
    stage.query::<u64>(&["RPUSH", &queue, "nobody:1"]);
    let java = Part::new(stage, &stage.java[0], "fair", &name);
    // Busy, or since the tail has no score either, a script error: depends on the version.
    let answer = java.answer("trylock", "3000 10000").text;
    assert_ne!(answer, "held");
    java.does("islocked", "false");
    stage.query::<u64>(&["DEL", &queue, &format!("redisson_lock_timeout:{{{name}}}")]);
    java.does("trylock", "held");
    java.does("unlock", "released");
    answer.split(':').next().unwrap_or_default().to_owned()
}

fn hot_loop(stage: &Stage) -> String {
    let name = stage.new_name("endless");
    let holder = Part::new(stage, &stage.java[0], "fair", &name);
    let waiter = Part::new(stage, &stage.java[1], "fair", &name);
    assert_eq!(holder.answer("lock", "60000").text, "held");
    assert_eq!(stage.query::<u64>(&["PERSIST", &name]), 1);
    let waiting = waiter.begin("trylock", "2000 10000");
    pass(ms(500));
    stage.server.reset_stats();
    pass(ms(1_000));
    let calls = stage.server.script_calls();
    assert_eq!(waiting.answer().text, "busy");
    assert!(calls > 100, "{calls} calls in a second");
    stage.query::<u64>(&["DEL", &name]);
    format!("{calls} calls a second by one waiter")
}
