//! The client's units: seeds of r, its shares u and its pads, in a folder, each spent before its inference begins.
//!
//! A file for each unit, and one with the token that units belong to at the server. Names begin with a hash of the server's address and of the public plan,
//! so that no server learns the token that another one knows, and no unit meets another plan. A file is written under another name, flushed and renamed.
//! To spend one is to read it, to remove it, and to flush the folder; of two processes that try one alone removes it. Copies of a folder, backups and
//! snapshots of a machine among them, must never be put back: what was spent would be there again.

use super::{
    remove_durably, sealed, short, unsealed, Claim, Contents, Half, Id, Named, Part, Parts, NAME, PART,
    SUFFIX,
};
use crate::error::{Error, UnitError};
use crate::store::{self, Found};
use hushnet_mpc::{Party, Ring};
use hushnet_ring::ledger;
use hushnet_ring::Prg;
use hushnet_rlwe::uses;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::{Zeroize, Zeroizing};

const MAGIC: [u8; 8] = *b"HNUNITC2";
const TOKEN_MAGIC: [u8; 8] = *b"HNTOKEN1";
/// Bytes of a file in front of the shares: identity, seed of r, what it cost.
const HEADER: usize = 16 + 32 + 3 * 8;
/// Units that were prepared so long ago are removed: servers keep them for as long by default.
const AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What units cost when they were prepared: a fair part of their group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct UnitCost {
    /// Seconds of the exchange that prepared it.
    pub seconds: f64,
    /// Bytes that went to the server.
    pub bytes_up: u64,
    /// Bytes that came from the server.
    pub bytes_down: u64,
}

impl UnitCost {
    /// Adds what these units cost.
    pub(in crate::two_party) fn add(&mut self, units: &[ClientUnit]) {
        for unit in units {
            self.seconds += unit.cost.seconds;
            self.bytes_up += unit.cost.bytes_up;
            self.bytes_down += unit.cost.bytes_down;
        }
    }
}

/// A unit at the client. No `Debug`.
pub(in crate::two_party) struct ClientUnit {
    id: Id,
    /// Of r.
    seed: [u8; 32],
    pub(in crate::two_party) cost: UnitCost,
    pub(in crate::two_party) half: Half,
}

impl Drop for ClientUnit {
    fn drop(&mut self) {
        self.seed.zeroize();
        self.id.zeroize();
    }
}

impl ClientUnit {
    /// A new one, whose half is still to be prepared.
    ///
    /// # Errors
    /// [`Error::Internal`] without randomness.
    pub(in crate::two_party) fn draw(parts: &Parts) -> Result<Self, Error> {
        let (mut id, mut seed) = ([0; 16], [0; 32]);
        let mut prg = Prg::from_os()?;
        prg.fill_bytes(&mut id);
        prg.fill_bytes(&mut seed);
        Ok(Self { id, seed, cost: UnitCost::default(), half: Half::new(parts) })
    }

    /// r of a tensor: uniform modulo 2^l, the same at every call.
    fn mask(&self, tensor: usize, ring: Ring, out: &mut [u64]) {
        let mut key = short("hushnet mask of a unit 1", &[&self.seed, &(tensor as u64).to_le_bytes()]);
        // Made twice by design: the layers are prepared on it, and the image meets it once (`online`).
        Prg::from_seed(key).untracked().fill_words(out);
        key.zeroize();
        out.iter_mut().for_each(|v| *v = ring.reduce(*v));
    }

    fn header(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(HEADER));
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.seed);
        out.extend_from_slice(&self.cost.seconds.to_le_bytes());
        out.extend_from_slice(&self.cost.bytes_up.to_le_bytes());
        out.extend_from_slice(&self.cost.bytes_down.to_le_bytes());
        out
    }

    fn read(content: [Zeroizing<Vec<u8>>; 3]) -> Self {
        let [header, shares, pads] = content;
        let word = |at: usize| {
            let mut out = [0; 8];
            out.copy_from_slice(&header[48 + 8 * at..][..8]);
            u64::from_le_bytes(out)
        };
        let cost = UnitCost { seconds: f64::from_bits(word(0)), bytes_up: word(1), bytes_down: word(2) };
        let (mut id, mut seed) = ([0; 16], [0; 32]);
        id.copy_from_slice(&header[..16]);
        seed.copy_from_slice(&header[16..48]);
        Self { id, seed, cost, half: Half::read([shares, pads]) }
    }
}

/// r of a stage's input, unit by unit.
pub(in crate::two_party) fn masks(
    units: &[ClientUnit],
    part: &Part,
    (elements, ring): (usize, Ring),
) -> Vec<u64> {
    let mut out = vec![0; elements * units.len()];
    for (unit, out) in units.iter().zip(out.chunks_exact_mut(elements)) {
        unit.mask(part.input, ring, out);
    }
    out
}

/// r as the image meets it: recorded, because this happens once.
pub(in crate::two_party) fn online(
    units: &[ClientUnit],
    part: &Part,
    (elements, ring): (usize, Ring),
) -> Vec<u64> {
    let mut out = masks(units, part, (elements, ring));
    if ledger::ON {
        for words in out.chunks_exact_mut(elements) {
            ledger::vector(uses::UNIT_MASK, words);
        }
    }
    out
}

/// The names of units for the wire.
pub(in crate::two_party) fn claim(
    token: &Id,
    units: &[ClientUnit],
    mut seed: impl FnMut() -> Result<[u8; 32], Error>,
) -> Result<Claim, Error> {
    let units = units.iter().map(|u| Ok(Named { id: u.id, seed: seed()? })).collect::<Result<_, Error>>()?;
    Ok(Claim { token: *token, units })
}

/// Bytes of a unit's file.
pub(in crate::two_party) fn file_bytes(contents: &Contents) -> u64 {
    contents.bytes(Party::One).saturating_add((8 + HEADER + 32) as u64)
}

/// A client's folder of units, for one server and plan. No `Debug`.
pub(in crate::two_party) struct UnitFolder {
    path: PathBuf,
    name: String,
    token: Id,
    /// Of a unit's shares and of its pads.
    lengths: [usize; 2],
}

impl Drop for UnitFolder {
    fn drop(&mut self) {
        self.token.zeroize();
    }
}

fn refused(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    |source| UnitError::Folder { path: path.to_owned(), source }.into()
}

impl UnitFolder {
    /// Makes the folder and the token if there are none, and removes what a killed client has not finished and what is out of date.
    ///
    /// # Errors
    /// [`Error::Units`] when the file system refuses; [`Error::Internal`] without randomness.
    pub(in crate::two_party) fn open(
        path: &Path,
        server: &str,
        digest: &[u8; 32],
        contents: &Contents,
    ) -> Result<Self, Error> {
        store::create_folder(path).map_err(refused(path))?;
        let name = store::hex(&short("hushnet units 1", &[server.as_bytes(), digest]));
        let file = path.join(format!("{name}.token"));
        let token = match Self::token(&file).map_err(refused(path))? {
            Some(token) => token,
            None => {
                let mut token = [0; 16];
                Prg::from_os()?.fill_bytes(&mut token);
                let part = path.join(format!("{name}-token{PART}"));
                // What a killed client has not finished; its owner is gone, or writes the same file.
                let _ = std::fs::remove_file(&part);
                store::write_private(&part, &file, &sealed(TOKEN_MAGIC, &[&token])).map_err(refused(path))?;
                token
            }
        };
        let folder = Self { path: path.to_owned(), name, token, lengths: contents.lengths(Party::One) };
        store::expire(&folder.files()?, AGE);
        Ok(folder)
    }

    fn token(file: &Path) -> std::io::Result<Option<Id>> {
        let content = match unsealed(TOKEN_MAGIC, file, [16]) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            found => found?,
        };
        Ok(content.map(|[content]| {
            let mut token = [0; 16];
            token.copy_from_slice(&content);
            token
        }))
    }

    /// What its units belong to at the server.
    pub(in crate::two_party) fn secret(&self) -> &Id {
        &self.token
    }

    /// Its units, those that were prepared first at the front.
    fn files(&self) -> Result<Vec<Found>, Error> {
        let own = |name: &str| {
            let rest = name.strip_suffix(SUFFIX).and_then(|n| n.strip_prefix(&self.name));
            rest.and_then(|n| n.strip_prefix('-')).is_some_and(|n| store::is_hex(n, NAME))
        };
        let mut files = store::files(&self.path, own).map_err(refused(&self.path))?;
        files.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        Ok(files)
    }

    /// That so many units are there.
    ///
    /// # Errors
    /// [`UnitError::Lacking`] when there are fewer; [`Error::Units`] when the file system refuses.
    pub(in crate::two_party) fn check(&self, needed: usize) -> Result<(), Error> {
        let found = self.count()?;
        if found < needed {
            return Err(UnitError::Lacking { path: self.path.clone(), needed, found }.into());
        }
        Ok(())
    }

    /// How many units are there.
    ///
    /// # Errors
    /// [`Error::Units`] when the file system refuses.
    pub(in crate::two_party) fn count(&self) -> Result<usize, Error> {
        Ok(self.files()?.len())
    }

    /// Keeps a unit that the server has.
    ///
    /// # Errors
    /// [`Error::Units`] when the file system refuses.
    pub(in crate::two_party) fn keep(&self, unit: &ClientUnit) -> Result<(), Error> {
        let id = store::hex(&unit.id);
        let (part, path) =
            (self.path.join(format!("{id}{PART}")), self.path.join(format!("{}-{id}{SUFFIX}", self.name)));
        let [shares, pads] = unit.half.content();
        let bytes = sealed(MAGIC, &[&unit.header(), shares, pads]);
        store::write_private(&part, &path, &bytes).map_err(refused(&self.path))
    }

    /// Spends so many units: when this returns they are gone from the folder for good. A damaged file is removed and another one taken.
    ///
    /// # Errors
    /// [`UnitError::Lacking`] when there are fewer, and then none is spent of those that were counted; [`Error::Units`] when the file system refuses.
    pub(in crate::two_party) fn take(&self, needed: usize) -> Result<Vec<ClientUnit>, Error> {
        let files = self.files()?;
        let lacking = |found| Error::from(UnitError::Lacking { path: self.path.clone(), needed, found });
        if files.len() < needed {
            return Err(lacking(files.len()));
        }
        let mut units = Vec::new();
        for file in files {
            if units.len() == needed {
                return Ok(units);
            }
            let [shares, pads] = self.lengths;
            let content = match unsealed(MAGIC, &file.path, [HEADER, shares, pads]) {
                // Another session has spent it.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                read => read.map_err(refused(&self.path))?,
            };
            let removed = remove_durably(&file.path).map_err(refused(&self.path))?;
            match content {
                Some(content) if removed => units.push(ClientUnit::read(content)),
                Some(_) => {}
                None => tracing::warn!("a prepared inference is damaged and removed"),
            }
        }
        let found = units.len();
        if found == needed {
            return Ok(units);
        }
        Err(lacking(found))
    }
}
