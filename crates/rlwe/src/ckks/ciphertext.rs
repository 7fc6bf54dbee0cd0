//! Ciphertexts and their public bookkeeping.

use super::noise::independent_sum;
use super::{CkksError, CkksParams, Level, Plaintext};
use crate::batch::TAIL;
use crate::uses;
use hushnet_ring::ledger::{self, Tag};
use hushnet_ring::rns::{uniform_limb_of, Coef, Draws, Eval, Modulus, RnsPoly};
use hushnet_ring::{secret, Prg};
use sha2::{Digest, Sha256};
use std::ops::Range;
use zeroize::Zeroize;

/// Relative difference of scales that still counts as equal. Rounding of the bookkeeping itself stays far
/// below (2^-52 an operation); the error that a difference makes is added to the noise estimate.
pub const SCALE_TOLERANCE: f64 = 9.094_947_017_729_282e-13; // 2^-40

/// Bits of the widest flood that [`PublicKey::hide`] adds.
pub const MAX_FLOOD_BITS: u32 = 120;
/// Bits of the lower of the two parts that a wide flood is drawn in.
const LOW_BITS: u32 = 60;

/// Where a uniform polynomial is used; part of its derivation.
#[derive(Clone, Copy)]
pub(super) enum Domain {
    Ciphertext,
    PublicKey,
    Relinearise(usize),
    Galois(usize, usize),
    /// To the sparse secret of a bootstrap.
    Encapsulate,
    /// From it, by digit.
    Release(usize),
}

impl Domain {
    fn words(self) -> [u64; 3] {
        match self {
            Domain::Ciphertext => [0, 0, 0],
            Domain::PublicKey => [1, 0, 0],
            Domain::Relinearise(digit) => [2, 0, digit as u64],
            Domain::Galois(exponent, digit) => [3, exponent as u64, digit as u64],
            Domain::Encapsulate => [4, 0, 0],
            Domain::Release(digit) => [5, 0, digit as u64],
        }
    }
}

/// The generator that makes uniform polynomials of a seed: AES, or ChaCha on machines without AES instructions. The receiver has either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Aes,
    ChaCha,
}

impl Maker {
    fn label(self) -> &'static [u8] {
        match self {
            Maker::Aes => b"hushnet ckks uniform 1",
            Maker::ChaCha => b"hushnet ckks uniform chacha 2",
        }
    }

    fn draws(self) -> Draws {
        match self {
            Maker::Aes => Draws::Words,
            Maker::ChaCha => Draws::Halves,
        }
    }

    fn generator(self, key: [u8; 32]) -> Prg {
        match self {
            Maker::Aes => Prg::from_seed(std::array::from_fn(|i| key[i])),
            Maker::ChaCha => Prg::chacha(key),
        }
    }
}

/// What stands for uniform polynomials. Public.
#[derive(Clone, Copy)]
pub(super) struct Seed {
    pub(super) bytes: [u8; 32],
    pub(super) maker: Maker,
}

impl Seed {
    /// A seed from a generator, for one of its kind.
    pub(super) fn fresh(prg: &mut Prg) -> Self {
        let mut bytes = [0; 32];
        prg.fill_bytes(&mut bytes);
        ledger::bytes(uses::SEED, &mut bytes);
        let maker = if prg.is_chacha() { Maker::ChaCha } else { Maker::Aes };
        // The seed travels.
        Self { bytes: secret::declassify(bytes), maker }
    }

    /// The generator of the seed's uniform limb modulo a prime, keyed with `SHA-256(label || seed || domain words || q)`, AES with its first 16 bytes;
    /// ChaCha's words are two draws each where the prime is short.
    pub(super) fn limb(&self, domain: Domain, m: &Modulus) -> (Prg, Draws) {
        let mut h = Sha256::new();
        h.update(self.maker.label());
        h.update(self.bytes);
        for w in domain.words().into_iter().chain([m.value()]) {
            h.update(w.to_le_bytes());
        }
        // Public: both parties expand it.
        (self.maker.generator(h.finalize().into()).untracked(), self.maker.draws())
    }

    /// The public uniform polynomial of a seed: limb by limb, so that fewer primes give the same first limbs.
    pub(super) fn expand(
        &self,
        params: &CkksParams,
        domain: Domain,
        range: Range<usize>,
    ) -> Result<RnsPoly<Eval>, CkksError> {
        params.basis().fill_with(range, |i, limb| {
            let m = params.basis().moduli()[i];
            let (mut prg, draws) = self.limb(domain, &m);
            uniform_limb_of(&mut prg, &m, draws, limb, |_, _| {});
            Ok(())
        })
    }
}

/// Two or three polynomials in evaluation form with `c0 + c1 s (+ c2 s^2) = scale * message + error`.
#[derive(Clone)]
pub struct Ciphertext {
    pub(super) params: CkksParams,
    pub(super) parts: Vec<RnsPoly<Eval>>,
    pub(super) level: Level,
    pub(super) scale: f64,
    pub(super) bound: f64,
    pub(super) sd: f64,
    /// Where c1 comes from, as long as it is fresh: only c0 need travel then.
    pub(super) seed: Option<Seed>,
}

impl std::fmt::Debug for Ciphertext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ciphertext")
            .field("parts", &self.parts.len())
            .field("level", &self.level)
            .field("scale", &self.scale)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

impl Ciphertext {
    /// The parameters it belongs to.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.params
    }
    /// The level: how many data primes the value still has.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }
    /// The scale: encoded values are multiples of its inverse.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }
    /// Bound of |message| in every slot, derived from declared bounds.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.bound
    }
    /// Square root of the variance proxy of slot errors, in ring units (`docs/ckks.md`).
    #[must_use]
    pub fn noise(&self) -> f64 {
        self.sd
    }
    /// Bound of the error of each real or imaginary part of a slot, in units of the message, that holds but
    /// with probability 2^-40.
    #[must_use]
    pub fn error_bound(&self) -> f64 {
        TAIL * self.sd / self.scale
    }
    /// Bits of the message bound above the error bound.
    #[must_use]
    pub fn precision_bits(&self) -> f64 {
        (self.bound / self.error_bound()).log2()
    }
    /// Polynomials, in evaluation form: 2, or 3 before relinearisation.
    #[must_use]
    pub fn parts(&self) -> &[RnsPoly<Eval>] {
        &self.parts
    }
    /// The polynomials c0, c1 and so on, in evaluation form.
    #[must_use]
    pub fn into_parts(self) -> Vec<RnsPoly<Eval>> {
        self.parts
    }
    /// The N residues of part `part` modulo data prime `prime` (0-based): for linear layers that work on words.
    ///
    /// # Panics
    /// When there is no such part or prime.
    #[must_use]
    pub fn limb(&self, part: usize, prime: usize) -> &[u64] {
        self.parts[part].limb(self.params.data_range(self.level).start + prime)
    }
    /// Whether it is fresh, so that only one polynomial travels.
    #[must_use]
    pub fn is_seeded(&self) -> bool {
        self.seed.is_some()
    }

    /// Everything but the polynomials.
    pub(super) fn clone_header(&self) -> Self {
        Self { params: self.params.clone(), parts: Vec::new(), ..*self }
    }

    /// States a tighter bound of the message than the derived one (from calibration, say).
    ///
    /// # Errors
    /// [`CkksError::Capacity`] when it does not fit, [`CkksError::ValueOutOfRange`] when it is no bound.
    pub fn with_bound(mut self, bound: f64) -> Result<Self, CkksError> {
        if !bound.is_finite() || bound < 0.0 {
            return Err(CkksError::ValueOutOfRange { index: 0, bound });
        }
        self.params.check_capacity(bound, self.scale, self.level)?;
        self.bound = bound;
        Ok(self)
    }

    /// The same ciphertext with another bound of its error, in ring units. The caller vouches for it: it knows how operations
    /// that follow one another cancel each other's errors, which the operations by themselves do not.
    #[must_use]
    pub fn with_noise(mut self, sd: f64) -> Self {
        self.sd = sd;
        self
    }

    /// Makes a ciphertext of two or three polynomials that a linear layer computed, all over the data primes
    /// of one level. The caller vouches for scale, bound and sd.
    ///
    /// # Errors
    /// [`CkksError::Parts`] for a wrong number of parts, [`CkksError::Bytes`] for polynomials over other primes
    /// or words that are no residues, [`CkksError::Capacity`] when the message does not fit.
    pub fn from_parts(
        params: &CkksParams,
        parts: Vec<RnsPoly<Eval>>,
        scale: f64,
        bound: f64,
        sd: f64,
    ) -> Result<Self, CkksError> {
        let fail = |why| CkksError::Bytes { what: "ciphertext", why };
        let range = match parts.as_slice() {
            [first, _] | [first, _, _] => first.range(),
            other => return Err(CkksError::Parts { what: "from_parts", needed: 2, got: other.len() }),
        };
        let level = params.level(range.len())?;
        params.check_capacity(bound, scale, level)?;
        for p in &parts {
            if p.range() != params.data_range(level) || p.degree() != params.ring_degree() {
                return Err(fail("its parts are not over the data primes of one level"));
            }
            for i in range.clone() {
                let q = params.basis().moduli()[i].value();
                // Differences of words below 2^63 borrow where a word is too large; others show themselves.
                if p.limb(i).iter().fold(0, |top, w| top | (q - 1).wrapping_sub(*w) | *w) >> 63 != 0 {
                    return Err(fail("a residue is not below its prime"));
                }
            }
        }
        Ok(Self { params: params.clone(), parts, level, scale, bound, sd, seed: None })
    }
}

/// The public half: encrypts without being able to decrypt.
#[derive(Clone)]
pub struct PublicKey {
    pub(super) params: CkksParams,
    pub(super) owner: super::switching::Owner,
    pub(super) b: RnsPoly<Eval>,
    pub(super) a: RnsPoly<Eval>,
    pub(super) seed: Seed,
}

impl PublicKey {
    /// `(b u + e0, a u + e1)`, u ternary.
    fn zero(&self, level: Level, prg: &mut Prg) -> Result<[RnsPoly<Eval>; 2], CkksError> {
        let (basis, range) = (self.params.basis(), self.params.data_range(level));
        let mut u = super::client::small(&self.params, range.clone(), prg, hushnet_ring::sample::ternary)?;
        ledger::once(uses::CKKS_RERANDOMISER, &[Tag::words(u.words())]);
        let mut c0 = super::client::small_error(&self.params, range.clone(), prg)?;
        let mut c1 = super::client::small_error(&self.params, range, prg)?;
        basis.mul_add(&mut c0, &self.b, &u)?;
        basis.mul_add(&mut c1, &self.a, &u)?;
        u.zeroize();
        Ok([c0, c1])
    }

    /// Encrypts: `(b u + e0 + m, a u + e1)`, u ternary. Cost: 3 transforms a prime.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn encrypt(&self, message: &Plaintext, prg: &mut Prg) -> Result<Ciphertext, CkksError> {
        if message.params != self.params {
            return Err(CkksError::ForeignParams("the plaintext"));
        }
        let [mut c0, c1] = self.zero(message.level, prg)?;
        self.params.basis().add_assign(&mut c0, &message.poly)?;
        Ok(Ciphertext {
            params: self.params.clone(),
            parts: vec![c0, c1],
            level: message.level,
            scale: message.scale,
            bound: message.bound,
            sd: independent_sum(message.sd, self.params.noise().public()),
            seed: None,
        })
    }

    /// Coefficients uniform in `[-2^(bits-1), 2^(bits-1))`, as `high 2^60 + low` with a signed high and an unsigned low part.
    fn flood(&self, level: Level, bits: u32, prg: &mut Prg) -> Result<RnsPoly<Eval>, CkksError> {
        let (basis, n, range) =
            (self.params.basis(), self.params.ring_degree(), self.params.data_range(level));
        let mut flood = basis.zero::<Coef>(range.clone())?;
        let mut words = vec![0; n];
        let mut draw = |bits: u32, words: &mut Vec<u64>| {
            prg.fill_words(words);
            ledger::vector(uses::CKKS_FLOOD, words);
            words.iter_mut().for_each(|w| *w &= hushnet_ring::low_mask(bits));
        };
        let high = bits.saturating_sub(LOW_BITS);
        if high > 0 {
            draw(high, &mut words);
            for i in range.clone() {
                flood.limb_mut(i).copy_from_slice(&words);
                basis.residues_of_wrapped(flood.limb_mut(i), high, i)?;
            }
            let shift: Vec<u64> =
                (0..range.end).map(|i| (1u64 << LOW_BITS) % basis.moduli()[i].value()).collect();
            basis.scale_assign(&mut flood, &shift)?;
        }
        // Below a high part the low one counts from zero up: one bit more than it has makes it non-negative.
        let low = bits.min(LOW_BITS);
        draw(low, &mut words);
        let mut part = basis.zero::<Coef>(range.clone())?;
        for i in range {
            part.limb_mut(i).copy_from_slice(&words);
            basis.residues_of_wrapped(part.limb_mut(i), if high > 0 { low + 1 } else { low }, i)?;
        }
        words.zeroize();
        basis.add_assign(&mut flood, &part)?;
        part.zeroize();
        Ok(basis.forward(flood)?)
    }

    /// Hides how a ciphertext of two parts was computed: adds an encryption of zero, and, with `flood_bits` = b, an
    /// error uniform in `[-2^(b-1), 2^(b-1))` on every coefficient. The parts then tell nothing beyond the
    /// phase; the phase's own error tells less than 2^-40 when b is 41 above the bits of any possible error.
    ///
    /// # Errors
    /// [`CkksError::Parts`] for three parts, [`CkksError::Capacity`] when the flood does not fit, [`CkksError::Spec`] when
    /// `flood_bits` is above [`MAX_FLOOD_BITS`], [`CkksError::ForeignParams`].
    pub fn hide(
        &self,
        c: &Ciphertext,
        flood_bits: Option<u32>,
        prg: &mut Prg,
    ) -> Result<Ciphertext, CkksError> {
        if c.params != self.params {
            return Err(CkksError::ForeignParams("the ciphertext"));
        }
        let [a0, a1] = c.parts.as_slice() else {
            return Err(CkksError::Parts { what: "hide", needed: 2, got: c.parts.len() });
        };
        let basis = self.params.basis();
        let [mut c0, mut c1] = self.zero(c.level, prg)?;
        let mut sd = independent_sum(c.sd, self.params.noise().public());
        if let Some(bits) = flood_bits.filter(|b| *b > 0) {
            if bits > MAX_FLOOD_BITS {
                return Err(CkksError::Spec(format!(
                    "a flood of {bits} bits; at most {MAX_FLOOD_BITS} are possible"
                )));
            }
            let width = f64::from(bits).exp2();
            self.params.check_capacity(c.bound + width / c.scale, c.scale, c.level)?;
            let mut flood = self.flood(c.level, bits, prg)?;
            basis.add_assign(&mut c0, &flood)?;
            flood.zeroize();
            // Variance width^2 / 12 a coefficient, N/2 of them in each part of a slot.
            sd = independent_sum(sd, width * self.params.noise().rounding());
        }
        basis.add_assign(&mut c0, a0)?;
        basis.add_assign(&mut c1, a1)?;
        Ok(Ciphertext { parts: vec![c0, c1], sd, seed: None, ..c.clone_header() })
    }
}
