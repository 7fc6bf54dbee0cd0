//! From bits to ring elements, the multiplexer, and opening.

use super::compare::Bits;
use super::product::{self, one_way, products, Job, OneWay, BOTH};
use crate::bits::{bit, spread};
use crate::cost::CostModel;
use crate::error::{check_len, Result};
use crate::ring::Ring;
use crate::select::all;
use crate::wire::{packed_bytes, recv_packed, send_packed};
use crate::{Party, Session};

/// Shares of the bit as an element of Z_2^l: b0 + b1 - 2*b0*b1, one correlated OT of l - 1 bits from party 0.
///
/// # Errors
/// Channel errors.
pub fn bit_to_arithmetic(s: &mut Session, b: &Bits, ring: Ring) -> Result<Vec<u64>> {
    let n = b.len();
    let mine = spread(&b.plane, n);
    let Ok(half) = Ring::new(ring.bits() - 1) else { return Ok(mine) };
    let product = one_way(s, n, OneWay { elements: &[&mine], bits: &b.plane }, &[half])?.swap_remove(0);
    Ok(mine.iter().zip(product).map(|(b, p)| ring.reduce(b.wrapping_sub(2 * p))).collect())
}

/// Adds the exact traffic and rounds of [`bit_to_arithmetic`] to the model, both directions.
pub fn bit_to_arithmetic_cost(m: &mut CostModel, n: usize, ring: Ring) {
    if let Ok(half) = Ring::new(ring.bits() - 1) {
        product::cost(m, n, [true, false], &[half]);
    }
}

/// Shares of b*x: b0*x0 + b1*x1 + b1*(x0 - 2*b0*x0) + b0*(x1 - 2*b1*x1), one correlated OT each way, 2(l + 1)
/// bits, 2 rounds (CrypTFlow2, section 3.1.2).
///
/// # Errors
/// `Length` when b and x differ in length; channel errors.
pub fn mux(s: &mut Session, b: &Bits, x: &[u64], ring: Ring) -> Result<Vec<u64>> {
    Ok(mux_many(s, b, &[x], &[ring])?.swap_remove(0))
}

/// Adds the exact traffic and rounds of [`mux`] to the model, both directions.
pub fn mux_cost(m: &mut CostModel, n: usize, ring: Ring) {
    product::cost(m, n, BOTH, &[ring]);
}

/// One or two payloads selected by the same bit.
pub(crate) fn mux_many(s: &mut Session, b: &Bits, x: &[&[u64]], rings: &[Ring]) -> Result<Vec<Vec<u64>>> {
    let n = b.len();
    let mut signed = Vec::with_capacity(x.len());
    for x in x {
        check_len("multiplexed vector", n, x.len())?;
        // (v ^ m) - m is -v where m is all ones, v where it is zero.
        let minus = |v: u64, m: u64| (v ^ m).wrapping_sub(m);
        signed.push(x.iter().enumerate().map(|(i, &v)| minus(v, all(b.get(i)))).collect::<Vec<_>>());
    }
    let send: Vec<&[u64]> = signed.iter().map(Vec::as_slice).collect();
    let mut out = products(s, &Job { n, send: Some(&send), recv: Some(&b.plane), rings })?;
    for ((o, x), ring) in out.iter_mut().zip(x).zip(rings) {
        for (i, (o, &v)) in o.iter_mut().zip(*x).enumerate() {
            *o = ring.add(*o, v & all(bit(&b.plane, i)));
        }
    }
    Ok(out)
}

/// Opens shares to both parties; l bits each way, one round.
///
/// # Errors
/// Channel errors.
pub fn open(s: &mut Session, x: &[u64], ring: Ring) -> Result<Vec<u64>> {
    send_packed(&mut *s.channel, x, ring.bits())?;
    let theirs = recv_packed(&mut *s.channel, x.len(), ring.bits())?;
    Ok(x.iter().zip(theirs).map(|(&a, b)| ring.add(a, b)).collect())
}

/// Adds the exact traffic and rounds of [`open`] to the model, both directions.
pub fn open_cost(m: &mut CostModel, n: usize, ring: Ring) {
    let by = packed_bytes(n, ring.bits());
    m.exchange(by, by);
}

/// Opens shares to one party only; the other gets `None`.
///
/// # Errors
/// Channel errors.
pub fn reveal(s: &mut Session, x: &[u64], ring: Ring, to: Party) -> Result<Option<Vec<u64>>> {
    if s.party == to {
        let theirs = recv_packed(&mut *s.channel, x.len(), ring.bits())?;
        return Ok(Some(x.iter().zip(theirs).map(|(&a, b)| ring.add(a, b)).collect()));
    }
    send_packed(&mut *s.channel, x, ring.bits())?;
    s.channel.flush()?;
    Ok(None)
}

/// Adds the exact traffic and rounds of [`reveal`] to the model, both directions.
pub fn reveal_cost(m: &mut CostModel, n: usize, ring: Ring, to: Party) {
    m.message(to.other(), packed_bytes(n, ring.bits()));
}
