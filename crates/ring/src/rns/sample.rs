//! Uniform limbs from a generator.

use super::kernels::{self as k, Out};
use super::Modulus;
use crate::{Isa, Prg};

/// Fills `out` with independent uniform residues.
///
/// Every generator word is shifted right by 12 bits; a result at or above `floor(2^52 / q) q` is skipped,
/// the others are reduced modulo q, in order. When words are missing at the end, the generator is asked
/// for as many again.
pub fn uniform_limb(prg: &mut Prg, m: &Modulus, out: &mut [u64]) {
    let bound = (1u64 << 52) / m.q * m.q;
    let mut kept = 0;
    while kept < out.len() {
        let fresh = &mut out[kept..];
        prg.fill_words(fresh);
        let mut write = 0;
        for read in 0..fresh.len() {
            let v = fresh[read] >> 12;
            fresh[write] = v;
            write += usize::from(v < bound);
        }
        kept += write;
    }
    reduce_in_place(prg.isa(), out, m);
}

/// Words below 2^52 to residues, in place.
fn reduce_in_place(isa: Isa, out: &mut [u64], m: &Modulus) {
    k::reduce(isa, Out::new(out), m);
}
