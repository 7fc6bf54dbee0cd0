//! A client's secret of evaluation keys that a server may have kept, in a folder of the client's.
//!
//! One file for each server and each set of keys, named by a hash of both: no two servers can tell that they serve the same client. It
//! holds a seed, from which the same keys follow again, and the hash by which the server knows them. Whoever reads it can read what the
//! client has encrypted: nobody but its owner may.

use super::key_store::KeyHash;
use super::messages::KeyFrame;
use crate::error::{Error, StoreError};
use crate::store;
use hushnet_ring::Prg;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use zeroize::Zeroize;

/// First bytes of a file.
const MAGIC: [u8; 8] = *b"HNKEYS01";
/// Magic, seed, hash of the keys, hash of all these.
const LENGTH: usize = 8 + 3 * 32;
/// Files that nobody has used for so long are removed.
const AGE: Duration = Duration::from_secs(30 * 24 * 3600);
const SUFFIX: &str = ".client-key";

/// Where a client keeps the seeds of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFolder {
    /// The folder, which is the client's alone.
    pub path: PathBuf,
    /// The server's address, as the client has it.
    pub server: String,
}

/// The seed of a client's keys, and the hash of the evaluation keys when they were made before.
pub(super) struct KeptSecret {
    seed: [u8; 32],
    /// What distinguishes keys of one seed.
    purpose: [u8; 32],
    hash: Option<[u8; 32]>,
    path: PathBuf,
}

impl Drop for KeptSecret {
    fn drop(&mut self) {
        self.seed.zeroize();
    }
}

impl KeptSecret {
    /// The secret of this folder, server and set of keys; a new one where there is none, or none that is whole.
    ///
    /// # Errors
    /// [`Error::Store`] when the folder cannot be used; [`Error::Internal`] without randomness.
    pub(super) fn open(folder: &KeyFolder, parameters: &[u8], keys: &[KeyFrame]) -> Result<Self, Error> {
        let refused = |source| Error::from(StoreError::ClientKeys { path: folder.path.clone(), source });
        store::create_secret_folder(&folder.path).map_err(refused)?;
        let own = |name: &str| name.strip_suffix(SUFFIX).is_some_and(|n| store::is_hex(n, 64));
        store::expire(&store::files(&folder.path, own).map_err(refused)?, AGE);
        let mut hash = Sha256::new_with_prefix(b"hushnet client keys 1");
        hash.update((parameters.len() as u64).to_le_bytes());
        hash.update(parameters);
        for key in keys {
            hash.update(format!("{:?} {} {};", key.kind, key.tile, key.bytes));
        }
        let purpose: [u8; 32] = hash.clone().finalize().into();
        hash.update(&folder.server);
        let path = folder.path.join(format!("{}{SUFFIX}", store::hex(&hash.finalize())));
        let mut kept = Self { seed: [0; 32], purpose, hash: None, path };
        if !kept.read() {
            Prg::from_os()?.fill_bytes(&mut kept.seed);
        }
        Ok(kept)
    }

    /// Whether there was a whole file.
    fn read(&mut self) -> bool {
        let Ok(mut bytes) = std::fs::read(&self.path) else { return false };
        let whole = bytes.len() == LENGTH
            && bytes[..8] == MAGIC
            && bytes[72..] == *Sha256::digest(&bytes[..72]).as_slice();
        if whole {
            self.seed.copy_from_slice(&bytes[8..40]);
            let mut hash = [0; 32];
            hash.copy_from_slice(&bytes[40..72]);
            self.hash = Some(hash);
            let used = std::fs::File::options().append(true).open(&self.path);
            // Where the time cannot be set, the file goes earlier.
            let _ = used.and_then(|file| file.set_modified(SystemTime::now()));
        }
        bytes.zeroize();
        whole
    }

    /// The hash of keys that a server may have.
    pub(super) fn hash(&self) -> Option<[u8; 32]> {
        self.hash
    }

    /// The generator that all keys are drawn from, in their order.
    pub(super) fn generator(&self) -> Prg {
        let mut hash = Sha256::new_with_prefix(self.purpose);
        hash.update(self.seed);
        let mut seed = [0; 16];
        seed.copy_from_slice(&hash.finalize()[..16]);
        let prg = Prg::from_seed(seed);
        seed.zeroize();
        prg
    }

    /// Keeps the seed for the next session, with the hash of the keys that were sent.
    ///
    /// # Errors
    /// [`Error::Store`] when it cannot be written.
    pub(super) fn keep(&mut self, sent: KeyHash) -> Result<(), Error> {
        let hash = sent.finish();
        if self.hash == Some(hash) {
            return Ok(());
        }
        let mut bytes = [&MAGIC[..], &self.seed, &hash].concat();
        let sum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&sum);
        let temporary = self.path.with_extension(format!("{}.part", std::process::id()));
        let written = store::write_private(&temporary, &self.path, &bytes);
        bytes.zeroize();
        written.map_err(|source| StoreError::ClientKeys { path: folder(&self.path), source })?;
        self.hash = Some(hash);
        Ok(())
    }
}

fn folder(file: &Path) -> PathBuf {
    file.parent().unwrap_or(file).to_owned()
}
