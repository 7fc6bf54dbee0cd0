//! A dense layer or convolution of any stride and dilation as one of stride 1 over phase images (space to depth): a tap of the dilated
//! kernel at offset o belongs to phase o mod stride, at position o div stride. Phases that no tap touches are left out.

use crate::batch::Geometry;

/// A tap of the kernel in phase coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tap {
    /// Which phase image.
    pub(crate) phase: usize,
    /// Row and column in the phase image, relative to the output pixel.
    pub(crate) at: (usize, usize),
    /// Row and column in the kernel.
    pub(crate) kernel: (usize, usize),
}

/// The phases that are touched (first row and column of each), the taps, and rows and columns of a tap's positions.
pub(crate) struct Phases {
    pub(crate) phases: Vec<(usize, usize)>,
    pub(crate) taps: Vec<Tap>,
    pub(crate) extent: (usize, usize),
}

/// A geometry with a dense layer as the convolution of a 1x1 image.
pub(crate) struct Shape {
    pub(crate) input: [usize; 3],
    pub(crate) output: [usize; 3],
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) pads: [usize; 4],
    pub(crate) dilation: [usize; 2],
    pub(crate) groups: usize,
}

pub(crate) fn shape_of(geometry: &Geometry) -> Shape {
    match geometry {
        Geometry::Dense(d) => Shape {
            input: [d.inputs, 1, 1],
            output: [d.outputs, 1, 1],
            kernel: [1, 1],
            stride: [1, 1],
            pads: [0; 4],
            dilation: [1, 1],
            groups: 1,
        },
        Geometry::Conv2d(c) => Shape {
            input: c.input,
            output: c.output,
            kernel: c.kernel,
            stride: c.stride,
            pads: c.pads,
            dilation: c.dilation,
            groups: c.groups,
        },
    }
}

impl Shape {
    /// The taps over phase images.
    pub(crate) fn phases(&self) -> Phases {
        let mut phases: Vec<(usize, usize)> = Vec::new();
        let mut taps = Vec::new();
        for i in 0..self.kernel[0] {
            for j in 0..self.kernel[1] {
                let (oi, oj) = (i * self.dilation[0], j * self.dilation[1]);
                let phase = (oi % self.stride[0], oj % self.stride[1]);
                let index = phases.iter().position(|p| *p == phase).unwrap_or_else(|| {
                    phases.push(phase);
                    phases.len() - 1
                });
                taps.push(Tap {
                    phase: index,
                    at: (oi / self.stride[0], oj / self.stride[1]),
                    kernel: (i, j),
                });
            }
        }
        let extent = taps.iter().fold((1, 1), |e, t| (e.0.max(t.at.0 + 1), e.1.max(t.at.1 + 1)));
        Phases { phases, taps, extent }
    }
}
