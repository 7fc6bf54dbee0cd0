//! Uniform limbs from a generator.

use super::kernels::{self as k, Out};
use super::{Modulus, RnsBasis, RnsError};
use crate::secret::declassify;
use crate::Prg;

/// What a draw of a uniform residue is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draws {
    /// Every generator word, shifted right by 12 bits.
    Words,
    /// Where the prime is below 2^28, each word is two draws, its low 32 bits and its high ones; as [`Draws::Words`] else.
    Halves,
}

/// Primes of which half a word is a draw are below it: a sixteenth of the draws is skipped at most.
const HALVES_BELOW: u64 = 1 << 28;

/// Fills `out` with independent uniform residues.
///
/// Every generator word is shifted right by 12 bits; a result at or above `floor(2^52 / q) q` is skipped,
/// the others are reduced modulo q, in order. When words are missing at the end, the generator is asked
/// for as many again.
pub fn uniform_limb(prg: &mut Prg, m: &Modulus, out: &mut [u64]) {
    uniform_limb_of(prg, m, Draws::Words, out, |_, _| {});
}

/// As [`uniform_limb`], of any draws. Halves at or above `floor(2^32 / q) q` are skipped; when draws are missing at the end, the generator is
/// asked for half as many words, rounded up, and of an odd number the last high half is thrown away.
///
/// `then` gets residues as soon as they are there, and where they begin: every one of them once, in order. Halves are not wiped: they are for public
/// polynomials.
pub fn uniform_limb_of(
    prg: &mut Prg,
    m: &Modulus,
    draws: Draws,
    out: &mut [u64],
    mut then: impl FnMut(usize, &[u64]),
) {
    let halves = draws == Draws::Halves && m.q < HALVES_BELOW;
    let mut kept = 0;
    while kept < out.len() {
        // What one request gives, a cacheful at a time: chunks are whole blocks of the generator.
        let mut missing = out.len() - kept;
        while missing > 0 {
            let count = CHUNK.min(missing);
            let fresh = &mut out[kept..kept + count];
            let good = if halves { halves_below(prg, m, fresh) } else { words_below(prg, m, fresh) };
            then(kept, &fresh[..good]);
            (kept, missing) = (kept + good, missing - count);
        }
    }
}

/// Residues of as many words as there is room for; how many are not skipped.
fn words_below(prg: &mut Prg, m: &Modulus, fresh: &mut [u64]) -> usize {
    prg.fill_words(fresh);
    let good = keep_below(fresh, 12, (1u64 << 52) / m.q * m.q);
    k::reduce(prg.isa(), Out::new(&mut fresh[..good]), m);
    good
}

/// Residues of as many halves as there is room for; how many are not skipped.
fn halves_below(prg: &mut Prg, m: &Modulus, fresh: &mut [u64]) -> usize {
    // Room for a run beyond those that are wanted.
    let (mut words, mut draws) = ([0; CHUNK / 2], [0; CHUNK + RUN]);
    let words = &mut words[..fresh.len().div_ceil(2)];
    prg.fill_words(words);
    let most = ((1u64 << 32) / m.q * m.q - 1) as u32;
    let mut good = 0;
    let (runs, rest) = words.split_at(fresh.len() / RUN * (RUN / 2));
    for run in runs.as_chunks::<{ RUN / 2 }>().0 {
        let to: &mut [u32; RUN] = draws[good..].first_chunk_mut().expect("room for a run");
        // Which draws are thrown away tells nothing about the others.
        if declassify(copy_halves(run, to, most)) {
            good += RUN;
        } else {
            good += keep_halves(run, RUN, most, &mut draws[good..]);
        }
    }
    good += keep_halves(rest, fresh.len() % RUN, most, &mut draws[good..]);
    k::reduce_halves(prg.isa(), Out::new(&mut fresh[..good]), &draws[..good], m);
    good
}

/// Writes the halves of some words, low ones first; whether all are at most `most`.
#[cfg(not(all(target_family = "wasm", target_feature = "simd128")))]
fn copy_halves(words: &[u64; RUN / 2], to: &mut [u32; RUN], most: u32) -> bool {
    for (to, w) in to.as_chunks_mut::<2>().0.iter_mut().zip(words) {
        *to = [*w as u32, (*w >> 32) as u32];
    }
    to.iter().fold(0, |top, d| top.max(*d)) <= most
}

/// As elsewhere, in vectors: the compiler for WebAssembly leaves the maxima in single words.
#[cfg(all(target_family = "wasm", target_feature = "simd128"))]
#[inline(always)]
#[allow(unsafe_code)]
fn copy_halves(words: &[u64; RUN / 2], to: &mut [u32; RUN], most: u32) -> bool {
    use std::arch::wasm32::*;
    let bound = u32x4_splat(most);
    let mut top = bound;
    for (to, w) in to.as_chunks_mut::<4>().0.iter_mut().zip(words.as_chunks::<2>().0) {
        // SAFETY: both chunks have 16 bytes.
        unsafe {
            let halves = v128_load(w.as_ptr().cast());
            v128_store(to.as_mut_ptr().cast(), halves);
            top = u32x4_max(top, halves);
        }
    }
    !v128_any_true(v128_xor(top, bound))
}

/// Those of so many halves of words that are at most `most`; how many they are.
fn keep_halves(words: &[u64], count: usize, most: u32, to: &mut [u32]) -> usize {
    let mut good = 0;
    for d in words.iter().flat_map(|w| [*w as u32, (*w >> 32) as u32]).take(count) {
        to[good] = d;
        good += usize::from(declassify(d <= most));
    }
    good
}

/// `a` uniform, as [`uniform_limb_of`] fills it, and `out -= a s` of slot values, residues or doubles, which become residues: `a` is multiplied while it is in the cache.
fn subtract_from(
    doubles: bool,
    prg: &mut Prg,
    m: &Modulus,
    draws: Draws,
    (a, out): (&mut [u64], &mut [u64]),
    s: &[u64],
) {
    let isa = prg.isa();
    uniform_limb_of(prg, m, draws, a, |at, a| {
        let range = at..at + a.len();
        let (out, s) = (Out::new(&mut out[range.clone()]), &s[range]);
        if doubles {
            k::mul_sub_doubles(out, a, s, m);
        } else {
            k::mul_sub(isa, out, a, s, m);
        }
    });
}

impl RnsBasis {
    /// An encryption's first polynomial modulo prime i: `out` becomes the transform of `message`, two's complement of magnitudes below 2^51, minus `a s`,
    /// with `a` uniform as [`uniform_limb_of`] fills it. All have N words.
    ///
    /// # Errors
    /// [`RnsError::Degree`] for other numbers of words.
    pub fn mask_short(
        &self,
        i: usize,
        message: &[u64],
        (prg, draws): (&mut Prg, Draws),
        s: &[u64],
        (a, out): (&mut [u64], &mut [u64]),
    ) -> Result<(), RnsError> {
        let lengths = [message.len(), s.len(), a.len(), out.len()];
        if let Some(got) = lengths.into_iter().find(|l| *l != self.degree()) {
            return Err(RnsError::Degree { expected: self.degree(), got });
        }
        let (m, transform) = (&self.moduli()[i], self.transform(i));
        let doubles = match transform.forward_short(message, out, k::TAKES_DOUBLES) {
            Some(doubles) => doubles,
            None => {
                k::short(self.isa(), Out::new(out), message, m);
                transform.forward(out)?;
                false
            }
        };
        subtract_from(doubles, prg, m, draws, (a, out), s);
        Ok(())
    }
}

/// Words that are drawn and reduced at a time.
const CHUNK: usize = 1024;
/// Words and halves that are looked at together.
const WORD_RUN: usize = 128;
const RUN: usize = 16;

/// Shifts words right and moves those below `bound` to the front, in order; how many there are. Words at or above it are rare, so whole runs are
/// looked at before single words.
fn keep_below(words: &mut [u64], shift: u32, bound: u64) -> usize {
    let mut write = 0;
    for start in (0..words.len()).step_by(WORD_RUN) {
        let end = (start + WORD_RUN).min(words.len());
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

#[cfg(test)]
mod tests {
    use super::super::tests::{mixed_primes, random};
    use super::super::Eval;
    use super::*;
    use crate::prime::primes_near;
    use crate::{simd, Isa};

    /// By the words of the definition, draw by draw: many draws are skipped, at the end of odd numbers too.
    #[test]
    fn limbs_of_halves_are_as_defined() {
        for q in [(1u64 << 28) - 57, (1 << 27) + 29, 67_043_329, 65_537, (1 << 28) + 3] {
            let m = Modulus::new(q).unwrap();
            for len in [1, 2, 7, 64, 1024, 1025, 5000] {
                let mut out = vec![0; len];
                let mut prg = Prg::chacha([5; 32]).untracked();
                uniform_limb_of(&mut prg, &m, Draws::Halves, &mut out, |_, _| {});
                assert!(out.iter().all(|v| *v < q));
                let mut prg = Prg::chacha([5; 32]).untracked();
                let mut expected: Vec<u64> = Vec::new();
                if q >= 1 << 28 {
                    expected.resize(len, 0);
                    uniform_limb(&mut prg, &m, &mut expected);
                }
                let bound = (1 << 32) / q * q;
                while expected.len() < len {
                    let missing = len - expected.len();
                    // Chunks of 1024 draws are whole blocks of the generator; others take what is left of a block with them.
                    for chunk in vec![(); missing].chunks(1024) {
                        let mut words = vec![0; chunk.len().div_ceil(2)];
                        prg.fill_words(&mut words);
                        let draws =
                            words.into_iter().flat_map(|w| [w & 0xffff_ffff, w >> 32]).take(chunk.len());
                        expected.extend(draws.filter(|d| *d < bound).map(|d| d % q));
                    }
                }
                assert_eq!(out, expected, "q={q} len={len}");
            }
        }
    }

    /// The mask is the polynomial that others draw, and the first polynomial the transform of the message minus its product, at the edges of messages, too.
    #[test]
    fn messages_are_masked_as_step_by_step() {
        for n in [64, 128, 4096, 8192] {
            let of = |bits, i: usize| primes_near(bits, n, i + 1).unwrap()[i];
            let primes = [of(20, 0), of(25, 5), of(26, 0), of(26, 5), of(27, 3), of(50, 0)];
            let limit = (1i64 << 51) - 1;
            let edges = [0, 1, -1, limit, -limit, limit - 1, primes[2] as i64, -(primes[3] as i64)];
            let mut message = vec![0; n];
            Prg::from_seed([6; 16]).fill_words(&mut message);
            message.iter_mut().for_each(|w| *w = (*w as i64 >> 13) as u64);
            message.iter_mut().zip(edges).for_each(|(w, v)| *w = v as u64);
            for isa in simd::available() {
                let basis = RnsBasis::with_isa(n, &primes, isa).unwrap();
                let s = random::<Eval>(&basis, &mut Prg::from_seed([3; 16]), 0..6);
                let transformed = basis.forward(basis.from_signed(&message, 0..6).unwrap()).unwrap();
                let of_words: fn(Isa) -> Prg = |isa| Prg::from_seed_with([5; 16], isa).untracked();
                let of_halves: fn(Isa) -> Prg = |_| Prg::chacha([5; 32]).untracked();
                for (draws, prg) in [(Draws::Words, of_words), (Draws::Halves, of_halves)] {
                    let mut expected = transformed.clone();
                    let drawn = basis.fill_with::<Eval, RnsError>(0..6, |i, limb| {
                        uniform_limb_of(&mut prg(isa), &basis.moduli()[i], draws, limb, |_, _| {});
                        Ok(())
                    });
                    let drawn = drawn.unwrap();
                    basis.mul_sub(&mut expected, &drawn, &s).unwrap();
                    let both = basis.fill_two::<Eval, RnsError>(0..6, |i, a, out| {
                        basis.mask_short(i, &message, (&mut prg(isa), draws), s.limb(i), (a, out))
                    });
                    assert!(both.unwrap() == [drawn, expected], "N={n} {isa:?} {draws:?}");
                }
                let (mut a, mut out) = (vec![0; n], vec![0; n - 1]);
                let short = basis.mask_short(
                    0,
                    &message,
                    (&mut of_words(isa), Draws::Words),
                    s.limb(0),
                    (&mut a, &mut out),
                );
                assert_eq!(short, Err(RnsError::Degree { expected: n, got: n - 1 }));
            }
        }
    }

    #[test]
    fn uniform_limbs_are_below_the_prime_spread_evenly_and_the_same_everywhere() {
        for q in mixed_primes(16) {
            let m = Modulus::new(q).unwrap();
            let mut expected = None;
            for isa in simd::available() {
                let mut out = vec![0; 64_001];
                uniform_limb(&mut Prg::from_seed_with([13; 16], isa), &m, &mut out);
                assert!(out.iter().all(|w| *w < q));
                let mut buckets = [0f64; 16];
                for w in &out {
                    buckets[(u128::from(*w) * 16 / u128::from(q)) as usize] += 1.0;
                }
                let mean = out.len() as f64 / 16.0;
                let chi: f64 = buckets.iter().map(|b| (b - mean).powi(2) / mean).sum();
                assert!(chi < 45.0, "{q}: {chi}");
                assert_eq!(*expected.get_or_insert(out.clone()), out, "{isa:?}");
            }
        }
    }
}
