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

/// XORs into row i the entries at the byte offsets `offsets[..][i]` of neighbouring groups.
///
/// # Safety
/// There are at least as many offsets of each kind as rows, and every offset is a multiple of 16 below the groups' bytes.
#[inline]
pub(super) unsafe fn add_picks<const G: usize, const N: usize>(
    groups: &[Block],
    offsets: [&[u32; N]; G],
    rows: &mut [Block],
) {
    let base = groups.as_ptr().cast::<u8>();
    for (i, row) in rows.iter_mut().enumerate().take(N) {
        let mut sum = from_u128(*row);
        for offsets in offsets {
            // SAFETY: the offset names a whole entry of the groups; blocks are 16-byte aligned.
            let entry = unsafe { _mm_load_si128(base.add(offsets[i] as usize).cast()) };
            sum = _mm_xor_si128(sum, entry);
        }
        *row = to_u128(sum);
    }
}

/// The groups of a local code's table, `together` at a time (fewer in the end): the number of the first, the groups, and those to fetch while they are
/// worked on. These are empty behind the last group, and where there are too few rows to read most of a group. The first groups are asked for here.
#[inline]
pub(super) fn groups(
    table: &[Block],
    log_group: u32,
    together: usize,
    rows: usize,
) -> impl Iterator<Item = (u64, &[Block], &[Block])> {
    let many = rows >= 1 << log_group;
    let parts = move || table.chunks(together << log_group);
    if many {
        parts().take(1).for_each(|first| fetch(first, 0, 1));
    }
    let next = parts().skip(1).chain([&[][..]]);
    let both = parts().zip(next).enumerate();
    both.map(move |(i, (now, next))| ((i * together) as u64, now, if many { next } else { &[] }))
}

/// Asks the first-level cache for blocks that are read next.
pub(super) fn read_next(blocks: &[Block]) {
    const LINE: usize = 4;
    for line in blocks.chunks(LINE) {
        // SAFETY: the first block of a line; nothing is read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
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
