//! Where elements stand when channels are interleaved: all useful coefficients of a product are multiples of one power of two.
//!
//! With Y = X^s and P = N/s, an input polynomial holds up to s channels of a tile, `sum_c x_c(Y) X^c`, a weight polynomial
//! `sum_c w_c(Y) X^-c`; the part of their product on multiples of s is `sum_c x_c(Y) w_c(Y)` modulo Y^P + 1: terms of different channels
//! land between the multiples. Within a channel, pixels stand as in [`crate::cheetah`]: `x(y, x)` at Y^(y Wt + x), tiles of `Ht Wt = S`
//! pixels, and the weights of output m at `m S + (KH-1-i) Wt + (KW-1-j)`, `M S <= P`; its result (y, x) stands at Y^(m S + (KH-1) Wt + KW-1 + y Wt + x).
//! (The paper, eq. (5) to (11), has M = 1 and multiplies filter n by X^(n c_i/c_o), so that results of different channels stand side by side in one
//! polynomial. Here as there only useful coefficients are computed and sent, one channel's after the other's; where they would stand in
//! a polynomial makes no difference.)
//!
//! Strides and dilations are resolved into phase images, padding is absent, layers that are too large are cut into tiles and
//! channel blocks, exactly as in [`crate::cheetah`].
//!
//! A dense layer is a convolution of a 1x1 image: inputs X^c, M = P outputs at multiples of s. [`Layout::dense_of_the_paper`] is the paper's own
//! packing (12), (13), inputs at multiples of M and outputs at X^0 ... X^(M-1), for comparison.

use crate::batch::{Geometry, LayerError};
use crate::phases::{candidate_sizes, shape_of, Phases, Tap};

/// Polynomials and products of a layer, for one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutCost {
    /// Polynomials that the client sends.
    pub input_polys: usize,
    /// Polynomials of which the server returns the useful coefficients.
    pub output_polys: usize,
    /// Products of an input and a weight polynomial.
    pub products: usize,
    /// Weight polynomials: what the set-up sends.
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
    /// s.
    spacing: usize,
    channels_per_poly: usize,
    outputs_per_poly: usize,
    /// Packing (12), (13).
    paper_dense: bool,
}

impl Layout {
    /// The cheapest layout of a layer at ring degree `n`.
    ///
    /// # Errors
    /// [`LayerError::TooLarge`] when not even one pixel's receptive field fits in `n` coefficients.
    pub fn choose(geometry: &Geometry, n: usize, prices: &LayoutPrices) -> Result<Self, LayerError> {
        let mut layout = Self::unplaced(geometry, n);
        let channels = layout.virtual_channels();
        let mut best: Option<(f64, Layout)> = None;
        for th in candidate_sizes(layout.output.0) {
            for tw in candidate_sizes(layout.output.1) {
                layout.tile = (th, tw);
                let pixels = layout.pixels().0;
                let mut spacing = 1;
                while spacing * pixels <= n && spacing < 2 * channels {
                    layout.spacing = spacing;
                    layout.channels_per_poly = spacing.min(channels);
                    layout.outputs_per_poly = (n / spacing / pixels).min(layout.shape.1);
                    let seconds = layout.seconds(prices);
                    if best.as_ref().is_none_or(|(s, _)| seconds < *s) {
                        best = Some((seconds, layout.clone()));
                    }
                    spacing *= 2;
                }
            }
        }
        best.map(|(_, l)| l).ok_or(LayerError::TooLarge {
            what: "receptive field of one output pixel",
            needed: layout.extent.0 * layout.extent.1,
            limit: n,
        })
    }

    /// The paper's layout of a convolution: whole channels, as many to a polynomial as fit (a power of two), one output channel a polynomial.
    ///
    /// # Errors
    /// [`LayerError::TooLarge`] when one channel does not fit.
    pub fn of_the_paper(geometry: &Geometry, n: usize) -> Result<Self, LayerError> {
        let mut layout = Self::unplaced(geometry, n);
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
        let mut layout = Self::unplaced(geometry, n);
        if !matches!(geometry, Geometry::Dense(_)) {
            return Err(LayerError::TooLarge { what: "an image", needed: layout.output.0, limit: 1 });
        }
        layout.channels_per_poly = layout.shape.0.min(n);
        layout.outputs_per_poly = (n / layout.channels_per_poly).min(layout.shape.1);
        layout.paper_dense = true;
        Ok(layout)
    }

    fn unplaced(geometry: &Geometry, n: usize) -> Self {
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
            spacing: 1,
            channels_per_poly: 1,
            outputs_per_poly: 1,
            paper_dense: false,
        }
    }

    fn seconds(&self, prices: &LayoutPrices) -> f64 {
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

    /// Pixels of a tile, and of its rows.
    fn pixels(&self) -> (usize, usize) {
        let wt = self.tile.1 + self.extent.1 - 1;
        ((self.tile.0 + self.extent.0 - 1) * wt, wt)
    }

    /// Ring degree.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.n
    }

    /// s: useful coefficients are multiples of it.
    #[must_use]
    pub fn spacing(&self) -> usize {
        self.spacing
    }

    /// Spatial tiles.
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

    /// Weights of the layer.
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

    fn tile_origin(&self, tile: usize) -> (usize, usize) {
        let across = self.output.1.div_ceil(self.tile.1);
        (tile / across * self.tile.0, tile % across * self.tile.1)
    }

    /// Calls `f(coefficient, element)` for every element of the input tensor (C, H, W row-major) in polynomial (`tile`, `block`).
    pub fn for_each_input(&self, tile: usize, block: usize, mut f: impl FnMut(usize, usize)) {
        let first = block * self.channels_per_poly;
        let last = (first + self.channels_per_poly).min(self.virtual_channels());
        if self.paper_dense {
            (first..last).enumerate().for_each(|(l, c)| f(l * self.outputs_per_poly, c));
            return;
        }
        let (s, wt) = self.pixels();
        let (ty, tx) = self.tile_origin(tile);
        for (slot, channel) in (first..last).enumerate() {
            let (c, phase) = (channel / self.phases.len(), self.phases[channel % self.phases.len()]);
            for y in 0..s / wt {
                let row = ((ty + y) * self.stride.0 + phase.0).wrapping_sub(self.pads.0);
                if row >= self.input.0 {
                    continue;
                }
                for x in 0..wt {
                    let column = ((tx + x) * self.stride.1 + phase.1).wrapping_sub(self.pads.1);
                    if column < self.input.1 {
                        let element = (c * self.input.0 + row) * self.input.1 + column;
                        f((y * wt + x) * self.spacing + slot, element);
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
                if self.paper_dense {
                    let at = m + (self.n - slot * self.outputs_per_poly) % self.n;
                    f(at, o * channels + c, slot > 0);
                    continue;
                }
                for tap in self.taps.iter().filter(|t| t.phase == phase) {
                    let place = m * s + (self.extent.0 - 1 - tap.at.0) * wt + (self.extent.1 - 1 - tap.at.1);
                    let weight = ((o * per_group.0 + c % per_group.0) * self.kernel.0 + tap.kernel.0)
                        * self.kernel.1
                        + tap.kernel.1;
                    let negative = place == 0 && slot > 0;
                    f((place * self.spacing + self.n - slot) % self.n, weight, negative);
                }
            }
        }
    }

    /// Calls `f(coefficient / s, element)` for every valid output (O, OH, OW row-major) in output polynomial (`tile`, `block`).
    pub fn for_each_output(&self, tile: usize, block: usize, mut f: impl FnMut(usize, usize)) {
        let (s, wt) = self.pixels();
        let (ty, tx) = self.tile_origin(tile);
        let first = block * self.outputs_per_poly;
        let offset = (self.extent.0 - 1) * wt + self.extent.1 - 1;
        for (m, o) in (first..(first + self.outputs_per_poly).min(self.shape.1)).enumerate() {
            for y in 0..self.tile.0.min(self.output.0 - ty) {
                for x in 0..self.tile.1.min(self.output.1 - tx) {
                    let element = (o * self.output.0 + ty + y) * self.output.1 + tx + x;
                    f(m * s + offset + y * wt + x, element);
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
        (0..self.output_blocks()).map(norm).max().unwrap_or(0)
    }

    /// The weight polynomial of input block `i` and output block `j`, N signed coefficients.
    #[must_use]
    pub fn weight_poly(&self, weights: &[i16], i: usize, j: usize) -> Vec<i64> {
        let mut coefficients = vec![0; self.n];
        self.for_each_weight(i, j, |at, w, negative| {
            let w = i64::from(weights[w]);
            coefficients[at] = if negative { -w } else { w };
        });
        coefficients
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Conv2d, Dense};
    use crate::cheetah::packing::oracle;
    use proptest::prelude::*;

    fn negacyclic(a: &[i64], b: &[i64]) -> Vec<i64> {
        let n = a.len();
        let mut out = vec![0; n];
        for (i, x) in a.iter().enumerate().filter(|(_, x)| **x != 0) {
            for (j, y) in b.iter().enumerate().filter(|(_, y)| **y != 0) {
                if i + j < n {
                    out[i + j] += x * y;
                } else {
                    out[i + j - n] -= x * y;
                }
            }
        }
        out
    }

    fn check(geometry: &Geometry, p: &Layout) {
        let n = p.degree();
        let x: Vec<i64> = (0..p.input_len()).map(|i| (i as i64 * 37 + 11) % 101 - 50).collect();
        let w: Vec<i16> = (0..p.weight_len()).map(|i| ((i as i64 * 53 + 7) % 31 - 15) as i16).collect();
        let mut got = vec![None; p.output_len()];
        let (mut products, mut polys) = (0, 0);
        for tile in 0..p.tiles() {
            for j in 0..p.output_blocks() {
                let mut sum = vec![0; n];
                assert_eq!(p.first_weight_poly(j), polys % p.cost().weight_polys);
                for i in p.inputs_of(j) {
                    let mut a = vec![0; n];
                    p.for_each_input(tile, i, |at, e| a[at] = x[e]);
                    for (s, v) in sum.iter_mut().zip(negacyclic(&a, &p.weight_poly(&w, i, j))) {
                        *s += v;
                    }
                    products += 1;
                    polys += 1;
                }
                let (places, elements) = p.output_places(tile, j, 1);
                assert_eq!(places.len(), p.output_count(tile, j));
                for (at, e) in places.into_iter().zip(elements) {
                    assert!(at % p.spacing() == 0 && got[e].replace(sum[at]).is_none());
                }
            }
        }
        assert_eq!(products, p.cost().products);
        let got: Vec<u64> = got.into_iter().map(|v| v.unwrap() as u64).collect();
        let x: Vec<u64> = x.iter().map(|v| *v as u64).collect();
        assert_eq!(got, oracle(geometry, &x, &w));
    }

    fn prices(dear_output: bool, dear_weight: bool) -> LayoutPrices {
        LayoutPrices {
            input: 30e-6,
            output: if dear_output { 1.0 } else { 1e-9 },
            output_poly: 1e-6,
            product: 4e-6,
            weight: if dear_weight { 1.0 } else { 1e-6 },
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn coefficients_are_the_convolution(
            c in 1usize..7, o in 1usize..5, h in 1usize..9, w in 1usize..9, k in (1usize..4, 1usize..4),
            stride in (1usize..4, 1usize..4), pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
            dilation in (1usize..3, 1usize..3), grouped in any::<bool>(), n in prop::sample::select(vec![64usize, 128, 256]),
            dear in (any::<bool>(), any::<bool>()),
        ) {
            let groups = if grouped { c } else { 1 };
            let o = if grouped { o * c } else { o };
            let (eh, ew) = (dilation.0 * (k.0 - 1) + 1, dilation.1 * (k.1 - 1) + 1);
            prop_assume!(h + pads[0] + pads[2] >= eh && w + pads[1] + pads[3] >= ew);
            let oh = (h + pads[0] + pads[2] - eh) / stride.0 + 1;
            let ow = (w + pads[1] + pads[3] - ew) / stride.1 + 1;
            let geometry = Geometry::conv2d(Conv2d { input: [c, h, w], output: [o, oh, ow], kernel: [k.0, k.1],
                stride: [stride.0, stride.1], pads, dilation: [dilation.0, dilation.1], groups }).unwrap();
            check(&geometry, &Layout::choose(&geometry, n, &prices(dear.0, dear.1)).unwrap());
            if let Ok(layout) = Layout::of_the_paper(&geometry, n) {
                check(&geometry, &layout);
            }
        }

        #[test]
        fn dense_layers_of_any_size_in_both_packings(inputs in 1usize..200, outputs in 1usize..50) {
            let geometry = Geometry::dense(Dense { inputs, outputs }).unwrap();
            check(&geometry, &Layout::choose(&geometry, 64, &prices(false, false)).unwrap());
            check(&geometry, &Layout::dense_of_the_paper(&geometry, 64).unwrap());
        }
    }

    #[test]
    fn the_papers_packings_are_what_it_says() {
        // c_i = 4, 2x2 pixels, N = 16: one polynomial, useful coefficients at multiples of c_i.
        let conv = Geometry::conv2d(Conv2d {
            input: [4, 2, 2],
            output: [3, 2, 2],
            kernel: [1, 1],
            stride: [1, 1],
            pads: [0; 4],
            dilation: [1, 1],
            groups: 1,
        })
        .unwrap();
        let layout = Layout::of_the_paper(&conv, 16).unwrap();
        assert_eq!((layout.spacing(), layout.input_blocks(), layout.output_blocks()), (4, 1, 3));
        // (12), (13) with n_i = 4, n_o = 2, N = 8: W_k0 at X^k, -W_k,(4-l) at X^(2 l + k).
        let dense = Geometry::dense(Dense { inputs: 4, outputs: 2 }).unwrap();
        let layout = Layout::dense_of_the_paper(&dense, 8).unwrap();
        let poly = layout.weight_poly(&[1, 2, 3, 4, 5, 6, 7, 8], 0, 0);
        assert_eq!(poly, [1, 5, -4, -8, -3, -7, -2, -6]);
        let mut at = Vec::new();
        layout.for_each_input(0, 0, |place, _| at.push(place));
        assert_eq!(at, [0, 2, 4, 6]);
        assert!(Layout::dense_of_the_paper(&conv, 16).is_err());
    }
}
