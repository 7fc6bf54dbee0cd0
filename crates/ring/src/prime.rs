//! Primes that allow negacyclic transforms, and arithmetic to find them.

use crate::RingError;

/// Largest size of a transform prime.
pub const MAX_PRIME_BITS: u32 = 61;
/// Supported ring degrees, smallest and largest.
pub const RING_DEGREES: (usize, usize) = (8, 1 << 16);

/// `a b` over the integers, in constant time. WebAssembly has no such instruction, and the compiler calls a function there: four products of
/// halves are faster.
#[inline(always)]
#[must_use]
pub fn wide(a: u64, b: u64) -> u128 {
    if !cfg!(target_family = "wasm") {
        return u128::from(a) * u128::from(b);
    }
    u128::from(high_of_halves(a, b)) << 64 | u128::from(a.wrapping_mul(b))
}

/// `floor(a b / 2^64)` from products of 32 bits.
#[inline(always)]
fn high_of_halves(a: u64, b: u64) -> u64 {
    const LOW: u64 = 0xffff_ffff;
    let ((a1, a0), (b1, b0)) = ((a >> 32, a & LOW), (b >> 32, b & LOW));
    let middle = a1 * b0 + ((a0 * b0) >> 32);
    let other = a0 * b1 + (middle & LOW);
    a1 * b1 + (middle >> 32) + (other >> 32)
}

/// The residue of a number below p of which x are the low 64 bits, p < 2^50, from a double within 3/8 of the quotient: rounded, that is within 7/8 of
/// it, so what is left is within p of zero. For WebAssembly, where high halves of products are dear. Constant time.
#[cfg(any(test, target_family = "wasm"))]
#[inline(always)]
pub(crate) fn rest(x: u64, quotient: f64, p: u64) -> u64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let q = (quotient + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits());
    let r = x.wrapping_sub(q.wrapping_mul(p));
    r.wrapping_add(p & (r as i64 >> 63) as u64)
}

/// `a b mod p` for a, b and p below 2^50, `a b / p` below 2^50, and `1 / p` as a double: the quotient has three roundings, so it errs by at most
/// `3 2^-53 2^50 = 3/8`. Constant time.
#[cfg(any(test, target_family = "wasm"))]
#[inline(always)]
pub(crate) fn mul_by_doubles(a: u64, b: u64, p: u64, inverse: f64) -> u64 {
    // Words below 2^50 are the same as signed ones, which convert faster.
    rest(a.wrapping_mul(b), a as i64 as f64 * (b as i64 as f64 * inverse), p)
}

/// `a b mod p`, by a division: for public numbers.
#[inline]
#[must_use]
pub fn mul_mod(a: u64, b: u64, p: u64) -> u64 {
    (wide(a, b) % u128::from(p)) as u64
}

/// Products modulo a public p < 2^62 of secret residues, in constant time (Barrett 1986): no division, no branch.
#[derive(Clone, Copy, Debug)]
pub struct Products {
    p: u64,
    /// Bits of p.
    bits: u32,
    /// `floor(2^(2 bits) / p)`, at most `bits + 1` bits.
    reciprocal: u64,
    #[cfg(target_family = "wasm")]
    inverse: f64,
}

impl Products {
    /// Modulo `p`, 2 <= p < 2^62.
    #[must_use]
    pub fn new(p: u64) -> Self {
        debug_assert!((2..1 << 62).contains(&p));
        let bits = 64 - p.leading_zeros();
        Self {
            p,
            bits,
            reciprocal: ((1u128 << (2 * bits)) / u128::from(p)) as u64,
            #[cfg(target_family = "wasm")]
            inverse: 1.0 / p as f64,
        }
    }

    /// `a b mod p` for a, b < p.
    #[inline]
    #[must_use]
    pub fn mul(self, a: u64, b: u64) -> u64 {
        #[cfg(target_family = "wasm")]
        if self.bits <= 50 {
            return mul_by_doubles(a, b, self.p, self.inverse);
        }
        let x = wide(a, b);
        // At most two too small: one for each cut of a factor (Handbook of Applied Cryptography, 14.3.3).
        let top = (x >> (self.bits - 1)) as u64;
        let q = (wide(top, self.reciprocal) >> (self.bits + 1)) as u64;
        let r = (x as u64).wrapping_sub(q.wrapping_mul(self.p));
        let r = r.min(r.wrapping_sub(2 * self.p));
        r.min(r.wrapping_sub(self.p))
    }
}

/// Products modulo a public p of any size: without a division where [`Products`] has bits enough.
fn multiplied(p: u64) -> impl Fn(u64, u64) -> u64 {
    let short = (2..1 << 62).contains(&p).then(|| Products::new(p));
    move |a, b| short.map_or_else(|| mul_mod(a, b, p), |products| products.mul(a, b))
}

/// The power `a^e mod p` by repeated squaring.
#[must_use]
pub fn pow_mod(a: u64, e: u64, p: u64) -> u64 {
    power(a % p, e, p, &multiplied(p))
}

/// The power of a residue, with the products of its modulus.
fn power(mut base: u64, mut e: u64, p: u64, mul: &impl Fn(u64, u64) -> u64) -> u64 {
    let mut result = 1 % p;
    while e > 0 {
        if e & 1 == 1 {
            result = mul(result, base);
        }
        base = mul(base, base);
        e >>= 1;
    }
    result
}

/// `a^-1 mod p` for prime p.
#[must_use]
pub fn inv_mod(a: u64, p: u64) -> u64 {
    pow_mod(a, p - 2, p)
}

/// Deterministic Miller-Rabin: the first twelve primes as bases decide every 64-bit number.
#[must_use]
pub fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 {
        return false;
    }
    if let Some(b) = BASES.iter().find(|b| n.is_multiple_of(**b)) {
        return n == *b;
    }
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    let mul = multiplied(n);
    BASES.iter().all(|&b| {
        let mut x = power(b, odd, n, &mul);
        if x == 1 || x == n - 1 {
            return true;
        }
        for _ in 1..twos {
            x = mul(x, x);
            if x == n - 1 {
                return true;
            }
        }
        false
    })
}

/// Checks a ring degree.
pub(crate) fn expect_degree(n: usize) -> Result<(), RingError> {
    if n.is_power_of_two() && (RING_DEGREES.0..=RING_DEGREES.1).contains(&n) {
        Ok(())
    } else {
        Err(RingError::RingDegree(n))
    }
}

/// The `count` largest primes `p = 1 mod 2n` of exactly `bits` bits, largest first.
///
/// # Errors
/// [`RingError::RingDegree`] for an unsupported `n`, [`RingError::NotEnoughPrimes`] when there are fewer.
pub fn primes_near(bits: u32, n: usize, count: usize) -> Result<Vec<u64>, RingError> {
    expect_degree(n)?;
    let step = 2 * n as u64;
    let mut primes = Vec::new();
    if (2..=MAX_PRIME_BITS).contains(&bits) {
        let low = 1u64 << (bits - 1);
        let mut candidate = ((2 * low - 2) / step) * step + 1;
        while candidate >= low && candidate > 1 && primes.len() < count {
            if is_prime(candidate) {
                primes.push(candidate);
            }
            candidate = candidate.saturating_sub(step);
        }
    }
    if primes.len() < count {
        let found = primes.len();
        return Err(RingError::NotEnoughPrimes { bits, ring_degree: n, wanted: count, found });
    }
    Ok(primes)
}

/// A primitive `2n`-th root of unity mod prime `p`: the first `x^((p-1)/2n)`, `x = 2, 3, ...`, of that order.
///
/// # Errors
/// [`RingError::Modulus`] when `p` is not a prime `= 1 mod 2n` below 2^61.
pub fn primitive_root(n: usize, p: u64) -> Result<u64, RingError> {
    expect_degree(n)?;
    let twice = 2 * n as u64;
    let error = RingError::Modulus { modulus: p, twice_degree: 2 * n };
    if p >= 1 << MAX_PRIME_BITS || p % twice != 1 || !is_prime(p) {
        return Err(error);
    }
    (2..p).map(|x| pow_mod(x, (p - 1) / twice, p)).find(|&r| pow_mod(r, n as u64, p) == p - 1).ok_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What WebAssembly computes: at the edges of the ranges, where quotients are largest and nearest to halves, and on random numbers.
    #[test]
    fn residues_by_doubles_are_exact() {
        let mut state = 5u64;
        for p in [11, 12289, (1 << 31) - 1, (1 << 45) - 229, (1 << 50) - 27, (1 << 50) - 35] {
            let inverse = 1.0 / p as f64;
            let check = |a: u64, b: u64| {
                let exact = (u128::from(a) * u128::from(b) % u128::from(p)) as u64;
                assert_eq!(mul_by_doubles(a, b, p, inverse), exact, "{a} {b} {p}");
            };
            let edges = [0, 1, 2, p / 2 - 1, p / 2, p / 2 + 1, p - 2, p - 1];
            for a in edges {
                edges.iter().for_each(|b| check(a, *b));
                // The other factor need not be a residue.
                check((1 << 50) - 1, a);
            }
            for _ in 0..100_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                check(state >> 14, (state << 7) % p);
                let word = state >> 12;
                assert_eq!(rest(word, word as f64 * inverse, p), word % p, "{word} {p}");
            }
            let word = (1u64 << 52) - 1;
            assert_eq!(rest(word, word as f64 * inverse, p), word % p);
        }
    }

    #[test]
    fn products_are_exact() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state
        };
        for bits in 2..=62 {
            for p in [1 << (bits - 1) | 1, (1 << bits) - 1, next() % (1 << (bits - 1)) + (1 << (bits - 1))] {
                let products = Products::new(p);
                for _ in 0..200 {
                    for (a, b) in [(next() % p, next() % p), (p - 1, next() % p), (p - 1, p - 1), (0, p - 1)]
                    {
                        assert_eq!(products.mul(a, b), mul_mod(a, b, p), "{a} {b} mod {p}");
                    }
                }
            }
        }
    }

    #[test]
    fn high_halves_are_those_of_the_product() {
        let edges = [
            0,
            1,
            2,
            0xffff_ffff,
            1 << 32,
            (1 << 32) + 1,
            1 << 63,
            u64::MAX - 1,
            u64::MAX,
            0x9e37_79b9_7f4a_7c15,
        ];
        for a in edges {
            for b in edges {
                let product = u128::from(a) * u128::from(b);
                assert_eq!((u128::from(high_of_halves(a, b)), wide(a, b)), (product >> 64, product));
            }
        }
    }

    #[test]
    fn primality_against_trial_division_and_known_numbers() {
        let naive = |n: u64| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        assert!((0..5000).all(|n| is_prime(n) == naive(n)));
        // Mersenne primes, Carmichael numbers, strong pseudoprimes to many bases.
        assert!(is_prime((1 << 61) - 1) && is_prime((1 << 31) - 1));
        for n in [561, 3_215_031_751, 3_825_123_056_546_413_051, 341_550_071_728_321, u64::MAX] {
            assert!(!is_prime(n), "{n}");
        }
        assert!(is_prime(18_446_744_073_709_551_557));
    }

    #[test]
    fn primes_are_primes_of_the_size_and_form() {
        for (bits, n, count) in [(50, 2048, 3), (61, 1 << 16, 20), (30, 1024, 5), (14, 8, 10)] {
            let primes = primes_near(bits, n, count).unwrap();
            assert_eq!(primes.len(), count);
            assert!(primes.windows(2).all(|w| w[0] > w[1]));
            for p in primes {
                assert!(is_prime(p) && p % (2 * n as u64) == 1 && 64 - p.leading_zeros() == bits);
                let r = primitive_root(n, p).unwrap();
                assert_eq!(pow_mod(r, n as u64, p), p - 1);
            }
        }
        assert!(matches!(primes_near(20, 1 << 16, 50), Err(RingError::NotEnoughPrimes { .. })));
        assert!(matches!(primes_near(62, 8, 1), Err(RingError::NotEnoughPrimes { found: 0, .. })));
        assert!(matches!(primes_near(50, 1000, 1), Err(RingError::RingDegree(1000))));
        assert!(matches!(primitive_root(8, 19), Err(RingError::Modulus { .. })));
        assert!(matches!(primitive_root(8, 33), Err(RingError::Modulus { .. })));
    }
}
