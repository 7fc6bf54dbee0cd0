//! What a server computes: products with weights, sums, permutations. Every operation is counted and its noise bounded.

use super::keys::{expand, Domain, GaloisKey};
use super::noise::Noise;
use super::params::BfvParams;
use super::{BfvError, Counts, GaloisKeys, PublicKey, Tally, Turn};
use crate::bfv::error::expect;
use hushnet_ring::clock::Instant;
use hushnet_ring::mac::LeftPairs;
use hushnet_ring::rns::{Digit, Eval, RnsPoly};
use hushnet_ring::{pack, AlignedWords};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

/// A ciphertext (c0, c1) in evaluation form and a bound of its noise.
#[derive(Clone)]
pub struct Cipher {
    pub(super) params: BfvParams,
    pub(super) parts: [RnsPoly<Eval>; 2],
    pub(super) noise: Noise,
}

impl Cipher {
    /// What its noise is bounded by.
    #[must_use]
    pub fn noise_bound(&self) -> &Noise {
        &self.noise
    }
}

/// Cache lines by which weights are set off from each other, so that the same word of many of them does not fall into the same set of a cache.
const OFFSETS: usize = 61;

/// A weight vector in evaluation form, prime after prime. The server's secret: no `Debug`.
#[derive(Clone)]
pub struct Weight {
    words: AlignedWords,
    first: usize,
    norm2: f64,
}

impl Weight {
    /// A weight vector (2 x N/2 values below t): what a server prepares before any session. Cost: 1 + L transforms.
    ///
    /// # Errors
    /// [`BfvError::Length`], [`BfvError::NotReduced`].
    pub fn new(params: &BfvParams, slots: &[u64]) -> Result<Self, BfvError> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let (poly, norm2) = params.weight(slots)?;
        let n = params.ring_degree();
        let first = 8 * (MADE.fetch_add(1, Ordering::Relaxed) % OFFSETS);
        let mut words = AlignedWords::new(first + n * params.data().len());
        for (to, i) in words[first..].chunks_exact_mut(n).zip(params.data()) {
            to.copy_from_slice(poly.limb(i));
        }
        Ok(Self { words, first, norm2 })
    }

    /// Residues modulo data prime `i`.
    fn limb(&self, i: usize, n: usize) -> &[u64] {
        &self.words[self.first + i * n..][..n]
    }
}

/// Nanoseconds of an evaluator's clock, all threads together.
#[derive(Default)]
struct Spent {
    encoding: AtomicU64,
    products: AtomicU64,
    switching: AtomicU64,
}

/// A ciphertext's second part cut into digits: what every permutation of the same ciphertext shares.
pub struct Hoisted(Vec<RnsPoly<Eval>>);

/// Bytes of inputs that several sums read one after the other: what a small second-level cache holds beside weights that pass.
const CACHED: usize = 384 << 10;

/// Words of a limb that pass through the caches together, in sums of so many terms: both parts of all inputs stay cached.
fn piece(terms: usize) -> usize {
    let words = (CACHED / (16 * terms.max(1))).clamp(64, 1024);
    1 << words.ilog2()
}

/// Whether two sums multiply the same ciphertexts in the same order.
fn same_inputs(a: &[(&Cipher, &Weight)], b: &[(&Cipher, &Weight)]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|((a, _), (b, _))| std::ptr::eq(*a, *b))
}

/// A clock: nanoseconds since some fixed moment.
pub type Clock = fn() -> u64;

fn wall_clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// What a server holds of a session: public keys and counters.
pub struct Evaluator {
    pub(super) params: BfvParams,
    pub(super) public: PublicKey,
    keys: GaloisKeys,
    tally: Tally,
    spent: Spent,
    clock: Clock,
}

impl Evaluator {
    /// For a client's keys.
    ///
    /// # Errors
    /// [`BfvError::ForeignParams`] when they are of other parameters.
    pub fn new(params: &BfvParams, public: PublicKey, keys: GaloisKeys) -> Result<Self, BfvError> {
        if public.params != *params {
            return Err(BfvError::ForeignParams("the public key"));
        }
        if keys.params != *params {
            return Err(BfvError::ForeignParams("the Galois keys"));
        }
        Ok(Self {
            params: params.clone(),
            public,
            keys,
            tally: Tally::default(),
            spent: Spent::default(),
            clock: wall_clock,
        })
    }

    /// The checked parameters that this was made for.
    #[must_use]
    pub fn params(&self) -> &BfvParams {
        &self.params
    }

    /// Another clock than the wall's for [`Self::now`], such as the thread's processor time on a busy machine.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Nanoseconds that the clock of this evaluator shows.
    #[must_use]
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.tally.read()
    }

    /// Nanoseconds spent in [`Self::encode`] so far, all threads together: set-up work when weights are prepared.
    #[must_use]
    pub fn encoding_nanoseconds(&self) -> u64 {
        self.spent.encoding.load(Ordering::Relaxed)
    }

    /// Nanoseconds spent on sums of products so far, all threads together.
    #[must_use]
    pub fn product_nanoseconds(&self) -> u64 {
        self.spent.products.load(Ordering::Relaxed)
    }

    /// Nanoseconds spent on permutations, hoisted or not, so far, all threads together.
    #[must_use]
    pub fn switching_nanoseconds(&self) -> u64 {
        self.spent.switching.load(Ordering::Relaxed)
    }

    /// Runs `work` and adds its time to a counter.
    fn timed<T>(&self, spent: &AtomicU64, work: impl FnOnce() -> T) -> T {
        let start = self.now();
        let done = work();
        spent.fetch_add(self.now() - start, Ordering::Relaxed);
        done
    }

    fn own(&self, c: &Cipher) -> Result<(), BfvError> {
        if c.params == self.params {
            Ok(())
        } else {
            Err(BfvError::ForeignParams("a ciphertext"))
        }
    }

    /// A weight vector (2 x N/2 values below t). Cost: 1 + L transforms.
    ///
    /// # Errors
    /// [`BfvError::Length`], [`BfvError::NotReduced`].
    pub fn encode(&self, slots: &[u64]) -> Result<Weight, BfvError> {
        self.encode_with(|| slots.to_vec())
    }

    /// [`Self::encode`] of what `make` returns; its time counts as encoding.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_with(&self, make: impl FnOnce() -> Vec<u64>) -> Result<Weight, BfvError> {
        self.timed(&self.spent.encoding, || Weight::new(&self.params, &make()))
    }

    /// Reads an uploaded ciphertext.
    ///
    /// # Errors
    /// [`BfvError::Length`] unless it has [`BfvParams::request_len`] bytes, [`BfvError::Damaged`] for words not below their prime.
    pub fn receive(&self, bytes: &[u8]) -> Result<Cipher, BfvError> {
        expect("request", bytes.len(), self.params.request_len())?;
        let (n, bits, data) = (self.params.ring_degree(), self.params.spec().prime_bits, self.params.data());
        let (head, body) = bytes.split_at(32);
        let mut seed = [0; 32];
        seed.copy_from_slice(head);
        let mut c0 = self.params.basis().zero::<Eval>(data.clone())?;
        for (i, part) in data.clone().zip(body.chunks_exact(pack::packed_len(n, bits))) {
            let q = self.params.basis().moduli()[i].value();
            pack::unpack(part, bits, c0.limb_mut(i))?;
            if c0.limb(i).iter().fold(false, |bad, w| bad | (*w >= q)) {
                return Err(BfvError::Damaged("a request"));
            }
        }
        let c1 = expand(&self.params, &seed, Domain::Ciphertext, data)?;
        Ok(Cipher { params: self.params.clone(), parts: [c0, c1], noise: Noise::fresh(n) })
    }

    /// Adds the server's share of the encrypted vector. Its rounding is part of [`Noise::fresh`].
    ///
    /// # Errors
    /// [`BfvError::Length`], [`BfvError::NotReduced`].
    pub fn add_share(&self, c: &mut Cipher, slots: &[u64]) -> Result<(), BfvError> {
        self.own(c)?;
        Ok(self.params.basis().add_assign(&mut c.parts[0], &self.params.message(slots)?)?)
    }

    /// `sum_k w_k c_k`. Counts K `ScMult` and K - 1 `Add`.
    ///
    /// # Errors
    /// As [`Self::sums_of_products`].
    pub fn sum_products(&self, terms: &[(&Cipher, &Weight)]) -> Result<Cipher, BfvError> {
        let mut sums = self.sums_of_products(&[terms])?;
        sums.pop().ok_or(BfvError::Length { what: "sums of products", expected: 1, got: 0 })
    }

    /// Several sums of products, which pass through the caches piece by piece, so that ciphertexts that occur in all of them are fetched
    /// once. Every sum is reduced once. Counts K `ScMult` and K - 1 `Add` a sum of K terms.
    ///
    /// # Errors
    /// [`BfvError::Length`] for a sum without a term, [`BfvError::Ring`] for more than 4096; [`BfvError::ForeignParams`].
    pub fn sums_of_products(&self, sums: &[&[(&Cipher, &Weight)]]) -> Result<Vec<Cipher>, BfvError> {
        let (n, basis) = (self.params.ring_degree(), self.params.basis());
        let mut out = Vec::with_capacity(sums.len());
        for terms in sums {
            if terms.is_empty() {
                return Err(BfvError::Length { what: "sum of products", expected: 1, got: 0 });
            }
            let (mut sd2, mut folds) = (0.0, 1.0f64);
            for (c, w) in *terms {
                self.own(c)?;
                sd2 += w.norm2 * c.noise.sd * c.noise.sd;
                folds = folds.max(c.noise.folds);
            }
            let parts = [basis.zero(self.params.data())?, basis.zero(self.params.data())?];
            let noise = Noise { folds, ..Noise::flat(n, f64::sqrt(sd2)) };
            out.push(Cipher { params: self.params.clone(), parts, noise });
            let count = terms.len() as u64;
            self.tally.note(Counts { sc_mult: count, add: count - 1, ..Counts::default() });
        }
        self.timed(&self.spent.products, || self.products(sums, &mut out))?;
        Ok(out)
    }

    /// The words of [`Self::sums_of_products`], piece by piece. Inputs are laid out once for as many sums as share them.
    fn products(&self, sums: &[&[(&Cipher, &Weight)]], out: &mut [Cipher]) -> Result<(), BfvError> {
        let n = self.params.ring_degree();
        let size = piece(sums.iter().map(|terms| terms.len()).max().unwrap_or(1));
        let mut left = LeftPairs::new(self.params.basis().isa());
        for i in self.params.data() {
            for start in (0..n).step_by(size) {
                let piece = start..(start + size).min(n);
                let mut laid: &[(&Cipher, &Weight)] = &[];
                for (sum, terms) in out.iter_mut().zip(sums) {
                    if !same_inputs(laid, terms) {
                        let inputs: Vec<_> = terms
                            .iter()
                            .map(|(c, _)| c.parts.each_ref().map(|p| &p.limb(i)[start..piece.end]))
                            .collect();
                        left.set(&inputs)?;
                        laid = terms;
                    }
                    let weights: Vec<_> = terms.iter().map(|(_, w)| &w.limb(i, n)[piece.clone()]).collect();
                    let outs = sum.parts.each_mut().map(|p| &mut p.limb_mut(i)[piece.clone()]);
                    left.dot(&self.params.0.dots[i], &weights, outs)?;
                }
            }
        }
        Ok(())
    }

    /// `a += b` for ciphertexts with independent noise. Counts one `Add`.
    ///
    /// # Errors
    /// [`BfvError::ForeignParams`].
    pub fn add(&self, a: &mut Cipher, b: &Cipher) -> Result<(), BfvError> {
        self.own(a)?;
        self.own(b)?;
        for (x, y) in a.parts.iter_mut().zip(&b.parts) {
            self.params.basis().add_assign(x, y)?;
        }
        a.noise = a.noise.plus(b.noise);
        self.tally.note(Counts { add: 1, ..Counts::default() });
        Ok(())
    }

    /// Cuts c1 into digits. Cost: L inverse transforms, and one a digit and prime. Not counted by itself.
    fn decompose(&self, c: &Cipher) -> Result<Hoisted, BfvError> {
        let (spec, basis) = (self.params.spec(), self.params.basis());
        if !spec.switches() {
            return Err(BfvError::NoSwitching);
        }
        let c1 = &c.parts[1];
        let mut coefficients = basis.inverse(c1.clone())?;
        let mut digits = Vec::with_capacity(spec.primes * spec.digits_per_prime());
        for prime in 0..spec.primes {
            let limb = coefficients.limb_mut(prime);
            if spec.digit_bits == 0 {
                digits.push(
                    Digit::new(basis, &self.params.0.lift[prime], c1, limb)?
                        .raise(basis, self.params.all())?,
                );
                continue;
            }
            let q = basis.moduli()[prime].value();
            for digit in signed_digits(limb, q, spec.digit_bits, spec.digits_per_prime()) {
                digits.push(basis.forward(basis.from_signed(&digit, self.params.all())?)?);
            }
        }
        Ok(Hoisted(digits))
    }

    /// Permutes `c` with its digits. Not counted by itself.
    fn switch(&self, c: &Cipher, digits: &Hoisted, key: &GaloisKey) -> Result<Cipher, BfvError> {
        let basis = self.params.basis();
        let x: Vec<_> = digits.0.iter().collect();
        let (b, a): (Vec<_>, Vec<_>) = key.b.iter().zip(&key.a).unzip();
        expect("digits of a ciphertext", x.len(), b.len())?;
        let [mut r0, mut r1] = basis.inner_products(self.params.all(), &x, [&b, &a])?;
        if let Some(down) = &self.params.0.down {
            r0 = down.divide(basis, &r0)?;
            r1 = down.divide(basis, &r1)?;
        }
        basis.add_assign(&mut r0, &c.parts[0])?;
        let parts = [key.map.apply_eval(basis, &r0)?, key.map.apply_eval(basis, &r1)?];
        Ok(Cipher { params: self.params.clone(), parts, noise: c.noise.permuted(self.params.spec()) })
    }

    /// Prepares `c` for many permutations. Counts one `DecPerm`.
    ///
    /// # Errors
    /// [`BfvError::NoSwitching`], [`BfvError::ForeignParams`].
    pub fn dec_perm(&self, c: &Cipher) -> Result<Hoisted, BfvError> {
        self.own(c)?;
        let digits = self.timed(&self.spent.switching, || self.decompose(c))?;
        self.tally.note(Counts { dec_perm: 1, ..Counts::default() });
        Ok(digits)
    }

    /// Permutes `c` with the digits that [`Self::dec_perm`] made of it. Counts one `HstPerm`; the identity costs nothing.
    ///
    /// # Errors
    /// [`BfvError::MissingKey`], [`BfvError::ForeignParams`].
    pub fn hst_perm(&self, c: &Cipher, digits: &Hoisted, turn: Turn) -> Result<Cipher, BfvError> {
        self.own(c)?;
        if turn.is_identity() {
            return Ok(c.clone());
        }
        let key = self.keys.get(turn)?;
        let out = self.timed(&self.spent.switching, || self.switch(c, digits, key))?;
        self.tally.note(Counts { hst_perm: 1, ..Counts::default() });
        Ok(out)
    }

    /// Permutes `c`. Counts one `Perm`; the identity costs nothing.
    ///
    /// # Errors
    /// [`BfvError::MissingKey`], [`BfvError::NoSwitching`], [`BfvError::ForeignParams`].
    pub fn perm(&self, c: &Cipher, turn: Turn) -> Result<Cipher, BfvError> {
        self.own(c)?;
        if turn.is_identity() {
            return Ok(c.clone());
        }
        let key = self.keys.get(turn)?;
        let out = self.timed(&self.spent.switching, || self.switch(c, &self.decompose(c)?, key))?;
        self.tally.note(Counts { perm: 1, ..Counts::default() });
        Ok(out)
    }

    /// `c + turn(c)`, a step of rotate-and-sum. Counts one `Perm` and one `Add`.
    ///
    /// # Errors
    /// As [`Self::perm`].
    pub fn fold(&self, c: &Cipher, turn: Turn) -> Result<Cipher, BfvError> {
        let mut out = self.perm(c, turn)?;
        self.add(&mut out, c)?;
        out.noise = c.noise.folded(self.params.spec());
        Ok(out)
    }
}

/// Balanced digits of centred residues: `sum_j 2^(w j) d_j = c`, `|d_j| <= 2^(w-1)`, as two's complement words.
fn signed_digits(limb: &[u64], q: u64, width: u32, count: usize) -> Vec<Vec<u64>> {
    let half = 1u64 << (width - 1);
    let offset: u64 = (0..count).map(|j| half << (j as u32 * width)).fold(0, u64::wrapping_add);
    (0..count)
        .map(|j| {
            let shift = j as u32 * width;
            // The top digit keeps its carry: it may be 2^(w-1) itself.
            let mask = if j + 1 == count { u64::MAX } else { hushnet_ring::low_mask(width) };
            limb.iter()
                .map(|&v| {
                    let centred = v.wrapping_sub(q & 0u64.wrapping_sub(u64::from(v > q / 2)));
                    ((centred.wrapping_add(offset) >> shift) & mask).wrapping_sub(half)
                })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::signed_digits;

    #[test]
    fn digits_are_balanced_and_add_up() {
        for (q, width, count) in [(1_125_899_906_826_241u64, 25, 2), (34_359_214_081, 18, 2), (97, 4, 2)] {
            let limb: Vec<u64> =
                (0..500).map(|i| i * (q / 499) % q).chain([0, 1, q / 2, q / 2 + 1, q - 1]).collect();
            let digits = signed_digits(&limb, q, width, count);
            for (i, &v) in limb.iter().enumerate() {
                let want = if v > q / 2 { v as i64 - q as i64 } else { v as i64 };
                let mut got = 0i64;
                for (j, d) in digits.iter().enumerate() {
                    let d = d[i] as i64;
                    assert!(d.abs() <= 1 << (width - 1));
                    got += d << (j as u32 * width);
                }
                assert_eq!(got, want, "q={q}");
            }
        }
    }
}
