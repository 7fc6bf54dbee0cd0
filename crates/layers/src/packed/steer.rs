//! Primes that hold the scale through chains of products.
//!
//! A square of scale s at the prime q has the scale `s^2 / q`: its deviation from S, in bits, is twice that of s less that of q. Primes nearest to S
//! differ from it by some `2N ln q`, so along a chain deviations double until nothing fits. With q nearest to `s^2 / S`, the
//! deviation after every square is that of one prime from its wish and does not grow.

use super::circuit::{Op, Program};
use hushnet_ring::prime::is_prime;
use hushnet_rlwe::ckks::{CkksSpec, PrimeSpec};

/// Squares one after the other, without a linear layer between, from which primes are chosen for them.
const CHAIN: usize = 3;
/// Largest prime.
const LIMIT: f64 = (1u64 << 50) as f64;

struct Primes<'a> {
    spec: &'a CkksSpec,
    scale: f64,
    /// By level: the prime that rescaling to that level divides by.
    chosen: Vec<Option<u64>>,
    longest: usize,
}

/// The unused prime = 1 mod `step` nearest to `wish`, below 2^50.
fn nearest(wish: f64, step: u64, taken: &[Option<u64>]) -> Option<u64> {
    let below = (wish as u64).saturating_sub(1) / step;
    let fits = |p: u64| p > step && (p as f64) < LIMIT && !taken.contains(&Some(p)) && is_prime(p);
    (0..below).flat_map(|d| [(below - d) * step + 1, (below + d + 1) * step + 1]).find(|p| fits(*p))
}

impl Primes<'_> {
    /// Scale of a product after rescaling to `level`, by a prime that is chosen for it if none was.
    fn rescaled(&mut self, product: f64, level: usize) -> Option<f64> {
        if self.chosen[level].is_none() {
            // No prime of another size than planned: a bit at most.
            let wish = (product / self.scale).clamp(self.scale / 2.0, 2.0 * self.scale);
            self.chosen[level] = Some(nearest(wish, 2 * self.spec.ring_degree as u64, &self.chosen)?);
        }
        self.chosen[level].map(|q| product / q as f64)
    }

    /// Scale and number of squares since the last linear layer after a polynomial that ends at `level`.
    fn polynomial(
        &mut self,
        c: &[f64],
        (scale, squares): (f64, usize),
        (from, level): (usize, usize),
    ) -> Option<(f64, usize)> {
        let depth = match c.len() {
            0 | 1 => return Some((scale, squares)),
            2 => return Some((scale / c[1].abs(), squares)),
            3 => 1,
            5 => 2,
            n => (n - 1).ilog2() as usize,
        };
        let ends_here = matches!(c.len(), 3 | 5);
        let (top, mut s) = (if ends_here { level + depth } else { from }, scale);
        for i in 0..depth {
            let last = ends_here && i + 1 == depth;
            let leading = if last { c[c.len() - 1].abs() } else { 1.0 };
            s = self.rescaled(s * s / leading, top - 1 - i)?;
        }
        self.longest = self.longest.max(squares + depth);
        Some(if ends_here { (s, squares + depth) } else { (self.scale, 0) })
    }
}

/// `spec`, one prime a level, with primes chosen so that the scales of `program` stay near its own; `None` where chains of products are
/// short, or no primes are left.
pub(super) fn steered(program: &Program, spec: &CkksSpec) -> Option<CkksSpec> {
    if program.width != 1 {
        return None;
    }
    let chosen = vec![None; spec.data_primes.len()];
    let mut primes = Primes { spec, scale: program.scale, chosen, longest: 0 };
    let mut scales = vec![(program.scale, 0); program.values.len()];
    for op in &program.ops {
        let out = op.output();
        scales[out] = match op {
            Op::Polynomial { input, coefficients, .. } => {
                let levels = (program.values[*input].level, program.values[out].level);
                primes.polynomial(coefficients, scales[*input], levels)?
            }
            _ => (program.scale, 0),
        };
    }
    if primes.longest < CHAIN {
        return None;
    }
    let step = 2 * spec.ring_degree as u64;
    for (i, old) in spec.data_primes.iter().enumerate() {
        let PrimeSpec::Near(bits) = old else { return None };
        if primes.chosen[i].is_none() {
            primes.chosen[i] = Some(nearest(f64::from(*bits).exp2(), step, &primes.chosen)?);
        }
    }
    let data_primes = primes.chosen.into_iter().flatten().map(PrimeSpec::Exactly).collect();
    Some(CkksSpec { data_primes, ..spec.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_unused_prime_is_found_on_both_sides() {
        let step = 64;
        let all: Vec<u64> = (1..2000).map(|k| k * step + 1).filter(|p| is_prime(*p)).collect();
        for wish in [5000.0, 64_000.5, 100_001.0] {
            let mut taken = Vec::new();
            for _ in 0..6 {
                let p = nearest(wish, step, &taken).unwrap();
                let distance = |q: u64| (q as f64 - wish).abs();
                let left = all.iter().filter(|q| !taken.contains(&Some(**q)));
                let best = left.map(|q| distance(*q)).fold(f64::INFINITY, f64::min);
                assert!(distance(p) <= best + step as f64 && all.contains(&p), "{wish}: {p}");
                taken.push(Some(p));
            }
        }
    }
}
