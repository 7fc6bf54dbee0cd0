//! What methods share that pack one image in coefficients under a client's key of [`hushnet_rlwe::packed`]: parameters, and both halves of a stage
//! once the layouts are chosen. No method itself: `cheetah` and `convfhe` stand on it, and add what sets them apart.
//!
//! Masks are numbered by (seed of the image, index of the stage, tile and input block).

pub(super) mod client;
pub(super) mod server;

use super::tiles::Tiled;
use super::{Parameters, Places, Stages};
use hushnet_rlwe::packed::PackedSpec;

/// The layouts of a method's stages.
pub(super) trait Staged: Places + 'static {
    /// The public part of a stage.
    type Stage: Tiled + Send + Sync;

    /// All of them.
    fn stages(&self) -> &Stages<Self::Stage>;
}

/// What the noise of a stage leads to.
///
/// # Errors
/// A sentence when the ring of shares leaves no room for the noise.
pub(super) fn parameters(spec: &PackedSpec) -> Result<Parameters, String> {
    let params = spec.choose().map_err(|e| e.to_string())?;
    Ok(Parameters {
        modulus_bits: params.request_bits(),
        response_bits: params.response_bits(),
        noise_bits: spec.noise().log2(),
        unit_fraction: params.off_by_one_fraction(),
    })
}
