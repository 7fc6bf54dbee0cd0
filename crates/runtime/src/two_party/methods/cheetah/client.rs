//! The client's side of `cheetah` stages: key, requests, opening.

use super::super::coefficients::client::{fresh_seed, CoefficientSecret};
use super::super::{ClientHalf, Opening};
use super::Layout;
use crate::error::Error;
use hushnet_rlwe::packed::PackedClient;
use std::sync::Arc;

/// Makes a key and sends its public part.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let key = PackedClient::generate(&layout.context, opening.prg)?;
    let seed = fresh_seed(opening.prg);
    opening.channel.send(&key.public_key(&seed, opening.prg)?.to_bytes()?)?;
    opening.channel.flush()?;
    Ok(Box::new(CoefficientSecret { layout, key }))
}
