//! Lazy sums of many products on one limb: reduced once every [`LAZY_TERMS`] terms.
//!
//! Sums stay in registers: lists of terms are walked by counted loops over arrays of fixed length.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "counted loops over registers unroll fully")]

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::ifma::Ifma;
use super::kernels::{common, Out};
use super::lanes::{Lanes, Scalar, LAZY_TERMS};
use super::modulus::Modulus;
#[cfg(target_family = "wasm")]
use super::relaxed::Relaxed;
use crate::Isa;

/// Vectors side by side in sums of many terms: a term's pointers and factor are loaded once for them, and their additions do not wait for each other.
const SIDE: usize = 4;

/// Vectors k = 0 .. S of both sums: `begin` and the products of what `load` gives of x and of the words of y from `from + k step` on, into `out` from `at + k step`
/// on. `places` are at, from, step.
// SAFETY of callers: `out` and all of y reach as far, `load` has its words, and the lanes' instruction set is there.
#[inline(always)]
unsafe fn block<L: Lanes, const S: usize>(
    (at, from, step): (usize, usize, usize),
    out: [Out<'_>; 2],
    begin: [[L::Acc; S]; 2],
    load: impl Fn(&[u64], usize) -> L::Words,
    x: &[&[u64]],
    y: [&[&[u64]]; 2],
    c: L::Mod,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let (mut sums, terms) = (begin, x.len());
        // What they begin with is one of the terms.
        let (mut d, mut end) = (0, terms.min(LAZY_TERMS - 1));
        loop {
            while d < end {
                for k in 0..S {
                    let v = load(x.get_unchecked(d), k);
                    for h in 0..2 {
                        let w = L::load(at!(y[h].get_unchecked(d), from + k * step));
                        sums[h][k] = L::acc_mac(sums[h][k], v, w, c);
                    }
                }
                d += 1;
            }
            if d == terms {
                break;
            }
            for h in 0..2 {
                for k in 0..S {
                    sums[h][k] = L::acc_of(L::acc_reduce(sums[h][k], c));
                }
            }
            end = terms.min(d + LAZY_TERMS);
        }
        for h in 0..2 {
            for k in 0..S {
                L::store(at_mut!(out[h], at + k * step), L::acc_reduce(sums[h][k], c));
            }
        }
    }
}

/// What two sums begin with: a factor (a residue) times residues for each, or nothing where there are no words.
#[derive(Clone, Copy)]
pub struct Added<'a> {
    /// Residues for either sum, as many as it has words, or none.
    pub words: [&'a [u64]; 2],
    /// What both are multiplied by, a residue.
    pub factor: u64,
}

impl Added<'_> {
    /// No words for either sum, which then begin with zero.
    pub const NOTHING: Self = Self { words: [&[], &[]], factor: 0 };
}

// SAFETY of callers: `from..to` lies within all slices, and the lanes' instruction set is there.
#[inline(always)]
unsafe fn inner_k<L: Lanes>(
    from: usize,
    to: usize,
    out: [Out<'_>; 2],
    added: Added<'_>,
    x: &[&[u64]],
    y: [&[&[u64]]; 2],
    m: &Modulus,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let blocks = (to - from) / (SIDE / 2 * L::WIDTH);
        let rest = from + blocks * (SIDE / 2 * L::WIDTH);
        inner_side::<L, { SIDE / 2 }>(from, rest, out, added, x, y, m);
        inner_side::<L, 1>(rest, to, out, added, x, y, m);
    }
}

// SAFETY of callers: as above, and the words are whole blocks of `S` vectors.
#[inline(always)]
unsafe fn inner_side<L: Lanes, const S: usize>(
    from: usize,
    to: usize,
    out: [Out<'_>; 2],
    added: Added<'_>,
    x: &[&[u64]],
    y: [&[&[u64]]; 2],
    m: &Modulus,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let c = L::modulus(m);
        let factor = L::splat(added.factor);
        for i in (from..to).step_by(S * L::WIDTH) {
            let mut sums = [[L::acc_zero(); S]; 2];
            for h in 0..2 {
                if !added.words[h].is_empty() {
                    for k in 0..S {
                        let v = L::load(at!(added.words[h], i + k * L::WIDTH));
                        sums[h][k] = L::acc_mac(L::acc_zero(), v, factor, c);
                    }
                }
            }
            let load = |x: &[u64], k: usize| L::load(at!(x, i + k * L::WIDTH));
            block::<L, S>((i, i, L::WIDTH), out, sums, load, x, y, c);
        }
    }
}
dispatch! { /** `out_h = a_h + sum_d x_d y_hd`, a_h what is added, reduced once every [`LAZY_TERMS`] terms. */
inner = inner_k(out: [Out<'_>; 2], added: Added<'_>, x: &[&[u64]], y: [&[&[u64]]; 2], m: &Modulus)
len {
    assert!(y.iter().all(|y| y.len() == x.len()), "inner product of lists of different lengths");
    let n = common(&[out[0].len(), out[1].len()]);
    let n = added.words.iter().filter(|a| !a.is_empty()).fold(n, |n, a| common(&[n, a.len()]));
    x.iter().chain(y[0]).chain(y[1]).fold(n, |n, s| common(&[n, s.len()]))
} }

/// Words of a row, and of the runs in which rows of polynomials in X^gap are equal (`crate::Ntt`: runs of 64 slots are transposed).
const ROW: usize = 8;
const RUN: usize = 64;

/// Where stored words of polynomials in X^gap begin, and how far they reach: runs of [`RUN`] words have one row of [`ROW`] words for `gap` rows, or one word for
/// `gap / RUN` runs.
#[derive(Clone, Copy)]
pub(super) struct Repeats {
    /// 1, 2, 4, 8, or a multiple of [`RUN`]; a power of two.
    pub(super) gap: usize,
    /// The first word of the limbs that is worked on: a multiple of [`RUN`].
    pub(super) start: usize,
}

// SAFETY of callers: `from..to` are whole runs, all slices of y reach to `start + to`, those of x to the words that stand for them, and the lanes' instruction
// set is there.
#[inline(always)]
unsafe fn inner_repeated_k<L: Lanes>(
    from: usize,
    to: usize,
    out: [Out<'_>; 2],
    repeats: Repeats,
    x: &[&[u64]],
    y: [&[&[u64]]; 2],
    m: &Modulus,
) {
    let Repeats { gap, start } = repeats;
    // SAFETY: promised by the caller.
    let (c, zero) = unsafe { (L::modulus(m), [[L::acc_zero(); SIDE]; 2]) };
    for run in (from..to).step_by(RUN) {
        for column in (0..ROW).step_by(L::WIDTH) {
            for first in (0..ROW).step_by(SIDE) {
                let i = run + first * ROW + column;
                // SAFETY: promised by the caller.
                unsafe {
                    if gap < RUN {
                        let stored = (start + run) / gap + column;
                        let at: [usize; SIDE] = std::array::from_fn(|k| stored + (first + k) / gap * ROW);
                        let load = |x: &[u64], k: usize| L::load(at!(x, at[k]));
                        block::<L, SIDE>((i, start + i, ROW), out, zero, load, x, y, c);
                    } else {
                        let stored = (start + run) / gap;
                        let load = |x: &[u64], _: usize| L::splat(*x.get_unchecked(stored));
                        block::<L, SIDE>((i, start + i, ROW), out, zero, load, x, y, c);
                    }
                }
            }
        }
    }
}

dispatch! { /** `out_h = sum_d x_d y_hd` as [`inner`], x_d polynomials in X^gap of which few words are stored. */
inner_repeated = inner_repeated_k(out: [Out<'_>; 2], repeats: Repeats, x: &[&[u64]], y: [&[&[u64]]; 2], m: &Modulus)
len {
    assert!(y.iter().all(|y| y.len() == x.len()), "inner product of lists of different lengths");
    let Repeats { gap, start } = repeats;
    let n = common(&[out[0].len(), out[1].len()]);
    let whole = gap.is_power_of_two() && !(ROW < gap && gap < RUN) && start.is_multiple_of(RUN) && n.is_multiple_of(RUN);
    assert!(whole, "whole runs of polynomials in X^{gap}");
    let end = start + n;
    assert!(y.iter().copied().flatten().all(|y| y.len() >= end), "limbs up to word {end}");
    assert!(x.iter().all(|x| x.len() >= end.div_ceil(gap)), "stored words up to word {end}");
    n
} }

// SAFETY of callers: `from..to` lies within all slices, and the lanes' instruction set is there.
#[inline(always)]
unsafe fn combine_k<L: Lanes, const LOOSE: bool>(
    from: usize,
    to: usize,
    out: Out<'_>,
    x: &[&[u64]],
    w: &[u64],
    m: &Modulus,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let blocks = (to - from) / (SIDE * L::WIDTH);
        let rest = from + blocks * (SIDE * L::WIDTH);
        combine_side::<L, SIDE, LOOSE>(from, rest, out, x, w, m);
        combine_side::<L, 1, LOOSE>(rest, to, out, x, w, m);
    }
}

// SAFETY of callers: as above, and the words are whole blocks of `S` vectors.
#[inline(always)]
unsafe fn combine_side<L: Lanes, const S: usize, const LOOSE: bool>(
    from: usize,
    to: usize,
    out: Out<'_>,
    x: &[&[u64]],
    w: &[u64],
    m: &Modulus,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let c = L::modulus(m);
        let terms = x.len();
        for i in (from..to).step_by(S * L::WIDTH) {
            let mut sums = [L::acc_zero(); S];
            let (mut d, mut end) = (0, terms.min(LAZY_TERMS));
            loop {
                while d < end {
                    let factor = L::splat(*w.get_unchecked(d));
                    for k in 0..S {
                        let v = L::load(at!(x.get_unchecked(d), i + k * L::WIDTH));
                        sums[k] = L::acc_mac(sums[k], v, factor, c);
                    }
                    d += 1;
                }
                if d == terms {
                    break;
                }
                for k in 0..S {
                    sums[k] = L::acc_of(L::acc_reduce(sums[k], c));
                }
                end = terms.min(d + LAZY_TERMS);
            }
            for k in 0..S {
                let sum = if LOOSE { L::acc_reduce_loose(sums[k], c) } else { L::acc_reduce(sums[k], c) };
                L::store(at_mut!(out, i + k * L::WIDTH), sum);
            }
        }
    }
}

// SAFETY of callers: as for `combine_k`.
#[inline(always)]
unsafe fn residues_k<L: Lanes>(from: usize, to: usize, out: Out<'_>, x: &[&[u64]], w: &[u64], m: &Modulus) {
    // SAFETY: promised by the caller.
    unsafe { combine_k::<L, false>(from, to, out, x, w, m) }
}

// SAFETY of callers: as for `combine_k`.
#[inline(always)]
unsafe fn loose_k<L: Lanes>(from: usize, to: usize, out: Out<'_>, x: &[&[u64]], w: &[u64], m: &Modulus) {
    // SAFETY: promised by the caller.
    unsafe { combine_k::<L, true>(from, to, out, x, w, m) }
}
dispatch! { /** `out = sum_d w_d x_d` for words below 2^50 and residues w_d. */
combine = residues_k(out: Out<'_>, x: &[&[u64]], w: &[u64], m: &Modulus)
len { shortest(&out, x, w) } }
dispatch! { /** [`combine`], values below 4q in place of residues where these take longer. */
combine_loose = loose_k(out: Out<'_>, x: &[&[u64]], w: &[u64], m: &Modulus)
len { shortest(&out, x, w) } }

/// Words of a combination.
fn shortest(out: &Out<'_>, x: &[&[u64]], w: &[u64]) -> usize {
    assert_eq!(x.len(), w.len(), "combination of lists of different lengths");
    x.iter().fold(out.len(), |n, s| common(&[n, s.len()]))
}

#[cfg(test)]
mod tests {
    use crate::prime::primes_near;
    use crate::rns::{Added, RnsBasis};
    use crate::simd;

    /// Primes of 50 bits and of fewer: their sums of products reach furthest.
    fn bases(n: usize) -> Vec<RnsBasis> {
        let mut primes = primes_near(50, n, 2).unwrap();
        primes.extend(primes_near(31, n, 1).unwrap());
        simd::available().into_iter().map(|isa| RnsBasis::with_isa(n, &primes, isa).unwrap()).collect()
    }

    #[test]
    fn what_is_added_is_a_term_of_both_sums_or_of_one() {
        let n = 40;
        for basis in bases(64) {
            for (i, m) in basis.moduli().iter().enumerate() {
                let q = m.value();
                // The largest residues: what is added and the terms together reach the bound of lazy sums.
                let (x, a, b) = (vec![q - 1; n], vec![q - 1; n], vec![q - 2; n]);
                for terms in [0, 1, 13, 14, 15, 16, 28, 29, 30, 31] {
                    let (xs, ys) = (vec![x.as_slice(); terms], vec![a.as_slice(); terms]);
                    let product = |factor: u64, word: u64| m.mul(factor % q, word);
                    for (words, factor) in
                        [([&*a, &*b], q - 1), ([&*a, &[]], 1), ([&[], &*b], q + 2), ([&[], &[]], 0)]
                    {
                        let mut out = [vec![7; n], vec![7; n]];
                        let [low, high] = &mut out;
                        basis.inner_words(i, [low, high], Added { words, factor }, &xs, [&ys, &ys]).unwrap();
                        for (sum, added) in out.iter().zip(words) {
                            let own = added.first().map_or(0, |w| product(factor, *w));
                            let expected = m.add(own, terms as u64 % q);
                            assert!(sum.iter().all(|w| *w == expected), "{:?}, {terms} terms", basis.isa());
                        }
                    }
                }
                let mut out = [vec![0; n], vec![0; n]];
                let [low, high] = &mut out;
                let short = Added { words: [&a[1..], &[]], factor: 1 };
                assert!(basis.inner_words(i, [low, high], short, &[&x], [&[&x], &[&x]]).is_err());
            }
        }
    }

    /// As many digits as `rns/convert.rs` leaves loose, at their largest, with the largest thing added.
    #[test]
    fn three_loose_factors_and_what_is_added_fit_a_lazy_sum() {
        let n = 40;
        for basis in bases(64) {
            for (i, m) in basis.moduli().iter().enumerate().filter(|(i, _)| basis.transform(*i).is_loose()) {
                let q = m.value();
                let (x, y) = (vec![4 * q - 1; n], vec![q - 1; n]);
                let mut out = [vec![7; n], vec![7; n]];
                let [low, high] = &mut out;
                let added = Added { words: [&y, &y], factor: q - 1 };
                let (xs, ys) = ([x.as_slice(); 3], [y.as_slice(); 3]);
                basis.inner_words(i, [low, high], added, &xs, [&ys, &ys]).unwrap();
                // (q - 1)^2 + 3 (4 q - 1) (q - 1) = 1 + 3
                assert!(out.iter().flatten().all(|w| *w == 4), "{:?}", basis.isa());
            }
        }
    }

    #[test]
    fn loose_combinations_are_residues_but_for_three_times_the_prime() {
        let n = 40;
        for basis in bases(64) {
            for m in basis.moduli() {
                let (x, w) = (vec![(1u64 << 50) - 1; n], m.value() - 1);
                for terms in [1, 8, 9, 15, 16, 31] {
                    let (xs, ws) = (vec![x.as_slice(); terms], vec![w; terms]);
                    let (mut out, mut exact) = (vec![7; n], vec![7; n]);
                    super::combine_loose(basis.isa(), super::Out::new(&mut out), &xs, &ws, m);
                    super::combine(basis.isa(), super::Out::new(&mut exact), &xs, &ws, m);
                    let below = out.iter().all(|w| *w < 4 * m.value());
                    assert!(
                        below && out.iter().zip(&exact).all(|(a, b)| a % m.value() == *b),
                        "{:?}",
                        basis.isa()
                    );
                }
            }
        }
    }

    #[test]
    fn polynomials_in_a_power_of_x_need_their_different_words_only() {
        let n = 256;
        for basis in bases(n) {
            let values = |seed: usize, gap: usize| {
                let mut words = vec![0u64; n];
                for (k, w) in words.iter_mut().enumerate().step_by(gap) {
                    *w = ((k + 1) * (seed + 3) * 7919 % 1_000_003) as u64;
                }
                basis.forward(basis.from_signed(&words, 0..3).unwrap()).unwrap()
            };
            for gap in [1, 2, 4, 8, 64, 128, 256] {
                for terms in [0, 1, 3, 14, 15, 16, 31] {
                    let x: Vec<_> = (0..terms).map(|d| values(d, gap)).collect();
                    let y: Vec<_> = (0..terms).map(|d| values(d + 100, 1)).collect();
                    let z: Vec<_> = (0..terms).map(|d| values(d + 200, 1)).collect();
                    let stored: Vec<_> = x.iter().map(|x| basis.unrepeated(x, gap).unwrap()).collect();
                    for i in 0..3 {
                        let [x, y, z] =
                            [&x, &y, &z].map(|list| list.iter().map(|p| p.limb(i)).collect::<Vec<&[u64]>>());
                        let mut whole = [vec![0; n], vec![0; n]];
                        let [low, high] = &mut whole;
                        basis.inner_words(i, [low, high], Added::NOTHING, &x, [&y, &z]).unwrap();
                        let few: Vec<&[u64]> =
                            stored.iter().map(|s| &s[i * (n / gap)..][..n / gap]).collect();
                        for (start, len) in [(0, n), (64, 128), (192, 64)] {
                            let mut part = [vec![9; len], vec![9; len]];
                            let [low, high] = &mut part;
                            basis.inner_repeated(i, [low, high], (gap, start), &few, [&y, &z]).unwrap();
                            for (part, whole) in part.iter().zip(&whole) {
                                assert_eq!(part, &whole[start..start + len], "gap {gap}, {:?}", basis.isa());
                            }
                        }
                    }
                }
            }
            let (x, mut out) = (vec![1; n], [vec![0; n], vec![0; n]]);
            let [low, high] = &mut out;
            let one = [x.as_slice()];
            for (gap, start, len) in [(16, 0, n), (3, 0, n), (1, 8, 64), (1, 64, n), (1, 0, 72), (0, 0, n)] {
                let room = [&mut low[..len], &mut high[..len]];
                assert!(
                    basis.inner_repeated(0, room, (gap, start), &one, [&one, &one]).is_err(),
                    "{gap} {start} {len}"
                );
            }
            assert!(basis.inner_repeated(0, [low, high], (8, 0), &[&x[..n / 8 - 1]], [&one, &one]).is_err());
            assert!(basis.inner_repeated(3, [low, high], (1, 0), &one, [&one, &one]).is_err());
            assert!(basis.unrepeated(&basis.zero(0..3).unwrap(), 16).is_err());
        }
    }
}
