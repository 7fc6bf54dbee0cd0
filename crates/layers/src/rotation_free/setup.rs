//! What the client keeps of a model: p1 (and p2) of every weight polynomial, in a file that can be continued.
//!
//! Bytes: magic `HRF1`, version (u8), profile (u8, 0 compact, 1 flooded), two zeros; weight polynomials in all (u32); stage (u32); the
//! seed of b (32); SHA-256 of the design (32). Then the polynomials in order, each limb after limb, bit-packed. A stored set-up ends with
//! the SHA-256 of all before.

use super::{Design, Profile};
use crate::batch::{expect, LayerError};
use crate::phases::shape_of;
use sha2::{Digest, Sha256};

/// Bytes of the header.
pub(super) const HEADER: usize = 80;
const MAGIC: [u8; 4] = *b"HRF1";
const VERSION: u8 = 1;

/// SHA-256 of shapes and parameters, as little-endian u64.
fn digest(design: &Design) -> [u8; 32] {
    let (s, p, l) = (shape_of(&design.geometry), &design.params, &design.layout);
    let mut hash = Sha256::new();
    let mut put = |values: &[usize]| values.iter().for_each(|v| hash.update((*v as u64).to_le_bytes()));
    put(&s.input);
    put(&s.output);
    put(&s.kernel);
    put(&s.stride);
    put(&s.pads);
    put(&s.dilation);
    put(&[s.groups, l.degree(), l.spacing(), l.tiles(), l.input_blocks(), l.output_blocks()]);
    put(&[p.ring_bits() as usize, p.beta_bits() as usize, p.rho_bits() as usize]);
    p.prime_bits().iter().for_each(|b| put(&[*b as usize]));
    hash.finalize().into()
}

pub(super) fn header(design: &Design, seed: &[u8; 32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, u8::from(design.profile() == Profile::Flooded), 0, 0]);
    out.extend_from_slice(&(design.layout.cost().weight_polys as u32).to_le_bytes());
    out.extend_from_slice(&design.stage.to_le_bytes());
    out.extend_from_slice(seed);
    out.extend_from_slice(&digest(design));
    out
}

/// A set-up, complete or not.
#[derive(Clone, PartialEq, Eq)]
pub struct Setup {
    bytes: Vec<u8>,
    poly_len: usize,
    polys: usize,
}

impl Setup {
    /// An empty set-up from a header that the server sent.
    ///
    /// # Errors
    /// [`LayerError::Setup`] when it is of another version or design.
    pub fn begin(design: &Design, header: &[u8]) -> Result<Self, LayerError> {
        expect("header of a set-up", HEADER, header.len())?;
        let setup = Self {
            bytes: header.to_vec(),
            poly_len: design.setup_poly_len(),
            polys: design.layout.cost().weight_polys,
        };
        setup.check(design)?;
        Ok(setup)
    }

    pub(super) fn check(&self, design: &Design) -> Result<(), LayerError> {
        if self.bytes[..4] != MAGIC || self.bytes[4] != VERSION {
            return Err(LayerError::Setup("it is not a set-up of this version"));
        }
        let mut seed = [0; 32];
        seed.copy_from_slice(self.seed());
        if self.bytes[..HEADER] != header(design, &seed) {
            return Err(LayerError::Setup("it was made for another layer or other parameters"));
        }
        Ok(())
    }

    /// The seed of b.
    pub(super) fn seed(&self) -> &[u8; 32] {
        let (_, rest) = self.bytes.split_at(16);
        rest.first_chunk().unwrap_or(&[0; 32])
    }

    /// Weight polynomials in all.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.polys
    }

    /// Weight polynomials received: the number of the next one.
    #[must_use]
    pub fn received(&self) -> usize {
        (self.bytes.len() - HEADER) / self.poly_len
    }

    /// Adds the next weight polynomial.
    ///
    /// # Errors
    /// [`LayerError::Length`] for a wrong length, or when all have come.
    pub fn receive(&mut self, poly: &[u8]) -> Result<(), LayerError> {
        expect("set-up of a weight polynomial", self.poly_len, poly.len())?;
        if self.received() == self.polys {
            return Err(LayerError::Length {
                what: "weight polynomials of the set-up",
                expected: self.polys,
                got: self.polys + 1,
            });
        }
        self.bytes.extend_from_slice(poly);
        Ok(())
    }

    pub(super) fn polys(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes[HEADER..].chunks_exact(self.poly_len)
    }

    /// A file to go on from later.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.bytes.clone();
        out.extend_from_slice(&Sha256::digest(&self.bytes));
        out
    }

    /// Reads [`Self::to_bytes`].
    ///
    /// # Errors
    /// [`LayerError::Setup`] when it is damaged, of another version or of another design.
    pub fn from_bytes(design: &Design, bytes: &[u8]) -> Result<Self, LayerError> {
        let damaged = Err(LayerError::Setup("the stored bytes are damaged"));
        let Some((body, hash)) = bytes.split_last_chunk::<32>() else { return damaged };
        if body.len() < HEADER || Sha256::digest(body)[..] != hash[..] {
            return damaged;
        }
        let mut setup = Self::begin(design, &body[..HEADER])?;
        let polys = &body[HEADER..];
        if polys.len() % setup.poly_len != 0 || polys.len() / setup.poly_len > setup.polys {
            return damaged;
        }
        setup.bytes.extend_from_slice(polys);
        Ok(setup)
    }
}
