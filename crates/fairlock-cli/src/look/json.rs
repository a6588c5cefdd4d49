//! Locks for programs. What is written here is a promise: fields are added, never changed.

use std::time::{Duration, SystemTime};

use fairlock::{Holder, Info, Waiter};
use serde::Serialize;

use super::queue;

/// One lock, as an object.
pub(crate) fn one(info: &Info) -> String {
    print(&Lock::of(info))
}

/// Many locks, as an array.
pub(crate) fn list(infos: &[Info]) -> String {
    print(&infos.iter().map(Lock::of).collect::<Vec<_>>())
}

#[derive(Serialize)]
struct Lock {
    name: String,
    /// The bytes in hexadecimal, where the name is no UTF-8 and `name` only shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    kind: &'static str,
    held: bool,
    owner: Option<String>,
    holds: u32,
    lease_ms: Option<u64>,
    token: Option<u64>,
    holder: Option<Who>,
    /// How many are in the queue. Null: the store does not say.
    queued: Option<usize>,
    /// Null: nobody is in a queue, or this is a list; who waits for a plain lock is not stored.
    waiters: Option<Vec<InQueue>>,
}

#[derive(Serialize)]
struct InQueue {
    owner: String,
    /// 1 is the next to be served.
    position: usize,
    client: &'static str,
    alive: bool,
    /// Null: Redisson does not say.
    waited_ms: Option<u64>,
}

#[derive(Serialize)]
struct Who {
    host: String,
    pid: u32,
    program: String,
    since: String,
}

impl Lock {
    fn of(info: &Info) -> Self {
        let bytes = info.name.as_bytes();
        let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: info.name.to_string(),
            name_bytes: std::str::from_utf8(bytes).is_err().then(hex),
            kind: if info.queued.is_some_and(|queued| queued > 0) { "fair" } else { "lock" },
            held: info.held,
            owner: info.owner.as_ref().map(ToString::to_string),
            holds: info.holds,
            lease_ms: info.lease.map(|lease| lease.as_millis() as u64),
            token: info.token.map(|token| token.get()),
            holder: info.holder.as_ref().map(Who::of),
            queued: info.queued,
            waiters: queue(info)
                .map(|waiters| (1..).zip(waiters).map(|(at, one)| InQueue::of(at, one)).collect()),
        }
    }
}

impl InQueue {
    fn of(position: usize, waiter: &Waiter) -> Self {
        Self {
            owner: waiter.owner.to_string(),
            position,
            client: client(waiter),
            alive: waiter.alive,
            waited_ms: waiter.waited.map(|waited| waited.as_millis() as u64),
        }
    }
}

/// Whose library somebody waits with.
pub(crate) fn client(waiter: &Waiter) -> &'static str {
    if waiter.owner.is_fairlock() { "fairlock" } else { "foreign" }
}

impl Who {
    fn of(holder: &Holder) -> Self {
        Self {
            host: holder.host.clone(),
            pid: holder.pid,
            program: holder.program.clone(),
            since: rfc3339(holder.since),
        }
    }
}

fn print(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("these types have a JSON form");
    text.push('\n');
    text
}

/// A point in time in UTC, as RFC 3339 writes it.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, seconds) = (since_1970.as_secs() / 86_400, since_1970.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let ms = since_1970.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a day after 1970-01-01, by counting days from a first of March, so that
/// a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_FROM_YEAR_ZERO;
    let (era, day_of_era) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

const DAYS_IN_400_YEARS: u64 = 146_097;
/// From the first of March of the year 0 to the first of January 1970.
const DAYS_FROM_YEAR_ZERO: u64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let at = |seconds| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59.000Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59.000Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59.000Z");
    }
}
