//! What `--help` teaches, beyond the list of flags.

use crate::exit;

/// After `fairlock --help`.
pub(crate) const OVERVIEW: &str = "\
EXAMPLES
  One backup at a time; a second one waits its turn:
    fairlock run nightly-backup -- ./backup.sh
  A cron job that skips its turn while the last one is still at work:
    */5 * * * *  fairlock run -qn sync -- /usr/local/bin/sync-all
  The same lock for all machines:
    export FAIRLOCK_STORE=redis://locks.example.com/
    fairlock run -w 10m deploy -- ./deploy.sh production

`fairlock run --help` tells more.";

/// After `fairlock run -h`.
pub(crate) const RUN_SHORT: &str = "\
Example: fairlock run nightly-backup -- ./backup.sh
More, and the exit codes: fairlock run --help";

/// After `fairlock run --help`.
pub(crate) fn run_long() -> String {
    format!("{RUN_EXAMPLES}\n\n{RUN_FACTS}\n\n{}", exit::TABLE)
}

const RUN_EXAMPLES: &str = "\
EXAMPLES
  Wait for the lock, run, give it back; the code is the command's:
    fairlock run nightly-backup -- ./backup.sh
  Wait for ten minutes at most:
    fairlock run -w 10m deploy -- ./deploy.sh production
  In a crontab: skip this turn if the last one still runs, without a mail about it:
    */5 * * * *  fairlock run -qn -E 0 sync -- /usr/local/bin/sync-all
  More than one command:
    fairlock run report -- sh -c 'fetch && render > report.html'
  The same lock for several machines:
    fairlock run --store redis://locks.example.com/ deploy -- ./deploy.sh";

const RUN_FACTS: &str = "\
WHAT THE COMMAND GETS
  Its standard input, output and terminal as they are; fairlock itself writes to standard error
  only. Signals are passed on. These variables:
    FAIRLOCK_NAME   the lock
    FAIRLOCK_TOKEN  a number that grows with every holder: hand it to what you protect, and let
                    that refuse smaller ones
    FAIRLOCK_OWNER  who holds the lock, as the store writes it

WHEN IT ENDS
  The command runs in a process group of its own, and no process of that group outlives the lock:
  what the command leaves behind is ended, also if fairlock is killed. What shall live on has to
  leave the group: start it with setsid(1).
  If the lock is lost (the store is unreachable for too long, somebody broke the lock) the command
  gets TERM, and KILL before anybody else can have the lock; the code is 79.

DURATIONS are written 500ms, 2s, 5m, 1h, or as seconds: 1.5";
