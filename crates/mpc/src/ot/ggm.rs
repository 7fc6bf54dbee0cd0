//! Correlated GGM trees (Guo, Yang, Wang, Zhang, Xie, Liu, Zhao, "Half-Tree", 2023, figure 3).
//!
//! Level 1 is (k, k ^ Delta); below, left = H(parent) and right = parent ^ left, so that every level XORs to
//! Delta. With one correlated OT per level the receiver learns all leaves but the one whose path its choice
//! bits avoid, and from "the leaves XOR to Delta" it gets leaf ^ Delta there. Leaves lie in bit-reversed order:
//! the child taken at level i adds 2^(i-1) when it is the right one.

use crate::block::{Block, CLEAR};
use crate::select::{choose, mask};
use crate::simd::FixedKey;

/// Expands the sender's tree into `leaves` (2^depth of them, bit 0 cleared) and writes the XOR of the left
/// nodes of each level to `sums` (depth of them).
pub(crate) fn expand(h: &FixedKey, root: Block, delta: Block, leaves: &mut [Block], sums: &mut [Block]) {
    leaves[0] = root;
    leaves[1] = root ^ delta;
    sums[0] = root;
    for (level, sum) in sums.iter_mut().enumerate().skip(1) {
        *sum = h.grow(leaves, 1 << level);
    }
    h.seal(leaves, u64::MAX, 0);
}

/// The `sums` that [`expand`] writes, of a tree whose leaves nobody needs. `nodes` is room for 2^(depth - 1) of them, at least two.
pub(crate) fn level_sums(h: &FixedKey, root: Block, delta: Block, nodes: &mut [Block], sums: &mut [Block]) {
    (nodes[0], nodes[1]) = (root, root ^ delta);
    sums[0] = root;
    let depth = sums.len();
    for (level, sum) in sums.iter_mut().enumerate().skip(1) {
        *sum = if level + 1 < depth { h.grow(nodes, 1 << level) } else { h.lefts(&nodes[..1 << level]) };
    }
}

/// Expands the receiver's tree: `sums[i]` is the XOR of the level's nodes on the side that bit i of `sides`
/// names; the path takes the other side. The leaf on the path comes out as leaf ^ Delta, bit 0 set.
///
/// The path is secret (it names the noise of the LPN sample). So what lies on it is grown like everything else, from junk that is known;
/// the sibling on each level is put right while the next level reads it, and no address depends on the path.
pub(crate) fn expand_punctured(h: &FixedKey, sides: u64, sums: &[Block], leaves: &mut [Block]) {
    let left = mask(sides ^ 1);
    // The node on the path: its place and the junk in it; then the correction of the sibling: its place and what it XORs.
    let (mut hole, mut junk) = (1 ^ (sides & 1), 0);
    let (mut at, mut patch) = (sides & 1, 0);
    (leaves[0], leaves[1]) = (sums[0] & left, sums[0] & !left);
    // The XOR of all known nodes.
    let mut total = sums[0];
    for (level, &sum) in sums.iter().enumerate().skip(1) {
        let w = 1u64 << level;
        let side = sides >> level & 1;
        let grown = h.grow_patched(leaves, w as usize, at, patch);
        // The hole's left child; the right one is its XOR with the junk.
        let mut child = [0];
        h.hash(&[junk], 0, &mut child);
        let children = [child[0], child[0] ^ junk];
        // Right nodes are parent ^ left, so they XOR to (all known parents) ^ left.
        let known = grown ^ children[0];
        let sibling = sum ^ choose([known, total ^ known], side);
        total ^= sibling;
        (at, patch) = (hole + side * w, sibling ^ choose(children, side));
        (hole, junk) = (hole + (1 - side) * w, choose(children, 1 - side));
    }
    // What the hole gets on top of its junk so that all leaves XOR to Delta; the sibling's correction is still due.
    let (missing, patch) = ((total & CLEAR | 1) ^ (junk & CLEAR), patch & CLEAR);
    let w = leaves.len() / 2;
    let in_high = hole / w as u64;
    let (low, high) = leaves.split_at_mut(w);
    h.seal(low, hole % w as u64, choose([missing, patch], in_high));
    h.seal(high, hole % w as u64, choose([patch, missing], in_high));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punctured_tree_misses_one_leaf() {
        let h = FixedKey::new(99);
        let delta = 0x1357_9bdf_0246_8ace_1122_3344_5566_7789;
        for depth in 1..=9usize {
            for path in 0..1usize << depth {
                let mut full = vec![0; 1 << depth];
                let mut sums = vec![0; depth];
                expand(&h, 42, delta, &mut full, &mut sums);
                let (mut room, mut alone) = (vec![0; full.len().div_ceil(2).max(2)], vec![0; depth]);
                level_sums(&h, 42, delta, &mut room, &mut alone);
                assert_eq!(alone, sums, "depth {depth}");
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
