//! `cargo xtask bench`: the benchmarks, against the server on the PATH.

use std::process::ExitCode;

use crate::servers::{self, SERVERS_VARIABLE};
use crate::{Failure, cargo, pass_on};

/// Sets the server up and runs `cargo bench`.
pub(crate) fn run(names: &[String]) -> Result<ExitCode, Failure> {
    if names.iter().any(|name| name.starts_with('-')) {
        return Err(Failure::Usage);
    }
    let found = [servers::on_path_or_installed()?];
    servers::print(&found);

    let mut benches = cargo();
    benches.args(["bench", "--package", "fairlock", "--package", "fairlock-cli"]);
    if names.is_empty() {
        // Not --benches, which also runs the unit tests as benchmarks.
        benches.args(["--bench", "*"]);
    }
    for name in names {
        benches.args(["--bench", name]);
    }
    benches.env(SERVERS_VARIABLE, servers::as_variable(&found));
    pass_on(benches)
}
