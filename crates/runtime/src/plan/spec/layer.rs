//! Linear layers as they stand in the file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Whether the public polynomials `a` depend on the block of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaskMode {
    /// One `a` a feature for the whole session; its weighted sums travel once.
    Shared,
    /// A new `a` in every block; its weighted sums travel with every response.
    Fresh,
    /// As fresh, and sent whole with every request instead of derived from the seed (to show what seeds save).
    Sent,
}

/// A linear layer, of any trust model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct LinearSpec {
    /// How it is computed: one of the methods that the trust model allows ([`super::GRAMMARS`]).
    pub method: String,
    /// What is computed.
    pub geometry: GeometrySpec,
    /// Name of the weight tensor; server only.
    pub weights: Option<String>,
    /// Name of the bias tensor; server only.
    pub bias: Option<String>,
    /// Of two-party plans: norm of all weights that meet in one answer (batch: in one output), rounded up to a power of two.
    pub weight_l2: Option<f64>,
    /// Of client-aided plans: how batches are encrypted and streamed. Its fields stand beside the others in the file.
    pub batch: Option<BatchSpec>,
    /// Of client-aided plans for few images: how wide the words are that travel. Its fields stand beside the others in the file.
    pub coefficients: Option<BitsSpec>,
    /// What the planner predicts; free fields.
    pub predicted: Map<String, Value>,
}

/// How a client-aided batch is encrypted and streamed (`docs/parameters.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchSpec {
    /// k, modulus 2^k.
    pub modulus_bits: u32,
    /// d, scale 2^d.
    pub delta_bits: u32,
    /// u, low bits that do not travel back.
    pub drop_bits: u32,
    /// v, at most u; with fresh masks only, u when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_drop_bits: Option<u32>,
    /// Masks.
    pub mask: MaskMode,
    /// Streaming order.
    pub tiles: Vec<TileSpec>,
}

/// How wide the words of a coefficient-packed layer are (`docs/client-aided-image.md`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitsSpec {
    /// Bits of a word of c0 in a request.
    pub upload_bits: u32,
    /// Bits of a coefficient of c0 in a response.
    pub body_bits: u32,
    /// Bits of a word of a sum of masks.
    pub mask_bits: u32,
}

/// The fields of [`BitsSpec`].
const BITS_FIELDS: [&str; 3] = ["upload_bits", "body_bits", "mask_bits"];

/// The fields of [`BatchSpec`]: where one of them stands, all that are not optional must.
const BATCH_FIELDS: [&str; 6] =
    ["modulus_bits", "delta_bits", "drop_bits", "mask_drop_bits", "mask", "tiles"];

/// The other fields of a linear layer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    method: String,
    geometry: GeometrySpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bias: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight_l2: Option<f64>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    predicted: Map<String, Value>,
}

/// What stands in some fields of a layer, taken out of it; nothing where none of them is there.
fn beside<T: serde::de::DeserializeOwned>(
    map: &mut Map<String, Value>,
    fields: &[&str],
) -> Result<Option<T>, String> {
    let found: Map<_, _> = fields.iter().filter_map(|f| Some(((*f).to_owned(), map.remove(*f)?))).collect();
    if found.is_empty() {
        return Ok(None);
    }
    serde_json::from_value(Value::Object(found)).map(Some).map_err(|e| e.to_string())
}

impl TryFrom<Map<String, Value>> for LinearSpec {
    type Error = String;

    fn try_from(mut map: Map<String, Value>) -> Result<Self, String> {
        let text = |e: serde_json::Error| e.to_string();
        let (batch, coefficients) = (beside(&mut map, &BATCH_FIELDS)?, beside(&mut map, &BITS_FIELDS)?);
        let Plain { method, geometry, weights, bias, weight_l2, predicted } =
            serde_json::from_value(Value::Object(map)).map_err(text)?;
        Ok(Self { method, geometry, weights, bias, weight_l2, batch, coefficients, predicted })
    }
}

impl From<LinearSpec> for Map<String, Value> {
    fn from(spec: LinearSpec) -> Self {
        let LinearSpec { method, geometry, weights, bias, weight_l2, batch, coefficients, predicted } = spec;
        let plain = Plain { method, geometry, weights, bias, weight_l2, predicted };
        let mut map = super::stage::object(&plain);
        map.extend(batch.iter().flat_map(super::stage::object));
        map.extend(coefficients.iter().flat_map(super::stage::object));
        map
    }
}

/// Shape of a linear layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum GeometrySpec {
    /// `y = W x + b`.
    Dense {
        /// K.
        inputs: usize,
        /// M.
        outputs: usize,
    },
    /// Cross-correlation, channels first.
    Conv2d {
        /// C, H, W.
        input: [usize; 3],
        /// O, OH, OW.
        output: [usize; 3],
        /// kh, kw.
        kernel: [usize; 2],
        /// sh, sw.
        stride: [usize; 2],
        /// top, left, bottom, right.
        pads: [usize; 4],
        /// dh, dw.
        dilation: [usize; 2],
        /// g.
        groups: usize,
    },
}

/// One tile: half-open ranges of rows (features for dense).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileSpec {
    /// New input rows.
    pub inputs: [usize; 2],
    /// Output rows.
    pub outputs: [usize; 2],
}
