//! Maximum of two values and of many, by tournament.

use super::narrow::{widened, widened_cost, Narrowing};
use super::relu::{relu_within, relu_within_cost};
use super::selection::{wide_where_positive, wide_where_positive_cost};
use crate::cost::CostModel;
use crate::error::{check_len, MpcError, Result};
use crate::ring::Ring;
use crate::Session;

/// Shares of max(a, b) = b + relu(a - b), signed, elementwise. Needs |a - b| < 2^(w-1), w the bits of `narrow`.
///
/// # Errors
/// `Length` when a and b differ in length; otherwise as [`relu_within`].
pub fn maximum(s: &mut Session, a: &[u64], b: &[u64], ring: Ring, narrow: Ring) -> Result<Vec<u64>> {
    check_len("second operand", a.len(), b.len())?;
    let difference: Vec<u64> = a.iter().zip(b).map(|(&a, &b)| ring.sub(a, b)).collect();
    let r = relu_within(s, &difference, ring, narrow)?;
    Ok(r.iter().zip(b).map(|(&r, &b)| ring.add(r, b)).collect())
}

/// Cost of [`maximum`]: one ReLU.
pub fn maximum_cost(m: &mut CostModel, n: usize, ring: Ring, narrow: Ring) {
    relu_within_cost(m, n, ring, narrow);
}

/// Shares of the elementwise maximum of k vectors, as [`maximum`]: k - 1 ReLUs per element in ceil(log2 k) steps.
///
/// # Errors
/// `Length` when vectors differ in length, `Parameter` when there is none; otherwise as [`relu_within`].
pub fn max_many(s: &mut Session, vectors: Vec<Vec<u64>>, ring: Ring, narrow: Ring) -> Result<Vec<u64>> {
    tournament(s, vectors, &mut |s, a, b| maximum(s, a, b, ring, narrow), None)
}

/// A match of two vectors: shares of their maxima.
type Match<'a> = &'a mut dyn FnMut(&mut Session, &[u64], &[u64]) -> Result<Vec<u64>>;

/// The maxima of vectors by matches, the last of which may be of another kind.
fn tournament(
    s: &mut Session,
    mut vectors: Vec<Vec<u64>>,
    each: Match<'_>,
    mut last: Option<Match<'_>>,
) -> Result<Vec<u64>> {
    let n = vectors.first().ok_or(MpcError::Parameter { what: "number of vectors", got: 0, limit: 1 })?.len();
    while vectors.len() > 1 {
        let spare = if vectors.len() % 2 == 1 { vectors.pop() } else { None };
        let half = vectors.len() / 2;
        let second: Vec<u64> = vectors.split_off(half).concat();
        let won = match last.as_mut() {
            Some(last) if half == 1 && spare.is_none() => last(s, &vectors.concat(), &second)?,
            _ => each(s, &vectors.concat(), &second)?,
        };
        vectors = if n == 0 { vec![Vec::new(); half] } else { won.chunks(n).map(<[u64]>::to_vec).collect() };
        vectors.extend(spare);
    }
    Ok(vectors.swap_remove(0))
}

/// Cost of [`max_many`] of k vectors of n elements.
pub fn max_many_cost(m: &mut CostModel, k: usize, n: usize, ring: Ring, narrow: Ring) {
    levels(k).for_each(|pairs| maximum_cost(m, pairs * n, ring, narrow));
}

/// Matches of each level.
fn levels(k: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(k), |k| Some(k.div_ceil(2))).take_while(|k| *k > 1).map(|k| k / 2)
}

/// [`max_many`] of vectors modulo 2^w, the result modulo 2^l as [`super::widened`] makes it, without its round: the last match does both.
pub(super) fn max_many_wide(
    s: &mut Session,
    vectors: Vec<Vec<u64>>,
    of: Narrowing,
    least: i64,
) -> Result<Vec<u64>> {
    if vectors.len() == 1 {
        return widened(s, &vectors.concat(), of, least);
    }
    let narrow = of.narrow;
    let mut last = |s: &mut Session, a: &[u64], b: &[u64]| {
        check_len("second operand", a.len(), b.len())?;
        let difference: Vec<u64> = a.iter().zip(b).map(|(&a, &b)| narrow.sub(a, b)).collect();
        wide_where_positive(s, &difference, b, of, least)
    };
    tournament(s, vectors, &mut |s, a, b| maximum(s, a, b, narrow, narrow), Some(&mut last))
}

/// Cost of [`max_many_wide`] of k vectors of n elements.
pub(super) fn max_many_wide_cost(m: &mut CostModel, k: usize, n: usize, of: Narrowing) {
    if k <= 1 {
        return widened_cost(m, n, of);
    }
    let all: Vec<usize> = levels(k).collect();
    all[..all.len() - 1].iter().for_each(|pairs| maximum_cost(m, pairs * n, of.narrow, of.narrow));
    wide_where_positive_cost(m, n, of);
}
