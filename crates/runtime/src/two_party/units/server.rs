//! The server's units: its shares s of what clients have prepared and its pads, in a folder, each removed before it is used.
//!
//! A file for each unit. Its name is a hash of the client's token and one of the token, of the unit's identity, and of the whole plan with its weights: who
//! lists the folder can spend nothing, no client finds what is another's, and a unit never meets other weights than those that it was made with. What is
//! not there is spent or was never prepared; the server does not tell which. A file is written under another name, flushed and renamed; while it is
//! written it is locked and as long as it will be, so that others count it. To spend a unit is to read its file, to remove it, and to flush the folder; of two sessions
//! that try one alone removes it.
//!
//! All files together stay within [`UnitPolicy::quota`], those of a client within [`UnitPolicy::client_quota`]; what does not fit is refused, and nobody's
//! files make room. A file that is older than [`UnitPolicy::age`] is removed. Several servers may share a folder on one machine.

use super::{remove_durably, sealed, short, unsealed, Claim, Contents, Half, Id, NAME, PART, SUFFIX};
use crate::error::{Error, UnitError};
use crate::store::{self, Found};
use hushnet_mpc::Party;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const MAGIC: [u8; 8] = *b"HNUNITS2";
/// The file whose lock is the folder's.
const LOCK: &str = "lock";

/// What a server keeps of prepared inferences, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitPolicy {
    /// Bytes of all units in the folder.
    pub quota: u64,
    /// Bytes of the units of one client.
    pub client_quota: u64,
    /// Units that were prepared so long ago are removed.
    pub age: Duration,
}

impl Default for UnitPolicy {
    fn default() -> Self {
        Self { quota: 64 << 30, client_quota: 4 << 30, age: Duration::from_secs(30 * 24 * 3600) }
    }
}

/// Bytes of a unit's file.
pub(in crate::two_party) fn file_bytes(contents: &Contents) -> u64 {
    contents.bytes(Party::Zero).saturating_add(8 + 32)
}

/// A server's folder of units; shared by all sessions.
pub struct UnitStore {
    path: PathBuf,
    policy: UnitPolicy,
    /// The lock of the folder. The mutex keeps threads apart, which have one lock of the file together.
    lock: Mutex<File>,
}

fn is_unit(name: &str) -> bool {
    let parts = name.strip_suffix(SUFFIX).or_else(|| name.strip_suffix(PART)).and_then(|n| n.split_once('-'));
    parts.is_some_and(|(client, unit)| store::is_hex(client, NAME) && store::is_hex(unit, NAME))
}

fn ends(found: &Found, suffix: &str) -> bool {
    found.path.to_str().is_some_and(|p| p.ends_with(suffix))
}

/// A unit in the making: dropped before its end, nothing of it stays.
pub(in crate::two_party) struct Making {
    file: Option<File>,
    part: PathBuf,
    path: PathBuf,
}

impl Drop for Making {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // The folder may be gone.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

impl UnitStore {
    /// Makes the folder if there is none, and removes what is out of date and what a killed server has not finished.
    ///
    /// # Errors
    /// [`Error::Units`] when the file system refuses, or knows no locks.
    pub fn open(path: &Path, policy: UnitPolicy) -> Result<Self, Error> {
        let refused = |source| Error::from(UnitError::Folder { path: path.to_owned(), source });
        store::create_folder(path).map_err(refused)?;
        let lock = File::options().write(true).create(true).truncate(false).open(path.join(LOCK));
        let kept = Self { path: path.to_owned(), policy, lock: Mutex::new(lock.map_err(refused)?) };
        kept.locked(|_| Ok(())).map_err(refused)?;
        Ok(kept)
    }

    fn refused(&self, source: std::io::Error) -> Error {
        UnitError::Folder { path: self.path.clone(), source }.into()
    }

    /// Does something under the folder's lock with its files, after those that are out of date or a killed server's are removed.
    fn locked<T>(&self, f: impl FnOnce(Vec<Found>) -> std::io::Result<T>) -> std::io::Result<T> {
        let file = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        file.lock()?;
        let done = self.tidied().and_then(f);
        // It goes with the process otherwise.
        let _ = file.unlock();
        done
    }

    fn tidied(&self) -> std::io::Result<Vec<Found>> {
        let files = store::files(&self.path, is_unit)?;
        let (parts, whole): (Vec<Found>, Vec<Found>) = files.into_iter().partition(|f| ends(f, PART));
        for part in parts {
            if File::open(&part.path).is_ok_and(|file| file.try_lock().is_ok()) {
                std::fs::remove_file(&part.path)?;
            }
        }
        store::expire(&whole, self.policy.age);
        store::files(&self.path, is_unit)
    }

    fn client(token: &Id) -> String {
        store::hex(&short("hushnet client of units 1", &[token]))
    }

    fn file(&self, client: &str, (token, id): (&Id, &Id), model: &[u8; 32], suffix: &str) -> PathBuf {
        let unit = store::hex(&short("hushnet unit 1", &[token, id, model]));
        self.path.join(format!("{client}-{unit}{suffix}"))
    }

    /// Room for the units of a claim: files of the length that they will have.
    ///
    /// # Errors
    /// [`UnitError::Full`] when they do not fit; [`UnitError::Unknown`] for a unit that is there already; [`Error::Units`] when the file system refuses.
    pub(in crate::two_party) fn begin(
        &self,
        claim: &Claim,
        model: &[u8; 32],
        contents: &Contents,
    ) -> Result<Vec<Making>, Error> {
        let each = file_bytes(contents);
        let needed = each.saturating_mul(claim.units.len() as u64);
        let client = Self::client(&claim.token);
        let made = self.locked(|files| {
            let own = |f: &&Found| {
                f.path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&client))
            };
            let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
            let theirs = sum(&mut files.iter().filter(own).map(|f| f.bytes));
            let all = sum(&mut files.iter().map(|f| f.bytes));
            for (used, quota, whose) in
                [(theirs, self.policy.client_quota, "this client"), (all, self.policy.quota, "all clients")]
            {
                if used.saturating_add(needed) > quota {
                    return Ok(Err(UnitError::Full { needed, used, quota, whose }));
                }
            }
            let mut made = Vec::with_capacity(claim.units.len());
            for unit in &claim.units {
                let names = (&claim.token, &unit.id);
                let path = self.file(&client, names, model, SUFFIX);
                let part = self.file(&client, names, model, PART);
                if path.exists() || part.exists() {
                    return Ok(Err(UnitError::Unknown));
                }
                let file = store::create_private(&part)?;
                let making = Making { file: Some(file), part, path };
                if let Some(file) = &making.file {
                    file.lock()?;
                    file.set_len(each)?;
                }
                made.push(making);
            }
            Ok(Ok(made))
        });
        Ok(made.map_err(|e| self.refused(e))??)
    }

    /// Keeps the server's half of a unit for good: written, flushed, and under its name.
    ///
    /// # Errors
    /// [`Error::Units`] when the file system refuses.
    pub(in crate::two_party) fn finish(&self, mut making: Making, half: &Half) -> Result<(), Error> {
        let bytes = sealed(MAGIC, &half.content());
        if let Some(mut file) = making.file.take() {
            let written =
                file.write_all(&bytes).and_then(|()| store::publish(&file, &making.part, &making.path));
            if written.is_err() {
                making.file = Some(file);
            }
            written.map_err(|e| self.refused(e))?;
        }
        Ok(())
    }

    /// Spends the units of a claim: when this returns they are gone from the folder for good.
    ///
    /// # Errors
    /// [`UnitError::Unknown`] for what is not there or damaged, and then those in front of it are spent as well; [`Error::Units`] when the file system refuses.
    pub(in crate::two_party) fn take(
        &self,
        claim: &Claim,
        model: &[u8; 32],
        contents: &Contents,
    ) -> Result<Vec<Half>, Error> {
        let client = Self::client(&claim.token);
        let one = |id: &Id| -> Result<Half, Error> {
            let path = self.file(&client, (&claim.token, id), model, SUFFIX);
            let content = match unsealed(MAGIC, &path, contents.lengths(Party::Zero)) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
                read => read.map_err(|e| self.refused(e))?,
            };
            let removed = remove_durably(&path).map_err(|e| self.refused(e))?;
            content.filter(|_| removed).map(Half::read).ok_or_else(|| UnitError::Unknown.into())
        };
        claim.units.iter().map(|u| one(&u.id)).collect()
    }
}
