//! AES-128 (FIPS 197) without tables, eight blocks at a time, for machines without AES instructions: bit i of every byte of eight blocks is
//! in plane i, and SubBytes is a circuit of gates on planes (Käsper, Schwabe, "Faster and timing-attack resistant AES-GCM", 2009; the circuit:
//! Boyar, Peralta, "A depth-16 circuit for the AES S-box", 2011). Constant time: gates and moves of bytes whose places are fixed.
#![allow(unsafe_code)]

use std::ops::{BitAnd, BitXor};
use zeroize::Zeroize;

/// A vector of 16 bytes, byte by byte.
pub(crate) trait Plane: Copy + BitXor<Output = Self> + BitAnd<Output = Self> {
    /// The bytes of a little-endian number.
    fn load(bytes: &u128) -> Self;
    /// Writes them as a little-endian number.
    fn store(self, bytes: &mut u128);
    /// Every 64-bit half shifted right.
    fn down(self, bits: u32) -> Self;
    /// Every 64-bit half shifted left.
    fn up(self, bits: u32) -> Self;
    /// ShiftRows: byte r of column c comes from column c + r.
    fn shift_rows(self) -> Self;
    /// ShiftRows, then byte r of each column comes from byte r + 1.
    fn shift_rows_next(self) -> Self;
    /// Byte r of each column comes from byte r + 2.
    fn opposite(self) -> Self;
}

/// Places of [`Plane::shift_rows`] and [`Plane::shift_rows_next`], and of [`Plane::opposite`].
#[cfg(any(test, not(all(target_arch = "wasm32", target_feature = "simd128"))))]
mod words {
    use super::Plane;

    const ROWS: [usize; 16] = [0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11];

    fn moved(x: u128, place: impl Fn(usize) -> usize) -> u128 {
        let bytes = x.to_le_bytes();
        u128::from_le_bytes(std::array::from_fn(|i| bytes[place(i)]))
    }

    fn halves(x: u128, f: impl Fn(u64) -> u64) -> u128 {
        u128::from(f(x as u64)) | u128::from(f((x >> 64) as u64)) << 64
    }

    impl Plane for u128 {
        fn load(bytes: &u128) -> Self {
            *bytes
        }
        fn store(self, bytes: &mut u128) {
            *bytes = self;
        }
        fn down(self, bits: u32) -> Self {
            halves(self, |h| h >> bits)
        }
        fn up(self, bits: u32) -> Self {
            halves(self, |h| h << bits)
        }
        fn shift_rows(self) -> Self {
            moved(self, |i| ROWS[i])
        }
        fn shift_rows_next(self) -> Self {
            moved(self, |i| ROWS[i / 4 * 4 + (i + 1) % 4])
        }
        fn opposite(self) -> Self {
            moved(self, |i| i / 4 * 4 + (i + 2) % 4)
        }
    }
}

/// The planes of WebAssembly's vectors.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) mod simd128 {
    use super::{BitAnd, BitXor, Plane};
    use std::arch::wasm32::*;

    #[derive(Clone, Copy)]
    pub(crate) struct Vector(v128);

    impl BitXor for Vector {
        type Output = Self;
        #[inline(always)]
        fn bitxor(self, other: Self) -> Self {
            Self(v128_xor(self.0, other.0))
        }
    }

    impl BitAnd for Vector {
        type Output = Self;
        #[inline(always)]
        fn bitand(self, other: Self) -> Self {
            Self(v128_and(self.0, other.0))
        }
    }

    impl Plane for Vector {
        #[inline(always)]
        fn load(bytes: &u128) -> Self {
            // SAFETY: 16 bytes that are there.
            Self(unsafe { v128_load(std::ptr::from_ref(bytes).cast()) })
        }
        #[inline(always)]
        fn store(self, bytes: &mut u128) {
            // SAFETY: as above.
            unsafe { v128_store(std::ptr::from_mut(bytes).cast(), self.0) };
        }
        #[inline(always)]
        fn down(self, bits: u32) -> Self {
            Self(u64x2_shr(self.0, bits))
        }
        #[inline(always)]
        fn up(self, bits: u32) -> Self {
            Self(u64x2_shl(self.0, bits))
        }
        #[inline(always)]
        fn shift_rows(self) -> Self {
            Self(i8x16_shuffle::<0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11>(self.0, self.0))
        }
        #[inline(always)]
        fn shift_rows_next(self) -> Self {
            Self(i8x16_shuffle::<5, 10, 15, 0, 9, 14, 3, 4, 13, 2, 7, 8, 1, 6, 11, 12>(self.0, self.0))
        }
        #[inline(always)]
        fn opposite(self) -> Self {
            Self(i8x16_shuffle::<2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13>(self.0, self.0))
        }
    }
}

/// SubBytes without its constant 0x63, which the round keys hold: `x[i]` are bits i. The names are those of the paper.
#[inline(always)]
#[allow(clippy::too_many_lines, reason = "one circuit, gate by gate")]
fn sub_bytes<P: Copy + BitXor<Output = P> + BitAnd<Output = P>>(x: &mut [P; 8]) {
    let [u7, u6, u5, u4, u3, u2, u1, u0] = *x;
    // the top linear layer
    let y14 = u3 ^ u5;
    let y13 = u0 ^ u6;
    let y9 = u0 ^ u3;
    let y8 = u0 ^ u5;
    let t0 = u1 ^ u2;
    let y1 = t0 ^ u7;
    let y4 = y1 ^ u3;
    let y12 = y13 ^ y14;
    let y2 = y1 ^ u0;
    let y5 = y1 ^ u6;
    let y3 = y5 ^ y8;
    let t1 = u4 ^ y12;
    let y15 = t1 ^ u5;
    let y20 = t1 ^ u1;
    let y6 = y15 ^ u7;
    let y10 = y15 ^ t0;
    let y11 = y20 ^ y9;
    let y7 = u7 ^ y11;
    let y17 = y10 ^ y11;
    let y19 = y10 ^ y8;
    let y16 = t0 ^ y11;
    let y21 = y13 ^ y16;
    let y18 = u0 ^ y16;
    // inversion in GF(2^4) of pairs
    let t2 = y12 & y15;
    let t4 = (y3 & y6) ^ t2;
    let t6 = (y4 & u7) ^ t2;
    let t7 = y13 & y16;
    let t9 = (y5 & y1) ^ t7;
    let t11 = (y2 & y7) ^ t7;
    let t12 = y9 & y11;
    let t14 = (y14 & y17) ^ t12;
    let t16 = (y8 & y10) ^ t12;
    let t21 = t4 ^ t14 ^ y20;
    let t22 = t6 ^ t16 ^ y19;
    let t23 = t9 ^ t14 ^ y21;
    let t24 = t11 ^ t16 ^ y18;
    let t25 = t21 ^ t22;
    let t26 = t21 & t23;
    let t27 = t24 ^ t26;
    let t29 = (t25 & t27) ^ t22;
    let t30 = t23 ^ t24;
    let t31 = t22 ^ t26;
    let t33 = (t31 & t30) ^ t24;
    let t34 = t23 ^ t33;
    let t35 = t27 ^ t33;
    let t36 = t24 & t35;
    let t37 = t36 ^ t34;
    let t38 = t27 ^ t36;
    let t40 = t25 ^ (t29 & t38);
    let t41 = t40 ^ t37;
    let t42 = t29 ^ t33;
    let t43 = t29 ^ t40;
    let t44 = t33 ^ t37;
    let t45 = t42 ^ t41;
    let z0 = t44 & y15;
    let z1 = t37 & y6;
    let z2 = t33 & u7;
    let z3 = t43 & y16;
    let z4 = t40 & y1;
    let z5 = t29 & y7;
    let z6 = t42 & y11;
    let z7 = t45 & y17;
    let z8 = t41 & y10;
    let z9 = t44 & y12;
    let z10 = t37 & y3;
    let z11 = t33 & y4;
    let z12 = t43 & y13;
    let z13 = t40 & y5;
    let z14 = t29 & y2;
    let z15 = t42 & y9;
    let z16 = t45 & y14;
    let z17 = t41 & y8;
    // the bottom linear layer
    let t46 = z15 ^ z16;
    let t47 = z10 ^ z11;
    let t48 = z5 ^ z13;
    let t49 = z9 ^ z10;
    let t50 = z2 ^ z12;
    let t51 = z2 ^ z5;
    let t52 = z7 ^ z8;
    let t53 = z0 ^ z3;
    let t54 = z6 ^ z7;
    let t55 = z16 ^ z17;
    let t56 = z12 ^ t48;
    let t57 = t50 ^ t53;
    let t58 = z4 ^ t46;
    let t59 = z3 ^ t54;
    let t60 = t46 ^ t57;
    let t61 = z14 ^ t57;
    let t62 = t52 ^ t58;
    let t63 = t49 ^ t58;
    let t64 = z4 ^ t59;
    let t65 = t61 ^ t62;
    let t66 = z1 ^ t63;
    let s3 = t53 ^ t66;
    *x = [t48 ^ t60, t56 ^ t62, t47 ^ t65, t51 ^ t66, s3, t55 ^ t64 ^ t65, t64 ^ s3, t59 ^ t63];
}

/// Exchanges the bits of `a` that stand `bits` above those of `mask` with the bits of `b` under `mask`.
#[inline(always)]
fn exchange<P: Plane>(a: &mut P, b: &mut P, bits: u32, mask: P) {
    let t = (a.down(bits) ^ *b) & mask;
    *b = *b ^ t;
    *a = *a ^ t.up(bits);
}

/// Eight blocks to planes, and planes to blocks. Here and below planes have names, not indices: the compiler for WebAssembly leaves short loops as
/// they are, with the planes in memory.
#[inline(always)]
fn transpose<P: Plane>(x: &mut [P; 8]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *x;
    let mask = |byte: u8| P::load(&u128::from_le_bytes([byte; 16]));
    let m = mask(0x55);
    exchange(&mut a, &mut b, 1, m);
    exchange(&mut c, &mut d, 1, m);
    exchange(&mut e, &mut f, 1, m);
    exchange(&mut g, &mut h, 1, m);
    let m = mask(0x33);
    exchange(&mut a, &mut c, 2, m);
    exchange(&mut b, &mut d, 2, m);
    exchange(&mut e, &mut g, 2, m);
    exchange(&mut f, &mut h, 2, m);
    let m = mask(0x0f);
    exchange(&mut a, &mut e, 4, m);
    exchange(&mut b, &mut f, 4, m);
    exchange(&mut c, &mut g, 4, m);
    exchange(&mut d, &mut h, 4, m);
    *x = [a, b, c, d, e, f, g, h];
}

/// SubBytes of a word of the key schedule.
fn sub_word(word: u32) -> u32 {
    let mut planes: [u32; 8] = std::array::from_fn(|i| word >> i & 0x0101_0101);
    sub_bytes(&mut planes);
    planes.iter().enumerate().fold(0x6363_6363, |w, (i, p)| w ^ (p & 0x0101_0101) << i)
}

/// The round keys of a key, each a block.
fn expand(key: &[u8; 16]) -> [u128; 11] {
    let mut keys = [0; 11];
    keys[0] = u128::from_le_bytes(*key);
    let mut constant = 1u32;
    for i in 1..11 {
        let mut next = 0;
        let mut word = sub_word(((keys[i - 1] >> 96) as u32).rotate_right(8)) ^ constant;
        for column in 0..4 {
            word ^= (keys[i - 1] >> (32 * column)) as u32;
            next |= u128::from(word) << (32 * column);
        }
        keys[i] = next;
        constant = (constant << 1) ^ (0x11b & 0u32.wrapping_sub(constant >> 7));
    }
    keys
}

/// A key, expanded, in planes. Wiped on drop.
#[derive(Clone)]
pub(crate) struct Schedule {
    rounds: [[u128; 8]; 11],
}

impl Drop for Schedule {
    fn drop(&mut self) {
        self.rounds.iter_mut().for_each(Zeroize::zeroize);
    }
}

impl Schedule {
    pub(crate) fn new(key: &[u8; 16]) -> Self {
        let mut keys = expand(key);
        let rounds = std::array::from_fn(|round| {
            let with = if round == 0 { 0 } else { u128::from_le_bytes([0x63; 16]) };
            let bytes = (keys[round] ^ with).to_le_bytes();
            std::array::from_fn(|bit| {
                u128::from_le_bytes(std::array::from_fn(|i| 0u8.wrapping_sub(bytes[i] >> bit & 1)))
            })
        });
        keys.zeroize();
        Self { rounds }
    }

    /// Encrypts eight blocks in place.
    #[inline(always)]
    pub(crate) fn encrypt<P: Plane>(&self, x: &mut [P; 8]) {
        transpose(x);
        add_key(x, &self.rounds[0]);
        for key in &self.rounds[1..10] {
            sub_bytes(x);
            mix(x);
            add_key(x, key);
        }
        sub_bytes(x);
        x.iter_mut().for_each(|p| *p = p.shift_rows());
        add_key(x, &self.rounds[10]);
        transpose(x);
    }
}

#[inline(always)]
fn add_key<P: Plane>(x: &mut [P; 8], key: &[u128; 8]) {
    let [a, b, c, d, e, f, g, h] = *x;
    let k = |i: usize| P::load(&key[i]);
    *x = [a ^ k(0), b ^ k(1), c ^ k(2), d ^ k(3), e ^ k(4), f ^ k(5), g ^ k(6), h ^ k(7)];
}

/// ShiftRows and MixColumns: with a row and the next one added to t, `2 t`, the next row, and the t of two rows further on.
#[inline(always)]
fn mix<P: Plane>(x: &mut [P; 8]) {
    let [a, b, c, d, e, f, g, h] = *x;
    let part = |x: P| {
        let next = x.shift_rows_next();
        let t = x.shift_rows() ^ next;
        (t, next ^ t.opposite())
    };
    let ((t0, a), (t1, b), (t2, c), (t3, d)) = (part(a), part(b), part(c), part(d));
    let ((t4, e), (t5, f), (t6, g), (t7, h)) = (part(e), part(f), part(g), part(h));
    *x = [a ^ t7, b ^ (t0 ^ t7), c ^ t1, d ^ (t2 ^ t7), e ^ (t3 ^ t7), f ^ t4, g ^ t5, h ^ t6];
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::{BlockEncrypt, KeyInit};

    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    type Tested = simd128::Vector;
    #[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
    type Tested = u128;

    fn check<P: Plane>() {
        for seed in 0..40u8 {
            let key =
                std::array::from_fn(|i| seed.wrapping_mul(91).wrapping_add(37 * i as u8) ^ (i as u8) << 5);
            let mut blocks: [u128; 8] = std::array::from_fn(|i| {
                (u128::from(seed) * 8 + i as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
            });
            let reference = aes::Aes128::new(&key.into());
            let expected = blocks.map(|b| {
                let mut block = b.to_le_bytes().into();
                reference.encrypt_block(&mut block);
                u128::from_le_bytes(block.into())
            });
            let mut planes = blocks.each_ref().map(P::load);
            Schedule::new(&key).encrypt(&mut planes);
            planes.into_iter().zip(&mut blocks).for_each(|(p, b)| p.store(b));
            assert_eq!(blocks, expected, "{key:?}");
        }
    }

    #[test]
    fn planes_encrypt_as_the_reference_does() {
        check::<u128>();
        check::<Tested>();
    }

    #[test]
    fn the_circuit_is_the_substitution_for_every_byte() {
        // In GF(2^8) modulo x^8 + x^4 + x^3 + x + 1: the inverse, then the affine map of FIPS 197, section 5.1.1.
        let times = |a: u8, b: u8| {
            (0..8)
                .fold((0u8, a), |(sum, a), i| {
                    (sum ^ (a & 0u8.wrapping_sub(b >> i & 1)), a << 1 ^ (0x1b & 0u8.wrapping_sub(a >> 7)))
                })
                .0
        };
        for byte in 0..=255u8 {
            let inverse = (0..=255).find(|i| times(byte, *i) == 1).unwrap_or(0);
            let map = (1..5).fold(inverse, |sum, i| sum ^ inverse.rotate_left(i)) ^ 0x63;
            assert_eq!(sub_word(u32::from_le_bytes([byte, 0, !byte, byte])).to_le_bytes()[0], map, "{byte}");
        }
    }
}
