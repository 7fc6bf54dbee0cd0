//! Coefficient-packed linear layers for a client that may see every result (`docs/client-aided-image.md`): the layout of Cheetah (Huang,
//! Lu, Hong, Ding, USENIX Security 2022) without shares, masks of answers and re-randomisation.
//!
//! A tile of one image travels as `c0 = -(a s) + e + D m` modulo one prime p < 2^50, without its low bits. The server multiplies by weight
//! polynomials, adds biases, and returns those coefficients of c0 that hold results, again without low bits. The public polynomials `a` come from the
//! seed of the session, and are the same for every tile of every image: each tile has a secret of its own instead. So the sums
//! `sum_i w_i a_i`, the second parts of all answers, do not depend on the image. They travel once a session ([`CoefficientKey::open`] takes
//! them in evaluation form).
//!
//! **Security.** The server sees ring-LWE samples of several secrets under the same public polynomials: a hybrid argument over the secrets loses a factor of
//! their number (Peikert, Vaikuntanathan, Waters, CRYPTO 2008), as the batch engine's shared masks do. Dropping low bits works on what is sent.
//! **What the client sees**: the sums of `a` whole but for the bits that their rounding drops, linear in the weights, and the phases of
//! the sent coefficients, with noise that is linear in the weights, too. This is for `client-aided` only, where the client can solve for the weights.

mod client;
mod params;
mod server;

pub use client::{lift_masks, CoefficientKey, CoefficientScratch};
pub use params::{CoefficientBits, CoefficientParams, CoefficientSpec, Travel, LEAST_PRIME};
pub use server::{bias, combine, lift_request, round_answer, round_masks};

#[cfg(test)]
mod tests;
