//! A record of every mask, pad, seed and key stream at the moment that it is used, for tests that no one of them is used twice
//! (`docs/mpc.md`, "Every mask is used once").
//!
//! Without the cargo feature `ledger` every function here is empty and inlined, and [`Tag`] and [`Stream`] have no size, so
//! that nothing of it is in the product. The package of Python bindings refuses to be built with the feature.
//!
//! Identities are 128 bits of a salted SHA-256: no secret is kept in clear. There are four kinds of record:
//! - [`once`], [`words`], [`blocks`], [`bytes`], [`vector`], [`small`]: an identity that must never come again;
//! - [`Stream::take`]: counters `first..first + count` of one keyed generator, which must not overlap any others of the same key;
//! - [`same`]: an identity that may come again with the same content only (a message that is made anew from its seed).
//!
//! Functions that take `&mut` are also where a test plants a failure: the value is then replaced by the one before it.

#[cfg(not(feature = "ledger"))]
mod off;
#[cfg(feature = "ledger")]
mod on;

#[cfg(not(feature = "ledger"))]
pub use off::*;
#[cfg(feature = "ledger")]
pub use on::*;

/// Whether this build records uses; only the tests of masks do.
pub const ON: bool = cfg!(feature = "ledger");

/// What an identity is used for; identities of different kinds do not collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub &'static str);

/// Seeds that the operating system gave.
pub const ENTROPY: Kind = Kind("entropy");
/// Counter blocks of a party's own generators.
pub const GENERATOR: Kind = Kind("generator");
