//! Other processes that lock, driven by lines of text.
//!
//! A peer reads `NUMBER THREAD COMMAND` and answers with `NUMBER MICROSECONDS ANSWER` when it is
//! done; it begins with the answer `ready` to command 0. The commands of one thread are executed one
//! after the other, those of different threads side by side.

use std::collections::HashMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// A process that locks. It ends with its handle.
#[derive(Debug)]
pub struct Peer {
    label: String,
    child: Child,
    input: Mutex<Input>,
    waiting: Waiting,
}

#[derive(Debug)]
struct Input {
    pipe: ChildStdin,
    last_number: u64,
}

type Waiting = Arc<Mutex<HashMap<u64, Sender<Answer>>>>;

/// What a peer has to say to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// When it said so, in microseconds on the wall clock.
    pub at_us: u64,
    /// What it said.
    pub text: String,
}

/// A command under way.
#[derive(Debug)]
pub struct Pending {
    what: String,
    answer: Receiver<Answer>,
}

impl Peer {
    /// Starts a program that behaves as described above, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// When it does not come up within a minute.
    pub fn start(label: &str, mut command: Command) -> Peer {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {label}: {error}"));
        let pipe = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let (sender, ready) = mpsc::channel();
        let waiting: Waiting = Arc::new(Mutex::new(HashMap::from([(0, sender)])));
        let hears = waiting.clone();
        thread::spawn(move || hand_out(output, &hears));
        let ready = Pending { what: format!("{label}: start"), answer: ready };
        assert_eq!(ready.answer().text, "ready");
        let input = Mutex::new(Input { pipe, last_number: 0 });
        Peer { label: label.to_owned(), child, input, waiting }
    }

    /// What to call it in messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Has a thread execute a command, and waits for the answer.
    ///
    /// # Panics
    ///
    /// When there is none within a minute.
    pub fn ask(&self, thread: &str, command: &str) -> Answer {
        self.begin(thread, command).answer()
    }

    /// Has a thread execute a command.
    ///
    /// # Panics
    ///
    /// When the peer is gone.
    pub fn begin(&self, thread: &str, command: &str) -> Pending {
        let (sender, answer) = mpsc::channel();
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        input.last_number += 1;
        let number = input.last_number;
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
        let what = format!("{}: {thread} {command}", self.label);
        writeln!(input.pipe, "{number} {thread} {command}")
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        Pending { what, answer }
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Panics
    ///
    /// When there is none within a minute, or the peer is gone.
    pub fn answer(self) -> Answer {
        let answer = self.answer.recv_timeout(PATIENCE);
        answer.unwrap_or_else(|error| panic!("{}: no answer: {error}", self.what))
    }

    /// The answer, if it is there.
    pub fn try_answer(&self) -> Option<Answer> {
        self.answer.try_recv().ok()
    }
}

fn hand_out(output: ChildStdout, waiting: &Waiting) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let mut parts = line.splitn(3, ' ');
        let number = parts.next().and_then(|number| number.parse().ok());
        let at_us = parts.next().and_then(|at| at.parse().ok());
        let (Some(number), Some(at_us), Some(text)) = (number, at_us, parts.next()) else {
            eprintln!("a peer said: {line}");
            continue;
        };
        let sender = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        if let Some(sender) = sender {
            sender.send(Answer { at_us, text: text.to_owned() }).ok();
        }
    }
    // Nobody will be answered any more.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// A version of Redisson that was built for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redisson {
    /// Such as `4.7.0`.
    pub version: String,
    folder: PathBuf,
}

impl Redisson {
    /// Every version in `FAIRLOCK_REDISSON` (`version=folder,version=folder`), which
    /// `cargo xtask interop` sets.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn all() -> Vec<Redisson> {
        let list = env::var(REDISSON_VARIABLE).unwrap_or_default();
        let versions = parse(&list);
        assert!(
            !versions.is_empty(),
            "no Redisson in {REDISSON_VARIABLE}: run cargo xtask interop"
        );
        versions
    }

    /// Starts a Java process with this Redisson. Times of zero stand for Redisson's own.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn start(&self, address: &str, watchdog: Duration, fair_wait: Duration) -> Peer {
        let path = |part: &str| Path::new(&self.folder).join(part).display().to_string();
        let mut java = Command::new("java");
        // Quick to start, and small: several of them run side by side.
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx192m"])
            .args(["-cp", &format!("{}:{}", path("classes"), path("lib/*")), "fairlock.Peer"])
            .args([address, &watchdog.as_millis().to_string(), &fair_wait.as_millis().to_string()]);
        Peer::start(&format!("Redisson {}", self.version), java)
    }
}

fn parse(list: &str) -> Vec<Redisson> {
    let parse_one = |entry: &str| {
        let (version, folder) = entry.split_once('=')?;
        Some(Redisson { version: version.to_owned(), folder: PathBuf::from(folder) })
    };
    list.split(',').filter_map(parse_one).collect()
}

/// Tells the tests which versions there are.
const REDISSON_VARIABLE: &str = "FAIRLOCK_REDISSON";
/// Far more than any command takes that is to be answered.
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Peer {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Peer::start("shell", command)
    }

    #[test]
    fn answers_find_their_commands() {
        let peer = shell(
            "echo 0 1 ready; read a; read b; \
             echo noise; echo ${b%% *} 7 second done; echo ${a%% *} 8 first; read c",
        );
        let (first, second) = (peer.begin("x", "one"), peer.begin("y", "two"));
        assert_eq!(second.answer(), Answer { at_us: 7, text: "second done".to_owned() });
        assert_eq!(first.answer().text, "first");
        assert_eq!(peer.begin("x", "three").try_answer(), None);
    }

    #[test]
    #[should_panic(expected = "no answer")]
    fn a_peer_that_is_gone_answers_nothing() {
        shell("echo 0 1 ready; read a").ask("x", "anything");
    }

    #[test]
    fn versions_and_folders() {
        let versions = parse("4.7.0=/a,3.43.0=/b");
        assert_eq!(versions[1], Redisson { version: "3.43.0".into(), folder: "/b".into() });
        assert!(parse("").is_empty());
    }
}
