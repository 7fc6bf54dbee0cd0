//! What the server does to ciphertext words besides linear combinations. It holds no keys.

use crate::batch::BatchStageParams;
use crate::CipherError;
use hushnet_ring::{kernels, simd};

/// Adds `2^d bias` to the words of `c0`, modulo 2^k: every image's output gets the bias.
pub fn add_bias(p: &BatchStageParams, bias: i64, c0: &mut [u64]) {
    let constant = (bias as u64) << p.delta_bits();
    kernels::add_constant(simd::isa(), c0, constant, p.modulus_bits());
}

/// Rounds the low `u` bits of words modulo 2^k away, in place: an exact modulus switch to 2^(k-u), which
/// adds at most 2^(u-1) to the noise of what it is applied to.
///
/// # Errors
/// [`CipherError::Ring`] unless `k` is 1 to 64 and `u < k`.
pub fn drop_bits(words: &mut [u64], u: u32, k: u32) -> Result<(), CipherError> {
    Ok(kernels::drop_bits(simd::isa(), words, u, k)?)
}
