//! A dense layer or convolution of any stride and dilation as one of stride 1 over phase images (space to depth): a tap of the dilated
//! kernel at offset o belongs to phase o mod stride, at position o div stride. Phases that no tap touches are left out.

use crate::batch::Geometry;
use std::collections::HashMap;

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
    /// The taps over phase images. A phase is a phase of rows and one of columns, numbered in the order of first use.
    pub(crate) fn phases(&self) -> Phases {
        let [rows, columns] = [0, 1].map(|axis| {
            let (mut seen, mut distinct) = (HashMap::new(), Vec::new());
            let of = (0..self.kernel[axis]).map(|i| {
                let phase = i * self.dilation[axis] % self.stride[axis];
                *seen.entry(phase).or_insert_with(|| {
                    distinct.push(phase);
                    distinct.len() - 1
                })
            });
            (of.collect::<Vec<usize>>(), distinct)
        });
        let phases = rows.1.iter().flat_map(|r| columns.1.iter().map(move |c| (*r, *c))).collect::<Vec<_>>();
        let mut taps = Vec::with_capacity(self.kernel[0] * self.kernel[1]);
        for (i, row) in rows.0.iter().enumerate() {
            for (j, column) in columns.0.iter().enumerate() {
                let (oi, oj) = (i * self.dilation[0], j * self.dilation[1]);
                taps.push(Tap {
                    phase: row * columns.1.len() + column,
                    at: (oi / self.stride[0], oj / self.stride[1]),
                    kernel: (i, j),
                });
            }
        }
        let extent = taps.iter().fold((1, 1), |e, t| (e.0.max(t.at.0 + 1), e.1.max(t.at.1 + 1)));
        Phases { phases, taps, extent }
    }
}

/// Sizes worth trying for a side of length `n`: those that change the number of pieces. About 2 sqrt(n) of them, found one from another.
pub(crate) fn candidate_sizes(n: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = n;
    while size > 0 {
        sizes.push(size);
        if size == 1 {
            break;
        }
        // The next number of pieces that gives a smaller size.
        size = n.div_ceil(n.div_ceil(size - 1));
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn candidate_sizes_are_those_of_every_number_of_pieces() {
        for n in (0..600_usize).chain([4096, 5000, 12345]) {
            let mut all: Vec<usize> = (1..=n).map(|pieces| n.div_ceil(pieces)).collect();
            all.dedup();
            assert_eq!(candidate_sizes(n), all, "{n}");
        }
        assert!(candidate_sizes(1 << 24).len() <= 2 * (1 << 12) + 1);
    }

    proptest! {
        /// Phases by definition: in the order in which kernel positions touch them.
        #[test]
        fn phases_are_those_that_taps_touch(k in (1usize..6, 1usize..6), s in (1usize..7, 1usize..7), d in (1usize..5, 1usize..5)) {
            let shape = Shape { input: [1, 99, 99], output: [1, 1, 1], kernel: [k.0, k.1], stride: [s.0, s.1], pads: [0; 4], dilation: [d.0, d.1], groups: 1 };
            let found = shape.phases();
            let mut seen: Vec<(usize, usize)> = Vec::new();
            for (tap, (i, j)) in found.taps.iter().zip((0..k.0).flat_map(|i| (0..k.1).map(move |j| (i, j)))) {
                let phase = (i * d.0 % s.0, j * d.1 % s.1);
                if !seen.contains(&phase) {
                    seen.push(phase);
                }
                prop_assert_eq!(tap.kernel, (i, j));
                prop_assert_eq!(found.phases[tap.phase], phase);
                prop_assert_eq!(tap.at, (i * d.0 / s.0, j * d.1 / s.1));
            }
            prop_assert_eq!(found.phases, seen);
        }
    }
}
