//! What a trust model is: a set of allowed tensors, stages, engines and methods. The check reads these tables, and so does
//! `docs/plan-format.md` (a test compares them).

use super::{Engine, KindSpec, StageKind, Trust};
use serde_json::Value;

/// How many operands a stage has, and how `in` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// No `in` and no `out`.
    None,
    /// An id.
    One,
    /// A list of two ids.
    Two,
    /// A list of at least one id.
    Many,
}

impl Operands {
    /// The ids in a field `in`.
    pub(super) fn read(self, given: Option<Value>) -> Result<Vec<u32>, String> {
        let Some(given) = given else {
            return if self == Self::None { Ok(Vec::new()) } else { Err("it is missing".into()) };
        };
        let text = |e: serde_json::Error| e.to_string();
        let ids: Vec<u32> = match self {
            Self::None => return Err(format!("{given} is given; its operations have operands of their own")),
            Self::One => vec![serde_json::from_value(given).map_err(text)?],
            Self::Two | Self::Many => serde_json::from_value(given).map_err(text)?,
        };
        match (self, ids.len()) {
            (Self::Two, 2) | (Self::One, _) => Ok(ids),
            (Self::Two, n) => Err(format!("it takes two operands, {n} are given")),
            (_, 0) => Err("there is no operand".into()),
            _ => Ok(ids),
        }
    }

    /// A field `in` of these ids.
    pub(super) fn write(self, ids: Vec<u32>) -> Option<Value> {
        match self {
            Self::None => None,
            Self::One => ids.first().map(|id| (*id).into()),
            Self::Two | Self::Many => Some(ids.into()),
        }
    }

    /// As it stands in the documents.
    #[must_use]
    pub fn written(self) -> &'static str {
        match self {
            Self::None => "",
            Self::One => "id",
            Self::Two => "[id, id]",
            Self::Many => "[id, ...]",
        }
    }
}

/// A kind of stage, and what the grammar demands of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageRule {
    /// Its name in the plan.
    pub kind: &'static str,
    /// What `in` holds.
    pub operands: Operands,
    /// Trust models that allow it.
    pub trust: &'static [Trust],
    /// Kind of the operands; `None` where it depends on the trust model (the kind that its linear layers have).
    pub from: Option<KindSpec>,
    /// Kind of the result; `None` as above.
    pub to: Option<KindSpec>,
}

const fn row(
    kind: &'static str,
    operands: Operands,
    trust: &'static [Trust],
    (from, to): (Option<KindSpec>, Option<KindSpec>),
) -> StageRule {
    StageRule { kind, operands, trust, from, to }
}

const ALL: &[Trust] = &[Trust::ClientAided, Trust::TwoParty, Trust::NonInteractive];
const SHARES: &[Trust] = &[Trust::TwoParty];
const CIPHERS: &[Trust] = &[Trust::NonInteractive];
const LAYER: (Option<KindSpec>, Option<KindSpec>) = (None, None);
const ON_SHARES: (Option<KindSpec>, Option<KindSpec>) = (Some(KindSpec::Shared), Some(KindSpec::Shared));
const ON_CIPHERS: (Option<KindSpec>, Option<KindSpec>) = (Some(KindSpec::Cipher), Some(KindSpec::Cipher));

/// The kinds of stages of all trust models.
pub const STAGES: [StageRule; 29] = [
    row("client", Operands::None, ALL, LAYER),
    row("linear", Operands::One, ALL, LAYER),
    row("share", Operands::One, SHARES, (Some(KindSpec::Fixed), Some(KindSpec::Shared))),
    row("relu", Operands::One, SHARES, ON_SHARES),
    row("leaky_relu", Operands::One, SHARES, ON_SHARES),
    row("clip", Operands::One, SHARES, ON_SHARES),
    row("truncate", Operands::One, SHARES, ON_SHARES),
    row("max_pool", Operands::One, SHARES, ON_SHARES),
    row("sum_pool", Operands::One, SHARES, ON_SHARES),
    row("scale", Operands::One, SHARES, ON_SHARES),
    row("add", Operands::Two, SHARES, ON_SHARES),
    row("shift", Operands::One, SHARES, ON_SHARES),
    row("hard_swish", Operands::One, SHARES, ON_SHARES),
    row("function", Operands::One, SHARES, ON_SHARES),
    row("product", Operands::Two, SHARES, ON_SHARES),
    row("matrix_product", Operands::Two, SHARES, ON_SHARES),
    row("reshape", Operands::Many, SHARES, ON_SHARES),
    row("transpose", Operands::Many, SHARES, ON_SHARES),
    row("concat", Operands::Many, SHARES, ON_SHARES),
    row("slice", Operands::Many, SHARES, ON_SHARES),
    row("pad", Operands::Many, SHARES, ON_SHARES),
    row("reveal", Operands::One, SHARES, (Some(KindSpec::Shared), Some(KindSpec::Fixed))),
    row("encrypt", Operands::One, CIPHERS, (Some(KindSpec::Real), Some(KindSpec::Cipher))),
    row("multiply", Operands::Two, CIPHERS, ON_CIPHERS),
    row("relinearise", Operands::One, CIPHERS, ON_CIPHERS),
    row("rescale", Operands::One, CIPHERS, ON_CIPHERS),
    row("combine", Operands::Many, CIPHERS, ON_CIPHERS),
    row("packed", Operands::One, CIPHERS, ON_CIPHERS),
    row("decrypt", Operands::One, CIPHERS, (Some(KindSpec::Cipher), Some(KindSpec::Real))),
];

/// Which fields linear layers of a trust model have beside method, geometry, weights, bias and predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerFields {
    /// No others.
    None,
    /// Those of [`super::BatchSpec`].
    Batch,
    /// Those of [`super::BitsSpec`].
    Bits,
    /// The norm of the weights.
    Norm,
}

impl LayerFields {
    /// Their names in the plan.
    #[must_use]
    pub fn names(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Batch => "modulus_bits, delta_bits, drop_bits, mask_drop_bits, mask, tiles",
            Self::Bits => "upload_bits, body_bits, mask_bits",
            Self::Norm => "weight_l2",
        }
    }
}

/// A method of linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodRule {
    /// Its name in the plan.
    pub name: &'static str,
    /// The engine of plans that have it.
    pub engine: Engine,
    /// Fields of its layers beside those that all have.
    pub fields: LayerFields,
}

const fn method(name: &'static str, engine: Engine, fields: LayerFields) -> MethodRule {
    MethodRule { name, engine, fields }
}

/// What a trust model allows beside its stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grammar {
    /// The trust model.
    pub trust: Trust,
    /// Engines.
    pub engines: &'static [Engine],
    /// Kinds of tensors.
    pub tensors: &'static [KindSpec],
    /// Kind of tensor that linear layers read and write.
    pub layers: KindSpec,
    /// Methods of linear layers; `None`: those that the trust model's own registry names ([`crate::two_party::LINEAR_METHODS`]), whose layers have
    /// the norm of the weights.
    pub methods: Option<&'static [MethodRule]>,
    /// The part of `params`, where there is one.
    pub params: Option<&'static str>,
    /// Whether plans below the security table exist.
    pub insecure: bool,
}

impl Grammar {
    /// Names of the methods, as they stand in the documents; `registry` are those of the trust model's own registry.
    #[must_use]
    pub fn method_names(&self, registry: &[&str]) -> String {
        let own = |rules: &[MethodRule]| rules.iter().map(|m| m.name).collect::<Vec<_>>();
        self.methods.map_or_else(|| registry.to_vec(), own).join(", ")
    }

    /// Fields of linear layers beside those that all have, as they stand in the documents: method by method, where they differ.
    #[must_use]
    pub fn layer_fields(&self) -> String {
        match self.methods {
            None => LayerFields::Norm.names().to_owned(),
            Some([only]) => only.fields.names().to_owned(),
            Some(rules) => {
                let of = |m: &MethodRule| format!("{}: {}", m.name, m.fields.names());
                rules.iter().map(of).collect::<Vec<_>>().join("; ")
            }
        }
    }
}

/// The grammars of all trust models: which stages each allows.
pub const GRAMMARS: [Grammar; 3] = [
    Grammar {
        trust: Trust::ClientAided,
        engines: &[Engine::Batch, Engine::Packed],
        tensors: &[KindSpec::Real, KindSpec::Fixed],
        layers: KindSpec::Fixed,
        methods: Some(&[
            method("batch", Engine::Batch, LayerFields::Batch),
            method("coefficients", Engine::Packed, LayerFields::Bits),
        ]),
        params: None,
        insecure: true,
    },
    Grammar {
        trust: Trust::TwoParty,
        engines: &[Engine::Packed],
        tensors: &[KindSpec::Real, KindSpec::Fixed, KindSpec::Shared],
        layers: KindSpec::Shared,
        methods: None,
        params: Some("two_party"),
        insecure: false,
    },
    Grammar {
        trust: Trust::NonInteractive,
        engines: &[Engine::Batch, Engine::Packed],
        tensors: &[KindSpec::Real, KindSpec::Cipher],
        layers: KindSpec::Cipher,
        methods: Some(&[method("ckks", Engine::Batch, LayerFields::None)]),
        params: Some("non_interactive"),
        insecure: true,
    },
];

/// The row of a kind.
#[must_use]
pub(crate) fn rule(kind: &StageKind) -> &'static StageRule {
    let name = kind.name();
    // Every kind has a row: a test goes through all of them.
    STAGES.iter().find(|r| r.kind == name).unwrap_or(&STAGES[0])
}

impl Trust {
    /// What it allows beside its stages.
    #[must_use]
    pub fn grammar(self) -> &'static Grammar {
        match self {
            Self::ClientAided => &GRAMMARS[0],
            Self::TwoParty => &GRAMMARS[1],
            Self::NonInteractive => &GRAMMARS[2],
        }
    }
}
