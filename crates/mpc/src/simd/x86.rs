//! What the paths of x86-64 share: the AES key schedule, casts, the sums of the sparse code.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::block::Block;

/// Round keys of AES-128.
pub(super) type RoundKeys = [Block; 11];

/// The round keys of a key.
#[target_feature(enable = "aes,sse2")]
pub(super) fn expand(key: Block) -> RoundKeys {
    let mut k = [0u128; 11];
    k[0] = key;
    let mut prev = from_u128(key);
    macro_rules! round {
        ($i:expr, $rcon:expr) => {
            let assist = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$rcon>(prev));
            prev = _mm_xor_si128(prev, _mm_slli_si128::<4>(prev));
            prev = _mm_xor_si128(prev, _mm_slli_si128::<8>(prev));
            prev = _mm_xor_si128(prev, assist);
            k[$i] = to_u128(prev);
        };
    }
    round!(1, 0x01);
    round!(2, 0x02);
    round!(3, 0x04);
    round!(4, 0x08);
    round!(5, 0x10);
    round!(6, 0x20);
    round!(7, 0x40);
    round!(8, 0x80);
    round!(9, 0x1b);
    round!(10, 0x36);
    k
}

/// The block as a register.
#[inline]
pub(super) fn from_u128(x: Block) -> __m128i {
    // SAFETY: both are 16 plain bytes, in the same (little-endian) order.
    unsafe { std::mem::transmute(x) }
}

/// The register as a block.
#[inline]
pub(super) fn to_u128(x: __m128i) -> Block {
    // SAFETY: as above.
    unsafe { std::mem::transmute(x) }
}

/// Rows of the sparse code per batch.
pub(super) const ROWS: usize = 32;

/// Blocks of randomness that name the entries of a batch.
pub(super) const PICKS: usize = ROWS * 10 / 4;

/// XORs into row i the table's entries at the byte offsets 10 i..10 i + 10.
///
/// # Safety
/// Every offset is a multiple of 16 below the table's bytes.
#[inline]
pub(super) unsafe fn add_rows(table: &[Block], offsets: &[u32; 4 * PICKS], rows: &mut [Block]) {
    let base = table.as_ptr().cast::<u8>();
    for (o, p) in rows.iter_mut().zip(offsets.chunks_exact(10)) {
        // SAFETY: every offset names a whole entry inside the table; blocks are 16-byte aligned.
        unsafe {
            let at = |i: usize| _mm_load_si128(base.add(p[i] as usize).cast());
            let a = _mm_xor_si128(_mm_xor_si128(at(0), at(1)), _mm_xor_si128(at(2), at(3)));
            let b = _mm_xor_si128(_mm_xor_si128(at(4), at(5)), _mm_xor_si128(at(6), at(7)));
            let c = _mm_xor_si128(_mm_xor_si128(at(8), at(9)), from_u128(*o));
            *o = to_u128(_mm_xor_si128(_mm_xor_si128(a, b), c));
        }
    }
}
