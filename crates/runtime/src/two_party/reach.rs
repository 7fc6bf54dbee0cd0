//! Reaches: how far values go, as powers of two that both parties know (`docs/two-party.md`).
//!
//! k = `reach_bits` of a tensor says that every value is below 2^k in absolute value, units of errors beside the planned bound B included:
//! B + B/256 + 2 <= 2^k - 1. Rings of comparisons, truncations and conversions follow from k alone; B stays with the server.

use super::plan::{Kind, Stage};
pub(super) use crate::plan::largest;
use crate::plan::spec::{KindSpec, PlanSpec, Reveal};
use crate::plan::PlanError;
use hushnet_mpc::{Range, Ring};

/// Largest absolute value of a tensor in a run: units of other stages' errors beside the bound.
pub(super) fn with_errors(bound: u64) -> u64 {
    bound.saturating_add(bound >> 8).saturating_add(2)
}

/// The least k for values up to `bound` in absolute value.
#[must_use]
pub fn reach_bits(bound: u64) -> u32 {
    64 - with_errors(bound).leading_zeros()
}

/// That values up to `bound` keep below 2^`reach`.
pub(super) fn holds(bound: u64, reach: u32) -> Result<(), String> {
    let needed = reach_bits(bound);
    if needed > reach {
        return Err(format!(
            "values up to {bound}, units of errors included, need reach_bits {needed}, the plan says {reach}; compile the model again"
        ));
    }
    Ok(())
}

/// The ring of what is left of shares that drop so many bits.
pub(super) fn left(ring: Ring, bits: u32) -> Result<Ring, String> {
    let kept = ring.bits().checked_sub(bits).filter(|kept| *kept >= 2).and_then(|kept| Ring::new(kept).ok());
    kept.ok_or_else(|| {
        format!("{bits} bits cannot be dropped from shares of {} bits in front of a comparison", ring.bits())
    })
}

/// The bound of values up to `bound` divided by 2^bits, a unit up included.
pub(super) fn divided(bound: u64, bits: u32) -> u64 {
    if bits == 0 {
        bound
    } else {
        bound.checked_shr(bits).unwrap_or(0) + 1
    }
}

/// That a tensor's reach fits the ring of the shares, and its exact bound, where there is one, fits the reach.
pub(super) fn check(reach: u32, bound: Option<u64>, ring: Ring) -> Result<(), String> {
    if reach < 1 || reach >= ring.bits() {
        return Err(format!(
            "its reach_bits {reach} does not fit the ring of the shares, which takes 1 to {}; compile the model again with a wider ring",
            ring.bits() - 1
        ));
    }
    bound.map_or(Ok(()), |b| holds(b, reach))
}

/// The narrowest ring that holds what a stage compares of values below 2^k: a value (relu), a value less an end (clip, with a reach of its
/// own), or the difference of two values (max_pool, argmax). A function compares values less an end of its interval.
pub(super) fn compared(kind: &Kind, k: u32, ring: Ring) -> Result<Ring, String> {
    let bits = match kind {
        Kind::Relu => k + 1,
        Kind::Clip { reach, .. } => reach.saturating_add(1),
        Kind::HardSwish(h) => h.compared_bits(k),
        Kind::Function(f) => match f.compared_bits(k) {
            Some(bits) => bits,
            None => return Ok(ring),
        },
        Kind::MaxPool(_) | Kind::Reveal(Reveal::Argmax) => k + 2,
        _ => return Ok(ring),
    };
    Ring::new(bits).ok().filter(|narrow| narrow.bits() <= ring.bits()).ok_or_else(|| {
        format!(
            "comparing values below 2^{k} takes a ring of {bits} bits, the shares have {}; compile the model again with a wider ring",
            ring.bits()
        )
    })
}

/// The range that a truncation may assume of values below 2^`reach`: `Small` within a quarter of the ring.
pub(super) fn range(reach: u32, ring: Ring) -> Result<Range, String> {
    match ring.bits().checked_sub(reach) {
        Some(spare) if spare >= 2 => Ok(Range::Small),
        Some(1) => Ok(Range::Any),
        _ => Err(format!("values below 2^{reach} do not fit a ring of {} bits", ring.bits())),
    }
}

/// The ends of a clip, absent in a public part, which says no more than that `low` is zero. With the operand's exact bound: that
/// what is compared keeps below 2^`reach`.
pub(super) fn ends(
    low: Option<i64>,
    high: Option<i64>,
    reach: u32,
    bound: Option<u64>,
) -> Result<Option<(i64, i64)>, String> {
    let (low, high) = match (low, high) {
        (None | Some(0), None) => return Ok(None),
        (Some(low), Some(high)) if low <= high => (low, high),
        (Some(low), Some(high)) => return Err(format!("it clips to {low}..{high}, but low is above high")),
        _ => return Err("only one end of the clip is given".into()),
    };
    let end = low.unsigned_abs().max(high.unsigned_abs());
    bound.map_or(Ok(()), |b| holds(b.saturating_add(end), reach))?;
    Ok(Some((low, high)))
}

/// Whether a plan has what only the server knows beside weights: the exact bound of every shared tensor, both ends of every clip, and what
/// every shift adds. All or none.
pub(super) fn complete(spec: &PlanSpec, stages: &[Stage]) -> Result<bool, PlanError> {
    let bounds = spec.tensors.iter().filter(|t| t.kind == KindSpec::Shared).map(|t| t.bound.is_some());
    let clips = stages.iter().filter_map(|s| match &s.kind {
        Kind::Clip { ends, .. } => Some(ends.is_some()),
        _ => None,
    });
    let shifts = stages.iter().filter_map(|s| match &s.kind {
        Kind::Shift { by, .. } => Some(by.is_some()),
        _ => None,
    });
    let whole = |what: &str, (with, all): (usize, usize)| {
        if with != 0 && with != all {
            let detail =
                format!("{with} of {all} {what}; a plan gives all of them, or none (its public part)");
            return Err(PlanError::Structure(detail));
        }
        Ok(with == all)
    };
    let count = |of: &mut dyn Iterator<Item = bool>| {
        of.fold((0, 0), |(with, all), given| (with + usize::from(given), all + 1))
    };
    let bounds = whole("shared tensors have a bound", count(&mut { bounds }))?;
    let shifts = whole("shifts say what they add", count(&mut { shifts }))?;
    Ok(whole("clips have ends", count(&mut { clips }))? && shifts && bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ring that the rule `2^(w-1) > B + B/256 + 2` gives: no bit is lost by rounding bounds first.
    #[test]
    fn rounded_bounds_compare_in_the_rings_of_exact_ones() {
        let wide = Ring::new(64).unwrap();
        let edges = (0..40u32).flat_map(|e| (0..5u64).map(move |d| (1u64 << e) + d));
        for bound in (0..5000u64).chain(edges.clone()).chain(edges.map(|b| (b * 255) / 256)) {
            let k = reach_bits(bound);
            let top = u128::from(with_errors(bound));
            assert!(top < 1 << k && top >= 1 << (k - 1), "{bound}");
            assert_eq!(compared(&Kind::Relu, k, wide).unwrap().bits(), k + 1);
            // differences of two such values, as they were rounded before: never more bits
            let both = 2 * u128::from(bound) + 2;
            let before = 129 - (both + (both >> 8) + 2).leading_zeros();
            let now = compared(&Kind::Reveal(Reveal::Argmax), k, wide).unwrap().bits();
            assert!(now <= before && 2 * top < 1 << (now - 1), "{bound}: {now} bits, {before} before");
        }
    }

    #[test]
    fn reaches_beyond_the_ring_are_refused() {
        let ring = Ring::new(20).unwrap();
        assert!(check(19, Some(500_000), ring).is_ok());
        // the bound fits the ring, its units of errors do not: B + B/256 + 2 >= 2^19
        assert!(check(19, Some((1 << 19) - 1), ring).unwrap_err().contains("need reach_bits 20"));
        assert!(check(20, None, ring).unwrap_err().contains("does not fit the ring"));
        assert!(check(0, None, ring).is_err());
        assert_eq!(compared(&Kind::Relu, 19, ring).unwrap().bits(), 20);
        assert!(compared(&Kind::Reveal(Reveal::Argmax), 18, ring).is_ok());
        assert!(compared(&Kind::Reveal(Reveal::Argmax), 19, ring).unwrap_err().contains("21 bits"));
        let clip = |reach| Kind::Clip { from_zero: true, ends: None, reach };
        assert!(compared(&clip(19), 5, ring).is_ok() && compared(&clip(20), 5, ring).is_err());
        assert!(compared(&clip(u32::MAX), 5, ring).is_err());
        assert_eq!([largest(1), largest(20), largest(64)], [1, (1 << 20) - 1, u64::MAX]);
    }

    #[test]
    fn ends_are_given_together_or_not_at_all() {
        assert_eq!(ends(None, None, 9, None), Ok(None));
        assert_eq!(ends(Some(0), None, 9, None), Ok(None));
        assert_eq!(ends(Some(-3), Some(5), 9, Some(200)), Ok(Some((-3, 5))));
        assert!(ends(Some(1), None, 9, None).is_err() && ends(None, Some(1), 9, None).is_err());
        assert!(ends(Some(5), Some(4), 9, None).is_err());
        assert!(ends(Some(0), Some(300), 9, Some(300)).unwrap_err().contains("need reach_bits 10"));
    }
}
