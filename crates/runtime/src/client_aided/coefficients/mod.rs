//! Client-aided inference on few images: linear stages of coefficient-packed ciphertexts (`docs/client-aided-image.md`), one module a party.
//!
//! Once a session the server sends the sums of masks, a SetupMask for every stage. Then a stage of a block is a Request and a Response for every tile of
//! every image, numbered image by image.

pub(super) mod client;
pub(super) mod server;

use crate::plan::{CoefficientLayer, Plan, Stage};

/// The stages of this engine with their index in the plan.
pub(super) fn stages(plan: &Plan) -> impl Iterator<Item = (usize, &CoefficientLayer)> {
    plan.stages().iter().enumerate().filter_map(|(i, s)| Some((i, Stage::coefficients(s)?)))
}
