//! A word-sized prime modulus below 2^50 with the constants that every reduction needs.

use super::RnsError;
use crate::prime::{inv_mod, is_prime, pow_mod, wide};

/// Primes of RNS polynomials have at most this many bits: products of two residues then fit the
/// 52-bit multipliers of AVX-512 IFMA and the 53-bit mantissa tricks of AVX2.
pub const MAX_RNS_PRIME_BITS: u32 = 50;

/// An odd prime `8 < q < 2^50` and its reduction constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modulus {
    pub(super) q: u64,
    /// Bits of q.
    pub(super) bits: u32,
    /// `floor(2^(bits + 50) / q)`, below 2^52: quotient estimates of products.
    pub(super) product_ratio: u64,
    /// `floor(2^52 / q)`: quotient estimates of single 52-bit words.
    pub(super) word_ratio: u64,
    /// `2^52 mod q` and `floor((2^52 mod q) 2^52 / q)`.
    pub(super) high: Factor,
    /// `1 / q`, rounded.
    pub(super) inverse: f64,
}

/// A constant `w < q` and `floor(w 2^52 / q)`: products with it need no division.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    pub(super) w: u64,
    pub(super) quotient: u64,
}

impl Factor {
    /// The constant itself, below the modulus.
    #[must_use]
    pub fn value(self) -> u64 {
        self.w
    }
}

impl Modulus {
    /// Constants of the prime `q`.
    ///
    /// # Errors
    /// [`RnsError::Modulus`] unless `q` is a prime between 8 and 2^50.
    pub fn new(q: u64) -> Result<Self, RnsError> {
        if q <= 8 || q >> MAX_RNS_PRIME_BITS != 0 || !is_prime(q) {
            return Err(RnsError::Modulus(q));
        }
        let bits = 64 - q.leading_zeros();
        let mut m = Self {
            q,
            bits,
            product_ratio: ((1u128 << (bits + 50)) / u128::from(q)) as u64,
            word_ratio: (1u64 << 52) / q,
            high: Factor { w: 0, quotient: 0 },
            inverse: 1.0 / q as f64,
        };
        m.high = m.factor((1u64 << 52) % q);
        Ok(m)
    }

    /// The prime itself, which residues are below.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.q
    }

    /// Prepares `w mod q` for repeated products.
    #[must_use]
    pub fn factor(&self, w: u64) -> Factor {
        let w = w % self.q;
        Factor { w, quotient: ((u128::from(w) << 52) / u128::from(self.q)) as u64 }
    }

    /// `a b mod q` for residues a, b: a division, whose time follows the residues. [`Self::mul_factor`] is for secrets.
    #[inline]
    #[must_use]
    pub fn mul(&self, a: u64, b: u64) -> u64 {
        crate::prime::mul_mod(a, b, self.q)
    }

    /// `a w mod q` for a residue a, in constant time: for residues that are secret.
    #[inline]
    #[must_use]
    pub fn mul_factor(&self, a: u64, f: Factor) -> u64 {
        let quotient = (wide(a, f.quotient) >> 52) as u64;
        let r = a.wrapping_mul(f.w).wrapping_sub(quotient.wrapping_mul(self.q));
        r.min(r.wrapping_sub(self.q))
    }

    /// `a + b mod q` for residues a, b.
    #[inline]
    #[must_use]
    pub fn add(&self, a: u64, b: u64) -> u64 {
        let s = a + b;
        s.min(s.wrapping_sub(self.q))
    }

    /// `-a mod q` for a residue a.
    #[inline]
    #[must_use]
    pub fn neg(&self, a: u64) -> u64 {
        let r = self.q - a;
        r.min(r.wrapping_sub(self.q))
    }

    /// `a^-1 mod q`; 0 for 0.
    #[must_use]
    pub fn inv(&self, a: u64) -> u64 {
        inv_mod(a % self.q, self.q)
    }

    /// The power `a^e mod q` by repeated squaring.
    #[must_use]
    pub fn pow(&self, a: u64, e: u64) -> u64 {
        pow_mod(a, e, self.q)
    }

    /// The residue of a signed integer.
    #[inline]
    #[must_use]
    pub fn residue(&self, v: i128) -> u64 {
        // Digits of 52 bits, the highest first; constant time, since messages are secret.
        const DIGIT: u128 = (1 << 52) - 1;
        let sign = v >> 127;
        let size = ((v ^ sign) as u128).wrapping_sub(sign as u128);
        let below = |r: u64| r.min(r.wrapping_sub(self.q));
        let digit = |d: u64| below(d - (wide(d, self.word_ratio) >> 52) as u64 * self.q);
        let shift = |r: u64| {
            let quotient = (wide(r, self.high.quotient) >> 52) as u64;
            below((r * self.high.w).wrapping_sub(quotient.wrapping_mul(self.q)))
        };
        let top = digit((size >> 104) as u64);
        let middle = below(shift(top) + digit((size >> 52 & DIGIT) as u64));
        let r = below(shift(middle) + digit((size & DIGIT) as u64));
        r ^ ((r ^ self.neg(r)) & sign as u64)
    }

    /// The representative in `(-q/2, q/2)` of a residue.
    #[inline]
    #[must_use]
    pub fn centred(&self, a: u64) -> i64 {
        a as i64 - (self.q as i64 & ((self.q / 2).wrapping_sub(a) as i64 >> 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_with_constants_are_those_of_wide_arithmetic() {
        for q in [11, 65_537, 1_125_899_906_842_597] {
            let m = Modulus::new(q).unwrap();
            let values = [0, 1, 2, q / 3, q / 2, q - 2, q - 1];
            for (a, w) in values.iter().flat_map(|a| values.iter().map(move |w| (*a, *w))) {
                assert_eq!(m.mul_factor(a, m.factor(w)), m.mul(a, w), "{a} {w} mod {q}");
            }
        }
    }

    #[test]
    fn refuses_what_is_no_small_prime() {
        for q in [0, 1, 2, 7, 9, 1 << 49, (1 << 50) + 1, (1 << 61) - 1] {
            assert!(matches!(Modulus::new(q), Err(RnsError::Modulus(r)) if r == q), "{q}");
        }
    }

    #[test]
    fn residues_of_wide_integers_are_exact() {
        for q in [11, 97, (1 << 30) - 35, (1 << 49) + 69, (1 << 50) - 27] {
            let m = Modulus::new(q).unwrap();
            let mut v = 1i128;
            let edges = [
                0,
                1,
                -1,
                i128::MAX,
                i128::MIN,
                i128::MIN + 1,
                i128::from(q),
                -i128::from(q),
                1 << 104,
                -(1 << 52),
            ];
            for edge in edges {
                assert_eq!(m.residue(edge), edge.rem_euclid(i128::from(q)) as u64, "{edge} mod {q}");
            }
            for _ in 0..2000 {
                v = v.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(0x5851_F42D);
                for v in [v, v >> 30, v >> 75] {
                    assert_eq!(m.residue(v), v.rem_euclid(i128::from(q)) as u64, "{v} mod {q}");
                }
            }
        }
    }

    #[test]
    fn residues_and_centred_values_undo_each_other() {
        let m = Modulus::new(97).unwrap();
        for v in -300i128..300 {
            let r = m.residue(v);
            assert!(r < 97);
            assert_eq!((i128::from(m.centred(r)) - v) % 97, 0);
            assert!(m.centred(r).abs() <= 48);
            assert_eq!(m.add(r, m.neg(r)), 0);
            assert_eq!(m.mul(r, m.inv(r)), u64::from(r != 0));
        }
    }
}
