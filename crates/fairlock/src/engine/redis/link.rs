//! One connection that is made anew when it breaks, on a runtime of our choice.
//!
//! The crate's own `ConnectionManager` does much of this, but it makes connections on whatever
//! runtime happens to ask, and gives no hand in when. Here the *home* of a link decides which
//! runtime serves its socket: see [`crate::engine::Lane`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::runtime::Handle;

use super::scripts::SCRIPTS;
use crate::engine::Generation;
use crate::runtime;

/// A connection, or the way to get one.
#[derive(Debug)]
pub(super) struct Link {
    client: redis::Client,
    ear: Option<Ear>,
    state: Mutex<State>,
    /// Only one connection is being made at a time.
    connecting: tokio::sync::Mutex<()>,
}

/// Hears the channel and content of every message, and the end of each connection.
#[derive(Clone)]
pub(super) struct Ear(pub(super) Arc<dyn Fn(Heard) + Send + Sync>);

/// What a wake-up connection brings.
#[derive(Debug)]
pub(super) enum Heard {
    Message { channel: Vec<u8>, content: Vec<u8> },
    Ended(Generation),
}

#[derive(Debug)]
struct State {
    home: Handle,
    connection: Option<MultiplexedConnection>,
    generation: Generation,
    attempts: u64,
}

impl Link {
    pub(super) fn new(client: redis::Client, home: Handle, ear: Option<Ear>) -> Self {
        let state = State { home, connection: None, generation: Generation(0), attempts: 0 };
        let connecting = tokio::sync::Mutex::default();
        Self { client, ear, state: Mutex::new(state), connecting }
    }

    /// The connection there is, or a new one. Tries to connect once, for a bounded time.
    pub(super) async fn connection(
        &self,
    ) -> Result<(MultiplexedConnection, Generation), redis::RedisError> {
        if let Some(open) = self.state().open() {
            return Ok(open);
        }
        let _turn = self.connecting.lock().await;
        if let Some(open) = self.state().open() {
            return Ok(open);
        }
        let (home, generation) = {
            let mut state = self.state();
            // Also one that never comes to be has a number of its own: its end may be heard.
            state.attempts += 1;
            (state.home.clone(), Generation(state.attempts))
        };
        let connection = match self.connect_on(&home, generation).await {
            Ok(result) => result?,
            // The home is gone, or too busy to serve us: move to the thread that always lives.
            Err(Homeless) => {
                let home = runtime::handle();
                self.state().home = home.clone();
                match self.connect_on(&home, generation).await {
                    Ok(result) => result?,
                    Err(Homeless) => return Err(timed_out()),
                }
            }
        };
        let mut state = self.state();
        state.connection = Some(connection.clone());
        state.generation = generation;
        Ok((connection, generation))
    }

    /// Gives up the connection of this generation: it is broken, or silent for too long.
    pub(super) fn discard(&self, generation: Generation) {
        let mut state = self.state();
        if state.generation != generation || state.connection.take().is_none() {
            return;
        }
        drop(state);
        if let Some(Ear(hear)) = &self.ear {
            hear(Heard::Ended(generation));
        }
    }

    /// Gives up whatever connection there is.
    pub(super) fn discard_current(&self) {
        let generation = self.state().generation;
        self.discard(generation);
    }

    async fn connect_on(
        &self,
        home: &Handle,
        generation: Generation,
    ) -> Result<Result<MultiplexedConnection, redis::RedisError>, Homeless> {
        let connecting = home.spawn(connect(self.client.clone(), self.ear.clone(), generation));
        match tokio::time::timeout(CONNECT * 2, connecting).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) | Err(_) => Err(Homeless),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&self) -> Option<(MultiplexedConnection, Generation)> {
        self.connection.clone().map(|connection| (connection, self.generation))
    }
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ear")
    }
}

/// The runtime that was to serve the connection did not.
struct Homeless;

async fn connect(
    client: redis::Client,
    ear: Option<Ear>,
    generation: Generation,
) -> Result<MultiplexedConnection, redis::RedisError> {
    let mut config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT))
        // Every request has its own deadline.
        .set_response_timeout(None);
    if let Some(Ear(hear)) = ear {
        config = config.set_push_sender(move |push: PushInfo| {
            if let Some(heard) = understand(push, generation) {
                hear(heard);
            }
            Ok::<(), redis::aio::SendError>(())
        });
    }
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    // A server that forbids loading gets the scripts with the first call of each.
    let mut load = redis::pipe();
    for source in SCRIPTS.sources() {
        load.cmd("SCRIPT").arg("LOAD").arg(source).ignore();
    }
    let loaded = load.query_async::<()>(&mut connection);
    match tokio::time::timeout(CONNECT, loaded).await {
        Ok(Err(error)) if error.is_io_error() => Err(error),
        Ok(_) => Ok(connection),
        Err(_) => Err(timed_out()),
    }
}

fn understand(push: PushInfo, generation: Generation) -> Option<Heard> {
    match push.kind {
        PushKind::Message => match <[Value; 2]>::try_from(push.data) {
            Ok([Value::BulkString(channel), Value::BulkString(content)]) => {
                Some(Heard::Message { channel, content })
            }
            _ => None,
        },
        PushKind::Disconnection => Some(Heard::Ended(generation)),
        _ => None,
    }
}

fn timed_out() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

/// A server that does not answer a connection for this long is not there, for now.
const CONNECT: Duration = Duration::from_secs(2);
