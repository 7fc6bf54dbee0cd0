//! Primal LPN with regular noise: the code and its parameters.
//!
//! Output row i is leaf_i ^ XOR of `WEIGHT` entries of a table of k correlated OTs; the entries are those that a
//! public pseudo-random function names (a local linear code, ten ones per row). The noise is regular: one
//! position in each of t blocks of 2^depth rows.

use crate::block::Block;
use crate::simd::FixedKey;

/// Ones per row of the code.
pub(super) const WEIGHT: usize = 10;

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

/// emp-ot's sets, chosen with the LPN estimators for about 128 bits on a random code against Gauss, statistical decoding,
/// BJMM, hybrid and the algebraic attacks on regular noise (Briaud-Oygarden and its 2025 successor). Rows with ten ones admit
/// more: `docs/security/README.md` has our own estimates.
pub(super) const LPN_10: LpnParams = LpnParams { trees: 850, log_k: 16, depth: 10 };
/// As [`LPN_10`].
pub(super) const LPN_11: LpnParams = LpnParams { trees: 1170, log_k: 17, depth: 11 };
/// As [`LPN_10`].
pub(super) const LPN_12: LpnParams = LpnParams { trees: 1520, log_k: 18, depth: 12 };
/// As [`LPN_10`].
pub(super) const LPN_13: LpnParams = LpnParams { trees: 1900, log_k: 19, depth: 13 };

impl LpnParams {
    /// k.
    #[must_use]
    pub const fn k(self) -> u64 {
        1 << self.log_k
    }

    /// Rows of a tree.
    #[must_use]
    pub const fn leaves(self) -> u64 {
        1 << self.depth
    }

    /// Correlated OTs that an iteration consumes: the table and `depth` per tree.
    #[must_use]
    pub const fn base(self) -> u64 {
        self.k() + self.trees * self.depth as u64
    }

    /// Trees kept back for the next iteration's base.
    #[must_use]
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
mod tests {
    use super::*;

    /// `docs/security/lpn.csv` has estimates for these sets and no others (a test of the Python package recomputes them).
    #[test]
    fn the_documents_cover_every_set() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security/lpn-sets.csv");
        let recorded = std::fs::read_to_string(path).unwrap();
        let sets = [("Tiny", LPN_10), ("Small", LPN_11), ("Medium", LPN_12), ("Large", LPN_13)];
        let row = |(name, p): (&str, LpnParams)| format!("{name},{},{},{}", p.trees, p.log_k, p.depth);
        let lines: Vec<String> = sets.map(row).into();
        assert_eq!(recorded.lines().skip(1).collect::<Vec<_>>(), lines);
    }
}
