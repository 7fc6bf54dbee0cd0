//! AES-128 in bulk, on the fastest constant-time path that every machine of the target has; vectors of x86 have their own (`vaes`).

#![allow(unsafe_code)]

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::bitslice::{simd128::Vector, Plane, Schedule};
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
use aes::cipher::{BlockEncrypt, KeyInit};
use zeroize::Zeroize;

/// Blocks of a keystream encrypted in one go.
const BULK: usize = 32;

/// A keyed AES-128 (FIPS 197). No `Debug`; the key schedule is wiped on drop. Constant time.
#[derive(Clone)]
pub struct Aes128 {
    /// Of the `aes` crate, with AES instructions where there are any.
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    cipher: aes::Aes128,
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    cipher: Schedule,
}

impl Aes128 {
    /// Expands a key of 16 bytes to the round keys of the target's path, once for any number of blocks.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
        let cipher = aes::Aes128::new(&(*key).into());
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        let cipher = Schedule::new(key);
        Self { cipher }
    }

    /// Encrypts blocks in place; the bytes of a block are those of the number, least first.
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    pub fn encrypt(&self, blocks: &mut [u128]) {
        let order = |blocks: &mut [u128]| blocks.iter_mut().for_each(|b| *b = b.to_le());
        order(blocks);
        // SAFETY: a block of the cipher is an array of 16 bytes without demands on its place, and any 16 bytes are a number and a block.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast::<aes::Block>(), blocks.len()) };
        self.cipher.encrypt_blocks(bytes);
        order(blocks);
    }

    /// Encrypts blocks in place; the bytes of a block are those of the number, least first.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    pub fn encrypt(&self, blocks: &mut [u128]) {
        for chunk in blocks.chunks_mut(8) {
            let mut planes = [Vector::load(&0); 8];
            for (p, x) in planes.iter_mut().zip(chunk.iter()) {
                *p = Vector::load(x);
            }
            self.cipher.encrypt(&mut planes);
            for (x, p) in chunk.iter_mut().zip(planes) {
                p.store(x);
            }
        }
    }
}

/// Encrypts the numbers `first + i step`, halves each modulo 2^64, and writes the masked halves.
pub(crate) fn keystream(cipher: &Aes128, counters: crate::prg::Blocks, mask: u64, out: &mut [u64]) {
    let mut blocks = [0u128; BULK];
    let half = |h: usize, i: u64| counters.first[h].wrapping_add(counters.step[h].wrapping_mul(i));
    for (c, chunk) in out.chunks_mut(2 * BULK).enumerate() {
        let used = &mut blocks[..chunk.len().div_ceil(2)];
        for (i, block) in used.iter_mut().enumerate() {
            let i = (c * BULK + i) as u64;
            *block = u128::from(half(0, i)) | u128::from(half(1, i)) << 64;
        }
        cipher.encrypt(used);
        for (words, both) in chunk.chunks_mut(2).zip(used.iter()) {
            for (word, half) in words.iter_mut().zip([*both as u64, (*both >> 64) as u64]) {
                *word = half & mask;
            }
        }
    }
    blocks.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_count_are_those_of_the_standard() {
        let bytes = |first: u8, step: u8| std::array::from_fn::<u8, 16, _>(|i| first + step * i as u8);
        let cipher = Aes128::new(&bytes(0, 1));
        // FIPS 197, appendix C.1.
        let mut standard = [u128::from_le_bytes(bytes(0, 0x11))];
        cipher.encrypt(&mut standard);
        assert_eq!(standard[0], 0x5ac5_b470_80b7_cdd8_3004_7b6a_d8e0_c469);
        for count in [0, 1, 2, 7, 8, 9, 31, 32, 33, 100] {
            let plain: Vec<u128> = (0..count).map(|i| 0x0123_4567_89ab_cdef_u128 << (i % 64) ^ i).collect();
            let mut at_once = plain.clone();
            cipher.encrypt(&mut at_once);
            for (i, p) in plain.into_iter().enumerate() {
                let mut alone = [p];
                cipher.encrypt(&mut alone);
                assert_eq!(at_once[i], alone[0], "block {i} of {count}");
            }
        }
    }
}
