//! AES-128 counter mode on 512-bit vectors, four blocks a register, and what is made from the stream without
//! it ever leaving the registers.
#![allow(unsafe_code)]

pub(crate) mod narrow;

use crate::prg::Blocks;
use std::arch::x86_64::*;
use zeroize::Zeroize;

/// Words of one batch of keystream: eight registers.
const BATCH: usize = 64;
/// Error samples of one batch: two groups of the sampler.
const SAMPLES: usize = 64;

/// The eleven round keys. Wiped on drop.
pub(crate) struct Schedule([[u64; 2]; 11]);

impl Drop for Schedule {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// One step of the AES-128 key expansion.
#[inline]
#[target_feature(enable = "aes,avx")]
fn expand<const ROUND: i32>(key: __m128i) -> __m128i {
    let mix = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<ROUND>(key));
    let key = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
    let key = _mm_xor_si128(key, _mm_slli_si128::<8>(key));
    _mm_xor_si128(key, mix)
}

impl Schedule {
    /// # Safety
    /// Needs AES and AVX.
    #[target_feature(enable = "aes,avx")]
    pub(crate) unsafe fn new(key: &[u8; 16]) -> Self {
        // SAFETY: reads 16 bytes.
        let mut k = unsafe { _mm_loadu_si128(key.as_ptr().cast()) };
        let mut keys = [[0; 2]; 11];
        let mut put = |i: usize, k: __m128i| {
            keys[i] = [_mm_cvtsi128_si64(k) as u64, _mm_extract_epi64::<1>(k) as u64];
        };
        put(0, k);
        macro_rules! rounds {
            ($($i:literal $c:literal),*) => { $( k = expand::<$c>(k); put($i, k); )* };
        }
        rounds!(1 0x01, 2 0x02, 3 0x04, 4 0x08, 5 0x10, 6 0x20, 7 0x40, 8 0x80, 9 0x1b, 10 0x36);
        Self(keys)
    }
}

/// Four blocks of counters: lane l of register r is block `4 r + l`.
// Loops, not `map`: what it calls would not be inlined, for it has none of these features itself.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn counters<const V: usize>(c: Blocks) -> [__m512i; V] {
    let mut lanes = [0i64; 8];
    for (i, lane) in lanes.iter_mut().enumerate() {
        let (blocks, half) = (i as u64 / 2, i % 2);
        *lane = c.first[half].wrapping_add(c.step[half].wrapping_mul(blocks)) as i64;
    }
    let four = stride(c, 4);
    // SAFETY: eight words are read.
    let mut v = [unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }; V];
    for r in 1..V {
        v[r] = _mm512_add_epi64(v[r - 1], four);
    }
    v
}

#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn round_keys(s: &Schedule) -> [__m512i; 11] {
    let mut keys = [_mm512_setzero_si512(); 11];
    for (key, &[low, high]) in keys.iter_mut().zip(&s.0) {
        *key = _mm512_broadcast_i32x4(_mm_set_epi64x(high as i64, low as i64));
    }
    keys
}

#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn encrypt<const V: usize>(mut v: [__m512i; V], keys: &[__m512i; 11]) -> [__m512i; V] {
    for x in &mut v {
        *x = _mm512_xor_si512(*x, keys[0]);
    }
    for key in &keys[1..10] {
        for x in &mut v {
            *x = _mm512_aesenc_epi128(*x, *key);
        }
    }
    for x in &mut v {
        *x = _mm512_aesenclast_epi128(*x, keys[10]);
    }
    v
}

/// What to add to counters for `blocks` blocks more.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn stride(c: Blocks, blocks: u64) -> __m512i {
    let low = c.step[0].wrapping_mul(blocks) as i64;
    let high = c.step[1].wrapping_mul(blocks) as i64;
    _mm512_set_epi64(high, low, high, low, high, low, high, low)
}

/// `out` becomes the keystream's words, masked.
///
/// # Safety
/// Needs AVX-512 F and VAES.
#[target_feature(enable = "avx512f,vaes")]
pub(crate) unsafe fn keystream(s: &Schedule, counter: Blocks, mask: u64, out: &mut [u64]) {
    const V: usize = BATCH / 8;
    let keys = round_keys(s);
    let mask = _mm512_set1_epi64(mask as i64);
    let mut c: [__m512i; V] = counters(counter);
    let stride = stride(counter, BATCH as u64 / 2);
    let mut chunks = out.chunks_exact_mut(BATCH);
    for chunk in &mut chunks {
        for (i, v) in encrypt(c, &keys).into_iter().enumerate() {
            // SAFETY: the chunk has 8 V words.
            unsafe { _mm512_storeu_si512(chunk.as_mut_ptr().add(8 * i).cast(), _mm512_and_si512(v, mask)) };
        }
        for x in &mut c {
            *x = _mm512_add_epi64(*x, stride);
        }
    }
    let tail = chunks.into_remainder();
    if !tail.is_empty() {
        let mut buffer = [0u64; BATCH];
        for (i, v) in encrypt(c, &keys).into_iter().enumerate() {
            // SAFETY: the buffer has 8 V words.
            unsafe { _mm512_storeu_si512(buffer.as_mut_ptr().add(8 * i).cast(), _mm512_and_si512(v, mask)) };
        }
        tail.copy_from_slice(&buffer[..tail.len()]);
        buffer.zeroize();
    }
}

/// Adds the error samples of two groups, 48 generator words, to 64 words.
#[inline]
#[target_feature(enable = "avx512f,avx512vpopcntdq,vaes")]
fn add_samples(random: [__m512i; 6], words: &mut [u64; SAMPLES]) {
    let low42 = _mm512_set1_epi64((1 << 42) - 1);
    let low42_above_22 = _mm512_set1_epi64(((1 << 20) - 1) << 22);
    let centre = _mm512_set1_epi64(-21);
    for g in 0..2 {
        let [a, b, c] = [random[3 * g], random[3 * g + 1], random[3 * g + 2]];
        let rest = _mm512_or_si512(
            _mm512_srli_epi64::<42>(a),
            _mm512_and_si512(_mm512_srli_epi64::<20>(b), low42_above_22),
        );
        let coins =
            [_mm512_and_si512(a, low42), _mm512_and_si512(b, low42), _mm512_and_si512(c, low42), rest];
        for (i, x) in coins.into_iter().enumerate() {
            let e = _mm512_add_epi64(_mm512_popcnt_epi64(x), centre);
            // SAFETY: 32 g + 8 i + 8 <= 64.
            unsafe {
                let at = words.as_mut_ptr().add(32 * g + 8 * i);
                _mm512_storeu_si512(at.cast(), _mm512_add_epi64(_mm512_loadu_si512(at.cast()), e));
            }
        }
    }
}

/// The vector form of [`crate::sample::centred_binomial_add`].
///
/// # Safety
/// Needs AVX-512 F, VPOPCNTDQ and VAES.
#[target_feature(enable = "avx512f,avx512vpopcntdq,vaes")]
pub(crate) unsafe fn centred_binomial_add(s: &Schedule, counter: Blocks, words: &mut [u64]) {
    let keys = round_keys(s);
    let mut c: [__m512i; 6] = counters(counter);
    let stride = stride(counter, 24);
    let (chunks, tail) = words.as_chunks_mut::<SAMPLES>();
    for chunk in chunks {
        add_samples(encrypt(c, &keys), chunk);
        for x in &mut c {
            *x = _mm512_add_epi64(*x, stride);
        }
    }
    if !tail.is_empty() {
        let mut buffer = [0; SAMPLES];
        buffer[..tail.len()].copy_from_slice(tail);
        add_samples(encrypt(c, &keys), &mut buffer);
        tail.copy_from_slice(&buffer[..tail.len()]);
        buffer.zeroize();
    }
}
