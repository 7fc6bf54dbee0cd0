//! One linear layer on shares between two processes: ciphertexts re-randomised and masked, weights encoded ahead.

use super::{barrier, meet, recv_words, send_words, Failure, Watch};
use crate::errors::Kind;
use hushnet_layers::batch::Geometry;
use hushnet_layers::cheetah::{AnswerTiles, AskTiles, CheetahClient, CheetahLinear};
use hushnet_mpc::{Channel, Party, TcpChannel};
use hushnet_ring::Prg;
use hushnet_rlwe::packed::{PackedClient, PackedContext, PackedPublicKey, PackedServer};
use hushnet_runtime::plan::GeometrySpec;
use hushnet_runtime::Compute;
use pyo3::prelude::*;

const DEGREE: usize = 2048;
/// Bits of the weights, sign included.
const WEIGHT_BITS: u32 = 8;

struct Job {
    geometry: Geometry,
    ring_bits: u32,
    repeat: usize,
}

/// Weights and both shares of the input, from public seeds: this is a measurement, not a computation on secrets.
struct Inputs {
    weights: Vec<i16>,
    shares: [Vec<u64>; 2],
}

impl Job {
    fn inputs(&self) -> Inputs {
        let words = |seed: u8, len: usize, bits: u32| {
            let mut v = vec![0; len];
            Prg::from_seed([seed; 16]).fill_words(&mut v);
            v.iter_mut().for_each(|w| *w &= hushnet_ring::low_mask(bits));
            v
        };
        let weights = words(1, self.geometry.weights(), WEIGHT_BITS);
        let half = 1 << (WEIGHT_BITS - 1);
        let len = self.geometry.input_rows() * self.geometry.input_row_features();
        Inputs {
            weights: weights.iter().map(|w| *w as i16 - half).collect(),
            shares: [words(2, len, self.ring_bits), words(3, len, self.ring_bits)],
        }
    }
}

/// The layer on integers modulo 2^64, by definition.
fn plain(geometry: &Geometry, weights: &[i16], x: &[u64]) -> Vec<u64> {
    let product = |w: i16, x: u64| (i64::from(w) as u64).wrapping_mul(x);
    let sum = |terms: &mut dyn Iterator<Item = u64>| terms.fold(0u64, u64::wrapping_add);
    match geometry {
        Geometry::Dense(d) => weights
            .chunks_exact(d.inputs)
            .map(|row| sum(&mut row.iter().zip(x).map(|(w, x)| product(*w, *x))))
            .collect(),
        Geometry::Conv2d(c) => {
            let (taps, channels) = (c.kernel[0] * c.kernel[1], c.input[0] / c.groups);
            let mut out = vec![0u64; c.output.iter().product()];
            for o in 0..c.output[0] {
                let first = o / (c.output[0] / c.groups) * channels;
                for (at, w) in weights[o * channels * taps..(o + 1) * channels * taps].iter().enumerate() {
                    let (z, tap) = (first + at / taps, at % taps);
                    let offset = [tap / c.kernel[1] * c.dilation[0], tap % c.kernel[1] * c.dilation[1]];
                    for y in 0..c.output[1] {
                        let Some(row) = (y * c.stride[0] + offset[0]).checked_sub(c.pads[0]) else {
                            continue;
                        };
                        if row >= c.input[1] {
                            continue;
                        }
                        let line = &x[(z * c.input[1] + row) * c.input[2]..][..c.input[2]];
                        let target = &mut out[(o * c.output[1] + y) * c.output[2]..][..c.output[2]];
                        for (column, t) in target.iter_mut().enumerate() {
                            let Some(source) = (column * c.stride[1] + offset[1]).checked_sub(c.pads[1])
                            else {
                                continue;
                            };
                            if let Some(v) = line.get(source) {
                                *t = t.wrapping_add(product(*w, *v));
                            }
                        }
                    }
                }
            }
            out
        }
    }
}

fn client(channel: &mut TcpChannel, job: &Job, inputs: &Inputs) -> Result<serde_json::Value, Failure> {
    let context = PackedContext::new(DEGREE)?;
    let mut prg = Prg::from_os()?;
    let key = PackedClient::generate(&context, &mut prg)?;
    channel.send(&key.public_key(&[1; 32], &mut prg)?.to_bytes()?)?;
    let norm = f64::from_bits(recv_words(channel, 1)?[0]);
    let layer = CheetahClient::new(&context, &job.geometry, job.ring_bits, norm)?;
    let mut runs = Vec::new();
    let mut own = vec![0; layer.packing().output_len()];
    let before = channel.stats();
    for _ in 0..job.repeat {
        let mut seed = [0; 32];
        prg.fill_bytes(&mut seed);
        barrier(channel)?;
        let watch = Watch::start();
        channel.send(&seed)?;
        for tile in 0..layer.tiles() {
            let request = layer.request(&key, &seed, 0, tile, &inputs.shares[1])?;
            channel.send(&request)?;
            channel.flush()?;
        }
        for tile in 0..layer.tiles() {
            let mut answer = vec![0; layer.answer_len()];
            channel.recv(&mut answer)?;
            layer.open(&key, tile, &answer, &mut own)?;
        }
        runs.push(watch.seconds());
    }
    let after = channel.stats();
    let each = |bytes: u64| bytes / job.repeat as u64 - 1;
    let (up, down) =
        (each(after.bytes_sent - before.bytes_sent), each(after.bytes_received - before.bytes_received));
    let answers = layer.tiles() * layer.answer_len();
    let as_predicted = [up, down] == [(32 + layer.tiles() * layer.request_len()) as u64, answers as u64];
    send_words(channel, &own)?;
    barrier(channel)?;
    Ok(serde_json::json!({
        "runs": runs, "bytes_up": up, "bytes_down": down,
        "bytes_as_predicted": as_predicted,
    }))
}

fn server(channel: &mut TcpChannel, job: &Job, inputs: &Inputs) -> Result<serde_json::Value, Failure> {
    let context = PackedContext::new(DEGREE)?;
    let mut message = vec![0; PackedPublicKey::byte_len(DEGREE)];
    channel.recv(&mut message)?;
    let server = PackedServer::new(&context, &PackedPublicKey::from_bytes(&context, &message)?)?;
    let watch = Watch::start();
    let bias = vec![0; job.geometry.biases()];
    let layer = CheetahLinear::new(&context, &job.geometry, &inputs.weights, &bias, job.ring_bits)?;
    let prepare = watch.seconds()[0];
    let norm = layer.params().spec().weight_l2.log2().ceil().exp2();
    let layer = layer.stated(norm)?;
    send_words(channel, &[norm.to_bits()])?;
    let length = layer.client().request_len();
    let mut own = vec![0; layer.packing().output_len()];
    let (mut runs, mut request) = (Vec::new(), vec![0; length]);
    for _ in 0..job.repeat {
        barrier(channel)?;
        let watch = Watch::start();
        let mut seed = [0; 32];
        channel.recv(&mut seed)?;
        for tile in 0..layer.packing().tiles() {
            channel.recv(&mut request)?;
            let answer = layer.answer(&server, &seed, 0, tile, &request, &inputs.shares[0], &mut own)?;
            channel.send(&answer)?;
            channel.flush()?;
        }
        runs.push(watch.seconds());
    }
    let theirs = recv_words(channel, own.len())?;
    barrier(channel)?;
    let x: Vec<u64> =
        inputs.shares[0].iter().zip(&inputs.shares[1]).map(|(a, b)| a.wrapping_add(*b)).collect();
    let shift = 64 - job.ring_bits;
    let off = |((a, b), want): ((&u64, &u64), &u64)| {
        ((a.wrapping_add(*b).wrapping_sub(*want) << shift) as i64 >> shift).unsigned_abs()
    };
    let errors: Vec<u64> =
        own.iter().zip(&theirs).zip(&plain(&job.geometry, &inputs.weights, &x)).map(off).collect();
    let largest = errors.iter().max().copied().unwrap_or(0);
    Ok(serde_json::json!({
        "runs": runs, "prepare_seconds": prepare, "weight_bytes": layer.weight_bytes(), "rounds": 2,
        "largest_error_units": largest, "correct": largest <= 1,
        "off_by_one_fraction": errors.iter().filter(|e| **e > 0).count() as f64 / errors.len().max(1) as f64,
    }))
}

/// One party of a measurement of a linear layer (`geometry`: JSON as in a plan) on shares modulo 2^ring_bits, one thread:
/// JSON. Party 0 (no `address`; the server) tells its port to `announce`, encodes the weights ahead of the runs, and says
/// whether the joint result is the exact one to within one unit; party 1 (the client) has the bytes.
#[pyfunction]
#[pyo3(signature = (address=None, announce=None, *, geometry, ring_bits, repeat=3))]
pub(super) fn measure_layer(
    py: Python<'_>,
    address: Option<&str>,
    announce: Option<Py<PyAny>>,
    geometry: &str,
    ring_bits: u32,
    repeat: usize,
) -> PyResult<String> {
    let spec: GeometrySpec = serde_json::from_str(geometry).map_err(|e| Kind::Input.error(e))?;
    let job =
        Job { geometry: spec.checked().map_err(|e| Kind::Input.error(e))?, ring_bits, repeat: repeat.max(1) };
    let compute = Compute::with_threads(1).map_err(|e| Kind::Hushnet.error(e))?;
    let (who, mut channel) = meet(py, address, announce)?;
    let result = py.detach(|| {
        compute.run(|| {
            let inputs = job.inputs();
            match who {
                Party::Zero => server(&mut channel, &job, &inputs),
                Party::One => client(&mut channel, &job, &inputs),
            }
        })
    });
    Ok(result.map_err(|e: Failure| Kind::Hushnet.error(e))?.to_string())
}
