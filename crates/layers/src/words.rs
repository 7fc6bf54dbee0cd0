//! A linear layer on words modulo 2^l without ciphertexts: `out += W x`, weights of 16 bits.
//!
//! What a server computes of its own share where the rest was prepared (`docs/two-party.md`, "Prepared inferences"). Convolutions are matrix
//! products ([`hushnet_matmul`]) over tiles of output pixels, whose inputs are gathered position by position; dense layers are sums over a row
//! of weights. Both give the same bits on every instruction set, because all of it is exact modulo 2^l.

use crate::batch::{CheckedConv2d, Geometry, LayerError};
use hushnet_matmul::{Kernel, Prepared, Scratch, Weights};
use hushnet_ring::{low_mask, simd, Isa};
use rayon::prelude::*;
use std::ops::Range;
use zeroize::Zeroizing;

/// Words that a tile gathers at most, unless a pixel alone has more.
const TILE_WORDS: usize = 1 << 19;
/// Fewest and most output pixels of a tile; whole blocks of every kernel.
const PIXELS: [usize; 2] = [64, 4096];
/// Rows of a dense layer that a thread takes at once.
const ROWS: usize = 16;

/// The weights of a layer, in the order of the kernel that multiplies them. No `Debug`.
pub struct WordLinear {
    geometry: Geometry,
    bits: u32,
    weights: Ordered,
}

enum Ordered {
    /// Row-major.
    Dense(Vec<i16>),
    /// A matrix for every group of channels.
    Conv(Vec<Prepared>),
}

impl WordLinear {
    /// Prepares weights (O, C/groups, kh, kw) or (M, K), row-major, for words modulo 2^`bits`.
    ///
    /// # Errors
    /// [`LayerError`] unless there are as many weights as the geometry says; [`LayerError::Matmul`] for a modulus outside of 1 to 64 bits.
    pub fn new(geometry: &Geometry, weights: &[i16], bits: u32) -> Result<Self, LayerError> {
        Self::on(simd::isa(), geometry, weights, bits)
    }

    /// [`Self::new`] with the kernels of an instruction set; the results do not depend on it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn on(isa: Isa, geometry: &Geometry, weights: &[i16], bits: u32) -> Result<Self, LayerError> {
        if weights.len() != geometry.weights() {
            let (expected, got) = (geometry.weights(), weights.len());
            return Err(LayerError::Length { what: "weights", expected, got });
        }
        Kernel::Portable.check(bits)?;
        let ordered = match geometry {
            Geometry::Dense(_) => Ordered::Dense(weights.to_vec()),
            Geometry::Conv2d(c) => {
                let (m, k) = (c.group_outputs(), terms(c));
                let group = |w: &[i16]| {
                    let w = Weights::new(m, k, w)?;
                    let kernel = Kernel::choose(isa, m, k, bits, w.limbs());
                    Ok(Prepared::new(&w, kernel, bits, k)?)
                };
                Ordered::Conv(weights.chunks_exact(m * k).map(group).collect::<Result<_, LayerError>>()?)
            }
        };
        Ok(Self { geometry: *geometry, bits, weights: ordered })
    }

    /// Bytes that the weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        2 * self.geometry.weights()
    }

    /// Bytes that a product takes beside its operands, for each thread.
    #[must_use]
    pub fn working_bytes(geometry: &Geometry) -> u64 {
        match geometry {
            Geometry::Dense(d) => 8 * d.inputs as u64,
            Geometry::Conv2d(c) => {
                // Gathered rows, their limbs, and what is added to the results.
                let words = (2 * terms(c) + c.group_outputs()) as u64;
                words.saturating_mul(8 * pixels(c) as u64)
            }
        }
    }

    /// `out += W x` modulo 2^l of one image, in the current thread pool.
    ///
    /// # Errors
    /// [`LayerError`] for operands of other lengths than the geometry's.
    pub fn add_product(&self, x: &[u64], out: &mut [u64]) -> Result<(), LayerError> {
        let inputs = self.geometry.input_rows() * self.geometry.input_row_features();
        let outputs = self.geometry.output_rows() * self.geometry.output_row_features();
        for (what, expected, got) in [("inputs", inputs, x.len()), ("outputs", outputs, out.len())] {
            if expected != got {
                return Err(LayerError::Length { what, expected, got });
            }
        }
        match (&self.weights, &self.geometry) {
            (Ordered::Dense(w), _) => dense(w, self.bits, x, out),
            (Ordered::Conv(groups), Geometry::Conv2d(c)) => {
                let per = c.group_inputs() * c.input[1] * c.input[2];
                let results = c.group_outputs() * c.output[1] * c.output[2];
                let pairs = x.chunks_exact(per).zip(out.chunks_exact_mut(results)).zip(groups);
                pairs.into_iter().try_for_each(|((x, out), w)| convolve(c, w, self.bits, x, out))?;
            }
            (Ordered::Conv(_), Geometry::Dense(_)) => {}
        }
        Ok(())
    }
}

/// Weights of an output.
fn terms(c: &CheckedConv2d) -> usize {
    c.group_inputs() * c.kernel[0] * c.kernel[1]
}

/// Output pixels of a tile.
fn pixels(c: &CheckedConv2d) -> usize {
    let fits = (TILE_WORDS / terms(c)).clamp(PIXELS[0], PIXELS[1]) / PIXELS[0] * PIXELS[0];
    fits.min(c.output[1] * c.output[2])
}

fn dense(weights: &[i16], bits: u32, x: &[u64], out: &mut [u64]) {
    let mask = low_mask(bits);
    // Half as wide words where they hold the modulus: twice as many in a vector.
    let narrow = Zeroizing::new(if bits <= 32 { x.iter().map(|v| *v as u32).collect() } else { Vec::new() });
    out.par_chunks_mut(ROWS).zip(weights.par_chunks(ROWS * x.len())).for_each(|(out, weights)| {
        for (out, row) in out.iter_mut().zip(weights.chunks_exact(x.len())) {
            let sum = if bits <= 32 {
                let product = |(w, x): (&i16, &u32)| (i32::from(*w) as u32).wrapping_mul(*x);
                u64::from(row.iter().zip(narrow.iter()).map(product).fold(0, u32::wrapping_add))
            } else {
                let product = |(w, x): (&i16, &u64)| (i64::from(*w) as u64).wrapping_mul(*x);
                row.iter().zip(x).map(product).fold(0, u64::wrapping_add)
            };
            *out = out.wrapping_add(sum) & mask;
        }
    });
}

/// One group of channels.
fn convolve(
    c: &CheckedConv2d,
    weights: &Prepared,
    bits: u32,
    x: &[u64],
    out: &mut [u64],
) -> Result<(), LayerError> {
    let (whole, size, mask) = (c.output[1] * c.output[2], pixels(c), low_mask(bits));
    // The same columns of every output channel, tile by tile.
    let mut tiles: Vec<Vec<&mut [u64]>> = (0..whole.div_ceil(size)).map(|_| Vec::new()).collect();
    for channel in out.chunks_exact_mut(whole) {
        for (tile, columns) in tiles.iter_mut().zip(channel.chunks_mut(size)) {
            tile.push(columns);
        }
    }
    let plain = c.kernel == [1, 1] && c.stride == [1, 1] && c.pads == [0; 4];
    tiles.into_par_iter().enumerate().try_for_each_init(Scratch::new, |scratch, (number, mut out)| {
        let range = number * size..((number + 1) * size).min(whole);
        let words = range.len();
        let gathered = if plain { Zeroizing::new(Vec::new()) } else { gather(c, x, &range) };
        let rows: Vec<Option<&[u64]>> = if plain {
            x.chunks_exact(whole).map(|plane| Some(&plane[range.clone()])).collect()
        } else {
            gathered.chunks_exact(words).map(Some).collect()
        };
        let mut sums = Zeroizing::new(vec![0; out.len() * words]);
        let mut parts: Vec<&mut [u64]> = sums.chunks_exact_mut(words).collect();
        weights.multiply(&rows, &[], &mut parts, scratch)?;
        for (out, sums) in out.iter_mut().zip(sums.chunks_exact(words)) {
            out.iter_mut().zip(sums).for_each(|(o, s)| *o = o.wrapping_add(*s) & mask);
        }
        Ok(())
    })
}

/// What output pixels of a range read at every kernel position of every channel, `[channel][i][j][pixel]`; zeros in the padding.
fn gather(c: &CheckedConv2d, x: &[u64], pixels: &Range<usize>) -> Zeroizing<Vec<u64>> {
    let (words, width) = (pixels.len(), c.output[2]);
    let mut out = Zeroizing::new(vec![0; terms(c) * words]);
    let mut rows = out.chunks_exact_mut(words);
    for plane in x.chunks_exact(c.input[1] * c.input[2]) {
        for (i, j) in (0..c.kernel[0]).flat_map(|i| (0..c.kernel[1]).map(move |j| (i, j))) {
            let Some(row) = rows.next() else { return out };
            let mut at = pixels.start;
            while at < pixels.end {
                let (y, first) = (at / width, at % width);
                let last = width.min(first + pixels.end - at);
                let segment = &mut row[at - pixels.start..][..last - first];
                if let Some(source) = c.source(0, y, i) {
                    copy_line(c, &plane[source * c.input[2]..][..c.input[2]], (j, first), segment);
                }
                at += last - first;
            }
        }
    }
    out
}

/// What a run of output pixels of a line, from pixel `first` on, reads at kernel column `j`.
fn copy_line(c: &CheckedConv2d, line: &[u64], (j, first): (usize, usize), out: &mut [u64]) {
    let (step, shift, left) = (c.stride[1], j * c.dilation[1], c.pads[1]);
    // The first pixel that reads behind the left padding, and the first that reads behind the right end.
    let begin = left.saturating_sub(shift).div_ceil(step);
    let end = (line.len() + left).saturating_sub(shift).div_ceil(step);
    let run = begin.max(first)..end.min(first + out.len());
    if run.is_empty() {
        return;
    }
    let source = &line[run.start * step + shift - left..];
    let out = &mut out[run.start - first..run.end - first];
    if step == 1 {
        out.copy_from_slice(&source[..out.len()]);
    } else {
        out.iter_mut().zip(source.iter().step_by(step)).for_each(|(o, s)| *o = *s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Conv2d, Dense};
    use crate::geometries::oracle;
    use hushnet_ring::Prg;

    /// Channels, lines, columns, outputs, kernel, stride, pads, dilation, groups.
    type Case = (usize, [usize; 2], usize, [usize; 2], [usize; 2], [usize; 4], [usize; 2], usize);

    const CASES: [Case; 9] = [
        (3, [9, 7], 5, [3, 3], [1, 1], [1, 1, 1, 1], [1, 1], 1),
        (8, [40, 41], 7, [1, 1], [1, 1], [0, 0, 0, 0], [1, 1], 1),
        (4, [12, 11], 6, [1, 1], [2, 2], [0, 0, 0, 0], [1, 1], 2),
        (6, [15, 13], 6, [3, 5], [2, 3], [2, 0, 1, 3], [1, 1], 6),
        (4, [20, 17], 4, [3, 3], [1, 2], [3, 2, 0, 4], [3, 2], 2),
        // Every output reads padding alone at some kernel column.
        (2, [5, 2], 3, [5, 5], [1, 1], [4, 4, 4, 4], [1, 1], 1),
        (1, [1, 30], 2, [1, 7], [1, 3], [0, 6, 0, 0], [1, 1], 1),
        // More terms than a tile of many pixels holds.
        (600, [9, 9], 3, [3, 3], [1, 1], [1, 1, 1, 1], [1, 1], 1),
        (3, [70, 66], 2, [7, 7], [2, 2], [3, 3, 3, 3], [1, 1], 1),
    ];

    fn geometry((c, [h, w], o, kernel, stride, pads, dilation, groups): Case) -> Geometry {
        let size = |axis: usize, input: usize| {
            (input + pads[axis] + pads[axis + 2] - dilation[axis] * (kernel[axis] - 1) - 1) / stride[axis] + 1
        };
        let (input, output) = ([c, h, w], [o, size(0, h), size(1, w)]);
        Geometry::conv2d(Conv2d { input, output, kernel, stride, pads, dilation, groups }).unwrap()
    }

    fn check(geometry: &Geometry, bits: u32, wide: bool) {
        let mut prg = Prg::from_seed([bits as u8; 16]);
        let mut words = |n: usize| {
            let mut out = vec![0; n];
            prg.fill_words(&mut out);
            out
        };
        let inputs = geometry.input_rows() * geometry.input_row_features();
        let outputs = geometry.output_rows() * geometry.output_row_features();
        let weights: Vec<i16> =
            words(geometry.weights()).iter().map(|w| *w as i16 >> if wide { 0 } else { 9 }).collect();
        let mask = low_mask(bits);
        let x: Vec<u64> = words(inputs).iter().map(|v| v & mask).collect();
        let start: Vec<u64> = words(outputs).iter().map(|v| v & mask).collect();
        let expected: Vec<u64> = oracle(geometry, &x, &weights)
            .iter()
            .zip(&start)
            .map(|(y, s)| y.wrapping_add(*s) & mask)
            .collect();
        let mut isas: Vec<Isa> = Isa::ALL.into_iter().filter(|i| i.usable() == *i).collect();
        isas.dedup();
        for isa in isas {
            let layer = WordLinear::on(isa, geometry, &weights, bits).unwrap();
            let mut out = start.clone();
            layer.add_product(&x, &mut out).unwrap();
            assert!(out == expected, "{geometry:?} modulo 2^{bits} on {}", isa.name());
        }
    }

    #[test]
    fn convolutions_of_every_geometry_are_exact_on_every_path() {
        for case in CASES {
            for bits in [24, 32, 37, 64] {
                check(&geometry(case), bits, bits != 24);
            }
        }
    }

    #[test]
    fn dense_layers_are_exact() {
        for (inputs, outputs) in [(1, 1), (37, 50), (300, 3)] {
            let geometry = Geometry::dense(Dense { inputs, outputs }).unwrap();
            for bits in [20, 32, 33, 61] {
                check(&geometry, bits, true);
            }
        }
    }

    #[test]
    fn lengths_are_checked() {
        let geometry = geometry(CASES[0]);
        assert!(WordLinear::new(&geometry, &[1; 3], 32).is_err());
        assert!(WordLinear::new(&geometry, &vec![1; geometry.weights()], 0).is_err());
        let layer = WordLinear::new(&geometry, &vec![1; geometry.weights()], 32).unwrap();
        assert!(layer.add_product(&[0; 5], &mut [0; 5 * 63]).is_err());
    }
}
