//! Primal LPN with regular noise: the code and its parameters.
//!
//! Output row i is leaf_i ^ XOR of one entry from each of `ones` groups of a table of k correlated OTs. A public pseudo-random function names
//! the entries (a local linear code whose rows are partite: a one in each group of columns). The noise is regular, too: one position in each
//! of t blocks of 2^depth rows. Groups make the code fast: rows take their entries from one group after the other, and a group fits the
//! second-level cache.

use crate::block::Block;
use crate::simd::FixedKey;

/// (t, w, log_group, depth): t noise blocks of 2^depth rows over a table of k = w 2^log_group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LpnParams {
    /// t: trees per iteration, the noise's weight.
    pub trees: u64,
    /// w: ones per row of the code, groups of the table.
    pub ones: u64,
    /// log2 of a group's length, at most 16.
    pub log_group: u32,
    /// Depth of a tree; 2^depth rows each.
    pub depth: u32,
}

/// Sets of an iteration: Ferret's construction with regular noise and partite rows. The two smaller sets have nine ones a row and tables of
/// 144 entries a row of a tree, for speed; the two larger ones have fourteen and 112, for few bytes. Local rows admit attacks that a random code does
/// not; `docs/security/README.md` has the estimates of all attacks that we know, 138 bits or more, even for an attacker who is handed the best
/// set of positions. More trees give more OTs an iteration and a bit or two less.
pub(super) const LPN_10: LpnParams = LpnParams { trees: 1600, ones: 9, log_group: 14, depth: 10 };
/// As [`LPN_10`].
pub(super) const LPN_11: LpnParams = LpnParams { trees: 2000, ones: 9, log_group: 15, depth: 11 };
/// As [`LPN_10`].
pub(super) const LPN_12: LpnParams = LpnParams { trees: 2048, ones: 14, log_group: 15, depth: 12 };
/// As [`LPN_10`].
pub(super) const LPN_13: LpnParams = LpnParams { trees: 2400, ones: 14, log_group: 16, depth: 13 };

/// The small iteration that makes `ots` correlated OTs, the first base of a larger one: as many trees as that takes, of the depth that sends
/// less.
pub(super) const fn bootstrap(ots: u64) -> LpnParams {
    let depth = if ots < 1 << 19 { 9 } else { 10 };
    LpnParams { trees: ots.div_ceil(1 << depth), ones: 14, log_group: depth + 3, depth }
}

impl LpnParams {
    /// k.
    #[must_use]
    pub const fn k(self) -> u64 {
        self.ones << self.log_group
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

    /// Adds the code's rows of tree `first` and of those behind it to `rows` (all 2^depth of each). More trees at a time are faster.
    pub(crate) fn encode(self, code: &FixedKey, first: u64, table: &[Block], rows: &mut [Block]) {
        code.encode(first << self.depth, table, self.log_group, rows);
    }
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
        let row =
            |name: String, p: LpnParams| format!("{name},{},{},{},{}", p.trees, p.ones, p.log_group, p.depth);
        let main = sizes.map(|s| row(format!("{s:?}"), s.params()));
        let boot = sizes.map(|s| row(format!("{s:?} bootstrap"), s.bootstrap()));
        let lines = [main, boot].concat();
        assert_eq!(recorded.lines().skip(1).collect::<Vec<_>>(), lines);
    }
}
