//! What was asked for, resolved: flags first, then variables, then defaults. Everything after this
//! works on settled values and does not look at the environment again.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairlock::Name;

use crate::args::{OnLost, RunArgs, StoreArg};
use crate::duration;
use crate::exit::Exit;
use crate::look::Style;
use crate::say::Verbosity;

/// Everything that `fairlock run` needs to know.
#[derive(Clone, Debug)]
pub(crate) struct RunConfig {
    pub(crate) store: String,
    pub(crate) name: OsString,
    pub(crate) command: Vec<OsString>,
    pub(crate) wait: Wait,
    /// First come, first served.
    pub(crate) fair: bool,
    /// How long a place in the queue stays without a sign of life; else the library's own default.
    pub(crate) waiter_ttl: Option<Duration>,
    pub(crate) conflict_exit: Exit,
    /// The lease that is renewed.
    pub(crate) lease: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) verbosity: Verbosity,
    /// Owners of the locks that a `fairlock run` around this one holds.
    pub(crate) held_around_us: Vec<String>,
}

/// What looking at locks needs to know.
#[derive(Clone, Debug)]
pub(crate) struct LookConfig {
    pub(crate) store: String,
    pub(crate) json: bool,
    pub(crate) style: Style,
}

impl LookConfig {
    pub(crate) fn resolve(
        store_arg: StoreArg,
        json: bool,
        environment: &Environment,
    ) -> Result<Self, Misuse> {
        let colours = io::stdout().is_terminal()
            && environment.value("NO_COLOR").is_none()
            && environment.text("TERM").is_some_and(|terminal| terminal != "dumb");
        let style = if colours { Style::Coloured } else { Style::Plain };
        Ok(Self { store: store(store_arg, environment)?, json, style })
    }
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    For(Duration),
    Forever,
}

/// What is wrong with the arguments or the environment; one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misuse(pub(crate) String);

impl RunConfig {
    pub(crate) fn resolve(args: RunArgs, environment: &Environment) -> Result<Self, Misuse> {
        check_name(&args.name)?;
        let wait = match (args.nonblock, args.wait) {
            (true, _) => Wait::No,
            (false, Some(wait)) => Wait::of(wait),
            (false, None) => environment.duration(WAIT_VARIABLE)?.map_or(Wait::Forever, Wait::of),
        };
        let lease = match args.lease {
            Some(lease) => lease,
            None => environment.duration(LEASE_VARIABLE)?.unwrap_or(DEFAULT_LEASE),
        };
        let waiter_ttl = match args.waiter_ttl {
            Some(waiter_ttl) => Some(waiter_ttl),
            None => environment.duration(WAITER_TTL_VARIABLE)?,
        };
        let held = environment.text(HELD_VARIABLE).unwrap_or_default();
        Ok(Self {
            store: store(args.store, environment)?,
            name: args.name,
            command: args.command,
            wait,
            fair: !args.unfair,
            waiter_ttl,
            conflict_exit: args.conflict_exit_code.map_or(Exit::BUSY, Exit::chosen),
            lease,
            max_hold: args.max_hold,
            on_lost: args.on_lost,
            verbosity: match (args.quiet, args.verbose) {
                (true, _) => Verbosity::Quiet,
                (_, true) => Verbosity::Verbose,
                _ => Verbosity::Normal,
            },
            held_around_us: held.split_whitespace().map(str::to_owned).collect(),
        })
    }

    pub(crate) fn name_bytes(&self) -> &[u8] {
        self.name.as_bytes()
    }

    /// The name in quotes, and not longer than a line.
    pub(crate) fn name_for_people(&self) -> String {
        for_people(&self.name.to_string_lossy())
    }

    /// The lease of this hold: never longer than it may be held at all.
    pub(crate) fn lease(&self) -> Duration {
        self.max_hold.map_or(self.lease, |max_hold| max_hold.min(self.lease))
    }

    /// What others see as the holder: the command, not us.
    pub(crate) fn program(&self) -> String {
        let command = self.command.first().map(Path::new).and_then(Path::file_name);
        command.unwrap_or(OsStr::new("fairlock")).to_string_lossy().into_owned()
    }
}

impl Wait {
    fn of(wait: Duration) -> Self {
        if wait.is_zero() { Self::No } else { Self::For(wait) }
    }
}

/// The variables of this process, or of a test.
#[derive(Clone, Debug)]
pub(crate) struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub(crate) fn of_this_process() -> Self {
        Self(env::vars_os().collect())
    }

    /// A variable that is set to nothing counts as not set.
    fn value(&self, name: &str) -> Option<&OsStr> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.value(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn duration(&self, name: &str) -> Result<Option<Duration>, Misuse> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let parsed = duration::parse(&text);
        parsed.map(Some).map_err(|hint| Misuse(format!("the variable {name} is {text:?}: {hint}")))
    }

    /// A path from a variable; a relative one means nothing, as the XDG rules say.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        self.value(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

/// The address of the store.
pub(crate) fn store(arg: StoreArg, environment: &Environment) -> Result<String, Misuse> {
    if let Some(store) = arg.store.or_else(|| environment.text(STORE_VARIABLE)) {
        if store.starts_with("memory:") {
            let text = "a memory: store is seen by this process alone, so it would exclude nobody";
            return Err(Misuse(format!("{text}; use file:DIR or redis://HOST/")));
        }
        return Ok(store);
    }
    // Not the runtime directory: cron jobs have none, and two stores would mean two holders.
    let state = environment.folder("XDG_STATE_HOME");
    let state = state.or_else(|| Some(environment.folder("HOME")?.join(".local/state")));
    let Some(state) = state else {
        return Err(Misuse(format!(
            "no store: HOME is not set, so there is no default; give --store or {STORE_VARIABLE}"
        )));
    };
    match state.join("fairlock").to_str() {
        Some(path) => Ok(format!("file:{path}")),
        None => Err(Misuse(format!(
            "no store: the default folder's name is no UTF-8; give --store or {STORE_VARIABLE}"
        ))),
    }
}

/// Refuses a name that no lock can have.
pub(crate) fn check_name(name: &OsStr) -> Result<(), Misuse> {
    Name::new(name.as_bytes()).map(drop).map_err(|error| Misuse(error.to_string()))
}

/// A name in quotes, and not longer than a line.
pub(crate) fn for_people(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{:?}...", &name[..end]),
        None => format!("{name:?}"),
    }
}

/// Owners of locks held by a `fairlock run` around this process, separated by spaces.
pub(crate) const HELD_VARIABLE: &str = "FAIRLOCK_HELD";
const STORE_VARIABLE: &str = "FAIRLOCK_STORE";
const LEASE_VARIABLE: &str = "FAIRLOCK_LEASE";
const WAIT_VARIABLE: &str = "FAIRLOCK_WAIT";
const WAITER_TTL_VARIABLE: &str = "FAIRLOCK_WAITER_TTL";
/// The library's own default, which is Redisson's.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// A line on a terminal has to hold more than the name.
const LONGEST_NAME: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn resolve(args: &[&str], variables: &[(&str, &str)]) -> Result<RunConfig, Misuse> {
        let cli = crate::args::Cli::try_parse_from([&["fairlock", "run"], args].concat()).unwrap();
        let crate::args::Command::Run(args) = cli.command else { panic!("not run") };
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        RunConfig::resolve(args, &Environment(variables.collect()))
    }

    #[test]
    fn a_flag_beats_its_variable_and_that_beats_the_default() {
        let home = ("HOME", "/home/me");
        let config = resolve(&["x", "true"], &[home]).unwrap();
        assert_eq!(config.store, "file:/home/me/.local/state/fairlock");
        assert_eq!((config.wait, config.lease), (Wait::Forever, DEFAULT_LEASE));
        assert_eq!((config.fair, config.waiter_ttl), (true, None));

        let variables = [
            home,
            ("XDG_STATE_HOME", "/state"),
            ("FAIRLOCK_LEASE", "5s"),
            ("FAIRLOCK_WAIT", "1m"),
            ("FAIRLOCK_WAITER_TTL", "4s"),
        ];
        let config = resolve(&["x", "true"], &variables).unwrap();
        assert_eq!(config.store, "file:/state/fairlock");
        assert_eq!(config.wait, Wait::For(Duration::from_secs(60)));
        assert_eq!(config.lease, Duration::from_secs(5));
        assert_eq!(config.waiter_ttl, Some(Duration::from_secs(4)));

        let flags = ["--lease", "7", "-w", "0", "--store", "redis://a"];
        let flags = [&flags[..], &["--waiter-ttl", "3s", "--unfair", "x", "true"]].concat();
        let variables = [("FAIRLOCK_STORE", "redis://b"), variables[2], variables[4]];
        let config = resolve(&flags, &variables).unwrap();
        assert_eq!((config.store.as_str(), config.wait), ("redis://a", Wait::No));
        assert_eq!(config.lease, Duration::from_secs(7));
        assert_eq!((config.fair, config.waiter_ttl), (false, Some(Duration::from_secs(3))));
    }

    #[test]
    fn variables_that_make_no_sense_are_refused() {
        let misuse = resolve(&["x", "true"], &[("FAIRLOCK_WAIT", "soon")]).unwrap_err();
        assert!(misuse.0.contains("FAIRLOCK_WAIT") && misuse.0.contains("500ms"), "{misuse:?}");
        assert!(resolve(&["x", "true"], &[("HOME", "relative")]).is_err());
        assert!(resolve(&["x", "true"], &[("HOME", "")]).is_err());
    }

    #[test]
    fn names_are_checked_and_shortened_for_people() {
        let home = [("HOME", "/h")];
        assert!(resolve(&["", "true"], &home).is_err());
        assert_eq!(resolve(&["a b", "true"], &home).unwrap().name_for_people(), "\"a b\"");
        let long = resolve(&[&"x".repeat(300), "true"], &home).unwrap().name_for_people();
        assert!(long.len() < 80 && long.ends_with("..."));
    }
}
