//! What the client keeps of a model: p1 (and p2) of every weight polynomial, in a file that can be continued.
//!
//! Header (derived by both parties from the public plan, never sent; it names the set-up): magic `HRF1`, version (u8), profile (u8, 0 compact, 1 flooded), two zeros; weight
//! polynomials in all (u32); stage (u32); the seed of b (32), a hash of the public plan, which names the preparation; SHA-256 of the design (32).
//! The polynomials follow in order, each limb after limb, bit-packed. Stored, each polynomial has a tag after it: 16 bytes of
//! SHA-256(header, number, polynomial). A file only grows; one cut anywhere is a set-up to go on with.
//!
//! *Why storing and continuing is safe for the server.* A set-up is one function of the weights and of seeds drawn when the model was
//! prepared: polynomial k has always the same e1, e2 (rho), so it is always the same bytes. A client that asks for it again, in
//! another session, after an interruption, or in the name of another client, receives what it had or could have had: all such transcripts
//! follow from the one set-up, which [`hushnet_rlwe::one_poly`] simulates. What must not happen is fresh errors for the same e2 (or
//! rho), which could be averaged away: the errors have no source but the seed of the set-up. A server prepared anew draws new seeds of errors
//! and a new name of the preparation, hence another b: another set-up, and many of them are simulated as one is. That b is a hash of public
//! numbers takes nothing away: it is public and uniform either way (the hash as a random oracle), and no party chooses it. A client that lies about what it holds only receives less.
//!
//! *Why it is safe for the client.* Requests depend on b alone, which both parties derive from the public plan, never on stored polynomials; a
//! file that was altered, tags and all, spoils the client's own results and tells the server nothing. Nothing stored is secret to the
//! client. The server sends nothing that a client stores under a name of the server's choice beside the plan itself: it learns that this
//! client holds set-ups of this plan, all of them or so many sixteenths ([`Setup::claim`]), which is the same for every client that holds as much.

use super::{Design, Profile};
use crate::batch::{expect, LayerError};
use crate::phases::shape_of;
use sha2::{Digest, Sha256};

/// Bytes of the header.
pub(super) const HEADER: usize = 80;
const MAGIC: [u8; 4] = *b"HRF1";
const VERSION: u8 = 2;
/// Bytes of a stored polynomial's tag.
pub(super) const TAG: usize = 16;

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
    /// An empty set-up under a header.
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

    /// The number of weight polynomials of a whole set-up.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.polys
    }

    /// Weight polynomials received: the number of the next one.
    #[must_use]
    pub fn received(&self) -> usize {
        (self.bytes.len() - HEADER) / self.poly_len
    }

    /// Cuts an incomplete set-up to whole sixteenths, and says how many polynomials that leaves: a client that was interrupted tells one of
    /// sixteen places, not the very polynomial that it had come to.
    pub fn claim(&mut self) -> usize {
        let received = self.received();
        if received < self.polys {
            let kept = received - received % self.polys.div_ceil(16);
            self.bytes.truncate(HEADER + kept * self.poly_len);
        }
        self.received()
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

    /// The header: what a stored file begins with.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.bytes[..HEADER]
    }

    fn tag(header: &[u8], k: usize, poly: &[u8]) -> [u8; TAG] {
        let mut hash = Sha256::new();
        hash.update(header);
        hash.update((k as u32).to_le_bytes());
        hash.update(poly);
        let mut tag = [0; TAG];
        tag.copy_from_slice(&hash.finalize()[..TAG]);
        tag
    }

    /// The stored form of the weight polynomials from number `from` on: what a file that holds so many grows by.
    #[must_use]
    pub fn records(&self, from: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity((self.received().saturating_sub(from)) * (self.poly_len + TAG));
        for (k, poly) in self.polys().enumerate().skip(from) {
            out.extend_from_slice(poly);
            out.extend_from_slice(&Self::tag(self.header(), k, poly));
        }
        out
    }

    /// A file to go on from later.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.header(), &self.records(0)].concat()
    }

    /// Bytes of the stored form of so many weight polynomials.
    #[must_use]
    pub fn stored_len(&self, polys: usize) -> usize {
        HEADER + polys * (self.poly_len + TAG)
    }

    /// Reads [`Self::to_bytes`]. A polynomial that is cut at the end of the file is left out: it comes again.
    ///
    /// # Errors
    /// [`LayerError::Setup`] when it is damaged, of another version or of another design.
    pub fn from_bytes(design: &Design, bytes: &[u8]) -> Result<Self, LayerError> {
        let damaged = || LayerError::Setup("the stored bytes are damaged");
        let (head, rest) = bytes.split_at_checked(HEADER).ok_or_else(damaged)?;
        let mut setup = Self::begin(design, head)?;
        if rest.len() > setup.stored_len(setup.polys) - HEADER {
            return Err(damaged());
        }
        for (k, record) in rest.chunks_exact(setup.poly_len + TAG).enumerate() {
            let (poly, tag) = record.split_at(setup.poly_len);
            if Self::tag(head, k, poly) != tag {
                return Err(damaged());
            }
            setup.bytes.extend_from_slice(poly);
        }
        Ok(setup)
    }
}
