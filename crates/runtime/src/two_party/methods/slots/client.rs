//! The client's side of slot-packed stages: keys, requests, opening.

use super::super::{internal, tiles, ClientHalf, Job, Opening};
use super::{key_error, slot_error, Layout};
use crate::error::Error;
use hushnet_mpc::Session;
use hushnet_ring::Prg;
use hushnet_rlwe::bfv::client::SecretKey;
use hushnet_rlwe::bfv::{BfvError, Turn};
use std::sync::Arc;

/// A client's secret keys, one a group. No `Debug`.
struct SlotSecret {
    layout: Arc<Layout>,
    keys: Vec<SecretKey>,
}

/// Makes the keys of every group and sends the public ones.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let mut keys = Vec::with_capacity(layout.groups.len());
    for group in &layout.groups {
        let turns: Vec<Turn> = group.turns.iter().copied().collect();
        let make = |prg: &mut Prg| -> Result<(SecretKey, [Vec<u8>; 2]), BfvError> {
            let key = SecretKey::generate(&group.params, prg)?;
            let messages = [key.public_key(prg)?.to_bytes()?, key.galois_keys(&turns, prg)?.to_bytes()?];
            Ok((key, messages))
        };
        let prg = &mut *opening.prg;
        let (key, messages) = opening.compute.run(|| make(prg)).map_err(key_error)?;
        for message in &messages {
            opening.channel.send(message)?;
        }
        opening.channel.flush()?;
        keys.push(key);
    }
    Ok(Box::new(SlotSecret { layout, keys }))
}

impl ClientHalf for SlotSecret {
    fn ask(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let stage = self.layout.stages.get(job.stage)?;
        let key = self.keys.get(stage.group).ok_or_else(|| internal("a session has no key for a stage"))?;
        let share = stage.to_odd(session, job.share)?;
        let job = Job { share: &share, ..*job };
        let own = tiles::ask(
            stage,
            session.channel(),
            &job,
            |(_, tile), share| job.compute.run(|| stage.layer.request(key, tile, share)).map_err(slot_error),
            |(_, tile), answer, own| {
                let answer = answer.read()?;
                job.compute.run(|| stage.layer.open(key, tile, answer, own)).map_err(slot_error)
            },
        )?;
        stage.to_ring(session, &own)
    }
}
