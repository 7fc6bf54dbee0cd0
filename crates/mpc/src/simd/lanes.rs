//! Terms of products, 64 values at a time: one term of a sum `bit * element * 2^shift` at either party ([`crate::protocols`], `cross`); and the
//! holder's tables of functions (`spline`).
//!
//! The loops are written once; a path with vector registers compiles them for these. So all paths give the same bits. Bits of secrets become masks, and an
//! optimisation barrier keeps the compiler from making branches of them.

use std::hint::black_box;

use super::GROUP;

/// Values of a block, one a lane.
pub(crate) type Lanes = [u64; GROUP];

/// What the holder of the elements has of one term: both pads of every OT, the corrections that put them in order, the elements, the mask of
/// the payload's bits and the shift.
pub(crate) struct Offered<'a> {
    /// Pads before they are put in order.
    pub pads: [&'a Lanes; 2],
    /// Bit i: the pads of value i change places.
    pub swap: u64,
    /// Elements; bits above the payload's do not matter.
    pub elements: &'a Lanes,
    /// Ones for the bits that travel.
    pub payload: u64,
    /// Left shift of the product.
    pub shift: u32,
}

/// A polynomial in the place of a table's holder, whose value becomes a field of the words of its entry.
pub(crate) struct Polynomial<'a> {
    /// Its coefficients as integers, the constant first.
    pub coefficients: &'a [i64],
    /// Fractional bits that the holder's places have.
    pub place_bits: u32,
    /// Bits of a value that are rounded away.
    pub fine: u32,
    /// Ones for the bits of the field, at the lowest ones.
    pub mask: u64,
    /// The bit of the word at which the field begins.
    pub at: u32,
}

/// All ones or nothing in lane i, by bit i of the word.
#[inline(always)]
fn masks(word: u64) -> Lanes {
    let mut masks = [0; GROUP];
    for (i, m) in masks.iter_mut().enumerate() {
        *m = ((word >> i) & 1).wrapping_neg();
    }
    black_box(masks)
}

/// What is sent, p0 - p1 + element, and this party's share, less p0 * 2^shift, modulo 2^64.
#[inline(always)]
pub(super) fn offer(term: &Offered<'_>, sent: &mut Lanes, share: &mut Lanes) {
    let swaps = masks(term.swap);
    for i in 0..GROUP {
        let (p0, p1) = (term.pads[0][i], term.pads[1][i]);
        let swap = (p0 ^ p1) & swaps[i];
        let (a, b) = (p0 ^ swap, p1 ^ swap);
        sent[i] = a.wrapping_sub(b).wrapping_add(term.elements[i]) & term.payload;
        share[i] = share[i].wrapping_sub(a << term.shift);
    }
}

/// Adds the pads, times 2^shift, to this party's share, modulo 2^64.
#[inline(always)]
pub(super) fn keep(pads: &Lanes, shift: u32, share: &mut Lanes) {
    for i in 0..GROUP {
        share[i] = share[i].wrapping_add(pads[i] << shift);
    }
}

/// Adds bit * received, times 2^shift, to this party's share, modulo 2^64.
#[inline(always)]
pub(super) fn collect(bits: u64, received: &Lanes, shift: u32, share: &mut Lanes) {
    let chosen = masks(bits);
    for i in 0..GROUP {
        share[i] = share[i].wrapping_add((received[i] & chosen[i]) << shift);
    }
}

/// Puts the polynomial's values at the places into the words, whose field is zero.
#[inline(always)]
pub(super) fn evaluate(of: &Polynomial<'_>, places: &Lanes, words: &mut Lanes) {
    let (&highest, rest) = of.coefficients.split_last().unwrap_or((&0, &[]));
    let mut sums = [highest; GROUP];
    for c in rest.iter().rev() {
        for (sum, place) in sums.iter_mut().zip(places) {
            *sum = (sum.wrapping_mul(*place as i64) >> of.place_bits).wrapping_add(*c);
        }
    }
    let half = (1i64 << of.fine) >> 1;
    for (word, sum) in words.iter_mut().zip(&sums) {
        *word |= ((sum.wrapping_add(half) >> of.fine) as u64 & of.mask) << of.at;
    }
}

/// One step of a table's turn: for the values whose bit `step` of the turn is set, entry c + 2^step comes to place c, modulo the table's length.
#[inline(always)]
pub(super) fn turn(table: &[Lanes], turn: &Lanes, step: u32, next: &mut [Lanes]) {
    let masks = black_box(turn.map(|t| ((t >> step) & 1).wrapping_neg()));
    for (c, next) in next.iter_mut().enumerate() {
        let (stay, come) = (&table[c], &table[(c + (1 << step)) % table.len()]);
        for i in 0..GROUP {
            next[i] = stay[i] ^ ((stay[i] ^ come[i]) & masks[i]);
        }
    }
}

/// The loops of this file, compiled for the named features.
#[cfg(target_arch = "x86_64")]
macro_rules! compiled {
    ($features:literal) => {
        #[target_feature(enable = $features)]
        fn offer_inner(term: &lanes::Offered<'_>, sent: &mut lanes::Lanes, share: &mut lanes::Lanes) {
            lanes::offer(term, sent, share);
        }

        #[target_feature(enable = $features)]
        fn keep_inner(pads: &lanes::Lanes, shift: u32, share: &mut lanes::Lanes) {
            lanes::keep(pads, shift, share);
        }

        #[target_feature(enable = $features)]
        fn collect_inner(bits: u64, received: &lanes::Lanes, shift: u32, share: &mut lanes::Lanes) {
            lanes::collect(bits, received, shift, share);
        }

        #[target_feature(enable = $features)]
        fn evaluate_inner(of: &lanes::Polynomial<'_>, places: &lanes::Lanes, words: &mut lanes::Lanes) {
            lanes::evaluate(of, places, words);
        }

        #[target_feature(enable = $features)]
        fn turn_inner(table: &[lanes::Lanes], turn: &lanes::Lanes, step: u32, next: &mut [lanes::Lanes]) {
            lanes::turn(table, turn, step, next);
        }

        /// See `FixedKey::evaluate`.
        pub(in crate::simd) fn evaluate(
            _: &Key,
            of: &lanes::Polynomial<'_>,
            places: &lanes::Lanes,
            words: &mut lanes::Lanes,
        ) {
            // SAFETY: a `Key` exists only where the features do.
            unsafe { evaluate_inner(of, places, words) }
        }

        /// See `FixedKey::turn`.
        pub(in crate::simd) fn turn(
            _: &Key,
            table: &[lanes::Lanes],
            turn: &lanes::Lanes,
            step: u32,
            next: &mut [lanes::Lanes],
        ) {
            // SAFETY: a `Key` exists only where the features do.
            unsafe { turn_inner(table, turn, step, next) }
        }

        /// See `FixedKey::offer`.
        pub(in crate::simd) fn offer(
            _: &Key,
            term: &lanes::Offered<'_>,
            sent: &mut lanes::Lanes,
            share: &mut lanes::Lanes,
        ) {
            // SAFETY: a `Key` exists only where the features do.
            unsafe { offer_inner(term, sent, share) }
        }

        /// See `FixedKey::keep`.
        pub(in crate::simd) fn keep(_: &Key, pads: &lanes::Lanes, shift: u32, share: &mut lanes::Lanes) {
            // SAFETY: a `Key` exists only where the features do.
            unsafe { keep_inner(pads, shift, share) }
        }

        /// See `FixedKey::collect`.
        pub(in crate::simd) fn collect(
            _: &Key,
            bits: u64,
            received: &lanes::Lanes,
            shift: u32,
            share: &mut lanes::Lanes,
        ) {
            // SAFETY: a `Key` exists only where the features do.
            unsafe { collect_inner(bits, received, shift, share) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use compiled;
