//! Values that leave their ranges: they saturate, a mark is kept, and the run goes on as if nothing had happened.
//!
//! A client that stopped where a value left its range would tell a malicious server so: a server that scales a ciphertext would
//! read one threshold of one value from every session. Here the same operations run in the same order whatever the values are.
//! Kernels always count and always clamp (`kernels::quantize`, `outside_real`, `saturate`, `outside_fixed`, `clamp`); the first value
//! outside comes out of the count as a minimum of positions. Marks are looked at only when the last message of the inference has passed.

use super::kernels;
use crate::plan::{Stage, Tensor, TensorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Values outside of their planned ranges, or no numbers. The error names the first of them in the order of images' blocks, stages
/// and elements. It is raised when the run is over; the peer cannot tell such a run from any other.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeError {
    /// Stage that computed the value.
    pub stage: String,
    /// Tensor that it belongs to.
    pub tensor: String,
    /// Image, counted from the first of the whole input.
    pub image: usize,
    /// Position in the tensor, row-major.
    pub element: usize,
    /// The value, before rounding.
    pub value: f64,
    /// Largest absolute value planned (of an input with a range: largest value); `None` for NaN and infinity in a real tensor.
    pub bound: Option<f64>,
    /// Least value planned, where that is not `-bound`.
    pub low: Option<f64>,
    /// Whether the value is a decrypted answer outside of the bound that follows from the weights, or the noise that a ciphertext under other
    /// keys decrypts to: no honest server sends one.
    pub answer: bool,
    /// All images with a value outside, in rising order. Outputs of the others are right.
    pub affected: Vec<usize>,
    /// Values outside, over all images. Later values that leave their ranges because of earlier ones count, too.
    pub values: u32,
}

impl std::error::Error for RangeError {}

impl RangeError {
    /// What was marked first, with the images and the values of both.
    #[must_use]
    pub fn join(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        let (Some(mut first), Some(second)) = (first.clone(), second.clone()) else {
            return first.or(second);
        };
        first.affected.extend(second.affected);
        first.affected.sort_unstable();
        first.affected.dedup();
        first.values = first.values.saturating_add(second.values);
        // A faulty server is the graver news.
        first.answer |= second.answer;
        Some(first)
    }
}

impl std::fmt::Display for RangeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { stage, tensor, image, element, value, bound, low, answer, affected, values } = self;
        write!(f, "layer '{stage}', tensor '{tensor}': image {image}, element {element} is {value}, ")?;
        match bound {
            Some(bound) if *answer => write!(
                f,
                "but an answer computed from this plan's weights lies within -{bound} and {bound}; the server, the connection or the keys \
                 are faulty"
            )?,
            Some(bound) => write!(
                f,
                "outside the planned range of {} to {bound}; it was clamped to the range. Compile with calibration samples that cover \
                 such inputs, with a larger --margin, or with --input-range alone, from which ranges of all layers follow",
                low.unwrap_or(-bound)
            )?,
            None => write!(f, "not a finite number; check the input and the layers before (division by zero, root of a negative number, overflow)")?,
        }
        if *values > 1 {
            write!(f, "; {values} values of {} images are affected in all", affected.len())?;
        }
        Ok(())
    }
}

/// The first value outside of a tensor's range in some rows, by position.
#[derive(Clone, Copy, Debug)]
struct First {
    /// `(feature, image of the block)`; the largest numbers: none.
    at: (usize, usize),
    value: f64,
}

const NONE: First = First { at: (usize::MAX, usize::MAX), value: 0.0 };

impl First {
    fn or(self, other: Self) -> Self {
        if other.at < self.at {
            other
        } else {
            self
        }
    }
}

/// What was found by all threads.
#[derive(Debug)]
struct Found {
    /// By tensor.
    first: Vec<First>,
    /// Values outside, by image of the block.
    outside: Vec<u64>,
}

/// What rows report while they run in parallel: observed ranges, and values outside of theirs. One for every block of images.
#[derive(Debug)]
pub(crate) struct Monitor {
    largest: Vec<AtomicU64>,
    images: usize,
    found: Mutex<Found>,
}

impl Monitor {
    /// For a block of `images` images of a plan with so many tensors.
    pub(crate) fn new(tensors: usize, images: usize) -> Self {
        Self {
            largest: std::iter::repeat_with(AtomicU64::default).take(tensors).collect(),
            images,
            found: Mutex::new(Found { first: vec![NONE; tensors], outside: vec![0; images] }),
        }
    }

    /// Notes the largest absolute integer of part of a tensor.
    pub(crate) fn see(&self, tensor: usize, largest: u64) {
        self.largest[tensor].fetch_max(largest, Ordering::Relaxed);
    }

    /// Largest absolute integer seen of a tensor.
    pub(crate) fn largest(&self, tensor: usize) -> u64 {
        self.largest[tensor].load(Ordering::Relaxed)
    }

    /// Room for the marks of one thread.
    pub(crate) fn marks(&self) -> Marks<'_> {
        let (first, outside) = (vec![NONE; self.largest.len()], vec![0; self.images]);
        Marks { monitor: self, first, outside, spill: Vec::new() }
    }
}

/// The marks of one thread; they reach the [`Monitor`] on drop, whether there are any or not.
///
/// Values come as part of the row of a feature, from an image on. A part may go on in the rows behind it, with which it lies in one piece.
#[derive(Debug)]
pub(crate) struct Marks<'a> {
    monitor: &'a Monitor,
    first: Vec<First>,
    outside: Vec<u64>,
    /// Counts of the values of a part that is longer than its row.
    spill: Vec<u64>,
}

impl Marks<'_> {
    /// Lets `f` add to the counts of `len` values from image `start` on.
    fn counted<R>(&mut self, start: usize, len: usize, f: impl FnOnce(&mut [u64]) -> R) -> R {
        if let Some(outside) = self.outside.get_mut(start..start + len) {
            return f(outside);
        }
        let images = self.outside.len();
        self.spill.clear();
        self.spill.resize(len, 0);
        let found = f(&mut self.spill);
        let mut image = start % images;
        for count in &self.spill {
            self.outside[image] = self.outside[image].saturating_add(*count);
            image = if image + 1 == images { 0 } else { image + 1 };
        }
        found
    }

    /// `out = round_half_even(x / scale)`, clamped to the bound, of part of a row of a fixed tensor: images from `start` on.
    pub(crate) fn quantize(
        &mut self,
        (tensor, scale, bound): (usize, f64, u64),
        (feature, start): (usize, usize),
        x: &[f64],
        out: &mut [i64],
    ) {
        let inverse = 1.0 / scale;
        let kernel = if bound < 1 << 50 { kernels::quantize } else { kernels::quantize_wide };
        let (largest, first) =
            self.counted(start, x.len(), |outside| kernel(x, inverse, bound as f64, out, outside));
        self.monitor.see(tensor, largest);
        self.note(tensor, (feature, start), first, |i| x[i], x.len());
    }

    /// Clamps part of a row of integers to the tensor's bound.
    pub(crate) fn clamp(
        &mut self,
        (tensor, scale, bound): (usize, f64, u64),
        (feature, start): (usize, usize),
        x: &mut [i64],
    ) {
        let (largest, first) =
            self.counted(start, x.len(), |outside| kernels::outside_fixed(x, bound, outside));
        self.monitor.see(tensor, largest);
        self.note(tensor, (feature, start), first, |i| x[i] as f64 * scale, x.len());
        kernels::clamp(i64::try_from(bound).unwrap_or(i64::MAX), x);
    }

    /// Clamps part of a row of reals to `bound`; what is no number becomes 0.
    pub(crate) fn saturate(
        &mut self,
        (tensor, bound): (usize, f64),
        (feature, start): (usize, usize),
        x: &mut [f64],
    ) {
        let first = self.counted(start, x.len(), |outside| kernels::outside_real(x, bound, outside));
        self.note(tensor, (feature, start), first, |i| x[i], x.len());
        kernels::saturate(bound, x);
    }

    fn note(
        &mut self,
        tensor: usize,
        (feature, start): (usize, usize),
        first: u64,
        value: impl Fn(usize) -> f64,
        len: usize,
    ) {
        if len == 0 {
            return;
        }
        let index = usize::try_from(first).unwrap_or(usize::MAX);
        let value = value(index.min(len - 1));
        let (images, image) = (self.outside.len(), start + index.min(len));
        let at = if index < len { (feature + image / images, image % images) } else { NONE.at };
        self.first[tensor] = self.first[tensor].or(First { at, value });
    }
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        let mut found = self.monitor.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.first.iter_mut().zip(&self.first).for_each(|(a, b)| *a = a.or(*b));
        found.outside.iter_mut().zip(&self.outside).for_each(|(a, b)| *a = a.saturating_add(*b));
    }
}

/// Where marks of a tensor are looked for.
pub(crate) struct Place<'a> {
    pub stage: &'a str,
    /// Slot of the marks.
    pub tensor: usize,
    /// The tensor that is named.
    pub named: usize,
    /// Largest absolute value, where it is not the tensor's own.
    pub bound: Option<f64>,
    /// Whether it is what a server has answered.
    pub answer: bool,
}

/// The places of a client plan's stage.
pub(crate) fn places(stage: &Stage) -> Vec<Place<'_>> {
    let place = |stage, tensor, answer| Place { stage, tensor, named: tensor, bound: None, answer };
    match stage {
        Stage::Linear(l) => vec![place(&l.name, l.output, true)],
        Stage::Coefficients(l) => vec![place(&l.name, l.output, true)],
        Stage::Client(c) => {
            let tensors = c.ops.iter().flat_map(|o| o.inputs.iter().chain([&o.output]));
            tensors.map(|&t| place(&c.name, t, false)).collect()
        }
    }
}

/// What left its range in an inference, block after block.
#[derive(Debug, Default)]
pub(crate) struct Overruns {
    first: Option<RangeError>,
    affected: Vec<usize>,
    values: u64,
}

impl Overruns {
    /// What all blocks of a run have marked, once the run is over: monitors with the block's first image; `places` in the order of
    /// computation.
    pub(crate) fn of(blocks: &[(usize, Monitor)], tensors: &[Tensor], places: &[Place<'_>]) -> Self {
        let mut all = Self::default();
        blocks.iter().for_each(|(base, monitor)| all.add(monitor, *base, tensors, places));
        all
    }

    fn add(&mut self, monitor: &Monitor, base: usize, tensors: &[Tensor], places: &[Place<'_>]) {
        let found = monitor.found.lock().unwrap_or_else(PoisonError::into_inner);
        let images = found.outside.iter().enumerate().filter(|(_, count)| **count > 0);
        self.affected.extend(images.map(|(image, _)| base + image));
        self.values = found.outside.iter().fold(self.values, |a, b| a.saturating_add(*b));
        let mut marked = places.iter().filter(|p| found.first[p.tensor].at != NONE.at);
        let (None, Some(place)) = (&self.first, marked.next()) else { return };
        let First { at: (element, image), value } = found.first[place.tensor];
        let own = match tensors[place.tensor].kind {
            TensorKind::Fixed { scale, bound } => Some(bound as f64 * scale),
            TensorKind::Real => None,
        };
        self.first = Some(RangeError {
            stage: place.stage.to_owned(),
            tensor: tensors[place.named].name.clone(),
            image: base + image,
            element,
            value,
            bound: place.bound.or(own),
            low: None,
            answer: place.answer,
            affected: Vec::new(),
            values: 0,
        });
    }

    /// The first mark as an error, with all affected images.
    pub(crate) fn error(self) -> Option<RangeError> {
        let Self { first, affected, values } = self;
        let values = u32::try_from(values).unwrap_or(u32::MAX);
        first.map(|e| RangeError { affected, values, ..e })
    }
}
