//! Exact products `a * s mod 2^k` in `Z[X]/(X^N+1)`: `a` uniform modulo 2^k, `s` ternary.
//!
//! The product is computed over the integers, modulo a 50-bit prime p, with `a` centred in
//! `[-2^(k-1), 2^(k-1))`, and only then reduced modulo 2^k. For uniform `a` and `s` every term `a_i s_j` of a coefficient
//! is sub-Gaussian with variance proxy `2^(2k-1)/9`, so a coefficient leaves `(-p/2, p/2)` with probability at most
//! `2 exp(-9 p^2 / (4 N 2^(2k)))`. Moduli where that is below 2^-80 take one product
//! ([`ExactMultiplier::single_part_bits`]); wider ones are split into the low 32 bits and the rest, which are both
//! narrow enough, and take two. Words that are not uniform can exceed the bound where `N 2^(k-1) >= p/2`; split ones never
//! do, and what comes out otherwise is wrong, not unsafe.
//!
//! WebAssembly takes parts of at most 27 bits and transforms over the complex numbers (`complex.rs`) up to N = 8192.

#[cfg(target_family = "wasm")]
use crate::complex;
use crate::error::{expect_bits, expect_len};
use crate::ledger::Tag;
use crate::ntt::{Centre, Finish, Rounding};
use crate::prime::primes_near;
use crate::secret::declassify;
use crate::{kernels, low_mask, simd, AlignedWords, Isa, Ntt, RingError};
use zeroize::Zeroize;

/// Size of the transform prime.
const PRIME_BITS: u32 = 50;
/// Bits of the low part of a split polynomial.
const LOW_PART_BITS: u32 = 32;

/// Multiplies word polynomials by small ones, for one ring degree.
pub struct ExactMultiplier {
    engine: Engine,
    isa: Isa,
    single_part_bits: u32,
}

/// Which transforms it uses. Both give the same products.
enum Engine {
    /// Modulo a prime.
    Residues(Ntt),
    /// Over the complex numbers, where these are faster.
    #[cfg(target_family = "wasm")]
    Complex(complex::Tables),
}

/// A ternary polynomial, transformed. No `Debug`; wiped on drop.
pub struct SmallHat {
    values: AlignedWords,
    quotients: AlignedWords,
    isa: Isa,
    tag: Tag,
}

impl SmallHat {
    /// Which polynomial it is (for the ledger of tests).
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.tag
    }
}

impl Drop for SmallHat {
    fn drop(&mut self) {
        self.values.zeroize();
        self.quotients.zeroize();
    }
}

/// A polynomial modulo 2^k, centred and transformed: one part, or a low and a high one.
#[derive(Clone)]
pub struct WordsHat {
    parts: Vec<AlignedWords>,
    modulus_bits: u32,
    isa: Isa,
    tag: Tag,
}

impl WordsHat {
    /// The number k of bits of the modulus 2^k.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        self.modulus_bits
    }

    /// Which polynomial it is, whatever k is (for the ledger of tests).
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Bytes of memory that the polynomial takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|p| 8 * p.len()).sum()
    }
}

/// Room for one multiplication at a time. Wiped on drop, since products with secrets pass through it.
pub struct MulScratch {
    product: AlignedWords,
    sum: AlignedWords,
}

impl Drop for MulScratch {
    fn drop(&mut self) {
        self.product.zeroize();
        self.sum.zeroize();
    }
}

/// What happens to a product.
#[derive(Clone, Copy, PartialEq)]
enum Sink {
    Set,
    Add,
    SubtractFrom,
}

impl ExactMultiplier {
    /// A multiplier for degree `n` (a power of two, 8 to 65536).
    ///
    /// # Errors
    /// [`RingError::RingDegree`].
    pub fn new(n: usize) -> Result<Self, RingError> {
        Self::with_isa(n, simd::isa())
    }

    /// [`Self::new`] on an explicit instruction set (results do not depend on it).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_isa(n: usize, isa: Isa) -> Result<Self, RingError> {
        #[cfg(target_family = "wasm")]
        if n <= complex::LARGEST_DEGREE {
            crate::prime::expect_degree(n)?;
            let engine = Engine::Complex(complex::Tables::new(n));
            return Ok(Self { engine, isa: isa.usable(), single_part_bits: complex::PART_BITS });
        }
        let p = primes_near(PRIME_BITS, n, 1)?[0];
        let ntt = Ntt::with_isa(n, p, isa)?;
        // 9 p^2 / (4 N 2^(2k)) >= 81 ln 2, the prime being p.
        let log_p = (p as f64).log2();
        let needed = (81.0 * std::f64::consts::LN_2 * 4.0 / 9.0).log2();
        let single_part_bits = (log_p - f64::midpoint(needed, (n as f64).log2())).floor() as u32;
        let isa = ntt.isa();
        Ok(Self { engine: Engine::Residues(ntt), isa, single_part_bits })
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn degree(&self) -> usize {
        match &self.engine {
            Engine::Residues(ntt) => ntt.degree(),
            #[cfg(target_family = "wasm")]
            Engine::Complex(t) => t.degree(),
        }
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Largest k that takes one product: 42 for N = 2048, 41 for 4096 and 8192; 27 in WebAssembly.
    #[must_use]
    pub fn single_part_bits(&self) -> u32 {
        self.single_part_bits
    }

    /// Products (and parts of a [`WordsHat`]) that modulus 2^k takes: 1 or 2, in WebAssembly up to 3.
    #[must_use]
    pub fn parts(&self, k: u32) -> usize {
        #[cfg(target_family = "wasm")]
        if matches!(self.engine, Engine::Complex(_)) {
            return k.div_ceil(complex::PART_BITS) as usize;
        }
        if k <= self.single_part_bits {
            1
        } else {
            2
        }
    }

    /// Bits of every part but the last.
    fn part_bits(&self, k: u32) -> u32 {
        match self.parts(k) as u32 {
            1 => k,
            2 if matches!(self.engine, Engine::Residues(_)) => LOW_PART_BITS,
            parts => k.div_ceil(parts),
        }
    }

    /// Room for the multiplications of one thread.
    #[must_use]
    pub fn scratch(&self) -> MulScratch {
        MulScratch { product: AlignedWords::new(self.degree()), sum: AlignedWords::new(self.degree()) }
    }

    /// Transforms a ternary polynomial.
    ///
    /// # Errors
    /// [`RingError::Length`] unless `s` has N elements, [`RingError::NotTernary`] for other values than -1, 0, 1.
    pub fn small_hat(&self, s: &[i8]) -> Result<SmallHat, RingError> {
        let n = self.degree();
        expect_len("small polynomial", s.len(), n)?;
        // That some value is not ternary is an error, which everybody sees.
        if declassify(s.iter().fold(false, |bad, v| bad | !(-1..=1).contains(v))) {
            return Err(RingError::NotTernary);
        }
        let mut values = AlignedWords::new(n);
        let quotients = match &self.engine {
            Engine::Residues(ntt) => {
                let (mut quotients, p) = (AlignedWords::new(n), ntt.modulus());
                for (w, v) in values.iter_mut().zip(s) {
                    // p - 1, 0 or 1, without a branch.
                    *w = (i64::from(*v) as u64).wrapping_add(p & (i64::from(*v) >> 63) as u64);
                }
                ntt.forward(&mut values)?;
                ntt.prepare_factors(&mut values, &mut quotients);
                quotients
            }
            #[cfg(target_family = "wasm")]
            Engine::Complex(t) => {
                t.factor(s, &mut values);
                AlignedWords::new(0)
            }
        };
        Ok(SmallHat { values, quotients, isa: self.isa(), tag: Tag::small(s) })
    }

    /// A zero polynomial modulo 2^k, to be overwritten by [`Self::words_hat_into`].
    ///
    /// # Errors
    /// [`RingError::ModulusBits`] unless k is 1 to 64.
    pub fn zero_words_hat(&self, k: u32) -> Result<WordsHat, RingError> {
        expect_bits(k)?;
        let parts = (0..self.parts(k)).map(|_| AlignedWords::new(self.degree())).collect();
        Ok(WordsHat { parts, modulus_bits: k, isa: self.isa(), tag: Tag::default() })
    }

    /// Transforms a polynomial modulo 2^k (bits above k are ignored).
    ///
    /// # Errors
    /// [`RingError::ModulusBits`] unless k is 1 to 64, [`RingError::Length`] unless there are N words.
    pub fn words_hat(&self, words: &[u64], k: u32) -> Result<WordsHat, RingError> {
        let mut hat = self.zero_words_hat(k)?;
        self.words_hat_into(words, &mut hat)?;
        Ok(hat)
    }

    /// [`Self::words_hat`] into an existing one, whose k stays. Does not allocate.
    ///
    /// # Errors
    /// [`RingError::Length`] unless there are N words, [`RingError::ForeignHat`] when `hat` is another multiplier's.
    pub fn words_hat_into(&self, words: &[u64], hat: &mut WordsHat) -> Result<(), RingError> {
        expect_len("word polynomial", words.len(), self.degree())?;
        self.check_words(hat)?;
        hat.tag = Tag::low(words);
        let k = hat.modulus_bits;
        let (h, last) = (self.part_bits(k), hat.parts.len().saturating_sub(1));
        // Half of every lower part's modulus: what is left when the centred lower parts are taken away.
        let mut add = 0u64;
        for (i, part) in hat.parts.iter_mut().enumerate() {
            let down = h * i as u32;
            let bits = if i == last { k - down } else { h };
            let centre = Centre { add, down, shift: 64 - bits };
            match &self.engine {
                Engine::Residues(ntt) => ntt.forward_words(words, centre, part),
                #[cfg(target_family = "wasm")]
                Engine::Complex(t) => t.forward_words(words, centre, part),
            }
            add = add.wrapping_add(1 << (down + bits - 1));
        }
        Ok(())
    }

    fn check_words(&self, hat: &WordsHat) -> Result<(), RingError> {
        let fits = hat.isa == self.isa()
            && hat.parts.len() == self.parts(hat.modulus_bits)
            && hat.parts.iter().all(|p| p.len() == self.degree());
        if fits {
            Ok(())
        } else {
            Err(RingError::ForeignHat("word polynomial"))
        }
    }

    /// `out = a s mod 2^k`, k being the one of `a`. Does not allocate.
    ///
    /// # Errors
    /// [`RingError::Length`] unless `out` has N words, [`RingError::ForeignHat`] when an operand or the scratch is another
    /// multiplier's.
    pub fn multiply_into(
        &self,
        a: &WordsHat,
        s: &SmallHat,
        out: &mut [u64],
        scratch: &mut MulScratch,
    ) -> Result<(), RingError> {
        self.product(a, s, Sink::Set, out, scratch)
    }

    /// `out = out + a s mod 2^k`; otherwise as [`Self::multiply_into`].
    ///
    /// # Errors
    /// As [`Self::multiply_into`].
    pub fn multiply_add_into(
        &self,
        a: &WordsHat,
        s: &SmallHat,
        out: &mut [u64],
        scratch: &mut MulScratch,
    ) -> Result<(), RingError> {
        self.product(a, s, Sink::Add, out, scratch)
    }

    /// `out = out - a s mod 2^k`; otherwise as [`Self::multiply_into`].
    ///
    /// # Errors
    /// As [`Self::multiply_into`].
    pub fn multiply_subtract_into(
        &self,
        a: &WordsHat,
        s: &SmallHat,
        out: &mut [u64],
        scratch: &mut MulScratch,
    ) -> Result<(), RingError> {
        self.product(a, s, Sink::SubtractFrom, out, scratch)
    }

    /// `phase = 2^raise base + a s mod 2^k`, centred, rounded to the nearest multiple of 2^d: `out` gets the multiples, the
    /// result is the largest distance of a phase from one (at most 2^(d-1)). Does not allocate.
    ///
    /// # Errors
    /// As [`Self::multiply_into`], and [`RingError::ModulusBits`] unless `d < k` and `raise < k`.
    pub fn multiply_round_into(
        &self,
        a: &WordsHat,
        s: &SmallHat,
        base: (&[u64], u32),
        d: u32,
        out: &mut [i64],
        scratch: &mut MulScratch,
    ) -> Result<u64, RingError> {
        let (base, raise) = base;
        let k = a.modulus_bits;
        expect_len("rounded words", out.len(), self.degree())?;
        expect_len("base", base.len(), self.degree())?;
        if d >= k || raise >= k {
            return Err(RingError::ModulusBits(k - 1));
        }
        self.check_operands(a, s, scratch)?;
        if let ([part], Engine::Residues(ntt)) = (a.parts.as_slice(), &self.engine) {
            let factors: (&[u64], &[u64]) = (&s.values, &s.quotients);
            let rounding = Rounding { raise, k, d };
            let done = ntt.multiply_round(part, factors, &mut scratch.product, (base, rounding), out);
            if let Some(largest) = done {
                return Ok(largest);
            }
        }
        let mut sum = std::mem::replace(&mut scratch.sum, AlignedWords::new(0));
        let result = kernels::raise_into(self.isa(), base, raise, &mut sum)
            .and_then(|()| self.product(a, s, Sink::Add, &mut sum, scratch))
            .and_then(|()| kernels::round_into(self.isa(), &sum, k, d, out));
        scratch.sum = sum;
        result
    }

    fn check_operands(&self, a: &WordsHat, s: &SmallHat, scratch: &MulScratch) -> Result<(), RingError> {
        self.check_words(a)?;
        if s.values.len() != self.degree() || s.isa != self.isa() {
            return Err(RingError::ForeignHat("small polynomial"));
        }
        if scratch.product.len() != self.degree() {
            return Err(RingError::ForeignHat("scratch"));
        }
        Ok(())
    }

    fn product(
        &self,
        a: &WordsHat,
        s: &SmallHat,
        into: Sink,
        out: &mut [u64],
        scratch: &mut MulScratch,
    ) -> Result<(), RingError> {
        expect_len("product", out.len(), self.degree())?;
        self.check_operands(a, s, scratch)?;
        if into == Sink::Set {
            out.fill(0);
        }
        let mask = low_mask(a.modulus_bits);
        let h = self.part_bits(a.modulus_bits);
        for (part, i) in a.parts.iter().zip(0..) {
            let finish = Finish { subtract: into == Sink::SubtractFrom, shift: h * i, mask };
            match &self.engine {
                Engine::Residues(ntt) => {
                    ntt.multiply_factors(part, (&s.values, &s.quotients), &mut scratch.product, finish, out);
                }
                #[cfg(target_family = "wasm")]
                Engine::Complex(t) => {
                    t.multiply(self.isa(), part, &s.values, &mut scratch.product, finish, out);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sample, Prg};

    /// `a s` modulo 2^64 by the definition.
    fn schoolbook(a: &[u64], s: &[i8]) -> Vec<u64> {
        let n = a.len();
        let mut c = vec![0u64; n];
        for (j, v) in s.iter().enumerate() {
            for (i, x) in a.iter().enumerate() {
                let t = x.wrapping_mul(i64::from(*v) as u64);
                let k = (i + j) % n;
                c[k] = if i + j < n { c[k].wrapping_add(t) } else { c[k].wrapping_sub(t) };
            }
        }
        c
    }

    #[test]
    fn single_part_bits_are_the_derived_ones() {
        for (n, bits) in
            [(1024, 42), (2048, 42), (4096, 41), (8192, 41), (16384, 40), (32768, 40), (65536, 39)]
        {
            let m = ExactMultiplier::new(n).unwrap();
            #[cfg(target_family = "wasm")]
            if matches!(m.engine, Engine::Complex(_)) {
                assert_eq!(m.single_part_bits(), 27);
                continue;
            }
            let p = primes_near(PRIME_BITS, n, 1).unwrap()[0] as f64;
            assert_eq!(m.single_part_bits(), bits, "N={n}");
            let exponent =
                |k: u32| 9.0 * p * p / (4.0 * n as f64 * f64::from(2 * k).exp2()) / 2f64.ln() - 1.0;
            assert!(exponent(bits) >= 80.0 && exponent(bits + 1) < 80.0, "N={n}");
            assert!(exponent(LOW_PART_BITS) >= 80.0);
        }
    }

    #[test]
    fn products_equal_schoolbook_for_every_width_and_path() {
        let mut prg = Prg::from_seed([9; 16]);
        for n in [8, 64, 256, 2048] {
            let mut s = vec![0; n];
            sample::ternary(&mut prg, &mut s);
            let mut words = vec![0; n];
            let widths: Vec<u32> =
                if n <= 64 { (1..=64).collect() } else { vec![24, 32, 41, 42, 43, 53, 64] };
            for k in widths {
                prg.fill_words(&mut words);
                let expected = schoolbook(&words, &s);
                for isa in simd::available() {
                    let m = ExactMultiplier::with_isa(n, isa).unwrap();
                    let (a, sh) = (m.words_hat(&words, k).unwrap(), m.small_hat(&s).unwrap());
                    assert_eq!(a.bytes(), 8 * n * m.parts(k));
                    let mut scratch = m.scratch();
                    let mut out = vec![1; n];
                    m.multiply_into(&a, &sh, &mut out, &mut scratch).unwrap();
                    assert!(
                        out.iter().zip(&expected).all(|(o, e)| *o == e & low_mask(k)),
                        "N={n} k={k} {isa:?}"
                    );
                    m.multiply_add_into(&a, &sh, &mut out, &mut scratch).unwrap();
                    let twice = |e: &u64| e.wrapping_mul(2) & low_mask(k);
                    assert!(out.iter().zip(&expected).all(|(o, e)| *o == twice(e)), "N={n} k={k} {isa:?}");
                    m.multiply_subtract_into(&a, &sh, &mut out, &mut scratch).unwrap();
                    m.multiply_subtract_into(&a, &sh, &mut out, &mut scratch).unwrap();
                    assert!(out.iter().all(|o| *o == 0));
                }
            }
        }
    }

    #[test]
    fn foreign_operands_are_refused() {
        let (small, large) = (ExactMultiplier::new(8).unwrap(), ExactMultiplier::new(16).unwrap());
        let s = small.small_hat(&[1; 8]).unwrap();
        let a = large.words_hat(&[1; 16], 40).unwrap();
        let mut scratch = large.scratch();
        assert_eq!(
            large.multiply_into(&a, &s, &mut [0; 16], &mut scratch),
            Err(RingError::ForeignHat("small polynomial"))
        );
        assert_eq!(
            small.multiply_into(&a, &s, &mut [0; 8], &mut scratch),
            Err(RingError::ForeignHat("word polynomial"))
        );
        assert!(matches!(small.small_hat(&[2; 8]), Err(RingError::NotTernary)));
        assert!(matches!(small.words_hat(&[0; 8], 65), Err(RingError::ModulusBits(65))));
        assert!(matches!(small.words_hat(&[0; 7], 64), Err(RingError::Length { .. })));
    }

    /// Does not compile when a secret type implements `Debug`: the function would be ambiguous.
    #[test]
    fn secrets_have_no_debug() {
        trait Unprintable<A> {
            fn check() {}
        }
        struct Printable;
        impl<T: ?Sized> Unprintable<()> for T {}
        impl<T: ?Sized + std::fmt::Debug> Unprintable<Printable> for T {}
        <SmallHat as Unprintable<_>>::check();
        <MulScratch as Unprintable<_>>::check();
        <Prg as Unprintable<_>>::check();
    }
}
