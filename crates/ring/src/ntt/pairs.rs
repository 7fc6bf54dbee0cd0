//! Transforms in vectors of two doubles for p < 2^50, N >= 64: with fused multiply-add a product `x w` splits exactly into `h + l`, and
//! `h - round(x w/p) p + l` is exact too, as long as it stays below 2^53.
//!
//! Values are signed and live as doubles between passes. In units of p: a reduced value is at most 0.51; a product of `|x| <= b` by a factor
//! `|w| <= 1/2` at most `1/2 + b/8`. Two levels are a pass. Forward, of four values two are reduced and two multiplied; from b <= 2 follows
//! `0.51 + (1/2 + b/8) + (1/2 + (0.51 + 1/2 + b/8)/8) <= 2`. Backward a pass starts and ends at 1: sums of at most 4 and 1.5 are reduced, the
//! products have at most `1/2 + 4/8`. All is below 8 p < 2^53.
//!
//! For p < 2^26 forward products need no l: that of `|x| <= 2.6` is below 1.3 p^2 < 2^53, so h is it, and reducing it leaves at most 0.51. A level or a pass
//! adds at most 1.02 to what is not reduced, so that every second pass reduces nothing: from at most 1.53 to 2.55, and back to 1.53.

/// Forward products of primes below it are exact in binary64.
pub(super) const SMALL_BELOW: u64 = 1 << 26;

/// What words are: doubles between passes,
pub(super) const DOUBLES: u8 = 0;
/// residues,
pub(super) const RESIDUES: u8 = 1;
/// or two's complement integers of magnitudes below 2^51.
pub(super) const SHORT: u8 = 2;

/// Writes the tables and passes into the module of an instruction set, compiled for `$features`. The module has the steps:
///
/// - `Vector`, two doubles or the bits of two words; `splat`, `add`, `sub`, `mul` of doubles, `less(x, a, b)` = `x - a b` rounded once, and
///   `rounded(x, f, rounder())` = `x f` as an integer, at most 1/2 and one rounding away;
/// - `from_words`, residues to doubles, `from_short(x, rounder())`, integers of magnitudes below 2^51, and `to_words(x, p)`, integers in (-p, p) to residues;
/// - `load_words` and `store` of a vector; `load_two(p)` with elements i and i + 2, `load_four(p)` with elements i and i + 4 in vector i, and
///   `store_four`, which undoes it;
/// - `End::new(p, finish)` and `add_to(out, x)`: residues x are centred, shifted, negated where `finish` says so, and added to `out`.
macro_rules! transforms {
    ($features:literal) => {
        pub(super) struct Tables {
            n: usize,
            p: u64,
            /// `[w centred, w / p]`, by block index.
            forward: Vec<[f64; 2]>,
            inverse: Vec<[f64; 2]>,
            /// 1/N, and the last level's only twiddle over N.
            scale: [[f64; 2]; 2],
        }

        #[derive(Clone, Copy)]
        struct Mod {
            p: Vector,
            inverse: Vector,
            /// What [`rounded`] rounds by.
            rounder: Vector,
        }

        #[derive(Clone, Copy)]
        struct Factor {
            w: Vector,
            q: Vector,
        }

        /// Two values each of the quarters of a block.
        type Four = [Vector; 4];

        #[inline]
        #[target_feature(enable = $features)]
        fn modulus(p: u64) -> Mod {
            Mod { p: splat(p as f64), inverse: splat(1.0 / p as f64), rounder: rounder() }
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn broadcast(f: [f64; 2]) -> Factor {
            Factor { w: splat(f[0]), q: splat(f[1]) }
        }

        /// `x w` modulo p, signed.
        #[inline]
        #[target_feature(enable = $features)]
        fn times(x: Vector, f: Factor, m: Mod) -> Vector {
            product::<false>(x, f, m)
        }

        /// [`times`]; `SMALL`: the product is below 2^53, and its quotient, below 2^27, is rounded from it.
        #[inline]
        #[target_feature(enable = $features)]
        fn product<const SMALL: bool>(x: Vector, f: Factor, m: Mod) -> Vector {
            let high = mul(x, f.w);
            if SMALL {
                return reduce(high, m);
            }
            let quotient = rounded(x, f.q, m.rounder);
            // -l: what the rounding of h has added.
            let low = less(high, x, f.w);
            sub(less(high, quotient, m.p), low)
        }

        /// To at most 0.51 p.
        #[inline]
        #[target_feature(enable = $features)]
        fn reduce(x: Vector, m: Mod) -> Vector {
            less(x, rounded(x, m.inverse, m.rounder), m.p)
        }

        /// Doubles of at most 4 p to canonical integers below p.
        #[inline]
        #[target_feature(enable = $features)]
        fn to_canonical(x: Vector, m: Mod) -> Vector {
            to_words(reduce(x, m), m.p)
        }

        /// Two values of a [`kind`](super::pairs::DOUBLES), at most 1.
        ///
        /// # Safety
        /// Two elements behind `a` must be readable.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn load<const KIND: u8>(a: *const u64, m: Mod) -> Vector {
            // SAFETY: by contract.
            let words = unsafe { load_words(a) };
            match KIND {
                RESIDUES => from_words(words),
                SHORT => reduce(from_short(words, m.rounder), m),
                _ => words,
            }
        }

        /// Two levels of four values: twiddles of the first level, and of both halves in the second. From at most 2 to at most 2; `SMALL`: from at most
        /// 2.55 to 1.53 or, not `REDUCED`, from 1.53 to 2.55.
        #[inline]
        #[target_feature(enable = $features)]
        fn forward_four<const SMALL: bool, const REDUCED: bool>(
            x: Four,
            [f, g, h]: [Factor; 3],
            m: Mod,
        ) -> Four {
            let (u0, u1) = if REDUCED { (reduce(x[0], m), reduce(x[1], m)) } else { (x[0], x[1]) };
            let (v0, v1) = (product::<SMALL>(x[2], f, m), product::<SMALL>(x[3], f, m));
            let (s, t) = (product::<SMALL>(add(u1, v1), g, m), product::<SMALL>(sub(u1, v1), h, m));
            let (a, b) = (add(u0, v0), sub(u0, v0));
            [add(a, s), sub(a, s), add(b, t), sub(b, t)]
        }

        /// Two inverse levels of four values of at most 1, up to the last products: the latter two results are still to be multiplied by the twiddle
        /// of the second level. At most 4, 1.5, 4 and 1.5.
        #[inline]
        #[target_feature(enable = $features)]
        fn inverse_four(x: Four, [g, h]: [Factor; 2], m: Mod) -> Four {
            let (d0, d1) = (times(sub(x[0], x[1]), g, m), times(sub(x[2], x[3]), h, m));
            let (s0, s1) = (add(x[0], x[1]), add(x[2], x[3]));
            [add(s0, s1), add(d0, d1), sub(s0, s1), sub(d0, d1)]
        }

        /// [`inverse_four`] of which all are at most 1.
        #[inline]
        #[target_feature(enable = $features)]
        fn inverse_whole(x: Four, [f, g, h]: [Factor; 3], m: Mod) -> Four {
            let y = inverse_four(x, [g, h], m);
            [reduce(y[0], m), reduce(y[1], m), times(y[2], f, m), times(y[3], f, m)]
        }

        /// Twiddles of two blocks of four elements beside each other, from b on.
        ///
        /// # Safety
        /// `powers` has `2 b + 4` elements.
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn of_two_blocks(powers: &[[f64; 2]], b: usize) -> [Factor; 3] {
            // SAFETY: b + 2 and 2 b + 4 elements are there, each a pair of doubles.
            let (first, second) = unsafe {
                let powers = powers.as_ptr().cast::<u64>();
                (load_two(powers.add(2 * b)), load_four(powers.add(4 * b)))
            };
            [
                Factor { w: first[0], q: first[1] },
                Factor { w: second[0], q: second[1] },
                Factor { w: second[2], q: second[3] },
            ]
        }

        impl Tables {
            pub(super) fn new(p: u64, forward: &[u64], inverse: &[u64]) -> Self {
                let n_inverse = inv_mod(forward.len() as u64, p);
                let factors = |powers: &[u64]| powers.iter().map(|&w| prepare(w, p)).collect();
                let scale = [n_inverse, mul_mod(inverse[1], n_inverse, p)].map(|w| prepare(w, p));
                Self { n: forward.len(), p, forward: factors(forward), inverse: factors(inverse), scale }
            }

            /// The levels from so many blocks on: one, or at most N / 8.
            ///
            /// # Safety
            /// Needs `$features`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn forward(&self, blocks: usize, a: &mut [u64]) {
                // SAFETY: by contract; passes read an element before they write it.
                unsafe {
                    if self.p < SMALL_BELOW {
                        self.forward_levels::<RESIDUES, true, false>(blocks, a.as_ptr(), a);
                    } else {
                        self.forward_levels::<RESIDUES, false, false>(blocks, a.as_ptr(), a);
                    }
                }
            }

            /// All levels of `words`, two's complement integers of magnitudes below 2^51, into `a`. `lazy`: where the prime is small, values stay doubles of
            /// at most 1.53; whether they are.
            ///
            /// # Safety
            /// Needs `$features`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn forward_short(&self, words: &[u64], a: &mut [u64], lazy: bool) -> bool {
                assert_eq!(words.len(), self.n);
                let lazy = lazy && self.p < SMALL_BELOW;
                // SAFETY: by contract; there are n words.
                unsafe {
                    if lazy {
                        self.forward_levels::<SHORT, true, true>(1, words.as_ptr(), a);
                    } else if self.p < SMALL_BELOW {
                        self.forward_levels::<SHORT, true, false>(1, words.as_ptr(), a);
                    } else {
                        self.forward_levels::<SHORT, false, false>(1, words.as_ptr(), a);
                    }
                }
                lazy
            }

            /// Levels of elements of a kind, which are read from `source`; `LAZY`: without the last reduction.
            ///
            /// # Safety
            /// Needs `$features`; n elements behind `source` must be readable.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn forward_levels<const KIND: u8, const SMALL: bool, const LAZY: bool>(
                &self,
                mut blocks: usize,
                source: *const u64,
                a: &mut [u64],
            ) {
                assert_eq!(a.len(), self.n);
                let (n, m, start) = (self.n, modulus(self.p), a.as_mut_ptr());
                // SAFETY: there are n elements, of which the passes read and write each block's; blocks have eight or more.
                unsafe {
                    let mut reduced = true;
                    if (n / blocks).trailing_zeros() % 2 == 1 {
                        self.forward_level::<KIND, SMALL>(blocks, source, start, m);
                        blocks *= 2;
                    } else {
                        self.forward_pass::<KIND, SMALL, true>(blocks, source, start, m);
                        blocks *= 4;
                    }
                    while blocks < n / 4 {
                        reduced = !SMALL || !reduced;
                        if reduced {
                            self.forward_pass::<DOUBLES, SMALL, true>(blocks, start, start, m);
                        } else {
                            self.forward_pass::<DOUBLES, SMALL, false>(blocks, start, start, m);
                        }
                        blocks *= 4;
                    }
                    for b in (0..n / 4).step_by(2) {
                        let at = start.add(4 * b);
                        let factors = of_two_blocks(&self.forward, n / 4 + b);
                        let y = forward_four::<SMALL, true>(load_four(at), factors, m);
                        let y = if LAZY { y } else { y.map(|v| to_canonical(v, m)) };
                        store_four(at, y);
                    }
                }
                transpose_tiles(a);
            }

            /// One level.
            ///
            /// # Safety
            /// `source` and `a` point to n elements, blocks have four or more.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn forward_level<const KIND: u8, const SMALL: bool>(
                &self,
                blocks: usize,
                source: *const u64,
                a: *mut u64,
                m: Mod,
            ) {
                let half = self.n / blocks / 2;
                for b in 0..blocks {
                    let f = broadcast(self.forward[blocks + b]);
                    for i in (0..half).step_by(2) {
                        // SAFETY: both lie within block b.
                        unsafe {
                            let [low, high] = [2 * half * b + i, 2 * half * b + half + i];
                            let (u, x) =
                                (load::<KIND>(source.add(low), m), load::<KIND>(source.add(high), m));
                            let v = product::<SMALL>(x, f, m);
                            store(a.add(low), add(u, v));
                            store(a.add(high), sub(u, v));
                        }
                    }
                }
            }

            /// Two levels.
            ///
            /// # Safety
            /// `source` and `a` point to n elements, blocks have eight or more.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn forward_pass<const KIND: u8, const SMALL: bool, const REDUCED: bool>(
                &self,
                blocks: usize,
                source: *const u64,
                a: *mut u64,
                m: Mod,
            ) {
                let quarter = self.n / blocks / 4;
                for b in 0..blocks {
                    let of = blocks + b;
                    let factors = [of, 2 * of, 2 * of + 1].map(|i| broadcast(self.forward[i]));
                    for i in (0..quarter).step_by(2) {
                        // SAFETY: all four lie within block b.
                        unsafe {
                            let at = [0, 1, 2, 3].map(|j| (4 * b + j) * quarter + i);
                            let x = at.map(|x| load::<KIND>(source.add(x), m));
                            let y = forward_four::<SMALL, REDUCED>(x, factors, m);
                            at.iter().zip(y).for_each(|(x, y)| store(a.add(*x), y));
                        }
                    }
                }
            }

            /// The inverse levels from slot order, residues or doubles of at most 1, up to the last products; `put(index, value, whether the value is
            /// still to be multiplied by the last level's twiddle)` gets two results each, of at most 4.
            ///
            /// # Safety
            /// `a` has n elements.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn inverse_levels<const RESIDUES: bool>(
                &self,
                a: &mut [u64],
                m: Mod,
                put: impl Fn(*mut u64, usize, Vector, bool),
            ) {
                transpose_tiles(a);
                let (n, a) = (self.n, a.as_mut_ptr());
                // SAFETY: there are n elements, of which the passes read and write each block's.
                unsafe {
                    for b in (0..n / 4).step_by(2) {
                        let at = a.add(4 * b);
                        let x = load_four(at);
                        let x = if RESIDUES { x.map(|v| from_words(v)) } else { x };
                        let y = inverse_whole(x, of_two_blocks(&self.inverse, n / 4 + b), m);
                        store_four(at, y);
                    }
                    let mut blocks = n / 4;
                    while blocks > 4 {
                        blocks /= 4;
                        let quarter = n / blocks / 4;
                        for b in 0..blocks {
                            let of = blocks + b;
                            let factors = [of, 2 * of, 2 * of + 1].map(|i| broadcast(self.inverse[i]));
                            for i in (0..quarter).step_by(2) {
                                let at = [0, 1, 2, 3].map(|j| a.add((4 * b + j) * quarter + i));
                                let y = inverse_whole(at.map(|x| load::<DOUBLES>(x, m)), factors, m);
                                at.iter().zip(y).for_each(|(x, y)| store(*x, y));
                            }
                        }
                    }
                    let part = n / blocks;
                    let inner = [2, 3].map(|i| broadcast(self.inverse[i]));
                    for i in (0..part).step_by(2) {
                        let x = |j: usize| load::<DOUBLES>(a.add(j * part + i), m);
                        if blocks == 2 {
                            let (u, v) = (x(0), x(1));
                            put(a, i, add(u, v), false);
                            put(a, part + i, sub(u, v), true);
                        } else {
                            let y = inverse_four([x(0), x(1), x(2), x(3)], inner, m);
                            y.into_iter().enumerate().for_each(|(j, y)| put(a, j * part + i, y, j >= 2));
                        }
                    }
                }
            }

            /// # Safety
            /// Needs `$features`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn inverse(&self, a: &mut [u64]) {
                assert_eq!(a.len(), self.n);
                let (m, scale) = (modulus(self.p), self.scale.map(|f| broadcast(f)));
                // SAFETY: `a` has n elements, which the indices are below.
                unsafe {
                    self.inverse_levels::<true>(a, m, |a, i, x, twiddled| {
                        store(a.add(i), to_canonical(times(x, scale[usize::from(twiddled)], m), m));
                    });
                }
            }

            /// As [`super::Ntt::multiply_factors`].
            ///
            /// # Safety
            /// Needs `$features`.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn multiply(
                &self,
                a: &[u64],
                factors: (&[u64], &[u64]),
                work: &mut [u64],
                finish: Finish,
                out: &mut [u64],
            ) {
                let (n, m) = (self.n, modulus(self.p));
                for len in [a.len(), factors.0.len(), factors.1.len(), work.len(), out.len()] {
                    assert_eq!(len, n);
                }
                let end = End::new(self.p, finish);
                let (last, out) = (broadcast(self.inverse[1]), out.as_mut_ptr());
                // SAFETY: all five have n elements, which the indices are below.
                unsafe {
                    for i in (0..n).step_by(2) {
                        let w = load::<DOUBLES>(factors.0.as_ptr().add(i), m);
                        let q = load::<DOUBLES>(factors.1.as_ptr().add(i), m);
                        let x = times(load::<RESIDUES>(a.as_ptr().add(i), m), Factor { w, q }, m);
                        store(work.as_mut_ptr().add(i), x);
                    }
                    self.inverse_levels::<false>(work, m, |_, i, x, twiddled| {
                        let x = to_canonical(if twiddled { times(x, last, m) } else { x }, m);
                        end.add_to(out.add(i), x);
                    });
                }
            }
        }
    };
}
pub(super) use transforms;
