//! Primal LPN with regular noise: the code and its parameters.
//!
//! Output row i is leaf_i ^ XOR of `WEIGHT` entries of a table of k correlated OTs; the entries are those that a
//! public pseudo-random function names (a local linear code, ten ones per row). The noise is regular: one
//! position in each of t blocks of 2^depth rows.

use crate::block::Block;
use crate::simd::FixedKey;

/// Ones per row of the code.
pub const WEIGHT: usize = 10;

/// (t, k, depth): t noise blocks of 2^depth rows over a table of k = 2^log_k.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LpnParams {
    /// t: trees per iteration, the noise's weight.
    pub trees: u64,
    /// log2 of the table's length k.
    pub log_k: u32,
    /// Depth of a tree; 2^depth rows each.
    pub depth: u32,
}

/// emp-ot's sets, chosen with the LPN estimators for at least 128 bits against Gauss, statistical decoding,
/// BJMM, hybrid and the algebraic attacks on regular noise (Briaud-Oygarden and its 2025 successor).
pub const LPN_10: LpnParams = LpnParams { trees: 850, log_k: 16, depth: 10 };
/// As [`LPN_10`].
pub const LPN_11: LpnParams = LpnParams { trees: 1170, log_k: 17, depth: 11 };
/// As [`LPN_10`].
pub const LPN_12: LpnParams = LpnParams { trees: 1520, log_k: 18, depth: 12 };
/// As [`LPN_10`].
pub const LPN_13: LpnParams = LpnParams { trees: 1900, log_k: 19, depth: 13 };

impl LpnParams {
    /// k.
    pub const fn k(self) -> u64 {
        1 << self.log_k
    }

    /// Rows of a tree.
    pub const fn leaves(self) -> u64 {
        1 << self.depth
    }

    /// Correlated OTs that an iteration consumes: the table and `depth` per tree.
    pub const fn base(self) -> u64 {
        self.k() + self.trees * self.depth as u64
    }

    /// Trees kept back for the next iteration's base.
    pub const fn reserve(self) -> u64 {
        self.base().div_ceil(self.leaves())
    }
}

/// Adds the code's rows of tree `tree` to `rows` (all 2^depth of them).
pub(crate) fn encode(code: &FixedKey, tree: u64, table: &[Block], rows: &mut [Block]) {
    let blocks = (rows.len() * WEIGHT / 4) as u64;
    code.encode(tree * blocks, table, rows);
}

#[cfg(test)]
mod speed {
    use super::*;
    use crate::ot::ggm;

    /// Least nanoseconds per row over many short runs.
    fn least(n: usize, mut f: impl FnMut(u64)) -> f64 {
        let mut best = f64::MAX;
        for rep in 0..300 {
            let t = std::time::Instant::now();
            f(rep);
            best = best.min(t.elapsed().as_nanos() as f64 / n as f64);
        }
        best
    }

    /// `cargo test --release -p hushnet-mpc kernels -- --ignored --nocapture`.
    #[test]
    #[ignore = "prints timings"]
    fn kernels() {
        let (tree, code) = (FixedKey::new(1), FixedKey::new(2));
        for p in [LPN_10, LPN_11, LPN_12, LPN_13] {
            let n = p.leaves() as usize;
            let mut table = vec![0; p.k() as usize];
            crate::Prg::new(3).blocks(&mut table);
            let (mut rows, mut sums) = (vec![0; n], vec![0; p.depth as usize]);
            let full = least(n, |i| ggm::expand(&tree, u128::from(i), 3, &mut rows, &mut sums));
            let punctured = least(n, |i| ggm::expand_punctured(&tree, i, &sums, &mut rows));
            let rest = least(n, |i| encode(&code, i, &table, &mut rows));
            let mut h = 0;
            let planes = least(n, |_| {
                for g in rows.chunks_exact(64) {
                    let x: [u64; 3] = code.planes(g.try_into().unwrap(), 5);
                    h ^= x[0] ^ x[1] ^ x[2];
                }
            });
            println!("k=2^{}: tree {full:.2} punctured {punctured:.2} encode {rest:.2} planes {planes:.2} ns/row {h:x}", p.log_k);
        }
    }
}
