//! The folder of a store: found or made, and checked for what would make locks unreliable.
//!
//! ```text
//! DIR/                        mode 0700
//!   <boot id>/                one per boot of the machine: after a reboot nobody holds anything
//!     gate                    who may open the store
//!     data                    says which of the folders below it is
//!     data-<uuid>/<shard>/    some of the locks:
//!       gate                  who may touch them
//!       data.mdb              the locks themselves
//!     clients/<uuid>.alive    locked while that client lives
//!     clients/<uuid>.sock     where it hears
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::{StoreError, StoreErrorKind};
use crate::os;

/// Makes the folder of this boot and says where it is.
pub(super) fn prepare(directory: &Path) -> Result<PathBuf, StoreError> {
    make(directory)?;
    let directory = directory.canonicalize().map_err(|error| explain(directory, error))?;
    refuse_network(&directory)?;
    let folder = directory.join(os::boot_id());
    make(&folder)?;
    make(&clients(&folder))?;
    forget_earlier_boots(&directory, &folder);
    Ok(folder)
}

/// Where the clients of a store show that they are alive.
pub(super) fn clients(folder: &Path) -> PathBuf {
    folder.join("clients")
}

/// What an error of the file system means for the user.
pub(super) fn explain(path: &Path, error: io::Error) -> StoreError {
    let path = path.display().to_string();
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => StoreErrorKind::NoRights { path },
        io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::ReadOnlyFileSystem { path },
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreErrorKind::DiskFull { path }
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            StoreErrorKind::NotAStore { path }
        }
        _ => StoreErrorKind::FileSystem { path },
    };
    StoreError::with_source(kind, error)
}

fn make(folder: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| explain(folder, error))
}

/// Locks and memory maps of two machines do not agree over a network.
fn refuse_network(directory: &Path) -> Result<(), StoreError> {
    #[cfg(target_os = "linux")]
    {
        let stat =
            rustix::fs::statfs(directory).map_err(|error| explain(directory, error.into()))?;
        if NETWORK_FILE_SYSTEMS.contains(&(stat.f_type as u64 & 0xffff_ffff)) {
            let path = directory.display().to_string();
            return Err(StoreError::new(StoreErrorKind::NetworkFileSystem { path }));
        }
    }
    Ok(())
}

/// Folders of earlier boots hold nothing that is true any more. Best effort: they do no harm.
fn forget_earlier_boots(directory: &Path, current: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let is_a_boot = path.join("gate").exists() && path.join("clients").is_dir();
        if path != current && is_a_boot {
            fs::remove_dir_all(&path).ok();
        }
    }
}

/// NFS, SMB 1, CIFS, SMB 2, 9P, AFS, Ceph, Coda, Lustre, OCFS2, GFS2.
#[cfg(target_os = "linux")]
const NETWORK_FILE_SYSTEMS: [u64; 11] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0x7375_7245,
    0x0bd0_0bd0,
    0x7461_636f,
    0x0116_1970,
];
