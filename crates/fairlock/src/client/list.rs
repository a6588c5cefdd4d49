//! Looking for locks: which are held, by their names.

use std::collections::BTreeMap;

use super::Client;
use super::acquire::inspect;
use crate::engine::{Cursor, Lane};
use crate::error::{LockError, StoreError, StoreErrorKind};
use crate::lock::Info;
use crate::protocol::op::Kind;
use crate::protocol::pattern::Pattern;

impl Client {
    /// All locks that are held and whose names match: `*` stands for any bytes, `?` for one byte,
    /// everything else for itself. Sorted by name; also locks that Redisson holds. Those who wait in
    /// the queue of a fair lock are counted ([`Info::queued`]), not named.
    ///
    /// For people and their tools, not for a program's daily work: a server looks through all keys
    /// of its database for this, in small steps that do not hold others up. Every lock is looked
    /// at by itself, at a moment of its own.
    ///
    /// ```
    /// # use fairlock::Client;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fairlock::Error> {
    /// # let client = Client::connect("memory:").await?;
    /// let _guard = client.lock("orders:42").lock().await?;
    /// for lock in client.list("orders:*").await? {
    ///     println!("{} is held by {:?}", lock.name, lock.holder);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the store cannot be asked.
    ///
    /// # Cancel safety
    /// Only looks; dropping the future changes nothing.
    pub async fn list(&self, pattern: &str) -> Result<Vec<Info>, LockError> {
        let pattern = Pattern::new(pattern);
        let mut found = BTreeMap::new();
        let mut cursor = Cursor::default();
        loop {
            let page = self.page(&pattern, cursor).await?;
            // A store may tell the same name more than once.
            found.extend(page.found.into_iter().map(|found| (found.name, found.queued)));
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let mut locks = Vec::new();
        for (name, queued) in found {
            match inspect(&self.core, Kind::Plain, &name, self.core.patience()).await {
                Ok(info) if info.held && info.looks_like_a_lock() => {
                    locks.push(Info { queued, ..info });
                }
                Ok(_) => {}
                // It was something else all along, or has become so meanwhile.
                Err(LockError::Store(error)) if *error.kind() == StoreErrorKind::WrongType => {}
                Err(error) => return Err(error),
            }
        }
        Ok(locks)
    }

    async fn page(
        &self,
        pattern: &Pattern,
        cursor: Cursor,
    ) -> Result<crate::engine::Page, StoreError> {
        let page = self.core.engine.names(Lane::Caller, pattern, cursor);
        match tokio::time::timeout(self.core.options.timeout, page).await {
            Ok(page) => page,
            Err(_) => Err(self.core.unreachable()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn held_locks_are_found_by_their_names() {
        let client = Client::connect("memory:").await.unwrap();
        let _a = client.lock("orders:2").lock().await.unwrap();
        let _b = client.lock("orders:1").lock().await.unwrap();
        let _c = client.lock("other").lock().await.unwrap();
        client.lock("orders:3").lock().await.unwrap().release().await.unwrap();
        let names = |locks: Vec<Info>| locks.iter().map(|lock| lock.name.to_string()).collect();
        let found: Vec<String> = names(client.list("orders:*").await.unwrap());
        assert_eq!(found, ["orders:1", "orders:2"]);
        let found: Vec<String> = names(client.list("*").await.unwrap());
        assert_eq!(found, ["orders:1", "orders:2", "other"]);
        assert!(client.list("nothing").await.unwrap().is_empty());
    }
}
