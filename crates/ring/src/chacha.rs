//! ChaCha with twelve rounds (Bernstein, "ChaCha, a variant of Salsa20", 2008), four blocks at a time: the generator where AES has no
//! instructions. Twelve rounds and a key of 256 bits are what the standard generator of Rust's `rand` has; the best
//! attack known reaches between seven and eight. Constant time: additions, exclusive ors, fixed rotations.

use zeroize::Zeroize;

/// Words of 64 bits that four blocks are.
const WORDS: usize = 32;
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use simd128::Four;
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
use words::Four;

/// The vectors of WebAssembly.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128 {
    use std::arch::wasm32::*;

    /// A word of four blocks.
    #[derive(Clone, Copy)]
    pub(super) struct Four(v128);

    impl Four {
        #[inline(always)]
        pub(super) fn new(x: [u32; 4]) -> Self {
            Self(u32x4(x[0], x[1], x[2], x[3]))
        }
        #[inline(always)]
        pub(super) fn add(self, y: Self) -> Self {
            Self(i32x4_add(self.0, y.0))
        }
        #[inline(always)]
        pub(super) fn xor_turn<const BY: u32>(self, y: Self) -> Self {
            let x = v128_xor(self.0, y.0);
            Self(match BY {
                16 => i8x16_shuffle::<2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13>(x, x),
                8 => i8x16_shuffle::<3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14>(x, x),
                _ => v128_or(u32x4_shl(x, BY), u32x4_shr(x, 32 - BY)),
            })
        }
        /// Of two neighbouring words, each block's 64-bit word.
        #[inline(always)]
        pub(super) fn pairs(self, next: Self) -> [u64; 4] {
            let low = i32x4_shuffle::<0, 4, 1, 5>(self.0, next.0);
            let high = i32x4_shuffle::<2, 6, 3, 7>(self.0, next.0);
            [
                u64x2_extract_lane::<0>(low),
                u64x2_extract_lane::<1>(low),
                u64x2_extract_lane::<0>(high),
                u64x2_extract_lane::<1>(high),
            ]
        }
    }
}

#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod words {
    /// A word of four blocks.
    #[derive(Clone, Copy)]
    pub(super) struct Four([u32; 4]);

    impl Four {
        pub(super) fn new(x: [u32; 4]) -> Self {
            Self(x)
        }
        pub(super) fn add(self, y: Self) -> Self {
            Self(std::array::from_fn(|i| self.0[i].wrapping_add(y.0[i])))
        }
        pub(super) fn xor_turn<const BY: u32>(self, y: Self) -> Self {
            Self(std::array::from_fn(|i| (self.0[i] ^ y.0[i]).rotate_left(BY)))
        }
        /// Of two neighbouring words, each block's 64-bit word.
        pub(super) fn pairs(self, next: Self) -> [u64; 4] {
            std::array::from_fn(|i| u64::from(self.0[i]) | u64::from(next.0[i]) << 32)
        }
    }
}

/// A keyed generator. No `Debug`; the key is wiped on drop.
pub(crate) struct ChaCha {
    key: [u32; 8],
}

impl Drop for ChaCha {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

#[inline(always)]
fn quarter(x: &mut [Four; 16], [a, b, c, d]: [usize; 4]) {
    x[a] = x[a].add(x[b]);
    x[d] = x[d].xor_turn::<16>(x[a]);
    x[c] = x[c].add(x[d]);
    x[b] = x[b].xor_turn::<12>(x[c]);
    x[a] = x[a].add(x[b]);
    x[d] = x[d].xor_turn::<8>(x[a]);
    x[c] = x[c].add(x[d]);
    x[b] = x[b].xor_turn::<7>(x[c]);
}

impl ChaCha {
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let words = key.as_chunks::<4>().0;
        Self { key: std::array::from_fn(|i| u32::from_le_bytes(words[i])) }
    }

    /// Four blocks from a number of a block on, word by word.
    #[inline(always)]
    fn blocks<const DOUBLE_ROUNDS: usize>(&self, first: u64, out: &mut [u64; WORDS]) {
        let mut start = [Four::new([0; 4]); 16];
        for (x, word) in start.iter_mut().zip(CONSTANTS.iter().chain(&self.key)) {
            *x = Four::new([*word; 4]);
        }
        let counters: [u64; 4] = std::array::from_fn(|i| first.wrapping_add(i as u64));
        start[12] = Four::new(counters.map(|c| c as u32));
        start[13] = Four::new(counters.map(|c| (c >> 32) as u32));
        let mut x = start;
        for _ in 0..DOUBLE_ROUNDS {
            // Not in a loop: the compiler for WebAssembly would leave it, with the words in memory.
            quarter(&mut x, [0, 4, 8, 12]);
            quarter(&mut x, [1, 5, 9, 13]);
            quarter(&mut x, [2, 6, 10, 14]);
            quarter(&mut x, [3, 7, 11, 15]);
            quarter(&mut x, [0, 5, 10, 15]);
            quarter(&mut x, [1, 6, 11, 12]);
            quarter(&mut x, [2, 7, 8, 13]);
            quarter(&mut x, [3, 4, 9, 14]);
        }
        for i in 0..8 {
            let words = x[2 * i].add(start[2 * i]).pairs(x[2 * i + 1].add(start[2 * i + 1]));
            for (block, word) in words.into_iter().enumerate() {
                out[8 * block + i] = word;
            }
        }
    }

    /// Words of the stream from a block of 64 bytes on.
    pub(crate) fn keystream(&self, first: u64, out: &mut [u64]) {
        let mut room = [0; WORDS];
        let (whole, rest) = out.as_chunks_mut::<WORDS>();
        for (i, words) in whole.iter_mut().enumerate() {
            self.blocks::<6>(first.wrapping_add(4 * i as u64), words);
        }
        if !rest.is_empty() {
            self.blocks::<6>(first.wrapping_add(4 * whole.len() as u64), &mut room);
            rest.copy_from_slice(&room[..rest.len()]);
            room.zeroize();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(words: &[u64]) -> String {
        words.iter().flat_map(|w| w.to_le_bytes()).map(|b| format!("{b:02x}")).collect()
    }

    /// The key of zeros: published streams of 20 rounds (RFC 8439, A.1, vectors 1 and 2) and of 12 (eSTREAM's).
    #[test]
    fn streams_are_the_published_ones() {
        let zero = ChaCha::new(&[0; 32]);
        let mut out = [0; WORDS];
        zero.blocks::<10>(0, &mut out);
        let twenty = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586\
                      9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f";
        assert_eq!(hex(&out[..16]), twenty);
        let twelve = "9bf49a6a0755f953811fce125f2683d50429c3bb49e074147e0089a52eae155f0564f879d27ae3c02ce82834acfa8c793a629f2ca0de6919610be82f411326be";
        zero.keystream(0, &mut out);
        assert_eq!(hex(&out[..8]), twelve);
    }

    /// The counter has 64 bits, each block its own, and the key is all 32 bytes.
    #[test]
    fn places_of_the_stream_do_not_depend_on_what_is_asked() {
        let chacha = ChaCha::new(&std::array::from_fn(|i| i as u8));
        let mut whole = vec![0; 200];
        chacha.keystream(u64::from(u32::MAX) - 5, &mut whole);
        for (block, len) in [(0, 1), (1, 8), (3, 33), (6, 64), (24, 8)] {
            let mut part = vec![0; len];
            chacha.keystream(u64::from(u32::MAX) - 5 + block, &mut part);
            assert_eq!(part, whole[8 * block as usize..][..len]);
        }
        let distinct: std::collections::HashSet<_> = whole.chunks(8).collect();
        assert_eq!(distinct.len(), 25);
        for byte in 0..32 {
            let mut other: [u8; 32] = std::array::from_fn(|i| i as u8);
            other[byte] ^= 1;
            let mut words = vec![0; 8];
            ChaCha::new(&other).keystream(u64::from(u32::MAX) - 5, &mut words);
            assert_ne!(words, whole[..8]);
        }
    }
}
