//! Merging ciphertexts whose useful coefficients are multiples of s into one (PackLWE: Chen, Dai, Kim, Song, "Efficient homomorphic
//! conversion between (Ring) LWE ciphertexts", ACNS 2021, as ConvFHE uses it): automorphisms with key switching at the server.
//!
//! The automorphisms `g_k: X -> X^(1 + N/2^k)`, 2^k < s, fix X^s; `prod (1 + g_k)` is the trace onto polynomials in X^s, which multiplies useful
//! coefficients by s and clears the others. With k from log2(s) - 1 down to 0, `(A + X^(2^k) B) + g_k(A - X^(2^k) B)` is one step of the trace of A and B
//! at once, since `g_k(X^(2^k)) = -X^(2^k)` and later g fix it: M ciphertexts, M <= s, take M - 1 steps with merging and log2(s/M) without.
//! The factor s is taken out by multiplying plaintexts by s^-1 modulo the data modulus: useful coefficients, noise included, come out exactly as
//! they went in, plus the noise of key switching.
//!
//! Key switching: one digit a data prime, one special prime P; every step adds an error of variance
//! `sum_d (q_d / P)^2 N 10.5 / 12 + (1 + 2N/3) / 12`, at most doubled in size by every later step: [`merge_variance`]. The next step needs digits of c1
//! alone, so c0 stays times P until the last step and is divided once: its rounding, the 1 of `1 + 2N/3`, comes once in place of every step.

use crate::batch::ERROR_VARIANCE;
use crate::one_poly::{Tally, TallyCounts};
use crate::packed::PackedClient;
use crate::{uses, CipherError};
use hushnet_ring::rns::{
    switch_digits, uniform_limb, Automorphism, BaseConverter, Coef, Digit, Divider, Eval, RnsBasis, RnsError,
    RnsPoly,
};
use hushnet_ring::{pack, prg, sample, wipe, Prg, RingError};
use std::sync::Arc;
use zeroize::Zeroize;

/// A ciphertext over the data primes: phase `c0 + c1 s`.
pub type Pair = [RnsPoly<Eval>; 2];

pub(crate) fn ring(e: RnsError) -> CipherError {
    match e {
        RnsError::Ring(e) => e.into(),
        RnsError::Degree { expected, got } | RnsError::Count { expected, got, .. } => {
            RingError::Length { what: "polynomial", expected, got }.into()
        }
        RnsError::Limbs { needed, got } => {
            RingError::Length { what: "primes of a polynomial", expected: needed.len(), got: got.len() }
                .into()
        }
        RnsError::Modulus(modulus) | RnsError::Repeated(modulus) => {
            RingError::Modulus { modulus, twice_degree: 0 }.into()
        }
        RnsError::Empty => RingError::Length { what: "primes of a basis", expected: 1, got: 0 }.into(),
        RnsError::Exponent(g) => RingError::RingDegree(g).into(),
        // Not in the cyclotomic ring, which is the only one here.
        RnsError::NoAutomorphisms => RingError::RingDegree(0).into(),
    }
}

/// Variance of the error that merging at spacing s adds to a coefficient's phase.
#[must_use]
pub fn merge_variance(n: usize, data_primes: &[u64], special: u64, spacing: usize) -> f64 {
    let (n, s) = (n as f64, spacing as f64);
    let digits: f64 = data_primes.iter().map(|q| (*q as f64 / special as f64).powi(2)).sum();
    let step = digits * n * ERROR_VARIANCE / 12.0 + (1.0 + 2.0 * n / 3.0) / 12.0;
    step * (s * s - 1.0) / 3.0
}

/// Automorphisms that merging `count` ciphertexts at spacing `s` takes.
#[must_use]
pub fn merge_steps(count: usize, spacing: usize) -> usize {
    let (mut steps, mut left, mut gap) = (0, count, spacing);
    while gap > 1 {
        left = left.div_ceil(2);
        steps += left;
        gap /= 2;
    }
    steps
}

/// Where the multiples of s of ciphertext `index` of `count` stand after merging: this coefficient onwards.
#[must_use]
pub fn merge_offset(index: usize, count: usize, spacing: usize) -> usize {
    let (mut offset, mut at, mut left, mut gap) = (0, index, count, spacing);
    while gap > 1 {
        gap /= 2;
        let half = left.div_ceil(2);
        if at >= half {
            offset += gap;
            at -= half;
        }
        left = half;
    }
    offset
}

/// Tables of key switching. Cheap to clone.
#[derive(Clone)]
pub struct MergeContext {
    inner: Arc<Tables>,
}

struct Tables {
    basis: RnsBasis,
    data: usize,
    converters: Vec<BaseConverter>,
    divider: Divider,
    /// The special prime P modulo each data prime.
    special: Vec<u64>,
}

/// One automorphism, its key, and the shift that goes with it.
struct Step {
    map: Automorphism,
    shift: RnsPoly<Eval>,
    b: Vec<RnsPoly<Eval>>,
    a: Vec<RnsPoly<Eval>>,
}

/// Switching keys for all automorphisms below a spacing.
pub struct MergeKeys {
    context: MergeContext,
    seed: [u8; 32],
    /// `[k]`: `X -> X^(1 + N/2^k)`.
    steps: Vec<Step>,
}

impl MergeContext {
    /// Tables over data primes and a special prime at least as large.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for an unsupported degree or prime.
    pub fn new(n: usize, data_primes: &[u64], special: u64) -> Result<Self, CipherError> {
        let data = data_primes.len();
        let basis = RnsBasis::new(n, &[data_primes, &[special]].concat()).map_err(ring)?;
        let converters = (0..data)
            .map(|j| {
                let to: Vec<usize> = (0..=data).filter(|i| *i != j).collect();
                BaseConverter::new(&basis, &[j], &to)
            })
            .collect::<Result<_, _>>()
            .map_err(ring)?;
        let divider = Divider::new(&basis, &[data], 0..data).map_err(ring)?;
        let special = basis.moduli()[..data].iter().map(|m| special % m.value()).collect();
        Ok(Self { inner: Arc::new(Tables { basis, data, converters, divider, special }) })
    }

    /// The primes, the special one last.
    #[must_use]
    pub fn basis(&self) -> &RnsBasis {
        &self.inner.basis
    }

    /// A zero polynomial over the data primes.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring.
    pub fn zero(&self) -> Result<RnsPoly<Eval>, CipherError> {
        self.inner.basis.zero(0..self.inner.data).map_err(ring)
    }

    pub(crate) fn small(&self, small: &[i8], all: bool) -> Result<RnsPoly<Eval>, CipherError> {
        let mut words: Vec<u64> = small.iter().map(|v| i64::from(*v) as u64).collect();
        let range = 0..self.inner.data + usize::from(all);
        let poly: Result<RnsPoly<Coef>, RnsError> = self.inner.basis.from_signed(&words, range);
        wipe(&mut words);
        self.inner.basis.forward(poly.map_err(ring)?).map_err(ring)
    }

    fn uniform(&self, seed: &[u8; 32], key: u32, digit: u32) -> Result<RnsPoly<Eval>, CipherError> {
        let mut half = [0; 16];
        half.copy_from_slice(&seed[..16]);
        let mut words = [0u64; 2];
        prg::expand_words(&half, key, digit, 0x4d4b, 64, &mut words)?;
        let mut own = [0; 16];
        own[..8].copy_from_slice(&words[0].to_le_bytes());
        own[8..].copy_from_slice(&words[1].to_le_bytes());
        // Public: both parties expand it.
        let mut prg = Prg::from_seed(own).untracked();
        let mut out = self.inner.basis.zero(0..self.inner.data + 1).map_err(ring)?;
        for i in out.range() {
            uniform_limb(&mut prg, &self.inner.basis.moduli()[i], out.limb_mut(i));
        }
        Ok(out)
    }

    fn step(&self, k: u32, b: Vec<RnsPoly<Eval>>, seed: &[u8; 32]) -> Result<Step, CipherError> {
        let (basis, n) = (&self.inner.basis, self.inner.basis.degree());
        let a = (0..self.inner.data as u32).map(|d| self.uniform(seed, k, d)).collect::<Result<_, _>>()?;
        let mut monomial = vec![0i8; n];
        monomial[1 << k] = 1;
        let map = Automorphism::new(basis, 1 + (n >> k)).map_err(ring)?;
        Ok(Step { map, shift: self.small(&monomial, true)?, b, a })
    }

    /// Bytes of the keys of a spacing on the wire: the seed, then b of every digit of every step, 50 bits a word.
    #[must_use]
    pub fn keys_len(&self, spacing: usize) -> usize {
        let (n, d) = (self.inner.basis.degree(), self.inner.data);
        32 + spacing.trailing_zeros() as usize * d * (d + 1) * pack::packed_len(n, 50)
    }
}

impl MergeKeys {
    /// The client's keys for every spacing up to `spacing` (a power of two).
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring.
    pub fn generate(
        context: &MergeContext,
        secret: &[i8],
        spacing: usize,
        seed: &[u8; 32],
        prg: &mut Prg,
    ) -> Result<Self, CipherError> {
        let (basis, data) = (&context.inner.basis, context.inner.data);
        let special = basis.moduli()[data].value();
        let mut s = context.small(secret, true)?;
        let mut steps = Vec::new();
        for k in 0..spacing.trailing_zeros() {
            let mut step = context.step(k, Vec::new(), seed)?;
            let mut image = step.map.apply_eval(basis, &s).map_err(ring)?;
            for d in 0..data {
                let mut e = vec![0i8; basis.degree()];
                sample::centred_binomial(prg, &mut e);
                let mut b = context.small(&e, true)?;
                e.zeroize();
                uses::limbs(uses::MERGE_MASK, &step.a[d]);
                basis.mul_sub(&mut b, &step.a[d], &s).map_err(ring)?;
                // P modulo the digit's prime, 0 modulo the others.
                let words: Vec<u64> = (0..=data)
                    .map(|i| if i == d { special % basis.moduli()[i].value() } else { 0 })
                    .collect();
                basis.scale_add(&mut b, &image, &words).map_err(ring)?;
                step.b.push(b);
            }
            image.zeroize();
            steps.push(step);
        }
        s.zeroize();
        Ok(Self { context: context.clone(), seed: *seed, steps })
    }

    /// [`Self::generate`] under the key of a packed client.
    ///
    /// # Errors
    /// As [`Self::generate`].
    pub fn for_client(
        context: &MergeContext,
        client: &PackedClient,
        spacing: usize,
        seed: &[u8; 32],
        prg: &mut Prg,
    ) -> Result<Self, CipherError> {
        Self::generate(context, &client.secret_coefficients()?, spacing, seed, prg)
    }

    /// For the wire: [`MergeContext::keys_len`] bytes.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the packer.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CipherError> {
        let n = self.context.inner.basis.degree();
        let mut out = self.seed.to_vec();
        let mut piece = vec![0; pack::packed_len(n, 50)];
        for poly in self.steps.iter().flat_map(|s| &s.b) {
            for limb in poly.words().chunks_exact(n) {
                pack::pack(limb, 50, &mut piece)?;
                out.extend_from_slice(&piece);
            }
        }
        Ok(out)
    }

    /// From the wire.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for a wrong length, [`CipherError::NotReduced`] for a word that is not below its prime.
    pub fn from_bytes(context: &MergeContext, spacing: usize, bytes: &[u8]) -> Result<Self, CipherError> {
        let expected = context.keys_len(spacing);
        if bytes.len() != expected {
            return Err(RingError::Length { what: "merging keys", expected, got: bytes.len() }.into());
        }
        let (basis, data) = (&context.inner.basis, context.inner.data);
        let (head, rest) = bytes.split_at(32);
        let mut seed = [0; 32];
        seed.copy_from_slice(head);
        let mut pieces = rest.chunks_exact(pack::packed_len(basis.degree(), 50));
        let mut steps = Vec::new();
        for k in 0..spacing.trailing_zeros() {
            let mut b = Vec::new();
            for _ in 0..data {
                let mut poly = basis.zero(0..data + 1).map_err(ring)?;
                for i in 0..=data {
                    let q = basis.moduli()[i].value();
                    pack::unpack(pieces.next().unwrap_or(&[]), 50, poly.limb_mut(i))?;
                    if poly.limb(i).iter().any(|w| *w >= q) {
                        return Err(CipherError::NotReduced);
                    }
                }
                b.push(poly);
            }
            steps.push(context.step(k, b, &seed)?);
        }
        Ok(Self { context: context.clone(), seed, steps })
    }

    /// One step: `(even + X^(2^k) odd) + g_k(even - X^(2^k) odd)`. The result's c0 is times P, over all primes; so are those of the operands behind the
    /// first step.
    fn apply(&self, k: usize, even: Pair, odd: Option<Pair>, tally: &Tally) -> Result<Pair, CipherError> {
        let t = &self.context.inner;
        let step = self.steps.get(k).ok_or(RingError::RingDegree(1 << k))?;
        let run = || -> Result<Pair, RnsError> {
            let (mut sum, mut difference) = (even, odd);
            for (s, d) in sum.iter_mut().zip(difference.iter_mut().flatten()) {
                t.basis.butterfly(s, d, &step.shift)?;
            }
            let turned = difference.as_ref().unwrap_or(&sum);
            let [d0, d1] =
                [step.map.apply_eval(&t.basis, &turned[0])?, step.map.apply_eval(&t.basis, &turned[1])?];
            drop(difference);
            let mut coefficients = t.basis.inverse(d1.clone())?;
            let n = t.basis.degree();
            let digits = coefficients
                .words_mut()
                .chunks_exact_mut(n)
                .zip(&t.converters)
                .map(|(words, converter)| Digit::new(&t.basis, converter, &d1, words))
                .collect::<Result<Vec<_>, _>>()?;
            let [mut raised0, raised1] = switch_digits(&t.basis, 0..t.data + 1, &digits, [&step.b, &step.a])?;
            let [mut s0, mut s1] = sum;
            t.basis.add_assign(&mut s0, &d0)?;
            if s0.range().end > t.data {
                t.basis.add_assign(&mut raised0, &s0)?;
            } else {
                t.basis.scale_add_part(&mut raised0, &s0, &t.special)?;
            }
            t.basis.add_assign(&mut s1, &t.divider.divide_in_place(&t.basis, raised1)?)?;
            Ok([raised0, s1])
        };
        let out = run().map_err(ring)?;
        tally.add(TallyCounts { rotations: 1, ..TallyCounts::default() });
        Ok(out)
    }

    /// Merges up to s ciphertexts; the multiples of s of number i come to [`merge_offset`] onwards, times s. Cost:
    /// [`merge_steps`] automorphisms.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for none or more than s ciphertexts, or a spacing beyond the keys.
    pub fn merge(&self, ciphertexts: Vec<Pair>, spacing: usize, tally: &Tally) -> Result<Pair, CipherError> {
        let got = ciphertexts.len();
        if got == 0 || got > spacing || !spacing.is_power_of_two() {
            return Err(
                RingError::Length { what: "ciphertexts to merge (at most)", expected: spacing, got }.into()
            );
        }
        let mut list = ciphertexts;
        for k in (0..spacing.trailing_zeros() as usize).rev() {
            let odd = list.split_off(list.len().div_ceil(2));
            let mut odd = odd.into_iter();
            list = list
                .into_iter()
                .map(|even| self.apply(k, even, odd.next(), tally))
                .collect::<Result<_, _>>()?;
        }
        let [c0, c1] = list.pop().ok_or(RingError::RingDegree(spacing))?;
        let t = &self.context.inner;
        let c0 = if spacing > 1 { t.divider.divide_in_place(&t.basis, c0).map_err(ring)? } else { c0 };
        Ok([c0, c1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushnet_ring::prime::primes_near;

    /// Encrypts, merges, decrypts: coefficients as they should be, noise within the bound.
    fn check(n: usize, data: usize, spacing: usize, count: usize) {
        let mut prg = Prg::from_seed([count as u8; 16]);
        let primes = primes_near(50, n, data + 1).unwrap();
        let context = MergeContext::new(n, &primes[..data], primes[data]).unwrap();
        let mut secret = vec![0i8; n];
        sample::ternary(&mut prg, &mut secret);
        let keys = MergeKeys::generate(&context, &secret, spacing, &[5; 32], &mut prg).unwrap();
        let bytes = keys.to_bytes().unwrap();
        assert_eq!(bytes.len(), context.keys_len(spacing));
        let keys = MergeKeys::from_bytes(&context, spacing, &bytes).unwrap();
        assert!(MergeKeys::from_bytes(&context, spacing, &bytes[1..]).is_err());
        assert!(spacing == 1 || MergeKeys::from_bytes(&context, spacing, &vec![0xff; bytes.len()]).is_err());
        let basis = context.basis();
        let s = context.small(&secret, false).unwrap();
        let inverse: Vec<u64> = basis.moduli()[..data].iter().map(|m| m.inv(spacing as u64)).collect();
        let (mut messages, mut list) = (Vec::new(), Vec::new());
        for i in 0..count {
            // Noise-free ciphertexts of small polynomials with something at every coefficient.
            let words: Vec<u64> = (0..n).map(|j| ((j * 37 + i * 101) % 1000) as u64 * (1 << 30)).collect();
            let mut m = basis.forward(basis.from_signed(&words, 0..data).unwrap()).unwrap();
            let c1 = context.uniform(&[i as u8; 32], 9, 9).unwrap().slice(0..data).unwrap();
            let product = basis.product(0..data, &c1, &s).unwrap();
            basis.sub_assign(&mut m, &product).unwrap();
            let mut pair = [m, c1];
            pair.iter_mut().for_each(|p| basis.scale_assign(p, &inverse).unwrap());
            list.push(pair);
            messages.push(words);
        }
        let tally = Tally::default();
        let [mut c0, c1] = keys.merge(list, spacing, &tally).unwrap();
        assert_eq!(tally.counts().rotations as usize, merge_steps(count, spacing));
        basis.add_assign(&mut c0, &basis.product(0..data, &c1, &s).unwrap()).unwrap();
        let phase = basis.inverse(c0).unwrap();
        let mut want = vec![0i64; n];
        for (i, m) in messages.iter().enumerate() {
            let offset = merge_offset(i, count, spacing);
            for j in (0..n).step_by(spacing) {
                assert_eq!(want[j + offset], 0);
                want[j + offset] = m[j] as i64;
            }
        }
        let m = &basis.moduli()[0];
        let errors: Vec<f64> =
            phase.limb(0).iter().zip(&want).map(|(p, w)| (m.centred(*p) - w) as f64).collect();
        let deviation = (errors.iter().map(|e| e * e).sum::<f64>() / n as f64).sqrt();
        let bound = merge_variance(n, &primes[..data], primes[data], spacing).sqrt();
        assert!(deviation <= 1.1 * bound, "{n} {data} {spacing} {count}: {deviation} {bound}");
        assert!(errors.iter().all(|e| e.abs() <= 7.631 * bound + 1.0));
    }

    #[test]
    fn merged_coefficients_stand_where_they_should_and_others_are_gone() {
        check(256, 1, 1, 1);
        check(256, 1, 8, 8);
        check(256, 2, 8, 5);
        check(1024, 1, 64, 1);
        check(1024, 2, 32, 17);
        check(4096, 1, 256, 64);
        assert_eq!(merge_steps(64, 64), 63);
        assert_eq!(merge_steps(1, 8), 3);
    }
}
