//! Maximum of two values and of many, by tournament.

use super::relu::{relu_within, relu_within_cost};
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
pub fn max_many(s: &mut Session, mut vectors: Vec<Vec<u64>>, ring: Ring, narrow: Ring) -> Result<Vec<u64>> {
    let n = vectors.first().ok_or(MpcError::Parameter { what: "number of vectors", got: 0, limit: 1 })?.len();
    while vectors.len() > 1 {
        let spare = if vectors.len() % 2 == 1 { vectors.pop() } else { None };
        let half = vectors.len() / 2;
        let second: Vec<u64> = vectors.split_off(half).concat();
        let won = maximum(s, &vectors.concat(), &second, ring, narrow)?;
        vectors = if n == 0 { vec![Vec::new(); half] } else { won.chunks(n).map(<[u64]>::to_vec).collect() };
        vectors.extend(spare);
    }
    Ok(vectors.swap_remove(0))
}

/// Cost of [`max_many`] of k vectors of n elements.
pub fn max_many_cost(m: &mut CostModel, mut k: usize, n: usize, ring: Ring, narrow: Ring) {
    while k > 1 {
        maximum_cost(m, k / 2 * n, ring, narrow);
        k = k.div_ceil(2);
    }
}
