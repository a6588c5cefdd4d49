//! A shard: some of the locks of a store, in an environment of their own behind a gate of their own,
//! so that processes that use different locks seldom meet.

use std::fs;
use std::path::{Path, PathBuf};

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, MdbError, RwTxn};

use super::folder::explain;
use super::format::{Entry, Head};
use super::gate::{Gate, Inside};
use super::open::{MAP_BYTES, open};
use super::room::Room;
use super::store::Place;
use crate::engine::Found;
use crate::error::{StoreError, StoreErrorKind};
use crate::time::ServerTime;

/// Some of the locks of a store, as this process sees them.
#[derive(Debug)]
pub(super) struct Shard {
    folder: PathBuf,
    gate: Gate,
    env: Env,
    /// `None` where the data is not written through the map.
    room: Option<Room>,
    locks: Locks,
}

/// The only table there is.
type Locks = Database<'static, Bytes, Bytes>;

impl Shard {
    /// Opens the shard in a folder, or makes it with that head; says which head it has.
    pub(super) fn open(folder: PathBuf, head: Head) -> Result<(Self, Head), StoreError> {
        let failed = |error| explain(&folder, error);
        fs::create_dir_all(&folder).map_err(failed)?;
        let gate = Gate::open(&folder.join("gate")).map_err(failed)?;
        // Others may have it open already, and write.
        let inside = gate.enter_patiently(&folder)?;
        let data = folder.join("data.mdb");
        let length = length(&data)?;
        let room = Room::prepare(&data).map_err(|error| explain(&data, error))?;
        let env = open(&folder, room.is_some()).map_err(|error| translate(&folder, error))?;
        if length > 0 && length < bytes_in_use(&env) {
            // The map has made it as long as itself; it is left as it was found.
            drop(env);
            fs::File::options().write(true).open(&data).and_then(|file| file.set_len(length)).ok();
            return Err(damaged(&data));
        }
        let (locks, head) = read_head(&env, &folder, head)?;
        drop(inside);
        Ok((Self { folder, gate, env, room, locks }, head))
    }

    /// Runs a transaction; `None` if another process is inside.
    pub(super) fn try_change<T>(
        &self,
        now: ServerTime,
        change: impl Fn(&mut Change<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let Some(inside) = self.enter()? else { return Ok(None) };
        match self.change(&inside, &change) {
            Err(error) if *error.kind() == StoreErrorKind::StoreFull => {
                self.sweep(&inside, now)?;
                self.change(&inside, &change).map(Some)
            }
            result => result.map(Some),
        }
    }

    /// All locks; `None` if another process is inside.
    pub(super) fn try_find_all(&self) -> Result<Option<Vec<Found>>, StoreError> {
        let Some(_inside) = self.enter()? else { return Ok(None) };
        let txn = self.env.read_txn().map_err(|error| self.translate(error))?;
        let mut found = Vec::new();
        for item in self.locks.iter(&txn).map_err(|error| self.translate(error))? {
            let (key, value) = item.map_err(|error| self.translate(error))?;
            if key != HEAD {
                let Entry { name, state, .. } =
                    Entry::decode(value).ok_or_else(|| self.damaged())?;
                found.push(Found { name, queued: Some(state.queue.list.len()) });
            }
        }
        Ok(Some(found))
    }

    /// Which process is inside, where the system tells.
    pub(super) fn who_is_inside(&self) -> Option<u32> {
        self.gate.who_is_inside()
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
        let mut work = Change { shard: self, txn, dirty: false, reserved: ROOM_TO_COMMIT };
        let result = change(&mut work)?;
        if work.dirty {
            work.txn.commit().map_err(|error| self.translate(error))?;
        }
        Ok(result)
    }

    /// Removes what has expired, to make room.
    fn sweep(&self, inside: &Inside<'_>, now: ServerTime) -> Result<(), StoreError> {
        self.reserve(MAP_BYTES as u64)?;
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

    /// Makes sure that a transaction can write that many bytes.
    fn reserve(&self, bytes: u64) -> Result<(), StoreError> {
        let Some(room) = &self.room else { return Ok(()) };
        let reserved = room.reserve(bytes_in_use(&self.env) + bytes);
        reserved.map_err(|error| explain(&self.folder, error))
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
    shard: &'a Shard,
    txn: RwTxn<'a>,
    dirty: bool,
    /// How much of the file it may need.
    reserved: u64,
}

impl Change<'_> {
    /// Changes what is known of a lock, and writes it down if it is something else then.
    pub(super) fn update<T>(
        &mut self,
        place: &Place,
        now: ServerTime,
        change: impl FnOnce(&mut Entry) -> T,
    ) -> Result<T, StoreError> {
        let mut entry = self.load(place, now)?;
        let before = entry.clone();
        let result = change(&mut entry);
        if entry != before {
            self.save(place, &entry)?;
        }
        Ok(result)
    }

    /// What is known of a lock, without what has ended.
    fn load(&self, place: &Place, now: ServerTime) -> Result<Entry, StoreError> {
        let value = self.shard.locks.get(&self.txn, &place.key);
        let Some(value) = value.map_err(|error| self.shard.translate(error))? else {
            return Ok(Entry::new(&place.name));
        };
        let entry = Entry::decode_for(&place.name, value);
        let mut entry = entry.ok_or_else(|| self.shard.damaged())?;
        entry.state.expire(now);
        Ok(entry)
    }

    /// Writes a lock down, or forgets it if there is nothing to remember.
    fn save(&mut self, place: &Place, entry: &Entry) -> Result<(), StoreError> {
        let (locks, key) = (self.shard.locks, &place.key);
        self.dirty = true;
        let bytes = if entry.is_empty() { Vec::new() } else { entry.encode() };
        self.reserved += bytes.len() as u64 + ROOM_PER_ENTRY;
        self.shard.reserve(self.reserved)?;
        let saved = match entry.is_empty() {
            true => locks.delete(&mut self.txn, key).map(|_| ()),
            false => locks.put(&mut self.txn, key, &bytes),
        };
        saved.map_err(|error| self.shard.translate(error))
    }
}

/// Reads the head of a shard, or writes it if the shard is new.
fn read_head(env: &Env, folder: &Path, new: Head) -> Result<(Locks, Head), StoreError> {
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
            locks.put(&mut txn, HEAD, &new.encode()).map_err(failed)?;
            txn.commit().map_err(failed)?;
            new
        }
        None => return Err(damaged(folder)),
    };
    Ok((locks, head))
}

/// How long the data file is: 0 if it is new. One that is too short to have a head is no store.
fn length(data: &Path) -> Result<u64, StoreError> {
    match fs::metadata(data) {
        Ok(metadata) if (1..2 * PAGE_BYTES).contains(&metadata.len()) => Err(damaged(data)),
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(explain(data, error)),
    }
}

/// How much of the data file has ever been used.
fn bytes_in_use(env: &Env) -> u64 {
    (env.info().last_page_number as u64 + 1) * PAGE_BYTES
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
/// What one entry can need besides its own bytes: a way down the tree, and half of it again.
const ROOM_PER_ENTRY: u64 = 8 * PAGE_BYTES;
/// What a commit can need besides its entries: the list of free pages.
const ROOM_TO_COMMIT: u64 = 8 * PAGE_BYTES;
