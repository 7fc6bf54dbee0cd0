//! Cutting words into byte limbs with two-source byte permutations.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "counted loops over registers unroll fully")]

use crate::limbs::Lane;
use std::arch::x86_64::*;

/// Low bytes of the pairs `(a, b)` of a 64-bit element's two halves, for limbs 0, 1 (and 2, 3 in the second table).
const PAIRS: [[u8; 64]; 2] = [pair_table(0), pair_table(2)];
/// 16-bit pairs of `ab` and `cd` interleaved: first limb, second limb.
const JOIN: [[u8; 64]; 2] = [join_table(0), join_table(4)];

const fn pair_table(limb: u8) -> [u8; 64] {
    let order = [limb, 64 + limb, 4 + limb, 68 + limb, limb + 1, 65 + limb, 5 + limb, 69 + limb];
    per_element(order)
}

const fn join_table(at: u8) -> [u8; 64] {
    per_element([at, at + 1, at + 64, at + 65, at + 2, at + 3, at + 66, at + 67])
}

const fn per_element(order: [u8; 8]) -> [u8; 64] {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = order[i % 8] + (i as u8 / 8) * 8;
        i += 1;
    }
    table
}

/// Packs `blocks` whole blocks of sixteen words of four rows; the caller has checked for VBMI.
pub(crate) fn pack_blocks(
    limbs: usize,
    block_lanes: usize,
    rows: [Option<&[u64]>; 4],
    blocks: usize,
    out: &mut [Lane],
) {
    assert!(rows.iter().flatten().all(|r| r.len() >= blocks * 16));
    assert!(out.len() >= (blocks - 1) * block_lanes + limbs);
    let rows = rows.map(|r| r.map_or(std::ptr::null(), <[u64]>::as_ptr));
    let out = out.as_mut_ptr();
    // SAFETY: rows and output reach as far as the blocks do (checked above), and the caller
    // dispatches here only where VBMI exists.
    unsafe {
        match limbs {
            1 => pack::<1>(block_lanes, rows, blocks, out),
            2 => pack::<2>(block_lanes, rows, blocks, out),
            3 => pack::<3>(block_lanes, rows, blocks, out),
            4 => pack::<4>(block_lanes, rows, blocks, out),
            5 => pack::<5>(block_lanes, rows, blocks, out),
            6 => pack::<6>(block_lanes, rows, blocks, out),
            7 => pack::<7>(block_lanes, rows, blocks, out),
            _ => pack::<8>(block_lanes, rows, blocks, out),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn pack<const L: usize>(block_lanes: usize, rows: [*const u64; 4], blocks: usize, out: *mut Lane) {
    // SAFETY: the caller vouches for `blocks` blocks of sixteen words behind every non-null row
    // and for `L` lanes at every block of the output.
    unsafe {
        let load_table = |t: &[u8; 64]| _mm512_loadu_si512(t.as_ptr().cast());
        let pairs = [load_table(&PAIRS[0]), load_table(&PAIRS[1])];
        let join = [load_table(&JOIN[0]), load_table(&JOIN[1])];
        for block in 0..blocks {
            let mut x = [_mm512_setzero_si512(); 8];
            for r in 0..4 {
                if !rows[r].is_null() {
                    x[r] = _mm512_loadu_si512(rows[r].add(block * 16).cast());
                    x[r + 4] = _mm512_loadu_si512(rows[r].add(block * 16 + 8).cast());
                }
            }
            let out = out.add(block * block_lanes);
            for half in 0..2 {
                if L <= 4 * half {
                    break;
                }
                let mut u = [_mm512_setzero_si512(); 4];
                for r in 0..4 {
                    u[r] = if half == 0 {
                        _mm512_mask_shuffle_epi32::<0xA0>(x[r], 0xAAAA, x[r + 4])
                    } else {
                        _mm512_mask_shuffle_epi32::<0xF5>(x[r + 4], 0x5555, x[r])
                    };
                }
                for pair in 0..2 {
                    let limb = 4 * half + 2 * pair;
                    if L <= limb {
                        break;
                    }
                    let ab = _mm512_permutex2var_epi8(u[0], pairs[pair], u[1]);
                    let cd = _mm512_permutex2var_epi8(u[2], pairs[pair], u[3]);
                    let first = _mm512_permutex2var_epi8(ab, join[0], cd);
                    _mm512_store_si512(out.add(limb).cast(), first);
                    if L > limb + 1 {
                        let second = _mm512_permutex2var_epi8(ab, join[1], cd);
                        _mm512_store_si512(out.add(limb + 1).cast(), second);
                    }
                }
            }
        }
    }
}
