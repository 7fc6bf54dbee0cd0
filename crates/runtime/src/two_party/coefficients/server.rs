//! The server's side of `rotation-free` and `convfhe` stages: weights, set-ups, answers.

use super::{internal, setup_seed, Job, Layers, Places};
use crate::compute::Compute;
use crate::error::{Error, ProtocolError};
use crate::plan::PlanError;
use crate::two_party::plan::{Kind, TwoPartyPlan};
use crate::two_party::{layer_error, peer_words};
use hushnet_layers::convfhe::{ConvFheLinear, ConvFheSession, RING_DEGREE};
use hushnet_layers::rotation_free::RotationFreeLinear;
use hushnet_mpc::Channel;
use hushnet_ring::{pack, Prg};
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::{PackedPublicKey, PackedServer, PRIME_BITS};

/// The prepared weights of one stage.
pub(in crate::two_party) enum Prepared {
    RotationFree(Box<RotationFreeLinear>),
    ConvFhe(Box<ConvFheLinear>),
}

/// What a server holds of a session.
pub(in crate::two_party) struct ServerState {
    convfhe: Option<ConvFheSession>,
    /// Bytes of set-ups that needed not be sent.
    pub(in crate::two_party) held: usize,
}

impl Layers {
    /// The server's part of the set-up.
    pub(in crate::two_party) fn serve(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        prepared: &[Option<Prepared>],
    ) -> Result<ServerState, Error> {
        let mut session = None;
        if let Some(context) = &self.convfhe {
            let mut message = vec![0; self.keys_len()];
            channel.recv(&mut message)?;
            let (head, rest) = message.split_at(32 + pack::packed_len(RING_DEGREE, PRIME_BITS));
            let mut seed = [0; 32];
            seed.copy_from_slice(&head[..32]);
            let mut pk0 = vec![0; RING_DEGREE];
            pack::unpack(&head[32..], PRIME_BITS, &mut pk0)?;
            let server = PackedServer::new(context.packed(), &seed, &PackedPublicKey { pk0 })
                .map_err(|e| peer_words(&e))?;
            let keys =
                MergeKeys::from_bytes(context.merge(), self.spacing, rest).map_err(|e| peer_words(&e))?;
            session = Some(ConvFheSession::new(server, keys));
        }
        let held = self.distribute(channel, compute, prepared)?;
        Ok(ServerState { convfhe: session, held })
    }

    /// Sends the set-ups of all rotation-free stages but what the client holds; returns the bytes of that.
    fn distribute(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        prepared: &[Option<Prepared>],
    ) -> Result<usize, Error> {
        let layers: Vec<&RotationFreeLinear> = prepared
            .iter()
            .flatten()
            .filter_map(|p| if let Prepared::RotationFree(linear) = p { Some(&**linear) } else { None })
            .collect();
        if layers.is_empty() {
            return Ok(0);
        }
        let mut answer = vec![0; 4 * layers.len()];
        channel.recv(&mut answer)?;
        let mut held = 0;
        for (linear, count) in layers.iter().zip(answer.chunks_exact(4)) {
            let count = count.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
            let polys = linear.design().layout().cost().weight_polys;
            if count > polys {
                let detail = format!("the client says that it holds {count} polynomials of {polys}");
                return Err(ProtocolError::Message { kind: "set-up of a linear stage", detail }.into());
            }
            held += count * linear.design().setup_poly_len();
            for k in count..polys {
                channel.send(&compute.run(|| linear.setup_poly(k))?)?;
            }
        }
        channel.flush()?;
        Ok(held)
    }

    /// The server's side of a stage: answers tiles as they come; its share of the output tensors.
    pub(in crate::two_party) fn answer(
        &self,
        channel: &mut dyn Channel,
        prepared: &Prepared,
        state: &ServerState,
        job: &Job<'_>,
    ) -> Result<Vec<u64>, Error> {
        let stage = self.stage(job.index)?;
        let (inputs, outputs) = stage.lengths();
        let mut own = vec![0; outputs * job.seeds.len()];
        let mut request = vec![0; stage.request_len()];
        let images = job.seeds.iter().zip(job.share.chunks_exact(inputs)).zip(own.chunks_exact_mut(outputs));
        for ((seed, share), own) in images {
            for tile in 0..stage.tiles() {
                let answer = match prepared {
                    Prepared::RotationFree(linear) => {
                        let ready = job.compute.run(|| linear.share(tile, share)).map_err(layer_error)?;
                        channel.recv(&mut request)?;
                        job.compute.run(|| linear.answer(tile, &ready, &request, own))
                    }
                    Prepared::ConvFhe(linear) => {
                        let session = state
                            .convfhe
                            .as_ref()
                            .ok_or_else(|| internal("a session has no merging keys"))?;
                        channel.recv(&mut request)?;
                        let stage = job.index as u32;
                        job.compute.run(|| linear.answer(session, seed, stage, tile, &request, share, own))
                    }
                };
                channel.send(&answer.map_err(layer_error)?)?;
                channel.flush()?;
            }
        }
        Ok(own)
    }

    /// Prepares the weights of all stages of both methods: in evaluation form where `keep` says so, else transformed as they are needed.
    /// The digest is that of the public plan that clients receive.
    pub(in crate::two_party) fn prepare(
        &self,
        plan: &TwoPartyPlan,
        keep: &[bool],
        plan_digest: &[u8; 32],
    ) -> Result<Vec<Option<Prepared>>, Error> {
        let bits = plan.ring().bits();
        let mut out = Vec::with_capacity(plan.stages().len());
        for (index, ((stage, places), keep)) in plan.stages().iter().zip(&self.stages).zip(keep).enumerate() {
            let (Kind::Linear(l), Some(places)) = (&stage.kind, places) else {
                out.push(None);
                continue;
            };
            let missing = || PlanError::Structure("a linear stage has no weights".into());
            let weights = l.weights.as_ref().ok_or_else(missing)?;
            let words: &[i16] = &weights.weights.to_i16();
            let layout = match places {
                Places::RotationFree(d) => d.layout(),
                Places::ConvFhe(c) => c.design().layout(),
            };
            if layout.weight_len() == words.len() && (layout.weight_norm2(words) as f64).sqrt() > l.weight_l2
            {
                let detail = format!(
                    "weight_l2 {} is below the norm of the weights; the plan is wrong, compile the model again",
                    l.weight_l2
                );
                return Err(PlanError::Linear { stage: stage.name.clone(), detail }.into());
            }
            out.push(Some(match (places, &self.convfhe) {
                (Places::ConvFhe(_), Some(context)) => {
                    let geometry = l.geometry.checked()?;
                    let make = if *keep { ConvFheLinear::new } else { ConvFheLinear::streamed };
                    Prepared::ConvFhe(Box::new(make(context, &geometry, words, &weights.bias, bits)?))
                }
                (Places::RotationFree(design), _) => {
                    let mut prg = Prg::from_os()?;
                    let seeds = (setup_seed(plan_digest, index), &mut prg);
                    let linear = RotationFreeLinear::with_seed(design, words, &weights.bias, !keep, seeds)?;
                    Prepared::RotationFree(Box::new(linear))
                }
                _ => return Err(internal("a convfhe stage has no tables")),
            }));
        }
        Ok(out)
    }
}

impl Prepared {
    /// Bytes that the weights take.
    pub(in crate::two_party) fn weight_bytes(&self) -> usize {
        match self {
            Prepared::RotationFree(l) => l.weight_bytes(),
            Prepared::ConvFhe(l) => l.weight_bytes(),
        }
    }
}
