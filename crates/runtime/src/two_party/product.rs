//! Products of two tensors on shares: their check, their run and their cost.
//!
//! A product is computed in the narrowest ring that holds it, by the bits of its narrower factor, and leaves for the ring of the shares as it is divided.
//! Where one factor has an element for a whole row of the other (a layer normalisation, a gate for each channel), its bits choose for the row
//! ([`hushnet_mpc::multiply_rows`]).

use super::check::{fault, fractions_of_product, holds, Fault, Shared};
use super::nonlinear::{At, OnShares};
use super::reach;
use super::shares::gather;
use crate::plan::OpKind;
use crate::program::Moves;
use hushnet_mpc::{self as mpc, CostModel, Factor, Party, Range, Result as Ran, Ring, Session};
use std::sync::Arc;

/// Values of a product in one pass of its protocol.
const PASS: u64 = 1 << 17;
/// Bytes that a term keeps between two messages.
const BYTES_PER_TERM: u64 = 9;
/// Elements of a row from which on its factor's bits choose for the row: a row's seeds are then cheaper than its elements' oblivious transfers.
const SHORTEST: usize = 16;
/// Terms of stretched rows that take the time of one with a transfer of its own.
const STRETCHED: u64 = 5;

/// A product of two tensors, checked.
#[derive(Clone, Debug)]
pub struct Product {
    /// Its factors, each in the ring in which the product takes it; one of a square.
    factors: Vec<Factor>,
    rings: Vec<Ring>,
    /// How the factors become as large as the result.
    spread: Vec<Option<Arc<Moves>>>,
    /// The ring that holds the product.
    ring: Ring,
    /// Whether no product is negative.
    non_negative: bool,
    /// Bits that are dropped.
    bits: u32,
    /// Elements of the result.
    elements: usize,
    /// Where one factor has an element for a whole row.
    rows: Option<Arc<Rows>>,
}

/// A factor that has an element for a row of the result, and where in the result these lie.
#[derive(Debug)]
struct Rows {
    factor: usize,
    /// Where each row begins.
    starts: Vec<usize>,
    /// Where the elements of a row lie from there on.
    columns: Vec<usize>,
}

impl Rows {
    /// The rows of a factor of shape `shape` in a result of shape `to`; none where they are shorter than [`SHORTEST`].
    fn new(factor: usize, shape: &[usize], to: &[usize]) -> Option<Self> {
        let (mut starts, mut columns, mut stride) = (vec![0], vec![0], 1);
        // From the last axis on; an axis that comes later is the outer one.
        for (axis, &size) in to.iter().enumerate().rev() {
            let own = (axis + shape.len()).checked_sub(to.len()).map_or(1, |i| shape[i]);
            let places = if own == size { &mut starts } else { &mut columns };
            *places = (0..size).flat_map(|k| places.iter().map(move |p| p + k * stride)).collect();
            stride *= size;
        }
        (columns.len() >= SHORTEST).then_some(Self { factor, starts, columns })
    }

    /// Whether rows lie in the result one after the other.
    fn straight(&self) -> bool {
        self.columns.iter().enumerate().all(|(i, &c)| i == c)
    }

    /// The places of all elements in the result of one image, row by row.
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.starts.iter().flat_map(|start| self.columns.iter().map(move |column| start + column))
    }

    /// Elements of images row by row.
    fn in_rows(&self, x: Vec<u64>, elements: usize) -> Vec<u64> {
        if self.straight() {
            return x;
        }
        x.chunks_exact(elements.max(1)).flat_map(|image| self.places().map(|at| image[at])).collect()
    }

    /// The reverse of [`Self::in_rows`].
    fn in_place(&self, x: Vec<u64>, elements: usize) -> Vec<u64> {
        if self.straight() {
            return x;
        }
        let mut out = vec![0; x.len()];
        for (out, image) in out.chunks_exact_mut(elements.max(1)).zip(x.chunks_exact(elements.max(1))) {
            self.places().zip(image).for_each(|(at, v)| out[at] = *v);
        }
        out
    }
}

/// The shape in which two shapes meet, axis by axis from the last one on: of one size, or one of them has a single element there.
fn broadcast([a, b]: [&Vec<usize>; 2]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let size =
        |shape: &Vec<usize>, axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let meet = |axis: usize| match (size(a, axis), size(b, axis)) {
        (n, m) if n == m || m == 1 => Some(n),
        (1, m) => Some(m),
        _ => None,
    };
    (0..rank).map(meet).collect()
}

impl Product {
    pub(super) fn check(
        (bits, within): (u32, bool),
        (x, y): (&Shared<'_>, &Shared<'_>),
        to: &Shared<'_>,
        (same, ring): (bool, Ring),
    ) -> Result<Self, Fault> {
        fractions_of_product((x.f, y.f, bits), to.f)?;
        let operands = if same { vec![x] } else { vec![x, y] };
        let shapes = [&x.tensor.shape, &y.tensor.shape];
        if broadcast(shapes).as_ref() != Some(&to.tensor.shape) {
            let detail = format!(
                "shapes {:?} and {:?} do not meet in {:?} (axes from the last on, of one size or of one element)",
                shapes[0], shapes[1], to.tensor.shape
            );
            return fault(detail);
        }
        let mut spread = Vec::new();
        for operand in &operands {
            let moves = || Moves::new(&OpKind::Broadcast {}, &[operand.tensor], to.tensor);
            let alike = operand.tensor.elements == to.tensor.elements;
            spread.push(if alike {
                None
            } else {
                Some(Arc::new(moves().or_else(|e| fault(e.to_string()))?))
            });
        }
        let non_negative = same || (x.non_negative && y.non_negative);
        let sign = if non_negative { 1 } else { 2 };
        let mut wide = (x.reach + y.reach + sign).max(3);
        if within {
            // Not narrower than what holds a factor.
            wide = wide.min(to.reach.saturating_add(bits).saturating_add(sign).max(x.reach.max(y.reach) + 2));
        }
        let Ok(own) = Ring::new(wide) else {
            return fault(format!(
                "the product of values below 2^{} and 2^{} takes {wide} bits, rings have 64; give it fewer fraction bits",
                x.reach, y.reach
            ));
        };
        if bits == 0 {
            holds(to, x.exact().zip(y.exact()).map(|(a, b)| a.saturating_mul(b)))?;
        }
        // Half of the ring is added where products may be negative, and leaves again divided.
        let limit = own.bits() - 2;
        if bits > limit {
            return fault(format!(
                "{bits} bits cannot be dropped from a product of {} (at most {limit})",
                own.bits()
            ));
        }
        let with = |narrow: usize, rows: Option<Rows>| -> Result<Self, Fault> {
            let mut this = Self {
                factors: Vec::new(),
                rings: Vec::new(),
                spread: spread.clone(),
                ring: own,
                non_negative,
                bits,
                elements: to.tensor.elements,
                rows: rows.map(Arc::new),
            };
            for (index, operand) in operands.iter().enumerate() {
                this.add(operand, index == narrow, ring)?;
            }
            Ok(this)
        };
        let each = with(usize::from(!same && y.reach < x.reach), None)?;
        let rows = if same { None } else { Self::rows(shapes, &to.tensor.shape) };
        let Some(rows) = rows else { return Ok(each) };
        let rows = with(rows.factor, Some(rows))?;
        Ok(if rows.bytes().saturating_mul(4) <= each.bytes().saturating_mul(5) { rows } else { each })
    }

    /// The longest rows that share an element of a factor.
    fn rows(shapes: [&Vec<usize>; 2], to: &[usize]) -> Option<Rows> {
        let of = |(factor, shape): (usize, &&Vec<usize>)| Rows::new(factor, shape, to);
        shapes.iter().enumerate().filter_map(of).max_by_key(|rows| rows.columns.len())
    }

    /// Bytes of its own messages for one image, without those of oblivious transfers.
    fn bytes(&self) -> u64 {
        let mut m = CostModel::online(1 << 20);
        self.multiplied(&mut m, 1);
        m.cost().bytes()
    }

    /// The product's own part of its cost.
    fn multiplied(&self, m: &mut CostModel, images: usize) {
        match (&self.rows, &self.factors[..]) {
            (Some(rows), [a, b, ..]) => {
                let (x, y) = if rows.factor == 0 { (*b, *a) } else { (*a, *b) };
                let shape = (rows.starts.len() * images, rows.columns.len());
                mpc::multiply_rows_cost(m, shape, x, y, self.ring);
            }
            (None, [a, b, ..]) => mpc::multiply_cost(m, self.elements * images, *a, *b, self.ring),
            (_, [of]) => mpc::square_cost(m, self.elements * images, *of, self.ring),
            (_, []) => {}
        }
    }

    /// Adds a factor: the narrow one, whose bits choose, in as few bits as hold it, the other one in those of the product.
    fn add(&mut self, of: &Shared<'_>, narrow: bool, ring: Ring) -> Result<(), Fault> {
        let most = ring.bits().min(self.ring.bits());
        let (spare, range) = if of.non_negative { (1, Range::NonNegative) } else { (2, Range::Small) };
        let bits = if narrow { (of.reach + spare).clamp(3, most.max(3)) } else { most };
        // A ring that is as wide as the shares may be half full.
        let range =
            if bits < of.reach + spare { reach::range(of.reach, ring).or_else(fault)? } else { range };
        let held = Ring::new(bits).or_else(|e| fault(e.to_string()))?;
        self.factors.push(Factor::new(held, range).or_else(|e| fault(e.to_string()))?);
        self.rings.push(held);
        Ok(())
    }

    /// Terms of its ladders, both directions together, as many as take its time with an oblivious transfer each.
    pub(super) fn terms(&self) -> u64 {
        self.ladders().div_ceil(if self.rows.is_some() { STRETCHED } else { 1 })
    }

    /// Terms of its ladders.
    fn ladders(&self) -> u64 {
        let bits = |index: usize| u64::from(self.rings[index].bits());
        match &self.rows {
            Some(rows) => 2 * (bits(rows.factor) + 1),
            None => (0..self.rings.len()).map(bits).min().unwrap_or(0) * self.rings.len() as u64,
        }
    }

    /// Elements of the result.
    pub(super) fn elements(&self) -> u64 {
        self.elements as u64
    }

    /// Whether no product is negative.
    pub(super) fn non_negative(&self) -> bool {
        self.non_negative
    }

    /// Bytes that its protocol keeps of so many values: copies of both factors, and the pass.
    pub(super) fn held(&self, values: u64) -> u64 {
        let pass = values.min(PASS).saturating_mul((self.ladders() + 8) * BYTES_PER_TERM);
        values.saturating_mul(32).saturating_add(pass)
    }
}

impl OnShares for Product {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Ran<Vec<u64>> {
        let first = s.party() == Party::Zero;
        let factor = |index: usize| -> Vec<u64> {
            let reduce = |v: &u64| self.rings[index].reduce(*v);
            match &self.spread[index] {
                None => x[index].iter().map(reduce).collect(),
                Some(moves) => gather(&[x[index]], moves, at.images).iter().map(reduce).collect(),
            }
        };
        let mut product = match (&self.rows, &self.factors[..]) {
            (Some(rows), of @ [_, _, ..]) => {
                let each = |v: &u64| self.rings[rows.factor].reduce(*v);
                let y: Vec<u64> = x[rows.factor].iter().map(each).collect();
                let elements = rows.in_rows(factor(1 - rows.factor), self.elements);
                let (of_x, of_y) = (of[1 - rows.factor], of[rows.factor]);
                rows.in_place(mpc::multiply_rows(s, (&elements, of_x), (&y, of_y), self.ring)?, self.elements)
            }
            (None, [a, b, ..]) => mpc::multiply(s, (&factor(0), *a), (&factor(1), *b), self.ring)?,
            (_, [of]) => mpc::square(s, &factor(0), *of, self.ring)?,
            (_, []) => Vec::new(),
        };
        let raised = if first && !self.non_negative { 1u64 << (self.ring.bits() - 2) } else { 0 };
        product.iter_mut().for_each(|p| *p = self.ring.add(*p, raised));
        let mut result = mpc::rescale(s, &product, (self.ring, self.bits), at.ring)?;
        let back = raised >> self.bits;
        result.iter_mut().for_each(|r| *r = at.ring.sub(*r, back));
        Ok(result)
    }

    fn cost(&self, m: &mut CostModel, _: usize, at: &At) {
        let n = self.elements * at.images;
        self.multiplied(m, at.images);
        mpc::rescale_cost(m, n, (self.ring, self.bits), at.ring);
    }
}

#[cfg(test)]
mod tests {
    use super::Rows;

    /// Every element of a result comes in one row, that of the element of the factor that it meets; short rows are none.
    #[test]
    fn rows_are_the_elements_that_meet_an_element_of_the_factor() {
        for (shape, to) in [
            (&[3, 1][..], &[3, 20][..]),
            (&[1, 3], &[20, 3]),
            (&[3], &[4, 5, 3]),
            (&[2, 1, 3], &[2, 18, 3]),
            (&[1, 7, 1, 1], &[1, 7, 4, 4]),
            (&[4, 1, 2, 1], &[4, 5, 2, 6]),
            (&[], &[17]),
        ] {
            let rows = Rows::new(1, shape, to).unwrap();
            let len = rows.columns.len();
            let elements: usize = to.iter().product();
            assert_eq!(
                (rows.starts.len(), len),
                (shape.iter().product(), elements / shape.iter().product::<usize>())
            );
            let mut seen = vec![false; elements];
            for (k, at) in rows.places().enumerate() {
                assert!(!std::mem::replace(&mut seen[at], true));
                // The factor's own index of this element.
                let (mut left, mut index, mut stride) = (at, 0, 1);
                for (axis, &size) in to.iter().enumerate().rev() {
                    let own = (axis + shape.len()).checked_sub(to.len()).map_or(1, |i| shape[i]);
                    index += (left % size).min(own - 1) * stride;
                    (left, stride) = (left / size, stride * own);
                }
                assert_eq!(k / len, index, "{shape:?} {to:?}");
            }
            let images: Vec<u64> = (0..2 * elements as u64).collect();
            let rows_first = rows.in_rows(images.clone(), elements);
            assert_eq!(rows_first == images, rows.straight(), "{shape:?} {to:?}");
            assert_eq!(rows.in_place(rows_first, elements), images);
        }
        assert!(Rows::new(0, &[3, 1], &[3, 15]).is_none() && Rows::new(0, &[3, 20], &[3, 20]).is_none());
    }
}
