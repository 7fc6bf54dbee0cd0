//! The packed engine: many features of an image, or of some side by side, in every ciphertext (`docs/packed.md`).
//!
//! A plan has one stage for the whole network. Its public half says where input elements and outputs stand in slots and which rotation keys are
//! wanted; with the weights, the server makes the circuit again from what the search chose, and demands that its public half is the one stated.
//! Any number of images are served, block after block.

use crate::plan::spec::NetworkSpec;
use crate::plan::{Files, PlanError, TensorBytes};
use hushnet_layers::packed::{
    Circuit, GraphSpec, Interface, InterfaceSpec, Network, Op, PackedError, StepSpec, UploadSpec,
};
use hushnet_rlwe::batch::TAIL;
use hushnet_rlwe::ckks::CkksParams;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A tensor of the file that clients receive as well.
struct PublicFile {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    data: Vec<u8>,
}

/// A packed stage of a plan, checked, with what both parties need.
pub struct PackedParts {
    /// Images side by side.
    pub(super) images: usize,
    pub(super) interface: Arc<Interface>,
    pub(super) circuit: Option<Arc<Circuit>>,
    files: Vec<PublicFile>,
}

/// Names of the arrays that a network reads.
pub(super) fn arrays(network: &GraphSpec) -> Vec<String> {
    let of = |s: &StepSpec| match s {
        StepSpec::Linear { weights, bias, .. } => {
            std::iter::once(weights.clone()).chain(bias.clone()).collect()
        }
        _ => Vec::new(),
    };
    network.steps.iter().flat_map(of).collect()
}

struct Reader<'a> {
    files: &'a Files<'a>,
    public: Vec<PublicFile>,
}

impl<'a> Reader<'a> {
    fn file(&self, name: &str) -> Result<&'a TensorBytes<'a>, PlanError> {
        let missing = || PlanError::Weights { tensor: name.to_owned(), detail: "not in the file".into() };
        self.files.get(name).ok_or_else(missing)
    }

    /// Numbers of a public tensor of two axes, with the first axis.
    fn integers(&mut self, name: &str, columns: usize) -> Result<(usize, Vec<i64>), PlanError> {
        let file = self.file(name)?;
        let fail = |detail: String| PlanError::Weights { tensor: name.to_owned(), detail };
        let [rows, width] = *file.shape else { return Err(fail("it has not two axes".into())) };
        if width != columns {
            return Err(fail(format!("rows of {width} numbers, expected {columns}")));
        }
        let (dtype, values) = match file.dtype {
            "I16" => (
                "I16",
                file.data.chunks_exact(2).map(|c| i64::from(i16::from_le_bytes([c[0], c[1]]))).collect(),
            ),
            "I64" => {
                let word = |c: &[u8]| i64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
                ("I64", file.data.chunks_exact(8).map(word).collect())
            }
            other => return Err(fail(format!("type {other}, expected I16 or I64"))),
        };
        if !self.public.iter().any(|f| f.name == name) {
            let (shape, data) = (file.shape.to_vec(), file.data.to_vec());
            self.public.push(PublicFile { name: name.to_owned(), dtype, shape, data });
        }
        Ok((rows, values))
    }

    fn reals(&self, name: &str) -> Result<Vec<f64>, PlanError> {
        let file = self.file(name)?;
        if file.dtype != "F64" {
            let detail = format!("type {}, expected F64", file.dtype);
            return Err(PlanError::Weights { tensor: name.to_owned(), detail });
        }
        let word = |c: &[u8]| f64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
        Ok(file.data.chunks_exact(8).map(word).collect())
    }
}

impl PackedParts {
    /// Checks a stage. `elements` of an image and `bounds` are those of its input and output, `hide` whether the plan floods.
    pub(super) fn check(
        (name, stage): (&str, &NetworkSpec),
        params: &CkksParams,
        files: &Files<'_>,
        (elements, [input_bound, output_bound], hide): ([usize; 2], [f64; 2], bool),
    ) -> Result<Self, PlanError> {
        let fail = |detail: String| PlanError::Linear { stage: name.to_owned(), detail };
        let refused = |e: PackedError| fail(e.to_string());
        let images = stage.images;
        if !(1..=params.slots()).contains(&images) {
            return Err(fail(format!("{images} images side by side, of at most {} slots", params.slots())));
        }
        // Plans bound the elements of a tensor, parameters the slots.
        let [inputs, outputs] = elements.map(|e| e.saturating_mul(images));
        let mut reader = Reader { files, public: Vec::new() };
        let mut uploads = Vec::with_capacity(stage.uploads.len());
        for u in &stage.uploads {
            let (_, numbers) = reader.integers(&u.slots, params.slots())?;
            if let Some(wrong) = numbers.iter().find(|v| !(-1..inputs as i64).contains(*v)) {
                return Err(fail(format!("input element {wrong} does not exist")));
            }
            // -1, no element, is u32::MAX.
            let elements: Vec<u32> = numbers.iter().map(|v| *v as u32).collect();
            let slots = elements.chunks(params.slots()).map(<[u32]>::to_vec).collect();
            uploads.push(UploadSpec { level: u.level, slots });
        }
        let (count, places) = reader.integers(&stage.places, 2)?;
        if count != outputs {
            return Err(fail(format!("places for {count} outputs, the result has {outputs}")));
        }
        let number = |v: i64| u32::try_from(v).unwrap_or(u32::MAX);
        let interface = InterfaceSpec {
            inputs,
            input_bound,
            scale: stage.scale,
            uploads,
            rotations: stage.rotations.clone(),
            bootstrap: stage.bootstrap,
            output_level: stage.answer_level,
            output_scale: stage.answer_scale,
            output_bound,
            answer: stage.answer,
            places: places.chunks(2).map(|p| (number(p[0]), number(p[1]))).collect(),
        };
        let interface = Arc::new(interface.check(params).map_err(refused)?);
        let circuit = match (&stage.network, &stage.options, &stage.choices) {
            (None, None, None) => None,
            (Some(network), Some(options), Some(choices)) => {
                if options.hide_weights != hide {
                    return Err(fail("hide_weights of the plan and of its circuit differ".into()));
                }
                let mut values = BTreeMap::new();
                for array in arrays(network) {
                    values.insert(array.clone(), reader.reals(&array)?);
                }
                let network: Network = network.check(&values).map_err(refused)?;
                let circuit =
                    Circuit::rebuild(&network, options, params, choices.clone()).map_err(refused)?;
                if circuit.interface().spec() != interface.spec() {
                    let detail = "the layouts, keys or scales that the plan states are not those of its network; compile the model again";
                    return Err(fail(detail.into()));
                }
                Some(Arc::new(circuit))
            }
            _ => return Err(fail("only some of network, options and choices are given".into())),
        };
        Ok(Self { images, interface, circuit, files: reader.public })
    }

    /// The public half of the circuit, which clients work from.
    #[must_use]
    pub fn interface(&self) -> &Arc<Interface> {
        &self.interface
    }

    /// The circuit, where the plan has weights.
    #[must_use]
    pub fn circuit(&self) -> Option<&Arc<Circuit>> {
        self.circuit.as_ref()
    }

    /// Names of the steps, where the plan has weights.
    pub(super) fn steps(&self) -> Vec<String> {
        let of = |c: &Arc<Circuit>| c.program().ops.iter().map(Op::name).map(str::to_owned).collect();
        self.circuit.as_ref().map_or_else(Vec::new, of)
    }

    /// Bytes of the ciphertexts of a block that are held at once.
    pub(super) fn peak_bytes(&self) -> u64 {
        let (params, spec) = (self.interface.params(), self.interface.spec());
        let words: usize = spec.uploads.iter().map(|u| u.slots.len() * u.level).sum();
        let sent = 16 * (words * params.ring_degree()) as u64;
        sent + self.circuit.as_ref().map_or(0, |c| c.work_bytes())
    }

    /// Deviation of the result's error before any flood, and that which a flood must hide: ring units, 0 without weights.
    pub(super) fn deviations(&self) -> (f64, f64) {
        let last = self.circuit.as_ref().and_then(|c| c.outcomes().last().copied());
        last.map_or((0.0, 0.0), |o| (o.sd, o.hidden * o.scale / TAIL))
    }

    /// Tensors of the file that clients receive.
    pub(super) fn public_files(&self) -> Files<'_> {
        let mut out = BTreeMap::new();
        for PublicFile { name, dtype, shape, data } in &self.files {
            out.insert(name.clone(), TensorBytes { dtype, shape, data });
        }
        out
    }
}
