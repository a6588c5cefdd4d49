//! `fairlock`, the command: raw arguments ([`args`]), then settled values ([`config`]), then the
//! work ([`run`]). Exit codes are in [`exit`].

#![forbid(unsafe_code)]

mod args;
mod clock;
mod config;
mod duration;
mod exit;
mod help;
mod look;
mod processes;
mod run;
mod say;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command};
use crate::config::{Environment, LookConfig, Misuse, RunConfig};
use crate::exit::Exit;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    // First of all: these two are started with every command, so they have to be fast.
    match args.get(1).and_then(|arg| arg.to_str()) {
        Some(run::EXEC) => return run::wait_and_become(&args[2..]).into(),
        Some(run::WATCH) => return run::watch().into(),
        _ => {}
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return explain(&error, args.get(1).map(OsString::as_os_str)).into(),
    };
    let exit = dispatch(cli).unwrap_or_else(|Misuse(text)| {
        say::error(text);
        Exit::USAGE
    });
    exit.into()
}

fn dispatch(cli: Cli) -> Result<Exit, Misuse> {
    let environment = Environment::of_this_process();
    match cli.command {
        Command::Run(args) => {
            let config = RunConfig::resolve(args, &environment)?;
            Ok(block_on(run::run(config)))
        }
        Command::Ls { pattern, json, store } => {
            let config = LookConfig::resolve(store, json.json, &environment)?;
            Ok(block_on(look::ls(config, pattern)))
        }
        Command::Show { name, json, store } => {
            config::check_name(&name)?;
            let config = LookConfig::resolve(store, json.json, &environment)?;
            Ok(block_on(look::show(config, &name)))
        }
        Command::Break { name, yes, store } => {
            config::check_name(&name)?;
            let config = LookConfig::resolve(store, false, &environment)?;
            Ok(block_on(look::break_lock(config, &name, yes)))
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "fairlock", &mut script);
            say::output(&String::from_utf8_lossy(&script));
            Ok(Exit::OK)
        }
        Command::Man { command } => manual(command.as_deref()),
    }
}

/// Prints the page of one command, or of all.
fn manual(command: Option<&str>) -> Result<Exit, Misuse> {
    let mut all = Cli::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let found = all.find_subcommand(name).cloned();
            found.ok_or_else(|| Misuse(format!("there is no command {name}")))?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).expect("a vector takes everything");
    say::output(&String::from_utf8_lossy(&text));
    Ok(Exit::OK)
}

/// Everything waits in one thread; the library's watchdog has one of its own.
fn block_on(work: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => {
            say::error(format_args!("cannot start: {error}"));
            Exit::SYSTEM
        }
    }
}

/// Prints help as it is and a mistake as one line of ours.
fn explain(error: &clap::Error, command: Option<&OsStr>) -> Exit {
    let text = error.render().to_string();
    let Some(text) = text.strip_prefix("error: ") else {
        // Help: asked for, or for somebody who typed nothing at all.
        if error.use_stderr() {
            say::raw(&text);
            return Exit::USAGE;
        }
        say::output(&text);
        return Exit::OK;
    };
    // The first paragraph says what is wrong, the next may have a hint; the rest is the usage.
    let one_line = |text: &str| {
        // Of several hints the first is the likely one.
        let text = text.trim_start().split("\n  tip: ").next().unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut paragraphs = text.split("\n\n").map(one_line);
    let mistake = paragraphs.next().unwrap_or_default();
    let tip = paragraphs.find_map(|text| text.strip_prefix("tip: ").map(|tip| format!(" ({tip})")));
    let known = Cli::command();
    let command =
        command.and_then(OsStr::to_str).filter(|name| known.find_subcommand(name).is_some());
    let help = command.map(|name| format!("{name} --help")).unwrap_or("--help".to_owned());
    say::error(format_args!("{mistake}{}; see fairlock {help}", tip.unwrap_or_default()));
    Exit::USAGE
}
