//! Where the elements of a tensor and of the weights stand in polynomials, so that coefficients of negacyclic products are the sums of a
//! convolution: the one layout of [`crate::cheetah`], [`crate::convfhe`] and [`crate::rotation_free`].
//!
//! **Strides and dilations** go first: a convolution of stride (s, t) is one of stride 1 over `s t` phase images for every channel (space to
//! depth); a tap of the dilated kernel at offset `o = i d` belongs to phase `o mod s` at position `o div s`. Phases that no tap touches are left
//! out, so a strided 1x1 convolution touches only the pixels that it needs. Padding is absent. A dense layer is the convolution of a 1x1 image.
//!
//! **Tiles.** The output is cut into tiles of `th x tw`, which need `S = Ht Wt` pixels of every channel, `Ht = th + KH - 1`, `Wt = tw + KW - 1`.
//!
//! **Channels in blocks** ([`Layout::choose_blocks`]; Huang, Lu, Hong, Ding, "Cheetah", USENIX Security 2022, section 3). An input polynomial holds
//! `Cw` channels of a tile, `x(c, y, x)` at `c S + y Wt + x`; a weight polynomial serves `Mw` output channels, `w(m, c, i, j)` at
//! `m Cw S + (Cw-1-c) S + (KH-1-i) Wt + (KW-1-j)`, with `Mw Cw S <= N`. Then the sum for output `(m, y, x)` stands at
//! `m Cw S + (Cw-1) S + (KH-1) Wt + (KW-1) + y Wt + x`: terms with other channels land whole blocks of S away, terms of other `m` at least `Cw`
//! blocks away, what spills over the end of a block stays below `(KH-1) Wt + KW - 1`, and what wraps around N lands below
//! `(Cw-1) S + (KH-1) Wt + KW - 1`. Larger `Mw` means fewer polynomials down and more up. All of this holds for any `S >= Ht Wt`: kernels of
//! one position may have blocks that are a little longer than their pixels, so that weights stand at multiples of a larger power of two
//! ([`Layout::choose_apart_by`]).
//!
//! **Channels interleaved** ([`Layout::choose`]): all useful coefficients of a product are multiples of one power of two s. With Y = X^s and P = N/s,
//! an input polynomial holds up to s channels of a tile, `sum_c x_c(Y) X^c`, a weight polynomial
//! `sum_c w_c(Y) X^-c`; the part of their product on multiples of s is `sum_c x_c(Y) w_c(Y)` modulo Y^P + 1: terms of different channels
//! land between the multiples. Within a channel, pixels stand as above: `x(y, x)` at Y^(y Wt + x),
//! and the weights of output m at `m S + (KH-1-i) Wt + (KW-1-j)`, `M S <= P`; its result (y, x) stands at Y^(m S + (KH-1) Wt + KW-1 + y Wt + x).
//! (The rotation-free paper, `docs/rotation-free.md`, eq. (5) to (11), has M = 1 and multiplies filter n by X^(n c_i/c_o), so that results of
//! different channels stand side by side in one polynomial. Here as there only useful coefficients are computed and sent, one channel's after the other's; where they would stand in
//! a polynomial makes no difference.) A dense layer has inputs X^c, M = P outputs at multiples of s. [`Layout::dense_of_the_paper`] is the paper's
//! own packing (12), (13), inputs at multiples of M and outputs at X^0 ... X^(M-1), for comparison.

use crate::batch::{Geometry, LayerError};
use crate::phases::{candidate_sizes, shape_of, Phases, Tap};
use rayon::prelude::*;

/// Polynomials and products of a layer, for one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutCost {
    /// Polynomials that the client sends.
    pub input_polys: usize,
    /// Polynomials of which the server returns coefficients.
    pub output_polys: usize,
    /// Products of an input and a weight polynomial that is not zero.
    pub products: usize,
    /// Weight polynomials that are not zero.
    pub weight_polys: usize,
    /// Useful coefficients returned.
    pub outputs: usize,
}

/// Seconds for one of each, from which the cheapest layout follows.
#[derive(Clone, Copy, Debug)]
pub struct LayoutPrices {
    /// Seconds an input polynomial (both parties' transforms, transfer).
    pub input: f64,
    /// Seconds a coefficient of the final transforms of both parties.
    pub output: f64,
    /// Seconds an output polynomial, besides.
    pub output_poly: f64,
    /// Seconds a product of both parties.
    pub product: f64,
    /// Seconds a weight polynomial of the set-up, divided by the queries that it serves.
    pub weight: f64,
}

/// The places of all elements for one layer and ring degree.
#[derive(Clone, Debug)]
pub struct Layout {
    n: usize,
    shape: (usize, usize, usize),
    input: (usize, usize),
    output: (usize, usize),
    kernel: (usize, usize),
    stride: (usize, usize),
    pads: (usize, usize),
    extent: (usize, usize),
    phases: Vec<(usize, usize)>,
    taps: Vec<Tap>,
    tile: (usize, usize),
    order: Order,
    /// s; 1 where channels stand in blocks.
    spacing: usize,
    /// What the places of a channel in a block are a multiple of.
    apart: usize,
    channels_per_poly: usize,
    outputs_per_poly: usize,
}

/// How the channels of a polynomial stand beside each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// One channel's pixels after the other's.
    Blocks,
    /// Between each other's pixels.
    Interleaved,
    /// Packing (12), (13).
    PaperDense,
}

/// The cheapest of the layouts tried so far.
struct Best<F> {
    price: F,
    found: Option<(f64, Layout)>,
}

impl<F: Fn(&Layout) -> f64> Best<F> {
    fn new(price: F) -> Self {
        Self { price, found: None }
    }

    fn offer(&mut self, layout: &Layout) {
        let price = (self.price)(layout);
        if self.found.as_ref().is_none_or(|(p, _)| price < *p) {
            self.found = Some((price, layout.clone()));
        }
    }

    fn take(self, tried: &Layout) -> Result<Layout, LayerError> {
        self.found.map(|(_, l)| l).ok_or(LayerError::TooLarge {
            what: "receptive field of one output pixel",
            needed: tried.extent.0 * tried.extent.1,
            limit: tried.n,
        })
    }
}

impl Layout {
    /// The cheapest layout of a layer at ring degree `n` with interleaved channels.
    ///
    /// # Errors
    /// [`LayerError::TooLarge`] when not even one pixel's receptive field fits in `n` coefficients.
    pub fn choose(geometry: &Geometry, n: usize, prices: &LayoutPrices) -> Result<Self, LayerError> {
        Self::choose_within(geometry, n, prices, n)
    }

    /// As [`Self::choose`], with a spacing s of at most `most`.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub fn choose_within(
        geometry: &Geometry,
        n: usize,
        prices: &LayoutPrices,
        most: usize,
    ) -> Result<Self, LayerError> {
        let mut layout = Self::unplaced(geometry, n, Order::Interleaved);
        let channels = layout.virtual_channels();
        let mut best = Best::new(|layout: &Self| layout.seconds(prices));
        for th in candidate_sizes(layout.output.0) {
            for tw in candidate_sizes(layout.output.1) {
                layout.tile = (th, tw);
                let pixels = layout.pixels().0;
                let mut spacing = 1;
                while spacing * pixels <= n && spacing < 2 * channels && spacing <= most {
                    layout.spacing = spacing;
                    layout.channels_per_poly = spacing.min(channels);
                    layout.outputs_per_poly = (n / spacing / pixels).min(layout.shape.1);
                    best.offer(&layout);
                    spacing *= 2;
                }
            }
        }
        best.take(&layout)
    }

    /// The cheapest layout of a layer at ring degree `n` with channels in blocks.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub fn choose_blocks(geometry: &Geometry, n: usize, prices: &LayoutPrices) -> Result<Self, LayerError> {
        Self::choose_blocks_by(geometry, n, |layout| layout.seconds(prices))
    }

    /// As [`Self::choose_blocks`], with a price for a whole layout.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub fn choose_blocks_by(
        geometry: &Geometry,
        n: usize,
        price: impl Fn(&Self) -> f64,
    ) -> Result<Self, LayerError> {
        Self::choose_apart_by(geometry, n, &[1], price)
    }

    /// As [`Self::choose_blocks_by`], for kernels of one position with the places of a channel rounded up to a multiple of one of `apart`.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub fn choose_apart_by(
        geometry: &Geometry,
        n: usize,
        apart: &[usize],
        price: impl Fn(&Self) -> f64,
    ) -> Result<Self, LayerError> {
        let mut layout = Self::unplaced(geometry, n, Order::Blocks);
        let channels = layout.virtual_channels();
        let apart = if layout.extent == (1, 1) { apart } else { &[1][..] };
        let mut best = Best::new(price);
        for th in candidate_sizes(layout.output.0) {
            for tw in candidate_sizes(layout.output.1) {
                layout.tile = (th, tw);
                let mut tried = 0;
                for apart in apart {
                    layout.apart = *apart;
                    let pixels = layout.pixels().0;
                    if pixels == std::mem::replace(&mut tried, pixels) {
                        continue;
                    }
                    for outputs in candidate_sizes(layout.shape.1.min(n / pixels)) {
                        layout.outputs_per_poly = outputs;
                        layout.channels_per_poly = (n / pixels / outputs).clamp(1, channels);
                        best.offer(&layout);
                    }
                }
            }
        }
        best.take(&layout)
    }

    /// The paper's layout of a convolution: whole channels, as many to a polynomial as fit (a power of two), one output channel a polynomial.
    ///
    /// # Errors
    /// [`LayerError::TooLarge`] when one channel does not fit.
    pub fn of_the_paper(geometry: &Geometry, n: usize) -> Result<Self, LayerError> {
        let mut layout = Self::unplaced(geometry, n, Order::Interleaved);
        layout.tile = layout.output;
        let pixels = layout.pixels().0;
        if pixels > n {
            return Err(LayerError::TooLarge { what: "one channel", needed: pixels, limit: n });
        }
        let room = (n / pixels).min(layout.virtual_channels().next_power_of_two());
        layout.spacing = 1 << room.ilog2();
        layout.channels_per_poly = layout.spacing.min(layout.virtual_channels());
        layout.outputs_per_poly = 1;
        Ok(layout)
    }

    /// Packing (12), (13): M outputs a polynomial, `M K <= N`; larger matrices are cut.
    ///
    /// # Errors
    /// [`LayerError::TooLarge`] unless the layer is dense.
    pub fn dense_of_the_paper(geometry: &Geometry, n: usize) -> Result<Self, LayerError> {
        let mut layout = Self::unplaced(geometry, n, Order::PaperDense);
        if !matches!(geometry, Geometry::Dense(_)) {
            return Err(LayerError::TooLarge { what: "an image", needed: layout.output.0, limit: 1 });
        }
        layout.channels_per_poly = layout.shape.0.min(n);
        layout.outputs_per_poly = (n / layout.channels_per_poly).min(layout.shape.1);
        Ok(layout)
    }

    fn unplaced(geometry: &Geometry, n: usize, order: Order) -> Self {
        let s = shape_of(geometry);
        let Phases { phases, taps, extent } = s.phases();
        Self {
            n,
            shape: (s.input[0], s.output[0], s.groups),
            input: (s.input[1], s.input[2]),
            output: (s.output[1], s.output[2]),
            kernel: (s.kernel[0], s.kernel[1]),
            stride: (s.stride[0], s.stride[1]),
            pads: (s.pads[0], s.pads[1]),
            extent,
            phases,
            taps,
            tile: (1, 1),
            order,
            spacing: 1,
            apart: 1,
            channels_per_poly: 1,
            outputs_per_poly: 1,
        }
    }

    /// What the layout takes by such prices.
    #[must_use]
    pub fn seconds(&self, prices: &LayoutPrices) -> f64 {
        let cost = self.cost();
        prices.input * cost.input_polys as f64
            + prices.output * (cost.output_polys * self.n / self.spacing) as f64
            + prices.output_poly * cost.output_polys as f64
            + prices.product * cost.products as f64
            + prices.weight * cost.weight_polys as f64
    }

    fn virtual_channels(&self) -> usize {
        self.shape.0 * self.phases.len()
    }

    /// Rows of a tile, and pixels of each.
    fn window(&self) -> (usize, usize) {
        (self.tile.0 + self.extent.0 - 1, self.tile.1 + self.extent.1 - 1)
    }

    /// Places of a channel's tile, and pixels of its rows.
    fn pixels(&self) -> (usize, usize) {
        let (ht, wt) = self.window();
        ((ht * wt).next_multiple_of(self.apart), wt)
    }

    /// The ring degree N of the polynomials.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.n
    }

    /// s: useful coefficients are multiples of it; 1 where channels stand in blocks.
    #[must_use]
    pub fn spacing(&self) -> usize {
        self.spacing
    }

    /// Places of a tile in a channel: its pixels, those at its margins included, and what is free behind them.
    #[must_use]
    pub fn tile_pixels(&self) -> usize {
        self.pixels().0
    }

    /// Number of spatial tiles, which are computed one by one.
    #[must_use]
    pub fn tiles(&self) -> usize {
        self.output.0.div_ceil(self.tile.0) * self.output.1.div_ceil(self.tile.1)
    }

    /// Input polynomials of one tile.
    #[must_use]
    pub fn input_blocks(&self) -> usize {
        self.virtual_channels().div_ceil(self.channels_per_poly)
    }

    /// Output polynomials of one tile.
    #[must_use]
    pub fn output_blocks(&self) -> usize {
        self.shape.1.div_ceil(self.outputs_per_poly)
    }

    /// Elements of the input tensor.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.shape.0 * self.input.0 * self.input.1
    }

    /// Elements of the output tensor.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.shape.1 * self.output.0 * self.output.1
    }

    /// Output channels (rows of a dense layer).
    #[must_use]
    pub fn channels_out(&self) -> usize {
        self.shape.1
    }

    /// The number of weights that the layer has.
    #[must_use]
    pub fn weight_len(&self) -> usize {
        self.shape.1 * (self.shape.0 / self.shape.2) * self.kernel.0 * self.kernel.1
    }

    /// Most input blocks that meet in an output polynomial.
    #[must_use]
    pub fn terms(&self) -> usize {
        if self.shape.2 == 1 {
            return self.input_blocks();
        }
        (0..self.output_blocks()).map(|j| self.inputs_of(j).len()).max().unwrap_or(1)
    }

    /// The input blocks that share a group with output block `j`.
    #[must_use]
    pub fn inputs_of(&self, j: usize) -> std::ops::Range<usize> {
        let (channels, outputs, groups) = self.shape;
        let per_group = outputs / groups;
        let first = j * self.outputs_per_poly;
        let last = (first + self.outputs_per_poly).min(outputs) - 1;
        let virtual_per_group = channels / groups * self.phases.len();
        let first_channel = first / per_group * virtual_per_group;
        let last_channel = (last / per_group + 1) * virtual_per_group - 1;
        first_channel / self.channels_per_poly..last_channel / self.channels_per_poly + 1
    }

    /// Index of the weight polynomial of output block `j` and the first of its input blocks: they are numbered block by block.
    #[must_use]
    pub fn first_weight_poly(&self, j: usize) -> usize {
        (0..j).map(|j| self.inputs_of(j).len()).sum()
    }

    /// Polynomials and products; equals what the execution counts.
    #[must_use]
    pub fn cost(&self) -> LayoutCost {
        let pairs = if self.shape.2 == 1 {
            self.input_blocks() * self.output_blocks()
        } else {
            (0..self.output_blocks()).map(|j| self.inputs_of(j).len()).sum()
        };
        LayoutCost {
            input_polys: self.tiles() * self.input_blocks(),
            output_polys: self.tiles() * self.output_blocks(),
            products: self.tiles() * pairs,
            weight_polys: pairs,
            outputs: self.output_len(),
        }
    }

    /// Bytes of the weights in evaluation form, one word a coefficient.
    #[must_use]
    pub fn prepared_bytes(&self) -> usize {
        self.cost().weight_polys * self.n * 8
    }

    /// A power of two that all places of weights are multiples of: that of the places of a tile, where channels stand in blocks and
    /// kernels have one position.
    #[must_use]
    pub fn weight_spacing(&self) -> usize {
        match self.order {
            Order::Blocks if self.extent == (1, 1) => 1 << self.pixels().0.trailing_zeros(),
            _ => 1,
        }
    }

    fn tile_origin(&self, tile: usize) -> (usize, usize) {
        let across = self.output.1.div_ceil(self.tile.1);
        (tile / across * self.tile.0, tile % across * self.tile.1)
    }

    /// Calls `f(coefficient, element)` for every element of the input tensor (C, H, W row-major) in polynomial (`tile`, `block`).
    pub fn for_each_input(&self, tile: usize, block: usize, mut f: impl FnMut(usize, usize)) {
        let first = block * self.channels_per_poly;
        let last = (first + self.channels_per_poly).min(self.virtual_channels());
        let ((s, wt), rows) = (self.pixels(), self.window().0);
        let (ty, tx) = self.tile_origin(tile);
        // Pixel p of the channel in place c stands at p * pixel + c * step.
        let (pixel, step) = match self.order {
            Order::Blocks => (1, s),
            Order::Interleaved => (self.spacing, 1),
            Order::PaperDense => (1, self.outputs_per_poly),
        };
        for (slot, channel) in (first..last).enumerate() {
            let (c, phase) = (channel / self.phases.len(), self.phases[channel % self.phases.len()]);
            for y in 0..rows {
                let row = ((ty + y) * self.stride.0 + phase.0).wrapping_sub(self.pads.0);
                if row >= self.input.0 {
                    continue;
                }
                for x in 0..wt {
                    let column = ((tx + x) * self.stride.1 + phase.1).wrapping_sub(self.pads.1);
                    if column < self.input.1 {
                        let element = (c * self.input.0 + row) * self.input.1 + column;
                        f((y * wt + x) * pixel + slot * step, element);
                    }
                }
            }
        }
    }

    /// Calls `f(coefficient, weight, negative)` for every weight (O, C/groups, kh, kw row-major) in the weight polynomial of input block `i`
    /// and output block `j`; some stand there with the other sign.
    pub fn for_each_weight(&self, i: usize, j: usize, mut f: impl FnMut(usize, usize, bool)) {
        let (s, wt) = self.pixels();
        let (channels, outputs, groups) = self.shape;
        let per_group = (channels / groups, outputs / groups);
        let first = i * self.channels_per_poly;
        let range = first..(first + self.channels_per_poly).min(self.virtual_channels());
        let first_output = j * self.outputs_per_poly;
        for (m, o) in (first_output..(first_output + self.outputs_per_poly).min(outputs)).enumerate() {
            for (slot, channel) in range.clone().enumerate() {
                let (c, phase) = (channel / self.phases.len(), channel % self.phases.len());
                if c / per_group.0 != o / per_group.1 {
                    continue;
                }
                for tap in self.taps.iter().filter(|t| t.phase == phase) {
                    let place = (self.extent.0 - 1 - tap.at.0) * wt + (self.extent.1 - 1 - tap.at.1);
                    let weight = ((o * per_group.0 + c % per_group.0) * self.kernel.0 + tap.kernel.0)
                        * self.kernel.1
                        + tap.kernel.1;
                    let (at, negative) = self.weight_place((m, slot), s, place);
                    f(at, weight, negative);
                }
            }
        }
    }

    /// Where the weight at `place` between input channel number `slot` and output number `m` of a polynomial stands; S pixels. X^-c is -X^(N-c).
    fn weight_place(&self, (m, slot): (usize, usize), s: usize, place: usize) -> (usize, bool) {
        let behind = |at: usize, by: usize| ((at + self.n - by) % self.n, at < by);
        match self.order {
            Order::Blocks => {
                ((m * self.channels_per_poly + self.channels_per_poly - 1 - slot) * s + place, false)
            }
            Order::Interleaved => behind((m * s + place) * self.spacing, slot),
            Order::PaperDense => behind(m, slot * self.outputs_per_poly),
        }
    }

    /// Calls `f(coefficient / s, element)` for every valid output (O, OH, OW row-major) in output polynomial (`tile`, `block`).
    pub fn for_each_output(&self, tile: usize, block: usize, mut f: impl FnMut(usize, usize)) {
        let (s, wt) = self.pixels();
        let (ty, tx) = self.tile_origin(tile);
        let first = block * self.outputs_per_poly;
        let offset = (self.extent.0 - 1) * wt + self.extent.1 - 1;
        let (step, offset) = match self.order {
            Order::Blocks => (self.channels_per_poly * s, offset + (self.channels_per_poly - 1) * s),
            Order::Interleaved | Order::PaperDense => (s, offset),
        };
        for (m, o) in (first..(first + self.outputs_per_poly).min(self.shape.1)).enumerate() {
            for y in 0..self.tile.0.min(self.output.0 - ty) {
                for x in 0..self.tile.1.min(self.output.1 - tx) {
                    let element = (o * self.output.0 + ty + y) * self.output.1 + tx + x;
                    f(m * step + offset + y * wt + x, element);
                }
            }
        }
    }

    /// Valid outputs in polynomial (`tile`, `block`).
    #[must_use]
    pub fn output_count(&self, tile: usize, block: usize) -> usize {
        let (ty, tx) = self.tile_origin(tile);
        let outputs = (self.shape.1 - block * self.outputs_per_poly).min(self.outputs_per_poly);
        outputs * self.tile.0.min(self.output.0 - ty) * self.tile.1.min(self.output.1 - tx)
    }

    /// The coefficients of [`Self::for_each_output`], counted in units of `unit` (a divisor of s), and the elements that stand there.
    #[must_use]
    pub fn output_places(&self, tile: usize, block: usize, unit: usize) -> (Vec<usize>, Vec<usize>) {
        let count = self.output_count(tile, block);
        let (mut places, mut elements) = (Vec::with_capacity(count), Vec::with_capacity(count));
        self.for_each_output(tile, block, |at, e| {
            places.push(at * (self.spacing / unit));
            elements.push(e);
        });
        (places, elements)
    }

    /// Most output channels of an output polynomial.
    #[must_use]
    pub fn outputs_per_poly(&self) -> usize {
        self.outputs_per_poly
    }

    /// Weights that meet in output polynomials of block `j`, whatever their values.
    #[must_use]
    pub fn weights_of(&self, j: usize) -> usize {
        let mut count = 0;
        self.inputs_of(j).for_each(|i| self.for_each_weight(i, j, |_, _, _| count += 1));
        count
    }

    /// Square of the largest Euclidean norm of all weights that meet in one output polynomial.
    #[must_use]
    pub fn weight_norm2(&self, weights: &[i16]) -> u64 {
        let norm = |j: usize| {
            let mut sum = 0u64;
            for i in self.inputs_of(j) {
                self.for_each_weight(i, j, |_, w, _| sum += u64::from(weights[w].unsigned_abs()).pow(2));
            }
            sum
        };
        (0..self.output_blocks()).into_par_iter().map(norm).max().unwrap_or(0)
    }

    /// The weight polynomial of input block `i` and output block `j`, N signed coefficients.
    #[must_use]
    pub fn weight_poly(&self, weights: &[i16], i: usize, j: usize) -> Vec<i64> {
        self.spaced_weight_poly(weights, i, j, 1)
    }

    /// Its coefficients at multiples of `spacing`, which divides [`Self::weight_spacing`]: all others are zero.
    #[must_use]
    pub fn spaced_weight_poly(&self, weights: &[i16], i: usize, j: usize, spacing: usize) -> Vec<i64> {
        let mut coefficients = vec![0; self.n / spacing];
        self.for_each_weight(i, j, |at, w, negative| {
            let w = i64::from(weights[w]);
            coefficients[at / spacing] = if negative { -w } else { w };
        });
        coefficients
    }
}

#[cfg(test)]
mod tests;
