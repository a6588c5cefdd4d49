//! The project's own commands: `cargo xtask <command>`.

#![forbid(unsafe_code)]

mod bench;
mod check;
mod docs;
mod download;
mod install;
mod interop;
mod lua;
mod plant;
mod servers;
mod test;
mod tree;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", &[][..]),
    };
    let outcome = match command {
        "test" => test::run(rest),
        "bench" => bench::run(rest),
        "check" if rest.is_empty() => check::run(),
        "docs" if rest.is_empty() => docs::run(),
        "interop" => interop::run(rest),
        "plant" => plant::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(Failure::Usage),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure::Message(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage) => {
            eprint!("{USAGE}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
enum Failure {
    /// It was called in a way it does not know.
    Usage,
    /// Something else, to be told to the user.
    Message(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Message(message)
    }
}

/// The folder of the workspace.
fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in a workspace")
}

/// The folder cargo builds into.
fn target_folder() -> PathBuf {
    let folder = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    repository_root().join(folder)
}

/// The cargo that runs this command, to be run again in the workspace.
fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(repository_root());
    cargo
}

/// Shows a command, runs it and passes its exit code on.
fn pass_on(mut command: Command) -> Result<ExitCode, Failure> {
    let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    println!("$ cargo {}", args.join(" "));
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    // Without a code it was ended by a signal, which is no success either.
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}

const USAGE: &str = "\
usage: cargo xtask <command>

  test [--all-servers] [-- ARGS...]
      Runs all tests against real servers; ARGS go to the tests, such as a name.
      Installs redis-server if it is missing. With --all-servers also against
      Redis 6.2 and Valkey 9.1, downloaded into target/servers.
  bench [NAME...]
      Runs the named benchmarks, or all.
  interop [--record] [WORD...]
      Runs the real Redisson, two versions of it, beside fairlock: all scenarios,
      or those whose names contain a WORD. Installs Java and Maven if they are
      missing. With --record it also writes down what Java's fair lock does.
  check
      Runs the style checks that no other tool does.
  docs
      Writes the parts of the documentation that are taken from the code.
  plant [WORD]
      Plants known bugs in a copy of the tree, all or those whose description
      contains WORD, and sees to it that the tests find each of them.
";

const EXIT_USAGE: u8 = 64;
