//! Looking into a server: what it was asked to do, and which keys it has.

use redis::Iter;

use super::Server;

impl Server {
    /// How many times scripts were called (EVALSHA and EVAL, failed ones too) since the start or
    /// the last [`reset_stats`](Server::reset_stats).
    pub fn script_calls(&self) -> u64 {
        let stats = self.command_stats();
        calls_in(&stats, "evalsha") + calls_in(&stats, "eval")
    }

    /// How many times `command` was called, by clients and by scripts, since the start or the last
    /// [`reset_stats`](Server::reset_stats). Redis 7 and later count subcommands apart, as in
    /// `client|list`.
    pub fn calls(&self, command: &str) -> u64 {
        calls_in(&self.command_stats(), command)
    }

    /// Sets all counters back to zero.
    pub fn reset_stats(&self) {
        self.query::<()>(&["CONFIG", "RESETSTAT"]);
    }

    /// Every key in database 0, sorted. Names that are no UTF-8 are shown as well as can be.
    pub fn keys(&self) -> Vec<String> {
        self.raw_keys().iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// Every key in database 0 that never expires, sorted.
    pub fn keys_without_ttl(&self) -> Vec<String> {
        let mut connection = self.connection();
        let mut never_expires = |key: &Vec<u8>| {
            let ttl: i64 = redis::cmd("PTTL")
                .arg(key)
                .query(&mut connection)
                .expect("the server answers PTTL");
            ttl == -1
        };
        let mut keys = self.raw_keys();
        keys.retain(&mut never_expires);
        keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    fn raw_keys(&self) -> Vec<Vec<u8>> {
        let mut connection = self.connection();
        let scan: Iter<'_, Vec<u8>> = redis::cmd("SCAN")
            .cursor_arg(0)
            .arg("COUNT")
            .arg(1000)
            .clone()
            .iter(&mut connection)
            .expect("the server answers SCAN");
        let mut keys: Vec<Vec<u8>> =
            scan.map(|key| key.expect("the server answers SCAN")).collect();
        keys.sort();
        // SCAN may return a key twice while the table is being resized.
        keys.dedup();
        keys
    }

    fn command_stats(&self) -> String {
        self.query(&["INFO", "commandstats"])
    }
}

/// The calls of `command` in a report with lines like `cmdstat_get:calls=3,usec=5,...`.
fn calls_in(command_stats: &str, command: &str) -> u64 {
    let start = format!("cmdstat_{}:calls=", command.to_ascii_lowercase());
    command_stats
        .lines()
        .find_map(|line| line.strip_prefix(&start))
        .and_then(|rest| rest.split(',').next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_calls_of_exactly_one_command() {
        let stats = "# Commandstats\r\n\
            cmdstat_evalsha:calls=12,usec=80,usec_per_call=6.67,rejected_calls=0,failed_calls=1\r\n\
            cmdstat_client|list:calls=2,usec=1,usec_per_call=0.5,rejected_calls=0\r\n";
        assert_eq!(calls_in(stats, "EVALSHA"), 12);
        assert_eq!(calls_in(stats, "eval"), 0);
        assert_eq!(calls_in(stats, "client|list"), 2);
    }
}
