//! Linear maps by diagonals: many plaintext products with few ciphertexts, and sums of rotations with one division.

use super::noise::independent_sum;
use super::switching::{digit_ratio2, switch};
use super::{Ciphertext, CkksError, CkksParams, Encoder, Evaluator, Galois, GaloisKeys, Level, Plaintext};
use hushnet_ring::rns::{PlainTerms, MOST_GAP};
use hushnet_ring::Ring;

/// How many equal words are stored once where plaintexts repeat after so many slots: they are polynomials in X^(N/2 over period).
fn stored_once(params: &CkksParams, period: usize) -> usize {
    if params.ring() == Ring::Cyclotomic && params.ring_degree() >= 64 {
        (params.slots() / period).min(MOST_GAP)
    } else {
        1
    }
}

impl CkksParams {
    /// Words of a prime that [`PlainRows`] store for a plaintext that repeats after so many slots.
    #[must_use]
    pub fn repeated_words(&self, period: usize) -> usize {
        self.ring_degree() / stored_once(self, period)
    }
}

/// Encoded plaintexts of sums `sum_t p_t x_t`, stored for one pass (`hushnet_ring::rns::PlainTerms`).
pub struct PlainRows {
    params: CkksParams,
    level: Level,
    scale: f64,
    /// Slots after which all plaintexts repeat.
    period: usize,
    /// Largest `sum_t |p_t|` over the slots of each sum.
    magnitudes: Vec<f64>,
    /// Encoding error of one plaintext, ring units.
    rounding: f64,
    terms: PlainTerms,
}

impl PlainRows {
    /// Room for the terms of `sums` (numbers of ciphertexts) at one level and scale; all plaintexts repeat after `period` slots, a power of two.
    ///
    /// # Errors
    /// [`CkksError::Level`], [`CkksError::BadScale`], [`CkksError::TooManyValues`] for no such period, [`CkksError::Rns`] for rings below 32
    /// coefficients.
    pub fn new(
        params: &CkksParams,
        level: Level,
        scale: f64,
        period: usize,
        sums: Vec<Vec<u32>>,
    ) -> Result<Self, CkksError> {
        params.level(level.0)?;
        if !scale.is_finite() || scale < 1.0 {
            return Err(CkksError::BadScale);
        }
        if !period.is_power_of_two() || period > params.slots() {
            return Err(CkksError::TooManyValues { got: period, slots: params.slots() });
        }
        let magnitudes = vec![0.0; sums.len()];
        let gap = stored_once(params, period);
        let terms = PlainTerms::new(params.basis(), params.data_range(level), gap, sums)?;
        Ok(Self { params: params.clone(), level, scale, period, magnitudes, rounding: 0.0, terms })
    }

    /// Encodes and stores the diagonals of one sum, in the order of its terms: one vector of a period each.
    ///
    /// # Errors
    /// As [`Encoder::encode`]; [`CkksError::Count`] for a wrong number of diagonals.
    pub fn set(&mut self, encoder: &Encoder, sum: usize, diagonals: &[Vec<f64>]) -> Result<(), CkksError> {
        let expected = self.terms.sums().get(sum).map_or(0, Vec::len);
        if diagonals.len() != expected {
            return Err(CkksError::Count { what: "diagonals", expected, got: diagonals.len() });
        }
        let mut absolute = vec![0.0f64; self.period];
        for (t, values) in diagonals.iter().enumerate() {
            let p = self.encode(encoder, values)?;
            self.rounding = self.rounding.max(p.sd);
            self.terms.set(sum, t, &p.poly)?;
            absolute.iter_mut().zip(values).for_each(|(a, v)| *a += v.abs());
        }
        self.magnitudes[sum] = absolute.iter().copied().fold(0.0, f64::max);
        Ok(())
    }

    fn encode(&self, encoder: &Encoder, values: &[f64]) -> Result<Plaintext, CkksError> {
        let bound = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        encoder.encode_repeated(
            values,
            self.period,
            super::EncodeAt { level: self.level, scale: self.scale, bound },
        )
    }

    /// The level that plaintexts are encoded at.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Number of plaintexts that the sum has.
    #[must_use]
    pub fn terms(&self) -> usize {
        self.terms.terms()
    }

    /// Bytes of the stored plaintexts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.terms.bytes()
    }
}

impl Evaluator {
    /// `sum_t p_t x_t` for every sum of `rows`, with lazy reduction: one pass over the stored plaintexts. The
    /// ciphertexts have two parts, one scale and at least the level of the rows; the results have its level. Their
    /// bound is `max sum |p|` times the largest bound of x. A partial sum may exceed Q/2 (it wraps, and sums of wrapped
    /// values are right as long as the total fits): [`Self::rotate_sum_rescale`] checks the total.
    ///
    /// # Errors
    /// [`CkksError::Parts`], [`CkksError::ScaleMismatch`], [`CkksError::LevelTooLow`], [`CkksError::ForeignParams`],
    /// [`CkksError::Rns`] when ciphertexts are missing.
    pub fn plain_sums(&self, x: &[&Ciphertext], rows: &PlainRows) -> Result<Vec<Ciphertext>, CkksError> {
        let Some(first) = x.first() else {
            return Err(CkksError::Count { what: "plain_sums", expected: 1, got: 0 });
        };
        if rows.params != self.params {
            return Err(CkksError::ForeignParams("the plaintexts"));
        }
        let (mut bound, mut sd, mut off) = (0.0f64, 0.0f64, 0.0f64);
        let mut pairs = Vec::with_capacity(x.len());
        for c in x {
            self.own(c)?;
            off = off.max(Self::same_scale(c.scale, first.scale)?);
            if c.level < rows.level {
                return Err(super::evaluator::missing("a ciphertext", c.level, rows.level));
            }
            bound = bound.max(c.bound);
            sd = sd.max(c.sd);
            pairs.push(Self::pair("plain_sums", c)?);
        }
        let parts = self.params.basis().plain_sums(&rows.terms, &pairs)?;
        let scale = first.scale * rows.scale;
        let ring = bound * first.scale;
        let result = |(parts, (magnitude, sum)): ([_; 2], (&f64, &Vec<u32>))| {
            // Errors of x add up in any way, roundings of different plaintexts are independent.
            let carried = magnitude * rows.scale * (sd + off * ring);
            let rounded = (sum.len() as f64).sqrt() * (ring + sd * crate::batch::TAIL) * rows.rounding;
            Ciphertext {
                params: self.params.clone(),
                parts: parts.into(),
                level: rows.level,
                scale,
                bound: magnitude * bound,
                sd: independent_sum(carried, rounded),
                seed: None,
            }
        };
        Ok(parts.into_iter().zip(rows.magnitudes.iter().zip(rows.terms.sums())).map(result).collect())
    }

    /// `(sum_k rot(c_k, steps_k)) / q`: rotated, summed and rescaled with one division by P q for all. `bound` is the
    /// declared bound of the result's slots. Cost with r rotations other than by 0, at level l with k special primes
    /// and d digits: d (l + k) transforms each, and 2 (l + k) for the division (2 l without a rotation).
    ///
    /// # Errors
    /// [`CkksError::Count`] for no term, [`CkksError::ScaleMismatch`], [`CkksError::LevelTooLow`], [`CkksError::NoLevelLeft`],
    /// [`CkksError::Capacity`], and as [`Self::rotate`].
    pub fn rotate_sum_rescale(
        &self,
        terms: &[(i64, Ciphertext)],
        bound: f64,
        keys: &GaloisKeys,
    ) -> Result<Ciphertext, CkksError> {
        let Some((_, first)) = terms.first() else {
            return Err(CkksError::Count { what: "rotate_sum_rescale", expected: 1, got: 0 });
        };
        let (level, basis) = (first.level, self.params.basis());
        let below = self.below(level)?;
        self.params.check_capacity(bound, first.scale, level)?;
        let (range, extended) = (self.params.data_range(level), self.params.extended_range(level));
        let noise = self.params.noise();
        let added = noise.switching(digit_ratio2(&self.params, level));
        let mut low = [basis.zero(range.clone())?, basis.zero(range)?];
        let mut high: Option<[_; 2]> = None;
        let (mut sd, mut switched) = (0.0f64, 0.0f64);
        for (steps, c) in terms {
            self.own(c)?;
            let off = Self::same_scale(c.scale, first.scale)?;
            if c.level != level {
                return Err(super::evaluator::missing("a term", c.level, level));
            }
            let [c0, c1] = Self::pair("rotate_sum_rescale", c)?;
            // Each slot gets an error of every term: any dependence.
            sd += c.sd + off * c.bound * c.scale;
            let element = Galois::Rotate(*steps);
            if element.exponent(&self.params) == 1 {
                basis.add_assign(&mut low[0], c0)?;
                basis.add_assign(&mut low[1], c1)?;
                continue;
            }
            let key = self.key(keys, element)?;
            basis.add_assign(&mut low[0], &key.map.apply_eval(basis, c0)?)?;
            let sums = match high.as_mut() {
                Some(sums) => sums,
                None => high.insert([basis.zero(extended.clone())?, basis.zero(extended.clone())?]),
            };
            for (sum, part) in sums.iter_mut().zip(&switch(&self.params, c1, level, &key.key)?) {
                basis.add_assign(sum, &key.map.apply_eval(basis, part)?)?;
            }
            switched = independent_sum(switched, added);
        }
        let parts = match high {
            None => {
                let divider = &self.params.0.rescale[level.0 - 2];
                low.iter().map(|p| divider.divide(basis, p)).collect::<Result<Vec<_>, _>>()?
            }
            Some(mut high) => {
                let divider = &self.params.0.descend_rescale[level.0 - 2];
                let mut parts = Vec::with_capacity(2);
                for (raised, own) in high.iter_mut().zip(&low) {
                    basis.scale_add_part(raised, own, &self.params.switching(level).product)?;
                    parts.push(divider.divide(basis, raised)?);
                }
                parts
            }
        };
        let prime = self.params.data_prime(below.0) as f64;
        Ok(Ciphertext {
            params: self.params.clone(),
            parts,
            level: below,
            scale: first.scale / prime,
            bound,
            sd: independent_sum(independent_sum(sd, switched) / prime, noise.part_rounding(2)),
            seed: None,
        })
    }

    /// States that the message is `factor` times what it was, by scale alone: free and exact for a positive factor.
    ///
    /// # Errors
    /// [`CkksError::BadScale`] unless the factor is positive and the scale stays a finite number of at least 1.
    pub fn relabel(&self, c: Ciphertext, factor: f64) -> Result<Ciphertext, CkksError> {
        let scale = c.scale / factor;
        if factor <= 0.0 || !scale.is_finite() || scale < 1.0 {
            return Err(CkksError::BadScale);
        }
        Ok(Ciphertext { scale, bound: c.bound * factor, ..c })
    }
}
