//! The store: the shards of one directory, shared by all clients of this process.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::folder::{self, explain};
use super::format::Head;
use super::gate::Gate;
use super::shard::{Change, Shard};
use crate::error::{StoreError, StoreErrorKind};
use crate::ids::Name;
use crate::os;
use crate::time::{BootTime, Clock, ServerTime};

/// The locks of one directory, as this process sees them.
#[derive(Debug)]
pub(super) struct Store {
    folder: PathBuf,
    data: PathBuf,
    inode: u64,
    /// Entered only to open the store.
    gate: Gate,
    shards: Vec<Shard>,
    /// When the path was last seen to lead to the data, in boot time.
    followed_ns: AtomicU64,
    offset_us: u64,
}

impl Store {
    /// The store of a directory, shared by all clients of this process.
    pub(super) fn of(directory: &Path) -> Result<Arc<Self>, StoreError> {
        static OPEN: Mutex<Option<HashMap<PathBuf, Weak<Store>>>> = Mutex::new(None);
        let folder = folder::prepare(directory)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let stores = open.get_or_insert_default();
        stores.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = stores.get(&folder).and_then(Weak::upgrade).filter(|s| s.is_there()) {
            return Ok(store);
        }
        let store = Arc::new(Self::open(folder.clone())?);
        stores.insert(folder, Arc::downgrade(&store));
        Ok(store)
    }

    /// Where this boot's files are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the data is still the file that everybody else would open. A removed one is noticed
    /// at once, one that was moved away in a moment.
    pub(super) fn is_there(&self) -> bool {
        let now_ns = BootTime::now().0;
        let followed_ns = self.followed_ns.load(Ordering::Relaxed);
        if now_ns - followed_ns.min(now_ns) < FOLLOW_NS {
            return self.gate.is_linked();
        }
        let leads_here =
            fs::metadata(&self.data).is_ok_and(|metadata| metadata.ino() == self.inode);
        if leads_here {
            self.followed_ns.store(now_ns, Ordering::Relaxed);
        }
        leads_here
    }

    /// The store's time: the boot clock, on the scale of the calendar, so that tokens grow from one
    /// boot to the next.
    pub(super) fn now(&self) -> ServerTime {
        ServerTime(BootTime::now().0 / 1_000 + self.offset_us)
    }

    /// Runs a transaction on the shard of a place; `None` if another process is inside.
    pub(super) fn try_change<T>(
        &self,
        place: &Place,
        change: impl Fn(&mut Change<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.shards[place.shard()].try_change(self.now(), change)
    }

    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The error for a process that stays inside.
    pub(super) fn stuck(&self) -> StoreError {
        stuck(&self.folder, self.shards.iter().find_map(Shard::who_is_inside))
    }

    fn open(folder: PathBuf) -> Result<Self, StoreError> {
        let gate_path = folder.join("gate");
        let gate = Gate::open(&gate_path).map_err(|error| explain(&gate_path, error))?;
        // Two that open a new store at the same time must not both make it.
        let inside = gate.enter_patiently(&folder)?;
        let data = data_folder(&folder)?;
        let mut head = new_head();
        let mut shards = Vec::with_capacity(SHARDS);
        for number in 0..SHARDS {
            let (shard, found) = Shard::open(data.join(number.to_string()), head)?;
            shards.push(shard);
            head = found;
        }
        super::alive::bury_the_dead(&folder::clients(&folder))
            .map_err(|error| explain(&folder, error))?;
        drop(inside);
        let inode = fs::metadata(&data).map_err(|error| explain(&data, error))?.ino();
        let (followed_ns, offset_us) = (AtomicU64::new(0), head.offset_us);
        Ok(Self { folder, data, inode, gate, shards, followed_ns, offset_us })
    }
}

/// Where a lock is in the store. Keys of LMDB are short, names of locks are not.
pub(super) struct Place {
    pub(super) name: Name,
    pub(super) key: [u8; 20],
}

impl Place {
    pub(super) fn of(name: &Name) -> Self {
        let key = sha1_smol::Sha1::from(name.as_bytes()).digest().bytes();
        Self { name: name.clone(), key }
    }

    /// The number of the shard with this place.
    pub(super) fn shard(&self) -> usize {
        usize::from(self.key[0]) % SHARDS
    }
}

/// Which folder has the data. A new store has a new one: so one that was removed while it was open
/// can be made anew beside it, although LMDB opens a path only once at a time.
fn data_folder(folder: &Path) -> Result<PathBuf, StoreError> {
    let failed = |error| explain(folder, error);
    let pointer = folder.join("data");
    match fs::read_to_string(&pointer) {
        Ok(name) if folder.join(&name).is_dir() => return Ok(folder.join(name)),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(explain(&pointer, error)),
    }
    let name = format!("data-{}", os::new_uuid());
    fs::create_dir(folder.join(&name)).map_err(failed)?;
    let unfinished = folder.join("data.new");
    fs::write(&unfinished, &name).map_err(failed)?;
    fs::rename(&unfinished, &pointer).map_err(failed)?;
    Ok(folder.join(name))
}

fn new_head() -> Head {
    let wall = Clock::Os.wall();
    Head { offset_us: wall.0.saturating_sub(BootTime::now().0 / 1_000) }
}

/// The error for a process that stays inside a gate.
pub(super) fn stuck(folder: &Path, pid: Option<u32>) -> StoreError {
    StoreError::new(StoreErrorKind::Stuck { pid, path: folder.display().to_string() })
}

/// More than there are cores to run transactions at the same time, on most machines.
const SHARDS: usize = 4;
/// How often the path to the data is followed anew.
const FOLLOW_NS: u64 = 50_000_000;
