//! Many sums of products of fixed polynomials with pairs of polynomials: the inner loop of a linear layer by
//! diagonals. Fixed polynomials are stored in the order in which they are read, in 32-bit words where a prime
//! allows.
//!
//! The N slots are cut into tiles of [`TILE`] words; within a tile, sum after sum and term after term. One pass reads
//! every stored word once, in order, while the tile's words of the pairs stay in the first-level cache for all
//! sums. Products accumulate without reduction as long as `terms 2^(2b) < 2^104` for primes of b bits.
//!
//! Polynomials in X^g, g up to 8, have slots that repeat: of the rows of eight words of every 64 (`crate::Ntt`: runs of 64 slots are
//! transposed) g neighbours are equal, and one of them is stored.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "counted loops over registers unroll fully")]

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::ifma::Ifma;
use super::lanes::{Lanes, Scalar};
#[cfg(target_arch = "x86_64")]
use super::narrow::Narrow;
use super::{Eval, Modulus, RnsBasis, RnsError, RnsPoly};
use crate::Isa;
use std::ops::Range;

/// Number of words that a tile of sums has.
pub const TILE: usize = 32;
/// Words of a row, and of the runs in which rows of polynomials in X^g are equal.
const ROW: usize = 8;
const RUN: usize = 64;
/// Most neighbouring rows that are stored as one.
pub const MOST_GAP: usize = RUN / ROW;

/// What a sum of products needs of a vector unit: [`Lanes`], or a unit for some primes only.
///
/// # Safety
/// As [`Lanes`].
pub(super) trait Sums: Copy {
    /// Words side by side.
    const WIDTH: usize;
    /// The words.
    type Words: Copy;
    /// Broadcast constants of a modulus.
    type Mod: Copy;
    /// Lazy sum of products.
    type Acc: Copy;
    /// Terms that a lazy sum of products of residues takes between reductions.
    fn lazy_terms(m: &Modulus) -> usize;
    unsafe fn modulus(m: &Modulus) -> Self::Mod;
    unsafe fn load(p: *const u64) -> Self::Words;
    /// `WIDTH` words of 32 bits.
    unsafe fn load_half(p: *const u32) -> Self::Words;
    unsafe fn store(p: *mut u64, v: Self::Words);
    unsafe fn acc_zero() -> Self::Acc;
    /// The sum that holds one residue.
    unsafe fn acc_of(a: Self::Words) -> Self::Acc;
    /// `acc + a b` for residues.
    unsafe fn acc_mac(acc: Self::Acc, a: Self::Words, b: Self::Words, m: Self::Mod) -> Self::Acc;
    unsafe fn acc_reduce(acc: Self::Acc, m: Self::Mod) -> Self::Words;
}

// SAFETY of every method: what the caller promises is what `Lanes` asks for.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<L: Lanes> Sums for L {
    const WIDTH: usize = L::WIDTH;
    type Words = L::Words;
    type Mod = L::Mod;
    type Acc = L::Acc;

    fn lazy_terms(m: &Modulus) -> usize {
        let bits = 64 - m.value().leading_zeros();
        // High words: terms 2^(2b - 52) + carries below 2^52; low words: terms 2^52 below 2^64.
        ((1u64 << (104 - 2 * bits).min(12)) - 1).min(4000) as usize
    }
    #[inline(always)]
    unsafe fn modulus(m: &Modulus) -> L::Mod {
        unsafe { <L as Lanes>::modulus(m) }
    }
    #[inline(always)]
    unsafe fn load(p: *const u64) -> L::Words {
        unsafe { <L as Lanes>::load(p) }
    }
    #[inline(always)]
    unsafe fn load_half(p: *const u32) -> L::Words {
        unsafe { <L as Lanes>::load_half(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut u64, v: L::Words) {
        unsafe { <L as Lanes>::store(p, v) }
    }
    #[inline(always)]
    unsafe fn acc_zero() -> L::Acc {
        unsafe { <L as Lanes>::acc_zero() }
    }
    #[inline(always)]
    unsafe fn acc_of(a: L::Words) -> L::Acc {
        unsafe { <L as Lanes>::acc_of(a) }
    }
    #[inline(always)]
    unsafe fn acc_mac(acc: L::Acc, a: L::Words, b: L::Words, m: L::Mod) -> L::Acc {
        unsafe { <L as Lanes>::acc_mac(acc, a, b, m) }
    }
    #[inline(always)]
    unsafe fn acc_reduce(acc: L::Acc, m: L::Mod) -> L::Words {
        unsafe { <L as Lanes>::acc_reduce(acc, m) }
    }
}

enum Words {
    Half(Vec<u32>),
    Full(Vec<u64>),
}

/// The fixed polynomials of some sums: sum k has the terms (x number, polynomial).
pub struct PlainTerms {
    n: usize,
    range: Range<usize>,
    /// g: the polynomials are such in X^g.
    gap: usize,
    /// Per sum, which pair each term multiplies.
    sums: Vec<Vec<u32>>,
    /// Number of terms before each sum.
    starts: Vec<usize>,
    total: usize,
    pairs: usize,
    limbs: Vec<Words>,
}

impl PlainTerms {
    /// Room for the terms of `sums` (pair numbers) over the primes at `range`, polynomials in X^`gap`; they are zero until
    /// [`Self::set`]. Memory: N/gap words a prime, 4 bytes each for primes below 2^32, else 8.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] for a range outside the basis, [`RnsError::Degree`] below [`TILE`] coefficients, or 64 with a gap;
    /// [`RnsError::Count`] for a gap other than 1, 2, 4, 8.
    pub fn new(
        basis: &RnsBasis,
        range: Range<usize>,
        gap: usize,
        sums: Vec<Vec<u32>>,
    ) -> Result<Self, RnsError> {
        let n = basis.degree();
        if range.is_empty() || range.end > basis.moduli().len() {
            return Err(RnsError::Limbs { needed: range, got: 0..basis.moduli().len() });
        }
        if !gap.is_power_of_two() || gap > MOST_GAP {
            return Err(RnsError::Count { what: "gap", expected: MOST_GAP, got: gap });
        }
        let least = if gap > 1 { RUN } else { TILE };
        if n < least {
            return Err(RnsError::Degree { expected: least, got: n });
        }
        let mut starts = Vec::with_capacity(sums.len());
        let mut total = 0;
        for s in &sums {
            starts.push(total);
            total += s.len();
        }
        let pairs = sums.iter().flatten().map(|i| *i as usize + 1).max().unwrap_or(0);
        let limbs = range
            .clone()
            .map(|i| {
                if basis.moduli()[i].value() >> 32 == 0 {
                    Words::Half(vec![0; total * n / gap])
                } else {
                    Words::Full(vec![0; total * n / gap])
                }
            })
            .collect();
        Ok(Self { n, range, gap, sums, starts, total, pairs, limbs })
    }

    /// Number of terms of all sums.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.total
    }

    /// Pair numbers of every sum.
    #[must_use]
    pub fn sums(&self) -> &[Vec<u32>] {
        &self.sums
    }

    /// Positions of the primes that the sums cover.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Bytes of the stored words.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let words = |w: &Words| match w {
            Words::Half(v) => v.len() * 4,
            Words::Full(v) => v.len() * 8,
        };
        self.limbs.iter().map(words).sum()
    }

    /// Stores the polynomial of term `term` of sum `sum`.
    ///
    /// # Errors
    /// [`RnsError::Limbs`] when it lacks limbs, [`RnsError::Count`] when there is no such term or the polynomial is none in X^gap.
    pub fn set(&mut self, sum: usize, term: usize, poly: &RnsPoly<Eval>) -> Result<(), RnsError> {
        let have = self.sums.get(sum).map_or(0, Vec::len);
        if term >= have {
            return Err(RnsError::Count { what: "term", expected: have, got: term });
        }
        if poly.degree() != self.n
            || poly.range().start > self.range.start
            || poly.range().end < self.range.end
        {
            return Err(RnsError::Limbs { needed: self.range(), got: poly.range() });
        }
        let at = self.starts[sum] + term;
        let (unit, equal) = (stored(self.gap), self.gap * ROW);
        for (i, words) in self.range.clone().zip(&mut self.limbs) {
            for (number, from) in poly.limb(i).chunks_exact(unit * self.gap).enumerate() {
                let start = (number * self.total + at) * unit;
                for (r, rows) in from.chunks_exact(equal).enumerate() {
                    let row = &rows[..ROW];
                    if rows.chunks_exact(ROW).any(|other| other != row) {
                        return Err(RnsError::Count { what: "gap", expected: self.gap, got: 1 });
                    }
                    let to = start + r * ROW..start + (r + 1) * ROW;
                    match words {
                        Words::Half(v) => v[to].iter_mut().zip(row).for_each(|(to, w)| *to = *w as u32),
                        Words::Full(v) => v[to].copy_from_slice(row),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Words that a term has for a tile, or for the two that a row serves.
const fn stored(gap: usize) -> usize {
    if TILE / gap > ROW {
        TILE / gap
    } else {
        ROW
    }
}

/// One limb's work: pointers to the pairs' limbs and to the stored words.
struct Pass<'a> {
    n: usize,
    gap: usize,
    total: usize,
    x: &'a [[&'a [u64]; 2]],
    sums: &'a [Vec<u32>],
    m: &'a Modulus,
}

trait Stored: Copy {
    /// As many words as the unit has side by side.
    ///
    /// # Safety
    /// The pointer is valid for them, and the instruction set is there.
    unsafe fn load<L: Sums>(p: *const Self) -> L::Words;
}

impl Stored for u64 {
    #[inline(always)]
    unsafe fn load<L: Sums>(p: *const u64) -> L::Words {
        // SAFETY: promised by the caller.
        unsafe { L::load(p) }
    }
}

impl Stored for u32 {
    #[inline(always)]
    unsafe fn load<L: Sums>(p: *const u32) -> L::Words {
        // SAFETY: promised by the caller.
        unsafe { L::load_half(p) }
    }
}

/// Vectors that one step of the inner loop accumulates: 4 pairs of accumulators stay in registers.
const STEP: usize = 4;

/// SAFETY of callers: slices have the lengths that [`RnsBasis::plain_sums`] checks, the lanes' instruction set is there.
#[inline(always)]
unsafe fn run<L: Sums, W: Stored>(pass: &Pass<'_>, words: &[W], out: &[[*mut u64; 2]]) {
    // SAFETY: as promised; every offset is below the tile's end.
    unsafe {
        let m = L::modulus(pass.m);
        let lazy = L::lazy_terms(pass.m);
        let unit = stored(pass.gap);
        for tile in 0..pass.n / TILE {
            let mut next = words.as_ptr().add(tile * TILE / (unit * pass.gap) * unit * pass.total);
            for (sum, out) in pass.sums.iter().zip(out) {
                let mut at = 0;
                while at < TILE {
                    let mut acc = [[L::acc_zero(); STEP]; 2];
                    let offset = tile * TILE + at;
                    // Of the rows of the tile, those that are stored.
                    let mut from = [0; STEP];
                    for v in 0..STEP {
                        let word = at + v * L::WIDTH;
                        from[v] = word / ROW / pass.gap * ROW + word % ROW;
                    }
                    let mut since = 0;
                    for (t, &pair) in sum.iter().enumerate() {
                        if since == lazy {
                            since = 0;
                            for a in acc.iter_mut().flatten() {
                                *a = L::acc_of(L::acc_reduce(*a, m));
                            }
                        }
                        since += 1;
                        let [x0, x1] = *pass.x.get_unchecked(pair as usize);
                        let (x0, x1) = (x0.as_ptr().add(offset), x1.as_ptr().add(offset));
                        let p = next.add(t * unit);
                        for v in 0..STEP {
                            let w = W::load::<L>(p.add(from[v]));
                            acc[0][v] = L::acc_mac(acc[0][v], L::load(x0.add(v * L::WIDTH)), w, m);
                            acc[1][v] = L::acc_mac(acc[1][v], L::load(x1.add(v * L::WIDTH)), w, m);
                        }
                    }
                    for (h, acc) in acc.iter().enumerate() {
                        for (v, a) in acc.iter().enumerate() {
                            L::store(out[h].add(offset + v * L::WIDTH), L::acc_reduce(*a, m));
                        }
                    }
                    at += STEP * L::WIDTH;
                }
                next = next.add(sum.len() * unit);
            }
        }
    }
}

fn dispatch<W: Stored>(isa: Isa, pass: &Pass<'_>, words: &[W], out: &[[*mut u64; 2]]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512ifma")]
        fn ifma<W: Stored>(pass: &Pass<'_>, words: &[W], out: &[[*mut u64; 2]]) {
            // SAFETY: the caller checked lengths.
            unsafe { run::<Ifma, W>(pass, words, out) }
        }
        #[target_feature(enable = "avx2,fma")]
        fn avx2<W: Stored>(pass: &Pass<'_>, words: &[W], out: &[[*mut u64; 2]]) {
            // SAFETY: the caller checked lengths.
            unsafe { run::<Avx2, W>(pass, words, out) }
        }
        #[target_feature(enable = "avx2,fma")]
        fn narrow<W: Stored>(pass: &Pass<'_>, words: &[W], out: &[[*mut u64; 2]]) {
            // SAFETY: the caller checked lengths and the prime.
            unsafe { run::<Narrow, W>(pass, words, out) }
        }
        let isa = isa.usable();
        if isa >= Isa::Ifma {
            // SAFETY: `usable` returns only what this processor has.
            return unsafe { ifma(pass, words, out) };
        }
        if isa >= Isa::Avx2 && Narrow::takes(pass.m) {
            // SAFETY: as above.
            return unsafe { narrow(pass, words, out) };
        }
        if isa >= Isa::Avx2 {
            // SAFETY: as above.
            return unsafe { avx2(pass, words, out) };
        }
    }
    let _ = isa;
    // SAFETY: the caller checked lengths; plain Rust needs nothing.
    unsafe { run::<Scalar, W>(pass, words, out) }
}

impl RnsBasis {
    /// For every sum of `terms`: `(sum_t p_t x_t0, sum_t p_t x_t1)` over all primes of `terms`.
    ///
    /// # Errors
    /// [`RnsError`] when pairs are missing, lack limbs, or are not of this basis.
    pub fn plain_sums(
        &self,
        terms: &PlainTerms,
        x: &[[&RnsPoly<Eval>; 2]],
    ) -> Result<Vec<[RnsPoly<Eval>; 2]>, RnsError> {
        if x.len() < terms.pairs {
            return Err(RnsError::Count { what: "pair", expected: terms.pairs, got: x.len() });
        }
        if terms.n != self.degree() {
            return Err(RnsError::Degree { expected: self.degree(), got: terms.n });
        }
        for p in x.iter().flatten() {
            self.check_covers(p, terms.range())?;
        }
        let mut out = Vec::with_capacity(terms.sums.len());
        for _ in &terms.sums {
            out.push([self.dirty::<Eval>(terms.range())?, self.dirty::<Eval>(terms.range())?]);
        }
        for (i, words) in terms.range().zip(&terms.limbs) {
            let limbs: Vec<[&[u64]; 2]> = x.iter().map(|p| p.map(|p| p.limb(i))).collect();
            let pointers: Vec<[*mut u64; 2]> =
                out.iter_mut().map(|o| o.each_mut().map(|p| p.limb_mut(i).as_mut_ptr())).collect();
            let m = &self.moduli()[i];
            let pass =
                Pass { n: terms.n, gap: terms.gap, total: terms.total, x: &limbs, sums: &terms.sums, m };
            match words {
                Words::Half(v) => dispatch(self.isa(), &pass, v, &pointers),
                Words::Full(v) => dispatch(self.isa(), &pass, v, &pointers),
            }
        }
        Ok(out)
    }
}
