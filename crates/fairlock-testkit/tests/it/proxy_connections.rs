//! Connections that break, stall and are refused.

use std::time::Duration;

use fairlock_testkit::{Proxy, Server, eventually, monotonic_ns, never_within};
use redis::{Client, Connection, RedisResult};

use crate::{
    BOUND, behind_a_proxy, connect, connected_clients, on_each_flavour, script_call, value,
};

#[test]
fn cut_closes_every_connection() {
    behind_a_proxy(|server, proxy| {
        let mut connections = [connect(&proxy.url()), connect(&proxy.url())];
        for connection in &mut connections {
            assert_eq!(ping(connection), Ok("PONG".to_owned()));
        }
        proxy.cut();
        for connection in &mut connections {
            assert!(ping(connection).is_err());
        }
        assert_eq!(ping(&mut connect(&proxy.url())), Ok("PONG".to_owned()));
        eventually(BOUND, "the server has lost them too", || connected_clients(server) <= 2);
    });
}

#[test]
fn cut_loses_what_was_held() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&proxy.url());
        proxy.hold_requests();
        let script = script_call("x");
        connection.send_packed_command(&script.get_packed_command()).expect("sent");
        eventually(BOUND, "the call is held", || proxy.held() == 1);
        proxy.cut();
        assert_eq!(proxy.held(), 0);
        proxy.release_requests();
        assert_eq!(value(server, "x"), None);
    });
}

#[test]
fn a_client_that_closes_is_closed_at_the_server() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&proxy.url());
        assert_eq!(ping(&mut connection), Ok("PONG".to_owned()));
        assert_eq!(proxy.connections(), 1);
        drop(connection);
        eventually(BOUND, "the proxy has closed", || proxy.connections() == 0);
        eventually(BOUND, "the server has closed", || connected_clients(server) == 1);
    });
}

#[test]
fn refuses_new_connections_while_told_to() {
    behind_a_proxy(|_, proxy| {
        let mut open = connect(&proxy.url());
        assert_eq!(ping(&mut open), Ok("PONG".to_owned()));
        let attempt = || -> RedisResult<String> {
            ping(&mut Client::open(proxy.url())?.get_connection_with_timeout(BOUND)?)
        };
        proxy.refuse(true);
        assert!(attempt().is_err());
        assert_eq!(ping(&mut open), Ok("PONG".to_owned()));
        proxy.refuse(false);
        assert_eq!(attempt(), Ok("PONG".to_owned()));
    });
}

#[test]
fn replies_are_delayed() {
    behind_a_proxy(|_, proxy| {
        let mut connection = connect(&proxy.url());
        let delay = Duration::from_millis(100);
        proxy.delay_replies(delay);
        assert!(duration_of(|| ping(&mut connection)) >= delay);
        proxy.delay_replies(Duration::ZERO);
        assert!(duration_of(|| ping(&mut connection)) < delay);
    });
}

#[test]
fn a_pause_holds_everything_up_until_it_ends() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&proxy.url());
        assert_eq!(ping(&mut connection), Ok("PONG".to_owned()));
        proxy.pause();
        let packed = redis::cmd("INCR").arg("x").get_packed_command();
        connection.send_packed_command(&packed).expect("the connection is open");
        never_within(Duration::from_millis(50), "the command is executed", || {
            value(server, "x").is_some()
        });
        proxy.resume();
        assert_eq!(connection.recv_response(), Ok(redis::Value::Int(1)));
    });
}

#[test]
fn a_dropped_proxy_closes_its_connections_even_while_paused() {
    on_each_flavour(|flavour| {
        let server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        let mut connection = connect(&proxy.url());
        proxy.pause();
        drop(proxy);
        assert!(ping(&mut connection).is_err());
    });
}

#[test]
fn a_server_that_is_down_breaks_the_connection_and_comes_back() {
    on_each_flavour(|flavour| {
        let mut server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        let mut connection = connect(&proxy.url());
        server.kill();
        assert!(ping(&mut connection).is_err());
        let url = proxy.url();
        let attempt = || -> RedisResult<String> {
            ping(&mut Client::open(url.as_str())?.get_connection_with_timeout(BOUND)?)
        };
        assert!(attempt().is_err());
        server.restart();
        assert_eq!(attempt(), Ok("PONG".to_owned()));
    });
}

fn ping(connection: &mut Connection) -> RedisResult<String> {
    redis::cmd("PING").query(connection)
}

fn duration_of(ping: impl FnOnce() -> RedisResult<String>) -> Duration {
    let started_ns = monotonic_ns();
    assert_eq!(ping(), Ok("PONG".to_owned()));
    Duration::from_nanos(monotonic_ns() - started_ns)
}
