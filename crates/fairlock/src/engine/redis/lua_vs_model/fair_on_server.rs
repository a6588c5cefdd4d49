//! What the virtual clock and the model cannot show: the fair scripts on a server's own clock, with
//! little memory, and on keys that are something else.

use fairlock_testkit::{Server, flavours};
use redis::{Connection, Value};

use crate::engine::redis::keys;
use crate::engine::redis::scripts::{Asker, Call, SCRIPTS, parse_beaten, parse_reply};
use crate::ids::{Name, OwnerId};
use crate::protocol::model::fair::{Beaten, Heartbeat};
use crate::protocol::op::{Claim, Op, Reply, State, Ticket};
use crate::time::ServerTime;

#[test]
fn the_keys_of_a_queue_end_together_and_a_day_late() {
    for flavour in flavours() {
        let mut lock = Lock::new(&flavour);
        lock.queue(1);
        lock.queue(2);
        lock.queue(3);
        lock.beat(&[2, 3]);
        let ends = lock.left();
        assert!(ends.iter().all(|left| (86_400_000..86_460_001).contains(left)), "{ends:?}");
        // Reading one after the other takes time.
        assert!(ends[0] - ends[2] < 1_000, "{ends:?}");

        // With nobody but Java in it, the queue has no end.
        lock.run(redis::cmd("RPUSH").arg(keys::queue(&lock.name)).arg("java"));
        lock.run(redis::cmd("ZADD").arg(keys::scores(&lock.name)).arg("8e12").arg("java"));
        lock.release(2);
        lock.release(3);
        assert_eq!(lock.left(), [-1, -1, -2]);
        assert_eq!(lock.queue(2).state, State::Queued);
        let ends = lock.left();
        assert!(ends[0] > 86_400_000 && ends.iter().all(|left| ends[0] - left < 1_000), "{ends:?}");
    }
}

#[test]
fn a_hand_off_does_not_look_through_the_queue() {
    for flavour in flavours() {
        let mut lock = Lock::new(&flavour);
        for number in 0..500 {
            lock.queue(number);
        }
        lock.run(redis::cmd("CONFIG").arg("RESETSTAT"));
        for number in 0..499 {
            let reply = lock.release(number);
            assert_eq!((reply.state, reply.grantee), (State::Released, Some(owner(number + 1))));
            lock.beat(&[number + 1, 499]);
        }
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query(&mut lock.connection).unwrap();
        assert!(stats.contains("cmdstat_lpop"), "{stats}");
        for command in ["lrem", "lrange", "zrange", "hgetall", "linsert"] {
            assert!(!stats.contains(&format!("cmdstat_{command}:")), "{command} in {stats}");
        }
    }
}

#[test]
fn without_memory_nobody_new_gets_in_and_all_others_go_on() {
    for flavour in flavours() {
        let mut lock = Lock::new(&flavour);
        for number in 1..4 {
            lock.queue(number);
        }
        lock.run(redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1));
        let before = lock.dump();
        let op = Op::Queue { claim: claim(4), ticket: None };
        let refused = lock.send(&SCRIPTS.fair_call(&lock.name.clone(), &op, ASKER, LATER));
        assert!(format!("{refused:?}").contains("OOM"), "{refused:?}");
        assert_eq!(lock.dump(), before);

        assert_eq!(lock.queue(2).state, State::Queued);
        assert_eq!(lock.beat(&[2, 3]).states, [State::Queued, State::Queued]);
        assert_eq!(lock.release(1).grantee, Some(owner(2)));
        assert_eq!(lock.release(3).state, State::NotHeld);
        assert_eq!(lock.release(2).state, State::Released);
        let free = lock.send(&SCRIPTS.fair_call(&lock.name.clone(), &op, ASKER, LATER));
        assert!(format!("{free:?}").contains("OOM"), "{free:?}");
    }
}

#[test]
fn a_key_of_a_wrong_type_is_an_error_that_changes_nothing() {
    for flavour in flavours() {
        for wrong in 0..4 {
            let mut lock = Lock::new(&flavour);
            lock.queue(1);
            let name = lock.name.clone();
            let keys = [
                name.as_bytes().to_vec(),
                keys::queue(&name),
                keys::scores(&name),
                keys::places(&name),
            ];
            lock.run(redis::cmd("SET").arg(&keys[wrong]).arg("something else"));
            let before = lock.dump();
            let beat = Heartbeat { waiting: vec![owner(2)] };
            let release = Op::Release { owner: owner(1), remaining: 0, next: None };
            let queue = Op::Queue { claim: claim(2), ticket: Some(Ticket(1)) };
            for call in [
                SCRIPTS.fair_call(&name, &queue, ASKER, LATER),
                SCRIPTS.fair_call(&name, &release, ASKER, LATER),
                SCRIPTS.fair_beat(&name, &beat, ASKER, LATER),
            ] {
                let answer = lock.send(&call);
                assert!(format!("{answer:?}").contains("WRONGTYPE"), "{answer:?}");
                assert_eq!(lock.dump(), before);
            }
        }
    }
}

#[test]
fn who_finds_garbage_in_its_place_queues_again() {
    for flavour in flavours() {
        let mut lock = Lock::new(&flavour);
        lock.queue(1);
        lock.queue(2);
        for garbage in ["", "1", "1 2", "1 2 3", "x 2 3 y", "-1 2 3 y"] {
            let places = keys::places(&lock.name);
            lock.run(redis::cmd("HSET").arg(places).arg(owner(2).as_str()).arg(garbage));
            assert_eq!(lock.beat(&[2]).states, [State::NotHeld]);
            let reply = lock.queue(2);
            assert_eq!((reply.state, reply.position), (State::Queued, 1), "{garbage:?}");
            assert_eq!(lock.beat(&[2]).states, [State::Queued]);
        }
    }
}

/// One lock on a server, used by one client.
struct Lock {
    connection: Connection,
    name: Name,
    _server: Server,
}

impl Lock {
    fn new(flavour: &fairlock_testkit::Flavour) -> Self {
        let server = Server::start(flavour);
        Self { connection: server.connection(), name: Name::new("x").unwrap(), _server: server }
    }

    fn queue(&mut self, number: usize) -> Reply {
        self.call(&Op::Queue { claim: claim(number), ticket: None })
    }

    fn release(&mut self, number: usize) -> Reply {
        self.call(&Op::Release { owner: owner(number), remaining: 0, next: None })
    }

    fn call(&mut self, op: &Op) -> Reply {
        let name = self.name.clone();
        let answer = self.send(&SCRIPTS.fair_call(&name, op, ASKER, LATER));
        parse_reply(answer.unwrap()).unwrap()
    }

    fn beat(&mut self, numbers: &[usize]) -> Beaten {
        let name = self.name.clone();
        let beat = Heartbeat { waiting: numbers.iter().map(|number| owner(*number)).collect() };
        let answer = self.send(&SCRIPTS.fair_beat(&name, &beat, ASKER, LATER));
        parse_beaten(answer.unwrap()).unwrap()
    }

    fn send(&mut self, call: &Call<'_>) -> redis::RedisResult<Value> {
        call.by_source().query(&mut self.connection)
    }

    fn run(&mut self, command: &redis::Cmd) {
        command.exec(&mut self.connection).unwrap();
    }

    /// What is left of queue, scores and places.
    fn left(&mut self) -> [i64; 3] {
        let keys = [keys::queue(&self.name), keys::scores(&self.name), keys::places(&self.name)];
        keys.map(|key| redis::cmd("PTTL").arg(key).query(&mut self.connection).unwrap())
    }

    /// All keys with all that is in them.
    fn dump(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut keys: Vec<Vec<u8>> =
            redis::cmd("KEYS").arg("*").query(&mut self.connection).unwrap();
        keys.sort();
        let content = |key: Vec<u8>| {
            let content = redis::cmd("DUMP").arg(&key).query(&mut self.connection).unwrap();
            (key, content)
        };
        keys.into_iter().map(content).collect()
    }
}

fn owner(number: usize) -> OwnerId {
    OwnerId::new(format!("67e55044-10b1-826f-9247-bb680e5fe0c8:{number}"))
}

fn claim(number: usize) -> Claim {
    Claim { owner: owner(number), lease_ms: 30_000, identity: "4711\nhost\nprogram".into() }
}

const ASKER: Asker<'static> =
    Asker { client: "67e55044-10b1-826f-9247-bb680e5fe0c8", waiter_ttl_ms: 30_000 };
/// Expires in the year 2255.
const LATER: ServerTime = ServerTime(9_000_000_000_000_000);
