//! Layers for tests of several methods.

use crate::batch::{Conv2d, Geometry};
use crate::phases::shape_of;

/// A square convolution: channels, side, outputs, kernel, stride, padding, groups.
pub(crate) fn conv(c: usize, hw: usize, o: usize, k: usize, s: usize, pad: usize, groups: usize) -> Geometry {
    let out = (hw + 2 * pad - k) / s + 1;
    Geometry::conv2d(Conv2d {
        input: [c, hw, hw],
        output: [o, out, out],
        kernel: [k, k],
        stride: [s, s],
        pads: [pad; 4],
        dilation: [1, 1],
        groups,
    })
    .unwrap()
}

/// The layer by definition, modulo 2^64.
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
