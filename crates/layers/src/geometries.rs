//! Layers for tests of several methods.

use crate::batch::{Conv2d, Geometry};

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
