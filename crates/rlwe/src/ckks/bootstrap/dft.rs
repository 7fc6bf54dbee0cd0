//! The special Fourier transform as a product of few sparse matrices, by diagonals.
//!
//! With w_k = m_k + i m_(k+n) and b the bit reversal of 0 .. n-1, the slots of m are `S_n ... S_4 S_2 b(w)`: S_len works on blocks of len slots,
//! `(u, v) -> (u + x v, u - x v)` with `x = exp(2 pi i 5^j / (4 len))` for the j-th pair (Cheon, Han, Kim, Kim, Song, EUROCRYPT 2018, section 4: butterflies
//! grouped into a few levels; Chen, Chillotti, Song, EUROCRYPT 2019, section 3). A matrix by diagonals is `(M v)_i = sum_d D_d[i] v_(i+d)`.

use super::super::Complex;
use std::collections::BTreeMap;

/// Diagonals by offset modulo the number of slots.
pub(super) type Diagonals = BTreeMap<usize, Vec<Complex>>;

/// `a w`.
pub(super) fn scaled(a: Complex, w: f64) -> Complex {
    Complex { re: a.re * w, im: a.im * w }
}

/// `a b`.
pub(super) fn times(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}

/// S_len, or its inverse.
fn butterflies(n: usize, len: usize, inverse: bool) -> Diagonals {
    let half = len / 2;
    let turn = 4 * len;
    let mut power = 1usize;
    let zero = Complex::default();
    let (mut own, mut up, mut down) = (vec![zero; n], vec![zero; n], vec![zero; n]);
    for j in 0..half {
        let angle = 2.0 * std::f64::consts::PI * power as f64 / turn as f64;
        power = power * 5 % turn;
        let x = Complex { re: angle.cos(), im: angle.sin() };
        for first in (j..n).step_by(len) {
            let second = first + half;
            if inverse {
                own[first].re = 0.5;
                up[first].re = 0.5;
                down[second] = Complex { re: 0.5 * x.re, im: -0.5 * x.im };
                own[second] = Complex { re: -0.5 * x.re, im: 0.5 * x.im };
            } else {
                own[first].re = 1.0;
                up[first] = x;
                down[second].re = 1.0;
                own[second] = Complex { re: -x.re, im: -x.im };
            }
        }
    }
    let mut out = Diagonals::from([(0, own)]);
    add_diagonal(&mut out, half % n, up);
    add_diagonal(&mut out, n - half, down);
    out
}

fn add_diagonal(m: &mut Diagonals, offset: usize, values: Vec<Complex>) {
    match m.get_mut(&offset) {
        None => {
            m.insert(offset, values);
        }
        Some(old) => old.iter_mut().zip(&values).for_each(|(o, v)| {
            o.re += v.re;
            o.im += v.im;
        }),
    }
}

/// The product `a b`: `(ab)_(d+e)[i] = sum a_d[i] b_e[i + d]`.
fn product(n: usize, a: &Diagonals, b: &Diagonals) -> Diagonals {
    let mut out = Diagonals::new();
    for (d, x) in a {
        for (e, y) in b {
            let values = (0..n).map(|i| times(x[i], y[(i + d) % n])).collect();
            add_diagonal(&mut out, (d + e) % n, values);
        }
    }
    out
}

/// One matrix of a factored transform: its offsets are multiples of `stride`.
pub(super) struct Factor {
    pub(super) stride: usize,
    pub(super) diagonals: Diagonals,
    /// Entries depend on the slot modulo this.
    pub(super) period: usize,
}

/// The matrices of a transform on n slots in the order in which they are applied; `radices[i]` levels of butterflies go into the i-th, log2 n in all.
/// Forward: bit-reversed coefficients to slots. Inverse: slots to bit-reversed coefficients.
pub(super) fn factors(n: usize, radices: &[u32], inverse: bool) -> Vec<Factor> {
    let mut lengths: Vec<usize> = (1..=n.trailing_zeros()).map(|k| 1 << k).collect();
    if inverse {
        lengths.reverse();
    }
    let mut rest = lengths.as_slice();
    radices
        .iter()
        .map(|&r| {
            let (group, after) = rest.split_at(r as usize);
            rest = after;
            let mut all = group.iter().map(|&len| butterflies(n, len, inverse));
            let first = all.next().unwrap_or_default();
            let diagonals = all.fold(first, |m, s| product(n, &s, &m));
            let (low, high) = group.iter().fold((n, 1), |(l, h), &g| (l.min(g), h.max(g)));
            Factor { stride: low / 2, diagonals, period: high }
        })
        .collect()
}

/// `M v`, in the clear: what the encrypted product is compared with.
#[cfg(test)]
pub(super) fn apply(m: &Diagonals, v: &[Complex]) -> Vec<Complex> {
    let n = v.len();
    (0..n)
        .map(|i| {
            m.iter().fold(Complex::default(), |s, (d, x)| {
                let p = times(x[i], v[(i + d) % n]);
                Complex { re: s.re + p.re, im: s.im + p.im }
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factored_transforms_evaluate_polynomials_and_undo_each_other() {
        let n = 32usize;
        let w: Vec<Complex> =
            (0..n).map(|k| Complex { re: (k as f64).sin(), im: (2.0 * k as f64).cos() }).collect();
        let bits = n.trailing_zeros();
        let reversed: Vec<Complex> =
            (0..n).map(|k: usize| w[k.reverse_bits() >> (usize::BITS - bits)]).collect();
        for radices in [vec![5], vec![2, 3], vec![1, 2, 2]] {
            let forward = factors(n, &radices, false);
            let slots = forward.iter().fold(reversed.clone(), |v: Vec<Complex>, f| apply(&f.diagonals, &v));
            // m(zeta^(5^j)) with zeta = exp(2 pi i / 4n), and w_k x^k since x^n = i.
            let mut power = 1usize;
            for s in &slots {
                let at = |k: usize| {
                    let angle = std::f64::consts::PI * ((k * power) % (4 * n)) as f64 / (2 * n) as f64;
                    Complex { re: angle.cos(), im: angle.sin() }
                };
                let sum = w.iter().enumerate().fold(Complex::default(), |s, (k, c)| {
                    let p = times(*c, at(k));
                    Complex { re: s.re + p.re, im: s.im + p.im }
                });
                assert!((sum.re - s.re).hypot(sum.im - s.im) < 1e-12);
                power = power * 5 % (4 * n);
            }
            let mut back = radices.clone();
            back.reverse();
            let inverse = factors(n, &back, true);
            let again = inverse.iter().fold(slots, |v: Vec<Complex>, f| apply(&f.diagonals, &v));
            assert!(again.iter().zip(&reversed).all(|(a, b)| (a.re - b.re).hypot(a.im - b.im) < 1e-12));
            for f in forward.iter().chain(&inverse) {
                assert!(f.diagonals.keys().all(|d| d % f.stride == 0));
                assert!(f.diagonals.values().all(|x| (0..n).all(|i| {
                    let (a, b) = (x[i], x[i % f.period]);
                    (a.re - b.re).hypot(a.im - b.im) < 1e-14
                })));
            }
        }
    }
}
