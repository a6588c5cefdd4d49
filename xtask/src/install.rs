//! Installing programs with the system's package manager.

use std::process::{Command, Stdio};

use crate::servers::find_on_path;

/// Sees to it that there are these programs: installs what is missing, or says with which command
/// the user can.
pub(crate) fn programs(needed: &[&Needed]) -> Result<(), String> {
    for needed in needed.iter().filter(|needed| find_on_path(needed.program).is_none()) {
        needed.install()?;
    }
    Ok(())
}

/// A program, and the packages that bring it.
#[derive(Debug)]
pub(crate) struct Needed {
    program: &'static str,
    apt: &'static str,
    dnf: &'static str,
    apk: &'static str,
    brew: &'static str,
}

pub(crate) const REDIS_SERVER: Needed = Needed {
    program: "redis-server",
    apt: "redis-server",
    dnf: "redis",
    apk: "redis",
    brew: "redis",
};

pub(crate) const JAVA: Needed = Needed {
    program: "javac",
    apt: "default-jdk-headless",
    dnf: "java-latest-openjdk-devel",
    apk: "openjdk17",
    brew: "openjdk",
};

pub(crate) const MAVEN: Needed =
    Needed { program: "mvn", apt: "maven", dnf: "maven", apk: "maven", brew: "maven" };

impl Needed {
    fn install(&self) -> Result<(), String> {
        let program = self.program;
        let manager = MANAGERS.iter().find(|manager| find_on_path(manager.program).is_some());
        let Some(manager) = manager else {
            return Err(format!("{program} is missing; install it and put it on the PATH"));
        };
        let package = (manager.package)(self);
        let Some(prefix) = Rights::of_this_user().prefix_for(manager) else {
            let command = manager.command_to_type(package);
            return Err(format!("{program} is missing; type:\n{command}"));
        };
        println!("{program} is missing and will be installed.");
        manager.install(prefix, package)?;
        match find_on_path(program) {
            Some(_) => Ok(()),
            None => Err(format!("{package} was installed, but {program} is not on the PATH")),
        }
    }
}

struct Manager {
    program: &'static str,
    needs_root: bool,
    /// What to call before the first installation.
    update: Option<&'static str>,
    install: &'static [&'static str],
    package: fn(&Needed) -> &'static str,
}

impl Manager {
    fn install(&self, prefix: &[&str], package: &str) -> Result<(), String> {
        if let Some(update) = self.update {
            self.call(prefix, &[update])?;
        }
        self.call(prefix, &[self.install, &[package]].concat())
    }

    fn call(&self, prefix: &[&str], args: &[&str]) -> Result<(), String> {
        let line = [prefix, &[self.program], args].concat();
        println!("$ {}", line.join(" "));
        let status = Command::new(line[0])
            .args(&line[1..])
            .status()
            .map_err(|error| format!("cannot run {}: {error}", line[0]))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("`{}` failed: {status}", line.join(" "))),
        }
    }

    fn command_to_type(&self, package: &str) -> String {
        let sudo = if self.needs_root { "sudo " } else { "" };
        format!("{sudo}{} {} {package}", self.program, self.install.join(" "))
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
        update: Some("update"),
        install: &["install", "-y"],
        package: |needed| needed.apt,
    },
    Manager {
        program: "dnf",
        needs_root: true,
        update: None,
        install: &["install", "-y"],
        package: |needed| needed.dnf,
    },
    Manager {
        program: "apk",
        needs_root: true,
        update: None,
        install: &["add"],
        package: |needed| needed.apk,
    },
    Manager {
        program: "brew",
        needs_root: false,
        update: None,
        install: &["install"],
        package: |needed| needed.brew,
    },
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
        let package = (apt.package)(&REDIS_SERVER);
        assert_eq!(apt.command_to_type(package), "sudo apt-get install -y redis-server");
    }

    #[test]
    fn homebrew_needs_no_rights() {
        let brew = MANAGERS.iter().find(|manager| manager.program == "brew").expect("listed");
        assert_eq!(Rights::Nothing.prefix_for(brew), Some(&[][..]));
        assert_eq!(brew.command_to_type((brew.package)(&MAVEN)), "brew install maven");
    }
}
