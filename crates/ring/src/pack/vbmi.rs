//! Eight words at a time with AVX-512 VBMI byte permutations: eight words of k bits are k whole bytes.
#![allow(unsafe_code)]

use crate::low_mask;
use std::arch::x86_64::*;

/// Byte tables of one width, in words `j = 0..8` that start at bit `j k`.
#[repr(align(64))]
struct Layout {
    /// Source bytes of the 64-bit window that starts at the first byte of word j.
    window: [u8; 64],
    /// The same for the eight bytes behind it.
    behind: [u8; 64],
    /// For every packed byte the byte (of the shifted words, 0..64, or of what left them, 64 + 8 j) that covers
    /// its low bits.
    first: [u8; 64],
    /// The first byte of the word that covers the high bits of a packed byte shared by two words.
    second: [u8; 64],
    /// Which packed bytes are shared.
    shared: u64,
    /// `j k mod 8`.
    shift: [u64; 8],
}

const fn layout(k: usize) -> Layout {
    let zero = [0; 64];
    let mut l = Layout { window: zero, behind: zero, first: zero, second: zero, shared: 0, shift: [0; 8] };
    let mut j = 0;
    while j < 8 {
        let start = j * k / 8;
        l.shift[j] = (j * k % 8) as u64;
        let mut i = 0;
        while i < 8 {
            l.window[8 * j + i] = ((start + i) % 64) as u8;
            l.behind[8 * j + i] = ((start + 8 + i) % 64) as u8;
            i += 1;
        }
        // Bytes that word j touches: the last one may also be the first of word j + 1.
        let end = ((j + 1) * k).div_ceil(8);
        let mut t = start;
        while t < end {
            let within = t - start;
            if t == start && !(j * k).is_multiple_of(8) {
                l.second[t] = (8 * j) as u8;
                l.shared |= 1 << t;
            } else {
                l.first[t] = if within < 8 { (8 * j + within) as u8 } else { (64 + 8 * j) as u8 };
            }
            t += 1;
        }
        j += 1;
    }
    l
}

/// Layouts of all widths from [`NARROWEST`] on.
static LAYOUTS: [Layout; 57] = {
    let mut all = [const { layout(64) }; 57];
    let mut k = NARROWEST;
    while k < 64 {
        all[k - NARROWEST] = layout(k);
        k += 1;
    }
    all
};

/// Narrower words share bytes three at a time.
pub(super) const NARROWEST: usize = 8;

/// Unpacks the first words, a multiple of eight; returns how many.
///
/// # Safety
/// Needs AVX-512 F, BW, VBMI, VBMI2; `bytes` holds the packed words of `out`, k at least [`NARROWEST`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn unpack(bytes: &[u8], k: u32, out: &mut [u64]) -> usize {
    let l = &LAYOUTS[k as usize - NARROWEST];
    let k_bytes = k as usize;
    let groups = out.len() / 8;
    assert!(bytes.len() >= groups * k_bytes);
    let only = low_mask(k);
    // SAFETY: a group reads its own k bytes (masked), or 64 where there are as many; it writes its eight words.
    unsafe {
        let vector = |t: &[u8; 64]| _mm512_loadu_si512(t.as_ptr().cast());
        let (window, behind) = (vector(&l.window), vector(&l.behind));
        let shift = _mm512_loadu_si512(l.shift.as_ptr().cast());
        let mask = _mm512_set1_epi64(only as i64);
        for g in 0..groups {
            let at = g * k_bytes;
            let source: *const i8 = bytes.as_ptr().add(at).cast();
            let packed = if at + 64 <= bytes.len() {
                _mm512_loadu_si512(source.cast())
            } else {
                _mm512_maskz_loadu_epi8(only, source)
            };
            let low = _mm512_permutexvar_epi8(window, packed);
            // Above 57 bits a word may reach into a ninth byte.
            let words = if k > 57 {
                _mm512_shrdv_epi64(low, _mm512_permutexvar_epi8(behind, packed), shift)
            } else {
                _mm512_srlv_epi64(low, shift)
            };
            _mm512_storeu_si512(out.as_mut_ptr().add(8 * g).cast(), _mm512_and_si512(words, mask));
        }
    }
    8 * groups
}

/// Packs the first words, a multiple of eight; returns how many.
///
/// # Safety
/// Needs AVX-512 F, BW, VBMI; `out` has room for all packed words, k at least [`NARROWEST`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn pack(words: &[u64], k: u32, out: &mut [u8]) -> usize {
    let l = &LAYOUTS[k as usize - NARROWEST];
    let k_bytes = k as usize;
    let groups = words.len() / 8;
    assert!(out.len() >= groups * k_bytes);
    let only = low_mask(k);
    // SAFETY: a group reads its eight words; it writes its own k bytes (masked), or 64 where there are as many, of
    // which later groups overwrite all behind the first k.
    unsafe {
        let vector = |t: &[u8; 64]| _mm512_loadu_si512(t.as_ptr().cast());
        let (first, second) = (vector(&l.first), vector(&l.second));
        let shift = _mm512_loadu_si512(l.shift.as_ptr().cast());
        let left = _mm512_sub_epi64(_mm512_set1_epi64(64), shift);
        let mask = _mm512_set1_epi64(only as i64);
        for g in 0..groups {
            let word = _mm512_and_si512(_mm512_loadu_si512(words.as_ptr().add(8 * g).cast()), mask);
            let shifted = _mm512_sllv_epi64(word, shift);
            let covered = if k > 57 {
                // Shifts by 64 give zero.
                _mm512_permutex2var_epi8(shifted, first, _mm512_srlv_epi64(word, left))
            } else {
                _mm512_permutexvar_epi8(first, shifted)
            };
            let packed = _mm512_or_si512(covered, _mm512_maskz_permutexvar_epi8(l.shared, second, shifted));
            let at = g * k_bytes;
            let target: *mut i8 = out.as_mut_ptr().add(at).cast();
            if at + 64 <= out.len() {
                _mm512_storeu_si512(target.cast(), packed);
            } else {
                _mm512_mask_storeu_epi8(target, only, packed);
            }
        }
    }
    8 * groups
}
