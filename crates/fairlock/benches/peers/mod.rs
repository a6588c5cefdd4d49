//! What fairlock is compared with.

#![allow(dead_code, reason = "each benchmark has its own peers")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, Value};
use tokio::sync::{Notify, Semaphore};

/// fairlock's two scripts, called through the bare client crate.
#[derive(Clone)]
pub(crate) struct BareScripts {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

impl BareScripts {
    pub(crate) async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a valid address");
        let mut connection =
            client.get_multiplexed_async_connection().await.expect("the server runs");
        let shared = include_str!("../../src/engine/redis/lua/_reentrant.lua");
        let acquire = include_str!("../../src/engine/redis/lua/acquire.lua");
        let release = include_str!("../../src/engine/redis/lua/release.lua");
        let acquire = load(&mut connection, &format!("{shared}\n{acquire}")).await;
        let release = load(&mut connection, &format!("{shared}\n{release}")).await;
        Self { connection, acquire, release }
    }

    pub(crate) async fn pairs(mut self, pairs: u32) {
        const NAME: &str = "bench:bare";
        const RECORD: &str = "fairlock:{bench:bare}:grant";
        const OWNER: &str = "67e55044-10b1-826f-9247-bb680e5fe0c8:7";
        for _ in 0..pairs {
            let mut acquire = redis::cmd("EVALSHA");
            acquire.arg(&self.acquire).arg(2).arg(NAME).arg(RECORD).arg(u64::MAX / 4);
            acquire.arg(OWNER).arg(30_000).arg("4711\nhost\nprogram");
            expect_state(&mut self.connection, acquire, 1).await;
            let mut release = redis::cmd("EVALSHA");
            release.arg(&self.release).arg(2).arg(NAME).arg(RECORD).arg(u64::MAX / 4);
            release.arg(OWNER).arg(0).arg("redisson_lock__channel:{bench:bare}");
            release.arg("").arg(0).arg("");
            expect_state(&mut self.connection, release, 3).await;
        }
    }
}

/// The steps that Redisson's plain lock takes, for many waiters of one process: try; if it is
/// taken, wait for a message, of which each wakes one waiter, and try again; release and publish.
pub(crate) struct RedissonSteps {
    connection: MultiplexedConnection,
    _listener: MultiplexedConnection,
    messages: Arc<Semaphore>,
    name: String,
    channel: String,
    acquire: String,
    release: String,
}

impl RedissonSteps {
    pub(crate) async fn connect(url: &str, name: &str) -> Self {
        let client = redis::Client::open(url).expect("a valid address");
        let mut connection =
            client.get_multiplexed_async_connection().await.expect("the server runs");
        let acquire = load(&mut connection, include_str!("acquire.lua")).await;
        let release = load(&mut connection, include_str!("release.lua")).await;
        let messages = Arc::new(Semaphore::new(0));
        let wake = messages.clone();
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Message {
                wake.add_permits(1);
            }
            Ok::<(), redis::aio::SendError>(())
        });
        let info = client.get_connection_info().clone();
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = redis::Client::open(info.set_redis_settings(resp3)).expect("valid");
        let mut listener = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .expect("the server runs");
        let channel = format!("redisson_lock__channel:{{{name}}}");
        listener.subscribe(&channel).await.expect("a subscription");
        let name = name.to_owned();
        Self { connection, _listener: listener, messages, name, channel, acquire, release }
    }

    pub(crate) async fn lock_and_unlock(&self) {
        let owner = format!("67e55044-10b1-426f-9247-bb680e5fe0c8:{:?}", tokio::task::id());
        let mut connection = self.connection.clone();
        loop {
            let mut acquire = redis::cmd("EVALSHA");
            acquire.arg(&self.acquire).arg(1).arg(&self.name).arg(30_000).arg(&owner);
            match connection.send_packed_command(&acquire).await.expect("an answer") {
                Value::Nil => break,
                Value::Int(left_ms) => {
                    let left = Duration::from_millis(left_ms.unsigned_abs());
                    let message = tokio::time::timeout(left, self.messages.acquire()).await;
                    if let Ok(permit) = message {
                        permit.expect("the semaphore stays open").forget();
                    }
                }
                other => panic!("unexpected answer {other:?}"),
            }
        }
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.release).arg(2).arg(&self.name).arg(&self.channel).arg(&owner);
        let released = connection.send_packed_command(&release).await.expect("an answer");
        assert_eq!(released, Value::Int(1));
    }
}

/// The steps that Redisson's fair lock takes: try, which queues; wait for a message of one's own, or
/// until the time is over that the attempt named; try again. Kinder to itself than Redisson: it
/// subscribes once for each waiter, not once for each wait.
pub(crate) struct RedissonFairSteps {
    connection: MultiplexedConnection,
    listener: MultiplexedConnection,
    waiting: Arc<Mutex<HashMap<Vec<u8>, Arc<Notify>>>>,
    name: String,
    keys: [String; 3],
    try_it: String,
    unlock: String,
}

impl RedissonFairSteps {
    pub(crate) async fn connect(url: &str, name: &str) -> Self {
        let client = redis::Client::open(url).expect("a valid address");
        let mut connection =
            client.get_multiplexed_async_connection().await.expect("the server runs");
        let try_it = load(&mut connection, include_str!("fair_try.lua")).await;
        let unlock = load(&mut connection, include_str!("fair_unlock.lua")).await;
        let waiting: Arc<Mutex<HashMap<Vec<u8>, Arc<Notify>>>> = Arc::default();
        let told = waiting.clone();
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if let (PushKind::Message, Some(Value::BulkString(channel))) =
                (&push.kind, push.data.first())
                && let Some(waiter) = told.lock().expect("no panics").get(channel)
            {
                waiter.notify_one();
            }
            Ok::<(), redis::aio::SendError>(())
        });
        let info = client.get_connection_info().clone();
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = redis::Client::open(info.set_redis_settings(resp3)).expect("valid");
        let listener = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .expect("the server runs");
        let keys = [
            name.to_owned(),
            format!("redisson_lock_queue:{{{name}}}"),
            format!("redisson_lock_timeout:{{{name}}}"),
        ];
        Self { connection, listener, waiting, name: name.to_owned(), keys, try_it, unlock }
    }

    pub(crate) async fn lock_and_unlock(&self) {
        let owner = format!("67e55044-10b1-426f-9247-bb680e5fe0c8:{:?}", tokio::task::id());
        let channel = format!("redisson_lock__channel:{{{}}}", self.name);
        let mut connection = self.connection.clone();
        let message = self.messages_for(&format!("{channel}:{owner}")).await;
        loop {
            let mut attempt = redis::cmd("EVALSHA");
            attempt.arg(&self.try_it).arg(3).arg(&self.keys).arg(30_000).arg(&owner);
            attempt.arg(300_000).arg(now_ms());
            match connection.send_packed_command(&attempt).await.expect("an answer") {
                Value::Nil => break,
                Value::Int(left_ms) => {
                    let left = Duration::from_millis(left_ms.unsigned_abs());
                    tokio::time::timeout(left, message.notified()).await.ok();
                }
                other => panic!("unexpected answer {other:?}"),
            }
        }
        let mut unlock = redis::cmd("EVALSHA");
        unlock.arg(&self.unlock).arg(3).arg(&self.keys).arg(&owner).arg(now_ms()).arg(&channel);
        let unlocked = connection.send_packed_command(&unlock).await.expect("an answer");
        assert_eq!(unlocked, Value::Int(1));
    }

    async fn messages_for(&self, channel: &str) -> Arc<Notify> {
        let key = channel.as_bytes().to_vec();
        let (notify, is_new) = {
            let mut waiting = self.waiting.lock().expect("no panics");
            let is_new = !waiting.contains_key(&key);
            (waiting.entry(key).or_default().clone(), is_new)
        };
        if is_new {
            self.listener.clone().subscribe(channel).await.expect("a subscription");
        }
        notify
    }
}

fn now_ms() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64
}

async fn load(connection: &mut MultiplexedConnection, source: &str) -> String {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(source);
    load.query_async(connection).await.expect("a valid script")
}

async fn expect_state(connection: &mut MultiplexedConnection, command: Cmd, state: i64) {
    let answer: Vec<Value> = command.query_async(connection).await.expect("an answer");
    assert_eq!(answer[0], Value::Int(state));
}
