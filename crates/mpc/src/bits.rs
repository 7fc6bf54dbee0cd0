//! Bit planes: bit j of n values, packed 64 to a word; and values packed l bits each for the wire.

use crate::simd;

/// Words that hold n bits.
pub(crate) const fn words(n: usize) -> usize {
    n.div_ceil(64)
}

/// Bytes that hold n bits on the wire.
pub(crate) const fn bytes(n: usize) -> usize {
    n.div_ceil(8)
}

/// Bit `i` of a plane.
pub(crate) fn bit(plane: &[u64], i: usize) -> u64 {
    (plane[i / 64] >> (i % 64)) & 1
}

/// The low `l` bits of the values as `l` planes, plane j holding bit j; bits past the end are zero.
pub(crate) fn to_planes(values: &[u64], l: u32) -> Vec<Vec<u64>> {
    let mut planes = vec![vec![0u64; words(values.len())]; l as usize];
    let mut m = [0u64; 64];
    for (w, chunk) in values.chunks(64).enumerate() {
        m[..chunk.len()].copy_from_slice(chunk);
        m[chunk.len()..].fill(0);
        simd::transpose64(&mut m);
        for (p, &word) in planes.iter_mut().zip(m.iter()) {
            p[w] = word;
        }
    }
    planes
}

/// A plane of n bits as n words of 0 or 1.
pub(crate) fn spread(plane: &[u64], n: usize) -> Vec<u64> {
    (0..n).map(|i| bit(plane, i)).collect()
}

/// Values of `l` bits each, little-endian, value i at bit i*l; appended to `out`.
pub(crate) fn pack(values: &[u64], l: u32, out: &mut Vec<u8>) {
    let end = out.len() + bytes(values.len() * l as usize);
    if l == 64 {
        values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
        return;
    }
    // Neighbours that fit a word together go together.
    match 64 / l {
        1 => pack_groups::<1>(values, l, out),
        2 | 3 => pack_groups::<2>(values, l, out),
        4..=7 => pack_groups::<4>(values, l, out),
        _ => pack_groups::<8>(values, l, out),
    }
    out.truncate(end);
}

fn pack_groups<const N: usize>(values: &[u64], l: u32, out: &mut Vec<u8>) {
    let (mut acc, mut have) = (0u128, 0u32);
    let mut put = |word: u64, bits: u32| {
        acc |= u128::from(word) << have;
        have += bits;
        if have >= 64 {
            out.extend_from_slice(&(acc as u64).to_le_bytes());
            acc >>= 64;
            have -= 64;
        }
    };
    let (groups, rest) = values.as_chunks::<N>();
    for group in groups {
        put(group.iter().rev().fold(0, |word, v| word << (l % 64) | v), N as u32 * l);
    }
    rest.iter().for_each(|&v| put(v, l));
    out.extend_from_slice(&(acc as u64).to_le_bytes());
}

/// The reverse of [`pack`] for `out.len()` values. `data` has exactly the packed length.
pub(crate) fn unpack(data: &[u8], l: u32, out: &mut [u64]) {
    match 64 / l {
        1 => unpack_groups::<1>(data, l, out),
        2 | 3 => unpack_groups::<2>(data, l, out),
        4..=7 => unpack_groups::<4>(data, l, out),
        _ => unpack_groups::<8>(data, l, out),
    }
}

fn unpack_groups<const N: usize>(data: &[u8], l: u32, out: &mut [u64]) {
    let mask = u64::MAX >> (64 - l);
    let (mut acc, mut have) = (0u128, 0u32);
    let mut words = data.chunks(8).map(|c| {
        let mut b = [0u8; 8];
        b[..c.len()].copy_from_slice(c);
        u64::from_le_bytes(b)
    });
    let mut take = |bits: u32| {
        if have < bits {
            acc |= u128::from(words.next().unwrap_or(0)) << have;
            have += 64;
        }
        let word = acc as u64;
        acc >>= bits;
        have -= bits;
        word
    };
    let (groups, rest) = out.as_chunks_mut::<N>();
    for group in groups {
        let word = take(N as u32 * l);
        for (i, o) in group.iter_mut().enumerate() {
            *o = (word >> (i as u32 * l)) & mask;
        }
    }
    rest.iter_mut().for_each(|o| *o = take(l) & mask);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_round_trips() {
        for l in 1..=64u32 {
            for n in [0usize, 1, 7, 63, 64, 65, 129] {
                let v: Vec<u64> = (0..n as u64)
                    .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i << 60)) & (u64::MAX >> (64 - l)))
                    .collect();
                let mut data = vec![7u8];
                pack(&v, l, &mut data);
                assert_eq!(data.len(), 1 + bytes(n * l as usize));
                let mut back = vec![0; n];
                unpack(&data[1..], l, &mut back);
                assert_eq!(v, back);
            }
        }
    }

    #[test]
    fn planes_hold_the_bits() {
        let v: Vec<u64> = (0..131u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let p = to_planes(&v, 64);
        for (i, x) in v.iter().enumerate() {
            for (j, plane) in p.iter().enumerate() {
                assert_eq!(bit(plane, i), (x >> j) & 1);
            }
        }
        assert_eq!(
            spread(&p[3], 5),
            [0, 0, 1, 1, 0]
                .map(|_: u64| 0)
                .iter()
                .enumerate()
                .map(|(i, _)| (v[i] >> 3) & 1)
                .collect::<Vec<_>>()
        );
    }
}
