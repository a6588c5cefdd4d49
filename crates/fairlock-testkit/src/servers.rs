//! Private servers for tests.

mod builder;
mod clients;
mod flavour;
mod inspect;
mod launch;
mod port;
mod process;

use std::time::Duration;

use redis::{Connection, FromRedisValue, ToRedisArgs};
use rustix::process::Signal;

use crate::scratch::Scratch;
use launch::{Launch, percent_encoded};
use process::Process;

use crate::wait::poll;

pub use builder::ServerBuilder;
pub use clients::ClientKind;
pub use flavour::{Flavour, flavours, main_flavour};

/// A server of its own for one test, on 127.0.0.1, with nothing in it.
///
/// It is killed when this value is dropped, and also when the test process ends in any other way.
#[derive(Debug)]
pub struct Server {
    launch: Launch,
    process: Option<Process>,
    folder: Scratch,
}

impl Server {
    /// Starts a server without any options.
    ///
    /// # Panics
    ///
    /// When it does not come up; the message has the end of its log.
    pub fn start(flavour: &Flavour) -> Server {
        Server::builder(flavour).start()
    }

    /// Options first, then [`ServerBuilder::start`].
    pub fn builder(flavour: &Flavour) -> ServerBuilder {
        ServerBuilder::new(flavour)
    }

    /// The program this server runs.
    pub fn flavour(&self) -> &Flavour {
        &self.launch.flavour
    }

    /// The plain TCP port, which stays the same over [`restart`](Server::restart).
    pub fn port(&self) -> u16 {
        self.launch.port
    }

    /// `redis://127.0.0.1:<port>/`, with the password if there is one.
    pub fn url(&self) -> String {
        self.launch.url()
    }

    /// `rediss://127.0.0.1:<port>/`, with the password if there is one.
    ///
    /// # Panics
    ///
    /// When the server was started without [`ServerBuilder::tls`].
    pub fn tls_url(&self) -> String {
        let port = self.launch.tls_port.expect("this server was started without tls()");
        self.launch.url_of("rediss", port)
    }

    /// `redis+unix:///<path>`, with the password if there is one.
    ///
    /// # Panics
    ///
    /// When the server was started without [`ServerBuilder::unix_socket`].
    pub fn socket_url(&self) -> String {
        let socket = &self.launch.socket;
        let socket = socket.as_ref().expect("this server was started without unix_socket()");
        let password = self.launch.password.as_deref().map(percent_encoded);
        let password = password.map(|password| format!("?pass={password}")).unwrap_or_default();
        format!("redis+unix://{}{password}", socket.display())
    }

    /// The process id of the server.
    ///
    /// # Panics
    ///
    /// When it is not running.
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// A connection to the plain TCP port.
    ///
    /// # Panics
    ///
    /// When the server cannot be reached.
    pub fn connection(&self) -> Connection {
        self.launch.connect().unwrap_or_else(|error| {
            panic!("cannot connect to {} on port {}: {error}", self.flavour().name, self.port())
        })
    }

    /// Sends one command on a connection of its own: `server.query::<i64>(&["INCR", "x"])`.
    ///
    /// # Panics
    ///
    /// When the server cannot be reached, takes longer than ten seconds, replies with an error or
    /// with something that is no `T`.
    pub fn query<T: FromRedisValue>(&self, args: &[impl ToRedisArgs]) -> T {
        let mut command = redis::Cmd::new();
        for arg in args {
            command.arg(arg);
        }
        command.query(&mut self.connection()).unwrap_or_else(|error| {
            let text = String::from_utf8_lossy(&command.get_packed_command()).into_owned();
            panic!("{} failed {text:?}: {error}", self.flavour().name)
        })
    }

    /// Kills the server (SIGKILL) and returns once it is gone.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the server again, killing it first if it runs: same ports and options, no data.
    ///
    /// # Panics
    ///
    /// When it does not come up; the message has the end of its log.
    pub fn restart(&mut self) {
        self.kill();
        // Replication leaves snapshots in the folder, which would bring the old data back.
        self.folder.empty_except(&self.launch.log);
        self.start_again();
    }

    /// Like [`restart`](Server::restart), with what the server has written to its folder: all, if it
    /// was started with `--appendonly yes`.
    ///
    /// # Panics
    ///
    /// When it does not come up; the message has the end of its log.
    pub fn restart_with_data(&mut self) {
        self.kill();
        self.start_again();
    }

    fn start_again(&mut self) {
        // A client's attempt to connect may hold the port for a moment.
        let started = poll(RESTART_BOUND, || match self.launch.start() {
            Err(problem) if problem.port_was_taken => None,
            outcome => Some(outcome),
        });
        let outcome = started.unwrap_or_else(|| panic!("port {} stays taken", self.port()));
        self.process = Some(outcome.unwrap_or_else(|problem| panic!("{}", problem.message)));
    }

    /// Stops the server in the middle of whatever it does (SIGSTOP): connections stay open, and
    /// nothing is answered until [`thaw`](Server::thaw).
    pub fn freeze(&self) {
        self.process().signal(Signal::STOP);
    }

    /// Ends [`freeze`](Server::freeze).
    pub fn thaw(&self) {
        self.process().signal(Signal::CONT);
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the server is running, nobody called kill()")
    }
}

const RESTART_BOUND: Duration = Duration::from_secs(10);
