//! Installing `redis-server` with the system's package manager.

use std::process::{Command, Stdio};

use crate::servers::find_on_path;

/// Installs `redis-server`, or says with which command the user can.
pub(crate) fn redis_server() -> Result<(), String> {
    let manager = MANAGERS.iter().find(|manager| find_on_path(manager.program).is_some());
    let Some(manager) = manager else {
        return Err("redis-server is missing; install it and put it on the PATH".to_owned());
    };
    match Rights::of_this_user().prefix_for(manager) {
        Some(prefix) => manager.install(prefix),
        None => Err(format!("redis-server is missing; type:\n{}", manager.command_to_type())),
    }
}

struct Manager {
    program: &'static str,
    needs_root: bool,
    /// Arguments of each call, in order.
    calls: &'static [&'static [&'static str]],
}

impl Manager {
    fn install(&self, prefix: &[&str]) -> Result<(), String> {
        println!("redis-server is missing and will be installed.");
        for call in self.calls {
            let line: Vec<&str> = prefix.iter().copied().chain(self.words_of(call)).collect();
            println!("$ {}", line.join(" "));
            let status = Command::new(line[0])
                .args(&line[1..])
                .status()
                .map_err(|error| format!("cannot run {}: {error}", line[0]))?;
            if !status.success() {
                return Err(format!("`{}` failed: {status}", line.join(" ")));
            }
        }
        Ok(())
    }

    fn command_to_type(&self) -> String {
        let sudo = if self.needs_root { "sudo " } else { "" };
        let install = self.calls.last().expect("every manager has a call that installs");
        let words: Vec<&str> = self.words_of(install).collect();
        format!("{sudo}{}", words.join(" "))
    }

    fn words_of<'a>(&self, call: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
        std::iter::once(self.program).chain(call.iter().copied())
    }
}

/// What this user may do without being asked for a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    Root,
    Sudo,
    Nothing,
}

impl Rights {
    fn of_this_user() -> Rights {
        let id = Command::new("id").arg("-u").output();
        if id.is_ok_and(|output| output.stdout.trim_ascii() == b"0") {
            return Rights::Root;
        }
        let sudo = Command::new("sudo").args(["-n", "true"]).stderr(Stdio::null()).status();
        if sudo.is_ok_and(|status| status.success()) { Rights::Sudo } else { Rights::Nothing }
    }

    /// What to put before the manager's command, or None when it may not be run.
    fn prefix_for(self, manager: &Manager) -> Option<&'static [&'static str]> {
        match (self, manager.needs_root) {
            (Rights::Root, true) => Some(AS_ROOT),
            (Rights::Sudo, true) => Some(WITH_SUDO),
            (Rights::Nothing, true) => None,
            // Homebrew refuses to run as root.
            (Rights::Root, false) => None,
            (_, false) => Some(&[]),
        }
    }
}

/// Runlevel 1 keeps Debian from starting a server at once: only the program is wanted.
const AS_ROOT: &[&str] = &["env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive"];
const WITH_SUDO: &[&str] = &["sudo", "-n", "env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive"];

const MANAGERS: &[Manager] = &[
    Manager {
        program: "apt-get",
        needs_root: true,
        calls: &[&["update"], &["install", "-y", "redis-server"]],
    },
    Manager { program: "dnf", needs_root: true, calls: &[&["install", "-y", "redis"]] },
    Manager { program: "apk", needs_root: true, calls: &[&["add", "redis"]] },
    Manager { program: "brew", needs_root: false, calls: &[&["install", "redis"]] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_sudo_may_install_and_others_are_told_the_command() {
        let apt = &MANAGERS[0];
        assert_eq!(Rights::Root.prefix_for(apt), Some(AS_ROOT));
        assert_eq!(Rights::Sudo.prefix_for(apt), Some(WITH_SUDO));
        assert_eq!(Rights::Nothing.prefix_for(apt), None);
        assert_eq!(apt.command_to_type(), "sudo apt-get install -y redis-server");
    }

    #[test]
    fn homebrew_needs_no_rights() {
        let brew = MANAGERS.iter().find(|manager| manager.program == "brew").expect("listed");
        assert_eq!(Rights::Nothing.prefix_for(brew), Some(&[][..]));
        assert_eq!(brew.command_to_type(), "brew install redis");
    }
}
