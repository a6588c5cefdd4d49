//! The arguments as they are typed.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{duration, help};

/// Run a command under a lock that all your machines share, or all processes of one machine.
#[derive(Debug, Parser)]
#[command(name = "fairlock", version, after_long_help = help::OVERVIEW, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Queue for a lock, run a command, give the lock back.
    #[command(
        override_usage = "fairlock run [OPTIONS] NAME [--] CMD...",
        after_help = help::RUN_SHORT,
        after_long_help = help::run_long()
    )]
    Run(RunArgs),

    /// List the locks that are held, and by whom.
    #[command(after_long_help = help::LS)]
    Ls {
        /// Only names like this: * stands for anything, ? for one character.
        #[arg(default_value = "*", hide_default_value = true)]
        pattern: String,
        #[command(flatten)]
        json: JsonArg,
        #[command(flatten)]
        store: StoreArg,
    },

    /// Show who holds a lock, since when, how long its lease is, and who waits for it.
    #[command(after_long_help = help::SHOW)]
    Show {
        /// The lock.
        name: OsString,
        #[command(flatten)]
        json: JsonArg,
        #[command(flatten)]
        store: StoreArg,
    },

    /// Free a lock, whoever holds it. Asks first.
    #[command(after_long_help = help::BREAK)]
    Break {
        /// The lock.
        name: OsString,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
        #[command(flatten)]
        store: StoreArg,
    },

    /// Print a script that completes commands and flags in your shell.
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// Your shell.
        shell: clap_complete::Shell,
    },

    /// Print a manual page.
    #[command(after_help = help::MAN)]
    Man {
        /// Of this command instead of all.
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct JsonArg {
    /// Print JSON, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Do not wait: if the lock is busy, end with code 1.
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Wait at most this long, then end with code 1 [variable: FAIRLOCK_WAIT; default: for ever]
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse, visible_alias = "timeout")]
    pub(crate) wait: Option<Duration>,

    /// End with this code instead of 1 if the lock is busy or the wait time is over.
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,

    /// How long the lock stays if this machine dies [variable: FAIRLOCK_LEASE; default: 30s]
    ///
    /// The lease is renewed for as long as the command runs, so this is no limit for the command;
    /// see --max-hold for that.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) lease: Option<Duration>,

    /// Hold the lock no longer than this: the command is stopped before.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) max_hold: Option<Duration>,

    /// Do not queue: when the lock comes free, whoever is first gets it.
    ///
    /// This is Redisson's getLock, and without it getFairLock. Use one kind for all who share a
    /// lock: the unfair ones do not look at the queue.
    #[arg(long)]
    pub(crate) unfair: bool,

    /// How long a place in the queue stays if its machine dies [variable: FAIRLOCK_WAITER_TTL;
    /// default: 10s]
    ///
    /// One who waits gives three signs of life within this time. Those whose process died are
    /// mostly passed over at once; this is for a machine or a network that died.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) waiter_ttl: Option<Duration>,

    /// What to do with the command when the lock is lost.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,

    #[command(flatten)]
    pub(crate) store: StoreArg,

    /// Tell what happens: waiting, got it, gave it back.
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,

    /// Say nothing but errors: no status line, and nothing if the lock is busy.
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The lock, by any name that you and others agree on.
    #[arg(value_name = "NAME")]
    pub(crate) name: OsString,

    /// The command and its arguments.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct StoreArg {
    /// Where the locks are [variable: FAIRLOCK_STORE; default: a folder of yours on this machine]
    ///
    /// file:DIR for all processes of one machine; redis://[USER:PASSWORD@]HOST[:PORT]/[DB],
    /// rediss://... (TLS) or redis+unix:///PATH for everybody who can reach that server. The
    /// default is file: with $XDG_STATE_HOME/fairlock, or ~/.local/state/fairlock.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) store: Option<String>,
}

/// What happens to the command when its lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM in time, and KILL before anybody else can have the lock
    Term,
    /// KILL at the last moment, without a warning
    Kill,
    /// Let it go on without the lock; the code is 79 nevertheless
    Ignore,
}
