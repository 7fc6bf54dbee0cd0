//! **Insecure.** The paper's protocol with its own parameters (Algorithms 1 and 2; log2 Q = 104, log2 Q' = 55), to rerun its tables. It leaks weights:
//! rho and the masks are uniform on [0, Delta), so that k set-ups give the weights to about Delta / k ([`midrange_attack`] does it; fact 3 of
//! `docs/two-party.md`), and
//! shares bound activations. No crate of the product depends on this one; every type says `Insecure`, every set-up begins with `INSECURE`.
//!
//! Q is 28 + 27 + 49 bits; dividing by the 49-bit prime leaves Q' of 55. Weights in [-1, 1] times Delta = 2^49, activations times 2^40.
//! Both parties floor their own part when dividing, so that results are off by a unit of 2^-40 at most, plus noise.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attack;
mod rivals;

pub use attack::{correlation_curve, midrange_attack, midrange_curve};
pub use rivals::{InsecureCheetah, InsecureConvFhe};

use hushnet_layers::batch::{Geometry, LayerError};
use hushnet_layers::layout::{Layout, LayoutCost};
use hushnet_ring::{pack, sample, Prg};
use hushnet_rlwe::one_poly::{Folded, OnePolyContext, Tally, TallyCounts};

/// Sizes of the primes: Q', then the divisor.
pub const PRIME_BITS: [u32; 3] = [28, 27, 49];
/// The base-2 logarithm of Q', the modulus of answers.
pub const RESULT_BITS: u32 = 55;
/// The base-2 logarithm of Delta, the scale of weights.
pub const WEIGHT_SCALE: u32 = 49;
/// log2 of the activations' scale.
pub const ACTIVATION_SCALE: u32 = 40;
/// What every artefact of this module begins with.
pub const STAMP: &[u8; 8] = b"INSECURE";

/// Layout and tables of a layer at the paper's parameters.
#[derive(Clone)]
pub struct InsecureDesign {
    layout: Layout,
    context: OnePolyContext,
}

/// The server's half: rho and f for every weight polynomial.
pub struct InsecureLinear {
    design: InsecureDesign,
    b: Folded,
    rho: Vec<Folded>,
    weights: Vec<Folded>,
    /// p1, p2 as sent.
    setup: Vec<[Folded; 2]>,
    tally: Tally,
}

/// The client's half of the published, insecure protocol.
pub struct InsecureClient {
    design: InsecureDesign,
    b: Folded,
    setup: Vec<[Folded; 2]>,
    tally: Tally,
}

/// A query that waits for its answer.
pub struct InsecureQuery {
    v: Vec<Folded>,
    i: Vec<Folded>,
}

impl InsecureDesign {
    /// The paper's packing at ring degree `n`: convolutions by (10), dense layers by (12), (13).
    ///
    /// # Errors
    /// What [`Layout::of_the_paper`] and [`Layout::dense_of_the_paper`] refuse.
    pub fn new(geometry: &Geometry, n: usize) -> Result<Self, LayerError> {
        let layout = match geometry {
            Geometry::Dense(_) => Layout::dense_of_the_paper(geometry, n)?,
            Geometry::Conv2d(_) => Layout::of_the_paper(geometry, n)?,
        };
        let context = OnePolyContext::new(n, &PRIME_BITS, layout.spacing())?;
        Ok(Self { layout, context })
    }

    /// Where the elements of inputs and results lie in ciphertexts.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// (bytes up, bytes down, bytes of the set-up) for one image.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize, usize) {
        let cost = self.layout.cost();
        let down = (0..self.layout.output_blocks())
            .map(|j| pack::packed_len(self.layout.output_count(0, j), RESULT_BITS))
            .sum();
        let poly = self.context.packed_len();
        (cost.input_polys * poly, down, STAMP.len() + 2 * cost.weight_polys * poly)
    }

    /// Operations for one image: (server, client). Table I and III.
    #[must_use]
    pub fn operations(&self) -> (TallyCounts, TallyCounts) {
        let LayoutCost { input_polys, output_polys, products, .. } = self.layout.cost();
        let (i, o, p) = (input_polys as u64, output_polys as u64, products as u64);
        (
            TallyCounts { ntt: i, intt: o, products: 2 * p, rotations: 0 },
            TallyCounts { ntt: 3 * i, intt: o, products: 2 * p + i, rotations: 0 },
        )
    }

    fn wide(
        &self,
        values: impl Iterator<Item = i128>,
        small: &[i8],
        tally: &Tally,
    ) -> Result<Folded, LayerError> {
        let values: Vec<i128> = values.collect();
        let mut residues = self.context.residues_of_wide(&values, small);
        Ok(self.context.forward(&mut residues, tally)?)
    }

    fn errors(&self, prg: &mut Prg) -> Vec<i8> {
        let mut e = vec![0; self.layout.degree()];
        sample::centred_binomial(prg, &mut e);
        e
    }

    /// `floor(x / q) mod Q'` at the useful coefficients, as words below Q'.
    fn divided(&self, j: usize, mut residues: Vec<u64>) -> Result<Vec<u64>, LayerError> {
        let (places, _) = self.layout.output_places(0, j, self.context.fold());
        self.context.unfold(&mut residues)?;
        Ok(divide(&self.context.primes(), self.context.plane(), &residues, &places))
    }
}

/// The length that a list must have.
fn expect(what: &'static str, expected: usize, got: usize) -> Result<(), LayerError> {
    if expected == got {
        Ok(())
    } else {
        Err(LayerError::Length { what, expected, got })
    }
}

/// Remainders modulo p < 2^31 of any 64-bit word, without division.
#[derive(Clone, Copy)]
struct Remainder {
    p: u64,
    reciprocal: u64,
}

impl Remainder {
    fn new(p: u64) -> Self {
        Self { p, reciprocal: u64::MAX / p }
    }

    #[inline]
    fn of(self, x: u64) -> u64 {
        let q = ((u128::from(x) * u128::from(self.reciprocal)) >> 64) as u64;
        // The quotient is at most two short, being of floor(2^64 / p) and rounded down itself.
        let r = x - q * self.p;
        let r = r.min(r.wrapping_sub(2 * self.p));
        r.min(r.wrapping_sub(self.p))
    }
}

/// Divides residues modulo (q0, q1, q2) by q2 at `places` and joins them modulo Q' = q0 q1.
fn divide(primes: &[u64], plane: usize, residues: &[u64], places: &[usize]) -> Vec<u64> {
    let [q0, q1, q2] = [primes[0], primes[1], primes[2]];
    let inverse = |a: u64, p: u64| hushnet_ring::prime::inv_mod(a % p, p);
    let (by0, by1, cross) = (inverse(q2, q0), inverse(q2, q1), inverse(q0, q1));
    let (m0, m1) = (Remainder::new(q0), Remainder::new(q1));
    // All products are below 2^57: both small primes have at most 28 bits.
    places
        .iter()
        .map(|&at| {
            let last = residues[2 * plane + at];
            let y0 = m0.of((residues[at] + q0 - m0.of(last)) * by0);
            let y1 = m1.of((residues[plane + at] + q1 - m1.of(last)) * by1);
            let lift = m1.of((y1 + q1 - m1.of(y0)) * cross);
            y0 + q0 * lift
        })
        .collect()
}

/// What the server makes of its share before the query arrives: for every output block the sums of its products with the weights, to which those
/// with the query are added before the inverse transform.
pub struct InsecureShare {
    sums: Vec<Vec<u64>>,
}

impl InsecureLinear {
    /// Draws a set-up for weights in [-1, 1]: at most `most` weight polynomials are made, the others reuse them in turn (for timing large
    /// layers in little memory).
    ///
    /// # Errors
    /// [`LayerError::Length`] for the wrong number of weights.
    pub fn new(
        design: &InsecureDesign,
        weights: &[f64],
        seed: &[u8; 32],
        most: usize,
        prg: &mut Prg,
    ) -> Result<Self, LayerError> {
        let (layout, context) = (&design.layout, &design.context);
        expect("weights", layout.weight_len(), weights.len())?;
        let (tally, b) = (Tally::default(), context.uniform(seed, 0)?);
        let zero = vec![0i8; layout.degree()];
        let (mut rho, mut hats, mut setup) = (Vec::new(), Vec::new(), Vec::new());
        let polys = (0..layout.output_blocks()).flat_map(|j| layout.inputs_of(j).map(move |i| (i, j)));
        for (i, j) in polys.take(most) {
            let mut f = vec![0i128; layout.degree()];
            layout.for_each_weight(i, j, |at, w, negative| {
                let v = (weights[w] * f64::from(WEIGHT_SCALE).exp2()).round() as i128;
                f[at] = if negative { -v } else { v };
            });
            let mut r = vec![0u64; layout.degree()];
            prg.fill_words(&mut r);
            r.iter_mut().for_each(|r| *r &= (1 << WEIGHT_SCALE) - 1);
            let r_hat = design.wide(r.iter().map(|r| i128::from(*r)), &zero, &tally)?;
            let mut p1 = context.product(&r_hat, &b, &tally)?;
            context.add_assign(&mut p1, &context.forward_small(&design.errors(prg), &tally)?)?;
            let sum = f.iter().zip(&r).map(|(f, r)| f + i128::from(*r));
            let p2 = design.wide(sum, &design.errors(prg), &tally)?;
            rho.push(r_hat);
            hats.push(design.wide(f.into_iter(), &zero, &tally)?);
            setup.push([p1, p2]);
        }
        Ok(Self { design: design.clone(), b, rho, weights: hats, setup, tally: Tally::default() })
    }

    /// The client, with the set-up given to it.
    #[must_use]
    pub fn client(&self) -> InsecureClient {
        InsecureClient {
            design: self.design.clone(),
            b: self.b.clone(),
            setup: self.setup.clone(),
            tally: Tally::default(),
        }
    }

    /// The set-up as bytes, stamped.
    ///
    /// # Errors
    /// [`LayerError::Cipher`] from the ring.
    pub fn setup_bytes(&self) -> Result<Vec<u8>, LayerError> {
        let mut out = STAMP.to_vec();
        for poly in self.setup.iter().flatten() {
            let mut bytes = vec![0; self.design.context.packed_len()];
            self.design.context.pack(poly, &mut bytes)?;
            out.extend_from_slice(&bytes);
        }
        Ok(out)
    }

    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// Prepares the server's share (of the whole input tensor, times 2^40): the part of an answer that needs no query.
    ///
    /// # Errors
    /// [`LayerError`] from the ring.
    pub fn share(&self, share: &[i64]) -> Result<InsecureShare, LayerError> {
        let (layout, context) = (&self.design.layout, &self.design.context);
        expect("input share", layout.input_len(), share.len())?;
        let zero = vec![0i8; layout.degree()];
        let mut sh = Vec::new();
        for i in 0..layout.input_blocks() {
            let mut poly = vec![0i64; layout.degree()];
            layout.for_each_input(0, i, |at, e| poly[at] = share[e]);
            sh.push(self.design.wide(poly.into_iter().map(i128::from), &zero, &self.tally)?);
        }
        let (mut sums, mut first) = (Vec::new(), 0);
        for j in 0..layout.output_blocks() {
            let pairs = self.terms(j, first, &sh, &self.weights);
            first += pairs.len();
            sums.push(context.folded_products(&pairs, &self.tally)?);
        }
        Ok(InsecureShare { sums })
    }

    /// The factors of output block `j`, whose weight polynomials begin at number `first`.
    fn terms<'a>(
        &self,
        j: usize,
        first: usize,
        inputs: &'a [Folded],
        weights: &'a [Folded],
    ) -> Vec<(&'a Folded, &'a Folded)> {
        let blocks = self.design.layout.inputs_of(j);
        blocks.enumerate().map(|(k, i)| (&inputs[i], &weights[(first + k) % weights.len()])).collect()
    }

    /// Answers a query: masks uniform on [0, Delta) (they do not hide), which are returned as the server's shares.
    ///
    /// # Errors
    /// [`LayerError`] for a damaged request.
    pub fn answer(
        &self,
        request: &[u8],
        share: &InsecureShare,
        prg: &mut Prg,
    ) -> Result<(Vec<u8>, Vec<u64>), LayerError> {
        let (layout, context) = (&self.design.layout, &self.design.context);
        let mut c0 = Vec::new();
        for bytes in request.chunks_exact(context.packed_len()) {
            c0.push(context.unpack(bytes)?);
        }
        expect("polynomials of a request", layout.input_blocks(), c0.len())?;
        expect("prepared shares", layout.output_blocks(), share.sums.len())?;
        let q = context.primes()[0] * context.primes()[1];
        let (mut message, mut masks) = (Vec::new(), vec![0; layout.output_len()]);
        let mut first = 0;
        for (j, own) in share.sums.iter().enumerate() {
            let pairs = self.terms(j, first, &c0, &self.rho);
            first += pairs.len();
            let mut sums = context.folded_products(&pairs, &self.tally)?;
            context.add_folded(&mut sums, own)?;
            context.inverse_folded(&mut sums, &self.tally)?;
            let mut words = self.design.divided(j, sums)?;
            let mut random = vec![0; words.len()];
            prg.fill_words(&mut random);
            let (_, elements) = layout.output_places(0, j, 1);
            for ((w, r), e) in words.iter_mut().zip(random).zip(elements) {
                let mask = r & ((1 << WEIGHT_SCALE) - 1);
                *w = (*w + mask) % q;
                masks[e] = mask;
            }
            let mut bytes = vec![0; pack::packed_len(words.len(), RESULT_BITS)];
            pack::pack(&words, RESULT_BITS, &mut bytes)?;
            message.extend_from_slice(&bytes);
        }
        Ok((message, masks))
    }
}

impl InsecureClient {
    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn tally(&self) -> TallyCounts {
        self.tally.counts()
    }

    /// Encrypts activations (times 2^40, the whole input tensor).
    ///
    /// # Errors
    /// [`LayerError`] from the ring.
    pub fn request(&self, input: &[i64], prg: &mut Prg) -> Result<(Vec<u8>, InsecureQuery), LayerError> {
        let (layout, context) = (&self.design.layout, &self.design.context);
        let zero = vec![0i8; layout.degree()];
        let mut message = vec![0; layout.input_blocks() * context.packed_len()];
        let mut query = InsecureQuery { v: Vec::new(), i: Vec::new() };
        for (block, bytes) in message.chunks_exact_mut(context.packed_len()).enumerate() {
            let mut poly = vec![0i64; layout.degree()];
            layout.for_each_input(0, block, |at, e| poly[at] = input[e]);
            let i = self.design.wide(poly.into_iter().map(i128::from), &zero, &self.tally)?;
            let mut v = vec![0; layout.degree()];
            sample::ternary(prg, &mut v);
            let v = context.forward_small(&v, &self.tally)?;
            let mut c0 = context.product(&v, &self.b, &self.tally)?;
            context.add_assign(&mut c0, &i)?;
            context.add_assign(&mut c0, &context.forward_small(&self.design.errors(prg), &self.tally)?)?;
            context.neg_assign(&mut c0)?;
            context.pack(&c0, bytes)?;
            query.v.push(v);
            query.i.push(i);
        }
        Ok((message, query))
    }

    /// The client's shares of the outputs modulo Q', times 2^40.
    ///
    /// # Errors
    /// [`LayerError`] for a damaged answer.
    pub fn open(&self, query: &InsecureQuery, answer: &[u8]) -> Result<Vec<u64>, LayerError> {
        let (layout, primes) = (&self.design.layout, self.design.context.primes());
        let mut out = vec![0; layout.output_len()];
        let (mut first, mut rest) = (0, answer);
        for j in 0..layout.output_blocks() {
            let inputs = layout.inputs_of(j);
            let at = |k: usize| (first + k) % self.setup.len();
            let mut pairs: Vec<(&Folded, &Folded)> = Vec::new();
            for (k, i) in inputs.clone().enumerate() {
                let [p1, p2] = &self.setup[at(k)];
                pairs.push((&query.v[i], p1));
                pairs.push((&query.i[i], p2));
            }
            first += inputs.len();
            let own = self.design.divided(j, self.design.context.dot(&pairs, &self.tally)?)?;
            let length = pack::packed_len(own.len(), RESULT_BITS);
            expect("answer (at least)", length, rest.len().min(length))?;
            let (part, after) = rest.split_at(length);
            rest = after;
            let mut words = vec![0; own.len()];
            pack::unpack(part, RESULT_BITS, &mut words)?;
            let (_, elements) = layout.output_places(0, j, 1);
            for ((w, o), e) in words.iter().zip(own).zip(elements) {
                out[e] = (w + o) % (primes[0] * primes[1]);
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushnet_layers::batch::{Conv2d, Dense};

    fn conv(c: usize, hw: usize, o: usize, k: usize) -> Geometry {
        let out = hw - k + 1;
        Geometry::conv2d(Conv2d {
            input: [c, hw, hw],
            output: [o, out, out],
            kernel: [k, k],
            stride: [1, 1],
            pads: [0; 4],
            dilation: [1, 1],
            groups: 1,
        })
        .unwrap()
    }

    fn unit(prg: &mut Prg, len: usize) -> Vec<f64> {
        let mut v = vec![0; len];
        prg.fill_words(&mut v);
        v.iter().map(|w| *w as f64 / 2f64.powi(63) - 1.0).collect()
    }

    #[test]
    fn the_papers_protocol_computes_the_layer_with_its_counts_and_bytes() {
        let mut prg = Prg::from_seed([1; 16]);
        for geometry in [
            conv(4, 16, 3, 3),
            conv(8, 20, 2, 1),
            Geometry::dense(Dense { inputs: 300, outputs: 10 }).unwrap(),
        ] {
            let design = InsecureDesign::new(&geometry, 2048).unwrap();
            let l = design.layout.clone();
            let weights = unit(&mut prg, l.weight_len());
            let x = unit(&mut prg, l.input_len());
            let linear = InsecureLinear::new(&design, &weights, &[3; 32], usize::MAX, &mut prg).unwrap();
            let client = linear.client();
            let scaled: Vec<i64> = x.iter().map(|x| (x * 2f64.powi(40)) as i64).collect();
            let sh: Vec<i64> =
                unit(&mut prg, l.input_len()).iter().map(|s| (s * 2f64.powi(47)) as i64).collect();
            let mine: Vec<i64> = scaled.iter().zip(&sh).map(|(x, s)| x - s).collect();
            let (request, query) = client.request(&mine, &mut prg).unwrap();
            let (answer, masks) = linear.answer(&request, &linear.share(&sh).unwrap(), &mut prg).unwrap();
            let got = client.open(&query, &answer).unwrap();
            assert_eq!((linear.tally(), client.tally()), design.operations());
            let setup = linear.setup_bytes().unwrap();
            assert!(setup.starts_with(b"INSECURE"));
            assert_eq!((request.len(), answer.len(), setup.len()), design.bytes());
            let q = design.context.primes()[0] * design.context.primes()[1];
            for (e, want) in exact(&geometry, &x, &weights).iter().enumerate() {
                let value = (got[e] + q - masks[e]) % q;
                let value = if value > q / 2 { value as f64 - q as f64 } else { value as f64 };
                let error = value / 2f64.powi(40) - want;
                assert!(error.abs() < 1e-6, "{geometry:?} {e}: {value} {want}");
            }
        }
    }

    fn exact(geometry: &Geometry, x: &[f64], w: &[f64]) -> Vec<f64> {
        match geometry {
            Geometry::Dense(d) => {
                w.chunks(d.inputs).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
            }
            Geometry::Conv2d(c) => {
                let ([ci, h, wd], [o, oh, ow], k) = (c.input, c.output, c.kernel[0]);
                let mut out = Vec::new();
                for n in 0..o {
                    for y in 0..oh {
                        for xx in 0..ow {
                            let mut sum = 0.0;
                            for m in 0..ci {
                                for i in 0..k {
                                    for j in 0..k {
                                        sum += w[((n * ci + m) * k + i) * k + j]
                                            * x[(m * h + y + i) * wd + xx + j];
                                    }
                                }
                            }
                            out.push(sum);
                        }
                    }
                }
                out
            }
        }
    }

    #[test]
    fn remainders_are_exact() {
        let mut prg = Prg::from_seed([9; 16]);
        let mut words = vec![0; 1000];
        prg.fill_words(&mut words);
        for p in [(1 << 28) - 57, 134_217_689, 3, (1 << 31) - 1] {
            let m = Remainder::new(p);
            let edges = [0, 1, p - 1, p, 2 * p - 1, u64::MAX, u64::MAX / p * p, u64::MAX / p * p - 1];
            for x in words.iter().copied().chain(edges) {
                assert_eq!(m.of(x), x % p, "{x} {p}");
            }
        }
    }

    #[test]
    fn repeated_set_ups_of_the_published_parameters_give_the_weights_away() {
        for (k, error) in midrange_curve(4096).unwrap() {
            // The middle of the range of k uniform numbers has deviation about 1 / (sqrt(2) k).
            assert!(error < 1.5 / k as f64, "{k}: {error}");
        }
    }
}
