//! The position of the largest value, and nothing else.

use super::relu::reduced;
use super::selection::{where_positive, where_positive_cost};
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::Session;

/// The ring that holds indices below `classes`.
///
/// # Errors
/// `Parameter` when there are no classes.
pub fn index_ring(classes: usize) -> Result<Ring> {
    if classes == 0 {
        return Err(MpcError::Parameter { what: "number of classes", got: 0, limit: 1 });
    }
    Ring::new((usize::BITS - (classes - 1).leading_zeros()).max(1))
}

/// One round's survivors: values and their indices.
struct Field {
    values: Vec<u64>,
    indices: Vec<u64>,
}

/// Shares, in [`index_ring`], of the index of each row's largest value; the first of equals. `x` holds rows of `classes`
/// values, whose differences are below 2^(w-1), w the bits of `narrow`, where they are compared. Open them to one party with [`super::reveal`]: it learns the label only.
///
/// # Errors
/// `Length` when x is not a whole number of rows; otherwise as [`drelu`](super::drelu).
pub fn argmax(s: &mut Session, x: &[u64], classes: usize, ring: Ring, narrow: Ring) -> Result<Vec<u64>> {
    let small = index_ring(classes)?;
    if !x.len().is_multiple_of(classes) {
        return Err(MpcError::Length {
            what: "rows of classes",
            expected: x.len().next_multiple_of(classes),
            got: x.len(),
        });
    }
    let mine = |i: usize| if s.is_first() { i as u64 } else { 0 };
    let mut field = Field { values: x.to_vec(), indices: (0..x.len()).map(|i| mine(i % classes)).collect() };
    let mut width = classes;
    while width > 1 {
        field = play(s, &field, width, [ring, narrow, small])?;
        width = width.div_ceil(2);
    }
    Ok(field.indices)
}

/// Neighbours play; the left one wins draws; an odd one out at the end goes through.
fn play(s: &mut Session, field: &Field, width: usize, [ring, narrow, small]: [Ring; 3]) -> Result<Field> {
    let pairs = |v: &[u64], ring: Ring| -> Vec<u64> {
        v.chunks(width).flat_map(|row| row.chunks_exact(2).map(move |p| ring.sub(p[0], p[1]))).collect()
    };
    let (dv, di) = (pairs(&field.values, ring), pairs(&field.indices, small));
    let won = where_positive(s, &reduced(&dv, ring, narrow)?, narrow, &[&dv, &di], &[ring, small])?;
    let merge = |v: &[u64], won: &[u64], ring: Ring| {
        let mut won = won.iter();
        let mut out = Vec::with_capacity(won.len() + v.len() / width);
        for row in v.chunks(width) {
            let pairs = row.chunks_exact(2);
            let spare = pairs.remainder();
            out.extend(pairs.zip(&mut won).map(|(p, &w)| ring.add(p[1], w)));
            out.extend_from_slice(spare);
        }
        out
    };
    Ok(Field { values: merge(&field.values, &won[0], ring), indices: merge(&field.indices, &won[1], small) })
}

/// Cost of [`argmax`] over `rows` rows.
pub fn argmax_cost(m: &mut CostModel, rows: usize, classes: usize, ring: Ring, narrow: Ring) {
    let Ok(small) = index_ring(classes) else { return };
    let mut width = classes;
    while width > 1 {
        let n = rows * (width / 2);
        where_positive_cost(m, n, narrow, &[ring, small]);
        width = width.div_ceil(2);
    }
}
