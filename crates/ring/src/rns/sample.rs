//! Uniform limbs from a generator.

use super::kernels::{self as k, Out};
use super::Modulus;
use crate::secret::declassify;
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
        let (end, mut next) = (out.len(), kept);
        // The words that one request gives, a cacheful at a time: chunks are whole blocks of the generator.
        while next < end {
            let count = CHUNK.min(end - next);
            let fresh = &mut out[next..next + count];
            prg.fill_words(fresh);
            let good = keep_below(fresh, bound);
            reduce_in_place(prg.isa(), &mut fresh[..good], m);
            if kept < next {
                out.copy_within(next..next + good, kept);
            }
            (kept, next) = (kept + good, next + count);
        }
    }
}

/// Words that are drawn and reduced at a time.
const CHUNK: usize = 1024;

/// Shifts words right by 12 bits and moves those below `bound` to the front, in order; how many there are. Words at or above it are rare, so
/// whole runs are looked at before single words.
fn keep_below(words: &mut [u64], bound: u64) -> usize {
    const RUN: usize = 128;
    let mut write = 0;
    for start in (0..words.len()).step_by(RUN) {
        let end = (start + RUN).min(words.len());
        let mut over = 0u64;
        for w in &mut words[start..end] {
            *w >>= 12;
            over |= (bound - 1).wrapping_sub(*w);
        }
        // Which words are thrown away tells nothing about the others.
        if declassify(over >> 63 == 0) {
            if write != start {
                words.copy_within(start..end, write);
            }
            write += end - start;
            continue;
        }
        for read in start..end {
            let v = words[read];
            words[write] = v;
            write += usize::from(declassify(v < bound));
        }
    }
    write
}

/// Words below 2^52 to residues, in place.
fn reduce_in_place(isa: Isa, out: &mut [u64], m: &Modulus) {
    k::reduce(isa, Out::new(out), m);
}
