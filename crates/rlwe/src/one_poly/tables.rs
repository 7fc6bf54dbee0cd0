//! Transforms of one stage: residues, the folded order of slots, products that keep one coefficient in s.

use super::scale::{add, inverse_power, power, signed, sub, Fraction, Shoup, Wide};
use crate::CipherError;
use hushnet_ring::mac::{self, DotModulus, FOLD_COLUMNS};
use hushnet_ring::prime::{inv_mod, mul_mod, primes_near, primitive_root};
use hushnet_ring::{pack, prg, simd, AlignedWords, Ntt, RingError};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use zeroize::Zeroize;

/// Shortest final transform: shorter ones would leave the vector kernels.
const SHORTEST: usize = 64;

/// A polynomial's slot values, every limb in the folded order of its context. No `Debug`: it may be a secret.
#[derive(Clone)]
pub struct Folded(pub(super) AlignedWords);

impl Zeroize for Folded {
    fn zeroize(&mut self) {
        self.0.zeroize();
    }
}

/// Operations done so far, in whole polynomials (all limbs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TallyCounts {
    /// Forward transforms of N coefficients.
    pub ntt: u64,
    /// Inverse transforms; each keeps one coefficient in s.
    pub intt: u64,
    /// Slotwise products of N values.
    pub products: u64,
    /// Automorphisms with key switching.
    pub rotations: u64,
}

impl std::ops::Add for TallyCounts {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self {
            ntt: self.ntt + o.ntt,
            intt: self.intt + o.intt,
            products: self.products + o.products,
            rotations: self.rotations + o.rotations,
        }
    }
}

/// Counts operations at run time.
#[derive(Debug, Default)]
pub struct Tally {
    ntt: AtomicU64,
    intt: AtomicU64,
    products: AtomicU64,
    rotations: AtomicU64,
}

impl Tally {
    /// Numbers of operations that were counted so far.
    #[must_use]
    pub fn counts(&self) -> TallyCounts {
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        TallyCounts {
            ntt: get(&self.ntt),
            intt: get(&self.intt),
            products: get(&self.products),
            rotations: get(&self.rotations),
        }
    }

    /// Adds these numbers to all counters.
    pub fn add(&self, c: TallyCounts) {
        for (a, v) in [
            (&self.ntt, c.ntt),
            (&self.intt, c.intt),
            (&self.products, c.products),
            (&self.rotations, c.rotations),
        ] {
            a.fetch_add(v, Ordering::Relaxed);
        }
    }
}

pub(super) struct Limb {
    ntt: Ntt,
    small: Ntt,
    dot: DotModulus,
    pub(super) p: u64,
    bits: u32,
    /// `(Q/p)^-1 / fold mod p`, then `2^64 / p`.
    lift: Shoup,
    fraction: Fraction,
    /// `1 / fold mod p`.
    unfold: Shoup,
    /// Folded position -> slot.
    gather: Box<[u32]>,
}

struct Tables {
    n: usize,
    fold: usize,
    limbs: Vec<Limb>,
    /// Q modulo 2^128.
    modulus: u128,
}

/// Tables of a stage: ring degree, primes, and the stride of its useful coefficients. Cheap to clone.
#[derive(Clone)]
pub struct OnePolyContext {
    inner: Arc<Tables>,
}

/// Slots in the order of Y = X^fold, in blocks of columns.
fn gather(n: usize, fold: usize, p: u64, ntt: &Ntt, small: &Ntt) -> Result<Box<[u32]>, RingError> {
    let plane = n / fold;
    let root = hushnet_ring::prime::pow_mod(primitive_root(n, p)?, fold as u64, p);
    // The small transform's root is root^u.
    let (target, square) = (primitive_root(plane, p)?, mul_mod(root, root, p));
    let (mut u, mut power) = (1, root);
    while power != target {
        power = mul_mod(power, square, p);
        u += 2;
    }
    let mut slot_of = vec![0u32; 2 * n];
    for slot in 0..n {
        slot_of[ntt.slot_exponent(slot)] = slot as u32;
    }
    let mut out = vec![0; n];
    for column in 0..plane {
        let base = u * small.slot_exponent(column) % (2 * plane);
        for j in 0..fold {
            let at = (column / FOLD_COLUMNS * fold + j) * FOLD_COLUMNS + column % FOLD_COLUMNS;
            out[at] = slot_of[base + 2 * plane * j];
        }
    }
    Ok(out.into())
}

impl OnePolyContext {
    /// Tables for degree `n`, primes of these sizes, and useful coefficients at multiples of `stride` (a power of two).
    ///
    /// # Errors
    /// [`CipherError::Ring`] for an unsupported degree or stride, or sizes without enough primes.
    pub fn new(n: usize, prime_bits: &[u32], stride: usize) -> Result<Self, CipherError> {
        if !stride.is_power_of_two() || stride > n || n < SHORTEST {
            return Err(RingError::RingDegree(stride).into());
        }
        let fold = stride.min(n / SHORTEST);
        let mut primes = Vec::new();
        for (j, bits) in prime_bits.iter().enumerate() {
            let same = prime_bits[..j].iter().filter(|b| *b == bits).count();
            primes.push((primes_near(*bits, n, same + 1)?[same], *bits));
        }
        let limbs = primes
            .iter()
            .map(|&(p, bits)| {
                let (ntt, small) = (Ntt::new(n, p)?, Ntt::new(n / fold, p)?);
                let others = primes
                    .iter()
                    .filter(|(q, _)| *q != p)
                    .fold(1, |product, (q, _)| mul_mod(product, q % p, p));
                let unfold = inv_mod(fold as u64 % p, p);
                Ok(Limb {
                    dot: DotModulus::new(&ntt)?,
                    lift: Shoup::new(mul_mod(inv_mod(others, p), unfold, p), p),
                    fraction: Fraction::new(p),
                    unfold: Shoup::new(unfold, p),
                    gather: gather(n, fold, p, &ntt, &small)?,
                    p,
                    bits,
                    ntt,
                    small,
                })
            })
            .collect::<Result<_, RingError>>()?;
        let modulus = primes.iter().fold(1u128, |q, (p, _)| q.wrapping_mul(u128::from(*p)));
        Ok(Self { inner: Arc::new(Tables { n, fold, limbs, modulus }) })
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.inner.n
    }

    /// Slots summed at once: the stride, unless the final transform would become too short.
    #[must_use]
    pub fn fold(&self) -> usize {
        self.inner.fold
    }

    /// Coefficients that a product keeps: N / fold.
    #[must_use]
    pub fn plane(&self) -> usize {
        self.inner.n / self.inner.fold
    }

    /// The primes whose product is Q.
    #[must_use]
    pub fn primes(&self) -> Vec<u64> {
        self.inner.limbs.iter().map(|l| l.p).collect()
    }

    pub(super) fn limbs(&self) -> &[Limb] {
        &self.inner.limbs
    }

    /// Words of a polynomial: N for every prime.
    #[must_use]
    pub fn words(&self) -> usize {
        self.inner.n * self.inner.limbs.len()
    }

    /// Bytes of a polynomial on the wire.
    #[must_use]
    pub fn packed_len(&self) -> usize {
        self.inner.limbs.iter().map(|l| pack::packed_len(self.inner.n, l.bits)).sum()
    }

    fn expect(&self, what: &'static str, got: usize, expected: usize) -> Result<(), CipherError> {
        if got == expected {
            Ok(())
        } else {
            Err(RingError::Length { what, expected, got }.into())
        }
    }

    /// Transforms residues (limb after limb, destroyed).
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless there are [`Self::words`].
    pub fn forward(&self, residues: &mut [u64], tally: &Tally) -> Result<Folded, CipherError> {
        self.expect("residues", residues.len(), self.words())?;
        let mut out = AlignedWords::new(self.words());
        let n = self.inner.n;
        for ((limb, from), to) in
            self.limbs().iter().zip(residues.chunks_exact_mut(n)).zip(out.chunks_exact_mut(n))
        {
            limb.ntt.forward(from)?;
            for (word, slot) in to.iter_mut().zip(&limb.gather) {
                *word = from[*slot as usize];
            }
        }
        tally.add(TallyCounts { ntt: 1, ..TallyCounts::default() });
        Ok(Folded(out))
    }

    /// Transforms a small polynomial.
    ///
    /// # Errors
    /// [`CipherError::Ring`] unless it has N coefficients.
    pub fn forward_small(&self, small: &[i8], tally: &Tally) -> Result<Folded, CipherError> {
        self.expect("small polynomial", small.len(), self.inner.n)?;
        let mut residues = Vec::with_capacity(self.words());
        for limb in self.limbs() {
            residues.extend(small.iter().map(|v| signed(i64::from(*v), limb.p)));
        }
        let out = self.forward(&mut residues, tally);
        residues.zeroize();
        out
    }

    /// Residues of signed integers of up to 126 bits plus small ones, limb after limb; constant time.
    #[must_use]
    pub fn residues_of_wide(&self, values: &[i128], small: &[i8]) -> Vec<u64> {
        let mut residues = Vec::with_capacity(self.words());
        for limb in self.limbs() {
            // v + 2^126 is not negative.
            let wide = Wide::new(1, limb.p - power(126, limb.p), limb.p);
            residues.extend(values.iter().zip(small).map(|(v, e)| {
                add(wide.apply((v + (1 << 126)) as u128), signed(i64::from(*e), limb.p), limb.p)
            }));
        }
        residues
    }

    /// Residues of `round(Q x / 2^d)`, x in [-2^(l-1), 2^(l-1)) given modulo 2^l; d <= 126.
    pub(super) fn residues_of_shares(&self, shares: &[u64], ring_bits: u32, d: u32, out: &mut Vec<u64>) {
        // floor((Q x + h) / 2^d) with h = 2^(d-1) is (Q x + h - rem) / 2^d, and Q vanishes modulo p.
        let half = 1u128 << (d - 1);
        out.clear();
        for limb in self.limbs() {
            let inverse = inverse_power(d, limb.p);
            let constant = inverse_power(1, limb.p);
            let wide = Wide::new(limb.p - inverse, constant, limb.p);
            let q = self.inner.modulus;
            out.extend(shares.iter().map(|x| {
                let x = i128::from(super::scale::centred(*x, ring_bits)) as u128;
                wide.apply(q.wrapping_mul(x).wrapping_add(half) & ((1 << d) - 1))
            }));
        }
    }

    /// The public uniform polynomial of a stage: AES-128-CTR under the first half of `seed`, words not below a prime left out.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the generator.
    pub fn uniform(&self, seed: &[u8; 32], stage: u32) -> Result<Folded, CipherError> {
        let mut key = [0; 16];
        key.copy_from_slice(&seed[..16]);
        let n = self.inner.n;
        let mut out = AlignedWords::new(self.words());
        let mut words = vec![0; n + n / 8 + 64];
        for (j, (limb, out)) in self.limbs().iter().zip(out.chunks_exact_mut(n)).enumerate() {
            let (mut filled, mut round) = (0, 0);
            while filled < n {
                prg::expand_words(&key, stage, j as u32, round, limb.bits, &mut words)?;
                for word in words.iter().filter(|w| **w < limb.p) {
                    if filled < n {
                        out[filled] = *word;
                        filled += 1;
                    }
                }
                round += 1;
            }
        }
        Ok(Folded(out))
    }

    /// Slotwise product.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for polynomials of another context.
    pub fn product(&self, a: &Folded, b: &Folded, tally: &Tally) -> Result<Folded, CipherError> {
        let n = self.inner.n;
        let mut out = AlignedWords::new(self.words());
        self.expect("left factor", a.0.len(), self.words())?;
        self.expect("right factor", b.0.len(), self.words())?;
        for (((limb, a), b), out) in
            self.limbs().iter().zip(a.0.chunks_exact(n)).zip(b.0.chunks_exact(n)).zip(out.chunks_exact_mut(n))
        {
            mac::dot(simd::isa(), &limb.dot, &[&[a]], &[b], &mut [out])?;
        }
        tally.add(TallyCounts { products: 1, ..TallyCounts::default() });
        Ok(Folded(out))
    }

    fn combine(
        &self,
        a: &mut Folded,
        b: &Folded,
        f: impl Fn(u64, u64, u64) -> u64,
    ) -> Result<(), CipherError> {
        self.expect("left operand", a.0.len(), self.words())?;
        self.expect("right operand", b.0.len(), self.words())?;
        let n = self.inner.n;
        for ((limb, a), b) in self.limbs().iter().zip(a.0.chunks_exact_mut(n)).zip(b.0.chunks_exact(n)) {
            a.iter_mut().zip(b).for_each(|(x, y)| *x = f(*x, *y, limb.p));
        }
        Ok(())
    }

    /// `a += b`.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for polynomials of another context.
    pub fn add_assign(&self, a: &mut Folded, b: &Folded) -> Result<(), CipherError> {
        self.combine(a, b, add)
    }

    /// `a -= b`.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for polynomials of another context.
    pub fn sub_assign(&self, a: &mut Folded, b: &Folded) -> Result<(), CipherError> {
        self.combine(a, b, sub)
    }

    /// `a = -a`.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for a polynomial of another context.
    pub fn neg_assign(&self, a: &mut Folded) -> Result<(), CipherError> {
        self.expect("operand", a.0.len(), self.words())?;
        let n = self.inner.n;
        for (limb, a) in self.limbs().iter().zip(a.0.chunks_exact_mut(n)) {
            a.iter_mut().for_each(|x| *x = sub(0, *x, limb.p));
        }
        Ok(())
    }

    /// Residues (limb after limb, [`Self::plane`] each) of `fold sum_pairs a b` at multiples of the fold.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for polynomials of another context.
    pub fn dot(&self, pairs: &[(&Folded, &Folded)], tally: &Tally) -> Result<Vec<u64>, CipherError> {
        let mut out = self.folded_products(pairs, tally)?;
        self.inverse_folded(&mut out, tally)?;
        Ok(out)
    }

    /// What [`Self::dot`] transforms: the slots of `sum_pairs a b`, summed over the fold (limb after limb, [`Self::plane`] each). Cost: the products.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for polynomials of another context.
    pub fn folded_products(
        &self,
        pairs: &[(&Folded, &Folded)],
        tally: &Tally,
    ) -> Result<Vec<u64>, CipherError> {
        let (n, plane, fold) = (self.inner.n, self.plane(), self.inner.fold);
        for (a, b) in pairs {
            self.expect("left factor", a.0.len(), self.words())?;
            self.expect("right factor", b.0.len(), self.words())?;
        }
        let mut out = vec![0; plane * self.limbs().len()];
        let mut part = vec![0; plane];
        for (j, (limb, out)) in self.limbs().iter().zip(out.chunks_exact_mut(plane)).enumerate() {
            for (k, pairs) in pairs.chunks(4096 / fold).enumerate() {
                let slices: Vec<(&[u64], &[u64])> =
                    pairs.iter().map(|(a, b)| (&a.0[j * n..(j + 1) * n], &b.0[j * n..(j + 1) * n])).collect();
                if k == 0 {
                    mac::dot_folded(simd::isa(), &limb.dot, &slices, fold, out)?;
                } else {
                    mac::dot_folded(simd::isa(), &limb.dot, &slices, fold, &mut part)?;
                    out.iter_mut().zip(&part).for_each(|(x, y)| *x = add(*x, *y, limb.p));
                }
            }
        }
        tally.add(TallyCounts { products: pairs.len() as u64, ..TallyCounts::default() });
        Ok(out)
    }

    /// Adds sums of [`Self::folded_products`] to others.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for the wrong number of either.
    pub fn add_folded(&self, sums: &mut [u64], more: &[u64]) -> Result<(), CipherError> {
        let (plane, limbs) = (self.plane(), self.limbs());
        self.expect("folded sums", sums.len(), plane * limbs.len())?;
        self.expect("folded sums", more.len(), plane * limbs.len())?;
        for ((limb, a), b) in limbs.iter().zip(sums.chunks_exact_mut(plane)).zip(more.chunks_exact(plane)) {
            a.iter_mut().zip(b).for_each(|(x, y)| *x = add(*x, *y, limb.p));
        }
        Ok(())
    }

    /// From sums of [`Self::folded_products`] to residues, in place. Cost: an inverse transform that keeps one coefficient in the fold.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for the wrong number of sums.
    pub fn inverse_folded(&self, sums: &mut [u64], tally: &Tally) -> Result<(), CipherError> {
        let plane = self.plane();
        self.expect("folded sums", sums.len(), plane * self.limbs().len())?;
        for (limb, sums) in self.limbs().iter().zip(sums.chunks_exact_mut(plane)) {
            limb.small.inverse(sums)?;
        }
        tally.add(TallyCounts { intt: 1, ..TallyCounts::default() });
        Ok(())
    }

    /// `floor(2^64 x / Q)` to within two units a limb, for x a coefficient of [`Self::dot`]'s residues over the fold, at every place (below the plane).
    ///
    /// # Errors
    /// [`CipherError::Ring`] when lengths differ or a place is out of range.
    pub fn torus(&self, residues: &[u64], places: &[usize]) -> Result<Vec<u64>, CipherError> {
        let plane = self.plane();
        self.expect("residues", residues.len(), plane * self.limbs().len())?;
        self.check_places(places)?;
        let mut out = vec![0u64; places.len()];
        for (limb, residues) in self.limbs().iter().zip(residues.chunks_exact(plane)) {
            for (o, place) in out.iter_mut().zip(places) {
                *o = o.wrapping_add(limb.fraction.of(limb.lift.mul(residues[*place])));
            }
        }
        Ok(out)
    }

    /// Residues of [`Self::dot`] divided by the fold.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for the wrong number of residues.
    pub fn unfold(&self, residues: &mut [u64]) -> Result<(), CipherError> {
        let plane = self.plane();
        self.expect("residues", residues.len(), plane * self.limbs().len())?;
        for (limb, residues) in self.limbs().iter().zip(residues.chunks_exact_mut(plane)) {
            residues.iter_mut().for_each(|x| *x = limb.unfold.mul(*x));
        }
        Ok(())
    }

    pub(super) fn check_places(&self, places: &[usize]) -> Result<(), CipherError> {
        match places.iter().find(|p| **p >= self.plane()) {
            Some(place) => Err(RingError::Length {
                what: "coefficient of an answer (below)",
                expected: self.plane(),
                got: *place,
            }
            .into()),
            None => Ok(()),
        }
    }

    /// Writes a polynomial to [`Self::packed_len`] bytes.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for a wrong length.
    pub fn pack(&self, a: &Folded, mut out: &mut [u8]) -> Result<(), CipherError> {
        self.expect("packed polynomial", out.len(), self.packed_len())?;
        for (limb, words) in self.limbs().iter().zip(a.0.chunks_exact(self.inner.n)) {
            let (part, rest) = out.split_at_mut(pack::packed_len(words.len(), limb.bits));
            pack::pack(words, limb.bits, part)?;
            out = rest;
        }
        Ok(())
    }

    /// Reads a polynomial from [`Self::packed_len`] bytes.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for a wrong length, [`CipherError::NotReduced`] for a word that is not below its prime.
    pub fn unpack(&self, mut bytes: &[u8]) -> Result<Folded, CipherError> {
        self.expect("packed polynomial", bytes.len(), self.packed_len())?;
        let mut out = AlignedWords::new(self.words());
        for (limb, words) in self.limbs().iter().zip(out.chunks_exact_mut(self.inner.n)) {
            let (part, rest) = bytes.split_at(pack::packed_len(words.len(), limb.bits));
            pack::unpack(part, limb.bits, words)?;
            if words.iter().fold(false, |bad, w| bad | (*w >= limb.p)) {
                return Err(CipherError::NotReduced);
            }
            bytes = rest;
        }
        Ok(Folded(out))
    }
}
