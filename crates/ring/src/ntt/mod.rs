//! Negacyclic number-theoretic transforms modulo primes `p = 1 mod 2N`, `p < 2^61`.
//!
//! The forward transform evaluates a polynomial at the N odd powers of a primitive 2N-th root of unity
//! psi. Slot order: let `e(i) = 2 bitrev(i) + 1` over log2 N bits. For N < 64 slot `i` holds the value at `psi^e(i)`.
//! For N >= 64 every run of 64 slots is an 8 x 8 matrix stored transposed: slot `64 g + 8 s + b` holds the value at
//! `psi^e(64 g + 8 b + s)`. (Vector units then finish eight sub-transforms side by side.) Products are slotwise, so
//! most users never see the order; [`Ntt::slot_exponent`] tells it.
//!
//! [`Ntt::of_ring`] makes the transform of another ring of N dimensions with the same kernels: see [`Ring`].

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(any(test, target_family = "wasm"))]
mod doubles;
#[cfg(target_arch = "x86_64")]
mod ifma;
mod invariant;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "aarch64", target_family = "wasm"))]
mod pairs;
mod portable;
#[cfg(target_family = "wasm")]
mod relaxed;

use crate::error::expect_len;
use crate::prime::{inv_mod, primitive_root, Products};
use crate::{simd, Isa, RingError};
use invariant::Fold;

/// Which ring polynomials belong to; N integers each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ring {
    /// `Z[X]/(X^N + 1)`: coefficients of 1, X, ..., X^(N-1).
    #[default]
    Cyclotomic,
    /// The elements of `Z[X]/(X^2N + 1)` that X -> X^-1 leaves alone: coefficients of 1 and of X^t + X^-t, t = 1 .. N-1. All N embeddings are
    /// real. Primes are 1 mod 4N.
    ConjugateInvariant,
}

impl Ring {
    /// What primes are one more than a multiple of, at N = `n`: the order of the roots of unity.
    #[must_use]
    pub fn order(self, n: usize) -> usize {
        match self {
            Self::Cyclotomic => 2 * n,
            Self::ConjugateInvariant => 4 * n,
        }
    }
}

/// Transform tables for one ring degree and prime.
pub struct Ntt {
    n: usize,
    p: u64,
    isa: Isa,
    engine: Engine,
    /// What comes before the butterflies of the conjugate-invariant ring.
    fold: Option<Fold>,
}

/// The kernels in use. Boxed tables, since they differ in size.
enum Engine {
    Portable(portable::Tables),
    /// Where words have no high halves of products.
    #[cfg(target_family = "wasm")]
    Doubles(doubles::Tables),
    /// Only where relaxed products and sums are rounded once.
    #[cfg(target_family = "wasm")]
    Relaxed(relaxed::Tables),
    /// Only where the processor has AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(Box<avx2::Tables>),
    /// Only where the processor has AVX-512 IFMA.
    #[cfg(target_arch = "x86_64")]
    Ifma(Box<ifma::Tables>),
    /// Only where the processor has NEON.
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Tables),
}

/// What to do with the coefficients of a product: `out <- (out +- 2^shift c) & mask`.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    pub(crate) subtract: bool,
    pub(crate) shift: u32,
    pub(crate) mask: u64,
}

/// How a sum is rounded: `2^raise base + c` modulo 2^k, centred, to the nearest multiple of 2^d; d < k.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) struct Rounding {
    pub(crate) raise: u32,
    pub(crate) k: u32,
    pub(crate) d: u32,
}

/// Which bits of a word are centred: `((w + add) >> down) mod 2^(64-shift)`, taken in `[-2^(63-shift), 2^(63-shift))`, which
/// must be within `(-p, p)`.
#[derive(Clone, Copy)]
pub(crate) struct Centre {
    pub(crate) add: u64,
    pub(crate) down: u32,
    pub(crate) shift: u32,
}

/// Splits a number of levels evenly into as few passes of at most `most` as possible, longest first.
#[cfg(target_arch = "x86_64")]
fn level_split(levels: u32, most: u32) -> impl DoubleEndedIterator<Item = u32> + Clone {
    let passes = levels.div_ceil(most);
    (0..passes).map(move |i| (levels + passes - 1 - i) / passes)
}

impl Engine {
    fn new(isa: Isa, p: u64, forward: &[u64], inverse: &[u64]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if p < 1 << 50 && forward.len() >= 64 && isa >= Isa::Ifma {
            return Engine::Ifma(Box::new(ifma::Tables::new(p, forward, inverse)));
        }
        #[cfg(target_arch = "x86_64")]
        if p < 1 << 50 && forward.len() >= 64 && isa >= Isa::Avx2 {
            return Engine::Avx2(Box::new(avx2::Tables::new(p, forward, inverse)));
        }
        #[cfg(target_arch = "aarch64")]
        if p < 1 << 50 && forward.len() >= 64 && isa >= Isa::Neon {
            return Engine::Neon(neon::Tables::new(p, forward, inverse));
        }
        let _ = isa;
        #[cfg(target_family = "wasm")]
        if p < 1 << 50 && forward.len() >= 64 && isa >= Isa::Relaxed {
            return Engine::Relaxed(relaxed::Tables::new(p, forward, inverse));
        }
        #[cfg(target_family = "wasm")]
        if p < 1 << 50 {
            return Engine::Doubles(doubles::Tables::new(p, forward, inverse));
        }
        Engine::Portable(portable::Tables::new(p, forward, inverse))
    }
}

/// `psi^bitrev(i)`, `i < N`: the twiddles of a decimation that halves blocks, level by level.
fn bit_reversed_powers(n: usize, p: u64, psi: u64) -> Vec<u64> {
    let bits = n.trailing_zeros();
    let mut powers = vec![0; n];
    let mut power = 1;
    let products = Products::new(p);
    for i in 0..n {
        powers[i.reverse_bits() >> (usize::BITS - bits)] = power;
        power = products.mul(power, psi);
    }
    powers
}

impl Ntt {
    /// Tables for degree `n` (a power of two, 8 to 65536) and prime `p = 1 mod 2n` below 2^61.
    ///
    /// # Errors
    /// [`RingError::RingDegree`] or [`RingError::Modulus`].
    pub fn new(n: usize, p: u64) -> Result<Self, RingError> {
        Self::with_isa(n, p, simd::isa())
    }

    /// [`Self::new`] on an explicit instruction set (results do not depend on it).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_isa(n: usize, p: u64, isa: Isa) -> Result<Self, RingError> {
        let psi = primitive_root(n, p)?;
        let forward = bit_reversed_powers(n, p, psi);
        let inverse = bit_reversed_powers(n, p, inv_mod(psi, p));
        let isa = isa.usable();
        Ok(Self { n, p, isa, engine: Engine::new(isa, p, &forward, &inverse), fold: None })
    }

    /// Tables for a ring of dimension `n`; [`Self::with_isa`] for the cyclotomic one.
    ///
    /// # Errors
    /// As [`Self::new`]; the conjugate-invariant ring has n up to 32768 and primes `p = 1 mod 4n`.
    pub fn of_ring(ring: Ring, n: usize, p: u64, isa: Isa) -> Result<Self, RingError> {
        if ring == Ring::Cyclotomic {
            return Self::with_isa(n, p, isa);
        }
        crate::prime::expect_degree(n)?;
        let psi = primitive_root(2 * n, p)?;
        let half = |psi| invariant::left_half(&bit_reversed_powers(2 * n, p, psi));
        let (forward, inverse, isa) = (half(psi), half(inv_mod(psi, p)), isa.usable());
        Ok(Self {
            n,
            p,
            isa,
            engine: Engine::new(isa, p, &forward, &inverse),
            fold: Some(Fold::new(n, p, psi, isa)),
        })
    }

    /// The ring whose elements these are: negacyclic or of real slots.
    #[must_use]
    pub fn ring(&self) -> Ring {
        if self.fold.is_some() {
            Ring::ConjugateInvariant
        } else {
            Ring::Cyclotomic
        }
    }

    /// The ring degree N, a power of two.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.n
    }

    /// The prime p that coefficients are modulo.
    #[must_use]
    pub fn modulus(&self) -> u64 {
        self.p
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The odd `e` such that slot `i` holds the value at `psi^e`; `psi` is [`primitive_root`]'s, of order [`Ring::order`].
    #[must_use]
    pub fn slot_exponent(&self, i: usize) -> usize {
        let bits = self.n.trailing_zeros();
        let i = if self.n >= 64 { i / 64 * 64 + i % 8 * 8 + i % 64 / 8 } else { i };
        let spacing = self.ring().order(self.n) / self.n;
        spacing * (i.reverse_bits() >> (usize::BITS - bits)) + 1
    }

    /// Coefficients, below p, to slot values below p, in place.
    ///
    /// # Errors
    /// [`RingError::Length`] unless `a` has N elements.
    pub fn forward(&self, a: &mut [u64]) -> Result<(), RingError> {
        expect_len("polynomial", a.len(), self.n)?;
        if let Some(f) = &self.fold {
            f.fold(a);
        }
        self.levels(1, a);
        Ok(())
    }

    /// Whether values below 4p may stand for residues in what [`Self::forward`] reads, and do so in what [`Self::forward_loose`] writes.
    pub(crate) fn is_loose(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Engine::Ifma(_) = &self.engine {
            return self.fold.is_none();
        }
        false
    }

    /// [`Self::forward`] for readers to whom values below 4p are as good as residues, where [`Self::is_loose`].
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub(crate) fn forward_loose(&self, a: &mut [u64]) -> Result<(), RingError> {
        #[cfg(target_arch = "x86_64")]
        if let (Engine::Ifma(t), true) = (&self.engine, self.is_loose()) {
            expect_len("polynomial", a.len(), self.n)?;
            // SAFETY: the engine exists only where the processor has the instructions.
            unsafe { t.forward_loose(a) };
            return Ok(());
        }
        self.forward(a)
    }

    /// The last levels of [`Self::forward`], in place, from so many blocks on: block b of the argument holds the polynomial modulo
    /// `X^(N / blocks) - z_b`, z_b the block's root. A polynomial of degree below N / blocks is the same in all blocks.
    ///
    /// # Errors
    /// [`RingError::Length`] unless `a` has N elements; [`RingError::RingDegree`] unless there are blocks of eight elements or more, a power of two, of a
    /// cyclotomic ring.
    pub fn forward_from(&self, blocks: usize, a: &mut [u64]) -> Result<(), RingError> {
        expect_len("polynomial", a.len(), self.n)?;
        if self.fold.is_some() || !blocks.is_power_of_two() || blocks > self.n / 8 {
            return Err(RingError::RingDegree(blocks));
        }
        self.levels(blocks, a);
        Ok(())
    }

    /// [`Self::forward`] of integers, two's complement of magnitudes below 2^51, into `a`, where a kernel reads them as they are; nothing is done where
    /// there is none. `lazy`: slot values may stay doubles of at most 1.53 p, those below 0 too; whether they do. Both have N elements.
    #[allow(unused_variables)]
    pub(crate) fn forward_short(&self, words: &[u64], a: &mut [u64], lazy: bool) -> Option<bool> {
        match &self.engine {
            #[cfg(target_family = "wasm")]
            // SAFETY: the engine exists only where there are the instructions.
            Engine::Relaxed(t) if self.fold.is_none() => Some(unsafe { t.forward_short(words, a, lazy) }),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Engine::Neon(t) if self.fold.is_none() => Some(unsafe { t.forward_short(words, a, lazy) }),
            _ => None,
        }
    }

    /// The levels from so many blocks on: one, or at most N / 8.
    fn levels(&self, blocks: usize, a: &mut [u64]) {
        match &self.engine {
            Engine::Portable(t) => t.forward(blocks, a),
            #[cfg(target_family = "wasm")]
            Engine::Doubles(t) => t.forward(blocks, a),
            #[cfg(target_family = "wasm")]
            // SAFETY: the engine exists only where there are the instructions.
            Engine::Relaxed(t) => unsafe { t.forward(blocks, a) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the engine exists only where the processor has the instructions.
            Engine::Avx2(t) => unsafe { t.forward(blocks, a) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Engine::Ifma(t) => unsafe { t.forward(blocks, a) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Engine::Neon(t) => unsafe { t.forward(blocks, a) },
        }
    }

    /// Slot values below p to coefficients below p, in place; undoes [`Self::forward`].
    ///
    /// # Errors
    /// [`RingError::Length`] unless `a` has N elements.
    pub fn inverse(&self, a: &mut [u64]) -> Result<(), RingError> {
        expect_len("polynomial", a.len(), self.n)?;
        match &self.engine {
            Engine::Portable(t) => t.inverse(a),
            #[cfg(target_family = "wasm")]
            Engine::Doubles(t) => t.inverse(a),
            #[cfg(target_family = "wasm")]
            // SAFETY: the engine exists only where there are the instructions.
            Engine::Relaxed(t) => unsafe { t.inverse(a) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the engine exists only where the processor has the instructions.
            Engine::Avx2(t) => unsafe { t.inverse(a) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Engine::Ifma(t) => unsafe { t.inverse(a) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Engine::Neon(t) => unsafe { t.inverse(a) },
        }
        if let Some(f) = &self.fold {
            f.unfold(a);
        }
        Ok(())
    }

    /// w times the coefficients of the slot values `from` into `to`, all below p: [`Self::inverse`], a copy and a product in one go. False, and nothing
    /// is done, where no kernel does it so. Both have N elements.
    #[allow(unused_variables)]
    pub(crate) fn inverse_times(&self, from: &[u64], w: u64, to: &mut [u64]) -> bool {
        match &self.engine {
            #[cfg(target_arch = "x86_64")]
            Engine::Ifma(t) => {
                // SAFETY: the engine exists only where the processor has the instructions.
                unsafe { t.inverse_times(from, w, to) };
                if let Some(f) = &self.fold {
                    f.unfold(to);
                }
                true
            }
            _ => false,
        }
    }

    /// `a_i <- a_i b_i mod p`.
    ///
    /// # Errors
    /// [`RingError::Length`] unless both have N elements.
    pub fn multiply_slots(&self, a: &mut [u64], b: &[u64]) -> Result<(), RingError> {
        expect_len("polynomial", a.len(), self.n)?;
        expect_len("polynomial", b.len(), self.n)?;
        let products = crate::prime::Products::new(self.p);
        for (x, y) in a.iter_mut().zip(b) {
            *x = products.mul(*x, *y);
        }
        Ok(())
    }

    /// The transform of centred words for [`Self::multiply_factors`]: congruent slot values, but not always below p.
    pub(crate) fn forward_words(&self, words: &[u64], centre: Centre, out: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        if let Engine::Ifma(t) = &self.engine {
            // SAFETY: the engine exists only where the processor has the instructions.
            unsafe { t.forward_words(words, centre, out) };
            return;
        }
        crate::kernels::centre_into(self.isa, words, centre, self.p, out);
        self.levels(1, out);
    }

    /// Makes slot values (below p) constant factors for [`Self::multiply_factors`]: divides them by N and
    /// computes their quotients. Constant time.
    pub(crate) fn prepare_factors(&self, values: &mut [u64], quotients: &mut [u64]) {
        portable::scale(values, inv_mod(self.n as u64, self.p), self.p);
        let pairs = values.iter_mut().zip(quotients);
        match &self.engine {
            Engine::Portable(_) => {
                let table = portable::Quotients::<64>::new(self.p);
                pairs.for_each(|(v, q)| *q = table.of(*v));
            }
            #[cfg(target_family = "wasm")]
            Engine::Doubles(t) => pairs.for_each(|(v, q)| [*v, *q] = t.prepare(*v)),
            #[cfg(target_family = "wasm")]
            Engine::Relaxed(_) => pairs.for_each(|(v, q)| [*v, *q] = prepare_secret(*v, self.p)),
            #[cfg(target_arch = "x86_64")]
            Engine::Avx2(_) => pairs.for_each(|(v, q)| [*v, *q] = prepare_secret(*v, self.p)),
            #[cfg(target_arch = "aarch64")]
            Engine::Neon(_) => pairs.for_each(|(v, q)| [*v, *q] = prepare_secret(*v, self.p)),
            #[cfg(target_arch = "x86_64")]
            Engine::Ifma(_) => {
                let table = portable::Quotients::<52>::new(self.p);
                pairs.for_each(|(v, q)| *q = table.of(*v));
            }
        }
    }

    /// `out <- (out +- 2^shift c) & mask`, c being the centred coefficients of the slotwise product of `a` with
    /// prepared factors; `work` is overwritten. All have N elements.
    pub(crate) fn multiply_factors(
        &self,
        a: &[u64],
        factors: (&[u64], &[u64]),
        work: &mut [u64],
        finish: Finish,
        out: &mut [u64],
    ) {
        match &self.engine {
            Engine::Portable(t) => t.multiply(a, factors, work, finish, out),
            #[cfg(target_family = "wasm")]
            Engine::Doubles(t) => t.multiply(a, factors, work, finish, out),
            #[cfg(target_family = "wasm")]
            // SAFETY: the engine exists only where there are the instructions.
            Engine::Relaxed(t) => unsafe { t.multiply(a, factors, work, finish, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the engine exists only where the processor has the instructions.
            Engine::Avx2(t) => unsafe { t.multiply(a, factors, work, finish, out) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Engine::Ifma(t) => unsafe { t.multiply(a, factors, work, finish, out) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Engine::Neon(t) => unsafe { t.multiply(a, factors, work, finish, out) },
        }
    }

    /// Adds the product of `a` with prepared factors to `base` and rounds the sum, in one go: `out` gets the
    /// multiples, the result is the largest distance from one. `None` where no kernel does it in one go.
    #[allow(unused_variables)]
    pub(crate) fn multiply_round(
        &self,
        a: &[u64],
        factors: (&[u64], &[u64]),
        work: &mut [u64],
        base: (&[u64], Rounding),
        out: &mut [i64],
    ) -> Option<u64> {
        match &self.engine {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the engine exists only where the processor has the instructions.
            Engine::Ifma(t) => Some(unsafe { t.multiply_round(a, factors, work, base, out) }),
            _ => None,
        }
    }
}

/// w centred, and w / p, for kernels in doubles.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_family = "wasm"))]
fn prepare(w: u64, p: u64) -> [f64; 2] {
    let centred = if w > p / 2 { w as i64 - p as i64 } else { w as i64 } as f64;
    [centred, centred / p as f64]
}

/// [`prepare`] as bit patterns for [`Ntt::multiply_factors`] in doubles, without branches and divisions by the secret w. The quotient
/// is one rounding worse, so a product of `|x| <= p` has at most 0.7 p.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_family = "wasm"))]
fn prepare_secret(w: u64, p: u64) -> [u64; 2] {
    let above = (p / 2).wrapping_sub(w) as i64 >> 63;
    let centred = (w as i64 - (p as i64 & above)) as f64;
    [centred.to_bits(), (centred * (1.0 / p as f64)).to_bits()]
}

/// Transposes every run of 64 elements as an 8 x 8 matrix; its own inverse. Nothing for shorter slices.
fn transpose_tiles(a: &mut [u64]) {
    for tile in a.chunks_exact_mut(64) {
        for r in 0..8 {
            for c in 0..r {
                tile.swap(8 * r + c, 8 * c + r);
            }
        }
    }
}

#[cfg(test)]
mod tests;
