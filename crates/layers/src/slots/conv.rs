//! Convolutions in slots.
//!
//! **Strides and dilations** go first: a convolution of stride (s, t) is one of stride 1 over `s t` phase images a channel, of
//! which only those are sent that a kernel position touches. A kernel position at offset `o = i d - pad` belongs to phase `o mod s`
//! and reads `floor(o / s)` rows further down.
//!
//! **Slots.** A channel takes a grid of `gh x gw` slots, padded to a power of two S. Each of the two rows of M slots holds `M / S` channels,
//! a ciphertext `c_n = 2 M / S`. Zero padding needs no slots: weights are zero where a kernel position leaves the grid. Where the
//! grid does not fit a row, the output is cut into tiles whose inputs overlap, and a tile is computed as a layer of its own.
//!
//! **Permutations.** Kernel positions are column rotations by `a gw + b`; channels are lined up by the group of the `c_n` permutations
//! "exchange rows or not, rotate by whole channels": step d brings channel block `d + b` to block b. So a row exchange together with a
//! rotation is one permutation, and the two rows count as one vector of n slots in the papers' formulas.
//!
//! **Baby steps** ([`Early::Steps`]). Kernel grouping permutes `c_n - 1` sums an output. Step `g b + j` is step `g b` after step `j`, and `j` may as well be done to
//! the inputs, together with the kernel rotations that they are hoisted for anyway, weights permuted with them: `b k - 1` hoisted permutations
//! an input and `c_n / b - 1` an output. b is the power of two for which all permutations cost least ([`PERM_UNITS`], [`HST_UNITS`]).
//!
//! Channels that do not share a group, and steps without a pair of them, are left out, so grouped and depthwise
//! convolutions cost only what they use.

use super::dense::NORM_SLACK;
use super::order::{ConvOrder, ConvSizes, Early};
use super::{residue, SlotError, Term};
use crate::batch::{CheckedConv2d, LayerError};
use crate::phases::candidate_sizes;
use hushnet_rlwe::bfv::noise::weight_norm2;
use hushnet_rlwe::bfv::{BfvError, BfvSpec, Counts, Noise, Turn};
use std::collections::BTreeSet;
use std::ops::Range;

/// What a permutation and a hoisted one cost beside each other, for the choice of b: transforms of L = 3 data primes and a special one, 20 to 8.
const PERM_UNITS: u64 = 5;
const HST_UNITS: u64 = 2;

/// A kernel position in phase coordinates.
#[derive(Clone, Copy, Debug)]
struct Tap {
    phase: usize,
    /// Index into the offsets.
    offset: usize,
    /// Position in the kernel, row-major.
    kernel: usize,
}

/// Where the elements of a convolution lie in slots.
#[derive(Clone, Debug)]
pub struct ConvLayout {
    conv: CheckedConv2d,
    pub(super) order: &'static ConvOrder,
    n: usize,
    phases: Vec<(usize, usize)>,
    taps: Vec<Tap>,
    /// Distinct (rows down, columns right) that kernel positions read, relative to the output's own slot.
    offsets: Vec<(i64, i64)>,
    /// Output pixels of a tile.
    tile: (usize, usize),
    /// Position in a phase image of a tile's first slot, relative to the tile's first output.
    origin: (i64, i64),
    grid: (usize, usize),
    /// Slots of a channel.
    stride: usize,
    /// Channels of a row.
    per_row: usize,
    /// Channels of a ciphertext, c_n.
    per_cipher: usize,
    /// b: steps that are done to the inputs; 1 where none are.
    baby: usize,
}

impl ConvLayout {
    /// # Errors
    /// [`LayerError::TooLarge`] when one output pixel's inputs do not fit a row.
    pub(super) fn new(conv: &CheckedConv2d, order: &'static ConvOrder, n: usize) -> Result<Self, SlotError> {
        let mut layout = Self {
            conv: *conv,
            order,
            n,
            phases: Vec::new(),
            taps: Vec::new(),
            offsets: Vec::new(),
            tile: (conv.output[1], conv.output[2]),
            origin: (0, 0),
            grid: (0, 0),
            stride: 1,
            per_row: 1,
            per_cipher: 1,
            baby: 1,
        };
        layout.find_taps();
        layout.choose_tile()?;
        if order.early == Early::Steps {
            let sizes = (0..=layout.per_row.ilog2()).map(|e| Self { baby: 1 << e, ..layout.clone() });
            let units = |l: &Self| {
                let c = l.counts();
                (PERM_UNITS * c.perm + HST_UNITS * c.hst_perm, l.baby)
            };
            layout = sizes.min_by_key(units).unwrap_or(layout);
        }
        Ok(layout)
    }

    fn find_taps(&mut self) {
        let c = &self.conv;
        let (s, mut taps) = (c.stride.map(|s| s as i64), Vec::new());
        // A position that only ever reads padding has no part in the result.
        let reads = [0, 1].map(|axis: usize| -> Vec<bool> {
            let reads = |tap| (0..c.output[1 + axis]).any(|y| c.source(axis, y, tap).is_some());
            (0..c.kernel[axis]).map(reads).collect()
        });
        for i in 0..c.kernel[0] {
            for j in 0..c.kernel[1] {
                let at = |axis: usize, tap: usize| (tap * c.dilation[axis]) as i64 - c.pads[axis] as i64;
                let (oi, oj) = (at(0, i), at(1, j));
                let phase = (oi.rem_euclid(s[0]) as usize, oj.rem_euclid(s[1]) as usize);
                let offset = (oi.div_euclid(s[0]), oj.div_euclid(s[1]));
                if reads[0][i] && reads[1][j] {
                    taps.push((phase, offset, i * c.kernel[1] + j));
                }
            }
        }
        let mut offsets: BTreeSet<_> = taps.iter().map(|t| t.1).collect();
        let mut phases: BTreeSet<_> = taps.iter().map(|t| t.0).collect();
        if taps.is_empty() {
            // All is padding: one offset without a kernel position keeps the layer's shape; its weights are zero.
            offsets.insert((0, 0));
            phases.insert((0, 0));
        }
        self.offsets = offsets.into_iter().collect();
        self.phases = phases.into_iter().collect();
        let index = |(phase, offset, kernel): ((usize, usize), (i64, i64), usize)| Tap {
            phase: self.phases.binary_search(&phase).unwrap_or(0),
            offset: self.offsets.binary_search(&offset).unwrap_or(0),
            kernel,
        };
        self.taps = taps.into_iter().map(index).collect();
    }

    /// Rows and columns that offsets reach over, from the smallest to the largest.
    fn reach(&self) -> ((i64, i64), (i64, i64)) {
        let range = |values: Vec<i64>| {
            let low = values.iter().copied().min().unwrap_or(0);
            (low, values.iter().copied().max().unwrap_or(0))
        };
        (range(self.offsets.iter().map(|o| o.0).collect()), range(self.offsets.iter().map(|o| o.1).collect()))
    }

    fn choose_tile(&mut self) -> Result<(), LayerError> {
        let (c, row) = (self.conv, self.n / 2);
        let whole = [1, 2].map(|axis| c.output[axis].max(c.input[axis].div_ceil(c.stride[axis - 1])));
        if (whole[0] * whole[1]).next_power_of_two() <= row {
            self.set_grid((whole[0], whole[1]));
            return Ok(());
        }
        let (rows, columns) = self.reach();
        let (eh, ew) = ((rows.1 - rows.0) as usize, (columns.1 - columns.0) as usize);
        let mut best: Option<(usize, (usize, usize))> = None;
        for th in candidate_sizes(c.output[1]) {
            for tw in candidate_sizes(c.output[2]) {
                let slots = ((th + eh) * (tw + ew)).next_power_of_two();
                if slots > row {
                    continue;
                }
                let per_cipher = 2 * row / slots;
                let tiles = c.output[1].div_ceil(th) * c.output[2].div_ceil(tw);
                let work = tiles
                    * self.channels().div_ceil(per_cipher)
                    * c.output[0].div_ceil(per_cipher)
                    * per_cipher;
                if best.is_none_or(|(w, _)| work < w) {
                    best = Some((work, (th, tw)));
                }
            }
        }
        let (_, tile) = best.ok_or(LayerError::TooLarge {
            what: "receptive field of one output pixel",
            needed: (eh + 1) * (ew + 1),
            limit: row,
        })?;
        self.tile = tile;
        self.origin = (rows.0, columns.0);
        self.set_grid((tile.0 + eh, tile.1 + ew));
        Ok(())
    }

    fn set_grid(&mut self, grid: (usize, usize)) {
        self.grid = grid;
        self.stride = (grid.0 * grid.1).next_power_of_two();
        self.per_row = self.n / 2 / self.stride;
        self.per_cipher = 2 * self.per_row;
        if self.order.single {
            (self.per_row, self.per_cipher) = (1, 1);
        }
    }

    /// Input channels times phases.
    fn channels(&self) -> usize {
        self.conv.input[0] * self.phases.len()
    }

    /// c_n: channels of a ciphertext.
    #[must_use]
    pub fn channels_per_cipher(&self) -> usize {
        self.per_cipher
    }

    /// The number of output channels of the convolution.
    #[must_use]
    pub fn channels_out(&self) -> usize {
        self.conv.output[0]
    }

    /// Elements of the input tensor.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.conv.input.iter().product()
    }

    /// Elements of the output tensor.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.conv.output.iter().product()
    }

    /// Number of spatial tiles, which are computed one by one.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.conv.output[1].div_ceil(self.tile.0) * self.conv.output[2].div_ceil(self.tile.1)
    }

    /// Input ciphertexts of a tile.
    #[must_use]
    pub fn input_blocks(&self) -> usize {
        self.channels().div_ceil(self.per_cipher)
    }

    /// Output ciphertexts of a tile.
    #[must_use]
    pub fn output_blocks(&self) -> usize {
        self.conv.output[0].div_ceil(self.per_cipher)
    }

    fn tile_origin(&self, tile: usize) -> (usize, usize) {
        let across = self.conv.output[2].div_ceil(self.tile.1);
        (tile / across * self.tile.0, tile % across * self.tile.1)
    }

    /// First slot of a channel block.
    fn base(&self, block: usize) -> usize {
        block / self.per_row * (self.n / 2) + block % self.per_row * self.stride
    }

    /// Columns of a kernel offset.
    fn columns(&self, offset: (i64, i64)) -> i64 {
        (offset.0 - self.origin.0) * self.grid.1 as i64 + offset.1 - self.origin.1
    }

    /// The rotation of every kernel offset.
    pub(crate) fn tap_turns(&self) -> Vec<Turn> {
        self.offsets.iter().map(|o| Turn::by(self.columns(*o), self.n / 2)).collect()
    }

    /// The permutation of step d.
    pub(crate) fn turn(&self, step: usize) -> Turn {
        Turn { swap: step >= self.per_row, left: step % self.per_row * self.stride }
    }

    /// A kernel rotation and the permutation of a step in one.
    pub(crate) fn combined(&self, step: usize, tap: Turn) -> Turn {
        tap.then(self.turn(step), self.n / 2)
    }

    /// Whether permutations of channels are done to the inputs, and so depend on the pair of step and kernel offset.
    pub(super) fn turns_inputs(&self) -> bool {
        self.order.early != Early::None
    }

    /// The part of a step that is done to the inputs.
    fn early(&self, step: usize) -> usize {
        match self.order.early {
            Early::All => step,
            Early::None | Early::Steps => step % self.baby,
        }
    }

    /// The channel block that step d brings to block b.
    fn source(&self, block: usize, step: usize) -> usize {
        let swapped = (block / self.per_row) ^ (step / self.per_row);
        swapped * self.per_row + (block % self.per_row + step % self.per_row) % self.per_row
    }

    pub(super) fn turns(&self) -> Vec<Turn> {
        let taps = self.tap_turns();
        let mut turns = if self.turns_inputs() {
            let pairs: BTreeSet<_> = self.used_pairs().into_iter().flatten().collect();
            pairs.into_iter().map(|(step, tap)| self.combined(step, taps[tap])).collect()
        } else {
            taps
        };
        if self.order.early == Early::All {
            return turns;
        }
        let steps: BTreeSet<_> =
            (0..self.output_blocks()).flat_map(|o| self.late_steps(o)).map(|(step, _)| step).collect();
        turns.extend(steps.into_iter().map(|s| self.turn(s)));
        turns
    }

    /// Input ciphertexts that share a group of channels with an output ciphertext.
    pub(crate) fn inputs_of(&self, output: usize) -> Range<usize> {
        let (ipg, opg) = (self.conv.group_inputs() * self.phases.len(), self.conv.group_outputs());
        let first = output * self.per_cipher / opg;
        let last = (((output + 1) * self.per_cipher).min(self.conv.output[0]) - 1) / opg;
        first * ipg / self.per_cipher..((last + 1) * ipg - 1) / self.per_cipher + 1
    }

    /// The step that brings block `to` of an output ciphertext together with block `from` of an input ciphertext.
    fn step_between(&self, to: usize, from: usize) -> usize {
        let swapped = (to / self.per_row) ^ (from / self.per_row);
        swapped * self.per_row + (from % self.per_row + self.per_row - to % self.per_row) % self.per_row
    }

    /// By step and phase: whether channels of one group meet between two ciphertexts. `visited` counts the pairs that are looked at.
    ///
    /// Only pairs within a group are visited, from the ciphertext that holds fewer channels: small images leave most of a ciphertext
    /// empty, and a depthwise layer has one pair a channel.
    fn meetings(&self, output: usize, input: usize, visited: &mut usize) -> Vec<bool> {
        let (phases, per) = (self.phases.len(), self.per_cipher);
        let held = |all: usize, block: usize| (block * per).min(all)..((block + 1) * per).min(all);
        let (outputs, inputs) = (held(self.conv.output[0], output), held(self.channels(), input));
        let (group_outputs, group_inputs) = (self.conv.group_outputs(), self.conv.group_inputs() * phases);
        let within = |all: &Range<usize>, group: usize, of: usize| {
            (group * of).max(all.start)..((group + 1) * of).min(all.end)
        };
        let mut met = vec![false; per * phases];
        let mut missing = met.len();
        let mut meet = |o: usize, v: usize| {
            *visited += 1;
            let at = self.step_between(o - output * per, v - input * per) * phases + v % phases;
            missing -= usize::from(!std::mem::replace(&mut met[at], true));
            missing == 0
        };
        let full = if inputs.len() < outputs.len() {
            inputs.clone().any(|v| within(&outputs, v / group_inputs, group_outputs).any(|o| meet(o, v)))
        } else {
            outputs.clone().any(|o| within(&inputs, o / group_outputs, group_inputs).any(|v| meet(o, v)))
        };
        debug_assert!(!full || met.iter().all(|m| *m));
        met
    }

    /// Steps with a weight between two ciphertexts, and the terms of each.
    pub(crate) fn steps_of(&self, output: usize, input: usize) -> Vec<(usize, Vec<Term>)> {
        let (phases, met) = (self.phases.len(), self.meetings(output, input, &mut 0));
        let steps =
            met.chunks_exact(phases).enumerate().filter(|(_, m)| m.contains(&true)).map(|(step, m)| {
                let mut used = vec![phases == 1; self.offsets.len()];
                self.taps.iter().filter(|t| m[t.phase]).for_each(|t| used[t.offset] = true);
                let term = |tap| Term {
                    output: output as u32,
                    input: input as u32,
                    step: step as u32,
                    tap: tap as u32,
                };
                (step, (0..used.len()).filter(|tap| used[*tap]).map(term).collect::<Vec<_>>())
            });
        steps.filter(|(_, terms)| !terms.is_empty()).collect()
    }

    /// Steps of an output ciphertext, and the terms of each over all inputs.
    pub(crate) fn grouped_steps(&self, output: usize) -> Vec<(usize, Vec<Term>)> {
        let mut grouped = vec![Vec::new(); self.per_cipher];
        for input in self.inputs_of(output) {
            for (step, terms) in self.steps_of(output, input) {
                grouped[step].extend(terms);
            }
        }
        grouped.into_iter().enumerate().filter(|(_, terms)| !terms.is_empty()).collect()
    }

    /// Steps of an output ciphertext as far as they are done to sums, and the terms of each: those of [`Self::grouped_steps`], b of them
    /// together.
    pub(crate) fn late_steps(&self, output: usize) -> Vec<(usize, Vec<Term>)> {
        let mut late: Vec<(usize, Vec<Term>)> = Vec::new();
        for (step, terms) in self.grouped_steps(output) {
            let at = step - step % self.baby;
            match late.last_mut() {
                Some((last, all)) if *last == at => all.extend(terms),
                _ => late.push((at, terms)),
            }
        }
        late
    }

    /// The sums of an output ciphertext: what is permuted by a step, and the terms of it. Where all permutations are done to inputs there is
    /// one, which stays.
    pub(super) fn sums(&self, output: usize) -> Vec<(usize, Vec<Term>)> {
        if self.order.grouped {
            return self.late_steps(output);
        }
        let steps = self.inputs_of(output).flat_map(|input| self.steps_of(output, input));
        if self.order.early == Early::All {
            return vec![(0, steps.flat_map(|(_, terms)| terms).collect())];
        }
        steps.collect()
    }

    /// The pair of a term in [`Self::used_pairs`].
    pub(crate) fn pair(&self, term: &Term) -> (usize, usize) {
        (self.early(term.step as usize), term.tap as usize)
    }

    /// For every input ciphertext the pairs (step done to inputs, kernel offset) that some output uses, sorted.
    pub(crate) fn used_pairs(&self) -> Vec<Vec<(usize, usize)>> {
        let mut pairs = vec![BTreeSet::new(); self.input_blocks()];
        for term in self.terms() {
            pairs[term.input as usize].insert(self.pair(&term));
        }
        pairs.into_iter().map(|p| p.into_iter().collect()).collect()
    }

    pub(crate) fn empty_output(&self) -> SlotError {
        BfvError::Length { what: "steps of an output ciphertext", expected: 1, got: 0 }.into()
    }

    pub(super) fn terms(&self) -> Vec<Term> {
        let outputs = 0..self.output_blocks();
        if self.order.grouped {
            return outputs.flat_map(|o| self.grouped_steps(o)).flat_map(|(_, terms)| terms).collect();
        }
        let pairs = outputs.flat_map(|o| self.inputs_of(o).map(move |i| (o, i)));
        pairs.flat_map(|(o, i)| self.steps_of(o, i)).flat_map(|(_, terms)| terms).collect()
    }

    /// Whether every ciphertext is full, so that the papers' closed formulas hold.
    fn is_plain(&self) -> bool {
        let cn = self.per_cipher;
        let full = self.channels().is_multiple_of(cn) && self.conv.output[0].is_multiple_of(cn);
        full && self.conv.groups == 1 && self.phases.len() == 1
    }

    pub(super) fn counts(&self) -> Counts {
        let turns = self.tap_turns();
        let still = turns.iter().filter(|t| t.is_identity()).count() as u64;
        let k = self.offsets.len() as u64;
        if self.is_plain() && still == 1 {
            let (ci, co, cn) = (self.channels() as u64, self.conv.output[0] as u64, self.per_cipher as u64);
            let sizes = ConvSizes { channels: (ci, co, cn), taps: k, baby: self.baby as u64 };
            return (self.order.counts)(&sizes);
        }
        // In general: sums over the pairs that are in use.
        let mut c = Counts::default();
        let moving =
            |turns: &mut dyn Iterator<Item = Turn>| turns.filter(|t| !t.is_identity()).count() as u64;
        if self.turns_inputs() {
            for pairs in self.used_pairs() {
                let moved = moving(&mut pairs.iter().map(|(s, t)| self.combined(*s, turns[*t])));
                c.hst_perm += moved;
                c.dec_perm += u64::from(moved > 0);
            }
        } else {
            c.hst_perm = self.input_blocks() as u64 * (k - still);
            c.dec_perm = if k > still { self.input_blocks() as u64 } else { 0 };
        }
        for output in 0..self.output_blocks() {
            let mut terms = 0;
            if self.order.grouped {
                for (step, list) in self.late_steps(output) {
                    terms += list.len() as u64;
                    c.perm += u64::from(step > 0);
                }
            } else {
                for (step, list) in self.inputs_of(output).flat_map(|i| self.steps_of(output, i)) {
                    terms += list.len() as u64;
                    c.perm += u64::from(step > 0 && self.order.early != Early::All);
                }
            }
            c.sc_mult += terms;
            c.add += terms - 1;
        }
        c
    }

    pub(super) fn noise(&self, spec: &BfvSpec) -> Noise {
        let (n, fresh) = (spec.ring_degree, Noise::fresh(spec.ring_degree));
        let norm2 = NORM_SLACK * weight_norm2(n, spec.plain_modulus);
        let (mut most, mut switched) = (0usize, 0usize);
        for output in 0..self.output_blocks().min(2) {
            let (terms, perms) = if self.order.grouped {
                let steps = self.late_steps(output);
                (steps.iter().map(|s| s.1.len()).sum(), steps.len())
            } else {
                let steps: Vec<_> = self.inputs_of(output).flat_map(|i| self.steps_of(output, i)).collect();
                (steps.iter().map(|s| s.1.len()).sum(), steps.len())
            };
            most = most.max(terms);
            switched = switched.max(perms);
        }
        let hoists = self.tap_turns().iter().any(|t| !t.is_identity());
        let turns_inputs = hoists || (self.order.early == Early::All && self.per_cipher > 1) || self.baby > 1;
        let input = if turns_inputs { fresh.permuted(spec) } else { fresh };
        let noise = input.times(n, norm2 * most as f64);
        if self.order.single || self.order.early == Early::All || switched <= 1 {
            return noise;
        }
        let added = Noise::flat(n, hushnet_rlwe::bfv::noise::switching_sd(spec)).sum(switched as f64);
        noise.plus(added)
    }

    /// Row-major index of the element in grid place (y, x) of virtual channel v.
    fn element(&self, origin: (usize, usize), v: usize, y: usize, x: usize) -> Option<usize> {
        let (channel, phase) = (v / self.phases.len(), self.phases[v % self.phases.len()]);
        let [_, h, w] = self.conv.input;
        let at = |first: usize, shift: i64, place: usize, s: usize, phase: usize, limit: usize| {
            let position = (first as i64 + shift + place as i64) * s as i64 + phase as i64;
            (0..limit as i64).contains(&position).then_some(position as usize)
        };
        let row = at(origin.0, self.origin.0, y, self.conv.stride[0], phase.0, h)?;
        let column = at(origin.1, self.origin.1, x, self.conv.stride[1], phase.1, w)?;
        Some((channel * h + row) * w + column)
    }

    pub(super) fn pack(&self, tile: usize, block: usize, tensor: &[u64]) -> Vec<u64> {
        let (origin, mut out) = (self.tile_origin(tile), vec![0; self.n]);
        for b in 0..self.per_cipher {
            let v = block * self.per_cipher + b;
            if v >= self.channels() {
                break;
            }
            let base = self.base(b);
            for y in 0..self.grid.0 {
                for x in 0..self.grid.1 {
                    if let Some(e) = self.element(origin, v, y, x) {
                        out[base + y * self.grid.1 + x] = tensor[e];
                    }
                }
            }
        }
        out
    }

    pub(super) fn unpack(&self, tile: usize, block: usize, slots: &[u64], out: &mut [u64]) {
        let (ty, tx) = self.tile_origin(tile);
        let [channels, oh, ow] = self.conv.output;
        for b in 0..self.per_cipher {
            let o = block * self.per_cipher + b;
            if o >= channels {
                break;
            }
            let base = self.base(b);
            for y in 0..self.tile.0.min(oh - ty) {
                for x in 0..self.tile.1.min(ow - tx) {
                    out[(o * oh + ty + y) * ow + tx + x] = slots[base + y * self.grid.1 + x];
                }
            }
        }
    }

    pub(super) fn weight(&self, term: Term, weights: &[i16], t: u64) -> Vec<u64> {
        let (c, phases) = (&self.conv, self.phases.len());
        let (ipg, opg, area) = (c.group_inputs(), c.group_outputs(), c.kernel[0] * c.kernel[1]);
        let offset = self.offsets[term.tap as usize];
        let (dy, dx) = (offset.0 - self.origin.0, offset.1 - self.origin.1);
        // Output places whose input place is inside of the grid.
        let inside = |d: i64, size: usize, limit: usize| {
            let first = (-d).max(0) as usize;
            first..size.min((limit as i64 - d).max(0) as usize).max(first)
        };
        let (ys, xs) = (inside(dy, self.tile.0, self.grid.0), inside(dx, self.tile.1, self.grid.1));
        let mut out = vec![0; self.n];
        for block in 0..self.per_cipher {
            let source = self.source(block, term.step as usize);
            let o = term.output as usize * self.per_cipher + block;
            let v = term.input as usize * self.per_cipher + source;
            if o >= c.output[0] || v >= self.channels() || v / phases / ipg != o / opg {
                continue;
            }
            let tap = self.taps.iter().find(|p| p.offset == term.tap as usize && p.phase == v % phases);
            let Some(tap) = tap else { continue };
            let w = residue(weights[(o * ipg + v / phases % ipg) * area + tap.kernel], t);
            // Output rotations multiply where the input stands, input rotations where the output will.
            let base = self.base(if self.order.early == Early::All { block } else { source });
            for y in ys.clone() {
                out[base + y * self.grid.1..][xs.clone()].fill(w);
            }
        }
        match self.baby {
            1 => out,
            _ => self.turn(self.early(term.step as usize)).apply(&out),
        }
    }
}

#[cfg(test)]
mod tests;
