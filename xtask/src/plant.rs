//! `cargo xtask plant`: plants known bugs in a copy of the tree, one at a time, and sees to it that
//! the tests find each of them. A test that cannot fail proves nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::servers::{self, SERVERS_VARIABLE};
use crate::tree::Tree;
use crate::{Failure, cargo, repository_root, target_folder};

/// A mistake that somebody could make.
struct Bug {
    what: &'static str,
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
    /// The tests, by a part of their names, that are to find it.
    found_by: &'static str,
}

/// Plants each bug, or those whose description contains the word given.
pub(crate) fn run(args: &[String]) -> Result<ExitCode, Failure> {
    let word = match args {
        [] => "",
        [word] => word,
        _ => return Err(Failure::Usage),
    };
    let found = vec![servers::on_path_or_installed()?];
    let nursery = Nursery::new(servers::as_variable(&found))?;
    let mut missed = 0;
    for bug in BUGS.iter().filter(|bug| bug.what.contains(word)) {
        let outcome = nursery.try_bug(bug)?;
        println!("{outcome:<9} {} ({})", bug.what, bug.found_by);
        missed += usize::from(outcome != "found");
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The copy that bugs grow in.
struct Nursery {
    servers: String,
    tree: PathBuf,
    target: PathBuf,
}

impl Nursery {
    fn new(servers: String) -> Result<Self, Failure> {
        let folder = target_folder().join("plant");
        let tree = folder.join("tree");
        for path in Tree::of_repository(repository_root())?.paths() {
            copy_if_changed(&repository_root().join(path), &tree.join(path))?;
        }
        Ok(Self { servers, tree, target: folder.join("target") })
    }

    fn try_bug(&self, bug: &Bug) -> Result<&'static str, Failure> {
        let path = self.tree.join(bug.file);
        let text = fs::read_to_string(&path).map_err(|error| explain(&path, &error))?;
        if text.matches(bug.right).count() != 1 {
            let Bug { file, right, .. } = bug;
            return Err(format!("{file} does not have exactly one {right:?}: mend the list").into());
        }
        if !self.tests_pass(bug)? {
            return Ok("NOT FAIR"); // The tests fail without the bug.
        }
        write(&path, &text.replacen(bug.right, bug.wrong, 1))?;
        let builds = self.status(bug, &["--no-run"])?;
        let passes = builds && self.tests_pass(bug)?;
        write(&path, &text)?;
        Ok(match (builds, passes) {
            (false, _) => "NO BUILD",
            (true, true) => "MISSED",
            (true, false) => "found",
        })
    }

    fn tests_pass(&self, bug: &Bug) -> Result<bool, Failure> {
        self.status(bug, &[])
    }

    fn status(&self, bug: &Bug, extra: &[&str]) -> Result<bool, Failure> {
        let mut tests: Command = cargo();
        tests.current_dir(&self.tree).args(["test", "--package", "fairlock", "--lib", "--test"]);
        tests.arg("it").args(extra).args(["--", bug.found_by]);
        tests.env("CARGO_TARGET_DIR", &self.target).env(SERVERS_VARIABLE, &self.servers);
        tests.stdout(Stdio::null()).stderr(Stdio::null());
        let status = tests.status().map_err(|error| format!("cannot run cargo: {error}"))?;
        Ok(status.success())
    }
}

fn copy_if_changed(from: &Path, to: &Path) -> Result<(), Failure> {
    let new = fs::read(from).map_err(|error| explain(from, &error))?;
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    let folder = to.parent().expect("a file lies in a folder");
    fs::create_dir_all(folder).map_err(|error| explain(folder, &error))?;
    fs::write(to, new).map_err(|error| Failure::from(explain(to, &error)))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::from(explain(path, &error)))
}

fn explain(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

const BUGS: &[Bug] = &[
    Bug {
        what: "an acquire that is sent again counts up instead of setting",
        file: "crates/fairlock/src/engine/redis/lua/acquire.lua",
        right: "== 1 then\n  return reply(HELD",
        wrong: "== 1 then\n  redis.call('HINCRBY', lock, owner, 1)\n  return reply(HELD",
        found_by: "scripts_and_model_agree",
    },
    Bug {
        what: "an acquire that is sent again counts up, seen from outside",
        file: "crates/fairlock/src/engine/redis/lua/acquire.lua",
        right: "== 1 then\n  return reply(HELD",
        wrong: "== 1 then\n  redis.call('HINCRBY', lock, owner, 1)\n  return reply(HELD",
        found_by: "faults::lost_reply",
    },
    Bug {
        what: "the script trusts the clock of the client",
        file: "crates/fairlock/src/engine/redis/lua/_reentrant.lua",
        right: "local now = now_us()",
        wrong: "local now = tonumber(ARGV[1]) - 2000000",
        found_by: "scripts_and_model_agree",
    },
    Bug {
        what: "a waiter that is dropped does not leave the line",
        file: "crates/fairlock/src/client/acquire.rs",
        right: "if let Some(waiter) = entry.line.leave(&self.owner) {",
        wrong: "if let Some(waiter) = None::<Waiter<Ticket>> {",
        found_by: "cancel",
    },
    Bug {
        what: "a first try that is dropped is not cleaned up after",
        file: "crates/fairlock/src/client/acquire.rs",
        right: "    let unfinished = Unfinished {",
        wrong: "    let unfinished = std::mem::ManuallyDrop::new(()); let _ = Unfinished {",
        found_by: "cancel",
    },
    Bug {
        what: "a hold is renewed after its release",
        file: "crates/fairlock/src/client/hold.rs",
        right: "            table.renewals.remove(&self.owner);\n            table.holds.remove",
        wrong: "            table.holds.remove",
        found_by: "nothing_is_renewed_after_its_release",
    },
    Bug {
        what: "the deadline of an acquire counts from the reply",
        file: "crates/fairlock/src/client/call.rs",
        right: "return Ok(Answered { reply, sent: copy.sent,",
        wrong: "return Ok(Answered { reply, sent: self.clock.now(),",
        found_by: "the_deadline_counts_from_the_request",
    },
    Bug {
        what: "the deadline of a renewal counts from the reply",
        file: "crates/fairlock/src/client/call.rs",
        right: "return Ok((items, copy.sent));",
        wrong: "return Ok((items, self.clock.now()));",
        found_by: "the_deadline_counts_from_the_request",
    },
    Bug {
        what: "a lost hold comes back to life",
        file: "crates/fairlock/src/protocol/renewal.rs",
        right: "        if now >= entry.sure_until {\n            return Some(Verdict::TooLate);\n        }\n",
        wrong: "",
        found_by: "late_news_change_nothing",
    },
    Bug {
        what: "a late request is carried out",
        file: "crates/fairlock/src/engine/redis/lua/_reentrant.lua",
        right: "return now > tonumber(expires_us)",
        wrong: "return false",
        found_by: "faults::late_request",
    },
];
