//! Polynomial rings `Z_q[X]/(X^N+1)`: number-theoretic transforms, exact products modulo powers of
//! two, samplers, bit packing and the SIMD dispatch that the other crates share. Knows nothing of
//! encryption.
//!
//! Every kernel has one portable definition; the SIMD paths return the same bits.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod aes128;
pub mod aligned;
#[cfg(any(test, all(target_arch = "wasm32", target_feature = "simd128")))]
mod bitslice;
mod chacha;
pub mod clock;
#[cfg(any(test, target_family = "wasm"))]
mod complex;
pub mod error;
pub mod exact;
pub mod kernels;
pub mod ledger;
pub mod mac;
pub mod ntt;
pub mod pack;
pub mod prg;
pub mod prime;
pub mod rns;
pub mod sample;
pub mod secret;
pub mod simd;
#[cfg(target_arch = "x86_64")]
mod vaes;
mod wipe;

pub use aligned::AlignedWords;
pub use error::RingError;
pub use exact::{ExactMultiplier, MulScratch, SmallHat, WordsHat};
pub use ntt::{Ntt, Ring};
pub use prg::Prg;
pub use simd::Isa;
pub use wipe::wipe;

/// The low `k` bits set, `k` in `0..=64`.
#[inline]
#[must_use]
pub const fn low_mask(k: u32) -> u64 {
    if k >= 64 {
        u64::MAX
    } else {
        (1 << k) - 1
    }
}
