//! Garbled circuits: half gates (Zahur, Rosulek, Evans 2015: 32 bytes an AND, XOR and NOT free), point and permute, fixed-key
//! AES with the tweakable hash of Guo, Katz, Wang, Yu 2020, sixteen instances of a circuit side by side, streamed.
//!
//! One party garbles, the other evaluates; both hold additive shares modulo 2^l or modulo an odd p ([`Modulus`]), as
//! GAZELLE and GALA need them. Two messages for every pass of `Session::chunk` values, whatever the circuit:
//!
//! 1. The evaluator's input bits choose their labels by correlated OT: the offset of the garbling *is* the session's OT offset
//!    Delta, so a correlated OT (q; t = q ^ b Delta) is a pair of labels already. The evaluator sends d = b ^ x, one bit; the
//!    zero label is q ^ d Delta and t is the label of x.
//! 2. The garbler sends a 16-byte seed and two blocks an AND. Its own active labels are the seed's expansion (a uniform label L
//!    for bit x means the zero label L ^ x Delta), so its inputs cost nothing. Where the evaluator shall learn the output,
//!    the colour of each zero label follows, one bit.
//!
//! The result is shared anew: the circuit subtracts a value that the garbler drew, and the evaluator opens the difference. Why
//! the evaluator learns nothing else: active labels are uniform, the other labels differ by Delta, which it sees only through the
//! hash (circular correlation robust under distinct tweaks; the tweak is a counter over the life of the session,
//! the keys are not those of the OT pads). The garbler sees d alone, bits masked by the random choices of the OTs.
//! Semi-honest, as everything here.
//!
//! | circuit | AND gates a value, l bits (modulo an odd p: l = ceil(log2 p)) |
//! |---|---|
//! | drelu, 2^l | l - 1 |
//! | drelu, p | 2 l |
//! | relu, 2^l | 3 l - 2 |
//! | relu, p | 6 l - 1 |
//! | others | [`relu_cost`] and its neighbours count the circuit itself |

mod circuits;
mod gates;
mod modulus;
mod parties;
mod protocols;
mod run;
mod tweaks;
mod words;

pub(crate) use tweaks::Tweaks;

pub use modulus::{Factor, Modulus, OddModulus};
pub use protocols::{
    argmax, argmax_cost, clip, clip_cost, drelu, drelu_cost, max_pool, max_pool_cost, max_rows,
    max_rows_cost, relu, relu_cost, relu_gates,
};

/// Bytes of an AND gate's table.
pub const BYTES_PER_AND: u64 = 32;
