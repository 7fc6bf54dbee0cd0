//! **Insecure** stand-ins of Cheetah and ConvFHE at the paper's parameters (same N, Q, Q', packing and kernels), to compare with on equal terms:
//! symmetric ciphertexts, no re-randomisation, no masks. What products reach hushnet users runs in [`hushnet_layers::cheetah`] and [`hushnet_layers::convfhe`].

use crate::{divide, expect, InsecureDesign, PRIME_BITS, RESULT_BITS, WEIGHT_SCALE};
use hushnet_layers::batch::LayerError;
use hushnet_layers::layout::Layout;
use hushnet_ring::prime::primes_near;
use hushnet_ring::rns::{Divider, Eval, RnsBasis, RnsError, RnsPoly};
use hushnet_ring::{pack, sample, Prg};
use hushnet_rlwe::one_poly::{Folded, OnePolyContext, Tally, TallyCounts};
use hushnet_rlwe::pack_lwe::{merge_offset, MergeContext, MergeKeys};

fn scaled(layout: &Layout, weights: &[f64], i: usize, j: usize) -> Vec<i64> {
    let mut f = vec![0; layout.degree()];
    layout.for_each_weight(i, j, |at, w, negative| {
        let v = (weights[w] * f64::from(WEIGHT_SCALE).exp2()).round() as i64;
        f[at] = if negative { -v } else { v };
    });
    f
}

fn polys(layout: &Layout, most: usize) -> Vec<(usize, usize)> {
    (0..layout.output_blocks()).flat_map(|j| layout.inputs_of(j).map(move |i| (i, j))).take(most).collect()
}

fn residues(values: &[i64], primes: &[u64]) -> Vec<u64> {
    let each = |p: u64| values.iter().map(move |v| v.rem_euclid(p as i64) as u64);
    primes.iter().flat_map(|p| each(*p).collect::<Vec<_>>()).collect()
}

/// Cheetah at the paper's parameters: both polynomials up, both whole polynomials of every output channel down.
pub struct InsecureCheetah {
    layout: Layout,
    context: OnePolyContext,
    weights: Vec<Folded>,
    secret: Vec<i8>,
    tally: Tally,
}

impl InsecureCheetah {
    /// As [`crate::InsecureLinear::new`], with a key.
    ///
    /// # Errors
    /// [`LayerError::Length`] for the wrong number of weights.
    pub fn new(
        design: &InsecureDesign,
        weights: &[f64],
        most: usize,
        prg: &mut Prg,
    ) -> Result<Self, LayerError> {
        let layout = design.layout.clone();
        expect("weights", layout.weight_len(), weights.len())?;
        let context = OnePolyContext::new(layout.degree(), &PRIME_BITS, 1)?;
        let tally = Tally::default();
        let weights = polys(&layout, most)
            .into_iter()
            .map(|(i, j)| {
                let mut r = residues(&scaled(&layout, weights, i, j), &context.primes());
                Ok(context.forward(&mut r, &tally)?)
            })
            .collect::<Result<_, LayerError>>()?;
        let mut secret = vec![0; layout.degree()];
        sample::ternary(prg, &mut secret);
        Ok(Self { layout, context, weights, secret, tally: Tally::default() })
    }

    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// A ciphertext (c0, c1 in evaluation form, packed) of every input polynomial.
    ///
    /// # Errors
    /// [`LayerError`] from the ring.
    pub fn request(&self, input: &[i64], prg: &mut Prg) -> Result<Vec<u8>, LayerError> {
        let (c, tally, n) = (&self.context, Tally::default(), self.layout.degree());
        let s = c.forward_small(&self.secret, &tally)?;
        let mut message = Vec::new();
        for block in 0..self.layout.input_blocks() {
            let mut poly = vec![0i64; n];
            self.layout.for_each_input(0, block, |at, e| poly[at] = input[e]);
            let mut e = vec![0i8; n];
            sample::centred_binomial(prg, &mut e);
            poly.iter_mut().zip(&e).for_each(|(p, e)| *p += i64::from(*e));
            let mut seed = [0; 32];
            prg.fill_bytes(&mut seed);
            let a = c.uniform(&seed, 0)?;
            let mut c0 = c.forward(&mut residues(&poly, &c.primes()), &tally)?;
            c.sub_assign(&mut c0, &c.product(&a, &s, &tally)?)?;
            for part in [&c0, &a] {
                let mut bytes = vec![0; c.packed_len()];
                c.pack(part, &mut bytes)?;
                message.extend_from_slice(&bytes);
            }
        }
        Ok(message)
    }

    /// Products, transforms, division to Q' and packing of both polynomials of every output.
    ///
    /// # Errors
    /// [`LayerError`] for a damaged request.
    pub fn answer(&self, request: &[u8]) -> Result<Vec<u8>, LayerError> {
        let c = &self.context;
        let parts: Vec<Folded> =
            request.chunks_exact(c.packed_len()).map(|b| c.unpack(b)).collect::<Result<_, _>>()?;
        expect("polynomials of a request", 2 * self.layout.input_blocks(), parts.len())?;
        let (primes, all) = (c.primes(), (0..c.degree()).collect::<Vec<_>>());
        let (mut message, mut first) = (Vec::new(), 0);
        for j in 0..self.layout.output_blocks() {
            let inputs = self.layout.inputs_of(j);
            for half in 0..2 {
                let pairs: Vec<(&Folded, &Folded)> = inputs
                    .clone()
                    .enumerate()
                    .map(|(k, i)| (&parts[2 * i + half], &self.weights[(first + k) % self.weights.len()]))
                    .collect();
                let words = divide(&primes, c.plane(), &c.dot(&pairs, &self.tally)?, &all);
                let start = message.len();
                message.resize(start + pack::packed_len(words.len(), RESULT_BITS), 0);
                pack::pack(&words, RESULT_BITS, &mut message[start..])?;
            }
            first += inputs.len();
        }
        Ok(message)
    }
}

/// ConvFHE at the paper's parameters: output channels merged after the division to Q'.
pub struct InsecureConvFhe {
    layout: Layout,
    basis: RnsBasis,
    divider: Divider,
    weights: Vec<RnsPoly<Eval>>,
    keys: MergeKeys,
    secret: Vec<i8>,
    tally: Tally,
}

fn rns<T>(result: Result<T, RnsError>) -> Result<T, LayerError> {
    result.map_err(|e| match e {
        RnsError::Ring(e) => e.into(),
        _ => LayerError::Setup("the residue number system refused an operand"),
    })
}

impl InsecureConvFhe {
    /// As [`InsecureCheetah::new`].
    ///
    /// # Errors
    /// [`LayerError::Length`] for the wrong number of weights.
    pub fn new(
        design: &InsecureDesign,
        weights: &[f64],
        most: usize,
        prg: &mut Prg,
    ) -> Result<Self, LayerError> {
        let (layout, n) = (design.layout.clone(), design.layout.degree());
        expect("weights", layout.weight_len(), weights.len())?;
        let primes = design.context.primes();
        let basis = rns(RnsBasis::new(n, &primes))?;
        let divider = rns(Divider::new(&basis, &[2], 0..2))?;
        let merge = MergeContext::new(n, &primes[..2], primes_near(50, n, 1)?[0])?;
        let mut secret = vec![0; n];
        sample::ternary(prg, &mut secret);
        let keys = MergeKeys::generate(&merge, &secret, layout.spacing(), &[8; 32], prg)?;
        let weights = polys(&layout, most)
            .into_iter()
            .map(|(i, j)| {
                let words: Vec<u64> = scaled(&layout, weights, i, j).iter().map(|v| *v as u64).collect();
                rns(basis.from_signed(&words, 0..3).and_then(|p| basis.forward(p)))
            })
            .collect::<Result<_, LayerError>>()?;
        Ok(Self { layout, basis, divider, weights, keys, secret, tally: Tally::default() })
    }

    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// Ciphertexts (c0, c1 as slot values modulo Q) of the input polynomials.
    ///
    /// # Errors
    /// [`LayerError`] from the ring.
    pub fn request(&self, input: &[i64], prg: &mut Prg) -> Result<Vec<[RnsPoly<Eval>; 2]>, LayerError> {
        let (b, n) = (&self.basis, self.layout.degree());
        let small = |v: &[i8]| -> Result<RnsPoly<Eval>, LayerError> {
            let words: Vec<u64> = v.iter().map(|v| i64::from(*v) as u64).collect();
            rns(b.from_signed(&words, 0..3).and_then(|p| b.forward(p)))
        };
        let s = small(&self.secret)?;
        (0..self.layout.input_blocks())
            .map(|block| {
                let mut poly = vec![0u64; n];
                self.layout.for_each_input(0, block, |at, e| poly[at] = input[e] as u64);
                let mut e = vec![0i8; n];
                sample::centred_binomial(prg, &mut e);
                let mut c1 = rns(b.zero(0..3))?;
                for i in 0..3 {
                    hushnet_ring::rns::uniform_limb(prg, &b.moduli()[i], c1.limb_mut(i));
                }
                let mut c0 = rns(b.from_signed(&poly, 0..3).and_then(|p| b.forward(p)))?;
                rns(b.add_assign(&mut c0, &small(&e)?))?;
                rns(b.product(0..3, &c1, &s).and_then(|p| b.sub_assign(&mut c0, &p)))?;
                Ok([c0, c1])
            })
            .collect()
    }

    /// Products, division to Q', merging; returns the merged ciphertexts' coefficients, c0 then c1, modulo the two primes of Q'. Values come out
    /// s times as large: this stand-in does not take the factor out.
    ///
    /// # Errors
    /// [`LayerError`] from the ring.
    pub fn answer(
        &self,
        request: &[[RnsPoly<Eval>; 2]],
    ) -> Result<Vec<[RnsPoly<hushnet_ring::rns::Coef>; 2]>, LayerError> {
        let (b, s) = (&self.basis, self.layout.spacing());
        let (mut out, mut first) = (Vec::new(), 0);
        self.tally.add(TallyCounts { ntt: 2 * request.len() as u64, ..TallyCounts::default() });
        for g in 0..self.layout.output_blocks().div_ceil(s) {
            let mut list = Vec::new();
            for j in g * s..((g + 1) * s).min(self.layout.output_blocks()) {
                let inputs = self.layout.inputs_of(j);
                let mut sums = [rns(b.zero(0..3))?, rns(b.zero(0..3))?];
                for (k, i) in inputs.clone().enumerate() {
                    let w = &self.weights[(first + k) % self.weights.len()];
                    for (sum, part) in sums.iter_mut().zip(&request[i]) {
                        rns(b.mul_add(sum, part, w))?;
                    }
                }
                first += inputs.len();
                self.tally.add(TallyCounts { products: 2 * inputs.len() as u64, ..TallyCounts::default() });
                let [c0, c1] = sums;
                list.push([rns(self.divider.divide(b, &c0))?, rns(self.divider.divide(b, &c1))?]);
            }
            let [c0, c1] = self.keys.merge(list, s, &self.tally)?;
            out.push([rns(b.inverse(c0))?, rns(b.inverse(c1))?]);
            self.tally.add(TallyCounts { intt: 2, ..TallyCounts::default() });
        }
        Ok(out)
    }

    /// Where the useful coefficients of output polynomial `j` begin in its merged ciphertext.
    #[must_use]
    pub fn offset(&self, j: usize) -> usize {
        let s = self.layout.spacing();
        let count = (self.layout.output_blocks() - j / s * s).min(s);
        merge_offset(j % s, count, s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushnet_layers::batch::{Conv2d, Geometry};

    #[test]
    fn both_stand_ins_compute_the_layer() {
        let mut prg = Prg::from_seed([6; 16]);
        let geometry = Geometry::conv2d(Conv2d {
            input: [4, 16, 16],
            output: [3, 14, 14],
            kernel: [3, 3],
            stride: [1, 1],
            pads: [0; 4],
            dilation: [1, 1],
            groups: 1,
        })
        .unwrap();
        let design = InsecureDesign::new(&geometry, 1024).unwrap();
        let l = design.layout().clone();
        let mut random = |len: usize| {
            let mut v = vec![0u64; len];
            prg.fill_words(&mut v);
            v.iter().map(|w| *w as f64 / 2f64.powi(63) - 1.0).collect::<Vec<_>>()
        };
        let (weights, x) = (random(l.weight_len()), random(l.input_len()));
        let input: Vec<i64> = x.iter().map(|x| (x * 2f64.powi(40)) as i64).collect();
        let want = |o: usize, y: usize, xx: usize| -> f64 {
            (0..4 * 9)
                .map(|k| {
                    let (c, i, j) = (k / 9, k / 3 % 3, k % 3);
                    weights[o * 36 + k] * x[(c * 16 + y + i) * 16 + xx + j]
                })
                .sum()
        };
        let cheetah = InsecureCheetah::new(&design, &weights, usize::MAX, &mut prg).unwrap();
        let request = cheetah.request(&input, &mut prg).unwrap();
        let answer = cheetah.answer(&request).unwrap();
        assert_eq!(request.len(), 2 * 1024 * 104 / 8);
        assert_eq!(answer.len(), 3 * 2 * 1024 * 55 / 8);
        let counts = cheetah.tally();
        assert_eq!((counts.intt, counts.products), (6, 6));

        let convfhe = InsecureConvFhe::new(&design, &weights, usize::MAX, &mut prg).unwrap();
        let request = convfhe.request(&input, &mut prg).unwrap();
        let answer = convfhe.answer(&request).unwrap();
        assert_eq!(convfhe.tally(), TallyCounts { ntt: 2, intt: 2, products: 6, rotations: 3 });
        // Decrypt modulo Q' by the definition.
        let b = &convfhe.basis;
        let words: Vec<u64> = convfhe.secret.iter().map(|v| i64::from(*v) as u64).collect();
        let s = b.forward(b.from_signed(&words, 0..2).unwrap()).unwrap();
        let [c0, c1] = answer[0].clone();
        let mut phase = b.forward(c0).unwrap();
        b.add_assign(&mut phase, &b.product(0..2, &b.forward(c1).unwrap(), &s).unwrap()).unwrap();
        let reals = b.to_reals(&b.inverse(phase).unwrap()).unwrap();
        for o in 0..3 {
            let (places, elements) = l.output_places(0, o, 1);
            for (at, e) in places.into_iter().zip(elements) {
                let (y, xx) = (e % 196 / 14, e % 14);
                // 2^49 over the 49-bit prime is one up to 2^-20.
                let got = reals[at + convfhe.offset(o)] / 2f64.powi(40) / l.spacing() as f64;
                assert!((got - want(o, y, xx)).abs() < 1e-3, "{o} {y} {xx}: {got} {}", want(o, y, xx));
            }
        }
    }
}
