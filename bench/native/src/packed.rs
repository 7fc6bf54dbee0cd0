//! One image under CKKS with rotations, both parties in one process.

use crate::json::{named_arrays, refused};
use hushnet_layers::packed::{
    Circuit, Client, EvaluationKeys, GraphSpec, Network, PackedOptions, Server, Step,
};
use hushnet_ring::Prg;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Keys of the client, weights of the server.
struct Parties {
    client: Client,
    keys: EvaluationKeys,
    server: Server,
}

/// A compiled network, and both parties once they are made.
#[pyclass(frozen)]
pub struct PackedRun {
    network: Network,
    circuit: Arc<Circuit>,
    parties: Mutex<Option<Parties>>,
}

/// Most memory that this process has held, in bytes; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Seconds that this thread has run, where the system tells.
fn cpu_seconds() -> Option<f64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(line.split(' ').next()?.parse::<f64>().ok()? * 1e-9)
}

/// Wall-clock and thread seconds.
fn now(start: Instant) -> [f64; 2] {
    let wall = start.elapsed().as_secs_f64();
    [wall, cpu_seconds().unwrap_or(wall)]
}

impl PackedRun {
    fn evaluate(&self, image: &[f64], threads: usize) -> Result<(Vec<f64>, serde_json::Value), String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|e| text(&e))?;
        let start = Instant::now();
        let mut prg = Prg::from_os().map_err(|e| text(&e))?;
        let mut guard = self.parties.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            let client = Client::new(&self.circuit, &mut prg).map_err(|e| text(&e))?;
            let keys = client.keys(&mut prg).map_err(|e| text(&e))?;
            let server = Server::new(&self.circuit).map_err(|e| text(&e))?;
            *guard = Some(Parties { client, keys, server });
        }
        let Some(parties) = guard.as_ref() else { return Err("no parties".to_owned()) };
        let setup = start.elapsed().as_secs_f64();
        let (times, logits, trace) = pool
            .install(|| {
                let t0 = now(start);
                let uploads = parties.client.encrypt(image, &mut prg)?;
                let t1 = now(start);
                let (answer, trace) = parties.server.evaluate(uploads, &parties.keys, &mut prg)?;
                let t2 = now(start);
                let logits = parties.client.decrypt(&answer)?;
                Ok(([t0, t1, t2, now(start)], logits, trace))
            })
            .map_err(|e: hushnet_layers::packed::PackedError| text(&e))?;
        let exact = self.network.evaluate(image).map_err(|e| text(&e))?;
        let expected = &exact[self.network.output];
        let error = logits.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let mut outside = Vec::new();
        for (step, name) in self.network.steps.iter().zip(&self.network.names) {
            if let Step::Polynomial { input, range, .. } = step {
                let largest = exact[*input].iter().fold(0.0f64, |m, v| m.max(v.abs()));
                if largest > *range {
                    outside.push(serde_json::json!({"step": name, "largest": largest, "range": range}));
                }
            }
        }
        let stage = |i: usize, k: usize| times[i + 1][k] - times[i][k];
        let seconds = |k: usize, setup: f64| serde_json::json!({"setup": setup, "encrypt": stage(0, k), "evaluate": stage(1, k), "decrypt": stage(2, k)});
        let trace = serde_json::json!({
            "seconds": seconds(0, setup),
            "cpu_seconds": seconds(1, 0.0),
            "steps": trace.steps,
            "counts": trace.counts,
            "key_bytes": parties.keys.byte_len().map_err(|e| text(&e))?,
            "plaintext_bytes": parties.server.plaintext_bytes(),
            "peak_memory_bytes": peak_memory(),
            "error": error,
            "out_of_range": outside,
        });
        Ok((logits, trace))
    }
}

#[pymethods]
impl PackedRun {
    #[new]
    #[pyo3(signature = (spec_json, tensors, options_json="{}"))]
    fn new(
        py: Python<'_>,
        spec_json: &str,
        tensors: &Bound<'_, PyDict>,
        options_json: &str,
    ) -> PyResult<Self> {
        let arrays = named_arrays(tensors)?;
        let options: PackedOptions =
            serde_json::from_str(options_json).map_err(|e| refused(format!("options: {e}")))?;
        let (network, circuit) = py
            .detach(|| {
                let network = GraphSpec::from_json(spec_json)?.check(&arrays)?;
                let circuit = Circuit::compile(&network, &options)?;
                Ok((network, circuit))
            })
            .map_err(|e: hushnet_layers::packed::PackedError| refused(e))?;
        Ok(Self { network, circuit: Arc::new(circuit), parties: Mutex::new(None) })
    }

    fn report(&self) -> PyResult<String> {
        serde_json::to_string(&self.circuit.report()).map_err(refused)
    }

    #[pyo3(signature = (image, threads=1))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        image: PyReadonlyArray1<'_, f64>,
        threads: usize,
    ) -> PyResult<(Bound<'py, PyArray1<f64>>, String)> {
        let image: Vec<f64> = image.as_array().iter().copied().collect();
        let (logits, trace) = py.detach(|| self.evaluate(&image, threads)).map_err(refused)?;
        Ok((PyArray1::from_vec(py, logits), trace.to_string()))
    }
}
