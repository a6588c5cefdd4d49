//! What the operating system tells about this process. The only file that reads environment and
//! randomness.

use std::path::Path;

/// Where and what this process is, as others see it in the record of the holder.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) host: String,
    pub(crate) pid: u32,
    pub(crate) program: String,
}

impl Process {
    pub(crate) fn current() -> Self {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default();
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            program: program.to_string_lossy().into_owned(),
        }
    }
}

/// A random uuid.
pub(crate) fn new_uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Tells one boot of this machine from the next.
#[cfg(feature = "embedded")]
pub(crate) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    // Without one, leftovers of the boot before are told from the truth by their locks and leases.
    id.map_or_else(|_| "boot".to_owned(), |id| id.trim().to_owned())
}

/// A new client id: a random uuid marked as version 8, the mark of a fairlock client.
pub(crate) fn new_client_uuid() -> String {
    uuid::Uuid::new_v8(uuid::Uuid::new_v4().into_bytes()).to_string()
}

/// Whether a variable of the environment asks for more than the usual tests.
#[cfg(test)]
pub(crate) fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}
