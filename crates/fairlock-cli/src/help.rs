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
  Who has it, and who waits? And if the holder hangs:
    fairlock show deploy
    fairlock break deploy

`fairlock run --help` tells more, also the exit codes.";

/// After `fairlock ls --help`.
pub(crate) const LS: &str = "\
EXAMPLES
  fairlock ls
  fairlock ls 'orders:*'
  fairlock ls --json | jq -r '.[].name'
  fairlock ls --json | jq '.[] | select(.queued > 10)'

The last column says how many are in the queue of a fair lock; `show` names them. Who waits for a plain
one (`run --unfair`) is not stored. Also lists what Redisson holds on the same server. On a server this looks through all keys of the
database, in small steps. The code is 0 also if nothing is held, 69 if the store cannot be used.";

/// After `fairlock show --help`.
pub(crate) const SHOW: &str = "\
EXAMPLES
  fairlock show nightly-backup
  fairlock show --json nightly-backup | jq .held
  fairlock show --json nightly-backup | jq '.waiters | length'

Below the holder stands the queue, in the order of service: the owner as the store writes it, the
client (fairlock, or foreign: Redisson), for how long it has waited where that is known, and whether
it counts as alive. In JSON the kind is \"fair\" while somebody is in the queue. Else it is \"lock\" and
the waiters are null: a fair lock that nobody waits for looks like a plain one, and who waits for a
plain one (`run --unfair`) is not stored.

The code is 0 whether the lock is held or free, 69 if the store cannot be used.";

/// After `fairlock break --help`.
pub(crate) const BREAK: &str = "\
EXAMPLES
  fairlock break nightly-backup
  fairlock break --yes nightly-backup

The holder is not asked. A `fairlock run` notices within a third of its lease, stops its command
and ends with code 79; until then two may be at work. If there is a queue, the first in it gets the
lock. The lock of a holder that died needs no breaking: it comes free when its lease ends, after
30 s at most if nobody chose otherwise.

The code is 0 if the lock was broken, 1 if nobody held it or you did not say yes, 64 if there is no
terminal to ask on and no --yes, 69 if the store cannot be used or has no lock at this name.";

/// After `fairlock completions --help`.
pub(crate) const COMPLETIONS: &str = "\
Example, for bash:
  fairlock completions bash > ~/.local/share/bash-completion/completions/fairlock";

/// After `fairlock man --help`.
pub(crate) const MAN: &str = "\
Examples:
  fairlock man run | man -l -
  fairlock man > /usr/local/share/man/man1/fairlock.1";

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
  Queue for the lock, run, give it back; the code is the command's:
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

THE QUEUE
  First come, first served, over all processes and machines. On a terminal a line shows the place,
  with -v every new place is told. Ctrl-C leaves the queue. -n takes the lock only if nobody waits
  for it. Those who died are passed over, at the latest after --waiter-ttl.
  With --unfair there is no queue. Use it to share a lock with Java's getLock; the fair one is
  Java's getFairLock.

WHEN IT ENDS
  The command runs in a process group of its own, and no process of that group outlives the lock:
  what the command leaves behind is ended, also if fairlock is killed. What shall live on has to
  leave the group: start it with setsid(1).
  If the lock is lost (the store is unreachable for too long, somebody broke the lock) the command
  gets TERM, and KILL before anybody else can have the lock; the code is 79.

DURATIONS are written 500ms, 2s, 5m, 1h, or as seconds: 1.5";
