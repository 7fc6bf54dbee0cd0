//! Operations as the papers count them.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of homomorphic operations (Juvekar, Vaikuntanathan, Chandrakasan, "GAZELLE", section 3; Zhang, Xin, Wu, "GALA", section II-C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Whole permutations: a decomposition and its use.
    pub perm: u64,
    /// Decompositions made for hoisting.
    pub dec_perm: u64,
    /// Permutations of a ciphertext that was decomposed before.
    pub hst_perm: u64,
    /// Products of a ciphertext with a plaintext.
    pub sc_mult: u64,
    /// Sums of two ciphertexts.
    pub add: u64,
}

impl Counts {
    /// Decompositions as Table VII counts them: those inside of whole permutations too.
    #[must_use]
    pub fn decompositions(&self) -> u64 {
        self.perm + self.dec_perm
    }

    /// Key switches: hoisted ones and those inside of whole permutations.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.perm + self.hst_perm
    }
}

impl Add for Counts {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, o: Self) {
        self.perm += o.perm;
        self.dec_perm += o.dec_perm;
        self.hst_perm += o.hst_perm;
        self.sc_mult += o.sc_mult;
        self.add += o.add;
    }
}

impl Sub for Counts {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self {
            perm: self.perm - o.perm,
            dec_perm: self.dec_perm - o.dec_perm,
            hst_perm: self.hst_perm - o.hst_perm,
            sc_mult: self.sc_mult - o.sc_mult,
            add: self.add - o.add,
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::default(), Add::add)
    }
}

/// Counters of operations that threads share.
#[derive(Debug, Default)]
pub struct Tally([AtomicU64; 5]);

impl Tally {
    /// Counts one more of everything in `c`.
    pub fn note(&self, c: Counts) {
        for (counter, n) in self.0.iter().zip([c.perm, c.dec_perm, c.hst_perm, c.sc_mult, c.add]) {
            if n > 0 {
                counter.fetch_add(n, Ordering::Relaxed);
            }
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn read(&self) -> Counts {
        let [perm, dec_perm, hst_perm, sc_mult, add] =
            [0, 1, 2, 3, 4].map(|i: usize| self.0[i].load(Ordering::Relaxed));
        Counts { perm, dec_perm, hst_perm, sc_mult, add }
    }
}
