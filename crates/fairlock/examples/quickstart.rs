//! Two workers, one lock, no server: `cargo run -p fairlock --example quickstart [STORE]`.
//!
//! With `redis://127.0.0.1/` as STORE, start it in two terminals and watch them take turns.

use std::time::Duration;

use fairlock::{Client, Options};

#[tokio::main]
async fn main() -> Result<(), fairlock::Error> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(&store).await?;

    let workers = ["anna", "ben"].map(|name| tokio::spawn(work(client.clone(), name)));
    for worker in workers {
        worker.await.expect("the worker does not panic")?;
    }
    client.close().await; // what dropped guards have left to do is done now
    Ok(())
}

async fn work(client: Client, name: &str) -> Result<(), fairlock::Error> {
    let lock = client.lock("orders:42").with(Options::new().wait(Duration::from_secs(30)));
    for round in 1..=2 {
        let guard = lock.lock().await?;
        println!("{name} has the lock, round {round}, token {}", guard.token());
        // Whatever runs in here is stopped if the lock is ever lost.
        guard.run(tokio::time::timeout(PRETEND_TO_WORK, std::future::pending::<()>())).await?.ok();
        guard.release().await?;
    }
    Ok(())
}

const PRETEND_TO_WORK: Duration = Duration::from_millis(200);
