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

/// Sets of an iteration: Ferret's construction with regular noise and rows of ten ones, with tables of 2^7 entries a row of a tree. Rows with
/// ten ones admit attacks that a random code does not; `docs/security/README.md` has the estimates of all attacks that we know, 133 bits or
/// more, even for an attacker who is handed the best set of positions. Fewer trees would be no safer by much and give fewer OTs an iteration.
pub(super) const LPN_10: LpnParams = LpnParams { trees: 1400, log_k: 17, depth: 10 };
/// As [`LPN_10`].
pub(super) const LPN_11: LpnParams = LpnParams { trees: 1600, log_k: 18, depth: 11 };
/// As [`LPN_10`].
pub(super) const LPN_12: LpnParams = LpnParams { trees: 2048, log_k: 19, depth: 12 };
/// As [`LPN_10`].
pub(super) const LPN_13: LpnParams = LpnParams { trees: 2400, log_k: 20, depth: 13 };

/// The small iteration that makes `ots` correlated OTs, the first base of a larger one: as many trees as that takes, of the depth that sends
/// less.
pub(super) const fn bootstrap(ots: u64) -> LpnParams {
    let depth = if ots < 1 << 20 { 9 } else { 10 };
    LpnParams { trees: ots.div_ceil(1 << depth), log_k: depth + 7, depth }
}

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
    use crate::ot::ledger::SilentSize;

    /// `docs/security/lpn.csv` has estimates for these sets and no others (a test of the Python package recomputes them).
    #[test]
    fn the_documents_cover_every_set() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security/lpn-sets.csv");
        let recorded = std::fs::read_to_string(path).unwrap();
        let sizes = [SilentSize::Tiny, SilentSize::Small, SilentSize::Medium, SilentSize::Large];
        let row = |name: String, p: LpnParams| format!("{name},{},{},{}", p.trees, p.log_k, p.depth);
        let main = sizes.map(|s| row(format!("{s:?}"), s.params()));
        let boot = sizes.map(|s| row(format!("{s:?} bootstrap"), s.bootstrap()));
        let lines = [main, boot].concat();
        assert_eq!(recorded.lines().skip(1).collect::<Vec<_>>(), lines);
    }
}
