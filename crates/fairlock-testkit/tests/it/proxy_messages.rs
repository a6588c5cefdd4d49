//! Lost messages.

use std::sync::mpsc::{Receiver, channel};

use fairlock_testkit::{Proxy, Server, eventually};
use redis::{PushInfo, PushKind};

use crate::{BOUND, behind_a_proxy, call_script, connect, subscribe};

#[test]
fn messages_are_dropped_while_told_to_in_resp2() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&proxy.url());
        {
            let mut subscriber = connection.as_pubsub();
            subscriber.set_read_timeout(Some(BOUND)).expect("the timeout can be set");
            subscriber.subscribe("news").expect("subscribed");
            check_that_the_second_of_three_is_lost(server, proxy, || {
                let message = subscriber.get_message().expect("a message");
                message.get_payload().expect("a text")
            });
        }
        proxy.swallow_reply(0);
        call_script(&mut connection, "x").expect_err("pairing still fits after the messages");
    });
}

#[test]
fn messages_are_dropped_while_told_to_in_resp3() {
    behind_a_proxy(|server, proxy| {
        let mut connection = connect(&format!("{}?protocol=resp3", proxy.url()));
        let (sender, pushes) = channel();
        connection.set_push_sender(sender);
        subscribe(&mut connection, "news");
        check_that_the_second_of_three_is_lost(server, proxy, || {
            // The connection takes in pushes only while it waits for a reply.
            call_script(&mut connection, "x").expect("one connection does both");
            first_message(&pushes)
        });
        assert_eq!(proxy.script_calls_seen(), 2);
    });
}

fn check_that_the_second_of_three_is_lost(
    server: &Server,
    proxy: &Proxy,
    mut receive: impl FnMut() -> String,
) {
    let publish = |text| assert_eq!(server.query::<i64>(&["PUBLISH", "news", text]), 1);
    publish("one");
    assert_eq!(receive(), "one");
    proxy.drop_pushes(true);
    publish("two");
    eventually(BOUND, "the message is dropped", || proxy.pushes_dropped() == 1);
    proxy.drop_pushes(false);
    publish("three");
    assert_eq!(receive(), "three");
}

fn first_message(pushes: &Receiver<PushInfo>) -> String {
    let push = pushes
        .try_iter()
        .find(|push| push.kind == PushKind::Message)
        .expect("a message came before the reply");
    redis::from_redis_value(push.data[1].clone()).expect("a text")
}
