//! What Java's fair lock does to the keys, step by step.
//!
//! The files in `interop/redisson/recorded` are made here (`cargo xtask interop --record`), and each
//! run compares them with what Redisson does now. Owners have letters, times are milliseconds since
//! the first call.
//!
//! ```text
//! step STEP
//!   call try OWNER wait MS lease MS now MS at MS     a script of Redisson: `now` is Java's clock,
//!   call plain OWNER lease MS wait MS now MS at MS   `at` the server's
//!   call leave OWNER wait MS at MS
//!   call unlock OWNER lease MS now MS at MS
//!   call force now MS at MS
//!   tell OWNER                                       a message on this waiter's channel
//!   hash OWNER COUNT ttl MS                          the keys when all is quiet again, and when
//!   queue OWNER...                                   that was
//!   score OWNER MS
//!   quiet at MS
//! ```

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use fairlock_testkit::{Peer, Pending};

use crate::stage::{Part, Stage, ms, pass};
use crate::table::Scenario;

pub(crate) const SCENARIOS: [Scenario; 1] =
    [Scenario::on_first_server("recording of Java's fair lock", record_and_compare)];

fn record_and_compare(stage: &Stage) -> String {
    let text = record(stage);
    let file = file(&stage.redisson.version);
    if std::env::var_os(RECORD).is_some() {
        fs::create_dir_all(file.parent().expect("a folder")).unwrap();
        fs::write(&file, &text).unwrap();
        return format!("written to {}", file.display());
    }
    let recorded = fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!("{}: {error}; cargo xtask interop --record", file.display())
    });
    assert_eq!(without_times(&text), without_times(&recorded), "Redisson does something new");
    format!("{} steps as recorded", text.matches("step ").count())
}

fn file(version: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(format!("interop/redisson/recorded/fair-{version}.txt"))
}

/// What two recordings have in common. A waiter may look again at any time, so only the first of
/// several equal calls counts.
fn without_times(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut step = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with("step ") {
            lines.append(&mut step);
        }
        let kept = match line.trim_start().split(' ').collect::<Vec<_>>().as_slice() {
            ["call", verb, rest @ ..] => {
                let end = rest.iter().position(|word| matches!(*word, "now" | "at"));
                format!("call {verb} {}", rest[..end.unwrap_or(rest.len())].join(" "))
            }
            ["hash", owner, count, ..] => format!("hash {owner} {count}"),
            ["score", owner, _] => format!("score {owner}"),
            ["quiet", ..] => continue,
            _ => line.to_owned(),
        };
        if !step.contains(&kept) {
            step.push(kept);
        }
    }
    lines.append(&mut step);
    lines.join("\n")
}

fn record(stage: &Stage) -> String {
    let name = stage.new_name("recorded");
    let mut recorder = Recorder::new(stage, &name);
    let [one, two] = &stage.java;
    let part = |peer| Part::new(stage, peer, "fair", &name);
    let queued = |count| stage.await_queued(&name, count);
    let held = |waiting: Pending| assert_eq!(waiting.answer().text, "held");

    let (a, b, c, d) = (part(one), part(one), part(two), part(two));
    assert_eq!(a.answer("lock", "60000").text, "held");
    recorder.step("a free lock is taken");
    let b_waits = b.begin("trylock", "20000 61000");
    queued(1);
    recorder.step("one queues, listens and tries again");
    let c_waits = c.begin("trylock", "30000 62000");
    queued(2);
    recorder.step("one queues behind it");
    let d_waits = d.begin("trylock", "1500 63000");
    queued(3);
    recorder.step("one queues who will not wait for long");
    part(two).does("trylock", "busy");
    recorder.step("one tries without waiting");
    assert_eq!(d_waits.answer().text, "busy");
    recorder.step("the one in a hurry leaves");
    assert_eq!(a.answer("lock", "60000").text, "held");
    recorder.step("the holder enters again");
    a.does("unlock", "released");
    recorder.step("and gives that back");
    a.does("unlock", "released");
    held(b_waits);
    recorder.step("the lock comes free, and the head of the queue takes it");
    let e = part(one);
    let e_waits = e.begin("trylock", "20000 2000");
    queued(2);
    recorder.step("one more queues");
    part(two).does("force", "true");
    held(c_waits);
    recorder.step("the lock is broken, the queue stays, its head takes the lock");
    c.does("unlock", "released");
    held(e_waits);
    recorder.step("the next one takes it for a short time");
    let f = part(two);
    let f_waits = f.begin("trylock", "21000 64000");
    queued(1);
    recorder.step("one queues behind it");
    held(f_waits);
    recorder.step("the lease has ended, the next one takes it");
    f.does("unlock", "released");
    recorder.step("the last one gives it back");
    stale_head(stage, &mut recorder, &name, two);
    recorder.finish()
}

/// A waiter that dies is passed over when its time is over.
fn stale_head(stage: &Stage, recorder: &mut Recorder<'_>, name: &str, survivor: &Peer) {
    let victim = stage.another_java();
    let holder = Part::new(stage, survivor, "fair", name);
    assert_eq!(holder.answer("lock", "1200").text, "held");
    let _dies = Part::new(stage, &victim, "fair", name).begin("trylock", "1000 60000");
    stage.await_queued(name, 1);
    recorder.step("one queues behind a short lease");
    victim.kill();
    pass(ms(2_600));
    let next = holder.sibling(stage);
    assert_eq!(next.answer("trylock", "20000 60000").text, "held");
    recorder.step("it has died; when its time is over the next one is served");
    next.does("unlock", "released");
    recorder.step("nothing is left");
}

struct Recorder<'a> {
    stage: &'a Stage,
    name: String,
    monitor: Receiver<String>,
    letters: HashMap<String, String>,
    zero_ms: Option<i64>,
    last_call: String,
    text: String,
}

impl<'a> Recorder<'a> {
    fn new(stage: &'a Stage, name: &str) -> Self {
        let (sender, monitor) = channel();
        let mut stream = TcpStream::connect(("127.0.0.1", stage.server.port())).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "+OK");
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let text = format!(
            "# What the fair lock of Redisson {} does to the keys; see tests/interop/recording.rs.\n",
            stage.redisson.version
        );
        Self {
            stage,
            name: name.to_owned(),
            monitor,
            letters: HashMap::new(),
            zero_ms: None,
            last_call: String::new(),
            text,
        }
    }

    /// Writes down what has happened since the last step, once all is quiet.
    fn step(&mut self, what: &str) {
        pass(ms(60));
        writeln!(self.text, "step {what}").unwrap();
        while let Ok(line) = self.monitor.try_recv() {
            if let Some(call) = self.call(&line) {
                writeln!(self.text, "  {call}").unwrap();
            }
        }
        self.snapshot();
    }

    fn finish(self) -> String {
        self.text
    }

    /// A call of a script, or a message, if that is what the line is about.
    fn call(&mut self, line: &str) -> Option<String> {
        let (head, words) = (line.split(' ').next()?, words_of(line));
        let at = (head.trim_start_matches('+').parse::<f64>().ok()? * 1_000.0) as i64;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let is_ours = words.iter().any(|word| word.contains(&self.name));
        if !is_ours {
            return None;
        }
        match words.as_slice() {
            [command, channel, _] if command.eq_ignore_ascii_case("publish") => {
                let owner = channel.split_once("}:")?.1;
                Some(format!("tell {}", self.letter(owner)))
            }
            [command, script, count, rest @ ..]
                if command.to_ascii_uppercase().starts_with("EVAL") =>
            {
                let (keys, args) = rest.split_at(count.parse().ok()?);
                // A script that is not known yet is sent again.
                let again = format!("{args:?}");
                if std::mem::replace(&mut self.last_call, again.clone()) == again {
                    return None;
                }
                let call = self.classify(keys, args, at);
                assert!(call.is_some(), "not known: {script} {keys:?} {args:?}");
                call
            }
            _ => None,
        }
    }

    fn classify(&mut self, keys: &[&str], args: &[&str], at: i64) -> Option<String> {
        let time = |text: &str| text.parse::<i64>().ok().filter(|ms| *ms > 1_000_000_000_000);
        match (keys, args) {
            ([_, _, _], [lease, owner, wait, now]) if time(now).is_some() => {
                let now = self.since(time(now)?);
                let (owner, at) = (self.letter(owner), self.since(at));
                Some(format!("call try {owner} wait {wait} lease {lease} now {now} at {at}"))
            }
            ([_, _, _], [lease, owner, now, wait]) => {
                let now = self.since(time(now)?);
                let (owner, at) = (self.letter(owner), self.since(at));
                Some(format!("call plain {owner} lease {lease} wait {wait} now {now} at {at}"))
            }
            ([_, _], [owner, wait]) => {
                let (owner, at) = (self.letter(owner), self.since(at));
                Some(format!("call leave {owner} wait {wait} at {at}"))
            }
            ([_, _, _, _, _], [_, lease, owner, now, ..]) => {
                let now = self.since(time(now)?);
                let (owner, at) = (self.letter(owner), self.since(at));
                Some(format!("call unlock {owner} lease {lease} now {now} at {at}"))
            }
            ([_, _, _, _], [_, now, ..]) => {
                let now = self.since(time(now)?);
                Some(format!("call force now {now} at {}", self.since(at)))
            }
            _ => None,
        }
    }

    fn snapshot(&mut self) {
        let queue = format!("redisson_lock_queue:{{{}}}", self.name);
        let scores = format!("redisson_lock_timeout:{{{}}}", self.name);
        let holds: Vec<(String, u64)> = self.stage.query(&["HGETALL", &self.name]);
        let ttl: i64 = self.stage.query(&["PTTL", &self.name]);
        for (owner, count) in holds {
            let owner = self.letter(&owner);
            writeln!(self.text, "  hash {owner} {count} ttl {ttl}").unwrap();
        }
        let members: Vec<String> = self.stage.query(&["LRANGE", &queue, "0", "-1"]);
        let letters: Vec<String> = members.iter().map(|member| self.letter(member)).collect();
        writeln!(self.text, "{}", format!("  queue {}", letters.join(" ")).trim_end()).unwrap();
        let scores: Vec<(String, f64)> =
            self.stage.query(&["ZRANGE", &scores, "0", "-1", "WITHSCORES"]);
        for (owner, score) in scores {
            let (owner, score) = (self.letter(&owner), self.since(score as i64));
            writeln!(self.text, "  score {owner} {score}").unwrap();
        }
        let (seconds, micros): (i64, i64) = self.stage.query(&["TIME"]);
        let at = self.since(seconds * 1_000 + micros / 1_000);
        writeln!(self.text, "  quiet at {at}").unwrap();
    }

    /// Milliseconds since the first call.
    fn since(&mut self, ms: i64) -> i64 {
        ms - *self.zero_ms.get_or_insert(ms)
    }

    fn letter(&mut self, owner: &str) -> String {
        let next = char::from(b'A' + self.letters.len() as u8).to_string();
        self.letters.entry(owner.to_owned()).or_insert(next).clone()
    }
}

/// The words of a line of MONITOR; they stand in quotes.
fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(next) = chars.next() {
        match (&mut word, next) {
            (None, '"') => word = Some(String::new()),
            (None, _) => {}
            (Some(_), '"') => words.extend(word.take()),
            (Some(word), '\\') => word.extend(chars.next()),
            (Some(word), other) => word.push(other),
        }
    }
    words
}

const RECORD: &str = "FAIRLOCK_RECORD";
