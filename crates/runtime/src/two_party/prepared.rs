//! Preparations of models in a folder of the server's, so that a server that was started anew goes on with the set-ups that its clients have.
//!
//! A preparation is a name, which stands in the public part of the plan, and a seed, from which every secret and every error of its set-ups follows.
//! A file holds both and nothing else; who has the file and a set-up has the weights. It is found by a hash of the whole plan, weights included, and of
//! this program's version: the same seed never meets other weights, nor the same weights another way to draw errors. So what is used again is the same
//! set-up, byte for byte, as in a server that was never ended (`docs/rotation-free.md`, "Stored set-ups").
//!
//! A file is written under another name, flushed and renamed, so that it is whole or not there. One that is damaged is removed, and the clients of that
//! model make their set-ups once more. All files together stay within [`QUOTA`]; those that were used longest ago make room. A disk that is full costs
//! clients their set-ups at the next start, and nothing else. Several servers may share a folder on a file system that knows locks: they share the
//! preparations, too.

use super::plan::{Kind, TwoPartyPlan};
use crate::error::{Error, StoreError};
use crate::plan::PlanError;
use crate::store::{self, Found};
use hushnet_ring::Prg;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{ErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zeroize::Zeroize;

/// First bytes of a file.
const MAGIC: [u8; 8] = *b"HNPREP01";
/// Magic, name, seed, hash of all these.
const LENGTH: usize = 8 + 3 * 32;
const SUFFIX: &str = ".preparation";
const PART: &str = "new.part";
/// The file whose lock is the folder's.
const LOCK: &str = "lock";
/// Bytes of all preparations of a folder: ten thousand of them.
pub const QUOTA: u64 = 10_000 * LENGTH as u64;

/// Where a server keeps its preparations, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparationStore {
    /// The folder, which is the server's alone.
    pub path: PathBuf,
    /// Preparations that no server has been started with for so long are removed.
    pub age: Duration,
}

/// What the set-ups of a model follow from. No `Debug`: the seed is secret.
pub(super) struct KeptPreparation {
    name: [u8; 32],
    seed: [u8; 32],
}

impl Drop for KeptPreparation {
    fn drop(&mut self) {
        self.seed.zeroize();
    }
}

fn is_preparation(name: &str) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(|n| store::is_hex(n, 64))
}

impl KeptPreparation {
    /// One that is kept nowhere.
    ///
    /// # Errors
    /// [`Error::Internal`] without randomness.
    pub(super) fn fresh() -> Result<Self, Error> {
        let (mut prg, mut made) = (Prg::from_os()?, Self { name: [0; 32], seed: [0; 32] });
        prg.fill_bytes(&mut made.name);
        prg.fill_bytes(&mut made.seed);
        Ok(made)
    }

    /// That of a plan: the one that the folder has, else a new one, which is kept there if that can be.
    ///
    /// # Errors
    /// [`Error::Store`] when the folder cannot be made or has no locks; [`Error::Internal`] without randomness.
    pub(super) fn of(plan: &TwoPartyPlan, kept: &PreparationStore) -> Result<Self, Error> {
        let refused = |source| Error::from(StoreError::Preparations { path: kept.path.clone(), source });
        store::create_secret_folder(&kept.path).map_err(refused)?;
        let lock = File::options().write(true).create(true).truncate(false).open(kept.path.join(LOCK));
        let lock = lock.map_err(refused)?;
        lock.lock().map_err(refused)?;
        let path = kept.path.join(format!("{}{SUFFIX}", store::hex(&hash(plan)?)));
        let found = Self::read(&path);
        let tidied = store::files(&kept.path, is_preparation).map(|files| store::expire(&files, kept.age));
        let made = match found {
            Some(found) => found,
            None => {
                let made = Self::fresh()?;
                if let Err(error) = tidied.and_then(|()| made.write(&kept.path, &path)) {
                    tracing::warn!(%error, "set-ups of clients end with this server: its preparation cannot be kept");
                }
                made
            }
        };
        // It goes with the file otherwise.
        let _ = lock.unlock();
        Ok(made)
    }

    /// The preparation of a whole file, which counts as used now.
    fn read(path: &Path) -> Option<Self> {
        let mut bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) => {
                if e.kind() != ErrorKind::NotFound {
                    tracing::warn!(error = %e, "a kept preparation cannot be read");
                }
                return None;
            }
        };
        let whole = bytes.len() == LENGTH
            && bytes[..8] == MAGIC
            && bytes[72..] == *Sha256::digest(&bytes[..72]).as_slice();
        let found = whole.then(|| {
            let mut found = Self { name: [0; 32], seed: [0; 32] };
            found.name.copy_from_slice(&bytes[8..40]);
            found.seed.copy_from_slice(&bytes[40..72]);
            found
        });
        bytes.zeroize();
        if whole {
            // Where the time cannot be set, the file goes earlier.
            let used = File::options().append(true).open(path);
            let _ = used.and_then(|file| file.set_modified(SystemTime::now()));
        } else {
            tracing::warn!("a kept preparation is damaged and removed; clients make their set-ups once more");
            let _ = std::fs::remove_file(path);
        }
        found
    }

    /// Writes the file of a new one; the folder's lock is held.
    fn write(&self, folder: &Path, path: &Path) -> IoResult<()> {
        let mut files = store::files(folder, is_preparation)?;
        files.sort_by_key(|f: &Found| f.used);
        let mut all = files.iter().fold(LENGTH as u64, |sum, f| sum.saturating_add(f.bytes));
        for file in files {
            if all <= QUOTA {
                break;
            }
            std::fs::remove_file(&file.path)?;
            all -= file.bytes;
        }
        let temporary = folder.join(PART);
        // A killed server's: the lock says that nobody writes it.
        match std::fs::remove_file(&temporary) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..40].copy_from_slice(&self.name);
        bytes[40..72].copy_from_slice(&self.seed);
        let sum = Sha256::digest(&bytes[..72]);
        bytes[72..].copy_from_slice(&sum);
        let written = store::write_private(&temporary, path, &bytes);
        bytes.zeroize();
        written
    }

    /// The name, as plans have it.
    pub(super) fn name(&self) -> String {
        store::hex(&self.name)
    }

    /// The randomness of a stage's set-up; the same at every call.
    pub(super) fn generator(&self, stage: usize) -> Prg {
        let mut hash = Sha256::new_with_prefix(b"hushnet preparation of a stage 1");
        hash.update((stage as u64).to_le_bytes());
        hash.update(self.seed);
        let mut seed = [0; 16];
        seed.copy_from_slice(&hash.finalize()[..16]);
        let generator = Prg::from_seed(seed);
        seed.zeroize();
        generator
    }
}

/// Names a plan by all that its set-ups depend on: this program's version, the plan's JSON, and all weights.
pub(super) fn hash(plan: &TwoPartyPlan) -> Result<[u8; 32], PlanError> {
    let mut hash = Sha256::new_with_prefix(concat!("hushnet preparation 1 ", env!("CARGO_PKG_VERSION")));
    let json = plan.public_json()?;
    hash.update((json.len() as u64).to_le_bytes());
    hash.update(json);
    for (index, stage) in plan.stages().iter().enumerate() {
        let Kind::Linear(linear) = &stage.kind else { continue };
        let Some(weights) = &linear.weights else { continue };
        let words = weights.weights.to_i16();
        hash.update((index as u64).to_le_bytes());
        hash.update((words.len() as u64).to_le_bytes());
        for piece in words.chunks(4096) {
            hash.update(piece.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>());
        }
        hash.update((weights.bias.len() as u64).to_le_bytes());
        weights.bias.iter().for_each(|b| hash.update(b.to_le_bytes()));
    }
    Ok(hash.finalize().into())
}
