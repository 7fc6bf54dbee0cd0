//! What the paths of x86-64 share: the AES key schedule, casts, the sums of the local code.
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

/// XORs into row i the group's entry at the byte offset `offsets[i]`.
///
/// # Safety
/// There are at least as many offsets as rows, and every offset is a multiple of 16 below the group's bytes.
#[inline]
pub(super) unsafe fn add_picks(group: &[Block], offsets: &[u32], rows: &mut [Block]) {
    let base = group.as_ptr().cast::<u8>();
    for (row, &offset) in rows.iter_mut().zip(offsets) {
        // SAFETY: the offset names a whole entry of the group; blocks are 16-byte aligned.
        let entry = unsafe { _mm_load_si128(base.add(offset as usize).cast()) };
        *row = to_u128(_mm_xor_si128(from_u128(*row), entry));
    }
}

/// The groups of a local code's table with their numbers, each with the group to fetch while it is worked on. That one is empty behind the last
/// group, and where there are too few rows to read most of a group. The first group is asked for here.
#[inline]
pub(super) fn groups(
    table: &[Block],
    log_group: u32,
    rows: usize,
) -> impl Iterator<Item = (u64, &[Block], &[Block])> {
    let many = rows >= 1 << log_group;
    let next = table.chunks_exact(1 << log_group).skip(1).chain([&[][..]]);
    if many {
        fetch(&table[..1 << log_group], 0, 1);
    }
    let both = table.chunks_exact(1 << log_group).zip(next);
    both.enumerate().map(move |(j, (group, next))| (j as u64, group, if many { next } else { &[] }))
}

/// Asks the second-level cache for part `i` of `parts` of a group: what all rows will read at random places is then there, and comes in order.
#[inline]
pub(super) fn fetch(group: &[Block], i: usize, parts: usize) {
    const LINE: usize = 4;
    let step = group.len().div_ceil(parts).next_multiple_of(LINE);
    for at in (i * step..group.len().min((i + 1) * step)).step_by(LINE) {
        // SAFETY: a block of the group; nothing is read.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(group.as_ptr().add(at).cast()) };
    }
}
