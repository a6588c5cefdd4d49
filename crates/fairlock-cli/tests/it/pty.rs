//! A pseudo-terminal with a shell behind it, and a person who types.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use fairlock_testkit::eventually;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::BOUND;
use crate::cli::BINARY;
use crate::stores::Store;

/// An interactive shell. `$F` is the binary.
#[derive(Debug)]
pub(crate) struct Shell {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    seen: usize,
    shell: Child,
}

impl Shell {
    pub(crate) fn start(store: &Store) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("there are pseudo-terminals");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        // As wide as no status line is.
        let size = Winsize { ws_row: 50, ws_col: 300, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).expect("it has a size");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NOCTTY.bits().cast_signed())
            .open(name.to_str().expect("the name is UTF-8"))
            .expect("it can be opened");
        let copy = || Stdio::from(slave.try_clone().expect("it can be duplicated"));
        // setsid makes a session of its own and this its controlling terminal.
        let shell = Command::new("setsid")
            .args(["--ctty", "sh", "-i"])
            .env("PS1", "\n$ ")
            .env("F", BINARY)
            .env("FAIRLOCK_STORE", store.address())
            .env_remove("ENV")
            .stdin(copy())
            .stdout(copy())
            .stderr(copy())
            .spawn()
            .expect("setsid starts");
        let mut output = File::from(master);
        let keyboard = output.try_clone().expect("it can be duplicated");
        let screen = Arc::<Mutex<String>>::default();
        let shown = screen.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends with an error when the last one who had it open has gone.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown
                    .lock()
                    .expect(NOT_POISONED)
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut shell = Self { keyboard, screen, seen: 0, shell };
        shell.expect("$ ");
        shell
    }

    /// Types keys.
    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Types a line. What is typed is shown as well, so a command whose output is expected has to
    /// be written otherwise: `echo do''ne`.
    pub(crate) fn type_line(&mut self, line: &str) {
        self.type_keys(&format!("{line}\n"));
    }

    /// Waits until the screen shows this, after what was expected last; gives what is between.
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let mut found = None;
        eventually(BOUND, text, || {
            let screen = self.screen.lock().expect(NOT_POISONED);
            found = screen[self.seen..].find(text).map(|start| self.seen + start);
            found.is_some()
        });
        let start = found.expect("it was found just now");
        let screen = self.screen.lock().expect(NOT_POISONED);
        let before = screen[self.seen..start].to_owned();
        self.seen = start + text.len();
        before
    }

    /// The number that follows `text`.
    pub(crate) fn expect_number(&mut self, text: &str) -> i32 {
        self.expect(text);
        let number = self.expect("\r\n");
        number.trim().parse().unwrap_or_else(|_| panic!("{number:?} is no number"))
    }

    /// The code of the last command, from a shell that has its prompt back.
    pub(crate) fn expect_code(&mut self, code: i32) {
        self.type_line("echo \"code=$?.\"");
        self.expect(&format!("code={code}."));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if thread::panicking() {
            let screen = self.screen.lock().map(|screen| screen.escape_debug().to_string());
            eprintln!("the screen: {}", screen.unwrap_or_default().replace("\\n", "\n"));
        }
        self.shell.kill().ok();
        self.shell.wait().ok();
    }
}

const NOT_POISONED: &str = "the reader does not panic";
pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_Z: &str = "\x1a";
