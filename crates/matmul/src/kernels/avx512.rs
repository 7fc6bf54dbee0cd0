//! Whole words in 512-bit vectors: 52-bit multiply-add (IFMA) or 64-bit low products.
#![allow(unsafe_code)]

use super::words::{copied, Column};
use super::{Wanted, WordPanel};
use crate::scratch::Scratch;
use std::arch::x86_64::*;
use std::ops::Range;

/// Most rows of weights that a register tile holds.
pub(crate) const ROWS: usize = 12;
/// Words of a tile of many rows, of at most [`FEW`] rows, and of one row.
const NARROW: usize = 16;
const WIDE: usize = 32;
const WIDEST: usize = 64;
const FEW: usize = 5;

macro_rules! word_kernels {
    ($module:ident, $features:literal, $step:expr) => {
        pub(crate) mod $module {
            use super::*;

            type Micro = unsafe fn(&[Column], usize, *const u64, &[u64; ROWS], u64, &[*mut u64; ROWS]);

            /// One register tile of `R` rows by `V` vectors.
            #[target_feature(enable = $features)]
            unsafe fn micro<const R: usize, const V: usize>(
                columns: &[Column],
                offset: usize,
                panel: *const u64,
                start: &[u64; ROWS],
                mask: u64,
                out: &[*mut u64; ROWS],
            ) {
                // SAFETY: the caller vouches for `8 V` words at `offset` of every column, for `R` weights of
                // every column index, and for room for `8 V` words behind every output pointer.
                unsafe {
                    let mut acc = [[_mm512_setzero_si512(); V]; R];
                    for r in 0..R {
                        acc[r] = [_mm512_set1_epi64(start[r] as i64); V];
                    }
                    for (words, index) in columns {
                        let mut x = [_mm512_setzero_si512(); V];
                        for v in 0..V {
                            x[v] = _mm512_loadu_si512(words.add(offset + 8 * v).cast());
                        }
                        let weights = panel.add(index * R);
                        for r in 0..R {
                            let w = _mm512_set1_epi64(weights.add(r).read() as i64);
                            for v in 0..V {
                                acc[r][v] = $step(acc[r][v], x[v], w);
                            }
                        }
                    }
                    let mask = _mm512_set1_epi64(mask as i64);
                    for r in 0..R {
                        for v in 0..V {
                            let masked = _mm512_and_si512(acc[r][v], mask);
                            _mm512_storeu_si512(out[r].add(8 * v).cast(), masked);
                        }
                    }
                }
            }

            fn pick(rows: usize, words: usize) -> Micro {
                match (rows, words) {
                    (1, WIDEST) => micro::<1, 8>,
                    (1, WIDE) => micro::<1, 4>,
                    (2, WIDE) => micro::<2, 4>,
                    (3, WIDE) => micro::<3, 4>,
                    (4, WIDE) => micro::<4, 4>,
                    (5, WIDE) => micro::<5, 4>,
                    (1, _) => micro::<1, 2>,
                    (2, _) => micro::<2, 2>,
                    (3, _) => micro::<3, 2>,
                    (4, _) => micro::<4, 2>,
                    (5, _) => micro::<5, 2>,
                    (6, _) => micro::<6, 2>,
                    (7, _) => micro::<7, 2>,
                    (8, _) => micro::<8, 2>,
                    (9, _) => micro::<9, 2>,
                    (10, _) => micro::<10, 2>,
                    (11, _) => micro::<11, 2>,
                    _ => micro::<12, 2>,
                }
            }

            /// The wanted rows, all words. The caller has checked lengths and instructions.
            pub(crate) fn multiply(
                panel: &WordPanel,
                outputs: Range<usize>,
                rows: &[Option<&[u64]>],
                start: &[u64],
                mask: u64,
                out: &mut [&mut [u64]],
                scratch: &mut Scratch,
            ) {
                if panel.blocks.iter().all(|b| b.1 == 1) {
                    let wanted = Wanted::<WIDEST>::new(outputs, out, start, ROWS);
                    run(panel, wanted, rows, mask, scratch);
                } else if panel.blocks.iter().all(|b| b.1 <= FEW) {
                    let wanted = Wanted::<WIDE>::new(outputs, out, start, ROWS);
                    run(panel, wanted, rows, mask, scratch);
                } else {
                    let wanted = Wanted::<NARROW>::new(outputs, out, start, ROWS);
                    run(panel, wanted, rows, mask, scratch);
                }
            }

            fn run<const W: usize>(
                panel: &WordPanel,
                mut wanted: Wanted<W>,
                rows: &[Option<&[u64]>],
                mask: u64,
                scratch: &mut Scratch,
            ) {
                let words = wanted.words();
                let Scratch { words: copy, columns, .. } = scratch;
                columns.clear();
                columns.extend(rows.iter().enumerate().filter_map(|(k, r)| r.map(|r| (r.as_ptr(), k))));
                for at in (0..words).step_by(W) {
                    let count = W.min(words - at);
                    // Columns that are read again by another row block, or end early, are copied together once.
                    let (list, offset): (&[Column], usize) = if count < W || panel.blocks.len() > 1 {
                        (copied::<W>(columns, at, count, copy), 0)
                    } else {
                        (&columns[..], at)
                    };
                    for &(first, r, begin) in &panel.blocks {
                        if wanted.none_of(first, r) {
                            continue;
                        }
                        let pointers = wanted.pointers::<ROWS>(first, r, at);
                        let start = wanted.constants::<ROWS>(first, r);
                        let weights = panel.values[begin..begin + r * rows.len()].as_ptr();
                        // SAFETY: every row is as long as the outputs (checked by the caller), a short last
                        // tile is read from its padded copy and written to spare room.
                        unsafe { pick(r, W)(list, offset, weights, &start, mask, &pointers) };
                        wanted.finish(first, r, at);
                    }
                }
            }
        }
    };
}

word_kernels!(ifma, "avx512f,avx512ifma", |acc, x, w| _mm512_madd52lo_epu64(acc, x, w));
word_kernels!(mullo, "avx512f,avx512dq", |acc, x, w| _mm512_add_epi64(acc, _mm512_mullo_epi64(x, w)));
