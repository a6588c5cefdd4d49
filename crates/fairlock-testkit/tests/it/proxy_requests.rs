//! Lost replies and late requests.

use std::time::Duration;

use fairlock_testkit::eventually;

use crate::{BOUND, behind_a_proxy, call_script, connect, connected_clients, script_call, value};

#[test]
fn forwards_in_both_directions() {
    behind_a_proxy(|server, proxy| {
        for protocol in ["resp2", "resp3"] {
            let mut connection = connect(&format!("{}?protocol={protocol}", proxy.url()));
            let large = "x".repeat(300_000);
            redis::cmd("SET").arg("large").arg(&large).exec(&mut connection).expect("set");
            assert_eq!(redis::cmd("GET").arg("large").query(&mut connection), Ok(large));
            let mut pipeline = redis::pipe();
            for _ in 0..1000 {
                pipeline.incr(protocol, 1);
            }
            let replies: Vec<i64> = pipeline.query(&mut connection).expect("a thousand replies");
            assert_eq!(replies.last(), Some(&1000));
            assert_eq!(value(server, protocol), Some(1000));
        }
        assert_eq!(proxy.script_calls_seen(), 0);
    });
}

#[test]
fn a_swallowed_reply_is_lost_after_the_call_was_executed() {
    behind_a_proxy(|server, proxy| {
        let mut first = connect(&proxy.url());
        let mut second = connect(&proxy.url());
        assert_eq!(call_script(&mut first, "x"), Ok(1));
        proxy.swallow_reply(1);
        assert_eq!(call_script(&mut second, "x"), Ok(2));
        assert!(!proxy.swallowed());
        let error = call_script(&mut first, "x").expect_err("the reply is lost");
        assert!(error.is_connection_dropped(), "{error}");
        assert!(proxy.swallowed());
        assert_eq!(value(server, "x"), Some(3));
        assert_eq!(proxy.script_calls_seen(), 3);

        assert_eq!(call_script(&mut second, "x"), Ok(4), "fires once, on one connection");
        assert_eq!(call_script(&mut connect(&proxy.url()), "x"), Ok(5));
    });
}

#[test]
fn only_replies_to_scripts_are_counted() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&format!("{}?protocol=resp3", proxy.url()));
        proxy.swallow_reply(0);
        crate::subscribe(&mut connection, "news");
        server.query::<()>(&["PUBLISH", "news", "hello"]);
        for _ in 0..3 {
            assert_eq!(redis::cmd("PING").query(&mut connection), Ok("PONG".to_owned()));
        }
        connection.unsubscribe_resp3("news").expect("sent");
        assert!(!proxy.swallowed());
        call_script(&mut connection, "x").expect_err("the reply is lost");
        assert!(proxy.swallowed());
    });
}

#[test]
fn replies_before_the_swallowed_one_still_arrive() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&proxy.url());
        proxy.swallow_reply(0);
        let mut packed = redis::cmd("INCR").arg("before").get_packed_command();
        let script = script_call("x");
        packed.extend(script.get_packed_command());
        connection.send_packed_command(&packed).expect("sent");
        assert_eq!(connection.recv_response(), Ok(redis::Value::Int(1)));
        connection.recv_response().expect_err("the reply is lost");
        assert_eq!(value(server, "x"), Some(1));
    });
}

#[test]
fn a_blackholed_connection_stays_open_and_silent() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&proxy.url());
        let short = Duration::from_millis(100);
        connection.set_read_timeout(Some(short)).expect("the timeout can be set");
        proxy.blackhole_reply(0);
        let error = call_script(&mut connection, "x").expect_err("no reply");
        assert!(error.is_timeout(), "{error}");
        assert!(proxy.swallowed());
        assert_eq!(value(server, "x"), Some(1));

        let packed = redis::cmd("SET").arg("later").arg(1).get_packed_command();
        connection.send_packed_command(&packed).expect("the connection is open");
        let error = connection.recv_response().expect_err("no reply");
        assert!(error.is_timeout(), "{error}");
        assert_eq!(value(server, "later"), None);
        assert_eq!(call_script(&mut connect(&proxy.url()), "x"), Ok(2));
    });
}

#[test]
fn a_held_request_is_executed_after_its_client_has_gone() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&proxy.url());
        proxy.hold_requests();
        assert_eq!(redis::cmd("PING").query(&mut connection), Ok("PONG".to_owned()));
        let script = script_call("x");
        let mut packed = script.get_packed_command();
        packed.extend(script.get_packed_command());
        packed.extend(redis::cmd("SET").arg("behind").arg(1).get_packed_command());
        connection.send_packed_command(&packed).expect("sent");
        eventually(BOUND, "both calls are held", || proxy.held() == 2);
        drop(connection);
        eventually(BOUND, "the client has gone", || proxy.connections() == 0);
        assert_eq!(value(server, "x"), None);
        assert_eq!(proxy.held(), 2);

        proxy.release_requests();
        eventually(BOUND, "everything kept is executed", || value(server, "behind") == Some(1));
        assert_eq!(value(server, "x"), Some(2));
        assert_eq!(proxy.held(), 0);
        eventually(BOUND, "the server has closed", || connected_clients(server) == 1);
    });
}

#[test]
fn a_released_request_is_answered_when_its_client_still_waits() {
    behind_a_proxy(|_, proxy| {
        let mut connection = connect(&proxy.url());
        proxy.hold_requests();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| call_script(&mut connection, "x"));
            eventually(BOUND, "the call is held", || proxy.held() == 1);
            let mut newcomer = connect(&proxy.url());
            let newcomers_call = scope.spawn(move || call_script(&mut newcomer, "y"));
            eventually(BOUND, "the newcomer's call is held", || proxy.held() == 2);
            proxy.release_requests();
            assert_eq!(call.join().expect("no panic"), Ok(1));
            assert_eq!(newcomers_call.join().expect("no panic"), Ok(1));
        });
        assert_eq!(call_script(&mut connection, "x"), Ok(2));
    });
}

#[test]
fn a_new_connection_overtakes_what_only_open_ones_hold() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&proxy.url());
        assert_eq!(redis::cmd("PING").query(&mut connection), Ok("PONG".to_owned()));
        proxy.hold_requests_of_open_connections();
        let script = script_call("x");
        connection.send_packed_command(&script.get_packed_command()).expect("sent");
        eventually(BOUND, "the call is held", || proxy.held() == 1);
        assert_eq!(call_script(&mut connect(&proxy.url()), "x"), Ok(1));
        proxy.release_requests();
        assert_eq!(connection.recv_response(), Ok(redis::Value::Int(2)));
        assert_eq!(value(server, "x"), Some(2));
    });
}
