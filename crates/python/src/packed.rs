//! One image under CKKS with rotations: what the planner makes of a network.

use crate::json::{named_arrays, refused};
use hushnet_layers::packed::{Circuit, GraphSpec, PackedOptions};
use numpy::PyArray2;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A compiled network.
#[pyclass(frozen, module = "hushnet._native")]
pub struct PackedCircuit(Circuit);

#[pymethods]
impl PackedCircuit {
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
        py.detach(|| Circuit::compile(&GraphSpec::from_json(spec_json)?.check(&arrays)?, &options))
            .map(Self)
            .map_err(|e: hushnet_layers::packed::PackedError| refused(e))
    }

    /// What a plan says of the circuit: `(JSON, slots of every upload, places of the outputs)`, the latter as int64 arrays
    /// `[ciphertexts, N/2]` (-1: no element) and `[outputs, 2]`.
    #[allow(clippy::type_complexity)]
    fn plan<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(String, Vec<Bound<'py, PyArray2<i64>>>, Bound<'py, PyArray2<i64>>)> {
        let (c, p) = (&self.0, self.0.params());
        let interface = c.interface().spec();
        let element = |e: &u32| if *e == u32::MAX { -1 } else { i64::from(*e) };
        let rows = |slots: &Vec<Vec<u32>>| -> Vec<Vec<i64>> {
            slots.iter().map(|s| s.iter().map(element).collect()).collect()
        };
        let slots = interface
            .uploads
            .iter()
            .map(|u| PyArray2::from_vec2(py, &rows(&u.slots)).map_err(refused))
            .collect::<PyResult<_>>()?;
        let places: Vec<Vec<i64>> =
            interface.places.iter().map(|p| vec![i64::from(p.0), i64::from(p.1)]).collect();
        let data: Vec<u64> = (0..p.max_level().get()).map(|i| p.data_prime(i)).collect();
        let facts = serde_json::json!({
            "params": {
                "ring_degree": p.ring_degree(), "security_bits": if p.is_secure() { 128 } else { 0 }, "insecure": !p.is_secure(),
                "non_interactive": {
                    "data_primes": data, "special_primes": p.special_primes(), "digits": p.spec().digits,
                    "key_level": p.key_level().get(), "packing": "real",
                },
            },
            "scale": interface.scale,
            "levels": interface.uploads.iter().map(|u| u.level).collect::<Vec<_>>(),
            "rotations": interface.rotations,
            "bootstrap": interface.bootstrap,
            "answer": interface.answer,
            "answer_level": interface.output_level,
            "answer_scale": interface.output_scale,
            "deviation": c.outcomes().last().map(|o| o.sd),
            "flood_bits": c.flood_bits(),
            "options": c.options(),
            "choices": c.choices(),
            "report": c.report(),
        });
        Ok((facts.to_string(), slots, PyArray2::from_vec2(py, &places).map_err(refused)?))
    }
}
