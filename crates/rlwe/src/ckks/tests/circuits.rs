//! Random circuits under random parameters: after every step the decryption is within the predicted error of
//! complex arithmetic, or the step was refused for a reason that applies.

use super::*;
use hushnet_ring::{simd, Ring};
use proptest::prelude::*;

/// A specification with `levels` data primes whose digits fit its special primes.
fn random_spec() -> impl Strategy<Value = CkksSpec> {
    (4u32..9, 1usize..6, 24u32..41, 0u32..9, 1usize..6, 22u32..40).prop_map(
        |(log_n, levels, bits, extra, digits, scale_bits)| {
            let digits = digits.min(levels);
            let per_digit = levels.div_ceil(digits);
            let mut data_primes = vec![PrimeSpec::Near(bits + extra)];
            data_primes.resize(levels, PrimeSpec::Near(bits));
            let special_primes = vec![PrimeSpec::Near(bits + extra + 1); per_digit];
            CkksSpec {
                ring_degree: 1 << log_n,
                ring: Ring::Cyclotomic,
                data_primes,
                special_primes,
                scale_bits,
                digits,
            }
        },
    )
}

struct Machine {
    world: World,
    values: Vec<(Ciphertext, Vec<Complex>)>,
}

impl Machine {
    /// Runs one step on operands chosen by `pick`; the result with what it should be.
    fn step(
        &mut self,
        op: u8,
        pick: (usize, usize),
        w: f64,
    ) -> Result<(Ciphertext, Vec<Complex>), CkksError> {
        let count = self.values.len();
        let ((a, x), (b, y)) = (self.values[pick.0 % count].clone(), self.values[pick.1 % count].clone());
        let (e, world) = (&self.world.evaluator, &self.world);
        let plain = |scale: f64| {
            world.encoder.encode_complex(&y, EncodeAt { level: a.level(), scale, bound: b.bound() })
        };
        let scalar = |scale: f64| world.encoder.encode_scalar(w, a.level(), scale);
        let constant = Complex { re: w, im: 0.0 };
        Ok(match op % 14 {
            0 => (e.add(&a, &b)?, map2(&x, &y, plus)),
            1 => (e.sub(&a, &b)?, map2(&x, &y, minus)),
            2 => (e.neg(&a)?, map2(&x, &x, |v, _| scaled(v, -1.0))),
            3 => (e.add_plain(&a, &plain(a.scale())?)?, map2(&x, &y, plus)),
            4 => (e.mul_plain(&a, &plain(world.params.scale())?)?, map2(&x, &y, times)),
            5 => (e.add_scalar(&a, &scalar(a.scale())?)?, map2(&x, &x, |v, _| plus(v, constant))),
            6 => (e.mul_scalar(&a, &scalar(world.params.scale())?)?, map2(&x, &x, |v, _| scaled(v, w))),
            7 => (e.mul(&a, &b)?, map2(&x, &y, times)),
            8 => (e.square(&a)?, map2(&x, &x, times)),
            9 => (e.relinearise(&a, &world.relin)?, x),
            10 => (e.rescale(&a)?, x),
            11 => (e.relinearise_rescale(&a, &world.relin)?, x),
            12 => {
                let steps = STEPS[pick.1 % STEPS.len()];
                let n = x.len() as i64;
                let rotated = (0..n).map(|j| x[(j + steps).rem_euclid(n) as usize]).collect();
                (e.rotate(&a, steps, &world.galois)?, rotated)
            }
            _ => (e.conjugate(&a, &world.galois)?, map2(&x, &x, |v, _| Complex { re: v.re, im: -v.im })),
        })
    }
}

fn expected_refusal(e: &CkksError) -> bool {
    matches!(
        e,
        CkksError::Capacity { .. }
            | CkksError::ScaleMismatch { .. }
            | CkksError::NoLevelLeft
            | CkksError::Parts { .. }
            | CkksError::BadScale
    )
}

proptest! {
    #[test]
    fn random_circuits_stay_within_their_predicted_errors(
        spec in random_spec(),
        seed in any::<u8>(),
        steps in prop::collection::vec((any::<u8>(), any::<(usize, usize)>(), -2.0f64..2.0), 1..24),
    ) {
        let mut world = World::new(&spec, simd::isa(), seed);
        let levels = world.params.max_level().get();
        let mut values = Vec::new();
        for level in [levels, levels.div_ceil(2)] {
            let x = world.values(1.0);
            let at = world.at(level, 1.0);
            if let Ok(plain) = world.encoder.encode_complex(&x, at) {
                values.push((world.secret.encrypt(&plain, &mut world.prg).unwrap(), x));
            }
        }
        prop_assume!(!values.is_empty());
        let mut machine = Machine { world, values };
        for (op, pick, w) in steps {
            match machine.step(op, pick, w) {
                Ok((c, expected)) => {
                    // Meaningful only while the error itself fits in the modulus.
                    let fits = (c.bound() + c.error_bound()) * c.scale() < 0.5 * machine.world.params.modulus_bits(c.level()).exp2();
                    if !fits {
                        continue;
                    }
                    let ratio = machine.world.error_ratio(&c, &expected);
                    prop_assert!(ratio <= 1.0, "op {} at {:?}: {ratio} of {}", op % 14, c.level(), c.error_bound());
                    machine.values.push((c, expected));
                }
                Err(e) => prop_assert!(expected_refusal(&e), "op {}: {e}", op % 14),
            }
        }
    }
}
