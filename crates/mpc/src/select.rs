//! Selection by secrets without branches and without addresses that depend on them: masks.
//!
//! `docs/mpc.md` ("Constant time") says what is promised; `make constant-time` checks the compiled code.

use std::hint::black_box;

use crate::block::Block;

/// All ones where a = b, zero elsewhere.
#[inline]
pub(crate) fn equal(a: u64, b: u64) -> u64 {
    let d = a ^ b;
    ((d | d.wrapping_neg()) >> 63).wrapping_sub(1)
}

/// All ones for bit 0 of `bit` set, zero otherwise. The compiler does not learn that there are two values only: it would turn
/// `x & mask` into a branch around the load of x.
#[inline]
pub(crate) fn all(bit: u64) -> u64 {
    black_box((bit & 1).wrapping_neg())
}

/// [`all`] as wide as a block.
#[inline]
pub(crate) fn mask(bit: u64) -> Block {
    let half = all(bit);
    Block::from(half) | Block::from(half) << 64
}

/// [`equal`] as wide as a block.
#[inline]
pub(crate) fn equal_mask(a: u64, b: u64) -> Block {
    mask(equal(a, b))
}

/// `pair[bit]` for bit 0 of `bit`.
#[inline]
pub(crate) fn choose(pair: [Block; 2], bit: u64) -> Block {
    pair[0] ^ ((pair[0] ^ pair[1]) & mask(bit))
}

/// Exchanges the contents of two strings of equal length for bit 0 of `bit` set.
#[inline]
pub(crate) fn swap_bytes(a: &mut [u8], b: &mut [u8], bit: u64) {
    let mask = all(bit) as u8;
    for (a, b) in a.iter_mut().zip(b) {
        let t = (*a ^ *b) & mask;
        *a ^= t;
        *b ^= t;
    }
}

/// The entry of `table` at a secret place, by a pass over all of it; 0 for a place outside.
#[inline]
pub(crate) fn look_up(table: &[u64], place: u64) -> u64 {
    table.iter().enumerate().fold(0, |all, (i, &v)| all | (v & black_box(equal(i as u64, place))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_select() {
        let values = [0, 1, 2, 255, 1 << 63, u64::MAX];
        for a in values {
            for b in values {
                assert_eq!(equal(a, b), if a == b { u64::MAX } else { 0 });
            }
        }
        for bit in 0..2u64 {
            assert_eq!(choose([3, 1 << 100], bit), [3, 1 << 100][bit as usize]);
            let (mut a, mut b) = (*b"one", *b"two");
            swap_bytes(&mut a, &mut b, bit);
            assert_eq!([a, b], if bit == 1 { [*b"two", *b"one"] } else { [*b"one", *b"two"] });
        }
        let table: Vec<u64> = (100..356).collect();
        assert!((0..300).all(|i| look_up(&table, i) == table.get(i as usize).copied().unwrap_or(0)));
    }
}
