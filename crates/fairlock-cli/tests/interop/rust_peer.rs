//! A Rust process that understands the commands of the Java one: this program, started again.
//!
//! The commands and answers are those of `interop/redisson`. A logical thread is a task with an
//! [`Owner`] of its own; besides, `lost` answers when the guard of a lock is lost.

use std::collections::HashMap;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, SystemTime};

use fairlock::{Client, FairLock, Guard, Info, Lock, LockError, Options, Owner, ReleaseError};
use fairlock_testkit::Peer;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) fn start(url: &str, lease: Duration) -> Peer {
    let program = std::env::current_exe().expect("a running program has a file");
    let mut command = Command::new(program);
    command.env(URL, url).env(LEASE, lease.as_millis().to_string());
    Peer::start("fairlock", command)
}

/// Whether this process was started to play this part.
pub(crate) fn is_wanted() -> bool {
    std::env::var_os(URL).is_some()
}

pub(crate) fn play() {
    let url = std::env::var(URL).unwrap();
    let lease = Duration::from_millis(std::env::var(LEASE).unwrap().parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let builder = Client::builder(&url).lease(lease).waiter_ttl(WAITER_TTL);
    let client = runtime.block_on(builder.connect()).unwrap();
    say("0", "ready");
    let mut threads: HashMap<String, UnboundedSender<Vec<String>>> = HashMap::new();
    for line in std::io::stdin().lines() {
        let words: Vec<String> = line.unwrap().split(' ').map(str::to_owned).collect();
        match words[2].as_str() {
            "crash" => std::process::abort(),
            "quit" => break,
            _ => {
                let thread = threads.entry(words[1].clone()).or_insert_with(|| {
                    let (sender, commands) = unbounded_channel();
                    runtime.spawn(obey_all(client.clone(), commands));
                    sender
                });
                thread.send(words).ok();
            }
        }
    }
}

async fn obey_all(client: Client, mut commands: UnboundedReceiver<Vec<String>>) {
    let mut thread = Thread { owner: client.owner(), client, guards: HashMap::new() };
    while let Some(words) = commands.recv().await {
        let answer = thread.obey(&words[2], &words[3], &words[4], &words[5..]).await;
        say(&words[0], &answer.unwrap_or_else(|error| format!("error {error}")));
    }
}

struct Thread {
    client: Client,
    owner: Owner,
    guards: HashMap<String, Vec<Guard>>,
}

impl Thread {
    async fn obey(
        &mut self,
        verb: &str,
        kind: &str,
        name: &str,
        arguments: &[String],
    ) -> Result<String, LockError> {
        let lock = match kind {
            "lock" => AnyLock::Plain(self.client.lock(name)),
            "fair" => AnyLock::Fair(self.client.fair_lock(name)),
            _ => return Ok(format!("error no kind of lock: {kind}")),
        };
        let number = |index: usize| arguments[index].parse::<u64>().unwrap();
        let answer = match verb {
            "lock" => {
                let options = match arguments.len() {
                    0 => Options::new(),
                    _ => Options::new().lease(Duration::from_millis(number(0))),
                };
                self.enter(name, lock.with(options).lock_as(&self.owner).await.map(Some))?
            }
            "trylock" if arguments.is_empty() => {
                self.enter(name, lock.try_lock_as(&self.owner).await)?
            }
            "trylock" => {
                let options = Options::new()
                    .wait(Duration::from_millis(number(0)))
                    .lease(Duration::from_millis(number(1)));
                self.enter(name, lock.with(options).lock_as(&self.owner).await.map(Some))?
            }
            "unlock" => match self.guards.get_mut(name).and_then(Vec::pop) {
                None => "not-owner".to_owned(),
                Some(guard) => match guard.release().await {
                    Ok(_) => "released".to_owned(),
                    Err(ReleaseError::Lost(_)) => "not-owner".to_owned(),
                    Err(error) => format!("error {error}"),
                },
            },
            "force" => lock.force_unlock().await?.to_string(),
            "islocked" => lock.inspect().await?.held.to_string(),
            "ttl" => {
                lock.inspect().await?.lease.map_or(-2, |left| left.as_millis() as i64).to_string()
            }
            "count" => {
                let info = lock.inspect().await?;
                let guards = self.guards.get(name).into_iter().flatten();
                let mine = guards.map(Guard::owner_id).any(|id| Some(id) == info.owner.as_ref());
                if mine { info.holds.to_string() } else { "0".to_owned() }
            }
            "held" => self.guards.get(name).into_iter().flatten().any(Guard::is_held).to_string(),
            "lost" => {
                self.guards[name].last().expect("a guard").lost().await;
                "lost".to_owned()
            }
            "add" => {
                add(&lock, &arguments[0], number(1)).await?;
                "done".to_owned()
            }
            _ => format!("error no command: {verb}"),
        };
        Ok(answer)
    }

    fn enter(
        &mut self,
        name: &str,
        outcome: Result<Option<Guard>, LockError>,
    ) -> Result<String, LockError> {
        match outcome {
            Ok(Some(guard)) => {
                self.guards.entry(name.to_owned()).or_default().push(guard);
                Ok("held".to_owned())
            }
            Ok(None) | Err(LockError::TimedOut { .. }) => Ok("busy".to_owned()),
            Err(error) => Err(error),
        }
    }
}

/// A lock of either kind.
enum AnyLock {
    Plain(Lock),
    Fair(FairLock),
}

impl AnyLock {
    fn with(&self, options: Options) -> Self {
        match self {
            Self::Plain(lock) => Self::Plain(lock.with(options)),
            Self::Fair(lock) => Self::Fair(lock.with(options)),
        }
    }

    async fn lock(&self) -> Result<Guard, LockError> {
        match self {
            Self::Plain(lock) => lock.lock().await,
            Self::Fair(lock) => lock.lock().await,
        }
    }

    async fn lock_as(&self, owner: &Owner) -> Result<Guard, LockError> {
        match self {
            Self::Plain(lock) => lock.lock_as(owner).await,
            Self::Fair(lock) => lock.lock_as(owner).await,
        }
    }

    async fn try_lock_as(&self, owner: &Owner) -> Result<Option<Guard>, LockError> {
        match self {
            Self::Plain(lock) => lock.try_lock_as(owner).await,
            Self::Fair(lock) => lock.try_lock_as(owner).await,
        }
    }

    async fn inspect(&self) -> Result<Info, LockError> {
        match self {
            Self::Plain(lock) => lock.inspect().await,
            Self::Fair(lock) => lock.inspect().await,
        }
    }

    async fn force_unlock(&self) -> Result<bool, LockError> {
        match self {
            Self::Plain(lock) => lock.force_unlock().await,
            Self::Fair(lock) => lock.force_unlock().await,
        }
    }
}

async fn add(lock: &AnyLock, file: &str, rounds: u64) -> Result<(), LockError> {
    for _ in 0..rounds {
        let guard = lock.lock().await?;
        let number: u64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        std::fs::write(file, (number + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "answers of two languages are compared by the wall")]
fn say(number: &str, answer: &str) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut output = std::io::stdout().lock();
    writeln!(output, "{number} {} {answer}", now.as_micros()).unwrap();
    output.flush().unwrap();
}

/// How long the place of a dead waiter of ours may hold up the others.
pub(crate) const WAITER_TTL: Duration = Duration::from_secs(2);

const URL: &str = "FAIRLOCK_PEER_URL";
const LEASE: &str = "FAIRLOCK_PEER_LEASE_MS";
