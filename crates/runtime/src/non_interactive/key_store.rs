//! Evaluation keys of clients in a folder of the server's, so that a client that comes again sends none, also after the server was killed.
//!
//! One file for each set of keys, found by the SHA-256 of the keys that the client names. Evaluation keys are public: what is kept here is what every
//! server of the client has seen. The hash is proof of nothing. Who knows it, and has not the secret key, can have the server compute
//! under those keys, whose results it cannot read. Nothing of a file ever leaves the server.
//!
//! A file's name is a hash of that hash: who lists the folder cannot ask for what is in it. A file is written under another name, flushed and
//! renamed, so that it is whole or not there; one whose bytes have another hash than its name says is removed. All files together stay
//! within [`KeyPolicy::quota`]: those that were used longest ago make room, for keys as they come and not for keys that are announced. So
//! who drives keys out has sent half as many bytes at least. A disk that is full, or a folder that is gone, costs clients their way again and
//! nothing else.
//!
//! Several servers may share a folder, on one machine or on a file system that several have in common and that knows locks. Who makes room
//! holds the lock of the folder. Who writes a file holds the file's own: one that is unfinished and not locked is a killed server's, and goes.

use super::messages::KeyFrame;
use crate::error::{Error, StoreError};
use crate::store::{self, Found};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// End of the names of whole files, and of those that are being written.
const SUFFIX: &str = ".keys";
const PART: &str = ".part";
/// The file whose lock is the folder's.
const LOCK: &str = "lock";

/// What a folder of keys may take, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPolicy {
    /// Bytes of all keys in the folder, those that are being written included.
    pub quota: u64,
    /// Keys that no session has used for so long are removed.
    pub age: Duration,
}

impl Default for KeyPolicy {
    fn default() -> Self {
        Self { quota: 16 << 30, age: Duration::from_secs(30 * 24 * 3600) }
    }
}

/// Names a set of keys by all its bytes.
#[derive(Clone)]
pub(super) struct KeyHash(Sha256);

impl KeyHash {
    pub(super) fn new() -> Self {
        Self(Sha256::new_with_prefix(b"hushnet evaluation keys 1"))
    }

    /// The next key of the set.
    pub(super) fn add(&mut self, key: &KeyFrame, bytes: &[u8]) {
        self.0.update(key.tile.to_le_bytes());
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// A server's folder of evaluation keys; shared by all sessions, and with other servers.
pub struct KeyStore {
    path: PathBuf,
    policy: KeyPolicy,
    /// The lock of the folder. The mutex keeps threads apart, which have one lock of the file together.
    lock: Mutex<File>,
}

fn is_keys(name: &str) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(|n| store::is_hex(n, 64))
}

/// The folder's lock, until it is dropped.
struct Locked<'a>(MutexGuard<'a, File>);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It goes with the process otherwise.
        let _ = self.0.unlock();
    }
}

impl KeyStore {
    /// Makes the folder if there is none, and removes what is out of date and what a killed server has not finished.
    ///
    /// # Errors
    /// [`Error::Store`] when the file system refuses, or knows no locks.
    pub fn open(path: &Path, policy: KeyPolicy) -> Result<Self, Error> {
        let refused = |source| Error::from(StoreError::Keys { path: path.to_owned(), source });
        store::create_folder(path).map_err(refused)?;
        let lock = File::options().write(true).create(true).truncate(false).open(path.join(LOCK));
        let kept = Self { path: path.to_owned(), policy, lock: Mutex::new(lock.map_err(refused)?) };
        {
            let locked = kept.lock().map_err(refused)?;
            // A quota that has become smaller holds, too.
            kept.make_room(0, &locked).map_err(refused)?;
        }
        Ok(kept)
    }

    /// Waits for the lock of the folder; others hold it as long as they look through it.
    fn lock(&self) -> std::io::Result<Locked<'_>> {
        let file = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        file.lock()?;
        Ok(Locked(file))
    }

    fn file(&self, hash: &[u8; 32]) -> PathBuf {
        let mut name = Sha256::new_with_prefix(b"hushnet name of keys");
        name.update(hash);
        self.path.join(format!("{}{SUFFIX}", store::hex(&name.finalize())))
    }

    /// Reads the keys that `hash` names, one after the other; whether they were there, whole, and all taken by `take`.
    ///
    /// # Errors
    /// None for what is wrong with a file: it is removed. What `take` refuses of keys that have the right hash.
    pub(super) fn load(
        &self,
        hash: &[u8; 32],
        keys: &[KeyFrame],
        mut take: impl FnMut(&KeyFrame, &[u8]) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let path = self.file(hash);
        let Ok(mut file) = File::options().read(true).write(true).open(&path) else { return Ok(false) };
        let age =
            file.metadata().and_then(|d| d.modified()).map(|used| SystemTime::now().duration_since(used));
        if matches!(age, Ok(Ok(age)) if age > self.policy.age) {
            self.remove(&path, "nobody has used them for too long");
            return Ok(false);
        }
        let (mut found, mut taken) = (KeyHash::new(), Ok(()));
        for key in keys {
            let mut bytes = vec![0; key.bytes];
            if file.read_exact(&mut bytes).is_err() {
                self.remove(&path, "the file is too short");
                return Ok(false);
            }
            found.add(key, &bytes);
            // What a damaged file makes of a key is of no interest.
            taken = taken.and_then(|()| take(key, &bytes));
        }
        if found.finish() != *hash || !matches!(file.read(&mut [0]), Ok(0)) {
            self.remove(&path, "the file is damaged");
            return Ok(false);
        }
        taken?;
        // Used now. Where the time cannot be set, the keys go earlier.
        let _ = file.set_modified(SystemTime::now());
        Ok(true)
    }

    fn remove(&self, path: &Path, why: &str) {
        tracing::warn!("stored keys are removed: {why}");
        // Another session may have done so.
        let _ = std::fs::remove_file(path);
    }

    /// Removes what is out of date or a killed server's and, of the rest, what was used longest ago, until so many more bytes fit; whether they do.
    fn make_room(&self, more: u64, _locked: &Locked<'_>) -> std::io::Result<bool> {
        let mut written = more;
        for part in store::files(&self.path, |name| name.ends_with(PART))? {
            if File::open(&part.path).is_ok_and(|file| file.try_lock().is_ok()) {
                std::fs::remove_file(&part.path)?;
            } else {
                written = written.saturating_add(part.bytes);
            }
        }
        store::expire(&store::files(&self.path, is_keys)?, self.policy.age);
        // What does not fit at all drives nobody out.
        if written > self.policy.quota {
            return Ok(false);
        }
        let mut files = store::files(&self.path, is_keys)?;
        files.sort_by_key(|f: &Found| f.used);
        let mut all = files.iter().fold(written, |sum, f| sum.saturating_add(f.bytes));
        for file in files {
            if all <= self.policy.quota {
                break;
            }
            std::fs::remove_file(&file.path)?;
            all -= file.bytes;
        }
        Ok(all <= self.policy.quota)
    }

    /// Begins to keep a set of keys, unless it has no room beside those that are being written. Nothing makes room before a key has come.
    pub(super) fn begin(&self, bytes: u64) -> Option<Writing<'_>> {
        match self.part(bytes) {
            Ok(Some((file, path))) => {
                let room = (0, 0, bytes);
                Some(Writing { store: self, file: Some(file), path, hash: KeyHash::new(), room })
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, "keys of a client are not kept");
                None
            }
        }
    }

    /// An empty file, locked, so that others know that somebody writes it.
    fn part(&self, bytes: u64) -> std::io::Result<Option<(File, PathBuf)>> {
        let _locked = self.lock()?;
        let written = store::files(&self.path, |name| name.ends_with(PART))?;
        let written = written.iter().fold(bytes, |sum, f| sum.saturating_add(f.bytes));
        if written > self.policy.quota {
            return Ok(None);
        }
        let mut number = 0_u64;
        let (file, path) = loop {
            let path = self.path.join(format!("{number}{PART}"));
            match store::create_private(&path) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                created => break (created?, path),
            }
        };
        let ready = file.lock();
        if ready.is_err() {
            // It is this server's own, and empty.
            let _ = std::fs::remove_file(&path);
        }
        ready.map(|()| Some((file, path)))
    }

    /// Gives a file that is being written so many bytes, so that others count them; `more` than it had.
    fn grow(&self, file: &File, bytes: u64, more: u64) -> std::io::Result<()> {
        let locked = self.lock()?;
        if !self.make_room(more, &locked)? {
            return Err(std::io::Error::new(
                ErrorKind::QuotaExceeded,
                "others write as much as the folder may have",
            ));
        }
        file.set_len(bytes)
    }
}

/// Keys that are being written. Dropped before their end, nothing of them stays.
pub(super) struct Writing<'a> {
    store: &'a KeyStore,
    /// `None` when it could not be written.
    file: Option<File>,
    path: PathBuf,
    hash: KeyHash,
    /// Bytes that are written, that the file has, and that it will have.
    room: (u64, u64, u64),
}

impl Writing<'_> {
    /// The next key of the set.
    pub(super) fn add(&mut self, key: &KeyFrame, bytes: &[u8]) {
        self.hash.add(key, bytes);
        if let Err(error) = self.write(bytes) {
            tracing::warn!(%error, "keys of a client are not kept");
            self.give_up();
        }
    }

    /// Writes bytes, for which there is room made: twice what has come, so that the folder is looked through few times.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let (written, has, all) = &mut self.room;
        *written = written.saturating_add(bytes.len() as u64);
        if *written > *has {
            let wanted = written.saturating_mul(2).min(*all).max(*written);
            self.store.grow(file, wanted, wanted - *has)?;
            *has = wanted;
        }
        file.write_all(bytes)
    }

    /// All keys have come, and the server has read them.
    pub(super) fn finish(mut self) {
        let path = self.store.file(&self.hash.clone().finish());
        let published = self.file.as_ref().map(|file| store::publish(file, &self.path, &path));
        match published {
            Some(Err(error)) => tracing::warn!(%error, "keys of a client are not kept"),
            // It has its name, and the one that it was written under may be another's by now.
            Some(Ok(())) => self.file = None,
            None => {}
        }
    }

    /// Removes the file while its lock says that it is this server's.
    fn give_up(&mut self) {
        // Locked until it is gone.
        if let Some(_locked) = self.file.take() {
            // The folder may be gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
