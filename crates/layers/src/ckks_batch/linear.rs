//! Integer products of linear stages, on a piece of words of one part and one prime.

use super::circuit::Linear;
use super::CircuitError;
use crate::batch::{CheckedConv2d, Geometry};
use hushnet_matmul::{Cut, Prepared, Scratch};

/// Working memory of a thread.
#[derive(Default)]
pub(super) struct Work {
    pub(super) scratch: Scratch,
    pub(super) cut: Cut,
}

/// Input pixel under every kernel position, `None` outside of the input: `[output pixel][kernel position]`.
pub(super) fn taps(geometry: &Geometry) -> Vec<Option<u32>> {
    let Geometry::Conv2d(conv) = geometry else { return Vec::new() };
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

/// `out = W inputs + bias`, `count` words a row: sums modulo `2^sum_bits`. `bias`: none, one a channel or one an output. Returns how many words
/// were multiplied, those of rows that are there.
pub(super) fn products(
    layer: &Linear,
    inputs: &[&[u64]],
    bias: &[u64],
    count: usize,
    out: &mut [u64],
    work: &mut Work,
) -> Result<u64, CircuitError> {
    let conv = match &layer.geometry {
        Geometry::Dense(_) => {
            let rows: Vec<Option<&[u64]>> = inputs.iter().map(|r| Some(*r)).collect();
            let mut outs: Vec<&mut [u64]> = out.chunks_mut(count).collect();
            layer.groups[0].multiply(&rows, bias, &mut outs, &mut work.scratch)?;
            return Ok((rows.len() * outs.len() * count) as u64);
        }
        Geometry::Conv2d(c) => c,
    };
    let [_, height, width] = conv.input;
    let own = conv.group_inputs() * height * width;
    let mut places: Vec<Option<&mut [u64]>> = out.chunks_mut(count).map(Some).collect();
    let mut products = 0;
    for (group, matrix) in layer.groups.iter().enumerate() {
        let inputs = &inputs[group * own..(group + 1) * own];
        let pieces = Pieces { layer, conv, group, bias, count };
        products += pieces.run(matrix, inputs, &mut places, work)?;
    }
    Ok(products)
}

/// One group of a convolution.
struct Pieces<'a> {
    layer: &'a Linear,
    conv: &'a CheckedConv2d,
    group: usize,
    bias: &'a [u64],
    count: usize,
}

impl Pieces<'_> {
    /// A product for every output pixel; inputs that many of them read are cut once where the kernel cuts.
    fn run(
        &self,
        matrix: &Prepared,
        inputs: &[&[u64]],
        places: &mut [Option<&mut [u64]>],
        work: &mut Work,
    ) -> Result<u64, CircuitError> {
        let conv = self.conv;
        let (channels, outputs) = (conv.group_inputs(), conv.group_outputs());
        let plane = conv.input[1] * conv.input[2];
        let pixels = conv.output[1] * conv.output[2];
        let by_element = self.bias.len() == places.len();
        let is_cut = matrix.cut(inputs, &mut work.cut)?;
        let mut products = 0;
        let (mut columns, mut rows, mut constants) = (Vec::new(), Vec::new(), Vec::new());
        for (at, taps) in self.layer.taps.chunks(conv.kernel[0] * conv.kernel[1]).enumerate() {
            columns.clear();
            for tap in taps {
                columns.extend((0..channels).map(|c| tap.map(|t| (c * plane) as u32 + t)));
            }
            constants.clear();
            let mut outs: Vec<&mut [u64]> = Vec::with_capacity(outputs);
            for o in 0..outputs {
                let channel = self.group * outputs + o;
                let element = channel * pixels + at;
                outs.extend(places[element].take());
                constants.extend(self.bias.get(if by_element { element } else { channel }));
            }
            if is_cut {
                matrix.multiply_cut(&work.cut, &columns, &constants, &mut outs, &mut work.scratch)?;
            } else {
                rows.clear();
                rows.extend(columns.iter().map(|c| c.map(|c| inputs[c as usize])));
                matrix.multiply(&rows, &constants, &mut outs, &mut work.scratch)?;
            }
            products += (columns.iter().flatten().count() * outs.len() * self.count) as u64;
        }
        Ok(products)
    }
}
