//! Where the elements of a tensor and of the weights stand in polynomials, so that coefficients of
//! negacyclic products are the sums of a convolution (Huang, Lu, Hong, Ding, "Cheetah", USENIX Security 2022, section 3).
//!
//! **Strides and dilations** go first: a convolution of stride (s, t) is one of stride 1 over `s t` phase
//! images for every channel (space to depth); a tap of the dilated kernel at offset `o = i d` belongs to phase
//! `o mod s` at position `o div s`. Phases that no tap touches are left out, so a strided 1x1
//! convolution touches only the pixels that it needs.
//!
//! **Coefficients.** The output is cut into tiles of `th x tw`, which need `S = Ht Wt` pixels of every channel,
//! `Ht = th + KH - 1`, `Wt = tw + KW - 1`. An input polynomial holds `Cw` channels of a tile,
//! `x(c, y, x)` at `c S + y Wt + x`; a weight polynomial serves `Mw` output channels,
//! `w(m, c, i, j)` at `m Cw S + (Cw-1-c) S + (KH-1-i) Wt + (KW-1-j)`, with `Mw Cw S <= N`. Then
//! the sum for output `(m, y, x)` stands at `m Cw S + (Cw-1) S + (KH-1) Wt + (KW-1) + y Wt + x`:
//! terms with other channels land whole blocks of S away, terms of other `m` at least `Cw` blocks away,
//! what spills over the end of a block stays below `(KH-1) Wt + KW - 1`, and what wraps around N
//! lands below `(Cw-1) S + (KH-1) Wt + KW - 1`.
//!
//! Larger `Mw` means fewer polynomials down and more up; [`Packing::choose`] takes the cheapest.
//! A dense layer is the convolution of a 1x1 image.

use crate::batch::{Geometry, LayerError};
use crate::phases::{candidate_sizes, shape_of, Phases, Tap};

/// What a candidate costs; [`Packing::choose`] weighs it with [`UnitCosts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackingCost {
    /// Polynomials that the client sends.
    pub input_polys: usize,
    /// Polynomials that the server returns.
    pub output_polys: usize,
    /// Products of an input and a weight polynomial that are not zero.
    pub products: usize,
    /// Weight polynomials that are not zero.
    pub weight_polys: usize,
}

/// Seconds for one of each, from which the cheapest packing follows.
#[derive(Clone, Copy, Debug)]
pub struct UnitCosts {
    /// Seconds an input polynomial (encryption, two transforms at the server, transfer).
    pub input: f64,
    /// Seconds an output polynomial (two inverse transforms, re-randomisation, transfer, decryption).
    pub output: f64,
    /// Seconds a product of both ciphertext parts.
    pub product: f64,
    /// Seconds a prepared weight polynomial (fetching it from memory, a share of its preparation).
    pub weight: f64,
}

/// The places of all elements for one layer and ring degree.
#[derive(Clone, Debug)]
pub struct Packing {
    n: usize,
    channels: usize,
    outputs: usize,
    groups: usize,
    input: (usize, usize),
    output: (usize, usize),
    kernel: (usize, usize),
    stride: (usize, usize),
    pads: (usize, usize),
    extent: (usize, usize),
    phases: Vec<(usize, usize)>,
    taps: Vec<Tap>,
    tile: (usize, usize),
    channels_per_poly: usize,
    outputs_per_poly: usize,
}

impl Packing {
    /// The cheapest packing of a layer at ring degree `n`.
    ///
    /// # Errors
    /// [`LayerError::TooLarge`] when not even one pixel's receptive field fits in `n` coefficients.
    pub fn choose(geometry: &Geometry, n: usize, costs: &UnitCosts) -> Result<Self, LayerError> {
        Self::choose_by(geometry, n, |packing| {
            let cost = packing.cost();
            costs.input * cost.input_polys as f64
                + costs.output * cost.output_polys as f64
                + costs.product * cost.products as f64
                + costs.weight * cost.weight_polys as f64
        })
    }

    /// As [`Self::choose`], with a price for a whole packing.
    ///
    /// # Errors
    /// As [`Self::choose`].
    pub fn choose_by(
        geometry: &Geometry,
        n: usize,
        price: impl Fn(&Self) -> f64,
    ) -> Result<Self, LayerError> {
        let mut packing = Self::unpacked(geometry, n);
        let (kh, kw) = packing.extent;
        let (oh, ow) = packing.output;
        let mut best: Option<(f64, Packing)> = None;
        for th in candidate_sizes(oh) {
            for tw in candidate_sizes(ow) {
                let pixels = (th + kh - 1) * (tw + kw - 1);
                if pixels > n {
                    continue;
                }
                packing.tile = (th, tw);
                for outputs_per_poly in candidate_sizes(packing.outputs.min(n / pixels)) {
                    packing.outputs_per_poly = outputs_per_poly;
                    packing.channels_per_poly =
                        (n / pixels / outputs_per_poly).clamp(1, packing.virtual_channels());
                    let seconds = price(&packing);
                    if best.as_ref().is_none_or(|(s, _)| seconds < *s) {
                        best = Some((seconds, packing.clone()));
                    }
                }
            }
        }
        best.map(|(_, p)| p).ok_or(LayerError::TooLarge {
            what: "receptive field of one output pixel",
            needed: kh * kw,
            limit: n,
        })
    }

    fn unpacked(geometry: &Geometry, n: usize) -> Self {
        let s = shape_of(geometry);
        let Phases { phases, taps, extent } = s.phases();
        Self {
            n,
            channels: s.input[0],
            outputs: s.output[0],
            groups: s.groups,
            input: (s.input[1], s.input[2]),
            output: (s.output[1], s.output[2]),
            kernel: (s.kernel[0], s.kernel[1]),
            stride: (s.stride[0], s.stride[1]),
            pads: (s.pads[0], s.pads[1]),
            extent,
            phases,
            taps,
            tile: (1, 1),
            channels_per_poly: 1,
            outputs_per_poly: 1,
        }
    }

    fn virtual_channels(&self) -> usize {
        self.channels * self.phases.len()
    }

    /// Ring degree.
    #[must_use]
    pub fn degree(&self) -> usize {
        self.n
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
        self.outputs.div_ceil(self.outputs_per_poly)
    }

    /// Elements of the input tensor.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.channels * self.input.0 * self.input.1
    }

    /// Elements of the output tensor.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.outputs * self.output.0 * self.output.1
    }

    fn pixels(&self) -> (usize, usize) {
        let wt = self.tile.1 + self.extent.1 - 1;
        ((self.tile.0 + self.extent.0 - 1) * wt, wt)
    }

    fn groups_of_input_block(&self, block: usize) -> std::ops::RangeInclusive<usize> {
        let per_group = self.channels / self.groups * self.phases.len();
        let first = block * self.channels_per_poly;
        let last = (first + self.channels_per_poly).min(self.virtual_channels()) - 1;
        first / per_group..=last / per_group
    }

    fn groups_of_output_block(&self, block: usize) -> std::ops::RangeInclusive<usize> {
        let per_group = self.outputs / self.groups;
        let first = block * self.outputs_per_poly;
        let last = (first + self.outputs_per_poly).min(self.outputs) - 1;
        first / per_group..=last / per_group
    }

    /// The output blocks that share a group with input block `i`: those whose weight polynomial can be non-zero.
    #[must_use]
    pub fn outputs_of(&self, i: usize) -> std::ops::Range<usize> {
        let groups = self.groups_of_input_block(i);
        let per_group = self.outputs / self.groups;
        let last = (groups.end() + 1) * per_group - 1;
        groups.start() * per_group / self.outputs_per_poly..last / self.outputs_per_poly + 1
    }

    /// The input blocks that share a group with output block `j`.
    #[must_use]
    pub fn inputs_of(&self, j: usize) -> std::ops::Range<usize> {
        let groups = self.groups_of_output_block(j);
        let per_group = self.channels / self.groups * self.phases.len();
        let last = (groups.end() + 1) * per_group - 1;
        groups.start() * per_group / self.channels_per_poly..last / self.channels_per_poly + 1
    }

    /// Polynomials and products; equals what the execution counts.
    #[must_use]
    pub fn cost(&self) -> PackingCost {
        let (inputs, outputs) = (self.input_blocks(), self.output_blocks());
        let pairs = if self.groups == 1 {
            inputs * outputs
        } else {
            (0..inputs).map(|i| self.outputs_of(i).len()).sum()
        };
        PackingCost {
            input_polys: self.tiles() * inputs,
            output_polys: self.tiles() * outputs,
            products: self.tiles() * pairs,
            weight_polys: pairs,
        }
    }

    /// Bytes of the weights' evaluation forms.
    #[must_use]
    pub fn prepared_bytes(&self) -> usize {
        self.cost().weight_polys * self.n * 8
    }

    /// Calls `f(coefficient, element)` for every element of the input tensor (C, H, W row-major) in
    /// polynomial (`tile`, `block`); padding is absent (zero).
    pub fn for_each_input(&self, tile: usize, block: usize, mut f: impl FnMut(usize, usize)) {
        let (s, wt) = self.pixels();
        let (ty, tx) = self.tile_origin(tile);
        let first = block * self.channels_per_poly;
        let last = (first + self.channels_per_poly).min(self.virtual_channels());
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
                        f(slot * s + y * wt + x, (c * self.input.0 + row) * self.input.1 + column);
                    }
                }
            }
        }
    }

    /// Calls `f(coefficient, weight)` for every weight (O, C/groups, kh, kw row-major) in the weight polynomial of
    /// input block `i` and output block `j` (the same for every tile).
    pub fn for_each_weight(&self, i: usize, j: usize, mut f: impl FnMut(usize, usize)) {
        let (s, wt) = self.pixels();
        let (cw, phases) = (self.channels_per_poly, self.phases.len());
        let per_group = (self.channels / self.groups, self.outputs / self.groups);
        let first_output = j * self.outputs_per_poly;
        let first_channel = i * cw;
        for (m, o) in (first_output..(first_output + self.outputs_per_poly).min(self.outputs)).enumerate() {
            for (slot, channel) in
                (first_channel..(first_channel + cw).min(self.virtual_channels())).enumerate()
            {
                let (c, phase) = (channel / phases, channel % phases);
                if c / per_group.0 != o / per_group.1 {
                    continue;
                }
                for tap in self.taps.iter().filter(|t| t.phase == phase) {
                    let place = (self.extent.0 - 1 - tap.at.0) * wt + (self.extent.1 - 1 - tap.at.1);
                    let weight = ((o * per_group.0 + c % per_group.0) * self.kernel.0 + tap.kernel.0)
                        * self.kernel.1
                        + tap.kernel.1;
                    f((m * cw + cw - 1 - slot) * s + place, weight);
                }
            }
        }
    }

    /// Calls `f(coefficient, element)` for every valid output (O, OH, OW row-major) in output polynomial (`tile`, `block`).
    pub fn for_each_output(&self, tile: usize, block: usize, mut f: impl FnMut(usize, usize)) {
        let (s, wt) = self.pixels();
        let (ty, tx) = self.tile_origin(tile);
        let first = block * self.outputs_per_poly;
        let offset = (self.extent.0 - 1) * wt + self.extent.1 - 1;
        for (m, o) in (first..(first + self.outputs_per_poly).min(self.outputs)).enumerate() {
            let base = (m * self.channels_per_poly + self.channels_per_poly - 1) * s + offset;
            for y in 0..self.tile.0.min(self.output.0 - ty) {
                for x in 0..self.tile.1.min(self.output.1 - tx) {
                    f(base + y * wt + x, (o * self.output.0 + ty + y) * self.output.1 + tx + x);
                }
            }
        }
    }

    /// Valid outputs in polynomial (`tile`, `block`).
    #[must_use]
    pub fn output_count(&self, tile: usize, block: usize) -> usize {
        let (ty, tx) = self.tile_origin(tile);
        let outputs = (self.outputs - block * self.outputs_per_poly).min(self.outputs_per_poly);
        outputs * self.tile.0.min(self.output.0 - ty) * self.tile.1.min(self.output.1 - tx)
    }

    /// The coefficients of [`Self::for_each_output`] and the elements that stand there.
    #[must_use]
    pub fn output_places(&self, tile: usize, block: usize) -> (Vec<usize>, Vec<usize>) {
        let count = self.output_count(tile, block);
        let (mut places, mut elements) = (Vec::with_capacity(count), Vec::with_capacity(count));
        self.for_each_output(tile, block, |at, e| {
            places.push(at);
            elements.push(e);
        });
        (places, elements)
    }

    /// Output channels (rows of a dense layer).
    #[must_use]
    pub fn channels_out(&self) -> usize {
        self.outputs
    }

    /// Weights of the layer.
    #[must_use]
    pub fn weight_len(&self) -> usize {
        self.outputs * (self.channels / self.groups) * self.kernel.0 * self.kernel.1
    }

    fn tile_origin(&self, tile: usize) -> (usize, usize) {
        let across = self.output.1.div_ceil(self.tile.1);
        (tile / across * self.tile.0, tile % across * self.tile.1)
    }
}

/// The layer by definition, modulo 2^64.
#[cfg(test)]
pub(crate) fn oracle(geometry: &Geometry, x: &[u64], w: &[i16]) -> Vec<u64> {
    let s = shape_of(geometry);
    let (ipg, opg) = (s.input[0] / s.groups, s.output[0] / s.groups);
    let mut out = Vec::new();
    for o in 0..s.output[0] {
        for y in 0..s.output[1] {
            for xx in 0..s.output[2] {
                let mut sum = 0u64;
                for c in 0..ipg {
                    for i in 0..s.kernel[0] {
                        for j in 0..s.kernel[1] {
                            let row = (y * s.stride[0] + i * s.dilation[0]).wrapping_sub(s.pads[0]);
                            let col = (xx * s.stride[1] + j * s.dilation[1]).wrapping_sub(s.pads[1]);
                            if row < s.input[1] && col < s.input[2] {
                                let channel = o / opg * ipg + c;
                                let weight = w[((o * ipg + c) * s.kernel[0] + i) * s.kernel[1] + j];
                                let value = x[(channel * s.input[1] + row) * s.input[2] + col];
                                sum = sum.wrapping_add(value.wrapping_mul(weight as u64));
                            }
                        }
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Conv2d, Dense};
    use proptest::prelude::*;

    const COSTS: UnitCosts = UnitCosts { input: 30e-6, output: 40e-6, product: 4e-6, weight: 1e-6 };

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

    fn check(geometry: &Geometry, n: usize, costs: &UnitCosts) {
        let p = Packing::choose(geometry, n, costs).unwrap();
        let x: Vec<i64> = (0..p.input_len()).map(|i| (i as i64 * 37 + 11) % 101 - 50).collect();
        let w: Vec<i16> = (0..p.weight_len()).map(|i| ((i as i64 * 53 + 7) % 31 - 15) as i16).collect();
        let mut got = vec![None; p.output_len()];
        let mut products = 0;
        for tile in 0..p.tiles() {
            for j in 0..p.output_blocks() {
                let mut sum = vec![0; n];
                for i in p.inputs_of(j) {
                    let (mut a, mut b) = (vec![0; n], vec![0; n]);
                    p.for_each_input(tile, i, |at, e| a[at] = x[e]);
                    p.for_each_weight(i, j, |at, e| b[at] = i64::from(w[e]));
                    for (s, v) in sum.iter_mut().zip(negacyclic(&a, &b)) {
                        *s += v;
                    }
                    products += 1;
                }
                let mut count = 0;
                p.for_each_output(tile, j, |at, e| {
                    assert!(got[e].replace(sum[at]).is_none());
                    count += 1;
                });
                assert_eq!(count, p.output_count(tile, j));
            }
        }
        assert_eq!(products, p.cost().products);
        let got: Vec<u64> = got.into_iter().map(|v| v.unwrap() as u64).collect();
        let x: Vec<u64> = x.iter().map(|v| *v as u64).collect();
        assert_eq!(got, oracle(geometry, &x, &w));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn coefficients_are_the_convolution(
            c in 1usize..5, o in 1usize..5, h in 1usize..9, w in 1usize..9, k in (1usize..4, 1usize..4),
            stride in (1usize..4, 1usize..4), pads in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
            dilation in (1usize..3, 1usize..3), grouped in any::<bool>(), n in prop::sample::select(vec![64usize, 128, 256]),
            dear_output in any::<bool>(),
        ) {
            let groups = if grouped { c } else { 1 };
            let o = if grouped { o * c } else { o };
            let (eh, ew) = (dilation.0 * (k.0 - 1) + 1, dilation.1 * (k.1 - 1) + 1);
            prop_assume!(h + pads[0] + pads[2] >= eh && w + pads[1] + pads[3] >= ew);
            let oh = (h + pads[0] + pads[2] - eh) / stride.0 + 1;
            let ow = (w + pads[1] + pads[3] - ew) / stride.1 + 1;
            let geometry = Geometry::conv2d(Conv2d { input: [c, h, w], output: [o, oh, ow], kernel: [k.0, k.1],
                stride: [stride.0, stride.1], pads, dilation: [dilation.0, dilation.1], groups }).unwrap();
            let costs = UnitCosts { output: if dear_output { 1.0 } else { 1e-9 }, ..COSTS };
            check(&geometry, n, &costs);
        }

        #[test]
        fn dense_layers_of_any_size(inputs in 1usize..200, outputs in 1usize..50) {
            check(&Geometry::dense(Dense { inputs, outputs }).unwrap(), 64, &COSTS);
        }
    }

    #[test]
    fn strided_pointwise_convolutions_touch_only_the_pixels_they_need() {
        let geometry = Geometry::conv2d(Conv2d {
            input: [4, 16, 16],
            output: [4, 8, 8],
            kernel: [1, 1],
            stride: [2, 2],
            pads: [0; 4],
            dilation: [1, 1],
            groups: 1,
        })
        .unwrap();
        let p = Packing::choose(&geometry, 256, &COSTS).unwrap();
        assert_eq!(p.phases, [(0, 0)]);
        check(&geometry, 256, &COSTS);
    }
}
