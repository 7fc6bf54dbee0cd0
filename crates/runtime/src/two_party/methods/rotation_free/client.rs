//! The client's side of `rotation-free` stages: set-ups, requests, opening.

use super::super::{internal, tiles, ClientHalf, Job, Opening, Stages};
use super::{setup_seed, Layout};
use crate::error::{Error, ProtocolError};
use crate::two_party::layer_error;
use crate::two_party::stored::Kept;
use hushnet_layers::batch::LayerError;
use hushnet_layers::rotation_free::{RotationFreeClient, Setup};
use hushnet_mpc::Session;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What a client holds for a session: encrypted weights. No `Debug`.
struct RotationFreeSecret {
    layout: Arc<Layout>,
    stages: Stages<RotationFreeClient>,
    held: usize,
}

/// The set-ups of all stages: those of the folder, and what the server sends.
pub(super) fn open(layout: Arc<Layout>, opening: &mut Opening<'_>) -> Result<Box<dyn ClientHalf>, Error> {
    let compute = opening.compute;
    // Finished ones at once, so that their bytes need not wait.
    let mut clients = BTreeMap::new();
    let (mut wanting, mut held, mut answer) = (Vec::new(), 0, Vec::new());
    for (index, design) in layout.stages.iter() {
        let header = design.setup_header(&setup_seed(opening.plan_digest, index));
        let mut kept = match opening.folder {
            Some(folder) => folder.load(design, index, &header, setup_error)?,
            None => Kept::unstored(Setup::begin(design, &header).map_err(setup_error)?),
        };
        if kept.setup.received() == kept.setup.expected() {
            // What cannot be used is asked for again.
            match kept.client(design, compute) {
                Ok(client) => drop(clients.insert(index, client)),
                Err(_) => kept = Kept::unstored(Setup::begin(design, &header).map_err(setup_error)?),
            }
        }
        held += kept.setup.received() * design.setup_poly_len();
        answer.extend_from_slice(&(kept.setup.received() as u32).to_le_bytes());
        if !clients.contains_key(&index) {
            wanting.push((index, design, kept));
        }
    }
    opening.channel.send(&answer)?;
    opening.channel.flush()?;
    for (index, design, mut kept) in wanting {
        let mut poly = vec![0; design.setup_poly_len()];
        while kept.setup.received() < kept.setup.expected() {
            opening.channel.recv(&mut poly)?;
            kept.receive(&poly)?;
        }
        clients.insert(index, kept.client(design, compute).map_err(setup_error)?);
    }
    Ok(Box::new(RotationFreeSecret { stages: Stages(clients), layout: layout.clone(), held }))
}

impl ClientHalf for RotationFreeSecret {
    fn held(&self) -> usize {
        self.held
    }

    fn ask(&self, session: &mut Session, job: &Job<'_>) -> Result<Vec<u64>, Error> {
        let client = self.stages.get(job.stage)?;
        // Queries in the order of their answers; both halves of the loop below use them.
        let waiting = std::cell::RefCell::new(VecDeque::new());
        tiles::ask(
            self.layout.stages.get(job.stage)?,
            session.channel(),
            job,
            |(_, tile), share| {
                let make = || {
                    let mut prepared = client.prepare_blinds(tile)?;
                    let request = client.request(&mut prepared, share)?;
                    Ok((prepared, request))
                };
                let (prepared, request) = job.compute.run(make).map_err(layer_error)?;
                waiting.borrow_mut().push_back(prepared);
                Ok(request)
            },
            |_, answer, own| {
                let next = waiting.borrow_mut().pop_front();
                let mut prepared = next.ok_or_else(|| internal("a query is missing"))?;
                // The client's own products run while the server answers.
                job.compute.run(|| client.complete(&mut prepared)).map_err(layer_error)?;
                let answer = answer.read()?;
                job.compute.run(|| client.open(&prepared, answer, own)).map_err(layer_error)
            },
        )
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
