//! What layouts compute on: ciphertexts, slots in the clear, or nothing at all. All three count the same operations.

use super::{SlotError, Term};
use hushnet_rlwe::bfv::{BfvError, Cipher, Counts, Evaluator, Hoisted, Tally, Turn, Weight};
use std::collections::HashMap;

/// Sums of products, permutations, and their counters.
pub trait Machine: Sync {
    /// An encrypted vector.
    type Cipher: Clone + Send + Sync;
    /// A vector prepared for permutations.
    type Hoisted: Send + Sync;
    /// A weight vector.
    type Weight: Send + Sync;

    /// Prepares a weight vector; machines that need no values do not ask for them.
    ///
    /// # Errors
    /// For vectors of a wrong length or with values not below t.
    fn encode(&self, slots: impl FnOnce() -> Vec<u64>) -> Result<Self::Weight, SlotError>;
    /// `sum_k w_k c_k`: K `ScMult`, K - 1 `Add`.
    ///
    /// # Errors
    /// Without a term.
    fn sum_products(&self, terms: &[(&Self::Cipher, &Self::Weight)]) -> Result<Self::Cipher, SlotError>;
    /// Several sums of products; machines may fetch what they share once.
    ///
    /// # Errors
    /// As [`Self::sum_products`].
    fn sums_of_products(
        &self,
        sums: &[&[(&Self::Cipher, &Self::Weight)]],
    ) -> Result<Vec<Self::Cipher>, SlotError> {
        sums.iter().map(|terms| self.sum_products(terms)).collect()
    }
    /// `a += b`: one `Add`.
    ///
    /// # Errors
    /// For ciphertexts of other parameters.
    fn add(&self, a: &mut Self::Cipher, b: &Self::Cipher) -> Result<(), SlotError>;
    /// One `DecPerm`.
    ///
    /// # Errors
    /// Where there is no key switching.
    fn dec_perm(&self, c: &Self::Cipher) -> Result<Self::Hoisted, SlotError>;
    /// One `HstPerm`, none for the identity.
    ///
    /// # Errors
    /// Without the key.
    fn hst_perm(&self, c: &Self::Cipher, h: &Self::Hoisted, turn: Turn) -> Result<Self::Cipher, SlotError>;
    /// One `Perm`, none for the identity.
    ///
    /// # Errors
    /// Without the key.
    fn perm(&self, c: &Self::Cipher, turn: Turn) -> Result<Self::Cipher, SlotError>;
    /// `c + turn(c)`: one `Perm`, one `Add`.
    ///
    /// # Errors
    /// Without the key.
    fn fold(&self, c: &Self::Cipher, turn: Turn) -> Result<Self::Cipher, SlotError>;
}

impl Machine for Evaluator {
    type Cipher = Cipher;
    type Hoisted = Hoisted;
    type Weight = Weight;

    fn encode(&self, slots: impl FnOnce() -> Vec<u64>) -> Result<Weight, SlotError> {
        Ok(self.encode_with(slots)?)
    }
    fn sum_products(&self, terms: &[(&Cipher, &Weight)]) -> Result<Cipher, SlotError> {
        Ok(Evaluator::sum_products(self, terms)?)
    }
    fn sums_of_products(&self, sums: &[&[(&Cipher, &Weight)]]) -> Result<Vec<Cipher>, SlotError> {
        Ok(Evaluator::sums_of_products(self, sums)?)
    }
    fn add(&self, a: &mut Cipher, b: &Cipher) -> Result<(), SlotError> {
        Ok(Evaluator::add(self, a, b)?)
    }
    fn dec_perm(&self, c: &Cipher) -> Result<Hoisted, SlotError> {
        Ok(Evaluator::dec_perm(self, c)?)
    }
    fn hst_perm(&self, c: &Cipher, h: &Hoisted, turn: Turn) -> Result<Cipher, SlotError> {
        Ok(Evaluator::hst_perm(self, c, h, turn)?)
    }
    fn perm(&self, c: &Cipher, turn: Turn) -> Result<Cipher, SlotError> {
        Ok(Evaluator::perm(self, c, turn)?)
    }
    fn fold(&self, c: &Cipher, turn: Turn) -> Result<Cipher, SlotError> {
        Ok(Evaluator::fold(self, c, turn)?)
    }
}

/// Slot vectors modulo t without encryption: the same kernels for any number of slots, and the same counts.
pub struct Clear {
    t: u64,
    tally: Tally,
}

impl Clear {
    /// Arithmetic in the clear modulo t, below 2^31.
    #[must_use]
    pub fn new(t: u64) -> Self {
        Self { t, tally: Tally::default() }
    }

    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.tally.read()
    }
}

impl Machine for Clear {
    type Cipher = Vec<u64>;
    type Hoisted = ();
    type Weight = Vec<u64>;

    fn encode(&self, slots: impl FnOnce() -> Vec<u64>) -> Result<Vec<u64>, SlotError> {
        Ok(slots())
    }
    fn sum_products(&self, terms: &[(&Vec<u64>, &Vec<u64>)]) -> Result<Vec<u64>, SlotError> {
        let Some((first, _)) = terms.first() else {
            return Err(BfvError::Length { what: "sum of products", expected: 1, got: 0 }.into());
        };
        let mut out = vec![0; first.len()];
        for (c, w) in terms {
            for ((o, x), y) in out.iter_mut().zip(c.iter()).zip(w.iter()) {
                *o = (*o + x * y) % self.t;
            }
        }
        let count = terms.len() as u64;
        self.tally.note(Counts { sc_mult: count, add: count - 1, ..Counts::default() });
        Ok(out)
    }
    fn add(&self, a: &mut Vec<u64>, b: &Vec<u64>) -> Result<(), SlotError> {
        a.iter_mut().zip(b).for_each(|(x, y)| *x = (*x + y) % self.t);
        self.tally.note(Counts { add: 1, ..Counts::default() });
        Ok(())
    }
    fn dec_perm(&self, _: &Vec<u64>) -> Result<(), SlotError> {
        self.tally.note(Counts { dec_perm: 1, ..Counts::default() });
        Ok(())
    }
    fn hst_perm(&self, c: &Vec<u64>, (): &(), turn: Turn) -> Result<Vec<u64>, SlotError> {
        self.tally.note(Counts { hst_perm: u64::from(!turn.is_identity()), ..Counts::default() });
        Ok(turn.apply(c))
    }
    fn perm(&self, c: &Vec<u64>, turn: Turn) -> Result<Vec<u64>, SlotError> {
        self.tally.note(Counts { perm: u64::from(!turn.is_identity()), ..Counts::default() });
        Ok(turn.apply(c))
    }
    fn fold(&self, c: &Vec<u64>, turn: Turn) -> Result<Vec<u64>, SlotError> {
        let mut out = self.perm(c, turn)?;
        self.add(&mut out, c)?;
        Ok(out)
    }
}

/// A machine that counts operations and computes no values.
#[derive(Default)]
pub struct Counting(Tally);

impl Counting {
    /// Numbers of operations that were counted so far, by kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.read()
    }
}

impl Machine for Counting {
    type Cipher = ();
    type Hoisted = ();
    type Weight = ();

    fn encode(&self, _: impl FnOnce() -> Vec<u64>) -> Result<(), SlotError> {
        Ok(())
    }
    fn sum_products(&self, terms: &[(&(), &())]) -> Result<(), SlotError> {
        let count = terms.len() as u64;
        self.0.note(Counts { sc_mult: count, add: count.saturating_sub(1), ..Counts::default() });
        Ok(())
    }
    fn add(&self, (): &mut (), (): &()) -> Result<(), SlotError> {
        self.0.note(Counts { add: 1, ..Counts::default() });
        Ok(())
    }
    fn dec_perm(&self, (): &()) -> Result<(), SlotError> {
        self.0.note(Counts { dec_perm: 1, ..Counts::default() });
        Ok(())
    }
    fn hst_perm(&self, (): &(), (): &(), turn: Turn) -> Result<(), SlotError> {
        self.0.note(Counts { hst_perm: u64::from(!turn.is_identity()), ..Counts::default() });
        Ok(())
    }
    fn perm(&self, (): &(), turn: Turn) -> Result<(), SlotError> {
        self.0.note(Counts { perm: u64::from(!turn.is_identity()), ..Counts::default() });
        Ok(())
    }
    fn fold(&self, c: &(), turn: Turn) -> Result<(), SlotError> {
        self.perm(c, turn)?;
        self.add(&mut (), c)
    }
}

/// Where weight vectors come from.
pub enum Store<'a, M: Machine> {
    /// Made once for the model.
    Prepared(&'a HashMap<Term, M::Weight>),
    /// Made when they are used, slots by slots.
    Streamed(&'a (dyn Fn(Term) -> Vec<u64> + Sync)),
}

/// Which sum, and the terms of it that come next.
type Chunk<'t, 'c, C> = (usize, &'t [(&'c C, Term)]);

/// Streamed weight vectors of a sum that are made and used together.
const STREAM_TERMS: usize = 16;
/// Prepared ones: what one reduction takes.
const PREPARED_TERMS: usize = 4096;
/// Sums of prepared weights that are computed together, over inputs laid out once.
const PREPARED_SUMS: usize = 32;
/// Sums of streamed ones.
const STREAM_SUMS: usize = 8;

impl<M: Machine> Store<'_, M> {
    /// Sums that are best computed together.
    pub(crate) fn together(&self) -> usize {
        match self {
            Self::Prepared(_) => PREPARED_SUMS,
            Self::Streamed(_) => STREAM_SUMS,
        }
    }

    /// `sum_k w(term_k) c_k`: as many `ScMult` as terms, and one `Add` less.
    ///
    /// # Errors
    /// As [`Self::sums`].
    pub fn sum(&self, machine: &M, terms: &[(&M::Cipher, Term)]) -> Result<M::Cipher, SlotError> {
        let mut sums = self.sums(machine, &[terms])?;
        Ok(sums.pop().ok_or(BfvError::Length { what: "sums of products", expected: 1, got: 0 })?)
    }

    /// [`Self::sum`] for each of several lists, together.
    ///
    /// # Errors
    /// What the machine refuses; [`BfvError::Length`] for a list without a term or a term that was not prepared.
    pub fn sums(&self, machine: &M, sums: &[&[(&M::Cipher, Term)]]) -> Result<Vec<M::Cipher>, SlotError> {
        if sums.iter().any(|terms| terms.is_empty()) {
            return Err(BfvError::Length { what: "sum of products", expected: 1, got: 0 }.into());
        }
        let most = if matches!(self, Self::Prepared(_)) { PREPARED_TERMS } else { STREAM_TERMS };
        let longest = sums.iter().map(|terms| terms.len()).max().unwrap_or(0);
        let mut totals: Vec<Option<M::Cipher>> = sums.iter().map(|_| None).collect();
        for first in (0..longest).step_by(most) {
            let chunks: Vec<Chunk<'_, '_, M::Cipher>> = sums
                .iter()
                .enumerate()
                .filter(|(_, terms)| first < terms.len())
                .map(|(s, terms)| (s, &terms[first..terms.len().min(first + most)]))
                .collect();
            for ((s, _), part) in chunks.iter().zip(self.chunk_sums(machine, &chunks)?) {
                match &mut totals[*s] {
                    Some(sum) => machine.add(sum, &part)?,
                    None => totals[*s] = Some(part),
                }
            }
        }
        Ok(totals.into_iter().flatten().collect())
    }

    fn chunk_sums(
        &self,
        machine: &M,
        chunks: &[Chunk<'_, '_, M::Cipher>],
    ) -> Result<Vec<M::Cipher>, SlotError> {
        let made: Vec<Vec<M::Weight>> = match self {
            Self::Prepared(_) => Vec::new(),
            Self::Streamed(make) => chunks
                .iter()
                .map(|(_, chunk)| chunk.iter().map(|(_, t)| machine.encode(|| make(*t))).collect())
                .collect::<Result<_, SlotError>>()?,
        };
        let mut lists = Vec::with_capacity(chunks.len());
        for (number, (_, chunk)) in chunks.iter().enumerate() {
            let mut pairs: Vec<(&M::Cipher, &M::Weight)> = Vec::with_capacity(chunk.len());
            for (k, (c, term)) in chunk.iter().enumerate() {
                let weight = match self {
                    Self::Prepared(all) => all.get(term),
                    Self::Streamed(_) => Some(&made[number][k]),
                };
                pairs.push((
                    c,
                    weight.ok_or(BfvError::Length { what: "prepared weight", expected: 1, got: 0 })?,
                ));
            }
            lists.push(pairs);
        }
        let lists: Vec<&[_]> = lists.iter().map(Vec::as_slice).collect();
        machine.sums_of_products(&lists)
    }
}
