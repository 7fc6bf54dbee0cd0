//! The averaging attack on repeated set-ups of one weight polynomial under one b, by what a client receives and nothing else.
//!
//! Both profiles give the client `s = p1 - p2 b = -(f + e2) b + e1` (compact: p2 = 0). b spreads f over all coefficients, so averaged
//! coefficients of p1 say nothing of single weights, even where e2 = 0. The attack therefore averages first and divides by b afterwards. It has four parts:
//! - `errors`: the average of s, rounded, divided by b. It finds `f + e2` when e2 repeats (or is zero) and e1 does not: the errors e1 average below 1/2 after
//!   about 500 set-ups, and rounding then takes them away.
//! - `quotients`: the average of s / b. It finds f when e1 is zero.
//! - `differences` (flooded): the average of p1, rounded, divided by b, is rho when rho repeats; the average of p2 less rho is then f + e2.
//! - `floods` (flooded): the average of p2 finds f when rho is too narrow (Akherati and Zhang's published parameters; fact 3 of `docs/two-party.md`).
//!
//! Averages are taken of centred differences from the first set-up, so that values that repeat up to small errors never wrap.
//! All is modulo the first prime p of Q. This loses nothing while `beta |F| < p / 2`, and a rho that is wider than p takes more than `(p / (beta |F|))^2`
//! set-ups to average away.

use super::tables::{Folded, OnePolyContext, Tally};
use super::{OnePolyParams, Profile};
use crate::CipherError;
use hushnet_ring::prime::inv_mod;
use hushnet_ring::AlignedWords;

/// Residues of the same polynomial of several set-ups, as their mean near the first.
#[derive(Default)]
struct Mean {
    first: Vec<u64>,
    sums: Vec<i128>,
    count: i128,
}

impl Mean {
    fn add(&mut self, residues: Vec<u64>, p: u64) {
        if self.count == 0 {
            self.sums = vec![0; residues.len()];
            self.first = residues;
        } else {
            for ((sum, first), r) in self.sums.iter_mut().zip(&self.first).zip(residues) {
                *sum += i128::from(centred((r + p - first) % p, p));
            }
        }
        self.count += 1;
    }

    /// The mean, rounded, modulo p.
    fn rounded(&self, p: u64) -> Vec<u64> {
        let mean = |(first, sum): (&u64, &i128)| {
            let doubled = 2 * sum + self.count;
            let mean = doubled.div_euclid(2 * self.count);
            (i128::from(*first) + mean).rem_euclid(i128::from(p)) as u64
        };
        self.first.iter().zip(&self.sums).map(mean).collect()
    }
}

fn centred(x: u64, p: u64) -> i64 {
    if x > p / 2 {
        x as i64 - p as i64
    } else {
        x as i64
    }
}

/// What an attacker keeps of the set-ups seen so far.
pub struct Averaging {
    context: OnePolyContext,
    params: OnePolyParams,
    b: Folded,
    inverse: Folded,
    one: Folded,
    tally: Tally,
    errors: Mean,
    quotients: Mean,
    first_part: Mean,
    second_part: Mean,
}

impl Averaging {
    /// For set-ups under the b of `seed` and `stage`, at a context of stride 1.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring, or when the context's stride is not 1.
    pub fn new(
        context: &OnePolyContext,
        params: &OnePolyParams,
        seed: &[u8; 32],
        stage: u32,
    ) -> Result<Self, CipherError> {
        if context.fold() != 1 {
            return Err(hushnet_ring::RingError::RingDegree(context.fold()).into());
        }
        let (b, tally) = (context.uniform(seed, stage)?, Tally::default());
        let mut inverse = AlignedWords::new(context.words());
        let n = context.degree();
        for ((p, from), to) in
            context.primes().into_iter().zip(b.0.chunks_exact(n)).zip(inverse.chunks_exact_mut(n))
        {
            // A slot where b is zero (probability N / p) stays lost.
            from.iter().zip(to).filter(|(x, _)| **x != 0).for_each(|(x, y)| *y = inv_mod(*x, p));
        }
        let mut one = vec![0i8; n];
        one[0] = 1;
        Ok(Self {
            one: context.forward_small(&one, &tally)?,
            context: context.clone(),
            params: params.clone(),
            b,
            inverse: Folded(inverse),
            tally,
            errors: Mean::default(),
            quotients: Mean::default(),
            first_part: Mean::default(),
            second_part: Mean::default(),
        })
    }

    /// Coefficients modulo the first prime.
    fn residues(&self, a: &Folded) -> Result<Vec<u64>, CipherError> {
        let mut all = self.context.dot(&[(a, &self.one)], &self.tally)?;
        all.truncate(self.context.degree());
        Ok(all)
    }

    /// Adds what the client received in one more set-up of the polynomial: p1, and flooded p2.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for another number of polynomials, or polynomials of another context.
    pub fn observe(&mut self, sent: &[Folded]) -> Result<(), CipherError> {
        let flooded = self.params.spec().profile == Profile::Flooded;
        let expected = 1 + usize::from(flooded);
        if sent.len() != expected {
            return Err(hushnet_ring::RingError::Length {
                what: "polynomials of a set-up",
                expected,
                got: sent.len(),
            }
            .into());
        }
        let p = self.context.primes()[0];
        let mut s = sent[0].clone();
        if flooded {
            let product = self.context.product(&sent[1], &self.b, &self.tally)?;
            self.context.sub_assign(&mut s, &product)?;
            let (first, second) = (self.residues(&sent[0])?, self.residues(&sent[1])?);
            self.first_part.add(first, p);
            self.second_part.add(second, p);
        }
        let quotient = self.context.product(&s, &self.inverse, &self.tally)?;
        let (s, quotient) = (self.residues(&s)?, self.residues(&quotient)?);
        self.errors.add(s, p);
        self.quotients.add(quotient, p);
        Ok(())
    }

    /// Residues modulo the first prime, divided by b.
    fn divided(&self, residues: &[u64]) -> Result<Vec<u64>, CipherError> {
        let mut all = residues.to_vec();
        all.resize(self.context.words(), 0);
        let hat = self.context.forward(&mut all, &self.tally)?;
        self.residues(&self.context.product(&hat, &self.inverse, &self.tally)?)
    }

    /// The weights as each part of the attack finds them, by the part's name: numbers without meaning where it fails.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring.
    pub fn weights(&self) -> Result<Vec<(&'static str, Vec<f64>)>, CipherError> {
        let p = self.context.primes()[0];
        let beta = f64::from(self.params.beta_bits()).exp2();
        let scaled = |x: u64| centred(x, p) as f64 / beta;
        let negated = |x: u64| scaled((p - x) % p);
        let errors = self.divided(&self.errors.rounded(p))?;
        let mut out = vec![
            ("errors", errors.into_iter().map(negated).collect::<Vec<_>>()),
            ("quotients", self.quotients.rounded(p).into_iter().map(negated).collect()),
        ];
        if self.params.spec().profile == Profile::Flooded {
            let rho = self.divided(&self.first_part.rounded(p))?;
            let second = self.second_part.rounded(p);
            let less = |(a, r): (u64, u64)| scaled((a + p - r) % p);
            out.push(("differences", second.iter().copied().zip(rho).map(less).collect()));
            out.push(("floods", second.into_iter().map(scaled).collect()));
        }
        Ok(out)
    }

    /// Correlation of each part's result with the true weights (Pearson): about `1 / sqrt(N)` in magnitude where a part finds nothing.
    ///
    /// # Errors
    /// As [`Self::weights`].
    pub fn correlations(&self, truth: &[i64]) -> Result<Vec<(&'static str, f64)>, CipherError> {
        let truth: Vec<f64> = truth.iter().map(|w| *w as f64).collect();
        Ok(self.weights()?.iter().map(|(name, found)| (*name, correlation(found, &truth))).collect())
    }
}

/// Pearson correlation of sequences of equal length.
#[must_use]
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let product: f64 = a.iter().zip(b).map(|(x, y)| (x - ma) * (y - mb)).sum();
    let square = |v: &[f64], m: f64| v.iter().map(|x| (x - m).powi(2)).sum::<f64>();
    product / (square(a, ma) * square(b, mb)).sqrt()
}
