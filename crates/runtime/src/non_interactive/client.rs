//! The client: owns the inputs and the secret key.

use super::engine::client::{self as engine, ClientEngine};
use super::engine::KeysNeeded;
use super::kept::{KeptSecret, KeyFolder};
use super::key_store::KeyHash;
use super::messages::{self, KeyFrame, KeyKind, Parcel};
use super::plan::{Link, NonInteractivePlan};
use super::server::{read_parcel, write_parcel};
use super::trace::NonInteractiveTrace;
use crate::channel::{send_failure, Channel, Traffic};
use crate::compute::Compute;
use crate::error::{Error, ProtocolError, TransportError};
use crate::io::{self, Input, Marked, OnProgress, Progress};
use crate::plan::{self, Plan, PlanOptions};
use crate::program::{self, Data, Monitor, Overruns, Place, RangeError, Slot, Values};
use crate::session::client::half::Half;
use crate::session::client::{receive_plan, ClientSession};
use crate::trace::{peak_memory, since, RangeTrace};
use crate::wire::{Block, End, Frame, FrameBuilder, Keys, Kind};
use hushnet_ring::clock::Instant;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::client::{KeyGenerator, SecretKey};
use hushnet_rlwe::ckks::CkksError;
use hushnet_rlwe::uses;
use rayon::prelude::*;
use zeroize::Zeroize;

/// How a client works: how strictly it reads plans, and where it computes.
#[derive(Clone, Debug, Default)]
pub struct NonInteractiveOptions {
    /// How strictly the server's plan is read.
    pub plan: PlanOptions,
    /// Where the work runs.
    pub compute: Compute,
    /// Where keys are kept between sessions, so that a server that keeps them too is not sent them again.
    pub keys: Option<KeyFolder>,
}

/// An open session with a server. Serves many images; its secret key never leaves it.
pub struct NonInteractiveClient {
    /// `None` after an error or the end.
    channel: Option<Box<dyn Channel>>,
    plan: NonInteractivePlan,
    engine: Box<dyn ClientEngine>,
    pub(super) secret: SecretKey,
    prg: Prg,
    compute: Compute,
    next_block: u32,
    setup: (f64, u64),
}

impl NonInteractiveClient {
    /// Greets the server, receives its plan, makes keys and sends those that the server needs.
    ///
    /// # Errors
    /// [`Error`]: transport, protocol, or a plan that this client refuses.
    pub fn open(mut channel: Box<dyn Channel>, options: NonInteractiveOptions) -> Result<Self, Error> {
        let plan = receive_plan(channel.as_mut(), &options.plan, NonInteractivePlan::from_bytes)?;
        Self::with_plan(channel, plan, options)
    }

    /// Opens a session with a server that has sent its plan. An error has been told to the server.
    pub(crate) fn with_plan(
        mut channel: Box<dyn Channel>,
        plan: NonInteractivePlan,
        options: NonInteractiveOptions,
    ) -> Result<Self, Error> {
        let compute = options.compute;
        let (start, before) = (Instant::now(), channel.traffic().sent);
        let engine = engine::of(&plan);
        channel.set_limit(messages::largest_frame(&plan));
        let keys = Prg::from_os().map_err(Error::from).and_then(|mut prg| {
            let secret = match &options.keys {
                Some(folder) => Self::kept_keys(&plan, folder, &compute, channel.as_mut())?,
                None => Self::keys(&plan, &mut prg, &compute, channel.as_mut(), &mut |_, _| {})?,
            };
            Ok((secret, prg))
        });
        let (secret, prg) = keys.inspect_err(|e| send_failure(channel.as_mut(), e))?;
        let setup = (since(start), channel.traffic().sent - before);
        Ok(Self { channel: Some(channel), plan, engine, secret, prg, compute, next_block: 0, setup })
    }

    /// Keys of an earlier session where there are some, sent only where the server has not kept them.
    fn kept_keys(
        plan: &NonInteractivePlan,
        folder: &KeyFolder,
        compute: &Compute,
        channel: &mut dyn Channel,
    ) -> Result<SecretKey, Error> {
        let params = plan.params();
        let due = messages::keys(params, &KeysNeeded::of(plan));
        let mut kept = KeptSecret::open(folder, params.hash(), &due)?;
        let mut prg = kept.generator();
        if due.is_empty() {
            return Ok(KeyGenerator::new(params).secret_key(&mut prg)?);
        }
        let hash = kept.hash().map(Vec::from).unwrap_or_default();
        let asked = !hash.is_empty();
        channel.send(FrameBuilder::message(Kind::Keys, &Keys { hash, known: false })?)?;
        let answer: Keys = channel.recv()?.message(Kind::Keys)?;
        if answer.known && asked {
            return Ok(KeyGenerator::new(params).secret_key(&mut prg)?);
        }
        if answer.known {
            let detail = "the server has keys that were not made yet".into();
            return Err(ProtocolError::Message { kind: "Keys", detail }.into());
        }
        let mut sent = KeyHash::new();
        let secret = Self::keys(plan, &mut prg, compute, channel, &mut |key, bytes| sent.add(key, bytes))?;
        kept.keep(sent)?;
        Ok(secret)
    }

    fn keys(
        plan: &NonInteractivePlan,
        prg: &mut Prg,
        compute: &Compute,
        channel: &mut dyn Channel,
        on_key: &mut dyn FnMut(&KeyFrame, &[u8]),
    ) -> Result<SecretKey, Error> {
        let params = plan.params();
        let generator = KeyGenerator::new(params);
        let secret = generator.secret_key(prg)?;
        let bootstrap = plan.packed().and_then(|p| p.interface().bootstrap());
        for key in messages::keys(params, &KeysNeeded::of(plan)) {
            let bytes = compute.run(|| match key.kind {
                KeyKind::Relin => generator.relin_key(&secret, prg)?.to_bytes(),
                KeyKind::Public => generator.public_key(&secret, prg)?.to_bytes(),
                KeyKind::Galois(g, level) => {
                    generator.galois_keys_at(&secret, &[(g, level)], prg)?.to_bytes()
                }
                KeyKind::Encapsulation => match bootstrap {
                    Some(bootstrap) => generator.encapsulation(&secret, bootstrap, prg)?.to_bytes(),
                    None => Err(CkksError::MissingKey("the bootstrap's pair".into())),
                },
            })?;
            let mut frame = FrameBuilder::reuse(Vec::new(), Kind::Setup, 0, key.tile, key.bytes)?;
            if bytes.len() != key.bytes {
                return Err(Error::Internal("a key has another length than the plan gives".into()));
            }
            frame.payload_mut().copy_from_slice(&bytes);
            on_key(&key, &bytes);
            channel.send(frame.finish())?;
        }
        Ok(secret)
    }

    /// The checked plan that the server of this session sent.
    #[must_use]
    pub fn plan(&self) -> &NonInteractivePlan {
        &self.plan
    }

    fn blocks(
        &mut self,
        channel: &mut dyn Channel,
        plan: &NonInteractivePlan,
        given: &[&Input<'_>],
        images: usize,
        progress: &mut OnProgress<'_>,
    ) -> Result<Marked<NonInteractiveTrace>, Error> {
        let mut monitors = Vec::new();
        let mut trace = NonInteractiveTrace::new(plan, self.compute.threads());
        (trace.setup_seconds, trace.setup_bytes_up) = self.setup;
        let size = plan.block_images();
        let blocks = images.div_ceil(size);
        let mut outputs = io::room(plan.tensors(), plan.outputs(), images);
        trace.ranges = plan
            .downloads()
            .iter()
            .map(|l| RangeTrace {
                tensor: plan.tensors()[l.cipher].name.clone(),
                largest: 0.0,
                bound: l.bound,
            })
            .collect();
        let start = Instant::now();
        let before: Traffic = channel.traffic();
        let mut noise = Vec::new();
        for block in 0..blocks {
            let first = block * size;
            let count = size.min(images - first);
            let values = io::load(plan.tensors(), plan.inputs(), given, (first, count));
            let mut work = (values, Monitor::new(plan.tensors().len(), count));
            if !self.block(channel, plan, (block, blocks), &mut work, &mut trace, progress)? {
                noise.extend(first..first + count);
            }
            io::store(plan.tensors(), plan.outputs(), &work.0, &mut outputs, (first, count));
            monitors.push((first, work.1));
        }
        let after = channel.traffic();
        (trace.images, trace.blocks, trace.rounds) = (images, blocks, blocks as u64);
        (trace.bytes_up, trace.bytes_down) = (after.sent - before.sent, after.received - before.received);
        trace.seconds = since(start);
        trace.peak_memory_bytes = peak_memory();
        let mark = Overruns::of(&monitors, plan.tensors(), &places(plan)).error();
        Ok((outputs, trace, RangeError::join(mark, undecryptable(plan, noise))))
    }

    fn client_stages(
        &self,
        plan: &NonInteractivePlan,
        which: std::ops::Range<usize>,
        (values, monitor): &mut (Values<'_>, Monitor),
    ) -> Result<(), Error> {
        for at in which {
            if let plan::Stage::Client(stage) = &plan.client().stages()[at] {
                self.compute.run(|| program::run_client(plan.client(), (at, stage), 0, values, monitor))?;
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        channel: &mut dyn Channel,
        plan: &NonInteractivePlan,
        (block, blocks): (usize, usize),
        work: &mut (Values<'_>, Monitor),
        trace: &mut NonInteractiveTrace,
        progress: &mut OnProgress<'_>,
    ) -> Result<bool, Error> {
        let stages = plan.spec().stages.len();
        let mut tell = |stage: usize, name: &str, tile: usize, tiles: usize| {
            if progress(&Progress { block, blocks, stage, stages, name, tile, tiles }).is_break() {
                return Err(Error::Cancelled);
            }
            Ok(())
        };
        let index = self.next_block;
        self.next_block += 1;
        let start = Instant::now();
        self.client_stages(plan, 0..plan.model().before, work)?;
        let images = work.0.images;
        let mut uploads = Vec::with_capacity(plan.uploads().len());
        for link in plan.uploads() {
            // Ciphertexts of different levels may carry the same tensor.
            let before = plan.uploads()[..uploads.len()].iter().position(|l| l.real == link.real);
            let mut rows = match before {
                Some(i) => Vec::clone(&uploads[i]),
                None => rows(&mut work.0, link)?,
            };
            self.compute.run(|| saturate(link, (&mut rows, images), link.bound, &work.1));
            uploads.push(rows);
        }
        channel.send(FrameBuilder::message(Kind::Block, &Block { index, images: images as u32 })?)?;
        for (number, (link, rows)) in plan.uploads().iter().zip(&mut uploads).enumerate() {
            let parcel = Parcel::new(plan.params(), link, true);
            for tile in 0..parcel.frames() {
                tell(0, &link.stage, tile, parcel.frames())?;
                let frame = self.encrypt(link, &parcel, (number, tile), (rows, images))?;
                channel.send(frame)?;
            }
            rows.zeroize();
        }
        trace.encrypt_seconds += since(start);
        let mut messages = true;
        for (number, link) in plan.downloads().iter().enumerate() {
            let parcel = Parcel::new(plan.params(), link, false);
            let mut data = vec![0.0; link.elements * images];
            for tile in 0..parcel.frames() {
                tell(stages - 1, &link.stage, tile, parcel.frames())?;
                let start = Instant::now();
                let frame = channel.recv()?;
                trace.wait_seconds += since(start);
                let start = Instant::now();
                let payload =
                    frame.expect_payload(Kind::Response, number as u32, tile as u32, parcel.payload(tile))?;
                let range = parcel.range(tile);
                messages &= self.compute.run(|| -> Result<bool, Error> {
                    let ciphertexts = read_parcel(plan.params(), link, &parcel, false, payload)?;
                    self.engine.decrypt(&self.secret, range.start, &ciphertexts, (&mut data, images))
                })?;
                trace.decrypt_seconds += since(start);
            }
            let largest = data.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            trace.ranges[number].largest = trace.ranges[number].largest.max(largest);
            let bound = planned(link, plan);
            self.compute.run(|| saturate(link, (&mut data, images), bound, &work.1));
            work.0.put(link.real, Data::Real(data));
        }
        let start = Instant::now();
        self.client_stages(plan, plan.model().before..plan.client().stages().len(), work)?;
        trace.decrypt_seconds += since(start);
        Ok(messages)
    }

    fn encrypt(
        &mut self,
        link: &Link,
        parcel: &Parcel,
        (number, tile): (usize, usize),
        (rows, images): (&[f64], usize),
    ) -> Result<Frame, Error> {
        // Two at a time: engines encode pairs.
        let range = parcel.range(tile);
        let starts: Vec<usize> = range.clone().step_by(2).collect();
        let generators: Vec<_> = starts.iter().map(|_| self.prg.fork(uses::SEED)).collect();
        let (engine, secret) = (&self.engine, &self.secret);
        self.compute.run(|| {
            let ciphertexts = starts
                .par_iter()
                .zip(generators)
                .map(|(s, mut prg)| {
                    engine.encrypt(secret, link, *s..(*s + 2).min(range.end), (rows, images), &mut prg)
                })
                .collect::<Result<Vec<_>, _>>()?;
            let ciphertexts: Vec<_> = ciphertexts.into_iter().flatten().collect();
            write_parcel(Kind::Request, (number, tile), parcel, &ciphertexts)
        })
    }
}

impl Half for NonInteractiveClient {
    type Trace = NonInteractiveTrace;

    fn interface(&self) -> &Plan {
        self.plan.client()
    }

    fn run(
        &mut self,
        inputs: &[&Input<'_>],
        images: usize,
        progress: &mut OnProgress<'_>,
    ) -> Result<Marked<NonInteractiveTrace>, Error> {
        let mut channel = self.channel.take().ok_or(TransportError::Closed)?;
        let plan = self.plan.clone();
        let result = self.blocks(channel.as_mut(), &plan, inputs, images, progress);
        match &result {
            Ok(_) => self.channel = Some(channel),
            Err(e) => send_failure(channel.as_mut(), e),
        }
        result
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.channel.take() {
            Some(mut channel) => Ok(channel.send(FrameBuilder::message(Kind::End, &End {})?)?),
            None => Ok(()),
        }
    }
}

impl ClientSession for NonInteractiveClient {
    fn is_open(&self) -> bool {
        self.channel.is_some()
    }
}

impl Drop for NonInteractiveClient {
    fn drop(&mut self) {
        // A server that is gone needs no goodbye.
        let _ = self.end();
    }
}

/// The values `[feature][image]` of a real tensor.
fn rows(values: &mut Values<'_>, link: &Link) -> Result<Vec<f64>, Error> {
    values.materialise(link.real);
    match std::mem::replace(&mut values.slots[link.real], Slot::Empty) {
        Slot::Data(Data::Real(v)) => Ok(v),
        _ => Err(Error::Internal("a tensor to encrypt is not there".into())),
    }
}

/// What a decrypted value may reach: the bound and the error that the plan states.
fn planned(link: &Link, plan: &NonInteractivePlan) -> f64 {
    let noise = plan.params().noise();
    let mut sd = f64::from(link.noise_bits).exp2();
    if let Some(bits) = plan.flood_bits() {
        sd = sd.hypot(noise.public()).hypot(f64::from(bits).exp2() * noise.rounding());
    }
    link.bound + hushnet_rlwe::batch::TAIL * sd / link.scale
}

/// The mark of images whose answers hold no message. Most of their values are beyond every bound and marked as such, but not all need be.
pub(super) fn undecryptable(plan: &NonInteractivePlan, images: Vec<usize>) -> Option<RangeError> {
    let (link, image) = (plan.downloads().first()?, *images.first()?);
    Some(RangeError {
        stage: link.stage.clone(),
        tensor: plan.tensors()[link.real].name.clone(),
        image,
        element: 0,
        value: f64::NAN,
        bound: Some(planned(link, plan)),
        low: None,
        answer: true,
        affected: images,
        values: 0,
    })
}

/// Clamps the values of a link to `bound`; marks lie in the slot of its ciphertexts.
fn saturate(link: &Link, (rows, images): (&mut [f64], usize), bound: f64, monitor: &Monitor) {
    rows.par_chunks_mut(images).enumerate().for_each_init(
        || monitor.marks(),
        |marks, (feature, row)| marks.saturate((link.cipher, bound), (feature, 0), row),
    );
}

fn place(link: &Link, bound: f64) -> Place<'_> {
    Place { stage: &link.stage, tensor: link.cipher, named: link.real, bound: Some(bound), answer: false }
}

/// Where marks are looked for, in the order of computation.
fn places(plan: &NonInteractivePlan) -> Vec<Place<'_>> {
    let (head, tail) = plan.client().stages().split_at(plan.model().before);
    let mut out: Vec<_> = head.iter().flat_map(program::places).collect();
    out.extend(plan.uploads().iter().map(|l| place(l, l.bound)));
    out.extend(plan.downloads().iter().map(|l| place(l, planned(l, plan))));
    out.extend(tail.iter().flat_map(program::places));
    out
}
