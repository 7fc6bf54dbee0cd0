//! AES-128 counter mode on 256-bit vectors, two blocks a register, for processors that have VAES but not AVX-512 (Zen 3, Alder Lake).
#![allow(unsafe_code)]

use super::Schedule;
use crate::prg::Blocks;
use std::arch::x86_64::*;
use zeroize::Zeroize;

/// Registers in flight.
const V: usize = 8;
/// Words of one batch of keystream.
const BATCH: usize = 4 * V;
/// Generator words of one group of error samples, and samples of a group.
const GROUP: (usize, usize) = (24, 32);

/// Whether this processor has what the functions of this module need.
pub(crate) fn usable() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vaes") && is_x86_feature_detected!("aes")
}

/// Counters of blocks `2 r`, `2 r + 1` in register r.
#[inline]
#[target_feature(enable = "avx2,vaes")]
fn counters<const R: usize>(c: Blocks) -> [__m256i; R] {
    let mut v = [_mm256_setzero_si256(); R];
    for (r, v) in v.iter_mut().enumerate() {
        let mut halves = [0i64; 4];
        for (i, half) in halves.iter_mut().enumerate() {
            let block = (2 * r + i / 2) as u64;
            *half = c.first[i % 2].wrapping_add(c.step[i % 2].wrapping_mul(block)) as i64;
        }
        *v = _mm256_set_epi64x(halves[3], halves[2], halves[1], halves[0]);
    }
    v
}

/// What to add to counters for `blocks` blocks more.
#[inline]
#[target_feature(enable = "avx2,vaes")]
fn stride(c: Blocks, blocks: u64) -> __m256i {
    let (low, high) = (c.step[0].wrapping_mul(blocks) as i64, c.step[1].wrapping_mul(blocks) as i64);
    _mm256_set_epi64x(high, low, high, low)
}

#[inline]
#[target_feature(enable = "avx2,vaes")]
fn round_keys(s: &Schedule) -> [__m256i; 11] {
    let mut keys = [_mm256_setzero_si256(); 11];
    for (key, words) in keys.iter_mut().zip(&s.0) {
        let (low, high) = (words[0] as i64, words[1] as i64);
        *key = _mm256_set_epi64x(high, low, high, low);
    }
    keys
}

#[inline]
#[target_feature(enable = "avx2,vaes")]
fn encrypt<const R: usize>(mut v: [__m256i; R], keys: &[__m256i; 11]) -> [__m256i; R] {
    for x in &mut v {
        *x = _mm256_xor_si256(*x, keys[0]);
    }
    for key in &keys[1..10] {
        for x in &mut v {
            *x = _mm256_aesenc_epi128(*x, *key);
        }
    }
    for x in &mut v {
        *x = _mm256_aesenclast_epi128(*x, keys[10]);
    }
    v
}

/// `out` becomes the keystream's words, masked.
///
/// # Safety
/// Needs what [`usable`] tells.
#[target_feature(enable = "avx2,vaes")]
pub(crate) unsafe fn keystream(s: &Schedule, counter: Blocks, mask: u64, out: &mut [u64]) {
    let keys = round_keys(s);
    let mask = _mm256_set1_epi64x(mask as i64);
    let mut c: [__m256i; V] = counters(counter);
    let stride = stride(counter, BATCH as u64 / 2);
    let (chunks, tail) = out.as_chunks_mut::<BATCH>();
    for chunk in chunks {
        for (i, v) in encrypt(c, &keys).into_iter().enumerate() {
            // SAFETY: the chunk has 4 V words.
            unsafe { _mm256_storeu_si256(chunk.as_mut_ptr().add(4 * i).cast(), _mm256_and_si256(v, mask)) };
        }
        for x in &mut c {
            *x = _mm256_add_epi64(*x, stride);
        }
    }
    if !tail.is_empty() {
        let mut buffer = [0u64; BATCH];
        for (i, v) in encrypt(c, &keys).into_iter().enumerate() {
            // SAFETY: the buffer has 4 V words.
            unsafe { _mm256_storeu_si256(buffer.as_mut_ptr().add(4 * i).cast(), _mm256_and_si256(v, mask)) };
        }
        tail.copy_from_slice(&buffer[..tail.len()]);
        buffer.zeroize();
    }
}

/// Ones of every word, by a table of nibbles.
#[inline]
#[target_feature(enable = "avx2,vaes")]
fn ones(x: __m256i) -> __m256i {
    let table = _mm256_broadcastsi128_si256(_mm_set_epi8(4, 3, 3, 2, 3, 2, 2, 1, 3, 2, 2, 1, 2, 1, 1, 0));
    let nibble = _mm256_set1_epi8(15);
    let low = _mm256_shuffle_epi8(table, _mm256_and_si256(x, nibble));
    let high = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16::<4>(x), nibble));
    _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256())
}

/// Adds the error samples of one group, 24 generator words, to 32 words.
#[inline]
#[target_feature(enable = "avx2,vaes")]
fn add_samples(random: [__m256i; 6], words: &mut [u64; GROUP.1]) {
    let low42 = _mm256_set1_epi64x((1 << 42) - 1);
    let low42_above_22 = _mm256_set1_epi64x(((1 << 20) - 1) << 22);
    let centre = _mm256_set1_epi64x(-21);
    for i in 0..8 {
        let coins = if i < 6 {
            _mm256_and_si256(random[i], low42)
        } else {
            _mm256_or_si256(
                _mm256_srli_epi64::<42>(random[i - 6]),
                _mm256_and_si256(_mm256_srli_epi64::<20>(random[i - 4]), low42_above_22),
            )
        };
        let e = _mm256_add_epi64(ones(coins), centre);
        // SAFETY: 4 i + 4 <= 32.
        unsafe {
            let at = words.as_mut_ptr().add(4 * i);
            _mm256_storeu_si256(at.cast(), _mm256_add_epi64(_mm256_loadu_si256(at.cast()), e));
        }
    }
}

/// The vector form of [`crate::sample::centred_binomial_add`].
///
/// # Safety
/// Needs what [`usable`] tells.
#[target_feature(enable = "avx2,vaes")]
pub(crate) unsafe fn centred_binomial_add(s: &Schedule, counter: Blocks, words: &mut [u64]) {
    let keys = round_keys(s);
    let mut c: [__m256i; GROUP.0 / 4] = counters(counter);
    let stride = stride(counter, GROUP.0 as u64 / 2);
    let (chunks, tail) = words.as_chunks_mut::<{ GROUP.1 }>();
    for chunk in chunks {
        add_samples(encrypt(c, &keys), chunk);
        for x in &mut c {
            *x = _mm256_add_epi64(*x, stride);
        }
    }
    if !tail.is_empty() {
        let mut buffer = [0; GROUP.1];
        buffer[..tail.len()].copy_from_slice(tail);
        add_samples(encrypt(c, &keys), &mut buffer);
        tail.copy_from_slice(&buffer[..tail.len()]);
        buffer.zeroize();
    }
}
