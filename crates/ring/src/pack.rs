//! Words of k bits, packed without gaps: bit `i` of word `j` is bit `j k + i` of the byte string,
//! little-endian (`docs/wire-protocol.md`).

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod vbmi;

use crate::error::{expect_bits, expect_len};
use crate::{low_mask, simd, Isa, RingError};

/// Bytes of `n` packed words of `k` bits.
#[must_use]
pub fn packed_len(n: usize, k: u32) -> usize {
    (n * k as usize).div_ceil(8)
}

/// Packs the low `k` bits of every word; bits behind the last word are zero.
///
/// # Errors
/// [`RingError::ModulusBits`] unless `k` is 1 to 64; [`RingError::Length`] unless `out` has
/// [`packed_len`] bytes.
pub fn pack(words: &[u64], k: u32, out: &mut [u8]) -> Result<(), RingError> {
    pack_with(simd::isa(), words, k, out)
}

/// [`pack`] on an explicit instruction set.
///
/// # Errors
/// As [`pack`].
pub fn pack_with(isa: Isa, words: &[u64], k: u32, out: &mut [u8]) -> Result<(), RingError> {
    expect_bits(k)?;
    expect_len("packed bytes", out.len(), packed_len(words.len(), k))?;
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if isa.usable() >= Isa::Ifma && k as usize >= vbmi::NARROWEST {
        // SAFETY: `Isa::Ifma` includes the instructions; lengths and width were checked.
        done = unsafe { vbmi::pack(words, k, out) };
    }
    let _ = isa;
    // `done` is a multiple of eight, so the rest starts at a byte.
    pack_portable(&words[done..], k, &mut out[done * k as usize / 8..]);
    Ok(())
}

/// Reads `out.len()` words of `k` bits.
///
/// # Errors
/// [`RingError::ModulusBits`] unless `k` is 1 to 64; [`RingError::Length`] unless `bytes` has
/// [`packed_len`] bytes.
pub fn unpack(bytes: &[u8], k: u32, out: &mut [u64]) -> Result<(), RingError> {
    unpack_with(simd::isa(), bytes, k, out)
}

/// [`unpack`] on an explicit instruction set.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_with(isa: Isa, bytes: &[u8], k: u32, out: &mut [u64]) -> Result<(), RingError> {
    expect_bits(k)?;
    expect_len("packed bytes", bytes.len(), packed_len(out.len(), k))?;
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if isa.usable() >= Isa::Ifma && k as usize >= vbmi::NARROWEST {
        // SAFETY: `Isa::Ifma` includes the instructions; lengths and width were checked.
        done = unsafe { vbmi::unpack(bytes, k, out) };
    }
    let _ = isa;
    unpack_portable(&bytes[done * k as usize / 8..], k, &mut out[done..]);
    Ok(())
}

/// Sixteen bytes at `at` become `value`; bytes behind it are written again by what follows.
#[inline(always)]
fn put(out: &mut [u8], at: usize, value: u128) {
    if let Some(place) = out.get_mut(at..).and_then(|o| o.first_chunk_mut::<16>()) {
        *place = value.to_le_bytes();
    }
}

/// Whole groups of eight words of at most 32 bits, which are `k` bytes, as long as 16 bytes may be written behind the place of the second four;
/// returns the words done.
#[inline(always)]
fn pack_groups<const K: u32>(words: &[u64], k: u32, out: &mut [u8]) -> usize {
    let k = if K > 0 { K } else { k };
    let (mask, bytes) = (low_mask(k), k as usize);
    let (groups, _) = words.as_chunks::<8>();
    let groups = &groups[..groups.len().min((out.len().saturating_sub(bytes / 2 + 16)) / bytes)];
    for (g, w) in groups.iter().enumerate() {
        let pair = |i: usize| u128::from((w[i] & mask) | (w[i + 1] & mask) << k);
        let (low, high) = (pair(0) | pair(2) << (2 * k), pair(4) | pair(6) << (2 * k));
        // Four words are k/2 bytes, and half a byte more where k is odd.
        let (low, high) = if k % 2 == 0 { (low, high) } else { (low | high << (4 * k), high >> 4) };
        put(out, g * bytes, low);
        put(out, g * bytes + bytes.div_ceil(2), high);
    }
    8 * groups.len()
}

/// [`pack_groups`] for words of at most 56 bits: each is written as eight bytes with what the word before it left of its last byte, and without a
/// branch, as long as eight bytes may be written where the last word begins.
#[inline(always)]
fn pack_wide_groups<const K: u32>(words: &[u64], out: &mut [u8]) -> usize {
    let k = K;
    let (mask, size) = (low_mask(k), k as usize);
    let (groups, _) = words.as_chunks::<8>();
    let groups = &groups[..groups.len().min(out.len().saturating_sub(8) / size)];
    for (g, group) in groups.iter().enumerate() {
        let place = &mut out[g * size..g * size + size + 8];
        let mut left = 0;
        for (j, word) in group.iter().enumerate() {
            let (at, next) = (j * size / 8, (j + 1) * size / 8);
            let value = left | (word & mask) << (j * size % 8);
            if let Some(o) = place.get_mut(at..).and_then(|o| o.first_chunk_mut::<8>()) {
                *o = value.to_le_bytes();
            }
            left = value >> (8 * (next - at));
        }
    }
    8 * groups.len()
}

/// Calls a function for the width that `k` is, of those in the list: shifts and places are constants then.
macro_rules! by_width {
    ($k:expr, $function:ident $arguments:tt, [$($width:literal)*], $otherwise:expr) => {
        match $k {
            $($width => $function::<$width> $arguments,)*
            _ => $otherwise,
        }
    };
}

fn pack_portable(words: &[u64], k: u32, out: &mut [u8]) {
    let done = by_width!(k, pack_groups(words, k, out), [25 26 27 28 29 30 31 32], {
        if k < 32 {
            pack_groups::<0>(words, k, out)
        } else {
            by_width!(
                k,
                pack_wide_groups(words, out),
                [33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56],
                0
            )
        }
    });
    pack_words(&words[done..], k, &mut out[done * k as usize / 8..]);
}

fn pack_words(words: &[u64], k: u32, out: &mut [u8]) {
    let mask = low_mask(k);
    let (mut pending, mut filled) = (0u64, 0u32);
    let (chunks, tail) = out.as_chunks_mut::<8>();
    let mut chunks = chunks.iter_mut();
    for word in words {
        let word = word & mask;
        pending |= word << filled;
        filled += k;
        if filled >= 64 {
            filled -= 64;
            if let Some(chunk) = chunks.next() {
                *chunk = pending.to_le_bytes();
                // `word << (k - filled)` went out; the top `filled` bits of the word remain.
                pending = if filled == 0 { 0 } else { word >> (k - filled) };
            }
        }
    }
    let bytes = pending.to_le_bytes();
    match chunks.next() {
        Some(chunk) => *chunk = bytes,
        None => tail.copy_from_slice(&bytes[..tail.len()]),
    }
}

/// Whole groups of eight words of at most 57 bits as long as eight bytes may be read from where the last word begins; returns the words done.
#[inline(always)]
fn unpack_groups<const K: u32>(bytes: &[u8], k: u32, out: &mut [u64]) -> usize {
    let k = if K > 0 { K } else { k };
    let (mask, size) = (low_mask(k), k as usize);
    let (groups, _) = out.as_chunks_mut::<8>();
    let safe = bytes.len().saturating_sub(8) / size;
    let mut done = 0;
    for group in groups.iter_mut().take(safe) {
        let at = done * size;
        let piece = &bytes[at..at + size + 8];
        for (j, word) in group.iter_mut().enumerate() {
            let bit = j * size;
            let eight = piece[bit / 8..].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
            *word = eight >> (bit % 8) & mask;
        }
        done += 1;
    }
    8 * done
}

fn unpack_portable(bytes: &[u8], k: u32, out: &mut [u64]) {
    let done = by_width!(
        k,
        unpack_groups(bytes, k, out),
        [25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56],
        if k < 58 { unpack_groups::<0>(bytes, k, out) } else { 0 }
    );
    unpack_words(&bytes[done * k as usize / 8..], k, &mut out[done..]);
}

fn unpack_words(bytes: &[u8], k: u32, out: &mut [u64]) {
    let mask = low_mask(k);
    let mut bit = 0;
    for word in out {
        let (byte, shift) = (bit / 8, (bit % 8) as u32);
        // Nine bytes cover a word; the last words have fewer behind them.
        let mut nine = [0; 16];
        let rest = &bytes[byte..bytes.len().min(byte + 9)];
        nine[..rest.len()].copy_from_slice(rest);
        *word = (u128::from_le_bytes(nine) >> shift) as u64 & mask;
        bit += k as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prg;

    /// Bit by bit, straight from the definition.
    fn pack_naive(words: &[u64], k: u32) -> Vec<u8> {
        let mut out = vec![0; packed_len(words.len(), k)];
        for (j, w) in words.iter().enumerate() {
            for i in 0..k as usize {
                let bit = j * k as usize + i;
                out[bit / 8] |= ((w >> i & 1) as u8) << (bit % 8);
            }
        }
        out
    }

    #[test]
    fn every_width_every_path_equals_the_definition() {
        let mut prg = Prg::from_seed([8; 16]);
        for k in 1..=64 {
            for len in [0, 1, 2, 7, 8, 9, 63, 64, 65, 200, 513] {
                let mut words = vec![0; len];
                prg.fill_words(&mut words);
                let expected = pack_naive(&words, k);
                for isa in simd::available() {
                    let mut bytes = vec![0xaa; expected.len()];
                    pack_with(isa, &words, k, &mut bytes).unwrap();
                    assert_eq!(bytes, expected, "{isa:?} k={k} len={len}");
                    let mut back = vec![0; len];
                    unpack_with(isa, &bytes, k, &mut back).unwrap();
                    assert!(
                        back.iter().zip(&words).all(|(b, w)| *b == w & low_mask(k)),
                        "{isa:?} k={k} len={len}"
                    );
                }
            }
        }
    }

    #[test]
    fn wrong_lengths_and_widths_are_refused() {
        assert!(matches!(pack(&[0; 8], 0, &mut []), Err(RingError::ModulusBits(0))));
        assert!(matches!(pack(&[0; 8], 65, &mut [0; 65]), Err(RingError::ModulusBits(65))));
        assert!(matches!(pack(&[0; 8], 9, &mut [0; 8]), Err(RingError::Length { expected: 9, got: 8, .. })));
        assert!(matches!(
            unpack(&[0; 10], 9, &mut [0; 8]),
            Err(RingError::Length { expected: 9, got: 10, .. })
        ));
    }
}
