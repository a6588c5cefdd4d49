//! Servers: their life, and looking into them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fairlock_testkit::{ClientKind, Server, eventually};

use crate::{BOUND, call_script, connect, on_each_flavour};

#[test]
fn starts_empty_and_answers() {
    on_each_flavour(|flavour| {
        let server = Server::start(flavour);
        assert_eq!(server.query::<String>(&["PING"]), "PONG");
        assert_eq!(server.keys(), Vec::<String>::new());
        let info: String = server.query(&["INFO", "server"]);
        assert!(info.contains(&format!("process_id:{}\r\n", server.pid())), "{info}");
    });
}

#[test]
fn many_start_at_once() {
    on_each_flavour(|flavour| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    assert_eq!(Server::start(flavour).query::<String>(&["PING"]), "PONG");
                });
            }
        });
    });
}

#[test]
fn restart_keeps_the_port_and_loses_the_data() {
    on_each_flavour(|flavour| {
        let mut server = Server::start(flavour);
        let (port, pid) = (server.port(), server.pid());
        server.query::<()>(&["SET", "x", "1"]);
        server.query::<()>(&["SAVE"]);
        server.restart();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        assert_eq!(server.keys(), Vec::<String>::new());
    });
}

#[test]
fn a_killed_server_refuses_until_it_is_restarted() {
    on_each_flavour(|flavour| {
        let mut server = Server::start(flavour);
        server.kill();
        let client = redis::Client::open(server.url()).expect("a valid URL");
        assert!(client.get_connection().is_err());
        server.restart();
        assert_eq!(server.query::<String>(&["PING"]), "PONG");
    });
}

#[test]
fn a_frozen_server_answers_after_the_thaw() {
    on_each_flavour(|flavour| {
        let server = Server::start(flavour);
        let mut connection = server.connection();
        let short = Duration::from_millis(100);
        server.freeze();
        connection.set_read_timeout(Some(short)).expect("the timeout can be set");
        let error = redis::cmd("PING").query::<String>(&mut connection).expect_err("frozen");
        assert!(error.is_timeout(), "{error}");
        server.thaw();
        assert_eq!(server.query::<String>(&["PING"]), "PONG");
        server.freeze();
        drop(server);
    });
}

#[test]
fn a_password_is_demanded_and_in_the_urls() {
    on_each_flavour(|flavour| {
        let server = Server::builder(flavour).password("p@ss:w/rd").unix_socket().start();
        let bare = format!("redis://127.0.0.1:{}/", server.port());
        let error = redis::cmd("PING").query::<String>(&mut connect(&bare)).expect_err("no auth");
        assert_eq!(error.code(), Some("NOAUTH"));
        assert_eq!(server.query::<String>(&["PING"]), "PONG");
        let mut over_socket = connect(&server.socket_url());
        assert_eq!(redis::cmd("PING").query(&mut over_socket), Ok("PONG".to_owned()));
    });
}

#[test]
fn a_server_with_its_default_user_off_counts_as_up() {
    on_each_flavour(|flavour| {
        let alice = ["--user", "alice", "on", ">secret", "~*", "&*", "+@all"];
        let server =
            Server::builder(flavour).args(&["--user", "default", "off"]).args(&alice).start();
        let url = format!("redis://alice:secret@127.0.0.1:{}/", server.port());
        assert_eq!(redis::cmd("PING").query(&mut connect(&url)), Ok("PONG".to_owned()));
    });
}

#[test]
fn a_replica_copies_its_primary_and_restarts_empty() {
    on_each_flavour(|flavour| {
        let primary = Server::builder(flavour).password("secret").start();
        primary.query::<()>(&["SET", "x", "1"]);
        let mut replica = Server::builder(flavour).replica_of(&primary).start();
        eventually(BOUND, "the replica has the key", || replica.keys() == ["x"]);
        replica.query::<()>(&["REPLICAOF", "NO", "ONE"]);
        drop(primary);
        replica.restart();
        assert_eq!(replica.keys(), Vec::<String>::new());
    });
}

#[test]
#[should_panic(expected = "the end of its log")]
fn an_option_that_does_not_exist_is_reported_with_the_log() {
    let flavour = fairlock_testkit::main_flavour();
    Server::builder(&flavour).arg("--no-such-option", "1").start();
}

#[test]
fn tls_is_served_on_a_port_of_its_own() {
    on_each_flavour(|flavour| {
        if !flavour.has_tls() {
            eprintln!("{} was built without TLS", flavour.name);
            return;
        }
        let folder = std::env::temp_dir().join(format!("fairlock-tls-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder can be created");
        let (certificate, key) = (folder.join("certificate"), folder.join("key"));
        make_certificate(&certificate, &key);
        let server = Server::builder(flavour).tls(&certificate, &key, &certificate).start();
        fs::remove_dir_all(&folder).expect("the folder can be removed");
        assert_eq!(server.query::<String>(&["PING"]), "PONG");
        assert!(server.tls_url().starts_with("rediss://127.0.0.1:"), "{}", server.tls_url());
        assert_ne!(server.tls_url().replace("rediss", "redis"), server.url());
    });
}

#[test]
fn counts_calls_until_the_counters_are_reset() {
    on_each_flavour(|flavour| {
        let server = Server::start(flavour);
        let mut connection = server.connection();
        for expected in 1..=3 {
            assert_eq!(call_script(&mut connection, "x"), Ok(expected));
        }
        let unknown = "0".repeat(40);
        let missing = redis::cmd("EVALSHA").arg(&unknown).arg(0).query::<()>(&mut connection);
        assert_eq!(missing.expect_err("no such script").code(), Some("NOSCRIPT"));
        assert_eq!(server.script_calls(), 4);
        assert_eq!(server.calls("INCR"), 3);
        server.reset_stats();
        assert_eq!(server.script_calls(), 0);
    });
}

#[test]
fn lists_keys_and_those_that_never_expire() {
    on_each_flavour(|flavour| {
        let server = Server::start(flavour);
        for number in 0..2500 {
            server.query::<()>(&["SET", &format!("key-{number:04}"), "1", "EX", "100"]);
        }
        server.query::<()>(&["SET", "forever", "1"]);
        assert_eq!(server.keys().len(), 2501);
        assert_eq!(server.keys_without_ttl(), ["forever"]);
    });
}

#[test]
fn kills_clients_by_whether_they_subscribe() {
    on_each_flavour(|flavour| {
        let server = Server::start(flavour);
        let mut normal = server.connection();
        let mut subscriber = connect(&format!("{}?protocol=resp3", server.url()));
        crate::subscribe(&mut subscriber, "news");

        assert_eq!(server.kill_clients(ClientKind::PubSub), 1);
        assert!(redis::cmd("PING").query::<String>(&mut subscriber).is_err());
        assert_eq!(redis::cmd("PING").query(&mut normal), Ok("PONG".to_owned()));

        assert_eq!(server.kill_clients(ClientKind::Normal), 1);
        assert!(redis::cmd("PING").query::<String>(&mut normal).is_err());

        let _others = [server.connection(), server.connection()];
        assert_eq!(server.kill_all_clients(), 2);
    });
}

fn make_certificate(certificate: &Path, key: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"])
        .arg("-out")
        .arg(certificate)
        .arg("-keyout")
        .arg(key)
        .output()
        .expect("openssl starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
