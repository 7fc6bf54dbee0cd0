//! Words in 16-bit digits, in 256-bit vectors: `vpmaddwd` multiplies digits of two columns by their weights and adds the pair.
//!
//! A word `x < 2^(16 D)` has unsigned digits `e_l`; with `d_l = e_l - 2^15` as signed ones, `x = sum_l d_l 2^(16 l) + C`,
//! `C = sum_l 2^(15 + 16 l)`, so that `W x = sum_l 2^(16 l) (W d_l) + C sum_k W_k`, where the last term is a constant of the row. Sums of
//! `W d_l` are exact in 32 bits as long as `sum_k |W_k| < 2^16`; longer sums are cut into runs, which also keep a run's digits in the
//! first-level cache while all blocks of rows read them.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, reason = "counted loops over registers unroll fully")]

use super::row_blocks;
use crate::cut::Cut;
use crate::limbs::Lane;
use crate::scratch::Scratch;
use crate::Weights;
use std::arch::x86_64::*;
use std::ops::Range;

/// Words of a register tile.
pub(crate) const WIDTH: usize = 8;
/// Most rows of a register tile, with two digits.
pub(crate) const ROWS: usize = 6;
/// Largest sum of magnitudes of weights whose products with digits sum within 32 bits: (2^16 - 1) 2^15 < 2^31.
const MAX_L1: u32 = (1 << 16) - 1;
/// Bytes of the digits of a run: half a first-level cache.
const RUN_BYTES: usize = 1 << 14;
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

/// Rows that lie together.
struct Block {
    first: usize,
    rows: usize,
    /// Where its weights begin.
    begin: usize,
}

/// Weights as `[row block][pair of columns][row in block]`, two 16-bit weights an element.
pub(crate) struct PairPanel {
    digits: usize,
    /// The two columns of a pair; the last may stand alone. A column with the weight -2^15 is there twice, with halves of its weights, so
    /// that no pair exceeds [`MAX_L1`].
    pairs: Vec<(usize, Option<usize>)>,
    blocks: Vec<Block>,
    /// Ends of the runs of pairs.
    runs: Vec<usize>,
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
        let two =
            |m: usize, pair: &[(usize, u32)]| (part(m, &pair[0]), pair.get(1).map_or(0, |s| part(m, s)));
        let mut values = Vec::with_capacity(w.rows() * sources.len().div_ceil(2));
        let mut blocks = Vec::new();
        for (first, rows) in row_blocks(w.rows(), tile_rows(digits)) {
            blocks.push(Block { first, rows, begin: values.len() });
            for pair in sources.chunks(2) {
                values.extend(
                    (first..first + rows)
                        .map(|m| two(m, pair))
                        .map(|(low, high)| u32::from(low as u16) | u32::from(high as u16) << 16),
                );
            }
        }
        let (mut runs, mut l1, mut begin) = (Vec::new(), vec![0u32; w.rows()], 0);
        for (p, pair) in sources.chunks(2).enumerate() {
            let own = |m: usize| {
                let (low, high) = two(m, pair);
                u32::from(low.unsigned_abs()) + u32::from(high.unsigned_abs())
            };
            if (p - begin) * digits * 32 >= RUN_BYTES
                || l1.iter().enumerate().any(|(m, l)| l + own(m) > MAX_L1)
            {
                runs.push(p);
                (l1, begin) = (vec![0; w.rows()], p);
            }
            l1.iter_mut().enumerate().for_each(|(m, l)| *l += own(m));
        }
        runs.push(sources.len().div_ceil(2));
        Self {
            digits,
            pairs: sources.chunks(2).map(|p| (p[0].0, p.get(1).map(|s| s.0))).collect(),
            blocks,
            runs,
            values,
            sums: (0..w.rows()).map(|m| w.row(m).iter().map(|v| i64::from(*v)).sum()).collect(),
            weights: w.clone(),
        }
    }

    /// Constants of a position.
    pub(crate) fn constants(&self) -> usize {
        self.blocks.len() * ROWS
    }

    /// Vectors of eight words of a [`Cut`] row.
    pub(crate) fn halves(&self) -> usize {
        self.digits.div_ceil(2)
    }

    /// `C sum_k W_mk` over the columns that are there.
    fn offset(&self, m: usize, absent: &[usize]) -> u64 {
        let missing: i64 = absent.iter().map(|k| i64::from(self.weights.row(m)[*k])).sum();
        let kept = hushnet_ring::low_mask((16 * self.digits as u32).min(64));
        (FLIP & kept).wrapping_mul((self.sums[m] - missing) as u64)
    }
}

/// A pair of columns of which one is there at least.
#[derive(Clone, Copy)]
struct Pair {
    /// Which pair of the panel.
    number: u32,
    /// Where the columns are in a strip of a [`Cut`], in vectors.
    columns: [u32; 2],
}

type Micro = unsafe fn(&Tile<'_>, &[*mut u64; ROWS]);

/// What a register tile is told.
struct Tile<'a> {
    digits: *const __m256i,
    /// The pairs of the run, `first` the number of the first of them.
    pairs: &'a [Pair],
    first: usize,
    weights: *const u32,
    /// What the sums begin with; `None`: with what is there.
    start: Option<&'a [u64]>,
    mask: u64,
}

/// Digits of pairs from cut words: the even and the odd vector of a half.
///
/// # Safety
/// AVX2.
#[inline]
#[target_feature(enable = "avx2")]
fn join(a: __m256i, b: __m256i) -> [__m256i; 2] {
    [
        _mm256_blend_epi16::<0xAA>(a, _mm256_slli_epi32::<16>(b)),
        _mm256_blend_epi16::<0xAA>(_mm256_srli_epi32::<16>(a), b),
    ]
}

/// Adds one run's products to eight words of `R` rows. `CUT`: pairs are joined on the way.
///
/// # Safety
/// AVX2; `D` vectors for every pair, or the columns' vectors of a cut strip; `R` weights for every pair of the panel, eight words
/// behind every output, `R` constants.
#[target_feature(enable = "avx2")]
unsafe fn micro<const R: usize, const D: usize, const CUT: bool>(tile: &Tile<'_>, out: &[*mut u64; ROWS]) {
    // SAFETY: as promised by the caller.
    unsafe {
        let mut acc = [[_mm256_setzero_si256(); D]; R];
        for (i, pair) in tile.pairs.iter().enumerate() {
            let weights = tile.weights.add(pair.number as usize * R);
            let mut x = [_mm256_setzero_si256(); D];
            if CUT {
                let a = tile.digits.add(pair.columns[0] as usize);
                let b = tile.digits.add(pair.columns[1] as usize);
                for h in 0..D.div_ceil(2) {
                    let both = join(_mm256_load_si256(a.add(h)), _mm256_load_si256(b.add(h)));
                    for d in 2 * h..D.min(2 * h + 2) {
                        x[d] = both[d % 2];
                    }
                }
            } else {
                for d in 0..D {
                    x[d] = _mm256_load_si256(tile.digits.add((tile.first + i) * D + d));
                }
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
                let mut sum = match tile.start {
                    Some(start) => _mm256_set1_epi64x(*start.get_unchecked(r) as i64),
                    None => _mm256_loadu_si256(place),
                };
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

fn pick<const CUT: bool>(rows: usize, digits: usize) -> Micro {
    match (digits, rows) {
        (2, 1) => micro::<1, 2, CUT>,
        (2, 2) => micro::<2, 2, CUT>,
        (2, 3) => micro::<3, 2, CUT>,
        (2, 4) => micro::<4, 2, CUT>,
        (2, 5) => micro::<5, 2, CUT>,
        (2, _) => micro::<6, 2, CUT>,
        (3, 1) => micro::<1, 3, CUT>,
        (3, 2) => micro::<2, 3, CUT>,
        (3, 3) => micro::<3, 3, CUT>,
        (3, _) => micro::<4, 3, CUT>,
        (_, 1) => micro::<1, 4, CUT>,
        (_, 2) => micro::<2, 4, CUT>,
        (_, _) => micro::<3, 4, CUT>,
    }
}

/// Eight words of a row, as vectors of 32-bit halves: element `2 i + h` of vector `l` is half `l` of word `4 h + i`.
///
/// # Safety
/// AVX2; eight words behind the pointer.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn halves(p: *const u64) -> [__m256i; 2] {
    // SAFETY: as promised by the caller.
    let (a, b) = unsafe { (_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(4).cast())) };
    let flip = _mm256_set1_epi64x(FLIP as i64);
    let low = _mm256_blend_epi32::<0xAA>(a, _mm256_slli_epi64::<32>(b));
    let high = _mm256_blend_epi32::<0xAA>(_mm256_srli_epi64::<32>(a), b);
    [_mm256_xor_si256(low, flip), _mm256_xor_si256(high, flip)]
}

/// Cuts `words` words of a row into `H` vectors every eight of them, `stride` vectors apart.
///
/// # Safety
/// AVX2; room for the vectors.
#[target_feature(enable = "avx2")]
unsafe fn cut_row<const H: usize>(row: &[u64], out: *mut __m256i, stride: usize) {
    let (full, tail) = row.as_chunks::<WIDTH>();
    // SAFETY: `full` has eight words each, the caller gives the room.
    unsafe {
        for (i, words) in full.iter().enumerate() {
            let v = halves(words.as_ptr());
            for h in 0..H {
                _mm256_store_si256(out.add(i * stride + h), v[h]);
            }
        }
        if !tail.is_empty() {
            let mut last = [0; WIDTH];
            last[..tail.len()].copy_from_slice(tail);
            let v = halves(last.as_ptr());
            for h in 0..H {
                _mm256_store_si256(out.add(full.len() * stride + h), v[h]);
            }
        }
    }
}

/// [`Cut::set`] for a kernel that [`crate::Kernel::check`] found.
pub(crate) fn cut(rows: &[&[u64]], halves: usize, strip: usize, out: &mut [Lane]) {
    let base: *mut __m256i = out.as_mut_ptr().cast();
    for (i, row) in rows.iter().enumerate() {
        assert!(2 * out.len() >= row.len().div_ceil(WIDTH) * strip && i * halves < strip);
        // SAFETY: AVX2 was checked; strips of `strip` vectors are all there.
        unsafe {
            match halves {
                1 => cut_row::<1>(row, base.add(i * halves), strip),
                _ => cut_row::<2>(row, base.add(i * halves), strip),
            }
        }
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
        let none = [_mm256_setzero_si256(); 2];
        let a = if a.is_null() { none } else { halves(a) };
        let b = if b.is_null() { none } else { halves(b) };
        for h in 0..D.div_ceil(2) {
            let both = join(a[h], b[h]);
            for d in 2 * h..D.min(2 * h + 2) {
                _mm256_store_si256(out.add(d), both[d % 2]);
            }
        }
    }
}

/// Packs a strip of `count` words, at most eight, of all pairs that are there.
fn pack_strip(
    panel: &PairPanel,
    rows: &[Option<&[u64]>],
    (at, count): (usize, usize),
    out: &mut [Lane],
    present: &[Pair],
) {
    let digits = panel.digits;
    let base: *mut __m256i = out.as_mut_ptr().cast();
    let mut tails = [[0u64; WIDTH]; 2];
    for (i, pair) in present.iter().enumerate() {
        let (a, b) = panel.pairs[pair.number as usize];
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

/// A product: the rows of it that are wanted, and where they go.
struct Call<'a, 'b> {
    panel: &'a PairPanel,
    outputs: Range<usize>,
    /// What every output begins with, `ROWS` of them for every block.
    start: &'a [u64],
    mask: u64,
    out: &'a mut [&'b mut [u64]],
    present: &'a Present,
}

impl Call<'_, '_> {
    /// All blocks of a strip of `count` words at `at`.
    fn strip(&mut self, digits: *const __m256i, at: usize, count: usize) {
        let (panel, outputs, out) = (self.panel, &self.outputs, &mut *self.out);
        let strip = Strip { panel, present: self.present, digits, start: self.start, mask: self.mask, count };
        strip.run::<false>(outputs, |m| out[m - outputs.start][at..at + count].as_mut_ptr());
    }
}

/// Eight words, or fewer, of all columns.
struct Strip<'a> {
    panel: &'a PairPanel,
    present: &'a Present,
    /// Digits of pairs, in order, or a strip of a [`Cut`].
    digits: *const __m256i,
    /// What every output begins with, [`ROWS`] of them for every block.
    start: &'a [u64],
    mask: u64,
    count: usize,
}

impl Strip<'_> {
    /// The wanted rows; `place` says where the words of a row go, `count` of them.
    #[inline]
    fn run<const CUT: bool>(&self, wanted: &Range<usize>, mut place: impl FnMut(usize) -> *mut u64) {
        let mut first = 0;
        for (run, &end) in self.present.runs.iter().enumerate() {
            for (number, block) in self.panel.blocks.iter().enumerate() {
                let rows = block.first..block.first + block.rows;
                if rows.start >= wanted.end || rows.end <= wanted.start {
                    continue;
                }
                let tile = Tile {
                    digits: self.digits,
                    pairs: &self.present.pairs[first..end],
                    first,
                    weights: self.panel.values[block.begin..].as_ptr(),
                    start: (run == 0).then(|| &self.start[number * ROWS..(number + 1) * ROWS]),
                    mask: self.mask,
                };
                let mut places = [std::ptr::null_mut(); ROWS];
                for (m, place_of) in rows.clone().zip(&mut places) {
                    if wanted.contains(&m) {
                        *place_of = place(m);
                    }
                }
                let whole = self.count == WIDTH && wanted.start <= rows.start && rows.end <= wanted.end;
                // SAFETY: `Kernel::check` found AVX2; the digits hold every pair of the run; the block has `rows` weights a pair and `ROWS`
                // constants; every place has `count` words.
                unsafe {
                    tile.run(
                        pick::<CUT>(block.rows, self.panel.digits),
                        &places,
                        (!whole).then_some(self.count),
                    );
                };
            }
            first = end;
        }
    }
}

impl Tile<'_> {
    /// Runs; rows without a place, and places of fewer than eight words (`short`: so many), work on spare ones.
    ///
    /// # Safety
    /// As the kernel's; eight words at every place, or `short` of them.
    #[inline]
    unsafe fn run(&self, micro: Micro, places: &[*mut u64; ROWS], short: Option<usize>) {
        // SAFETY: promised by the caller; spare rows have eight words.
        unsafe {
            let Some(count) = short else { return micro(self, places) };
            let mut spare = [[0u64; WIDTH]; ROWS];
            let spares = spare.each_mut().map(|s| s.as_mut_ptr());
            let there = || places.iter().zip(&spares).filter(|(place, _)| !place.is_null());
            there().for_each(|(place, spare)| spare.copy_from_nonoverlapping(*place, count));
            micro(self, &spares);
            there().for_each(|(place, spare)| place.copy_from_nonoverlapping(*spare, count));
        }
    }
}

/// Which pairs of a panel are there, and what follows from it.
pub(crate) struct Present {
    pairs: Vec<Pair>,
    /// Ends of the runs among these pairs.
    runs: Vec<usize>,
    /// What every row's sum of digits lacks.
    offsets: Vec<u64>,
}

impl Present {
    /// `place` says where a column is in a strip of a cut, if it is there.
    fn new(panel: &PairPanel, place: impl Fn(usize) -> Option<u32>, zero: u32) -> Self {
        let absent: Vec<usize> = (0..panel.weights.columns()).filter(|k| place(*k).is_none()).collect();
        let mut pairs = Vec::with_capacity(panel.pairs.len());
        for (number, (a, b)) in (0u32..).zip(&panel.pairs) {
            let columns = [place(*a), b.and_then(&place)];
            if columns != [None; 2] {
                pairs.push(Pair { number, columns: columns.map(|c| c.unwrap_or(zero)) });
            }
        }
        let all = pairs.len() == panel.pairs.len();
        let end = |e: usize| if all { e } else { pairs.partition_point(|p| (p.number as usize) < e) };
        let runs = panel.runs.iter().map(|e| end(*e)).collect();
        let offsets = (0..panel.weights.rows()).map(|m| panel.offset(m, &absent)).collect();
        Self { pairs, runs, offsets }
    }

    /// The pairs of columns that are rows of a cut of `rows` rows.
    pub(crate) fn gather(panel: &PairPanel, columns: &[Option<u32>], rows: usize) -> Self {
        let halves = panel.halves() as u32;
        // Behind the rows lies one of zero digits.
        Self::new(panel, |c| columns[c].map(|r| r * halves), rows as u32 * halves)
    }

    /// Appends what every output begins with, [`ROWS`] of them for every block: `start` of the row, and what its digits lack.
    pub(crate) fn constants(
        &self,
        panel: &PairPanel,
        start: impl Fn(usize) -> u64,
        constants: &mut Vec<u64>,
    ) {
        for block in &panel.blocks {
            let rows = block.first..block.first + block.rows;
            constants.extend(rows.map(|m| start(m).wrapping_add(self.offsets[m])));
            constants.resize(constants.len() + ROWS - block.rows, 0);
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
    let present = Present::new(panel, |c| rows[c].map(|_| 0), 0);
    scratch.constants.clear();
    let own = |m: usize| m.checked_sub(outputs.start).and_then(|m| start.get(m)).copied().unwrap_or(0);
    present.constants(panel, own, &mut scratch.constants);
    let words = out.first().map_or(0, |o| o.len());
    crate::scratch::grow(&mut scratch.limbs, (present.pairs.len() * panel.digits).div_ceil(2));
    let mut call = Call { panel, outputs, start: &scratch.constants, mask, out, present: &present };
    for at in (0..words).step_by(WIDTH) {
        let count = WIDTH.min(words - at);
        pack_strip(panel, rows, (at, count), &mut scratch.limbs, &present.pairs);
        call.strip(scratch.limbs.as_ptr().cast(), at, count);
    }
}

/// All rows of cut rows at all positions, from word `from` on, a multiple of eight: outputs are `[row][position][word]`, `starts` the constants of
/// all positions. The caller has checked lengths and instructions.
pub(crate) fn multiply_cut(
    panel: &PairPanel,
    (cut, from): (&Cut, usize),
    positions: &[Present],
    starts: &[u64],
    mask: u64,
    out: &mut [u64],
) {
    let (rows, each) = (panel.weights.rows(), panel.constants());
    let words = out.len() / (rows * positions.len()).max(1);
    // Tiles write several rows at once.
    let base = out.as_mut_ptr();
    for at in (0..words).step_by(WIDTH) {
        let digits: *const __m256i = cut.strip((from + at) / WIDTH).as_ptr().cast();
        for (p, (present, start)) in positions.iter().zip(starts.chunks(each)).enumerate() {
            let strip = Strip { panel, present, digits, start, mask, count: WIDTH.min(words - at) };
            // SAFETY: rows, positions and words are those of `out`.
            strip.run::<true>(&(0..rows), |m| unsafe { base.add((m * positions.len() + p) * words + at) });
        }
    }
}
