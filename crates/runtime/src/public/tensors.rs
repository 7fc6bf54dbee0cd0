//! Tensors as clients are told them.

use super::names::{of_ports, Names};
use crate::plan::spec::{HideSpec, KindSpec, PlanSpec, StageKind, StageSpec, TensorSpec, Trust};
use serde_json::Number;
use std::collections::{BTreeMap, BTreeSet};

/// What the client encrypts and decrypts, and names of its own tensors.
pub(super) struct Ends<'a> {
    spec: &'a PlanSpec,
    encrypted: BTreeSet<u32>,
    decrypted: BTreeSet<u32>,
    ports: BTreeMap<u32, String>,
}

impl<'a> Ends<'a> {
    pub(super) fn of(spec: &'a PlanSpec) -> Self {
        let ops = spec.stages.iter().flat_map(StageSpec::ops);
        let ports = of_ports(spec.inputs.iter().chain(&spec.outputs), ops);
        let mut ends = Self { spec, encrypted: BTreeSet::new(), decrypted: BTreeSet::new(), ports };
        for stage in &spec.stages {
            match stage.kind {
                StageKind::Encrypt {} => ends.encrypted.extend(stage.output),
                StageKind::Decrypt {} => ends.decrypted.extend(&stage.inputs),
                _ => {}
            }
        }
        ends
    }
}

/// The bound of a result as the client is told it. Where weights are hidden it is rounded up to a power of two, or to what the modulus
/// holds beside the flood, which the client knows as well; where they are not, it is exact.
pub(crate) fn told_bound(spec: &PlanSpec, tensor: &TensorSpec, bound: f64) -> f64 {
    let Some(params) = &spec.params.non_interactive else { return bound };
    let Some(HideSpec { flood_bits }) = params.hide_weights else { return bound };
    let packed = spec.stages.iter().find_map(|s| match &s.kind {
        StageKind::Packed(p) => Some((p.answer_level, p.answer_scale)),
        _ => None,
    });
    let place = tensor.level.zip(tensor.scale).or(packed);
    let room = place.map_or(f64::INFINITY, |(level, scale)| {
        let bits: f64 = params.data_primes.iter().take(level).map(|q| (*q as f64).log2()).sum();
        ((bits - 1.0 - EDGE).exp2() - f64::from(flood_bits).exp2()) / scale
    });
    power_of_two(bound).min(room)
}

/// Bits of the modulus that stay free, so that a bound that fills it still fits.
const EDGE: f64 = 1e-6;

/// The least power of two that is not below a positive bound.
fn power_of_two(bound: f64) -> f64 {
    let near = bound.log2().round().exp2();
    // the logarithm is rounded: one of its neighbours may be the right one
    [near / 2.0, near, near * 2.0].into_iter().find(|p| *p >= bound).unwrap_or(bound)
}

/// Exact bounds of shared tensors stay. Of ciphertexts, bounds of what is encrypted follow from input ranges, those of what is decrypted leave as
/// [`told_bound`] says, and others stay, as do the ranges of polynomials. Those of the client's own tensors follow from input ranges or reaches.
pub(super) fn told(tensor: &TensorSpec, ends: &Ends<'_>, names: &mut Names) -> TensorSpec {
    let TensorSpec {
        id,
        name,
        shape,
        kind,
        scale,
        bound,
        frac_bits,
        reach_bits,
        level,
        parts,
        range: _,
        noise_bits,
    } = tensor;
    let numbered = names.next(name, kind.name());
    let bound = match (kind, tensor.real_bound()) {
        (KindSpec::Real | KindSpec::Fixed, _) => bound.clone(),
        (KindSpec::Cipher, Some(exact)) if ends.decrypted.contains(id) => {
            Number::from_f64(told_bound(ends.spec, tensor, exact))
        }
        (KindSpec::Cipher, _) if ends.encrypted.contains(id) => bound.clone(),
        (KindSpec::Shared | KindSpec::Cipher, _) => None,
    };
    let ported = ends.ports.get(id).filter(|_| ends.spec.trust != Trust::ClientAided);
    TensorSpec {
        id: *id,
        name: ported.cloned().unwrap_or(numbered),
        shape: shape.clone(),
        kind: *kind,
        scale: *scale,
        bound,
        frac_bits: *frac_bits,
        reach_bits: *reach_bits,
        level: *level,
        parts: *parts,
        range: None,
        noise_bits: *noise_bits,
    }
}

#[cfg(test)]
mod tests {
    use super::power_of_two;

    #[test]
    fn bounds_are_rounded_up_to_powers_of_two() {
        for (bound, rounded) in
            [(1.0, 1.0), (1.0 + 1e-15, 2.0), (0.3, 0.5), (5.0, 8.0), (8.0, 8.0), (1e-6, 2f64.powi(-19))]
        {
            assert_eq!(power_of_two(bound), rounded);
        }
        assert_eq!(power_of_two(f64::from_bits(2f64.to_bits() - 1)), 2.0);
    }
}
