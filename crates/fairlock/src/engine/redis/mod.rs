//! The Redis engine: the model as Lua scripts, on two connections.
//!
//! The caller's lane carries what callers wait for. The driver's lane carries the rest, and the
//! wake-ups: it speaks RESP3, where messages and answers share a connection. How requests are
//! repeated and for how long is decided by the client, not here.

pub(crate) mod keys;
mod link;
#[cfg(test)]
mod lua_vs_model;
pub(crate) mod scripts;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use redis::{ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion, ServerErrorKind};
use tokio::runtime::Handle;

use self::link::{Ear, Heard, Link};
use self::scripts::{Asker, Call, SCRIPTS};
use super::{Cursor, Found, Generation, Lane, Page, Renewed, Rules, Wake, WakeSender};
use crate::error::{ConnectError, StoreError, StoreErrorKind};
use crate::ids::{Name, OwnerId};
use crate::protocol::model::fair::{Beaten, Heartbeat};
use crate::protocol::op::{Op, Renew, Reply};
use crate::protocol::pattern::Pattern;
use crate::runtime;
use crate::testing::Busy;
use crate::time::{Clock, ServerTime};

/// One client's connections to a Redis or Valkey server.
#[derive(Debug)]
pub(crate) struct Engine {
    address: String,
    client: String,
    caller: Link,
    driver: Link,
    /// Where this client hears of grants.
    grants: String,
    channels: Arc<Mutex<HashMap<Vec<u8>, Name>>>,
}

impl Engine {
    /// Reads the address; connects with the first request. `home` serves the caller's lane.
    pub(crate) fn new(
        url: &str,
        client: &str,
        home: Handle,
        wake: WakeSender,
    ) -> Result<Self, ConnectError> {
        let unusable = |error: redis::RedisError| ConnectError::Address {
            url: crate::client::without_password(url),
            reason: error.to_string(),
        };
        let info = url.into_connection_info().map_err(unusable)?;
        let address = spell(info.addr());
        #[cfg(feature = "tls")]
        install_crypto();
        let resp3 = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let caller = redis::Client::open(info.clone()).map_err(unusable)?;
        let driver = redis::Client::open(info.set_redis_settings(resp3)).map_err(unusable)?;
        let channels = Arc::<Mutex<HashMap<Vec<u8>, Name>>>::default();
        let known = channels.clone();
        let grants = keys::client_channel(client);
        let own = grants.clone().into_bytes();
        let ear = Ear(Arc::new(move |heard| {
            let wake_up = match heard {
                Heard::Ended(generation) => Some(Wake::Deaf(generation)),
                Heard::Message { channel, content } if channel == own => {
                    let grant = std::str::from_utf8(&content).ok().and_then(scripts::parse_grant);
                    grant.map(|grant| Wake::Grant(grant, Busy::new(&Clock::Os)))
                }
                Heard::Message { channel, .. } => {
                    let channels = known.lock().unwrap_or_else(PoisonError::into_inner);
                    let name = channels.get(&channel).cloned();
                    name.map(|name| Wake::Message(name, Busy::new(&Clock::Os)))
                }
            };
            // The client may be gone already; then nobody needs to be woken.
            wake_up.map(|wake_up| wake.send(wake_up));
        }));
        Ok(Self {
            address,
            client: client.to_owned(),
            caller: Link::new(caller, home, None),
            driver: Link::new(driver, runtime::handle(), Some(ear)),
            grants,
            channels,
        })
    }

    pub(crate) async fn call(
        &self,
        lane: Lane,
        rules: Rules,
        name: &Name,
        op: &Op,
        expires: ServerTime,
    ) -> Result<Reply, StoreError> {
        let call = match rules {
            Rules::Plain => SCRIPTS.call(name, op, expires),
            Rules::Fair { waiter_ttl_ms } => {
                SCRIPTS.fair_call(name, op, self.asker(waiter_ttl_ms), expires)
            }
        };
        scripts::parse_reply(self.run(lane, call).await?)
    }

    pub(crate) async fn beat(
        &self,
        waiter_ttl_ms: u64,
        name: &Name,
        beat: &Heartbeat,
        expires: ServerTime,
    ) -> Result<Beaten, StoreError> {
        let call = SCRIPTS.fair_beat(name, beat, self.asker(waiter_ttl_ms), expires);
        scripts::parse_beaten(self.run(Lane::Driver, call).await?)
    }

    fn asker(&self, waiter_ttl_ms: u64) -> Asker<'_> {
        Asker { client: &self.client, waiter_ttl_ms }
    }

    pub(crate) async fn hear_grants(&self) -> Result<Generation, StoreError> {
        self.listen(self.grants.as_bytes()).await
    }

    pub(crate) async fn hello(&self, lane: Lane) -> Result<ServerTime, StoreError> {
        let (mut connection, generation) =
            self.link(lane).connection().await.map_err(|error| self.translate(error))?;
        let time = redis::cmd("TIME").query_async::<(u64, u64)>(&mut connection).await;
        let (seconds, micros) = time.map_err(|error| self.failed(lane, generation, error))?;
        Ok(ServerTime(seconds * 1_000_000 + micros))
    }

    pub(crate) async fn renew(
        &self,
        items: &[Renew],
        expires: ServerTime,
    ) -> Result<Renewed, StoreError> {
        let value = self.run(Lane::Driver, SCRIPTS.renew(items, expires)).await?;
        scripts::parse_renewed(value)
    }

    /// Small hashes only: a lock has one field, or a few, and what has many is somebody's data.
    pub(crate) async fn names(
        &self,
        lane: Lane,
        pattern: &Pattern,
        cursor: Cursor,
    ) -> Result<Page, StoreError> {
        let (mut connection, generation) =
            self.link(lane).connection().await.map_err(|error| self.translate(error))?;
        let failed = |error| self.failed(lane, generation, error);
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor.0).arg("MATCH").arg(keys::glob(pattern));
        scan.arg("COUNT").arg(KEYS_PER_PAGE).arg("TYPE").arg("hash");
        let (next, keys): (u64, Vec<Vec<u8>>) =
            scan.query_async(&mut connection).await.map_err(failed)?;
        let names: Vec<Name> = keys.iter().filter_map(|key| Name::new(key).ok()).collect();
        let mut lengths = redis::pipe();
        for name in &names {
            lengths.cmd("HLEN").arg(name.as_bytes()).cmd("LLEN").arg(keys::queue(name));
        }
        // A key that is something else, or that is not for us to read, has an error of its own.
        let lengths: Vec<redis::Value> = match names.is_empty() {
            true => Vec::new(),
            false => lengths.ignore_errors().query_async(&mut connection).await.map_err(failed)?,
        };
        let length = |value: &redis::Value| match value {
            redis::Value::Int(length) => usize::try_from(*length).ok(),
            _ => None,
        };
        let found = names.into_iter().zip(lengths.chunks_exact(2)).filter_map(|(name, lengths)| {
            let is_small = length(&lengths[0])? <= MOST_FIELDS;
            is_small.then(|| Found { name, queued: length(&lengths[1]) })
        });
        Ok(Page { found: found.collect(), next: (next != 0).then_some(Cursor(next)) })
    }

    pub(crate) async fn subscribe(&self, name: &Name) -> Result<Generation, StoreError> {
        let channel = keys::channel(name);
        self.channels().insert(channel.clone(), name.clone());
        self.listen(&channel).await
    }

    /// Redisson tells the head of a fair lock's queue on a channel of its own.
    pub(crate) async fn hear_java(
        &self,
        name: &Name,
        owner: &OwnerId,
    ) -> Result<Generation, StoreError> {
        let channel = keys::waiter_channel(name, owner);
        self.channels().insert(channel.clone(), name.clone());
        self.listen(&channel).await
    }

    pub(crate) async fn stop_hearing_java(
        &self,
        name: &Name,
        owner: &OwnerId,
    ) -> Result<(), StoreError> {
        self.stop_listening(keys::waiter_channel(name, owner)).await
    }

    async fn listen(&self, channel: &[u8]) -> Result<Generation, StoreError> {
        let (mut connection, generation) =
            self.driver.connection().await.map_err(|error| self.translate(error))?;
        let subscribed = connection.subscribe(channel).await;
        subscribed.map_err(|error| self.failed(Lane::Driver, generation, error))?;
        Ok(generation)
    }

    pub(crate) async fn unsubscribe(&self, name: &Name) -> Result<(), StoreError> {
        self.stop_listening(keys::channel(name)).await
    }

    async fn stop_listening(&self, channel: Vec<u8>) -> Result<(), StoreError> {
        self.channels().remove(&channel);
        let (mut connection, generation) =
            self.driver.connection().await.map_err(|error| self.translate(error))?;
        let unsubscribed = connection.unsubscribe(channel).await;
        unsubscribed.map_err(|error| self.failed(Lane::Driver, generation, error))
    }

    pub(crate) fn suspect(&self, lane: Lane) {
        self.link(lane).discard_current();
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    async fn run(&self, lane: Lane, call: Call<'_>) -> Result<redis::Value, StoreError> {
        let link = self.link(lane);
        let (mut connection, generation) =
            link.connection().await.map_err(|error| self.translate(error))?;
        let mut answer = connection
            .send_packed_command(&call.by_digest())
            .await
            .and_then(redis::Value::extract_error);
        if answer.as_ref().is_err_and(|error| error.kind() == NO_SCRIPT) {
            answer = connection.send_packed_command(&call.by_source()).await;
        }
        answer
            .and_then(redis::Value::extract_error)
            .map_err(|error| self.failed(lane, generation, error))
    }

    /// Gives up a connection that broke.
    fn failed(&self, lane: Lane, generation: Generation, error: redis::RedisError) -> StoreError {
        if error.is_io_error() || error.is_unrecoverable_error() {
            self.link(lane).discard(generation);
        }
        self.translate(error)
    }

    fn link(&self, lane: Lane) -> &Link {
        match lane {
            Lane::Caller => &self.caller,
            Lane::Driver => &self.driver,
        }
    }

    fn channels(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Name>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn translate(&self, error: redis::RedisError) -> StoreError {
        // Older servers wrap the error of a command in the error of its script.
        let text = error.to_string();
        let says = |word: &str| text.contains(word);
        let kind = match error.kind() {
            ErrorKind::AuthenticationFailed => StoreErrorKind::Login,
            _ if says("NOAUTH") || says("WRONGPASS") => StoreErrorKind::Login,
            ErrorKind::Server(ServerErrorKind::NoPerm) => StoreErrorKind::Denied,
            _ if says("NOPERM") || says("can't run this command or subcommand") => {
                StoreErrorKind::Denied
            }
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown,
            ) => StoreErrorKind::NotReady,
            _ if error.code() == Some("BUSY") => StoreErrorKind::NotReady,
            _ if says("WRONGTYPE") => StoreErrorKind::WrongType,
            _ if says("OOM") => StoreErrorKind::OutOfMemory,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => StoreErrorKind::ReadOnly,
            _ if says("READONLY") => StoreErrorKind::ReadOnly,
            ErrorKind::Io => StoreErrorKind::Unreachable { address: self.address.clone() },
            _ if error.is_unrecoverable_error() || error.is_connection_dropped() => {
                StoreErrorKind::Unreachable { address: self.address.clone() }
            }
            _ => StoreErrorKind::Unexpected,
        };
        StoreError::with_source(kind, error)
    }
}

fn spell(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Tcp(host, port) => format!("redis://{host}:{port}"),
        ConnectionAddr::TcpTls { host, port, .. } => format!("rediss://{host}:{port}"),
        ConnectionAddr::Unix(path) => format!("redis+unix://{}", path.display()),
        other => other.to_string(),
    }
}

/// rustls panics without one; an application may have installed its own already.
#[cfg(feature = "tls")]
fn install_crypto() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if somebody else was faster, which is as good.
        rustls::crypto::ring::default_provider().install_default().ok();
    }
}

/// How many keys the server looks at in one go: less than a millisecond of its time.
const KEYS_PER_PAGE: u64 = 500;
/// More than any kind of lock keeps in its hash.
const MOST_FIELDS: usize = 16;
const NO_SCRIPT: ErrorKind = ErrorKind::Server(ServerErrorKind::NoScript);
