//! The safetensors container: reading, digest, writing.

use super::spec::{StageKind, VERSION};
use super::{Limits, LinearWeights, Plan, PlanError, WeightData};
use safetensors::tensor::{Dtype, SafeTensorError, TensorView};
use safetensors::SafeTensors;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

const FORMAT: &str = "hushnet-plan";

/// A tensor of the file: type name as in safetensors (`I8`, `I16`, `I64`), shape, little-endian bytes.
#[derive(Clone, Copy, Debug)]
pub struct TensorBytes<'a> {
    /// `I8`, `I16` or `I64`.
    pub dtype: &'a str,
    /// Shape.
    pub shape: &'a [usize],
    /// Little-endian bytes.
    pub data: &'a [u8],
}

/// SHA-256 (hex) over the JSON, then every tensor in name order: `name 0 dtype 0 shape 0 data`.
#[must_use]
pub fn digest(json: &str, tensors: &BTreeMap<String, TensorBytes<'_>>) -> String {
    let mut hash = Sha256::new();
    hash.update(json.as_bytes());
    for (name, t) in tensors {
        let shape: Vec<String> = t.shape.iter().map(ToString::to_string).collect();
        for part in [name.as_str(), t.dtype, &shape.join(",")] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        hash.update(t.data);
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Type name of the dtypes that plans use.
fn dtype_name(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::I8 => Some("I8"),
        Dtype::I16 => Some("I16"),
        Dtype::I64 => Some("I64"),
        Dtype::F64 => Some("F64"),
        _ => None,
    }
}

fn container_error(e: &SafeTensorError) -> PlanError {
    match e {
        SafeTensorError::HeaderTooSmall
        | SafeTensorError::InvalidHeaderLength
        | SafeTensorError::MetadataIncompleteBuffer => PlanError::Truncated(e.to_string()),
        other => PlanError::NotSafetensors(other.to_string()),
    }
}

/// The same plan is the same bytes: metadata stands in the order of its keys.
pub(crate) fn encode(json: &str, tensors: &BTreeMap<String, TensorBytes<'_>>) -> Result<Vec<u8>, PlanError> {
    crate::tally::written();
    let metadata = BTreeMap::from([
        ("format", FORMAT.to_owned()),
        ("version", VERSION.to_string()),
        ("plan", json.to_owned()),
        ("digest", digest(json, tensors)),
    ]);
    let views = tensors
        .iter()
        .map(|(name, t)| {
            let dtype = match t.dtype {
                "I8" => Dtype::I8,
                "I16" => Dtype::I16,
                "I64" => Dtype::I64,
                "F64" => Dtype::F64,
                other => {
                    return Err(PlanError::Weights {
                        tensor: name.clone(),
                        detail: format!("dtype {other}"),
                    });
                }
            };
            let view = TensorView::new(dtype, t.shape.to_vec(), t.data)
                .map_err(|e| PlanError::Weights { tensor: name.clone(), detail: e.to_string() })?;
            Ok((name.clone(), view))
        })
        .collect::<Result<Vec<_>, PlanError>>()?;
    let plain = safetensors::serialize(views, None).map_err(|e| PlanError::NotSafetensors(e.to_string()))?;
    with_metadata(&plain, &metadata)
}

/// A container with metadata in its header, as safetensors has it but for the order of the keys.
fn with_metadata(plain: &[u8], metadata: &BTreeMap<&str, String>) -> Result<Vec<u8>, PlanError> {
    let broken = || PlanError::NotSafetensors("the written container has no header".into());
    let (length, rest) = plain.split_first_chunk::<8>().ok_or_else(broken)?;
    let (header, data) = rest.split_at_checked(u64::from_le_bytes(*length) as usize).ok_or_else(broken)?;
    let json = |e: serde_json::Error| PlanError::Json(e.to_string());
    let mut entries: BTreeMap<String, serde_json::Value> = serde_json::from_slice(header).map_err(json)?;
    entries.insert("__metadata__".into(), serde_json::to_value(metadata).map_err(json)?);
    let mut header = serde_json::to_vec(&entries).map_err(json)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = Vec::with_capacity(8 + header.len() + data.len());
    file.extend_from_slice(&(header.len() as u64).to_le_bytes());
    file.extend_from_slice(&header);
    file.extend_from_slice(data);
    Ok(file)
}

/// Checks a container and its digest, and hands over the JSON and the tensors.
pub(crate) fn open<R>(
    bytes: &[u8],
    limits: &Limits,
    read: impl FnOnce(&str, &BTreeMap<String, TensorBytes<'_>>) -> Result<R, PlanError>,
) -> Result<R, PlanError> {
    Limits::check("the plan", bytes.len() as u64, limits.file_bytes)?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| container_error(&e))?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let get = |key: &'static str| metadata.get(key).ok_or(PlanError::Format { key, found: "missing".into() });
    let format = get("format")?;
    if format != FORMAT {
        return Err(PlanError::Format { key: "format", found: format!("{format:.40?}") });
    }
    let version = get("version")?;
    if version != &VERSION.to_string() {
        return Err(PlanError::Version { found: format!("{version:.20}") });
    }
    let json = get("plan")?;
    Limits::check("the plan's JSON", json.len() as u64, limits.json())?;
    let file = SafeTensors::deserialize(bytes).map_err(|e| container_error(&e))?;
    let views: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
    let mut tensors = BTreeMap::new();
    for (name, view) in &views {
        let dtype = dtype_name(view.dtype()).ok_or_else(|| PlanError::Weights {
            tensor: name.clone(),
            detail: format!("type {:?} is not one of I8, I16, I64, F64", view.dtype()),
        })?;
        tensors.insert(name.clone(), TensorBytes { dtype, shape: view.shape(), data: view.data() });
    }
    crate::tally::read();
    if get("digest")? != &digest(json, &tensors) {
        return Err(PlanError::Digest);
    }
    read(json, &tensors)
}

impl Plan {
    /// The plan as a file.
    ///
    /// # Errors
    /// [`PlanError`] when the container cannot be written.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PlanError> {
        let mut owned: BTreeMap<String, (&'static str, Vec<usize>, Vec<u8>)> = BTreeMap::new();
        for (stage, spec) in self.stages().iter().zip(&self.spec().stages) {
            let StageKind::Linear(spec) = &spec.kind else { continue };
            let (Some(weights), Some(w), Some(b)) = (stage.weights(), &spec.weights, &spec.bias) else {
                continue;
            };
            let (dtype, data) = match &weights.weights {
                WeightData::I8(v) => ("I8", v.iter().map(|&x| x.cast_unsigned()).collect()),
                WeightData::I16(v) => ("I16", v.iter().flat_map(|x| x.to_le_bytes()).collect()),
            };
            owned.insert(w.clone(), (dtype, spec.geometry.weight_shape(), data));
            let bias = weights.bias.iter().flat_map(|x| x.to_le_bytes()).collect();
            owned.insert(b.clone(), ("I64", vec![weights.bias.len()], bias));
        }
        let views = owned
            .iter()
            .map(|(n, (dtype, shape, data))| (n.clone(), TensorBytes { dtype, shape, data }))
            .collect();
        encode(self.json(), &views)
    }
}

/// Reads a tensor of 64-bit integers of this shape.
pub(crate) fn numbers(
    name: &str,
    shape: &[usize],
    tensors: &BTreeMap<String, TensorBytes<'_>>,
) -> Result<Vec<i64>, PlanError> {
    let fail = |detail: String| PlanError::Weights { tensor: name.to_owned(), detail };
    let found = tensors.get(name).ok_or_else(|| fail("not in the file".into()))?;
    if found.dtype != "I64" || found.shape != shape {
        return Err(fail(format!("{} {:?}, expected I64 {shape:?}", found.dtype, found.shape)));
    }
    let word = |c: &[u8]| i64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
    Ok(found.data.chunks_exact(8).map(word).collect())
}

/// Reads the weights of one linear stage.
pub(crate) fn weights(
    (weight_name, bias_name): (&str, &str),
    shape: &[usize],
    tensors: &BTreeMap<String, TensorBytes<'_>>,
) -> Result<Arc<LinearWeights>, PlanError> {
    let fail = |tensor: &str, detail: String| PlanError::Weights { tensor: tensor.to_owned(), detail };
    let find = |name: &str| tensors.get(name).ok_or_else(|| fail(name, "not in the file".into()));
    let w = find(weight_name)?;
    if w.shape != shape {
        return Err(fail(weight_name, format!("shape {:?}, expected {shape:?}", w.shape)));
    }
    let weights = match w.dtype {
        "I8" => WeightData::I8(w.data.iter().map(|&x| x.cast_signed()).collect()),
        "I16" => WeightData::I16(w.data.chunks_exact(2).map(|c| i16::from_le_bytes([c[0], c[1]])).collect()),
        other => return Err(fail(weight_name, format!("type {other}, expected I8 or I16"))),
    };
    let bias = numbers(bias_name, &shape[..1], tensors)?;
    let count = super::elements(shape);
    if count != Some(weights.len()) || bias.len() != shape[0] {
        return Err(fail(weight_name, "the bytes do not fill the shape".into()));
    }
    Ok(Arc::new(LinearWeights { weights, bias }))
}
