//! Polynomials modulo a product of word-sized primes (residue number system).
//!
//! An [`RnsBasis`] fixes the ring degree N and an ordered list of primes `q_i = 1 mod 2N` below 2^50. An
//! [`RnsPoly`] holds one residue polynomial ("limb", N words) for each prime of a contiguous range of the
//! basis, either as coefficients ([`Coef`]) or as slot values of the number-theoretic transform ([`Eval`]);
//! the form is part of the type. Operands may carry more limbs than the result: operations read the limbs
//! that the result has, so a polynomial of a high level serves at every lower one.
//!
//! Slots of [`Eval`] follow [`crate::Ntt::slot_exponent`]. Residues are canonical (in `[0, q)`) at every
//! interface, and all SIMD paths return the same bits.

mod automorphism;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod basis;
mod buffer;
mod convert;
mod divide;
mod error;
#[cfg(target_arch = "x86_64")]
mod ifma;
#[macro_use]
mod kernels;
mod lanes;
mod modulus;
#[cfg(target_arch = "x86_64")]
mod narrow;
mod ops;
mod plain_sums;
mod poly;
#[cfg(target_family = "wasm")]
mod relaxed;
mod sample;
mod sums;

pub use automorphism::Automorphism;
pub use basis::RnsBasis;
pub use buffer::{leave_buffers, release_buffers};
pub use convert::{switch_digits, switch_limbs, BaseConverter, Digit};
pub use divide::Divider;
pub use error::RnsError;
pub use modulus::{Factor, Modulus, MAX_RNS_PRIME_BITS};
pub use plain_sums::{PlainTerms, MOST_GAP, TILE};
pub use poly::{Coef, Eval, Form, RnsPoly};
pub use sample::{uniform_limb, uniform_limb_of, Draws};
pub use sums::Added;

#[cfg(test)]
mod tests;
