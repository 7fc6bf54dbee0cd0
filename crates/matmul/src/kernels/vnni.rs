//! Products of byte limbs, four to a 32-bit lane (`vpdpbusd`).
//!
//! A register tile holds all limbs of sixteen words for a few rows of weights, so the sums turn into
//! words without leaving registers.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "counted loops over registers unroll fully")]

use super::recombine::wide::fold;
use super::tiles::{LimbCall, Segment};
use super::{row_blocks, Wanted};
use crate::limbs::BLOCK;
use crate::weights::balanced_limb;
use crate::Weights;
use std::arch::x86_64::*;

/// Most rows of weights of a register tile, by used limbs: rows * limbs accumulators, one
/// register for every row's weights and one for the words fit in 32 registers.
const ROWS: [usize; 9] = [1, 12, 10, 7, 6, 5, 4, 3, 3];
const MOST: usize = 12;

/// Weights of one limb as four bytes of a 32-bit lane: `[row block][quad][row in block]`.
struct LimbPanel {
    /// `(first row, rows, start in values)`.
    blocks: Vec<(usize, usize, usize)>,
    values: Vec<i32>,
}

/// Weights of all limbs.
pub(crate) struct QuadPanel {
    limbs: Vec<LimbPanel>,
    quads: usize,
}

impl QuadPanel {
    /// For words of `limbs` limbs; `segments` are the columns `(first, count)` of every segment.
    pub(crate) fn new(w: &Weights, limbs: usize, segments: &[(usize, usize)]) -> Self {
        let quads = segments.iter().map(|s| s.1.div_ceil(4)).sum();
        let panels = (0..w.limbs().min(limbs)).map(|j| {
            let mut panel = LimbPanel { blocks: Vec::new(), values: Vec::new() };
            for (start, rows) in row_blocks(w.rows(), ROWS[limbs - j]) {
                panel.blocks.push((start, rows, panel.values.len()));
                for &(first, count) in segments {
                    for quad in 0..count.div_ceil(4) {
                        panel.values.extend((start..start + rows).map(|m| {
                            let column = |b: usize| {
                                let c = 4 * quad + b;
                                if c < count {
                                    balanced_limb(w.row(m)[first + c], j) as u8
                                } else {
                                    0
                                }
                            };
                            i32::from_le_bytes([column(0), column(1), column(2), column(3)])
                        }));
                    }
                }
            }
            panel
        });
        Self { limbs: panels.collect(), quads }
    }
}

/// Arguments that all register tiles of a call share.
struct Shared<'a> {
    segments: &'a [Segment],
    /// Lanes from quad to quad.
    stride: usize,
    mask: u64,
}

type Micro = unsafe fn(&Shared, usize, *const i32, u32, Option<&[u64; MOST]>, &[*mut u64; MOST]);

/// `R` rows by the `L` low limbs of sixteen words. `start`: constants, or `None` to add to the output.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn micro<const L: usize, const R: usize>(
    shared: &Shared,
    block: usize,
    panel: *const i32,
    shift: u32,
    start: Option<&[u64; MOST]>,
    out: &[*mut u64; MOST],
) {
    // SAFETY: the caller vouches for every segment's lanes in this block, for `R` weights of every quad, and for
    // sixteen words behind every output pointer.
    unsafe {
        let mut acc = [[_mm512_setzero_si512(); L]; R];
        for segment in shared.segments {
            let mut lanes: *const __m512i = segment.base.add(block * segment.block_lanes).cast();
            let mut weights = panel.add(segment.weights * R);
            for _ in 0..segment.quads {
                let mut w = [_mm512_setzero_si512(); R];
                for r in 0..R {
                    w[r] = _mm512_set1_epi32(weights.add(r).read());
                }
                for l in 0..L {
                    let x = _mm512_load_si512(lanes.add(l));
                    for r in 0..R {
                        acc[r][l] = _mm512_dpbusd_epi32(acc[r][l], x, w[r]);
                    }
                }
                lanes = lanes.add(shared.stride);
                weights = weights.add(R);
            }
        }
        let mask = _mm512_set1_epi64(shared.mask as i64);
        let count = _mm_cvtsi32_si128(shift as i32);
        for r in 0..R {
            let (low, high) = fold(&acc[r]);
            let (first, second) = match start {
                Some(s) => {
                    let s = _mm512_set1_epi64(s[r] as i64);
                    (s, s)
                }
                None => (_mm512_loadu_si512(out[r].cast()), _mm512_loadu_si512(out[r].add(8).cast())),
            };
            let low = _mm512_add_epi64(first, _mm512_sll_epi64(low, count));
            let high = _mm512_add_epi64(second, _mm512_sll_epi64(high, count));
            _mm512_storeu_si512(out[r].cast(), _mm512_and_si512(low, mask));
            _mm512_storeu_si512(out[r].add(8).cast(), _mm512_and_si512(high, mask));
        }
    }
}

macro_rules! pick {
    ($limbs:expr, $rows:expr; $($l:literal: $($r:literal)*;)*) => {
        match $limbs {
            $($l => match $rows { $($r => micro::<$l, $r>,)* _ => micro::<1, 1>, },)*
            _ => micro::<1, 1>,
        }
    };
}

fn pick(limbs: usize, rows: usize) -> Micro {
    pick!(limbs, rows;
        1: 1 2 3 4 5 6 7 8 9 10 11 12;
        2: 1 2 3 4 5 6 7 8 9 10;
        3: 1 2 3 4 5 6 7;
        4: 1 2 3 4 5 6;
        5: 1 2 3 4 5;
        6: 1 2 3 4;
        7: 1 2 3;
        8: 1 2 3;
    )
}

/// Runs one product. The caller has checked lengths and instructions.
pub(crate) fn multiply(panel: &QuadPanel, segments: &[Segment], call: &LimbCall, out: &mut [&mut [u64]]) {
    let shared = Shared { segments, stride: call.limbs, mask: call.mask };
    let mut wanted = Wanted::<BLOCK>::new(call.outputs.clone(), out, call.start, MOST);
    for block in call.blocks.clone() {
        let at = (block - call.blocks.start) * BLOCK;
        for (j, limb) in panel.limbs.iter().enumerate() {
            for &(first, rows, begin) in &limb.blocks {
                if wanted.none_of(first, rows) {
                    continue;
                }
                let pointers = wanted.pointers::<MOST>(first, rows, at);
                let constants = wanted.constants::<MOST>(first, rows);
                let start = (j == 0 && !call.add).then_some(&constants);
                let weights = limb.values[begin..begin + rows * panel.quads].as_ptr();
                let micro = pick(call.limbs - j, rows);
                // SAFETY: `pick` has every pair that `ROWS` allows; lanes, weights and outputs were checked.
                unsafe { micro(&shared, block, weights, 8 * j as u32, start, &pointers) };
                wanted.finish(first, rows, at);
            }
        }
    }
}
