//! Starting a server and waiting until it answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redis::{Client, Connection, ErrorKind, RedisError, RedisResult};

use super::port::free_port;
use super::process::Process;
use super::{Flavour, ServerBuilder};
use crate::wait::poll;

/// Everything needed to start one server, and to start it again on the same ports.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) flavour: Flavour,
    pub(super) password: Option<String>,
    pub(super) port: u16,
    pub(super) tls_port: Option<u16>,
    pub(super) socket: Option<PathBuf>,
    pub(super) log: PathBuf,
    args: Vec<String>,
}

/// Why a server did not come up.
#[derive(Debug)]
pub(super) struct StartProblem {
    pub(super) port_was_taken: bool,
    pub(super) message: String,
}

impl Launch {
    /// Chooses the ports and puts the arguments together.
    pub(super) fn new(builder: &ServerBuilder, folder: &Path) -> Launch {
        let port = free_port();
        let tls_port = builder.tls.then(free_port);
        let socket = builder.unix_socket.then(|| folder.join("socket"));

        let mut args = Vec::new();
        let mut option = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
        for (name, value) in FIXED_OPTIONS {
            option(name, value);
        }
        option("--dir", utf8(folder));
        option("--port", &port.to_string());
        if let Some(tls_port) = tls_port {
            option("--tls-port", &tls_port.to_string());
        }
        if let Some(socket) = &socket {
            option("--unixsocket", utf8(socket));
        }
        args.extend(builder.options.iter().cloned());

        Launch {
            flavour: builder.flavour.clone(),
            password: builder.password.clone(),
            port,
            tls_port,
            socket,
            log: folder.join("log"),
            args,
        }
    }

    /// Starts the server and returns once it answers.
    pub(super) fn start(&self) -> Result<Process, StartProblem> {
        let mut process = Process::start(&self.flavour.binary, &self.args, &self.log);
        let pid = process.pid();
        let outcome = poll(START_BOUND, || match self.answers_as(pid) {
            true => Some(Ok(())),
            false => process.has_ended().then_some(Err(())),
        });
        match outcome {
            Some(Ok(())) => Ok(process),
            Some(Err(())) => Err(self.problem("ended")),
            None => Err(self.problem(&format!("did not answer for {START_BOUND:?}"))),
        }
    }

    /// The URL of the plain TCP port.
    pub(super) fn url(&self) -> String {
        self.url_of("redis", self.port)
    }

    /// A URL with the password, if any.
    pub(super) fn url_of(&self, scheme: &str, port: u16) -> String {
        let password = self.password.as_deref().map(percent_encoded);
        let password = password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{password}127.0.0.1:{port}/")
    }

    /// A fresh connection on which nothing takes longer than [`ANSWER_BOUND`].
    pub(super) fn connect(&self) -> RedisResult<Connection> {
        let connection = Client::open(self.url())?.get_connection_with_timeout(ANSWER_BOUND)?;
        connection.set_read_timeout(Some(ANSWER_BOUND))?;
        Ok(connection)
    }

    /// Whether the process `pid` answers, and not another server that got the port first.
    fn answers_as(&self, pid: u32) -> bool {
        let info: RedisResult<String> =
            self.connect().and_then(|mut connection| redis::cmd("INFO").query(&mut connection));
        match info {
            Ok(info) => info.lines().any(|line| line == format!("process_id:{pid}")),
            Err(error) => wants_other_credentials(&error),
        }
    }

    fn problem(&self, what: &str) -> StartProblem {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
        StartProblem {
            port_was_taken: tail.contains("Address already in use"),
            message: format!(
                "{} ({}) {what}; the end of its log:\n{tail}",
                self.flavour.name,
                self.flavour.binary.display()
            ),
        }
    }
}

/// A server that is up but was given users of its own by the test.
fn wants_other_credentials(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "NOPERM" | "WRONGPASS"))
}

/// The text as it may stand in a URL.
pub(super) fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("the temporary folder's path is UTF-8")
}

/// What every server gets: reachable from this machine only, nothing kept on disk.
const FIXED_OPTIONS: &[(&str, &str)] = &[
    ("--bind", "127.0.0.1"),
    ("--protected-mode", "yes"),
    ("--daemonize", "no"),
    ("--save", ""),
    ("--appendonly", "no"),
    // A replica is served at once; the default waits five seconds for others to join.
    ("--repl-diskless-sync-delay", "0"),
];

const START_BOUND: Duration = Duration::from_secs(10);
const ANSWER_BOUND: Duration = Duration::from_secs(10);
const LOG_TAIL_LINES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_encoded_for_urls() {
        assert_eq!(percent_encoded("plain-1.0_x"), "plain-1.0_x");
        assert_eq!(percent_encoded("p@ss:w/rd ü"), "p%40ss%3Aw%2Frd%20%C3%BC");
    }
}
