//! Words in 16-bit digits, in 256-bit vectors: `vpmaddwd` multiplies digits of two columns by their weights and adds the pair.
//!
//! A word `x < 2^(16 D)` has unsigned digits `e_l`; with `d_l = e_l - 2^15` as signed ones, `x = sum_l d_l 2^(16 l) + C`,
//! `C = sum_l 2^(15 + 16 l)`, so that `W x = sum_l 2^(16 l) (W d_l) + C sum_k W_k`, where the last term is a constant of the row. Sums of
//! `W d_l` are exact in 32 bits as long as `sum_k |W_k| < 2^16`; longer sums are cut into runs.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "counted loops over registers unroll fully")]

use super::{row_blocks, Wanted};
use crate::limbs::Lane;
use crate::scratch::Scratch;
use crate::Weights;
use std::arch::x86_64::*;
use std::ops::Range;

/// Words of a register tile.
const WIDTH: usize = 8;
/// Most rows of a register tile, with two digits.
const ROWS: usize = 6;
/// Largest sum of magnitudes of weights whose products with digits sum within 32 bits: (2^16 - 1) 2^15 < 2^31.
const MAX_L1: u32 = (1 << 16) - 1;
/// Turns unsigned digits into signed ones.
const FLIP: u64 = 0x8000_8000_8000_8000;

/// Digits of a word: at least two, which is what the kernels are made for.
pub(crate) fn digits_for(word_bits: u32) -> usize {
    word_bits.div_ceil(16).max(2) as usize
}

/// Rows of a register tile: twelve accumulators in all.
fn tile_rows(digits: usize) -> usize {
    12 / digits
}

/// Rows that lie together, and the runs of pairs within 32-bit sums.
struct Block {
    first: usize,
    rows: usize,
    /// Where its weights begin.
    begin: usize,
    /// Ends of the runs.
    runs: Vec<usize>,
}

/// Weights as `[row block][pair of columns][row in block]`, two 16-bit weights an element.
pub(crate) struct PairPanel {
    digits: usize,
    /// The two columns of a pair; the last may stand alone. A column with the weight -2^15 is there twice, with halves of its weights, so
    /// that no pair exceeds [`MAX_L1`].
    pairs: Vec<(usize, Option<usize>)>,
    blocks: Vec<Block>,
    values: Vec<u32>,
    /// Sum of every row's weights.
    sums: Vec<i64>,
    weights: Weights,
}

impl PairPanel {
    pub(crate) fn new(w: &Weights, word_bits: u32) -> Self {
        let digits = digits_for(word_bits);
        // (column, which half of it; 0: all of it)
        let mut sources = Vec::with_capacity(w.columns());
        for k in 0..w.columns() {
            if (0..w.rows()).any(|m| w.row(m)[k] == i16::MIN) {
                sources.extend([(k, 1), (k, 2)]);
            } else {
                sources.push((k, 0));
            }
        }
        let part = |m: usize, &(k, half): &(usize, u32)| {
            let weight = w.row(m)[k];
            match half {
                0 => weight,
                1 => weight / 2,
                _ => weight - weight / 2,
            }
        };
        let mut panel = Self {
            digits,
            pairs: sources.chunks(2).map(|p| (p[0].0, p.get(1).map(|s| s.0))).collect(),
            blocks: Vec::new(),
            values: Vec::with_capacity(w.rows() * sources.len().div_ceil(2)),
            sums: (0..w.rows()).map(|m| w.row(m).iter().map(|v| i64::from(*v)).sum()).collect(),
            weights: w.clone(),
        };
        for (first, rows) in row_blocks(w.rows(), tile_rows(digits)) {
            let (begin, mut runs, mut l1) = (panel.values.len(), Vec::new(), [0u32; ROWS]);
            for (p, pair) in sources.chunks(2).enumerate() {
                let mut own = [0; ROWS];
                for (r, own) in own.iter_mut().enumerate().take(rows) {
                    let low = part(first + r, &pair[0]);
                    let high = pair.get(1).map_or(0, |s| part(first + r, s));
                    *own = u32::from(low.unsigned_abs()) + u32::from(high.unsigned_abs());
                    panel.values.push(u32::from(low as u16) | u32::from(high as u16) << 16);
                }
                if l1.iter().zip(&own).any(|(a, b)| a + b > MAX_L1) {
                    runs.push(p);
                    l1 = [0; ROWS];
                }
                l1.iter_mut().zip(&own).for_each(|(a, b)| *a += b);
            }
            runs.push(panel.pairs.len());
            panel.blocks.push(Block { first, rows, begin, runs });
        }
        panel
    }

    /// `C sum_k W_mk` over the columns that are there.
    fn offset(&self, m: usize, absent: &[usize]) -> u64 {
        let missing: i64 = absent.iter().map(|k| i64::from(self.weights.row(m)[*k])).sum();
        let kept = hushnet_ring::low_mask((16 * self.digits as u32).min(64));
        (FLIP & kept).wrapping_mul((self.sums[m] - missing) as u64)
    }
}

type Micro = unsafe fn(&Tile<'_>, &[*mut u64; ROWS]);

/// What a register tile is told: packed pairs, which pairs of the panel they are, and the weights of the row block.
struct Tile<'a> {
    digits: *const Lane,
    pairs: Range<usize>,
    present: &'a [u32],
    weights: *const u32,
    mask: u64,
}

/// Adds one run's products to eight words of `R` rows.
///
/// # Safety
/// AVX2; `D` half lanes for every pair in `pairs`, `R` weights for every pair of the panel, eight words behind every output.
#[target_feature(enable = "avx2")]
unsafe fn micro<const R: usize, const D: usize>(tile: &Tile<'_>, out: &[*mut u64; ROWS]) {
    // SAFETY: as promised by the caller.
    unsafe {
        let mut acc = [[_mm256_setzero_si256(); D]; R];
        let from: *const __m256i = tile.digits.cast();
        for i in tile.pairs.clone() {
            let weights = tile.weights.add(*tile.present.get_unchecked(i) as usize * R);
            let mut x = [_mm256_setzero_si256(); D];
            for d in 0..D {
                x[d] = _mm256_load_si256(from.add(i * D + d));
            }
            for r in 0..R {
                let w = _mm256_set1_epi32(weights.add(r).read() as i32);
                for d in 0..D {
                    acc[r][d] = _mm256_add_epi32(acc[r][d], _mm256_madd_epi16(x[d], w));
                }
            }
        }
        let mask = _mm256_set1_epi64x(tile.mask as i64);
        for r in 0..R {
            for half in 0..2 {
                let place: *mut __m256i = out[r].add(4 * half).cast();
                let mut sum = _mm256_loadu_si256(place);
                for d in 0..D {
                    let own = if half == 0 { acc[r][d] } else { _mm256_srli_epi64::<32>(acc[r][d]) };
                    // The product sign-extends its low half.
                    sum = _mm256_add_epi64(
                        sum,
                        match d {
                            0 => _mm256_mul_epi32(own, _mm256_set1_epi64x(1)),
                            1 => _mm256_mul_epi32(own, _mm256_set1_epi64x(1 << 16)),
                            2 => _mm256_slli_epi64::<32>(own),
                            _ => _mm256_slli_epi64::<48>(own),
                        },
                    );
                }
                _mm256_storeu_si256(place, _mm256_and_si256(sum, mask));
            }
        }
    }
}

fn pick(rows: usize, digits: usize) -> Micro {
    match (digits, rows) {
        (2, 1) => micro::<1, 2>,
        (2, 2) => micro::<2, 2>,
        (2, 3) => micro::<3, 2>,
        (2, 4) => micro::<4, 2>,
        (2, 5) => micro::<5, 2>,
        (2, _) => micro::<6, 2>,
        (3, 1) => micro::<1, 3>,
        (3, 2) => micro::<2, 3>,
        (3, 3) => micro::<3, 3>,
        (3, _) => micro::<4, 3>,
        (_, 1) => micro::<1, 4>,
        (_, 2) => micro::<2, 4>,
        (_, _) => micro::<3, 4>,
    }
}

/// Digits of eight words of two rows (null: digits of zero, whatever the offset).
///
/// Element `2 i + h` of vector `l` holds digit `l` of word `4 h + i` of both rows.
///
/// # Safety
/// AVX2; eight words behind every pointer that is not null, room for `D` vectors.
#[target_feature(enable = "avx2")]
unsafe fn pack<const D: usize>(a: *const u64, b: *const u64, out: *mut __m256i) {
    // SAFETY: as promised by the caller.
    unsafe {
        let flip = _mm256_set1_epi64x(FLIP as i64);
        let load = |p: *const u64, half: usize| {
            if p.is_null() {
                _mm256_setzero_si256()
            } else {
                _mm256_xor_si256(_mm256_loadu_si256(p.add(4 * half).cast()), flip)
            }
        };
        let (mut even, mut odd) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
        for half in 0..2 {
            let (a, b) = (load(a, half), load(b, half));
            even[half] = _mm256_blend_epi16::<0xAA>(a, _mm256_slli_epi32::<16>(b));
            odd[half] = _mm256_blend_epi16::<0xAA>(_mm256_srli_epi32::<16>(a), b);
        }
        for d in 0..D {
            let [low, high] = if d % 2 == 0 { even } else { odd };
            let both = if d < 2 {
                _mm256_blend_epi32::<0xAA>(low, _mm256_slli_epi64::<32>(high))
            } else {
                _mm256_blend_epi32::<0xAA>(_mm256_srli_epi64::<32>(low), high)
            };
            _mm256_store_si256(out.add(d), both);
        }
    }
}

/// Packs a strip of `count` words, at most eight, of all pairs that are there.
fn pack_strip(
    panel: &PairPanel,
    rows: &[Option<&[u64]>],
    at: usize,
    count: usize,
    out: &mut [Lane],
    present: &[u32],
) {
    let digits = panel.digits;
    let base: *mut __m256i = out.as_mut_ptr().cast();
    let mut tails = [[0u64; WIDTH]; 2];
    for (i, &p) in present.iter().enumerate() {
        let (a, b) = panel.pairs[p as usize];
        let [first, second] = &mut tails;
        let pointer = |column: Option<usize>, tail: &mut [u64; WIDTH]| {
            let Some(row) = column.and_then(|c| rows[c]) else { return std::ptr::null() };
            let piece = &row[at..at + count];
            if count == WIDTH {
                return piece.as_ptr();
            }
            tail[..count].copy_from_slice(piece);
            tail.as_ptr()
        };
        let (a, b) = (pointer(Some(a), first), pointer(b, second));
        // SAFETY: AVX2 was checked by `Kernel::check`; both pointers are null or have eight words; `multiply` grew the
        // buffer to `digits` half lanes a pair.
        unsafe {
            let to = base.add(i * digits);
            match digits {
                2 => pack::<2>(a, b, to),
                3 => pack::<3>(a, b, to),
                _ => pack::<4>(a, b, to),
            }
        }
    }
}

/// The wanted rows, all words. The caller has checked lengths and instructions.
pub(crate) fn multiply(
    panel: &PairPanel,
    outputs: Range<usize>,
    rows: &[Option<&[u64]>],
    start: &[u64],
    mask: u64,
    out: &mut [&mut [u64]],
    scratch: &mut Scratch,
) {
    let absent: Vec<usize> = (0..rows.len()).filter(|k| rows[*k].is_none()).collect();
    let there = |c: usize| rows[c].is_some();
    let present: Vec<u32> = (0u32..)
        .zip(&panel.pairs)
        .filter_map(|(p, (a, b))| (there(*a) || b.is_some_and(there)).then_some(p))
        .collect();
    for (i, (m, out)) in outputs.clone().zip(out.iter_mut()).enumerate() {
        let constant = start.get(i).copied().unwrap_or(0).wrapping_add(panel.offset(m, &absent));
        out.fill(constant & mask);
    }
    let mut wanted = Wanted::<WIDTH>::new(outputs, out, start, ROWS);
    let words = wanted.words();
    crate::scratch::grow(&mut scratch.limbs, (present.len() * panel.digits).div_ceil(2));
    for at in (0..words).step_by(WIDTH) {
        let count = WIDTH.min(words - at);
        pack_strip(panel, rows, at, count, &mut scratch.limbs, &present);
        for block in &panel.blocks {
            if wanted.none_of(block.first, block.rows) {
                continue;
            }
            let pointers = wanted.pointers::<ROWS>(block.first, block.rows, at);
            let mut from = 0;
            for &end in &block.runs {
                let to = if end == panel.pairs.len() {
                    present.len()
                } else {
                    present.partition_point(|p| (*p as usize) < end)
                };
                let tile = Tile {
                    digits: scratch.limbs.as_ptr(),
                    pairs: from..to,
                    present: &present,
                    weights: panel.values[block.begin..].as_ptr(),
                    mask,
                };
                // SAFETY: `Kernel::check` found AVX2; every pair of the run was packed; the block has
                // `rows` weights a pair; a short last tile is written to spare room.
                unsafe { pick(block.rows, panel.digits)(&tile, &pointers) };
                from = to;
            }
            wanted.finish(block.first, block.rows, at);
        }
    }
}
