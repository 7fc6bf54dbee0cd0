//! One bootstrap, both parties in one object: processor seconds by step, errors beside the derived ones, bytes.

use crate::slots::thread_time;
use hushnet_ring::Prg;
use hushnet_rlwe::ckks::bootstrap::{
    BootstrapKeys, BootstrapParams, BootstrapSpec, Bootstrapper, Encapsulation,
};
use hushnet_rlwe::ckks::client::{KeyGenerator, SecretKey};
use hushnet_rlwe::ckks::{CkksError, Complex, EncodeAt, Encoder, GaloisKeys, Insecure, RelinKey};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::time::Instant;

fn refused(error: CkksError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The standard parameters; with a degree, of the same steps in a small ring without security.
fn parameters(slots: usize, insecure_ring_degree: Option<usize>) -> Result<BootstrapParams, CkksError> {
    match insecure_ring_degree {
        None => BootstrapSpec::standard(slots)?.check(),
        Some(ring_degree) => BootstrapSpec::at(ring_degree, slots)?.check_insecure(Insecure),
    }
}

struct Party {
    bootstrapper: Bootstrapper,
    relin: RelinKey,
    galois: GaloisKeys,
    encapsulation: Encapsulation,
    secret: SecretKey,
    encoder: Encoder,
    prg: Prg,
}

/// Seconds and the thread's processor seconds, processor seconds by step, errors of the message, what was derived of them.
type Once = ([f64; 2], BTreeMap<&'static str, f64>, Vec<f64>, [f64; 2]);

impl Party {
    /// Bootstraps a random message.
    fn once(&mut self) -> Result<Once, CkksError> {
        let params = self.bootstrapper.params();
        let mut words = vec![0; params.spec().slots];
        self.prg.fill_words(&mut words);
        let own = words.iter().map(|w| *w as f64 / 2f64.powi(63) - 1.0);
        let values: Vec<f64> = own.cycle().take(params.ckks().slots()).collect();
        let at = EncodeAt { level: params.entry_level(), scale: params.fresh_scale(), bound: 1.0 };
        let c = self.secret.encrypt(&self.encoder.encode(&values, at)?, &mut self.prg)?;
        let mut steps = BTreeMap::new();
        let (start, clock) = (Instant::now(), thread_time());
        let mut last = clock;
        let keys =
            BootstrapKeys { relin: &self.relin, galois: &self.galois, encapsulation: &self.encapsulation };
        let out = self.bootstrapper.apply_observed(&c, keys, &mut |step| {
            let now = thread_time();
            steps.insert(step, (now - last) as f64 * 1e-9);
            last = now;
        })?;
        let seconds = [start.elapsed().as_secs_f64(), (thread_time() - clock) as f64 * 1e-9];
        let got: Vec<Complex> = self.encoder.decode_complex(&self.secret.decrypt(&out)?)?;
        // Messages are real, and imaginary parts are dropped by a bootstrap.
        let errors = got.iter().zip(&values).map(|(g, v)| g.re - v).collect();
        let derived = self.bootstrapper.design().error(c.scale(), 1.0)?;
        let sd = derived.mean.hypot(derived.approximation).hypot(c.noise() / c.scale());
        Ok((seconds, steps, errors, [sd, out.error_bound()]))
    }
}

fn measure(slots: usize, insecure_ring_degree: Option<usize>, runs: usize) -> Result<Value, CkksError> {
    let params = parameters(slots, insecure_ring_degree)?;
    let start = Instant::now();
    let bootstrapper = Bootstrapper::new(&params)?;
    let encode_seconds = start.elapsed().as_secs_f64();
    let mut prg = Prg::from_os()?;
    let generator = KeyGenerator::new(params.ckks());
    let secret = generator.secret_key(&mut prg)?;
    let start = Instant::now();
    let relin = generator.relin_key(&secret, &mut prg)?;
    let galois = generator.galois_keys_at(&secret, &params.rotations(), &mut prg)?;
    let encapsulation = generator.encapsulation(&secret, &params, &mut prg)?;
    let key_seconds = start.elapsed().as_secs_f64();
    let bytes = params.ckks().relin_key_bytes() + galois.byte_len() + params.encapsulation_bytes();
    let encoder = Encoder::new(params.ckks());
    let mut party = Party { bootstrapper, relin, galois, encapsulation, secret, encoder, prg };
    let (mut seconds, mut processor, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut errors, mut derived) = (Vec::new(), [0.0; 2]);
    // The first of a process fills buffers with pages from the system, which later ones use again.
    let first = party.once()?.0;
    for _ in 0..runs {
        let (time, steps, off, from) = party.once()?;
        seconds.push(time[0]);
        processor.push(time[1]);
        parts.push(steps);
        errors.extend(off);
        derived = from;
    }
    let rms = (errors.iter().map(|e: &f64| e * e).sum::<f64>() / errors.len() as f64).sqrt();
    let worst = errors.iter().fold(0.0f64, |m, e| m.max(e.abs()));
    let (ckks, operations) = (params.ckks(), party.bootstrapper.design().operations());
    let special: f64 = ckks.special_primes().iter().map(|p| (*p as f64).log2()).sum();
    Ok(json!({
        "ring_degree": ckks.ring_degree(),
        "slots": params.spec().slots,
        "security_bits": if ckks.is_secure() { 128 } else { 0 },
        "log_qp": ckks.modulus_bits(ckks.max_level()) + special,
        "levels_left": params.fresh_level().get() - params.entry_level().get(),
        "first_seconds": first[0],
        "first_processor_seconds": first[1],
        "runs": seconds,
        "processor_runs": processor,
        "steps": parts,
        "inputs": errors.len(),
        "rms_error_bits": -rms.log2(),
        "worst_error_bits": -worst.log2(),
        "derived_rms_bits": -derived[0].log2(),
        "derived_bound_bits": -derived[1].log2(),
        "failure_bits": party.bootstrapper.design().failure_bits(),
        "key_bytes": bytes,
        "matrix_bytes": party.bootstrapper.bytes(),
        "key_switches": operations.switches,
        "hoisted_rotations": operations.hoisted,
        "encode_seconds": encode_seconds,
        "key_seconds": key_seconds,
    }))
}

/// Bootstraps a random message, which is timed apart from the others, and `runs` more under fresh keys; JSON.
#[pyfunction]
#[pyo3(signature = (slots, runs=1, insecure_ring_degree=None))]
fn bootstrap_measure(
    py: Python<'_>,
    slots: usize,
    runs: usize,
    insecure_ring_degree: Option<usize>,
) -> PyResult<String> {
    py.detach(|| measure(slots, insecure_ring_degree, runs)).map(|v| v.to_string()).map_err(refused)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(bootstrap_measure, m)?)
}
