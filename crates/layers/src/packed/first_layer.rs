//! What the client can do for the first layer: copies of the input in the output's layout, windows of a later mean pool apart.

use super::layout::{Layout, EMPTY};
use super::spec::{Linear, Network, Step};
use crate::batch::{Conv2d, Geometry};
use std::collections::HashMap;
use std::sync::Arc;

/// A step that the client's copies and the pooling window of the next layer allow: the outputs of the first linear step in
/// `a b` members, one for each position in the window.
#[derive(Clone, Debug)]
pub(super) struct Pooling {
    /// Linear step.
    pub(super) first: usize,
    /// Polynomial step.
    pub(super) polynomial: usize,
    /// Window.
    pub(super) window: [usize; 2],
}

/// The convolution over sums of windows that `c` is, with the largest window: weights are equal within windows.
fn windowed(c: &Conv2d, weights: &[f64]) -> Option<([usize; 2], Conv2d, Vec<f64>)> {
    let [kh, kw] = c.kernel;
    let divides = |axis: usize, a: usize| {
        c.kernel[axis].is_multiple_of(a)
            && c.stride[axis].is_multiple_of(a)
            && c.pads[axis].is_multiple_of(a)
            && c.input[1 + axis].is_multiple_of(a)
            && c.dilation[axis] == 1
    };
    let equal = |a: usize, b: usize| {
        weights
            .chunks(kh * kw)
            .all(|k| (0..kh * kw).all(|i| k[i] == k[(i / kw) / a * a * kw + (i % kw) / b * b]))
    };
    let best = (1..=kh.min(4))
        .flat_map(|a| (1..=kw.min(4)).map(move |b| [a, b]))
        .filter(|&[a, b]| a * b > 1 && divides(0, a) && divides(1, b) && equal(a, b))
        .max_by_key(|[a, b]| a * b)?;
    let [a, b] = best;
    let reduced = Conv2d {
        input: [c.input[0], c.input[1] / a, c.input[2] / b],
        output: c.output,
        kernel: [kh / a, kw / b],
        stride: [c.stride[0] / a, c.stride[1] / b],
        pads: [c.pads[0] / a, c.pads[1] / b, c.pads[2] / a, c.pads[3] / b],
        dilation: [1, 1],
        groups: c.groups,
    };
    let inner = (kh / a) * (kw / b);
    let small: Vec<f64> = weights
        .chunks(kh * kw)
        .flat_map(|k| (0..inner).map(move |i| k[i / (kw / b) * a * kw + i % (kw / b) * b]))
        .collect();
    Some((best, reduced, small))
}

/// Rewrites `input -> linear -> polynomial -> convolution over windows` where it occurs.
pub(super) fn pool_first(net: &Network) -> Option<(Network, Pooling)> {
    let only = |t: usize| match net.consumers(t).as_slice() {
        [one] if t != net.output => Some(*one),
        _ => None,
    };
    for (first, step) in net.steps.iter().enumerate() {
        let Step::Linear { input, output, map } = step else { continue };
        let Geometry::Conv2d(shape) = &map.geometry else { continue };
        if *input != net.input {
            continue;
        }
        let Some(polynomial) = only(*output) else { continue };
        let Step::Polynomial { output: middle, .. } = &net.steps[polynomial] else { continue };
        let Some(second) = only(*middle) else { continue };
        let Step::Linear { input, output, map: next } = &net.steps[second] else { continue };
        let Geometry::Conv2d(c) = &next.geometry else { continue };
        if shape.output != c.input {
            continue;
        }
        let Some((window, reduced, weights)) = windowed(c, &next.weights) else { continue };
        let Ok(geometry) = Geometry::conv2d(reduced) else { continue };
        let mut out = net.clone();
        let map = Linear { geometry, weights: Arc::new(weights), bias: next.bias.clone(), every: next.every };
        out.steps[second] = Step::Linear { input: *input, output: *output, map };
        let t = &mut out.tensors[*middle];
        t.shape = reduced.input.to_vec();
        t.bound *= (window[0] * window[1]) as f64;
        t.usual *= (window[0] * window[1]) as f64;
        return Some((out, Pooling { first, polynomial, window }));
    }
    None
}

/// Output elements by slot, of every member's ciphertexts.
pub(super) fn members(map: &Linear, layout: &Layout, pooling: Option<&Pooling>) -> Vec<Vec<u32>> {
    let (Some(p), Geometry::Conv2d(c)) = (pooling, &map.geometry) else { return layout.cts.clone() };
    let [a, b] = p.window;
    let [_, h, w] = c.output;
    let (rh, rw) = (h / a, w / b);
    let mut out = Vec::new();
    for (i, j) in (0..a).flat_map(|i| (0..b).map(move |j| (i, j))) {
        for slots in &layout.cts {
            let full = |&e: &u32| {
                if e == EMPTY {
                    return EMPTY;
                }
                let e = e as usize;
                let (z, y, x) = (e / (rh * rw), e / rw % rh, e % rw);
                ((z * h + y * a + i) * w + x * b + j) as u32
            };
            out.push(slots.iter().map(full).collect());
        }
    }
    out
}

/// Copies of the input that the client makes for one linear step.
pub(super) struct Copies {
    pub(super) copies: usize,
    pub(super) outputs: Vec<Vec<u32>>,
    pub(super) uploads: Vec<Vec<u32>>,
    pub(super) terms: Vec<Vec<u32>>,
}

impl Copies {
    pub(super) fn new(map: &Linear, outputs: &[Vec<u32>], slots: usize, copies: usize) -> Self {
        let part = slots / copies;
        let groups = map.taps().div_ceil(copies);
        let mut numbers: HashMap<Vec<u32>, u32> = HashMap::new();
        let mut uploads = Vec::new();
        let mut terms = Vec::new();
        for output in outputs {
            let mut filled = vec![vec![EMPTY; slots]; groups];
            for (s, &f) in output[..part].iter().enumerate() {
                if f != EMPTY {
                    map.row(f as usize, |tap, g, _| {
                        filled[tap / copies][tap % copies * part + s] = g as u32;
                    });
                }
            }
            terms.push(
                filled
                    .into_iter()
                    .map(|slots| {
                        *numbers.entry(slots).or_insert_with_key(|slots| {
                            uploads.push(slots.clone());
                            uploads.len() as u32 - 1
                        })
                    })
                    .collect(),
            );
        }
        Self { copies, outputs: outputs.to_vec(), uploads, terms }
    }
}
