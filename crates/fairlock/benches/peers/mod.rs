//! What fairlock is compared with.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, Value};
use tokio::sync::Semaphore;

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
        let shared = [
            include_str!("../../src/engine/redis/lua/_clock.lua"),
            include_str!("../../src/engine/redis/lua/_reentrant.lua"),
        ]
        .join("\n");
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

async fn load(connection: &mut MultiplexedConnection, source: &str) -> String {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(source);
    load.query_async(connection).await.expect("a valid script")
}

async fn expect_state(connection: &mut MultiplexedConnection, command: Cmd, state: i64) {
    let answer: Vec<Value> = command.query_async(connection).await.expect("an answer");
    assert_eq!(answer[0], Value::Int(state));
}
