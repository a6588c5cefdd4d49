//! Cutting clients off from inside the server.

use super::Server;

/// Which connections to kill. Told apart by whether they subscribe to anything, because on one
/// RESP3 connection a client can both subscribe and send commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientKind {
    /// Connections without a subscription.
    Normal,
    /// Connections with at least one subscription.
    PubSub,
}

impl Server {
    /// Kills every connection of this kind and returns how many that were. Links between primary
    /// and replica are left alone.
    pub fn kill_clients(&self, kind: ClientKind) -> usize {
        self.kill_clients_where(|client| client.kind() == kind)
    }

    /// Kills every connection and returns how many that were. Links between primary and replica
    /// are left alone.
    pub fn kill_all_clients(&self) -> usize {
        self.kill_clients_where(|_| true)
    }

    fn kill_clients_where(&self, chosen: impl Fn(&ClientLine<'_>) -> bool) -> usize {
        let mut connection = self.connection();
        let own_id: String = redis::cmd("CLIENT")
            .arg("ID")
            .query(&mut connection)
            .expect("the server answers CLIENT ID");
        let list: String = redis::cmd("CLIENT")
            .arg("LIST")
            .query(&mut connection)
            .expect("the server answers CLIENT LIST");
        let clients = list.lines().map(|line| ClientLine { line });
        let chosen = clients
            .filter(|client| client.field("id") != own_id && !client.is_replication())
            .filter(chosen);
        let mut kill = |client: ClientLine<'_>| -> usize {
            redis::cmd("CLIENT")
                .arg(&["KILL", "ID", client.field("id")])
                .query(&mut connection)
                .expect("the server answers CLIENT KILL")
        };
        chosen.map(&mut kill).sum()
    }
}

/// A line of CLIENT LIST: `id=3 addr=127.0.0.1:50412 flags=N sub=0 psub=0 ...`.
struct ClientLine<'a> {
    line: &'a str,
}

impl<'a> ClientLine<'a> {
    fn field(&self, name: &str) -> &'a str {
        self.line
            .split(' ')
            .find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
            .unwrap_or_default()
    }

    fn kind(&self) -> ClientKind {
        let subscribes = ["sub", "psub", "ssub"]
            .iter()
            .any(|counter| self.field(counter).parse().is_ok_and(|count: u64| count > 0));
        if subscribes { ClientKind::PubSub } else { ClientKind::Normal }
    }

    fn is_replication(&self) -> bool {
        self.field("flags").contains(['M', 'S'])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_kinds_apart() {
        let kind = |line| ClientLine { line }.kind();
        assert_eq!(kind("id=3 flags=N db=0 sub=0 psub=0 ssub=0"), ClientKind::Normal);
        assert_eq!(kind("id=3 flags=P db=0 sub=1 psub=0"), ClientKind::PubSub);
        assert_eq!(kind("id=3 flags=P db=0 sub=0 psub=2"), ClientKind::PubSub);
    }

    #[test]
    fn knows_replication_links() {
        assert!(ClientLine { line: "id=3 flags=S sub=0" }.is_replication());
        assert!(ClientLine { line: "id=3 flags=M sub=0" }.is_replication());
        assert!(!ClientLine { line: "id=3 flags=N sub=0" }.is_replication());
    }
}
