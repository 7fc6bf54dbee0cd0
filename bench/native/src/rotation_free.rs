//! Measurements of single linear layers by every coefficient-packed method, for `hushnet bench rotation-free`. One thread, processor time.

use crate::refused;
use hushnet_layers::batch::{Geometry, LayerError};
use hushnet_layers::cheetah::{AnswerTiles, AskTiles, CheetahLinear};
use hushnet_layers::convfhe::{ConvFheContext, ConvFheLinear, ConvFheSession};
use hushnet_layers::layout::Layout;
use hushnet_layers::rotation_free::{
    Design, MethodCost, Profile, RotationFreeClient, RotationFreeLinear, Setup, TallyCounts, DEFAULT_PRICES,
};
use hushnet_mpc::{relu_cost, setup_cost, CostModel, OtKind, Ring, SilentSize};
use hushnet_published::{
    correlation_curve, midrange_curve, InsecureCheetah, InsecureConvFhe, InsecureDesign, InsecureLinear,
};
use hushnet_ring::{low_mask, Prg};
use hushnet_rlwe::pack_lwe::MergeKeys;
use hushnet_rlwe::packed::{PackedClient, PackedContext, PackedServer};
use pyo3::prelude::*;
use serde_json::{json, Value};
use std::time::Instant;

/// Processor seconds of this thread where the system tells, else seconds.
fn seconds(start: Instant) -> f64 {
    // The counter is brought up to date when the thread gives way.
    std::thread::yield_now();
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|s| s.split_whitespace().next()?.parse::<f64>().ok())
        .map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

struct Clock(Instant);

impl Clock {
    fn time<T>(&self, f: impl FnOnce() -> Result<T, LayerError>) -> Result<(T, f64), LayerError> {
        let before = seconds(self.0);
        let value = f()?;
        Ok((value, seconds(self.0) - before))
    }
}

fn operations(c: TallyCounts) -> Value {
    json!({"ntt": c.ntt, "intt": c.intt, "products": c.products, "rotations": c.rotations})
}

fn minus(a: TallyCounts, b: TallyCounts) -> TallyCounts {
    TallyCounts {
        ntt: a.ntt - b.ntt,
        intt: a.intt - b.intt,
        products: a.products - b.products,
        rotations: a.rotations - b.rotations,
    }
}

fn random(prg: &mut Prg, len: usize, mask: u64) -> Vec<u64> {
    let mut v = vec![0; len];
    prg.fill_words(&mut v);
    v.iter_mut().for_each(|x| *x &= mask);
    v
}

/// What every measurement needs.
struct Case<'a> {
    geometry: &'a Geometry,
    ring_bits: u32,
    runs: usize,
    /// Ring degree of the paper's parameters, and weight polynomials made for them at most.
    n: usize,
    most: usize,
}

/// Least seconds of several runs, part by part.
#[derive(Clone, Copy)]
struct Least([f64; 4]);

impl Least {
    fn new() -> Self {
        Self([f64::INFINITY; 4])
    }
    fn take(&mut self, parts: [f64; 4]) {
        self.0.iter_mut().zip(parts).for_each(|(l, p)| *l = l.min(p));
    }
    fn value(&self) -> Value {
        let [client_offline, server_offline, client, server] = self.0;
        json!({"client_offline": client_offline, "server_offline": server_offline, "client": client, "server": server})
    }
}

fn costs(cost: &MethodCost) -> Value {
    json!({"bytes_up": cost.bytes_up, "bytes_down": cost.bytes_down, "bytes_setup": cost.bytes_setup})
}

fn join(mut value: Value, more: Value) -> Value {
    if let (Some(a), Value::Object(b)) = (value.as_object_mut(), more) {
        a.extend(b);
    }
    value
}

impl Case<'_> {
    fn weights(&self, prg: &mut Prg) -> Result<(Layout, Vec<i16>, Vec<i64>), LayerError> {
        let layout = Layout::choose(self.geometry, 4096, &DEFAULT_PRICES)?;
        let weights = random(prg, layout.weight_len(), 127).iter().map(|w| *w as i16 - 64).collect();
        let bias = vec![0; layout.channels_out()];
        Ok((layout, weights, bias))
    }

    fn rotation_free(&self, profile: Profile) -> Result<Value, LayerError> {
        let (clock, mut prg) = (Clock(Instant::now()), Prg::from_os()?);
        let (layout, weights, bias) = self.weights(&mut prg)?;
        let design = Design::for_weights(self.geometry, &weights, self.ring_bits, profile, 0)?;
        let (linear, prepare) =
            clock.time(|| RotationFreeLinear::new(&design, &weights, &bias, false, &mut prg))?;
        let (setup, send) = clock.time(|| {
            let mut setup = Setup::begin(&design, &linear.setup_header())?;
            while setup.received() < setup.expected() {
                setup.receive(&linear.setup_poly(setup.received())?)?;
            }
            Ok(setup)
        })?;
        let (client, receive) = clock.time(|| RotationFreeClient::new(&design, &setup))?;
        drop(setup);
        let mask = low_mask(self.ring_bits);
        let (mine, theirs) =
            (random(&mut prg, layout.input_len(), mask), random(&mut prg, layout.input_len(), mask));
        let (mut own, mut got) = (vec![0; layout.output_len()], vec![0; layout.output_len()]);
        let mut least = Least::new();
        let before = (client.tally(), linear.tally());
        for _ in 0..self.runs {
            let mut parts = [0.0; 4];
            for tile in 0..design.layout().tiles() {
                let (mut prepared, a) = clock.time(|| client.prepare(tile))?;
                let (share, b) = clock.time(|| linear.share(tile, &theirs))?;
                let (request, c) = clock.time(|| client.request(&mut prepared, &mine))?;
                let (answer, d) = clock.time(|| linear.answer(tile, &share, &request, &mut own))?;
                let ((), e) = clock.time(|| client.open(&prepared, &answer, &mut got))?;
                parts.iter_mut().zip([a, b, c + e, d]).for_each(|(p, t)| *p += t);
            }
            least.take(parts);
        }
        let runs = self.runs as u64;
        let per_run = |c: TallyCounts| TallyCounts {
            ntt: c.ntt / runs,
            intt: c.intt / runs,
            products: c.products / runs,
            rotations: c.rotations / runs,
        };
        let p = design.params();
        Ok(join(
            join(
                json!({
                    "ring_degree": p.ring_degree(), "modulus_bits": p.modulus_bits(), "insecure": false,
                    "setup_seconds": {"server": prepare + send, "client": receive},
                    "operations": {"client": operations(per_run(minus(client.tally(), before.0))),
                                   "server": operations(per_run(minus(linear.tally(), before.1)))},
                    "off_by_one_fraction": p.spec().off_by_one_fraction(),
                }),
                json!({"seconds": least.value()}),
            ),
            costs(&design.cost()),
        ))
    }

    fn cheetah(&self) -> Result<Value, LayerError> {
        let (clock, mut prg) = (Clock(Instant::now()), Prg::from_os()?);
        let (layout, weights, bias) = self.weights(&mut prg)?;
        let context = PackedContext::new(2048)?;
        let key = PackedClient::generate(&context, &mut prg)?;
        let server = PackedServer::new(&context, &key.public_key(&[1; 32], &mut prg)?)?;
        let (linear, prepare) =
            clock.time(|| CheetahLinear::new(&context, self.geometry, &weights, &bias, self.ring_bits))?;
        let client = linear.client();
        let mask = low_mask(self.ring_bits);
        let (mine, theirs) =
            (random(&mut prg, layout.input_len(), mask), random(&mut prg, layout.input_len(), mask));
        let (mut own, mut got) = (vec![0; layout.output_len()], vec![0; layout.output_len()]);
        let (mut least, mut up, mut down) = (Least::new(), 0, 0);
        for run in 0..self.runs {
            let mut parts = [0.0; 4];
            (up, down) = (0, 0);
            let mut seed = [0; 32];
            prg.fill_bytes(&mut seed);
            for tile in 0..client.tiles() {
                let stage = run as u32;
                let (request, c) = clock.time(|| client.request(&key, &seed, stage, tile, &mine))?;
                let (answer, d) =
                    clock.time(|| linear.answer(&server, &seed, stage, tile, &request, &theirs, &mut own))?;
                let ((), e) = clock.time(|| client.open(&key, tile, &answer, &mut got))?;
                parts.iter_mut().zip([0.0, 0.0, c + e, d]).for_each(|(p, t)| *p += t);
                (up, down) = (up + request.len(), down + answer.len());
            }
            least.take(parts);
        }
        let cost = linear.packing().cost();
        let (i, o, p) = (cost.input_polys as u64, cost.output_polys as u64, cost.products as u64);
        Ok(json!({
            "ring_degree": 2048, "modulus_bits": 50, "insecure": false, "seconds": least.value(),
            "setup_seconds": {"server": prepare, "client": 0.0}, "bytes_up": up, "bytes_down": down, "bytes_setup": 32 + 12800,
            "operations": {"server": operations(TallyCounts { ntt: i + o, intt: 2 * o, products: 2 * p + 2 * o, rotations: 0 })},
            "off_by_one_fraction": linear.params().off_by_one_fraction(),
        }))
    }

    fn convfhe(&self) -> Result<Value, LayerError> {
        let (clock, mut prg) = (Clock(Instant::now()), Prg::from_os()?);
        let (layout, weights, bias) = self.weights(&mut prg)?;
        let context = ConvFheContext::new()?;
        let key = PackedClient::generate(context.packed(), &mut prg)?;
        let (linear, prepare) =
            clock.time(|| ConvFheLinear::new(&context, self.geometry, &weights, &bias, self.ring_bits))?;
        let spacing = linear.design().layout().spacing();
        let (keys, made) =
            clock.time(|| Ok(MergeKeys::for_client(context.merge(), &key, spacing, &[2; 32], &mut prg)?))?;
        let server = PackedServer::new(context.packed(), &key.public_key(&[1; 32], &mut prg)?)?;
        let session = ConvFheSession::new(server, keys);
        let client = linear.client();
        let mask = low_mask(self.ring_bits);
        let (mine, theirs) =
            (random(&mut prg, layout.input_len(), mask), random(&mut prg, layout.input_len(), mask));
        let (mut own, mut got) = (vec![0; layout.output_len()], vec![0; layout.output_len()]);
        let mut least = Least::new();
        for run in 0..self.runs {
            let (mut parts, mut seed) = ([0.0; 4], [0; 32]);
            prg.fill_bytes(&mut seed);
            for tile in 0..linear.design().tiles() {
                let stage = run as u32;
                let (request, c) = clock.time(|| client.request(&key, &seed, stage, tile, &mine))?;
                let (answer, d) = clock
                    .time(|| linear.answer(&session, &seed, stage, tile, &request, &theirs, &mut own))?;
                let ((), e) = clock.time(|| client.open(&key, tile, &answer, &mut got))?;
                parts.iter_mut().zip([0.0, 0.0, c + e, d]).for_each(|(p, t)| *p += t);
            }
            least.take(parts);
        }
        let cost = linear.design().cost();
        Ok(join(
            json!({
                "ring_degree": 4096, "modulus_bits": 50, "insecure": false, "seconds": least.value(),
                "setup_seconds": {"server": prepare, "client": made},
                "operations": {"server": operations(cost.server_online), "client": operations(cost.client_online)},
                "off_by_one_fraction": linear.design().params().off_by_one_fraction(),
            }),
            costs(&cost),
        ))
    }

    fn published(&self, which: &str) -> Result<Value, LayerError> {
        let (clock, mut prg) = (Clock(Instant::now()), Prg::from_os()?);
        let design = InsecureDesign::new(self.geometry, self.n)?;
        let layout = design.layout();
        let real = |w: &u64| *w as f64 / 2f64.powi(63) - 1.0;
        let weights: Vec<f64> = random(&mut prg, layout.weight_len(), u64::MAX).iter().map(real).collect();
        let input: Vec<i64> =
            random(&mut prg, layout.input_len(), low_mask(40)).iter().map(|v| *v as i64).collect();
        let mut least = Least::new();
        let (mut server_ops, mut client_ops) = (TallyCounts::default(), TallyCounts::default());
        let (mut up, mut down, mut setup) = (0, 0, 0);
        match which {
            "published" => {
                let linear = InsecureLinear::new(&design, &weights, &[1; 32], self.most, &mut prg)?;
                let client = linear.client();
                setup = design.bytes().2;
                for run in 0..self.runs as u64 {
                    let ((request, query), c) = clock.time(|| client.request(&input, &mut prg))?;
                    let (share, b) = clock.time(|| linear.share(&input))?;
                    let ((answer, _), d) = clock.time(|| linear.answer(&request, &share, &mut prg))?;
                    let (_, e) = clock.time(|| client.open(&query, &answer))?;
                    least.take([0.0, b, c + e, d]);
                    (up, down) = (request.len(), answer.len());
                    if run == 0 {
                        (server_ops, client_ops) = (linear.tally(), client.tally());
                    }
                }
            }
            "cheetah-published" => {
                let cheetah = InsecureCheetah::new(&design, &weights, self.most, &mut prg)?;
                for run in 0..self.runs as u64 {
                    let (request, c) = clock.time(|| cheetah.request(&input, &mut prg))?;
                    let (answer, d) = clock.time(|| cheetah.answer(&request))?;
                    least.take([0.0, 0.0, c, d]);
                    (up, down) = (request.len(), answer.len());
                    if run == 0 {
                        server_ops = cheetah.tally();
                    }
                }
            }
            _ => {
                let convfhe = InsecureConvFhe::new(&design, &weights, self.most, &mut prg)?;
                for run in 0..self.runs as u64 {
                    let (request, c) = clock.time(|| convfhe.request(&input, &mut prg))?;
                    let (answer, d) = clock.time(|| convfhe.answer(&request))?;
                    least.take([0.0, 0.0, c, d]);
                    // Whole polynomials of 104 and 55 bits.
                    up = request.len() * 2 * self.n * 104 / 8;
                    down = answer.len() * 2 * self.n * 55 / 8;
                    if run == 0 {
                        server_ops = convfhe.tally();
                    }
                }
            }
        }
        Ok(json!({
            "ring_degree": self.n, "modulus_bits": 104, "insecure": true, "seconds": least.value(),
            "bytes_up": up, "bytes_down": down, "bytes_setup": setup,
            "operations": {"server": operations(server_ops), "client": operations(client_ops)},
        }))
    }

    fn measure(&self, method: &str) -> Result<Value, LayerError> {
        match method {
            "compact" => self.rotation_free(Profile::Compact),
            "flooded" => self.rotation_free(Profile::Flooded),
            "cheetah" => self.cheetah(),
            "convfhe" => self.convfhe(),
            _ => self.published(method),
        }
    }
}

const METHODS: [&str; 7] =
    ["compact", "flooded", "cheetah", "convfhe", "published", "cheetah-published", "convfhe-published"];

/// One layer by several methods, on one thread: JSON by method with `seconds` (client_offline, server_offline, client, server; processor time,
/// least of `runs`), `operations`, `bytes_up`, `bytes_down`, `bytes_setup`, `insecure`. Methods: compact, flooded, cheetah, convfhe at secure
/// parameters; published, cheetah-published, convfhe-published at the paper's (`ring_degree`, log2 Q = 104, Q' = 55), which are insecure and need
/// `insecure_parameters`, with at most `most` weight polynomials, used in turn. ValueError for other methods and layers that do not fit.
#[pyfunction]
#[pyo3(signature = (geometry_json, methods, ring_bits=26, runs=3, ring_degree=8192, most=32, insecure_parameters=false))]
#[allow(clippy::too_many_arguments)]
fn rotation_free_layer(
    py: Python<'_>,
    geometry_json: &str,
    methods: Vec<String>,
    ring_bits: u32,
    runs: usize,
    ring_degree: usize,
    most: usize,
    insecure_parameters: bool,
) -> PyResult<String> {
    let geometry: Geometry =
        serde_json::from_str(geometry_json).map_err(|e| refused(format!("geometry: {e}")))?;
    let case = Case { geometry: &geometry, ring_bits, runs: runs.max(1), n: ring_degree, most: most.max(1) };
    py.detach(|| {
        let pool = rayon_pool()?;
        let mut out = serde_json::Map::new();
        for method in methods {
            if !METHODS.contains(&method.as_str()) {
                return Err(refused(format!("no method {method:?}: one of {}", METHODS.join(", "))));
            }
            if method.ends_with("published") && !insecure_parameters {
                return Err(refused(format!(
                    "{method} leaks weights; it runs only with insecure_parameters"
                )));
            }
            let value = pool.run(|| case.measure(&method)).map_err(refused)?;
            out.insert(method, value);
        }
        Ok(Value::Object(out).to_string())
    })
}

/// One thread for a measurement.
fn rayon_pool() -> PyResult<hushnet_runtime::Compute> {
    hushnet_runtime::Compute::with_threads(1).map_err(refused)
}

/// The averaging attack on k = 1, 4, 16, ... repeated set-ups. `published`: `(k, error)`, root mean square over 64 weights in [-1, 1];
/// `compact`, `flooded`: `(k, correlation)` with the weights, in deviations of what no relation gives.
#[pyfunction]
#[pyo3(signature = (setups, profile="published"))]
fn rotation_free_attack(py: Python<'_>, setups: usize, profile: &str) -> PyResult<Vec<(usize, f64)>> {
    py.detach(|| match profile {
        "published" => midrange_curve(setups).map_err(refused),
        "compact" => correlation_curve(Profile::Compact, setups).map_err(refused),
        "flooded" => correlation_curve(Profile::Flooded, setups).map_err(refused),
        other => Err(refused(format!("no profile {other:?}: published, compact or flooded"))),
    })
}

/// Bytes of exact ReLU on so many shares modulo 2^ring_bits in one new session, its set-up included, by the OT extension that sends least.
#[pyfunction]
fn relu_bytes(values: usize, ring_bits: u32) -> PyResult<u64> {
    let ring = Ring::new(ring_bits).map_err(refused)?;
    let bytes = |size| {
        let mut model = CostModel::new(OtKind::Silent(size));
        setup_cost(&mut model);
        relu_cost(&mut model, values, ring);
        model.cost().bytes()
    };
    let sizes = [SilentSize::Tiny, SilentSize::Small, SilentSize::Medium, SilentSize::Large];
    Ok(sizes.map(bytes).into_iter().min().unwrap_or(0))
}

/// Adds these functions to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(rotation_free_layer, m)?)?;
    m.add_function(wrap_pyfunction!(rotation_free_attack, m)?)?;
    m.add_function(wrap_pyfunction!(relu_bytes, m)?)
}
