//! Comparisons of what a truncation keeps: a protocol in the narrow ring of x / 2^bits, and one extension of its result.
//!
//! Each party shifts its own share. With x = x_0 + x_1 mod 2^l, (x_0 >> g) + (x_1 >> g) is floor(x / 2^g) less the carry out of the low g bits,
//! modulo 2^(l-g); party 0 adds one. So the shifted shares hold y = floor(x / 2^g) + e modulo 2^(l-g), where e is one without a carry: what
//! [`super::truncate`] with `Rounding::Faithful` gives, but in the narrow ring, where it takes no message. Every ring of w <= l - g bits that holds y
//! as a signed number holds it exactly.
//! What is compared and what is selected then has w bits. The result z lies in [least, least + 2^(w-1)), where z - least is not negative, so
//! that its wrap-around is one AND ([`super::rescale`]).

use super::rescale::{rescale, rescale_cost};
use super::selection::{wide_where_positive, wide_where_positive_cost};
use crate::cost::CostModel;
use crate::error::{MpcError, Result};
use crate::ring::Ring;
use crate::Session;

/// How a protocol works on x / 2^bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Narrowing {
    /// Of the shares, l bits.
    pub ring: Ring,
    /// Bits that are dropped, g.
    pub bits: u32,
    /// w bits, in which the protocol works: it holds floor(x / 2^g) and the next integer, for all x that occur.
    pub narrow: Ring,
}

impl Narrowing {
    /// # Errors
    /// `Parameter` unless w <= l - g.
    fn check(&self) -> Result<()> {
        let limit = u64::from(self.ring.bits().saturating_sub(self.bits));
        if u64::from(self.narrow.bits()) > limit {
            let got = self.narrow.bits().into();
            return Err(MpcError::Parameter { what: "bits of the narrow ring", got, limit });
        }
        Ok(())
    }
}

/// Shares modulo 2^w of floor(x / 2^g), or that plus one with probability (x mod 2^g + 1) / 2^g for shares drawn at random; x itself for g = 0. Local.
///
/// # Errors
/// `Parameter` when the narrow ring has more bits than are left.
pub fn narrowed(s: &Session, x: &[u64], to: Narrowing) -> Result<Vec<u64>> {
    to.check()?;
    let one = u64::from(s.is_first() && to.bits > 0);
    Ok(x.iter().map(|v| to.narrow.reduce((v >> to.bits).wrapping_add(one))).collect())
}

/// Shares modulo 2^l of z in [least, least + 2^(w-1)) from shares modulo 2^w: one correlated OT, and l - w + 1 bits. Only the first party's `least` counts.
///
/// # Errors
/// Channel errors.
pub fn widened(s: &mut Session, z: &[u64], from: Narrowing, least: i64) -> Result<Vec<u64>> {
    let least = if s.is_first() { least as u64 } else { 0 };
    let above: Vec<u64> = z.iter().map(|&v| from.narrow.sub(v, least)).collect();
    let wide = rescale(s, &above, (from.narrow, 0), from.ring)?;
    Ok(wide.into_iter().map(|v| from.ring.add(v, least)).collect())
}

/// Adds the exact traffic and rounds of [`widened`] to the model, both directions.
pub fn widened_cost(m: &mut CostModel, n: usize, from: Narrowing) {
    rescale_cost(m, n, (from.narrow, 0), from.ring);
}

/// Shares of max(x, 0) / 2^g: floor, or that plus one with probability (x mod 2^g + 1) / 2^g where x >= 0, and 0 where x < 0. Compares w - 1 bits, for
/// x with floor(x / 2^g) + 1 < 2^(w-1) and floor(x / 2^g) >= -2^(w-1).
///
/// # Errors
/// `Parameter` when the narrow ring has more bits than are left; `RingWidth` when it has fewer than two; channel errors.
pub fn relu_dividing(s: &mut Session, x: &[u64], of: Narrowing) -> Result<Vec<u64>> {
    let y = narrowed(s, x, of)?;
    let nothing = vec![0; y.len()];
    wide_where_positive(s, &y, &nothing, of, 0)
}

/// Adds the exact traffic and rounds of [`relu_dividing`] to the model, both directions.
pub fn relu_dividing_cost(m: &mut CostModel, n: usize, of: Narrowing) {
    wide_where_positive_cost(m, n, of);
}
