//! How a server is to be started.

use std::path::Path;

use super::launch::Launch;
use super::{Flavour, Server};
use crate::scratch::Scratch;

/// Options of a [`Server`] that is about to start. Made by [`Server::builder`].
#[derive(Debug, Clone)]
pub struct ServerBuilder {
    pub(super) flavour: Flavour,
    pub(super) password: Option<String>,
    pub(super) options: Vec<String>,
    pub(super) unix_socket: bool,
    pub(super) tls: bool,
}

impl ServerBuilder {
    pub(super) fn new(flavour: &Flavour) -> ServerBuilder {
        ServerBuilder {
            flavour: flavour.clone(),
            password: None,
            options: Vec::new(),
            unix_socket: false,
            tls: false,
        }
    }

    /// Demands this password from every client.
    pub fn password(mut self, password: &str) -> ServerBuilder {
        self.password = Some(password.to_owned());
        self.arg("--requirepass", password)
    }

    /// Adds an option and its value, such as `--maxmemory` and `100mb`.
    pub fn arg(self, name: &str, value: &str) -> ServerBuilder {
        self.args(&[name, value])
    }

    /// Adds arguments, for options with several values, such as `--user alice on nopass`.
    pub fn args(mut self, args: &[&str]) -> ServerBuilder {
        self.options.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Copies the data of `primary`, with its password.
    pub fn replica_of(mut self, primary: &Server) -> ServerBuilder {
        if let Some(password) = &primary.launch.password {
            self = self.arg("--masterauth", password);
        }
        self.args(&["--replicaof", "127.0.0.1", &primary.port().to_string()])
    }

    /// Listens on a Unix socket too: see [`Server::socket_url`].
    pub fn unix_socket(mut self) -> ServerBuilder {
        self.unix_socket = true;
        self
    }

    /// Listens with TLS too, on a port of its own: see [`Server::tls_url`]. Clients need no
    /// certificate.
    pub fn tls(mut self, certificate: &Path, key: &Path, authority: &Path) -> ServerBuilder {
        self.tls = true;
        let files = [
            ("--tls-cert-file", certificate),
            ("--tls-key-file", key),
            ("--tls-ca-cert-file", authority),
        ];
        for (name, file) in files {
            self = self.arg(name, file.to_str().expect("paths of TLS files are UTF-8"));
        }
        self.arg("--tls-auth-clients", "no")
    }

    /// Starts the server and returns once it answers.
    ///
    /// # Panics
    ///
    /// When it does not come up; the message has the end of its log.
    pub fn start(self) -> Server {
        let folder = Scratch::new();
        let mut attempt = 1;
        loop {
            let launch = Launch::new(&self, folder.path());
            match launch.start() {
                Ok(process) => {
                    return Server { launch, process: Some(process), folder };
                }
                // Somebody else may have taken the port since it was found free.
                Err(problem) if problem.port_was_taken && attempt < START_ATTEMPTS => attempt += 1,
                Err(problem) => panic!("{}", problem.message),
            }
        }
    }
}

const START_ATTEMPTS: u32 = 5;
