//! The server of a coefficient-packed stage: what it does to words. It holds no key.

use super::CoefficientParams;
use crate::packed::{add_mod, PackedContext, Switch, WeightPoly, PRIME_BITS};
use crate::CipherError;
use hushnet_ring::{mac, simd, RingError};

/// A received c0 (N words of `upload` bits) to evaluation form modulo p, in place: the middle of what the dropped bits may have been.
///
/// # Errors
/// [`CipherError::NotReduced`] when a word is above what p leaves; [`CipherError::Ring`] unless there are N words.
pub fn lift_request(
    context: &PackedContext,
    params: &CoefficientParams,
    words: &mut [u64],
) -> Result<(), CipherError> {
    let p = context.prime();
    let dropped = PRIME_BITS - params.bits().upload;
    let most = (p - 1) >> dropped;
    if words.iter().fold(false, |bad, w| bad | (*w > most)) {
        return Err(CipherError::NotReduced);
    }
    let middle = (1u64 << dropped) >> 1;
    for w in words.iter_mut() {
        let lifted = (*w << dropped) + middle;
        *w = lifted.min(lifted.wrapping_sub(p));
    }
    Ok(context.ntt().forward(words)?)
}

/// `sum_i w_i x_i` in evaluation form.
///
/// # Errors
/// [`CipherError::Ring`] when lengths differ or there are more than 4096 terms.
pub fn combine(
    context: &PackedContext,
    x: &[&[u64]],
    weights: &[&WeightPoly],
    out: &mut [u64],
) -> Result<(), CipherError> {
    let w: Vec<&[u64]> = weights.iter().map(|w| w.slots()).collect();
    Ok(mac::dot(simd::isa(), context.dot(), &[x], &w, &mut [out])?)
}

/// Adds an output's bias to a word modulo p: `D b`.
#[must_use]
pub fn bias(context: &PackedContext, params: &CoefficientParams, bias: i64) -> u64 {
    context.modulus().residue(i128::from(bias) * i128::from(params.scale()))
}

/// The coefficients of a combined c0 (evaluation form, destroyed) that hold results, with their biases ([`bias`]), rounded to `body` bits.
///
/// # Errors
/// [`CipherError::Ring`] when lengths differ or a place is not below N.
pub fn round_answer(
    context: &PackedContext,
    params: &CoefficientParams,
    sum: &mut [u64],
    places: &[usize],
    biases: impl Iterator<Item = u64>,
    out: &mut [u64],
) -> Result<(), CipherError> {
    let (n, p) = (context.ring_degree(), context.prime());
    if out.len() != places.len() {
        let (expected, got) = (places.len(), out.len());
        return Err(RingError::Length { what: "answer coefficients", expected, got }.into());
    }
    if let Some(&got) = places.iter().find(|place| **place >= n) {
        return Err(RingError::Length { what: "coefficient of an answer (below)", expected: n, got }.into());
    }
    context.ntt().inverse(sum)?;
    let switch = Switch::new(p, params.bits().body);
    for ((o, place), bias) in out.iter_mut().zip(places).zip(biases) {
        *o = switch.apply(add_mod(sum[*place], bias, p));
    }
    Ok(())
}

/// A sum of masks (evaluation form) as it travels: N words of `mask` bits, in place.
///
/// # Errors
/// [`CipherError::Ring`] unless there are N words.
pub fn round_masks(
    context: &PackedContext,
    params: &CoefficientParams,
    sum: &mut [u64],
) -> Result<(), CipherError> {
    context.ntt().inverse(sum)?;
    let switch = Switch::new(context.prime(), params.bits().mask);
    sum.iter_mut().for_each(|c| *c = switch.apply(*c));
    Ok(())
}
