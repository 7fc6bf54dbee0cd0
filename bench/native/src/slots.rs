//! Slot-packed layers, and Cheetah's beside them: operations counted and layers run. Geometries come as JSON, as in `docs/plan-format.md`; results
//! are JSON.

use crate::json::{counts, geometry, refused, slot_method, slot_params};
use hushnet_layers::batch::Geometry;
use hushnet_layers::cheetah::{AnswerTiles, AskTiles, CheetahLinear};
use hushnet_layers::slots::{
    choose, Clear, Counting, Layout, Method, Phases, SlotClient, SlotError, SlotLinear, Store, Term,
};
use hushnet_ring::{low_mask, Prg};
use hushnet_rlwe::bfv::client::SecretKey;
use hushnet_rlwe::bfv::{plain_modulus, BfvParams, BfvSpec, Counts, Evaluator, GaloisKeys, PublicKey};
use hushnet_rlwe::ckks::Insecure;
use hushnet_rlwe::packed::{PackedClient, PackedContext, PackedServer};
use hushnet_runtime::Compute;
use pyo3::prelude::*;
use serde_json::{json, Value};

/// Prepared weights of a measured layer at most; above, they are streamed and their encoding is timed apart.
const PREPARED_BYTES: usize = 1 << 30;

/// Processor time of this thread in nanoseconds: measured rows stay comparable on a busy machine.
pub(crate) fn thread_time() -> u64 {
    Python::attach(|py| py.import("time")?.call_method0("thread_time_ns")?.extract()).unwrap_or(0)
}

fn seconds_since(start: u64) -> f64 {
    thread_time().saturating_sub(start) as f64 * 1e-9
}

/// Operations of a layer with `slots` slots a ciphertext: `formula`, and `counted` by running the kernels without values; also
/// `channels_per_cipher`, `inputs`, `outputs` (ciphertexts of a tile), `tiles`, `keys`.
#[pyfunction]
fn slot_layer_counts(
    py: Python<'_>,
    geometry_json: &str,
    method_name: &str,
    slots: usize,
) -> PyResult<String> {
    let (shape, how) = (geometry(geometry_json)?, slot_method(method_name)?);
    if !(8..=65536).contains(&slots) || !slots.is_power_of_two() {
        return Err(refused(format!("{slots} slots: must be a power of two from 8 to 65536")));
    }
    py.detach(|| {
        let layout = Layout::new(&shape, how, slots)?;
        let machine = Counting::default();
        for _ in 0..layout.tiles() {
            layout.run(&machine, &vec![(); layout.inputs()], &Store::Streamed(&|_| Vec::new()))?;
        }
        let packed = match &layout {
            Layout::Conv(c) => c.channels_per_cipher(),
            Layout::Dense(_) => 1,
        };
        Ok(json!({
            "formula": counts(layout.counts()), "counted": counts(machine.counts()),
            "channels_per_cipher": packed, "inputs": layout.inputs(), "outputs": layout.outputs(),
            "tiles": layout.tiles(), "keys": layout.turns().len(),
        })
        .to_string())
    })
    .map_err(|e: SlotError| refused(e))
}

fn random(prg: &mut Prg, len: usize, bound: u64) -> Vec<u64> {
    let mut v = vec![0; len];
    prg.fill_words(&mut v);
    v.iter_mut().for_each(|x| *x %= bound);
    v
}

/// The layer by definition on values below t: what DELPHI's server does online, and what results are compared with.
fn plain(shape: &Geometry, x: &[u64], w: &[i16], t: u64) -> Vec<u64> {
    let dot = |x: &[u64], w: &[i16]| x.iter().zip(w).map(|(x, w)| *x as i64 * i64::from(*w)).sum::<i64>();
    let reduce = |v: i64| v.rem_euclid(t as i64) as u64;
    match shape {
        Geometry::Dense(d) => w.chunks_exact(d.inputs).map(|row| reduce(dot(x, row))).collect(),
        Geometry::Conv2d(c) => {
            let [_, oh, ow] = c.output;
            let (ipg, opg, area) = (c.group_inputs(), c.group_outputs(), c.kernel[0] * c.kernel[1]);
            let mut out = Vec::with_capacity(c.output.iter().product());
            for o in 0..c.output[0] {
                let mut sums = vec![0i64; oh * ow];
                for channel in 0..ipg {
                    let plane = &x[(o / opg * ipg + channel) * c.input[1] * c.input[2]..];
                    for k in 0..area {
                        let weight = i64::from(w[(o * ipg + channel) * area + k]);
                        for y in 0..oh {
                            let Some(row) = c.source(0, y, k / c.kernel[1]) else { continue };
                            for xx in 0..ow {
                                if let Some(column) = c.source(1, xx, k % c.kernel[1]) {
                                    sums[y * ow + xx] += plane[row * c.input[2] + column] as i64 * weight;
                                }
                            }
                        }
                    }
                }
                out.extend(sums.into_iter().map(reduce));
            }
            out
        }
    }
}

/// What a measured run is asked for.
struct Wanted {
    shape: Geometry,
    how: Method,
    parameters_for: Method,
    plain_bits: u32,
    repeats: usize,
    noise: bool,
    insecure_ring_degree: Option<usize>,
}

fn parameters(w: &Wanted) -> Result<BfvParams, SlotError> {
    let t = plain_modulus(w.plain_bits)?;
    Ok(match w.insecure_ring_degree {
        // Only the number of slots matters where published counts are repeated.
        Some(ring_degree) => BfvSpec {
            ring_degree,
            plain_modulus: t,
            primes: 3,
            prime_bits: 50,
            special_bits: 50,
            digit_bits: 0,
        }
        .check_insecure(Insecure)?,
        None => choose(&w.shape, w.parameters_for, t)?,
    })
}

/// Largest ratio of measured to bounded noise and log2 norms, over the ciphertexts of the first tile.
fn measured_noise(
    linear: &SlotLinear,
    server: &Evaluator,
    key: &SecretKey,
    x: &[u64],
    w: &[i16],
) -> Result<Value, SlotError> {
    let (layout, params) = (linear.layout(), server.params());
    let t = params.plain_modulus();
    let slots: Vec<Vec<u64>> = (0..layout.inputs()).map(|i| layout.pack(0, i, x)).collect();
    let inputs = slots
        .iter()
        .map(|s| server.receive(&key.encrypt(s, &mut Prg::from_os()?)?))
        .collect::<Result<Vec<_>, _>>()?;
    let results = linear.evaluate(server, &inputs)?;
    let clear = Clear::new(t);
    let plain = layout.run(&clear, &slots, &Store::Streamed(&|term: Term| layout.weight(term, w, t)))?;
    let planned = layout.noise(params.spec());
    let (mut largest, mut norm) = (0.0f64, 0.0f64);
    for (c, s) in results.iter().zip(&plain) {
        let (l, n) = key.noise(c, s)?;
        (largest, norm) = (largest.max(l), norm.max(n));
    }
    let n = params.ring_degree();
    Ok(json!({
        "largest_bits": largest.log2(), "predicted_largest_bits": planned.bound().log2(),
        "norm_bits": norm.log2(), "predicted_norm_bits": planned.norm_bound(n).log2(),
        "limit_norm_bits": params.hidden_norm().log2(),
        "within": largest <= planned.bound() && norm <= planned.norm_bound(n),
    }))
}

fn measure(w: &Wanted) -> Result<Value, SlotError> {
    let params = parameters(w)?;
    let t = params.plain_modulus();
    let mut prg = Prg::from_os().map_err(hushnet_rlwe::bfv::BfvError::from)?;
    let weights: Vec<i16> =
        random(&mut prg, w.shape.weights(), 256).iter().map(|v| *v as i16 - 128).collect();
    let bias: Vec<i64> = vec![0; w.shape.biases()];
    let mut linear = SlotLinear::new(&params, &w.shape, w.how, &weights, &bias)?;
    let client = SlotClient::new(&params, &w.shape, w.how)?;
    let start = thread_time();
    let key = SecretKey::generate(&params, &mut prg)?;
    let sent = key.galois_keys(&client.turns(), &mut prg)?.to_bytes()?;
    let public = key.public_key(&mut prg)?.to_bytes()?;
    let setup = seconds_since(start);
    let (key_bytes, public_key_bytes) = (sent.len(), public.len());
    let keys = GaloisKeys::from_bytes(&params, &client.turns(), &sent)?;
    let public = PublicKey::from_bytes(&params, &public)?;
    let server = Evaluator::new(&params, public, keys)?.with_clock(thread_time);
    let prepared = linear.prepared_bytes() <= PREPARED_BYTES;
    let start = thread_time();
    if prepared {
        linear.prepare()?;
    }
    let prepare = seconds_since(start);
    let layout = client.layout();
    let (mine, theirs) = (random(&mut prg, layout.input_len(), t), random(&mut prg, layout.input_len(), t));
    let (mut own, mut got) = (vec![0; layout.output_len()], vec![0; layout.output_len()]);
    let (mut best, mut request_seconds, mut open_seconds) = (Phases::default(), f64::MAX, f64::MAX);
    let (mut up, mut down) = (0, 0);
    let before = server.counts();
    let mut counted = Counts::default();
    for run in 0..w.repeats.max(1) {
        let (mut sum, mut asked, mut opened) = (Phases::default(), 0.0, 0.0);
        (up, down) = (0, 0);
        for tile in 0..client.tiles() {
            let start = thread_time();
            let request = client.request(&key, tile, &mine)?;
            asked += seconds_since(start);
            let (answer, p) = linear.answer(&server, tile, &request, &theirs, &mut own)?;
            sum.receive += p.receive;
            sum.linear += p.linear;
            sum.encode += p.encode;
            sum.products += p.products;
            sum.switching += p.switching;
            sum.answer += p.answer;
            sum.share += p.share;
            let start = thread_time();
            client.open(&key, tile, &answer, &mut got)?;
            opened += seconds_since(start);
            (up, down) = (up + request.len(), down + answer.len());
        }
        if run == 0 {
            counted = server.counts() - before;
            best = sum;
        }
        best.receive = best.receive.min(sum.receive);
        best.answer = best.answer.min(sum.answer);
        best.share = best.share.min(sum.share);
        if sum.linear - sum.encode < best.linear - best.encode {
            (best.linear, best.encode) = (sum.linear, sum.encode);
            (best.products, best.switching) = (sum.products, sum.switching);
        }
        (request_seconds, open_seconds) = (request_seconds.min(asked), open_seconds.min(opened));
    }
    let x: Vec<u64> = mine.iter().zip(&theirs).map(|(a, b)| (a + b) % t).collect();
    let start = thread_time();
    let want = plain(&w.shape, &x, &weights, t);
    let plain_seconds = seconds_since(start);
    let correct = own.iter().zip(&got).zip(&want).all(|((a, b), v)| (a + b) % t == *v);
    let noise = if w.noise { measured_noise(&linear, &server, &key, &x, &weights)? } else { Value::Null };
    Ok(json!({
        "method": w.how.name(), "parameters": slot_params(&params), "correct": correct, "prepared": prepared,
        "counted": counts(counted), "formula": counts(layout.counts()),
        "setup_seconds": setup, "prepare_seconds": prepare, "receive_seconds": best.receive,
        "linear_seconds": best.linear - best.encode, "encode_seconds": best.encode,
        "product_seconds": best.products, "switching_seconds": best.switching, "answer_seconds": best.answer,
        "share_seconds": best.share, "request_seconds": request_seconds, "open_seconds": open_seconds,
        "bytes_up": up, "bytes_down": down, "keys": client.turns().len(), "key_bytes": key_bytes, "public_key_bytes": public_key_bytes,
        "weight_bytes": linear.prepared_bytes(), "plain_seconds": plain_seconds, "noise": noise,
    }))
}

/// Runs a layer on random shares and weights of 8 bits, both parties on one thread, and measures the best of `repeats` runs in processor time.
/// `linear_seconds`: from ciphertexts to results, making of weights' evaluation forms not included (`encode_seconds` where they
/// are streamed); `answer_seconds`: re-randomisation, masks, flooding, switching. `parameters_for` takes the parameters that
/// another method needs; `insecure_ring_degree` repeats published counts at that many slots, below 128 bits.
#[pyfunction]
#[pyo3(signature = (geometry_json, method_name, plain_bits = 20, repeats = 3, noise = false, parameters_for = None, insecure_ring_degree = None))]
#[allow(clippy::too_many_arguments, reason = "a Python function with keywords")]
fn slot_layer_measure(
    py: Python<'_>,
    geometry_json: &str,
    method_name: &str,
    plain_bits: u32,
    repeats: usize,
    noise: bool,
    parameters_for: Option<&str>,
    insecure_ring_degree: Option<usize>,
) -> PyResult<String> {
    let how = slot_method(method_name)?;
    let wanted = Wanted {
        shape: geometry(geometry_json)?,
        how,
        parameters_for: parameters_for.map_or(Ok(how), slot_method)?,
        plain_bits,
        repeats,
        noise,
        insecure_ring_degree,
    };
    let pool = Compute::with_threads(1).map_err(refused)?;
    py.detach(|| pool.run(|| measure(&wanted))).map(|v| v.to_string()).map_err(refused)
}

/// Runs a coefficient-packed layer (Cheetah) on random shares modulo `2^ring_bits`, both parties on one thread, in processor time: `server_seconds`,
/// `request_seconds`, `open_seconds`, bytes, and `off`, the largest distance of summed shares from the result (0 or 1).
#[pyfunction]
#[pyo3(signature = (geometry_json, ring_bits = 20, repeats = 3))]
fn cheetah_layer_measure(
    py: Python<'_>,
    geometry_json: &str,
    ring_bits: u32,
    repeats: usize,
) -> PyResult<String> {
    let shape = geometry(geometry_json)?;
    let pool = Compute::with_threads(1).map_err(refused)?;
    py.detach(|| pool.run(|| cheetah(&shape, ring_bits, repeats))).map(|v| v.to_string()).map_err(refused)
}

fn cheetah(shape: &Geometry, ring_bits: u32, repeats: usize) -> Result<Value, SlotError> {
    let ring = |e| SlotError::Layer(hushnet_layers::batch::LayerError::Ring(e));
    let cipher = |e| SlotError::Layer(hushnet_layers::batch::LayerError::Cipher(e));
    let mut prg = Prg::from_os().map_err(ring)?;
    let context = PackedContext::new(2048).map_err(cipher)?;
    let weights: Vec<i16> = random(&mut prg, shape.weights(), 256).iter().map(|v| *v as i16 - 128).collect();
    let start = thread_time();
    let bias = vec![0; shape.biases()];
    let mut linear = CheetahLinear::new(&context, shape, &weights, &bias, ring_bits)?;
    let prepare = seconds_since(start);
    let prepared = linear.weight_bytes() <= 4 * PREPARED_BYTES;
    if !prepared {
        linear = CheetahLinear::streamed(&context, shape, &weights, &bias, ring_bits)?;
    }
    let client = linear.client();
    let key = PackedClient::generate(&context, &mut prg).map_err(cipher)?;
    let seed = [1; 32];
    let server =
        PackedServer::new(&context, &key.public_key(&seed, &mut prg).map_err(cipher)?).map_err(cipher)?;
    let (len, out) = (client.packing().input_len(), client.packing().output_len());
    let bound = 1 << ring_bits;
    let (mine, theirs) = (random(&mut prg, len, bound), random(&mut prg, len, bound));
    let (mut own, mut got) = (vec![0; out], vec![0; out]);
    let mut best = [f64::MAX; 3];
    let (mut up, mut down) = (0, 0);
    for run in 0..repeats.max(1) {
        let mut seconds = [0.0; 3];
        (up, down) = (0, 0);
        let mut session = [0; 32];
        prg.fill_bytes(&mut session);
        for tile in 0..client.tiles() {
            let start = thread_time();
            let request = client.request(&key, &session, run as u32, tile, &mine)?;
            seconds[0] += seconds_since(start);
            let start = thread_time();
            let answer = linear.answer(&server, &session, run as u32, tile, &request, &theirs, &mut own)?;
            seconds[1] += seconds_since(start);
            let start = thread_time();
            client.open(&key, tile, &answer, &mut got)?;
            seconds[2] += seconds_since(start);
            (up, down) = (up + request.len(), down + answer.len());
        }
        best.iter_mut().zip(seconds).for_each(|(b, s)| *b = b.min(s));
    }
    let x: Vec<u64> = mine.iter().zip(&theirs).map(|(a, b)| (a + b) & low_mask(ring_bits)).collect();
    let want = plain(shape, &x, &weights, bound);
    let off = own
        .iter()
        .zip(&got)
        .zip(&want)
        .map(|((a, b), v)| {
            let d = a.wrapping_add(*b).wrapping_sub(*v) & low_mask(ring_bits);
            d.min(bound - d)
        })
        .max();
    Ok(json!({
        "request_seconds": best[0], "server_seconds": best[1], "open_seconds": best[2], "prepare_seconds": prepare,
        "prepared": prepared, "bytes_up": up, "bytes_down": down, "off": off, "ring_degree": 2048,
    }))
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(slot_layer_counts, m)?)?;
    m.add_function(wrap_pyfunction!(slot_layer_measure, m)?)?;
    m.add_function(wrap_pyfunction!(cheetah_layer_measure, m)?)
}
