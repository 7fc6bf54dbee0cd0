//! The hot kernels: fixed-key AES hashing, plane extraction, bit transposes, the sparse code of the silent OT.
//! Each has a portable version; tests hold the versions equal bit for bit.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use aes::cipher::KeyInit;

use crate::block::Block;

/// Blocks hashed at a time by the callers.
pub(crate) const GROUP: usize = 64;

/// A fixed-key permutation pi = AES-128 and the hash H(x) = pi(s(x)) ^ s(x), s(hi|lo) = (hi ^ lo | hi): circular
/// correlation robust when pi is modelled as a random permutation (Guo, Katz, Wang, Yu 2020, section 7.3).
#[derive(Clone)]
pub(crate) struct FixedKey {
    soft: aes::Aes128,
    #[cfg(target_arch = "x86_64")]
    fast: Option<x86::Key>,
}

impl FixedKey {
    pub fn new(key: Block) -> Self {
        Self {
            soft: aes::Aes128::new(&key.to_le_bytes().into()),
            #[cfg(target_arch = "x86_64")]
            fast: x86::Key::new(key),
        }
    }

    /// A copy that uses the portable path.
    #[cfg(test)]
    pub fn portable(&self) -> Self {
        Self {
            soft: self.soft.clone(),
            #[cfg(target_arch = "x86_64")]
            fast: None,
        }
    }

    /// out[i] = H(input[i] ^ offset).
    pub fn hash(&self, input: &[Block], offset: Block, out: &mut [Block]) {
        debug_assert_eq!(input.len(), out.len());
        #[cfg(target_arch = "x86_64")]
        if let Some(k) = &self.fast {
            return x86::hash(k, input, offset, out);
        }
        portable::hash(&self.soft, input, offset, out);
    }

    /// out[i] = H(input[i] ^ offset, first + 2 i) with the tweakable hash H(x, j) = pi(pi(x) ^ j) ^ pi(x): tweakable circular
    /// correlation robust when pi is modelled as a random permutation (Guo, Katz, Wang, Yu 2020, section 7.4).
    pub fn tweaked(&self, input: &[Block], offset: Block, first: u64, out: &mut [Block]) {
        debug_assert_eq!(input.len(), out.len());
        #[cfg(target_arch = "x86_64")]
        if let Some(k) = &self.fast {
            return x86::tweaked(k, input, offset, first, out);
        }
        portable::tweaked(&self.soft, input, offset, first, out);
    }

    /// One level of a correlated GGM tree: for i < w, left = H(nodes[i]), right = nodes[i] ^ left;
    /// nodes[i] = left, nodes[w+i] = right. Returns the XOR of the left children.
    pub fn grow(&self, nodes: &mut [Block], w: usize) -> Block {
        #[cfg(target_arch = "x86_64")]
        if let Some(k) = &self.fast {
            return x86::grow(k, nodes, w);
        }
        portable::grow(&self.soft, nodes, w)
    }

    /// Up to four bit planes of H(blocks ^ offset): plane 0 bit 127, 1 bit 63, 2 bit 126, 3 bit 62.
    pub fn planes<const P: usize>(&self, blocks: &[Block; GROUP], offset: Block) -> [u64; P] {
        #[cfg(target_arch = "x86_64")]
        if let Some(k) = &self.fast {
            return x86::planes(k, blocks, offset);
        }
        let mut h = [0; GROUP];
        portable::hash(&self.soft, blocks, offset, &mut h);
        std::array::from_fn(|j| portable::extract(&h, if j % 2 == 0 { 127 } else { 63 } - (j as u32) / 2))
    }

    /// Bit 0 of 64 blocks: the choice bits of correlated OTs.
    pub fn choices(&self, blocks: &[Block; GROUP]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if let Some(k) = &self.fast {
            return x86::low_bits(k, blocks);
        }
        portable::extract(blocks, 0)
    }

    /// Rows of a sparse code: XORs into row i the ten entries of `table` (a power of two long) that the 32-bit words
    /// 10i..10i+10 of the stream pi(first), pi(first + 1), ... name: word >> 4 modulo the table's length.
    /// `rows` is a multiple of 32 long.
    pub fn encode(&self, first: u64, table: &[Block], rows: &mut [Block]) {
        debug_assert!(table.len().is_power_of_two() && rows.len().is_multiple_of(32));
        #[cfg(target_arch = "x86_64")]
        if let Some(k) = &self.fast {
            return x86::encode(k, first, table, rows);
        }
        portable::encode(&self.soft, first, table, rows);
    }
}

/// Transposes 64x64 bits in place: bit j of word i becomes bit i of word j.
pub(crate) fn transpose64(m: &mut [u64; 64]) {
    #[cfg(target_arch = "x86_64")]
    if x86::transpose64(m) {
        return;
    }
    portable::transpose64(m);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Prg;

    fn random(n: usize, seed: u128) -> Vec<Block> {
        let mut v = vec![0; n];
        Prg::new(seed).blocks(&mut v);
        v
    }

    #[test]
    fn fixed_key_permutation_is_aes() {
        // FIPS 197, appendix C.1.
        let key = u128::from_le_bytes(std::array::from_fn(|i| i as u8));
        let plain = u128::from_le_bytes(std::array::from_fn(|i| (i * 0x11) as u8));
        let cipher =
            [0x69, 0xc4, 0xe0, 0xd8, 0x6a, 0x7b, 0x04, 0x30, 0xd8, 0xcd, 0xb7, 0x80, 0x70, 0xb4, 0xc5, 0x5a];
        let k = FixedKey::new(key);
        // The x whose s(x) is the plaintext.
        let x = (plain << 64) | (plain ^ plain >> 64) as u64 as u128;
        for k in [k.portable(), k] {
            let mut out = [0; 1];
            k.hash(&[x ^ 9], 9, &mut out);
            assert_eq!((out[0] ^ plain).to_le_bytes(), cipher);
        }
    }

    #[test]
    fn paths_agree() {
        let k = FixedKey::new(0x1234_5678_9abc_def0_0fed_cba9_8765_4321);
        let p = k.portable();
        for n in [0, 1, 3, 4, 5, 31, 32, 33, 64, 131] {
            let x = random(n, 1);
            let (mut a, mut b) = (vec![0; n], vec![0; n]);
            k.hash(&x, 77, &mut a);
            p.hash(&x, 77, &mut b);
            assert_eq!(a, b);
            k.tweaked(&x, 99, 5, &mut a);
            p.tweaked(&x, 99, 5, &mut b);
            assert_eq!(a, b);
            let mut a = random(2 * n, 3);
            let mut b = a.clone();
            assert_eq!(k.grow(&mut a, n), p.grow(&mut b, n));
            assert_eq!(a, b);
        }
        let x: [Block; GROUP] = random(GROUP, 2).try_into().unwrap();
        assert_eq!(k.planes::<4>(&x, 5), p.planes::<4>(&x, 5));
        assert_eq!(k.planes::<1>(&x, 0), p.planes::<1>(&x, 0));
        assert_eq!(k.choices(&x), p.choices(&x));
        let mut m: [u64; 64] = std::array::from_fn(|i| x[i] as u64);
        let mut m2 = m;
        let before = m;
        transpose64(&mut m);
        portable::transpose64(&mut m2);
        assert_eq!(m, m2);
        for (j, row) in m.iter().enumerate() {
            for (i, old) in before.iter().enumerate() {
                assert_eq!((row >> i) & 1, (old >> j) & 1);
            }
        }
    }

    #[test]
    fn code_paths_agree() {
        let k = FixedKey::new(31);
        let table = random(1 << 9, 4);
        let (mut a, mut b) = (random(96, 6), random(96, 6));
        k.encode(12345, &table, &mut a);
        k.portable().encode(12345, &table, &mut b);
        assert_eq!(a, b);
        // Rows are those of the definition.
        let mut stream = vec![0; 240];
        portable::counter(&k.soft, 12345, &mut stream);
        for (i, (row, start)) in a.iter().zip(random(96, 6)).enumerate() {
            let word = |j: usize| (stream[j / 4] >> (32 * (j % 4))) as u32;
            let sum = (10 * i..10 * i + 10).fold(start, |s, j| s ^ table[(word(j) >> 4) as usize % 512]);
            assert_eq!(*row, sum);
        }
    }
}
