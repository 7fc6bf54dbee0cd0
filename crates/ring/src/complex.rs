//! Exact integer products by complex transforms in double precision: what WebAssembly multiplies words and ternary polynomials with, since its
//! vectors have doubles and no products of 64-bit words.
//!
//! With `z_j = a_j + i a_(j + N/2)`, `Z[X]/(X^N + 1)` is within `C[X]/(X^(N/2) - i)`, and `X^m - w` is halved into `X^(m/2) -+ sqrt w` level by
//! level. The two halves of the first level are the lanes of vectors from then on. Two levels are a pass, and no order is restored.
//!
//! On the way back a product and a sum may be one step that is rounded once (relaxed SIMD), which errs by
//! less: a product of complex numbers by 2 u of itself (Jeannerod, Kornerup, Louvet, Muller, "Error bounds on complex floating-point multiplication
//! with an FMA", 2017).
//!
//! The rounded products are exact ([`PART_BITS`], [`LARGEST_DEGREE`]). Let `u = 2^-53` and let norms be Euclidean. A twiddle errs by less than
//! 2.2 u, a product of complex numbers by less than sqrt(5) u of itself (Brent, Percival, Zimmermann, "Error bounds on complex floating-point
//! multiplication", 2007), a sum by u. So a pass of two levels errs by less than 6.6 u of the norm, one of one level by 5.6 u, and a transform by
//! `E = 43 u < 2^-47.5` at N = 8192, whose twelve levels are one, one, and five passes. Terms of u^2 are below 2^-40 of these.
//! For `|a_j| <= 2^26` and ternary s, no coefficient of `a s` is above `2^26 N`. The errors of both factors give at most
//! `(2 E + 3 u) |a| |s| <= 2^-46 2^26 N < 0.01` in a coefficient; that of the way back at most `E |a s| <= E sqrt(N) 2^26 N < 0.27`. The sum is
//! below 1/2, for any a and s, not for random ones alone.

#![allow(unsafe_code)]

use crate::ntt::{Centre, Finish};
use crate::Isa;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Most bits of a centred coefficient.
pub(crate) const PART_BITS: u32 = 27;
/// Largest N for which products are exact.
pub(crate) const LARGEST_DEGREE: usize = 8192;

/// Added to a double of at most 2^51, it rounds to an integer and moves that integer into the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use simd128::Two;
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
use words::Two;

/// The vectors of WebAssembly.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128 {
    use std::arch::wasm32::*;
    use std::ops::{Add, Mul, Sub};

    /// Two doubles.
    #[derive(Clone, Copy)]
    pub(super) struct Two(v128);

    impl Two {
        #[inline(always)]
        pub(super) fn new(x: [f64; 2]) -> Self {
            Self(f64x2(x[0], x[1]))
        }
        #[inline(always)]
        pub(super) fn lanes(self) -> [f64; 2] {
            [f64x2_extract_lane::<0>(self.0), f64x2_extract_lane::<1>(self.0)]
        }
        #[inline(always)]
        pub(super) fn load(x: [u64; 2]) -> Self {
            Self(u64x2(x[0], x[1]))
        }
        #[inline(always)]
        pub(super) fn bits(self) -> [u64; 2] {
            [u64x2_extract_lane::<0>(self.0), u64x2_extract_lane::<1>(self.0)]
        }
        /// `self b + c`, rounded once where the engine has it so.
        #[inline]
        #[target_feature(enable = "simd128,relaxed-simd")]
        pub(super) fn more(self, b: Self, c: Self) -> Self {
            Self(f64x2_relaxed_madd(self.0, b.0, c.0))
        }
        /// `c - self b`, rounded once where the engine has it so.
        #[inline]
        #[target_feature(enable = "simd128,relaxed-simd")]
        pub(super) fn less(self, b: Self, c: Self) -> Self {
            Self(f64x2_relaxed_nmadd(self.0, b.0, c.0))
        }
    }
    impl Add for Two {
        type Output = Self;
        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Self(f64x2_add(self.0, other.0))
        }
    }
    impl Sub for Two {
        type Output = Self;
        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Self(f64x2_sub(self.0, other.0))
        }
    }
    impl Mul for Two {
        type Output = Self;
        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Self(f64x2_mul(self.0, other.0))
        }
    }
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod words {
    use std::ops::{Add, Mul, Sub};

    /// Two doubles.
    #[derive(Clone, Copy)]
    pub(super) struct Two([f64; 2]);

    impl Two {
        pub(super) fn new(x: [f64; 2]) -> Self {
            Self(x)
        }
        pub(super) fn lanes(self) -> [f64; 2] {
            self.0
        }
        pub(super) fn load(x: [u64; 2]) -> Self {
            Self(x.map(f64::from_bits))
        }
        pub(super) fn bits(self) -> [u64; 2] {
            self.0.map(f64::to_bits)
        }
    }
    impl Add for Two {
        type Output = Self;
        fn add(self, other: Self) -> Self {
            Self([self.0[0] + other.0[0], self.0[1] + other.0[1]])
        }
    }
    impl Sub for Two {
        type Output = Self;
        fn sub(self, other: Self) -> Self {
            Self([self.0[0] - other.0[0], self.0[1] - other.0[1]])
        }
    }
    impl Mul for Two {
        type Output = Self;
        fn mul(self, other: Self) -> Self {
            Self([self.0[0] * other.0[0], self.0[1] * other.0[1]])
        }
    }
}

/// How a product and a sum are rounded.
trait Steps {
    /// `a b + c`
    ///
    /// # Safety
    /// The caller is compiled for the instructions, and the engine has them.
    unsafe fn more(a: Two, b: Two, c: Two) -> Two;
    /// `c - a b`
    ///
    /// # Safety
    /// As [`Self::more`].
    unsafe fn less(a: Two, b: Two, c: Two) -> Two;
}

/// The product, and then the sum.
struct Twice;

impl Steps for Twice {
    #[inline(always)]
    unsafe fn more(a: Two, b: Two, c: Two) -> Two {
        c + a * b
    }
    #[inline(always)]
    unsafe fn less(a: Two, b: Two, c: Two) -> Two {
        c - a * b
    }
}

/// One instruction of relaxed SIMD.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
struct Relaxed;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
impl Steps for Relaxed {
    #[inline(always)]
    unsafe fn more(a: Two, b: Two, c: Two) -> Two {
        a.more(b, c)
    }
    #[inline(always)]
    unsafe fn less(a: Two, b: Two, c: Two) -> Two {
        a.less(b, c)
    }
}

/// A complex number in each lane.
#[derive(Clone, Copy)]
struct Complex {
    re: Two,
    im: Two,
}

impl Complex {
    #[inline(always)]
    fn load(x: &[u64; 4]) -> Self {
        Self { re: Two::load([x[0], x[1]]), im: Two::load([x[2], x[3]]) }
    }
    #[inline(always)]
    fn store(self, x: &mut [u64; 4]) {
        let ([a, b], [c, d]) = (self.re.bits(), self.im.bits());
        *x = [a, b, c, d];
    }
    #[inline(always)]
    fn plus(self, y: Self) -> Self {
        Self { re: self.re + y.re, im: self.im + y.im }
    }
    #[inline(always)]
    fn minus(self, y: Self) -> Self {
        Self { re: self.re - y.re, im: self.im - y.im }
    }
    /// `self + i y`
    #[inline(always)]
    fn plus_i(self, y: Self) -> Self {
        Self { re: self.re - y.im, im: self.im + y.re }
    }
    /// `self - i y`
    #[inline(always)]
    fn minus_i(self, y: Self) -> Self {
        Self { re: self.re + y.im, im: self.im - y.re }
    }
    #[inline(always)]
    fn times(self, w: Self) -> Self {
        // SAFETY: every engine has these steps.
        unsafe { self.scaled::<Twice>(w) }
    }
    /// By w.
    ///
    /// # Safety
    /// As [`Steps::more`].
    #[inline(always)]
    unsafe fn scaled<S: Steps>(self, w: Self) -> Self {
        // SAFETY: by contract.
        unsafe {
            Self { re: S::less(self.im, w.im, self.re * w.re), im: S::more(self.im, w.re, self.re * w.im) }
        }
    }
    /// By the conjugate of w.
    ///
    /// # Safety
    /// As [`Steps::more`].
    #[inline(always)]
    unsafe fn back<S: Steps>(self, w: Self) -> Self {
        // SAFETY: by contract.
        unsafe {
            Self { re: S::more(self.im, w.im, self.re * w.re), im: S::less(self.re, w.im, self.im * w.re) }
        }
    }
}

/// `exp(2 pi i t)`, t a multiple of 2^-20 below 1: by an angle of at most a quarter of a right one, so that only its rounding is lost.
fn root(t: f64) -> [f64; 2] {
    let (octant, r) = ((8.0 * t) as usize, 8.0 * t % 1.0);
    let small = |r: f64| [(PI / 4.0 * r).cos(), (PI / 4.0 * r).sin()];
    let [c, s] = if octant % 2 == 0 {
        small(r)
    } else {
        let [c, s] = small(1.0 - r);
        [s, c]
    };
    match octant / 2 {
        0 => [c, s],
        1 => [-s, c],
        2 => [-c, -s],
        _ => [s, -c],
    }
}

fn roots(t: [f64; 2]) -> Complex {
    let [[a, b], [c, d]] = t.map(|t| root(t % 1.0));
    Complex { re: Two::new([a, c]), im: Two::new([b, d]) }
}

/// Tables of one ring degree.
pub(crate) struct Tables {
    n: usize,
    /// The twiddle of a pass of one level, which comes first where the number of levels is odd.
    odd: Option<Complex>,
    /// Passes of two levels: for each block, the first level's twiddle f, its root g, and f g.
    passes: Vec<Vec<[Complex; 3]>>,
}

impl Tables {
    /// For N = `n`, a power of two from 8 to [`LARGEST_DEGREE`].
    pub(crate) fn new(n: usize) -> Self {
        // Blocks' roots in turns, lane by lane: eighth roots of unity behind the first level.
        let mut blocks = vec![[0.125, 0.625]];
        let mut size = n / 4;
        let mut odd = None;
        if size.trailing_zeros() % 2 == 1 {
            odd = Some(roots(blocks[0].map(|t| t / 2.0)));
            blocks = [0.0, 0.5].map(|add| blocks[0].map(|t| t / 2.0 + add)).to_vec();
            size /= 2;
        }
        let mut passes = Vec::new();
        while size > 1 {
            let twiddles = |t: &[f64; 2]| [0.5, 0.25, 0.75].map(|by| roots(t.map(|t| t * by)));
            passes.push(blocks.iter().map(twiddles).collect());
            let children = |t: &[f64; 2]| [0.0, 0.5, 0.25, 0.75].map(|add| t.map(|t| t / 4.0 + add));
            blocks = blocks.iter().flat_map(children).collect();
            size /= 4;
        }
        Self { n, odd, passes }
    }

    pub(crate) fn degree(&self) -> usize {
        self.n
    }

    /// The transform of centred parts of words, of at most [`PART_BITS`] bits.
    pub(crate) fn forward_words(&self, words: &[u64], centre: Centre, out: &mut [u64]) {
        let Centre { add, down, shift } = centre;
        self.forward(words, |w: u64| (w.wrapping_add(add) >> down << shift) as i64 >> shift, out);
    }

    /// The transform of a ternary polynomial over N / 2 (which is exact), for [`Self::multiply`].
    pub(crate) fn factor(&self, s: &[i8], out: &mut [u64]) {
        self.forward(s, i64::from, out);
        let by = 2.0 / self.n as f64;
        out.iter_mut().for_each(|x| *x = (f64::from_bits(*x) * by).to_bits());
    }

    /// As [`crate::Ntt::multiply_factors`], of words that [`Self::forward_words`] has transformed, and a [`Self::factor`].
    pub(crate) fn multiply(
        &self,
        isa: Isa,
        a: &[u64],
        factor: &[u64],
        work: &mut [u64],
        finish: Finish,
        out: &mut [u64],
    ) {
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        {
            #[target_feature(enable = "simd128,relaxed-simd")]
            fn relaxed(
                t: &Tables,
                a: &[u64],
                factor: &[u64],
                work: &mut [u64],
                finish: Finish,
                out: &mut [u64],
            ) {
                // SAFETY: this function is compiled for the instructions, and whoever calls it has them.
                unsafe { t.multiply_with::<Relaxed>(a, factor, work, finish, out) }
            }
            if isa.usable() >= Isa::Relaxed {
                return relaxed(self, a, factor, work, finish, out);
            }
        }
        let _ = isa;
        // SAFETY: every engine has these instructions.
        unsafe { self.multiply_with::<Twice>(a, factor, work, finish, out) }
    }

    /// # Safety
    /// As [`Steps::more`].
    #[inline(always)]
    unsafe fn multiply_with<S: Steps>(
        &self,
        a: &[u64],
        factor: &[u64],
        work: &mut [u64],
        finish: Finish,
        out: &mut [u64],
    ) {
        let Finish { subtract, shift, mask } = finish;
        // SAFETY: by contract.
        unsafe {
            if subtract {
                self.product::<S>(a, factor, work, |o, c| *o = o.wrapping_sub(c << shift) & mask, out);
            } else {
                self.product::<S>(a, factor, work, |o, c| *o = o.wrapping_add(c << shift) & mask, out);
            }
        }
    }

    #[inline(always)]
    fn forward<T: Copy>(&self, words: &[T], value: impl Fn(T) -> i64, out: &mut [u64]) {
        let quarter = self.n / 4;
        let ((a, b), (c, d)) = {
            let (low, high) = words.split_at(2 * quarter);
            (low.split_at(quarter), high.split_at(quarter))
        };
        let points = out.as_chunks_mut::<4>().0;
        for ((((o, a), b), c), d) in points.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            let [a, b, c, d] = [*a, *b, *c, *d].map(|w| value(w) as f64);
            // (b + i d) exp(i pi / 4)
            let (re, im) = ((b - d) * FRAC_1_SQRT_2, (b + d) * FRAC_1_SQRT_2);
            *o = [a + re, a - re, c + im, c - im].map(f64::to_bits);
        }
        if let Some(f) = self.odd {
            let (low, high) = points.split_at_mut(quarter / 2);
            for (x, y) in low.iter_mut().zip(high) {
                let (u, v) = (Complex::load(x), Complex::load(y).times(f));
                u.plus(v).store(x);
                u.minus(v).store(y);
            }
        }
        for pass in &self.passes {
            let size = quarter / pass.len() / 4;
            for (block, w) in points.chunks_exact_mut(4 * size).zip(pass) {
                let ((x0, x1), (x2, x3)) = quarters(block);
                for (((x0, x1), x2), x3) in x0.iter_mut().zip(x1).zip(x2).zip(x3) {
                    forward([x0, x1, x2, x3], w);
                }
            }
        }
    }

    /// Gives the coefficients of the product of a transform with a scaled one to `put`, which knows where they belong in `out`; `work` is overwritten.
    ///
    /// # Safety
    /// As [`Steps::more`].
    #[inline(always)]
    unsafe fn product<S: Steps>(
        &self,
        a: &[u64],
        hat: &[u64],
        work: &mut [u64],
        put: impl Fn(&mut u64, u64),
        out: &mut [u64],
    ) {
        let quarter = self.n / 4;
        let points = work.as_chunks_mut::<4>().0;
        for ((x, a), s) in points.iter_mut().zip(a.as_chunks::<4>().0).zip(hat.as_chunks::<4>().0) {
            // SAFETY: by contract.
            unsafe { Complex::load(a).scaled::<S>(Complex::load(s)) }.store(x);
        }
        for pass in self.passes.iter().rev() {
            let size = quarter / pass.len() / 4;
            for (block, w) in points.chunks_exact_mut(4 * size).zip(pass) {
                let ((x0, x1), (x2, x3)) = quarters(block);
                for (((x0, x1), x2), x3) in x0.iter_mut().zip(x1).zip(x2).zip(x3) {
                    // SAFETY: by contract.
                    unsafe { backward::<S>([x0, x1, x2, x3], w) };
                }
            }
        }
        if let Some(f) = self.odd {
            let (low, high) = points.split_at_mut(quarter / 2);
            for (x, y) in low.iter_mut().zip(high) {
                let (u, v) = (Complex::load(x), Complex::load(y));
                u.plus(v).store(x);
                // SAFETY: by contract.
                unsafe { u.minus(v).back::<S>(f) }.store(y);
            }
        }
        let ((a, b), (c, d)) = quarters(out);
        for ((((x, a), b), c), d) in points.iter().zip(a).zip(b).zip(c).zip(d) {
            let z = Complex::load(x);
            let ([x0, x1], [y0, y1]) = (z.re.lanes(), z.im.lanes());
            let (re, im) = (x0 - x1, y0 - y1);
            put(a, whole(x0 + x1));
            put(b, whole((re + im) * FRAC_1_SQRT_2));
            put(c, whole(y0 + y1));
            put(d, whole((im - re) * FRAC_1_SQRT_2));
        }
    }
}

/// Two levels of a block, on a point of each quarter.
#[inline(always)]
fn forward([x0, x1, x2, x3]: [&mut [u64; 4]; 4], &[f, g, h]: &[Complex; 3]) {
    let v = Complex::load(x2).times(f);
    let (p, q) = (Complex::load(x1).times(g), Complex::load(x3).times(h));
    let u = Complex::load(x0);
    let (s, t, even, odd) = (u.plus(v), u.minus(v), p.plus(q), p.minus(q));
    s.plus(even).store(x0);
    s.minus(even).store(x1);
    t.plus_i(odd).store(x2);
    t.minus_i(odd).store(x3);
}

/// Four times what [`forward`] was given.
///
/// # Safety
/// As [`Steps::more`].
#[inline(always)]
unsafe fn backward<S: Steps>([x0, x1, x2, x3]: [&mut [u64; 4]; 4], &[f, g, h]: &[Complex; 3]) {
    let (y0, y1) = (Complex::load(x0), Complex::load(x1));
    let (y2, y3) = (Complex::load(x2), Complex::load(x3));
    let (s, even, t, odd) = (y0.plus(y1), y0.minus(y1), y2.plus(y3), y2.minus(y3));
    s.plus(t).store(x0);
    // SAFETY: by contract.
    unsafe {
        even.minus_i(odd).back::<S>(g).store(x1);
        s.minus(t).back::<S>(f).store(x2);
        even.plus_i(odd).back::<S>(h).store(x3);
    }
}

/// The nearest integer to a double of at most 2^51, modulo 2^64.
#[inline(always)]
fn whole(x: f64) -> u64 {
    (x + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits())
}

#[allow(clippy::type_complexity)]
#[inline(always)]
fn quarters<T>(block: &mut [T]) -> ((&mut [T], &mut [T]), (&mut [T], &mut [T])) {
    let size = block.len() / 4;
    let (low, high) = block.split_at_mut(2 * size);
    (low.split_at_mut(size), high.split_at_mut(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{low_mask, sample, simd, ExactMultiplier, Prg};

    fn value(bits: u32, w: u64) -> i64 {
        (w << (64 - bits)) as i64 >> (64 - bits)
    }

    /// Words of the widest part at the edges of their range, and factors whose transforms are largest: all products are those modulo a prime, and
    /// before they are rounded they are nearer to integers than the bound says.
    #[test]
    fn products_are_exact_at_the_edges() {
        let mut prg = Prg::from_seed([4; 16]);
        let mut worst = 0f64;
        for log_n in 3..=LARGEST_DEGREE.ilog2() {
            let n = 1usize << log_n;
            let tables = Tables::new(n);
            assert_eq!(tables.degree(), n);
            let lowest = 1u64 << (PART_BITS - 1);
            let mut random = vec![0; n];
            prg.fill_words(&mut random);
            let signs = random.iter().map(|w| if w & 1 == 0 { lowest } else { lowest - 1 }).collect();
            let mut ternary = vec![0; n];
            sample::ternary(&mut prg, &mut ternary);
            for a in [random, vec![lowest; n], signs] {
                for s in
                    [vec![1i8; n], ternary.clone(), (0..n).map(|i| if i % 3 == 0 { -1 } else { 1 }).collect()]
                {
                    let mut hats = [vec![0; n], vec![0; n]];
                    let centre = Centre { add: 0, down: 0, shift: 64 - PART_BITS };
                    tables.forward_words(&a, centre, &mut hats[0]);
                    tables.factor(&s, &mut hats[1]);
                    let (mut work, mut out) = (vec![0; n], vec![5; n]);
                    let finish = Finish { subtract: false, shift: 9, mask: low_mask(60) };
                    // Modulo 2^51, of the centred words: another way to the same integers.
                    let m = ExactMultiplier::new(n).unwrap();
                    let words: Vec<u64> = a.iter().map(|w| value(PART_BITS, *w) as u64).collect();
                    let mut expected = vec![0; n];
                    let (x, y) = (m.words_hat(&words, 51).unwrap(), m.small_hat(&s).unwrap());
                    m.multiply_into(&x, &y, &mut expected, &mut m.scratch()).unwrap();
                    expected.iter_mut().for_each(|c| *c = (*c << 9).wrapping_add(5) & low_mask(60));
                    for isa in simd::available() {
                        out.fill(5);
                        tables.multiply(isa, &hats[0], &hats[1], &mut work, finish, &mut out);
                        assert_eq!(out, expected, "N={n} {isa:?}");
                        let off = |x: f64| (x - x.round()).abs();
                        for x in work.as_chunks::<4>().0 {
                            let z = Complex::load(x);
                            let ([p, q], [r, t]) = (z.re.lanes(), z.im.lanes());
                            worst = worst.max(off(p + q)).max(off(r + t));
                        }
                    }
                }
            }
        }
        // The bound is 0.28; errors of random signs stay far below.
        assert!(worst < 0.01, "{worst}");
    }
}
