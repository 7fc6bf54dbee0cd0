//! Linear layers on shares without rotation, one polynomial a ciphertext (Akherati, Zhang; `docs/rotation-free.md`). The
//! cryptography, its bounds and what each party sees: [`hushnet_rlwe::one_poly`]; the places: [`crate::layout::Layout`].
//!
//! Set-up, once for a model (the same for every client): the client collects [`RotationFreeLinear::setup_poly`] into a [`Setup`], which can be
//! stored and continued. Before an input is known: [`RotationFreeClient::prepare`] and [`RotationFreeLinear::share`]. Then, tile by
//! tile, [`RotationFreeClient::request`] -> [`RotationFreeLinear::answer`] -> [`RotationFreeClient::open`]. Both parties then hold shares
//! of the layer modulo 2^l that sum to it, one unit off in the fraction that [`hushnet_rlwe::one_poly::OnePolySpec::off_by_one_fraction`] states.
//! Operations and bytes: exactly [`Design::cost`].

mod client;
mod design;
mod server;
mod setup;

pub use client::{Prepared, RotationFreeClient};
pub use design::{Design, MethodCost, WeightBounds, DEFAULT_PRICES, DEGREES};
pub use hushnet_rlwe::one_poly::{Profile, TallyCounts};
pub use server::{RotationFreeLinear, ServerShare};
pub use setup::Setup;

#[cfg(test)]
mod tests;
