//! Division by a power of two into another ring, for values that are not negative: truncation and extension (SIRNN, IEEE S&P 2021,
//! sections 3.3 and 3.4) by one correlated OT.

use super::truncate::{wrap_of_small, wrap_of_small_cost};
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::{Party, Session};

/// The wrap-around's ring in the result.
fn excess((from, shift): (Ring, u32), out: Ring) -> Option<Ring> {
    (out.bits() + shift).checked_sub(from.bits()).and_then(|bits| Ring::new(bits).ok())
}

/// Shares in `out` of x/2^shift for 0 <= x < 2^(l-1), l the bits of the ring `from` and shift < l: floor or, where shift is not zero, floor + 1, as
/// `Rounding::Faithful`. Bits a value: one, and those that `out` has beyond l - shift; nothing where it has none.
///
/// # Errors
/// `Parameter` for another shift; channel errors.
pub fn rescale(s: &mut Session, x: &[u64], (from, shift): (Ring, u32), out: Ring) -> Result<Vec<u64>> {
    if shift >= from.bits() {
        return Err(MpcError::Parameter {
            what: "shift",
            got: shift.into(),
            limit: u64::from(from.bits()) - 1,
        });
    }
    let kept = from.bits() - shift;
    let wraps = match excess((from, shift), out) {
        Some(ring) => wrap_of_small(s, x, from, &[ring])?.swap_remove(0),
        None => vec![0; x.len()],
    };
    let carry = u64::from(s.party() == Party::Zero && shift > 0);
    // Without an excess nothing is left of the wrap-around.
    let each = |(&x, &w): (&u64, &u64)| {
        out.reduce((x >> shift).wrapping_add(carry).wrapping_sub(w.checked_shl(kept).unwrap_or(0)))
    };
    Ok(x.iter().zip(&wraps).map(each).collect())
}

/// Cost of [`rescale`] of n elements: its OTs, messages and rounds, exactly.
pub fn rescale_cost(m: &mut CostModel, n: usize, from: (Ring, u32), out: Ring) {
    if let Some(ring) = excess(from, out) {
        wrap_of_small_cost(m, n, &[ring]);
    }
}
