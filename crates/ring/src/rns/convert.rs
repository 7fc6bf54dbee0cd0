//! From one set of primes to another: digits of key switches, and integers of coefficients.
//!
//! For x modulo S = s_1 ... s_k, centred: with y_j = x (S/s_j)^-1 mod s_j, x = sum_j y_j S/s_j - v S where
//! v = round(sum_j y_j / s_j). The sum is taken in binary64, whose error is below k 2^-50: the result is the
//! representative of x of magnitude at most S/2 (1 + k 2^-49), so v is off (by one) only where both
//! representatives are within that bound.

use super::buffer::Buffer;
use super::kernels::{self as k, Out};
use super::lanes::LAZY_TERMS;
use super::sums::{self, Added};
use super::{Coef, Eval, Factor, Modulus, RnsBasis, RnsError, RnsPoly};
use std::ops::Range;

/// Words of every limb that are converted at a time.
const PIECE: usize = 512;
/// Limbs that are made of several sources before they are used: few enough for a cache, and sources are read once for all of them.
const GROUP: usize = 8;

/// Digits whose values below 4p leave a lazy sum of their products, with a product of residues, what it has room for ([`LAZY_TERMS`]).
const LOOSE_DIGITS: usize = (LAZY_TERMS - 1) / 4;

/// Constants of the conversion from the primes `from` to the primes `to` (positions in a basis).
#[derive(Clone)]
pub struct BaseConverter {
    pub(super) from: Vec<usize>,
    pub(super) to: Vec<usize>,
    /// `(S/s_j)^-1 mod s_j`.
    lift: Vec<Factor>,
    /// `1 / s_j`.
    ratios: Vec<f64>,
    /// Per target t: `S/s_j mod t` for every j, then `-S mod t`.
    weights: Vec<Vec<u64>>,
    /// Per target t, for one source: `floor(s/2) mod t`.
    half: Vec<u64>,
}

/// The product of some primes modulo one.
pub(super) fn product(moduli: &[Modulus], of: impl Iterator<Item = usize>, m: &Modulus) -> u64 {
    of.fold(1, |p, i| m.mul(p, moduli[i].value() % m.value()))
}

impl BaseConverter {
    /// Constants from the primes at `from` to those at `to`.
    ///
    /// # Errors
    /// [`RnsError::Empty`] without a source, [`RnsError::Limbs`] for positions outside the basis.
    pub fn new(basis: &RnsBasis, from: &[usize], to: &[usize]) -> Result<Self, RnsError> {
        if from.is_empty() {
            return Err(RnsError::Empty);
        }
        let moduli = basis.moduli();
        if let Some(&i) = from.iter().chain(to).find(|i| **i >= moduli.len()) {
            return Err(RnsError::Limbs { needed: i..i + 1, got: 0..moduli.len() });
        }
        let others = |j: usize| from.iter().copied().filter(move |&i| i != j);
        let lift = from
            .iter()
            .map(|&j| moduli[j].factor(moduli[j].inv(product(moduli, others(j), &moduli[j]))))
            .collect();
        let weights = to
            .iter()
            .map(|&t| {
                let m = &moduli[t];
                let mut row: Vec<u64> = from.iter().map(|&j| product(moduli, others(j), m)).collect();
                row.push(m.neg(product(moduli, from.iter().copied(), m)));
                row
            })
            .collect();
        Ok(Self {
            from: from.to_vec(),
            to: to.to_vec(),
            lift,
            ratios: from.iter().map(|&j| 1.0 / moduli[j].value() as f64).collect(),
            weights,
            half: to.iter().map(|&t| moduli[from[0]].value() / 2 % moduli[t].value()).collect(),
        })
    }

    /// Positions of the primes that are converted from.
    #[must_use]
    pub fn from(&self) -> &[usize] {
        &self.from
    }

    /// Positions of the primes that are converted to.
    #[must_use]
    pub fn to(&self) -> &[usize] {
        &self.to
    }

    /// Makes `source` (coefficient limbs in the order of [`Self::from`], overwritten) ready for [`Self::target`].
    /// With several sources the result is the list of overflows v, else empty.
    fn prepare(&self, basis: &RnsBasis, source: &mut [&mut [u64]]) -> Buffer {
        if source.len() > 1 {
            for ((limb, &j), &f) in source.iter_mut().zip(&self.from).zip(&self.lift) {
                k::factor(basis.isa(), Out::new(limb), f, &basis.moduli()[j]);
            }
        }
        self.overflows(basis, source)
    }

    /// [`Self::prepare`] of the coefficients of slot values, which go to `source`: the inverse transforms multiply.
    pub(super) fn prepare_slots(
        &self,
        basis: &RnsBasis,
        slots: &[&[u64]],
        source: &mut [&mut [u64]],
    ) -> Result<Buffer, RnsError> {
        for (((&j, &lift), from), to) in self.from.iter().zip(&self.lift).zip(slots).zip(&mut *source) {
            let w = if slots.len() > 1 { lift } else { basis.moduli()[j].factor(1) };
            basis.inverse_times(j, from, w, to)?;
        }
        Ok(self.overflows(basis, source))
    }

    /// What is left of [`Self::prepare`] when several sources are multiplied.
    fn overflows(&self, basis: &RnsBasis, source: &mut [&mut [u64]]) -> Buffer {
        let isa = basis.isa();
        if let [only] = source {
            let m = &basis.moduli()[self.from[0]];
            k::add_word(isa, Out::new(only), m.value() / 2, m);
            return Buffer::dirty(0);
        }
        let mut overflow = Buffer::dirty(basis.degree());
        let limbs: Vec<&[u64]> = source.iter().map(|s| &**s).collect();
        k::overflow(isa, Out::new(&mut overflow), &limbs, &self.ratios);
        overflow
    }

    /// Targets that are made before they are used: of several sources a group, which reads them once; of one source a single one, which is in the
    /// nearest caches then for the transform that follows.
    pub(super) fn at_a_time(&self) -> usize {
        if self.from.len() == 1 {
            1
        } else {
            GROUP
        }
    }

    /// Residues of targets, by number, from prepared sources; `loose`: values below 4p where a transform takes them. Of several sources piece by piece: they
    /// are larger than a cache, pieces of them are not.
    pub(super) fn targets(
        &self,
        basis: &RnsBasis,
        (source, overflow): (&[&[u64]], &[u64]),
        wanted: &mut [(usize, &mut [u64])],
        loose: bool,
    ) {
        let (isa, n) = (basis.isa(), basis.degree());
        let several = (source.len() > 1).then_some(overflow);
        let length = if source.len() > 1 { PIECE } else { n };
        for start in (0..n).step_by(length) {
            let piece = start..n.min(start + length);
            let terms: Vec<&[u64]> =
                source.iter().copied().chain(several).map(|s| &s[piece.clone()]).collect();
            for (t, out) in &mut *wanted {
                let (i, out) = (self.to[*t], Out::new(&mut out[piece.clone()]));
                let m = &basis.moduli()[i];
                match terms.as_slice() {
                    [only] => k::shift(isa, out, only, self.half[*t], m),
                    terms if loose && basis.transform(i).is_loose() => {
                        sums::combine_loose(isa, out, terms, &self.weights[*t], m);
                    }
                    terms => sums::combine(isa, out, terms, &self.weights[*t], m),
                }
            }
        }
    }

    /// Converts coefficient limbs. `source` follows [`Self::from`] and is overwritten; `write(t, limb)`
    /// receives, for every target number `t` that `wanted` asks for, its N residues to keep.
    ///
    /// # Errors
    /// [`RnsError::Count`] for a wrong number of sources, [`RnsError::Degree`] for a wrong length.
    pub fn convert(
        &self,
        basis: &RnsBasis,
        source: &mut [&mut [u64]],
        targets: &mut [(usize, &mut [u64])],
    ) -> Result<(), RnsError> {
        if source.len() != self.from.len() {
            return Err(RnsError::Count { what: "source", expected: self.from.len(), got: source.len() });
        }
        let n = basis.degree();
        let lengths = source.iter().map(|s| s.len()).chain(targets.iter().map(|t| t.1.len()));
        if let Some(got) = lengths.into_iter().find(|l| *l != n) {
            return Err(RnsError::Degree { expected: n, got });
        }
        if let Some((t, _)) = targets.iter().find(|(t, _)| *t >= self.to.len()) {
            return Err(RnsError::Count { what: "target", expected: self.to.len(), got: *t });
        }
        let overflow = self.prepare(basis, source);
        let source: Vec<&[u64]> = source.iter().map(|s| &**s).collect();
        self.targets(basis, (&source, &overflow), targets, false);
        Ok(())
    }
}

/// A digit of a polynomial: its residues modulo [`BaseConverter::from`], as slot values and as coefficients ready
/// for conversion to one prime after the other.
pub struct Digit<'a> {
    converter: &'a BaseConverter,
    own: &'a RnsPoly<Eval>,
    coefficients: &'a [u64],
    overflow: Buffer,
}

impl<'a> Digit<'a> {
    /// Prepares the digit of `own` that `converter` starts from; `coefficients` are its limbs as coefficients,
    /// one after the other, and are overwritten.
    ///
    /// # Errors
    /// [`RnsError::Degree`] or [`RnsError::Limbs`] for missing limbs.
    pub fn new(
        basis: &RnsBasis,
        converter: &'a BaseConverter,
        own: &'a RnsPoly<Eval>,
        coefficients: &'a mut [u64],
    ) -> Result<Self, RnsError> {
        Self::check(basis, converter, own, coefficients)?;
        let mut source: Vec<&mut [u64]> = coefficients.chunks_exact_mut(basis.degree()).collect();
        let overflow = converter.prepare(basis, &mut source);
        Ok(Self { converter, own, coefficients, overflow })
    }

    /// [`Self::new`] with coefficients that are made here, in `room`. Cost: one inverse transform a prime.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_slots(
        basis: &RnsBasis,
        converter: &'a BaseConverter,
        own: &'a RnsPoly<Eval>,
        room: &'a mut [u64],
    ) -> Result<Self, RnsError> {
        Self::check(basis, converter, own, room)?;
        let slots: Vec<&[u64]> = converter.from.iter().map(|&j| own.limb(j)).collect();
        let mut source: Vec<&mut [u64]> = room.chunks_exact_mut(basis.degree()).collect();
        let overflow = converter.prepare_slots(basis, &slots, &mut source)?;
        Ok(Self { converter, own, coefficients: room, overflow })
    }

    fn check(
        basis: &RnsBasis,
        converter: &BaseConverter,
        own: &RnsPoly<Eval>,
        words: &[u64],
    ) -> Result<(), RnsError> {
        let expected = basis.degree() * converter.from.len();
        if words.len() != expected {
            return Err(RnsError::Degree { expected, got: words.len() });
        }
        converter.from.iter().try_for_each(|&j| basis.check_covers(own, j..j + 1))
    }

    /// Slot values modulo the primes at `range` of the polynomial that has the digit's residues, limb after limb. Cost: one forward
    /// transform a prime, or none for the digit's own primes.
    ///
    /// # Errors
    /// [`RnsError::Count`] unless the primes are among [`BaseConverter::from`] or [`BaseConverter::to`]; [`RnsError::Degree`] for a wrong length.
    pub fn limbs(&self, basis: &RnsBasis, range: Range<usize>, out: &mut [u64]) -> Result<(), RnsError> {
        self.others(basis, range.clone(), out)?;
        for (i, limb) in range.zip(out.chunks_exact_mut(basis.degree())) {
            if self.converter.from.contains(&i) {
                limb.copy_from_slice(self.own.limb(i));
            }
        }
        Ok(())
    }

    /// The slot values modulo prime i, of what [`Self::others`] made of it where it is none of the digit's own.
    #[must_use]
    pub fn limb<'b>(&'b self, i: usize, made: &'b [u64]) -> &'b [u64] {
        if self.converter.from.contains(&i) {
            self.own.limb(i)
        } else {
            made
        }
    }

    /// [`Self::limbs`] that leaves the digit's own primes as they are in `out`: [`Self::limb`] has them.
    ///
    /// # Errors
    /// As [`Self::limbs`].
    pub fn others(&self, basis: &RnsBasis, range: Range<usize>, out: &mut [u64]) -> Result<(), RnsError> {
        self.converted(basis, range.clone(), out)?;
        for (i, limb) in range.zip(out.chunks_exact_mut(basis.degree())) {
            self.transformed(basis, i, limb, false)?;
        }
        Ok(())
    }

    /// [`Self::others`] of some digits of one polynomial, that of digit d from `out[d room]` on, for sums of products: of three or fewer, values may be
    /// below 4p in place of residues. Digits take turns at every prime: its tables are read once for all of them.
    ///
    /// # Errors
    /// As [`Self::limbs`].
    pub fn all_others(
        digits: &[Self],
        basis: &RnsBasis,
        range: Range<usize>,
        room: usize,
        out: &mut [u64],
    ) -> Result<(), RnsError> {
        let n = basis.degree();
        if out.len() != room * digits.len() || n * range.len() > room {
            return Err(RnsError::Degree { expected: room * digits.len(), got: out.len() });
        }
        for (digit, limbs) in digits.iter().zip(out.chunks_exact_mut(room)) {
            digit.converted(basis, range.clone(), &mut limbs[..n * range.len()])?;
        }
        for (at, i) in range.enumerate() {
            for (digit, limbs) in digits.iter().zip(out.chunks_exact_mut(room)) {
                digit.transformed(basis, i, &mut limbs[n * at..][..n], digits.len() <= LOOSE_DIGITS)?;
            }
        }
        Ok(())
    }

    /// Residues modulo prime i to slot values, `loose` or not, unless the prime is the digit's own.
    fn transformed(&self, basis: &RnsBasis, i: usize, limb: &mut [u64], loose: bool) -> Result<(), RnsError> {
        if self.converter.from.contains(&i) {
            return Ok(());
        }
        let transform = basis.transform(i);
        Ok(if loose { transform.forward_loose(limb) } else { transform.forward(limb) }?)
    }

    /// What [`Self::others`] transforms.
    fn converted(&self, basis: &RnsBasis, range: Range<usize>, out: &mut [u64]) -> Result<(), RnsError> {
        let (n, converter) = (basis.degree(), self.converter);
        if out.len() != n * range.len() {
            return Err(RnsError::Degree { expected: n * range.len(), got: out.len() });
        }
        let mut wanted = Vec::with_capacity(range.len());
        for (i, limb) in range.zip(out.chunks_exact_mut(n)) {
            if converter.from.contains(&i) {
                continue;
            }
            let t = converter.to.iter().position(|t| *t == i);
            wanted.push((
                t.ok_or(RnsError::Count { what: "target", expected: i, got: converter.to.len() })?,
                limb,
            ));
        }
        let source: Vec<&[u64]> = self.coefficients.chunks_exact(n).collect();
        converter.targets(basis, (&source, &self.overflow), &mut wanted, true);
        Ok(())
    }

    /// The whole polynomial over the primes at `range`.
    ///
    /// # Errors
    /// As [`Self::limbs`].
    pub fn raise(&self, basis: &RnsBasis, range: Range<usize>) -> Result<RnsPoly<Eval>, RnsError> {
        let mut out = basis.dirty::<Eval>(range.clone())?;
        self.limbs(basis, range, out.words_mut())?;
        Ok(out)
    }
}

/// `(sum_d x_d b_d, sum_d x_d a_d)` over the primes at `range` for digits x_d, few primes at a time: raised digits live
/// for those only and stay in the cache.
///
/// # Errors
/// [`RnsError::Count`] unless there are as many a_d and b_d as digits, [`RnsError::Limbs`] when they lack primes.
pub fn switch_digits(
    basis: &RnsBasis,
    range: Range<usize>,
    digits: &[Digit<'_>],
    key: [&[RnsPoly<Eval>]; 2],
) -> Result<[RnsPoly<Eval>; 2], RnsError> {
    let mut out = [basis.dirty::<Eval>(range.clone())?, basis.dirty::<Eval>(range.clone())?];
    let [low, high] = &mut out;
    switch_limbs(basis, range, digits, key, |i, sum| {
        sum([low.limb_mut(i), high.limb_mut(i)], Added::NOTHING);
        Ok(())
    })?;
    Ok(out)
}

/// [`switch_digits`] prime by prime: `each` is given every prime's number and what writes both sums there, with something added (its factor is a residue), while
/// they are in the nearest caches for what is done with them.
///
/// # Errors
/// As [`switch_digits`], and those of `each`.
///
/// # Panics
/// What writes sums is handed slices of fewer than N words.
pub fn switch_limbs(
    basis: &RnsBasis,
    range: Range<usize>,
    digits: &[Digit<'_>],
    key: [&[RnsPoly<Eval>]; 2],
    mut each: impl FnMut(usize, &dyn Fn([&mut [u64]; 2], Added<'_>)) -> Result<(), RnsError>,
) -> Result<(), RnsError> {
    for half in key {
        if half.len() != digits.len() {
            return Err(RnsError::Count { what: "key", expected: digits.len(), got: half.len() });
        }
        for p in half {
            basis.check_covers(p, range.clone())?;
        }
    }
    let n = basis.degree();
    let together = digits.iter().map(|d| d.converter.at_a_time()).max().unwrap_or(1);
    let mut raised = Buffer::dirty(n * together * digits.len());
    for first in range.clone().step_by(together) {
        let group = first..range.end.min(first + together);
        Digit::all_others(digits, basis, group.clone(), n * together, &mut raised)?;
        for i in group {
            let made = raised.chunks_exact(n * together).map(|limbs| &limbs[n * (i - first)..][..n]);
            let x: Vec<&[u64]> = digits.iter().zip(made).map(|(d, made)| d.limb(i, made)).collect();
            let [b, a] = key.map(|half| half.iter().map(|p| p.limb(i)).collect::<Vec<_>>());
            each(i, &|outs, added| {
                assert!(outs.iter().all(|out| out.len() == n), "room for a limb");
                assert!(added.words.iter().all(|a| a.len() == n || a.is_empty()), "a limb or nothing");
                sums::inner(basis.isa(), outs.map(Out::new), added, &x, [&b, &a], &basis.moduli()[i]);
            })?;
        }
    }
    Ok(())
}

impl RnsBasis {
    /// The centred integer of every coefficient modulo the limbs' product, as binary64 (nearest up to a
    /// relative error of 2^-51 when it is below 2^53 times the product of the primes it spans): balanced
    /// mixed-radix digits, `x = a_0 + a_1 q_0 + a_2 q_0 q_1 + ...`, `|a_j| <= q_j / 2`.
    ///
    /// # Errors
    /// [`RnsError`] when the polynomial is not of this basis.
    pub fn to_reals(&self, a: &RnsPoly<Coef>) -> Result<Vec<f64>, RnsError> {
        self.check(a)?;
        let mut a = a.clone();
        let (first, end) = (a.range().start, a.range().end);
        let mut shifted = Buffer::dirty(self.degree());
        let mut residue = Buffer::dirty(self.degree());
        for i in first..end {
            let m = &self.moduli()[i];
            let half = m.value() / 2;
            shifted.copy_from_slice(a.limb(i));
            k::add_word(self.isa(), Out::new(&mut shifted), half, m);
            for j in i + 1..end {
                let t = &self.moduli()[j];
                k::shift(self.isa(), Out::new(&mut residue), &shifted, half % t.value(), t);
                let inverse = t.factor(t.inv(m.value() % t.value()));
                k::sub_factor(self.isa(), Out::new(a.limb_mut(j)), &residue, inverse, t);
            }
        }
        let mut out = vec![0.0; self.degree()];
        for i in (first..end).rev() {
            let below = if i > first { self.moduli()[i - 1].value() as f64 } else { 1.0 };
            let m = self.moduli()[i];
            for (o, &w) in out.iter_mut().zip(a.limb(i)) {
                *o = (*o + m.centred(w) as f64) * below;
            }
        }
        zeroize::Zeroize::zeroize(&mut *shifted);
        zeroize::Zeroize::zeroize(&mut *residue);
        zeroize::Zeroize::zeroize(&mut a);
        Ok(out)
    }
}
