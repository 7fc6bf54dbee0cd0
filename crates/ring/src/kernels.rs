//! Elementwise passes over words modulo 2^k. Plain loops, compiled once for every instruction set.
#![allow(unsafe_code)]

use crate::error::expect_len;
use crate::ntt::Centre;
use crate::{low_mask, Isa, RingError};

/// Defines `$name(isa, args...)`, which runs one loop compiled for the widest vectors that `isa` allows.
macro_rules! multiversion {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        $vis fn $name(isa: Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
                fn avx512($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                #[target_feature(enable = "avx2,popcnt")]
                fn avx2($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
                let isa = isa.usable();
                if isa >= Isa::Avx512 {
                    // SAFETY: `usable` never exceeds what this processor has.
                    return unsafe { avx512($($arg),*) };
                }
                if isa >= Isa::Avx2 {
                    // SAFETY: as above.
                    return unsafe { avx2($($arg),*) };
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = isa;
            body($($arg),*)
        }
    };
}

multiversion! {
    fn mask_loop(words: &mut [u64], mask: u64) {
        for w in words {
            *w &= mask;
        }
    }
}

multiversion! {
    fn scale_loop(values: &[i32], shift: u32, out: &mut [u64]) {
        for (o, v) in out.iter_mut().zip(values) {
            *o = (i64::from(*v) << shift) as u64;
        }
    }
}

multiversion! {
    fn drop_loop(words: &mut [u64], u: u32, half: u64, mask: u64) {
        for w in words {
            *w = w.wrapping_add(half) >> u & mask;
        }
    }
}

multiversion! {
    fn add_loop(words: &mut [u64], constant: u64, mask: u64) {
        for w in words {
            *w = w.wrapping_add(constant) & mask;
        }
    }
}

multiversion! {
    fn raise_loop(words: &[u64], shift: u32, out: &mut [u64]) {
        for (o, w) in out.iter_mut().zip(words) {
            *o = w << shift;
        }
    }
}

multiversion! {
    /// As [`round_into`] for k below 64: what is shifted is made positive, since most vectors have no arithmetic shift of 64 bits.
    fn round_loop(words: &[u64], k: u32, d: u32, out: &mut [i64]) -> u64 {
        let (mask, lowest, middle) = (low_mask(k), 1u64 << (k - 1), (1u64 << d) >> 1);
        let (left, least) = (low_mask(d), (lowest >> d).cast_signed());
        let mut largest = 0;
        for (o, w) in out.iter_mut().zip(words) {
            let raised = (w.wrapping_add(lowest) & mask).wrapping_add(middle);
            *o = (raised >> d).cast_signed().wrapping_sub(least);
            let noise = (raised & left).cast_signed().wrapping_sub(middle.cast_signed()).wrapping_abs();
            largest = largest.max(noise);
        }
        largest.cast_unsigned()
    }
}

multiversion! {
    /// As [`round_into`], for any k.
    fn round_wide_loop(words: &[u64], unused: u32, d: u32, out: &mut [i64]) -> u64 {
        let half = (1i64 << d) >> 1;
        let mut largest = 0;
        for (o, w) in out.iter_mut().zip(words) {
            let phase = (w << unused) as i64 >> unused;
            let rounded = phase.wrapping_add(half) >> d;
            *o = rounded;
            let noise = phase.wrapping_sub(rounded << d).unsigned_abs();
            largest = if noise > largest { noise } else { largest };
        }
        largest
    }
}

multiversion! {
    /// Centred parts of words, as residues modulo p.
    pub(crate) fn centre_into(words: &[u64], centre: Centre, p: u64, out: &mut [u64]) {
        let Centre { add, down, shift } = centre;
        for (o, w) in out.iter_mut().zip(words) {
            let v = (w.wrapping_add(add) >> down << shift) as i64 >> shift;
            *o = (v as u64).wrapping_add(p & (v >> 63) as u64);
        }
    }
}

multiversion! {
    /// Adds the samples of one generator group (24 words) to at most 32 words, as `sample` defines them.
    pub(crate) fn add_coins(random: &[u64; 24], words: &mut [u64]) {
        for (j, word) in words.iter_mut().enumerate() {
            let coins = if j < 24 {
                random[j] & low_mask(42)
            } else {
                // 22 + 20 bits, side by side.
                random[j - 24] >> 42 | (random[j - 16] >> 42 & low_mask(20)) << 22
            };
            *word = word.wrapping_add(u64::from(coins.count_ones())).wrapping_sub(21);
        }
    }
}

/// Keeps the low `k` bits of every word.
pub fn reduce(isa: Isa, words: &mut [u64], k: u32) {
    mask_loop(isa, words, low_mask(k));
}

/// `out_j = 2^shift values_j` modulo 2^64 (`shift < 64`), zero where there are no more values.
///
/// # Errors
/// [`RingError::Length`] when there are more values than room.
pub fn scale_into(isa: Isa, values: &[i32], shift: u32, out: &mut [u64]) -> Result<(), RingError> {
    if values.len() > out.len() {
        return Err(RingError::Length { what: "values", expected: out.len(), got: values.len() });
    }
    let (head, tail) = out.split_at_mut(values.len());
    scale_loop(isa, values, shift & 63, head);
    tail.fill(0);
    Ok(())
}

/// Rounds the low `u` bits away in place: words modulo 2^k become words modulo 2^(k-u) near `w / 2^u`
/// (halves round up). Bits above `k` are ignored.
///
/// # Errors
/// [`RingError::ModulusBits`] unless `k` is 1 to 64 and `u < k`.
pub fn drop_bits(isa: Isa, words: &mut [u64], u: u32, k: u32) -> Result<(), RingError> {
    crate::error::expect_bits(k)?;
    if u >= k {
        return Err(RingError::ModulusBits(k.saturating_sub(u)));
    }
    if u > 0 {
        drop_loop(isa, words, u, 1 << (u - 1), low_mask(k - u));
    } else {
        mask_loop(isa, words, low_mask(k));
    }
    Ok(())
}

/// Adds a constant to every word modulo 2^k.
pub fn add_constant(isa: Isa, words: &mut [u64], constant: u64, k: u32) {
    add_loop(isa, words, constant, low_mask(k));
}

/// `out_j = 2^shift words_j` modulo 2^64, `shift < 64`.
///
/// # Errors
/// [`RingError::Length`] unless the lengths agree.
pub fn raise_into(isa: Isa, words: &[u64], shift: u32, out: &mut [u64]) -> Result<(), RingError> {
    expect_len("raised words", out.len(), words.len())?;
    raise_loop(isa, words, shift & 63, out);
    Ok(())
}

/// Rounds words modulo 2^k, taken in [-2^(k-1), 2^(k-1)), to the nearest multiple of 2^d (`d < k`): `out` gets the
/// multiples, the result is the largest distance from one.
///
/// # Errors
/// [`RingError::Length`] unless the lengths agree; [`RingError::ModulusBits`] unless `k` is 1 to 64 and `d < k`.
pub fn round_into(isa: Isa, words: &[u64], k: u32, d: u32, out: &mut [i64]) -> Result<u64, RingError> {
    expect_len("rounded words", out.len(), words.len())?;
    crate::error::expect_bits(k)?;
    if d >= k {
        return Err(RingError::ModulusBits(k - 1));
    }
    Ok(if k < 64 { round_loop(isa, words, k, d, out) } else { round_wide_loop(isa, words, 64 - k, d, out) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd;

    #[test]
    fn dropping_rounds_to_nearest_modulo() {
        for isa in simd::available() {
            for (k, u) in [(8, 3), (64, 10), (64, 63), (20, 0), (33, 32)] {
                let values = [0, 1, 3, 4, 5, 11, 12, low_mask(k), low_mask(k) - 4, low_mask(k) / 2];
                let mut words: Vec<u64> =
                    values.iter().map(|v| if k < 64 { v | 1 << 63 } else { *v }).collect();
                drop_bits(isa, &mut words, u, k).unwrap();
                for (v, w) in values.iter().zip(&words) {
                    let exact = (u128::from(v & low_mask(k)) + (1u128 << u >> 1)) >> u;
                    assert_eq!(u128::from(*w), exact & u128::from(low_mask(k - u)), "{isa:?} {v} {k} {u}");
                }
            }
            assert!(drop_bits(isa, &mut [0], 8, 8).is_err());
        }
    }

    #[test]
    fn rounding_gives_the_nearest_multiple_and_the_distance() {
        for isa in simd::available() {
            let mut out = [0; 6];
            let words = [0, 7, 8, low_mask(10), low_mask(10) - 8, 500];
            let largest = round_into(isa, &words, 10, 4, &mut out).unwrap();
            assert_eq!(out, [0, 0, 1, 0, -1, 31]);
            assert_eq!(largest, 8);
            let mut out = [0; 1];
            assert_eq!(round_into(isa, &[1 << 63], 64, 20, &mut out).unwrap(), 0);
            assert_eq!(out, [-(1i64 << 43)]);
            assert!(round_into(isa, &[0], 10, 10, &mut out).is_err());
        }
    }

    #[test]
    fn rounding_has_no_other_values_below_64_bits() {
        for isa in simd::available() {
            for (k, d) in [(1, 0), (2, 1), (10, 4), (47, 31), (63, 0), (63, 62), (63, 30)] {
                let (top, middle) = (1u64 << (k - 1), (1u64 << d) >> 1);
                let edges = [0, middle, top, top.wrapping_sub(middle), low_mask(k), u64::MAX];
                let words: Vec<u64> =
                    edges.iter().flat_map(|e| (0..5).map(|i| e.wrapping_add(i).wrapping_sub(2))).collect();
                let (mut out, mut wide) = (vec![0; words.len()], vec![0; words.len()]);
                let largest = round_into(isa, &words, k, d, &mut out).unwrap();
                assert_eq!(largest, round_wide_loop(isa, &words, 64 - k, d, &mut wide), "{isa:?} {k} {d}");
                assert_eq!(out, wide, "{isa:?} {k} {d}");
            }
        }
    }

    #[test]
    fn scaling_extends_with_zeros_and_wraps() {
        for isa in simd::available() {
            let mut out = [9; 4];
            scale_into(isa, &[-1, i32::MIN, 3], 40, &mut out).unwrap();
            assert_eq!(out, [(-1i64 << 40) as u64, (i64::from(i32::MIN) << 40) as u64, 3 << 40, 0]);
            assert!(scale_into(isa, &[0; 5], 1, &mut out).is_err());
            add_constant(isa, &mut out, u64::MAX, 41);
            assert_eq!(out[3], low_mask(41));
        }
    }
}
