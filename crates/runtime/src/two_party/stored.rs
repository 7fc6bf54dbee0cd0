//! Set-ups of rotation-free layers in a folder of the client's, so that a session with the same server needs none, and an interrupted one goes on.
//!
//! One file a stage, named by the first 16 bytes of the public plan's hash and the stage: the stored form of
//! [`hushnet_layers::rotation_free::Setup`], which says why it is safe for both parties. A file belongs to the
//! set-up whose header it begins with. The server of a session sends its header first; a file with another one (the server was started
//! anew, another model of the same shapes) or a damaged one is replaced. A file that another session is writing is left alone.

use crate::compute::Compute;
use crate::error::{Error, StoreError};
use hushnet_layers::batch::LayerError;
use hushnet_layers::rotation_free::{Design, RotationFreeClient, Setup};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Polynomials are written when so many bytes of them have come, and at the end.
const PIECE: usize = 1 << 20;

/// A client's folder of set-ups, for one plan.
pub(super) struct Folder {
    path: PathBuf,
    plan: String,
}

/// The set-up of a stage, as far as it has come, and the file that it is kept in.
pub(super) struct Kept {
    pub setup: Setup,
    file: Option<(File, PathBuf)>,
    /// Polynomials in the file.
    written: usize,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    |source| StoreError { path: path.to_owned(), source }.into()
}

impl Folder {
    /// Makes the folder if there is none.
    ///
    /// # Errors
    /// [`Error::Store`] when that fails.
    pub fn open(path: &Path, plan_digest: &[u8; 32]) -> Result<Self, Error> {
        std::fs::create_dir_all(path).map_err(failed(path))?;
        let plan = plan_digest[..16].iter().map(|b| format!("{b:02x}")).collect();
        Ok(Self { path: path.to_owned(), plan })
    }

    /// What is there of the set-up that `header` names; an empty one otherwise. The file is locked until the result is dropped.
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
        let path = self.path.join(format!("{}-{stage}.setup", self.plan));
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
        let setup = found.unwrap_or(empty);
        let written = setup.received();
        // What follows the last whole polynomial, or is no part of this set-up, goes.
        let keep = if written == 0 { 0 } else { setup.stored_len(written) };
        file.set_len(keep as u64).map_err(failed(&path))?;
        file.seek(SeekFrom::End(0)).map_err(failed(&path))?;
        if keep == 0 {
            file.write_all(header).map_err(failed(&path))?;
        }
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
