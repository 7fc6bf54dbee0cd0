//! Set-ups of rotation-free layers in a folder of the client's, so that a session with the same server needs none, and an interrupted one goes on.
//!
//! One file a stage, named by a hash of the server's address and of the public plan, and by the stage: the stored form of
//! [`hushnet_layers::rotation_free::Setup`], which says why it is safe for both parties. The plan names the preparation of the model, so a server that
//! was started anew has other files; no server writes, cuts or removes those of another address or plan. A damaged file goes on where its
//! whole polynomials end. A file that another session is writing is left alone. Files that nobody used for [`Policy::age`] go; what a plan
//! needs beyond [`Policy::quota`] is refused before anything of it is received.

use crate::compute::Compute;
use crate::error::{Error, StoreError};
use crate::store::{self, Found};
use hushnet_layers::batch::LayerError;
use hushnet_layers::rotation_free::{Design, RotationFreeClient, Setup};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Polynomials are written when so many bytes of them have come, and at the end.
const PIECE: usize = 1 << 20;
/// End of the files' names.
const SUFFIX: &str = ".setup";
/// Hexadecimal digits that the files' names begin with.
const NAME: usize = 32;

/// What a folder of set-ups may take, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Bytes of all set-ups in the folder.
    pub quota: u64,
    /// Files that no session has used for so long are removed when the folder is next used.
    pub age: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { quota: 16 << 30, age: Duration::from_secs(30 * 24 * 3600) }
    }
}

/// A client's folder of set-ups, for one server and plan.
pub struct Folder {
    path: PathBuf,
    name: String,
    quota: u64,
}

/// The set-up of a stage, as far as it has come, and the file that it is kept in.
pub struct Kept {
    pub setup: Setup,
    file: Option<(File, PathBuf)>,
    /// Polynomials in the file.
    written: usize,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    |source| StoreError::Refused { path: path.to_owned(), source }.into()
}

/// Whether a name is one that [`Folder::load`] gives; nothing else in a folder is counted or removed.
fn is_setup(name: &str) -> bool {
    let parts = name.strip_suffix(SUFFIX).and_then(|n| n.split_once('-'));
    parts.is_some_and(|(hash, stage)| store::is_hex(hash, NAME) && stage.parse::<u32>().is_ok())
}

impl Folder {
    /// Makes the folder if there is none, and removes what is out of date.
    ///
    /// # Errors
    /// [`Error::Store`] when that fails.
    pub(super) fn open(
        path: &Path,
        server: &str,
        plan_digest: &[u8; 32],
        policy: Policy,
    ) -> Result<Self, Error> {
        store::create_secret_folder(path).map_err(failed(path))?;
        let mut hash = Sha256::new();
        hash.update((server.len() as u64).to_le_bytes());
        hash.update(server);
        hash.update(plan_digest);
        let name = store::hex(&hash.finalize()[..NAME / 2]);
        let folder = Self { path: path.to_owned(), name, quota: policy.quota };
        store::expire(&folder.files()?, policy.age);
        Ok(folder)
    }

    /// All set-ups of the folder.
    fn files(&self) -> Result<Vec<Found>, Error> {
        store::files(&self.path, is_setup).map_err(failed(&self.path))
    }

    /// That `needed` bytes of this plan's set-ups have room beside all others.
    ///
    /// # Errors
    /// [`Error::Store`] with both sizes and the quota when they have not.
    pub fn check_room(&self, needed: u64) -> Result<(), Error> {
        let own =
            |p: &Path| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&self.name));
        let others =
            self.files()?.iter().filter(|f| !own(&f.path)).fold(0, |sum: u64, f| sum.saturating_add(f.bytes));
        if others.saturating_add(needed) > self.quota {
            let (path, quota) = (self.path.clone(), self.quota);
            return Err(StoreError::Quota { path, needed, others, quota }.into());
        }
        Ok(())
    }

    /// What is there of the set-up that `header` names, cut to what is claimed of it; an empty one otherwise. The file is locked until the result is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Store`] when the file system refuses; what [`Setup::begin`] refuses, as `refused` has it.
    pub fn load(
        &self,
        design: &Design,
        stage: usize,
        header: &[u8],
        refused: impl FnOnce(LayerError) -> Error,
    ) -> Result<Kept, Error> {
        let empty = Setup::begin(design, header).map_err(refused)?;
        let path = self.path.join(format!("{}-{stage}{SUFFIX}", self.name));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Kept::unstored(empty)),
            Err(TryLockError::Error(e)) => return Err(failed(&path)(e)),
        }
        let most = empty.stored_len(empty.expected()) as u64;
        let mut stored = Vec::new();
        if file.metadata().map_err(failed(&path))?.len() <= most {
            (&file).take(most).read_to_end(&mut stored).map_err(failed(&path))?;
        }
        let found = Setup::from_bytes(design, &stored).ok().filter(|s| s.header() == empty.header());
        drop(stored);
        let mut setup = found.unwrap_or(empty);
        let written = setup.claim();
        // What follows the last polynomial that is claimed, or is no part of this set-up, goes.
        let keep = if written == 0 { 0 } else { setup.stored_len(written) };
        file.set_len(keep as u64).map_err(failed(&path))?;
        file.seek(SeekFrom::End(0)).map_err(failed(&path))?;
        if keep == 0 {
            file.write_all(header).map_err(failed(&path))?;
        }
        // Used now, whether anything is written or not.
        file.set_modified(SystemTime::now()).map_err(failed(&path))?;
        Ok(Kept { setup, file: Some((file, path)), written })
    }
}

impl Kept {
    /// A set-up that no file keeps.
    pub fn unstored(setup: Setup) -> Self {
        Self { written: setup.received(), setup, file: None }
    }

    /// Takes the next polynomial, and stores what has come when it is much.
    ///
    /// # Errors
    /// [`Error::Store`] when the file cannot be written; what [`Setup::receive`] refuses.
    pub fn receive(&mut self, poly: &[u8]) -> Result<(), Error> {
        self.setup.receive(poly)?;
        let waiting = self.setup.received() - self.written;
        if waiting * poly.len() >= PIECE || self.setup.received() == self.setup.expected() {
            self.store()?;
        }
        Ok(())
    }

    /// The client's half of the stage. A file whose words cannot be used is emptied.
    ///
    /// # Errors
    /// What [`RotationFreeClient::new`] refuses.
    pub fn client(&mut self, design: &Design, compute: &Compute) -> Result<RotationFreeClient, LayerError> {
        let client = compute.run(|| RotationFreeClient::new(design, &self.setup));
        if client.is_err() {
            if let Some((file, _)) = self.file.take() {
                // It is of no use, emptied or not: the next session reads it and comes here again.
                let _ = file.set_len(0);
            }
        }
        client
    }

    fn store(&mut self) -> Result<(), Error> {
        if let Some((file, path)) = &mut self.file {
            file.write_all(&self.setup.records(self.written)).map_err(failed(path))?;
            self.written = self.setup.received();
        }
        Ok(())
    }
}

impl Drop for Kept {
    /// A session that ends here can be continued from what has come.
    fn drop(&mut self) {
        let _ = self.store();
    }
}
