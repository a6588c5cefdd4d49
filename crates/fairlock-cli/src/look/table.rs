//! Locks for people.

use fairlock::{Info, Waiter};

use super::json::{client, rfc3339};
use super::queue;
use crate::duration::spell;

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Coloured,
}

impl Style {
    fn bold(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[1m{text}\x1b[0m"),
        }
    }

    fn dim(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[2m{text}\x1b[0m"),
        }
    }
}

/// Everything about one lock.
pub(crate) fn one(info: &Info, style: Style) -> String {
    let mut lines = vec![("lock", style.bold(&printable(&info.name.to_string())))];
    if !info.held {
        lines.push(("state", "free".to_owned()));
    } else if !info.looks_like_a_lock() {
        lines.push(("state", "there is something else than a lock at this name".to_owned()));
    } else {
        lines.push(("state", "held".to_owned()));
        match &info.holder {
            Some(who) => {
                let program = printable(&who.program);
                let host = printable(&who.host);
                lines.push(("holder", format!("{program}, pid {} on {host}", who.pid)));
                let since = rfc3339(who.since);
                lines.push(("since", format!("{since}, {} ago", spell(who.held_for))));
            }
            None => lines.push(("holder", "not a fairlock client (Redisson?)".to_owned())),
        }
        lines.push(("owner", printable(&owner(info))));
        lines.push(("holds", info.holds.to_string()));
        let lease = info.lease.map(|lease| format!("ends in {} unless renewed", spell(lease)));
        lines.push(("lease", lease.unwrap_or_else(|| "has no end".to_owned())));
    }
    if let Some(token) = info.token {
        let note = if info.held { "" } else { " (of the last holder)" };
        lines.push(("token", format!("{token}{note}")));
    }
    let line =
        |(what, text): &(&str, String)| format!("{}  {text}\n", style.dim(&format!("{what:6}")));
    let mut text: String = lines.iter().map(line).collect();
    if let Some(waiters) = queue(info) {
        text += &format!("\n{}", in_line(waiters, style));
    }
    text
}

/// One line for each who waits, in the order of service.
fn in_line(waiters: &[Waiter], style: Style) -> String {
    let row = |(place, waiter): (usize, &Waiter)| {
        let waited = waiter.waited.map_or_else(|| "-".to_owned(), spell);
        let alive = if waiter.alive { "yes" } else { "no" };
        let owner = printable(waiter.owner.as_str());
        [place.to_string(), owner, client(waiter).to_owned(), waited, alive.to_owned()]
    };
    grid(QUEUE_HEAD, &(1..).zip(waiters).map(row).collect::<Vec<_>>(), style)
}

/// One line for each lock.
pub(crate) fn list(infos: &[Info], style: Style) -> String {
    let row = |info: &Info| {
        let lease = info.lease.map_or_else(|| "no end".to_owned(), spell);
        let queued = info.queued.map_or_else(|| "-".to_owned(), |queued| queued.to_string());
        let name = printable(&info.name.to_string());
        match &info.holder {
            Some(who) => {
                let process = format!("{} {}", printable(&who.program), who.pid);
                [name, process, printable(&who.host), spell(who.held_for), lease, queued]
            }
            None => [name, printable(&owner(info)), "-".into(), "-".into(), lease, queued],
        }
    };
    grid(HEAD, &infos.iter().map(row).collect::<Vec<_>>(), style)
}

/// Rows under a head, in columns.
fn grid<const N: usize>(head: [&str; N], rows: &[[String; N]], style: Style) -> String {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N], dress: &dyn Fn(usize, &str) -> String| {
        let padded = cells.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            // The last column needs no padding.
            let width = if column + 1 < cells.len() { width } else { 0 };
            dress(column, &format!("{cell:width$}"))
        });
        padded.collect::<Vec<_>>().join("  ") + "\n"
    };
    let mut text = line(head, &|_, cell| style.dim(cell));
    for row in rows {
        let cells = row.each_ref().map(String::as_str);
        text += &line(cells, &|column, cell| match column {
            0 => style.bold(cell),
            _ => cell.to_owned(),
        });
    }
    text
}

fn owner(info: &Info) -> String {
    info.owner.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// What others wrote must not move our cursor.
fn printable(text: &str) -> String {
    let show = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(show).collect()
}

const HEAD: [&str; 6] = ["LOCK", "HOLDER", "HOST", "HELD FOR", "LEASE LEFT", "QUEUED"];
const QUEUE_HEAD: [&str; 5] = ["PLACE", "WAITER", "CLIENT", "WAITED", "ALIVE"];
