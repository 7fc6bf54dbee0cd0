//! Key switching (hybrid: digits and special primes) and the keys it needs.

use super::ciphertext::Seed;
use super::{CkksError, CkksParams, Level};
use hushnet_ring::rns::{switch_limbs, Added, Automorphism, Coef, Digit, Eval, RnsError, RnsPoly};
use std::collections::BTreeMap;

/// An automorphism of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Galois {
    /// Slot j receives slot j + steps (modulo N/2); negative steps go right.
    Rotate(i64),
    /// Slots are conjugated.
    Conjugate,
}

impl Galois {
    /// g of `X -> X^g`: `5^steps` or -1, modulo 2N.
    #[must_use]
    pub fn exponent(self, params: &CkksParams) -> usize {
        let turn = 2 * params.ring_degree();
        match self {
            Galois::Conjugate => turn - 1,
            Galois::Rotate(steps) => {
                let steps = steps.rem_euclid(params.slots() as i64);
                (0..steps).fold(1, |g, _| g * 5 % turn)
            }
        }
    }
}

/// The exponent of the inverse automorphism: the group of odd numbers modulo 2N has exponent N/2 (or less).
pub(super) fn inverse_exponent(g: usize, params: &CkksParams) -> usize {
    let turn = 2 * params.ring_degree();
    (1..params.slots()).fold(1, |p, _| p * g % turn)
}

/// One switching key: a pair a digit, over the special primes and those of its level.
#[derive(Clone)]
pub(super) struct SwitchingKey {
    pub(super) seed: Seed,
    /// Highest level that it serves: it has the digits and primes of that level.
    pub(super) level: Level,
    pub(super) b: Vec<RnsPoly<Eval>>,
    pub(super) a: Vec<RnsPoly<Eval>>,
}

impl SwitchingKey {
    pub(super) fn serves(&self, level: Level) -> Result<(), CkksError> {
        if level > self.level {
            return Err(CkksError::LevelTooLow {
                what: "the switching key",
                got: self.level.0,
                needed: level.0,
            });
        }
        Ok(())
    }
}

/// Names the secret that keys belong to: random, drawn with it, and told to everybody who sees its keys.
pub(super) type Owner = [u8; 16];
/// The owner of no keys.
pub(super) const NOBODY: Owner = [0; 16];

/// Takes `c2 s^2` back to two parts.
#[derive(Clone)]
pub struct RelinKey {
    pub(super) params: CkksParams,
    pub(super) owner: Owner,
    pub(super) key: SwitchingKey,
}

/// A switching key and its automorphism's tables.
#[derive(Clone)]
pub(super) struct GaloisKey {
    pub(super) key: SwitchingKey,
    pub(super) map: Automorphism,
}

impl GaloisKey {
    pub(super) fn new(params: &CkksParams, exponent: usize, key: SwitchingKey) -> Result<Self, CkksError> {
        Ok(Self { key, map: Automorphism::new(params.basis(), exponent)? })
    }
}

/// Keys for a chosen set of rotations and conjugation.
#[derive(Clone)]
pub struct GaloisKeys {
    pub(super) params: CkksParams,
    pub(super) owner: Owner,
    pub(super) keys: BTreeMap<usize, GaloisKey>,
}

impl GaloisKeys {
    /// Whether the automorphism can be applied (the identity always can).
    #[must_use]
    pub fn contains(&self, element: Galois) -> bool {
        let g = element.exponent(&self.params);
        g == 1 || self.keys.contains_key(&g)
    }

    /// The highest level at which an automorphism can be applied; `None` without its key.
    #[must_use]
    pub fn level_of(&self, element: Galois) -> Option<Level> {
        self.keys.get(&element.exponent(&self.params)).map(|k| k.key.level)
    }

    /// A set of keys that has none.
    #[must_use]
    pub fn none(params: &CkksParams) -> Self {
        Self { params: params.clone(), owner: NOBODY, keys: BTreeMap::new() }
    }

    /// Takes the keys of another set, in the place of its own for the same automorphisms.
    ///
    /// # Errors
    /// [`CkksError::ForeignParams`], [`CkksError::ForeignSecret`].
    pub fn merge(&mut self, other: Self) -> Result<(), CkksError> {
        if self.params.hash() != other.params.hash() {
            return Err(CkksError::ForeignParams("rotation keys"));
        }
        if self.is_empty() {
            self.owner = other.owner;
        } else if !other.is_empty() && self.owner != other.owner {
            return Err(CkksError::ForeignSecret("a rotation key"));
        }
        self.keys.extend(other.keys);
        Ok(())
    }

    /// Number of key-switching keys in this set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn get(&self, element: Galois) -> Result<&GaloisKey, CkksError> {
        self.keys
            .get(&element.exponent(&self.params))
            .ok_or_else(|| CkksError::MissingKey(format!("{element:?}")))
    }
}

/// What says that a key belongs to a secret.
macro_rules! owned {
    ($($key:ty),*) => {
        $(impl $key {
            /// Names the secret that it belongs to: a random number, the same in all keys of one secret and in no other's.
            #[must_use]
            pub fn owner(&self) -> [u8; 16] {
                self.owner
            }
        })*
    };
}
owned!(RelinKey, GaloisKeys, super::PublicKey, super::bootstrap::Encapsulation);

/// A polynomial cut into digits, each raised to all primes of its level and the special ones: what every
/// key switch of the same polynomial shares.
#[derive(Clone)]
pub struct Digits {
    pub(super) level: Level,
    pub(super) polys: Vec<RnsPoly<Eval>>,
}

/// Calls `f` with the prepared digits of `c` (level l), times what keys hide too much of it where the level uses few special primes. Cost: l inverse
/// transforms.
pub(super) fn with_digits<R>(
    params: &CkksParams,
    c: &RnsPoly<Eval>,
    level: Level,
    f: impl FnOnce(&[Digit<'_>]) -> Result<R, CkksError>,
) -> Result<R, CkksError> {
    params.needs_special()?;
    let basis = params.basis();
    if level > params.key_level() {
        return Err(CkksError::LevelTooLow {
            what: "the highest key",
            got: params.0.key_level,
            needed: level.0,
        });
    }
    let share = &params.switching(level).share;
    let shared;
    let c = if share.is_empty() {
        c
    } else {
        let mut own = c.clone();
        basis.scale_assign(&mut own, share)?;
        shared = own;
        &shared
    };
    // Every limb is written below.
    let mut coefficients = basis.fill_with::<Coef, _>(c.range(), |_, _| Ok::<(), RnsError>(()))?;
    let mut rest = coefficients.words_mut();
    let mut digits = Vec::new();
    for digit in params.0.digits.iter().take_while(|d| d.primes.start < level.0) {
        let count = digit.primes.end.min(level.0) - digit.primes.start;
        let (words, others) = rest.split_at_mut(count * params.ring_degree());
        rest = others;
        digits.push(Digit::of_slots(basis, &digit.lift[count - 1], c, words)?);
    }
    f(&digits)
}

/// Cuts `c` (level l) into digits and raises them. Cost, with d digits in use and k special primes: l inverse and
/// d (l + k) - l forward transforms.
pub(super) fn decompose(params: &CkksParams, c: &RnsPoly<Eval>, level: Level) -> Result<Digits, CkksError> {
    let range = params.extended_range(level);
    let raise = |digits: &[Digit<'_>]| -> Result<Vec<_>, CkksError> {
        digits.iter().map(|d| Ok(d.raise(params.basis(), range.clone())?)).collect()
    };
    Ok(Digits { level, polys: with_digits(params, c, level, raise)? })
}

/// [`decompose`] and [`apply`] at once, without keeping raised digits.
pub(super) fn switch(
    params: &CkksParams,
    c: &RnsPoly<Eval>,
    level: Level,
    key: &SwitchingKey,
) -> Result<[RnsPoly<Eval>; 2], CkksError> {
    switch_with(params, c, level, key, |_| Added::NOTHING)
}

/// [`switch`], and what is `added` modulo each prime.
pub(super) fn switch_with<'a>(
    params: &CkksParams,
    c: &RnsPoly<Eval>,
    level: Level,
    key: &SwitchingKey,
    added: impl Fn(usize) -> Added<'a>,
) -> Result<[RnsPoly<Eval>; 2], CkksError> {
    // Every limb is written below.
    let any = || params.basis().fill_with(params.extended_range(level), |_, _| Ok::<(), RnsError>(()));
    let mut out = [any()?, any()?];
    let [low, high] = &mut out;
    switch_each(params, c, level, key, |i, sum| {
        sum([low.limb_mut(i), high.limb_mut(i)], added(i));
        Ok(())
    })?;
    Ok(out)
}

/// [`switch`] prime by prime: `each` is called as [`switch_limbs`] says.
pub(super) fn switch_each(
    params: &CkksParams,
    c: &RnsPoly<Eval>,
    level: Level,
    key: &SwitchingKey,
    each: impl FnMut(usize, &dyn Fn([&mut [u64]; 2], Added<'_>)) -> Result<(), RnsError>,
) -> Result<(), CkksError> {
    #[cfg(test)]
    counted::SWITCHES.set(counted::SWITCHES.get() + 1);
    let range = params.extended_range(level);
    key.serves(level)?;
    with_digits(params, c, level, |digits| {
        let halves = [&key.b[..digits.len()], &key.a[..digits.len()]];
        Ok(switch_limbs(params.basis(), range, digits, halves, each)?)
    })
}

/// `(sum_d x_d b_d, sum_d x_d a_d)` over the level's primes and the special ones: P times the switched
/// polynomial.
pub(super) fn apply(
    params: &CkksParams,
    digits: &Digits,
    key: &SwitchingKey,
) -> Result<[RnsPoly<Eval>; 2], CkksError> {
    #[cfg(test)]
    counted::HOISTED.set(counted::HOISTED.get() + 1);
    let basis = params.basis();
    key.serves(digits.level)?;
    let range = params.extended_range(digits.level);
    let count = digits.polys.len();
    let x: Vec<_> = digits.polys.iter().collect();
    let b: Vec<_> = key.b.iter().take(count).collect();
    let a: Vec<_> = key.a.iter().take(count).collect();
    Ok(basis.inner_products(range, &x, [&b, &a])?)
}

/// [`apply`] at prime i alone, with something `added`: `x` are the digits' limbs there.
pub(super) fn apply_limb(
    params: &CkksParams,
    i: usize,
    x: &[&[u64]],
    key: &SwitchingKey,
    added: Added<'_>,
    out: &mut [Vec<u64>; 2],
) -> Result<(), CkksError> {
    let b: Vec<&[u64]> = key.b.iter().take(x.len()).map(|p| p.limb(i)).collect();
    let a: Vec<&[u64]> = key.a.iter().take(x.len()).map(|p| p.limb(i)).collect();
    let [low, high] = out;
    Ok(params.basis().inner_words(i, [low, high], added, x, [&b, &a])?)
}

/// `sum_d Q_d^2` over the digits in use at a level, divided by P'^2, P' the product of the special primes that it uses.
pub(super) fn digit_ratio2(params: &CkksParams, level: Level) -> f64 {
    let used = params.0.special - params.switching(level).special;
    let special: f64 = params.special_primes()[used..].iter().map(|&p| (p as f64).log2()).sum();
    params
        .0
        .digits
        .iter()
        .filter(|d| d.primes.start < level.0)
        .map(|d| {
            let bits: f64 = (d.primes.start..d.primes.end.min(level.0))
                .map(|i| (params.data_prime(i) as f64).log2())
                .sum();
            (2.0 * (bits - special)).exp2()
        })
        .sum()
}

/// Whole key switches and products of hoisted digits with keys, for tests of counts.
#[cfg(test)]
pub(super) mod counted {
    use std::cell::Cell;
    thread_local! {
        pub(in crate::ckks) static SWITCHES: Cell<usize> = const { Cell::new(0) };
        pub(in crate::ckks) static HOISTED: Cell<usize> = const { Cell::new(0) };
    }
}
