//! `x - round(x)` of values near integers: `sin(2 pi x) / 2 pi`, as a cosine of a small angle that is doubled, with two terms of the arcsine.
//!
//! u = (x - 1/4) / (K + 1/2) lies in [-1, 1]. A Chebyshev interpolant gives `c = cos(2 pi (x - 1/4) / 2^r)`, an even function of u and so one of half the degree
//! of T_2(u); r times `c <- 2 c^2 - 1` gives `s = sin(2 pi x)`
//! (Han, Ki, CT-RSA 2020, section 4), and `a s + b s^3` is within 2^-25 of `2 pi (x - round(x))` for small messages (the arcsine: Lee, Lee, Lee, Kim, No, EUROCRYPT 2021, section 4).
//! The circuit is written once, over [`Machine`]: ciphertexts, and numbers with the noise that ciphertexts would have.

use super::super::CkksError;
use std::collections::BTreeMap;

/// What approximates the reduction modulo 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sine {
    /// Integers up to this magnitude are removed.
    pub range: u32,
    /// Degree of the Chebyshev interpolant in T_2(u): 2^k - 1, k = 3 to 5.
    pub degree: u32,
    /// Times that the angle is doubled, 0 to 6.
    pub doublings: u32,
}

/// Degree of the polynomials that are sums of T_1, T_2, T_3 with scalars.
const LEAF: usize = 4;

impl Sine {
    /// Levels of the arcsine.
    pub(super) const ARCSINE: usize = 2;

    /// What `x - 1/4` is divided by: more than any.
    pub(super) fn width(&self) -> f64 {
        f64::from(self.range) + 0.5
    }

    /// Levels that the circuit takes: T_2(u), the interpolant, the doublings, two for the arcsine.
    #[must_use]
    pub fn depth(&self) -> usize {
        1 + self.degree.ilog2() as usize + 1 + self.doublings as usize + Self::ARCSINE
    }

    /// Relinearisations: T_2(u), powers of it up to half the degree and T_3, one a sum of products of the polynomial, doublings, two for the arcsine.
    #[must_use]
    pub fn products(&self) -> usize {
        let log = self.degree.ilog2() as usize + 1;
        // A polynomial of 2^k terms, k > 3, is one sum whose quotients have 2^(k-1), .., 4 terms, the last ones leaves: 2^(k-3) sums in all.
        // The deepest leaf is split once more.
        let sums = (1 << (log - 3)) + 1;
        1 + (log - 1) + 1 + sums + self.doublings as usize + 2
    }

    /// Coefficients of `cos(2 pi (K + 1/2) u / 2^r)` in T_0(u), T_2(u), T_4(u), .., interpolated at 8 (degree + 1) nodes and cut off.
    pub(super) fn coefficients(&self) -> Vec<f64> {
        let nodes = 8 * (self.degree as usize + 1);
        let shrink = f64::from(self.doublings).exp2();
        let value = |u: f64| (2.0 * std::f64::consts::PI * self.width() * u / shrink).cos();
        let angle = |k: usize| std::f64::consts::PI * (k as f64 + 0.5) / nodes as f64;
        (0..=self.degree as usize)
            .map(|j| {
                let sum: f64 =
                    (0..nodes).map(|k| value(angle(k).cos()) * (2.0 * j as f64 * angle(k)).cos()).sum();
                sum * if j == 0 { 1.0 } else { 2.0 } / nodes as f64
            })
            .collect()
    }
}

/// What the circuit needs; V is a value that knows its level and scale.
pub(super) trait Machine {
    type V: Clone;
    /// `v` and a number.
    fn plus(&mut self, v: &Self::V, number: f64) -> Result<Self::V, CkksError>;
    /// The levels below the input's that it stands.
    fn depth(&self, v: &Self::V) -> usize;
    /// `2 a b - c` (or - 1), one level down.
    fn twice_product(
        &mut self,
        a: &Self::V,
        b: &Self::V,
        minus: Option<&Self::V>,
    ) -> Result<Self::V, CkksError>;
    /// `q t`, one level down.
    fn product(&mut self, q: &Self::V, t: &Self::V) -> Result<Self::V, CkksError>;
    /// `c_0 + sum c_i v_i + sum q_j t_j` at a depth: with the scale that [`Self::aim`] made the q_j for, and one division (and relinearisation) in all.
    fn sum(
        &mut self,
        products: &[(Self::V, &Self::V)],
        terms: &[(f64, &Self::V)],
        constant: f64,
        depth: usize,
        scale: f64,
    ) -> Result<Self::V, CkksError>;
    /// The scale that a factor of `t` needs so that the product has `scale` at this depth.
    fn aim(&self, t: &Self::V, depth: usize, scale: f64) -> f64;
    /// `by v + 1`, by scale alone.
    fn scaled_and_one(&mut self, v: &Self::V, by: f64) -> Result<Self::V, CkksError>;
}

/// `sum c_j T_j = q T_m + r` for m <= degree < 2m: quotient and remainder in the Chebyshev basis.
fn split(c: &[f64], m: usize) -> (Vec<f64>, Vec<f64>) {
    let mut r = c[..m].to_vec();
    let mut q = vec![0.0; c.len() - m];
    q[0] = c[m];
    for j in 1..q.len() {
        q[j] = 2.0 * c[m + j];
        r[m - j] -= c[m + j];
    }
    (q, r)
}

struct Powers<V>(BTreeMap<usize, V>);

impl<V> Powers<V> {
    fn at(&self, i: usize) -> Result<&V, CkksError> {
        self.0.get(&i).ok_or(CkksError::Count { what: "Chebyshev basis", expected: i, got: self.0.len() })
    }
}

fn evaluate<M: Machine>(
    m: &mut M,
    powers: &Powers<M::V>,
    c: &[f64],
    depth: usize,
    scale: f64,
) -> Result<M::V, CkksError> {
    let (mut products, mut rest) = (Vec::new(), c.to_vec());
    loop {
        let terms = (1..rest.len().min(LEAF))
            .map(|i| Ok((rest[i], powers.at(i)?)))
            .collect::<Result<Vec<_>, CkksError>>()?;
        if rest.len() <= LEAF && terms.iter().all(|(_, t)| m.depth(t) < depth) {
            return m.sum(&products, &terms, rest[0], depth, scale);
        }
        let top = 1 << (rest.len() - 1).ilog2();
        let (q, r) = split(&rest, top);
        let t = powers.at(top)?;
        let wanted = m.aim(t, depth, scale);
        products.push((evaluate(m, powers, &q, depth - 1, wanted)?, t));
        rest = r;
    }
}

/// `(a, r)` so that `a s (1 + r s^2)` is nearest to the angle whose sine is s, for angles up to `limit`: the arcsine's fifth power `3 s^5 / 40` is replaced by
/// `limit^5 (20 z^3 - 5 z) / 16`, z = s / limit, which is off by a Chebyshev polynomial of degree 5, a sixteenth of it.
pub(super) fn arcsine(limit: f64) -> (f64, f64) {
    let fifth = 3.0 / 40.0;
    let a = 1.0 - fifth * 5.0 / 16.0 * limit.powi(4);
    (a, (1.0 / 6.0 + fifth * 20.0 / 16.0 * limit.powi(2)) / a)
}

/// `2 pi (x - round(x))`, over `a` and up to what [`arcsine`] leaves, from x over the width; `scale` is that of the interpolant's value, r the arcsine's.
pub(super) fn run<M: Machine>(
    m: &mut M,
    (sine, r): (&Sine, f64),
    x: M::V,
    scale: f64,
) -> Result<M::V, CkksError> {
    let c = sine.coefficients();
    let u = m.plus(&x, -0.25 / sine.width())?;
    let mut powers = Powers(BTreeMap::from([(1, m.twice_product(&u, &u, None)?)]));
    let mut power = 2;
    while power < c.len() {
        let half = powers.at(power / 2)?.clone();
        let next = m.twice_product(&half, &half, None)?;
        powers.0.insert(power, next);
        power *= 2;
    }
    let third = m.twice_product(powers.at(2)?, powers.at(1)?, Some(powers.at(1)?))?;
    powers.0.insert(3, third);
    let mut s = evaluate(m, &powers, &c, sine.degree.ilog2() as usize + 2, scale)?;
    for _ in 0..sine.doublings {
        s = m.twice_product(&s, &s, None)?;
    }
    let square = m.product(&s, &s)?;
    let factor = m.scaled_and_one(&square, r)?;
    m.product(&factor, &s)
}
