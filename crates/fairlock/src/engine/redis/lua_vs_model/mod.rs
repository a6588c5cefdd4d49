//! The scripts against the model: the same random operations, equal replies, equal state.
//!
//! Both sides run on a clock that the test sets, forwards and now and then backwards; the end of a
//! key is a step of its own on both sides. Others interfere: a Java client takes the lock, somebody
//! deletes it or spoils our record. The fair lock has a test of its own, [`fair`].

mod fair;
mod fair_on_server;
mod foreign;

use std::collections::HashMap;

use fairlock_testkit::{Rng, Seed, Server, flavours};
use redis::{Connection, Pipeline, Value};

use super::keys;
use super::scripts::{Scripts, parse_renewed, parse_reply};
use crate::ids::{Name, OwnerId, Token};
use crate::protocol::model::reentrant::{self, Hold, LockState, Message};
use crate::protocol::op::{Claim, Heard, Lease, Op, Record, Renew, Reply, State};
use crate::time::ServerTime;

#[test]
fn scripts_and_model_agree() {
    let seed = Seed::from_env_or_random("FAIRLOCK_SEED");
    let _announcement = seed.announce("scripts_and_model_agree");
    for flavour in flavours() {
        let server = Server::start(&flavour);
        let mut pair = Pair::new(&server);
        let mut rng = seed.rng();
        let mut done = 0;
        while done < OPERATIONS {
            let steps: Vec<Step> = (0..BATCH).map(|_| Step::random(&mut rng, &pair)).collect();
            pair.run(&steps);
            done += BATCH;
        }
        println!("{}: {done} operations agree", flavour.name);
    }
}

/// One step on both sides.
#[derive(Debug)]
struct Step {
    advance_ms: i64,
    name: usize,
    /// When the request expires, relative to the clock.
    expires_us: i64,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Op(Op),
    Renew(Vec<Renew>),
    Foreign(&'static str, u64),
}

impl Step {
    fn random(rng: &mut Rng, pair: &Pair) -> Self {
        let name = rng.below(NAMES.len() as u64) as usize;
        let advance_ms = *rng.pick(&[0, 0, 0, 1, 1, 40, 60, 500, 2_000, 31_000]);
        let advance_ms = match rng.below(2_000) {
            0 => 4 * 3_600_000,
            1 => -5_000,
            _ => advance_ms,
        };
        let expires_us = *rng.pick(&[1_000_000, 1_000_000, 1_000_000, 1_000, 0, -1, -1_000_000]);
        let action = match rng.below(100) {
            0..30 => Action::Op(Op::Acquire(claim(rng))),
            30..40 => Action::Op(Op::Reenter {
                owner: owner(rng),
                count: 1 + rng.below(3) as u32,
                lease_ms: lease_ms(rng),
            }),
            40..70 => Action::Op(Op::Release {
                owner: owner(rng),
                remaining: rng.below(3).saturating_sub(1) as u32,
                next: rng.chance(1, 2).then(|| claim(rng)),
            }),
            70..80 => Action::Op(Op::Inspect),
            80..92 => Action::Renew((0..1 + rng.below(4)).map(|_| pair.renew(rng)).collect()),
            92..96 => Action::Foreign("hold", lease_ms(rng)),
            _ => {
                let what: &&str = rng.pick(&MISCHIEF);
                Action::Foreign(what, 0)
            }
        };
        Self { advance_ms, name, expires_us, action }
    }
}

/// The server and the model, side by side.
struct Pair {
    connection: Connection,
    /// Hears every release, so that telling is compared as well.
    _listener: Connection,
    scripts: Scripts,
    names: Vec<Name>,
    locks: HashMap<Name, LockState>,
    now: ServerTime,
    /// The largest token seen of each lock, with the record that proves it is remembered.
    tokens: HashMap<Name, Token>,
}

impl Pair {
    fn new(server: &Server) -> Self {
        let names: Vec<Name> = NAMES.iter().map(|name| Name::new(name).unwrap()).collect();
        let mut listener = server.connection();
        let mut subscribe = redis::cmd("SUBSCRIBE");
        names.iter().for_each(|name| {
            subscribe.arg(keys::channel(name));
        });
        listener.send_packed_command(&subscribe.get_packed_command()).unwrap();
        for _ in &names {
            listener.recv_response().unwrap();
        }
        Self {
            connection: server.connection(),
            _listener: listener,
            scripts: Scripts::behind(CLOCK),
            names,
            locks: HashMap::new(),
            now: ServerTime(1_700_000_000_000_000),
            tokens: HashMap::new(),
        }
    }

    fn renew(&self, rng: &mut Rng) -> Renew {
        let name = rng.pick(&self.names).clone();
        let count = 1 + rng.below(3) as u32;
        Renew { name, owner: owner(rng), count, lease_ms: lease_ms(rng) }
    }

    /// All steps go to the server at once; then every answer is compared, step by step.
    fn run(&mut self, steps: &[Step]) {
        let mut pipe = redis::pipe();
        let mut now = self.now;
        for step in steps {
            now = ServerTime(now.0.saturating_add_signed(step.advance_ms * 1_000));
            self.send(&mut pipe, step, now);
        }
        let answers: Vec<Value> = pipe.query(&mut self.connection).unwrap();
        for (step, answers) in steps.iter().zip(answers.chunks_exact(3)) {
            self.now = ServerTime(self.now.0.saturating_add_signed(step.advance_ms * 1_000));
            self.compare(step, &answers[1], &answers[2]);
        }
    }

    fn send(&self, pipe: &mut Pipeline, step: &Step, now: ServerTime) {
        let name = &self.names[step.name];
        let expires = ServerTime(now.0.saturating_add_signed(step.expires_us));
        pipe.cmd("EVAL").arg(include_str!("_expire.lua")).arg(0).arg(now.0);
        match &step.action {
            Action::Op(op) => {
                pipe.add_command(self.scripts.call(name, op, expires).by_source());
            }
            Action::Renew(items) => {
                pipe.add_command(self.scripts.renew(items, expires).by_source());
            }
            Action::Foreign(what, lease_ms) => {
                let script = [CLOCK, include_str!("_foreign.lua")].join("\n");
                pipe.cmd("EVAL").arg(script).arg(2).arg(name.as_bytes()).arg(keys::record(name));
                pipe.arg(*what).arg(*lease_ms);
            }
        }
        let dump = [CLOCK, include_str!("_dump.lua")].join("\n");
        pipe.cmd("EVAL").arg(dump).arg(2).arg(name.as_bytes()).arg(keys::record(name));
    }

    fn compare(&mut self, step: &Step, answer: &Value, dump: &Value) {
        let (name, now) = (self.names[step.name].clone(), self.now);
        let expires = ServerTime(now.0.saturating_add_signed(step.expires_us));
        self.locks.values_mut().for_each(|lock| lock.expire(now));
        match &step.action {
            Action::Op(op) => {
                let lock = self.locks.entry(name.clone()).or_default();
                let before = lock.clone();
                let (mut expected, message) = reentrant::apply(lock, op, expires, now);
                expected.heard = Heard::By(u64::from(message == Message::Free));
                let reply = parse_reply(answer.clone()).unwrap();
                assert_eq!(reply, expected, "{step:?} on {before:?} at {now:?}");
                self.check_token(&name, &before, &reply);
            }
            Action::Renew(items) if now <= expires => {
                let renewed = parse_renewed(answer.clone()).unwrap();
                let expected: Vec<(State, Lease)> = items
                    .iter()
                    .map(|item| {
                        let lock = self.locks.entry(item.name.clone()).or_default();
                        reentrant::renew(lock, item, now)
                    })
                    .collect();
                assert_eq!(renewed.items, Some(expected), "{step:?} at {now:?}");
            }
            Action::Renew(_) => {
                assert!(parse_renewed(answer.clone()).unwrap().items.is_none(), "{step:?}");
            }
            Action::Foreign(what, lease_ms) => self.interfere(&name, what, *lease_ms),
        }
        let lock = self.locks.entry(name).or_default();
        assert_eq!(seen(dump), visible(lock, now), "after {step:?} at {now:?}");
    }

    fn interfere(&mut self, name: &Name, what: &str, lease_ms: u64) {
        let lock = self.locks.entry(name.clone()).or_default();
        match what {
            "hold" => {
                let ends = self.now.plus_ms(lease_ms);
                lock.hold = Some(Hold { owner: OwnerId::new("java:1"), count: 1, ends });
            }
            "delete" => lock.hold = None,
            _ => {
                lock.record = None;
                self.tokens.remove(name);
            }
        }
    }

    /// As long as the record is there, tokens of new holds grow, also when the clock is set back.
    fn check_token(&mut self, name: &Name, before: &LockState, reply: &Reply) {
        if before.record.is_none() {
            self.tokens.remove(name);
        }
        let drawn = reply.token != Token::default();
        let known = before.record.as_ref().is_some_and(|(record, _)| record.token == reply.token);
        if drawn && !known {
            let last = self.tokens.insert(name.clone(), reply.token).unwrap_or_default();
            assert!(reply.token > last, "token {:?} after {last:?}", reply.token);
        }
    }
}

type Visible = (Vec<(String, String)>, i64, Option<Record>, Option<i64>);

fn visible(lock: &LockState, now: ServerTime) -> Visible {
    let fields = lock.hold.iter().map(|hold| (hold.owner.to_string(), hold.count.to_string()));
    let left = lock.hold.as_ref().map_or(-2, |hold| now.ms_until(hold.ends) as i64);
    let record = lock.record.as_ref().map(|(record, _)| record.clone());
    let record_left = lock.record.as_ref().map(|(_, ends)| now.ms_until(*ends) as i64);
    (fields.collect(), left, record, record_left)
}

fn seen(dump: &Value) -> Visible {
    type Dump = (Vec<String>, i64, String, i64);
    let (fields, left, record, record_left) =
        redis::from_redis_value::<Dump>(dump.clone()).unwrap();
    let fields: Vec<(String, String)> =
        fields.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    let record = Record::parse(&record);
    let record_left = record.is_some().then_some(record_left);
    (fields, left, record, record_left)
}

fn owner(rng: &mut Rng) -> OwnerId {
    OwnerId::new(format!("67e55044-10b1-826f-9247-bb680e5fe0c8:{}", rng.below(4)))
}

fn claim(rng: &mut Rng) -> Claim {
    Claim { owner: owner(rng), lease_ms: lease_ms(rng), identity: "4711\nhost\nprogram".into() }
}

fn lease_ms(rng: &mut Rng) -> u64 {
    *rng.pick(&[100, 100, 1_000, 30_000, 30_000, 7_200_000])
}

const CLOCK: &str = include_str!("_virtual_clock.lua");
const MISCHIEF: [&str; 4] = ["delete", "garbage", "list", "forget"];
const NAMES: [&str; 3] = ["orders:42", "a{b}c", "x"];
const OPERATIONS: usize = 100_000;
const BATCH: usize = 500;
