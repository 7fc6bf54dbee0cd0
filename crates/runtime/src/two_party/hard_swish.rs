//! x min(max(x + T, 0), 2 T) on shares by one square (T is 3 for hard-swish): a comparison at both ends, and no product of two values.
//!
//! With c = min(max(x, -T), T), b = max(x - T, 0), T = 2 q and e = c + q it is e^2 - q^2 + 4 q b: for |x| <= T because (x + q)^2 - q^2 = x (x + T), below
//! -T because both sides are 0, above T because c stays T and x (2 T) = 2 T^2 + 2 T b.

use super::check::{fault, Fault, Shared};
use super::nonlinear::{At, OnShares};
use super::reach;
use hushnet_mpc::{self as mpc, CostModel, Factor, Party, Range, Result as Ran, Ring, Session};

/// Values of one pass of the square.
const PASS: u64 = 1 << 17;
/// Bytes that a term keeps between two messages.
const BYTES_PER_TERM: u64 = 9;

/// Hard-swish of every element of a tensor of shares, checked: where its ends are, what it divides by, and the rings that follow.
#[derive(Clone, Debug)]
pub struct HardSwish {
    /// q: half of T, in units of the operand.
    quarter: u64,
    /// Bits that are dropped.
    bits: u32,
    /// The ring of e, and of its square.
    factor: Factor,
    own: Ring,
    square: Ring,
}

impl HardSwish {
    pub(super) fn check(
        (quarter, bits): (u64, u32),
        x: &Shared<'_>,
        to: &Shared<'_>,
        ring: Ring,
    ) -> Result<Self, Fault> {
        let twice = 2 * i64::from(x.f);
        if i64::from(to.f) > twice || i64::from(to.f) < twice - i64::from(bits) {
            return fault(format!(
                "{} fraction bits cannot become {} by a square and dropping {bits}",
                x.f, to.f
            ));
        }
        // 0 <= |e| <= 3 q
        let k = 64 - quarter.saturating_mul(3).leading_zeros();
        if quarter == 0 || k > 30 || k + 2 > ring.bits() {
            return fault(format!(
                "its end is at {quarter} * 2; with shares of {} bits a quarter is from 1 to 2^{} / 3",
                ring.bits(),
                ring.bits().saturating_sub(2).min(30)
            ));
        }
        let zeros = quarter.trailing_zeros();
        if bits > (zeros + 2).min(2 * zeros) {
            return fault(format!(
                "{bits} bits cannot be dropped: 4 * {quarter} or its square is no multiple of 2^{bits}"
            ));
        }
        let steep = 64 - ((4 * quarter) >> bits).leading_zeros();
        let most = x.reach.saturating_add(steep) + 1;
        if most > ring.bits() {
            return fault(format!(
                "values below 2^{} reach 2^{most} in it, the shares have {} bits",
                x.reach,
                ring.bits()
            ));
        }
        let ring_of = |bits: u32| Ring::new(bits.max(3)).or_else(|e| fault(e.to_string()));
        let own = ring_of(k + 2)?;
        let factor = Factor::new(own, Range::Small).or_else(|e| fault(e.to_string()))?;
        Ok(Self { quarter, bits, factor, own, square: ring_of(2 * k + 1)? })
    }

    /// The ring in which values below 2^k less an end are compared.
    pub(super) fn compared_bits(&self, k: u32) -> u32 {
        65 - reach::largest(k).saturating_add(2 * self.quarter).leading_zeros()
    }

    /// Terms of the square's ladder.
    pub(super) fn terms(&self) -> u64 {
        u64::from(self.own.bits())
    }

    /// Bytes that its protocol keeps of so many values.
    pub(super) fn held(&self, values: u64) -> u64 {
        let pass = values.min(PASS).saturating_mul((self.terms() + 8) * BYTES_PER_TERM);
        values.saturating_mul(64).saturating_add(pass)
    }
}

impl OnShares for HardSwish {
    fn run(&self, s: &mut Session, x: &[&[u64]], at: &At) -> Ran<Vec<u64>> {
        let x = x[0];
        // Only the first party moves its share by what is public.
        let first = s.party() == Party::Zero;
        let own = |v: u64| if first { v } else { 0 };
        let (end, quarter) = (own(2 * self.quarter), own(self.quarter));
        let mut ends: Vec<u64> = x.iter().map(|v| at.ring.add(*v, end)).collect();
        ends.extend(x.iter().map(|v| at.ring.sub(*v, end)));
        let over = mpc::relu_within(s, &ends, at.ring, at.compared)?;
        let (above_low, above_high) = over.split_at(x.len());
        // e = c + q, and c = max(x + T, 0) - max(x - T, 0) - T.
        let e: Vec<u64> = (above_low.iter().zip(above_high))
            .map(|(a, b)| self.own.reduce(a.wrapping_sub(*b).wrapping_sub(quarter)))
            .collect();
        let squares = mpc::square(s, &e, self.factor, self.square)?;
        let shorter = mpc::rescale(s, &squares, (self.square, self.bits), at.ring)?;
        let (less, steep) =
            (own((self.quarter * self.quarter) >> self.bits), (4 * self.quarter) >> self.bits);
        let each =
            |(z, b): (u64, &u64)| at.ring.reduce(z.wrapping_sub(less).wrapping_add(b.wrapping_mul(steep)));
        Ok(shorter.into_iter().zip(above_high).map(each).collect())
    }

    fn cost(&self, m: &mut CostModel, elements: usize, at: &At) {
        let n = elements * at.images;
        mpc::relu_within_cost(m, 2 * n, at.ring, at.compared);
        mpc::square_cost(m, n, self.factor, self.square);
        mpc::rescale_cost(m, n, (self.square, self.bits), at.ring);
    }
}
