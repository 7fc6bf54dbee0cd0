//! GAZELLE (Juvekar, Vaikuntanathan, Chandrakasan, USENIX Security 2018): matrix-vector products by naive, diagonal, extended and
//! hybrid encoding, convolutions by output or input rotations. Layouts and kernels: [`crate::slots`]; here is what these methods differ in. Operation counts of Tables II, III and V
//! of the GALA paper (section III).

use super::super::order::{ConvOrder, DenseOrder, Early, Spread};
use hushnet_rlwe::bfv::Counts;

/// Naive product: `n_o` sums over `blocks` inputs, each with `folds` = log2 n_i steps of rotate-and-sum (Table II).
#[must_use]
pub fn naive_counts(blocks: u64, outputs: u64, folds: u64) -> Counts {
    Counts {
        perm: outputs * folds,
        sc_mult: outputs * blocks,
        add: outputs * (blocks - 1 + folds),
        ..Counts::default()
    }
}

/// Inputs permuted `steps` times (hoisted), products summed, `folds` steps of rotate-and-sum an output ciphertext. Hybrid (Table II):
/// `steps = n_i n_o / n`, `folds = log2(n / n_o)`; diagonal: `steps = n_i`; extended: `steps = n_i^2 / n`, `folds = log2(n / n_i)`.
#[must_use]
pub fn dense_counts(input_blocks: u64, output_blocks: u64, steps: u64, folds: u64) -> Counts {
    Counts {
        perm: output_blocks * folds,
        dec_perm: if steps > 1 { input_blocks } else { 0 },
        hst_perm: input_blocks * (steps - 1),
        sc_mult: output_blocks * input_blocks * steps,
        add: output_blocks * (input_blocks * steps - 1 + folds),
    }
}

/// Table III, output rotations: c_i input and c_o output channels, c_n a ciphertext (dividing both), `k` kernel positions.
#[must_use]
pub fn conv_counts(ci: u64, co: u64, cn: u64, k: u64) -> Counts {
    let (inputs, outputs) = (ci / cn, co / cn);
    Counts {
        perm: inputs * outputs * (cn - 1),
        dec_perm: if k > 1 { inputs } else { 0 },
        hst_perm: inputs * (k - 1),
        sc_mult: k * ci * co / cn,
        add: outputs * (ci * k - 1),
    }
}

/// Input rotations instead: all `c_n k - 1` permutations of every input ciphertext, hoisted; nothing is permuted afterwards.
#[must_use]
pub fn conv_input_counts(ci: u64, co: u64, cn: u64, k: u64) -> Counts {
    let (inputs, outputs) = (ci / cn, co / cn);
    Counts {
        perm: 0,
        dec_perm: if cn * k > 1 { inputs } else { 0 },
        hst_perm: inputs * (cn * k - 1),
        sc_mult: k * ci * co / cn,
        add: outputs * (ci * k - 1),
    }
}

/// Naive: one answer an output, rotate-and-sum under encryption.
pub(crate) static NAIVE: DenseOrder = DenseOrder {
    spread: Spread::Rows,
    multiply_first: false,
    sum_on_shares: false,
    counts: |s| naive_counts(s.blocks.0, s.outputs, s.folds),
};

/// Halevi and Shoup, "Algorithms in `HElib`" (CRYPTO 2014): one diagonal an input.
pub(crate) static DIAGONAL: DenseOrder = DenseOrder { spread: Spread::Diagonals, ..HYBRID_ORDER };

/// Chen, Dai, Kim, Song (CCS 2019): diagonals spread over copies of the input.
pub(crate) static EXTENDED: DenseOrder = DenseOrder { spread: Spread::Extended, ..HYBRID_ORDER };

/// The hybrid product.
pub(crate) static HYBRID: DenseOrder = HYBRID_ORDER;

const HYBRID_ORDER: DenseOrder = DenseOrder {
    spread: Spread::Hybrid,
    multiply_first: false,
    sum_on_shares: false,
    counts: |s| dense_counts(s.blocks.0, s.blocks.1, s.steps, s.folds),
};

/// Output rotations: every block of c_n x c_n channels is convolved, lined up and added by itself.
pub(crate) static CONV: ConvOrder = CONV_ORDER;

/// Output rotations with one channel a ciphertext.
pub(crate) static SISO: ConvOrder = ConvOrder { single: true, ..CONV_ORDER };

/// Input rotations: channels are lined up before the products.
pub(crate) static CONV_INPUT: ConvOrder = ConvOrder {
    early: Early::All,
    counts: |s| conv_input_counts(s.channels.0, s.channels.1, s.channels.2, s.taps),
    ..CONV_ORDER
};

const CONV_ORDER: ConvOrder = ConvOrder {
    single: false,
    grouped: false,
    early: Early::None,
    counts: |s| conv_counts(s.channels.0, s.channels.1, s.channels.2, s.taps),
};
