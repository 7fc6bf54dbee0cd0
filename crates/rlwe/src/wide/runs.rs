//! Plain polynomials with few coefficients in runs: `X^(1-s) sum_(o,c) w_oc X^(S o + c)`, c < s. So stand the weights of a product of matrices: c
//! numbers the s channels of a ciphertext, o its outputs, S = s pixels apart. All levels of the transform but the last log2(s) find zeros in one half of
//! every butterfly: their result is the polynomial modulo `X^s - z_b` for each of N/s roots, and as `X^S` takes only N/S values at these, it is
//! `sum_o w_oc y^o` for N/S values y, repeated. The factor `X^(1-s)` goes to the ciphertexts, once each.

use super::{WideCipher, WideContext, WidePlain, DATA_PRIMES, RING_DEGREE};
use crate::pack_lwe::ring;
use crate::CipherError;
use hushnet_ring::rns::{Coef, Eval, RnsBasis, RnsPoly};
use hushnet_ring::RingError;

/// Shortest run: what transforms end with.
const LEAST_RUN: usize = 8;
/// Least S: the kernels of transforms leave equal values side by side in runs of so many and more.
const LEAST_STEP: usize = 64;
/// Most products of words for the first levels: of more of them a whole transform takes less.
const MOST_PRODUCTS: usize = RING_DEGREE / 2;

/// Makes transforms of such polynomials, divided by s.
pub struct WideRuns {
    context: WideContext,
    run: usize,
    step: usize,
    /// By prime: value k of `X^(S o) / s` at `k N / S + o`.
    tables: Vec<Vec<u64>>,
    /// `X^(1-s)`.
    back: RnsPoly<Eval>,
}

impl WideRuns {
    /// For runs of s coefficients (`run`), S (`step`) apart; None where whole transforms take less, or S is no power of two.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring.
    pub fn new(context: &WideContext, run: usize, step: usize) -> Result<Option<Self>, CipherError> {
        let good = run.is_power_of_two() && step.is_power_of_two() && run <= step && step <= RING_DEGREE;
        let count = if good { RING_DEGREE / step } else { 0 };
        if !good || step < LEAST_STEP || count * count * run > MOST_PRODUCTS {
            return Ok(None);
        }
        let basis = context.basis();
        let mut tables = Vec::with_capacity(DATA_PRIMES);
        for (i, m) in basis.moduli()[..DATA_PRIMES].iter().enumerate() {
            let (mut table, inverse) = (vec![0; count * count], m.inv(run as u64));
            for o in 0..count {
                let mut hat = vec![0; RING_DEGREE];
                hat[o * step] = inverse;
                basis.transform(i).forward(&mut hat)?;
                for (k, values) in hat.chunks_exact(step).enumerate() {
                    if values.iter().any(|v| *v != values[0]) {
                        return Ok(None);
                    }
                    table[k * count + o] = values[0];
                }
            }
            tables.push(table);
        }
        let back = monomial(basis, run)?;
        Ok(Some(Self { context: context.clone(), run, step, tables, back }))
    }

    /// Coefficients of a polynomial: s for each of N / S places.
    #[must_use]
    pub fn coefficients(&self) -> usize {
        RING_DEGREE / self.step * self.run
    }

    /// Where coefficient `at` (X^-c is -X^(N-c)) of a polynomial stands among [`Self::coefficients`], and whether with the other sign. None where
    /// there is none.
    #[must_use]
    pub fn place(&self, at: usize) -> Option<(usize, bool)> {
        let moved = at + self.run - 1;
        let (place, wrapped) = (moved % RING_DEGREE, moved >= RING_DEGREE);
        let (o, c) = (place / self.step, place % self.step);
        (c < self.run).then_some((o * self.run + c, wrapped))
    }

    /// The transform of the polynomial, less its factor `X^(1-s)`, from its [`Self::coefficients`], signed and below 2^50 in absolute value; divided by s.
    ///
    /// # Errors
    /// [`CipherError::Ring`] for another number of coefficients.
    pub fn plain(&self, coefficients: &[i64]) -> Result<WidePlain, CipherError> {
        self.expect(coefficients)?;
        let fill = |i, limb: &mut [u64]| Ok(self.limb(i, coefficients, limb)?);
        self.context.basis().fill_with(0..DATA_PRIMES, fill).map(WidePlain).map_err(ring)
    }

    /// [`Self::plain`] in the place of another one, of which nothing stays.
    ///
    /// # Errors
    /// As [`Self::plain`].
    pub fn plain_into(&self, coefficients: &[i64], plain: &mut WidePlain) -> Result<(), CipherError> {
        self.expect(coefficients)?;
        Ok((0..DATA_PRIMES).try_for_each(|i| self.limb(i, coefficients, plain.0.limb_mut(i)))?)
    }

    fn expect(&self, coefficients: &[i64]) -> Result<(), CipherError> {
        let (expected, got) = (self.coefficients(), coefficients.len());
        if got != expected {
            return Err(RingError::Length { what: "coefficients in runs", expected, got }.into());
        }
        Ok(())
    }

    /// All words of the transform modulo one prime.
    fn limb(&self, i: usize, coefficients: &[i64], limb: &mut [u64]) -> Result<(), RingError> {
        let count = RING_DEGREE / self.step;
        let basis = self.context.basis();
        let (m, table) = (&basis.moduli()[i], &self.tables[i]);
        let least = self.run.max(LEAST_RUN);
        for (powers, block) in table.chunks_exact(count).zip(limb.chunks_exact_mut(self.step)) {
            for (c, v) in block[..least].iter_mut().enumerate() {
                // Short runs end in zeros: no coefficients.
                let own = if c < self.run { &coefficients[c..] } else { &[] };
                let terms = powers.iter().zip(own.iter().step_by(self.run));
                *v = m.residue(terms.map(|(y, w)| i128::from(*y) * i128::from(*w)).sum());
            }
            // A block is filled by what it has: few long copies.
            let mut done = least;
            while done < block.len() {
                block.copy_within(..done, done);
                done *= 2;
            }
        }
        basis.transform(i).forward_from(RING_DEGREE / least, limb)
    }

    /// Multiplies a ciphertext by `X^(1-s)`, which polynomials lack.
    ///
    /// # Errors
    /// [`CipherError::Ring`] from the ring.
    pub fn turn(&self, cipher: &mut WideCipher) -> Result<(), CipherError> {
        for part in &mut cipher.0 {
            self.context.basis().mul_assign(part, &self.back).map_err(ring)?;
        }
        Ok(())
    }
}

/// `X^(1-s)` over the data primes.
fn monomial(basis: &RnsBasis, run: usize) -> Result<RnsPoly<Eval>, CipherError> {
    let mut words = vec![0u64; RING_DEGREE];
    if run == 1 {
        words[0] = 1;
    } else {
        words[RING_DEGREE + 1 - run] = u64::MAX;
    }
    let poly: RnsPoly<Coef> = basis.from_signed(&words, 0..DATA_PRIMES).map_err(ring)?;
    basis.forward(poly).map_err(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushnet_ring::Prg;

    /// The same polynomials as whole transforms make, for all lengths of runs; extreme coefficients in places.
    #[test]
    fn transforms_of_runs_are_whole_ones_times_the_factor() {
        let context = WideContext::new().unwrap();
        let basis = context.basis();
        let mut made = 0;
        for (run, step) in
            [(1, 4096), (4, 64), (2, 512), (8, 1024), (32, 4096), (64, 8192), (8, 800), (16, 8), (8, 64)]
        {
            let Some(runs) = WideRuns::new(&context, run, step).unwrap() else {
                assert!(step == 800 || run > step || step == 64, "{run} {step}");
                continue;
            };
            made += 1;
            let mut words = vec![0; runs.coefficients()];
            Prg::from_seed([run as u8; 16]).fill_words(&mut words);
            let few: Vec<i64> = words
                .iter()
                .enumerate()
                .map(|(i, w)| match i % 5 {
                    0 => (1 << 50) - 1,
                    1 => 1 - (1 << 50),
                    _ => (*w as i64) >> 14,
                })
                .collect();
            let mut whole = vec![0i64; RING_DEGREE];
            for o in 0..RING_DEGREE / step {
                for c in 0..run {
                    // X^(S o - c), as layouts give it.
                    let (at, negative) = ((o * step + RING_DEGREE - c) % RING_DEGREE, o == 0 && c > 0);
                    let (place, other) = runs.place(at).unwrap();
                    let (w, sign) = (few[place], |v: i64, n: bool| if n { -v } else { v });
                    whole[at] = sign(w, other);
                    assert_eq!(other, negative, "{run} {step} {o} {c}");
                }
            }
            assert!(run == step || runs.place(1).is_none_or(|_| step == 1));
            let expected = WidePlain::new(&context, &whole, run).unwrap();
            let mut plain = runs.plain(&few).unwrap();
            let first = plain.0.clone();
            runs.plain_into(&vec![-1; few.len()], &mut plain).unwrap();
            assert!(plain.0 != first, "{run} {step}");
            runs.plain_into(&few, &mut plain).unwrap();
            assert!(plain.0 == first, "{run} {step}: something of the other one stays");
            let mut got = first;
            basis.mul_assign(&mut got, &runs.back).unwrap();
            assert!(got == expected.0, "{run} {step}");
            assert!(runs.plain(&few[1..]).is_err() && runs.plain_into(&few[1..], &mut plain).is_err());
        }
        assert!(made >= 5);
    }
}
