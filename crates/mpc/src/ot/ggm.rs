//! Correlated GGM trees (Guo, Yang, Wang, Zhang, Xie, Liu, Zhao, "Half-Tree", 2023, figure 3).
//!
//! Level 1 is (k, k ^ Delta); below, left = H(parent) and right = parent ^ left, so that every level XORs to
//! Delta. With one correlated OT per level the receiver learns all leaves but the one whose path its choice
//! bits avoid, and from "the leaves XOR to Delta" it gets leaf ^ Delta there. Leaves lie in bit-reversed order:
//! the child taken at level i adds 2^(i-1) when it is the right one.

use crate::block::Block;
use crate::simd::FixedKey;

use super::CLEAR;

/// Expands the sender's tree into `leaves` (2^depth of them, bit 0 cleared) and writes the XOR of the left
/// nodes of each level to `sums` (depth of them).
pub(crate) fn expand(h: &FixedKey, root: Block, delta: Block, leaves: &mut [Block], sums: &mut [Block]) {
    leaves[0] = root;
    leaves[1] = root ^ delta;
    sums[0] = root;
    for (level, sum) in sums.iter_mut().enumerate().skip(1) {
        *sum = h.grow(leaves, 1 << level);
    }
    leaves.iter_mut().for_each(|l| *l &= CLEAR);
}

/// Expands the receiver's tree: `sums[i]` is the XOR of the level's nodes on the side that bit i of `sides`
/// names; the path takes the other side. The leaf on the path comes out as leaf ^ Delta, bit 0 set.
pub(crate) fn expand_punctured(h: &FixedKey, sides: u64, sums: &[Block], leaves: &mut [Block]) {
    let side = |level: usize| (sides >> level) as usize & 1;
    let mut hole = 1 - side(0);
    leaves[1 - hole] = sums[0];
    leaves[hole] = 0;
    let mut total = sums[0];
    for (level, &sum) in sums.iter().enumerate().skip(1) {
        let w = 1 << level;
        let left = h.grow(leaves, w);
        // What grew under the hole is noise: take it out again.
        let junk = leaves[hole];
        let left = left ^ junk;
        // Right nodes are parent ^ left, so they XOR to (all known parents) ^ left.
        let known = if side(level) == 0 { left } else { total ^ left };
        let sibling = sum ^ known;
        total ^= sibling;
        leaves[hole + side(level) * w] = sibling;
        hole += (1 - side(level)) * w;
        leaves[hole] = 0;
    }
    let mut all = 0;
    for l in leaves.iter_mut() {
        *l &= CLEAR;
        all ^= *l;
    }
    leaves[hole] = all | 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctured_tree_misses_one_leaf() {
        let h = FixedKey::new(99);
        let delta = 0x1357_9bdf_0246_8ace_1122_3344_5566_7789;
        for depth in 1..=7usize {
            for path in 0..1usize << depth {
                let mut full = vec![0; 1 << depth];
                let mut sums = vec![0; depth];
                expand(&h, 42, delta, &mut full, &mut sums);
                let sides = !(path as u64);
                let given: Vec<Block> = sums
                    .iter()
                    .enumerate()
                    .map(|(i, s)| if sides >> i & 1 == 1 { s ^ delta } else { *s })
                    .collect();
                let mut got = vec![0; 1 << depth];
                expand_punctured(&h, sides, &given, &mut got);
                for (i, (f, g)) in full.iter().zip(&got).enumerate() {
                    assert_eq!(f & 1, 0);
                    assert_eq!(
                        *g,
                        if i == path { f ^ delta } else { *f },
                        "depth {depth} path {path} leaf {i}"
                    );
                }
            }
        }
    }
}
