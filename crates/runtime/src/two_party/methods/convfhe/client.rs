//! The client's side of `convfhe` stages: keys, requests, opening.

use super::super::coefficients::client::{fresh_seed, CoefficientSecret};
use super::super::{ClientHalf, Opening};
use super::Layout;
use crate::error::Error;
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::PackedClient;
use std::sync::Arc;

/// Makes a key; sends its public part, then merging keys.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let (context, prg) = (&layout.context, &mut *opening.prg);
    let key = PackedClient::generate(context.packed(), prg)?;
    let (seed, merge_seed) = (fresh_seed(prg), fresh_seed(prg));
    let mut message = key.public_key(&seed, prg)?.to_bytes()?;
    message.extend(opening.compute.run(|| {
        MergeKeys::for_client(context.merge(), &key, layout.spacing, &merge_seed, prg)?.to_bytes()
    })?);
    opening.channel.send(&message)?;
    opening.channel.flush()?;
    Ok(Box::new(CoefficientSecret { layout, key }))
}
