//! The canonical embedding: real polynomials of degree below N at the N/2 points `zeta^(5^j)`.
//!
//! With n = N/2 and `w_k = m_k + i m_(k+n)`, `m(x) = sum_k w_k x^k` at every x with `x^n = i`, which all
//! `zeta^(5^j)`, zeta = exp(i pi / N), satisfy. The transform halves `x^n - exp(2 pi i t)` into
//! `x^(n/2) -+ exp(pi i t)` level by level. Additions and multiplications are never fused or reordered, so
//! every instruction set gives the same bits; the error is below `2^-51 log2 N` times the largest magnitude.
#![allow(unsafe_code)]

use hushnet_ring::Isa;
use zeroize::Zeroize;

/// Complex numbers as two arrays; wiped on drop, since they hold messages.
pub(super) struct ComplexBuffer {
    pub(super) re: Vec<f64>,
    pub(super) im: Vec<f64>,
}

impl ComplexBuffer {
    pub(super) fn zero(n: usize) -> Self {
        Self { re: vec![0.0; n], im: vec![0.0; n] }
    }
}

impl Drop for ComplexBuffer {
    fn drop(&mut self) {
        self.re.zeroize();
        self.im.zeroize();
    }
}

/// Tables of the transform between n = N/2 complex coefficients and slots.
pub(super) struct SpecialFft {
    isa: Isa,
    /// Twiddle of block b of the level with B blocks at `[B + b]`.
    re: Vec<f64>,
    im: Vec<f64>,
    /// Slot j is leaf `leaf[j]`.
    leaf: Vec<u32>,
}

impl SpecialFft {
    pub(super) fn new(ring_degree: usize, isa: Isa) -> Self {
        let (n, turn) = (ring_degree / 2, 2 * ring_degree);
        let (mut re, mut im) = (vec![0.0; n], vec![0.0; n]);
        // Roots of the blocks of a level, as multiples of 1/(2N) of a turn.
        let mut roots = vec![n];
        while roots.len() < n {
            let mut children = Vec::with_capacity(2 * roots.len());
            for (b, &t) in roots.iter().enumerate() {
                (re[roots.len() + b], im[roots.len() + b]) = cos_sin(t / 2, turn);
                children.extend([t / 2, t / 2 + ring_degree]);
            }
            roots = children;
        }
        let mut leaf_of = vec![0u32; turn];
        for (leaf, &t) in roots.iter().enumerate() {
            leaf_of[t] = leaf as u32;
        }
        let mut power = 1;
        let leaf = (0..n)
            .map(|_| {
                let l = leaf_of[power];
                power = power * 5 % turn;
                l
            })
            .collect();
        Self { isa: isa.usable(), re, im, leaf }
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> usize {
        self.leaf.len()
    }

    /// Where slot j stands in a transformed buffer.
    pub(super) fn position(&self, j: usize) -> usize {
        self.leaf[j] as usize
    }

    /// Coefficients to slots, in place.
    pub(super) fn forward(&self, x: &mut ComplexBuffer) {
        self.run(x, Pass::Forward);
    }

    /// Slots to n times the coefficients, in place.
    pub(super) fn inverse(&self, x: &mut ComplexBuffer) {
        self.run(x, Pass::Inverse);
    }

    fn run(&self, x: &mut ComplexBuffer, f: Pass) {
        let (re, im, isa) = (&mut x.re[..], &mut x.im[..], self.isa);
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
            fn wide(f: Pass, t: &SpecialFft, re: &mut [f64], im: &mut [f64]) {
                match f {
                    Pass::Forward => forward_body(t, re, im),
                    Pass::Inverse => inverse_body(t, re, im),
                }
            }
            #[target_feature(enable = "avx2")]
            fn half(f: Pass, t: &SpecialFft, re: &mut [f64], im: &mut [f64]) {
                match f {
                    Pass::Forward => forward_body(t, re, im),
                    Pass::Inverse => inverse_body(t, re, im),
                }
            }
            if isa >= Isa::Avx512 {
                // SAFETY: `usable` returned only what this processor has.
                return unsafe { wide(f, self, re, im) };
            }
            if isa >= Isa::Avx2 {
                // SAFETY: as above.
                return unsafe { half(f, self, re, im) };
            }
        }
        let _ = isa;
        match f {
            Pass::Forward => forward_body(self, re, im),
            Pass::Inverse => inverse_body(self, re, im),
        }
    }
}

#[derive(Clone, Copy)]
enum Pass {
    Forward,
    Inverse,
}

/// Taylor sums of cos x and sin x for |x| <= pi/4, within 2^-52, by additions and multiplications only: the same
/// bits on every platform, unlike a system's mathematical library.
fn taylor(x: f64) -> (f64, f64) {
    let (y, mut c, mut s) = (x * x, 0.0, 0.0);
    for k in (1..=9).rev() {
        let k = f64::from(k);
        c = -y / (2.0 * k * (2.0 * k - 1.0)) * (1.0 + c);
        s = -y / (2.0 * k * (2.0 * k + 1.0)) * (1.0 + s);
    }
    (1.0 + c, x + x * s)
}

/// cos and sin of `2 pi t / turn`, `turn` a power of two of at least 8.
fn cos_sin(t: usize, turn: usize) -> (f64, f64) {
    // t = octants * turn/8 + r, then r or its complement is an angle of at most pi/4.
    let (octant, r) = (t * 8 / turn % 8, t % (turn / 8));
    let small = |r: usize| taylor(std::f64::consts::PI * (2.0 * r as f64 / turn as f64));
    let (c, s) = if octant % 2 == 0 {
        small(r)
    } else {
        let (c, s) = small(turn / 8 - r);
        (s, c)
    };
    match octant / 2 {
        0 => (c, s),
        1 => (-s, c),
        2 => (-c, -s),
        _ => (s, -c),
    }
}

/// `(u, v) -> (u + w v, u - w v)` on the halves of a block.
#[inline(always)]
fn split(re: &mut [f64], im: &mut [f64], wr: f64, wi: f64) {
    let half = re.len() / 2;
    let (ur, vr) = re.split_at_mut(half);
    let (ui, vi) = im.split_at_mut(half);
    for (((ur, vr), ui), vi) in ur.iter_mut().zip(vr).zip(ui).zip(vi) {
        let pr = *vr * wr - *vi * wi;
        let pi = *vr * wi + *vi * wr;
        (*ur, *vr) = (*ur + pr, *ur - pr);
        (*ui, *vi) = (*ui + pi, *ui - pi);
    }
}

/// `(a, b) -> (a + b, (a - b) / w)`, |w| = 1.
#[inline(always)]
fn join(re: &mut [f64], im: &mut [f64], wr: f64, wi: f64) {
    let half = re.len() / 2;
    let (ur, vr) = re.split_at_mut(half);
    let (ui, vi) = im.split_at_mut(half);
    for (((ur, vr), ui), vi) in ur.iter_mut().zip(vr).zip(ui).zip(vi) {
        let (dr, di) = (*ur - *vr, *ui - *vi);
        (*ur, *ui) = (*ur + *vr, *ui + *vi);
        (*vr, *vi) = (dr * wr + di * wi, di * wr - dr * wi);
    }
}

#[inline(always)]
fn forward_body(t: &SpecialFft, re: &mut [f64], im: &mut [f64]) {
    let n = re.len();
    let mut blocks = 1;
    while blocks < n {
        for (b, (re, im)) in re.chunks_exact_mut(n / blocks).zip(im.chunks_exact_mut(n / blocks)).enumerate()
        {
            split(re, im, t.re[blocks + b], t.im[blocks + b]);
        }
        blocks *= 2;
    }
}

#[inline(always)]
fn inverse_body(t: &SpecialFft, re: &mut [f64], im: &mut [f64]) {
    let n = re.len();
    let mut blocks = n / 2;
    while blocks > 0 {
        for (b, (re, im)) in re.chunks_exact_mut(n / blocks).zip(im.chunks_exact_mut(n / blocks)).enumerate()
        {
            join(re, im, t.re[blocks + b], t.im[blocks + b]);
        }
        blocks /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushnet_ring::simd;

    #[test]
    fn cosines_and_sines_are_those_of_the_library() {
        for turn in [8usize, 32, 1 << 17] {
            for t in (0..turn).step_by(turn.div_ceil(4096)).chain([turn - 1, turn / 8, turn / 4, turn / 2]) {
                let x = 2.0 * std::f64::consts::PI * t as f64 / turn as f64;
                let (c, s) = cos_sin(t, turn);
                // The library's argument itself is rounded, by up to 4.5e-16.
                assert!((c - x.cos()).abs() < 1e-15 && (s - x.sin()).abs() < 1e-15, "{t}/{turn}: {c} {s}");
                assert!((c * c + s * s - 1.0).abs() < 7e-16, "{t}/{turn}");
            }
        }
    }

    #[test]
    fn slots_are_the_polynomial_at_powers_of_five_and_the_inverse_undoes_on_every_path() {
        for degree in [16usize, 32, 256] {
            let n = degree / 2;
            let m: Vec<f64> = (0..degree).map(|k| ((k * k * 7 + 3 * k + 1) % 101) as f64 - 50.0).collect();
            let mut first: Option<Vec<f64>> = None;
            for isa in simd::available() {
                let fft = SpecialFft::new(degree, isa);
                let mut x = ComplexBuffer::zero(n);
                x.re.copy_from_slice(&m[..n]);
                x.im.copy_from_slice(&m[n..]);
                fft.forward(&mut x);
                let mut g = 1usize;
                for j in 0..n {
                    let (mut re, mut im) = (0.0, 0.0);
                    for (k, c) in m.iter().enumerate() {
                        let a = std::f64::consts::PI * ((g * k) % (2 * degree)) as f64 / degree as f64;
                        re += c * a.cos();
                        im += c * a.sin();
                    }
                    let p = fft.position(j);
                    assert!(
                        (x.re[p] - re).abs() < 1e-9 && (x.im[p] - im).abs() < 1e-9,
                        "N={degree} slot {j}"
                    );
                    g = g * 5 % (2 * degree);
                }
                let bits = x.re.clone();
                assert_eq!(*first.get_or_insert(bits.clone()), bits, "{isa:?}");
                fft.inverse(&mut x);
                for k in 0..n {
                    assert!(
                        (x.re[k] / n as f64 - m[k]).abs() < 1e-10
                            && (x.im[k] / n as f64 - m[k + n]).abs() < 1e-10
                    );
                }
            }
        }
    }
}
