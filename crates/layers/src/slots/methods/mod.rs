//! The methods of the family: one row each, with what it is for dense layers and for convolutions; `None` where it is for the other kind only.
//!
//! A method that orders products or permutations in another way is a file here with its papers' operation counts, and a row. Layouts and kernels
//! of the family run it as the module `order` describes it.

pub mod gala;
pub mod gazelle;

use super::order::{ConvOrder, DenseOrder};

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// One product and a rotate-and-sum an output (dense).
    Naive,
    /// Halevi and Shoup, "Algorithms in `HElib`": one diagonal an input (dense).
    Diagonal,
    /// Chen, Dai, Kim, Song (CCS 2019): diagonals spread over copies of the input (dense).
    Extended,
    /// One channel a ciphertext (convolution).
    Siso,
    /// Input rotations only: channels are lined up before the products (convolution).
    GazelleInput,
    /// GAZELLE: hybrid products; convolution by output rotations.
    Gazelle,
    /// GALA: row encoding and shares before rotate-and-sum; kernel grouping.
    Gala,
    /// Kernel grouping with baby steps done to the inputs: not in the papers (convolution).
    GalaSteps,
}

impl Method {
    /// All methods, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|r| r.method)
    }

    /// The name that plans and commands use.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The method of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|r| r.name == name).map(|r| r.method)
    }

    pub(super) fn row(self) -> &'static Row {
        // The table has a row for every method, in the order of the variants. A test compares both.
        &ROWS[self as usize]
    }
}

/// A row of the table of methods.
pub(super) struct Row {
    pub method: Method,
    pub name: &'static str,
    pub dense: Option<&'static DenseOrder>,
    pub conv: Option<&'static ConvOrder>,
}

/// All methods of the family, in the order of [`Method`]'s variants.
static ROWS: &[Row] = &[
    Row { method: Method::Naive, name: "naive", dense: Some(&gazelle::NAIVE), conv: None },
    Row { method: Method::Diagonal, name: "diagonal", dense: Some(&gazelle::DIAGONAL), conv: None },
    Row { method: Method::Extended, name: "extended", dense: Some(&gazelle::EXTENDED), conv: None },
    Row { method: Method::Siso, name: "siso", dense: None, conv: Some(&gazelle::SISO) },
    Row {
        method: Method::GazelleInput,
        name: "gazelle-input",
        dense: None,
        conv: Some(&gazelle::CONV_INPUT),
    },
    Row {
        method: Method::Gazelle,
        name: "gazelle",
        dense: Some(&gazelle::HYBRID),
        conv: Some(&gazelle::CONV),
    },
    Row { method: Method::Gala, name: "gala", dense: Some(&gala::DENSE), conv: Some(&gala::CONV) },
    Row { method: Method::GalaSteps, name: "gala-steps", dense: None, conv: Some(&gala::CONV_STEPS) },
];
