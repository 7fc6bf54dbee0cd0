//! Integer products of linear stages, on a piece of words of one part and one prime.

use super::circuit::Linear;
use super::CircuitError;
use crate::batch::{CheckedConv2d, Geometry};
use hushnet_matmul::{Cut, Gather, MatmulError, Prepared, Scratch, Starts};

/// Input pixel under every kernel position, `None` outside of the input: `[output pixel][kernel position]`.
fn taps(conv: &CheckedConv2d) -> Vec<Option<u32>> {
    let [_, out_height, out_width] = conv.output;
    let width = conv.input[2];
    let mut taps = Vec::with_capacity(out_height * out_width * conv.kernel[0] * conv.kernel[1]);
    for y in 0..out_height {
        for x in 0..out_width {
            for i in 0..conv.kernel[0] {
                let row = conv.source(0, y, i).map(|r| r * width);
                let pixel = |j: usize| Some((row? + conv.source(1, x, j)?) as u32);
                taps.extend((0..conv.kernel[1]).map(pixel));
            }
        }
    }
    taps
}

/// Input elements of a group that an output pixel reads, kernel positions first, then channels.
fn columns(conv: &CheckedConv2d, taps: &[Option<u32>], out: &mut Vec<Option<u32>>) {
    let plane = (conv.input[1] * conv.input[2]) as u32;
    out.clear();
    for tap in taps {
        out.extend((0..conv.group_inputs() as u32).map(|c| tap.map(|t| c * plane + t)));
    }
}

/// What the products of a layer read.
pub(super) struct Reads {
    /// Of a convolution: [`taps`].
    taps: Vec<Option<u32>>,
    /// Where kernels read cut rows: of every group, for all output pixels.
    gathers: Vec<Gather>,
    /// Inputs that all outputs of one channel read together.
    present: usize,
}

impl Reads {
    pub(super) fn new(geometry: &Geometry, groups: &[Prepared]) -> Result<Self, MatmulError> {
        let (mut taps_of, mut own, mut all) = (Vec::new(), Vec::new(), Vec::new());
        let rows = match geometry {
            Geometry::Dense(d) => {
                all.extend((0..d.inputs as u32).map(Some));
                d.inputs
            }
            Geometry::Conv2d(conv) => {
                taps_of = taps(conv);
                for taps in taps_of.chunks(conv.kernel[0] * conv.kernel[1]) {
                    columns(conv, taps, &mut own);
                    all.extend_from_slice(&own);
                }
                conv.group_inputs() * conv.input[1] * conv.input[2]
            }
        };
        let mut gathers = Vec::with_capacity(groups.len());
        // Kernels are chosen group by group; a layer of which only some groups cut reads whole words.
        if groups.iter().all(Prepared::reads_cuts) {
            for matrix in groups {
                gathers.push(matrix.gather(&all, rows)?);
            }
        }
        Ok(Self { taps: taps_of, gathers, present: all.iter().flatten().count() })
    }
}

impl Linear {
    /// Whether inputs are cut before they are multiplied.
    pub(super) fn reads_cuts(&self) -> bool {
        !self.reads.gathers.is_empty()
    }

    /// Rows of a group's input.
    fn group_rows(&self) -> usize {
        match &self.geometry {
            Geometry::Dense(d) => d.inputs,
            Geometry::Conv2d(c) => c.group_inputs() * c.input[1] * c.input[2],
        }
    }

    /// Cuts every group's inputs.
    pub(super) fn cut(&self, inputs: &[&[u64]], cuts: &mut Vec<Cut>) -> Result<(), CircuitError> {
        cuts.resize_with(self.groups.len(), Cut::new);
        for ((matrix, rows), cut) in self.groups.iter().zip(inputs.chunks(self.group_rows())).zip(cuts) {
            matrix.cut(rows, cut)?;
        }
        Ok(())
    }
}

/// What outputs begin with, by group: none, one constant a channel or one an output.
pub(super) fn starts(layer: &Linear, bias: &[u64]) -> Result<Vec<Starts>, CircuitError> {
    let each = bias.len() / layer.groups.len();
    let groups = layer.groups.iter().zip(&layer.reads.gathers).enumerate();
    Ok(groups
        .map(|(g, (m, gather))| m.starts(gather, &bias[g * each..(g + 1) * each]))
        .collect::<Result<_, _>>()?)
}

/// [`products`] of cut inputs, by group, and the word of theirs to begin with.
pub(super) fn cut_products(
    layer: &Linear,
    (cuts, from): (&[Cut], usize),
    starts: &[Starts],
    out: &mut [u64],
) -> Result<u64, CircuitError> {
    let group = out.len() / layer.groups.len();
    let mut products = 0;
    for (g, (matrix, out)) in layer.groups.iter().zip(out.chunks_mut(group.max(1))).enumerate() {
        let gather = &layer.reads.gathers[g];
        matrix.multiply_cut((&cuts[g], from), gather, &starts[g], out)?;
        products += layer.reads.present * out.len() / gather.positions();
    }
    Ok(products as u64)
}

/// `out = W inputs + bias`, `count` words a row: sums modulo `2^sum_bits`. `bias`: none, one a channel or one an output. Returns how many words
/// were multiplied, those of rows that are there.
pub(super) fn products(
    layer: &Linear,
    inputs: &[&[u64]],
    bias: &[u64],
    count: usize,
    out: &mut [u64],
    scratch: &mut Scratch,
) -> Result<u64, CircuitError> {
    let conv = match &layer.geometry {
        Geometry::Dense(_) => {
            let mut outs: Vec<&mut [u64]> = out.chunks_mut(count).collect();
            let rows: Vec<Option<&[u64]>> = inputs.iter().map(|r| Some(*r)).collect();
            layer.groups[0].multiply(&rows, bias, &mut outs, scratch)?;
            return Ok((layer.reads.present * outs.len() * count) as u64);
        }
        Geometry::Conv2d(c) => c,
    };
    let outputs = conv.group_outputs();
    let pixels = conv.output[1] * conv.output[2];
    let mut places: Vec<Option<&mut [u64]>> = out.chunks_mut(count).map(Some).collect();
    let by_element = bias.len() == places.len();
    let mut products = 0;
    let (mut own, mut rows, mut constants) = (Vec::new(), Vec::new(), Vec::new());
    let positions = conv.kernel[0] * conv.kernel[1];
    let mut outs: Vec<&mut [u64]> = Vec::with_capacity(outputs);
    for (group, matrix) in layer.groups.iter().enumerate() {
        let inputs = &inputs[group * layer.group_rows()..];
        for (at, taps) in layer.reads.taps.chunks(positions).enumerate() {
            constants.clear();
            outs.clear();
            for channel in group * outputs..(group + 1) * outputs {
                let element = channel * pixels + at;
                outs.extend(places[element].take());
                constants.extend(bias.get(if by_element { element } else { channel }));
            }
            columns(conv, taps, &mut own);
            rows.clear();
            rows.extend(own.iter().map(|c| c.map(|c| inputs[c as usize])));
            matrix.multiply(&rows, &constants, &mut outs, scratch)?;
        }
        products += layer.reads.present * outputs * count;
    }
    Ok(products as u64)
}
