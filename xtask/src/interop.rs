//! `cargo xtask interop`: the real Redisson beside fairlock.

use std::fs;
use std::process::{Command, ExitCode};

use crate::servers::{self, SERVERS_VARIABLE};
use crate::{Failure, cargo, download, install, pass_on, repository_root, target_folder};

/// Builds the Java program in both versions, and runs the scenarios on both servers.
pub(crate) fn run(args: &[String]) -> Result<ExitCode, Failure> {
    let (flags, words): (Vec<&String>, Vec<&String>) =
        args.iter().partition(|arg| arg.starts_with('-'));
    if flags.iter().any(|flag| *flag != "--record") {
        return Err(Failure::Usage);
    }
    install::programs(&[&install::JAVA, &install::MAVEN])?;
    let built: Vec<String> = PROFILES.into_iter().map(build).collect::<Result<_, _>>()?;
    let found = [servers::on_path_or_installed()?, download::valkey()?];
    servers::print(&found);

    let mut tests = cargo();
    tests.args(["test", "--package", "fairlock-cli", "--test", "interop", "--"]).args(&words);
    tests.env(SERVERS_VARIABLE, servers::as_variable(&found));
    tests.env(REDISSON_VARIABLE, built.join(","));
    if !flags.is_empty() {
        tests.env(RECORD_VARIABLE, "1");
    }
    pass_on(tests)
}

/// Builds one version; says which it is and where, as the testkit reads it.
fn build(profile: &str) -> Result<String, String> {
    let out = target_folder().join("interop");
    let pom = repository_root().join("interop/redisson/pom.xml");
    let text = fs::read_to_string(&pom).map_err(|error| format!("{}: {error}", pom.display()))?;
    let version = version_of(profile, &text)
        .ok_or_else(|| format!("{} has no version in profile {profile}", pom.display()))?;
    println!("$ mvn -P {profile} process-classes  # Redisson {version}");
    let status = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "-P", profile, "--file"])
        .arg(&pom)
        .arg(format!("-Dout={}", out.display()))
        .arg("process-classes")
        .status()
        .map_err(|error| format!("cannot run mvn: {error}"))?;
    if !status.success() {
        return Err(format!("mvn failed for Redisson {version}: {status}"));
    }
    Ok(format!("{version}={}", out.join(format!("redisson-{version}")).display()))
}

/// The version of Redisson that a profile of the project stands for.
fn version_of<'a>(profile: &str, pom: &'a str) -> Option<&'a str> {
    let rest = pom.split_once(&format!("<id>{profile}</id>"))?.1;
    Some(rest.split_once("<redisson.version>")?.1.split_once("</redisson.version>")?.0)
}

const PROFILES: [&str; 2] = ["new", "old"];
/// Tells the tests which versions there are.
const REDISSON_VARIABLE: &str = "FAIRLOCK_REDISSON";
const RECORD_VARIABLE: &str = "FAIRLOCK_RECORD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_a_version() {
        let pom = include_str!("../../interop/redisson/pom.xml");
        let versions = PROFILES.map(|profile| version_of(profile, pom).expect("a version"));
        assert!(versions[0].starts_with("4.") && versions[1].starts_with("3."), "{versions:?}");
        assert_eq!(version_of("other", pom), None);
    }
}
