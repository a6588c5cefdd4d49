//! The servers to test against.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install;

/// A server program that was seen to run.
#[derive(Debug)]
pub(crate) struct FoundServer {
    version: Version,
    binary: PathBuf,
}

/// What a server program says it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// `redis` or `valkey`.
    product: String,
    /// Such as `7.0.15`.
    number: String,
}

impl FoundServer {
    /// Asks the program for its version.
    pub(crate) fn at(binary: PathBuf) -> Result<FoundServer, String> {
        let shown = binary.display();
        let output = Command::new(&binary)
            .arg("--version")
            .output()
            .map_err(|error| format!("cannot run {shown}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = Version::parse(&text)
            .ok_or_else(|| format!("`{shown} --version` printed no version: {text:?}"))?;
        Ok(FoundServer { version, binary })
    }
}

impl Version {
    /// Reads `Redis server v=7.0.15 sha=... bits=64 build=...`.
    fn parse(text: &str) -> Option<Version> {
        let product = text.split_ascii_whitespace().next()?.to_ascii_lowercase();
        let mut words = text.split_ascii_whitespace();
        let number = words.find_map(|word| word.strip_prefix("v="))?.to_owned();
        Some(Version { product, number })
    }

    /// Such as `redis-7.0`.
    fn name(&self) -> String {
        let release: Vec<&str> = self.number.splitn(3, '.').take(2).collect();
        format!("{}-{}", self.product, release.join("."))
    }
}

/// The `redis-server` on the PATH, installed first if need be.
pub(crate) fn on_path_or_installed() -> Result<FoundServer, String> {
    install::programs(&[&install::REDIS_SERVER])?;
    FoundServer::at(find_on_path("redis-server").ok_or("redis-server is not on the PATH")?)
}

/// The program `name`, if it is on the PATH.
pub(crate) fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate: &PathBuf| Path::is_file(candidate))
}

/// Tells the user what will be tested against.
pub(crate) fn print(servers: &[FoundServer]) {
    for FoundServer { version, binary } in servers {
        println!("server {}: version {}, {}", version.name(), version.number, binary.display());
    }
}

/// The value of [`SERVERS_VARIABLE`], as the testkit reads it.
pub(crate) fn as_variable(servers: &[FoundServer]) -> String {
    let entry =
        |server: &FoundServer| format!("{}={}", server.version.name(), server.binary.display());
    servers.iter().map(entry).collect::<Vec<_>>().join(",")
}

/// Tells the tests which servers there are.
pub(crate) const SERVERS_VARIABLE: &str = "FAIRLOCK_SERVERS";

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str, binary: &str) -> FoundServer {
        let version = Version::parse(text).expect("a version");
        FoundServer { version, binary: PathBuf::from(binary) }
    }

    #[test]
    fn servers_are_named_after_product_and_release() {
        let servers = [
            server("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "/a"),
            server("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64", "/b"),
        ];
        assert_eq!(as_variable(&servers), "redis-7.0=/a,valkey-9.1=/b");
    }

    #[test]
    fn other_output_is_no_version() {
        assert_eq!(Version::parse("command not found"), None);
        assert_eq!(Version::parse(""), None);
    }
}
