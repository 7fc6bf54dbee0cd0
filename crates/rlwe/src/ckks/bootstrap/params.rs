//! Parameters that a bootstrap fits into: which prime serves which step.

use super::sine::Sine;
use crate::ckks::{CkksError, CkksParams, CkksSpec, Insecure, Level, PrimeSpec};
use crate::security;
use hushnet_ring::Ring;

/// Least Hamming weight of the ephemeral secret (`docs/security`).
pub const LEAST_WEIGHT: usize = 32;

/// Most parts that a raised half is cut into: each has a key of its own, and a rotation at the highest level takes as long as eight of them.
const MOST_PARTS: usize = 8;

/// Bits that the scale of a message may be above [`BootstrapParams::fresh_scale`] when it is bootstrapped, times what its slots are divided by.
const ROOM_BITS: u32 = 24;

/// How far a prime may be from its power of two, in bits.
const NEAR: f64 = 1.0 / 1024.0;

/// What a bootstrap is asked for.
///
/// Data primes, from the lowest: one *base* prime q_0, those of slots from coefficients (the next bootstrap begins with them), `levels` of the message, then
/// those of the sine, and of coefficients from slots, in the order in which they are used up.
#[derive(Clone, Debug, PartialEq)]
pub struct BootstrapSpec {
    /// Ring degree N, a power of two.
    pub ring_degree: usize,
    /// Slots that messages have, a power of two up to N/2; slot j of a message is that at j + slots.
    pub slots: usize,
    /// Levels that a circuit may use between two bootstraps.
    pub levels: usize,
    /// log2 of a message prime, and of the scale of a bootstrapped ciphertext.
    pub message_bits: u32,
    /// log2 of q_0 and of the primes of coefficients from slots and of the sine, but for its last two products.
    pub base_bits: u32,
    /// log2 of the scale of a message modulo q_0, for slots of magnitude 1: below `base_bits` by what keeps them small beside q_0.
    pub entry_bits: u32,
    /// Levels of butterflies a matrix, coefficients from slots; log2 slots in all.
    pub to_coefficients: Vec<u32>,
    /// Levels of butterflies a matrix, slots from coefficients; log2 slots in all.
    pub to_slots: Vec<u32>,
    /// The approximate reduction modulo q_0.
    pub sine: Sine,
    /// Hamming weight of the ephemeral secret.
    pub weight: usize,
    /// Special primes of `base_bits`.
    pub special: usize,
}

impl BootstrapSpec {
    /// N = 2^16: eight levels between bootstraps, 48-bit messages, 128 bits of security. Slots: 2^3 to 2^15.
    ///
    /// # Errors
    /// [`CkksError::Spec`] for other numbers of slots.
    pub fn standard(slots: usize) -> Result<Self, CkksError> {
        Self::at(1 << 16, slots)
    }

    /// The same steps and primes in a ring of another degree, where only [`Self::check_insecure`] takes them: for tests.
    ///
    /// # Errors
    /// [`CkksError::Spec`] for other numbers of slots than 2^3 to N/2.
    pub fn at(ring_degree: usize, slots: usize) -> Result<Self, CkksError> {
        if !slots.is_power_of_two() || !(8..=ring_degree / 2).contains(&slots) {
            return Err(CkksError::Spec(format!(
                "{slots} slots; a bootstrap has 2^3 to N/2 = {}, a power of two",
                ring_degree / 2
            )));
        }
        let log = slots.ilog2();
        let parts = |count: u32| (0..count).map(|k| (log + count - 1 - k) / count).collect();
        Ok(Self {
            ring_degree,
            slots,
            levels: 8,
            message_bits: 48,
            base_bits: 50,
            // What keeps the approximation within 2^-25 of the largest message.
            entry_bits: 43,
            to_coefficients: parts(3),
            // At the lowest levels, where a matrix of many diagonals is cheap.
            to_slots: parts(2),
            sine: Sine { range: 13, degree: 15, doublings: 3 },
            weight: LEAST_WEIGHT,
            special: 8,
        })
    }

    fn check_shape(&self) -> Result<(), CkksError> {
        let fail = |why: String| Err(CkksError::Spec(why));
        let (n, log) = (self.slots, self.slots.max(1).ilog2());
        if !n.is_power_of_two() || !(8..=self.ring_degree / 2).contains(&n) {
            return fail(format!(
                "{n} slots; a power of two from 8 to N/2 = {} is possible",
                self.ring_degree / 2
            ));
        }
        for (what, radices) in [("to coefficients", &self.to_coefficients), ("to slots", &self.to_slots)] {
            // Sums of u32 from a stranger: bounded before they are added.
            if radices.is_empty()
                || radices.iter().any(|r| !(1..=8).contains(r))
                || radices.iter().sum::<u32>() != log
            {
                return fail(format!(
                    "matrices {what} of {radices:?} levels of butterflies; 1 to 8 each, {log} in all"
                ));
            }
        }
        let s = &self.sine;
        if ![7, 15, 31].contains(&s.degree) || s.doublings > 6 || !(1..=64).contains(&s.range) {
            return fail(format!("a sine of {s:?}; degrees 7, 15, 31, at most 6 doublings, range 1 to 64"));
        }
        if self.weight < LEAST_WEIGHT || self.weight > self.ring_degree / 2 {
            return fail(format!("an ephemeral secret of weight {}; at least {LEAST_WEIGHT}", self.weight));
        }
        if self.levels == 0 || self.levels > 32 || self.special == 0 {
            return fail(format!(
                "{} levels and {} special primes; 1 to 32 and at least 1",
                self.levels, self.special
            ));
        }
        if self.entry_bits >= self.base_bits || self.message_bits > self.base_bits {
            return fail("messages must be narrower than q_0".into());
        }
        Ok(())
    }

    /// The data primes of messages: the level of what was bootstrapped.
    fn message_levels(&self) -> usize {
        1 + self.to_slots.len() + self.levels
    }

    /// The specification of the ring.
    ///
    /// # Errors
    /// [`CkksError::Spec`] for what no bootstrap fits.
    pub fn ring(&self) -> Result<CkksSpec, CkksError> {
        self.check_shape()?;
        let wide = PrimeSpec::Near(self.base_bits);
        let message = PrimeSpec::Near(self.message_bits);
        let mut data_primes = vec![wide];
        // The sine's last products take primes of messages as well: what was never bootstrapped may stand there.
        data_primes.resize(self.message_levels() + Sine::ARCSINE, message);
        let above = self.sine.depth() - Sine::ARCSINE + self.to_coefficients.len();
        data_primes.resize(data_primes.len() + above, wide);
        Ok(CkksSpec {
            ring_degree: self.ring_degree,
            ring: Ring::Cyclotomic,
            digits: data_primes.len().div_ceil(self.special),
            special_primes: vec![wide; self.special],
            scale_bits: self.message_bits,
            data_primes,
        })
    }

    /// Checked parameters of at least 128 bits under both secrets.
    ///
    /// # Errors
    /// As [`CkksSpec::check`]; [`CkksError::Security`] when the ephemeral secret's keys are not among the proven sets.
    pub fn check(&self) -> Result<BootstrapParams, CkksError> {
        self.on(&self.ring()?.check()?)
    }

    /// [`Self::check`] without the security checks, for tests.
    ///
    /// # Errors
    /// As [`CkksSpec::check_insecure`].
    pub fn check_insecure(&self, insecure: Insecure) -> Result<BootstrapParams, CkksError> {
        self.on(&self.ring()?.check_insecure(insecure)?)
    }

    /// The bootstrap in a ring that was checked elsewhere. Where the ring's parameters are secure, the ephemeral secret's are, too.
    ///
    /// # Errors
    /// [`CkksError::Spec`] for a ring with other primes than [`Self::ring`] asks for; [`CkksError::Security`] as in [`Self::check`].
    pub fn on(&self, params: &CkksParams) -> Result<BootstrapParams, CkksError> {
        let (wanted, own) = (self.ring()?, params.spec());
        let shape =
            |s: &CkksSpec| (s.ring_degree, s.ring, s.data_primes.len(), s.special_primes.len(), s.digits);
        let off = |spec: &PrimeSpec, q: u64| match spec {
            PrimeSpec::Near(bits) => ((q as f64).log2() - f64::from(*bits)).abs() > NEAR,
            PrimeSpec::Exactly(p) => *p != q,
        };
        let data = wanted.data_primes.iter().enumerate().map(|(i, s)| (s, i));
        let wrong = shape(&wanted) != shape(own)
            || params.key_level() != params.max_level()
            || data.into_iter().any(|(s, i)| off(s, params.data_prime(i)))
            || wanted.special_primes.iter().zip(params.special_primes()).any(|(s, q)| off(s, q));
        if wrong {
            let why = "the ring's primes are not those of a bootstrap; compile the model again";
            return Err(CkksError::Spec(why.into()));
        }
        if params.is_secure() {
            // Ciphertexts under the ephemeral secret have q_0 and one special prime.
            let last = params.special_primes()[self.special - 1];
            let bits = ((params.data_prime(0) as f64).log2() + (last as f64).log2()).ceil() as u32;
            let limit = security::max_sparse_modulus_bits(self.ring_degree).unwrap_or(0);
            if bits > limit {
                return Err(CkksError::Security { ring_degree: self.ring_degree, bits, limit });
            }
        }
        Ok(BootstrapParams { spec: self.clone(), params: params.clone() })
    }
}

/// Checked parameters with a place for every step.
#[derive(Clone, Debug)]
pub struct BootstrapParams {
    pub(super) spec: BootstrapSpec,
    pub(super) params: CkksParams,
}

impl BootstrapParams {
    /// What they were made from.
    #[must_use]
    pub fn spec(&self) -> &BootstrapSpec {
        &self.spec
    }

    /// The ring, in which ciphertexts live.
    #[must_use]
    pub fn ckks(&self) -> &CkksParams {
        &self.params
    }

    /// The level of a bootstrapped ciphertext.
    #[must_use]
    pub fn fresh_level(&self) -> Level {
        Level(self.spec.message_levels())
    }

    /// The highest level whose primes, but for q_0, have the size of messages.
    #[must_use]
    pub fn message_level(&self) -> Level {
        Level(self.spec.message_levels() + Sine::ARCSINE)
    }

    /// The level that a ciphertext must have to be bootstrapped.
    #[must_use]
    pub fn entry_level(&self) -> Level {
        Level(1 + self.spec.to_slots.len())
    }

    /// The scale of a bootstrapped ciphertext.
    #[must_use]
    pub fn fresh_scale(&self) -> f64 {
        f64::from(self.spec.message_bits).exp2()
    }

    /// The scale of a message modulo q_0.
    pub(super) fn entry_scale(&self) -> f64 {
        f64::from(self.spec.entry_bits).exp2()
    }

    /// The largest message over q_0.
    pub(super) fn fraction(&self) -> f64 {
        self.entry_scale() / self.params.data_prime(0) as f64
    }

    /// Of [`super::sine::arcsine`], for the largest message.
    pub(super) fn arcsine(&self) -> (f64, f64) {
        super::sine::arcsine(2.0 * std::f64::consts::PI * self.fraction())
    }

    /// The scale that the first matrix of slots from coefficients is made for.
    pub(super) fn room_scale(&self) -> f64 {
        f64::from(self.spec.message_bits + ROOM_BITS).exp2()
    }

    /// Level at which matrix i of coefficients from slots is applied.
    pub(super) fn coefficient_level(&self, i: usize) -> Level {
        Level(self.params.max_level().0 - i)
    }

    /// Level at which the sine begins.
    pub(super) fn sine_level(&self) -> Level {
        self.coefficient_level(self.spec.to_coefficients.len())
    }

    /// Level at which matrix i of slots from coefficients is applied.
    pub(super) fn slot_level(&self, i: usize) -> Level {
        Level(self.entry_level().0 - i)
    }

    /// Turns by multiples of [`BootstrapSpec::slots`] that leave a message as it is: the polynomials of messages are such in X^repeats.
    pub(super) fn repeats(&self) -> usize {
        self.params.slots() / self.spec.slots
    }

    /// Parts that the raised half is cut into, so that what the ephemeral secret makes of them are polynomials in X^parts.
    pub(in crate::ckks) fn parts(&self) -> usize {
        self.repeats().min(MOST_PARTS)
    }

    /// Bytes of memory that the way back from the ephemeral secret takes.
    #[must_use]
    pub fn way_back_bytes(&self) -> u64 {
        16 * (self.parts() * super::up_range(&self.params).len() * self.params.ring_degree()) as u64
    }

    /// Bytes of the pair of an ephemeral secret.
    #[must_use]
    pub fn encapsulation_bytes(&self) -> usize {
        crate::ckks::bytes::encapsulation_bytes(&self.params, self.parts())
    }
}
