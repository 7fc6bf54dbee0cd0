//! Parameters: the bounds of the module's page, solved for beta and log2 Q.

use crate::batch::{ERROR_VARIANCE, TAIL};
use crate::{security, CipherError};

/// kappa: distance of a flooded set-up from uniform is below 2^-kappa.
pub const STATISTICAL_BITS: u32 = 40;
/// Bits of an answer above the share ring.
pub const RESPONSE_EXTRA_BITS: u32 = 10;
/// Widest prime of a modulus.
const PRIME_BITS: u32 = 50;
/// Ring degrees worth trying, smallest first.
const DEGREES: [usize; 4] = [2048, 4096, 8192, 16384];

/// How weights are hidden in the set-up; both are sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// No p2: rho = -(f + e2). Least modulus, set-up and work.
    Compact,
    /// rho uniform on an interval that floods f + e2, p2 sent.
    Flooded,
}

/// What a stage computes, in the numbers that parameters depend on. All of it is public.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnePolySpec {
    /// Ring degree N.
    pub ring_degree: usize,
    /// l, shares are modulo 2^l.
    pub ring_bits: u32,
    /// Bound of the Euclidean norm of all weights that meet in one answer polynomial.
    pub weight_l2: f64,
    /// w: weights are below 2^(w-1) in magnitude (flooded only).
    pub weight_bits: u32,
    /// Weights of the whole set-up (flooded only: the union bound).
    pub weights: usize,
    /// g, polynomials summed in an answer.
    pub terms: usize,
    /// How weights are hidden.
    pub profile: Profile,
}

/// Checked, immutable parameters of a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct OnePolyParams {
    spec: OnePolySpec,
    beta_bits: u32,
    rho_bits: u32,
    prime_bits: Vec<u32>,
}

impl OnePolySpec {
    /// `sigma sqrt(N g)`.
    fn sum_deviation(&self) -> f64 {
        (ERROR_VARIANCE * self.ring_degree as f64 * self.terms.max(1) as f64).sqrt()
    }

    fn l2(&self) -> f64 {
        self.weight_l2.max(1.0)
    }

    fn beta_bits(&self) -> u32 {
        (16.0 * self.sum_deviation()).log2().ceil() as u32 + self.ring_bits
    }

    /// log2 of B / beta.
    fn flood_bits(&self) -> u32 {
        let weights = self.weights.max(1) as f64;
        STATISTICAL_BITS + self.weight_bits + 1 + weights.log2().ceil() as u32
    }

    fn modulus_bits(&self) -> u32 {
        let alpha = match self.profile {
            Profile::Compact => (64.0 * ERROR_VARIANCE.sqrt() * self.l2()).log2(),
            Profile::Flooded => f64::from(self.flood_bits()) + (32.0 * self.sum_deviation()).log2(),
        };
        self.ring_bits + self.beta_bits() + alpha.ceil() as u32
    }

    /// Variance of the summed shares' error in units of the share ring, at worst or for uniform shares.
    fn variance(&self, worst: bool) -> f64 {
        let (third, t) = (if worst { 1.0 } else { 1.0 / 3.0 }, f64::from(self.ring_bits));
        let beta = f64::from(self.beta_bits());
        let unit = |bits: f64| (bits + t - f64::from(self.modulus_bits()) + 0.01).exp2();
        let sum = self.sum_deviation();
        let parties = match self.profile {
            Profile::Compact => 2.0,
            Profile::Flooded => 1.0,
        };
        let shares = parties * third * (sum * (t - beta - 1.0).exp2()).powi(2);
        let rounding = 0.5 * (if worst { 1.0 } else { 1.0 / 3.0 }) * (self.l2() * unit(beta)).powi(2);
        let small = (sum * sum + sum).powi(2) * unit(0.0).powi(2) / self.ring_degree as f64;
        let errors = match self.profile {
            Profile::Compact => ERROR_VARIANCE * (self.l2() * unit(beta)).powi(2),
            Profile::Flooded => third * (sum * unit(beta + f64::from(self.flood_bits()) - 1.0)).powi(2),
        };
        shares + rounding + errors + small
    }

    /// Bound of the error of the summed shares before rounding, in units, failing with probability below 2^-40 a coefficient.
    #[must_use]
    pub fn noise(&self) -> f64 {
        TAIL * self.variance(true).sqrt() + (-f64::from(RESPONSE_EXTRA_BITS) - 1.0).exp2()
    }

    /// Deviation of that error for uniform shares, in units.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let rounding = (-f64::from(RESPONSE_EXTRA_BITS)).exp2().powi(2) / 12.0;
        (self.variance(false) + rounding).sqrt()
    }

    /// Expected fraction of results that are off by one unit, for uniform shares.
    #[must_use]
    pub fn off_by_one_fraction(&self) -> f64 {
        (2.0 / std::f64::consts::PI).sqrt() * self.deviation()
    }

    /// Parameters at this ring degree.
    ///
    /// # Errors
    /// [`CipherError::Insecure`] below 128 bits; [`CipherError::TooWide`] when the share ring or the noise does not fit.
    pub fn choose(&self) -> Result<OnePolyParams, CipherError> {
        let modulus_bits = self.modulus_bits();
        if !security::is_128_bit(self.ring_degree, modulus_bits) {
            return Err(CipherError::Insecure { ring_degree: self.ring_degree, modulus_bits });
        }
        self.choose_unchecked()
    }

    /// [`Self::choose`] at the smallest secure ring degree of at least `least`; `at` gives the numbers for each degree.
    ///
    /// # Errors
    /// As [`Self::choose`]; [`CipherError::Insecure`] when no supported degree suffices.
    pub fn smallest(
        least: usize,
        at: impl Fn(usize) -> Option<OnePolySpec>,
    ) -> Result<OnePolyParams, CipherError> {
        let mut refused = CipherError::Insecure { ring_degree: DEGREES[3], modulus_bits: 0 };
        for spec in DEGREES.into_iter().filter(|n| *n >= least).filter_map(at) {
            match spec.choose() {
                Ok(params) => return Ok(params),
                Err(e) => refused = e,
            }
        }
        Err(refused)
    }

    pub(crate) fn choose_unchecked(&self) -> Result<OnePolyParams, CipherError> {
        let modulus_bits = self.modulus_bits();
        let beta_bits = self.beta_bits();
        let rho_bits = match self.profile {
            Profile::Compact => 0,
            Profile::Flooded => self.flood_bits() + beta_bits,
        };
        let fits = (1..=48).contains(&self.ring_bits)
            && self.weight_bits <= 32
            && self.ring_bits + beta_bits <= 126
            && rho_bits <= 126;
        if !fits || self.noise() >= 0.5 {
            let noise_bits = self.noise().log2().ceil().max(0.0) as u32;
            return Err(CipherError::TooWide { ring_bits: self.ring_bits, noise_bits, modulus_bits });
        }
        let limbs = modulus_bits.div_ceil(PRIME_BITS);
        let prime_bits =
            (0..limbs).map(|j| modulus_bits / limbs + u32::from(j < modulus_bits % limbs)).collect();
        Ok(OnePolyParams { spec: *self, beta_bits, rho_bits, prime_bits })
    }
}

impl OnePolyParams {
    /// What they were chosen for.
    #[must_use]
    pub fn spec(&self) -> &OnePolySpec {
        &self.spec
    }
    /// The ring degree N, a power of two.
    #[must_use]
    pub fn ring_degree(&self) -> usize {
        self.spec.ring_degree
    }
    /// The number l of bits of the shares' ring 2^l.
    #[must_use]
    pub fn ring_bits(&self) -> u32 {
        self.spec.ring_bits
    }
    /// The base-2 logarithm of the scale beta of weights.
    #[must_use]
    pub fn beta_bits(&self) -> u32 {
        self.beta_bits
    }
    /// log2 B of the flooded profile, else 0.
    #[must_use]
    pub fn rho_bits(&self) -> u32 {
        self.rho_bits
    }
    /// Sizes of the primes of Q.
    #[must_use]
    pub fn prime_bits(&self) -> &[u32] {
        &self.prime_bits
    }
    /// log2 Q: bits of a coefficient on the wire.
    #[must_use]
    pub fn modulus_bits(&self) -> u32 {
        self.prime_bits.iter().sum()
    }
    /// r, answers are modulo 2^r.
    #[must_use]
    pub fn response_bits(&self) -> u32 {
        self.spec.ring_bits + RESPONSE_EXTRA_BITS
    }
}
