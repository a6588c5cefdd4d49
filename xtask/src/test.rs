//! `cargo xtask test`: all tests, against real servers.

use std::process::ExitCode;

use crate::servers::{self, SERVERS_VARIABLE};
use crate::{Failure, cargo, download, pass_on};

/// Sets the servers up and runs `cargo test --workspace`.
pub(crate) fn run(args: &[String]) -> Result<ExitCode, Failure> {
    let wanted = Wanted::parse(args)?;
    let mut found = vec![servers::on_path_or_installed()?];
    if wanted.all_servers {
        found.extend(download::all()?);
    }
    servers::print(&found);

    let mut tests = cargo();
    tests.args(["test", "--workspace"]);
    if !wanted.test_args.is_empty() {
        tests.arg("--").args(wanted.test_args);
    }
    tests.env(SERVERS_VARIABLE, servers::as_variable(&found));
    pass_on(tests)
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted<'a> {
    all_servers: bool,
    test_args: &'a [String],
}

impl Wanted<'_> {
    fn parse(args: &[String]) -> Result<Wanted<'_>, Failure> {
        let own_count = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
        let (own, rest) = args.split_at(own_count);
        if own.iter().any(|arg| arg != "--all-servers") {
            return Err(Failure::Usage);
        }
        Ok(Wanted { all_servers: !own.is_empty(), test_args: rest.get(1..).unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn what_follows_the_dashes_is_for_the_tests() {
        let args = strings(&["--all-servers", "--", "storm", "--nocapture"]);
        let wanted = Wanted::parse(&args).expect("valid");
        assert!(wanted.all_servers);
        assert_eq!(wanted.test_args, &args[2..]);
    }

    #[test]
    fn nothing_is_needed() {
        let wanted = Wanted::parse(&[]).expect("valid");
        assert_eq!(wanted, Wanted { all_servers: false, test_args: &[] });
        assert!(Wanted::parse(&strings(&["--"])).expect("valid").test_args.is_empty());
    }

    #[test]
    fn anything_else_is_an_error() {
        assert!(matches!(Wanted::parse(&strings(&["storm"])), Err(Failure::Usage)));
        assert!(matches!(Wanted::parse(&strings(&["--all"])), Err(Failure::Usage)));
    }
}
