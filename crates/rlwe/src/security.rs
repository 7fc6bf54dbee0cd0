//! The one place where the security level comes from.
//!
//! Largest log2 of the modulus (key-switching primes included) for 128-bit
//! classical security with ternary secrets and error deviation of at least
//! 3.19: Homomorphic Encryption Standard and its 2024 guidelines.

/// `(ring degree, largest log2 q)` at 128 bits.
pub const TABLE_128: [(usize, u32); 7] =
    [(1024, 26), (2048, 53), (4096, 106), (8192, 214), (16384, 430), (32768, 868), (65536, 1747)];

/// Largest log2 q that is 128-bit secure at ring degree `n`; `None` when `n` is not in the table.
#[must_use]
pub fn max_modulus_bits(n: usize) -> Option<u32> {
    TABLE_128.iter().find(|(d, _)| *d == n).map(|(_, b)| *b)
}

/// `(ring degree, largest log2 q)` at 128 bits with an ephemeral secret of at least 32 coefficients +-1 and all others zero
/// (`docs/security`, rows with the secret `sparse 32`): what a bootstrap raises ciphertexts under.
pub const SPARSE_128: [(usize, u32); 1] = [(65536, 100)];

/// Largest log2 q that is 128-bit secure at ring degree `n` with a sparse ephemeral secret; `None` when there is none.
#[must_use]
pub fn max_sparse_modulus_bits(n: usize) -> Option<u32> {
    SPARSE_128.iter().find(|(d, _)| *d == n).map(|(_, b)| *b)
}

/// Whether `(n, log2 q)` reaches 128 bits by the table.
#[must_use]
pub fn is_128_bit(n: usize, modulus_bits: u32) -> bool {
    max_modulus_bits(n).is_some_and(|m| modulus_bits <= m)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_published_one_and_its_edges_hold() {
        let published =
            [(1024, 26), (2048, 53), (4096, 106), (8192, 214), (16384, 430), (32768, 868), (65536, 1747)];
        // No row stands in the table that this list does not hold.
        assert_eq!(TABLE_128, published);
        for (n, bits) in published {
            assert_eq!(max_modulus_bits(n), Some(bits));
            assert!(is_128_bit(n, bits) && !is_128_bit(n, bits + 1));
        }
        for n in [0, 512, 2047, 3000, 131_072] {
            assert!(max_modulus_bits(n).is_none() && !is_128_bit(n, 1));
        }
    }
}
