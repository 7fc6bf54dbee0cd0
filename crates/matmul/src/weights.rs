//! Integer weight matrices and their balanced byte limbs.

use crate::MatmulError;

/// Largest number of rows or columns.
const LIMIT: usize = 1 << 24;

/// An M x K matrix of 16-bit integers, row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    m: usize,
    k: usize,
    values: Vec<i16>,
    limbs: usize,
}

impl Weights {
    /// Takes `m * k` values, row-major.
    ///
    /// # Errors
    /// [`MatmulError`] when a side is zero or above 2^24, or the number of values is not `m * k`.
    pub fn new(m: usize, k: usize, values: &[i16]) -> Result<Self, MatmulError> {
        if m == 0 || k == 0 || m > LIMIT || k > LIMIT {
            return Err(MatmulError::Shape { m, k });
        }
        crate::error::expect("weights", m * k, values.len())?;
        let limbs = values.iter().map(|w| limbs_of(*w)).max().unwrap_or(1);
        Ok(Self { m, k, values: values.to_vec(), limbs })
    }

    /// Number M of rows of weights, one for every output.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.m
    }

    /// Number K of columns of weights, one for every input.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.k
    }

    /// All weights, row-major: outputs times inputs.
    #[must_use]
    pub fn values(&self) -> &[i16] {
        &self.values
    }

    /// Signed byte limbs that the widest weight needs: 1, 2, or 3 (only above 32639).
    #[must_use]
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// One row.
    pub(crate) fn row(&self, m: usize) -> &[i16] {
        &self.values[m * self.k..(m + 1) * self.k]
    }
}

/// Digit `j` of `w = sum_j d_j 256^j` with every `d_j` in -128..=127.
pub(crate) fn balanced_limb(w: i16, j: usize) -> i8 {
    let mut rest = i32::from(w);
    for _ in 0..j {
        rest = (rest - i32::from(rest as i8)) >> 8;
    }
    rest as i8
}

/// How many balanced digits `w` has (at least one).
fn limbs_of(w: i16) -> usize {
    match w {
        -128..=127 => 1,
        -32768..=32639 => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_limbs_recompose_every_weight() {
        for w in i16::MIN..=i16::MAX {
            let n = limbs_of(w);
            let sum: i32 = (0..n).map(|j| i32::from(balanced_limb(w, j)) << (8 * j)).sum();
            assert_eq!(sum, i32::from(w));
            assert_eq!(balanced_limb(w, n), 0, "{w} has no digit {n}");
            assert!(n == 1 || balanced_limb(w, n - 1) != 0, "{w} needs {n} digits");
        }
    }

    #[test]
    fn shapes_are_checked() {
        assert!(matches!(Weights::new(0, 3, &[]), Err(MatmulError::Shape { .. })));
        assert!(matches!(Weights::new(2, 3, &[0; 5]), Err(MatmulError::Length { .. })));
        assert_eq!(Weights::new(1, 3, &[127, -128, 0]).unwrap().limbs(), 1);
        assert_eq!(Weights::new(1, 3, &[128, -128, 0]).unwrap().limbs(), 2);
        assert_eq!(Weights::new(1, 2, &[0, 32767]).unwrap().limbs(), 3);
    }
}
