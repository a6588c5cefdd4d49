//! A second process that locks: this test binary, started again to play one part.
//!
//! It reads a command per line and answers with a line. `lock NAME [LEASE_MS]` answers `held
//! TOKEN` or `error ...`; `try NAME` answers `held TOKEN` or `busy`; `is_held` answers `true` or
//! `false` without asking the store; `release` answers `released` or `lost ...`; `wait_lost`
//! answers when the guard is lost; `loop NAME FILE ROUNDS` adds one to the number in a file so
//! many times, each time under the lock, and answers `done`; `keep NAME` takes one more lock for good
//! and answers `kept`; `fair NAME COUNT` has so many wait in the queue of a fair lock, answers `asked`,
//! and says `served` for each that got it, which is given back at once; `fill FILE` writes until the disk is full; `remove FILE` removes it; `quit`
//! ends the process properly.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use fairlock::{Client, Guard, Options};
use rustix::process::{Pid, Signal, kill_process};

/// The handle to such a process. It ends with its handle.
pub(crate) struct Actor {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Actor {
    /// Starts one with a client for this store; `lease` is the watchdog's.
    pub(crate) fn start(url: &str, lease: Duration) -> Self {
        let program = std::env::current_exe().expect("a running program has a file");
        Self::start_as(Command::new(program), url, lease)
    }

    /// The same, for fair locks: its waiters count as alive for so long without a sign of life.
    pub(crate) fn start_fair(url: &str, waiter_ttl: Duration) -> Self {
        let program = std::env::current_exe().expect("a running program has a file");
        let mut command = Command::new(program);
        command.env(WAITER_TTL, waiter_ttl.as_millis().to_string());
        Self::start_as(command, url, Duration::from_secs(30))
    }

    /// The same through another program, such as one that gives it a small disk. It is called with
    /// the actor's command line at the end of its own.
    pub(crate) fn start_through(mut launcher: Command, url: &str, lease: Duration) -> Self {
        launcher.arg(std::env::current_exe().expect("a running program has a file"));
        Self::start_as(launcher, url, lease)
    }

    /// What an actor says that cannot get at its store.
    pub(crate) fn try_start_through(mut launcher: Command, url: &str) -> String {
        launcher.arg(std::env::current_exe().expect("a running program has a file"));
        Self::spawn(launcher, url, Duration::from_secs(30)).answer()
    }

    fn start_as(command: Command, url: &str, lease: Duration) -> Self {
        let mut actor = Self::spawn(command, url, lease);
        assert_eq!(actor.answer(), "ready");
        actor
    }

    fn spawn(mut command: Command, url: &str, lease: Duration) -> Self {
        let mut child = command
            .args(["--exact", "actor::play", "--nocapture", "--test-threads=1"])
            .env(URL, url)
            .env(LEASE, lease.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, input, output }
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }

    /// Sends a command.
    pub(crate) fn tell(&mut self, command: &str) {
        let input = self.input.as_mut().expect("open until the end");
        writeln!(input, "{command}").expect("the actor reads");
    }

    /// Waits for an answer.
    pub(crate) fn answer(&mut self) -> String {
        loop {
            let line = self.output.next().expect("the actor lives").expect("the actor writes text");
            // The rest is what the test harness of the other process has to say.
            if let Some(answer) = line.rsplit_once(MARK) {
                return answer.1.to_owned();
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("our own child takes signals");
    }

    /// How long processors have worked for it, in steps of a hundredth of a second.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("the system tells about our own child");
        // The name may have spaces in it. After it: the state, ten numbers, then user and system time.
        let numbers = stat[stat.rfind(')').expect("a name in brackets") + 1..].split_whitespace();
        let ticks = numbers.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child ends");
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Not a test when it runs among the others: only the part to play in the other process.
#[test]
fn play() {
    let Ok(url) = std::env::var(URL) else { return };
    let lease = std::env::var(LEASE).expect("set together").parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut builder = Client::builder(&url).lease(Duration::from_millis(lease));
    if let Ok(waiter_ttl) = std::env::var(WAITER_TTL) {
        builder = builder.waiter_ttl(Duration::from_millis(waiter_ttl.parse().expect("a number")));
    }
    let client = match runtime.block_on(builder.connect()) {
        Ok(client) => client,
        Err(error) => return say(&format!("error {error}")),
    };
    let mut guard = None;
    let mut kept = Vec::new();
    say("ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        if words == ["quit"] {
            break;
        }
        let answer = runtime.block_on(obey(&client, &words, &mut guard, &mut kept));
        say(&answer);
    }
    drop(guard);
    runtime.block_on(client.close());
}

async fn obey(
    client: &Client,
    words: &[&str],
    guard: &mut Option<Guard>,
    kept: &mut Vec<Guard>,
) -> String {
    match words {
        ["lock", name, rest @ ..] => {
            let mut options = Options::new();
            if let [lease_ms] = rest {
                options = options.lease(Duration::from_millis(lease_ms.parse().unwrap()));
            }
            match client.lock(name).with(options).lock().await {
                Ok(held) => format!("held {}", guard.insert(held).token()),
                Err(error) => format!("error {error}"),
            }
        }
        ["try", name] => match client.lock(name).try_lock().await {
            Ok(Some(held)) => format!("held {}", guard.insert(held).token()),
            Ok(None) => "busy".to_owned(),
            Err(error) => format!("error {error}"),
        },
        ["is_held"] => guard.as_ref().is_some_and(Guard::is_held).to_string(),
        ["wait_lost"] => guard.as_ref().unwrap().lost().await.to_string(),
        ["release"] => match guard.take().unwrap().release().await {
            Ok(_) => "released".to_owned(),
            Err(error) => format!("lost {error}"),
        },
        ["loop", name, file, rounds] => {
            for _ in 0..rounds.parse().unwrap() {
                let held = client.lock(name).lock().await.unwrap();
                let number: u64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
                std::fs::write(file, (number + 1).to_string()).unwrap();
                held.release().await.unwrap();
            }
            "done".to_owned()
        }
        ["keep", name] => match client.lock(name).try_lock().await {
            Ok(held) => {
                kept.extend(held);
                "kept".to_owned()
            }
            Err(error) => format!("error {error}"),
        },
        ["fair", name, count] => {
            for _ in 0..count.parse().unwrap() {
                let lock = client.fair_lock(name);
                tokio::spawn(async move {
                    match lock.lock().await {
                        Ok(held) => {
                            say("served");
                            held.release().await.ok();
                        }
                        Err(error) => say(&format!("error {error}")),
                    }
                });
            }
            "asked".to_owned()
        }
        ["fill", file] => {
            let mut file = std::fs::File::create(file).unwrap();
            loop {
                if let Err(error) = file.write_all(&[0; 512]) {
                    break format!("full {error}");
                }
            }
        }
        ["remove", file] => {
            std::fs::remove_file(file).unwrap();
            "removed".to_owned()
        }
        _ => panic!("unknown command {words:?}"),
    }
}

fn say(answer: &str) {
    println!("{MARK}{answer}");
    std::io::stdout().flush().unwrap();
}

const URL: &str = "FAIRLOCK_ACTOR_URL";
const LEASE: &str = "FAIRLOCK_ACTOR_LEASE_MS";
const WAITER_TTL: &str = "FAIRLOCK_ACTOR_WAITER_TTL_MS";
const MARK: &str = "actor> ";
