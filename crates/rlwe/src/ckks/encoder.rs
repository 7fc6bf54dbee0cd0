//! Values to plaintext polynomials and back.

use super::fft::{ComplexBuffer, SpecialFft};
use super::{CkksError, CkksParams, Level};
use hushnet_ring::rns::{Coef, Eval, RnsPoly};
use hushnet_ring::secret::declassify;
use hushnet_ring::Ring;
use std::ops::Range;
use std::sync::OnceLock;
use zeroize::Zeroize;

/// A complex number of two doubles.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Complex {
    /// Real part.
    pub re: f64,
    /// Imaginary part.
    pub im: f64,
}

/// Where and how precisely values are encoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EncodeAt {
    /// Level of the plaintext.
    pub level: Level,
    /// Values are multiplied by this and rounded.
    pub scale: f64,
    /// Declared bound of |value|. Public: it travels with ciphertexts and bounds their errors, so state
    /// what is known beforehand, not the largest of the data.
    pub bound: f64,
}

/// An encoded vector: polynomial in evaluation form, with its public bookkeeping. No `Debug`.
#[derive(Clone)]
pub struct Plaintext {
    pub(super) params: CkksParams,
    pub(super) poly: RnsPoly<Eval>,
    pub(super) level: Level,
    pub(super) scale: f64,
    pub(super) bound: f64,
    pub(super) sd: f64,
}

impl Drop for Plaintext {
    fn drop(&mut self) {
        self.poly.zeroize();
    }
}

impl Plaintext {
    /// The level: how many data primes the value still has.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }
    /// The scale: encoded values are multiples of its inverse.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }
    /// The declared bound of the absolute value of any slot.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.bound
    }
    /// Bound of the error of each real or imaginary part of a slot, in units of the values, that holds
    /// but with probability 2^-40.
    #[must_use]
    pub fn error_bound(&self) -> f64 {
        crate::batch::TAIL * self.sd / self.scale
    }
    /// The polynomial, in evaluation form.
    #[must_use]
    pub fn poly(&self) -> &RnsPoly<Eval> {
        &self.poly
    }
}

/// An encoded vector as N integers below 2^51 in magnitude, not yet residues. No `Debug`; wiped on drop.
pub struct SmallPlaintext {
    pub(super) params: CkksParams,
    /// Two's complement.
    pub(super) words: Vec<u64>,
    pub(super) level: Level,
    pub(super) scale: f64,
    pub(super) bound: f64,
    pub(super) sd: f64,
}

impl Drop for SmallPlaintext {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

/// The coefficients of the two polynomials of real slots whose combination `m1 + X^n m2` has coefficients `re`, `im` (lower and upper
/// half): with `p(X) -> p(1/X)`, which is `m1 - X^n m2`, `m1 = (p + p')/2` and `X^n m2 = (p - p')/2`. Either has coefficient 0 at n, and at
/// 2n - k minus that at k; in the conjugate-invariant ring those below n are all there are.
fn split_pair(re: &[f64], im: &[f64], factor: f64, out: &mut [Vec<u64>; 2]) {
    let n = re.len();
    let half = 0.5 * factor;
    let [first, second] = &mut *out;
    first[0] = rounded_word(re[0] * factor);
    second[0] = rounded_word(im[0] * factor);
    for k in 1..n {
        // p_k = re[k], p_(N-k) = im[n-k], p'_k = -p_(N-k).
        let (low, high) = (re[k], im[n - k]);
        first[k] = rounded_word((low - high) * half);
        // X^n m2 has coefficient (p_k + p_(N-k))/2 at k and at N-k; its coefficient k is minus m2's n + k.
        second[n - k] = rounded_word((low + high) * half);
    }
    for words in out.iter_mut().filter(|w| w.len() > n) {
        let (low, high) = words.split_at_mut(n);
        for (mirror, w) in high[1..].iter_mut().rev().zip(&low[1..]) {
            *mirror = w.wrapping_neg();
        }
    }
}

/// One real number for all slots: a word a prime instead of N.
#[derive(Clone)]
pub struct ScalarPlaintext {
    pub(super) params: CkksParams,
    /// By position in the basis up to the level; zero at special primes.
    pub(super) words: Vec<u64>,
    pub(super) level: Level,
    pub(super) scale: f64,
    pub(super) magnitude: f64,
    /// Bound of the rounding error, in ring units: 1/2, or 0 for integers.
    pub(super) rounding: f64,
}

impl Drop for ScalarPlaintext {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

impl ScalarPlaintext {
    /// The level: how many data primes the value still has.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }
    /// The scale: encoded values are multiples of its inverse.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
    }
    /// Words, one for each data prime of its level.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words[self.params.data_range(self.level)]
    }
}

/// Encodes and decodes under fixed parameters.
pub struct Encoder {
    params: CkksParams,
    fft: SpecialFft,
    /// Transforms of an half, a quarter, an eighth of the slots, made when vectors that repeat need them.
    shorter: [OnceLock<SpecialFft>; 3],
}

/// Integers up to this magnitude take the vector path.
const FAST_LIMIT: f64 = (1u64 << 51) as f64;
/// 3 * 2^51: adding it to a number below 2^51 rounds it to an integer (ties to even) in the mantissa.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Round to nearest, ties to even, of |x| < 2^51, as two's complement.
#[inline(always)]
fn rounded_word(x: f64) -> u64 {
    (x + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits())
}

impl Encoder {
    /// Makes the tables that these parameters need.
    #[must_use]
    pub fn new(params: &CkksParams) -> Self {
        let fft = SpecialFft::new(params.embedding(), params.basis().isa());
        Self { params: params.clone(), fft, shorter: [const { OnceLock::new() }; 3] }
    }

    /// The checked parameters that this encodes for.
    #[must_use]
    pub fn params(&self) -> &CkksParams {
        &self.params
    }

    /// Real values into slots 0, 1, ...; missing slots are zero. At most [`CkksParams::slots`] values.
    ///
    /// # Errors
    /// [`CkksError::TooManyValues`], [`CkksError::ValueOutOfRange`], [`CkksError::Capacity`], [`CkksError::BadScale`].
    pub fn encode(&self, values: &[f64], at: EncodeAt) -> Result<Plaintext, CkksError> {
        self.check(values.len(), self.params.slots(), at)?;
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        for (j, &v) in values.iter().enumerate() {
            check_value(j, v.abs(), at.bound)?;
            buffer.re[self.fft.position(j)] = v;
        }
        self.finish(buffer, at, self.params.data_range(at.level))
    }

    /// [`Self::encode`] of values that repeat after `period` slots, a power of two; missing ones of a period are zero. The polynomial is one in X^g
    /// with g = slots / period, so a transform of a period is enough (of an eighth of the slots, where that is more).
    ///
    /// # Errors
    /// As [`Self::encode`]; at most `period` values.
    pub fn encode_repeated(
        &self,
        values: &[f64],
        period: usize,
        at: EncodeAt,
    ) -> Result<Plaintext, CkksError> {
        let slots = self.params.slots();
        if !period.is_power_of_two() || period > slots {
            return Err(CkksError::TooManyValues { got: period, slots });
        }
        self.check(values.len(), period, at)?;
        let value = |j: usize| values.get(j % period).copied().unwrap_or(0.0);
        let gap = (slots / period).min(1 << self.shorter.len());
        let narrow = at.bound * at.scale < FAST_LIMIT / 2.0;
        if gap == 1 || self.params.ring() != Ring::Cyclotomic || slots < 8 * gap || !narrow {
            let all: Vec<f64> = (0..slots).map(value).collect();
            return self.encode(&all, at);
        }
        let fft = self.shorter[gap.ilog2() as usize - 1]
            .get_or_init(|| SpecialFft::new(self.params.ring_degree() / gap, self.params.basis().isa()));
        let mut buffer = ComplexBuffer::zero(fft.slots());
        for j in 0..fft.slots() {
            check_value(j, value(j).abs(), at.bound)?;
            buffer.re[fft.position(j)] = value(j);
        }
        fft.inverse(&mut buffer);
        let factor = at.scale / fft.slots() as f64;
        let mut words = vec![0u64; self.params.ring_degree()];
        let coefficients = buffer.re.iter().chain(&buffer.im);
        for (word, x) in words.iter_mut().step_by(gap).zip(coefficients) {
            *word = rounded_word(x * factor);
        }
        let poly = self.params.basis().from_signed(&words, self.params.data_range(at.level));
        words.zeroize();
        self.encoded(poly?, at)
    }

    /// [`Self::encode`], over the special primes too: the only plaintexts that [`super::Evaluator::hoisted_sum`] takes,
    /// and usable everywhere else.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_raised(&self, values: &[f64], at: EncodeAt) -> Result<Plaintext, CkksError> {
        self.check(values.len(), self.params.slots(), at)?;
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        for (j, &v) in values.iter().enumerate() {
            check_value(j, v.abs(), at.bound)?;
            buffer.re[self.fft.position(j)] = v;
        }
        self.finish(buffer, at, self.params.extended_range(at.level))
    }

    /// Complex values into slots. At most N/2 values; the bound is on the modulus.
    ///
    /// # Errors
    /// As [`Self::encode`]; [`CkksError::RealSlots`].
    pub fn encode_complex(&self, values: &[Complex], at: EncodeAt) -> Result<Plaintext, CkksError> {
        self.check_complex()?;
        self.check(values.len(), self.params.slots(), at)?;
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        for (j, v) in values.iter().enumerate() {
            check_value(j, v.re.hypot(v.im), at.bound)?;
            let p = self.fft.position(j);
            (buffer.re[p], buffer.im[p]) = (v.re, v.im);
        }
        self.finish(buffer, at, self.params.data_range(at.level))
    }

    /// [`Self::encode_complex`], over the special primes too.
    ///
    /// # Errors
    /// As [`Self::encode_complex`].
    pub(super) fn encode_complex_raised(
        &self,
        values: &[Complex],
        at: EncodeAt,
    ) -> Result<Plaintext, CkksError> {
        self.check_complex()?;
        self.check(values.len(), self.params.slots(), at)?;
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        for (j, v) in values.iter().enumerate() {
            check_value(j, v.re.hypot(v.im), at.bound)?;
            let p = self.fft.position(j);
            (buffer.re[p], buffer.im[p]) = (v.re, v.im);
        }
        self.finish(buffer, at, self.params.extended_range(at.level))
    }

    /// Complex packing: value 2j in the real, 2j+1 in the imaginary part of slot j; at most N values. For
    /// circuits without products of ciphertexts. The bound is on every value; the plaintext's is sqrt(2) larger.
    ///
    /// # Errors
    /// As [`Self::encode_complex`].
    pub fn encode_packed(&self, values: &[f64], at: EncodeAt) -> Result<Plaintext, CkksError> {
        self.check_complex()?;
        let wide = EncodeAt { bound: at.bound * std::f64::consts::SQRT_2, ..at };
        self.check(values.len(), 2 * self.params.slots(), wide)?;
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        for (j, pair) in values.chunks(2).enumerate() {
            let p = self.fft.position(j);
            for (k, (&v, part)) in pair.iter().zip([&mut buffer.re, &mut buffer.im]).enumerate() {
                check_value(2 * j + k, v.abs(), at.bound)?;
                part[p] = v;
            }
        }
        self.finish(buffer, wide, self.params.data_range(at.level))
    }

    /// Two vectors of reals into two plaintexts with one transform: the coefficients of `first + X^(N/2) second`, which has the slots
    /// `first + i second`, are taken apart by the symmetry `m(1/X) = m(X)` of polynomials with real slots. The integers are not
    /// yet residues: [`super::client::SecretKey::encrypt_small`] adds the error to them and transforms both at once.
    ///
    /// # Errors
    /// As [`Self::encode`]; [`CkksError::BadScale`] when scale times bound reaches 2^50.
    pub fn encode_pair(
        &self,
        first: &[f64],
        second: &[f64],
        at: EncodeAt,
    ) -> Result<[SmallPlaintext; 2], CkksError> {
        self.check(first.len().max(second.len()), self.params.slots(), at)?;
        if at.bound * at.scale >= FAST_LIMIT / 2.0 {
            return Err(CkksError::BadScale);
        }
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        for (values, part) in [(first, &mut buffer.re), (second, &mut buffer.im)] {
            for (j, &v) in values.iter().enumerate() {
                check_value(j, v.abs(), at.bound)?;
                part[self.fft.position(j)] = v;
            }
        }
        self.fft.inverse(&mut buffer);
        let factor = at.scale / self.fft.slots() as f64;
        let mut out = [vec![0; self.params.ring_degree()], vec![0; self.params.ring_degree()]];
        split_pair(&buffer.re, &buffer.im, factor, &mut out);
        let noise = self.params.noise();
        let sd = noise.rounding() + noise.transform(2.0 * at.bound * at.scale);
        Ok(out.map(|words| SmallPlaintext {
            params: self.params.clone(),
            words,
            level: at.level,
            scale: at.scale,
            bound: at.bound,
            sd,
        }))
    }

    /// [`Self::encode_packed`] as integers, for [`super::client::SecretKey::encrypt_small`].
    ///
    /// # Errors
    /// As [`Self::encode_packed`]; [`CkksError::BadScale`] when scale times bound reaches 2^50.
    pub fn encode_packed_small(&self, values: &[f64], at: EncodeAt) -> Result<SmallPlaintext, CkksError> {
        self.check_complex()?;
        let wide = EncodeAt { bound: at.bound * std::f64::consts::SQRT_2, ..at };
        self.check(values.len(), 2 * self.params.slots(), wide)?;
        if wide.bound * at.scale >= FAST_LIMIT / 2.0 {
            return Err(CkksError::BadScale);
        }
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        for (j, pair) in values.chunks(2).enumerate() {
            let p = self.fft.position(j);
            for (k, (&v, part)) in pair.iter().zip([&mut buffer.re, &mut buffer.im]).enumerate() {
                check_value(2 * j + k, v.abs(), at.bound)?;
                part[p] = v;
            }
        }
        self.fft.inverse(&mut buffer);
        let factor = at.scale / self.fft.slots() as f64;
        let words = self.coefficients(&buffer).map(|&x| rounded_word(x * factor)).collect();
        let noise = self.params.noise();
        Ok(SmallPlaintext {
            params: self.params.clone(),
            words,
            level: at.level,
            scale: at.scale,
            bound: wide.bound,
            sd: noise.rounding() + noise.transform(wide.bound * at.scale),
        })
    }

    /// One real number for all slots, one word a prime: `round(scale v) mod q_i`. Exact for |scale v| < 2^126.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn encode_scalar(&self, value: f64, level: Level, scale: f64) -> Result<ScalarPlaintext, CkksError> {
        if !value.is_finite() {
            return Err(CkksError::ValueOutOfRange { index: 0, bound: f64::MAX });
        }
        self.params.check_capacity(value.abs(), scale, self.params.level(level.0)?)?;
        let scaled = value * scale;
        if scaled.abs() >= 126f64.exp2() {
            return Err(CkksError::BadScale);
        }
        let rounded = scaled.round_ties_even();
        let mut scalar = self.integer_scalar(rounded as i128, level, scale);
        // The message is the value itself; what rounding did to it is error.
        scalar.magnitude = value.abs();
        scalar.rounding = if rounded == scaled { 0.0 } else { 0.5 };
        Ok(scalar)
    }

    /// The integer `w` as a scalar of scale 1.
    ///
    /// # Errors
    /// [`CkksError::Level`] or [`CkksError::Capacity`].
    pub fn encode_integer(&self, w: i64, level: Level) -> Result<ScalarPlaintext, CkksError> {
        self.params.check_capacity(w.unsigned_abs() as f64, 1.0, self.params.level(level.0)?)?;
        Ok(self.integer_scalar(i128::from(w), level, 1.0))
    }

    fn integer_scalar(&self, w: i128, level: Level, scale: f64) -> ScalarPlaintext {
        let range = self.params.data_range(level);
        let moduli = self.params.basis().moduli();
        let words = (0..range.end).map(|i| if i < range.start { 0 } else { moduli[i].residue(w) }).collect();
        let magnitude = w.unsigned_abs() as f64 / scale;
        ScalarPlaintext { params: self.params.clone(), words, level, scale, magnitude, rounding: 0.0 }
    }

    /// Slot values of a plaintext's real parts.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn decode(&self, p: &Plaintext) -> Result<Vec<f64>, CkksError> {
        let buffer = self.slots_of(p)?;
        Ok((0..self.fft.slots()).map(|j| buffer.re[self.fft.position(j)]).collect())
    }

    /// Slot values of a plaintext.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn decode_complex(&self, p: &Plaintext) -> Result<Vec<Complex>, CkksError> {
        let buffer = self.slots_of(p)?;
        Ok((0..self.fft.slots())
            .map(|j| self.fft.position(j))
            .map(|i| Complex { re: buffer.re[i], im: buffer.im[i] })
            .collect())
    }

    /// Undoes [`Self::encode_packed`]: N values.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`].
    pub fn decode_packed(&self, p: &Plaintext) -> Result<Vec<f64>, CkksError> {
        let buffer = self.slots_of(p)?;
        let position = (0..self.fft.slots()).map(|j| self.fft.position(j));
        Ok(position.flat_map(|i| [buffer.re[i], buffer.im[i]]).collect())
    }

    /// Whether `slots`, decoded from `p` by any of the above, can be a message. Decrypted under another secret than the ciphertext's, or with a
    /// key switched by one, coefficients are uniform modulo Q: their root mean square is Q / sqrt(12). A message's is scale / sqrt(N) times that
    /// of its slots (Parseval), which lie below Q / (2 scale): at most Q / (2 sqrt(N)). Q / 8 stands between the two from N = 64 on, also where
    /// half of the variance lies in imaginary parts that were left out.
    #[must_use]
    pub fn is_message(&self, p: &Plaintext, slots: &[f64]) -> bool {
        let squares: f64 = slots.iter().map(|v| v * v).sum();
        let mean = squares / (self.fft.slots() * self.params.ring_degree()) as f64;
        0.5 * mean.log2() + p.scale.log2() < self.params.modulus_bits(p.level) - 3.0
    }

    fn check_complex(&self) -> Result<(), CkksError> {
        match self.params.ring() {
            Ring::Cyclotomic => Ok(()),
            Ring::ConjugateInvariant => Err(CkksError::RealSlots),
        }
    }

    /// The coefficients of what is in a buffer after the inverse transform. Those of the conjugate-invariant ring are the real parts: the imaginary
    /// ones are `-re[n - k]`.
    fn coefficients<'a>(&self, buffer: &'a ComplexBuffer) -> impl Iterator<Item = &'a f64> + Clone {
        let upper = match self.params.ring() {
            Ring::Cyclotomic => &buffer.im[..],
            Ring::ConjugateInvariant => &[],
        };
        buffer.re.iter().chain(upper)
    }

    fn check(&self, got: usize, slots: usize, at: EncodeAt) -> Result<(), CkksError> {
        if got > slots {
            return Err(CkksError::TooManyValues { got, slots });
        }
        if !at.bound.is_finite() || at.bound < 0.0 {
            return Err(CkksError::ValueOutOfRange { index: 0, bound: at.bound });
        }
        self.params.level(at.level.0)?;
        self.params.check_capacity(at.bound, at.scale, at.level)
    }

    fn finish(
        &self,
        mut buffer: ComplexBuffer,
        at: EncodeAt,
        range: Range<usize>,
    ) -> Result<Plaintext, CkksError> {
        self.fft.inverse(&mut buffer);
        let factor = at.scale / self.fft.slots() as f64;
        let poly = if at.bound * at.scale < FAST_LIMIT / 2.0 {
            self.round_fast(&buffer, factor, range)?
        } else {
            self.round_wide(&buffer, factor, range)?
        };
        self.encoded(poly, at)
    }

    fn encoded(&self, poly: RnsPoly<Coef>, at: EncodeAt) -> Result<Plaintext, CkksError> {
        let noise = self.params.noise();
        Ok(Plaintext {
            params: self.params.clone(),
            poly: self.params.basis().forward(poly)?,
            level: at.level,
            scale: at.scale,
            bound: at.bound,
            sd: noise.rounding() + noise.transform(at.bound * at.scale),
        })
    }

    fn round_fast(
        &self,
        buffer: &ComplexBuffer,
        factor: f64,
        range: Range<usize>,
    ) -> Result<RnsPoly<Coef>, CkksError> {
        let mut words: Vec<u64> = self.coefficients(buffer).map(|&x| rounded_word(x * factor)).collect();
        let poly = self.params.basis().from_signed(&words, range);
        words.zeroize();
        Ok(poly?)
    }

    /// Magnitudes from 2^51 up: rounded in binary64 and reduced as the integers they are.
    fn round_wide(
        &self,
        buffer: &ComplexBuffer,
        factor: f64,
        range: Range<usize>,
    ) -> Result<RnsPoly<Coef>, CkksError> {
        let moduli = self.params.basis().moduli();
        let mut poly = self.params.basis().zero::<Coef>(range.clone())?;
        for (c, &x) in self.coefficients(buffer).enumerate() {
            let v = (x * factor).round_ties_even();
            if v.abs() >= 126f64.exp2() {
                poly.zeroize();
                return Err(CkksError::BadScale);
            }
            for i in range.clone() {
                poly.limb_mut(i)[c] = moduli[i].residue(v as i128);
            }
        }
        Ok(poly)
    }

    fn slots_of(&self, p: &Plaintext) -> Result<ComplexBuffer, CkksError> {
        if p.params != self.params {
            return Err(CkksError::ForeignParams("the plaintext"));
        }
        let basis = self.params.basis();
        let mut coefficients = basis.inverse(p.poly.clone())?;
        let reals = basis.to_reals(&coefficients);
        coefficients.zeroize();
        let mut reals = reals?;
        let mut buffer = ComplexBuffer::zero(self.fft.slots());
        embed(&reals, |v| v / p.scale, &mut buffer);
        reals.zeroize();
        self.fft.forward(&mut buffer);
        Ok(buffer)
    }
}

/// Coefficients as what the transform of the ring around them takes: the conjugate-invariant one has `-a_(N-k)` at N + k.
pub(super) fn embed<T: Copy>(coefficients: &[T], value: impl Fn(T) -> f64, buffer: &mut ComplexBuffer) {
    let n = buffer.re.len();
    let (low, high) = coefficients.split_at(n);
    buffer.re.iter_mut().zip(low).for_each(|(out, v)| *out = value(*v));
    buffer.im.iter_mut().zip(high).for_each(|(out, v)| *out = value(*v));
    if high.is_empty() {
        buffer.im[1..].iter_mut().rev().zip(&low[1..]).for_each(|(out, v)| *out = -value(*v));
    }
}

fn check_value(index: usize, magnitude: f64, bound: f64) -> Result<(), CkksError> {
    // Not-a-number compares false. That a value leaves its declared range is an error, which everybody sees.
    if declassify(magnitude <= bound) {
        Ok(())
    } else {
        Err(CkksError::ValueOutOfRange { index, bound })
    }
}
