//! The sine's circuit on ciphertexts.

use super::sine::Machine;
use crate::ckks::{Ciphertext, CkksError, Encoder, Evaluator, Level, RelinKey};
use hushnet_ring::rns::{Eval, RnsPoly};

pub(super) struct Cipher<'a> {
    pub(super) evaluator: &'a Evaluator,
    pub(super) encoder: &'a Encoder,
    pub(super) relin: &'a RelinKey,
    /// Level of the input.
    pub(super) top: Level,
}

/// Bound of every value of the circuit, quotients in the Chebyshev basis included: only capacity is checked with it.
const BOUND: f64 = 8.0;

impl Cipher<'_> {
    fn multiplied(&self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let c = if std::ptr::eq(a, b) { self.evaluator.square(a)? } else { self.evaluator.mul(a, b)? };
        c.with_bound(BOUND)
    }

    /// `sum c_i v_i` at a level, one prime above a scale; nothing without terms.
    fn combination(
        &self,
        terms: &[(f64, &Ciphertext)],
        level: Level,
        scale: f64,
    ) -> Result<Option<Ciphertext>, CkksError> {
        if terms.is_empty() {
            return Ok(None);
        }
        let params = self.evaluator.params();
        let basis = params.basis();
        let raised = scale * params.data_prime(level.0 - 1) as f64;
        let scalars = terms
            .iter()
            .map(|(c, t)| self.encoder.encode_scalar(*c, level, raised / t.scale))
            .collect::<Result<Vec<_>, _>>()?;
        let words: Vec<&[u64]> = scalars.iter().map(|s| s.words.as_slice()).collect();
        let mut parts = Vec::with_capacity(2);
        for half in 0..2 {
            let x = terms
                .iter()
                .map(|(_, t)| Ok(Evaluator::pair("a polynomial", t)?[half]))
                .collect::<Result<Vec<&RnsPoly<Eval>>, CkksError>>()?;
            parts.push(basis.combine(params.data_range(level), &x, &words)?);
        }
        let sd = terms.iter().zip(&scalars).map(|((_, t), s)| t.sd * s.magnitude * s.scale).sum();
        let params = params.clone();
        Ok(Some(Ciphertext { params, parts, level, scale: raised, bound: BOUND, sd, seed: None }))
    }

    fn down(&self, c: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.evaluator.relinearise_rescale(c, self.relin)?.with_bound(BOUND)
    }
}

impl Machine for Cipher<'_> {
    type V = Ciphertext;

    fn plus(&mut self, v: &Ciphertext, number: f64) -> Result<Ciphertext, CkksError> {
        let mut out = v.clone();
        let number = self.encoder.encode_scalar(number, v.level, v.scale)?;
        self.evaluator.add_scalar_assign(&mut out, &number)?;
        out.with_bound(BOUND)
    }

    fn depth(&self, v: &Ciphertext) -> usize {
        self.top.0 - v.level.0
    }

    fn twice_product(
        &mut self,
        a: &Ciphertext,
        b: &Ciphertext,
        minus: Option<&Ciphertext>,
    ) -> Result<Ciphertext, CkksError> {
        let e = self.evaluator;
        // Doubled before the division: its rounding is not.
        let mut twice = self.multiplied(a, b)?;
        e.double_assign(&mut twice)?;
        match minus {
            None => {
                let mut down = self.down(&twice)?;
                let one = self.encoder.encode_scalar(-1.0, down.level, down.scale)?;
                e.add_scalar_assign(&mut down, &one)?;
                down.with_bound(BOUND)
            }
            Some(c) => {
                let c = e.drop_to(c, twice.level)?;
                let one = self.encoder.encode_scalar(1.0, c.level, twice.scale / c.scale)?;
                let mut scaled = e.mul_scalar(&c, &one)?;
                scaled.scale = twice.scale;
                self.down(&e.sub(&twice, &scaled)?)
            }
        }
    }

    fn product(&mut self, q: &Ciphertext, t: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.down(&self.multiplied(q, t)?)
    }

    fn sum(
        &mut self,
        products: &[(Ciphertext, &Ciphertext)],
        terms: &[(f64, &Ciphertext)],
        constant: f64,
        depth: usize,
        scale: f64,
    ) -> Result<Ciphertext, CkksError> {
        let (e, level) = (self.evaluator, Level(self.top.0 + 1 - depth));
        let mut all = self.combination(terms, level, scale)?;
        for (q, t) in products {
            let product = self.multiplied(q, t)?;
            all = match all {
                None => Some(product),
                // The longer one takes the other.
                Some(mut sum) if sum.parts.len() == product.parts.len() => {
                    e.add_assign(&mut sum, &product)?;
                    Some(sum.with_bound(BOUND)?)
                }
                Some(short) => {
                    let mut sum = product;
                    e.add_assign(&mut sum, &short)?;
                    Some(sum.with_bound(BOUND)?)
                }
            };
        }
        let all = all.ok_or(CkksError::Count { what: "a polynomial's terms", expected: 1, got: 0 })?;
        let mut out = if products.is_empty() { e.rescale(&all)? } else { self.down(&all)? };
        // What it is but for the last bit of a double.
        out.scale = scale;
        let constant = self.encoder.encode_scalar(constant, out.level, scale)?;
        e.add_scalar_assign(&mut out, &constant)?;
        out.with_bound(BOUND)
    }

    fn aim(&self, t: &Ciphertext, depth: usize, scale: f64) -> f64 {
        scale * self.evaluator.params().data_prime(self.top.0 - depth) as f64 / t.scale
    }

    fn scaled_and_one(&mut self, v: &Ciphertext, by: f64) -> Result<Ciphertext, CkksError> {
        let mut scaled = self.evaluator.relabel(v.clone(), by)?;
        let one = self.encoder.encode_scalar(1.0, scaled.level, scaled.scale)?;
        self.evaluator.add_scalar_assign(&mut scaled, &one)?;
        scaled.with_bound(BOUND)
    }
}
