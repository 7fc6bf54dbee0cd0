//! What a compilation is asked for, and what a search chose.

use serde::{Deserialize, Serialize};

/// How a circuit is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Packing {
    /// The cheapest layouts and methods.
    Auto,
    /// The published one: one channel a ciphertext.
    ChannelWise,
}

/// When values of a network are bootstrapped, which takes keys of a gigabyte and seconds a ciphertext.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bootstrapping {
    /// Where no parameters without bootstraps hold the network.
    #[default]
    Auto,
    /// A network that needs them is refused.
    Never,
    /// A network that does not need them is refused.
    Always,
}

impl Bootstrapping {
    #[allow(clippy::trivially_copy_pass_by_ref)] // Serde's predicate
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

/// Largest evaluation keys of a network without bootstraps, where no other limit is given.
pub const KEY_BYTES: u64 = 150_000_000;
/// With bootstraps, whose own keys take 1.1 GB; those of a VGG-11's eight layers, which share few rotations, another 1.1.
pub const BOOTSTRAP_KEY_BYTES: u64 = 2_500_000_000;

/// Options of a compilation; what is absent is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PackedOptions {
    /// Packing.
    pub method: Packing,
    /// 128, or 0 for parameters that are not secure (tests).
    pub security: u32,
    /// log2 of the output's bound over its typical error (7.6 deviations).
    pub precision_bits: u32,
    /// Re-randomise and flood the result.
    pub hide_weights: bool,
    /// Ring degree, 0 for the smallest that works.
    pub ring_degree: usize,
    /// Largest evaluation keys, bytes; absent: what is usual, without bootstraps [`KEY_BYTES`], with some [`BOOTSTRAP_KEY_BYTES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_bytes: Option<u64>,
    /// Whether values may be, or must be, given new levels.
    #[serde(skip_serializing_if = "Bootstrapping::is_auto")]
    pub bootstrap: Bootstrapping,
    /// Memory that both parties together may take: plaintexts for which it has no room are encoded again for every image.
    pub memory_bytes: u64,
}

impl Default for PackedOptions {
    fn default() -> Self {
        Self {
            method: Packing::Auto,
            security: 128,
            precision_bits: 10,
            hide_weights: false,
            ring_degree: 0,
            key_bytes: None,
            bootstrap: Bootstrapping::Auto,
            memory_bytes: 6 << 30,
        }
    }
}

/// What a search chose beside the primes: with them, the network and the options it gives the same circuit again, without a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choices {
    /// Data primes that a level of the circuit has, 1 to 3.
    pub width: usize,
    /// Microseconds that a rotation key counted for.
    pub key_price: f64,
    /// Scale that the results of linear steps have.
    pub scale: f64,
    /// Where levels end and begin again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstraps: Option<Bootstraps>,
}

/// Which values of a program are bootstrapped, and with how many slots; a circuit refuses values that it does not compute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bootstraps {
    /// Slots of messages: what is bootstrapped repeats after as many.
    pub slots: usize,
    /// Values of the program that are bootstrapped, by their numbers before there were bootstraps, increasing.
    pub values: Vec<usize>,
}
