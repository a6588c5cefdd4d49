//! The scripts of the fair lock against their model: equal replies, equal state, equal messages.
//!
//! The model runs ahead, so that the random steps can be chosen by what there is to do; then a
//! batch of them goes to the server, and every answer is compared. Clients come and go between
//! batches. Redisson takes part, as a script of the test and once more in [`super::foreign`].

use std::collections::{BTreeMap, HashMap, HashSet};

use fairlock_testkit::{Rng, Seed, Server, flavours};
use redis::{Connection, Pipeline, Value};

use super::foreign::{Fair, Java, Poison};
use super::{CLOCK, MISCHIEF, NAMES};
use crate::engine::redis::keys;
use crate::engine::redis::scripts::{Asker, Scripts, parse_beaten, parse_reply};
use crate::ids::{Name, OwnerId};
use crate::protocol::model::fair::{self, Beaten, Context, Heartbeat, Place, client_of};
use crate::protocol::model::reentrant::Message;
use crate::protocol::op::{Claim, Heard, Op, Record, Reply, Ticket};
use crate::time::ServerTime;

#[test]
fn fair_scripts_and_model_agree() {
    let seed = Seed::from_env_or_random("FAIRLOCK_SEED");
    let _announcement = seed.announce("fair_scripts_and_model_agree");
    for flavour in flavours() {
        let server = Server::start(&flavour);
        let mut pair = Pair::new(&server);
        let mut rng = seed.rng();
        while pair.done < OPERATIONS {
            pair.change_listeners(&mut rng);
            pair.run_batch(&mut rng);
        }
        let seen = &pair.coverage;
        println!("{}: {} operations agree, {seen:?}", flavour.name, pair.done);
        for what in ["Queued", "Held", "Grant", "Call", "grantee", "came back before others"] {
            assert!(seen.contains_key(what), "{what} never happened: {seen:?}");
        }
    }
}

/// One step on both sides.
#[derive(Clone, Debug)]
struct Step {
    name: usize,
    now: ServerTime,
    expires: ServerTime,
    waiter_ttl_ms: u64,
    /// Who asks; not always the client of the owner it asks about.
    client: &'static str,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Op(Op),
    Beat(Heartbeat),
    Java(Java),
    Poison(Poison),
    /// What [`super`] does to plain locks.
    Mischief(&'static str),
}

/// What the model says about a step.
struct Expected {
    step: Step,
    before: Fair,
    answer: Answer,
    after: Visible,
}

enum Answer {
    Reply(Reply),
    Beaten(Beaten),
    Nothing,
}

/// All that can be seen of a fair lock.
#[derive(Debug, PartialEq, Eq)]
struct Visible {
    fields: Vec<(String, String)>,
    left: i64,
    record: Option<(Record, i64)>,
    list: Vec<String>,
    scores: BTreeMap<String, i64>,
    places: BTreeMap<String, Place>,
    /// What is left of list, scores and places.
    queue_left: [i64; 3],
}

/// The server and the model, side by side.
struct Pair {
    connection: Connection,
    /// Hears what the clients that listen hear, and all that is said to Java's waiters.
    listener: Connection,
    listening: HashSet<String>,
    scripts: Scripts,
    /// The digests of the test's own scripts.
    digests: HashMap<&'static str, String>,
    names: Vec<Name>,
    locks: Vec<Fair>,
    now: ServerTime,
    done: usize,
    /// Channel and text of every message of this batch.
    messages: Vec<(String, String)>,
    coverage: BTreeMap<String, usize>,
}

impl Pair {
    fn new(server: &Server) -> Self {
        let names: Vec<Name> = NAMES.iter().map(|name| Name::new(name).unwrap()).collect();
        let mut pair = Self {
            connection: server.connection(),
            listener: server.connection(),
            listening: HashSet::new(),
            scripts: Scripts::behind(CLOCK),
            digests: HashMap::new(),
            locks: names.iter().map(|_| Fair::default()).collect(),
            names,
            now: ServerTime(1_700_000_000_000_000),
            done: 0,
            messages: Vec::new(),
            coverage: BTreeMap::new(),
        };
        for name in pair.names.clone() {
            for owner in JAVA {
                pair.listen("SUBSCRIBE", &java_channel(&name, owner));
            }
        }
        for client in CLIENTS {
            pair.listen("SUBSCRIBE", &keys::client_channel(client));
            pair.listening.insert((*client).to_owned());
        }
        let mut load = |source: &str| -> String {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(source).query(&mut pair.connection).unwrap()
        };
        pair.scripts.sources().for_each(|source| drop(load(source)));
        for script in [EXPIRE, FAIR_DUMP, JAVA_SCRIPT, POISON, FOREIGN] {
            pair.digests.insert(script, load(&[CLOCK, script].join("\n")));
        }
        pair
    }

    fn listen(&mut self, verb: &str, channel: &str) {
        let command = redis::cmd(verb).arg(channel).get_packed_command();
        self.listener.send_packed_command(&command).unwrap();
        self.listener.recv_response().unwrap();
    }

    fn change_listeners(&mut self, rng: &mut Rng) {
        if !rng.chance(1, 2) {
            return;
        }
        let client = *rng.pick(&CLIENTS);
        let verb = match self.listening.remove(client) {
            true => "UNSUBSCRIBE",
            false => "SUBSCRIBE",
        };
        if verb == "SUBSCRIBE" {
            self.listening.insert(client.to_owned());
        }
        self.listen(verb, &keys::client_channel(client));
    }

    fn run_batch(&mut self, rng: &mut Rng) {
        let mut pipe = redis::pipe();
        let mut expected = Vec::new();
        for _ in 0..BATCH {
            let step = self.random_step(rng);
            self.send(&mut pipe, &step);
            expected.push(self.model(step));
        }
        let answers: Vec<Value> = pipe.query(&mut self.connection).unwrap();
        for (expected, answers) in expected.iter().zip(answers.chunks_exact(3)) {
            self.compare(expected, &answers[1], &answers[2]);
            self.done += 1;
        }
        let heard = self.heard();
        assert_eq!(heard, self.messages, "messages before step {}", self.done);
        self.messages.clear();
    }

    /// What the listener has received; the pong comes after all of it.
    fn heard(&mut self) -> Vec<(String, String)> {
        let ping = redis::cmd("PING").get_packed_command();
        self.listener.send_packed_command(&ping).unwrap();
        let mut heard = Vec::new();
        loop {
            let parts: Vec<String> =
                redis::from_redis_value(self.listener.recv_response().unwrap()).unwrap();
            match parts.as_slice() {
                [kind, channel, text] if kind == "message" => {
                    heard.push((channel.clone(), text.clone()));
                }
                _ => return heard,
            }
        }
    }

    fn call<'a>(
        &self,
        pipe: &'a mut Pipeline,
        script: &'static str,
        name: &Name,
        keys: usize,
    ) -> &'a mut Pipeline {
        pipe.cmd("EVALSHA").arg(&self.digests[script]).arg(keys);
        let own = [name.as_bytes().to_vec(), keys::record(name)];
        let queue = [keys::queue(name), keys::scores(name), keys::places(name)];
        own.iter().chain(&queue).take(keys).for_each(|key| {
            pipe.arg(key);
        });
        pipe
    }

    fn send(&self, pipe: &mut Pipeline, step: &Step) {
        let name = &self.names[step.name];
        let (expires, waiter_ttl_ms) = (step.expires, step.waiter_ttl_ms);
        let asker = Asker { client: step.client, waiter_ttl_ms };
        self.call(pipe, EXPIRE, name, 0).arg(step.now.0);
        match &step.action {
            Action::Op(op) => {
                pipe.add_command(self.scripts.fair_call(name, op, asker, expires).by_digest());
            }
            Action::Beat(beat) => {
                pipe.add_command(self.scripts.fair_beat(name, beat, asker, expires).by_digest());
            }
            Action::Java(java) => {
                self.call(pipe, JAVA_SCRIPT, name, 5).arg(java.what).arg(java.owner);
                pipe.arg(java.wait_ms).arg(java.lease_ms);
            }
            Action::Poison(poison) => {
                self.call(pipe, POISON, name, 5).arg(poison.what).arg(poison.owner.as_str());
                pipe.arg(poison.score).arg(spell(&poison.place));
            }
            Action::Mischief(what) => {
                self.call(pipe, FOREIGN, name, 2).arg(*what).arg(0);
            }
        }
        self.call(pipe, FAIR_DUMP, name, 5);
    }

    fn model(&mut self, step: Step) -> Expected {
        let now = step.now;
        self.now = now;
        self.locks.iter_mut().for_each(|fair| fair.expire(now));
        let fair = &mut self.locks[step.name];
        let before = fair.clone();
        let hears = |client: &str| self.listening.contains(client);
        let Step { expires, waiter_ttl_ms, client, .. } = step;
        let context = Context { now, expires, waiter_ttl_ms, client, hears: &hears };
        let kept = fair.begin();
        let (answer, message) = match &step.action {
            Action::Op(op) => {
                let (reply, message) = fair::apply(&mut fair.lock, op, &context);
                (Answer::Reply(Reply { heard: heard(&message), ..reply }), message)
            }
            Action::Beat(beat) => {
                let (mut beaten, message) = fair::beat(&mut fair.lock, beat, &context);
                beaten.reply.heard = heard(&message);
                (Answer::Beaten(beaten), message)
            }
            Action::Java(java) => {
                fair.java(java, now);
                (Answer::Nothing, Message::None)
            }
            Action::Poison(poison) => {
                fair.poison(poison);
                (Answer::Nothing, Message::None)
            }
            Action::Mischief(what) => {
                match *what {
                    "delete" => fair.lock.hold = None,
                    _ => fair.lock.record = None,
                }
                (Answer::Nothing, Message::None)
            }
        };
        fair.settle(kept);
        let after = visible(fair, now);
        self.cover(&step, &before, &answer, &message);
        self.expect(&self.names[step.name].clone(), message);
        Expected { step, before, answer, after }
    }

    fn expect(&mut self, name: &Name, message: Message) {
        match message {
            Message::Grant { owner, token, granted_ms } => {
                let channel = keys::client_channel(client_of(&owner));
                self.messages.push((channel, format!("{owner} {token} {granted_ms}")));
            }
            Message::Call(owner) => {
                self.messages.push((java_channel(name, owner.as_str()), "0".to_owned()));
            }
            Message::None => {}
            Message::Free => panic!("a fair lock tells nobody that it is free"),
        }
    }

    /// Counts what happened, so that a test that tests nothing is noticed.
    fn cover(&mut self, step: &Step, before: &Fair, answer: &Answer, message: &Message) {
        let mut count = |what: &str| *self.coverage.entry(what.to_owned()).or_default() += 1;
        match answer {
            Answer::Reply(reply) => {
                count(&format!("{:?}", reply.state));
                if reply.grantee.is_some() {
                    count("grantee");
                }
            }
            Answer::Beaten(beaten) => beaten.states.iter().for_each(|state| {
                count(&format!("beat: {state:?}"));
            }),
            Answer::Nothing => count("foreign"),
        }
        match message {
            Message::Grant { .. } => count("Grant"),
            Message::Call(_) => count("Call"),
            _ => {}
        }
        let after = &self.locks[step.name].lock.queue;
        if let Action::Op(Op::Queue { claim, ticket: Some(_) }) = &step.action
            && !before.lock.queue.list.contains(&claim.owner)
            && after.list.contains(&claim.owner)
            && after.list.back() != Some(&claim.owner)
        {
            count("came back before others");
        }
    }

    fn compare(&self, expected: &Expected, answer: &Value, dump: &Value) {
        let Expected { step, before, .. } = expected;
        let place = || format!("step {}: {step:?} on {before:#?}", self.done);
        match &expected.answer {
            Answer::Reply(reply) => {
                let mut seen = parse_reply(answer.clone()).unwrap_or_else(|error| {
                    panic!("{error:?} {answer:?} at {}", place());
                });
                // Something else than a place is none to the scripts, and a dead one to the model.
                let mut reply = reply.clone();
                for details in [&mut seen, &mut reply].map(|reply| reply.details.as_mut()) {
                    let waiters = details.map(|details| details.waiters.iter_mut());
                    for waiter in waiters.into_iter().flatten() {
                        waiter.place.take_if(|(_, deadline)| deadline.0 == 0);
                    }
                }
                assert_eq!(seen, reply, "{}", place());
            }
            Answer::Beaten(beaten) => {
                let seen = parse_beaten(answer.clone()).unwrap_or_else(|error| {
                    panic!("{error:?} {answer:?} at {}", place());
                });
                assert_eq!(seen, *beaten, "{}", place());
            }
            Answer::Nothing => assert_eq!(*answer, Value::Int(0), "{}", place()),
        }
        assert_eq!(seen(dump), expected.after, "after {}", place());
    }

    fn random_step(&self, rng: &mut Rng) -> Step {
        let advance_us = match rng.below(2_000) {
            0 => 4 * 3_600_000_000,
            1 => -5_000_000,
            2 => -3_600_000_000,
            3 => 2 * 86_400_000_000,
            4..20 => 301_000_000,
            _ => *rng.pick(&[0, 0, 0, 1, 137, 1_000, 40_000, 500_000, 1_000_000, 11_000_000]),
        };
        let now = ServerTime(self.now.0.saturating_add_signed(advance_us));
        let expires_us = match rng.below(60) {
            0 => -1_000_000,
            1 => -1,
            2 => 0,
            _ => 1_000_000,
        };
        let name = rng.below(NAMES.len() as u64) as usize;
        let action = self.random_action(rng, &self.locks[name], now);
        let asking = match &action {
            Action::Op(Op::Acquire(claim) | Op::Queue { claim, .. }) => Some(&claim.owner),
            // Somebody may break the lock of another.
            Action::Op(Op::Release { owner, .. }) if rng.chance(9, 10) => Some(owner),
            Action::Beat(beat) => beat.waiting.first(),
            _ => None,
        };
        let asking = asking.and_then(|owner| CLIENTS.iter().find(|c| **c == client_of(owner)));
        Step {
            name,
            now,
            expires: ServerTime(now.0.saturating_add_signed(expires_us)),
            waiter_ttl_ms: *rng.pick(&[1_000, 30_000, 30_000]),
            client: asking.unwrap_or_else(|| rng.pick(&CLIENTS)),
            action,
        }
    }

    fn random_action(&self, rng: &mut Rng, fair: &Fair, now: ServerTime) -> Action {
        let holder = fair.lock.hold.as_ref().map(|hold| hold.owner.clone());
        // Now and then the very ticket of another.
        let taken = fair.lock.queue.places.values().next().filter(|_| rng.chance(1, 4));
        let any = Ticket(now.0 - rng.below(100_000_000));
        let ticket = taken.map_or(any, |place| place.ticket);
        let head = fair.lock.queue.list.front();
        if holder.is_none() && head.is_some_and(|head| !head.is_fairlock()) && rng.chance(1, 3) {
            return Action::Java(Java::random(rng, fair));
        }
        match rng.below(100) {
            0..8 => Action::Op(Op::Acquire(claim(rng))),
            8..18 => Action::Op(Op::Queue { claim: claim(rng), ticket: Some(ticket) }),
            18..22 => Action::Op(Op::Reenter {
                owner: holder.filter(|_| rng.chance(1, 2)).unwrap_or_else(|| owner(rng)),
                count: 1 + rng.below(3) as u32,
                lease_ms: lease_ms(rng),
            }),
            22..50 => {
                let holder = holder.filter(|owner| owner.is_fairlock() && rng.chance(2, 3));
                Action::Op(Op::Release {
                    owner: holder.unwrap_or_else(|| owner(rng)),
                    remaining: rng.below(8).saturating_sub(5) as u32,
                    next: None,
                })
            }
            50..53 => Action::Op(Op::Inspect),
            53..65 => {
                let client = rng.pick(&CLIENTS);
                let waiting = (0..rng.below(4)).map(|_| owner_of(client, rng)).collect();
                Action::Beat(Heartbeat { waiting })
            }
            65..88 => Action::Op(Op::Queue { claim: claim(rng), ticket: None }),
            88..95 => Action::Java(Java::random(rng, fair)),
            95..99 => Action::Poison(Poison::random(rng, fair, now)),
            _ => {
                let what: &&str = rng.pick(&MISCHIEF);
                Action::Mischief(what)
            }
        }
    }
}

/// Everybody who is told anything listens.
fn heard(message: &Message) -> Heard {
    Heard::By(u64::from(*message != Message::None))
}

fn visible(fair: &Fair, now: ServerTime) -> Visible {
    let (lock, queue) = (&fair.lock, &fair.lock.queue);
    let (fields, left, record, record_left) = super::visible(lock, now);
    let text = |owner: &OwnerId| owner.to_string();
    let left_of = |is_there: bool, ends_with_places: bool| match queue.ends {
        _ if !is_there => -2,
        Some(ends) if ends_with_places => now.ms_until(ends) as i64,
        _ => -1,
    };
    Visible {
        fields,
        left,
        record: record.zip(record_left),
        list: queue.list.iter().map(text).collect(),
        scores: queue.scores.iter().map(|(owner, score)| (text(owner), *score as i64)).collect(),
        places: queue.places.iter().map(|(owner, place)| (text(owner), place.clone())).collect(),
        queue_left: [
            left_of(!queue.list.is_empty(), fair.list_ends),
            left_of(!queue.scores.is_empty(), fair.scores_end),
            left_of(!queue.places.is_empty(), true),
        ],
    }
}

fn seen(dump: &Value) -> Visible {
    let Value::Array(parts) = dump else { panic!("{dump:?}") };
    let (hold, queue) = parts.split_at(4);
    let (fields, left, record, record_left) = super::seen(&Value::Array(hold.to_vec()));
    let texts =
        |index: usize| redis::from_redis_value::<Vec<String>>(queue[index].clone()).unwrap();
    let number = |index: usize| redis::from_redis_value::<i64>(queue[index].clone()).unwrap();
    let scores = texts(1);
    let places = texts(2);
    Visible {
        fields,
        left,
        record: record.zip(record_left),
        list: texts(0),
        scores: scores.chunks(2).map(|pair| (pair[0].clone(), pair[1].parse().unwrap())).collect(),
        places: places.chunks(2).map(|pair| (pair[0].clone(), parse_place(&pair[1]))).collect(),
        queue_left: [number(3), number(4), number(5)],
    }
}

/// As the scripts keep it.
fn spell(place: &Place) -> String {
    let Place { ticket, deadline, lease_ms, waits_ms, identity } = place;
    format!("{} {} {lease_ms} {waits_ms} {identity}", ticket.0, deadline.0)
}

fn parse_place(text: &str) -> Place {
    let parse = || {
        let mut parts = text.splitn(5, ' ');
        Some(Place {
            ticket: Ticket(parts.next()?.parse().ok()?),
            deadline: ServerTime(parts.next()?.parse().ok()?),
            lease_ms: parts.next()?.parse().ok()?,
            waits_ms: parts.next()?.parse().ok()?,
            identity: parts.next()?.into(),
        })
    };
    parse().unwrap_or_else(garbage_place)
}

/// How the model sees something else than a place: as one that has ended long ago.
pub(super) fn garbage_place() -> Place {
    let (ticket, deadline) = (Ticket(0), ServerTime(0));
    Place { ticket, deadline, lease_ms: 0, waits_ms: 0, identity: "".into() }
}

fn java_channel(name: &Name, owner: &str) -> String {
    format!("{}:{owner}", String::from_utf8(keys::channel(name)).unwrap())
}

pub(super) fn owner(rng: &mut Rng) -> OwnerId {
    let client: &&str = rng.pick(&CLIENTS);
    owner_of(client, rng)
}

fn owner_of(client: &str, rng: &mut Rng) -> OwnerId {
    OwnerId::new(format!("{client}:{}", rng.below(3)))
}

fn claim(rng: &mut Rng) -> Claim {
    let identity = *rng.pick(&["4711\nhost\nprogram", "", " 1 2\n\n%s \u{fc}"]);
    Claim { owner: owner(rng), lease_ms: lease_ms(rng), identity: identity.into() }
}

fn lease_ms(rng: &mut Rng) -> u64 {
    *rng.pick(&[100, 1_000, 30_000, 30_000, 7_200_000])
}

const CLIENTS: [&str; 3] = [
    "67e55044-10b1-826f-9247-bb680e5fe0c8",
    "00000000-0000-8000-8000-000000000000",
    "ffffffff-ffff-8fff-bfff-ffffffffffff",
];
/// Redisson's owners, and ids that are nearly fairlock's.
pub(super) const JAVA: [&str; 8] = [
    "0f8fad5b-d9cb-469f-a165-70867728950e:1",
    "0f8fad5b-d9cb-469f-a165-70867728950e:2",
    "7c9e6679-7425-40de-944b-e07fc1f90ae7:1",
    "67e5504410b1826f9247bb680e5fe0c8:1",
    "67e55044-10b1-826f-9247-bb680e5fe0c8",
    "67e55044-10b1-826f-9247-bb680e5fe0c8x:1",
    "{67e55044-10b1-826f-9247-bb680e5fe0}:1",
    "java",
];
const EXPIRE: &str = include_str!("_expire.lua");
const FAIR_DUMP: &str = include_str!("_fair_dump.lua");
const JAVA_SCRIPT: &str = include_str!("_java.lua");
const POISON: &str = include_str!("_poison.lua");
const FOREIGN: &str = include_str!("_foreign.lua");
const OPERATIONS: usize = 100_000;
const BATCH: usize = 100;
