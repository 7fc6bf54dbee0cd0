//! Division of secret words by public numbers: processors take longer for some words than for others, so it is multiplied.

/// A public divisor d, 1 < d < 2^62, and floor(2^64 / d) (Barrett 1986).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    d: u64,
    reciprocal: u64,
}

impl Divisor {
    /// For `d`, which is in range: every caller has checked it.
    pub(crate) fn new(d: u64) -> Self {
        debug_assert!((2..1 << 62).contains(&d));
        Self { d, reciprocal: ((1u128 << 64) / u128::from(d)) as u64 }
    }

    /// d.
    pub(crate) const fn value(self) -> u64 {
        self.d
    }

    /// (floor(v / d), v mod d) of any word, in constant time: v floor(2^64 / d) / 2^64 is at most one too small, since v < 2^64.
    pub(crate) const fn divide(self, v: u64) -> (u64, u64) {
        let q = ((v as u128 * self.reciprocal as u128) >> 64) as u64;
        let over = v.wrapping_sub(q.wrapping_mul(self.d)).wrapping_sub(self.d);
        let less = (over as i64 >> 63) as u64;
        (q.wrapping_add(1).wrapping_add(less), over.wrapping_add(self.d & less))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garble::OddModulus;
    use crate::Prg;

    /// Words that are near a multiple of d, near the ends, and random.
    fn words(d: u64, rng: &mut Prg) -> Vec<u64> {
        let mut words = vec![0; 500];
        rng.words(&mut words);
        let multiples: Vec<u64> = words[..100].iter().map(|w| w / d * d).chain([0, d, d / 2]).collect();
        words.extend(multiples.iter().flat_map(|&m| [m, m.wrapping_sub(1), m.wrapping_add(1)]));
        words.extend([u64::MAX, u64::MAX - 1, u64::MAX / d * d, (u64::MAX / d * d).wrapping_sub(1), 1 << 63]);
        words
    }

    #[test]
    fn quotients_and_residues_are_exact() {
        let mut rng = Prg::new(8);
        let mut ds = vec![2, 3, 4, 5, 7, 49, 1 << 20, (1 << 61) + 1, (1 << 62) - 1, (1 << 62) - 2];
        ds.extend((2..62).map(|b| (rng.block() as u64 & ((1 << b) - 1)).max(2)));
        for d in ds {
            for v in words(d, &mut rng) {
                assert_eq!(Divisor::new(d).divide(v), (v / d, v % d), "{v} by {d}");
            }
        }
    }

    #[test]
    fn odd_moduli_reduce_exactly() {
        let mut rng = Prg::new(9);
        let mut ps = vec![3, 5, 1_032_193, (1 << 30) - 35, (1 << 61) - 1, (1 << 62) - 1];
        ps.extend((2..62).map(|b| (rng.block() as u64 & ((1 << b) - 1)).max(3) | 1));
        for value in ps {
            let p = OddModulus::new(value).unwrap();
            let words = words(value, &mut rng);
            for (&v, &w) in words.iter().zip(words.iter().rev()) {
                let wide = u128::from(v) << 64 | u128::from(w);
                assert_eq!(p.reduce_wide(wide), (wide % u128::from(value)) as u64, "{wide} mod {value}");
                let product = u128::from(v) * u128::from(w % value) % u128::from(value);
                assert_eq!(p.mul(v, p.factor(w)), product as u64, "{v} {w} mod {value}");
                assert_eq!(p.encode(v as i64), (v as i64).rem_euclid(value as i64) as u64, "{v} mod {value}");
                let signed = p.signed(w % value);
                assert_eq!(signed.rem_euclid(value as i64) as u64, w % value);
                assert!(signed.unsigned_abs() <= p.half());
            }
            assert_eq!(p.reduce_wide(u128::MAX), (u128::MAX % u128::from(value)) as u64);
        }
    }
}
