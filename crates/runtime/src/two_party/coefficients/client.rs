//! The client's side of `rotation-free` and `convfhe` stages: key, set-ups, requests, opening.

use super::{internal, setup_seed, Job, Layers, Places};
use crate::compute::Compute;
use crate::error::{Error, ProtocolError};
use crate::two_party::layer_error;
use crate::two_party::stored::{Folder, Kept};
use hushnet_layers::batch::LayerError;
use hushnet_layers::convfhe::RING_DEGREE;
use hushnet_layers::rotation_free::{RotationFreeClient, Setup};
use hushnet_mpc::Channel;
use hushnet_ring::{ledger, pack, Prg};
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::{PackedClient, PRIME_BITS};
use hushnet_rlwe::uses;

/// What a client holds for a session.
pub(in crate::two_party) struct ClientState {
    convfhe: Option<PackedClient>,
    rotation_free: Vec<Option<RotationFreeClient>>,
    /// Bytes of set-ups that needed not be sent.
    pub(in crate::two_party) held: usize,
}

impl Layers {
    /// The client's part of the set-up.
    pub(in crate::two_party) fn open(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        prg: &mut Prg,
        stored: (&[u8; 32], Option<&Folder>),
    ) -> Result<ClientState, Error> {
        let mut convfhe = None;
        if let Some(context) = &self.convfhe {
            let key = PackedClient::generate(context.packed(), prg)?;
            let (mut seed, mut merge_seed) = ([0; 32], [0; 32]);
            prg.fill_bytes(&mut seed);
            prg.fill_bytes(&mut merge_seed);
            for seed in [&mut seed, &mut merge_seed] {
                ledger::bytes(uses::SEED, seed);
            }
            let public = key.public_key(&seed, prg)?;
            let keys = compute.run(|| {
                MergeKeys::for_client(context.merge(), &key, self.spacing, &merge_seed, prg)?.to_bytes()
            })?;
            let mut message = vec![0; self.keys_len()];
            let (head, rest) = message.split_at_mut(32 + pack::packed_len(RING_DEGREE, PRIME_BITS));
            head[..32].copy_from_slice(&seed);
            pack::pack(&public.pk0, PRIME_BITS, &mut head[32..])?;
            rest.copy_from_slice(&keys);
            channel.send(&message)?;
            channel.flush()?;
            convfhe = Some(key);
        }
        let (rotation_free, held) = self.collect(channel, compute, stored)?;
        Ok(ClientState { convfhe, rotation_free, held })
    }

    /// The set-ups of all rotation-free stages: those of the folder, and what the server sends; and the bytes that it needed not.
    fn collect(
        &self,
        channel: &mut dyn Channel,
        compute: &Compute,
        (plan_digest, folder): (&[u8; 32], Option<&Folder>),
    ) -> Result<(Vec<Option<RotationFreeClient>>, usize), Error> {
        // Finished ones at once, so that their bytes need not wait.
        let mut clients: Vec<Option<RotationFreeClient>> = self.stages.iter().map(|_| None).collect();
        let (mut wanting, mut held, mut answer) = (Vec::new(), 0, Vec::new());
        for (index, stage) in self.stages.iter().enumerate() {
            let Some(Places::RotationFree(design)) = stage else { continue };
            let header = design.setup_header(&setup_seed(plan_digest, index));
            let mut kept = match folder {
                Some(folder) => folder.load(design, index, &header, setup_error)?,
                None => Kept::unstored(Setup::begin(design, &header).map_err(setup_error)?),
            };
            if kept.setup.received() == kept.setup.expected() {
                // What cannot be used is asked for again.
                match kept.client(design, compute) {
                    Ok(client) => clients[index] = Some(client),
                    Err(_) => kept = Kept::unstored(Setup::begin(design, &header).map_err(setup_error)?),
                }
            }
            held += kept.setup.received() * design.setup_poly_len();
            answer.extend_from_slice(&(kept.setup.received() as u32).to_le_bytes());
            if clients[index].is_none() {
                wanting.push((index, design, kept));
            }
        }
        if answer.is_empty() {
            return Ok((clients, 0));
        }
        channel.send(&answer)?;
        channel.flush()?;
        for (index, design, mut kept) in wanting {
            let mut poly = vec![0; design.setup_poly_len()];
            while kept.setup.received() < kept.setup.expected() {
                channel.recv(&mut poly)?;
                kept.receive(&poly)?;
            }
            clients[index] = Some(kept.client(design, compute).map_err(setup_error)?);
        }
        Ok((clients, held))
    }

    /// The client's side of a stage: its share of the output tensors.
    pub(in crate::two_party) fn ask(
        &self,
        channel: &mut dyn Channel,
        state: &ClientState,
        job: &Job<'_>,
    ) -> Result<Vec<u64>, Error> {
        let stage = self.stage(job.index)?;
        let (inputs, outputs) = stage.lengths();
        let no_key = || internal("a session has no key for a stage");
        let mut own = vec![0; outputs * job.seeds.len()];
        let mut answer = Vec::new();
        match stage {
            Places::ConvFhe(client) => {
                let key = state.convfhe.as_ref().ok_or_else(no_key)?;
                for (seed, share) in job.seeds.iter().zip(job.share.chunks_exact(inputs)) {
                    for tile in 0..stage.tiles() {
                        let request = job
                            .compute
                            .run(|| client.request(key, seed, job.index as u32, tile, share))
                            .map_err(layer_error)?;
                        channel.send(&request)?;
                        channel.flush()?;
                    }
                }
                for own in own.chunks_exact_mut(outputs) {
                    for tile in 0..stage.tiles() {
                        answer.resize(stage.answer_len(tile), 0);
                        channel.recv(&mut answer)?;
                        job.compute.run(|| client.open(key, tile, &answer, own)).map_err(layer_error)?;
                    }
                }
            }
            Places::RotationFree(_) => {
                let client = state.rotation_free[job.index].as_ref().ok_or_else(no_key)?;
                let mut waiting = Vec::with_capacity(stage.tiles() * job.seeds.len());
                for share in job.share.chunks_exact(inputs) {
                    for tile in 0..stage.tiles() {
                        let (prepared, request) = job
                            .compute
                            .run(|| {
                                let mut prepared = client.prepare_blinds(tile)?;
                                let request = client.request(&mut prepared, share)?;
                                Ok((prepared, request))
                            })
                            .map_err(layer_error)?;
                        channel.send(&request)?;
                        channel.flush()?;
                        waiting.push(prepared);
                    }
                }
                // The client's own products run while the server answers.
                let mut waiting = waiting.into_iter();
                for own in own.chunks_exact_mut(outputs) {
                    for tile in 0..stage.tiles() {
                        let mut prepared = waiting.next().ok_or_else(|| internal("a query is missing"))?;
                        job.compute.run(|| client.complete(&mut prepared)).map_err(layer_error)?;
                        answer.resize(stage.answer_len(tile), 0);
                        channel.recv(&mut answer)?;
                        job.compute.run(|| client.open(&prepared, &answer, own)).map_err(layer_error)?;
                    }
                }
            }
        }
        Ok(own)
    }
}

/// An error of a set-up that the server sent.
fn setup_error(e: LayerError) -> Error {
    match e {
        LayerError::Setup(detail) => {
            ProtocolError::Message { kind: "set-up of a linear stage", detail: detail.into() }.into()
        }
        other => layer_error(other),
    }
}
