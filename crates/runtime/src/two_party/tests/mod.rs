//! Both parties in two threads, against the stages on plain integers.

mod batch;
mod builder;
mod coefficients;
mod elementwise;
mod hostile;
mod matrices;
mod methods;
mod networks;
mod oracle;
mod plans;
mod prepared;
mod ranges;
mod slots;
mod stored;
mod unit_pads;
mod units;
mod views;

use super::shares::LOG;
use super::{Layers, TwoPartyClient, TwoPartyModel, TwoPartyOptions, TwoPartyPlan, TwoPartyTrace};
use crate::plan::{PlanOptions, TensorBytes};
use crate::{ClientSession, Compute, Error, Input, InputData, Output, PlanError, Served};
use builder::Net;
use hushnet_mpc::{memory_pair, Channel, MemoryChannel, Result as ChannelResult, Stats};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// What one end has heard, and its clock.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<(Vec<u8>, u64)>>);

struct Probe(MemoryChannel, Heard);

impl Channel for Probe {
    fn send(&mut self, data: &[u8]) -> ChannelResult<()> {
        self.0.send(data)
    }
    fn recv(&mut self, buf: &mut [u8]) -> ChannelResult<()> {
        self.0.recv(buf)?;
        let mut heard = self.1 .0.lock().unwrap();
        heard.0.extend_from_slice(buf);
        heard.1 = self.0.clock();
        Ok(())
    }
    fn flush(&mut self) -> ChannelResult<()> {
        self.0.flush()
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
}

fn plan_of(net: &Net) -> Result<TwoPartyPlan, PlanError> {
    let files: BTreeMap<String, TensorBytes<'_>> = net
        .files
        .iter()
        .map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data }))
        .collect();
    let bytes = TwoPartyPlan::file(&net.json(), &files)?;
    TwoPartyPlan::from_bytes(&bytes, &PlanOptions::default())
}

struct Run {
    outputs: Vec<Output>,
    client: TwoPartyTrace,
    server: TwoPartyTrace,
    /// Shares by party (server first) and tensor; images side by side.
    shares: [Vec<(usize, Vec<u64>)>; 2],
    /// Bytes heard by the server and the client, with the rounds that passed.
    heard: [(Vec<u8>, u64); 2],
}

fn run(
    plan: &TwoPartyPlan,
    inputs: &[Vec<f64>],
    images: usize,
    options: TwoPartyOptions,
) -> Result<Run, Error> {
    run_on(&TwoPartyModel::new(plan, Compute::default())?, inputs, images, options)
}

fn run_on(
    model: &TwoPartyModel,
    inputs: &[Vec<f64>],
    images: usize,
    options: TwoPartyOptions,
) -> Result<Run, Error> {
    let plan = model.plan();
    let (a, b) = memory_pair();
    let (ha, hb) = (Heard::default(), Heard::default());
    let (far, near) = (Probe(a, ha.clone()), Probe(b, hb.clone()));
    std::thread::scope(|scope| {
        let served = scope.spawn(move || {
            LOG.take();
            model.serve_plain(Box::new(far), &mut |_| {}).map(|t| (t, LOG.take()))
        });
        LOG.take();
        let data: Vec<Input<'_>> = plan
            .inputs()
            .iter()
            .zip(inputs)
            .map(|(p, v)| Input {
                name: &p.name,
                shape: [&[images], plan.tensors()[p.tensor].shape.as_slice()].concat(),
                data: InputData::F64(v),
            })
            .collect();
        let mut client = TwoPartyClient::open(Box::new(near), options)?;
        assert!(!client.plan().has_weights() || client.plan().stages().iter().all(|s| s.label != "linear"));
        let (outputs, trace) = client.infer(&data, &mut |_| ControlFlow::Continue(()))?;
        client.close()?;
        let (server, log) = served.join().unwrap()?;
        let heard = [&ha, &hb].map(|h| std::mem::take(&mut *h.0.lock().unwrap()));
        Ok(Run { outputs, client: trace, server, shares: [log, LOG.take()], heard })
    })
}

/// Random inputs for a number of images, within the first fixed tensor's range.
fn random_inputs(net: &mut Net, plan: &TwoPartyPlan, images: usize) -> Vec<Vec<f64>> {
    let mut out = Vec::new();
    for (i, port) in plan.inputs().iter().enumerate() {
        let fixed = &net.tensors[port.tensor + 1];
        let amplitude = fixed["scale"].as_f64().unwrap() * fixed["bound"].as_f64().unwrap();
        let n = images * plan.tensors()[port.tensor].elements;
        out.push((0..n).map(|_| net.rng.real(amplitude)).collect());
        assert_eq!(i + 1, out.len());
    }
    out
}
