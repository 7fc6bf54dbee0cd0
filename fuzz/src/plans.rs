//! Changes of plan files that keep the container and its digest right: the JSON as a tree, weights as tensors. Without this hardly any
//! input would come behind the digest.

use crate::nets::{self, File};
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// splitmix64.
pub struct Rng(u64);

impl Rng {
    #[must_use]
    pub fn new(seed: u32) -> Self {
        Self(u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// A plan file taken apart.
#[derive(Clone)]
pub struct Parts {
    json: Value,
    files: BTreeMap<String, File>,
}

fn dtype(name: &str) -> Option<&'static str> {
    ["I8", "I16", "I64", "F64"].into_iter().find(|d| *d == name)
}

impl Parts {
    /// Takes a safetensors file apart, whatever its digest; `None` when it is none.
    #[must_use]
    pub fn open(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|l| *l <= rest.len())?;
        let (header, data) = rest.split_at(length);
        let header: Value = serde_json::from_slice(header).ok()?;
        let header = header.as_object()?;
        let json = serde_json::from_str(header.get("__metadata__")?.get("plan")?.as_str()?).ok()?;
        let mut files = BTreeMap::new();
        for (name, entry) in header.iter().filter(|(n, _)| *n != "__metadata__") {
            let numbers = |v: &Value| {
                v.as_array()?.iter().map(|n| Some(n.as_u64()? as usize)).collect::<Option<Vec<_>>>()
            };
            let shape = numbers(entry.get("shape")?)?;
            let range = numbers(entry.get("data_offsets")?)?;
            let bytes = data.get(*range.first()?..*range.get(1)?)?.to_vec();
            files.insert(name.clone(), (dtype(entry.get("dtype")?.as_str()?)?, shape, bytes));
        }
        Some(Self { json, files })
    }

    /// The file again, with the digest of what is in it now; `None` when tensors have not the bytes of their shapes.
    #[must_use]
    pub fn seal(&self) -> Option<Vec<u8>> {
        let width = |d: &str| match d {
            "I8" => 1,
            "I16" => 2,
            _ => 8,
        };
        let fits = |(d, shape, data): &File| {
            shape.iter().try_fold(width(d), |n: usize, s| n.checked_mul(*s)) == Some(data.len())
        };
        self.files.values().all(fits).then(|| nets::file(&self.json, &self.files))
    }
}

/// Numbers at which something changes.
const NUMBERS: [i64; 30] = [
    0,
    1,
    -1,
    2,
    3,
    4,
    5,
    7,
    8,
    15,
    16,
    31,
    32,
    62,
    63,
    64,
    65,
    100,
    127,
    128,
    255,
    256,
    1024,
    2048,
    4096,
    8192,
    65_535,
    i32::MAX as i64,
    1 << 40,
    i64::MAX,
];
/// Words that plans know.
const WORDS: [&str; 71] = [
    "client-aided",
    "two-party",
    "non-interactive",
    "batch",
    "packed",
    "real",
    "fixed",
    "shared",
    "cipher",
    "complex",
    "conjugate-invariant",
    "client",
    "linear",
    "share",
    "relu",
    "leaky_relu",
    "clip",
    "truncate",
    "max_pool",
    "sum_pool",
    "scale",
    "add",
    "shift",
    "function",
    "product",
    "matrix_product",
    "inside",
    "constant",
    "rising",
    "reshape",
    "transpose",
    "concat",
    "slice",
    "pad",
    "reveal",
    "output",
    "argmax",
    "encrypt",
    "decrypt",
    "multiply",
    "relinearise",
    "rescale",
    "combine",
    "cheetah",
    "rotation-free",
    "convfhe",
    "gala",
    "gazelle",
    "fresh",
    "sent",
    "dense",
    "conv2d",
    "any",
    "non-negative",
    "garbled",
    "ot",
    "quantize",
    "dequantize",
    "affine",
    "softmax",
    "average_pool",
    "reduce_mean",
    "broadcast",
    "prelu",
    "channel_scale",
    "gelu",
    "sigmoid",
    "div",
    "sqrt",
    "polynomial",
    "",
];
/// Fields that a stage or tensor may lack.
const FIELDS: [&str; 24] = [
    "protocol",
    "exact",
    "weights",
    "bias",
    "hide_weights",
    "key_level",
    "noise_bits",
    "range",
    "scale",
    "bound",
    "frac_bits",
    "level",
    "parts",
    "mask_drop_bits",
    "predicted",
    "notes",
    "factors",
    "constant",
    "network",
    "options",
    "choices",
    "min",
    "max",
    "axes",
];

fn count(v: &Value) -> usize {
    1 + match v {
        Value::Array(a) => a.iter().map(count).sum(),
        Value::Object(o) => o.values().map(count).sum(),
        _ => 0,
    }
}

/// The node with this number in order of depth.
fn node<'a>(v: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(v);
    }
    *at -= 1;
    match v {
        Value::Array(a) => a.iter_mut().find_map(|v| node(v, at)),
        Value::Object(o) => o.values_mut().find_map(|v| node(v, at)),
        _ => None,
    }
}

fn any(v: &mut Value, rng: &mut Rng) -> Value {
    let mut at = rng.below(count(v));
    node(v, &mut at).map_or(Value::Null, |v| v.clone())
}

fn number(old: &Value, rng: &mut Rng) -> Value {
    let whole = old.as_i64().unwrap_or(1);
    match rng.below(12) {
        0..=4 => NUMBERS[rng.below(NUMBERS.len())].into(),
        5 => whole.wrapping_add(1).into(),
        6 => whole.wrapping_sub(1).into(),
        7 => whole.wrapping_mul(2).into(),
        8 => (whole / 2).into(),
        9 => json!(old.as_f64().unwrap_or(1.0) * 1.5),
        10 => json!([0.0, -0.5, 0.5, 1e300, 5e-324, -1e300][rng.below(6)]),
        _ => u64::MAX.into(),
    }
}

/// Every whole number `from` becomes `to`, so that shapes which must agree still do.
fn replace_all(v: &mut Value, from: i64, to: &Value) {
    match v {
        Value::Number(n) if n.as_i64() == Some(from) => *v = to.clone(),
        Value::Array(a) => a.iter_mut().for_each(|v| replace_all(v, from, to)),
        Value::Object(o) => o.values_mut().for_each(|v| replace_all(v, from, to)),
        _ => {}
    }
}

/// One number of the tree becomes another one wherever it stands within a node.
fn change_alike(tree: &mut Value, rng: &mut Rng) {
    let Some(from) = (0..8).find_map(|_| any(tree, rng).as_i64()) else { return };
    let to = number(&from.into(), rng);
    let mut at = rng.below(count(tree));
    if let Some(place) = node(tree, &mut at) {
        replace_all(place, from, &to);
    }
}

/// One change of one node.
fn change(tree: &mut Value, rng: &mut Rng) {
    let graft = any(tree, rng);
    let mut at = 1 + rng.below(count(tree).saturating_sub(1));
    let Some(place) = node(tree, &mut at) else { return };
    match place {
        _ if rng.below(12) == 0 => *place = graft,
        Value::Number(_) => *place = number(place, rng),
        Value::Bool(b) => *b = !*b,
        Value::String(_) => *place = WORDS[rng.below(WORDS.len())].into(),
        Value::Null => *place = number(&Value::Null, rng),
        Value::Array(list) if list.is_empty() => list.push(graft),
        Value::Array(list) => {
            let (i, j) = (rng.below(list.len()), rng.below(list.len()));
            match rng.below(6) {
                0 => drop(list.remove(i)),
                1 => list.insert(i, list[j].clone()),
                2 => list.swap(i, j),
                3 => list.truncate(i),
                4 => list.push(list[i].clone()),
                _ => list[i] = graft,
            }
        }
        Value::Object(map) => {
            let key = map.keys().nth(rng.below(map.len())).cloned().unwrap_or_default();
            match rng.below(3) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(FIELDS[rng.below(FIELDS.len())].into(), graft)),
                _ => drop(map.insert(key, graft)),
            }
        }
    }
}

/// One change of one tensor; bytes keep filling the shape.
fn change_file(files: &mut BTreeMap<String, File>, rng: &mut Rng) {
    let Some(name) = files.keys().nth(rng.below(files.len())).cloned() else { return };
    let Some((dtype, shape, data)) = files.get_mut(&name) else { return };
    match rng.below(6) {
        0 => drop(files.remove(&name)),
        1 => {
            *dtype = ["I8", "I16", "I64", "F64"][rng.below(4)];
            let width = [("I8", 1), ("I16", 2)].iter().find(|(d, _)| d == dtype).map_or(8, |(_, w)| *w);
            data.resize(shape.iter().product::<usize>() * width, 1);
        }
        2 => shape.reverse(),
        3 => data.fill([0, 1, 0x7f, 0x80, 0xff][rng.below(5)]),
        _ if data.is_empty() => {}
        4 => {
            let at = rng.below(data.len());
            data[at] = rng.next() as u8;
        }
        _ => {
            let at = rng.below(data.len());
            let word = [
                0,
                1 << 62,
                i64::MIN,
                f64::NAN.to_bits().cast_signed(),
                f64::INFINITY.to_bits().cast_signed(),
            ][rng.below(5)];
            data[at..].iter_mut().zip(word.to_le_bytes()).for_each(|(b, w)| *b = w);
        }
    }
}

/// A changed plan with a right digest.
#[must_use]
pub fn mutated(bytes: &[u8], seed: u32) -> Option<Vec<u8>> {
    let (mut rng, mut parts) = (Rng::new(seed), Parts::open(bytes)?);
    for _ in 0..=rng.below(3) {
        match rng.below(8) {
            0 => change_file(&mut parts.files, &mut rng),
            1 | 2 => change_alike(&mut parts.json, &mut rng),
            _ => change(&mut parts.json, &mut rng),
        }
    }
    parts.seal()
}

/// A plan with a part of another one.
#[must_use]
pub fn crossed(first: &[u8], second: &[u8], seed: u32) -> Option<Vec<u8>> {
    let (mut rng, mut parts, mut other) = (Rng::new(seed), Parts::open(first)?, Parts::open(second)?);
    let graft = any(&mut other.json, &mut rng);
    let mut at = 1 + rng.below(count(&parts.json).saturating_sub(1));
    *node(&mut parts.json, &mut at)? = graft;
    parts.seal()
}
