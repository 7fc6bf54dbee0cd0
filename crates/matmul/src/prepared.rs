//! Weights made ready for one kernel and one modulus, and the product itself.

use crate::error::{at_least, expect};
use crate::kernels::portable;
use crate::kernels::tiles::{self, Emulated, LimbCall, Segment, TilePanel};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::kernels::{words, WordPanel};
use crate::limbs::{limbs_for, pack_quad, Lane, Layout, BLOCK, TILE_QUADS};
use crate::{Cut, Kernel, MatmulError, Scratch, Weights};
use hushnet_ring::{low_mask, Isa};
use std::ops::Range;

/// Quads whose products of unsigned and signed bytes sum within 32 bits: 4 * 255 * 128 * 16384 < 2^31.
const MAX_QUADS: usize = 1 << 14;
/// Lanes of packed limbs that stay in the second-level cache.
const CACHED_LANES: usize = 6000;

/// Weights in the order that a kernel reads.
enum Panel {
    Portable(Weights),
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Words(WordPanel),
    #[cfg(target_arch = "x86_64")]
    Pairs(crate::kernels::madd::PairPanel),
    #[cfg(target_arch = "x86_64")]
    Quads(crate::kernels::vnni::QuadPanel),
    Tiles(TilePanel),
}

/// Which rows of a [`Cut`] the columns of a matrix are, at one position or several; made by [`Prepared::gather`], for that matrix only.
pub struct Gather {
    rows: usize,
    shape: (usize, usize),
    #[cfg(target_arch = "x86_64")]
    positions: Vec<crate::kernels::madd::Present>,
}

impl Gather {
    /// Number of positions that are gathered.
    #[must_use]
    pub fn positions(&self) -> usize {
        #[cfg(target_arch = "x86_64")]
        return self.positions.len();
        #[cfg(not(target_arch = "x86_64"))]
        0
    }
}

/// What outputs begin with, as the kernel takes it; made by [`Prepared::starts`].
pub struct Starts {
    #[cfg(target_arch = "x86_64")]
    words: Vec<u64>,
}

/// An integer matrix W (M x K) ready to multiply K rows of words modulo 2^k: immutable, shared by threads.
///
/// `out_m = start_m + sum_k W_mk row_k mod 2^k`, word by word, exactly, whatever the kernel.
pub struct Prepared {
    kernel: Kernel,
    isa: Isa,
    modulus_bits: u32,
    m: usize,
    k: usize,
    weight_limbs: usize,
    /// `(first column, columns)`.
    segments: Vec<(usize, usize)>,
    layouts: Vec<Layout>,
    panel: Panel,
}

impl Prepared {
    /// Prepares weights for `kernel` and words below 2^`modulus_bits`. The columns come in segments of `segment_rows`
    /// (the last may be shorter), which matters to [`Prepared::multiply_limbs`] only; use K for one segment.
    ///
    /// # Errors
    /// [`MatmulError`] when the processor lacks the kernel, the kernel does not take the modulus, or
    /// `segment_rows` is zero.
    pub fn new(
        w: &Weights,
        kernel: Kernel,
        modulus_bits: u32,
        segment_rows: usize,
    ) -> Result<Self, MatmulError> {
        Self::for_words(w, kernel, modulus_bits, modulus_bits, segment_rows)
    }

    /// [`Self::new`] for words that are known to be below 2^`word_bits`, at most the modulus: fewer digits for the kernel that cuts words
    /// into 16-bit ones. Larger words give wrong products.
    ///
    /// # Errors
    /// As [`Self::new`], and when words have no bits or more than the modulus.
    pub fn for_words(
        w: &Weights,
        kernel: Kernel,
        modulus_bits: u32,
        word_bits: u32,
        segment_rows: usize,
    ) -> Result<Self, MatmulError> {
        kernel.check(modulus_bits)?;
        if word_bits == 0 || word_bits > modulus_bits {
            return Err(MatmulError::ModulusBits {
                bits: word_bits,
                limit: modulus_bits,
                kernel: kernel.name(),
            });
        }
        let k = w.columns();
        let isa = hushnet_ring::simd::detected();
        let _ = Layout::new(segment_rows, modulus_bits)?;
        let segments: Vec<(usize, usize)> =
            (0..k).step_by(segment_rows).map(|f| (f, segment_rows.min(k - f))).collect();
        let layouts =
            segments.iter().map(|s| Layout::new(s.1, modulus_bits)).collect::<Result<Vec<_>, _>>()?;
        let panel = match kernel {
            Kernel::Amx | Kernel::EmulatedAmx => Panel::Tiles(TilePanel::new(w, &segments)),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Kernel::Avx2 | Kernel::Neon => {
                Panel::Words(WordPanel::new(w, crate::kernels::words::ROWS, u64::MAX))
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::Madd => Panel::Pairs(crate::kernels::madd::PairPanel::new(w, word_bits)),
            #[cfg(target_arch = "x86_64")]
            Kernel::Mullo => Panel::Words(WordPanel::new(w, crate::kernels::avx512::ROWS, u64::MAX)),
            #[cfg(target_arch = "x86_64")]
            Kernel::Ifma => Panel::Words(WordPanel::new(w, crate::kernels::avx512::ROWS, low_mask(52))),
            #[cfg(target_arch = "x86_64")]
            Kernel::Vnni => {
                let limbs = limbs_for(modulus_bits);
                Panel::Quads(crate::kernels::vnni::QuadPanel::new(w, limbs, &segments))
            }
            _ => Panel::Portable(w.clone()),
        };
        let weight_limbs = w.limbs();
        Ok(Self { kernel, isa, modulus_bits, m: w.rows(), k, weight_limbs, segments, layouts, panel })
    }

    /// Number M of rows of weights, one for every output.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.m
    }

    /// Number K of columns of weights, one for every input.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.k
    }

    /// The kernel that the weights were laid out for.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The number k of bits of the modulus 2^k.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        self.modulus_bits
    }

    /// The limb layouts of the segments, in order.
    #[must_use]
    pub fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    fn check_output(
        &self,
        outputs: &Range<usize>,
        start: &[u64],
        out: &[&mut [u64]],
    ) -> Result<usize, MatmulError> {
        if outputs.start > outputs.end || outputs.end > self.m {
            return Err(MatmulError::Length {
                what: "end of output rows",
                expected: self.m,
                got: outputs.end,
            });
        }
        expect("output rows", outputs.len(), out.len())?;
        let words = out.first().map_or(0, |o| o.len());
        for o in out {
            expect("words of an output row", words, o.len())?;
        }
        if !start.is_empty() {
            expect("constants", outputs.len(), start.len())?;
        }
        Ok(words)
    }

    /// `out_m = start_m + sum_k W_mk row_k mod 2^k` for whole words below 2^k. Rows that are `None` count
    /// as zeros (padding); `start` is one constant for every output, or empty. Any sub-range of words
    /// can be computed by itself: callers spread ranges over threads, each with its own scratch.
    ///
    /// # Errors
    /// [`MatmulError::Length`] unless there are K rows, M outputs and 0 or M constants, all rows equally long.
    pub fn multiply(
        &self,
        rows: &[Option<&[u64]>],
        start: &[u64],
        out: &mut [&mut [u64]],
        scratch: &mut Scratch,
    ) -> Result<(), MatmulError> {
        self.multiply_rows(0..self.m, rows, start, out, scratch)
    }

    /// [`Prepared::multiply`] for the rows `outputs` of W only; `start` and `out` have one entry for each of these.
    ///
    /// # Errors
    /// As [`Prepared::multiply`], and when there are no such rows.
    pub fn multiply_rows(
        &self,
        outputs: Range<usize>,
        rows: &[Option<&[u64]>],
        start: &[u64],
        out: &mut [&mut [u64]],
        scratch: &mut Scratch,
    ) -> Result<(), MatmulError> {
        let words = self.check_output(&outputs, start, out)?;
        expect("input rows", self.k, rows.len())?;
        for r in rows.iter().flatten() {
            expect("words of an input row", words, r.len())?;
        }
        let mask = low_mask(self.modulus_bits);
        match &self.panel {
            Panel::Portable(w) => portable::multiply(w, outputs, rows, start, mask, out),
            #[cfg(target_arch = "x86_64")]
            Panel::Words(p) => match self.kernel {
                Kernel::Avx2 => {
                    let tiles = crate::kernels::avx2::pick;
                    words::multiply((p, tiles), outputs, rows, start, mask, out, scratch);
                }
                Kernel::Mullo => {
                    crate::kernels::avx512::mullo::multiply(p, outputs, rows, start, mask, out, scratch);
                }
                _ => crate::kernels::avx512::ifma::multiply(p, outputs, rows, start, mask, out, scratch),
            },
            #[cfg(target_arch = "aarch64")]
            Panel::Words(p) => {
                let tiles = crate::kernels::neon::pick;
                words::multiply((p, tiles), outputs, rows, start, mask, out, scratch);
            }
            #[cfg(target_arch = "x86_64")]
            Panel::Pairs(p) => {
                crate::kernels::madd::multiply(p, outputs, rows, start, mask, out, scratch);
            }
            _ => self.pack_and_multiply(outputs, rows, start, out, scratch, words),
        }
        Ok(())
    }

    /// Whether the kernel reads rows that were cut before ([`Self::cut`]).
    #[must_use]
    pub fn reads_cuts(&self) -> bool {
        self.kernel == Kernel::Madd
    }

    /// Cuts rows of words for [`Self::multiply_cut`]. Matrices for words of equally many bits read the same cut.
    ///
    /// # Errors
    /// [`MatmulError::WrongInput`] when the kernel reads no cuts; [`MatmulError::Length`] for rows of different lengths.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub fn cut(&self, rows: &[&[u64]], cut: &mut Cut) -> Result<(), MatmulError> {
        match &self.panel {
            #[cfg(target_arch = "x86_64")]
            Panel::Pairs(p) => cut.set(rows, p.halves()),
            _ => Err(MatmulError::WrongInput(self.kernel.name())),
        }
    }

    /// Prepares which of `rows` rows of a cut the columns are, `None`: zeros. K columns for every position, one after the other: a convolution
    /// has as many as output pixels. Once for any number of products.
    ///
    /// # Errors
    /// [`MatmulError::WrongInput`] when the kernel reads no cuts; [`MatmulError::Length`] unless there are K columns a position, within the rows.
    pub fn gather(&self, columns: &[Option<u32>], rows: usize) -> Result<Gather, MatmulError> {
        expect("columns, modulo those of a position", 0, columns.len() % self.k)?;
        let end = columns.iter().flatten().max().map_or(0, |c| *c as usize + 1);
        at_least("rows of the cut", end, rows)?;
        match &self.panel {
            #[cfg(target_arch = "x86_64")]
            Panel::Pairs(p) => {
                let one = |columns| crate::kernels::madd::Present::gather(p, columns, rows);
                let positions = columns.chunks(self.k).map(one).collect();
                Ok(Gather { rows, shape: (self.m, self.k), positions })
            }
            _ => Err(MatmulError::WrongInput(self.kernel.name())),
        }
    }

    /// What the outputs of [`Self::multiply_cut`] begin with, prepared: `start` has none, one for every row, or one for every row and position.
    ///
    /// # Errors
    /// [`MatmulError::Length`] for another number of them, or a gather of another matrix.
    pub fn starts(&self, gather: &Gather, start: &[u64]) -> Result<Starts, MatmulError> {
        self.check_gather(gather)?;
        let positions = gather.positions();
        if !start.is_empty() && start.len() != self.m {
            expect("constants", self.m * positions, start.len())?;
        }
        Ok(Starts {
            #[cfg(target_arch = "x86_64")]
            words: self.prepared_starts(gather, start),
        })
    }

    #[cfg(target_arch = "x86_64")]
    fn prepared_starts(&self, gather: &Gather, start: &[u64]) -> Vec<u64> {
        let each = start.len() / self.m;
        let mut words = Vec::new();
        if let Panel::Pairs(p) = &self.panel {
            for (at, position) in gather.positions.iter().enumerate() {
                let own = |m: usize| match each {
                    0 => 0,
                    1 => start[m],
                    _ => start[m * each + at],
                };
                position.constants(p, own, &mut words);
            }
        }
        words
    }

    fn check_gather(&self, gather: &Gather) -> Result<(), MatmulError> {
        expect("rows of the gathered matrix", gather.shape.0, self.m)?;
        expect("columns of the gathered matrix", gather.shape.1, self.k)
    }

    /// [`Prepared::multiply`] of rows of a cut at all positions of `gather`, from word `from` of the cut on: outputs are `[row][position][word]`.
    ///
    /// # Errors
    /// [`MatmulError::WrongInput`] when the kernel reads no cuts, or those of another width; [`MatmulError::Length`] for a gather or starts of another
    /// matrix or cut, outputs of no whole number of words, and unless `from` is a multiple of eight and the words are there.
    pub fn multiply_cut(
        &self,
        (cut, from): (&Cut, usize),
        gather: &Gather,
        starts: &Starts,
        out: &mut [u64],
    ) -> Result<(), MatmulError> {
        self.check_gather(gather)?;
        expect("rows of the cut", gather.rows, cut.rows())?;
        let outputs = self.m * gather.positions();
        let words = out.len() / outputs.max(1);
        expect("words of the outputs", outputs * words, out.len())?;
        expect("word to begin with, modulo eight", 0, from % 8)?;
        at_least("words of the cut", from.saturating_add(words), cut.words())?;
        match &self.panel {
            #[cfg(target_arch = "x86_64")]
            Panel::Pairs(p) if p.halves() == cut.halves() => {
                expect("prepared constants", gather.positions() * p.constants(), starts.words.len())?;
                let mask = low_mask(self.modulus_bits);
                crate::kernels::madd::multiply_cut(
                    p,
                    (cut, from),
                    &gather.positions,
                    &starts.words,
                    mask,
                    out,
                );
                Ok(())
            }
            _ => {
                let _ = starts;
                Err(MatmulError::WrongInput(self.kernel.name()))
            }
        }
    }

    /// Packs as many blocks of words as the cache holds, multiplies them, and goes on.
    fn pack_and_multiply(
        &self,
        outputs: Range<usize>,
        rows: &[Option<&[u64]>],
        start: &[u64],
        out: &mut [&mut [u64]],
        scratch: &mut Scratch,
        words: usize,
    ) {
        let limbs = limbs_for(self.modulus_bits);
        let present = |s: &(usize, usize)| rows[s.0..s.0 + s.1].iter().any(Option::is_some);
        let quads: usize = self.segments.iter().filter(|s| present(s)).map(|s| s.1.div_ceil(4)).sum();
        let block_lanes = quads * limbs;
        let chunk = (CACHED_LANES / block_lanes.max(1)).clamp(1, 8);
        crate::scratch::grow(&mut scratch.limbs, chunk * block_lanes + (TILE_QUADS - 1) * limbs);
        for at in (0..words).step_by(chunk * BLOCK) {
            let count = (chunk * BLOCK).min(words - at);
            scratch.segments.clear();
            let (mut lane, mut weights) = (0, 0);
            for (segment, layout) in self.segments.iter().zip(&self.layouts) {
                if present(segment) {
                    scratch.segments.push(Segment {
                        base: scratch.limbs.as_ptr().wrapping_add(lane),
                        block_lanes,
                        quads: layout.quads(),
                        weights,
                    });
                    for quad in 0..layout.quads() {
                        let row = |b: usize| {
                            let c = 4 * quad + b;
                            (c < segment.1).then(|| rows[segment.0 + c].map(|r| &r[at..at + count])).flatten()
                        };
                        let four = [row(0), row(1), row(2), row(3)];
                        pack_quad(self.isa, limbs, block_lanes, four, count, &mut scratch.limbs[lane..]);
                        lane += limbs;
                    }
                }
                weights += self.weights_of(layout);
            }
            let mut piece: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[at..at + count]).collect();
            self.run(outputs.clone(), 0..count.div_ceil(BLOCK), start, &mut piece, scratch);
        }
    }

    /// What a segment advances the index of weights by.
    // Elsewhere one variant is left.
    #[cfg_attr(not(target_arch = "x86_64"), allow(clippy::match_wildcard_for_single_variants))]
    fn weights_of(&self, layout: &Layout) -> usize {
        match self.panel {
            Panel::Tiles(_) => layout.quads().div_ceil(TILE_QUADS),
            _ => layout.quads(),
        }
    }

    /// [`Prepared::multiply`] on limbs that are packed already: `segments[i]` begins with segment `i`, laid out by
    /// [`Prepared::layouts`] (`None`: zeros) and goes on for at least [`Layout::slack_lanes`] more.
    /// Computes the words from block `first_block` on, as many as the outputs are long.
    ///
    /// # Errors
    /// [`MatmulError::WrongInput`] when the kernel works on whole words; [`MatmulError::Length`] when a
    /// buffer is too short.
    pub fn multiply_limbs(
        &self,
        segments: &[Option<&[Lane]>],
        first_block: usize,
        start: &[u64],
        out: &mut [&mut [u64]],
        scratch: &mut Scratch,
    ) -> Result<(), MatmulError> {
        self.multiply_limb_rows(0..self.m, segments, first_block, start, out, scratch)
    }

    /// [`Prepared::multiply_limbs`] for the rows `outputs` of W only; `start` and `out` have one entry for each
    /// of these.
    ///
    /// # Errors
    /// As [`Prepared::multiply_limbs`], and when there are no such rows.
    pub fn multiply_limb_rows(
        &self,
        outputs: Range<usize>,
        segments: &[Option<&[Lane]>],
        first_block: usize,
        start: &[u64],
        out: &mut [&mut [u64]],
        scratch: &mut Scratch,
    ) -> Result<(), MatmulError> {
        if !self.kernel.uses_limbs() {
            return Err(MatmulError::WrongInput(self.kernel.name()));
        }
        let words = self.check_output(&outputs, start, out)?;
        expect("segments", self.layouts.len(), segments.len())?;
        scratch.segments.clear();
        let mut weights = 0;
        let end = first_block + words.div_ceil(BLOCK);
        for (segment, layout) in segments.iter().zip(&self.layouts) {
            if let Some(lanes) = segment {
                let needed = end.saturating_mul(layout.block_lanes()).saturating_add(layout.slack_lanes());
                at_least("lanes of a segment with slack", needed, lanes.len())?;
                scratch.segments.push(Segment {
                    base: lanes.as_ptr(),
                    block_lanes: layout.block_lanes(),
                    quads: layout.quads(),
                    weights,
                });
            }
            weights += self.weights_of(layout);
        }
        self.run(outputs, first_block..end, start, out, scratch);
        Ok(())
    }

    /// Multiplies the segments in `scratch`, in runs that cannot overflow 32-bit sums.
    fn run(
        &self,
        outputs: Range<usize>,
        blocks: Range<usize>,
        start: &[u64],
        out: &mut [&mut [u64]],
        scratch: &mut Scratch,
    ) {
        let segments = std::mem::take(&mut scratch.segments);
        let mut call = LimbCall {
            limbs: limbs_for(self.modulus_bits),
            weight_limbs: self.weight_limbs,
            blocks,
            outputs,
            start,
            add: false,
            mask: low_mask(self.modulus_bits),
        };
        if segments.iter().map(|s| s.quads).sum::<usize>() <= MAX_QUADS {
            self.run_once(&segments, &call, out, scratch);
        } else {
            for run in runs(&segments, call.limbs, matches!(self.panel, Panel::Tiles(_))) {
                self.run_once(&run, &call, out, scratch);
                call.add = true;
            }
        }
        scratch.segments = segments;
    }

    fn run_once(&self, segments: &[Segment], call: &LimbCall, out: &mut [&mut [u64]], scratch: &mut Scratch) {
        let stored = &mut scratch.accumulators;
        match &self.panel {
            #[cfg(target_arch = "x86_64")]
            Panel::Quads(p) => crate::kernels::vnni::multiply(p, segments, call, out),
            Panel::Tiles(p) => {
                #[cfg(target_arch = "x86_64")]
                if self.kernel == Kernel::Amx {
                    if let Some(mut ops) = crate::kernels::amx::Hardware::new() {
                        tiles::multiply(&mut ops, self.isa, p, segments, call, out, stored);
                        return;
                    }
                }
                tiles::multiply(&mut Emulated::new(), self.isa, p, segments, call, out, stored);
            }
            _ => {}
        }
    }
}

/// Cuts segments into runs of at most [`MAX_QUADS`] quads, at whole tiles.
fn runs(segments: &[Segment], limbs: usize, tiles: bool) -> Vec<Vec<Segment>> {
    let mut runs = vec![Vec::new()];
    let mut room = MAX_QUADS;
    for segment in segments {
        let mut rest = *segment;
        while rest.quads > 0 {
            let take = rest.quads.min(room);
            if take == 0 || (take < rest.quads && take % TILE_QUADS != 0 && room < MAX_QUADS) {
                runs.push(Vec::new());
                room = MAX_QUADS;
                continue;
            }
            if let Some(run) = runs.last_mut() {
                run.push(Segment { quads: take, ..rest });
            }
            room -= take;
            rest.quads -= take;
            rest.base = rest.base.wrapping_add(take * limbs);
            rest.weights += if tiles { take / TILE_QUADS } else { take };
        }
    }
    runs
}
