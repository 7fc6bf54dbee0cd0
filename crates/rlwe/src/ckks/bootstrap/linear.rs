//! One matrix of a homomorphic transform: baby steps hoisted and kept over all primes, giant steps by one key.
//!
//! With offsets `(k_0 + g b + j) stride`, `M v = rot_(k_0)( sum_g rot_(g b)( sum_j F_gj rot_j v ) )`. The outer rotation is not made: it is handed on, and
//! the next matrix is stored with its entries turned instead. The sum over g is Horner's, so that one giant key serves. Baby steps and
//! inner sums stay over data and special primes ("double hoisting": Bossuat, Mouchet, Troncoso-Pastoriza, Hubaux, EUROCRYPT 2021, section 4), so a
//! giant step divides only the half that is cut into digits.

#[cfg(test)]
use super::super::switching::counted;
use super::super::switching::{apply_limb, digit_ratio2, switch_each, with_digits};
use super::super::{
    Ciphertext, CkksError, CkksParams, Complex, EncodeAt, Encoder, Evaluator, Galois, GaloisKeys, Level,
};
use super::dft::{scaled, Factor};
use crate::ckks::noise::independent_sum;
use hushnet_ring::rns::{Added, Digit, Eval, RnsError, RnsPoly};
use std::collections::BTreeMap;

/// Words of a limb that are worked on at a time: of all baby steps they stay in the second cache for all giant steps.
const TILE: usize = 512;

/// Limbs of the digits that are raised at a time.
const GROUP: usize = 8;

/// A polynomial in X^gap in evaluation form: N / gap words a limb ([`hushnet_ring::rns::RnsBasis::unrepeated`]).
struct Periodic {
    words: Vec<u64>,
}

impl Periodic {
    /// The words of limb number `limb` of those stored.
    fn limb(&self, limb: usize, length: usize) -> &[u64] {
        &self.words[limb * length..][..length]
    }
}

/// Offsets of a matrix in baby and giant steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Slots that one baby step turns.
    pub(super) stride: usize,
    /// Baby steps, the one by nothing included.
    pub(super) babies: usize,
    /// Giant steps likewise.
    pub(super) giants: usize,
    /// The offset that k = 0 stands for, in strides.
    pub(super) first: i64,
}

impl Steps {
    /// For matrices of a `radix` of butterfly levels on n slots.
    pub(super) fn new(n: usize, stride: usize, radix: u32) -> Self {
        // The last matrix reaches round: offsets count modulo n.
        let round = stride << radix == n;
        let count = if round { 1usize << radix } else { 2 << radix };
        let babies = 1usize << count.ilog2().div_ceil(2);
        let first = if round { 0 } else { 1 - (1 << radix) };
        Self { stride, babies, giants: count.div_ceil(babies), first }
    }

    /// Rotations that it needs keys of.
    pub(super) fn rotations(&self) -> Vec<i64> {
        let giant = (self.giants > 1).then_some(self.babies);
        (1..self.babies).chain(giant).map(|k| (k * self.stride) as i64).collect()
    }
}

/// What is known of a matrix before it is encoded.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) steps: Steps,
    pub(super) level: Level,
    /// Of its entries.
    pub(super) scale: f64,
    /// sd of what the roundings of the entries add to a slot, over the size of the slots, ring units.
    rounding: f64,
    /// Largest Euclidean norm of a row.
    norm: f64,
    /// Vectors that are stored, and words of them.
    pub(super) count: usize,
    pub(super) words: usize,
}

/// A matrix, encoded at the level that it is applied at.
pub(super) struct Stage {
    pub(super) shape: Shape,
    gap: usize,
    /// `[g][j]`.
    entries: Vec<Vec<Option<Periodic>>>,
}

/// What a matrix is multiplied by when it is stored.
#[derive(Clone, Copy)]
pub(super) struct Adjust {
    /// All entries.
    pub(super) factor: f64,
    /// Slots that the input still has to be turned by.
    pub(super) turned: i64,
}

/// A matrix on n slots to be encoded, with its place: level, scale of entries.
pub(super) struct Source<'a> {
    pub(super) n: usize,
    pub(super) factor: &'a Factor,
    pub(super) steps: Steps,
    pub(super) adjust: Adjust,
    pub(super) at: (Level, f64),
}

impl Source<'_> {
    /// What the output still has to be turned by.
    pub(super) fn turned(&self) -> i64 {
        self.adjust.turned + self.steps.first * self.steps.stride as i64
    }

    /// g where the polynomials are stored as such in X^g.
    fn gap(&self, params: &CkksParams) -> usize {
        match params.slots() / self.factor.period {
            _ if params.ring_degree() < 64 => 1,
            // Within 64 slots there are rows of eight words, of which one may stand for all.
            9..64 => 8,
            gap => gap,
        }
    }

    /// The diagonal of giant step g and baby step j and its values as they are stored, for vectors that repeat after n; `None` where there is none.
    fn values(&self, slots: usize, g: usize, j: usize) -> Option<(&[Complex], Vec<Complex>)> {
        let (steps, adjust, n) = (&self.steps, &self.adjust, self.n);
        let at = |k: i64, n: usize| k.rem_euclid(n as i64) as usize;
        let k = (g * steps.babies + j) as i64;
        let reach = (steps.first + k) * steps.stride as i64;
        // A window that is wider than the circle would meet an offset twice.
        let again = k >= (n / steps.stride) as i64;
        let d = self.factor.diagonals.get(&at(reach, n)).filter(|_| !again)?;
        let turn = -self.turned() - (g * steps.babies * steps.stride) as i64;
        let value = |i: usize| scaled(d[at(i as i64 + turn, n)], adjust.factor);
        Some((d, (0..slots).map(value).collect()))
    }
}

/// Slightly above every magnitude.
fn bound(values: &[Complex]) -> f64 {
    values.iter().map(|z| z.re.hypot(z.im)).fold(0.0, f64::max) * (1.0 + 1e-9)
}

impl Shape {
    /// Of a matrix; `each` is given every stored vector, by giant and baby step, and its bound.
    pub(super) fn of(
        params: &CkksParams,
        source: &Source<'_>,
        mut each: impl FnMut(usize, Option<(&[Complex], f64)>) -> Result<(), CkksError>,
    ) -> Result<Self, CkksError> {
        let (noise, (level, scale)) = (params.noise(), source.at);
        let (mut rounding, mut sums, mut count) = (0.0f64, vec![0.0f64; source.n], 0);
        for g in 0..source.steps.giants {
            for j in 0..source.steps.babies {
                let Some((d, values)) = source.values(params.slots(), g, j) else {
                    each(g, None)?;
                    continue;
                };
                let square = |z: &Complex| (z.re * z.re + z.im * z.im) * source.adjust.factor.powi(2);
                sums.iter_mut().zip(d).for_each(|(s, z)| *s += square(z));
                let bound = bound(&values);
                rounding = independent_sum(rounding, noise.rounding() + noise.transform(bound * scale));
                count += 1;
                each(g, Some((&values, bound)))?;
            }
        }
        let norm = sums.iter().copied().fold(0.0, f64::max).sqrt();
        let words = count * params.extended_range(level).len() * (params.ring_degree() / source.gap(params));
        Ok(Self { steps: source.steps.clone(), level, scale, rounding, norm, count, words })
    }

    /// Largest Euclidean norm of a row.
    pub(super) fn norm(&self) -> f64 {
        self.norm
    }

    /// sd of the result of slots within `bound` at `scale` with errors of `sd`, errors of different slots uncorrelated: input and baby switches through
    /// the largest row, roundings of entries, giant switches, the last rounding.
    pub(super) fn noise(&self, params: &CkksParams, sd: f64, bound: f64, scale: f64) -> f64 {
        let noise = params.noise();
        let switched = noise.switching(digit_ratio2(params, self.level));
        let prime = params.data_prime(self.level.0 - 1) as f64;
        let baby = if self.steps.babies > 1 { switched } else { 0.0 };
        let carried = self.norm * self.scale * independent_sum(sd, baby);
        let rounded = self.rounding * bound * scale;
        // A giant step rounds one half, which the secret multiplies, and switches.
        let giants =
            ((self.steps.giants - 1) as f64).sqrt() * independent_sum(switched, noise.part_rounding(2));
        independent_sum(
            independent_sum(carried, independent_sum(rounded, giants)) / prime,
            noise.part_rounding(2),
        )
    }
}

impl Stage {
    /// Encodes a matrix.
    pub(super) fn new(encoder: &Encoder, source: &Source<'_>) -> Result<Self, CkksError> {
        let params = encoder.params();
        let gap = source.gap(params);
        let (level, scale) = source.at;
        let mut entries: Vec<Vec<Option<Periodic>>> = Vec::new();
        entries.resize_with(source.steps.giants, Vec::new);
        let shape = Shape::of(params, source, |g, entry| {
            let encoded = match entry {
                None => None,
                Some((values, bound)) => {
                    let plain = encoder.encode_complex_raised(values, EncodeAt { level, scale, bound })?;
                    Some(Periodic { words: params.basis().unrepeated(&plain.poly, gap)? })
                }
            };
            entries[g].push(encoded);
            Ok(())
        })?;
        Ok(Self { shape, gap, entries })
    }

    /// Bytes of the encoded entries.
    pub(super) fn bytes(&self) -> usize {
        self.entries.iter().flatten().flatten().map(|p| p.words.len() * 8).sum()
    }

    /// The product with the matrix, turned by what [`Self::new`] said, rescaled. Cost at level l with k special primes and d digits, b baby and g
    /// giant steps: d (l + k) transforms for the digits, (g - 1) (d + 1) (l + k) for giant steps, 2 (l + k) at the end.
    pub(super) fn apply(
        &self,
        evaluator: &Evaluator,
        c: &Ciphertext,
        keys: &GaloisKeys,
        bound: f64,
    ) -> Result<Ciphertext, CkksError> {
        let params = evaluator.params();
        let dropped;
        let c = if c.level == self.shape.level {
            c
        } else {
            dropped = evaluator.drop_to(c, self.shape.level)?;
            &dropped
        };
        let (basis, level) = (params.basis(), self.shape.level);
        let mut sums = self.sums(evaluator, c, keys)?;
        let giant = Galois::Rotate((self.shape.steps.babies * self.shape.steps.stride) as i64);
        let down = &params.0.descend[level.0 - 1];
        let Some([mut low, mut high]) = sums.pop() else {
            return Err(CkksError::Count { what: "giant steps", expected: 1, got: 0 });
        };
        let mut limbs = [vec![0u64; params.ring_degree()], vec![0u64; params.ring_degree()]];
        while let Some([b, a]) = sums.pop() {
            let key = evaluator.key(keys, giant)?;
            let cut = down.divide(basis, &high)?;
            let before = std::mem::replace(&mut low, b);
            high = a;
            // Prime by prime, so that what is switched is turned and added while it is in the cache.
            switch_each(params, &cut, level, &key.key, |i, sum| {
                let [x, y] = &mut limbs;
                sum([x, y], Added { words: [before.limb(i), &[]], factor: 1 });
                key.map.add_words(basis, i, low.limb_mut(i), x)?;
                key.map.add_words(basis, i, high.limb_mut(i), y)
            })?;
        }
        let below = evaluator.below(level)?;
        let down = &params.0.descend_rescale[level.0 - 2];
        let parts = down.divide_each(basis, [&low, &high])?.into();
        let prime = params.data_prime(below.0) as f64;
        Ok(Ciphertext {
            params: params.clone(),
            parts,
            level: below,
            scale: c.scale * self.shape.scale / prime,
            bound,
            sd: self.shape.noise(params, c.sd, c.bound, c.scale),
            seed: None,
        })
    }

    /// `sum_j F_gj x_j` for every g, x_j P times the input turned by baby step j: prime by prime, so that only one limb of every x_j is there at a time.
    fn sums(
        &self,
        evaluator: &Evaluator,
        c: &Ciphertext,
        keys: &GaloisKeys,
    ) -> Result<Vec<[RnsPoly<Eval>; 2]>, CkksError> {
        let params = evaluator.params();
        let (basis, n, range) = (params.basis(), params.ring_degree(), params.extended_range(c.level));
        let [c0, c1] = Evaluator::pair("a transform", c)?;
        let steps = &self.shape.steps;
        let turns = (1..steps.babies)
            .map(|j| {
                let key = evaluator.key(keys, Galois::Rotate((j * steps.stride) as i64))?;
                key.key.serves(c.level)?;
                Ok(key)
            })
            .collect::<Result<Vec<_>, CkksError>>()?;
        let mut out = Vec::new();
        for _ in &self.entries {
            // Every limb is written below.
            let any = || basis.fill_with(range.clone(), |_, _| Ok::<(), RnsError>(()));
            out.push([any()?, any()?]);
        }
        let mut babies = Babies::new(n, steps.babies);
        let mut raw = [vec![0u64; n], vec![0u64; n]];
        with_digits(params, c1, c.level, |digits| {
            let mut raised = vec![0u64; n * GROUP * digits.len()];
            for first in range.clone().step_by(GROUP) {
                let group = first..range.end.min(first + GROUP);
                if !turns.is_empty() {
                    Digit::all_others(digits, basis, group.clone(), n * GROUP, &mut raised)?;
                }
                for i in group {
                    let made = raised.chunks_exact(n * GROUP).map(|limbs| &limbs[n * (i - first)..][..n]);
                    let x: Vec<&[u64]> = digits.iter().zip(made).map(|(d, made)| d.limb(i, made)).collect();
                    // P is 0 modulo the special primes.
                    let factor = params.switching(c.level).product[i];
                    for (half, part) in [c0, c1].into_iter().enumerate() {
                        let own = babies.limb_mut(0, half);
                        if part.range().contains(&i) {
                            basis.combine_words(i, own, &[part.limb(i)], &[factor], 0)?;
                        } else {
                            own.fill(0);
                        }
                    }
                    let low = if c0.range().contains(&i) { c0.limb(i) } else { &[] };
                    for (j, key) in turns.iter().enumerate() {
                        let added = Added { words: [low, &[]], factor };
                        apply_limb(params, i, &x, &key.key, added, &mut raw)?;
                        for (half, raw) in raw.iter().enumerate() {
                            key.map.apply_words(raw, babies.limb_mut(j + 1, half))?;
                        }
                    }
                    self.sums_of(params, i, &babies, &mut out)?;
                }
            }
            Ok(())
        })?;
        #[cfg(test)]
        counted::HOISTED.set(counted::HOISTED.get() + turns.len());
        Ok(out)
    }

    /// Limb i of every sum, tile by tile.
    fn sums_of(
        &self,
        params: &CkksParams,
        i: usize,
        babies: &Babies,
        out: &mut [[RnsPoly<Eval>; 2]],
    ) -> Result<(), CkksError> {
        let (basis, n) = (params.basis(), params.ring_degree());
        let stored = i - params.extended_range(self.shape.level).start;
        let terms = self.entries.iter().map(|row| {
            let there = || row.iter().enumerate().filter_map(|(j, entry)| Some((j, entry.as_ref()?)));
            let x: Vec<&[u64]> = there().map(|(_, entry)| entry.limb(stored, n / self.gap)).collect();
            (x, [0, 1].map(|half| there().map(|(j, _)| babies.limb(j, half)).collect::<Vec<&[u64]>>()))
        });
        let rows: Vec<_> = terms.collect();
        let tile = TILE.min(n);
        for start in (0..n).step_by(tile) {
            for ((x, y), [low, high]) in rows.iter().zip(&mut *out) {
                let sums =
                    [&mut low.limb_mut(i)[start..start + tile], &mut high.limb_mut(i)[start..start + tile]];
                if n < 64 {
                    let y =
                        y.each_ref().map(|y| y.iter().map(|y| &y[start..start + tile]).collect::<Vec<_>>());
                    basis.inner_words(i, sums, Added::NOTHING, x, [&y[0], &y[1]])?;
                } else {
                    basis.inner_repeated(i, sums, (self.gap, start), x, [&y[0], &y[1]])?;
                }
            }
        }
        Ok(())
    }
}

/// One limb of the input turned by every baby step, both parts.
struct Babies {
    n: usize,
    words: Vec<u64>,
}

impl Babies {
    fn new(n: usize, count: usize) -> Self {
        Self { n, words: vec![0; 2 * n * count] }
    }

    fn limb(&self, j: usize, half: usize) -> &[u64] {
        &self.words[(2 * j + half) * self.n..][..self.n]
    }

    fn limb_mut(&mut self, j: usize, half: usize) -> &mut [u64] {
        &mut self.words[(2 * j + half) * self.n..][..self.n]
    }
}

/// Keys that matrices need: rotations, each with the highest level.
pub(super) fn rotations(stages: &[(Steps, Level)]) -> BTreeMap<i64, Level> {
    let mut out = BTreeMap::new();
    for (steps, level) in stages {
        for r in steps.rotations() {
            let known = out.entry(r).or_insert(*level);
            *known = (*known).max(*level);
        }
    }
    out
}
