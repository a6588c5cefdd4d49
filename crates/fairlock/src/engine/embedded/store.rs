//! The store: one environment per directory and process, and transactions inside its gate.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, MdbError, RwTxn};

use super::folder::{self, explain};
use super::format::{Entry, Head};
use super::gate::{Gate, Inside};
use super::open::open;
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
    gate: Gate,
    env: Env,
    locks: Locks,
    offset_us: u64,
}

/// The only table there is.
type Locks = Database<'static, Bytes, Bytes>;

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

    /// Whether the data is still the file that everybody else would open.
    pub(super) fn is_there(&self) -> bool {
        fs::metadata(&self.data).is_ok_and(|metadata| metadata.ino() == self.inode)
    }

    /// The store's time: the boot clock, on the scale of the calendar, so that tokens grow from one
    /// boot to the next.
    pub(super) fn now(&self) -> ServerTime {
        ServerTime(BootTime::now().0 / 1_000 + self.offset_us)
    }

    /// Runs a transaction; `None` if another process is inside.
    pub(super) fn try_change<T>(
        &self,
        change: impl Fn(&mut Change<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let Some(inside) = self.enter()? else { return Ok(None) };
        match self.change(&inside, &change) {
            Err(error) if *error.kind() == StoreErrorKind::StoreFull => {
                self.sweep(&inside)?;
                self.change(&inside, &change).map(Some)
            }
            result => result.map(Some),
        }
    }

    /// The names of all locks; `None` if another process is inside.
    pub(super) fn try_names(&self) -> Result<Option<Vec<Name>>, StoreError> {
        let Some(_inside) = self.enter()? else { return Ok(None) };
        let txn = self.env.read_txn().map_err(|error| self.translate(error))?;
        let mut names = Vec::new();
        for item in self.locks.iter(&txn).map_err(|error| self.translate(error))? {
            let (key, value) = item.map_err(|error| self.translate(error))?;
            if key != HEAD {
                names.push(Entry::decode(value).ok_or_else(|| self.damaged())?.name);
            }
        }
        Ok(Some(names))
    }

    /// The error for a process that stays inside.
    pub(super) fn stuck(&self) -> StoreError {
        let pid = self.gate.who_is_inside();
        let path = self.folder.display().to_string();
        StoreError::new(StoreErrorKind::Stuck { pid, path })
    }

    fn open(folder: PathBuf) -> Result<Self, StoreError> {
        let gate_path = folder.join("gate");
        let gate = Gate::open(&gate_path).map_err(|error| explain(&gate_path, error))?;
        // Two that open a new store at the same time must not both make it.
        let inside = enter_patiently(&gate, &folder)?;
        let data_folder = data_folder(&folder)?;
        let data = data_folder.join("data.mdb");
        check_length(&data, 0)?;
        let env = open(&data_folder).map_err(|error| translate(&folder, error))?;
        let last_page = env.info().last_page_number as u64;
        check_length(&data, (last_page + 1) * PAGE_BYTES)?;
        let (locks, offset_us) = head(&env, &folder)?;
        super::alive::bury_the_dead(&folder::clients(&folder))
            .map_err(|error| explain(&folder, error))?;
        drop(inside);
        let inode = fs::metadata(&data).map_err(|error| explain(&data, error))?.ino();
        Ok(Self { folder, data, inode, gate, env, locks, offset_us })
    }

    fn enter(&self) -> Result<Option<Inside<'_>>, StoreError> {
        self.gate.try_enter().map_err(|error| explain(&self.folder, error))
    }

    fn change<T>(
        &self,
        _inside: &Inside<'_>,
        change: impl Fn(&mut Change<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let txn = self.env.write_txn().map_err(|error| self.translate(error))?;
        let mut work = Change { store: self, txn, dirty: false };
        let result = change(&mut work)?;
        if work.dirty {
            work.txn.commit().map_err(|error| self.translate(error))?;
        }
        Ok(result)
    }

    /// Removes what has expired, to make room.
    fn sweep(&self, inside: &Inside<'_>) -> Result<(), StoreError> {
        let now = self.now();
        self.change(inside, |change| {
            let mut gone = Vec::new();
            let items = self.locks.iter(&change.txn).map_err(|error| self.translate(error))?;
            for item in items {
                let (key, value) = item.map_err(|error| self.translate(error))?;
                let Some(mut entry) = Entry::decode(value) else { continue };
                entry.state.expire(now);
                if key != HEAD && entry.is_empty() {
                    gone.push(key.to_vec());
                }
            }
            for key in gone {
                self.locks.delete(&mut change.txn, &key).map_err(|error| self.translate(error))?;
            }
            change.dirty = true;
            Ok(())
        })
    }

    fn translate(&self, error: heed::Error) -> StoreError {
        translate(&self.folder, error)
    }

    fn damaged(&self) -> StoreError {
        damaged(&self.folder)
    }
}

/// A transaction under way.
pub(super) struct Change<'a> {
    store: &'a Store,
    txn: RwTxn<'a>,
    dirty: bool,
}

impl Change<'_> {
    /// What is known of a lock, without what has ended.
    pub(super) fn load(&self, name: &Name, now: ServerTime) -> Result<Entry, StoreError> {
        let key = key(name);
        let value = self.store.locks.get(&self.txn, &key);
        let Some(value) = value.map_err(|error| self.store.translate(error))? else {
            return Ok(Entry::new(name));
        };
        let mut entry = Entry::decode(value).ok_or_else(|| self.store.damaged())?;
        if entry.name != *name {
            return Err(self.store.damaged());
        }
        entry.state.expire(now);
        Ok(entry)
    }

    /// Writes a lock down, or forgets it if there is nothing to remember.
    pub(super) fn save(&mut self, entry: &Entry) -> Result<(), StoreError> {
        self.dirty = true;
        let (locks, key) = (self.store.locks, key(&entry.name));
        let saved = match entry.is_empty() {
            true => locks.delete(&mut self.txn, &key).map(|_| ()),
            false => locks.put(&mut self.txn, &key, &entry.encode()),
        };
        saved.map_err(|error| self.store.translate(error))
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

/// Reads the head of a store, or writes it if the store is new.
fn head(env: &Env, folder: &Path) -> Result<(Locks, u64), StoreError> {
    let failed = |error| translate(folder, error);
    let txn = env.write_txn().map_err(failed)?;
    let opened = env.create_databases_and_commit(txn, |opener, txn| {
        let locks = opener.create_database::<Bytes, Bytes>(txn, None)?;
        heed::Result::Ok(CommitOrAbort::<_, ()>::Commit(locks))
    });
    let locks: Locks = opened.map_err(failed)?.unwrap_commit();
    let mut txn = env.write_txn().map_err(failed)?;
    let found = locks.get(&txn, HEAD).map_err(failed)?.map(Head::decode);
    let head = match found {
        Some(head) => head.ok_or_else(|| damaged(folder))?,
        None if locks.is_empty(&txn).map_err(failed)? => {
            let head = new_head();
            locks.put(&mut txn, HEAD, &head.encode()).map_err(failed)?;
            txn.commit().map_err(failed)?;
            head
        }
        None => return Err(damaged(folder)),
    };
    Ok((locks, head.offset_us))
}

fn new_head() -> Head {
    let wall = Clock::Os.wall();
    Head { offset_us: wall.0.saturating_sub(BootTime::now().0 / 1_000) }
}

/// Keys of LMDB are short, names of locks are not.
fn key(name: &Name) -> [u8; 20] {
    sha1_smol::Sha1::from(name.as_bytes()).digest().bytes()
}

/// A file that is shorter than it says would be read past its end.
fn check_length(data: &Path, least: u64) -> Result<(), StoreError> {
    match File::open(data).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.len() == 0 => Ok(()),
        Ok(metadata) if metadata.len() >= least.max(2 * PAGE_BYTES) => Ok(()),
        Ok(_) => Err(damaged(data)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(explain(data, error)),
    }
}

fn enter_patiently<'a>(gate: &'a Gate, folder: &Path) -> Result<Inside<'a>, StoreError> {
    let give_up_at = BootTime::now().plus(super::STUCK);
    loop {
        if let Some(inside) = gate.try_enter().map_err(|error| explain(folder, error))? {
            return Ok(inside);
        }
        if BootTime::now() >= give_up_at {
            let path = folder.display().to_string();
            return Err(StoreError::new(StoreErrorKind::Stuck { pid: gate.who_is_inside(), path }));
        }
        std::thread::yield_now();
    }
}

fn translate(folder: &Path, error: heed::Error) -> StoreError {
    let path = || folder.display().to_string();
    let kind = match error {
        heed::Error::Io(error) => return explain(folder, error),
        heed::Error::Mdb(MdbError::MapFull) => StoreErrorKind::StoreFull,
        heed::Error::Mdb(MdbError::Other(code)) => {
            return explain(folder, std::io::Error::from_raw_os_error(code));
        }
        heed::Error::Mdb(_) => StoreErrorKind::Damaged { path: path() },
        _ => StoreErrorKind::Unexpected,
    };
    StoreError::with_source(kind, error)
}

fn damaged(path: &Path) -> StoreError {
    StoreError::new(StoreErrorKind::Damaged { path: path.display().to_string() })
}

/// Not a key of a lock: those have 20 bytes.
const HEAD: &[u8] = b"head";
/// LMDB writes pages of the size of the system's; 4 KiB is the least there is.
const PAGE_BYTES: u64 = 4_096;
