//! Bit planes: bit j of n values, packed 64 to a word; and values packed l bits each for the wire.

use hushnet_ring::{pack, RingError};

use crate::error::{MpcError, Result};
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
pub(crate) fn pack(values: &[u64], l: u32, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    out.resize(start + bytes(values.len() * l as usize), 0);
    pack::pack(values, l, &mut out[start..]).map_err(|e| refused(e, l))
}

/// The reverse of [`pack`] for `out.len()` values. `data` has exactly the packed length.
pub(crate) fn unpack(data: &[u8], l: u32, out: &mut [u64]) -> Result<()> {
    pack::unpack(data, l, out).map_err(|e| refused(e, l))
}

/// Widths and lengths are checked before words are packed, so this is a fault of this crate.
#[cold]
pub(crate) fn refused(error: RingError, bits: u32) -> MpcError {
    match error {
        RingError::Length { what, expected, got } => MpcError::Length { what, expected, got },
        _ => MpcError::RingWidth { bits, min: 1 },
    }
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
                pack(&v, l, &mut data).unwrap();
                assert_eq!(data.len(), 1 + bytes(n * l as usize));
                for (i, v) in v.iter().enumerate() {
                    for at in 0..l as usize {
                        let place = i * l as usize + at;
                        let sent = u64::from(data[1 + place / 8] >> (place % 8) & 1);
                        assert_eq!(sent, v >> at & 1, "bit {at} of value {i} of {l} bits");
                    }
                }
                let mut back = vec![0; n];
                unpack(&data[1..], l, &mut back).unwrap();
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
