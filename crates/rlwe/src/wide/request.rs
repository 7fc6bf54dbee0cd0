//! How a polynomial of a request travels: its coefficients modulo Q = p1 p2 without their lowest bits, which the noise covers.

use super::{WideContext, WideParams, DATA_PRIMES, PRIME_BITS, RING_DEGREE};
use crate::pack_lwe::ring;
use crate::CipherError;
use hushnet_ring::rns::{Coef, RnsPoly};
use hushnet_ring::{low_mask, pack, RingError};

/// `v mod p` of a v below 2 p.
fn below(v: u64, p: u64) -> u64 {
    v.min(v.wrapping_sub(p))
}

/// `round(c / 2^dropped)` of every coefficient c in [0, Q): N words of their lowest 50 bits, then N words of the others.
pub(super) fn write(
    context: &WideContext,
    params: &WideParams,
    poly: &RnsPoly<Coef>,
) -> Result<Vec<u8>, CipherError> {
    let (m0, m1) = (&context.basis().moduli()[0], &context.basis().moduli()[1]);
    let inverse = m1.factor(m1.inv(m0.value() % m1.value()));
    // Q is so far below 2^100 that what is rounded up has no more bits.
    let half = (1u128 << params.dropped) >> 1;
    let (mut low, mut high) = (Vec::with_capacity(RING_DEGREE), Vec::with_capacity(RING_DEGREE));
    for (&a, &b) in poly.limb(0).iter().zip(poly.limb(1)) {
        // c = a + p1 t for the t modulo p2 with which c = b there.
        let t = m1.mul_factor(m1.add(b, m1.neg(below(a, m1.value()))), inverse);
        let c = u128::from(a) + u128::from(m0.value()) * u128::from(t);
        let rounded = (c + half) >> params.dropped;
        low.push(rounded as u64 & low_mask(PRIME_BITS));
        high.push((rounded >> PRIME_BITS) as u64);
    }
    let mut bytes = vec![0; params.request_len()];
    let (first, second) = bytes.split_at_mut(pack::packed_len(RING_DEGREE, PRIME_BITS));
    pack::pack(&low, PRIME_BITS, first)?;
    pack::pack(&high, params.request_bits() - PRIME_BITS, second)?;
    Ok(bytes)
}

/// The polynomial of a peer's words, times 2^dropped: every word stands for an element modulo Q.
///
/// # Errors
/// [`CipherError::Ring`] unless there are [`WideParams::request_len`] bytes.
pub(super) fn read(
    context: &WideContext,
    params: &WideParams,
    bytes: &[u8],
) -> Result<RnsPoly<Coef>, CipherError> {
    let expected = params.request_len();
    if bytes.len() != expected {
        return Err(RingError::Length { what: "wide polynomial", expected, got: bytes.len() }.into());
    }
    let (first, second) = bytes.split_at(pack::packed_len(RING_DEGREE, PRIME_BITS));
    let (mut low, mut high) = (vec![0; RING_DEGREE], vec![0; RING_DEGREE]);
    pack::unpack(first, PRIME_BITS, &mut low)?;
    pack::unpack(second, params.request_bits() - PRIME_BITS, &mut high)?;
    let basis = context.basis();
    let mut poly = basis.zero(0..DATA_PRIMES).map_err(ring)?;
    for (i, m) in basis.moduli()[..DATA_PRIMES].iter().enumerate() {
        let power = |e: u32| m.factor(m.pow(2, u64::from(e)));
        let (of_low, of_high) = (power(params.dropped), power(params.dropped + PRIME_BITS));
        for (c, (&low, &high)) in poly.limb_mut(i).iter_mut().zip(low.iter().zip(&high)) {
            let part = |v, factor| m.mul_factor(below(v, m.value()), factor);
            *c = m.add(part(low, of_low), part(high, of_high));
        }
    }
    Ok(poly)
}
