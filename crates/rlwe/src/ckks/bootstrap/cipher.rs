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

    fn down(&self, c: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.evaluator.relinearise_rescale(c, self.relin)?.with_bound(BOUND)
    }
}

impl Machine for Cipher<'_> {
    type V = Ciphertext;

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
        let once = self.multiplied(a, b)?;
        let twice = e.add(&once, &once)?;
        let raised = match minus {
            None => e.add_scalar(&twice, &self.encoder.encode_scalar(-1.0, twice.level, twice.scale)?)?,
            Some(c) => {
                let c = e.drop_to(c, twice.level)?;
                let one = self.encoder.encode_scalar(1.0, c.level, twice.scale / c.scale)?;
                let mut scaled = e.mul_scalar(&c, &one)?;
                scaled.scale = twice.scale;
                e.sub(&twice, &scaled)?
            }
        };
        self.down(&raised)
    }

    fn product(&mut self, q: &Ciphertext, t: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.down(&self.multiplied(q, t)?)
    }

    fn sum(&mut self, a: &Ciphertext, b: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.evaluator.add(a, b)?.with_bound(BOUND)
    }

    fn leaf(
        &mut self,
        terms: &[(f64, &Ciphertext)],
        constant: f64,
        depth: usize,
        scale: f64,
    ) -> Result<Ciphertext, CkksError> {
        let params = self.evaluator.params();
        let (basis, level) = (params.basis(), Level(self.top.0 + 1 - depth));
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
        let sum =
            Ciphertext { params: params.clone(), parts, level, scale: raised, bound: BOUND, sd, seed: None };
        let mut out = self.evaluator.rescale(&sum)?;
        // What it is but for the last bit of a double.
        out.scale = scale;
        let constant = self.encoder.encode_scalar(constant, out.level, scale)?;
        self.evaluator.add_scalar(&out, &constant)?.with_bound(BOUND)
    }

    fn aim(&self, t: &Ciphertext, depth: usize, scale: f64) -> f64 {
        scale * self.evaluator.params().data_prime(self.top.0 - depth) as f64 / t.scale
    }

    fn scale(&self, v: &Ciphertext) -> f64 {
        v.scale
    }

    fn sixth_and_one(&mut self, v: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let sixth = self.evaluator.relabel(v.clone(), 1.0 / 6.0)?;
        let one = self.encoder.encode_scalar(1.0, sixth.level, sixth.scale)?;
        self.evaluator.add_scalar(&sixth, &one)?.with_bound(BOUND)
    }
}
