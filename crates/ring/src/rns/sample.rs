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
    fill::<128>(prg, m, out, (52, 12), Prg::fill_words);
}

/// Primes of [`uniform_limb_of_halves`] are below it: a sixteenth of the draws is skipped at most.
const HALVES_BELOW: u64 = 1 << 28;

/// As [`uniform_limb`], of half as many generator words where the prime is below 2^28: each word is two draws, its low 32 bits and its
/// high ones, and draws at or above `floor(2^32 / q) q` are skipped. When draws are missing at the end, the generator is asked for half as many
/// words, rounded up; of an odd number the last high half is thrown away.
pub fn uniform_limb_of_halves(prg: &mut Prg, m: &Modulus, out: &mut [u64]) {
    if m.q >= HALVES_BELOW {
        return uniform_limb(prg, m, out);
    }
    fill::<32>(prg, m, out, (32, 0), |prg, fresh| {
        // Words stand behind their halves, which take the place of words that are halved already.
        let half = fresh.len() / 2;
        prg.fill_words(&mut fresh[half..]);
        for i in 0..half {
            let word = fresh[half + i];
            (fresh[2 * i], fresh[2 * i + 1]) = (word & 0xffff_ffff, word >> 32);
        }
        if let (1, Some(last)) = (fresh.len() % 2, fresh.last_mut()) {
            *last &= 0xffff_ffff;
        }
    });
}

/// Residues of draws below `2^bits`, which are the words that `draw` makes, shifted right by `shift`. Words to skip are rare in `RUN` of them.
fn fill<const RUN: usize>(
    prg: &mut Prg,
    m: &Modulus,
    out: &mut [u64],
    (bits, shift): (u32, u32),
    draw: impl Fn(&mut Prg, &mut [u64]),
) {
    let bound = (1u64 << bits) / m.q * m.q;
    let mut kept = 0;
    while kept < out.len() {
        let (end, mut next) = (out.len(), kept);
        // The words that one request gives, a cacheful at a time: chunks are whole blocks of the generator.
        while next < end {
            let count = CHUNK.min(end - next);
            let fresh = &mut out[next..next + count];
            draw(prg, fresh);
            let good = keep_below::<RUN>(fresh, shift, bound);
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

/// Shifts words right and moves those below `bound` to the front, in order; how many there are. Words at or above it are rare, so whole runs are
/// looked at before single words.
fn keep_below<const RUN: usize>(words: &mut [u64], shift: u32, bound: u64) -> usize {
    let mut write = 0;
    for start in (0..words.len()).step_by(RUN) {
        let end = (start + RUN).min(words.len());
        let mut over = 0u64;
        for w in &mut words[start..end] {
            *w >>= shift;
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
