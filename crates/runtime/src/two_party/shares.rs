//! One party's shares of all tensors, and the stages that are the same program on both sides.
//!
//! A tensor lies [image][element]: a group of images is one vector for the protocols.

use super::nonlinear;
use super::plan::{Kind, Stage, TwoPartyPlan, Window};
use crate::error::Error;
use crate::program::Moves;
use hushnet_mpc::{PoolShape, Ring, Session};
use zeroize::Zeroizing;

#[cfg(test)]
thread_local! {
    /// Every share of this thread's party, in order: what tests put together again.
    pub(super) static LOG: std::cell::RefCell<Vec<(usize, Vec<u64>)>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Shares of the tensors that are alive. No `Debug`; wiped when freed.
pub(super) struct Shares {
    images: usize,
    values: Vec<Option<Zeroizing<Vec<u64>>>>,
}

impl Shares {
    pub(super) fn new(plan: &TwoPartyPlan, images: usize) -> Self {
        Self { images, values: plan.tensors().iter().map(|_| None).collect() }
    }

    pub(super) fn images(&self) -> usize {
        self.images
    }

    pub(super) fn get(&self, tensor: usize) -> Result<&[u64], Error> {
        self.values[tensor]
            .as_ref()
            .map(|v| v.as_slice())
            .ok_or_else(|| Error::Internal("a share was freed too early".into()))
    }

    pub(super) fn put(&mut self, tensor: usize, share: Vec<u64>) {
        #[cfg(test)]
        LOG.with_borrow_mut(|log| log.push((tensor, share.clone())));
        self.values[tensor] = Some(Zeroizing::new(share));
    }

    /// Another share of a tensor that both parties share anew, with the same value.
    pub(super) fn replace(&mut self, tensor: usize, share: Vec<u64>) {
        self.values[tensor] = Some(Zeroizing::new(share));
    }

    pub(super) fn free(&mut self, tensors: &[usize]) {
        for &t in tensors {
            self.values[t] = None;
        }
    }

    /// The shares of all operands of a stage, one after the other for every image.
    pub(super) fn side_by_side(&self, stage: &Stage) -> Result<Zeroizing<Vec<u64>>, Error> {
        let operands = stage.inputs.iter().map(|&t| self.get(t)).collect::<Result<Vec<_>, _>>()?;
        let mut out = Zeroizing::new(Vec::with_capacity(operands.iter().map(|o| o.len()).sum()));
        for image in 0..self.images {
            for operand in &operands {
                let elements = operand.len() / self.images;
                out.extend_from_slice(&operand[image * elements..][..elements]);
            }
        }
        Ok(out)
    }

    /// The share itself where nobody needs it after `stage`, a copy otherwise.
    fn take(&mut self, stage: &Stage, tensor: usize) -> Result<Zeroizing<Vec<u64>>, Error> {
        let only = stage.free.contains(&tensor) && stage.inputs.iter().filter(|&&t| t == tensor).count() == 1;
        match self.values[tensor].take() {
            Some(v) if only => Ok(v),
            Some(v) => {
                let copy = v.clone();
                self.values[tensor] = Some(v);
                Ok(copy)
            }
            None => Err(Error::Internal("a share was freed too early".into())),
        }
    }

    /// Runs a stage that both parties compute alike: protocols on shares and local stages.
    pub(super) fn run(
        &mut self,
        session: &mut Session,
        plan: &TwoPartyPlan,
        stage: &Stage,
    ) -> Result<(), Error> {
        let Some(output) = stage.output else { return Ok(()) };
        let ring = plan.ring();
        let input = stage.inputs[0];
        let operands = stage.inputs.iter().map(|&t| self.get(t)).collect::<Result<Vec<_>, _>>()?;
        if let Some(share) = nonlinear::run(session, stage, &operands, ring, self.images)? {
            self.put(output, share);
            return Ok(());
        }
        let result = match &stage.kind {
            Kind::SumPool(window) => sum_pool(self.get(input)?, window, ring),
            Kind::Scale(factor) => {
                let mut x = self.take(stage, input)?;
                x.iter_mut().for_each(|v| *v = ring.reduce(v.wrapping_mul(*factor)));
                std::mem::take(&mut *x)
            }
            Kind::Shift { by, negated } => {
                let mut x = self.take(stage, input)?;
                // Only the server knows what is added, and only its share moves.
                let by = if session.is_first() { by.unwrap_or(0) as u64 } else { 0 };
                let each = |v: u64| if *negated { ring.sub(by, v) } else { ring.add(v, by) };
                x.iter_mut().for_each(|v| *v = each(*v));
                std::mem::take(&mut *x)
            }
            Kind::Add => {
                let mut x = self.take(stage, input)?;
                let y = if stage.inputs[1] == input { None } else { Some(self.get(stage.inputs[1])?) };
                match y {
                    Some(y) => x.iter_mut().zip(y).for_each(|(a, b)| *a = ring.add(*a, *b)),
                    None => x.iter_mut().for_each(|a| *a = ring.add(*a, *a)),
                }
                std::mem::take(&mut *x)
            }
            Kind::Move(None) => std::mem::take(&mut *self.take(stage, input)?),
            Kind::Move(Some(map)) => {
                let operands = stage.inputs.iter().map(|&t| self.get(t)).collect::<Result<Vec<_>, _>>()?;
                gather(&operands, map, self.images)
            }
            _ => return Err(Error::Internal("a stage of one party only".into())),
        };
        self.put(output, result);
        Ok(())
    }
}

/// The pooling of a group of images: their channels side by side.
pub(super) fn of_images(shape: &PoolShape, images: usize) -> PoolShape {
    PoolShape { channels: shape.channels * images, ..*shape }
}

/// The elements that a move puts side by side, image by image.
pub(super) fn gather(operands: &[&[u64]], moves: &Moves, images: usize) -> Vec<u64> {
    let mut out = Vec::with_capacity(moves.elements() * images);
    for image in 0..images {
        let parts: Vec<&[u64]> = operands
            .iter()
            .map(|o| {
                let elements = o.len() / images;
                &o[image * elements..(image + 1) * elements]
            })
            .collect();
        moves.for_each(|source| out.push(source.map_or(0, |(operand, element)| parts[operand][element])));
    }
    out
}

/// Sums of windows; places outside of the image add nothing.
fn sum_pool(x: &[u64], w: &Window, ring: Ring) -> Vec<u64> {
    let [_, height, width] = w.input;
    let range = |o: usize, axis: usize, size: usize| {
        let start = (o * w.stride[axis]) as isize - w.pads[axis] as isize;
        let end = (start + w.kernel[axis] as isize).clamp(0, size as isize) as usize;
        (start.max(0) as usize).min(end)..end
    };
    let mut out = Vec::with_capacity(x.len() / (height * width) * w.output[0] * w.output[1]);
    for plane in x.chunks_exact(height * width) {
        for y in 0..w.output[0] {
            for column in 0..w.output[1] {
                let columns = range(column, 1, width);
                let rows = range(y, 0, height);
                let sum = rows.flat_map(|r| &plane[r * width + columns.start..r * width + columns.end]);
                out.push(ring.reduce(sum.fold(0u64, |a, &b| a.wrapping_add(b))));
            }
        }
    }
    out
}
