//! Functions of one variable on shares as they stand in the file: a piecewise polynomial in integers, so that both parties compute with the same ones
//! whatever machine they were fitted on (`docs/mpc.md`, "Functions of one variable").

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A function of one variable: its form, which both parties know, and its pieces, which only the server does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSpec {
    /// What it computes, in words; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Widths, shifts and counts.
    pub form: FormSpec,
    /// What happens to arguments below the interval.
    pub below: End,
    /// What happens to arguments above the interval.
    pub above: End,
    /// Orders of the polynomials in the server's place, degree by degree; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders: Option<Vec<usize>>,
    /// Name of the tensor `[segments, sum of orders + 1]` of their coefficients; server only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coefficients: Option<String>,
    /// The planner's figures: the error, the steepest slope; server only.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub predicted: Map<String, Value>,
}

/// What a function does at an end of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// No argument lies beyond: the reach of the operand says so.
    Inside,
    /// The function keeps its value at the end.
    Constant,
    /// The function goes on with slope one.
    Rising,
    /// Below alone: max(x, 0) and the pieces' value at |x|, whose interval begins at zero (SiLU, GELU, softplus).
    Mirrored,
}

/// The form of a piecewise polynomial, field by field that of `hushnet_mpc::ShapeSpec`, which says what they mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "hushnet_mpc::ShapeSpec documents the fields of the same names")]
pub struct FormSpec {
    pub low: i64,
    pub high: i64,
    pub multiplier: u32,
    pub argument_bits: u32,
    pub segments: u32,
    pub dropped: u32,
    pub inner_bits: u32,
    pub guard: u32,
    pub offset: i64,
    pub shed: u32,
    pub lift: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rate: u64,
    pub basis: Vec<BasisFields>,
}

/// Whether a form has no rate: then it is not written.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(rate: &u64) -> bool {
    *rate == 0
}

/// One coefficient above the constant, field by field that of `hushnet_mpc::BasisSpec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "hushnet_mpc::BasisSpec documents the fields of the same names")]
pub struct BasisFields {
    pub bits: u32,
    pub precision: u32,
    pub shift: u32,
    pub low: i64,
}
