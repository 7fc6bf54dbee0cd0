//! Slice kernels on one limb, each written once over [`Lanes`] and instantiated per instruction set.
//!
//! Slices of one call have equal lengths (checked: a shorter one panics in debug builds and bounds the
//! work otherwise).
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::ifma::Ifma;
use super::lanes::{Lanes, Scalar};
use super::modulus::{Factor, Modulus};
#[cfg(target_family = "wasm")]
use super::relaxed::Relaxed;
use crate::Isa;

/// Runs `$body` for every full vector and then word by word for the rest.
macro_rules! sweep {
    ($lanes:ident, $len:expr, $kernel:ident ( $($arg:expr),* )) => {{
        let full = $len / $lanes::WIDTH * $lanes::WIDTH;
        // SAFETY: offsets stay below the checked length; the caller vouches for the instruction set.
        unsafe {
            $kernel::<$lanes>(0, full, $($arg),*);
            $kernel::<Scalar>(full, $len, $($arg),*);
        }
    }};
}

/// Defines the public entry `$name` that runs `$kernel` on the chosen instruction set.
macro_rules! dispatch {
    ($(#[$doc:meta])* $name:ident = $kernel:ident ( $($arg:ident : $ty:ty),* ) len $len:expr) => {
        $(#[$doc])*
        pub(super) fn $name(isa: Isa, $($arg: $ty),*) {
            let len = $len;
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512ifma")]
                fn ifma(len: usize, $($arg: $ty),*) {
                    sweep!(Ifma, len, $kernel($($arg),*));
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2(len: usize, $($arg: $ty),*) {
                    sweep!(Avx2, len, $kernel($($arg),*));
                }
                let isa = isa.usable();
                if isa >= Isa::Ifma {
                    // SAFETY: `usable` returns only what this processor has.
                    return unsafe { ifma(len, $($arg),*) };
                }
                if isa >= Isa::Avx2 {
                    // SAFETY: as above.
                    return unsafe { avx2(len, $($arg),*) };
                }
            }
            #[cfg(target_family = "wasm")]
            {
                #[target_feature(enable = "simd128,relaxed-simd")]
                fn relaxed(len: usize, $($arg: $ty),*) {
                    sweep!(Relaxed, len, $kernel($($arg),*));
                }
                // Compilers for WebAssembly take calls like this one for safe: an engine checks a module before it runs.
                if isa.usable() >= Isa::Relaxed {
                    return relaxed(len, $($arg),*);
                }
            }
            let _ = isa;
            sweep!(Scalar, len, $kernel($($arg),*));
        }
    };
}

/// Defines a kernel whose body computes one vector at word offset `$i`.
macro_rules! kernel {
    ($name:ident < $l:ident > ( $i:ident, $($arg:ident : $ty:ty),* ) { $($setup:tt)* } $body:block) => {
        // SAFETY of callers: `from..to` lies within all slices, and the lanes' instruction set is there.
        #[inline(always)]
        #[allow(clippy::too_many_arguments)]
        unsafe fn $name<$l: Lanes>(from: usize, to: usize, $($arg: $ty),*) {
            // SAFETY: promised by the caller.
            unsafe {
                $($setup)*
                let mut $i = from;
                while $i < to {
                    $body
                    $i += $l::WIDTH;
                }
            }
        }
    };
}

/// The common length of slices.
pub(super) fn common(lengths: &[usize]) -> usize {
    debug_assert!(lengths.windows(2).all(|w| w[0] == w[1]), "{lengths:?}");
    lengths.iter().copied().min().unwrap_or(0)
}

/// The mutable pointers of a kernel alias nothing else: they come from `&mut` slices.
macro_rules! at {
    ($slice:expr, $i:expr) => {
        $slice.as_ptr().add($i)
    };
}
macro_rules! at_mut {
    ($slice:expr, $i:expr) => {
        $slice.as_ptr().add($i).cast_mut()
    };
}

/// A mutable slice that kernels may be handed twice (vector part, then tail).
#[derive(Clone, Copy)]
pub(super) struct Out<'a> {
    start: *mut u64,
    len: usize,
    life: std::marker::PhantomData<&'a mut [u64]>,
}

impl<'a> Out<'a> {
    pub(super) fn new(s: &'a mut [u64]) -> Self {
        Self { start: s.as_mut_ptr(), len: s.len(), life: std::marker::PhantomData }
    }
    #[inline(always)]
    pub(super) fn as_ptr(&self) -> *const u64 {
        self.start
    }
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// `out_i = from[slots_i]`. Slots are below the length of `from`; of others vectors take the low bits, and plain Rust panics.
pub(super) fn gather(isa: Isa, out: &mut [u64], from: &[u64], slots: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f")]
        fn wide(out: &mut [u64], from: &[u64], slots: &[u32]) {
            use std::arch::x86_64::*;
            let mask = _mm256_set1_epi32(from.len() as i32 - 1);
            for (to, slots) in out.chunks_exact_mut(8).zip(slots.chunks_exact(8)) {
                // SAFETY: both chunks have eight elements; masked slots are below the length of `from`, a power of two.
                unsafe {
                    let at = _mm256_and_si256(_mm256_loadu_si256(slots.as_ptr().cast()), mask);
                    let words = _mm512_i32gather_epi64::<8>(at, from.as_ptr().cast());
                    _mm512_storeu_si512(to.as_mut_ptr().cast(), words);
                }
            }
        }
        if isa.usable() >= Isa::Ifma && from.len().is_power_of_two() && from.len() <= 1 << 30 {
            // SAFETY: `usable` returns only what this processor has.
            unsafe { wide(out, from, slots) };
            let done = out.len().min(slots.len()) / 8 * 8;
            out[done..].iter_mut().zip(&slots[done..]).for_each(|(to, slot)| *to = from[*slot as usize]);
            return;
        }
    }
    let _ = isa;
    out.iter_mut().zip(slots).for_each(|(to, slot)| *to = from[*slot as usize]);
}

kernel! { add_k<L>(i, a: Out<'_>, b: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    L::store(at_mut!(a, i), L::add(L::load(at!(a, i)), L::load(at!(b, i)), c));
} }
dispatch! { /** `a += b`. */ add = add_k(a: Out<'_>, b: &[u64], m: &Modulus) len common(&[a.len(), b.len()]) }

kernel! { sub_k<L>(i, a: Out<'_>, b: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    L::store(at_mut!(a, i), L::sub(L::load(at!(a, i)), L::load(at!(b, i)), c));
} }
dispatch! { /** `a -= b`. */ sub = sub_k(a: Out<'_>, b: &[u64], m: &Modulus) len common(&[a.len(), b.len()]) }

kernel! { neg_k<L>(i, a: Out<'_>, m: &Modulus) { let c = L::modulus(m); let zero = L::splat(0); } {
    L::store(at_mut!(a, i), L::sub(zero, L::load(at!(a, i)), c));
} }
dispatch! { /** `a = -a`. */ neg = neg_k(a: Out<'_>, m: &Modulus) len a.len() }

kernel! { add_word_k<L>(i, a: Out<'_>, w: u64, m: &Modulus) { let c = L::modulus(m); let w = L::splat(w); } {
    L::store(at_mut!(a, i), L::add(L::load(at!(a, i)), w, c));
} }
dispatch! { /** `a += w` for a residue w. */ add_word = add_word_k(a: Out<'_>, w: u64, m: &Modulus) len a.len() }

kernel! { mul_k<L>(i, a: Out<'_>, b: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    L::store(at_mut!(a, i), L::mul(L::load(at!(a, i)), L::load(at!(b, i)), c));
} }
dispatch! { /** `a *= b`. */ mul = mul_k(a: Out<'_>, b: &[u64], m: &Modulus) len common(&[a.len(), b.len()]) }

kernel! { mul_to_k<L>(i, out: Out<'_>, a: &[u64], b: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    L::store(at_mut!(out, i), L::mul(L::load(at!(a, i)), L::load(at!(b, i)), c));
} }
dispatch! { /** `out = a b`. */ mul_to = mul_to_k(out: Out<'_>, a: &[u64], b: &[u64], m: &Modulus)
len common(&[out.len(), a.len(), b.len()]) }

kernel! { mul_add_k<L>(i, out: Out<'_>, a: &[u64], b: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    let product = L::mul(L::load(at!(a, i)), L::load(at!(b, i)), c);
    L::store(at_mut!(out, i), L::add(L::load(at!(out, i)), product, c));
} }
dispatch! { /** `out += a b`. */ mul_add = mul_add_k(out: Out<'_>, a: &[u64], b: &[u64], m: &Modulus)
len common(&[out.len(), a.len(), b.len()]) }

kernel! { butterfly_k<L>(i, a: Out<'_>, b: Out<'_>, w: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    let (left, right) = (L::load(at!(a, i)), L::mul(L::load(at!(b, i)), L::load(at!(w, i)), c));
    L::store(at_mut!(a, i), L::add(left, right, c));
    L::store(at_mut!(b, i), L::sub(left, right, c));
} }
dispatch! { /** `(a, b) = (a + b w, a - b w)`. */ butterfly = butterfly_k(a: Out<'_>, b: Out<'_>, w: &[u64], m: &Modulus)
len common(&[a.len(), b.len(), w.len()]) }

kernel! { mul_sub_k<L>(i, out: Out<'_>, a: &[u64], b: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    let product = L::mul(L::load(at!(a, i)), L::load(at!(b, i)), c);
    L::store(at_mut!(out, i), L::sub(L::load(at!(out, i)), product, c));
} }
dispatch! { /** `out -= a b`. */ mul_sub = mul_sub_k(out: Out<'_>, a: &[u64], b: &[u64], m: &Modulus)
len common(&[out.len(), a.len(), b.len()]) }

/// Whether [`mul_sub_doubles`] may be called.
pub(super) const TAKES_DOUBLES: bool = cfg!(target_family = "wasm");

/// As [`mul_sub`], of doubles of at most 2 q that become residues, for primes below 2^26; in WebAssembly with relaxed SIMD alone.
#[allow(unused_variables)]
pub(super) fn mul_sub_doubles(out: Out<'_>, a: &[u64], b: &[u64], m: &Modulus) {
    let len = common(&[out.len(), a.len(), b.len()]);
    #[cfg(target_family = "wasm")]
    {
        #[target_feature(enable = "simd128,relaxed-simd")]
        fn relaxed(len: usize, out: Out<'_>, a: &[u64], b: &[u64], m: &Modulus) {
            // SAFETY: offsets stay below the checked length, of which all but the last element of an odd number are here; and below.
            unsafe {
                let c = Relaxed::modulus(m);
                for i in (0..len / 2 * 2).step_by(2) {
                    Relaxed::sub_product(at_mut!(out, i), at!(a, i), at!(b, i), c);
                }
                if len % 2 == 1 {
                    let (mut pair, i) = ([0; 2], len - 1);
                    pair[0] = *at!(out, i);
                    Relaxed::sub_product(pair.as_mut_ptr(), [a[i], 0].as_ptr(), [b[i], 0].as_ptr(), c);
                    *at_mut!(out, i) = pair[0];
                }
            }
        }
        relaxed(len, out, a, b, m);
    }
    #[cfg(not(target_family = "wasm"))]
    unreachable!("doubles of a kernel that there is not");
}

kernel! { factor_k<L>(i, a: Out<'_>, f: Factor, m: &Modulus) { let c = L::modulus(m); let f = L::factor(f); } {
    L::store(at_mut!(a, i), L::mul_factor(L::load(at!(a, i)), f, c));
} }
dispatch! { /** `a *= w`. */ factor = factor_k(a: Out<'_>, f: Factor, m: &Modulus) len a.len() }

kernel! { factor_add_k<L>(i, out: Out<'_>, a: &[u64], f: Factor, m: &Modulus)
    { let c = L::modulus(m); let f = L::factor(f); } {
    let product = L::mul_factor(L::load(at!(a, i)), f, c);
    L::store(at_mut!(out, i), L::add(L::load(at!(out, i)), product, c));
} }
dispatch! { /** `out += w a`. */ factor_add = factor_add_k(out: Out<'_>, a: &[u64], f: Factor, m: &Modulus)
len common(&[out.len(), a.len()]) }

kernel! { sub_factor_k<L>(i, a: Out<'_>, b: &[u64], f: Factor, m: &Modulus)
    { let c = L::modulus(m); let f = L::factor(f); } {
    let difference = L::sub(L::load(at!(a, i)), L::load(at!(b, i)), c);
    L::store(at_mut!(a, i), L::mul_factor(difference, f, c));
} }
dispatch! { /** `a = (a - b) w`. */ sub_factor = sub_factor_k(a: Out<'_>, b: &[u64], f: Factor, m: &Modulus)
len common(&[a.len(), b.len()]) }

kernel! { difference_factor_k<L>(i, out: Out<'_>, a: &[u64], b: &[u64], f: Factor, m: &Modulus)
    { let c = L::modulus(m); let f = L::factor(f); } {
    let difference = L::sub(L::load(at!(a, i)), L::load(at!(b, i)), c);
    L::store(at_mut!(out, i), L::mul_factor(difference, f, c));
} }
dispatch! { /** `out = (a - b) w`. */
difference_factor = difference_factor_k(out: Out<'_>, a: &[u64], b: &[u64], f: Factor, m: &Modulus)
len common(&[out.len(), a.len(), b.len()]) }

kernel! { shift_k<L>(i, out: Out<'_>, a: &[u64], w: u64, m: &Modulus)
    { let c = L::modulus(m); let w = L::splat(w); } {
    L::store(at_mut!(out, i), L::sub(L::reduce(L::load(at!(a, i)), c), w, c));
} }
dispatch! { /** `out = (a mod q) - w` for words below 2^52 and a residue w. */
shift = shift_k(out: Out<'_>, a: &[u64], w: u64, m: &Modulus) len common(&[out.len(), a.len()]) }

kernel! { reduce_k<L>(i, a: Out<'_>, m: &Modulus) { let c = L::modulus(m); } {
    L::store(at_mut!(a, i), L::reduce(L::load(at!(a, i)), c));
} }
dispatch! { /** `a = a mod q` for words below 2^52. */ reduce = reduce_k(a: Out<'_>, m: &Modulus) len a.len() }

kernel! { reduce_halves_k<L>(i, out: Out<'_>, a: &[u32], m: &Modulus) { let c = L::modulus(m); } {
    L::store(at_mut!(out, i), L::reduce(L::load_half(at!(a, i)), c));
} }
dispatch! { /** `out = a mod q` for words of 32 bits. */
reduce_halves = reduce_halves_k(out: Out<'_>, a: &[u32], m: &Modulus) len common(&[out.len(), a.len()]) }

kernel! { short_k<L>(i, out: Out<'_>, a: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    L::store(at_mut!(out, i), L::reduce_short(L::load(at!(a, i)), c));
} }
dispatch! { /** [`signed`] for magnitudes below 2^51: fewer steps in WebAssembly. */
short = short_k(out: Out<'_>, a: &[u64], m: &Modulus) len common(&[out.len(), a.len()]) }

kernel! { signed_k<L>(i, out: Out<'_>, a: &[u64], m: &Modulus) { let c = L::modulus(m); } {
    L::store(at_mut!(out, i), L::reduce_signed(L::load(at!(a, i)), c));
} }
dispatch! { /** `out = a mod q` for signed words (two's complement) of magnitude below 2^52. */
signed = signed_k(out: Out<'_>, a: &[u64], m: &Modulus) len common(&[out.len(), a.len()]) }

kernel! { wrapped_k<L>(i, a: Out<'_>, sign: u64, f: Factor, m: &Modulus)
    { let c = L::modulus(m); let f = L::factor(f); let sign = L::splat(sign); } {
    let v = L::extend(L::load(at!(a, i)), sign);
    let (high, low) = L::halves(L::abs(v));
    let r = L::add(L::reduce(low, c), L::mul_factor(high, f, c), c);
    L::store(at_mut!(a, i), L::with_sign(v, r, c));
} }
dispatch! { /** `a = a mod q` for two's complement numbers whose sign bit is `sign`; f is `2^32`. */
wrapped = wrapped_k(a: Out<'_>, sign: u64, f: Factor, m: &Modulus) len a.len() }

kernel! { wrapped_short_k<L>(i, a: Out<'_>, sign: u64, m: &Modulus)
    { let c = L::modulus(m); let sign = L::splat(sign); } {
    L::store(at_mut!(a, i), L::reduce_short(L::extend(L::load(at!(a, i)), sign), c));
} }
dispatch! { /** `a = a mod q` for two's complement numbers whose sign bit is `sign`, at most 2^51. */
wrapped_short = wrapped_short_k(a: Out<'_>, sign: u64, m: &Modulus) len a.len() }

kernel! { tensor_k<L>(i, out: [Out<'_>; 3], a: [&[u64]; 2], b: [&[u64]; 2], m: &Modulus) { let c = L::modulus(m); } {
    let (a0, a1) = (L::load(at!(a[0], i)), L::load(at!(a[1], i)));
    let (b0, b1) = (L::load(at!(b[0], i)), L::load(at!(b[1], i)));
    L::store(at_mut!(out[0], i), L::mul(a0, b0, c));
    let cross = L::acc_mac(L::acc_mac(L::acc_zero(), a0, b1, c), a1, b0, c);
    L::store(at_mut!(out[1], i), L::acc_reduce(cross, c));
    L::store(at_mut!(out[2], i), L::mul(a1, b1, c));
} }
dispatch! { /** `out = (a0 b0, a0 b1 + a1 b0, a1 b1)`. */
tensor = tensor_k(out: [Out<'_>; 3], a: [&[u64]; 2], b: [&[u64]; 2], m: &Modulus)
len common(&[out[0].len(), out[1].len(), out[2].len(), a[0].len(), a[1].len(), b[0].len(), b[1].len()]) }

kernel! { square_k<L>(i, out: [Out<'_>; 3], a: [&[u64]; 2], m: &Modulus) { let c = L::modulus(m); } {
    let (a0, a1) = (L::load(at!(a[0], i)), L::load(at!(a[1], i)));
    L::store(at_mut!(out[0], i), L::mul(a0, a0, c));
    let cross = L::mul(a0, a1, c);
    L::store(at_mut!(out[1], i), L::add(cross, cross, c));
    L::store(at_mut!(out[2], i), L::mul(a1, a1, c));
} }
dispatch! { /** `out = (a0^2, 2 a0 a1, a1^2)`. */
square = square_k(out: [Out<'_>; 3], a: [&[u64]; 2], m: &Modulus)
len common(&[out[0].len(), out[1].len(), out[2].len(), a[0].len(), a[1].len()]) }

kernel! { overflow_k<L>(i, out: Out<'_>, x: &[&[u64]], r: &[f64]) { } {
    let mut s = L::real_zero();
    for d in 0..x.len() {
        s = L::real_mac(s, L::load(at!(x[d], i)), r[d]);
    }
    L::store(at_mut!(out, i), L::real_round(s));
} }
dispatch! { /** `out = floor(sum_d r_d x_d + 1/2)`, in binary64, terms in order. */
overflow = overflow_k(out: Out<'_>, x: &[&[u64]], r: &[f64])
len {
    assert_eq!(x.len(), r.len(), "combination of lists of different lengths");
    x.iter().fold(out.len(), |n, s| common(&[n, s.len()]))
} }
