//! The testkit against real servers: every test runs on each server in `FAIRLOCK_SERVERS`.

#![forbid(unsafe_code)]

mod proxy_connections;
mod proxy_messages;
mod proxy_requests;
mod servers;

use std::time::Duration;

use fairlock_testkit::{Flavour, Proxy, Server, flavours};
use redis::{Client, Cmd, Connection, RedisResult};

/// Longer than anything here takes on the slowest machine.
const BOUND: Duration = Duration::from_secs(10);

/// Adds one to a key; what [`script_call`] calls.
const INCREMENT: &str = include_str!("increment.lua");

fn on_each_flavour(test: impl Fn(&Flavour)) {
    for flavour in flavours() {
        eprintln!("on {}", flavour.name);
        test(&flavour);
    }
}

fn behind_a_proxy(test: impl Fn(&Server, &Proxy)) {
    on_each_flavour(|flavour| {
        let server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        test(&server, &proxy);
    });
}

/// A connection on which nothing waits for longer than [`BOUND`].
fn connect(url: &str) -> Connection {
    let client = Client::open(url).expect("a valid URL");
    let connection = client.get_connection_with_timeout(BOUND).expect("the server is there");
    connection.set_read_timeout(Some(BOUND)).expect("the timeout can be set");
    connection
}

fn call_script(connection: &mut Connection, key: &str) -> RedisResult<i64> {
    script_call(key).query(connection)
}

fn script_call(key: &str) -> Cmd {
    redis::cmd("EVAL").arg(INCREMENT).arg(1).arg(key).clone()
}

/// Subscribes on a RESP3 connection, which goes on to send commands.
fn subscribe(connection: &mut Connection, channel: &str) {
    connection.subscribe_resp3(channel).expect("sent");
    // The answer to this comes after the subscription is in place.
    redis::cmd("PING").exec(connection).expect("the server answers");
}

fn value(server: &Server, key: &str) -> Option<i64> {
    server.query(&["GET", key])
}

/// How many connections the server has, with the one that asks.
fn connected_clients(server: &Server) -> usize {
    server.query::<String>(&["CLIENT", "LIST"]).lines().count()
}
