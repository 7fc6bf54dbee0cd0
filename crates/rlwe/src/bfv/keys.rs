//! Permutations of the slots, and the public keys of a session.

use super::error::expect;
use super::params::BfvParams;
use super::BfvError;
use crate::uses;
use hushnet_ring::rns::{uniform_limb, Automorphism, Eval, RnsPoly};
use hushnet_ring::{ledger, pack, secret, Prg};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;

/// A permutation of the slots: slot (r, j) receives slot (r xor swap, j + left).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn {
    /// Whether the rows change places.
    pub swap: bool,
    /// Columns to the left, modulo N/2.
    pub left: usize,
}

impl Turn {
    /// The rows stay; columns move.
    #[must_use]
    pub fn left(left: usize) -> Self {
        Self { swap: false, left }
    }

    /// By a signed number of columns.
    #[must_use]
    pub fn by(columns: i64, row: usize) -> Self {
        Self::left(columns.rem_euclid(row as i64) as usize)
    }

    /// This one after `other`, rows having `row` columns.
    #[must_use]
    pub fn then(self, other: Self, row: usize) -> Self {
        Self { swap: self.swap != other.swap, left: (self.left + other.left) % row }
    }

    /// Whether the permutation leaves all slots in place.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        !self.swap && self.left == 0
    }

    /// g of `X -> X^g`: `5^left`, negated for a swap, modulo 2N.
    #[must_use]
    pub fn exponent(self, ring_degree: usize) -> usize {
        let turn = 2 * ring_degree;
        let (mut g, mut base, mut e) = (1, 5, self.left % (ring_degree / 2).max(1));
        while e > 0 {
            if e & 1 == 1 {
                g = g * base % turn;
            }
            base = base * base % turn;
            e >>= 1;
        }
        if self.swap {
            turn - g
        } else {
            g
        }
    }

    /// The permutation that undoes this one, for rows of `row` slots.
    #[must_use]
    pub fn inverse(self, row: usize) -> Self {
        Self { swap: self.swap, left: (row - self.left % row) % row }
    }

    /// The permuted slots, in the clear.
    #[must_use]
    pub fn apply(self, slots: &[u64]) -> Vec<u64> {
        let row = slots.len() / 2;
        let mut out = Vec::with_capacity(slots.len());
        for r in 0..2 {
            let from = &slots[(r ^ usize::from(self.swap)) * row..][..row];
            let left = self.left % row.max(1);
            out.extend_from_slice(&from[left..]);
            out.extend_from_slice(&from[..left]);
        }
        out
    }
}

/// What the bits of a seed stand for.
#[derive(Clone, Copy)]
pub(super) enum Domain {
    Ciphertext,
    PublicKey,
    Galois(usize, usize),
}

/// Uniform polynomial in evaluation form from a seed: AES-128-CTR under a hash of seed, use and prime.
pub(super) fn expand(
    params: &BfvParams,
    seed: &[u8; 32],
    domain: Domain,
    range: Range<usize>,
) -> Result<RnsPoly<Eval>, BfvError> {
    let mut poly = params.basis().zero::<Eval>(range.clone())?;
    let words = match domain {
        Domain::Ciphertext => [0, 0, 0],
        Domain::PublicKey => [1, 0, 0],
        Domain::Galois(g, d) => [2, g as u64, d as u64],
    };
    for i in range {
        let m = params.basis().moduli()[i];
        let mut h = Sha256::new();
        h.update(b"hushnet bfv uniform 1");
        h.update(seed);
        for w in words.into_iter().chain([m.value()]) {
            h.update(w.to_le_bytes());
        }
        let mut key = [0; 16];
        key.copy_from_slice(&h.finalize()[..16]);
        // Public: both parties expand it.
        uniform_limb(&mut Prg::from_seed(key).untracked(), &m, poly.limb_mut(i));
    }
    Ok(poly)
}

pub(super) fn fresh_seed(prg: &mut Prg) -> [u8; 32] {
    let mut seed = [0; 32];
    prg.fill_bytes(&mut seed);
    ledger::bytes(uses::SEED, &mut seed);
    // The seed travels.
    secret::declassify(seed)
}

/// `(-a s + e, a)` over the data primes: what the server re-randomises with. Public.
#[derive(Clone)]
pub struct PublicKey {
    pub(super) params: BfvParams,
    pub(super) seed: [u8; 32],
    pub(super) b: RnsPoly<Eval>,
    pub(super) a: RnsPoly<Eval>,
}

impl PublicKey {
    /// The seed of a, and b: [`BfvParams::request_len`] bytes.
    ///
    /// # Errors
    /// [`BfvError::Ring`] when packing is refused.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BfvError> {
        let mut out = self.seed.to_vec();
        write_poly(&self.params, &self.b, self.params.data(), &mut out)?;
        Ok(out)
    }

    /// Reads a client's key.
    ///
    /// # Errors
    /// [`BfvError::Length`], [`BfvError::Damaged`] for words not below their prime.
    pub fn from_bytes(params: &BfvParams, bytes: &[u8]) -> Result<Self, BfvError> {
        expect("public key", bytes.len(), params.request_len())?;
        let (seed, mut body) = seed_of(bytes);
        let b = read_poly(params, params.data(), &mut body, "a public key")?;
        let a = expand(params, &seed, Domain::PublicKey, params.data())?;
        Ok(Self { params: params.clone(), seed, b, a })
    }
}

fn seed_of(bytes: &[u8]) -> ([u8; 32], &[u8]) {
    let (head, body) = bytes.split_at(32);
    let mut seed = [0; 32];
    seed.copy_from_slice(head);
    (seed, body)
}

/// Every limb packed to its prime's bits.
fn write_poly(
    params: &BfvParams,
    poly: &RnsPoly<Eval>,
    range: Range<usize>,
    out: &mut Vec<u8>,
) -> Result<(), BfvError> {
    for i in range {
        let bits = params.limb_bits(i);
        let start = out.len();
        out.resize(start + pack::packed_len(params.ring_degree(), bits), 0);
        pack::pack(poly.limb(i), bits, &mut out[start..])?;
    }
    Ok(())
}

/// Takes one polynomial off the front of `bytes`, whose length the caller has checked.
fn read_poly(
    params: &BfvParams,
    range: Range<usize>,
    bytes: &mut &[u8],
    what: &'static str,
) -> Result<RnsPoly<Eval>, BfvError> {
    let mut poly = params.basis().zero::<Eval>(range.clone())?;
    for i in range {
        let bits = params.limb_bits(i);
        let (part, rest) = bytes.split_at(pack::packed_len(params.ring_degree(), bits));
        *bytes = rest;
        pack::unpack(part, bits, poly.limb_mut(i))?;
        let q = params.basis().moduli()[i].value();
        if poly.limb(i).iter().fold(false, |bad, w| bad | (*w >= q)) {
            return Err(BfvError::Damaged(what));
        }
    }
    Ok(poly)
}

/// A switching key: a pair a digit over all primes, and its permutation's tables.
#[derive(Clone)]
pub(super) struct GaloisKey {
    pub(super) b: Vec<RnsPoly<Eval>>,
    pub(super) a: Vec<RnsPoly<Eval>>,
    pub(super) map: Automorphism,
}

/// Keys for a chosen set of permutations. Public.
#[derive(Clone)]
pub struct GaloisKeys {
    pub(super) params: BfvParams,
    /// Of all uniform halves: domains name permutation and digit.
    pub(super) seed: [u8; 32],
    pub(super) keys: BTreeMap<Turn, GaloisKey>,
}

impl GaloisKeys {
    /// A set of keys that has none, for layers that permute nothing.
    #[must_use]
    pub fn none(params: &BfvParams) -> Self {
        Self { params: params.clone(), seed: [0; 32], keys: BTreeMap::new() }
    }

    /// The seed, then the b halves, permutations in increasing order: [`BfvParams::galois_keys_len`] bytes.
    ///
    /// # Errors
    /// [`BfvError::Ring`] when packing is refused.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BfvError> {
        let mut out = Vec::with_capacity(self.params.galois_keys_len(self.len()));
        if !self.is_empty() {
            out.extend_from_slice(&self.seed);
        }
        for key in self.keys.values() {
            key.b.iter().try_for_each(|b| write_poly(&self.params, b, self.params.all(), &mut out))?;
        }
        Ok(out)
    }

    /// Reads a client's keys for exactly these permutations: which they are is agreed before.
    ///
    /// # Errors
    /// [`BfvError::NoSwitching`], [`BfvError::Length`], [`BfvError::Damaged`] for words not below their prime.
    pub fn from_bytes(params: &BfvParams, wanted: &[Turn], bytes: &[u8]) -> Result<Self, BfvError> {
        let wanted: std::collections::BTreeSet<Turn> =
            wanted.iter().copied().filter(|t| !t.is_identity()).collect();
        if !wanted.is_empty() && !params.spec().switches() {
            return Err(BfvError::NoSwitching);
        }
        expect("Galois keys", bytes.len(), params.galois_keys_len(wanted.len()))?;
        if wanted.is_empty() {
            return Ok(Self::none(params));
        }
        let (seed, mut body) = seed_of(bytes);
        let digits = params.spec().primes * params.spec().digits_per_prime();
        let mut keys = BTreeMap::new();
        for turn in wanted {
            let g = turn.exponent(params.ring_degree());
            let map = Automorphism::new(params.basis(), g)?;
            let mut key = GaloisKey { b: Vec::with_capacity(digits), a: Vec::with_capacity(digits), map };
            for number in 0..digits {
                key.b.push(read_poly(params, params.all(), &mut body, "a Galois key")?);
                key.a.push(expand(params, &seed, Domain::Galois(g, number), params.all())?);
            }
            keys.insert(turn, key);
        }
        Ok(Self { params: params.clone(), seed, keys })
    }

    /// Number of key-switching keys in this set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn get(&self, turn: Turn) -> Result<&GaloisKey, BfvError> {
        self.keys.get(&turn).ok_or_else(|| BfvError::MissingKey(format!("{turn:?}")))
    }

    /// Number of bytes that travel, as [`Self::to_bytes`] writes them.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.params.galois_keys_len(self.len())
    }
}
