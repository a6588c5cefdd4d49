//! Which server programs there are to test against.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// One server program, such as Redis 7.0 or Valkey 9.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flavour {
    /// What to call it in messages, such as `redis-7.0`.
    pub name: String,
    /// The program.
    pub binary: PathBuf,
}

impl Flavour {
    /// Whether the program was built with TLS, which [`ServerBuilder::tls`] needs.
    ///
    /// [`ServerBuilder::tls`]: crate::ServerBuilder::tls
    pub fn has_tls(&self) -> bool {
        // Never runs: it ends either without TLS or without a certificate, and says which.
        let output = Command::new(&self.binary)
            .args(["--port", "0", "--tls-port", "1", "--save", ""])
            .output()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.binary.display()));
        String::from_utf8_lossy(&output.stdout).contains("No tls-cert-file configured")
    }
}

/// Every server to test against: those in `FAIRLOCK_SERVERS` (`name=path,name=path`), else the
/// `redis-server` on the PATH.
///
/// # Panics
///
/// When there is none.
pub fn flavours() -> Vec<Flavour> {
    match env::var(SERVERS_VARIABLE) {
        Ok(list) => parse(&list),
        Err(_) => vec![Flavour { name: "redis".to_owned(), binary: redis_server_on_path() }],
    }
}

/// The first of [`flavours`]: the one to use where testing against one server is enough.
pub fn main_flavour() -> Flavour {
    flavours().swap_remove(0)
}

fn parse(list: &str) -> Vec<Flavour> {
    let parse_one = |entry: &str| {
        let (name, path) = entry.split_once('=').unwrap_or_else(|| {
            panic!("{SERVERS_VARIABLE} must be name=path,name=path; {entry:?} has no `=`")
        });
        Flavour { name: name.trim().to_owned(), binary: PathBuf::from(path.trim()) }
    };
    let entries = list.split(',').filter(|entry| !entry.trim().is_empty());
    let flavours: Vec<Flavour> = entries.map(parse_one).collect();
    assert!(!flavours.is_empty(), "{SERVERS_VARIABLE} is set but names no server");
    flavours
}

fn redis_server_on_path() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join("redis-server"))
        .find(|candidate| candidate.is_file())
        .expect(
            "redis-server is not on the PATH; run `cargo xtask test`, which installs it, \
             or: apt-get install redis-server",
        )
}

const SERVERS_VARIABLE: &str = "FAIRLOCK_SERVERS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_and_paths() {
        let flavours = parse("redis-7.0=/usr/bin/redis-server, valkey-9.1=/opt/valkey-server,");
        let names: Vec<&str> = flavours.iter().map(|flavour| flavour.name.as_str()).collect();
        assert_eq!(names, ["redis-7.0", "valkey-9.1"]);
        assert_eq!(flavours[1].binary, PathBuf::from("/opt/valkey-server"));
    }

    #[test]
    #[should_panic(expected = "has no `=`")]
    fn rejects_an_entry_without_a_name() {
        parse("/usr/bin/redis-server");
    }
}
