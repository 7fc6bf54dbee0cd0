//! GALA (Zhang, Xin, Wu, NDSS 2021): row encoding with shares taken before rotate-and-sum (section III-A), and convolutions that
//! add before they permute ("kernel grouping", section III-B). Layouts and kernels: [`crate::slots`].
//!
//! **Why partial sums may be shared.** The server masks *every slot* of an answer with its own uniform value modulo t, so what the client
//! opens is uniform whatever the partial sums are; each party adds up its own slots of an output, and the two results are shares of the
//! whole sum. The masks' sums are uniform and independent for different outputs, since these have disjoint slots.

use super::super::order::{ConvOrder, DenseOrder, Early, Spread};
use hushnet_rlwe::bfv::Counts;

/// Table II: `steps = n_i n_o / n` products, permuted into line; inputs of several blocks are added before.
#[must_use]
pub fn dense_counts(input_blocks: u64, output_blocks: u64, steps: u64) -> Counts {
    Counts {
        perm: output_blocks * (steps - 1),
        sc_mult: output_blocks * input_blocks * steps,
        add: output_blocks * (input_blocks * steps - 1),
        ..Counts::default()
    }
}

/// Table III: c_i input and c_o output channels, c_n a ciphertext (dividing both), `k` kernel positions.
#[must_use]
pub fn conv_counts(ci: u64, co: u64, cn: u64, k: u64) -> Counts {
    Counts { perm: co / cn * (cn - 1), ..super::gazelle::conv_counts(ci, co, cn, k) }
}

/// Kernel grouping with `b` of the `c_n` steps done to the inputs: (b k - 1) hoisted permutations an input, c_n / b - 1 an output.
#[must_use]
pub fn conv_steps_counts(ci: u64, co: u64, cn: u64, k: u64, b: u64) -> Counts {
    let inputs = ci / cn;
    Counts {
        perm: co / cn * (cn / b - 1),
        dec_perm: if k * b > 1 { inputs } else { 0 },
        hst_perm: inputs * (k * b - 1),
        ..super::gazelle::conv_counts(ci, co, cn, k)
    }
}

/// Row encoding: the unrotated input is multiplied, products are permuted into line and added; partial sums are added on shares.
pub(crate) static DENSE: DenseOrder = DenseOrder {
    spread: Spread::Hybrid,
    multiply_first: true,
    sum_on_shares: true,
    counts: |s| dense_counts(s.blocks.0, s.blocks.1, s.steps),
};

/// Kernel grouping: convolved vectors of the same kernel order are added over all inputs, then permuted into line.
pub(crate) static CONV: ConvOrder = ConvOrder {
    single: false,
    grouped: true,
    early: Early::None,
    counts: |s| conv_counts(s.channels.0, s.channels.1, s.channels.2, s.taps),
};

/// Kernel grouping, baby steps on the inputs: sums over all inputs, kernel positions and early steps, permuted by the late steps.
pub(crate) static CONV_STEPS: ConvOrder = ConvOrder {
    single: false,
    grouped: true,
    early: Early::Steps,
    counts: |s| conv_steps_counts(s.channels.0, s.channels.1, s.channels.2, s.taps, s.baby),
};
